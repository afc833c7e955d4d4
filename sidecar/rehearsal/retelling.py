"""Records of one sidecar, told to the rules again: what they tell of them, and when."""

from collections.abc import Iterable, Iterator, Mapping
from itertools import groupby

from msgspec import Struct
from msgspec.structs import replace

from sidecar.core import grouping, rules
from sidecar.core.alerts import Alerts, Notice
from sidecar.core.moment import Moment, Timestamp, timestamp
from sidecar.core.notifications import compose
from sidecar.core.policy import Policy, Trigger
from sidecar.core.records import AnyRecord
from sidecar.core.routing import every
from sidecar.rehearsal.retold import Retold
from sidecar.rehearsal.sight import Sight
from sidecar.rehearsal.voice import TICK


class Telling(Struct, frozen=True):
    """A notification that would have been."""

    at: Timestamp
    cluster_id: str
    receiver: str
    reason: str
    alerts: list[str]
    title: str


class Retelling:
    """The rules, and all that they have heard so far. `sights`: of each cluster that the policy watches."""

    def __init__(self, policy: Policy, sights: Mapping[str, Sight]) -> None:
        self._policy = policy
        self._sights = sights
        self._routes = {route.key: route for route in every(policy.route)}
        self._longest = max((rule.within for rule in policy.rules if rule.on is Trigger.EPISODES), default=0)
        self._clusters: dict[str, Retold] = {}
        self._alerts = Alerts()
        self._now = 0
        self._ticked = 0
        """When the rules were asked last what is due."""
        self._stood_still = False

    def retell(self, records: Iterable[tuple[int, AnyRecord]]) -> Iterator[Telling]:
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
        retold = self._clusters.setdefault(name, Retold(at))
        self._wakes()
        for record in records:
            retold.happened(record, at)
        retold.looks(self._sights[name].blind_at(at.steady), at.steady)
        for record in records:
            self._alerts = rules.react(self._alerts, self._policy, record, retold.state, at)

    def _passes(self, until: int) -> Iterator[Telling]:
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
        for name, retold in self._clusters.items():
            yield from filter(None, (self._sights[name].next_change(self._now), retold.calm_at()))
        if self._stood_still:
            return
        yield from (pending.due for pending in self._alerts.pending.values())
        for group in self._alerts.groups.values():
            if group.flush_at is not None:
                if group.flush_at >= self._ticked:  # else it waits for what is out of sight, and that is due by itself
                    yield group.flush_at
            elif group.told_at is not None:
                yield group.told_at + self._routes[group.route].group_interval
        for name, retold in self._clusters.items():
            if self._alerts.evaluated.get(name) is not retold.state:
                yield self._now
            if name in self._alerts.failovers:
                yield self._alerts.failovers[name].known[0].at + self._longest + 1

    def _tick(self, now: Moment) -> Iterator[Telling]:
        for name, retold in self._clusters.items():
            retold.calms(now)
            retold.looks(self._sights[name].blind_at(now.steady), now.steady)
        if self._nobody_runs(now.steady):
            self._stood_still = True
            return
        self._wakes()
        self._ticked = now.steady
        clusters = {name: retold.state for name, retold in self._clusters.items()}
        evaluated = rules.evaluate(self._alerts, self._policy, clusters, now)
        blind = {name for name, cluster in clusters.items() if not cluster.view.complete}
        self._alerts, notices, _ = grouping.tell(evaluated, self._policy, blind, now)
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


def _telling(notice: Notice, title: str, now: Moment) -> Telling:
    names = dict.fromkeys(alert.rule for alert in notice.alerts)
    receiver, cluster_id = notice.route.receiver, notice.alerts[0].cluster_id
    return Telling(timestamp(now.wall), cluster_id, receiver, notice.reason.value, [*names], title)
