"""Timelines as pictures: spans of time become the columns of an SVG, so that its size is bounded however much happened."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Final

from msgspec import Struct

from sidecar.core.moment import SECOND, Timestamp, age, seconds, timestamp
from sidecar.core.views.timeline import Span, SpanState, totals

COLUMNS: Final = 288
"""Of a picture. What is shorter than a column is as wide as one; a column shows the worst of what was in it."""
COLOURS: Final = 6
"""Of leaders; further ones share them."""
TICKS: Final = 5
"""Of the axis."""
SPANS_IN_TEXT: Final = 10
"""The latest of a row, in its text alternative."""
_MARK_COLUMNS: Final = 12
"""Marks closer than this are one."""
_NARROWEST_NAME: Final = 26
"""Columns of a leader's time that shows its name."""
_LINE: Final = "M{x} 7h{w}"
"""A thick line is a rectangle. The style sheet sets its thickness: the states differ in shape too."""


class Path(Struct, frozen=True):
    """All columns of one kind; `kind` is a class of the style sheet."""

    kind: str
    d: str


class Name(Struct, frozen=True):
    """A leader's name where there is room for it. Per cent of the width."""

    left: float
    width: float
    text: str


class TextSpan(Struct, frozen=True):
    """One span in the text alternative."""

    start: Timestamp
    what: str
    for_long: str


class Row(Struct, frozen=True):
    """One component's picture."""

    label: str
    title: str
    """The picture in one sentence."""
    summary: str
    """What is worth reading beside it, and not of all rows."""
    paths: Sequence[Path]
    names: Sequence[Name]
    text: Sequence[TextSpan]
    left_out: int
    """Earlier spans that `text` does not have."""


class Mark(Struct, frozen=True):
    """Something that happened at one moment, with a link if it has a page of its own."""

    left: float
    """Per cent of the width."""
    kind: str
    text: str
    link: str | None


class Happening(Struct, frozen=True):
    """A mark before it is placed."""

    at: int
    kind: str
    text: str
    link: str | None = None


class Picture(Struct, frozen=True):
    """The rows of one cluster, or of one failover, over the same time."""

    ticks: Sequence[Timestamp]
    """At equal distances, the first at its left end, the last at its right one."""
    summary: str
    """What is worth reading of all rows, as far as it is the same."""
    rows: Sequence[Row]
    marks: Sequence[Mark]
    leaders: Sequence[tuple[str, str]]
    """The class and the name of each leader that is shown."""


def drawn(rows: Mapping[str, Sequence[Span]], happenings: Iterable[Happening], start: int, end: int) -> Picture:
    """The picture of spans by label, from `start` to `end` (wall)."""
    leaders = list(dict.fromkeys(span.leader for spans in rows.values() for span in spans if span.leader))
    kinds = {leader: f"led{place % COLOURS}" for place, leader in enumerate(leaders)}
    vacancies = {label: _vacancies(spans) for label, spans in rows.items()}
    gaps = {label: _gaps(spans) for label, spans in rows.items()}
    of_all = [next(iter(texts.values())) for texts in (vacancies, gaps) if len(set(texts.values())) == 1]
    return Picture(
        [timestamp(start + (end - start) * tick // (TICKS - 1)) for tick in range(TICKS)],
        ", ".join(filter(None, of_all)),
        [_row(label, spans, kinds, of_all, start, end) for label, spans in rows.items()],
        _marks(happenings, start, end),
        [(kinds[leader], leader) for leader in leaders[:COLOURS]],
    )


def _row(
    label: str, spans: Sequence[Span], kinds: Mapping[str, str], of_all: Collection[str], start: int, end: int
) -> Row:
    columns = _columns(spans, start, end)
    leaders = [leader for leader in dict.fromkeys(span.leader for span in spans) if leader]
    more = f" and {len(leaders) - COLOURS} more" if len(leaders) > COLOURS else ""
    led = f"led by {', '.join(leaders[:COLOURS])}{more}" if leaders else "no leader seen"
    parts = [_vacancies(spans), _gaps(spans)]
    text = [TextSpan(timestamp(span.start), _state_words(span), _for_long(span)) for span in spans[-SPANS_IN_TEXT:]]
    return Row(
        label,
        f"{label}: {', '.join(filter(None, [led, *parts]))}",
        ", ".join(part for part in parts if part and part not in of_all),
        _paths(columns, kinds),
        _names(columns),
        text,
        len(spans) - len(text),
    )


Column = tuple[SpanState, str | None]


def _columns(spans: Sequence[Span], start: int, end: int) -> list[Column]:
    """The worst that was in each column: no leader, then blindness, then the last leader."""
    columns: list[Column] = [(SpanState.UNRECORDED, None)] * COLUMNS
    for state in (SpanState.HELD, SpanState.BLIND, SpanState.VACANT):
        for span in spans:
            if span.state is state:
                first = min((span.start - start) * COLUMNS // max(1, end - start), COLUMNS - 1)
                last = min(-((start - span.end) * COLUMNS // max(1, end - start)), COLUMNS)
                last = max(last, first + 1)
                columns[first:last] = [(span.state, span.leader)] * (last - first)
    return columns


def _runs(columns: Sequence[Column]) -> Iterable[tuple[int, int, Column]]:
    """Equal neighbours: where they begin, how many they are, and what they show."""
    begin = 0
    for place in range(1, len(columns) + 1):
        if place == len(columns) or columns[place] != columns[begin]:
            yield begin, place - begin, columns[begin]
            begin = place


def _paths(columns: Sequence[Column], kinds: Mapping[str, str]) -> list[Path]:
    lines: dict[str, list[str]] = {}
    for begin, width, (state, leader) in _runs(columns):
        if state is not SpanState.UNRECORDED:
            kind = kinds[leader] if leader else state.value
            lines.setdefault(kind, []).append(_LINE.format(x=begin, w=width))
    return [Path(kind, "".join(parts)) for kind, parts in lines.items()]


def _names(columns: Sequence[Column]) -> list[Name]:
    return [
        Name(round(begin / COLUMNS * 100, 2), round(width / COLUMNS * 100, 2), leader)
        for begin, width, (_, leader) in _runs(columns)
        if leader and width >= _NARROWEST_NAME
    ]


def _vacancies(spans: Sequence[Span]) -> str:
    """How often there was no leader, and for how long; empty: never."""
    number, total = totals(spans).get(SpanState.VACANT, (0, 0))
    if number == 1:
        return f"no leader once, {_duration(total)}"
    return f"no leader {number} times, {_duration(total)} in all" if number else ""


def _gaps(spans: Sequence[Span]) -> str:
    """For how long nothing is known; empty: not worth a word."""
    sums = totals(spans)
    words = {SpanState.BLIND: "not seen for", SpanState.UNRECORDED: "no records of"}
    lasted = {state: sums.get(state, (0, 0))[1] for state in words}
    return ", ".join(f"{words[state]} {_duration(total)}" for state, total in lasted.items() if total >= SECOND)


def _state_words(span: Span) -> str:
    return span.leader or {
        SpanState.VACANT: "no leader",
        SpanState.BLIND: "cannot be seen",
        SpanState.UNRECORDED: "no records",
    }.get(span.state, "?")


def _for_long(span: Span) -> str:
    return _duration(span.end - span.start)


def _duration(micros: int) -> str:
    """Exact where it is short."""
    return seconds(micros) if micros < 60 * SECOND else age(micros)


def _marks(happenings: Iterable[Happening], start: int, end: int) -> list[Mark]:
    """At most one in each few columns: of several the latest, with their number."""
    places: dict[tuple[int, str], list[Happening]] = {}
    for happening in sorted(happenings, key=lambda happening: happening.at):
        if start <= happening.at <= end:
            column = (happening.at - start) * COLUMNS // max(1, end - start)
            places.setdefault((column // _MARK_COLUMNS, happening.kind), []).append(happening)
    marks = []
    for together in places.values():
        last = together[-1]
        text = last.text if len(together) == 1 else f"{len(together)} here, the last: {last.text}"
        left = round((last.at - start) / max(1, end - start) * 100, 2)
        marks.append(Mark(left, last.kind, text, last.link))
    return marks
