"""Writes the audit report: one HTML file with pictures, which loads nothing and runs nothing. Its list of failovers has one row for each,
whatever the number of its components.
"""

import base64
import hashlib
import os
from collections.abc import Mapping
from contextlib import suppress
from datetime import UTC, datetime
from importlib.resources import files
from pathlib import Path
from shlex import quote
from typing import Any, Final
from uuid import uuid4

from jinja2 import Environment, StrictUndefined
from markupsafe import Markup
from msgspec import Struct
from pyspark.sql import SparkSession

from sidecar import __version__
from sidecar.audit.ask.registration import RecentLeadership, register_views
from sidecar.audit.audit_error import AuditError, failing_to, retried
from sidecar.audit.log.audit_log import audit_folder
from sidecar.audit.log.tables import BASE_VIEWS
from sidecar.audit.report.report_data import LANES, VIEWS, ReportFigures, Stretch, Sums, find
from sidecar.audit.report.report_page import cards
from sidecar.audit.report.report_period import ReportRequest, find_period, utc
from sidecar.audit.report.report_text import (
    DASH,
    bounds,
    counted,
    minute,
    moved,
    outcome,
    parts,
    planned,
    second,
    seconds,
    short,
)
from sidecar.audit.spark.spark_session import own_session, sizes_to_read, tune
from sidecar.core.sanitize import clean

_CLUSTERS_NAMED: Final = 5


class Tile(Struct, frozen=True):
    """One figure at the top of the page."""

    name: str
    value: str
    note: str
    tone: str = ""
    """`good`, `bad`, or neither."""


def tiles(figures: ReportFigures) -> list[Tile]:
    """The figures above the pictures."""
    total, sums = figures.total, Sums.together(figures.available_by_cluster.values())
    available, unobserved = sums.shares
    unknown = total.n - total.planned - total.unplanned
    meant = [f"{total.planned:,} planned", f"{total.unplanned:,} not planned"] + [f"{unknown:,} not known"] * bool(
        unknown
    )
    drills = [f"{counted(total.drills, 'drill')} not counted"] * bool(total.drills)
    queued, delivered, gave_up = (
        sum(row[name] for row in figures.alerts.values()) for name in ("queued", "delivered", "gave_up")
    )
    return [
        Tile("Failovers", f"{total.n:,}", ", ".join((meant if total.n else []) + drills)),
        Tile("No published leader", seconds(total.vacant_total), _vacancy_note(total)),
        Tile("No working leader", _down_total(total), _down_note(total)),
        Tile("Availability", available, "the part of the observed time with a published leader", _tone(sums)),
        Tile("Unobserved", unobserved, "of all time; not counted as available"),
        Tile("Alerts delivered", f"{delivered:,} of {queued:,}", f"{gave_up:,} given up", "bad" if gave_up else ""),
    ]


def _tone(sums: Sums) -> str:
    return "good" if sums.led and not sums.vacant else ""


def _vacancy_note(total: Any) -> str:
    if total.vacant_longest is None:
        return "none measured"
    longest = total.vacant_longest
    where = f"{short(longest.cluster_id)}, {minute(utc(longest.at))}"
    return (
        f"all failovers together; median {seconds(total.vacant_median)}, longest {seconds(longest.seconds)} ({where})"
    )


def _down_total(total: Any) -> str:
    if total.down_total_at_least is None:
        return DASH
    most = None if total.without_down_bound else max(total.down_total_at_least, total.down_total_at_most)
    return bounds(total.down_total_at_least, most)


def _down_note(total: Any) -> str:
    if total.down_total_at_least is None:
        return "none measured"
    unknown = f"; no upper bound is known of {total.without_down_bound:,}" if total.without_down_bound else ""
    return f"all failovers together{unknown}"


def notices(figures: ReportFigures) -> list[str]:
    """What a reader must not miss."""
    lasting: dict[str, list[Stretch]] = {}
    for stretch in figures.vacant:
        if stretch.lasts:
            lasting.setdefault(stretch.cluster_id, []).append(stretch)
    texts = []
    for cluster_id, stretches in lasting.items():
        own = sorted({stretch.component or "" for stretch in stretches if stretch.job_id is None})
        jobs = sum(stretch.job_id is not None for stretch in stretches)
        leaderless = ", ".join([*own, *([counted(jobs, "job")] if jobs else [])])
        since = minute(min(stretch.began for stretch in stretches))
        texts.append(f"{short(cluster_id)} has no leader at the end of this period: {leaderless}, since {since}.")
    if len(texts) > LANES:
        texts[LANES:] = [f"Nor have {len(texts) - LANES} more clusters."]
    if lost := figures.by_verdict.get("lost"):
        texts.append(f"{counted(lost.n, 'failover')} lost a job, or the state of one.")
    if unrecorded := sum(row.unrecorded for row in figures.changes.values()):
        texts.append(
            f"{counted(unrecorded, 'more failover')} began and {'is' if unrecorded == 1 else 'are'} in no figure of failovers:"
            " not over when the period ended, or the end was not recorded."
        )
    return texts


class ListedFailover(Struct, frozen=True):
    """One row, as texts."""

    id: str
    at: str
    cluster: str
    moved: str
    parts: str
    cause: str
    confidence: str
    planned: str
    outcome: str
    """Why the process ended and what came back; empty: nobody recorded it."""
    note: str
    """An operator's words; empty: none."""
    vacant: str
    down: str


def listed(row: Any) -> ListedFailover:
    """A row of `latest` or `unreviewed` as texts."""
    author = f" ({clean(row.author)})" if row.author else ""
    return ListedFailover(
        id=row.id,
        at=second(utc(row.opened_at)),
        cluster=short(row.cluster_id),
        moved=moved(row),
        parts=parts(row),
        cause=short(row.cause),
        confidence=short(row.confidence),
        planned=planned(row.meant, noted=not row.planned),
        outcome=outcome(row),
        note=f"{clean(row.note)}{author}" if row.note else "",
        vacant=bounds(row.vacant_seconds, row.vacant_seconds),
        down=bounds(row.downtime_seconds_at_least, row.downtime_seconds_at_most),
    )


def command_for_all(figures: ReportFigures) -> str:
    """The command that prints all failovers; empty if the list has all."""
    if figures.total.n <= len(figures.latest):
        return ""
    period, chosen = figures.period, ""
    if period.chosen:
        names = ", ".join("'" + name.replace("\\", "\\\\").replace("'", "\\'") + "'" for name in period.clusters)
        chosen = f" AND cluster_id IN ({names})"
    days = f"event_date BETWEEN '{period.begin:%Y-%m-%d}' AND '{period.end:%Y-%m-%d}'"
    query = f"SELECT * FROM episodes WHERE failovers > 0 AND {days}{chosen} ORDER BY opened_at"  # noqa: S608  quoted above
    return f"flink-ha-sidecar audit sql --audit URL --output csv {quote(query)}"


def write_report(spark: SparkSession, audit: str, html: Path, wanted: ReportRequest | None = None) -> None:
    """Atomically write the report on the audit log at `audit` (a path or any URL that Spark supports) to the file `html`.

    It is smaller than 300 kB however long the log is. Raises AuditError when there is no audit log, nothing that is wanted is recorded in
    it, or the file cannot be written.
    """
    if not html.absolute().parent.is_dir():  # checked before Spark runs for minutes
        raise AuditError(f"cannot write the report {html}: there is no such folder")
    session, do_what = own_session(spark), "make a report on"
    folder = audit_folder(session, audit, do_what)

    def read() -> ReportFigures:
        register_views(session, audit, VIEWS, recent=RecentLeadership())
        tables = map(session.table, BASE_VIEWS.keys() & VIEWS)
        tune(session, (size for table in tables for size in sizes_to_read(table)))
        return find(session, find_period(session, folder, wanted or ReportRequest()))

    with failing_to(f"{do_what} {audit}"):
        figures = retried(read)
    _write(html, render(figures))


def render(figures: ReportFigures) -> str:
    """The page."""
    period = figures.period
    names = [short(name) for name in period.clusters][:_CLUSTERS_NAMED] if period.chosen else []
    more = len(period.clusters) - len(names)
    style = _text("report.css")
    values: Mapping[str, Any] = {
        "begin": period.begin,
        "end": period.end,
        "clusters": ", ".join([*names, *([counted(more, "more cluster" if names else "cluster")] if more else [])]),
        "tiles": tiles(figures),
        "notices": notices(figures),
        "cards": cards(figures),
        "failovers": [listed(row) for row in figures.latest],
        "unreviewed": [listed(row) for row in figures.unreviewed],
        "total": figures.total,
        "command": command_for_all(figures),
        "changes": sum(row.n for row in figures.changes.values()),
        "alone": sum(row.alone for row in figures.changes.values()),
    }
    environment = Environment(autoescape=True, trim_blocks=True, lstrip_blocks=True, undefined=StrictUndefined)
    return environment.from_string(_text("report.html.j2")).render(
        values,
        counted=counted,
        policy=f"default-src 'none'; base-uri 'none'; form-action 'none'; style-src {_hash(style)}",
        style=Markup(style),  # noqa: S704  our own file
        made=f"{datetime.now(UTC):%Y-%m-%d %H:%M}",
        version=__version__,
    )


def _hash(text: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"


def _text(name: str) -> str:
    return (files("sidecar.audit.report") / name).read_text(encoding="utf-8")


def _write(target: Path, page: str) -> None:
    aside = target.with_name(f".{target.name}.{uuid4().hex}")
    try:
        try:
            with aside.open("x", encoding="utf-8") as file:
                file.write(page)
                file.flush()
                os.fsync(file.fileno())
            aside.replace(target)
        finally:
            with suppress(OSError):
                aside.unlink(missing_ok=True)
    except OSError as error:
        raise AuditError(f"cannot write the report {target}: {error.strerror or error}") from error
