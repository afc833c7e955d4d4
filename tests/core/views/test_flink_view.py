"""Flink's view: exactly the calls that Flink's own listener gets, proven on recorded runs of real clusters."""

from typing import NamedTuple
from uuid import UUID

import pytest

from sidecar.core.flink.leadership import ComponentId, LeaderInformation
from sidecar.core.flink.znode_paths import ZNodeLayout
from sidecar.core.moment import Moment
from sidecar.core.observations import ClusterObservation, ConnectionState, NodeObserved, ViewObserved
from sidecar.core.views.leader_view import FlinkView
from tests.kit import zookeeper_recordings as recordings
from tests.kit.cluster import ALL_FOUR, CLUSTER, DISPATCHER, A, B
from tests.kit.fake_flink import Flink
from tests.kit.znodes import ZNodes

CONNECTED, SUSPENDED, LOST = ConnectionState.CONNECTED, ConnectionState.SUSPENDED, ConnectionState.LOST
NOW = Moment(0, 0)


class Call(NamedTuple):
    """`notifyLeaderAddress` of one component's listener."""

    address: str | None
    session_id: str | None


NULL = Call(None, None)


class Listener:
    """One `FlinkView`, and the calls that the listener of one component got from it."""

    def __init__(
        self,
        component: ComponentId = DISPATCHER,
        *,
        era: ZNodeLayout = ZNodeLayout.Z4,
        tolerate_suspended: bool = False,
    ) -> None:
        self.component = component
        self.flink = Flink(ZNodes(era))
        self.view = FlinkView(tolerate_suspended=tolerate_suspended)
        self.calls: list[Call] = []

    def is_(self, *connections: ConnectionState) -> None:
        for connection in connections:
            self._observe(ViewObserved(NOW, CLUSTER, connection))
            if connection is CONNECTED:
                self.reads()

    def reads(self) -> None:
        path = self.flink.znodes.path(self.component)
        node = self.flink.znodes.tree.nodes.get(path)
        self._observe(
            NodeObserved(NOW, CLUSTER, path, node.data or b"" if node else b"", node.position if node else None)
        )

    def _observe(self, observation: ClusterObservation) -> None:
        self.calls += [_call(call.leader_address, call.leader_session_id) for call in self.view.observe(observation)]


def _call(address: str | None, session_id: UUID | str | None) -> Call:
    return Call(address, str(session_id) if session_id else None)


def call_of(leader: LeaderInformation) -> Call:
    return Call(leader.address, str(leader.session_id))


A_LEADS, B_LEADS = call_of(A.leads(DISPATCHER)), call_of(B.leads(DISPATCHER))


def test_attaching_to_a_cluster_without_a_leader_is_no_call() -> None:
    """The start state is null: no listener is called."""
    listener = Listener()
    listener.is_(CONNECTED)
    assert listener.calls == []


def test_only_what_differs_from_the_last_call_is_notified() -> None:
    """Same address and id: no call. Same id with another address, or the other way round: a call."""
    listener = Listener()
    same = A.leads(DISPATCHER)
    leaders = [
        same,
        same,
        LeaderInformation("elsewhere", same.session_id),
        LeaderInformation("elsewhere", B.session_id),
    ]
    for leader in leaders:
        listener.flink.publish(DISPATCHER, leader)
        listener.reads()
    assert listener.calls == [call_of(leader) for leader in leaders[1:]]


@pytest.mark.parametrize("how", ["deleted", "empty"])
def test_no_leader_is_null_and_null(how: str) -> None:
    """A deleted node and one of zero bytes: notified once."""
    listener = Listener()
    listener.flink.elect(A, DISPATCHER)
    listener.reads()
    if how == "deleted":
        listener.flink.vacate(DISPATCHER)
    else:
        listener.flink.znodes.write(listener.flink.znodes.path(DISPATCHER), b"", 7)
    listener.reads()
    listener.reads()
    assert listener.calls == [A_LEADS, NULL]


def test_bytes_that_cannot_be_read_change_nothing() -> None:
    """The last value is kept: neither null, nor the same leader a second time when it is back."""
    listener = Listener()
    for data in (None, b"garbage", None):
        listener.flink.elect(A, DISPATCHER)
        if data:
            listener.flink.znodes.write(listener.flink.znodes.path(DISPATCHER), data, A.zookeeper_session)
        listener.reads()
    assert listener.calls == [A_LEADS]


def test_another_layouts_place_says_nothing_unless_it_is_newer() -> None:
    """In an upgrade the old version's place is empty or older: no null, and no step back."""
    listener = Listener()
    listener.flink.znodes.era = ZNodeLayout.Z1
    listener.flink.elect(B, DISPATCHER)
    listener.flink.znodes.era = ZNodeLayout.Z4
    listener.flink.elect(A, DISPATCHER)
    listener.reads()
    listener.flink.znodes.era = ZNodeLayout.Z1
    listener.reads()
    listener.flink.vacate(DISPATCHER)
    listener.reads()
    assert listener.calls == [A_LEADS]
    listener.flink.elect(B, DISPATCHER)
    listener.reads()
    assert listener.calls == [A_LEADS, B_LEADS]


@pytest.mark.parametrize("component", ALL_FOUR)
@pytest.mark.parametrize("era", ZNodeLayout)
def test_suspended_is_null_and_the_same_leader_is_notified_again(component: ComponentId, era: ZNodeLayout) -> None:
    """A->null->A, for each component: what a TaskManager lives through when only the connection was lost."""
    listener = Listener(component, era=era)
    listener.flink.elect(A)
    listener.is_(CONNECTED, SUSPENDED, LOST, CONNECTED)
    a_leads = call_of(A.leads(component))
    assert listener.calls == [a_leads, NULL, a_leads]


def test_a_tolerant_listener_hears_null_only_when_the_connection_is_lost() -> None:
    """`tolerate-suspended-connections`: a short cut is no call at all."""
    listener = Listener(tolerate_suspended=True)
    listener.flink.elect(A, DISPATCHER)
    listener.is_(CONNECTED, SUSPENDED, CONNECTED)
    assert listener.calls == [A_LEADS]
    listener.is_(SUSPENDED, LOST, CONNECTED)
    assert listener.calls == [A_LEADS, NULL, A_LEADS]


@pytest.mark.parametrize(
    ("tolerate_suspended", "outage", "calls"),
    [
        (False, [SUSPENDED], [A_LEADS, NULL, A_LEADS]),
        (False, [SUSPENDED, LOST], [A_LEADS, NULL, A_LEADS]),
        (True, [SUSPENDED], [A_LEADS]),
        (True, [SUSPENDED, LOST], [A_LEADS, NULL, A_LEADS]),
    ],
)
@pytest.mark.parametrize("new_leader", [True, False])
def test_a_leader_that_went_during_an_outage_is_notified_once_more(
    tolerate_suspended: bool, outage: list[ConnectionState], calls: list[Call], new_leader: bool
) -> None:
    """The phantom: Flink's listener begins with what its cache holds, and what stands now comes behind it. As
    `ZooKeeperLeaderRetrievalConnectionHandlingTest` has it: of a new leader it hears eventually.
    """
    listener = Listener(tolerate_suspended=tolerate_suspended)
    listener.flink.elect(A, DISPATCHER)
    listener.is_(CONNECTED, *outage)
    listener.flink.vacate(DISPATCHER)
    if new_leader:
        listener.flink.elect(B, DISPATCHER)
    listener.is_(CONNECTED)
    assert listener.calls == [*calls, B_LEADS if new_leader else NULL]


def test_every_outage_begins_with_what_was_seen_last() -> None:
    """Of A, which was gone before the second outage, nothing is heard any more."""
    listener = Listener()
    listener.flink.elect(A, DISPATCHER)
    listener.is_(CONNECTED, SUSPENDED)
    listener.flink.elect(B, DISPATCHER)
    listener.is_(CONNECTED, SUSPENDED)
    listener.flink.vacate(DISPATCHER)
    listener.is_(CONNECTED, SUSPENDED, CONNECTED)
    assert listener.calls == [A_LEADS, NULL, A_LEADS, B_LEADS, NULL, B_LEADS, NULL]


def test_without_a_leader_an_outage_is_no_call() -> None:
    """There is nothing to take back and nothing to bring up again; who comes meanwhile is notified once."""
    listener = Listener()
    listener.is_(SUSPENDED, CONNECTED, SUSPENDED, LOST)
    assert listener.calls == []
    listener.flink.elect(A, DISPATCHER)
    listener.is_(CONNECTED)
    assert listener.calls == [A_LEADS]


def test_bytes_that_cannot_be_read_bring_up_nothing_after_an_outage() -> None:
    """They are what the cache holds: A, which stood there before them, is not notified again until it can be read."""
    listener = Listener()
    listener.flink.elect(A, DISPATCHER)
    listener.reads()
    listener.flink.znodes.write(listener.flink.znodes.path(DISPATCHER), b"garbage", A.zookeeper_session)
    listener.reads()
    listener.is_(SUSPENDED, CONNECTED)
    assert listener.calls == [A_LEADS, NULL]
    listener.flink.elect(A, DISPATCHER)
    listener.reads()
    assert listener.calls == [A_LEADS, NULL, A_LEADS]


def test_after_an_outage_another_layouts_place_still_says_nothing() -> None:
    """Which of two places holds the newer leader is not forgotten: read first, the older one is no step back either."""
    listener = Listener()
    listener.flink.znodes.era = ZNodeLayout.Z1
    listener.flink.elect(B, DISPATCHER)
    listener.flink.znodes.era = ZNodeLayout.Z4
    listener.flink.elect(A, DISPATCHER)
    listener.is_(CONNECTED, SUSPENDED)
    listener.flink.znodes.era = ZNodeLayout.Z1
    listener.is_(CONNECTED)
    listener.flink.znodes.era = ZNodeLayout.Z4
    listener.reads()
    assert listener.calls == [A_LEADS, NULL, A_LEADS]


# -- recorded runs -----------------------------------------------------------------------------------------------------

Calls = dict[tuple[str, str], list[Call]]
"""By phase and component."""


def flinks_calls(version: str, oracle: str) -> Calls:
    """What Flink's own listener was notified of."""
    calls: Calls = {}
    for phase, entry in recordings.listener_log(version):
        if entry["kind"] == "notify" and entry["oracle"] == oracle:
            calls.setdefault((phase, entry["component"]), []).append(_call(entry["address"] or None, entry["leaderId"]))
    return calls


def our_calls(version: str, oracle: str) -> Calls:
    """What `FlinkView` makes of the transaction log, seen through that listener's connection."""
    view, calls = FlinkView(tolerate_suspended=oracle == "oracle_tol"), Calls()
    for phase, observation in recordings.observations(version, oracle):
        for call in view.observe(observation):
            calls.setdefault((phase, call.component), []).append(_call(call.leader_address, call.leader_session_id))
    return calls


@pytest.mark.parametrize(
    ("version", "oracle", "calls"),
    [("1.14.6", "oracle", 93), ("1.14.6", "oracle_tol", 88), ("2.3.0", "oracle", 97), ("2.3.0", "oracle_tol", 89)],
)
def test_our_calls_are_those_of_flinks_own_listener(version: str, oracle: str, calls: int) -> None:
    """Seven real failovers and three outages of the store: the same calls, component by component. None was coalesced in these runs."""
    theirs = flinks_calls(version, oracle)
    assert our_calls(version, oracle) == theirs
    assert sum(map(len, theirs.values())) == calls
