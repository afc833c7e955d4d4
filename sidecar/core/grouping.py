"""From alerts to notifications: alerts gather in groups, and a group is told once. Alertmanager's model.

An alert belongs to a group of each route that it takes. A group is told `group_wait` after it began; when it changed, not sooner than
`group_interval` after it was told last; and again after `repeat_interval`, while an alert in it lasts. What is muted or inhibited waits
in its group: it is told when that is over, if it still holds then; else it is recorded as suppressed.
"""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping

from msgspec.structs import replace

from sidecar.core.alerts import Alert, Alerts, Group, Member, Notice, Reason, Suppressed
from sidecar.core.labels import Labels
from sidecar.core.leadership import ComponentId
from sidecar.core.moment import Moment
from sidecar.core.policy import Policy, Rule
from sidecar.core.records import record_id
from sidecar.core.routing import Route, every, is_inhibited, matching

Told = tuple[Alerts, list[Notice], list[Suppressed]]


def fire(alerts: Alerts, policy: Policy, alert: Alert, now: Moment) -> Alerts:
    """Put an alert in the groups of all routes that it takes."""
    groups = dict(alerts.groups)
    for route in matching(policy.route, alert.labels):
        fingerprint, group = _group(groups, route, alert)
        known = group.members.get(alert.id)
        member = replace(known, alert=alert) if known else Member(alert)
        group = replace(group, members={**group.members, alert.id: member})
        groups[fingerprint] = _rescheduled(group, route, now)
    return replace(alerts, groups=groups)


def end(
    alerts: Alerts, policy: Policy, over: Callable[[Alert], bool], now: Moment, how: Callable[[Alert], Alert]
) -> Alerts:
    """End the alerts that are `over`; `how` completes them. Whoever was not told that something is so is not told that it is not."""
    routes = {route.key: route for route in every(policy.route)}
    changed = {}
    for fingerprint, group in alerts.groups.items():
        members = {}
        for key, member in group.members.items():
            if member.alert.ended or not over(member.alert):
                members[key] = member
            elif member.told or member.held_back or member.alert.is_event:
                members[key] = replace(member, alert=replace(how(member.alert), ended=now))
        if members != group.members:
            changed[fingerprint] = _rescheduled(replace(group, members=members), routes[group.route], now)
    return replace(alerts, groups={**alerts.groups, **changed}) if changed else alerts


def recounted(alerts: Alerts, alert_id: str, count: int | None) -> Alerts:
    """What is counted has become more or less, which is no news by itself."""
    groups = dict(alerts.groups)
    for fingerprint, group in alerts.groups.items():
        if member := group.members.get(alert_id):
            counted = replace(member, alert=replace(member.alert, count=count))
            groups[fingerprint] = replace(group, members={**group.members, alert_id: counted})
    return replace(alerts, groups=groups)


def withdraw(alerts: Alerts, turned_out_wrong: Callable[[Alert], bool]) -> Alerts:
    """Take back what was not told yet and turned out to be something else."""
    groups = dict(alerts.groups)
    for fingerprint, group in alerts.groups.items():
        kept = {key: m for key, m in group.members.items() if m.told or not turned_out_wrong(m.alert)}
        if len(kept) < len(group.members):
            groups[fingerprint] = replace(group, members=kept, flush_at=group.flush_at if kept else None)
    return replace(alerts, groups=groups)


def tell(alerts: Alerts, policy: Policy, blind: Collection[str], now: Moment) -> Told:
    """What is due, and the groups that are left.

    `blind`: the clusters out of sight. What was seen of them is still told, but never said again as if it were so now.
    """
    if not alerts.groups:
        return alerts, [], []
    routes = {route.key: route for route in every(policy.route)}
    notices: list[Notice] = []
    suppressed: list[Suppressed] = []
    groups: dict[str, Group | None] = {}
    firing: list[Labels] | None = None
    for fingerprint, group in alerts.groups.items():
        route = routes[group.route]
        if group.flush_at is not None and now.steady >= group.flush_at:
            firing = [alert.labels for alert in alerts.active().values()] if firing is None else firing
            rest, notice, dropped = _flush(fingerprint, group, route, policy, firing, blind, now)
            notices += [notice] if notice else []
            suppressed += dropped
            if rest is not group:
                groups[fingerprint] = rest
        elif not group.members and (group.told_at is None or now.steady >= group.told_at + route.group_interval):
            groups[fingerprint] = None
    if not groups:
        return alerts, [], []
    kept = {key: group for key, group in {**alerts.groups, **groups}.items() if group is not None}
    return replace(alerts, groups=kept), notices, suppressed


def rerouted(alerts: Alerts, policy: Policy, now: Moment) -> Alerts:
    """The alerts under another policy: in the groups of the routes that they take now. What no rule says any more is forgotten.

    A group that is still there goes on as it was; whoever gets an alert anew has not been told of it.
    """
    rules = {rule.alert: rule for rule in policy.rules}
    routes = {route.key: route for route in every(policy.route)}
    regrouped = {
        fingerprint: group
        for fingerprint, group in alerts.groups.items()
        if not group.members
        and group.route in routes
        and fingerprint == _fingerprint(routes[group.route], group.labels)
    }
    for alert, waiting in _relabelled_alerts(alerts, policy, rules):
        taken = [(route, *_group(alerts.groups, route, alert)) for route in matching(policy.route, alert.labels)]
        is_owed = not waiting.issubset(fingerprint for _, fingerprint, _ in taken)
        for route, fingerprint, _ in taken:
            group = _group(regrouped, route, alert)[1]
            before = alerts.groups.get(fingerprint)
            known = before.members.get(alert.id) if before else None
            # What is over is no news to a new group, unless a group that is gone had not been notified of it yet.
            if known is None and alert.ended and not is_owed:
                continue
            if before and fingerprint not in regrouped:
                group = replace(group, flush_at=before.flush_at, told_at=before.told_at)
            member = replace(known, alert=alert) if known else Member(alert)
            group = replace(group, members={**group.members, alert.id: member})
            waits = known is not None and group.flush_at is not None
            regrouped[fingerprint] = (_brought_forward if waits else _rescheduled)(group, route, now)
    pending = {
        key: replace(waiting, alert=replace(waiting.alert, labels=_relabelled(waiting.alert, policy, rules[key[0]])))
        for key, waiting in alerts.pending.items()
        if key[0] in rules and key[1] in policy.stores
    }
    failovers = {name: known for name, known in alerts.failovers.items() if name in policy.stores}
    return Alerts(pending, regrouped, failovers)


def _relabelled_alerts(alerts: Alerts, policy: Policy, rules: Mapping[str, Rule]) -> Iterator[tuple[Alert, set[str]]]:
    """The alerts that some rule of `policy` makes, and the groups (fingerprints) that have not been notified of them yet."""
    found: dict[str, Alert] = {}
    waiting: dict[str, set[str]] = {}
    for fingerprint, group in alerts.groups.items():
        for key, member in group.members.items():
            if member.alert.rule in rules and member.alert.cluster_id in policy.stores:
                labels = _relabelled(member.alert, policy, rules[member.alert.rule])
                found[key] = replace(member.alert, labels=labels)
                waiting.setdefault(key, set()).update([] if member.told else [fingerprint])
    for key, alert in found.items():
        yield alert, waiting[key]


def labels_of(
    policy: Policy, rule: Rule, cluster_id: str, component: ComponentId | None, *, ours: bool
) -> dict[str, str]:
    """The labels of an alert. `ours`: about this observer, not about Flink."""
    own = {
        "alert": rule.alert,
        "severity": rule.severity.value,
        "cluster_id": cluster_id,
        "store": policy.stores[cluster_id].value,
    }
    if component:
        own["component"] = component.component.value
        if component.job_id:
            own["job_id"] = component.job_id
    if ours:
        own["observer"] = policy.observer
    return {**policy.external_labels, **own}


def _relabelled(alert: Alert, policy: Policy, rule: Rule) -> dict[str, str]:
    return labels_of(policy, rule, alert.cluster_id, alert.component, ours="observer" in alert.labels)


def _group(groups: Mapping[str, Group], route: Route, alert: Alert) -> tuple[str, Group]:
    labels = dict(route.group_labels(alert.labels))
    fingerprint = _fingerprint(route, labels)
    return fingerprint, groups.get(fingerprint) or Group(route.key, labels)


def _fingerprint(route: Route, labels: Labels) -> str:
    return record_id("group", route.key, route.receiver, *sorted(labels.items()))


def _rescheduled(group: Group, route: Route, now: Moment) -> Group:
    """A group whose alerts have changed, with the time when it is told of next."""
    if not group.members:
        return replace(group, flush_at=None)
    due = now.steady + route.group_wait
    if group.told_at is not None:
        if not _has_news(group.members.values()):
            return replace(group, flush_at=max(group.told_at + route.repeat_interval, now.steady))
        due = max(due, group.told_at + route.group_interval)
    return replace(group, flush_at=due if group.flush_at is None else min(group.flush_at, due))


def _brought_forward(group: Group, route: Route, now: Moment) -> Group:
    """A group that waits, with its next time under another policy: not later than the new intervals of `route` allow."""
    latest = _rescheduled(replace(group, flush_at=None), route, now).flush_at
    if group.flush_at is None or latest is None:
        return group
    return replace(group, flush_at=min(group.flush_at, max(latest, now.steady + route.group_interval)))


def _has_news(members: Iterable[Member]) -> bool:
    return any(not member.told or member.alert.ended for member in members)


def _flush(
    fingerprint: str,
    group: Group,
    route: Route,
    policy: Policy,
    firing: Collection[Labels],
    blind: Collection[str],
    now: Moment,
) -> tuple[Group | None, Notice | None, list[Suppressed]]:
    """What is left of a group that is due, what is told of it, and what never will be."""
    held_back = dict(_held_back(group, route, policy, firing, now))
    open_to = {key: member for key, member in group.members.items() if key not in held_back}
    news = [m.alert for m in open_to.values() if not m.told and (not m.alert.ended or _is_fresh(m))]
    over = [m.alert for m in open_to.values() if m.told and m.alert.ended]
    still = [m.alert for m in open_to.values() if m.told and not m.alert.ended and _in_sight(m.alert, blind)]
    again = bool(still) and group.told_at is not None and now.steady >= group.told_at + route.repeat_interval
    notice = None
    if news or over or again:
        reason = _reason(group, news, over)
        notice = Notice(fingerprint, route, reason, (*news, *over, *still), has_news=bool(news))
    suppressed = [
        Suppressed(fingerprint, route, why, member.alert)
        for key, member in group.members.items()
        if not member.told and member.alert.ended and (why := held_back.get(key, member.held_back))
    ]
    left = {
        key: Member(member.alert, member.told or key in open_to, held_back.get(key))
        for key, member in group.members.items()
        if not member.alert.ended or (member.told and key in held_back)
    }
    told_at = now.steady if notice else group.told_at
    if not left:
        return (Group(group.route, group.labels, told_at=told_at) if told_at is not None else None), notice, suppressed
    if notice is None and left == group.members and not held_back:
        return group, None, []  # it is due, and out of sight
    next_at = now.steady + route.group_interval if held_back else (told_at or now.steady) + route.repeat_interval
    return Group(group.route, group.labels, left, next_at, told_at), notice, suppressed


def _held_back(
    group: Group, route: Route, policy: Policy, firing: Collection[Labels], now: Moment
) -> Iterator[tuple[str, Reason]]:
    """What may not be told now. That something is over is told to whoever heard of it, unless nothing at all may be told."""
    muted = route.is_muted(now.wall)
    for key, member in group.members.items():
        if muted:
            yield key, Reason.SUPPRESSED_BY_TIME_INTERVAL
        elif not (member.told and member.alert.ended) and is_inhibited(
            policy.inhibit_rules, member.alert.labels, firing
        ):
            yield key, Reason.SUPPRESSED_BY_INHIBITION


def _is_fresh(member: Member) -> bool:
    """Whether something happened that nobody has decided upon yet."""
    return member.alert.is_event and member.held_back is None


def _reason(group: Group, news: Collection[Alert], over: Collection[Alert]) -> Reason:
    """Resolved is what was told of before and has ended, also where something has happened meanwhile that is over as well."""
    if group.told_at is None:
        return Reason.FIRST
    lasting = any(member.told and not member.alert.ended for member in group.members.values())
    if over and not lasting and all(alert.ended for alert in news):
        return Reason.RESOLVED
    if news:
        return Reason.GREW
    return Reason.SHRANK if over else Reason.REPEAT_INTERVAL_ELAPSED


def _in_sight(alert: Alert, blind: Collection[str]) -> bool:
    return alert.cluster_id not in blind or "observer" in alert.labels
