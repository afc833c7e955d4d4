"""Metrics show the snapshot."""

from uuid import UUID

import pytest
from msgspec.structs import replace
from prometheus_client.parser import text_string_to_metric_families

from sidecar import __version__
from sidecar.core.cluster.cluster_state import PictureRequested
from sidecar.core.cluster.status import Status
from sidecar.core.flink.leadership import LeaderInformation
from sidecar.core.flink.znode_paths import LATCH
from sidecar.core.observations import (
    ChildrenObserved,
    ClusterFound,
    ClustersListed,
    ConnectionState,
    DeliveryOutcome,
    LeftOut,
    NothingFound,
    NotProcessed,
    StoreObserved,
    Ticked,
    ViewObserved,
)
from sidecar.core.pictures import Picture
from sidecar.core.policy.policy import Destination
from sidecar.core.records import EpisodeRecord
from sidecar.core.state import Append, Effect, State
from sidecar.core.views.snapshot import Health, Snapshot, Tally
from sidecar.sinks.metrics import SinkHealth, SnapshotCollector, renderer
from tests.kit.core_sidecar import fail_over, watching, with_destinations
from tests.kit.java_serialization import connection_info
from tests.kit.metric_families import WELL
from tests.kit.observed_failovers import CLUSTER, PATHS, at, failover, first_sight, gone, held, play


def scraped(
    state: State, effects: list[Effect], second: float, health: Health | None = None, sinks: SinkHealth = WELL
) -> dict[tuple[str, frozenset[tuple[str, str]]], float]:
    """Every sample by name and labels."""
    tally = Tally().with_records([effect.record for effect in effects if isinstance(effect, Append)])
    snapshot = Snapshot(at(second), state, tally, health or Health())
    text = renderer(SnapshotCollector(lambda: snapshot, lambda _: "zookeeper", lambda: sinks))().decode()
    return {
        (sample.name, frozenset(sample.labels.items())): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


def key(name: str, **labels: str) -> tuple[str, frozenset[tuple[str, str]]]:
    return name, frozenset(labels.items())


@pytest.mark.covers("metric:flink_ha_leader_transitions", "metric:flink_ha_leadership", "metric:flink_ha_view_up")
def test_a_failover_is_counted_by_component_and_kind() -> None:
    """Three components lost their leader and got another."""
    series = scraped(*play([*first_sight(), *failover(10, term=2)]), second=13)
    for component in ("resource_manager", "dispatcher", "rest_server"):
        for kind in ("DISCOVERED", "REVOKED", "GRANTED"):
            assert (
                series[key("flink_ha_leader_transitions_total", cluster_id=CLUSTER, component=component, kind=kind)]
                == 1
            )
        assert series[key("flink_ha_leadership", cluster_id=CLUSTER, component=component, state="held")] == 1
    assert series[key("flink_ha_view_up", cluster_id=CLUSTER, store="zookeeper")] == 1


@pytest.mark.covers("metric:flink_ha_episodes")
def test_a_failover_that_is_over_is_counted_once_by_its_cause() -> None:
    """However many components it moved."""
    series = scraped(*play([*first_sight(), *failover(10, term=2), Ticked(at(30))]), second=31)
    counted = {
        dict(labels)["cause"]: value for (name, labels), value in series.items() if name == "flink_ha_episodes_total"
    }
    assert counted == {"jobmanager_lost": 1}


@pytest.mark.covers(
    "metric:flink_ha_last_episode_timestamp_seconds",
    "metric:flink_ha_last_episode_vacant_seconds",
    "metric:flink_ha_last_episode_downtime_seconds",
)
def test_the_last_failover_is_there_with_its_id_and_durations() -> None:
    """Its end as a time, how long no leader was published, and the bounds that are known; the one before it is gone."""
    scene = [*first_sight(), *failover(10, term=2), Ticked(at(30)), *failover(40, term=3), Ticked(at(60))]
    state, effects = play(scene)
    series = scraped(state, effects, second=61)
    *_, last = [e.record for e in effects if isinstance(e, Append) and isinstance(e.record, EpisodeRecord)]
    labels = {"cluster_id": CLUSTER, "cause": "jobmanager_lost", "episode_id": last.id}
    assert {name: value for name, value in series.items() if name[0].startswith("flink_ha_last_episode_")} == {
        key("flink_ha_last_episode_timestamp_seconds", **labels): at(42).wall / 1e6,
        key("flink_ha_last_episode_vacant_seconds", **labels): 2,
        key("flink_ha_last_episode_downtime_seconds", **labels, bound="at_least"): 2,
    }


@pytest.mark.covers("metric:flink_ha_leader_info")
def test_the_info_metric_has_the_current_leader_only() -> None:
    """No stale series: one leader a component."""
    found = scraped(*play([*first_sight(), *failover(10, term=2)]), second=13)
    leaders = [dict(labels)["leader_address"] for name, labels in found if name == "flink_ha_leader_info"]
    assert leaders == ["pekko.tcp://flink@jm-2:6123/user/rpc/x_1"] * 3


@pytest.mark.covers("metric:flink_ha_vacant_seconds")
def test_a_vacancy_grows_and_a_lost_view_is_no_vacancy() -> None:
    """Vacant for seven seconds; and once we cannot see, there is no number at all."""
    scene = [*first_sight(), gone(10, PATHS[1])]
    seen = scraped(*play(scene), second=17)
    dispatcher = key("flink_ha_vacant_seconds", cluster_id=CLUSTER, component="dispatcher")
    assert seen[dispatcher] == 7
    assert seen[key("flink_ha_vacant_seconds", cluster_id=CLUSTER, component="rest_server")] == 0
    blind = scraped(
        *play([*scene, ViewObserved(at(18), CLUSTER, ConnectionState.SUSPENDED), Ticked(at(30))]), second=31
    )
    assert dispatcher not in blind
    assert blind[key("flink_ha_leadership", cluster_id=CLUSTER, component="dispatcher", state="unknown")] == 1
    assert blind[key("flink_ha_view_up", cluster_id=CLUSTER, store="zookeeper")] == 0


@pytest.mark.covers("metric:flink_ha_observation_delay_seconds")
def test_the_delay_of_each_write_is_in_one_bucket() -> None:
    """The histogram's count is the number of writes seen, and its buckets add up."""
    state, effects = play([*first_sight(), *failover(10, term=2)])
    series = scraped(state, effects, second=13)
    assert series[key("flink_ha_observation_delay_seconds_count")] == 3
    assert series[key("flink_ha_observation_delay_seconds_bucket", le="0.005")] == 3


@pytest.mark.covers("metric:flink_ha_zookeeper_zxid_headroom")
def test_the_headroom_of_zookeepers_numbers_is_reported_once_known() -> None:
    """The low 32 bits of the newest zxid are what is used up of this epoch; until it is known, there is no series."""
    name = key("flink_ha_zookeeper_zxid_headroom", cluster_id=CLUSTER)
    assert name not in scraped(*play(first_sight()), second=13)
    newest = StoreObserved(at(12), CLUSTER, (7 << 32) + 0xFFFF0000)
    assert scraped(*play([*first_sight(), newest]), second=13)[name] == 0xFFFF


@pytest.mark.covers("metric:flink_ha_picture_age_seconds")
def test_the_age_of_the_last_picture_counts_from_the_first_request_on() -> None:
    """Until one comes; without requests there is no series."""
    name = key("flink_ha_picture_age_seconds", cluster_id=CLUSTER)
    state, effects = play(first_sight())
    assert name not in scraped(state, effects, second=13)
    asked = PictureRequested(LeaderInformation("http://jm-1:8081", UUID(int=1)), at(12).steady, at(3).steady)
    clusters = {CLUSTER: replace(state.clusters[CLUSTER], picture_request=asked)}
    assert scraped(replace(state, clusters=clusters), effects, second=13)[name] == 10


@pytest.mark.covers("metric:flink_ha_pictures_left_out")
def test_clusters_are_counted_whose_pictures_do_not_fit() -> None:
    """Not those of which there is none, or one that fits."""
    state, effects = play(first_sight())
    fits = Picture(at(12).wall, "http://jm-1:8081")
    for picture, count in ((None, 0), (fits, 0), (replace(fits, left_out=True), 1)):
        known = {CLUSTER: replace(state.clusters[CLUSTER], picture=picture)}
        assert scraped(replace(state, clusters=known), effects, second=13)[key("flink_ha_pictures_left_out")] == count


@pytest.mark.covers("metric:flink_ha_split_leaderships")
def test_a_split_leadership_is_counted() -> None:
    """Two that take turns at one component: one split leadership; before that, none."""
    name = key("flink_ha_split_leaderships", cluster_id=CLUSTER)
    assert scraped(*play(first_sight()), second=9)[name] == 0
    turns = [held(10 + turn, PATHS[0], 2 - turn % 2) for turn in range(6)]
    assert scraped(*play([*first_sight(), *turns]), second=17)[name] == 1


def test_hostile_addresses_stay_inside_their_label() -> None:
    """Quotes and newlines in an address make no second sample."""
    hostile = held(5, PATHS[0], 2)
    address = 'x"} 1\nflink_ha_view_up{cluster_id="default"} 0\n#'
    state, effects = play([*first_sight(), replace(hostile, data=connection_info(address, UUID(int=2)))])
    series = scraped(state, effects, second=6)
    assert address in [dict(labels).get("leader_address") for _, labels in series]
    assert [value for (name, _), value in series.items() if name == "flink_ha_view_up"] == [1]


@pytest.mark.covers(
    "metric:flink_ha_journal_up",
    "metric:flink_ha_unsaved_records",
    "metric:flink_ha_lost_records",
    "metric:flink_ha_spool_pending_records",
)
def test_trouble_with_the_journal_can_be_seen() -> None:
    """A journal that cannot be written is a metric."""
    series = scraped(*play(first_sight()), second=1, health=Health("disk full", 12, 3, 4))
    assert series[key("flink_ha_journal_up")] == 0
    assert series[key("flink_ha_unsaved_records")] == 12
    assert series[key("flink_ha_lost_records_total")] == 3
    assert series[key("flink_ha_spool_pending_records")] == 4


@pytest.mark.covers("metric:flink_ha_spool_up", "metric:flink_ha_ledger_up", "metric:flink_ha_handover_up")
def test_trouble_with_what_is_written_elsewhere_can_be_seen() -> None:
    """A spool, a ledger or a handover that cannot be written is a metric; what was not needed yet has no series."""
    series = scraped(*play(first_sight()), second=1)
    assert series[key("flink_ha_spool_up")] == 1
    ledger, handover = (key(f"flink_ha_{name}_up", cluster_id=CLUSTER) for name in ("ledger", "handover"))
    assert not {ledger, handover} & series.keys()
    series = scraped(*play(first_sight()), second=1, sinks=SinkHealth(False, {CLUSTER: True}, {CLUSTER: False}, {}))
    assert (series[key("flink_ha_spool_up")], series[ledger], series[handover]) == (0, 1, 0)


@pytest.mark.covers("metric:flink_ha_kubernetes_events")
def test_events_are_counted_by_outcome() -> None:
    """Where a cluster has any."""
    written = key("flink_ha_kubernetes_events_total", outcome="written")
    assert written not in scraped(*play(first_sight()), second=1)
    sinks = SinkHealth(True, {}, {}, {"written": 3, "dropped": 0})
    assert scraped(*play(first_sight()), second=1, sinks=sinks)[written] == 3


@pytest.mark.covers("metric:flink_ha_sidecar")
def test_the_version_of_the_sidecar_is_a_label() -> None:
    """So that a query can select which versions run."""
    assert scraped(*play([]), second=0)[key("flink_ha_sidecar_info", version=__version__)] == 1


@pytest.mark.covers("metric:flink_ha_status")
def test_a_cluster_has_one_status() -> None:
    """1 for that, 0 for each other: of a leader whose jobs nobody has asked for, UNCHECKED."""
    figures = scraped(*play(first_sight()), second=1)
    ones = [status for status in Status if figures[key("flink_ha_status", cluster_id=CLUSTER, status=status)]]
    assert ones == [Status.UNCHECKED]


@pytest.mark.covers("metric:flink_ha_contenders")
def test_contenders_are_counted_while_connected() -> None:
    """The children of the latch; while the store cannot be read, their number is not known."""
    contenders = key("flink_ha_contenders", cluster_id=CLUSTER)
    scene = [*first_sight(), ChildrenObserved(at(1), CLUSTER, LATCH, ("a-latch-1", "b-latch-2"))]
    assert scraped(*play(scene), second=2)[contenders] == 2
    lost = ViewObserved(at(2), CLUSTER, ConnectionState.LOST)
    assert contenders not in scraped(*play([*scene, lost, Ticked(at(9))]), second=10)


@pytest.mark.covers("metric:flink_ha_cluster_found")
def test_a_cluster_of_which_there_is_no_trace_is_not_found() -> None:
    """0 is for a misspelled id; a cluster whose leaders were seen once stays found."""
    name = key("flink_ha_cluster_found", cluster_id=CLUSTER)
    assert scraped(*play(first_sight()), second=1)[name] == 1
    connected, *_, complete = first_sight()[1:]
    nothing = [connected, NothingFound(at(0), CLUSTER, "zk:2181/flink/misspelled"), complete]
    assert scraped(*play(nothing), second=1)[name] == 0


@pytest.mark.covers("metric:flink_ha_clusters_watched", "metric:flink_ha_clusters_left_out")
def test_clusters_that_are_found_are_counted_and_those_left_out_too() -> None:
    """Only where clusters are searched for."""
    watched, left_out = key("flink_ha_clusters_watched"), key("flink_ha_clusters_left_out")
    assert not {watched, left_out} & scraped(*play(first_sight()), second=1).keys()
    listed = ClustersListed(at(1), "zk:2181/flink", frozenset({"a", "b"}), left_out=3)
    found = scraped(*play([ClusterFound(at(0), "a"), ClusterFound(at(0), "b"), listed]), second=2)
    assert (found[watched], found[left_out]) == (2, 3)


@pytest.mark.covers("metric:flink_ha_jobs_left_out", "metric:flink_ha_znodes_left_out")
def test_what_is_beyond_a_bound_is_counted() -> None:
    """Jobs by cluster, where there are any; znodes where clusters are searched for."""
    jobs, znodes = key("flink_ha_jobs_left_out", cluster_id=CLUSTER), key("flink_ha_znodes_left_out")
    assert not {jobs, znodes} & scraped(*play(first_sight()), second=1).keys()
    listed = ClustersListed(at(1), "zk:2181/flink", frozenset({CLUSTER}), unlisted=9)
    found = scraped(*play([*first_sight(), LeftOut(at(1), CLUSTER, jobs=12), listed]), second=2)
    assert (found[jobs], found[znodes]) == (12, 9)
    unread = scraped(*play([*first_sight(), LeftOut(at(1), CLUSTER, lists=("/leader",))]), second=2)
    assert unread[jobs] == 1  # at least


@pytest.mark.covers("metric:flink_ha_unobserved_changes")
def test_changes_that_nobody_observed_are_counted() -> None:
    """The znode says that it was written three times since it was last read: two of them were missed."""
    term = held(10, PATHS[1], 1)
    assert term.position is not None
    rewritten = replace(held(10, PATHS[1], 2), position=replace(term.position, mzxid=400, version=3))
    assert scraped(*play([*first_sight(), rewritten]), second=11)[key("flink_ha_unobserved_changes_total")] == 2


@pytest.mark.covers("metric:flink_ha_quarantines")
def test_what_was_left_out_of_a_step_is_counted() -> None:
    """As often as it was, though what lately raised an error is named once."""
    found = scraped(*play(first_sight()), second=1, health=Health(quarantined=("rule A",), quarantines=3))
    assert found[key("flink_ha_quarantines_total")] == 3


@pytest.mark.covers("metric:flink_ha_unprocessed_observations")
def test_observations_that_could_not_be_processed_are_counted() -> None:
    """Of each, the state of its path is unknown as well."""
    series = scraped(*play(first_sight()), second=1, health=Health(unprocessed=2))
    assert series[key("flink_ha_unprocessed_observations_total")] == 2
    series = scraped(*play([*first_sight(), NotProcessed(at(1), CLUSTER, PATHS[1], "a defect")]), second=2)
    assert series[key("flink_ha_leadership", cluster_id=CLUSTER, component="dispatcher", state="unknown")] == 1


@pytest.mark.covers("metric:flink_ha_rules_up")
def test_rules_on_disk_that_are_not_in_use_can_be_seen() -> None:
    """A reload failed: the previous ones are kept."""
    assert scraped(*play(first_sight()), second=1)[key("flink_ha_rules_up")] == 1
    found = scraped(*play(first_sight()), second=1, health=Health(rules_problem="line 3: no such trigger"))
    assert found[key("flink_ha_rules_up")] == 0


@pytest.mark.covers("metric:flink_ha_outbox_pending")
def test_deliveries_that_are_not_settled_are_counted() -> None:
    """Two destinations of one alert."""
    found = scraped(*play([*first_sight(), *failover(10, term=2), Ticked(at(60))]), second=61)
    assert found[key("flink_ha_outbox_pending")] == 2


def test_a_scheduled_close_is_not_pending() -> None:
    """The incident of a failover that is over is closed later; a message that cannot be delivered is pending."""
    flink, sidecar = watching(policy=with_destinations(Destination("ops", 0, in_order=True, keeps_incidents=True)))
    fail_over(flink, sidecar).waits(60)
    assert [delivery.is_closing for delivery in sidecar.state.outbox.values()] == [True]
    assert scraped(sidecar.state, [], second=60)[key("flink_ha_outbox_pending")] == 0
    sidecar.answers["ops#0"] = DeliveryOutcome.FAILED
    sidecar.waits(300)
    assert scraped(sidecar.state, [], second=360)[key("flink_ha_outbox_pending")] == 1
