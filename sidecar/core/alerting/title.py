"""The title of a message: what has just changed, with the cluster, what it is about and its jobs. A lock screen shows all of it."""

from collections.abc import Iterator, Mapping, Sequence
from itertools import accumulate
from typing import Final, NamedTuple

from sidecar.core.alerting import phrases
from sidecar.core.alerting.alerts import Alert, Notice, Reason
from sidecar.core.cluster.status import ClusterStatus
from sidecar.core.counted import counted
from sidecar.core.flink.leadership import ComponentId
from sidecar.core.pods import Pods
from sidecar.core.policy.policy import Rule, Severity
from sidecar.core.policy.triggers import Trigger
from sidecar.core.sanitize import clean

MOST_TITLE: Final = 80
"""Characters of a title with its label."""
_SHORTEST_NAME: Final = 12
"""Characters of a cluster's id that a title keeps in any case."""
_WHOLE_NAME: Final = 36
"""Characters of it that a title keeps beside a status."""
WORST_FIRST: Final = (Severity.CRITICAL, Severity.WARNING, Severity.INFO)
_WITH_JOBS: Final = frozenset({Trigger.LEADER_CHANGED, Trigger.PLANNED_FAILOVER})
"""Triggers about one failover: their titles say how its jobs are. So does the end of a vacancy."""


class Headline(NamedTuple):
    """What a title is about: alerts of one rule."""

    rule: Rule
    severity: Severity
    alerts: Sequence[Alert]
    over: bool
    """Whether it says that they are resolved."""
    others: int
    """How many other alerts have changed."""
    still: int
    """How many alerts fire that it does not name; of those that have just begun to only if it says that something is resolved."""
    goes_on: bool
    """Whether something of the group still fires, though it says that something is resolved."""

    lost: str = ""
    """Which jobs the failover has lost."""

    @property
    def label(self) -> str:
        return (Severity.INFO if self.over else self.severity).value.upper()

    def with_lost(self, jobs: int, of: int) -> "Headline":
        """The headline of a failover that has lost jobs: that is said first, and is critical."""
        if not jobs or not (self.rule.on in _WITH_JOBS or self.is_end_of_vacancy):
            return self
        own = [alert for alert in self.alerts if not phrases.is_of_a_job(alert)]
        return self._replace(lost=f"{jobs} of {of} jobs lost", severity=Severity.CRITICAL, alerts=own or self.alerts)

    @property
    def is_end_of_vacancy(self) -> bool:
        return self.over and self.rule.on is Trigger.VACANT


def headline(notice: Notice, rules: Mapping[str, Rule]) -> Headline:
    """What has just changed in the group: what fires now, else the worst of what happened or was resolved. Of a repetition: what fires.

    That a vacancy is over says what a failover came to; that anything else is over comes after what happened.
    """
    changed = notice.changed or notice.alerts
    unchanged = len(notice.alerts) - len(changed)
    first = min(changed, key=lambda alert: _rank(alert, rules[alert.rule]))
    alike = [alert for alert in changed if alert.rule == first.rule and bool(alert.ended) == bool(first.ended)]
    over = _is_over(notice, first)
    begun = len([alert for alert in changed if alert.ended is None]) if over else 0
    named = {*map(_named, alike)}
    others = sum([_named(alert) not in named for alert in changed if alert.ended or not over])
    worst = min([_severity(alert, rules[alert.rule]) for alert in alike], key=WORST_FIRST.index)
    return Headline(rules[first.rule], worst, alike, over, others, unchanged + begun, over and notice.goes_on)


def _named(alert: Alert) -> tuple[str, ComponentId | str]:
    """What a headline names: a component of which it says one thing needs no mention of another."""
    return alert.cluster_id, alert.component or alert.id


def _is_over(notice: Notice, first: Alert) -> bool:
    """Whether what the headline is about is resolved."""
    is_closing = notice.reason is Reason.RESOLVED and not notice.news
    return is_closing or (first.ended is not None and not first.is_event)


def _severity(alert: Alert, rule: Rule) -> Severity:
    return Severity(alert.labels.get("severity") or rule.severity)


def _rank(alert: Alert, rule: Rule) -> tuple[bool, bool, int, bool]:
    """The lowest is what a headline is about."""
    lasts = alert.ended is None and not alert.is_event
    is_late = alert.ended is not None and not alert.is_event and rule.on is not Trigger.VACANT
    return not lasts, is_late, WORST_FIRST.index(_severity(alert, rule)), alert.is_event


def status_title(status: ClusterStatus, name: str) -> str:
    """The title of a message about a cluster: its status, and as much of the sentence as has room."""
    label, where = f"[{status.status}] ", clean(name)
    room = MOST_TITLE - len(label) - 2
    where = _cut(where, max(room - len(status.parts[0]), _WHOLE_NAME))
    return f"{label}{where}: {status.within(room - len(where))}"


def changed(about: Headline, notice: Notice, pods: Mapping[str, Pods], jobs: str, counted_within: int) -> str:
    """What has changed, in one line; arguments as for `title`."""
    return next(_texts(about, notice, pods, jobs, counted_within))


def title(about: Headline, notice: Notice, pods: Mapping[str, Pods], jobs: str, counted_within: int) -> str:
    """The title without its label. `jobs`: how the jobs of the failover are now; `counted_within`: see `phrases.headline`."""
    names = {alert.cluster_id for alert in about.alerts}
    where = clean(about.alerts[0].cluster_id) if len(names) == 1 else f"{len(names)} clusters"
    room = MOST_TITLE - len(f"[{about.label}] : ")
    texts = [*_texts(about, notice, pods, jobs, counted_within)]
    for text in texts:
        if len(where) + len(text) <= room:
            return f"{where}: {text}"
    text = texts[-1]
    where = _cut(where, max(room - len(text), _SHORTEST_NAME))
    return f"{where}: {_cut(text, room - len(where))}"


def _texts(about: Headline, notice: Notice, pods: Mapping[str, Pods], jobs: str, counted_within: int) -> Iterator[str]:
    """The title with less and less in it."""
    first = "still: " if notice.reason is Reason.REPEAT_INTERVAL_ELAPSED else ""
    first += f"{about.lost}, " if about.lost else ""
    is_named = about.lost or any(map(phrases.is_of_a_job, about.alerts))
    jobs = jobs if not is_named and (about.rule.on in _WITH_JOBS or about.is_end_of_vacancy) else ""
    more = f", and {counted(about.others, 'more alert')}" if about.others else ""
    still = ", more fires" if about.goes_on else ""
    still = f", {about.still} more fire{'s' if about.still == 1 else ''}" if about.still else still
    for without in accumulate(phrases.SHORTENED, initial=()):
        text = phrases.headline(
            about.rule, about.alerts, pods, over=about.over, without=without, counted_within=counted_within
        )
        yield f"{first}{text}{jobs}{'' if without else more}{still}"
    yield f"{first}{text}{still}"


def _cut(text: str, most: int) -> str:
    return text if len(text) <= most else f"{text[: most - 1]}…"
