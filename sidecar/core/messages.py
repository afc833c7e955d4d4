"""What people read: one notice as a title and a plain-text body.

Addresses and job ids come from the store and are untrusted: control characters never reach a message. Senders pass the text as text.
"""

from typing import Final

from sidecar.core import contest, episodes
from sidecar.core.alerts import Alert, Notice, Reason
from sidecar.core.causes import verdict
from sidecar.core.leadership import host_port
from sidecar.core.moment import SECOND, seconds, timestamp
from sidecar.core.policy import Policy, Trigger
from sidecar.core.records import AnyRecord, Contention, Coverage, Episode, Notification, Transition
from sidecar.core.transitions import Kind

MOST_LINES: Final = 25
"""A storm of job leaders is one message with this many of them, and the number of the others."""
MOST_CHARACTERS: Final = 200
"""Of one untrusted value."""

DUPLICATE_NOTE: Final = "This may be a duplicate: an earlier attempt may have arrived."


def title(notice: Notice) -> str:
    """One line: how bad, which cluster, what."""
    label = "RESOLVED" if notice.reason is Reason.RESOLVED else notice.rule.severity.value.upper()
    return f"[{label}] Flink {clean(notice.cluster_id)}: {_headline(notice)}"


def body(notice: Notice, policy: Policy, episode: episodes.Episode | None = None) -> str:
    """Facts, one a line: each component, from whom to whom, when (UTC), vacant for how long; and why, as far as `episode` tells by now."""
    shown = notice.alerts[:MOST_LINES]
    lines = [_line(notice, alert) for alert in shown]
    if len(notice.alerts) > len(shown):
        lines.append(f"… and {len(notice.alerts) - len(shown)} more")
    if episode:
        found = verdict(episode.facts)
        lines += ["", f"cause: {found.cause} ({found.confidence} confidence)", *found.facts]
    facts = [
        ("alert", f"{notice.rule.alert} ({notice.reason.value})"),
        ("cluster", notice.cluster_id),
        ("store", policy.stores[notice.cluster_id].value),
        ("observer", policy.observer),
        *([("episode", episode.id)] if episode else []),
        *policy.external_labels.items(),
    ]
    return "\n".join([*lines, "", *(f"{clean(name)}: {clean(value)}" for name, value in facts)])


def transition_line(transition: Transition) -> str:
    """What happened, as one line of a log or a terminal."""
    before, after = (clean(address or "") for address in (transition.before_address, transition.after_address))
    where = f"{before} -> {after}" if before and after else before or after or transition.reason or ""
    vacant = f"  vacant for {transition.vacant_seconds:.3f} s" if transition.vacant_seconds is not None else ""
    missed = f"  {_missed(transition)}" if transition.unobserved_at_least else ""
    component = f"{transition.component} {transition.job_id}" if transition.job_id else transition.component
    why = f"  {transition.reason}" if transition.reason and transition.kind == Kind.REVOKED else ""
    return f"{transition.kind:11} {transition.pattern:8} {component:45} {where}{why}{vacant}{missed}".rstrip()


def _missed(transition: Transition) -> str:
    least = "at least " if transition.unobserved is None else ""
    return f"{least}{transition.unobserved_at_least} unobserved"


def episode_line(episode: Episode) -> str:
    """A failover that is over, as one line of a log."""
    moved = move(host_port(episode.before_address or ""), host_port(episode.after_address or ""))
    lasted = f", vacant for {episode.vacant_seconds:.3f} s" if episode.vacant_seconds is not None else ""
    jobs = f", {episode.jobs_affected} of {episode.jobs_total} jobs" if episode.jobs_total else ""
    missing = f", {episode.jobs_missing} still without a leader" if episode.jobs_missing else ""
    what = f"failover {moved}" if episode.failovers else "no failover"
    return f"{what}: {episode.cause} ({episode.confidence}){lasted}{jobs}{missing} [{episode.id}]"


def coverage_line(coverage: Coverage) -> str:
    """What could be seen, as one line."""
    return f"{coverage.state} from {coverage.from_} to {coverage.to}"


def record_line(record: AnyRecord) -> str:
    """What happened, as one line of a log or a terminal."""
    match record:
        case Transition():
            return transition_line(record)
        case Episode():
            return episode_line(record)
        case Contention():
            return contention_line(record)
        case Notification():
            return notification_line(record)
        case Coverage():
            return coverage_line(record)


def contention_line(contention: Contention) -> str:
    """Who contends, as one line of a log."""
    before = "" if contention.contenders_before is None else f" (before: {contention.contenders_before})"
    standby = ": no standby left" if contention.contenders == 1 else ""
    return f"{contention.component or 'all components'}: contenders {contention.contenders}{before}{standby}"


def notification_line(notification: Notification) -> str:
    """What became of a notification, as one line of a log."""
    detail = f": {clean(notification.detail)}" if notification.detail else ""
    attempt = f" (attempt {notification.attempt})" if notification.attempt else ""
    told = f"{notification.alert} {notification.reason} to {notification.destination}"
    return f"{told}: {notification.outcome}{attempt}{detail}"


def clean(text: str) -> str:
    """Untrusted text as one printable, bounded line."""
    shown = "".join(char if char.isprintable() else "\N{REPLACEMENT CHARACTER}" for char in text[: MOST_CHARACTERS + 1])
    return shown if len(shown) <= MOST_CHARACTERS else shown[:MOST_CHARACTERS] + "…"


def _headline(notice: Notice) -> str:
    alerts = tuple(alert for alert in notice.alerts if alert.ended is None) or notice.alerts
    components = len({alert.component for alert in alerts})
    what = f"{alerts[0].component}" if components == 1 else f"{components} components"
    match notice.rule.on:
        case Trigger.LEADER_CHANGED:
            (before, after), *others = {(_host(alert.before), _host(alert.after)) for alert in notice.alerts}
            if others:
                return f"leader of {what} changed, in {len(others) + 1} different moves"
            if before == after:  # several processes on one host: ports tell them apart, and one pair stands for all
                before, after = notice.alerts[0].before, notice.alerts[0].after
            return f"leader of {what} changed: {move(before, after)}"
        case Trigger.VACANT if notice.reason is Reason.RESOLVED:
            return f"{what} led again"
        case Trigger.VACANT:
            return f"no leader for {what}"
        case Trigger.SPLIT if notice.reason is Reason.RESOLVED:
            return f"{what}: leadership is not split any more"
        case Trigger.SPLIT:
            return f"split leadership of {what}: {clean(alerts[0].before or '?')} and {clean(alerts[0].after or '?')}"


def _line(notice: Notice, alert: Alert) -> str:
    match notice.rule.on:
        case Trigger.LEADER_CHANGED:
            vacant = (
                f", vacant for {seconds(int(alert.vacant_seconds * SECOND))}"
                if alert.vacant_seconds is not None
                else ""
            )
            return f"{alert.component}: {move(alert.before, alert.after)} at {timestamp(alert.began.wall)}{vacant}"
        case Trigger.VACANT if alert.ended is not None:
            lasted = seconds(int((alert.vacant_seconds or 0) * SECOND))
            after = f"led by {clean(alert.after)} again" if alert.after else "its job ended"
            return f"{alert.component}: {after} at {timestamp(alert.ended.wall)}, vacant for {lasted}"
        case Trigger.VACANT:
            before = f" (before: {clean(alert.before)})" if alert.before else ""
            return f"{alert.component}: no leader since {timestamp(alert.began.wall)}{before}"
        case Trigger.SPLIT if alert.ended is not None:
            return f"{alert.component}: settled, no replaced leader has come back for {seconds(contest.CALM)}"
        case Trigger.SPLIT:
            both = f"{clean(alert.before or '?')} and {clean(alert.after or '?')}"
            return f"{alert.component}: {both} take turns since {timestamp(alert.began.wall)}, each deleting what the other published"


def _host(host_port: str | None) -> str | None:
    return (host_port or "").rpartition(":")[0] or host_port


def move(before: str | None, after: str | None) -> str:
    """From whom to whom, by `host:port`."""
    before, after = clean(before or "?"), clean(after or "?")
    return f"{before} → {after}" if before != after else f"{after}, with a new session id"
