"""The ways to make a leader go, or not, and which cause is to be reported of each: by the store that the leaders are in."""

import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import NamedTuple

from sidecar.core.failover.causes import RELATED, Cause
from sidecar.core.moment import SECOND
from tests.bench.cause_scene import CALM_SECONDS, Fault, Outcome, Scene
from tests.kit.relay import Gate

_SPLIT_BEGINS_SECONDS = 30.0
_BLIND_SECONDS = RELATED / SECOND + 15
_LEASE_SECONDS = 15.0
"""In which a lease of 5 s has run out, another JobManager has tried, and an observer has reported it."""

Act = Callable[[Scene, Fault], None]


class Race(NamedTuple):
    """What is to be reported where it is up to the cluster what becomes of the leader, by outcome. None: no episode."""

    stayed: Cause | None
    late: Cause | None
    again: Cause | None
    another: Cause | None

    def cause(self, outcome: Outcome) -> Cause | None:
        return dict(zip(Outcome, self, strict=True))[outcome]


class Kind(NamedTuple):
    """A way to make a leader go, or not."""

    what: str
    cause: Cause | Race | None
    """What is to be reported; None: no episode."""
    act: Act
    jobmanagers: int = 2
    calm: float = CALM_SECONDS
    """For so long nothing may move until all is said."""
    quiet: float = 0.0
    """Nobody may be alerted, and nothing but the cause be reported within so many seconds."""
    patience: float = 120.0
    """What has not begun within so many seconds does not come."""
    turn: int = 0
    """The later, the more it leaves behind."""
    is_outage: bool = False


# -- the faults --------------------------------------------------------------------------------------------------------


def killed(_scene: Scene, fault: Fault) -> None:
    fault.leader.kill()


def restarted(_scene: Scene, fault: Fault) -> None:
    fault.leader.kill()
    fault.leader.start()


def ended(_scene: Scene, fault: Fault) -> None:
    fault.leader.terminate()


def frozen(_scene: Scene, fault: Fault, seconds: float) -> None:
    fault.leader.pause()
    time.sleep(seconds)
    fault.leader.resume()


def cut_off(scene: Scene, fault: Fault, seconds: float) -> None:
    _shut([scene.lab.gates[fault.leader.name]], seconds)


def blinded(scene: Scene, _fault: Fault, seconds: float) -> None:
    _shut([scene.gate], seconds)


def unreachable(scene: Scene, _fault: Fault, seconds: float) -> None:
    """For everybody."""
    _shut([scene.gate, *scene.lab.gates.values()], seconds)


def down(scene: Scene, _fault: Fault, seconds: float) -> None:
    """Its start takes a while, and begins so much earlier; nobody gets through before. On a busy machine it may be away for longer."""
    back_at = time.monotonic() + seconds
    scene.lab.store.kill()
    gates = (scene.gate, *scene.lab.gates.values())
    for gate in gates:
        gate.shut()
    time.sleep(max(0.0, seconds - scene.lab.restart_seconds))
    scene.lab.store.start()
    time.sleep(max(0.0, back_at - time.monotonic()))
    for gate in gates:
        gate.open()


def cancelled(scene: Scene, _fault: Fault) -> None:
    scene.cancel_job()


def _shut(gates: Sequence[Gate], seconds: float) -> None:
    for gate in gates:
        gate.shut()
    time.sleep(seconds)
    for gate in gates:
        gate.open()


# -- what is to be reported of them ----------------------------------------------------------------------------------------

_CRASHES = (
    Kind("`kill -9` of the leader, a standby", Cause.JOBMANAGER_LOST, killed),
    Kind("`kill -9` of the only JobManager, restarted in place", Cause.RESTARTED_IN_PLACE, restarted, 1),
    Kind("SIGTERM of the leader", Cause.GRACEFUL_HANDOVER, ended),
    Kind("SIGSTOP for 15 s, SIGCONT", Cause.JOBMANAGER_LOST, partial(frozen, seconds=15)),
)
_NOT_OF_FLINK = (
    Kind("only the sidecar cut off for 2 s", None, partial(blinded, seconds=2), quiet=_BLIND_SECONDS, turn=1),
    Kind(
        "only the sidecar cut off for 12 s",
        Cause.OBSERVER_BLIND,
        partial(blinded, seconds=12),
        quiet=_BLIND_SECONDS,
        turn=1,
    ),
    Kind("the job cancelled", None, cancelled, quiet=2 * CALM_SECONDS),
)
_ZOOKEEPER = (
    *_CRASHES,
    Kind("the leader cut off for 2 s", Cause.SAME_PROCESS_REELECTION, partial(cut_off, seconds=2)),
    Kind("the leader cut off for 12 s, a standby", Cause.JOBMANAGER_LOST, partial(cut_off, seconds=12)),
    Kind("the only JobManager cut off for 12 s", Cause.SAME_PROCESS_REELECTION, partial(cut_off, seconds=12), 1),
    Kind("ZooKeeper down for 2 s", Cause.STORE_OUTAGE, partial(down, seconds=2), turn=1, is_outage=True),
    Kind(
        "ZooKeeper down for 15 s",
        Cause.STORE_OUTAGE,
        partial(down, seconds=15),
        calm=_SPLIT_BEGINS_SECONDS,
        turn=2,
        is_outage=True,
    ),
    *_NOT_OF_FLINK,
)

_LEASE = Race(None, Cause.LEASE_RENEWAL_FAILED, Cause.LEASE_RENEWAL_FAILED, Cause.JOBMANAGER_LOST)
"""Who was silent for about as long as its lease may have renewed it in time, or taken it again before somebody else did."""
_BLINK = Race(None, None, Cause.STORE_OUTAGE, Cause.STORE_OUTAGE)
_OUTAGE = Race(Cause.OBSERVER_BLIND, Cause.OBSERVER_BLIND, Cause.STORE_OUTAGE, Cause.STORE_OUTAGE)
"""What nobody can see runs out for nobody: a leader who goes on with its term was never anything else."""

_KUBERNETES = (
    *_CRASHES,
    Kind("SIGSTOP for 5 s, SIGCONT", _LEASE, partial(frozen, seconds=5), patience=_LEASE_SECONDS),
    Kind("the leader cut off for 2 s", _LEASE, partial(cut_off, seconds=2), patience=_LEASE_SECONDS),
    Kind("the leader cut off for 4 s", _LEASE, partial(cut_off, seconds=4), patience=_LEASE_SECONDS),
    Kind("the leader cut off for 12 s", _LEASE, partial(cut_off, seconds=12), patience=_LEASE_SECONDS),
    Kind(
        "the only JobManager cut off for 6 s",
        _LEASE,
        partial(cut_off, seconds=6),
        jobmanagers=1,
        patience=_LEASE_SECONDS,
    ),
    Kind("the only JobManager cut off for 12 s", _LEASE, partial(cut_off, seconds=12), 1, patience=_LEASE_SECONDS),
    Kind("API server unreachable for 2 s", _BLINK, partial(unreachable, seconds=2), patience=_BLIND_SECONDS, turn=1),
    Kind("API server down for 5 s", _OUTAGE, partial(down, seconds=5), patience=_BLIND_SECONDS, turn=1),
    Kind("API server down for 15 s", _OUTAGE, partial(down, seconds=15), patience=_BLIND_SECONDS, turn=2),
    *_NOT_OF_FLINK,
)

KINDS: Mapping[str, Sequence[Kind]] = {"zookeeper": _ZOOKEEPER, "kubernetes": _KUBERNETES}
"""By the store."""
