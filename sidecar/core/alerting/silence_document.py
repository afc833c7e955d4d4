"""The document of silences: its format, its bounds, and what each matcher means. Others can write it, so nothing in it is trusted.

RE2 matches its regular expressions: it never backtracks, so that none stalls the owner's thread. Their syntax and meaning are those of
Alertmanager, whose engine is RE2's. A pattern must match the whole text.
"""

import re
from collections.abc import Iterator, Mapping
from enum import StrEnum
from functools import lru_cache
from typing import Annotated, Any, Final

from msgspec import DecodeError, Meta, Raw, Struct, json
from msgspec.structs import asdict, replace

from sidecar.core.alerting.alerts import SilenceId
from sidecar.core.bounds import SILENCES
from sidecar.core.errors import OperatorError
from sidecar.core.moment import SECOND
from sidecar.core.policy.routing import Labels, Matcher, Operator
from sidecar.core.sanitize import clean

LONGEST_PATTERN: Final = 200
LONGEST_MATCHED: Final = 300
"""A longer text matches no pattern. A cluster id has at most 253 characters."""
LARGEST: Final = 400
"""The largest compiled pattern (instructions): the time of a match grows with it. A literal has about one for each character."""
_MEMORY: Final = 32 << 10
"""Bytes of a compiled pattern, and of what it remembers of earlier matches."""
_COMPILED: Final = 1024
"""Patterns that are kept compiled."""


class PatternError(ValueError):
    """The pattern is not understood. The text says why."""


def full_match(pattern: str, text: str) -> bool:
    """Whether `pattern` matches the whole `text`. Raises PatternError."""
    compiled = _compiled(pattern)
    try:
        return len(text) <= LONGEST_MATCHED and compiled.fullmatch(text) is not None
    except UnicodeEncodeError:  # lone surrogates
        return False


def pattern_size(pattern: str) -> int:
    """The size of the compiled pattern, up to LARGEST. Raises PatternError if the pattern is not understood."""
    return int(_compiled(pattern).programsize)


@lru_cache(_COMPILED)
def _compiled(pattern: str) -> Any:
    if len(pattern) > LONGEST_PATTERN:
        raise PatternError(f"is longer than {LONGEST_PATTERN} characters")
    import re2  # noqa: PLC0415  saves 2.5 MiB where no silence has a pattern

    options = re2.Options()
    options.max_mem, options.never_capture, options.log_errors = _MEMORY, True, False
    try:
        compiled = re2.compile(pattern, options)
    except UnicodeEncodeError as error:
        raise PatternError("is not text") from error
    except re2.error as error:
        reason = error.args[0] if error.args else b""
        text = reason.decode(errors="replace") if isinstance(reason, bytes) else str(reason)
        raise PatternError(f"is not understood: {clean(text)}") from error
    if compiled.programsize > LARGEST:
        raise PatternError("is too large: use fewer repetitions, or two patterns")
    return compiled


FORMAT: Final = 1
MOST_BYTES: Final = SILENCES.most_bytes
"""The size of the document."""
MOST: Final = SILENCES.most_items
"""Silences in a document."""
MOST_MATCHERS: Final = 10
"""The matchers of a silence."""
MOST_PATTERNS: Final = 50
"""Regular expressions in a document."""
LARGEST_PATTERNS: Final = 5_000
"""Sizes of all of them together: each alert may be matched against all."""
LONGEST_NAME: Final = 100
"""Characters of an author, and of a label's name."""
LONGEST_TEXT: Final = 500
"""Characters of a comment, and of a label's value."""
LONGEST_DRILL: Final = 4 * 3600 * SECOND
"""The window of a drill ends after this at the latest."""
KEPT: Final = 24 * 3600 * SECOND
"""How long a silence that has ended stays in the document."""

_ID: Final = re.compile(r"[0-9a-f-]{36}")

_Name = Annotated[str, Meta(max_length=LONGEST_NAME)]
_Text = Annotated[str, Meta(max_length=LONGEST_TEXT)]
_Time = Annotated[int, Meta(ge=0, le=253_402_300_799_999_999)]


class SilencesError(OperatorError):
    """The document of silences cannot be used or changed: one line that says why."""


class Expectation(StrEnum):
    """What a drill expects to happen in its window."""

    FAILOVER = "failover"


class _Silence(Struct, frozen=True):
    """The JSON of a silence. Times are microseconds since the epoch, by the clock of its creator."""

    id: SilenceId
    matchers: Annotated[tuple[Matcher, ...], Meta(min_length=1, max_length=MOST_MATCHERS)]
    starts_at: _Time
    ends_at: _Time
    author: _Name
    comment: _Text
    expired_at: _Time = 0
    """When it was ended by hand, for all sidecars at once, whatever their clocks say; 0: it was not."""


class StoredSilence(_Silence, frozen=True):
    """One silence in the document, or one drill."""

    drill: Expectation | None = None
    """The drill of the cluster of its one matcher: it hides what a failover causes and nothing else. None: a silence."""

    @property
    def drilled_cluster(self) -> str:
        return self.matchers[0].value if self.drill else ""

    def matches(self, labels: Labels) -> bool:
        """Whether all matchers are true of an alert's labels."""
        return all(_is_true(matcher, labels.get(matcher.label, "")) for matcher in self.matchers)

    @property
    def over_at(self) -> int:
        return min(self.expired_at or self.ends_at, self.ends_at)

    def is_over(self, wall: int) -> bool:
        return self.expired_at > 0 or wall >= self.ends_at


class _Drill(Struct, frozen=True):
    """The JSON of a drill. It has no matchers: who writes one cannot hide more with it than a drill hides."""

    id: SilenceId
    cluster_id: Annotated[str, Meta(min_length=1, max_length=LONGEST_TEXT)]
    starts_at: _Time
    ends_at: _Time
    expects: Expectation
    author: _Name
    comment: _Text = ""
    expired_at: _Time = 0


class _Document(Struct, frozen=True):
    """Its JSON. A sidecar that does not know drills does not read them, and notifies."""

    format: int = FORMAT
    silences: list[Raw] = []
    drills: list[Raw] = []


_DOCUMENT: Final = json.Decoder(_Document)
_SILENCE: Final = json.Decoder(_Silence)
_DRILL: Final = json.Decoder(_Drill)


def read(content: bytes, longest: int) -> tuple[dict[str, StoredSilence], list[str]]:
    """The silences and drills in a document, and one line for each that is not used. `longest`: no silence lasts longer (microseconds).

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
    if document.format < 1:
        raise SilencesError("it is not a document of silences: delete it")
    number = len(document.silences) + len(document.drills)
    if number > MOST:
        raise SilencesError(f"it has {number} silences, of at most {MOST}: delete it")
    silences: dict[str, StoredSilence] = {}
    problems = []
    of_drills = ((f"drill {place}", raw, _drill) for place, raw in enumerate(document.drills, 1))
    of_silences = ((f"silence {place}", raw, _silence) for place, raw in enumerate(document.silences, 1))
    for entry, raw, decoded in (*of_silences, *of_drills):
        try:
            silence = _checked(decoded(raw), longest)
        except (DecodeError, UnicodeDecodeError, RecursionError, ValueError) as error:
            problems.append(f"{entry} of the document is not used: {clean(error)}")
        else:
            silences[silence.id] = silence
    if problem := _too_many_patterns(silences):
        raise SilencesError(f"it has {problem}: delete it")
    return silences, problems


def added(
    silences: Mapping[str, StoredSilence], silence: StoredSilence, wall: int, longest: int
) -> dict[str, StoredSilence]:
    """The silences with one more, without those that ended long ago. Raises SilencesError."""
    kept = {key: other for key, other in silences.items() if wall - other.over_at < KEPT}
    while len(kept) >= MOST and (ended := [other for other in kept.values() if other.is_over(wall)]):
        del kept[min(ended, key=lambda other: other.over_at).id]
    try:
        kept[silence.id] = _checked(silence, longest)
    except ValueError as error:
        raise SilencesError(f"cannot add the silence: {error}") from error
    if len(kept) > MOST:
        raise SilencesError(f"there are {MOST} silences already: expire one")
    if problem := _too_many_patterns(kept):
        raise SilencesError(f"all silences together would have {problem}: expire one")
    return kept


def written(silences: Mapping[str, StoredSilence]) -> bytes:
    """The document. Raises SilencesError: it is too large."""
    own, drills = (
        [silence for silence in silences.values() if bool(silence.drill) is of_drill] for of_drill in (False, True)
    )
    document = _Document(FORMAT, [*map(_raw_silence, own)], [*map(_raw_drill, drills)])
    content = json.encode(document)
    if len(content) > MOST_BYTES:
        raise SilencesError(f"all silences together would have more than {MOST_BYTES >> 10} KiB: expire one")
    return content


def drill_of(
    drill_id: SilenceId, cluster_id: str, starts_at: int, ends_at: int, expects: Expectation, author: str, comment: str
) -> StoredSilence:
    of_cluster = Matcher("cluster_id", Operator.EQUAL, cluster_id)
    return StoredSilence(drill_id, (of_cluster,), starts_at, ends_at, author, comment, drill=expects)


def _silence(raw: Raw) -> StoredSilence:
    return StoredSilence(**asdict(_SILENCE.decode(raw)))


def _drill(raw: Raw) -> StoredSilence:
    of = _DRILL.decode(raw)
    drill = drill_of(of.id, of.cluster_id, of.starts_at, of.ends_at, of.expects, of.author, of.comment)
    return replace(drill, expired_at=of.expired_at)


def _raw_silence(silence: StoredSilence) -> Raw:
    return Raw(json.encode(_Silence(**{name: getattr(silence, name) for name in _Silence.__struct_fields__})))


def _raw_drill(drill: StoredSilence) -> Raw:
    assert drill.drill  # noqa: S101  as the caller separates
    times = drill.starts_at, drill.ends_at
    of = _Drill(drill.id, drill.drilled_cluster, *times, drill.drill, drill.author, drill.comment, drill.expired_at)
    return Raw(json.encode(of))


def _checked(silence: StoredSilence, longest: int) -> StoredSilence:
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
            pattern_size(matcher.value)
        except PatternError as error:
            raise ValueError(f'the pattern of "{clean(matcher.label)}" {error}') from error
    longest = min(longest, LONGEST_DRILL) if silence.drill else longest
    return replace(silence, ends_at=min(silence.ends_at, silence.starts_at + longest))


def _patterns(silence: StoredSilence) -> Iterator[Matcher]:
    return (matcher for matcher in silence.matchers if matcher.operator in {Operator.MATCHES, Operator.MATCHES_NOT})


def _too_many_patterns(silences: Mapping[str, StoredSilence]) -> str | None:
    sizes = [pattern_size(matcher.value) for silence in silences.values() for matcher in _patterns(silence)]
    if len(sizes) > MOST_PATTERNS:
        return f"more than {MOST_PATTERNS} regular expressions"
    return "regular expressions that are too large together" if sum(sizes) > LARGEST_PATTERNS else None


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
