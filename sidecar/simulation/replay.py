"""`replay`: the notifications that today's rules send for the records of one sidecar."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from itertools import groupby
from pathlib import Path

from msgspec import Struct, json
from msgspec.structs import replace

from sidecar.core.alerting import flushing, reactions, rules
from sidecar.core.alerting.alerts import Alerts, Notice
from sidecar.core.alerting.compose import compose
from sidecar.core.alerting.pace import PATIENCE
from sidecar.core.cluster.failover import failover_in_progress
from sidecar.core.cluster.failover.causes import Cause
from sidecar.core.cluster.state import ClusterState
from sidecar.core.delivery import new_deliveries
from sidecar.core.delivery.outbox import Delivery
from sidecar.core.moment import Moment, Timestamp, timestamp
from sidecar.core.policy.policy import Policy
from sidecar.core.policy.routing import every
from sidecar.core.records import AnyRecord, EpisodeRecord
from sidecar.settings.model import Alerting
from sidecar.simulation import replayed_recovery
from sidecar.simulation.record_files import Read, RecordFiles, choose, lines
from sidecar.simulation.replayed_cluster import ReplayedCluster
from sidecar.simulation.simulator import TICK


class ReplayedNotification(Struct, frozen=True):
    """A notification that today's rules send."""

    at: Timestamp
    cluster_id: str
    receiver: str
    reason: str
    alerts: list[str]
    title: str


_Sent = tuple[Notice, Mapping[str, ClusterState], Moment]
"""What is sent, the clusters as they are then, and when."""


class Replay:
    """The rules, fed with the records of one sidecar. `observer`: its name; None: the only one. Raises ReplayError."""

    def __init__(self, read: Read, alerting: Alerting, observer: str | None, like: Policy | None = None) -> None:
        """`like`: the policy whose links and places messages have."""
        self._files = RecordFiles(read)
        self._observer, self._recorded = choose(self._files.observers(), observer)
        self._blind_periods = self._recorded.blind_periods
        policy = alerting.policy_for(self._observer, self._recorded.stores, self._recorded.external_labels)
        self._policy = replace(policy, link=like.link, places=like.places) if like else policy
        self._routes = {route.key: route for route in every(self._policy.route)}
        self._longest = self._policy.failovers_counted_within()
        self._clusters: dict[str, ReplayedCluster] = {}
        self._alerts = Alerts()
        self._now = 0
        self._evaluated = 0
        """When the rules were last evaluated."""
        self._stopped = False

    @property
    def unreadable(self) -> int:
        """Lines that are not records; final after `notifications`."""
        return self._files.unreadable

    def episodes(self) -> dict[str, EpisodeRecord | None]:
        """The failovers that have ended, by their ids in the order of time: not times out of sight. Raises ReplayError."""
        records = (record for _, record in self._files.records(self._observer, self._recorded))
        ended = (record for record in records if isinstance(record, EpisodeRecord))
        return {episode.id: episode for episode in ended if episode.cause != Cause.OBSERVER_BLIND}

    def notifications(self) -> Iterator[ReplayedNotification]:
        """The notifications for the records and for a moment after the last one, in the order of time. Raises ReplayError."""
        for notice, clusters, now in self._notices():
            yield _notification(notice, compose(notice, self._policy, clusters, now).title, now)

    def deliveries(self) -> Iterator[Delivery]:
        """The same for each destination, as it would be sent. Raises ReplayError."""
        for notice, clusters, now in self._notices():
            yield from new_deliveries.of_notice(self._policy, clusters, notice, now)

    def _notices(self) -> Iterator[_Sent]:
        records = self._files.records(self._observer, self._recorded)
        for (at, _), together in groupby(records, lambda record: (record[0], record[1].cluster_id)):
            yield from self._pass_time(at)
            self._apply([record for _, record in together], Moment(self._now, at))
        # What happened after the last record is not known: send only for alerts that fire by then.
        self._alerts = replace(self._alerts, pending={})
        yield from self._pass_time(self._now + max(route.group_wait for route in self._routes.values()) + TICK)

    def _apply(self, records: list[AnyRecord], at: Moment) -> None:
        """Apply the records of one step of one cluster; the rules run after all of them."""
        name = records[0].cluster_id
        cluster = self._clusters.setdefault(name, ReplayedCluster(self._policy, name, at, self._recorded.planned))
        self._resume()
        applied = [cluster.apply(record, at) for record in records]
        cluster.observed(self._blind_periods[name].blind_at(at.steady), at.steady)
        for change in applied:
            self._alerts = reactions.react(self._alerts, self._policy, change, cluster.state, at)

    def _pass_time(self, until: int) -> Iterator[_Sent]:
        """Run the ticks up to a time, without those at which nothing can be due."""
        while (due := self._next_tick()) is not None and due <= until:
            self._now = due
            yield from self._tick(Moment(due, due))
        self._now = max(self._now, until)

    def _next_tick(self) -> int | None:
        waiting = [*self._dues()]
        return -(-max(min(waiting), self._now + 1) // TICK) * TICK if waiting else None

    def _dues(self) -> Iterator[int]:
        """The times at which something may be due."""
        for name, cluster in self._clusters.items():
            forgets_at = replayed_recovery.forgets_at(cluster.state)
            blind = self._blind_periods[name].next_change(self._now)
            yield from filter(None, (blind, cluster.split_ends_at(), forgets_at))
        if self._stopped:
            return
        yield from (pending.due for pending in self._alerts.pending.values())
        for group in self._alerts.groups.values():
            if group.flush_at is not None:
                # Else it waits for a blind cluster, whose next change is due, or for the cause of a failover.
                if group.flush_at >= self._evaluated:
                    yield group.flush_at
                elif group.flush_at + PATIENCE >= self._evaluated:
                    yield group.flush_at + PATIENCE
            elif group.notified_at is not None:
                yield group.notified_at + self._routes[group.route].group_interval
        for name, cluster in self._clusters.items():
            if self._alerts.evaluated.get(name) is not cluster.state:
                yield self._now
            if name in self._alerts.failovers:
                yield self._alerts.failovers[name].known[0].at + self._longest + 1

    def _tick(self, now: Moment) -> Iterator[_Sent]:
        for name, cluster in self._clusters.items():
            cluster.end_splits(now)
            cluster.observed(self._blind_periods[name].blind_at(now.steady), now.steady)
        if self._no_sidecar_ran(now.steady):
            self._stopped = True
            return
        self._resume()
        self._evaluated = now.steady
        clusters = {name: cluster.state for name, cluster in self._clusters.items()}
        evaluated = rules.evaluate(self._alerts, self._policy, clusters, now)
        blind = {name for name, cluster in clusters.items() if not cluster.view.complete}
        decided = failover_in_progress.decided_at(clusters.values())
        self._alerts, notices, _ = flushing.flush(evaluated, self._policy, blind, now, decided_at=decided)
        for notice in notices:
            destinations = self._policy.receivers.get(notice.route.receiver, ())
            if any(map(notice.is_for, destinations)):
                yield notice, clusters, now

    def _no_sidecar_ran(self, now: int) -> bool:
        """Whether every cluster is in a blind period that no sidecar noticed."""
        periods = [self._blind_periods[name].blind_at(now) for name in self._clusters]
        return bool(periods) and all(blind is not None and not blind.noticed for blind in periods)

    def _resume(self) -> None:
        """After a stop, as a sidecar that starts: pending conditions begin anew."""
        if self._stopped:
            self._alerts = replace(self._alerts, pending={})
        self._stopped = False


def replay_of(
    files: Sequence[Path], alerting: Alerting, observer: str | None = None, like: Policy | None = None
) -> Replay:
    """A replay of the records in segment files. Raises ReplayError."""
    return Replay(partial(lines, files), alerting, observer, like)


def replay_of_records(
    records: Callable[[], Iterable[AnyRecord]], alerting: Alerting, observer: str | None, like: Policy
) -> Replay:
    """A replay of records that `records` reads. Raises ReplayError."""
    return Replay(lambda: map(json.encode, records()), alerting, observer, like)


def _notification(notice: Notice, title: str, now: Moment) -> ReplayedNotification:
    names = dict.fromkeys(alert.rule for alert in notice.alerts)
    receiver, cluster_id = notice.route.receiver, notice.alerts[0].cluster_id
    return ReplayedNotification(timestamp(now.wall), cluster_id, receiver, notice.reason.value, [*names], title)
