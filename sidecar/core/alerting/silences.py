"""Silences: while one is active, the alerts that it matches are not notified. Alertmanager's, kept in a document that sidecars share.

The commands write the document, sidecars read it: at an interval, and before a group is notified. What cannot be read, or is not
understood, silences nothing. Others can write the document, so it is bounded in every way.
"""

import re
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import Annotated, Final

from msgspec import DecodeError, Meta, Raw, Struct, json
from msgspec.structs import replace

from sidecar.core.alerting.alerts import Group, SilenceId, Suppressed
from sidecar.core.errors import OperatorError
from sidecar.core.moment import SECOND, Moment
from sidecar.core.policy.labels import Labels, Matcher, Operator
from sidecar.core.policy.patterns import PatternError, check, full_match
from sidecar.core.policy.policy import Policy
from sidecar.core.sanitize import clean

FORMAT: Final = 1
MOST_BYTES: Final = 64 << 10
"""Of the document."""
MOST: Final = 100
"""Silences in a document."""
MOST_MATCHERS: Final = 10
"""Of a silence."""
MOST_PATTERNS: Final = 50
"""Regular expressions in a document."""
LONGEST_NAME: Final = 100
"""Characters of an author, and of a label's name."""
LONGEST_TEXT: Final = 500
"""Characters of a comment, and of a label's value."""
CLOCK_SKEW: Final = 2 * 3600 * SECOND
"""By so much the clock of the silence's creator may be ahead of ours: it is active at once."""
KEPT: Final = 24 * 3600 * SECOND
"""How long a silence that has ended stays in the document."""

INTERVAL: Final = 10 * SECOND
"""Between two reads of a document."""
SHARE: Final = SECOND // 2
"""The interval is at least this for each document: a sidecar of hundreds of clusters makes two requests a second."""
AHEAD: Final = 2 * SECOND
"""The document is read this long before a group is due: a silence that was added earlier holds."""
PATIENCE: Final = 3 * SECOND
"""How long a group that is due waits for the document."""
LOST: Final = 30 * SECOND
"""A read that is not answered after this long is asked for again."""

_ID: Final = re.compile(r"[0-9a-f-]{36}")

_Name = Annotated[str, Meta(max_length=LONGEST_NAME)]
_Text = Annotated[str, Meta(max_length=LONGEST_TEXT)]
_Time = Annotated[int, Meta(ge=0, le=253_402_300_799_999_999)]


class SilencesError(OperatorError):
    """The document of silences cannot be used or changed: one line that says why."""


class Written(Struct, frozen=True):
    """One silence in the document. Times are microseconds since the epoch, by the clock of its creator."""

    id: SilenceId
    matchers: Annotated[tuple[Matcher, ...], Meta(min_length=1, max_length=MOST_MATCHERS)]
    starts_at: _Time
    ends_at: _Time
    author: _Name
    comment: _Text
    expired_at: _Time = 0
    """When it was ended by hand, for all sidecars at once, whatever their clocks say; 0: it was not."""

    def matches(self, labels: Labels) -> bool:
        """Whether all matchers are true of an alert's labels."""
        return all(_is_true(matcher, labels.get(matcher.label, "")) for matcher in self.matchers)

    @property
    def over_at(self) -> int:
        return min(self.expired_at or self.ends_at, self.ends_at)

    def is_over(self, wall: int) -> bool:
        return self.expired_at > 0 or wall >= self.ends_at


class Silence(Written, frozen=True):
    """A silence that this sidecar knows."""

    until: int = 0
    """It ends here (steady) at the latest: its duration after it was first read. A wall clock that is set back does not prolong it."""
    hid: int = 0
    """How many alerts it kept from being notified, by this sidecar's records."""

    def is_active(self, now: Moment) -> bool:
        return not self.is_over(now.wall) and self.starts_at - CLOCK_SKEW <= now.wall and now.steady < self.until


class Silences(Struct, frozen=True):
    """What is known of one document."""

    known: Mapping[str, Silence] = {}
    """By id. Kept in the journal: known silences hold while the store cannot be read."""
    asked_at: int | None = None
    """When (steady) the document was to be read last."""
    answered_at: int | None = None
    """When (steady) the last read that was answered began."""
    problem: str | None = None
    """Why it could not be read, or not be used as a whole."""


Documents = Mapping[str, Silences]
"""By the name of the document: `Policy.silences_of`."""


class _Document(Struct, frozen=True):
    """Its JSON."""

    format: int = FORMAT
    silences: list[Raw] = []


_DOCUMENT: Final = json.Decoder(_Document)
_SILENCE: Final = json.Decoder(Written)


# -- the document ------------------------------------------------------------------------------------------------------


def read(content: bytes, longest: int) -> tuple[dict[str, Written], list[str]]:
    """The silences in a document, and one line for each that is not used. `longest`: no silence lasts longer (microseconds).

    Raises SilencesError if all of it is unusable.
    """
    if not content:
        return {}, []
    if len(content) > MOST_BYTES:
        raise SilencesError(
            f"{len(content)} bytes are more than the {MOST_BYTES >> 10} KiB that it may have: delete it"
        )
    try:
        document = _DOCUMENT.decode(content)
    except (DecodeError, UnicodeDecodeError, RecursionError):
        raise SilencesError("it is not a document of silences: delete it") from None
    if document.format > FORMAT:
        raise SilencesError(
            f"it was written by a newer version (format {document.format}, this version reads {FORMAT})"
        )
    if len(document.silences) > MOST:
        raise SilencesError(f"it has {len(document.silences)} silences, of at most {MOST}: delete it")
    found: dict[str, Written] = {}
    problems = []
    for place, raw in enumerate(document.silences):
        try:
            silence = _checked(_SILENCE.decode(raw), longest)
        except (DecodeError, UnicodeDecodeError, RecursionError, ValueError) as error:
            problems.append(f"silence {place + 1} of the document is not used: {clean(error)}")
        else:
            found[silence.id] = silence
    if sum(1 for silence in found.values() for _ in _patterns(silence)) > MOST_PATTERNS:
        raise SilencesError(f"it has more than {MOST_PATTERNS} regular expressions: delete it")
    return found, problems


def added(silences: Mapping[str, Written], silence: Written, wall: int, longest: int) -> dict[str, Written]:
    """The silences with one more, without those that ended long ago. Raises SilencesError."""
    kept = {key: other for key, other in silences.items() if wall - other.over_at < KEPT}
    while len(kept) >= MOST and (ended := [each for each in kept.values() if each.is_over(wall)]):
        del kept[min(ended, key=lambda each: each.over_at).id]
    try:
        kept[silence.id] = _checked(silence, longest)
    except ValueError as error:
        raise SilencesError(f"cannot add the silence: {error}") from error
    if len(kept) > MOST:
        raise SilencesError(f"there are {MOST} silences already: expire one")
    if sum(1 for each in kept.values() for _ in _patterns(each)) > MOST_PATTERNS:
        raise SilencesError(
            f"all silences together would have more than {MOST_PATTERNS} regular expressions: expire one"
        )
    return kept


def written(silences: Mapping[str, Written]) -> bytes:
    """The document. Raises SilencesError: it is too large."""
    content = json.encode(_Document(FORMAT, [Raw(json.encode(silence)) for silence in silences.values()]))
    if len(content) > MOST_BYTES:
        raise SilencesError(f"all silences together would have more than {MOST_BYTES >> 10} KiB: expire one")
    return content


def _checked(silence: Written, longest: int) -> Written:
    """The silence, with no longer duration than it may have. Raises ValueError."""
    if not _ID.fullmatch(silence.id):
        raise ValueError("its id is none")
    if silence.ends_at < silence.starts_at:
        raise ValueError("it ends before it starts")
    for matcher in silence.matchers:
        if len(matcher.label) > LONGEST_NAME or len(matcher.value) > LONGEST_TEXT:
            raise ValueError("a matcher is too long")
    for matcher in _patterns(silence):
        try:
            check(matcher.value)
        except PatternError as error:
            raise ValueError(f'the pattern of "{clean(matcher.label)}" {error}') from error
    return replace(silence, ends_at=min(silence.ends_at, silence.starts_at + longest))


def _patterns(silence: Written) -> Iterator[Matcher]:
    return (each for each in silence.matchers if each.operator in {Operator.MATCHES, Operator.MATCHES_NOT})


def is_vacuous(matcher: Matcher) -> bool:
    """Whether it is true of any value, or of an alert without the label, as Alertmanager defines a matcher that selects nothing."""
    return all(_is_true(matcher, value) for value in ("any-Value_0", "2.zz")) or _is_true(matcher, "")


def _is_true(matcher: Matcher, value: str) -> bool:
    match matcher.operator:
        case Operator.EQUAL:
            return value == matcher.value
        case Operator.NOT_EQUAL:
            return value != matcher.value
        case Operator.MATCHES:
            return full_match(matcher.value, value)
        case Operator.MATCHES_NOT:
            return not full_match(matcher.value, value)


# -- what a sidecar knows ----------------------------------------------------------------------------------------------


def learned(known: Silences, content: bytes | None, problem: str | None, longest: int, at: Moment) -> Silences:
    """What is known after a read. `content` None: it could not be read, because of `problem`; known silences hold on."""
    answered = replace(known, answered_at=at.steady, problem=problem)
    if content is None:
        return answered
    try:
        found, _ = read(content, longest)
    except SilencesError as error:
        return replace(answered, known={}, problem=str(error))
    silences = {key: _known(silence, known.known.get(key), at) for key, silence in found.items()}
    if silences.keys() == known.known.keys() and all(silences[key] is each for key, each in known.known.items()):
        return answered
    return replace(answered, known=silences)


def _known(silence: Written, before: Silence | None, at: Moment) -> Silence:
    fields = {name: getattr(silence, name) for name in silence.__struct_fields__}
    if before and all(getattr(before, name) == value for name, value in fields.items()):
        return before
    return Silence(**fields, until=at.steady + silence.ends_at - silence.starts_at, hid=before.hid if before else 0)


def asked(policy: Policy, documents: Documents, groups: Iterable[Group], now: Moment) -> tuple[Documents, list[str]]:
    """The documents to read now: those whose interval has passed, and those of groups that are due soon."""
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
            for name in _documents_of(policy, group):
                needed[name] = max(needed.get(name, 0), group.flush_at - AHEAD)
    return needed


def _is_due(known: Silences, needed: int | None, interval: int, now: int) -> bool:
    asked, answered = known.asked_at, known.answered_at
    if asked is None:
        return True
    if answered is None or answered < asked:
        return now >= asked + LOST
    return now >= asked + interval or (needed is not None and answered < needed)


def awaited(policy: Policy, documents: Documents, group: Group, now: Moment) -> bool:
    """Whether a group that is due waits for a document: it was not read shortly before, and will soon be."""
    if group.flush_at is None or now.steady >= group.flush_at + PATIENCE:
        return False
    times = (documents.get(name, Silences()).answered_at for name in _documents_of(policy, group))
    return any(at is None or at < group.flush_at - AHEAD for at in times)


def _documents_of(policy: Policy, group: Group) -> Collection[str]:
    found = {policy.silences_of(member.alert.cluster_id) for member in group.members.values()}
    return {name for name in found if name is not None}


def hiding(policy: Policy, documents: Documents, group: Group, now: Moment) -> dict[str, str]:
    """By alert of the group: the active silence that matches it; of several the one that ends last."""
    active: dict[str, list[Silence]] = {}
    for name in _documents_of(policy, group):
        silences = (each for each in documents.get(name, Silences()).known.values() if each.is_active(now))
        active[name] = sorted(silences, key=lambda each: (each.ends_at, each.id), reverse=True)
    if not any(active.values()):
        return {}
    found = {}
    for key, member in group.members.items():
        candidates = active.get(policy.silences_of(member.alert.cluster_id) or "", [])
        if match := next((each for each in candidates if each.matches(member.alert.labels)), None):
            found[key] = match.id
    return found


def counted(policy: Policy, documents: Documents, suppressed: Iterable[Suppressed]) -> Documents:
    """The documents after their silences have hidden these alerts."""
    hidden = Counter((policy.silences_of(each.alert.cluster_id), each.silence) for each in suppressed if each.silence)
    changed = dict(documents)
    for (name, silence_id), number in hidden.items():
        if name in changed and silence_id in changed[name].known:
            known = changed[name].known
            more = replace(known[silence_id], hid=known[silence_id].hid + number)
            changed[name] = replace(changed[name], known={**known, silence_id: more})
    return changed if hidden else documents
