"""`audit …`: the Spark pipeline."""

import sys
from datetime import datetime, timedelta
from pathlib import Path
from typing import Literal

import click

from sidecar.cli.options import options
from sidecar.cli.printing import print_line
from sidecar.core.sanitize import printable
from sidecar.settings.file.durations import parse_duration
from sidecar.termination import Termination

_LONGEST_DAYS = 36_500


@click.group()
def audit() -> None:
    """Keep and ask the audit log, with Spark."""


_spark_options = options(
    click.option("--master", metavar="URL", help="Where Spark runs, as for spark-submit.  [local[*]]"),
    click.option("--conf", multiple=True, metavar="KEY=VALUE", help="Spark configuration, as for spark-submit."),
)

_AUDIT = click.option("--audit", "audit_url", required=True, metavar="URL", help="The folder of the audit log.")


@audit.command()
@click.option("--spool", required=True, metavar="URL", help="The folder that sidecars write segments to.")
@_AUDIT
@click.option("--follow", is_flag=True, help="Go on and take in what comes, until SIGTERM.")
@_spark_options
def ingest(spool: str, audit_url: str, follow: bool, master: str | None, conf: tuple[str, ...]) -> None:
    """Take new segments in. May be run again at any time: each record is in the audit log once."""
    settings = _settings(conf)
    stop = Termination() if follow else None
    from sidecar.audit.session import spark_session

    with spark_session(master, settings) as spark:
        from sidecar.audit.ingest import ingest as take_in  # after the session: it is the one that says what is missing

        taken = take_in(spark, spool, audit_url, follow=follow, stop=stop)
    rows = ", ".join(f"{count} {table}" for table, count in taken.rows.items() if count) or "nothing new"
    quarantined = ""
    if taken.quarantined:
        quarantined = f"; {taken.quarantined} lines or files went to quarantine"
    click.echo(f"{taken.files} segments: {rows}{quarantined}")


@audit.command()
@_AUDIT
@click.option("--output", type=click.Choice(["table", "json", "csv"]), default="table", show_default=True)
@click.option(
    "--print-views", is_flag=True, help="Ask nothing: print the statements that make the views, for spark-sql -i."
)
@_spark_options
@click.argument("query", required=False)
def sql(
    audit_url: str,
    output: Literal["table", "json", "csv"],
    print_views: bool,
    master: str | None,
    conf: tuple[str, ...],
    query: str | None,
) -> None:
    """Ask the audit log in Spark SQL: its tables and views (docs/audit-cookbook.md)."""
    settings = _settings(conf)
    if (query is None) is not print_views:
        raise click.UsageError("give either a query or --print-views")
    from sidecar.audit.session import spark_session

    with spark_session(master, settings) as spark:
        from sidecar.audit.sql import render, run_sql
        from sidecar.audit.views import views_script

        if query is None:
            click.echo(views_script(spark, audit_url), nl=False)
            return
        render(run_sql(spark, audit_url, query), output, sys.stdout)


@audit.command()
@_AUDIT
@click.option(
    "--before", type=click.DateTime(["%Y-%m-%d"]), metavar="DATE", help="Only dates before this one.  [today, UTC]"
)
@click.option("--keep", metavar="DAYS", help="First delete what is older, like 400d: dates, checkpoints.  [for ever]")
@click.option(
    "--spool", metavar="URL", help="With --keep: delete old segments here too, once they are in the audit log."
)
@_spark_options
def compact(
    audit_url: str,
    before: datetime | None,
    keep: str | None,
    spool: str | None,
    master: str | None,
    conf: tuple[str, ...],
) -> None:
    """Make few files of many, and forget what is too old. Once a day is often enough; readers may go on reading."""
    settings = _settings(conf)
    days = None if keep is None else _days(keep)
    if spool is not None and days is None:
        raise click.UsageError("--spool is for --keep: without it, nothing is deleted")
    from sidecar.audit.session import spark_session

    with spark_session(master, settings) as spark:
        from sidecar.audit.audit_error import CannotSwapError
        from sidecar.audit.compact import compact as make_compact
        from sidecar.audit.retention import expire

        if days is not None:
            expired = expire(spark, audit_url, days, spool=spool)
            click.echo(f"expired: {expired.segments} segments, {expired.dates} dates of a table")
            if expired.not_ingested:
                click.echo(
                    f"{expired.not_ingested} old segments are not in the audit log and were left: ingest them", err=True
                )
        try:
            done = make_compact(spark, audit_url, before=before and before.date())
        except CannotSwapError as error:
            if days is None:
                raise
            click.echo(f"{error}; its files stay as they are", err=True)
            return
    sizes = f", {done.bytes_before:,} bytes are now {done.bytes_after:,}" if done.dates else ""
    click.echo(f"compacted: {done.files} files of {done.dates} dates of a table{sizes}")
    for path, problem in done.left.items():
        click.echo(printable(f"{path} was left as it is: {problem}; see audit verify"), err=True)
    if done.left:
        click.get_current_context().exit(1)


@audit.command()
@_AUDIT
@_spark_options
def verify(audit_url: str, master: str | None, conf: tuple[str, ...]) -> None:
    """Read everything and say what is wrong, a line each; exit status 1 if anything is."""
    settings = _settings(conf)
    from sidecar.audit.session import spark_session

    with spark_session(master, settings) as spark:
        from sidecar.audit.verify import verify as read_all

        result = read_all(spark, audit_url)
    for finding in result.findings:
        print_line(finding)
    click.echo(f"{result.files:,} files, {result.rows:,} rows: {len(result.findings) or 'nothing'} wrong")
    if result.findings:
        click.get_current_context().exit(1)


def _days(keep: str) -> int:
    number, unit = keep[:-1], keep[-1:]
    if unit != "d" or not (number.isascii() and number.isdecimal()) or not 1 <= int(number[:6]) <= _LONGEST_DAYS:
        raise click.BadParameter(f"{keep!r} is not a number of whole days like 400d", param_hint="--keep")
    return int(number)


@audit.command()
@_AUDIT
@click.option(
    "--html",
    required=True,
    type=click.Path(dir_okay=False, path_type=Path),
    metavar="FILE",
    help="Where the report is written.",
)
@click.option(
    "--since", default="30d", show_default=True, help="How far back from the last record, like 12h, 30d or 8w."
)
@_spark_options
def report(audit_url: str, html: Path, since: str, master: str | None, conf: tuple[str, ...]) -> None:
    """Write one HTML file with pictures: who led when, failovers, availability, alert delays. It needs no network."""
    settings = _settings(conf)
    try:
        period = timedelta(microseconds=parse_duration(since))
    except ValueError as error:
        raise click.BadParameter(f"{since!r} {error}", param_hint="--since") from error
    if not period:
        raise click.BadParameter("a report covers more than no time at all", param_hint="--since")
    from sidecar.audit.session import spark_session

    with spark_session(master, settings) as spark:
        from sidecar.audit.report import write_report

        write_report(spark, audit_url, html, period)
    click.echo(f"{html}: {html.stat().st_size / 1e6:.1f} MB")


def _settings(conf: tuple[str, ...]) -> dict[str, str]:
    settings = {}
    for setting in conf:
        key, equals, value = setting.partition("=")
        if not key or not equals:
            raise click.BadParameter(f"{setting!r} is not like spark.driver.memory=2g", param_hint="--conf")
        settings[key] = value
    return settings
