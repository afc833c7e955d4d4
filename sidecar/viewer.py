"""`watch` and `who`: a driver and the core, without state, alerts or files."""

import logging
import socket
import time
from collections.abc import Generator
from contextlib import closing
from queue import Empty, SimpleQueue
from typing import Final

from sidecar.clock import Clock
from sidecar.core.cluster.state import ClusterState
from sidecar.core.errors import OperatorError
from sidecar.core.flink.leadership import ConfigMapPosition, Held
from sidecar.core.observations import ClusterObservation, SnapshotCompleted, Started, Ticked, is_trace
from sidecar.core.policy.policy import Policy
from sidecar.core.records import TransitionRecord
from sidecar.core.state import State
from sidecar.core.step import Append, step_all
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
    """The store could not be seen whole in the time there was."""


def transitions(cluster: ClusterSettings) -> Generator[TransitionRecord, None, None]:
    """What happens from now on, one record after the other, until the caller closes the iterator."""
    clock = Clock()
    policy = Policy(
        socket.gethostname(), {cluster.cluster_id: cluster.store}, session_timeouts=session_timeouts(cluster)
    )
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
    """Who leads each component now. Raises ClusterNotSeenError when the store cannot be seen whole within `patience` seconds, or when
    nothing of the cluster is there.

    In Kubernetes the address of a dead leader stays: each lease is awaited until it is renewed or runs out, as far as patience goes.
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
                    raise ClusterNotSeenError(
                        f"looking at {cluster.place}: nothing of a Flink cluster {cluster.cluster_id} is there: is its id right, and does "
                        "a JobManager run?"
                    )
            if seen_at is not None and _all_proven(state.clusters[cluster.cluster_id], seen_at):
                return leaders(Snapshot(clock(), state))
            if clock().steady >= deadline:
                break
    if seen_at is not None:
        _log.warning("not every lease was renewed or expired within %.0f s: the leader shown may be dead", patience)
        return leaders(Snapshot(clock(), state))
    raise ClusterNotSeenError(
        f"looking at {cluster.place}: not seen whole within {patience:.0f} s; is the address right, and is the store up?"
    )


def _all_proven(cluster: ClusterState, since: int) -> bool:
    """Whether every leader whose lease says that it lives has been heard of after `since` (steady)."""
    held = (known.leadership.position for known in cluster.components.values() if isinstance(known.leadership, Held))
    return all(
        cluster.leases[position.name].changed_at > since for position in held if isinstance(position, ConfigMapPosition)
    )


def _observations(cluster: ClusterSettings, clock: Clock) -> Generator[ClusterObservation | None, None, None]:
    """What the driver brings, and None now and then when it brings nothing."""
    inbox: SimpleQueue[ClusterObservation] = SimpleQueue()  # a Queue wakes whoever waits some 0.1 ms later

    def put(observation: ClusterObservation) -> None:
        while inbox.qsize() >= _INBOX:  # the terminal is slow: so is the driver, then
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
