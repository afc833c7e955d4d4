"""What a driver reported, and what a sidecar would record of it."""

import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import Generic, TypeVar

from sidecar.core.moment import SECOND, Moment
from sidecar.core.observations import (
    ChildrenObserved,
    ClusterObservation,
    ConnectionState,
    NodeObserved,
    NodeRefused,
    SnapshotCompleted,
    Ticked,
    ViewConfirmed,
    ViewObserved,
)
from sidecar.core.policy.policy import Policy
from sidecar.core.records import AnyRecord
from sidecar.core.state import Append, State
from sidecar.core.step import step
from sidecar.drivers.zookeeper import ZooKeeperDriver
from sidecar.drivers.zookeeper.tree import Tree
from sidecar.ports import LeaderRetrievalDriver
from tests.kit.ticks import ticked
from tests.kit.waiting import PATIENCE_SECONDS

CLUSTER = "default"
CONNECTED, SUSPENDED, LOST = ConnectionState.CONNECTED, ConnectionState.SUSPENDED, ConnectionState.LOST
_TICK = SECOND // 4


D = TypeVar("D", bound=LeaderRetrievalDriver)
R = TypeVar("R", bound=Callable[[ClusterObservation], None])
T = TypeVar("T")


def now() -> Moment:
    """The machine's clocks."""
    return Moment(time.monotonic_ns() // 1000, time.time_ns() // 1000)


class Observations(Generic[T]):
    """An observer that keeps what was reported to it, in order."""

    def __init__(self) -> None:
        self.all: list[T] = []
        self.confirmed: list[ViewConfirmed] = []
        """Apart from all the rest: these come all the time."""
        self._arrival = threading.Condition()

    def __call__(self, observation: T) -> None:
        with self._arrival:
            if isinstance(observation, ViewConfirmed):
                self.confirmed.append(observation)
            else:
                self.all.append(observation)
            self._arrival.notify_all()

    def wait(self, condition: Callable[[], object], timeout: float = PATIENCE_SECONDS) -> None:
        """Wait until what was reported makes `condition` true; fails with what was reported when it does not."""
        deadline = time.monotonic() + timeout
        with self._arrival:
            while not condition():
                assert time.monotonic() < deadline, f"not within {timeout} s, of {self.all[-12:]}"
                self._arrival.wait(0.05)  # not everything that is waited for is reported


class Recorder(Observations[ClusterObservation]):
    """What a driver observed."""

    def __init__(self, driver: ZooKeeperDriver) -> None:
        super().__init__()
        self.driver = driver

    @property
    def tree(self) -> Tree:
        """The paths that it reads. White box: nothing else shows that a path is not watched for ever."""
        return self.driver._place._clusters[""].tree

    def wait_complete(self, snapshots: int = 1, timeout: float = PATIENCE_SECONDS) -> None:
        """Wait until everything has been read for the n-th time."""
        self.wait(lambda: self.snapshots() >= snapshots, timeout)

    def wait_value(self, path: str, data: bytes | None, timeout: float = PATIENCE_SECONDS) -> None:
        """Wait until `data`, or nothing (None), is what was last seen at `path`."""
        self.wait(lambda: self.values(path)[-1:] == [data], timeout)

    def wait_names(self, path: str, *names: str) -> None:
        """Wait until these are the children last seen of `path`."""
        self.wait(lambda: self.names(path)[-1:] == [names])

    def wait_view(self, *states: ConnectionState, timeout: float = PATIENCE_SECONDS) -> None:
        """Wait until the connection has gone through exactly these states."""
        self.wait(lambda: len(self.view()) >= len(states), timeout)
        assert self.view() == list(states)

    def snapshots(self) -> int:
        return sum(isinstance(observation, SnapshotCompleted) for observation in self.all)

    def view(self) -> list[ConnectionState]:
        return [view.connection for view in self.all if isinstance(view, ViewObserved)]

    def seconds_until(self, state: ConnectionState, since: Moment) -> float:
        """How long after `since` the connection was first seen to be in `state`."""
        return next(
            (view.at.steady - since.steady) / SECOND
            for view in list(self.all)
            if isinstance(view, ViewObserved) and view.connection is state and view.at.steady >= since.steady
        )

    def nodes(self, path: str) -> list[NodeObserved]:
        return [node for node in self.all if isinstance(node, NodeObserved) and node.path == path]

    def values(self, path: str) -> list[bytes | None]:
        """The values seen at `path`, None where there was nothing."""
        return [node.data if node.position else None for node in self.nodes(path)]

    def standing(self) -> dict[str, bytes]:
        """The last value seen at each path where there is one."""
        last = {node.path: node for node in self.all if isinstance(node, NodeObserved)}
        return {path: node.data for path, node in last.items() if node.position}

    def names(self, path: str) -> list[tuple[str, ...]]:
        return [
            children.names for children in self.all if isinstance(children, ChildrenObserved) and children.path == path
        ]

    def refused(self, path: str) -> list[str]:
        return [refusal.reason for refusal in self.all if isinstance(refusal, NodeRefused) and refusal.path == path]


@contextmanager
def running(driver: LeaderRetrievalDriver, observer: Callable[[ClusterObservation], None]) -> Iterator[None]:
    """A started driver, stopped at the end, also of a test that fails: its threads would disturb the tests that follow."""
    driver.start(observer)
    try:
        yield
    finally:
        driver.stop()


@contextmanager
def recorders(record: Callable[[D], R]) -> Iterator[Callable[[D], R]]:
    """Starts drivers, each with the recorder that `record` makes for it, and stops them in the end."""
    with ExitStack() as started:

        def start(driver: D) -> R:
            started.callback(driver.stop)
            recorder = record(driver)
            driver.start(recorder)
            return recorder

        yield start


def recorded(observations: Sequence[ClusterObservation], until: Moment, policy: Policy) -> list[AnyRecord]:
    """What a fresh sidecar records of these observations, its clock ticking four times a second, `until` then."""
    state, records = State(), list[AnyRecord]()
    for _, observation in ticked(((None, observation) for observation in [*observations, Ticked(until)]), _TICK):
        state, effects = step(policy, state, observation)
        records.extend(effect.record for effect in effects if isinstance(effect, Append))
    return records
