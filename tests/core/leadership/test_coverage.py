"""Seeing, not seeing, and never taking the one for the other."""

from datetime import datetime

from sidecar.core.flink.leadership import Blindness, Held, Unknown
from sidecar.core.flink.znode_paths import ZNodeLayout
from sidecar.core.observations import ConnectionState, SnapshotCompleted
from tests.kit.cluster import ALL_FOUR, CLUSTER, DISPATCHER, REST_SERVER, A, B
from tests.kit.core_sidecar import Sidecar, watching
from tests.kit.fake_flink import Flink


def test_a_short_suspension_obscures_nothing() -> None:
    """Back within the trust window with the same leaders: only the coverage shows it."""
    _, sidecar = watching()
    sidecar.is_cut_off().waits(2.5).connects().waits(10)
    assert sidecar.transitions() == []
    assert [record.state for record in sidecar.coverage()] == ["seeing", "blind"]


def test_each_suspension_has_a_trust_window_of_its_own() -> None:
    """An hour after one that ended well, another short one obscures nothing either."""
    _, sidecar = watching()
    for _ in range(2):
        sidecar.is_cut_off().waits(2.5).connects().waits(3600, tick=5)
    assert sidecar.transitions() == []


def test_a_change_during_a_short_suspension_is_a_change() -> None:
    """Within the trust window what was true before still counts, so that A->B is reported and not `?`."""
    flink, sidecar = watching()
    sidecar.is_cut_off().waits(2)
    flink.elect(B)
    sidecar.connects()
    assert [t.pattern for t in sidecar.transitions()] == ["A->B"] * 4


def test_a_long_suspension_obscures_and_the_return_discovers() -> None:
    """A->? when the trust window ends, ?->A when sight comes back: with who was last known, and never a vacancy between."""
    _, sidecar = watching()
    sidecar.is_cut_off().waits(4).is_cut_off(ConnectionState.LOST).waits(60).connects()
    for component in ALL_FOUR:
        obscured, discovered = sidecar.transitions(component)
        assert (obscured.pattern, obscured.connection) == ("A->?", "SUSPENDED")
        assert obscured.reason == "the store cannot be read: SUSPENDED"
        assert (discovered.pattern, discovered.last_known_session_id, discovered.same_leader) == (
            "?->A",
            str(A.session_id),
            True,
        )


def test_a_new_look_begins_without_prejudice() -> None:
    """Connected again after a long time, and nothing read so far: not seen, which is another reason than out of sight."""
    _, sidecar = watching()
    sidecar.is_cut_off().waits(4)
    assert sidecar.component_state(DISPATCHER).leadership == Unknown(Blindness.VIEW_LOST)
    sidecar.reconnects()
    assert sidecar.component_state(DISPATCHER).leadership == Unknown(Blindness.UNSEEN)


def test_the_trust_window_is_counted_from_the_loss_to_the_next_complete_look() -> None:
    """A connection that comes and goes without a complete look does not prolong the trust."""
    _, sidecar = watching()
    sidecar.is_cut_off().waits(2)
    sidecar.reconnects()
    sidecar.waits(0.5).is_cut_off().waits(1)
    assert [t.pattern for t in sidecar.transitions()] == ["A->?"] * 4


def test_a_leader_that_was_just_read_again_is_not_obscured_by_the_old_loss() -> None:
    """The trust window ends while everything is being read again: what was read is seen, and nobody is taken for gone."""
    _, sidecar = watching()
    sidecar.is_cut_off().waits(2.9)
    sidecar.reconnects()
    sidecar.reads_everything()
    sidecar.waits(1)
    sidecar.observe(SnapshotCompleted(sidecar.moment, CLUSTER))
    assert sidecar.transitions() == []
    assert {type(sidecar.component_state(component).leadership) for component in ALL_FOUR} == {Held}


def test_a_look_that_takes_too_long_obscures_what_it_has_not_come_to() -> None:
    """Connected again, but only the dispatcher could be read when the trust ended: of the others we know nothing."""
    flink, sidecar = watching()
    sidecar.is_cut_off().waits(2)
    sidecar.reconnects()
    sidecar.reads(flink.znodes.path(DISPATCHER))
    sidecar.waits(2)
    assert sidecar.transitions(DISPATCHER) == []
    assert [(t.pattern, t.reason) for t in sidecar.transitions()] == [("A->?", "not read again yet")] * 3
    sidecar.reads_everything()
    sidecar.observe(SnapshotCompleted(sidecar.moment, CLUSTER))
    assert sidecar.transitions(DISPATCHER) == []
    assert [t.pattern for t in sidecar.transitions(REST_SERVER)] == ["A->?", "?->A"]


def test_answers_that_arrive_after_the_connection_was_lost_say_nothing() -> None:
    """An empty place, a complete look: what is handed over behind SUSPENDED is not believed, for everything will be read again."""
    flink, sidecar = watching()
    flink.vacate()
    sidecar.is_cut_off().sees_changes()
    sidecar.observe(SnapshotCompleted(sidecar.moment, CLUSTER))
    assert sidecar.transitions() == []
    sidecar.waits(10)
    assert [t.pattern for t in sidecar.transitions()] == ["A->?"] * 4


def test_a_change_while_blind_is_a_discovery_of_another_leader() -> None:
    """?->A with another leader than the last known one."""
    flink, sidecar = watching()
    sidecar.is_cut_off().waits(30)
    flink.elect(B)
    sidecar.connects()
    discovered = sidecar.transitions(DISPATCHER)[-1]
    assert (
        discovered.pattern,
        discovered.after_session_id,
        discovered.last_known_session_id,
        discovered.same_leader,
    ) == ("?->A", str(B.session_id), str(A.session_id), False)


def test_a_change_while_the_sidecar_was_down_is_a_discovery_of_another_leader() -> None:
    """The last known leader is on disk: a new process compares with it."""
    flink, sidecar = watching()
    sidecar.is_killed(down_for=600)
    flink.elect(B)
    sidecar.connects()
    assert {(t.pattern, t.last_known_session_id, t.after_session_id) for t in sidecar.transitions()} == {
        ("?->A", str(A.session_id), str(B.session_id))
    }


def test_after_a_restart_nothing_is_known_before_it_is_seen() -> None:
    """A new process remembers, but sees nothing until it has looked: nothing is vacant, nothing is held."""
    _, sidecar = watching()
    sidecar.is_killed()
    assert {sidecar.component_state(component).leadership for component in ALL_FOUR} == {Unknown(Blindness.UNSEEN)}
    assert {sidecar.component_state(component).last_known for component in ALL_FOUR} == {
        A.leads(component) for component in ALL_FOUR
    }


def test_unreadable_bytes_obscure_until_they_can_be_read() -> None:
    """A->?, then ?->A with what was last known; more of the same garbage adds nothing."""
    flink, sidecar = watching()
    path = flink.znodes.path(DISPATCHER)
    for garbage in (b"tampered", b"tampered again"):
        flink.znodes.write(path, garbage, A.zookeeper_session)
        sidecar.sees_changes()
    sidecar.sees(flink.elect(A, DISPATCHER))
    obscured, discovered = sidecar.transitions()
    assert (obscured.pattern, obscured.reason, obscured.connection) == ("A->?", "not a Java object stream", "CONNECTED")
    assert (discovered.pattern, discovered.same_leader) == ("?->A", True)


def test_unreadable_bytes_that_are_deleted_leave_a_vacancy() -> None:
    """The view is complete and the place is empty now: there is no leader."""
    flink, sidecar = watching()
    flink.znodes.write(flink.znodes.path(DISPATCHER), b"tampered", A.zookeeper_session)
    sidecar.sees_changes().sees(flink.vacate(DISPATCHER))
    assert [t.pattern for t in sidecar.transitions(DISPATCHER)] == ["A->?", "?->null"]


def test_unreadable_bytes_at_first_sight_are_never_a_vacancy() -> None:
    """A complete look that met bytes it cannot read does not say that nobody leads."""
    flink = Flink().elect(A, REST_SERVER)
    flink.znodes.write(flink.znodes.path(DISPATCHER), b"tampered", 7)
    sidecar = Sidecar(flink).connects()
    assert sidecar.kinds(DISPATCHER) == []
    assert sidecar.component_state(DISPATCHER).leadership == Unknown(
        Blindness.UNREADABLE, flink.znodes.path(DISPATCHER)
    )


def test_a_place_that_may_not_be_read_is_obscured() -> None:
    """No permission is not an absence."""
    flink, sidecar = watching()
    sidecar.is_refused(flink.znodes.path(DISPATCHER))
    sidecar.is_refused("/leader/somebody/else")
    (obscured,) = sidecar.transitions()
    assert (obscured.component, obscured.pattern, obscured.reason) == ("dispatcher", "A->?", "no permission")


def test_another_layouts_place_says_nothing_unless_it_is_newer() -> None:
    """The dispatcher is held where 2.x keeps it: 1.13's place, empty, forbidden or older, changes nothing; a newer leader there does."""
    flink, sidecar = watching()
    flink.znodes.era = ZNodeLayout.Z1
    sidecar.reads(flink.znodes.path(DISPATCHER))
    sidecar.is_refused(flink.znodes.path(DISPATCHER))
    flink.znodes.zxid, newest = 0, flink.znodes.zxid
    sidecar.sees(flink.elect(B, DISPATCHER))
    assert sidecar.transitions() == []
    flink.znodes.zxid = newest
    sidecar.sees(flink.elect(B, DISPATCHER))
    assert [t.pattern for t in sidecar.transitions()] == ["A->B"]


# -- coverage ----------------------------------------------------------------------------------------------------------


def seeing() -> Sidecar:
    """A sidecar that has just seen everything for the first time."""
    sidecar = Sidecar(Flink().elect(A)).connects()
    sidecar.records.clear()
    return sidecar


def stretches(sidecar: Sidecar) -> list[tuple[str, int]]:
    """State and whole seconds of each stretch of coverage, end to end."""
    ends = [datetime.fromisoformat(time) for c in sidecar.coverage() for time in (c.began_at, c.ended_at)]
    assert ends[1:-1:2] == ends[2::2]
    return [
        (c.state, round((to - start).total_seconds()))
        for c, start, to in zip(sidecar.coverage(), ends[::2], ends[1::2], strict=True)
    ]


def test_coverage_ends_where_a_killed_sidecar_was_last_known_to_run() -> None:
    """Nobody saw anything from the kill to the next complete look: up to half a minute before the kill is given away, none invented."""
    sidecar = seeing().waits(100).is_killed(down_for=600).waits(50).connects().waits(10)
    sidecar.stops()
    assert stretches(sidecar) == [("seeing", 90), ("blind", 660), ("seeing", 10)]


def test_an_orderly_end_covers_to_the_last_moment() -> None:
    """Stopped and started again: seen until the stop, blind until the next complete look."""
    sidecar = seeing().waits(100)
    sidecar.stops()
    sidecar.is_killed(down_for=600).connects().waits(10)
    sidecar.stops()
    assert stretches(sidecar) == [("seeing", 100), ("blind", 600), ("seeing", 10)]


def test_long_sight_is_recorded_hour_by_hour() -> None:
    """Nobody has to wait for the end of a good week."""
    sidecar = seeing().waits(2.5 * 3600, tick=5)
    sidecar.stops()
    assert stretches(sidecar) == [("seeing", 3600), ("seeing", 3600), ("seeing", 1800)]


def test_blindness_begins_when_the_connection_is_lost_and_ends_with_a_complete_look() -> None:
    """Not when trust ends, and not when the connection is back."""
    sidecar = seeing().waits(60).is_cut_off().waits(10)
    sidecar.reconnects()
    sidecar.waits(5).connects().waits(20)
    sidecar.stops()
    assert stretches(sidecar) == [("seeing", 60), ("blind", 15), ("seeing", 20)]
