"""Whatever is observed, in whatever order: no step raises, and what may never happen does not happen."""

from collections.abc import Callable
from uuid import UUID

from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from sidecar.core.alerting.alerting_step import Send
from sidecar.core.captures import CaptureOutcome as EvidenceOutcome
from sidecar.core.captures import EvidenceItem, EvidenceKind
from sidecar.core.flink.leadership import ZNodePosition
from sidecar.core.journal_rows import assemble, changes
from sidecar.core.moment import SECOND, Moment
from sidecar.core.observations import (
    ChildrenObserved,
    ClusterFound,
    ClusterRemoved,
    ClustersListed,
    ConfigMapObserved,
    ConnectionState,
    DeliveryOutcome,
    DeliverySettled,
    EvidenceGathered,
    NodeObserved,
    NodeRefused,
    Observation,
    SnapshotCompleted,
    Started,
    Stopped,
    Ticked,
    ViewObserved,
)
from sidecar.core.policy.policy import Destination, Policy, Source, Store
from sidecar.core.policy.routing import Route
from sidecar.core.state import Gather, State
from tests.kit.cluster import CLUSTER, JOB, START
from tests.kit.core_sidecar import OPS, POLICY
from tests.kit.core_witness import Witness
from tests.kit.groups import examples
from tests.kit.java_serialization import connection_info

OTHER_JOB = "ab" * 16
PLACES = (
    "/leader/dispatcher/connection_info",
    "/leader/dispatcher_lock",
    "/leader/rest_server/connection_info",
    f"/leader/job-{JOB}/connection_info",
    f"/leader/{JOB}/connection_info",
    f"/jobs/{JOB}/leader/connection_info",
    f"/leader/job-{OTHER_JOB}/connection_info",
    "/leader/latch",
)
VALUES = (
    b"",
    b"garbage",
    *(connection_info(address, UUID(int=session)) for address in ("a", "http://h:1") for session in (1, 2)),
)
IN_A_HURRY = replace(
    POLICY,
    receivers={"ops": (OPS, Destination("pager", 0, send_resolved=False))},
    route=Route("ops", group_wait=1 * SECOND, group_interval=5 * SECOND, repeat_interval=60 * SECOND),
    evidence=frozenset(Source),
    session_timeouts={CLUSTER: 20 * SECOND},
)


FINDING = replace(IN_A_HURRY, stores={}, finds=Store.KUBERNETES)


class Observer:
    """One observer's core, its clock and its disk."""

    def __init__(self, policy: Policy = IN_A_HURRY) -> None:
        self.policy = policy
        self.state = State()
        self.now = Moment(START, START)
        self._witness = Witness()
        self._sent: list[str] = []
        self._asked: list[str] = []
        self.observe(Started(self.now))
        if policy.finds:
            self.observe(ClusterFound(self.now, CLUSTER))
        self.observe(ViewObserved(self.now, CLUSTER, ConnectionState.CONNECTED))

    def observe(self, observation: Observation) -> None:
        self.state, effects = self._witness.step(self.policy, self.state, observation)
        self._sent += [effect.delivery.id for effect in effects if isinstance(effect, Send)]
        self._asked += [effect.capture.id for effect in effects if isinstance(effect, Gather)]
        self.waits(1)

    def waits(self, micros: int, wall_jump: int = 0) -> None:
        self.now = Moment(self.now.steady + micros, self.now.wall + micros + wall_jump)

    def is_killed(self) -> None:
        rows = list(changes(State(), self.state))
        self.state, problems = assemble(rows)
        assert problems == []
        assert set(changes(State(), self.state)) == set(rows)
        self.observe(Started(self.now))

    def settles(self, which: int, outcome: DeliveryOutcome) -> None:
        if self._sent:
            self.observe(DeliverySettled(self.now, self._sent[which % len(self._sent)], outcome))

    def brings(self, which: int, pieces: int) -> None:
        if self._asked:
            item = EvidenceItem(EvidenceKind.JOB, JOB, EvidenceOutcome.CAPTURED, "restored from checkpoint 1")
            self.observe(EvidenceGathered(self.now, self._asked[which % len(self._asked)], (item,) * pieces))


Event = Callable[[Observer], None]

positions = st.builds(
    lambda czxid, later, version, owner: ZNodePosition("", czxid, czxid + later, version, owner, START // 1000),
    st.integers(1, 20),
    st.integers(0, 10),
    st.integers(0, 5),
    st.sampled_from([0, 7, 8]),
)


def node(position: ZNodePosition | None, path: str, data: bytes) -> Event:
    placed = replace(position, path=path) if position else None
    return lambda o: o.observe(NodeObserved(o.now, CLUSTER, path, data, placed))


def refused(path: str) -> Event:
    return lambda o: o.observe(NodeRefused(o.now, CLUSTER, path, "no permission"))


def view(connection: ConnectionState) -> Event:
    return lambda o: o.observe(ViewObserved(o.now, CLUSTER, connection))


def complete(o: Observer) -> None:
    o.observe(SnapshotCompleted(o.now, CLUSTER))


def children(path: str, names: list[str]) -> Event:
    return lambda o: o.observe(ChildrenObserved(o.now, CLUSTER, path, tuple(names)))


def tick(micros: int, wall_jump: int) -> Event:
    def passes(o: Observer) -> None:
        o.waits(micros, wall_jump)
        o.observe(Ticked(o.now))

    return passes


def settled(which: int, outcome: DeliveryOutcome) -> Event:
    return lambda o: o.settles(which, outcome)


def brought(which: int, pieces: int) -> Event:
    return lambda o: o.brings(which, pieces)


def stopped(o: Observer) -> None:
    o.observe(Stopped(o.now))


def config_map(name: str, uid: str | None, data: dict[str, str], leader: str | None) -> Event:
    version = f"{len(data)}{leader}"
    return lambda o: o.observe(ConfigMapObserved(o.now, CLUSTER, name, uid, version, data if uid else {}, leader))


def removed(on_purpose: bool) -> Event:
    return lambda o: o.observe(ClusterRemoved(o.now, CLUSTER, on_purpose))


def listed(is_there: bool | None) -> Event:
    ids = None if is_there is None else frozenset([CLUSTER] if is_there else [])
    return lambda o: o.observe(ClustersListed(o.now, "here", ids))


def found(o: Observer) -> None:
    o.observe(ClusterFound(o.now, CLUSTER))
    o.observe(ViewObserved(o.now, CLUSTER, ConnectionState.CONNECTED))


def lease(holder: str, duration: str, acquired: int, renewed: int, transitions: str) -> str:
    times = f'"acquireTime":"{acquired}","renewTime":"{renewed}"'
    return f'{{"holderIdentity":"{holder}","leaseDuration":{duration},{times},"leaderTransitions":{transitions}}}'


COMMON: st.SearchStrategy[Event] = st.one_of(
    st.builds(view, st.just(ConnectionState.CONNECTED) | st.sampled_from(ConnectionState)),
    st.just(complete),
    st.builds(
        tick,
        st.sampled_from([0, SECOND, 4 * SECOND, 31 * SECOND, 3601 * SECOND]),
        st.sampled_from([0, 0, 0, 5 * SECOND, -5 * SECOND]),
    ),
    st.builds(settled, st.integers(0, 9), st.sampled_from(DeliveryOutcome)),
    st.builds(brought, st.integers(0, 3), st.integers(0, 2)),
    st.just(Observer.is_killed),
    st.just(stopped),
)
ZNODES: st.SearchStrategy[Event] = st.one_of(
    *[st.builds(node, st.none() | positions, st.sampled_from(PLACES), st.sampled_from(VALUES))] * 3,
    st.builds(refused, st.sampled_from(PLACES)),
    st.builds(
        children,
        st.sampled_from(["/jobgraphs", "/execution-plans", "/leader/latch", "/leader"]),
        st.lists(st.sampled_from([JOB, OTHER_JOB, "locks"]), unique=True),
    ),
)
LEADERS = ("", "garbage", *(f"{UUID(int=session)},{address}" for address in ("a", "http://h:1") for session in (1, 2)))
CONFIG_MAPS: st.SearchStrategy[Event] = st.builds(
    config_map,
    st.sampled_from(
        [
            *([f"{CLUSTER}-cluster-config-map"] * 3),
            f"{CLUSTER}-dispatcher-leader",
            f"{CLUSTER}-{JOB}-jobmanager-leader",
            f"{CLUSTER}-{JOB}-config-map",
            "other-cluster-config-map",
        ]
    ),
    st.sampled_from(["uid 1", "uid 1", "uid 2", None]),
    st.dictionaries(
        st.sampled_from(
            [
                *(f"org.apache.flink.k8s.leader.{key}" for key in ("dispatcher", "restserver", JOB, f"job-{JOB}", "x")),
                *("address", "sessionId", f"jobGraph-{JOB}", f"executionPlan-{OTHER_JOB}"),
            ]
        ),
        st.sampled_from([*LEADERS, str(UUID(int=1))]),
    ),
    st.none()
    | st.sampled_from(["", "garbage", "{}", "null"])
    | st.builds(
        lease,
        st.sampled_from(["", "jvm 1", "jvm 1", "jvm 2"]),
        st.sampled_from(["15.0", '"PT1S"', "-1", "null"]),
        st.integers(0, 1),
        st.integers(0, 2),
        st.sampled_from(["0", "1", "2", "null", str(10**30)]),
    ),
)


@settings(max_examples=examples(300))
@given(st.lists(COMMON | ZNODES | ZNODES, min_size=20, max_size=60))
def test_no_sequence_of_observations_breaks_a_promise(events: list[Event]) -> None:
    """A transition is recorded exactly when a leadership moved, and begins where the last one ended; what is unseen is never reported as
    no leader; coverage has no gap and no overlap, even when the wall clock jumps; a state never changes and survives a kill.
    """
    observer = Observer()
    for event in events:
        event(observer)


FINDER_EVENTS: st.SearchStrategy[Event] = st.one_of(
    st.just(found), st.just(found), st.builds(removed, st.booleans()), st.builds(listed, st.none() | st.booleans())
)


@settings(max_examples=examples(300))
@given(st.lists(COMMON | CONFIG_MAPS | CONFIG_MAPS | FINDER_EVENTS, min_size=20, max_size=60))
def test_no_coming_and_going_breaks_a_promise(events: list[Event]) -> None:
    """The same of a cluster that is found, removed at any moment, observed too late, and found again: nothing of it stays behind."""
    observer = Observer(FINDING)
    for event in events:
        event(observer)
        if CLUSTER not in observer.state.clusters:
            alerts = observer.state.alerts
            members = [member for group in alerts.groups.values() for member in group.members.values()]
            assert all(member.alert.ended for member in members)
            assert [*alerts.pending, *alerts.failovers, *alerts.evaluated] == []


@settings(max_examples=examples(300))
@given(st.lists(COMMON | CONFIG_MAPS | CONFIG_MAPS, min_size=20, max_size=60))
def test_no_sequence_of_config_maps_breaks_a_promise(events: list[Event]) -> None:
    """The same in Kubernetes, whatever stands in whichever ConfigMap, and whoever holds its lease."""
    observer = Observer(replace(IN_A_HURRY, stores={CLUSTER: Store.KUBERNETES}))
    for event in events:
        event(observer)
