"""Records of one sidecar, told to the rules again: what they tell of them, and when."""

from collections.abc import Iterable, Iterator, Mapping
from itertools import groupby

from msgspec import Struct
from msgspec.structs import replace

from sidecar.core.alerting import grouping, rules
from sidecar.core.alerting.alerts import Alerts, Notice
from sidecar.core.alerting.message import compose
from sidecar.core.moment import Moment, Timestamp, timestamp
from sidecar.core.policy.policy import Policy, Trigger
from sidecar.core.policy.routing import every
from sidecar.core.records import AnyRecord
from sidecar.simulation.coverage import BlindTimes
from sidecar.simulation.replayed_cluster import ReplayedCluster
from sidecar.simulation.simulator import TICK


class ReplayedNotification(Struct, frozen=True):
    """A notification that would have been."""

    at: Timestamp
    cluster_id: str
    receiver: str
    reason: str
    alerts: list[str]
    title: str


class RecordReplay:
    """The rules, and all that they have heard so far. `sights`: of each cluster that the policy watches."""

    def __init__(self, policy: Policy, sights: Mapping[str, BlindTimes]) -> None:
        self._policy = policy
        self._sights = sights
        self._routes = {route.key: route for route in every(policy.route)}
        self._longest = max((rule.within for rule in policy.rules if rule.on is Trigger.EPISODES), default=0)
        self._clusters: dict[str, ReplayedCluster] = {}
        self._alerts = Alerts()
        self._now = 0
        self._ticked = 0
        """When the rules were asked last what is due."""
        self._stood_still = False

    def retell(self, records: Iterable[tuple[int, AnyRecord]]) -> Iterator[ReplayedNotification]:
        """What is told of `records`, which come in the order of time (microseconds since the epoch); also for a moment behind them."""
        for (at, _), together in groupby(records, lambda record: (record[0], record[1].cluster_id)):
            yield from self._passes(at)
            self._take([record for _, record in together], Moment(self._now, at))
        # What goes on behind the last record is not known: what had begun to be told by then is told.
        self._alerts = replace(self._alerts, pending={})
        yield from self._passes(self._now + max(route.group_wait for route in self._routes.values()) + TICK)

    def _take(self, records: list[AnyRecord], at: Moment) -> None:
        """What happened in one step of one cluster: the rules hear of it when all of it has happened."""
        name = records[0].cluster_id
        cluster = self._clusters.setdefault(name, ReplayedCluster(self._policy, name, at))
        self._wakes()
        happened = [cluster.happened(record, at) for record in records]
        cluster.observed(self._sights[name].blind_at(at.steady), at.steady)
        for each in happened:
            self._alerts = rules.react(self._alerts, self._policy, each, cluster.state, at)

    def _passes(self, until: int) -> Iterator[ReplayedNotification]:
        """Time passes in ticks. Those at which nothing can be due are left out."""
        while (due := self._next_tick()) is not None and due <= until:
            self._now = due
            yield from self._tick(Moment(due, due))
        self._now = max(self._now, until)

    def _next_tick(self) -> int | None:
        waiting = [*self._dues()]
        return -(-max(min(waiting), self._now + 1) // TICK) * TICK if waiting else None

    def _dues(self) -> Iterator[int]:
        """When something may be due."""
        for name, cluster in self._clusters.items():
            yield from filter(None, (self._sights[name].next_change(self._now), cluster.split_ends_at()))
        if self._stood_still:
            return
        yield from (pending.due for pending in self._alerts.pending.values())
        for group in self._alerts.groups.values():
            if group.flush_at is not None:
                if group.flush_at >= self._ticked:  # else it waits for what is out of sight, and that is due by itself
                    yield group.flush_at
            elif group.notified_at is not None:
                yield group.notified_at + self._routes[group.route].group_interval
        for name, cluster in self._clusters.items():
            if self._alerts.evaluated.get(name) is not cluster.state:
                yield self._now
            if name in self._alerts.failovers:
                yield self._alerts.failovers[name].known[0].at + self._longest + 1

    def _tick(self, now: Moment) -> Iterator[ReplayedNotification]:
        for name, cluster in self._clusters.items():
            cluster.end_splits(now)
            cluster.observed(self._sights[name].blind_at(now.steady), now.steady)
        if self._nobody_runs(now.steady):
            self._stood_still = True
            return
        self._wakes()
        self._ticked = now.steady
        clusters = {name: cluster.state for name, cluster in self._clusters.items()}
        evaluated = rules.evaluate(self._alerts, self._policy, clusters, now)
        blind = {name for name, cluster in clusters.items() if not cluster.view.complete}
        self._alerts, notices, _ = grouping.flush(evaluated, self._policy, blind, now)
        for notice in notices:
            told = self._policy.receivers.get(notice.route.receiver, ())
            if any(map(notice.is_for, told)):
                yield _telling(notice, compose(notice, self._policy, clusters).title, now)

    def _nobody_runs(self, now: int) -> bool:
        """Whether every store is out of sight and nobody noticed: no sidecar that ran, and none that told anybody."""
        stretches = [self._sights[name].blind_at(now) for name in self._clusters]
        return bool(stretches) and all(blind is not None and not blind.noticed for blind in stretches)

    def _wakes(self) -> None:
        """A sidecar that begins: nothing has been so for long, as far as it knows."""
        if self._stood_still:
            self._alerts = replace(self._alerts, pending={})
        self._stood_still = False


def _telling(notice: Notice, title: str, now: Moment) -> ReplayedNotification:
    names = dict.fromkeys(alert.rule for alert in notice.alerts)
    receiver, cluster_id = notice.route.receiver, notice.alerts[0].cluster_id
    return ReplayedNotification(timestamp(now.wall), cluster_id, receiver, notice.reason.value, [*names], title)
