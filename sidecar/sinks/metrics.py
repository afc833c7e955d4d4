"""Prometheus metrics, computed from the newest snapshot at each scrape: a series disappears together with its subject."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from itertools import accumulate
from typing import Any, Final, NamedTuple

from prometheus_client import CollectorRegistry
from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    InfoMetricFamily,
    Metric,
)
from prometheus_client.exposition import generate_latest
from prometheus_client.registry import Collector

from sidecar import __version__
from sidecar.core.cluster.cluster_state import ClusterState, contending, zxid_headroom
from sidecar.core.cluster.status import Status
from sidecar.core.cluster.status_of import status_of
from sidecar.core.flink.leadership import CLUSTER_COMPONENTS, Component, Held
from sidecar.core.leadership.leadership_account import Standing, totals
from sidecar.core.leadership.leadership_machine import final_until
from sidecar.core.moment import SECOND, Moment
from sidecar.core.sanitize import printable
from sidecar.core.views.leader_view import state_of
from sidecar.core.views.snapshot import DELAY_BUCKETS, Snapshot

_STATES: Final = ("held", "vacant", "unknown")
_COMPONENTS: Final = tuple(component.value for component in Component)


class SinkHealth(NamedTuple):
    """The success of the last write of each sink. A cluster whose document was not written yet is absent."""

    spool: bool
    ledgers: Mapping[str, bool]
    """True where the cluster's ledger works, by cluster."""
    handovers: Mapping[str, bool]
    """True where the cluster's handover could be written, by cluster."""
    events: Mapping[str, int]
    """The number of Kubernetes Events by outcome."""
    observers: Mapping[str, int] = {}
    """The number of sidecars that share each cluster's ledger, by cluster."""


def renderer(collector: "SnapshotCollector") -> Callable[[], bytes]:
    """A function that renders the newest snapshot in Prometheus' text format."""
    registry = CollectorRegistry(auto_describe=False)
    registry.register(collector)
    return lambda: _printable(generate_latest(registry))


def _printable(text: bytes) -> bytes:
    """The text with nothing in it that acts on a terminal: label values may be others', and this format has no escapes for them."""
    return b"\n".join(printable(line).encode() for line in text.decode().split("\n"))


class SnapshotCollector(Collector):
    """All metrics of one sidecar."""

    def __init__(
        self, snapshot: Callable[[], Snapshot], store_of: Callable[[str], str], sinks: Callable[[], SinkHealth]
    ) -> None:
        """`store_of`: the store of a cluster."""
        self._snapshot = snapshot
        self._store_of = store_of
        self._sinks = sinks

    def collect(self) -> Iterator[Metric]:
        snapshot = self._snapshot()
        yield InfoMetricFamily("flink_ha_sidecar", "This sidecar.", value={"version": __version__})
        yield from _statuses(snapshot)
        yield from _leadership(snapshot)
        yield from _views(snapshot, self._store_of)
        yield from _pictures(snapshot)
        yield _checks(snapshot)
        yield from _objectives(snapshot)
        yield from _tally(snapshot)
        yield from _last_episodes(snapshot)
        yield from _silences(snapshot)
        yield from _own_health(snapshot)
        yield from _sinks(self._sinks())


def _gauge(name: str, text: str, labels: Sequence[str], series: Iterable[tuple[Sequence[str], float]]) -> Metric:
    family = GaugeMetricFamily(name, text, labels=labels)
    for values, value in series:
        family.add_metric(values, value)
    return family


def _counter(name: str, text: str, labels: Sequence[str], counts: Mapping[Any, int]) -> Metric:
    family = CounterMetricFamily(name, text, labels=labels)
    for values, count in counts.items():
        family.add_metric(values, count)
    return family


def _statuses(snapshot: Snapshot) -> Iterator[Metric]:
    policy, at = snapshot.policy, snapshot.at
    current = {name: status_of(policy, name, cluster, at).status for name, cluster in snapshot.state.clusters.items()}
    of_each = (([name, status.value], int(status is now)) for name, now in current.items() for status in Status)
    yield _gauge("flink_ha_status", "1 for the status that the cluster has.", ["cluster_id", "status"], of_each)


def _leadership(snapshot: Snapshot) -> Iterator[Metric]:
    clusters = snapshot.state.clusters.items()
    counts = (([name, *key], count) for name, cluster in clusters for key, count in _counts(cluster).items())
    labels = ["cluster_id", "component", "state"]
    yield _gauge("flink_ha_leadership", "Number of leaderships in each state.", labels, counts)
    leaders = (
        ([name, component.component.value, held.leader.address, str(held.leader.session_id)], 1)
        for name, cluster in clusters
        for component, component_state in cluster.components.items()
        if isinstance(held := component_state.leadership, Held) and component.job_id is None
    )
    labels = ["cluster_id", "component", "leader_address", "leader_session_id"]
    yield _gauge("flink_ha_leader_info", "The current leader of each component.", labels, leaders)
    vacant = (([name, key], lasted) for name, c in clusters for key, lasted in _vacancies(c, snapshot.at).items())
    text = "How long no leader has been published (jobs: the longest)."
    yield _gauge("flink_ha_vacant_seconds", text, ["cluster_id", "component"], vacant)
    contenders = (
        ([name], number)
        for name, cluster in clusters
        if cluster.is_in_sight and (number := contending(cluster.contenders)) is not None
    )
    yield _gauge("flink_ha_contenders", "JobManagers that contend for leadership.", ["cluster_id"], contenders)
    split = (([name], len(cluster.contested)) for name, cluster in clusters)
    text = "Leaderships for which two contenders replace each other in turn."
    yield _gauge("flink_ha_split_leaderships", text, ["cluster_id"], split)


def _counts(cluster: ClusterState) -> dict[tuple[str, str], int]:
    """The number of leaderships by component and state."""
    counts = dict.fromkeys(((component, state) for component in _COMPONENTS for state in _STATES), 0)
    for component, component_state in cluster.components.items():
        counts[component.component.value, state_of(cluster, component_state.leadership)] += 1
    return counts


def _vacancies(cluster: ClusterState, now: Moment) -> dict[str, float]:
    """Seconds without a leader, by component. A component in an unknown state is absent, not 0."""
    longest = {} if cluster.missing else {component.component.value: 0.0 for component in CLUSTER_COMPONENTS}
    for component, component_state in cluster.components.items():
        name, state = component.component.value, state_of(cluster, component_state.leadership)
        if state == "vacant":
            longest[name] = max((now.steady - component_state.since.steady) / SECOND, longest.get(name, 0.0))
        elif state == "unknown" and component.job_id is None:
            longest.pop(name, None)
    return longest


def _views(snapshot: Snapshot, store_of: Callable[[str], str]) -> Iterator[Metric]:
    clusters = snapshot.state.clusters.items()
    views = (([name, store_of(name)], int(cluster.is_in_sight)) for name, cluster in clusters)
    text = "1 while the store is connected and fully read: only then does no leader mean that there is none."
    yield _gauge("flink_ha_view_up", text, ["cluster_id", "store"], views)
    exists = (([name], int(c.missing is None)) for name, c in clusters if c.view.complete or c.ever_led)
    text = "0 if nothing of the cluster was ever found in the store: check its id."
    yield _gauge("flink_ha_cluster_found", text, ["cluster_id"], exists)
    if finder := snapshot.state.finder:
        text = "Clusters that were found and are watched."
        yield GaugeMetricFamily("flink_ha_clusters_watched", text, len(snapshot.state.clusters))
        text = "Clusters that were found and are not watched, because there are too many."
        yield GaugeMetricFamily("flink_ha_clusters_left_out", text, finder.left_out)
        text = "Znodes that were not searched for clusters, because there are too many."
        yield GaugeMetricFamily("flink_ha_znodes_left_out", text, finder.unlisted)
    beyond = (([name], max(c.beyond.jobs, len(c.beyond.lists))) for name, c in clusters if c.beyond)
    text = "Jobs of the cluster that are not observed, because there are too many: at least so many."
    yield _gauge("flink_ha_jobs_left_out", text, ["cluster_id"], beyond)
    headrooms = (([name], headroom) for name, c in clusters if (headroom := zxid_headroom(c)) is not None)
    text = "Transactions until ZooKeeper has to elect a leader of its own, to begin a new epoch."
    yield _gauge("flink_ha_zookeeper_zxid_headroom", text, ["cluster_id"], headrooms)


def _pictures(snapshot: Snapshot) -> Iterator[Metric]:
    """Does not age with `flink_rest: never`: then no picture is asked for."""
    ages = (
        ([name], max(0, snapshot.at.steady - last.good_at) / SECOND)
        for name, cluster in snapshot.state.clusters.items()
        if (last := cluster.picture_request)
    )
    text = "Time since Flink's REST server last described the cluster, or was first asked to."
    yield _gauge("flink_ha_picture_age_seconds", text, ["cluster_id"], ages)
    count = sum(bool(cluster.picture and cluster.picture.left_out) for cluster in snapshot.state.clusters.values())
    text = "Clusters whose pictures are left out, because those of all clusters would hold too much."
    yield GaugeMetricFamily("flink_ha_pictures_left_out", text, count)


def _checks(snapshot: Snapshot) -> Metric:
    verdicts = (
        ([name, check, check_state.result.verdict.value], 1)
        for name, cluster in snapshot.state.clusters.items()
        if cluster.readiness
        for check, check_state in cluster.readiness.checks.items()
    )
    return _gauge(
        "flink_ha_check", "What each check of high availability found.", ["cluster_id", "check", "verdict"], verdicts
    )


def _objectives(snapshot: Snapshot) -> Iterator[Metric]:
    """The seconds only until what is final: they never go back, also not when this sidecar is killed and starts again."""
    clusters, policy, at = snapshot.state.clusters, snapshot.policy, snapshot.at
    lasted = CounterMetricFamily(
        "flink_ha_leadership_seconds", "For how long the cluster was led.", labels=["cluster_id", "state"]
    )
    for name, cluster in clusters.items():
        if cluster.account:
            until = final_until(cluster, snapshot.state.alive, at)
            parts = totals(cluster.account, until)
            for standing in Standing:
                lasted.add_metric([name, standing.value], getattr(parts, standing.value) / SECOND)
    yield lasted
    objectives = {name: objective for name in clusters if (objective := policy.objective_of(name))}
    ratios = (([name], round(objective.leadership / 100, 6)) for name, objective in objectives.items())
    text = "The objective for leadership: the part of the time in which the cluster is to be led."
    yield _gauge("flink_ha_slo_objective_ratio", text, ["cluster_id"], ratios)


def _tally(snapshot: Snapshot) -> Iterator[Metric]:
    tally = snapshot.tally
    labels = ["cluster_id", "component", "kind"]
    yield _counter("flink_ha_leader_transitions", "Leadership transitions.", labels, tally.transitions)
    text = "Changes that the store counted and this sidecar did not observe: at least this many."
    yield CounterMetricFamily("flink_ha_unobserved_changes", text, value=tally.unobserved)
    yield _counter("flink_ha_episodes", "Failovers that are over.", ["cluster_id", "cause"], tally.episodes)
    labels = ["receiver", "reason", "outcome"]
    yield _counter("flink_ha_notifications", "Attempts to deliver.", labels, tally.notifications)
    labels = ["cluster_id", "kind", "outcome"]
    yield _counter("flink_ha_evidence", "Attempts to capture evidence.", labels, tally.evidence)
    delay = HistogramMetricFamily("flink_ha_observation_delay_seconds", "From the store's write until it was observed.")
    totals = map(float, accumulate(tally.delays.counts))
    delay.add_metric([], list(zip((*map(str, DELAY_BUCKETS), "+Inf"), totals, strict=True)), tally.delays.total)
    yield delay


def _last_episodes(snapshot: Snapshot) -> Iterator[Metric]:
    """The metrics of the last episode with its id, which all observers share: distinct ids count failovers also where each one replaces the
    sidecar's pod."""
    labels = ["cluster_id", "cause", "episode_id"]
    last = {(name, episode.cause, episode.id): episode for name, episode in snapshot.tally.last_episodes.items()}
    closed = ((key, datetime.fromisoformat(episode.closed_at).timestamp()) for key, episode in last.items())
    yield _gauge("flink_ha_last_episode_timestamp_seconds", "When the last failover was over.", labels, closed)
    vacant = ((key, episode.vacant_seconds) for key, episode in last.items() if episode.vacant_seconds is not None)
    text = "How long no leader was published in the last failover."
    yield _gauge("flink_ha_last_episode_vacant_seconds", text, labels, vacant)
    downtime = (
        ([*key, bound], bounded)
        for key, episode in last.items()
        for bound, bounded in (
            ("at_least", episode.downtime_seconds_at_least),
            ("at_most", episode.downtime_seconds_at_most),
        )
        if bounded is not None
    )
    text = "Bounds of how long no leader worked in the last failover."
    yield _gauge("flink_ha_last_episode_downtime_seconds", text, [*labels, "bound"], downtime)


def _silences(snapshot: Snapshot) -> Iterator[Metric]:
    documents = snapshot.state.silences.items()
    active = (
        ([name], sum(silence.is_active(snapshot.at) for silence in document.known.values()))
        for name, document in documents
    )
    yield _gauge("flink_ha_silences", "Active silences.", ["cluster_id"], active)
    up = (([name], int(document.problem is None)) for name, document in documents if document.answered_at is not None)
    text = "1 while the silences can be read and used."
    yield _gauge("flink_ha_silences_up", text, ["cluster_id"], up)


def _own_health(snapshot: Snapshot) -> Iterator[Metric]:
    health = snapshot.health
    pending = sum(not delivery.is_scheduled for delivery in snapshot.state.outbox.values())
    yield GaugeMetricFamily("flink_ha_outbox_pending", "Deliveries that are due and not settled.", pending)
    yield GaugeMetricFamily(
        "flink_ha_spool_pending_records", "Records that are in no segment yet.", health.spool_pending
    )
    yield GaugeMetricFamily("flink_ha_journal_up", "1 while records are on disk.", int(health.journal_problem is None))
    yield GaugeMetricFamily(
        "flink_ha_rules_up", "1 while the rules on disk are in use.", int(health.rules_problem is None)
    )
    yield GaugeMetricFamily(
        "flink_ha_unsaved_records", "Records that wait in memory for the disk.", health.unsaved_records
    )
    text = "Observations that could not be processed: what they were about is unknown."
    yield CounterMetricFamily("flink_ha_unprocessed_observations", text, health.unprocessed)
    text = "Clusters, rules, groups and alerts that raised an error and were left out of a step."
    yield CounterMetricFamily("flink_ha_quarantines", text, health.quarantines)
    text = "Records dropped because neither disk nor memory had room."
    yield CounterMetricFamily("flink_ha_lost_records", text, health.lost_records)


def _sinks(sinks: SinkHealth) -> Iterator[Metric]:
    yield GaugeMetricFamily("flink_ha_spool_up", "1 while segments can be written.", int(sinks.spool))
    by_cluster: tuple[tuple[str, str, Mapping[str, int]], ...] = (
        ("flink_ha_ledger_up", "1 if the ledger was in use when it was last needed.", sinks.ledgers),
        ("flink_ha_handover_up", "1 if the handover could be written when it was last due.", sinks.handovers),
        ("flink_ha_observers", "Sidecars that share the ledger.", sinks.observers),
    )
    for name, text, values in by_cluster:
        yield _gauge(name, text, ["cluster_id"], (([cluster], int(value)) for cluster, value in values.items()))
    events = {(outcome,): count for outcome, count in sinks.events.items()}
    yield _counter("flink_ha_kubernetes_events", "Kubernetes Events about failovers.", ["outcome"], events)
