"""The report's picture of all clusters over time, and its tables."""

from collections import Counter
from typing import Final

from sidecar.audit.report import report_charts as charts
from sidecar.audit.report.report_card import MEANT, TABLE_ROWS, Card, ReportTable
from sidecar.audit.report.report_charts import LaneOf, Mark, Span
from sidecar.audit.report.report_data import LANES, SLO_ROWS, STRETCHES, Findings, Sums
from sidecar.audit.report.report_period import utc
from sidecar.audit.report.report_text import DASH, counted, minute, percent, second, seconds, short

_CLUSTER_ROWS: Final = 100
"""The maximum number of clusters in the table."""


def clusters(found: Findings) -> Card:
    """Failovers, vacancies and unobserved times, by cluster."""
    period = found.period
    drawn = [LaneOf(short(name), _spans(found, name), _marks(found, name)) for name in found.marks]
    notes = ["Failovers, times without a leader of any component or job, and unobserved times."]
    if len(period.clusters) > len(drawn):
        notes.append(f"Drawn: the {LANES} that were without a leader for longest, of {len(period.clusters):,}.")
    counts = Counter(
        (each.cluster_id, stretches is found.vacant)
        for stretches in (found.vacant, found.unobserved)
        for each in stretches
    )
    if any(counts[name, vacant] >= STRETCHES for name in found.marks for vacant in (True, False)):
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
        (_cluster_table(found), *_slo_table(found), _unobserved_table(found)),
        width="wide",
    )


def _spans(found: Findings, cluster_id: str) -> list[Span]:
    spans = []
    for look, name, stretches in (("vacant", "no leader", found.vacant), ("unseen", "unobserved", found.unobserved)):
        for each in stretches:
            if each.cluster_id == cluster_id:
                which = f"job {short(each.job_id, 8)}" if each.job_id else each.component or "all"
                title = f"{name} ({which}): {second(each.began)} to {second(each.ended)}"
                spans.append(Span(look, each.began, each.ended, title))
    return spans


def _marks(found: Findings, cluster_id: str) -> list[Mark]:
    return [
        Mark(
            "unplanned" if row.unplanned else "planned" if row.planned == row.n else "unknown",
            max(utc(row.at), found.period.begin),
            row.n > 1,
            f"{counted(row.n, 'failover')}, {row.planned:,} planned: {'from ' * (row.n > 1)}{minute(utc(row.at))}",
        )
        for row in found.marks[cluster_id]
    ]


def _cluster_table(found: Findings) -> ReportTable:
    rows = []
    for name in found.ranked[:_CLUSTER_ROWS]:
        row, sums = found.by_cluster.get(name), found.available_by_cluster.get(name, Sums())
        counts = (f"{row.n:,}", f"{row.planned:,}", seconds(row.vacant_total)) if row else ("0", "0", DASH)
        changes = found.changes[name].n if name in found.changes else 0
        observed = sums.led + sums.vacant
        shares = percent(sums.led, observed), percent(sums.unobserved, observed + sums.unobserved)
        rows.append((short(name), *counts, f"{changes:,}", *shares))
    cut = f" (the first {len(rows)} of {len(found.ranked):,})" if len(found.ranked) > len(rows) else ""
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


def _slo_table(found: Findings) -> list[ReportTable]:
    """None without an objective. Of the window of each objective, whatever the period."""
    rows = []
    for row in found.slos:
        elapsed = row.led_seconds + row.vacant_seconds + row.suspended_seconds + row.unobserved_seconds
        left = DASH if row.remaining is None else percent(row.remaining, 1.0) if row.remaining >= 0 else "overspent"
        rows.append(
            (
                short(row.cluster_id),
                f"{row.objective:g} % of {row.window_seconds / 86_400:g} d",
                seconds(row.budget_seconds),
                seconds(row.vacant_seconds),
                left,
                percent(row.unobserved_seconds, elapsed),
                second(utc(row.until)),
            )
        )
    columns = ("Cluster", "Objective", "Error budget", "Spent", "Left", "Unobserved", "Until")
    title = f"Error budgets of leadership, each of its own window ({SLO_ROWS} at most)"
    return [ReportTable(title, columns, rows)] if rows else []


def _unobserved_table(found: Findings) -> ReportTable:
    longest = sorted(found.unobserved, key=lambda each: each.began - each.ended)[:TABLE_ROWS]
    rows = [
        (
            short(each.cluster_id),
            each.component or "all",
            second(each.began),
            second(each.ended),
            seconds((each.ended - each.began).total_seconds()),
        )
        for each in longest
    ]
    return ReportTable(
        f"Longest unobserved times ({TABLE_ROWS} at most)", ("Cluster", "Component", "From", "To", "For"), rows
    )
