"""The content of the report around its charts: tiles, texts, tables, and notes on what is not shown."""

from collections.abc import Iterable, Sequence
from typing import Any

from msgspec import Struct

from sidecar.audit import report_charts as charts
from sidecar.audit.report_charts import plain
from sidecar.audit.report_data import INTERVALS, LANES, TABLE_ROWS, Findings, utc


class Tile(Struct, frozen=True):
    """One figure at the top of the page."""

    name: str
    value: str
    note: str
    tone: str = ""
    """`good`, `bad`, or neither."""


class ReportTable(Struct, frozen=True):
    """A table of texts."""

    columns: Sequence[str]
    rows: Sequence[Sequence[str]]


class Picture(Struct, frozen=True):
    """One card of the page."""

    id: str
    title: str
    text: str
    figure: Any = None
    """A plotly figure; None: there is nothing to draw."""
    key: Sequence[tuple[str, str]] = ()
    """Name and CSS class of each colour."""
    table: ReportTable | None = None
    note: str = ""
    """What is not shown."""

    @property
    def height(self) -> int:
        """Pixels reserved until the chart is drawn; 0: there is none."""
        return int(self.figure.layout.height) if self.figure is not None else 0


def tiles(found: Findings) -> list[Tile]:
    """The figures above the charts."""
    led, vacant, unobserved = (
        sum(getattr(day, name) for day in found.days) for name in ("led", "vacant", "unobserved")
    )
    queued, delivered, gave_up = (sum(row[name] for row in found.alerts) for name in ("queued", "delivered", "gave_up"))
    observed = led + vacant
    mttr, durations = found.mttr, "none measured"
    if mttr.measured:
        durations = (
            f"median of a failover; 95 of 100: at most {seconds(mttr.p95)}; the longest: {seconds(mttr.longest)}"
        )
    tone = "good" if observed and not vacant else ""
    return [
        Tile("Availability", _percent(led, observed), "of the time that was observed", tone),
        Tile("Unobserved", _percent(unobserved, observed + unobserved), "of all time; not counted as up"),
        Tile("Failovers", f"{mttr.failovers:,}", "one for each component that failed over"),
        Tile("No published leader", seconds(mttr.p50), durations),
        Tile("No working leader", *_downtime(found)),
        Tile("Alerts delivered", f"{delivered:,} of {queued:,}", f"{gave_up:,} given up", "bad" if gave_up else ""),
    ]


def _downtime(found: Findings) -> tuple[str, str]:
    """The longest time without a working leader, and a note. A dead leader stays published until the store detects its death."""
    mttr = found.mttr
    if mttr.down_at_least is None:
        return seconds(None), "none measured"
    unknown = f"; no upper bound is known of {mttr.without_downtime:,}" if mttr.without_downtime else ""
    if mttr.down_at_most is None:
        return f"over {seconds(mttr.down_at_least)}", f"the longest failover{unknown}"
    least, most = seconds(mttr.down_at_least), seconds(max(mttr.down_at_least, mttr.down_at_most))
    return least if least == most else f"{least} to {most}", f"the longest failover{unknown}"


def pictures(found: Findings) -> list[Picture]:
    """The cards, in the order of the page."""
    cards = (_leadership, _failovers, _vacancies, _availability, _unobserved, _alerts)
    return [card(found) for card in cards]


def _leadership(found: Findings) -> Picture:
    shown = sum(len(lane.intervals) for lane in found.lanes)
    notes = []
    if found.leaderships > len(found.lanes):
        notes.append(f"Shown: the {LANES} leaderships with the most changes, of {found.leaderships:,}.")
    if any(max(len(lane.intervals), len(lane.failovers)) >= INTERVALS for lane in found.lanes):
        notes.append(
            f"Of each, the {INTERVALS} longest intervals and the {INTERVALS} latest failovers: {shown:,} of {found.intervals:,} intervals."
        )
    return Picture(
        "leadership",
        "Leadership over time",
        "The leader of each component. A leader has the same colour in all lanes of its cluster.",
        charts.leadership(found) if found.lanes else None,
        (
            ("a leader; a new colour is a new leader", "led"),
            ("no leader", "vacant"),
            ("unobserved", "unseen"),
            ("failover", "mark"),
        ),
        note=" ".join(notes),
    )


def _failovers(found: Findings) -> Picture:
    return Picture(
        "failovers",
        "Failovers per day",
        "By cause; one for each component that failed over." if found.failovers else "No failovers.",
        charts.failovers(found) if found.failovers else None,
        _key(cause for _, cause, _ in found.failovers),
    )


def _vacancies(found: Findings) -> Picture:
    unknown = found.mttr.failovers - found.mttr.measured
    return Picture(
        "vacancies",
        "Time without a published leader",
        f"How long no leader was published before another leader took over: {found.mttr.measured:,} failovers."
        + (f" Unknown for {unknown:,} more: no vacancy was observed, or not its beginning." if unknown else ""),
        charts.vacancies(found) if found.vacancies else None,
        _key(component for component, _, _ in found.vacancies),
    )


def _availability(found: Findings) -> Picture:
    rows = [
        _row(row, _percent(row.availability, 1), seconds(row.vacant), seconds(row.unobserved)) for row in found.worst
    ]
    text = "Unknown: no coverage was recorded."
    if found.days:
        text = f"Each day, over all leaderships: led, without a leader, and unobserved. {_known(found)}".strip()
    return Picture(
        "availability",
        "Availability",
        text,
        charts.availability(found) if found.days else None,
        (("led", "up"), ("no leader", "vacant"), ("unobserved", "unseen")) if found.days else (),
        table=ReportTable(("Cluster", "Component", "Availability", "No leader", "Unobserved"), rows),
        note=f"The table: the {TABLE_ROWS} components with the lowest availability, if below 100 % or not always observed."
        if rows
        else "",
    )


def _unobserved(found: Findings) -> Picture:
    rows = [_row(row, _utc_text(row.began_at), _utc_text(row.ended_at), seconds(row.seconds)) for row in found.gaps]
    if rows:
        text = f"The longest times in which no observer was connected, or a component's entry was unreadable, {TABLE_ROWS} at most."
    elif found.known_until is None:
        text = "Unknown: not every cluster has a coverage record yet."
    else:
        text = "Observed without a gap since the first coverage record of each cluster."
    return Picture(
        "unobserved",
        "Unobserved",
        f"{text} {_known(found)}".strip(),
        table=ReportTable(("Cluster", "Component", "From (UTC)", "To (UTC)", "For"), rows),
    )


def _row(row: Any, *cells: str) -> tuple[str, ...]:
    return plain(row.cluster_id), plain(row.component or "all"), *cells


def _known(found: Findings) -> str:
    """A note on the end of the coverage records; empty if they cover the period."""
    if found.known_until is None or found.known_until >= found.end:
        return ""
    until = _utc_text(found.known_until)
    return f"Each cluster is known until its last coverage record (the earliest: {until} UTC); later time is in no figure yet."


def _alerts(found: Findings) -> Picture:
    counts = ("queued", "delivered", "gave_up", "duplicates", "attempts")
    rows = [
        (plain(row.destination), *(f"{row[name]:,}" for name in counts), seconds(row.p50), seconds(row.p95))
        for row in found.alerts
    ]
    columns = ("Destination", "Queued", "Delivered", "Given up", "Maybe twice", "Most attempts", "Median", "95 of 100")
    return Picture(
        "delays",
        "Alert delays",
        "The time from queued to delivered." if rows else "No alert was queued.",
        charts.delays(found) if found.delays else None,
        table=ReportTable(columns, rows),
        note=f"The table: the {TABLE_ROWS} destinations with the most alerts." if len(rows) >= TABLE_ROWS else "",
    )


def key_style() -> str:
    """CSS that gives the keys the colours of the charts."""
    return "".join(f".key .{_style_of(name)} {{ background: {colour}; }}\n" for name, colour in charts.COLOURS.items())


def _key(names: Iterable[str]) -> list[tuple[str, str]]:
    return [(plain(name), _style_of(name)) for name in charts.in_order(names)]


def _style_of(name: str) -> str:
    return name.replace(" ", "_") if name in charts.COLOURS else "led"


def seconds(value: float | None) -> str:
    """A readable duration: `840 ms`, `1.5 s`, `2 min 5 s`, `3 h 20 min`, `2 d 4 h`."""
    if value is None:
        return "\N{EN DASH}"
    if 0 < value < 1:
        return f"{value * 1000:.0f} ms"
    if value < 60:
        return f"{value:.1f}".removesuffix(".0") + " s"
    whole = round(value)
    for size, name, part, smaller in ((86400, "d", 3600, "h"), (3600, "h", 60, "min"), (60, "min", 1, "s")):
        if whole >= size:
            rest = whole % size // part
            return f"{whole // size} {name}" + (f" {rest} {smaller}" if rest else "")
    raise AssertionError(value)


def _percent(part: float | None, whole: float) -> str:
    """Rounded down: only the whole is shown as 100 %."""
    if part is None or not whole:
        return "\N{EN DASH}"
    return f"{int(part / whole * 1_000_000) / 10_000:.4f}".rstrip("0").rstrip(".") + " %"


def _utc_text(at: Any) -> str:
    return f"{utc(at):%Y-%m-%d %H:%M:%S}"
