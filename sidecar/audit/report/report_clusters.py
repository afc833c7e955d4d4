"""The report's picture of all clusters over time, and its tables."""

from collections import Counter
from typing import Final

from sidecar.audit.report import report_charts as charts
from sidecar.audit.report.report_charts import MEANT, TABLE_ROWS, Card, LaneOf, Mark, ReportTable, Span
from sidecar.audit.report.report_data import LANES, SLO_ROWS, STRETCHES, Findings, Sums
from sidecar.audit.report.report_period import utc
from sidecar.audit.report.report_text import DASH, counted, minute, percent, second, seconds, short

_CLUSTER_ROWS: Final = 100
"""The maximum number of clusters in the table."""


def clusters(findings: Findings) -> Card:
    """Failovers, vacancies and unobserved times, by cluster."""
    period = findings.period
    drawn = [LaneOf(short(name), _spans(findings, name), _marks(findings, name)) for name in findings.marks]
    notes = ["Failovers, times without a leader of any component or job, and unobserved times."]
    if len(period.clusters) > len(drawn):
        notes.append(f"Drawn: the {LANES} that were without a leader for longest, of {len(period.clusters):,}.")
    counts = Counter(
        (stretch.cluster_id, stretches is findings.vacant)
        for stretches in (findings.vacant, findings.unobserved)
        for stretch in stretches
    )
    if any(counts[name, vacant] >= STRETCHES for name in findings.marks for vacant in (True, False)):
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
        (_cluster_table(findings), *_slo_table(findings), _unobserved_table(findings)),
        width="wide",
    )


def _spans(findings: Findings, cluster_id: str) -> list[Span]:
    spans = []
    for look, name, stretches in (
        ("vacant", "no leader", findings.vacant),
        ("unseen", "unobserved", findings.unobserved),
    ):
        for stretch in stretches:
            if stretch.cluster_id == cluster_id:
                which = f"job {short(stretch.job_id, 8)}" if stretch.job_id else stretch.component or "all"
                title = f"{name} ({which}): {second(stretch.began)} to {second(stretch.ended)}"
                spans.append(Span(look, stretch.began, stretch.ended, title))
    return spans


def _marks(findings: Findings, cluster_id: str) -> list[Mark]:
    return [
        Mark(
            "unplanned" if row.unplanned else "planned" if row.planned == row.n else "unknown",
            max(utc(row.at), findings.period.begin),
            row.n > 1,
            f"{counted(row.n, 'failover')}, {row.planned:,} planned: {'from ' * (row.n > 1)}{minute(utc(row.at))}",
        )
        for row in findings.marks[cluster_id]
    ]


def _cluster_table(findings: Findings) -> ReportTable:
    rows = []
    for name in findings.ranked[:_CLUSTER_ROWS]:
        row, sums = findings.by_cluster.get(name), findings.available_by_cluster.get(name, Sums())
        counts = (f"{row.n:,}", f"{row.planned:,}", seconds(row.vacant_total)) if row else ("0", "0", DASH)
        changes = findings.changes[name].n if name in findings.changes else 0
        observed = sums.led + sums.vacant
        shares = percent(sums.led, observed), percent(sums.unobserved, observed + sums.unobserved)
        rows.append((short(name), *counts, f"{changes:,}", *shares))
    cut = f" (the first {len(rows)} of {len(findings.ranked):,})" if len(findings.ranked) > len(rows) else ""
    columns = (
        "Cluster",
        "Failovers",
        "Planned",
        "No published leader",
        "Changes of leader",
        "Availability",
        "Unobserved",
    )
    return ReportTable(f"Clusters{cut}", columns, rows)


def _slo_table(findings: Findings) -> list[ReportTable]:
    """None without an objective. Of the window of each objective, whatever the period."""
    rows = []
    for row in findings.slos:
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


def _unobserved_table(findings: Findings) -> ReportTable:
    longest = sorted(findings.unobserved, key=lambda stretch: stretch.began - stretch.ended)[:TABLE_ROWS]
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
    return ReportTable(
        f"Longest unobserved times ({TABLE_ROWS} at most)", ("Cluster", "Component", "From", "To", "For"), rows
    )
