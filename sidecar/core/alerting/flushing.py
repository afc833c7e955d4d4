"""Which groups are due now: what is notified of each, what is suppressed, and what is left of it. `grouping` has the model."""

from collections.abc import Collection, Mapping
from functools import cached_property
from typing import NamedTuple

from msgspec import Struct
from msgspec.structs import replace

from sidecar.core.alerting import suppression
from sidecar.core.alerting.alerts import MOST_OWED, Alert, Alerts, Group, Member, Notice, Reason, Suppressed
from sidecar.core.alerting.grouping import awaits_cause, is_observable, paced
from sidecar.core.alerting.suppression import Suppression, Surroundings, suppressions, surroundings
from sidecar.core.moment import Moment
from sidecar.core.policy.policy import Policy
from sidecar.core.policy.routing import Labels, Route, every
from sidecar.core.policy.triggers import NO_INCIDENT, Trigger
from sidecar.core.records import record_id

Flushed = tuple[Alerts, list[Notice], list[Suppressed]]


def flush(
    alerts: Alerts,
    policy: Policy,
    blind: Collection[str],
    now: Moment,
    documents: suppression.Documents | None = None,
    decided_at: Mapping[str, int] | None = None,
    unsettled: Collection[str] = (),
    ending: Collection[str] = (),
) -> Flushed:
    """The groups after what is due was notified, the notifications, and what to record: alerts that will never be notified, or that a
    silence hides now. `documents`: of silences; `decided_at`: see `failover_machine`; `unsettled`: the clusters
    whose status ends no incident; `ending`: those whose planned failover is about to be recorded, or of which more is known in a moment.

    `blind`: the clusters that cannot be read. What was observed of them is still notified, but never repeated as if it were current.
    """
    if not alerts.groups:
        return alerts, [], []
    due = _Flush(alerts, policy, blind, now, documents or {}, decided_at or {}, unsettled, ending)
    groups = {fingerprint: due.group_after(fingerprint, group) for fingerprint, group in alerts.groups.items()}
    if all(groups[fingerprint] is group for fingerprint, group in alerts.groups.items()):
        return alerts, [], []
    remaining = {fingerprint: group for fingerprint, group in groups.items() if group is not None}
    return replace(alerts, groups=remaining), due.notices, due.suppressed


Suppressions = Mapping[str, Suppression]


class _Contents(NamedTuple):
    """What a group has to say now."""

    news: list[Alert]
    over: list[Member]
    """Those that were notified, and are resolved."""
    still: list[Alert]
    """Those that were notified, and still fire as far as is known."""
    goes_on: bool
    """See `Notice`. Likewise `closes`, `closing` and `awaits_status`."""
    lasts: bool
    """Whether what goes on is about the incident."""
    differs: bool
    """Whether something new is about no incident: it has a message of its own."""
    awaits_status: bool
    is_repeated: bool
    """`repeat_interval` has elapsed."""

    @property
    def ends(self) -> bool:
        """Whether nothing is left of the incident: what is new of it is over, and said in the same message."""
        return bool(self.over) and not (self.lasts or self.differs)

    @property
    def settles(self) -> bool:
        """Whether the end of the incident is all that is to be said."""
        return self.ends and not self.news and all(member.closes for member in self.over)

    @property
    def closes(self) -> bool:
        return self.settles and not self.goes_on

    @property
    def closing(self) -> tuple[Alert, ...]:
        return tuple(member.alert for member in self.over if member.closes) if self.ends and self.news else ()

    @property
    def resolved(self) -> list[Alert]:
        return [member.alert for member in self.over if self.settles or not member.closes]

    @property
    def only_ended(self) -> bool:
        """Whether alerts have ended, the incident has not, and nothing else is new. That can wait: the group may be due because of an alert
        that is suppressed.
        """
        return bool(self.resolved) and not (self.news or self.settles)

    @property
    def is_notified(self) -> bool:
        return bool(self.news or self.resolved or (self.still and self.is_repeated))


class _Flush(Struct, dict=True):
    """One flush. `notices` and `suppressed` are filled as groups are flushed."""

    alerts: Alerts
    policy: Policy
    blind: Collection[str]
    now: Moment
    documents: suppression.Documents
    decided_at: Mapping[str, int]
    unsettled: Collection[str]
    ending: Collection[str]
    notices: list[Notice] = []
    suppressed: list[Suppressed] = []
    matched: int = 0

    @cached_property
    def rules(self) -> Mapping[str, Trigger]:
        return {rule.alert: rule.on for rule in self.policy.rules}

    @cached_property
    def routes(self) -> Mapping[str, Route]:
        return {route.key: route for route in every(self.policy.route)}

    @cached_property
    def surroundings(self) -> Surroundings:
        return surroundings(self.policy, self.alerts, self.documents, self.now)

    def group_after(self, fingerprint: str, group: Group) -> Group | None:
        """The group after this flush: the same one if it is not due; None if it is forgotten."""
        route, now = self.routes[group.route], self.now.steady
        if self._has_settled(group) or (group.flush_at is not None and now >= group.flush_at):
            return group if self._waits(group) else self._flushed(fingerprint, group, route)
        is_forgotten = not group.members and (
            group.notified_at is None or now >= group.notified_at + route.group_interval
        )
        return None if is_forgotten else group

    def _has_settled(self, group: Group) -> bool:
        """Whether its cluster is as it should be again, and nothing of the incident fires: what else does is no reason to wait."""
        members = group.members.values()
        if self.unsettled and any(member.alert.cluster_id in self.unsettled for member in members):
            return False
        if group.flush_at is None:
            return bool(members)
        if not [member for member in members if member.closes and not member.suppressed_by]:
            return False
        others = [member for member in members if not member.closes]
        return bool(others) and all(
            m.notified and m.alert.ended is None and not self._is_of_incident(m.alert) for m in others
        )

    def _awaits_status(self, alert: Alert) -> bool:
        """Whether its incident stays open though it is over: its cluster is not as it should be."""
        return alert.cluster_id in self.unsettled and self._is_of_incident(alert)

    def _is_of_incident(self, alert: Alert) -> bool:
        return self.rules.get(alert.rule) not in NO_INCIDENT

    def _waits(self, group: Group) -> bool:
        """Whether a group that is due waits: for silences, for the cause or the end of a failover, or because too much was matched in this
        flush.
        """
        if (
            suppression.awaits_document(self.policy, self.documents, group, self.now)
            or self.matched >= suppression.MOST_MATCHED
            or awaits_cause(group, self.decided_at, self.now)
            or self._awaits_end(group)
        ):
            return True
        self.matched += suppression.effort(self.policy, self.documents, group)
        return False

    def _awaits_end(self, group: Group) -> bool:
        """Whether something ended, and how is known in a moment: both are one message."""
        if not self.ending or any(not (m.notified or m.alert.ended) for m in group.members.values()):
            return False
        return any(m.notified and m.alert.ended and m.alert.cluster_id in self.ending for m in group.members.values())

    def _flushed(self, fingerprint: str, group: Group, route: Route) -> Group | None:
        hidden = suppressions(self.surroundings, route, group.members)
        contents = self._contents(group, route, hidden)
        self.suppressed += (
            Suppressed(fingerprint, route, why, member.alert, hidden[key].silence_id if key in hidden else None)
            for key, member in group.members.items()
            if (why := _newly_suppressed(member, hidden.get(key)))
        )
        next_at = (group.notified_at or 0) + route.group_interval
        is_early = contents.only_ended and self.now.steady < next_at
        members = self._remaining_members(group, hidden, contents, is_early=is_early)
        if is_early:
            return replace(group, members=members, flush_at=next_at)
        is_notified = contents.is_notified
        if is_notified:
            group = self._notified(fingerprint, group, route, contents)
        if not members:
            return None if group.notified_at is None else replace(group, members={}, flush_at=None)
        if all(member.closes for member in members.values()):
            return replace(group, members=members, flush_at=None)
        if not is_notified and members == group.members and not hidden:
            return group  # due, but its cluster cannot be read
        pause, since = (route.group_interval, self.now.steady) if hidden else (route.repeat_interval, group.notified_at)
        return replace(group, members=members, flush_at=(since or self.now.steady) + pause)

    def _contents(self, group: Group, route: Route, suppressed: Suppressions) -> _Contents:
        visible = [member for key, member in group.members.items() if key not in suppressed]
        news = [member.alert for member in visible if _is_news(member)]
        notified = [member for member in visible if member.notified]
        over = [m for m in notified if m.alert.ended and not (m.closes and self._awaits_status(m.alert))]
        still = [m.alert for m in notified if not m.alert.ended and is_observable(m.alert, self.blind)]
        hidden = [group.members[key] for key in suppressed if group.members[key].notified]
        lasting = [member.alert for member in visible if not member.alert.ended]
        lasting += [member.alert for member in hidden if not member.closes]  # also if it is over, which nobody was told
        lasts, differs = any(map(self._is_of_incident, lasting)), not all(map(self._is_of_incident, news))
        awaits_status = bool(self.unsettled) and any(self._awaits_status(member.alert) for member in visible)
        is_repeated = group.notified_at is not None and self.now.steady >= group.notified_at + route.repeat_interval
        return _Contents(news, over, still, bool(lasting), lasts, differs, awaits_status, is_repeated)

    def _remaining_members(
        self, group: Group, suppressed: Suppressions, contents: _Contents, *, is_early: bool
    ) -> dict[str, Member]:
        """The alerts that stay in the group: those that fire, resolved ones that are still to be notified (all if it is too early for
        them), and those whose incident stays open until the cluster is as it should be.
        """
        members = {}
        for key, member in group.members.items():
            is_hidden = key in suppressed
            is_put_off = member.closes and bool(contents.news) and not contents.ends
            is_unsaid = is_put_off or self._awaits_status(member.alert)
            is_known = (member.notified or _is_news(member)) and not (is_hidden or is_early)
            closes = bool(member.alert.ended) and is_unsaid and is_known
            if not member.alert.ended or closes or (member.notified and (is_hidden or is_early)):
                members[key] = replace(
                    member,
                    notified=member.notified or not is_hidden,
                    suppressed_by=suppressed[key].reason if is_hidden else None,
                    silence=suppressed[key].silence_id if is_hidden else None,
                    closes=closes or member.closes,
                )
        beyond = {*sorted(key for key, member in members.items() if member.closes)[MOST_OWED:]}
        return {key: member for key, member in members.items() if key not in beyond} if beyond else members

    def _notified(self, fingerprint: str, group: Group, route: Route, contents: _Contents) -> Group:
        news, resolved, still = contents.news, contents.resolved, contents.still
        included = (*news, *resolved, *still)
        reason = Reason.RESOLVED if contents.closes else _reason(group, contents)
        thread = group.thread or record_id("thread", fingerprint, min([alert.id for alert in included]))
        incident = group.incident or _incident(self.policy, fingerprint, group.labels)
        self.notices.append(
            Notice(
                *(fingerprint, route, reason, included, len(news), group.labels),
                *(thread, incident, contents.goes_on, contents.closes),
                settles=bool(contents.resolved) and self._has_settled(group),
                awaits_status=contents.awaits_status,
                closing=contents.closing,
            )
        )
        destinations = self.policy.receivers.get(route.receiver, ())
        opened_at = tuple([destination.name for destination in destinations if destination.shows_incidents])
        group = replace(group, thread=thread, incident=incident, opened_at=opened_at)
        if contents.closes:
            return group
        group = paced(group, route, [*news, *still], again=not (news or resolved), now=self.now)
        return replace(group, notified_at=self.now.steady)


def _newly_suppressed(member: Member, suppression: Suppression | None) -> Reason | None:
    """The reason to record: where a silence or other observers begin to hide it, else when it is over before it could be notified."""
    why, silence = (suppression.reason, suppression.silence_id) if suppression else (member.suppressed_by, None)
    if silence is not None:
        return why if silence != member.silence else None
    if why is Reason.SUPPRESSED_BY_OBSERVERS:
        return why if member.suppressed_by is not why else None
    is_lost = not member.notified and member.alert.ended and why is not Reason.SUPPRESSED_BY_SILENCE
    return why if is_lost else None


def _is_news(member: Member) -> bool:
    """Whether it is to be notified for the first time: it fires, or is an event that was never suppressed."""
    is_fresh = member.alert.is_event and member.suppressed_by is None
    return not member.notified and (not member.alert.ended or is_fresh)


def _reason(group: Group, contents: _Contents) -> Reason:
    """RESOLVED: every notified alert has ended, even if a finished event was added meanwhile, and the cluster is as it should be."""
    if group.notified_at is None:
        return Reason.FIRST
    news, resolved = contents.news, contents.resolved
    if (resolved or contents.closing) and not (contents.awaits_status or contents.goes_on):
        return Reason.RESOLVED
    if news:
        return Reason.GREW
    return Reason.SHRANK if resolved else Reason.REPEAT_INTERVAL_ELAPSED


def _incident(policy: Policy, fingerprint: str, labels: Labels) -> str:
    """The key of a group's incident. Clusters of one id may share a service: their places and external labels tell them apart."""
    place = policy.places.get(labels.get("cluster_id", ""), "")
    return record_id("incident", fingerprint, place, *sorted(policy.external_labels.items()))
