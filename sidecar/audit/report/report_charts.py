"""The report's pictures: what each consists of, and its SVG without scripts. Its classes get their colours from report.css, its widths are
parts of the page's.

Text from a cluster is untrusted. `element` escapes every text and attribute.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from itertools import count
from typing import Final

from markupsafe import Markup, escape
from msgspec import Struct

TABLE_ROWS: Final = 20
"""The maximum number of rows of a table that does not belong to the bars of a chart."""
MEANT: Final = (("planned", "planned"), ("not planned", "unplanned"), ("not known", "unknown"))
"""Whether failovers were planned: words, and CSS class."""


class ReportTable(Struct, frozen=True):
    """A table of texts. The first cell of a row is its heading."""

    caption: str
    columns: Sequence[str]
    rows: Sequence[Sequence[str]]


class Card(Struct, frozen=True):
    """A picture with its numbers."""

    title: str
    text: str
    picture: Markup | None = None
    """None: there is nothing to draw."""
    key: Sequence[tuple[str, Markup]] = ()
    tables: Sequence[ReportTable] = ()
    width: str = ""
    """`wide` or `double`."""


_HEIGHT: Final = 116
"""The height of the bars, in pixels."""
_AXIS: Final = 20
"""The height of the labels below them."""
_TOP: Final = 8
"""Above them: half a line of text."""
_SCALE: Final = 58
"""The width of the labels beside them."""
_LANE: Final = 27
_LANE_BAR: Final = 9
_CAUSE: Final = 25
_BAR_PART: Final = 0.82
LABELS: Final = 4
"""The maximum number of labels below a chart."""
_GRID_LINES: Final = 4
_STEPS: Final = (1, 2, 3, 6, 12, 24, 48, 7 * 24, 14 * 24, 28 * 24, 91 * 24, 182 * 24)
"""Hours between two labels of a time axis."""


class Series(Struct, frozen=True):
    """One colour of a bar chart."""

    name: str
    look: str
    """CSS class."""
    values: Sequence[float]
    """One for each bar."""


class Span(Struct, frozen=True):
    """A stretch of a lane."""

    look: str
    began: datetime
    ended: datetime
    title: str


class Mark(Struct, frozen=True):
    """Failovers at a place of a lane."""

    look: str
    at: datetime
    many: bool
    title: str


class LaneOf(Struct, frozen=True):
    """One lane: spans, then marks on them."""

    name: str
    spans: Sequence[Span]
    marks: Sequence[Mark]


def element(tag: str, *content: str, **attributes: object) -> Markup:
    """An SVG or HTML element. `class_` and `text_anchor` are written `class` and `text-anchor`; None leaves an attribute out."""
    texts = (
        f' {name.rstrip("_").replace("_", "-")}="{escape(value)}"'
        for name, value in attributes.items()
        if value is not None
    )
    return Markup(f"<{tag}{''.join(texts)}>{''.join(map(escape, content))}</{tag}>")  # noqa: S704  all parts are escaped


def bars(
    title: str,
    names: Sequence[str],
    labels: Mapping[float, str],
    series: Sequence[Series],
    written: Callable[[float], str],
    *,
    beside: bool = False,
    whole: bool = False,
) -> Markup:
    """A bar for each of `names`, with the series on top of each other, or `beside` each other.

    `labels` stand below the chart, by their distance from the left in bars. `written` is the text of a value; `whole`: values are counts.
    """
    sums = [max(values) if beside else sum(values) for values in zip(*(bar.values for bar in series), strict=True)]
    grid = _grid(max(sums, default=0), whole=whole)

    def height(value: float) -> float:
        return _TOP + _HEIGHT * (1 - value / grid[-1])

    area = [_line("grid", height(value)) for value in grid]
    for number, name in enumerate(names):
        parts = _bar(number / len(names), 1 / len(names), [bar.values[number] for bar in series], height, beside)
        if rects := [element("rect", class_=series[at].look, **shape) for at, shape in parts]:
            values = (f"{bar.name} {written(bar.values[number])}" for bar in series if bar.values[number])
            area.append(element("g", element("title", f"{name}: {', '.join(values)}"), *rects))
    area += [_label(at / len(names), text, _TOP + _HEIGHT + 15, first="middle") for at, text in labels.items()]
    scale = [
        element("text", written(value), x=_SCALE - 6, y=height(value) + 4, text_anchor="end")
        for value in (grid if len(grid) <= _GRID_LINES else grid[::2])
    ]
    total = _TOP + _HEIGHT + _AXIS
    return element(
        "div",
        element("svg", *scale, class_="scale", width=_SCALE, height=total, aria_hidden="true"),
        _svg(title, total, area),
        class_="plot",
    )


def lanes(title: str, begin: datetime, end: datetime, drawn: Sequence[LaneOf]) -> Markup:
    """Lanes below each other, on one axis of time."""
    length = end - begin

    def x(at: datetime) -> float:
        return (at - begin) / length

    area = [
        element("rect", class_="grid", x=_part(x(at)), y=0, width=1, height=len(drawn) * _LANE)
        for at in _times(begin, end)
    ]
    for number, lane in enumerate(drawn):
        y = number * _LANE + 16
        area.append(element("text", lane.name, class_="name", x=0, y=y - 4))
        area.append(element("rect", class_="track", x=0, y=y, width="100%", height=_LANE_BAR, rx=3))
        for span in lane.spans:
            shape = {"x": _part(x(span.began)), "width": _part(x(span.ended) - x(span.began))}
            rect = element("rect", element("title", span.title), class_=span.look, y=y, height=_LANE_BAR, **shape)
            area.append(rect)
        for mark in lane.marks:
            place: dict[str, object] = {"cx": _part(x(mark.at)), "cy": y + _LANE_BAR / 2, "r": 6 if mark.many else 4.5}
            area.append(element("circle", element("title", mark.title), class_=f"mark {mark.look}", **place))
    height = len(drawn) * _LANE + _AXIS
    area += [_label(x(at), _time_label(at, length), height - 6) for at in _times(begin, end)]
    return element("div", _svg(title, height, area), class_="plot")


def rows(title: str, counts: Mapping[str, Sequence[Series]]) -> Markup:
    """A horizontal bar for each name: its series, each of one value, one after the other."""
    longest = max(sum(part.values[0] for part in series) for series in counts.values())
    area = list[Markup]()
    for number, (name, series) in enumerate(counts.items()):
        y, left = number * _CAUSE + 15, 0.0
        total = sum(part.values[0] for part in series)
        area.append(element("text", name, class_="name", x=0, y=y - 4))
        area.append(element("text", f"{total:,.0f}", class_="name", x="100%", y=y - 4, text_anchor="end"))
        for part in series:
            width = part.values[0] / longest
            label = element("title", f"{name}: {part.values[0]:,.0f} {part.name}")
            if width:
                area.append(element("rect", label, class_=part.look, x=_part(left), y=y, width=_part(width), height=8))
            left += width
    return element("div", _svg(title, len(counts) * _CAUSE, area), class_="plot")


def steps(title: str, ends: Mapping[str, float], written: Callable[[float], str]) -> Markup:
    """A horizontal bar for each step, which begins where the one before ended. `written` is the text of a time since the beginning."""
    longest, left, area = max(ends.values()) or 1.0, 0.0, list[Markup]()
    for number, (name, end) in enumerate(ends.items()):
        y = number * _CAUSE + 15
        area.append(element("text", name, class_="name", x=0, y=y - 4))
        area.append(element("text", written(end), class_="name", x="100%", y=y - 4, text_anchor="end"))
        area.append(element("rect", class_="track", x=0, y=y, width="100%", height=8))
        width = _part(max((end - left) / longest, 0.002))  # A very short step stays visible.
        label = element("title", f"{name}: after {written(end)}")
        area.append(element("rect", label, class_="vacant", x=_part(left / longest), y=y, width=width, height=8))
        left = max(left, end)
    return element("div", _svg(title, len(ends) * _CAUSE, area), class_="plot")


def swatch(look: str, *, mark: bool = False) -> Markup:
    """The colour of a key."""
    shape = (
        element("circle", class_=f"mark {look}", cx=7, cy=7, r=4.5)
        if mark
        else element("rect", class_=look, x=1, y=2, width=12, height=10)
    )
    return element("svg", shape, width=14, height=14, aria_hidden="true")


def _bar(
    left: float, width: float, values: Sequence[float], height: Callable[[float], float], beside: bool
) -> Iterable[tuple[int, dict[str, object]]]:
    """The rectangles of one bar, each with the number of its series."""
    wide = width * _BAR_PART / (len(values) if beside else 1)
    low = 0.0
    for number, value in enumerate(values):
        if value:
            x = left + width * (1 - _BAR_PART) / 2 + (number * wide if beside else 0)
            top, bottom = height(low + value), height(low)
            # A very small value stays visible.
            shape = {"x": _part(x), "y": round(min(top, bottom - 1.5), 2), "width": _part(wide)}
            yield number, shape | {"height": round(max(bottom - top, 1.5), 2)}
        low += 0.0 if beside else value


def _svg(title: str, height: float, area: Iterable[Markup]) -> Markup:
    return element("svg", *area, class_="area", height=height, role="img", aria_label=title)


def _line(look: str, y: float) -> Markup:
    return element("rect", class_=look, x=0, y=round(y, 2), width="100%", height=1)


def _label(at: float, text: str, y: float, first: str = "start") -> Markup:
    """A text below a chart, which stays inside of it; the `first` one may reach below the scale."""
    anchor = first if at < 0.04 else "end" if at > 0.96 else "middle"
    return element("text", text, x=_part(at), y=y, text_anchor=anchor)


def _part(of_width: float) -> str:
    return f"{of_width * 100:.3f}".rstrip("0").rstrip(".") + "%"


def _grid(largest: float, *, whole: bool) -> list[float]:
    """The values of the grid lines, from 0 to the first one that is not below `largest`."""
    step = _step(largest, whole=whole)
    return [number * step for number in range(max(1, _ceil(largest / step)) + 1)]


def _step(largest: float, *, whole: bool) -> float:
    """A round distance of grid lines, of which at most five fit below `largest`."""
    if not largest:
        return 1.0 if whole else 0.01
    for power in count(-9):
        for factor in (1, 2, 5):
            step = float(f"{factor}e{power}")
            if largest <= step * _GRID_LINES and (step >= 1 or not whole):
                return step
    raise AssertionError(largest)


def _ceil(value: float) -> int:
    return -int(-value // 1)


def _times(begin: datetime, end: datetime) -> list[datetime]:
    """The labels of a time axis: round UTC times."""
    hours = (end - begin) / timedelta(hours=1)
    step = next((step for step in _STEPS if hours / step <= LABELS), 364 * 24 * (int(hours / 364 / 24 / LABELS) + 1))
    return [begin + timedelta(hours=step) * number for number in range(int(hours / step) + 1)]


def _time_label(at: datetime, length: timedelta) -> str:
    if at.hour:
        return f"{at:%H:%M}"
    return f"{at:%b %Y}" if length > timedelta(days=400) else day_label(at)


def day_label(at: datetime) -> str:
    """A day, short."""
    return f"{at.day} {at:%b}"
