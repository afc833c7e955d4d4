"""Flink's view: exactly the calls that Flink's own listener gets, proven on recorded runs of real clusters."""

from collections.abc import Sequence
from itertools import product
from typing import NamedTuple
from uuid import UUID

import pytest

from sidecar.core.flink_view import FlinkView
from sidecar.core.layout import Layout
from sidecar.core.leadership import LeaderInformation
from sidecar.core.moment import Moment
from sidecar.core.observations import ClusterObservation, ConnectionState, NodeObserved, ViewObserved
from tests.core import recordings
from tests.core.scenery import CLUSTER, DISPATCHER, A, B, Flink

CONNECTED, SUSPENDED, LOST = ConnectionState.CONNECTED, ConnectionState.SUSPENDED, ConnectionState.LOST
NOW = Moment(0, 0)


class Call(NamedTuple):
    """`notifyLeaderAddress` of one component's listener."""

    address: str | None
    session_id: str | None


NULL = Call(None, None)


class Listener:
    """One `FlinkView`, and the calls that the dispatcher's listener got from it."""

    def __init__(self, *, tolerate_suspended: bool = False) -> None:
        self.flink = Flink()
        self.view = FlinkView(tolerate_suspended=tolerate_suspended)
        self.calls: list[Call] = []

    def is_(self, connection: ConnectionState) -> None:
        self._observe(ViewObserved(NOW, CLUSTER, connection))
        if connection is CONNECTED:
            self.reads()

    def reads(self) -> None:
        path = self.flink.path(DISPATCHER)
        node = self.flink.tree.nodes.get(path)
        self._observe(
            NodeObserved(NOW, CLUSTER, path, node.data or b"" if node else b"", node.position if node else None)
        )

    def _observe(self, observation: ClusterObservation) -> None:
        self.calls += [_call(call.leader_address, call.leader_session_id) for call in self.view.observe(observation)]


def _call(address: str | None, session_id: UUID | str | None) -> Call:
    return Call(address, str(session_id) if session_id else None)


def told_of(leader: LeaderInformation) -> Call:
    return Call(leader.address, str(leader.session_id))


A_LEADS, B_LEADS = told_of(A.leads(DISPATCHER)), told_of(B.leads(DISPATCHER))


def test_attaching_to_a_cluster_without_a_leader_is_no_call() -> None:
    """The start state is null: there is nothing to tell."""
    listener = Listener()
    listener.is_(CONNECTED)
    assert listener.calls == []


def test_only_what_differs_from_the_last_call_is_told() -> None:
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
    assert listener.calls == [told_of(leader) for leader in leaders[1:]]


@pytest.mark.parametrize("how", ["deleted", "empty"])
def test_no_leader_is_null_and_null(how: str) -> None:
    """A deleted node and one of zero bytes: told once."""
    listener = Listener()
    listener.flink.elect(A, DISPATCHER)
    listener.reads()
    if how == "deleted":
        listener.flink.vacate(DISPATCHER)
    else:
        listener.flink.write(listener.flink.path(DISPATCHER), b"", 7)
    listener.reads()
    listener.reads()
    assert listener.calls == [A_LEADS, NULL]


def test_bytes_that_cannot_be_read_change_nothing() -> None:
    """The last value is kept: neither null, nor the same leader a second time when it is back."""
    listener = Listener()
    for data in (None, b"garbage", None):
        listener.flink.elect(A, DISPATCHER)
        if data:
            listener.flink.write(listener.flink.path(DISPATCHER), data, A.zookeeper_session)
        listener.reads()
    assert listener.calls == [A_LEADS]


def test_another_layouts_place_says_nothing_unless_it_is_newer() -> None:
    """In an upgrade the old version's place is empty or older: no null, and no step back."""
    listener = Listener()
    listener.flink.era = Layout.Z1
    listener.flink.elect(B, DISPATCHER)
    listener.flink.era = Layout.Z4
    listener.flink.elect(A, DISPATCHER)
    listener.reads()
    listener.flink.era = Layout.Z1
    listener.reads()
    listener.flink.vacate(DISPATCHER)
    listener.reads()
    assert listener.calls == [A_LEADS]
    listener.flink.elect(B, DISPATCHER)
    listener.reads()
    assert listener.calls == [A_LEADS, B_LEADS]


def test_suspended_is_null_and_the_same_leader_is_told_again() -> None:
    """A->null->A: what a TaskManager lives through when only the connection was lost."""
    listener = Listener()
    listener.flink.elect(A, DISPATCHER)
    for connection in (CONNECTED, SUSPENDED, LOST, CONNECTED):
        listener.is_(connection)
    assert listener.calls == [A_LEADS, NULL, A_LEADS]


def test_a_tolerant_listener_hears_null_only_when_the_connection_is_lost() -> None:
    """`tolerate-suspended-connections`: a short cut is no call at all."""
    listener = Listener(tolerate_suspended=True)
    listener.flink.elect(A, DISPATCHER)
    for connection in (CONNECTED, SUSPENDED, CONNECTED):
        listener.is_(connection)
    assert listener.calls == [A_LEADS]
    for connection in (SUSPENDED, LOST, CONNECTED):
        listener.is_(connection)
    assert listener.calls == [A_LEADS, NULL, A_LEADS]


def test_a_new_leader_after_the_reconnect_is_told() -> None:
    """A, null, B: as `ZooKeeperLeaderRetrievalConnectionHandlingTest` asks."""
    listener = Listener()
    listener.flink.elect(A, DISPATCHER)
    listener.is_(CONNECTED)
    listener.is_(SUSPENDED)
    listener.flink.vacate(DISPATCHER)
    listener.flink.elect(B, DISPATCHER)
    listener.is_(CONNECTED)
    assert listener.calls == [A_LEADS, NULL, B_LEADS]


# -- recorded runs -----------------------------------------------------------------------------------------------------

COMPONENTS = ("resource_manager", "dispatcher", "rest_server", "job")
CALM = {
    "i kill-9 leader, standby present",
    "iii SIGTERM leader, standby present",
    "vi SIGSTOP leader 15s then SIGCONT, standby present",
    "ii-prep kill standby",
    "ii kill-9 only JM, restart after 12s",
    "iib kill-9 only JM, restart at once (before session expiry)",
    "term SIGTERM the only JM, restart after 6s",
}
"""The phases without a store outage."""
OUTAGES = {
    "iv ZK kill-9, back after 2s (< session timeout)",
    "v1 ZK down 15s (> session timeout), only ONE JM",
    "v ZK down 15s (> session timeout), standby present",
}
Calls = dict[tuple[str, str], list[Call]]
"""By phase and component."""


def flinks_calls(version: str, oracle: str) -> Calls:
    """What Flink's own listener was told."""
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


def is_subsequence(some: Sequence[Call], of: Sequence[Call]) -> bool:
    rest = iter(of)
    return all(call in rest for call in some)


@pytest.mark.parametrize("oracle", ["oracle", "oracle_tol"])
@pytest.mark.parametrize("version", ["1.14.6", "2.3.0"])
def test_our_calls_are_those_of_flinks_own_listener(version: str, oracle: str) -> None:
    """Seven real failovers: the same calls, component by component. None was coalesced in these runs."""
    theirs, ours = flinks_calls(version, oracle), our_calls(version, oracle)
    failovers = list(product(CALM, COMPONENTS))
    assert {key: ours.get(key) for key in failovers} == {key: theirs.get(key) for key in failovers}
    assert sum(len(theirs.get(key, ())) for key in failovers) == 48


@pytest.mark.parametrize("oracle", ["oracle", "oracle_tol"])
@pytest.mark.parametrize("version", ["1.14.6", "2.3.0"])
def test_after_an_outage_of_the_store_both_know_the_same_leader(version: str, oracle: str) -> None:
    """On the way Flink's listener may hear once more of a leader from its cache that is gone already; we tell only what is there."""
    theirs, ours = flinks_calls(version, oracle), our_calls(version, oracle)
    for key in product(OUTAGES, COMPONENTS):
        heard, told = theirs[key], ours[key]
        assert is_subsequence(told, heard), key
        assert heard[-1] == told[-1] != NULL, key
        assert len(heard) - len(told) <= 1, key
