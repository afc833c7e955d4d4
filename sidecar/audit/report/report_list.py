"""The report's list of failovers: one row for each, whatever the number of its components."""

from collections.abc import Sequence
from shlex import quote
from typing import Any

from msgspec import Struct

from sidecar.audit.report.report_data import Findings
from sidecar.audit.report.report_period import Period, utc
from sidecar.audit.report.report_text import between, moved, outcome, parts, planned, second, short
from sidecar.core.sanitize import clean


class ListedFailover(Struct, frozen=True):
    """One row, as texts."""

    at: str
    cluster: str
    moved: str
    parts: str
    cause: str
    planned: str
    outcome: str
    """Why the process ended and what came back; empty: nobody recorded it."""
    note: str
    """Of an operator; empty: none."""
    vacant: str
    down: str


class UnreviewedFailover(Struct, frozen=True):
    """One failover without a note, as texts."""

    id: str
    at: str
    cluster: str
    cause: str
    outcome: str


class FailoverList(Struct, frozen=True):
    """The latest failovers, newest first."""

    rows: Sequence[ListedFailover]
    total: int
    query: str
    """The command that prints all of them, if they are more than these."""
    unreviewed: Sequence[UnreviewedFailover]
    """The latest without a note."""
    unreviewed_total: int


def failover_list(findings: Findings) -> FailoverList:
    """The list, cut after the latest LIST_ROWS."""
    rows = [_row(row) for row in findings.latest]
    unreviewed = [
        UnreviewedFailover(row.id, second(utc(row.opened_at)), short(row.cluster_id), short(row.cause), outcome(row))
        for row in findings.unreviewed
    ]
    command = _command(findings.period) if findings.total.n > len(rows) else ""
    return FailoverList(rows, findings.total.n, command, unreviewed, findings.total.unreviewed)


def _row(row: Any) -> ListedFailover:
    author = f" ({clean(row.author)})" if row.author else ""
    return ListedFailover(
        at=second(utc(row.opened_at)),
        cluster=short(row.cluster_id),
        moved=moved(row),
        parts=parts(row),
        cause=f"{short(row.cause)} ({short(row.confidence)})",
        planned=planned(row.meant, noted=not row.planned),
        outcome=outcome(row),
        note=f"{clean(row.note)}{author}" if row.note else "",
        vacant=between(row.vacant_seconds, row.vacant_seconds),
        down=between(row.downtime_seconds_at_least, row.downtime_seconds_at_most),
    )


def _command(period: Period) -> str:
    chosen = ""
    if period.chosen:
        names = ", ".join("'" + name.replace("\\", "\\\\").replace("'", "\\'") + "'" for name in period.clusters)
        chosen = f" AND cluster_id IN ({names})"
    days = f"event_date BETWEEN '{period.begin:%Y-%m-%d}' AND '{period.end:%Y-%m-%d}'"
    query = f"SELECT * FROM episodes WHERE failovers > 0 AND {days}{chosen} ORDER BY opened_at"  # noqa: S608  quoted above
    return f"flink-ha-sidecar audit sql --audit URL --output csv {quote(query)}"
