"""A small cluster whose leaders come and go, as observations."""

from uuid import UUID

from sidecar.core.flink.leadership import ZNodePosition
from sidecar.core.moment import Moment
from sidecar.core.observations import (
    ConnectionState,
    NodeObserved,
    Observation,
    SnapshotCompleted,
    Started,
    ViewObserved,
)
from sidecar.core.policy.policy import Destination, Policy, Rule, Severity, Store
from sidecar.core.policy.routing import Route
from sidecar.core.policy.triggers import Trigger
from sidecar.core.state import Append, Effect, State
from sidecar.core.step import step_all
from tests.kit.java_serialization import connection_info

CLUSTER = "default"
PATHS = tuple(f"/leader/{name}/connection_info" for name in ("resource_manager", "dispatcher", "rest_server"))
POLICY = Policy(
    "observer-1",
    {CLUSTER: Store.ZOOKEEPER},
    external_labels={"env": "test"},
    rules=(
        Rule("FlinkLeaderChanged", Trigger.LEADER_CHANGED),
        Rule("FlinkNoLeader", Trigger.VACANT, Severity.CRITICAL, 30_000_000),
    ),
    route=Route("ops"),
    receivers={"ops": (Destination("ops", 0), Destination("ops", 1))},
)
_BEGIN = 1_790_000_000_000_000


def at(second: float) -> Moment:
    """So many seconds after the scene began."""
    return Moment(int(second * 1e6), _BEGIN + int(second * 1e6))


def held(second: float, path: str, term: int) -> NodeObserved:
    """The leader of this term, first written in a znode of its own."""
    position = ZNodePosition(
        path, czxid=term * 100, mzxid=term * 100, version=0, ephemeral_owner=term, mtime=at(second).wall // 1000
    )
    published = connection_info(f"pekko.tcp://flink@jm-{term}:6123/user/rpc/x_1", UUID(int=term))
    return NodeObserved(at(second), CLUSTER, path, published, position)


def gone(second: float, path: str) -> NodeObserved:
    """Nobody leads."""
    return NodeObserved(at(second), CLUSTER, path)


def first_sight(second: float = 0) -> list[Observation]:
    """A sidecar starts and sees every leader of term 1."""
    return [
        Started(at(second)),
        ViewObserved(at(second), CLUSTER, ConnectionState.CONNECTED),
        *(held(second, path, 1) for path in PATHS),
        SnapshotCompleted(at(second), CLUSTER),
    ]


def failover(second: float, term: int) -> list[Observation]:
    """Every leader goes; two seconds later those of `term` are there."""
    return [*(gone(second, path) for path in PATHS), *(held(second + 2, path, term) for path in PATHS)]


def play(
    observations: list[Observation], state: State | None = None, policy: Policy = POLICY
) -> tuple[State, list[Effect]]:
    """The state after the scene, and everything it asked for."""
    return step_all(policy, state or State(), observations)


def records_of(effects: list[Effect]) -> list[Append]:
    """What is to be recorded."""
    return [effect for effect in effects if isinstance(effect, Append)]
