"""Counters begin at 0, so that `increase()` sees the first thing that is counted."""

import threading
from pathlib import Path

import pytest
from msgspec.structs import replace
from prometheus_client.parser import text_string_to_metric_families

from sidecar.app.loop import Loop
from sidecar.core.failover.causes import Cause
from sidecar.core.flink.leadership import Component
from sidecar.core.leadership.transitions import Kind
from sidecar.core.policy.policy import Destination, Policy, Source
from sidecar.core.state import Append
from sidecar.core.views.snapshot import Snapshot, Tally
from sidecar.journal import Journal
from sidecar.runtime.clock import Clock
from sidecar.sinks.metrics import SnapshotCollector, renderer
from tests.kit.cluster import CLUSTER, B
from tests.kit.core_sidecar import POLICY, fail_over, leased, watching
from tests.kit.metric_families import WELL
from tests.kit.observed_failovers import at, failover, first_sight, play

Samples = dict[tuple[str, frozenset[tuple[str, str]]], float]
LABELLED = (
    "flink_ha_leader_transitions_total",
    "flink_ha_episodes_total",
    "flink_ha_notifications_total",
    "flink_ha_evidence_total",
)


def counters(snapshot: Snapshot) -> Samples:
    """Every sample of the counters with labels."""
    text = renderer(SnapshotCollector(lambda: snapshot, lambda _: "zookeeper", lambda: WELL))().decode()
    return {
        (sample.name, frozenset(sample.labels.items())): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
        if sample.name in LABELLED
    }


def of(samples: Samples, name: str, *labels: str) -> set[tuple[str, ...]]:
    return {tuple(dict(found)[label] for label in labels) for metric, found in samples if metric == name}


def at_the_start(folder: Path, policy: Policy) -> Samples:
    """What the first scrape gets, before the owner has made a turn."""
    journal = Journal(folder)
    state = journal.open()
    died = threading.Event().set
    loop = Loop(
        policy,
        journal,
        state,
        Clock(),
        carry_out=lambda _: None,
        sealed=lambda: 0,
        died=died,
    )
    try:
        return counters(loop.snapshot)
    finally:
        journal.close()


@pytest.mark.covers("metric:flink_ha_notifications")
def test_the_first_scrape_has_every_known_series_at_0(tmp_path: Path) -> None:
    """Components by kinds, causes, receivers by reasons and outcomes: right after the start, before anything was seen."""
    series = at_the_start(tmp_path, POLICY)
    assert set(series.values()) == {0.0}
    assert of(series, "flink_ha_leader_transitions_total", "component", "kind") == {
        (component.value, kind.value) for component in Component for kind in Kind
    }
    assert of(series, "flink_ha_episodes_total", "cluster_id", "cause") == {(CLUSTER, cause.value) for cause in Cause}
    notifications = of(series, "flink_ha_notifications_total", "receiver", "reason", "outcome")
    assert {("ops", "FIRST", "queued"), ("ops", "RESOLVED", "delivered"), ("ops", "GREW", "gave_up")} <= notifications
    assert ("ops", "SUPPRESSED_BY_INHIBITION", "suppressed") in notifications
    assert ("ops", "FIRST", "suppressed") not in notifications
    assert ("ops", "SUPPRESSED_BY_INHIBITION", "delivered") not in notifications
    assert {receiver for receiver, _, _ in notifications} == set(POLICY.receivers)


@pytest.mark.covers("metric:flink_ha_evidence")
def test_evidence_is_counted_from_0_where_it_is_captured(tmp_path: Path) -> None:
    """Every kind by every outcome; where nothing is captured there is nothing to count."""
    assert of(at_the_start(tmp_path / "without", POLICY), "flink_ha_evidence_total", "kind") == set()
    series = at_the_start(tmp_path / "with", replace(POLICY, evidence=frozenset(Source)))
    assert {("job", "captured"), ("thread_dump", "refused"), ("process", "lost")} <= of(
        series, "flink_ha_evidence_total", "kind", "outcome"
    )


def test_nothing_is_counted_that_did_not_begin_at_0() -> None:
    """Failovers of a znode's and of a lease's leader, alerts, their delivery and repetition: all in series that were there."""
    flink, sidecar = watching()
    fail_over(flink, sidecar, after=40).waits(120)
    leasing, holder = leased()
    holder.hears_nothing(60)
    leasing.elect(B)
    holder.sees_changes().waits(120)
    for policy, records in ((sidecar.policy, sidecar.records), (holder.policy, holder.records)):
        begin = Tally().begun(policy, policy.stores)
        for before, after in (
            (begin.transitions, begin.with_records(records).transitions),
            (begin.episodes, begin.with_records(records).episodes),
            (begin.notifications, begin.with_records(records).notifications),
        ):
            assert before.keys() == after.keys()
            assert sum(after.values()) > 0


def test_a_receiver_that_is_loaded_later_begins_at_0_too() -> None:
    """What has been counted stays as it is."""
    state, effects = play([*first_sight(), *failover(10, term=2)])
    tally = Tally().begun(POLICY, POLICY.stores).with_records([e.record for e in effects if isinstance(e, Append)])
    later = tally.begun(replace(POLICY, receivers={**POLICY.receivers, "new": (Destination("new", 0),)}), POLICY.stores)
    assert {key: count for key, count in later.transitions.items() if count} == {
        key: count for key, count in tally.transitions.items() if count
    }
    series = counters(Snapshot(at(13), state, later))
    assert (
        series[
            "flink_ha_notifications_total",
            frozenset({"receiver": "new", "reason": "FIRST", "outcome": "queued"}.items()),
        ]
        == 0
    )
