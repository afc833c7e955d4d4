"""What keeps a firing alert from being notified now: ORDER, one list, which the record of a notification and the page ask alike.

Silences are Alertmanager's, kept in a document that sidecars share. The commands write the document, sidecars read it: at an interval, and
before a group is notified. What cannot be read, or is not understood, silences nothing.
"""

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from enum import StrEnum
from typing import Final, NamedTuple

from msgspec import Struct
from msgspec.structs import asdict, replace

from sidecar.core.agreement import Agreement
from sidecar.core.alerting.alerts import Alert, Alerts, Group, Member, Reason, Suppressed
from sidecar.core.alerting.silence_document import SilencesError, StoredSilence, read
from sidecar.core.moment import SECOND, Moment, Steady
from sidecar.core.policy.policy import Policy
from sidecar.core.policy.routing import Labels, Route, inhibitor
from sidecar.core.policy.triggers import DRILLED

CLOCK_SKEW: Final = 2 * 3600 * SECOND
"""By so much the clock of the silence's creator may be ahead of ours: it is active at once."""
INTERVAL: Final = 10 * SECOND
"""Between two reads of a document."""
SHARE: Final = SECOND // 2
"""The interval is at least this for each document: a sidecar of hundreds of clusters makes two requests a second."""
AHEAD: Final = 2 * SECOND
"""The document is read this long before a group is due: a silence that was added earlier holds."""
PATIENCE: Final = 3 * SECOND
"""How long a group that is due waits for the document."""
MOST_MATCHED: Final = 20_000
"""Alerts matched against a silence each in one tick: further groups that are due wait for the next one."""
LOST: Final = 30 * SECOND
"""A read that is not answered after this long is asked for again."""


class Silence(StoredSilence, frozen=True):
    """A silence that this sidecar knows."""

    until: Steady = 0
    """It ends here (steady) at the latest: its duration after it was first read. A wall clock that is set back does not prolong it."""
    known_at: Steady = 0
    """When it was first read (steady)."""
    hid: int = 0
    """How many alerts it kept from being notified, by this sidecar's records."""
    causal: bool = False
    """True for a drill whose failover is known to have begun after the drill was first read (see `drilling`). Else it hides nothing."""

    def is_active(self, now: Moment) -> bool:
        return not self.is_over(now.wall) and self.starts_at - CLOCK_SKEW <= now.wall and now.steady < self.until


class Silences(Struct, frozen=True):
    """What is known of one document."""

    known: Mapping[str, Silence] = {}
    """By id. Kept in the journal: known silences hold while the store cannot be read."""
    asked_at: Steady | None = None
    """When (steady) the document was to be read last."""
    answered_at: Steady | None = None
    """When (steady) the last read that was answered began."""
    problem: str | None = None
    """Why it could not be read, or not be used as a whole."""


Documents = Mapping[str, Silences]
"""By the name of the document: `Policy.silences_of`."""


def learned(document: Silences, content: bytes | None, problem: str | None, longest: int, at: Moment) -> Silences:
    """The document after a read. `content` None: it could not be read, because of `problem`; its silences hold on."""
    answered = replace(document, answered_at=at.steady, problem=problem)
    if content is None:
        return answered
    try:
        latest, _ = read(content, longest)
    except SilencesError as error:
        return replace(answered, known={}, problem=str(error))
    silences = {key: _with_end(silence, document.known.get(key), at) for key, silence in latest.items()}
    unchanged = silences.keys() == document.known.keys()
    if unchanged and all(silences[key] is silence for key, silence in document.known.items()):
        return answered
    return replace(answered, known=silences)


def _with_end(silence: StoredSilence, before: Silence | None, at: Moment) -> Silence:
    fields = asdict(silence)
    if before and all(getattr(before, name) == value for name, value in fields.items()):
        return before
    until = at.steady + silence.ends_at - silence.starts_at
    return Silence(**fields, until=until, known_at=at.steady, hid=before.hid if before else 0)


def request_reads(
    policy: Policy, documents: Documents, groups: Iterable[Group], now: Moment
) -> tuple[Documents, list[str]]:
    """The documents, and the names of those to read now: their interval has passed, or a group of theirs is due soon."""
    if not policy.silence_documents:
        return documents, []
    needed = _needed(policy, groups, now)
    interval = max(INTERVAL, SHARE * len(policy.silence_documents))
    due = [
        name
        for name in sorted(policy.silence_documents)
        if _is_due(documents.get(name, Silences()), needed.get(name), interval, now.steady)
    ]
    if not due:
        return documents, []
    changed = {name: replace(documents.get(name, Silences()), asked_at=now.steady) for name in due}
    return {**documents, **changed}, due


def _needed(policy: Policy, groups: Iterable[Group], now: Moment) -> dict[str, int]:
    """By document: the latest time (steady) since which it must have been read for the groups that are due soon."""
    needed: dict[str, int] = {}
    for group in groups:
        if group.flush_at is not None and group.flush_at <= now.steady + AHEAD:
            for name in _documents_of(policy, group.members):
                needed[name] = max(needed.get(name, 0), group.flush_at - AHEAD)
    return needed


def _is_due(document: Silences, needed: int | None, interval: int, now: int) -> bool:
    asked, answered = document.asked_at, document.answered_at
    if asked is None:
        return True
    if answered is None or answered < asked:
        return now >= asked + LOST
    return now >= asked + interval or (needed is not None and answered < needed)


def awaits_document(policy: Policy, documents: Documents, group: Group, now: Moment) -> bool:
    """Whether a group that is due waits for a document: it was not read shortly before, and will soon be."""
    if group.flush_at is None or now.steady >= group.flush_at + PATIENCE:
        return False
    times = (documents.get(name, Silences()).answered_at for name in _documents_of(policy, group.members))
    return any(at is None or at < group.flush_at - AHEAD for at in times)


def _documents_of(policy: Policy, members: Mapping[str, Member]) -> Collection[str]:
    if not policy.silence_documents:
        return ()
    names = {policy.silences_of(member.alert.cluster_id) for member in members.values()}
    return {name for name in names if name is not None}


def effort(policy: Policy, documents: Documents, group: Group) -> int:
    """How many alerts are matched against a silence each, at most, to know which of the group's are hidden."""
    return len(group.members) * sum(
        len(documents.get(name, Silences()).known) for name in _documents_of(policy, group.members)
    )


def hiding(policy: Policy, documents: Documents, members: Mapping[str, Member], now: Moment) -> Mapping[str, Silence]:
    """By key of a member: the active silence or drill that hides it; of several the one that ends last."""
    active: dict[str, list[Silence]] = {}
    for name in _documents_of(policy, members):
        silences = (silence for silence in documents.get(name, Silences()).known.values() if silence.is_active(now))
        active[name] = sorted(silences, key=lambda silence: (silence.ends_at, silence.id), reverse=True)
    if not any(active.values()):
        return {}
    drilled = {rule.alert for rule in policy.rules if rule.on in DRILLED}
    hidden = {}
    for key, member in members.items():
        candidates = active.get(policy.silences_of(member.alert.cluster_id) or "", [])
        if match := next((silence for silence in candidates if _hides(silence, member, drilled)), None):
            hidden[key] = match
    return hidden


def _hides(silence: Silence, member: Member, drilled: Collection[str]) -> bool:
    """Whether it hides the alert. A drill hides what its failover causes: neither what was notified or may have begun before the drill was
    read, whatever start is written in it, nor a failover that loses jobs.

    `drilled`: the names of the rules about that.
    """
    alert = member.alert
    if silence.drill and (
        not silence.causal
        or member.notified
        or alert.jobs_lost
        or alert.rule not in drilled
        or _had_begun(alert, silence.known_at)
    ):
        return False
    return silence.matches(alert.labels)


def _had_begun(alert: Alert, at: int) -> bool:
    """Whether what the alert is about had begun before `at` (steady): of another leader, the end of the one before."""
    leaderless = max(alert.vacant_seconds or 0.0, alert.downtime_seconds_at_least or 0.0)
    return alert.began.steady - round(leaderless * SECOND) < at


def with_hits(policy: Policy, documents: Documents, suppressed: Iterable[Suppressed]) -> Documents:
    """The documents after their silences have hidden these alerts."""
    hidden = Counter(
        (policy.silences_of(suppression.alert.cluster_id), suppression.silence)
        for suppression in suppressed
        if suppression.silence
    )
    changed = dict(documents)
    for (name, silence_id), number in hidden.items():
        if name in changed and silence_id in changed[name].known:
            by_id = changed[name].known
            more = replace(by_id[silence_id], hid=by_id[silence_id].hid + number)
            changed[name] = replace(changed[name], known={**by_id, silence_id: more})
    return changed if hidden else documents


class AlertState(StrEnum):
    """How far an alert has come on its way to people. FIRING: nothing keeps it from being notified."""

    FIRING = "firing"
    SILENCED = "silenced"
    INHIBITED = "inhibited"
    MUTED = "muted"
    """By the time intervals of all of its routes."""
    OUTVOTED = "outvoted"
    """This observer cannot read the store, and others can."""
    PENDING = "pending"
    """Its condition holds, but not for `for` yet."""


class Surroundings(NamedTuple):
    """All that decides, besides the alert and its route."""

    policy: Policy
    documents: Documents
    firing: Sequence[Labels]
    """The labels of all alerts that fire."""
    now: Moment


def surroundings(policy: Policy, alerts: Alerts, documents: Documents, now: Moment) -> Surroundings:
    return Surroundings(policy, documents, [alert.labels for alert in alerts.active().values()], now)


Members = Mapping[str, Member]
By = Silence | str | Labels | Agreement
"""What suppresses: a silence or drill, the time intervals in words, the alert that inhibits, or the other observers."""


def _silences(around: Surroundings, _: Route, members: Members) -> Mapping[str, By]:
    return hiding(around.policy, around.documents, members, around.now)


def _mutes(around: Surroundings, route: Route, members: Members) -> Mapping[str, By]:
    why = route.muted_by(around.now.wall)
    return dict.fromkeys(members, why) if why is not None else {}


def _other_observers(_around: Surroundings, _: Route, members: Members) -> Mapping[str, By]:
    alerts = _unsettled(members)
    return {key: alert.agreement for key, alert in alerts.items() if alert.agreement and alert.is_outvoted}


def _inhibitions(around: Surroundings, _: Route, members: Members) -> Mapping[str, By]:
    rules, firing = around.policy.inhibit_rules, around.firing
    if not rules:
        return {}
    sources = ((key, inhibitor(rules, alert.labels, firing)) for key, alert in _unsettled(members).items())
    return {key: source for key, source in sources if source is not None}


def _unsettled(members: Members) -> Mapping[str, Alert]:
    """Without those that were notified and are over: of that people are notified, whatever else is known."""
    return {key: member.alert for key, member in members.items() if not (member.notified and member.alert.ended)}


class Suppressor(NamedTuple):
    """One reason why alerts are not notified, on the page and in records."""

    state: AlertState
    reason: Reason
    suppressed: Callable[[Surroundings, Route, Members], Mapping[str, By]]
    """Those of the members that it suppresses on this route, and by what."""


ORDER: Final = (
    Suppressor(AlertState.SILENCED, Reason.SUPPRESSED_BY_SILENCE, _silences),
    Suppressor(AlertState.MUTED, Reason.SUPPRESSED_BY_TIME_INTERVAL, _mutes),
    Suppressor(AlertState.OUTVOTED, Reason.SUPPRESSED_BY_OBSERVERS, _other_observers),
    Suppressor(AlertState.INHIBITED, Reason.SUPPRESSED_BY_INHIBITION, _inhibitions),
)
"""An alert is suppressed by the first that applies."""


class Suppression(NamedTuple):
    """Why one alert is not notified now."""

    place: int
    """In ORDER."""
    by: By

    @property
    def reason(self) -> Reason:
        return ORDER[self.place].reason

    @property
    def silence_id(self) -> str | None:
        return self.by.id if isinstance(self.by, Silence) else None


def suppressions(around: Surroundings, route: Route, members: Members) -> Mapping[str, Suppression]:
    """The members of one group that are not notified now, by their keys."""
    hidden: dict[str, Suppression] = {}
    for place, suppressor in enumerate(ORDER):
        rest = {key: member for key, member in members.items() if key not in hidden} if hidden else members
        for key, by in suppressor.suppressed(around, route, rest).items():
            hidden[key] = Suppression(place, by)
    return hidden
