"""The report's pictures as SVG: where bars and marks are, which labels they have, and that no text is markup. Without Spark."""

import re
from datetime import UTC, datetime, timedelta

import pytest

from sidecar.audit.report import report_charts as charts
from sidecar.audit.report.report_charts import LaneOf, Mark, Series, Span

BEGIN = datetime(2026, 7, 1, tzinfo=UTC)
HOSTILE = "</text><script>alert(1)</script>\"'&"


def rectangles(svg: str, look: str) -> list[dict[str, float]]:
    """Position and size of the rectangles of a class: parts of the width in percent, pixels of the height."""
    found = re.findall(rf'<rect class="{look}" ([^>]*)>', svg)
    return [{name: float(value) for name, value in re.findall(r'(\w+)="([\d.]+)%?"', each)} for each in found]


def test_bars_are_as_high_as_their_values() -> None:
    """On top of each other, below the highest grid line; nothing is drawn for 0, and a very small value can be seen."""
    series = [Series("one", "a", [2, 0, 0.001, 0]), Series("two", "b", [2, 1, 0, 0])]
    svg = charts.bars("Title", ["p", "q", "r", "s"], {0.5: "first"}, series, "{:g}".format, whole=True)
    (first, small), (top, second) = rectangles(svg, "a"), rectangles(svg, "b")
    full = first["height"] + top["height"]
    assert (first["height"], second["height"]) == (full / 2, full / 4)
    assert top["y"] + top["height"] == first["y"]
    assert small["height"] == 1.5
    assert (first["x"], second["x"], small["x"]) == pytest.approx((2.25, 27.25, 52.25))
    assert re.findall(r"<title>(.*?)</title>", svg) == ["p: one 2, two 2", "q: two 1", "r: one 0.001"]
    assert re.findall(r'text-anchor="end">(.*?)<', svg) == ["0", "2", "4"]


def test_bars_may_stand_beside_each_other() -> None:
    """Then the scale is that of the highest."""
    svg = charts.bars(
        "Title", ["p"], {}, [Series("one", "a", [4]), Series("two", "b", [3])], "{:g}".format, beside=True
    )
    (one,), (two,) = rectangles(svg, "a"), rectangles(svg, "b")
    assert one["y"] + one["height"] == two["y"] + two["height"]
    assert two["height"] == pytest.approx(one["height"] * 3 / 4)
    assert two["x"] == pytest.approx(one["x"] + one["width"])


def test_a_step_begins_where_the_one_before_ended() -> None:
    """What took no time stays visible, and what was earlier than the step before does not begin before it ended."""
    svg = charts.steps("Title", {"seen": 5.0, "led": 5.0, "late": 4.0, "running": 20.0}, "{:g} s".format)
    assert [(rectangle["x"], rectangle["width"]) for rectangle in rectangles(svg, "vacant")] == [
        *((0, 25), (25, 0.2), (25, 0.2)),
        (25, 75),
    ]
    assert re.findall(r'text-anchor="end">(.*?)<', svg) == ["5 s", "5 s", "4 s", "20 s"]


@pytest.mark.parametrize(
    ("largest", "labels"),
    [
        (0, ["0", "1"]),
        (1, ["0", "1"]),
        (3, ["0", "1", "2", "3"]),
        (7, ["0", "4", "8"]),
        (10_000, ["0", "5,000", "10,000"]),
    ],
)
def test_the_scale_of_counts_is_round(largest: int, labels: list[str]) -> None:
    """Whole numbers, and few of them."""
    svg = charts.bars("Title", ["p"], {}, [Series("one", "a", [largest])], "{:,.0f}".format, whole=True)
    assert re.findall(r'text-anchor="end">(.*?)<', svg) == labels


def test_a_lane_shows_when() -> None:
    """Spans and marks by their place in the period; the labels are whole days or hours."""
    day = timedelta(days=1)
    lane = LaneOf(
        "orders",
        [Span("vacant", BEGIN + 45 * day, BEGIN + 54 * day, "gone")],
        [Mark("planned", BEGIN + 9 * day, True, "two")],
    )
    svg = charts.lanes("Title", BEGIN, BEGIN + 90 * day, [lane])
    (span,) = rectangles(svg, "vacant")
    assert (span["x"], span["width"]) == (50, 10)
    assert '<circle class="mark planned" cx="10%"' in svg
    assert re.findall(r">(\d+ \w+)</text>", svg) == ["1 Jul", "29 Jul", "26 Aug", "23 Sep"]
    short = charts.lanes("Title", BEGIN, BEGIN + timedelta(hours=8.5), [lane])
    assert re.findall(r">([\w: ]+)</text>", short)[1:] == ["1 Jul", "03:00", "06:00"]
    years = charts.lanes("Title", BEGIN, BEGIN + 4000 * day, [lane])
    assert len(re.findall(r">\w+ 20\d\d</text>", years)) in range(3, 7)


def test_causes_share_one_scale() -> None:
    """The longest fills the width; its parts follow each other."""
    svg = charts.rows(
        "Title", {"x": [Series("one", "a", [1]), Series("two", "b", [3])], "y": [Series("one", "a", [2])]}
    )
    (first, second), (part,) = rectangles(svg, "a"), rectangles(svg, "b")
    assert (first["width"], part["x"], part["width"], second["width"]) == (25, 25, 75, 50)


def test_no_text_is_markup() -> None:
    """Names, titles, labels."""
    lane = LaneOf(HOSTILE, [Span(HOSTILE, BEGIN, BEGIN, HOSTILE)], [Mark(HOSTILE, BEGIN, False, HOSTILE)])
    series = [Series(HOSTILE, HOSTILE, [1])]
    for svg in (
        charts.lanes(HOSTILE, BEGIN, BEGIN + timedelta(days=1), [lane]),
        charts.bars(HOSTILE, [HOSTILE], {0: HOSTILE}, series, str),
        charts.rows(HOSTILE, {HOSTILE: series}),
        charts.swatch(HOSTILE),
    ):
        assert "<script" not in svg
        assert svg.count("</text>") == svg.count("<text")
        assert '""' not in svg
