"""From alerts to notifications: alerts are grouped, and a group is notified once. Alertmanager's model.

An alert belongs to a group of each route that it matches. A group is notified `group_wait` after its first alert; after a change, not
sooner than `group_interval` after its last notification, unless it gets worse (see `pace`); and again after `repeat_interval` while an
alert in it fires. A muted or inhibited alert stays in its group: it is notified when the suppression ends, if it still fires then; else it
is recorded as suppressed. So does a silenced alert, which is recorded when the silence begins to hide it.

Alerts about one observer have groups of their own, by observer: a group's fingerprint is either the same for every observer, or another for
each of them.
"""

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence

from msgspec.structs import replace

from sidecar.core.agreement import Agreement
from sidecar.core.alerting import silences
from sidecar.core.alerting.alerts import Alert, Alerts, Group, Member, Notice, Reason, Suppressed
from sidecar.core.alerting.pace import awaits_cause, brought_forward, paced, rescheduled
from sidecar.core.flink.leadership import ComponentId
from sidecar.core.moment import Moment
from sidecar.core.overlay import with_items
from sidecar.core.policy.labels import CHECK, PLANNED, Labels
from sidecar.core.policy.policy import Policy, Rule, Severity
from sidecar.core.policy.routing import BY_ALL, CRITICAL, Route, every, is_inhibited, matching
from sidecar.core.quarantine import Quarantine, Quarantined
from sidecar.core.records import record_id

Flushed = tuple[Alerts, list[Notice], list[Suppressed]]


def fire(alerts: Alerts, policy: Policy, alert: Alert, now: Moment) -> Alerts:
    """Add an alert to the groups of all routes that it matches."""
    groups = alerts.groups
    for route in matching(policy.route, alert.labels):
        fingerprint, group = _group(groups, route, alert)
        group = _with(group, alert)
        groups = with_items(groups, {fingerprint: rescheduled(group, route, now, group.members[alert.id])})
    return replace(alerts, groups=groups)


def resolve(
    alerts: Alerts, policy: Policy, ids: Collection[str], now: Moment, completed: Callable[[Alert], Alert]
) -> Alerts:
    """Resolve these alerts. A condition that was neither notified nor suppressed leaves its group silently."""
    routes = {route.key: route for route in every(policy.route)}
    changed = {}
    for fingerprint, group in alerts.groups.items():
        members = {}
        for key, member in group.members.items():
            if member.alert.ended or member.alert.id not in ids:
                members[key] = member
            elif member.notified or member.suppressed_by or member.alert.is_event:
                members[key] = replace(member, alert=replace(completed(member.alert), ended=now))
        if members != group.members:
            changed[fingerprint] = rescheduled(replace(group, members=members), routes[group.route], now)
    return replace(alerts, groups={**alerts.groups, **changed}) if changed else alerts


def recounted(alerts: Alerts, alert_id: str, count: int | None, now: Moment) -> Alerts:
    """The alerts with another count of one of them, which by itself causes no notification."""
    groups = dict(alerts.groups)
    for fingerprint, group in alerts.groups.items():
        if member := group.members.get(alert_id):
            latest = now if (count or 0) > (member.alert.count or 0) else member.alert.latest
            groups[fingerprint] = _with(group, replace(member.alert, count=count, latest=latest))
    return replace(alerts, groups=groups)


def with_agreement(alerts: Alerts, alert_id: str, agreement: Agreement | None, now: Moment) -> Alerts:
    """The alerts, after other observers were asked about one of them. Its groups are due at once if it is not outvoted any more."""
    groups = dict(alerts.groups)
    for fingerprint, group in alerts.groups.items():
        if member := group.members.get(alert_id):
            alert = replace(member.alert, agreement=agreement)
            changed = _with(group, alert)
            if is_outvoted(member.alert) and not is_outvoted(alert) and changed.flush_at is not None:
                changed = replace(changed, flush_at=min(changed.flush_at, now.steady))
            groups[fingerprint] = changed
    return replace(alerts, groups=groups)


def withdraw(alerts: Alerts, turned_out_wrong: Callable[[Alert], bool]) -> Alerts:
    """Remove alerts that turned out to be something else, unless they were notified."""
    groups = dict(alerts.groups)
    for fingerprint, group in alerts.groups.items():
        kept = {key: m for key, m in group.members.items() if m.notified or not turned_out_wrong(m.alert)}
        if len(kept) < len(group.members):
            groups[fingerprint] = replace(group, members=kept, flush_at=group.flush_at if kept else None)
    return replace(alerts, groups=groups)


def unhidden(alerts: Alerts, silence: str, now: Moment) -> Alerts:
    """The alerts, with the groups that this silence hid something of due now."""
    due = {
        fingerprint: replace(group, flush_at=min(now.steady, group.flush_at or now.steady))
        for fingerprint, group in alerts.groups.items()
        if any(member.silence == silence for member in group.members.values())
    }
    return replace(alerts, groups={**alerts.groups, **due}) if due else alerts


def flush(
    alerts: Alerts,
    policy: Policy,
    blind: Collection[str],
    now: Moment,
    documents: silences.Documents | None = None,
    decided_at: Mapping[str, int] | None = None,
) -> Flushed:
    """The notifications that are due, and the groups afterwards. `documents`: of silences; `decided_at`: see `failover_in_progress`.

    `blind`: the clusters that cannot be read. What was observed of them is still notified, but never repeated as if it were current.
    """
    if not alerts.groups:
        return alerts, [], []
    routes = {route.key: route for route in every(policy.route)}
    notices: list[Notice] = []
    suppressed: list[Suppressed] = []
    groups: dict[str, Group | None] = {}
    firing: list[Labels] | None = None
    matched = 0
    for fingerprint, group in alerts.groups.items():
        route = routes[group.route]
        if group.flush_at is not None and now.steady >= group.flush_at:
            is_awaiting = silences.awaited(policy, documents or {}, group, now)
            if is_awaiting or matched >= silences.MOST_MATCHED or awaits_cause(group, decided_at or {}, now):
                continue
            matched += silences.effort(policy, documents or {}, group)
            hidden = silences.hiding(policy, documents or {}, group, now)
            firing = [alert.labels for alert in alerts.active().values()] if firing is None else firing
            rest, notice, dropped = _flush(fingerprint, group, route, policy, firing, hidden, blind, now)
            notices += [notice] if notice else []
            suppressed += dropped
            if rest is not group:
                groups[fingerprint] = rest
        elif not group.members and (
            group.notified_at is None or now.steady >= group.notified_at + route.group_interval
        ):
            groups[fingerprint] = None
    if not groups:
        return alerts, [], []
    kept = {key: group for key, group in {**alerts.groups, **groups}.items() if group is not None}
    return replace(alerts, groups=kept), notices, suppressed


def kept(before: Mapping[str, Group], alerts: Alerts) -> Alerts:
    """The alerts, with the very groups of before where they are equal: an event that was suppressed at once leaves no row to write."""
    if alerts.groups is before:
        return alerts
    same = {key: old for key, old in before.items() if (new := alerts.groups.get(key)) is not old and new == old}
    return replace(alerts, groups={**alerts.groups, **same}) if same else alerts


def rerouted(alerts: Alerts, policy: Policy, now: Moment) -> Alerts:
    """The alerts under another policy, in the groups of the routes that they match now. Alerts of removed rules are dropped.

    A group that still exists continues unchanged; in a new group no alert counts as notified.
    """
    rules = {rule.alert: rule for rule in policy.rules}
    routes = {route.key: route for route in every(policy.route)}
    showing = policy.incident_destinations()
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
            # A new group is not notified of a resolved alert, unless a group that no longer exists still had to be.
            if known is None and alert.ended and not is_owed:
                continue
            if before and fingerprint not in regrouped:
                shown = tuple(name for name in before.opened_at if name in showing)
                group = replace(before, route=group.route, labels=group.labels, members={}, opened_at=shown)
            waits = known is not None and group.flush_at is not None
            group = _with(group, alert, known)
            regrouped[fingerprint] = (brought_forward if waits else rescheduled)(group, route, now)
    pending = {
        key: replace(waiting, alert=replace(waiting.alert, labels=_relabelled(waiting.alert, policy, rules[key[0]])))
        for key, waiting in alerts.pending.items()
        if key[0] in rules and policy.watches(key[1])
    }
    failovers = {name: known for name, known in alerts.failovers.items() if policy.watches(name)}
    return Alerts(pending, regrouped, failovers)


def continued(alerts: Alerts, policy: Policy, now: Moment) -> tuple[Alerts, Sequence[Quarantined]]:
    """The alerts `rerouted`, without groups that cannot be: what still holds in them fires anew."""
    try:
        return rerouted(alerts, policy, now), ()
    except Exception:  # noqa: BLE001  whatever it is, the other groups go on
        quarantine, groups = Quarantine(), {}
        for fingerprint, group in alerts.groups.items():
            with quarantine.guard("group", fingerprint) as guard:
                rerouted(replace(alerts, groups={fingerprint: group}), policy, now)
            if not guard.raised:
                groups[fingerprint] = group
        return rerouted(replace(alerts, groups=groups), policy, now), quarantine.found


def _relabelled_alerts(alerts: Alerts, policy: Policy, rules: Mapping[str, Rule]) -> Iterator[tuple[Alert, set[str]]]:
    """The alerts that have a rule in `policy`, each with the fingerprints of the groups that have not been notified of it."""
    found: dict[str, Alert] = {}
    waiting: dict[str, set[str]] = {}
    for fingerprint, group in alerts.groups.items():
        for key, member in group.members.items():
            if member.alert.rule in rules and policy.watches(member.alert.cluster_id):
                labels = _relabelled(member.alert, policy, rules[member.alert.rule])
                found[key] = replace(member.alert, labels=labels)
                waiting.setdefault(key, set()).update([] if member.notified else [fingerprint])
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
        "store": policy.store_of(cluster_id).value,
    }
    if component:
        own["component"] = component.component.value
        if component.job_id:
            own["job_id"] = component.job_id
    if ours:
        own["observer"] = policy.observer
    return {**policy.external_labels, **own}


def _relabelled(alert: Alert, policy: Policy, rule: Rule) -> dict[str, str]:
    labels = labels_of(policy, rule, alert.cluster_id, alert.component, ours="observer" in alert.labels)
    labels = with_severity(labels, alert)
    kept = {name: alert.labels[name] for name in (PLANNED, CHECK) if name in alert.labels}
    return {**labels, **kept}


def with_severity(labels: dict[str, str], alert: Alert) -> dict[str, str]:
    """The labels with the severity that the alert has by what is known of it."""
    if alert.jobs_lost:
        return {**labels, "severity": CRITICAL}
    if alert.vacancy_notified and labels["severity"] == Severity.WARNING:
        return {**labels, "severity": Severity.INFO.value}
    return labels


def _group(groups: Mapping[str, Group], route: Route, alert: Alert) -> tuple[str, Group]:
    labels = dict(route.group_labels(alert.labels))
    if "observer" in alert.labels:
        labels["observer"] = alert.labels["observer"]
    if alert.left_behind and BY_ALL not in route.group_by:
        labels.pop("cluster_id", None)
    fingerprint = _fingerprint(route, labels)
    return fingerprint, groups.get(fingerprint) or Group(route.key, labels)


def _with(group: Group, alert: Alert, known: Member | None = None) -> Group:
    """The group with this alert; what is known of it as a member (by default: in this group) is kept."""
    known = known or group.members.get(alert.id)
    member = replace(known, alert=alert) if known else Member(alert)
    return replace(group, members=with_items(group.members, {alert.id: member}))


def _fingerprint(route: Route, labels: Labels) -> str:
    return record_id("group", route.key, route.receiver, *sorted(labels.items()))


def _incident(policy: Policy, fingerprint: str, labels: Labels) -> str:
    """The key of a group's incident. Clusters of one id may share a service: their places and external labels tell them apart."""
    place = policy.places.get(labels.get("cluster_id", ""), "")
    return record_id("incident", fingerprint, place, *sorted(policy.external_labels.items()))


def _flush(
    fingerprint: str,
    group: Group,
    route: Route,
    policy: Policy,
    firing: Collection[Labels],
    hidden: Mapping[str, str],
    blind: Collection[str],
    now: Moment,
) -> tuple[Group | None, Notice | None, list[Suppressed]]:
    """The group after its flush, its notification, and what to record: alerts that will never be notified, or that a silence hides now.

    `hidden`: by alert, the silence that matches it.
    """
    suppressed_by = _suppressed_now(group, route, policy, firing, now)
    suppressed_by |= dict.fromkeys(hidden, Reason.SUPPRESSED_BY_SILENCE)
    open_to = {key: member for key, member in group.members.items() if key not in suppressed_by}
    news = [m.alert for m in open_to.values() if not m.notified and (not m.alert.ended or _is_fresh(m))]
    over = [m for m in open_to.values() if m.notified and m.alert.ended]
    goes_on = any(not m.alert.ended and (m.notified or key in open_to) for key, m in group.members.items())
    closes = bool(over) and not (news or goes_on) and all(m.closes for m in over)
    resolved = [m.alert for m in over if closes or not m.closes]
    still = [m.alert for m in open_to.values() if m.notified and not m.alert.ended and is_observable(m.alert, blind)]
    again = bool(still) and group.notified_at is not None and now.steady >= group.notified_at + route.repeat_interval
    notice = None
    if news or resolved or again:
        reason = Reason.RESOLVED if closes else _reason(group, news, resolved)
        included = (*news, *resolved, *still)
        thread = group.thread or record_id("thread", fingerprint, min(alert.id for alert in included))
        incident = group.incident or _incident(policy, fingerprint, group.labels)
        opened_at = [each.name for each in policy.receivers.get(route.receiver, ()) if each.shows_incidents]
        group = replace(group, thread=thread, incident=incident, opened_at=tuple(opened_at))
        if not closes:
            group = paced(group, route, [*news, *still], again=again and not (news or resolved), now=now)
        notice = Notice(
            *(fingerprint, route, reason, included, len(news), group.labels),
            thread=thread,
            incident=incident,
            goes_on=goes_on,
            closes=closes,
        )
    suppressed = [
        Suppressed(fingerprint, route, why, member.alert, hidden.get(key))
        for key, member in group.members.items()
        if (why := _newly_suppressed(member, suppressed_by.get(key, member.suppressed_by), hidden.get(key)))
    ]
    left = {
        key: replace(
            member,
            notified=member.notified or key in open_to,
            suppressed_by=suppressed_by.get(key),
            silence=hidden.get(key),
        )
        for key, member in group.members.items()
        if not member.alert.ended or (member.notified and key in suppressed_by)
    }
    notified_at = now.steady if notice and not closes else group.notified_at
    if not left:
        rest = None if notified_at is None else replace(group, members={}, flush_at=None, notified_at=notified_at)
        return rest, notice, suppressed
    if notice is None and left == group.members and not suppressed_by:
        return group, None, []  # due, but its cluster cannot be read
    pause, since = (route.group_interval, now.steady) if suppressed_by else (route.repeat_interval, notified_at)
    rest = replace(group, members=left, flush_at=(since or now.steady) + pause, notified_at=notified_at)
    return rest, notice, suppressed


def _suppressed_now(
    group: Group, route: Route, policy: Policy, firing: Collection[Labels], now: Moment
) -> dict[str, Reason]:
    """Alerts that are muted or inhibited now. Inhibition never suppresses the resolve of an alert that was notified."""
    if route.is_muted(now.wall):
        return dict.fromkeys(group.members, Reason.SUPPRESSED_BY_TIME_INTERVAL)
    lasting = {key: member for key, member in group.members.items() if not (member.notified and member.alert.ended)}
    found = {
        key: Reason.SUPPRESSED_BY_INHIBITION
        for key, member in lasting.items()
        if is_inhibited(policy.inhibit_rules, member.alert.labels, firing)
    }
    return found | {key: Reason.SUPPRESSED_BY_OBSERVERS for key, member in lasting.items() if is_outvoted(member.alert)}


def is_outvoted(alert: Alert) -> bool:
    """Whether it is about this observer alone: it cannot read the store, and others can. Of Flink each observer is believed."""
    return "observer" in alert.labels and alert.agreement is not None and alert.agreement.is_outvoted


def _newly_suppressed(member: Member, why: Reason | None, silence: str | None) -> Reason | None:
    """The reason to record: where a silence or other observers begin to hide it, else when it is over before it could be notified."""
    if silence is not None:
        return why if silence != member.silence else None
    if why is Reason.SUPPRESSED_BY_OBSERVERS:
        return why if member.suppressed_by is not why else None
    is_lost = not member.notified and member.alert.ended and why is not Reason.SUPPRESSED_BY_SILENCE
    return why if is_lost else None


def _is_fresh(member: Member) -> bool:
    """Whether it is an event that was neither notified nor suppressed yet."""
    return member.alert.is_event and member.suppressed_by is None


def _reason(group: Group, news: Collection[Alert], resolved: Collection[Alert]) -> Reason:
    """RESOLVED: every notified alert has ended, even if a finished event was added meanwhile."""
    if group.notified_at is None:
        return Reason.FIRST
    lasting = any(member.notified and not member.alert.ended for member in group.members.values())
    if resolved and not lasting and all(alert.ended for alert in news):
        return Reason.RESOLVED
    if news:
        return Reason.GREW
    return Reason.SHRANK if resolved else Reason.REPEAT_INTERVAL_ELAPSED


def is_observable(alert: Alert, blind: Collection[str]) -> bool:
    """Whether it is known that the alert still fires. `blind`: the clusters that cannot be read."""
    return alert.cluster_id not in blind or "observer" in alert.labels
