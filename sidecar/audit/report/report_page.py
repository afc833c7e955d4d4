"""The report's pictures: the texts around each, a table with its numbers, and notes on what is not shown.

Of why JobManagers ended and of what came back, what nobody knows stands apart, and is never good.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from datetime import timedelta
from itertools import pairwise
from typing import Any, Final, NamedTuple

from sidecar.audit.report import report_charts as charts
from sidecar.audit.report.report_charts import MEANT, TABLE_ROWS, Card, LaneOf, Mark, ReportTable, Series, Span
from sidecar.audit.report.report_data import (
    EDGES,
    LANES,
    NOT_ASSESSED,
    NOT_OBSERVED,
    SLO_ROWS,
    STRETCHES,
    ReportFigures,
    Sums,
)
from sidecar.audit.report.report_period import utc
from sidecar.audit.report.report_text import DASH, counted, minute, percent, second, seconds, short

_SHARES: Final = ("Availability", "Unobserved")
_CLUSTER_ROWS: Final = 100
"""The maximum number of clusters in the table."""
_REASONS: Final = 4
"""The maximum number of reasons in the picture, beside those that nobody knows."""
_NO_REASON: Final = {"unknown": "unknown", NOT_OBSERVED: "unseen"}
"""What stands apart, and its CSS class."""
_VERDICTS: Final = {
    "recovered": "delivered",
    "degraded": "down",
    "lost": "vacant",
    "unproven": "unknown",
    NOT_ASSESSED: "unseen",
}
"""Each verdict and its CSS class."""
_STEPS: Final = {
    "Loss observed": "opened_after_seconds",
    "Dispatcher led": "dispatcher_led_after_seconds",
    "All components led": "led_after_seconds",
    "All jobs running": "running_after_seconds",
    "First checkpoints": "checkpointed_after_seconds",
}
_CAUSES: Final = 8
"""The maximum number of causes in the picture."""
_MEANT_KEY: Final = tuple((name, charts.swatch(look)) for name, look in MEANT)
_SHOWN: Final = (("no published leader", "vacant"), ("no working leader, at most", "down"))


def clusters(figures: ReportFigures) -> Card:
    """Failovers, vacancies and unobserved times, by cluster."""
    period = figures.period
    drawn = [LaneOf(short(name), _spans(figures, name), _marks(figures, name)) for name in figures.marks]
    notes = ["Failovers, times without a leader of any component or job, and unobserved times."]
    if len(period.clusters) > len(drawn):
        notes.append(f"Drawn: the {LANES} that were without a leader for longest, of {len(period.clusters):,}.")
    counts = Counter(
        (stretch.cluster_id, stretches is figures.vacant)
        for stretches in (figures.vacant, figures.unobserved)
        for stretch in stretches
    )
    if any(counts[name, vacant] >= STRETCHES for name in figures.marks for vacant in (True, False)):
        notes.append(f"Of each, the {STRETCHES} longest times of each kind.")
    key = (
        *((name, charts.swatch(look, mark=True)) for name, look in MEANT),
        ("no leader", charts.swatch("vacant")),
        ("unobserved", charts.swatch("unseen")),
    )
    picture = charts.lanes("Failovers of each cluster over time", period.begin, period.end, drawn)
    return Card(
        "Clusters",
        " ".join(notes),
        picture,
        key,
        (_cluster_table(figures), *_slo_table(figures), _unobserved_table(figures)),
        width="wide",
    )


def _spans(figures: ReportFigures, cluster_id: str) -> list[Span]:
    spans = []
    kinds = (("vacant", "no leader", figures.vacant), ("unseen", "unobserved", figures.unobserved))
    for look, name, stretches in kinds:
        for stretch in stretches:
            if stretch.cluster_id == cluster_id:
                which = f"job {short(stretch.job_id, 8)}" if stretch.job_id else stretch.component or "all"
                title = f"{name} ({which}): {second(stretch.began)} to {second(stretch.ended)}"
                spans.append(Span(look, stretch.began, stretch.ended, title))
    return spans


def _marks(figures: ReportFigures, cluster_id: str) -> list[Mark]:
    return [
        Mark(
            "unplanned" if row.unplanned else "planned" if row.planned == row.n else "unknown",
            max(utc(row.at), figures.period.begin),
            row.n > 1,
            f"{counted(row.n, 'failover')}, {row.planned:,} planned: {'from ' * (row.n > 1)}{minute(utc(row.at))}",
        )
        for row in figures.marks[cluster_id]
    ]


def _cluster_table(figures: ReportFigures) -> ReportTable:
    rows = []
    for name in figures.ranked[:_CLUSTER_ROWS]:
        row, sums = figures.by_cluster.get(name), figures.available_by_cluster.get(name, Sums())
        counts = (f"{row.n:,}", f"{row.planned:,}", seconds(row.vacant_total)) if row else ("0", "0", DASH)
        changes = figures.changes[name].n if name in figures.changes else 0
        rows.append((short(name), *counts, f"{changes:,}", *sums.shares))
    cut = f" (the first {len(rows)} of {len(figures.ranked):,})" if len(figures.ranked) > len(rows) else ""
    columns = ("Cluster", "Failovers", "Planned", "No published leader", "Changes of leader", *_SHARES)
    return ReportTable(f"Clusters{cut}", columns, rows)


def _slo_table(figures: ReportFigures) -> list[ReportTable]:
    """None without an objective. Of the window of each objective, whatever the period."""
    rows = []
    for row in figures.slos:
        elapsed = row.led_seconds + row.vacant_seconds + row.suspended_seconds + row.unobserved_seconds
        budget = DASH if row.remaining is None else percent(row.remaining, 1.0) if row.remaining >= 0 else "overspent"
        rows.append(
            (
                short(row.cluster_id),
                f"{row.objective:g} % of {row.window_seconds / 86_400:g} d",
                seconds(row.budget_seconds),
                seconds(row.vacant_seconds),
                budget,
                percent(row.unobserved_seconds, elapsed),
                second(utc(row.until)),
            )
        )
    columns = ("Cluster", "Objective", "Error budget", "Spent", "Left", "Unobserved", "Until")
    title = f"Error budgets of leadership, each of its own window ({SLO_ROWS} at most)"
    return [ReportTable(title, columns, rows)] if rows else []


def _unobserved_table(figures: ReportFigures) -> ReportTable:
    longest = sorted(figures.unobserved, key=lambda stretch: stretch.began - stretch.ended)[:TABLE_ROWS]
    rows = [
        (
            short(stretch.cluster_id),
            stretch.component or "all",
            second(stretch.began),
            second(stretch.ended),
            seconds((stretch.ended - stretch.began).total_seconds()),
        )
        for stretch in longest
    ]
    title = f"Longest unobserved times ({TABLE_ROWS} at most)"
    return ReportTable(title, ("Cluster", "Component", "From", "To", "For"), rows)


def outcomes(figures: ReportFigures) -> list[Card]:
    """Nothing if no observer recorded a death or a recovery."""
    if figures.by_death.keys() <= {NOT_OBSERVED} and figures.by_verdict.keys() <= {NOT_ASSESSED}:
        return []
    return [_deaths(figures.by_death), _verdicts(figures.by_verdict), _slowest(figures.slowest)]


def _deaths(by_death: Mapping[str, Any]) -> Card:
    reasons = sorted(by_death.keys() - _NO_REASON.keys(), key=lambda reason: (-by_death[reason].n, reason))
    apart = [reason for reason in _NO_REASON if reason in by_death]
    drawn = {
        short(reason): [Series("failovers", _NO_REASON.get(reason, "unplanned"), [by_death[reason].n])]
        for reason in [*reasons[:_REASONS], *apart]
    }
    text = "Why the JobManager's process ended."
    text += f" The {_REASONS} most frequent of {len(reasons)} reasons." if len(reasons) > _REASONS else ""
    rows = [
        (short(reason), f"{by_death[reason].n:,}", seconds(by_death[reason].down_median_at_most))
        for reason in [*reasons, *apart]
    ]
    columns = ("Reason", "Failovers", "No working leader, median of the upper bounds")
    title = "Failovers by the reason of the death"
    text += " Unknown and not observed are no reasons."
    return Card("Causes of death", text, charts.rows(title, drawn), tables=(ReportTable(title, columns, rows),))


def _verdicts(by_verdict: Mapping[str, Any]) -> Card:
    verdicts = [*_VERDICTS, *sorted(by_verdict.keys() - _VERDICTS.keys())]
    rows = [(verdict, by_verdict[verdict].n) for verdict in verdicts if verdict in by_verdict]
    title = "Failovers by what came back"
    text = "Whether jobs, their state and TaskManagers came back. Unproven and not assessed may be either."
    drawn = {short(name): [Series("failovers", _VERDICTS.get(name, "unknown"), [n])] for name, n in rows}
    table = ReportTable(title, ("Verdict", "Failovers"), [(short(name), f"{n:,}") for name, n in rows])
    return Card("Recovery", text, charts.rows(title, drawn), tables=(table,))


def _slowest(episode: Any) -> Card:
    title = "Slowest recovery"
    if episode is None:
        return Card(title, "Of no failover were all jobs seen running again.")
    ends = {name: episode[column] for name, column in _STEPS.items() if episode[column] is not None}
    began = "the end of the process" if episode.dead_at else "the observed loss"
    which = f"{short(episode.cluster_id)}, {minute(utc(episode.opened_at))}: {short(episode.cause)}"
    text = f"{which}, recovery {short(episode.verdict)}. Times since {began}."
    rows = [(name, seconds(end)) for name, end in ends.items()]
    table = ReportTable("Steps of the slowest recovery", ("Step", "After"), rows)
    return Card(title, text, charts.steps(title, ends, seconds), tables=(table,))


def cards(figures: ReportFigures) -> list[Card]:
    """The pictures, in the order of the page."""
    pictures = [card(figures) for card in (clusters, _failovers, _causes, _durations, _availability, _alerts)]
    return pictures + outcomes(figures)


def _meant(rows: Sequence[Any]) -> list[Series]:
    """Failovers by whether they were planned, for each of the rows."""
    values = (
        [row.planned for row in rows],
        [row.unplanned for row in rows],
        [row.n - row.planned - row.unplanned for row in rows],
    )
    return [Series(name, look, numbers) for (name, look), numbers in zip(MEANT, values, strict=True)]


class _Counts(NamedTuple):
    """The failovers of one bar."""

    n: int
    planned: int
    unplanned: int


def _failovers(figures: ReportFigures) -> Card:
    title = _per_day(figures, "Failovers")
    names, labels, grouped = _bars(figures, figures.by_day)
    counts = [_Counts(*(sum(row[name] for row in rows) for name in _Counts._fields)) for rows in grouped]
    series = _meant(counts)
    table = [(name, *(f"{part.values[at]:,}" for part in series)) for at, name in enumerate(names) if counts[at].n]
    left_out = "; those without one are left out" if len(table) < len(names) else ""
    return Card(
        title,
        "A failover counts on the day on which it was over." if table else "No failovers.",
        charts.bars(title, names, labels, series, "{:,.0f}".format, whole=True) if table else None,
        _MEANT_KEY if table else (),
        (ReportTable(f"{title}{left_out}", (_bar_heading(figures), "Planned", "Not planned", "Not known"), table),),
        width="double",
    )


def _per_day(figures: ReportFigures, subject: str) -> str:
    days = figures.period.bar_days
    return f"{subject} per day" if days == 1 else f"{subject} per {days} days"


def _bar_heading(figures: ReportFigures) -> str:
    return "Day" if figures.period.bar_days == 1 else "From"


def _bars(figures: ReportFigures, by_day: Mapping[int, Any]) -> tuple[list[str], dict[float, str], list[list[Any]]]:
    """Names of the bars of a chart, labels below them, and the values of the days of each bar."""
    period = figures.period
    number = -(-period.days // period.bar_days)
    first = [period.begin + timedelta(days=period.bar_days * bar) for bar in range(number)]
    every = -(-number // charts.LABELS)
    labels = {bar + 0.5: charts.day_label(first[bar]) for bar in range(0, number, every)}
    grouped: list[list[Any]] = [[] for _ in first]
    for day, value in by_day.items():
        grouped[day // period.bar_days].append(value)
    return [f"{day:%Y-%m-%d}" for day in first], labels, grouped


def _causes(figures: ReportFigures) -> Card:
    by_cause = sorted((row for row in figures.by_cause.values() if row.n), key=lambda row: (-row.n, row.cause))
    drawn = {short(row.cause): _meant([row]) for row in by_cause[:_CAUSES]}
    others = sorted((row.cause, row.others) for row in figures.by_cause.values() if row.others)
    text = "As above, planned or not." if drawn else "No failovers."
    if len(by_cause) > len(drawn):
        text = f"As above, planned or not; the {_CAUSES} most frequent of {len(by_cause)}."
    if others:
        which = ", ".join(f"{number:,} {short(cause)}" for cause, number in others)
        text += f" {counted(sum(n for _, n in others), 'episode')} without a change of leader: {which}."
    title, columns = "Failovers by cause", ("Cause", "Failovers", "Planned", "No published leader")
    rows = [(short(row.cause), f"{row.n:,}", f"{row.planned:,}", seconds(row.vacant_total)) for row in by_cause]
    picture = charts.rows(title, drawn) if drawn else None
    return Card("Causes", text, picture, tables=(ReportTable(title, columns, rows),))


def _durations(figures: ReportFigures) -> Card:
    names, labels = _histogram()
    shown = figures.vacancies, figures.downtimes
    counts = [[places.get(place, 0) for place in range(len(names))] for places in shown]
    series = [Series(name, look, values) for (name, look), values in zip(_SHOWN, counts, strict=True)]
    total = figures.total
    missing = (("no published leader", total.without_vacant), ("no working leader", total.without_down_bound))
    unknown = [f"{name} of {n:,}" for name, n in missing if n]
    text = "How long a cluster's component was without a leader: the longest of each failover."
    text += f" Not known: {', '.join(unknown)}." if unknown else ""
    rows = [(name, *(f"{n:,}" for n in own)) for name, *own in zip(names, *counts, strict=True) if any(own)]
    title = "Failovers by the time without a leader"
    columns = ("Seconds", "No published leader", "No working leader, at most")
    picture = charts.bars(title, names, labels, series, "{:,.0f}".format, beside=True, whole=True) if rows else None
    return Card(
        "Without a leader per failover",
        text if total.n else "No failovers.",
        picture,
        tuple((name, charts.swatch(look)) for name, look in _SHOWN) if rows else (),
        (ReportTable(title, columns, rows),),
    )


def _histogram() -> tuple[list[str], dict[float, str]]:
    """Names of the bars between EDGES, and labels at every other edge."""
    edges = [seconds(edge) for edge in EDGES]
    between_edges = [f"{low} to {high}" for low, high in pairwise(edges)]
    return [f"below {edges[0]}", *between_edges, f"{edges[-1]} and more"], {
        n + 1.0: edge for n, edge in enumerate(edges) if not n % 2
    }


def _availability(figures: ReportFigures) -> Card:
    names, labels, grouped = _bars(figures, figures.available_by_day)
    sums = [Sums.together(days) for days in grouped]
    shares = [bar.vacant / (bar.led + bar.vacant or 1.0) for bar in sums]
    bars = [(name, bar.shares, seconds(bar.vacant)) for name, bar in zip(names, sums, strict=True) if bar != Sums()]
    table = [(name, available, vacant, unobserved) for name, (available, unobserved), vacant in bars]
    known_until = min((until for until in figures.period.clusters.values() if until), default=None)
    if not table:
        text = "Unknown: no coverage is recorded."
    else:
        text = "The part of the observed time without a published leader, over all components and jobs."
        if known_until and known_until < figures.period.end:
            text += f" Later time than a cluster's last coverage record (the earliest: {second(known_until)}) is in no figure yet."
    title = _per_day(figures, "Without a leader")
    series = [Series("without a leader", "vacant", shares)]
    columns = (_bar_heading(figures), "Availability", "No leader, all components and jobs", "Unobserved")
    return Card(
        title,
        text,
        charts.bars(title, names, labels, series, lambda share: f"{share * 100:.6g} %") if table else None,
        tables=(ReportTable(title.replace("Without a leader", "Availability"), columns, table),),
    )


def _alerts(figures: ReportFigures) -> Card:
    names, labels = _histogram()
    series = [Series("delivered", "delivered", [figures.delays.get(place, 0) for place in range(len(names))])]
    by_number = sorted(figures.alerts.items(), key=lambda item: (-item[1].queued, item[0]))
    rows = [
        (
            short(name),
            *(f"{row[count]:,}" for count in ("queued", "delivered", "gave_up", "duplicates", "attempts")),
            seconds(row.median),
            seconds(row.p95),
        )
        for name, row in by_number[:TABLE_ROWS]
    ]
    columns = ("Destination", "Queued", "Delivered", "Given up", "Maybe twice", "Most attempts", "Median", "95 of 100")
    return Card(
        "Alerts",
        "The time from queued to delivered." if rows else "No alert was queued.",
        charts.bars("Alerts by the time until they were delivered", names, labels, series, "{:,.0f}".format, whole=True)
        if figures.delays
        else None,
        tables=(ReportTable(f"Alerts by destination ({TABLE_ROWS} at most)", columns, rows),),
    )
