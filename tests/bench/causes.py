"""Which cause is reported of each fault: `python -m tests.bench.causes [VERSION ...] [--runs N]`.

Real Flink on a real ZooKeeper with session timeouts of 5 s, each JobManager and the sidecar behind a way there that can be shut: a run
takes some ten minutes. What is reported is what the journal of `run` holds. A fault comes when the one before is over, and a minute after
the sidecar saw the store again: what happens in that minute may have to do with it. Exit status 1: a verdict was wrong, or an alert was.
"""

import argparse
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import NamedTuple

from sidecar.core.causes import RELATED, Cause
from sidecar.core.moment import SECOND
from tests.bench.cause_scene import CALM_SECONDS, SESSION, ApartLab, Fault, Scene, Told, epoch_seconds
from tests.bench.stage import Table
from tests.e2e.listener.gate import Gate

VERSIONS = ("2.3.0", "1.20.5")
_SPLITS = ("1.20.",)
"""Of these, two processes may both lead when ZooKeeper was away for longer than their sessions last, and comes back with them: a defect."""
_SPLIT_BEGINS_SECONDS = 30.0
_START_SECONDS = 2.0
_BLIND_SECONDS = RELATED / SECOND + 15
_MOST_TRANSITIONS = 24

Act = Callable[[Scene, Fault], None]


class Kind(NamedTuple):
    """A way to make a leader go, or not."""

    what: str
    cause: Cause | None
    """What is to be reported; None: no episode."""
    act: Act
    jobmanagers: int = 2
    calm: float = CALM_SECONDS
    """For so long nothing may move until all is said."""
    quiet: float = 0.0
    """Nobody may be alerted, and nothing but the cause be told within so many seconds."""
    turn: int = 0
    """The later, the more it leaves behind."""
    is_outage: bool = False


class Run(NamedTuple):
    """What was reported of one fault."""

    fault: Fault
    lasted: float
    """For how many seconds the fault really was."""
    told: Told

    def causes(self) -> str:
        found = [f"{each['cause']} ({each['confidence']})" for each in self.told.episodes]
        return " + ".join([*found, *("not over" for _ in self.told.unfinished)]) or "none"

    def is_right(self, allowed: set[Cause]) -> bool:
        """One that is allowed, and no other; a split may follow upon what it came from."""
        found = [each["cause"] for each in self.told.episodes]
        alone = len(found) <= 1 or Cause.SPLIT_LEADERSHIP in found
        return not self.told.unfinished and alone and bool(found) == bool(allowed) and {*found} <= allowed

    def after(self) -> list[float]:
        """How long after the fault each episode was recorded."""
        return [epoch_seconds(each["recorded_at"]) - self.fault.at for each in self.told.episodes]


def main(versions: Sequence[str] = VERSIONS, runs: int = 1) -> bool:
    """A table for each version, and what was wrong. Whether nothing was."""
    right = [_play(version, runs) for version in versions]
    return all(right)


def _play(version: str, runs: int) -> bool:
    found: dict[Kind, list[Run]] = {kind: [] for kind in KINDS}
    try:
        with (
            tempfile.TemporaryDirectory() as name,
            ApartLab(Path(name) / "lab", version) as lab,
            Scene(lab, Path(name)) as scene,
        ):
            for _ in range(runs):
                for kind in sorted(KINDS, key=lambda kind: kind.turn):
                    found[kind].append(_one(scene, kind))
    finally:  # also what was found before a cluster did not come to rest any more
        right = _report(version, {kind: found[kind] for kind in KINDS if found[kind]})
    return right


def _one(scene: Scene, kind: Kind) -> Run:
    scene.stand_by(kind.jobmanagers)
    fault = scene.begin()
    began = time.monotonic()
    kind.act(scene, fault)
    lasted = time.monotonic() - began
    told = scene.wait_for_nothing(fault, kind.quiet) if kind.quiet else scene.wait_for_episode(fault, kind.calm)
    run = Run(fault, lasted, told)
    print(f"{kind.what}: {run.causes()}", file=sys.stderr, flush=True)
    return run


def _report(version: str, found: Mapping[Kind, Sequence[Run]]) -> bool:
    table = Table(
        f"Flink {version}", "expected", "lasted, s at most", "reported (runs)", "recorded, after s at most", "alerts"
    )
    wrong, alerts = [], 0
    for kind, runs in found.items():
        reported = Counter(run.causes() for run in runs)
        told = sum(len(run.told.alerts) for run in runs)
        table.row(
            kind.what,
            " or ".join(sorted({cause for run in runs for cause in _allowed(version, kind, run)})) or "none",
            f"{max(run.lasted for run in runs):.1f}",
            ", ".join(f"{causes} ({count} of {len(runs)})" for causes, count in reported.items()),
            f"{max(after):.1f}" if (after := [each for run in runs for each in run.after()]) else "",
            told,
        )
        alerts += told if kind.quiet else 0
        wrong += [(kind, run) for run in runs if not run.is_right(_allowed(version, kind, run))]
    table.target("wrong verdicts", len(wrong), 0)
    table.target("alerts where nothing happened to a leader", alerts, 0)
    table.end()
    for kind, run in wrong:
        _explain(kind, run)
    return not wrong and not alerts


def _allowed(version: str, kind: Kind, run: Run) -> set[Cause]:
    causes = {kind.cause} if kind.cause else set()
    splits = kind.is_outage and version.startswith(_SPLITS) and run.lasted >= SESSION.total_seconds()
    return causes | {Cause.SPLIT_LEADERSHIP} if splits else causes


def _explain(kind: Kind, run: Run) -> None:
    """What a wrong verdict rests on, and what was seen."""
    print(f"WRONG: {kind.what}: {run.causes()}")
    for episode in run.told.episodes:
        print("  facts:", *episode["facts"])
    for each in run.told.transitions[:_MOST_TRANSITIONS]:
        after = epoch_seconds(each["observed_at"]) - run.fault.at
        name = f"job {each['job_id']}" if each["job_id"] else each["component"]
        same = f"same process: {each['same_process']}, contenders: {each['contenders']}"
        print(f"  {after:+.3f} s {name} {each['pattern']} {each['after_address'] or ''} ({same})")
    print(f"  {len(run.told.transitions)} transitions\n", flush=True)


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
    _shut(scene.lab.gates[fault.leader.name], seconds)


def blinded(scene: Scene, _fault: Fault, seconds: float) -> None:
    _shut(scene.gate, seconds)


def down(scene: Scene, _fault: Fault, seconds: float) -> None:
    """Its start takes a while, and begins so much earlier; nobody gets through before. On a busy machine it may be away for longer."""
    back_at = time.monotonic() + seconds
    scene.lab.zookeeper.kill()
    gates = (scene.gate, *scene.lab.gates.values())
    for gate in gates:
        gate.shut()
    time.sleep(max(0.0, seconds - _START_SECONDS))
    scene.lab.zookeeper.start()
    time.sleep(max(0.0, back_at - time.monotonic()))
    for gate in gates:
        gate.open()


def cancelled(scene: Scene, _fault: Fault) -> None:
    scene.cancel_job()


def _shut(gate: Gate, seconds: float) -> None:
    gate.shut()
    time.sleep(seconds)
    gate.open()


KINDS = (
    Kind("`kill -9` of the leader, a standby", Cause.JOBMANAGER_LOST, killed),
    Kind("`kill -9` of the only JobManager, restarted in place", Cause.RESTARTED_IN_PLACE, restarted, 1),
    Kind("SIGTERM of the leader", Cause.GRACEFUL_HANDOVER, ended),
    Kind("SIGSTOP for 15 s, SIGCONT", Cause.JOBMANAGER_LOST, partial(frozen, seconds=15)),
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


if __name__ == "__main__":
    parser = argparse.ArgumentParser(prog="python -m tests.bench.causes")
    parser.add_argument("versions", nargs="*", default=VERSIONS, metavar="VERSION")
    parser.add_argument("--runs", type=int, default=1, help="of each fault")
    arguments = parser.parse_args()
    sys.exit(not main(arguments.versions, arguments.runs))
