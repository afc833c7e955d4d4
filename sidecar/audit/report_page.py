"""What stands around the report's pictures: figures, words, tables, and what was left out."""

from collections.abc import Iterable, Sequence
from typing import Any

from msgspec import Struct

from sidecar.audit import report_charts as charts
from sidecar.audit.report_charts import plain
from sidecar.audit.report_data import LANES, STRETCHES, TABLE_ROWS, Findings, utc


class Tile(Struct, frozen=True):
    """One figure."""

    name: str
    value: str
    note: str
    tone: str = ""
    """`good`, `bad`, or neither."""


class ReportTable(Struct, frozen=True):
    """Texts in rows."""

    columns: Sequence[str]
    rows: Sequence[Sequence[str]]


class Picture(Struct, frozen=True):
    """One card of the page."""

    id: str
    title: str
    says: str
    figure: Any = None
    """Of plotly; None: there is nothing to draw."""
    key: Sequence[tuple[str, str]] = ()
    """Name and CSS class of each colour."""
    table: ReportTable | None = None
    left_out: str = ""

    @property
    def height(self) -> int:
        """Pixels that are kept free until the picture is drawn; 0: there is none."""
        return int(self.figure.layout.height) if self.figure is not None else 0


def tiles(found: Findings) -> list[Tile]:
    """The figures above the pictures."""
    led, vacant, unobserved = (
        sum(getattr(day, name) for day in found.days) for name in ("led", "vacant", "unobserved")
    )
    queued, delivered, gave_up = (sum(row[name] for row in found.alerts) for name in ("queued", "delivered", "gave_up"))
    observed = led + vacant
    lasted = found.mttr.measured
    return [
        Tile(
            "Availability",
            _percent(led, observed),
            "of the time that was observed",
            "good" if observed and not vacant else "",
        ),
        Tile("Unobserved", _percent(unobserved, observed + unobserved), "of all time; not counted as up"),
        Tile("Failovers", f"{found.mttr.failovers:,}", "one for each component that moved"),
        Tile(
            "No published leader",
            seconds(found.mttr.p50),
            f"median of a failover; 95 of 100: at most {seconds(found.mttr.p95)}; the longest: {seconds(found.mttr.longest)}"
            if lasted
            else "none measured",
        ),
        Tile("No working leader", *_downtime(found)),
        Tile("Alerts delivered", f"{delivered:,} of {queued:,}", f"{gave_up:,} given up", "bad" if gave_up else ""),
    ]


def _downtime(found: Findings) -> tuple[str, str]:
    """The longest time without a working leader, and what it means. A leader that died stays published until the store finds out."""
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
    return [
        _leadership(found),
        _failovers(found),
        _vacancies(found),
        _availability(found),
        _unobserved(found),
        _alerts(found),
    ]


def _leadership(found: Findings) -> Picture:
    shown = sum(len(lane.stretches) for lane in found.lanes)
    left_out = []
    if found.leaderships > len(found.lanes):
        left_out.append(f"Shown: the {LANES} leaderships with the most changes, of {found.leaderships:,}.")
    if any(len(lane.stretches) >= STRETCHES or len(lane.failovers) >= STRETCHES for lane in found.lanes):
        left_out.append(
            f"Of each, the {STRETCHES} longest stretches and the {STRETCHES} latest failovers: {shown:,} of {found.stretches:,} stretches."
        )
    return Picture(
        "leadership",
        "Leadership over time",
        "Who led each component. A leader has one colour in all lanes of its cluster.",
        charts.leadership(found) if found.lanes else None,
        (
            ("a leader; another colour, another one", "led"),
            ("no leader", "vacant"),
            ("unobserved", "unseen"),
            ("failover", "mark"),
        ),
        left_out=" ".join(left_out),
    )


def _failovers(found: Findings) -> Picture:
    return Picture(
        "failovers",
        "Failovers per day",
        "By cause; one for each component that moved." if found.failovers else "There was none.",
        charts.failovers(found) if found.failovers else None,
        _key(cause for _, cause, _ in found.failovers),
    )


def _vacancies(found: Findings) -> Picture:
    unknown = found.mttr.failovers - found.mttr.measured
    return Picture(
        "vacancies",
        "Time without a published leader",
        f"How long no leader was published before another leader took over: {found.mttr.measured:,} failovers."
        + (f" Of {unknown:,} more it is not known: no vacancy was seen, or not its beginning." if unknown else ""),
        charts.vacancies(found) if found.vacancies else None,
        _key(component for component, _, _ in found.vacancies),
    )


def _availability(found: Findings) -> Picture:
    rows = [
        (
            plain(row.cluster_id),
            plain(row.component),
            _percent(row.availability, 1),
            seconds(row.vacant),
            seconds(row.unobserved),
        )
        for row in found.worst
    ]
    return Picture(
        "availability",
        "Availability",
        f"Each day of all leaderships together: led, without a leader, and unobserved. {_known(found)}".strip()
        if found.days
        else "Not known: no observer has recorded what it could see.",
        charts.availability(found) if found.days else None,
        (("led", "up"), ("no leader", "vacant"), ("unobserved", "unseen")) if found.days else (),
        table=ReportTable(("Cluster", "Component", "Availability", "No leader", "Unobserved"), rows),
        left_out=f"The table: the {TABLE_ROWS} that were least available, of those that were not led and seen all the time."
        if rows
        else "",
    )


def _unobserved(found: Findings) -> Picture:
    rows = [
        (
            plain(row.cluster_id),
            plain(row.component or "all"),
            _minute(row.began_at),
            _minute(row.ended_at),
            seconds(row.seconds),
        )
        for row in found.gaps
    ]
    if rows:
        says = f"The longest stretches in which no observer could see a cluster, or read a component's entry, {TABLE_ROWS} at most."
    elif found.known_until is None:
        says = "Not known of every cluster: no observer has recorded yet what it could see."
    else:
        says = "From the first that is recorded of each cluster on, somebody could see it all the time."
    return Picture(
        "unobserved",
        "Out of sight",
        f"{says} {_known(found)}".strip(),
        table=ReportTable(("Cluster", "Component", "From (UTC)", "To (UTC)", "For"), rows),
    )


def _known(found: Findings) -> str:
    """Until when what is said of sight holds."""
    if found.known_until is None or found.known_until >= found.end:
        return ""
    until = _minute(found.known_until)
    return f"Of each cluster this is known until its last coverage record (the earliest: {until} UTC); later time is in no figure yet."


def _alerts(found: Findings) -> Picture:
    rows = [
        (
            plain(row.destination),
            f"{row.queued:,}",
            f"{row.delivered:,}",
            f"{row.gave_up:,}",
            f"{row.duplicates:,}",
            f"{row.attempts:,}",
            seconds(row.p50),
            seconds(row.p95),
        )
        for row in found.alerts
    ]
    columns = ("Destination", "Queued", "Delivered", "Given up", "Maybe twice", "Most attempts", "Median", "95 of 100")
    return Picture(
        "delays",
        "Alert delays",
        "From queued to delivered." if rows else "No alert was queued.",
        charts.delays(found) if found.delays else None,
        table=ReportTable(columns, rows),
        left_out=f"The table: the {TABLE_ROWS} destinations with the most alerts." if len(rows) >= TABLE_ROWS else "",
    )


def key_style() -> str:
    """The colours of the keys, as those of the charts."""
    return "".join(f".key .{_style_of(name)} {{ background: {colour}; }}\n" for name, colour in charts.COLOURS.items())


def _key(names: Iterable[str]) -> list[tuple[str, str]]:
    return [(plain(name), _style_of(name)) for name in charts.in_order(names)]


def _style_of(name: str) -> str:
    return name.replace(" ", "_") if name in charts.COLOURS else "led"


def seconds(value: float | None) -> str:
    """A duration for people: `840 ms`, `1.5 s`, `2 min 5 s`, `3 h 20 min`, `2 d 4 h`."""
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
    """Rounded down: what was not all is never shown as 100 %."""
    if part is None or not whole:
        return "\N{EN DASH}"
    return f"{int(part / whole * 1_000_000) / 10_000:.4f}".rstrip("0").rstrip(".") + " %"


def _minute(at: Any) -> str:
    return f"{utc(at):%Y-%m-%d %H:%M:%S}"
