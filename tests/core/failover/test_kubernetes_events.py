"""Each failover becomes two Events, where that is wanted: that a leader was lost, and who leads."""

from msgspec.structs import replace

from sidecar.core.failover.failover_events import MOST_BYTES, EventReason
from sidecar.core.flink.configmaps import ConfigMapLayout
from sidecar.core.observations import PodNamed
from sidecar.core.pods import Pod
from tests.kit.cluster import CLUSTER, JobManager, job_manager
from tests.kit.config_maps import ONE
from tests.kit.core_sidecar import KUBERNETES, POLICY, LeaseSidecar, leased, watching
from tests.kit.core_sidecar import fail_over as fail_over_in_zookeeper
from tests.kit.fake_flink import Flink

WANTED = replace(KUBERNETES, events=frozenset({CLUSTER}))
OLD, NEW = job_manager("10.1.2.3"), job_manager("10.1.2.4")
LOST, OVER = EventReason.LEADER_LOST, EventReason.FAILED_OVER


def named(sidecar: LeaseSidecar, host: str, name: str, uid: str | None = None) -> None:
    sidecar.observe(PodNamed(sidecar.moment, CLUSTER, host, Pod(name, uid, sidecar.now)))


def fail_over(flink: Flink, sidecar: LeaseSidecar, to: JobManager = NEW) -> None:
    """The leader withdraws, and another one follows."""
    sidecar.sees(flink.vacate()).waits(1).sees(flink.grant(to).publish_all(to)).watches(10)


def test_a_failover_is_two_events_at_the_config_map_of_the_leaders() -> None:
    """When it begins and when it is over: with the uid by which `kubectl describe` finds them."""
    flink, sidecar = leased(OLD, policy=WANTED)
    sidecar.sees(flink.vacate())
    [lost] = sidecar.events
    assert (lost.reason, lost.subject.kind, lost.subject.name) == (LOST, "ConfigMap", ONE)
    assert lost.subject.uid == flink.config_maps[ONE].uid
    assert (
        lost.message == f"resource_manager lost its leader 10.1.2.3:6123: the address was removed [{lost.episode_id}]"
    )
    sidecar.sees(flink.grant(NEW).publish_all(NEW)).watches(10)
    [episode] = sidecar.episodes()
    [over] = sidecar.events[1:]
    assert (over.reason, over.subject) == (OVER, lost.subject)
    assert over.message.startswith(
        "failover 10.1.2.3:6123 → 10.1.2.4:6123: graceful_handover (high), no published leader"
    )
    assert over.message.endswith(f"[{episode.id}]. The leader removed its own addresses")
    assert (lost.episode_id, over.episode_id) == (episode.id, episode.id)
    assert (lost.at, over.at) == (episode.opened_at, episode.closed_at)


def test_the_pods_have_them_too_where_they_are_known() -> None:
    """The previous leader's pod that it was lost, the next one's that it leads; without a uid nobody would be shown them."""
    flink, sidecar = leased(OLD, policy=WANTED)
    named(sidecar, "10.1.2.3", "jm-old", "uid-old")
    named(sidecar, "10.1.2.4", "jm-new", "uid-new")
    fail_over(flink, sidecar)
    events = [(event.reason, event.subject.kind, event.subject.name, event.subject.uid) for event in sidecar.events]
    assert [event for event in events if event[1] == "Pod"] == [
        (LOST, "Pod", "jm-old", "uid-old"),
        (OVER, "Pod", "jm-new", "uid-new"),
    ]
    assert "lost its leader jm-old, 10.1.2.3:6123" in sidecar.events[0].message
    flink, sidecar = leased(OLD, policy=WANTED)
    named(sidecar, "10.1.2.3", "jm-old")
    fail_over(flink, sidecar)
    assert {event.subject.kind for event in sidecar.events} == {"ConfigMap"}


def test_two_observers_make_the_same_events() -> None:
    """One that saw it all, and one that started meanwhile with what was handed over."""
    flink, sidecar = leased(OLD, policy=WANTED)
    sidecar.sees(flink.vacate()).waits(1).is_replaced(2).connects()
    sidecar.sees(flink.grant(NEW).publish_all(NEW)).watches(10)
    assert [event.reason for event in sidecar.events] == [LOST, OVER]
    assert len({event.episode_id for event in sidecar.events}) == 1


def test_a_restart_in_a_failover_begins_no_other_one() -> None:
    """The journal knows that it is open."""
    flink, sidecar = leased(OLD, policy=WANTED)
    sidecar.sees(flink.vacate()).waits(1).is_killed(1).connects().waits(5)
    assert [event.reason for event in sidecar.events] == [LOST]


def test_another_leader_without_a_vacancy_is_said_so() -> None:
    """It began and was over in one look."""
    flink, sidecar = leased(OLD, policy=WANTED)
    sidecar.is_cut_off()
    flink.vacate().grant(NEW).publish_all(NEW)
    sidecar.connects().watches(10)
    lost, over = sidecar.events
    assert lost.message.startswith("resource_manager has another leader: 10.1.2.3:6123 → 10.1.2.4:6123 [")
    assert over.reason is OVER


def test_a_leader_that_is_back_has_not_failed_over() -> None:
    """Its address was removed, and it wrote it again."""
    flink, sidecar = leased(OLD, policy=WANTED)
    sidecar.sees(flink.vacate()).sees(flink.publish_all(OLD)).watches(10)
    _, back = sidecar.events
    assert back.reason is EventReason.LEADER_BACK
    assert back.message.startswith("no failover: ")


def test_up_to_flink_1_14_it_is_the_dispatchers_config_map() -> None:
    """Each component has one of its own."""
    flink, sidecar = leased(OLD, ConfigMapLayout.K1, WANTED)
    fail_over(flink, sidecar)
    assert {event.subject.name for event in sidecar.events} == {f"{CLUSTER}-dispatcher-leader"}


def test_that_only_this_observer_was_blind_is_no_event() -> None:
    """Nothing happened to Flink."""
    _, sidecar = leased(OLD, policy=WANTED)
    sidecar.is_cut_off().waits(20).connects().watches(90)
    assert [episode.cause for episode in sidecar.episodes()] == ["observer_blind"]
    assert sidecar.events == []


def test_nothing_is_written_unless_it_is_wanted() -> None:
    """And in ZooKeeper there is no object for it to be about."""
    flink, sidecar = leased(OLD)
    fail_over(flink, sidecar)
    assert len(sidecar.episodes()) == 1
    assert sidecar.events == []
    nodes, other = watching(policy=replace(POLICY, events=frozenset({CLUSTER})))
    fail_over_in_zookeeper(nodes, other)
    other.waits(10)
    assert len(other.episodes()) == 1
    assert other.events == []


def test_a_message_is_bounded_and_printable() -> None:
    """Whatever address stands in the store."""
    flink, sidecar = leased(OLD, policy=WANTED)
    fail_over(flink, sidecar, job_manager("ß" * 3000 + "\x1b[2J\u202e"))
    assert max(len(event.message.encode()) for event in sidecar.events) <= MOST_BYTES
    assert all(event.message.isprintable() for event in sidecar.events)
