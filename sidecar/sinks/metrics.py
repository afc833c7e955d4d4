"""Prometheus metrics, computed from the newest snapshot at each scrape: a series that is not true any more is not there any more."""

from collections.abc import Callable, Iterator
from typing import Final

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
from sidecar.core.cluster.state import ClusterState, ComponentState, contending, zxid_headroom
from sidecar.core.flink.leadership import CLUSTER_COMPONENTS, Component, Held, Vacant
from sidecar.core.moment import SECOND, Moment
from sidecar.core.views.snapshot import DELAY_BUCKETS, Snapshot

_STATES: Final = ("held", "vacant", "unknown")
_COMPONENTS: Final = tuple(component.value for component in Component)


def renderer(snapshot: Callable[[], Snapshot], stores: dict[str, str]) -> Callable[[], bytes]:
    """A function that renders the newest snapshot in Prometheus' text format. `stores`: which store each cluster is in."""
    registry = CollectorRegistry(auto_describe=False)
    registry.register(SnapshotCollector(snapshot, stores))
    return lambda: generate_latest(registry)


class SnapshotCollector(Collector):
    """All metrics of one sidecar."""

    def __init__(self, snapshot: Callable[[], Snapshot], stores: dict[str, str]) -> None:
        self._snapshot = snapshot
        self._stores = stores

    def collect(self) -> Iterator[Metric]:
        snapshot = self._snapshot()
        yield InfoMetricFamily("flink_ha_sidecar", "This sidecar.", value={"version": __version__})
        yield from _leadership(snapshot)
        yield _views(snapshot, self._stores)
        yield _found(snapshot)
        yield _zxids(snapshot)
        yield from _tally(snapshot)
        yield from _own_health(snapshot)


def _leadership(snapshot: Snapshot) -> Iterator[Metric]:
    leadership = GaugeMetricFamily(
        "flink_ha_leadership", "How many leaderships are in this state.", labels=["cluster_id", "component", "state"]
    )
    info = GaugeMetricFamily(
        "flink_ha_leader_info", "Who leads.", labels=["cluster_id", "component", "leader_address", "leader_session_id"]
    )
    vacant = GaugeMetricFamily(
        "flink_ha_vacant_seconds",
        "For how long no leader has been published (jobs: the longest).",
        labels=["cluster_id", "component"],
    )
    contenders = GaugeMetricFamily(
        "flink_ha_contenders", "JobManagers that contend for leadership.", labels=["cluster_id"]
    )
    split = GaugeMetricFamily(
        "flink_ha_split_leaderships", "Leaderships that two contenders take turns at.", labels=["cluster_id"]
    )
    for cluster_id, cluster in snapshot.state.clusters.items():
        split.add_metric([cluster_id], len(cluster.contested))
        for component, known in cluster.components.items():
            if isinstance(known.leadership, Held) and component.job_id is None:
                leader = known.leadership.leader
                info.add_metric([cluster_id, component.component.value, leader.address, str(leader.session_id)], 1)
        for (name, state), count in _counts(cluster).items():
            leadership.add_metric([cluster_id, name, state], count)
        for name, lasted in _vacancies(cluster, snapshot.at).items():
            vacant.add_metric([cluster_id, name], lasted)
        number = contending(cluster.contenders)
        if number is not None and cluster.in_sight:
            contenders.add_metric([cluster_id], number)
    yield from (leadership, info, vacant, contenders, split)


def _state(cluster: ClusterState, known: ComponentState) -> str:
    if isinstance(known.leadership, Held):
        return "held"
    return "vacant" if isinstance(known.leadership, Vacant) and not cluster.missing else "unknown"


def _counts(cluster: ClusterState) -> dict[tuple[str, str], int]:
    """How many leaderships of each component are in each state."""
    counts = dict.fromkeys(((component, state) for component in _COMPONENTS for state in _STATES), 0)
    for component, known in cluster.components.items():
        counts[component.component.value, _state(cluster, known)] += 1
    return counts


def _vacancies(cluster: ClusterState, now: Moment) -> dict[str, float]:
    """For how long there has been no leader (seconds), by component. Nothing where that is not known: it is not 0."""
    longest = {} if cluster.missing else {component.component.value: 0.0 for component in CLUSTER_COMPONENTS}
    for component, known in cluster.components.items():
        name, state = component.component.value, _state(cluster, known)
        if state == "vacant":
            longest[name] = max((now.steady - known.since.steady) / SECOND, longest.get(name, 0.0))
        elif state == "unknown" and component.job_id is None:
            longest.pop(name, None)
    return longest


def _views(snapshot: Snapshot, stores: dict[str, str]) -> Metric:
    view = GaugeMetricFamily(
        "flink_ha_view_up",
        "1 while the store is seen whole: then, and only then, no leader means no leader.",
        labels=["cluster_id", "store"],
    )
    for cluster_id, cluster in snapshot.state.clusters.items():
        view.add_metric([cluster_id, stores.get(cluster_id, "")], int(cluster.in_sight))
    return view


def _found(snapshot: Snapshot) -> Metric:
    found = GaugeMetricFamily(
        "flink_ha_cluster_found",
        "0 where nothing of the cluster was ever found in the store: is its id right?",
        labels=["cluster_id"],
    )
    for cluster_id, cluster in snapshot.state.clusters.items():
        if cluster.view.complete or cluster.ever_led:
            found.add_metric([cluster_id], int(cluster.missing is None))
    return found


def _zxids(snapshot: Snapshot) -> Metric:
    headroom = GaugeMetricFamily(
        "flink_ha_zookeeper_zxid_headroom",
        "Transactions until ZooKeeper has to elect a leader of its own, to begin a new epoch.",
        labels=["cluster_id"],
    )
    for cluster_id, cluster in snapshot.state.clusters.items():
        left = zxid_headroom(cluster)
        if left is not None:
            headroom.add_metric([cluster_id], left)
    return headroom


def _tally(snapshot: Snapshot) -> Iterator[Metric]:
    tally = snapshot.tally
    transitions = CounterMetricFamily(
        "flink_ha_leader_transitions", "Leadership transitions seen.", labels=["cluster_id", "component", "kind"]
    )
    for transition, count in tally.transitions.items():
        transitions.add_metric(transition, count)
    yield transitions
    yield CounterMetricFamily(
        "flink_ha_unobserved_changes",
        "Changes that the store counted and nobody could see: at least so many.",
        value=tally.unobserved,
    )
    episodes = CounterMetricFamily("flink_ha_episodes", "Failovers that are over.", labels=["cluster_id", "cause"])
    for episode, count in tally.episodes.items():
        episodes.add_metric(episode, count)
    yield episodes
    notifications = CounterMetricFamily(
        "flink_ha_notifications", "Notifications on their way.", labels=["receiver", "reason", "outcome"]
    )
    for notification, count in tally.notifications.items():
        notifications.add_metric(notification, count)
    yield notifications
    evidence = CounterMetricFamily(
        "flink_ha_evidence", "Evidence of failovers, captured or not.", labels=["cluster_id", "kind", "outcome"]
    )
    for piece, count in tally.evidence.items():
        evidence.add_metric(piece, count)
    yield evidence
    delay = HistogramMetricFamily("flink_ha_observation_delay_seconds", "From the store's write until it was seen.")
    so_far, buckets = 0, []
    for bound, count in zip((*(str(bound) for bound in DELAY_BUCKETS), "+Inf"), tally.delays.counts, strict=True):
        so_far += count
        buckets.append((bound, float(so_far)))
    delay.add_metric([], buckets, tally.delays.total)
    yield delay


def _own_health(snapshot: Snapshot) -> Iterator[Metric]:
    health = snapshot.health
    yield GaugeMetricFamily(
        "flink_ha_outbox_pending", "Deliveries that are not settled.", value=len(snapshot.state.outbox)
    )
    yield GaugeMetricFamily(
        "flink_ha_spool_pending_records", "Records that are in no segment yet.", value=health.spool_pending
    )
    yield GaugeMetricFamily(
        "flink_ha_journal_up", "1 while records are on disk.", value=int(health.journal_problem is None)
    )
    yield GaugeMetricFamily(
        "flink_ha_rules_up", "1 while the rules on disk are those that count.", value=int(health.rules_problem is None)
    )
    yield GaugeMetricFamily(
        "flink_ha_unsaved_records", "Records that wait in memory for the disk.", value=health.unsaved_records
    )
    yield CounterMetricFamily(
        "flink_ha_unprocessed_observations",
        "Observations that could not be processed: what they were about is not known.",
        value=health.unprocessed,
    )
    yield CounterMetricFamily(
        "flink_ha_lost_records", "Records dropped because neither disk nor memory had room.", value=health.lost_records
    )
