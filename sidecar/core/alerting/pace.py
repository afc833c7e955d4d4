"""When a group is notified next. One that has got worse does not wait for `group_interval`, but once in that time."""

from collections.abc import Iterable, Mapping, Sequence
from itertools import takewhile
from typing import Final

from msgspec.structs import replace

from sidecar.core.alerting.alerts import NO_RANK, Alert, Group, Member
from sidecar.core.moment import SECOND, Moment
from sidecar.core.policy.policy import Severity
from sidecar.core.policy.routing import Route

_RANKS: Final = {severity.value: rank for rank, severity in enumerate(Severity)}
"""By severity, the least severe first."""


PATIENCE: Final = 2 * SECOND
"""How long a group that is due waits for the cause of a failover."""


def awaits_cause(group: Group, decided_at: Mapping[str, int], now: Moment) -> bool:
    """Whether a group that is due waits for a failover that will soon be closed: its cause is decided, and its jobs have leaders."""
    if not decided_at or group.flush_at is None or now.steady >= group.flush_at + PATIENCE:
        return False
    new = (member.alert for member in group.members.values() if not member.notified or member.alert.ended)
    times = (decided_at.get(alert.episode_id) for alert in new if alert.episode_id)
    return any(at is not None and at <= group.flush_at + PATIENCE for at in times)


def rescheduled(group: Group, route: Route, now: Moment, joined: Member | None = None) -> Group:
    """A group whose alerts have changed, with the time of its next flush. `joined`: the only one that has changed. Thousands may join one
    after another, so the others are looked at again only if it may make the group worse.
    """
    if not group.members:
        return replace(group, flush_at=None)
    due = now.steady + route.group_wait
    if group.notified_at is not None:
        if not (joined and _has_news([joined])) and not _has_news(group.members.values()):
            return replace(group, flush_at=max(group.notified_at + route.repeat_interval, now.steady))
        if group.flush_at is not None and group.flush_at <= due:
            return group
        if not _is_worse(group, route, now, joined):
            due = max(due, group.notified_at + route.group_interval)
    return replace(group, flush_at=due if group.flush_at is None else min(group.flush_at, due))


def brought_forward(group: Group, route: Route, now: Moment) -> Group:
    """A waiting group with its next flush under another policy: not later than the new intervals of `route` allow."""
    latest = rescheduled(replace(group, flush_at=None), route, now).flush_at
    if group.flush_at is None or latest is None:
        return group
    return replace(group, flush_at=min(group.flush_at, max(latest, now.steady + route.group_interval)))


def _has_news(members: Iterable[Member]) -> bool:
    return any(not member.notified or (member.alert.ended and not member.closes) for member in members)


def paced(group: Group, route: Route, lasting: Sequence[Alert], *, again: bool, now: Moment) -> Group:
    """The group that is notified of `lasting`, and perhaps of resolved alerts, sooner than usual if it got worse."""
    worst = max(map(_rank, lasting), default=NO_RANK)
    is_early = group.notified_at is not None and now.steady < group.notified_at + route.group_interval and not again
    return replace(group, worst=worst, hastened_at=now.steady if is_early else group.hastened_at)


def _is_worse(group: Group, route: Route, now: Moment, joined: Member | None) -> bool:
    """Whether an alert fires that is worse than what the group was notified of, and the group was not hastened a short while ago; or one
    joins of a rule of which the incident has no other alert: what else is known is not kept back.
    """
    if joined and _is_of_another_rule(group, joined):
        return True
    if group.hastened_at is not None and now.steady < group.hastened_at + route.group_interval:
        return False
    if joined and not joined.notified and _rank(joined.alert) <= group.worst:
        return False  # those that joined before it did not make the group worse either: else it would be due
    ranks = [_rank(member.alert) for member in group.members.values() if member.notified and not member.alert.ended]
    worst = max([group.worst, *ranks])
    new = (member for member in group.members.values() if not member.notified and not member.suppressed_by)
    return any(_rank(member.alert) > worst for member in new if not member.alert.ended or member.alert.is_event)


def _is_of_another_rule(group: Group, new: Member) -> bool:
    """Whether an alert joins an incident that people were notified of, but not of this rule."""
    if new.notified or new.suppressed_by:
        return False
    # Those that wait stand behind them, and may be thousands: one after another they are not all looked at again.
    settled = takewhile(lambda member: member.notified or member.suppressed_by, group.members.values())
    rules = (member.alert.rule for member in settled if member.notified)
    first = next(rules, None)
    return first is not None and new.alert.rule != first and new.alert.rule not in rules


def _rank(alert: Alert) -> int:
    return _RANKS.get(alert.labels.get("severity", ""), NO_RANK)
