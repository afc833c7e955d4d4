"""`watch` and `who`: a driver and the core, without state, alerts or files."""

import socket
from collections.abc import Generator
from contextlib import closing
from queue import Empty, Queue
from typing import Final

from sidecar.clock import Clock
from sidecar.core.errors import OperatorError
from sidecar.core.flink_view import FlinkView, LeaderAddress
from sidecar.core.leaders import Leader, leaders
from sidecar.core.observations import ClusterObservation, SnapshotCompleted, Started, Ticked
from sidecar.core.policy import Policy, Store
from sidecar.core.records import Transition
from sidecar.core.snapshot import Snapshot
from sidecar.core.state import State
from sidecar.core.step import Append, step_all
from sidecar.drivers import driver_for
from sidecar.settings import ZooKeeperSettings

_INBOX: Final = 10_000
_TICK: Final = 0.25


class ClusterNotSeenError(OperatorError):
    """The store could not be seen whole in the time there was."""


def transitions(cluster: ZooKeeperSettings) -> Generator[Transition, None, None]:
    """What happens from now on, one record after the other, until the caller closes the iterator."""
    clock = Clock()
    policy = Policy(socket.gethostname(), {cluster.cluster_id: Store.ZOOKEEPER})
    state, _ = step_all(policy, State(), [Started(clock())])
    with closing(_observations(cluster, clock)) as observations:
        for observation in observations:
            state, effects = step_all(policy, state, [observation] if observation else [Ticked(clock())])
            for effect in effects:
                if isinstance(effect, Append) and isinstance(effect.record, Transition):
                    yield effect.record


def flink_calls(cluster: ZooKeeperSettings) -> Generator[LeaderAddress, None, None]:
    """The calls that Flink's own listeners get from now on, until the caller closes the iterator."""
    view = FlinkView(tolerate_suspended=cluster.tolerate_suspended)
    with closing(_observations(cluster, Clock())) as observations:
        for observation in observations:
            if observation is not None:
                yield from view.observe(observation)


def who(cluster: ZooKeeperSettings, patience: float) -> list[Leader]:
    """Who leads each component now. Raises ClusterNotSeenError when the store cannot be seen whole within `patience` seconds."""
    clock = Clock()
    policy = Policy(socket.gethostname(), {cluster.cluster_id: Store.ZOOKEEPER})
    state, _ = step_all(policy, State(), [Started(clock())])
    deadline = clock().steady + int(patience * 1_000_000)
    with closing(_observations(cluster, clock)) as observations:
        for observation in observations:
            if observation is not None:
                state, _ = step_all(policy, state, [observation])
            if isinstance(observation, SnapshotCompleted):
                return leaders(Snapshot(clock(), state))
            if clock().steady >= deadline:
                break
    raise ClusterNotSeenError(
        f"looking at {cluster.namespace} in ZooKeeper {cluster.quorum}: not seen whole within {patience:.0f} s; "
        "is the address right, and is ZooKeeper up?"
    )


def _observations(cluster: ZooKeeperSettings, clock: Clock) -> Generator[ClusterObservation | None, None, None]:
    """What the driver brings, and None now and then when it brings nothing."""
    inbox: Queue[ClusterObservation] = Queue(_INBOX)
    driver = driver_for(cluster, clock)
    driver.start(inbox.put)
    try:
        while True:
            try:
                yield inbox.get(timeout=_TICK)
            except Empty:
                yield None
    finally:
        driver.stop()
