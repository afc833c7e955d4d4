"""`audit …`: the Spark pipeline."""

import re
import sys
from contextlib import AbstractContextManager
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any, Literal

import click

from sidecar.cli.options import options
from sidecar.cli.printing import print_line
from sidecar.core.sanitize import printable
from sidecar.runtime.stopping import Termination

_LONGEST_DAYS = 36_500
_FILE = click.Path(dir_okay=False, path_type=Path)
_DATE = click.DateTime(["%Y-%m-%d"])


def _settings(_context: click.Context, _parameter: click.Parameter, conf: tuple[str, ...]) -> dict[str, str]:
    settings = {}
    for setting in conf:
        key, equals, value = setting.partition("=")
        if not key or not equals:
            raise click.BadParameter(f"{setting!r} is not like spark.driver.memory=2g", param_hint="--conf")
        settings[key] = value
    return settings


def _files(_context: click.Context, _parameter: click.Parameter, pairs: tuple[str, ...]) -> dict[str, Path]:
    files: dict[str, Path] = {}
    for pair in pairs:
        name, _, file = pair.partition("=")
        if not re.fullmatch(r"[a-zA-Z]\w*", name, re.ASCII) or not file:
            raise click.BadParameter(f"{pair!r} is not like incidents=incidents.csv", param_hint="--with")
        if name.lower() in files:
            raise click.BadParameter(f"two files are named {name}", param_hint="--with")
        files[name.lower()] = Path(file)
    return files


def _days(_context: click.Context, _parameter: click.Parameter, keep: str | None) -> int | None:
    if keep is None:
        return None
    number, unit = keep[:-1], keep[-1:]
    if unit != "d" or not (number.isascii() and number.isdecimal()) or not 1 <= int(number[:6]) <= _LONGEST_DAYS:
        raise click.BadParameter(f"{keep!r} is not a number of whole days like 400d", param_hint="--keep")
    return int(number)


def _period(_context: click.Context, _parameter: click.Parameter, since: str | None) -> timedelta | None:
    if since is None:
        return None
    from sidecar.settings.file.durations import parse_duration

    try:
        period = timedelta(microseconds=parse_duration(since))
    except ValueError as error:
        raise click.BadParameter(f"{since!r} {error}", param_hint="--since") from error
    if not period:
        raise click.BadParameter("a report covers more than no time at all", param_hint="--since")
    return period


_audit_options = options(
    click.option(
        "--audit",
        "audit_url",
        required=True,
        metavar="URL",
        help="The folder of the audit log, also s3://bucket/prefix.",
    ),
    click.option("--master", metavar="URL", help="The Spark master, as for spark-submit.  [local[*]]"),
    click.option(
        "--conf", multiple=True, metavar="KEY=VALUE", callback=_settings, help="Spark configuration, likewise."
    ),
)

_answer_output = click.option(
    "--output",
    type=click.Choice(["table", "vertical", "json", "csv"]),
    default="table",
    show_default=True,
    help="`vertical`: a line for each value, for wide rows.",
)

_own_tables = click.option(
    "--with",
    "files",
    multiple=True,
    metavar="NAME=FILE.csv",
    callback=_files,
    help="A table of your own to join: a CSV file whose first line names the columns; may be repeated.",
)


def _session(
    audit_url: str,
    *,
    spool: str | None = None,
    expired: str | None = None,
    closes: bool = False,
    master: str | None,
    conf: dict[str, str],
) -> AbstractContextManager[Any]:
    """A Spark session for an audit log, the `spool` that is ingested, and the one in which segments expire. `closes`: for materializing.

    Import audit modules inside it: only the session reports a missing Spark in one line.
    """
    from sidecar.audit.log.workload import folder_of, run_of_ingest, run_of_materialization, run_over
    from sidecar.audit.spark.spark_session import spark_session

    if spool is not None:
        run = run_of_ingest(spool, audit_url)
    elif closes:
        run = run_of_materialization(audit_url)
    else:
        run = run_over(audit_url)
    in_store = any(url is not None and folder_of(url) is None for url in (audit_url, spool, expired))
    return spark_session(master, conf, run=run, object_store=in_store)


@click.group()
def audit() -> None:
    """Maintain and query the audit log, with Spark."""


@audit.command()
@click.option("--spool", required=True, metavar="URL", help="The folder that sidecars write segments to, likewise.")
@click.option("--follow", is_flag=True, help="Continue with new segments until SIGTERM.")
@_audit_options
def ingest(spool: str, audit_url: str, follow: bool, **spark_options: Any) -> None:
    """Ingest new segments. Repeat it at any time: each record is in the audit log once."""
    stop = Termination() if follow else None
    with _session(audit_url, spool=spool, **spark_options) as spark:
        from sidecar.audit.ingest.ingest import ingest as ingest_segments

        ingested = ingest_segments(spark, spool, audit_url, follow=follow, stop=stop)
    rows = ", ".join(f"{count} {table}" for table, count in ingested.rows.items() if count) or "nothing new"
    quarantined = f"; {ingested.quarantined} lines or files went to quarantine" if ingested.quarantined else ""
    click.echo(f"{ingested.files} segments: {rows}{quarantined}")


@audit.command()
@_answer_output
@_own_tables
@click.option("--print-views", is_flag=True, help="Only print the statements that create the views, for spark-sql -i.")
@_audit_options
@click.argument("query", required=False)
def sql(
    audit_url: str,
    output: Literal["table", "vertical", "json", "csv"],
    files: dict[str, Path],
    print_views: bool,
    query: str | None,
    **spark_options: Any,
) -> None:
    """Query the audit log in Spark SQL. Its tables and views: docs/how-to/audit-cookbook.md."""
    if (query is None) is not print_views:
        raise click.UsageError("give either a query or --print-views")
    if files and print_views:
        raise click.UsageError("--with is for a query: the script has the views of the audit log alone")
    with _session(audit_url, **spark_options) as spark:
        from sidecar.audit.ask.registration import views_script
        from sidecar.audit.ask.sql import read_own_tables, render, run_sql

        if query is None:
            click.echo(views_script(spark, audit_url), nl=False)
            return
        own_tables = read_own_tables(spark, files)
        render(run_sql(spark, audit_url, query, own_tables=own_tables), output, sys.stdout)


@audit.command()
@_answer_output
@_own_tables
@_audit_options
def shell(
    audit_url: str, output: Literal["table", "vertical", "json", "csv"], files: dict[str, Path], **spark_options: Any
) -> None:
    """Query the audit log many times, at a prompt or from a pipe. Spark starts once; statements end with a semicolon."""
    with _session(audit_url, **spark_options) as spark:
        from sidecar.audit.ask.shell import Shell
        from sidecar.audit.ask.sql import read_own_tables

        shell = Shell(spark, audit_url, output, sys.stdout, sys.stderr, read_own_tables(spark, files))
        if sys.stdin.isatty() and sys.stdout.isatty():
            from sidecar.audit.ask.prompt import converse

            converse(shell, spark, rf"Audit log {audit_url}. \? lists the commands, \q leaves.")
            return
        shell.run(sys.stdin)
    if shell.failed:
        click.get_current_context().exit(1)


@audit.command()
@click.option("--before", type=_DATE, metavar="DATE", help="Only earlier dates.  [today, UTC]")
@click.option("--keep", "days", metavar="DAYS", callback=_days, help="First delete older data, like 400d.  [for ever]")
@click.option("--spool", metavar="URL", help="With --keep: delete old segments here too, if the audit log has them.")
@_audit_options
def compact(audit_url: str, before: datetime | None, days: int | None, spool: str | None, **spark_options: Any) -> None:
    """Merge small files, delete old data, and keep the answers of old dates. Run it once a day; readers are not disturbed."""
    if spool is not None and days is None:
        raise click.UsageError("--spool is for --keep: without it, nothing is deleted")
    with _session(audit_url, expired=spool, closes=True, **spark_options) as spark:
        from sidecar.audit.upkeep.materialize import materialize
        from sidecar.audit.upkeep.retention import expire

        if days is not None:
            expired = expire(spark, audit_url, days, spool=spool)
            click.echo(f"expired: {expired.segments} segments, {expired.folders} folders")
            if count := expired.not_ingested:
                click.echo(f"{count} old segments are not in the audit log and were left: ingest them", err=True)
        complete = _compacted(spark, audit_url, before, may_refuse=days is not None)
        _echo_materialized(materialize(spark, audit_url, before=before and before.date()))
    if not complete:
        click.get_current_context().exit(1)


def _compacted(spark: Any, audit_url: str, before: datetime | None, *, may_refuse: bool) -> bool:
    """Compact and print the result; whether every date could be compacted."""
    from sidecar.audit.audit_error import CannotSwapError
    from sidecar.audit.upkeep.compact import compact

    try:
        result = compact(spark, audit_url, before=before and before.date())
    except CannotSwapError as error:
        if not may_refuse:
            raise
        click.echo(f"{error}; its files stay as they are", err=True)
        return True
    sizes = f", {result.bytes_before:,} bytes are now {result.bytes_after:,}" if result.folders else ""
    click.echo(f"compacted: {result.files} files in {result.folders} folders{sizes}")
    for path, problem in result.unchanged.items():
        click.echo(printable(f"{path} was left as it is: {problem}; see audit verify"), err=True)
    return not result.unchanged


@audit.command()
@click.option("--before", type=_DATE, metavar="DATE", help="Only earlier dates.  [yesterday, UTC]")
@_audit_options
def materialize(audit_url: str, before: datetime | None, **spark_options: Any) -> None:
    """Keep the answers of old dates, so that views are fast. `compact` does it too; this is for storage that it refuses."""
    with _session(audit_url, closes=True, **spark_options) as spark:
        from sidecar.audit.upkeep.materialize import materialize as materialize_answers

        _echo_materialized(materialize_answers(spark, audit_url, before=before and before.date()))


def _echo_materialized(result: Any) -> None:
    redone = f", {result.redone} redone for late records of {result.clusters} clusters" if result.redone else ""
    click.echo(f"materialized: {result.closed} dates{redone}")


@audit.command()
@click.option("--deep", is_flag=True, help="Also compute the materialized answers again and compare them.")
@_audit_options
def verify(audit_url: str, deep: bool, **spark_options: Any) -> None:
    """Read all files and print defects. One per line; exit status 1 if there is any."""
    with _session(audit_url, **spark_options) as spark:
        from sidecar.audit.upkeep.verify import verify as read_all

        result = read_all(spark, audit_url, deep=deep)
    for finding in result.findings:
        print_line(finding)
    click.echo(f"{result.files:,} files, {result.rows:,} rows: {len(result.findings) or 'nothing'} wrong")
    if result.findings:
        click.get_current_context().exit(1)


@audit.command()
@click.option("--html", required=True, type=_FILE, metavar="FILE", help="The file to write.")
@click.option(
    *("--since", "period"), callback=_period, help="Up to the last record, in whole days, like 2w.  [default: 90d]"
)
@click.option(*("--from", "first"), type=_DATE, metavar="DATE", help="The first day, UTC, like 2026-07-01.")
@click.option(*("--to", "last"), type=_DATE, metavar="DATE", help="The last day, UTC, like 2026-09-30.")
@click.option("--cluster", "clusters", multiple=True, metavar="ID", help="Only this cluster; may be repeated.  [all]")
@_audit_options
def report(
    audit_url: str,
    html: Path,
    period: timedelta | None,
    first: datetime | None,
    last: datetime | None,
    clusters: tuple[str, ...],
    **spark_options: Any,
) -> None:
    """Write one HTML file about a quarter. Failovers, their causes, availability, alerts; it needs no network and no script."""
    if period is not None and first is not None:
        raise click.UsageError("give either --since or --from")
    if first and last and first > last:
        raise click.UsageError("--from is later than --to")
    with _session(audit_url, **spark_options) as spark:
        from sidecar.audit.report.report import write_report
        from sidecar.audit.report.report_period import DEFAULT_SINCE, ReportRequest

        wanted = ReportRequest(period or DEFAULT_SINCE, first and first.date(), last and last.date(), clusters)
        write_report(spark, audit_url, html, wanted)
    click.echo(f"{html}: {html.stat().st_size / 1e3:.0f} kB")


@audit.command("warm-up")
def warm_up() -> None:
    """Prepare a faster start of Spark on this machine. Needed once for each installation, and after an upgrade of Java or PySpark."""
    from sidecar.audit.warm_up import warm_up as make_archive

    archive, is_new = make_archive()
    click.echo(f"{archive}: {archive.stat().st_size / 1e6:.0f} MB{'' if is_new else ', made before'}")
