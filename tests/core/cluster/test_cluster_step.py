"""What happens to a leadership, and what is recorded of it."""

import pytest
from msgspec import json

from sidecar.core.flink.leadership import CLUSTER_COMPONENTS, LeaderInformation, Unknown
from sidecar.core.flink.znode_paths import LATCH, ZNodeLayout
from sidecar.core.journal_rows import changes
from sidecar.core.moment import timestamp
from sidecar.core.observations import ChildrenObserved, SnapshotCompleted
from sidecar.core.records import Contention
from sidecar.core.state import State
from tests.kit.cluster import ALL_FOUR, CLUSTER, DISPATCHER, JOB, REST_SERVER, START, A, B, job_manager
from tests.kit.core_sidecar import Sidecar, fail_over, watching
from tests.kit.fake_flink import Flink


def test_at_first_sight_every_leader_is_discovered() -> None:
    """A sidecar that joins a running cluster records who leads, once for each leadership, and knows of nobody before."""
    sidecar = Sidecar(Flink().submit().elect(A)).connects()
    assert [(t.kind, t.pattern, t.last_known_session_id) for t in sidecar.transitions()] == [
        ("DISCOVERED", "?->A", None)
    ] * 4
    assert {t.after_address for t in sidecar.transitions()} == {A.leads(component).address for component in ALL_FOUR}


def test_before_the_first_complete_look_nothing_is_vacant() -> None:
    """Places that were read and are empty say nothing until all places have been read."""
    sidecar = Sidecar(Flink())
    sidecar.reconnects()
    sidecar.reads_everything()
    assert sidecar.transitions() == []
    assert {type(sidecar.component_state(component).leadership) for component in CLUSTER_COMPONENTS} == {Unknown}
    sidecar.observe(SnapshotCompleted(sidecar.moment, CLUSTER))
    assert [t.pattern for t in sidecar.transitions()] == ["?->null"] * 3


def test_a_crash_is_a_vacancy_and_a_grant_for_each_component() -> None:
    """A->null->B, with how long nobody led and where the new leader stands in ZooKeeper's history."""
    flink, sidecar = watching()
    fail_over(flink, sidecar, 3)
    for component in ALL_FOUR:
        revoked, granted = sidecar.transitions(component)
        assert (revoked.kind, revoked.pattern, revoked.before_address) == (
            "REVOKED",
            "A->null",
            A.leads(component).address,
        )
        assert (granted.kind, granted.pattern, granted.after_address) == (
            "GRANTED",
            "null->B",
            B.leads(component).address,
        )
        assert granted.last_known_session_id == revoked.before_session_id == str(A.session_id)
        assert granted.vacant_seconds == pytest.approx(3, abs=0.1)
        position = flink.znodes.tree.nodes[flink.znodes.path(component)].position
        assert granted.written_at == timestamp(position.mtime * 1000)
        assert granted.position
        assert (granted.position.czxid, granted.position.ephemeral_owner) == (position.czxid, position.ephemeral_owner)


def test_a_vacancy_that_is_read_again_began_when_it_began() -> None:
    """Empty, and empty again at another look: its length is counted from the first time; where its beginning was not seen, not at all."""
    flink, sidecar = watching()
    sidecar.sees(flink.vacate(DISPATCHER, REST_SERVER)).waits(10).is_cut_off().waits(1).connects().waits(9)
    sidecar.sees(flink.elect(B, DISPATCHER)).is_cut_off().waits(10).connects().waits(10)
    sidecar.sees(flink.elect(B, REST_SERVER))
    assert sidecar.transitions(DISPATCHER)[1].vacant_seconds == pytest.approx(20, abs=0.1)
    assert [t.pattern for t in sidecar.transitions(REST_SERVER)] == ["A->null", "null->?", "?->null", "null->B"]
    assert sidecar.transitions(REST_SERVER)[-1].vacant_seconds is None


def test_a_replacement_in_place_counts_the_writes_that_nobody_saw() -> None:
    """A->B by setData of one session: the version says that there were two more leaders between."""
    flink, sidecar = watching()
    for term in (1, 2, 3):
        flink.publish(DISPATCHER, job_manager("jm-a", term).leads(DISPATCHER), A.zookeeper_session)
    sidecar.sees_changes()
    (changed,) = sidecar.transitions(DISPATCHER)
    assert (changed.kind, changed.pattern) == ("CHANGED", "A->B")
    assert changed.unobserved == 2
    assert changed.same_process is True


def test_across_znodes_the_number_of_unseen_changes_is_not_knowable() -> None:
    """Deleted and created anew between two looks: versions of different znodes cannot be compared."""
    flink, sidecar = watching()
    sidecar.sees(flink.vacate(DISPATCHER).elect(B, DISPATCHER))
    (changed,) = sidecar.transitions(DISPATCHER)
    assert (changed.pattern, changed.unobserved, changed.same_process) == ("A->B", None, False)


def test_the_same_leader_at_another_address_is_readdressed() -> None:
    """Same session id, other address: A->A', and still the same leader, since as long as before."""
    flink, sidecar = watching()
    since = sidecar.component_state(REST_SERVER).since
    sidecar.sees(flink.publish(REST_SERVER, LeaderInformation("http://jm-a:9091", A.session_id), A.zookeeper_session))
    (moved,) = sidecar.transitions(REST_SERVER)
    assert (moved.kind, moved.pattern, moved.same_leader, moved.after_address) == (
        "READDRESSED",
        "A->A'",
        True,
        "http://jm-a:9091",
    )
    assert sidecar.component_state(REST_SERVER).since == since


def test_the_same_bytes_again_are_quiet_but_counted() -> None:
    """A rewrite of the same leader is no transition; it does not count as unseen when the leader changes later."""
    flink, sidecar = watching()
    sidecar.sees(flink.elect(A, DISPATCHER))
    assert sidecar.transitions() == []
    sidecar.sees(flink.publish(DISPATCHER, job_manager("jm-a", 1).leads(DISPATCHER), A.zookeeper_session))
    assert [t.unobserved for t in sidecar.transitions(DISPATCHER)] == [0]


def test_a_node_without_bytes_is_a_vacancy() -> None:
    """Flink clears leader information by writing zero bytes."""
    flink, sidecar = watching()
    flink.znodes.write(flink.znodes.path(DISPATCHER), b"", A.zookeeper_session)
    sidecar.sees_changes()
    assert [(t.pattern, t.unobserved) for t in sidecar.transitions(DISPATCHER)] == [("A->null", 0)]


def test_contenders_that_come_and_go_are_recorded() -> None:
    """One child of the latch is one JobManager that would lead; the one that is left has no standby. A second look is no news."""
    flink, sidecar = watching()
    for number in range(2):
        flink.znodes.write(f"/leader/latch/_c_{number}-latch-000000000{number}", b"", 7)
        sidecar.reads_lists(["/leader/latch"] * 2)
    flink.znodes.delete("/leader/latch/_c_0-latch-0000000000")
    sidecar.reads_lists(["/leader/latch"])
    contention = [record for record in sidecar.records if isinstance(record, Contention)]
    assert [(c.component, c.contenders_before, c.contenders) for c in contention] == [
        (None, 0, 1),
        (None, 1, 2),
        (None, 2, 1),
    ]
    assert len({record.id for record in contention}) == 3
    sidecar.sees(flink.vacate(DISPATCHER))
    assert sidecar.transitions(DISPATCHER)[-1].contenders == 1


def test_up_to_1_14_each_component_has_its_own_contest() -> None:
    """The latch says whose leadership it is for."""
    flink, sidecar = watching(era=ZNodeLayout.Z2)
    flink.znodes.write("/leader/dispatcher/latch/_c_0-latch-0000000000", b"", 7)
    sidecar.reads_lists(["/leader/dispatcher/latch"])
    assert [record.component for record in sidecar.records if isinstance(record, Contention)] == ["dispatcher"]


def test_an_address_that_is_too_long_is_a_record_that_says_so() -> None:
    """60 writes of 65 kB for each component leave one record of each, and nothing of the address in state, journal or message."""
    flink, sidecar = watching()
    for term in range(60):
        sidecar.sees(flink.elect(job_manager("x" * 65_000, term)))
    sidecar.waits(60)
    assert [(t.kind, t.reason) for t in sidecar.transitions()] == [
        ("OBSCURED", "the address is longer than 1024 bytes")
    ] * 4
    written = [*(row.value for row in changes(State(), sidecar.state)), *map(json.encode, sidecar.records)]
    assert sum(len(value or b"") for value in written) < 100_000
    sidecar.sees(flink.elect(B))
    assert {t.kind for t in sidecar.transitions()[4:]} == {"DISCOVERED"}


def test_of_many_contenders_with_long_names_little_is_kept() -> None:
    """Names of a latch's children can be of any length, and are compared at each change."""
    _, sidecar = watching()
    names = tuple(f"{n:08}{'x' * 5_000}" for n in range(3_000))
    sidecar.observe(ChildrenObserved(sidecar.moment, CLUSTER, LATCH, names))
    assert sum(map(len, sidecar.state.clusters[CLUSTER].contenders[LATCH])) == 200_000
    contention = next(record for record in sidecar.records if isinstance(record, Contention))
    assert contention.contenders == 1_000


def test_the_job_id_in_a_record_is_the_one_in_the_path() -> None:
    """32 hex digits in its own column, and none for a cluster component."""
    sidecar = Sidecar(Flink().submit().elect(A)).connects()
    assert {(t.component, t.job_id) for t in sidecar.transitions()} == {
        ("resource_manager", None),
        ("dispatcher", None),
        ("rest_server", None),
        ("job", JOB),
    }


def test_an_instant_is_written_in_utc_with_microseconds() -> None:
    """The one spelling of time in records."""
    assert timestamp(START + 4_882_702) == "2026-11-20T08:00:04.882702Z"
