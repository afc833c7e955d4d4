"""`watch` and `who`: run a driver and the core, without stored state, alerts or files."""

import logging
import socket
import time
from collections.abc import Generator
from contextlib import closing
from queue import Empty, SimpleQueue
from typing import Final

from sidecar.clock import Clock
from sidecar.core.cluster.state import ClusterState
from sidecar.core.effects import Append
from sidecar.core.errors import OperatorError
from sidecar.core.flink.leadership import ConfigMapPosition, Held
from sidecar.core.observations import ClusterObservation, SnapshotCompleted, Started, Ticked, is_trace
from sidecar.core.policy.policy import Policy
from sidecar.core.records import TransitionRecord
from sidecar.core.state import State
from sidecar.core.step import step_all
from sidecar.core.views.flink_view import FlinkView, LeaderAddress
from sidecar.core.views.leader_view import Leader, leaders
from sidecar.core.views.snapshot import Snapshot
from sidecar.drivers import Drivers
from sidecar.settings import ClusterSettings, session_timeouts

_INBOX: Final = 10_000
_FULL_PAUSE: Final = 0.01
_TICK: Final = 0.25

_log = logging.getLogger(__name__)


class ClusterNotSeenError(OperatorError):
    """Not all leader nodes could be read in time, or nothing of the cluster exists."""


def transitions(cluster: ClusterSettings) -> Generator[TransitionRecord, None, None]:
    """The transitions from now on, until the caller closes the iterator."""
    clock = Clock()
    stores = {cluster.cluster_id: cluster.store}
    policy = Policy(socket.gethostname(), stores, session_timeouts=session_timeouts(cluster))
    state, _ = step_all(policy, State(), [Started(clock())])
    with closing(_observations(cluster, clock)) as observations:
        for observation in observations:
            state, effects = step_all(policy, state, [observation] if observation else [Ticked(clock())])
            for effect in effects:
                if isinstance(effect, Append) and isinstance(effect.record, TransitionRecord):
                    yield effect.record


def flink_calls(cluster: ClusterSettings) -> Generator[LeaderAddress, None, None]:
    """The calls that Flink's own listeners get from now on, until the caller closes the iterator."""
    view = FlinkView(tolerate_suspended=cluster.tolerate_suspended)
    with closing(_observations(cluster, Clock())) as observations:
        for observation in observations:
            if observation is not None:
                yield from view.observe(observation)


def who(cluster: ClusterSettings, patience: float) -> list[Leader]:
    """The current leader of each component. Raises ClusterNotSeenError if they cannot all be read within `patience` seconds, or if nothing
    of the cluster exists.

    In Kubernetes the address of a dead leader remains: waits until each lease is renewed or expires, at most `patience` seconds.
    """
    clock = Clock()
    policy = Policy(socket.gethostname(), {cluster.cluster_id: cluster.store})
    state, _ = step_all(policy, State(), [Started(clock())])
    deadline = clock().steady + int(patience * 1_000_000)
    seen_at: int | None = None
    found = False
    with closing(_observations(cluster, clock)) as observations:
        for observation in observations:
            if observation is not None:
                state, _ = step_all(policy, state, [observation])
                found = found or is_trace(observation)
            if isinstance(observation, SnapshotCompleted):
                seen_at = observation.at.steady
                if not found:
                    advice = "check its id, and that a JobManager runs"
                    raise ClusterNotSeenError(f"{cluster.place} has no Flink cluster {cluster.cluster_id}: {advice}")
            if seen_at is not None and _all_proven(state.clusters[cluster.cluster_id], seen_at):
                break
            if clock().steady >= deadline:
                if seen_at is None:
                    advice = "check the address, and that the store is up"
                    raise ClusterNotSeenError(f"cannot read {cluster.place} within {patience:.0f} s: {advice}")
                _log.warning("not every lease was renewed or expired within %.0f s: a leader may be dead", patience)
                break
    return leaders(Snapshot(clock(), state))


def _all_proven(cluster: ClusterState, since: int) -> bool:
    """Whether every leader with a lease has changed its ConfigMap after `since` (steady)."""
    held = (known.leadership.position for known in cluster.components.values() if isinstance(known.leadership, Held))
    names = [position.name for position in held if isinstance(position, ConfigMapPosition)]
    return all(cluster.leases[name].changed_at > since for name in names)


def _observations(cluster: ClusterSettings, clock: Clock) -> Generator[ClusterObservation | None, None, None]:
    """The driver's observations, and None now and then if there are none."""
    inbox: SimpleQueue[ClusterObservation] = SimpleQueue()  # a Queue wakes the reader some 0.1 ms later

    def put(observation: ClusterObservation) -> None:
        while inbox.qsize() >= _INBOX:  # the terminal is slow: make the driver wait
            time.sleep(_FULL_PAUSE)
        inbox.put(observation)

    drivers = Drivers([cluster], clock)
    drivers.start(put)
    try:
        while True:
            try:
                yield inbox.get(timeout=_TICK)
            except Empty:
                yield None
    finally:
        drivers.stop()
