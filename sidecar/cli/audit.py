"""`audit …`: the Spark pipeline."""

import signal
import sys
import threading
from collections.abc import Callable
from typing import Any, Literal, TypeVar

import click

_F = TypeVar("_F", bound=Callable[..., Any])


@click.group()
def audit() -> None:
    """Keep and ask the audit log, with Spark."""


def _spark_options(command: _F) -> _F:
    command = click.option(
        "--conf", multiple=True, metavar="KEY=VALUE", help="Spark configuration, as for spark-submit."
    )(command)
    return click.option("--master", metavar="URL", help="Where Spark runs, as for spark-submit.  [local[*]]")(command)


_AUDIT = click.option("--audit", "audit_url", required=True, metavar="URL", help="The folder of the audit log.")


@audit.command()
@click.option("--spool", required=True, metavar="URL", help="The folder that sidecars write segments to.")
@_AUDIT
@click.option("--follow", is_flag=True, help="Go on and take in what comes, until SIGTERM.")
@_spark_options
def ingest(spool: str, audit_url: str, follow: bool, master: str | None, conf: tuple[str, ...]) -> None:
    """Take new segments in. May be run again at any time: each record is in the audit log once."""
    settings = _settings(conf)
    stop = threading.Event()
    if follow:
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, lambda _number, _frame: stop.set())
    from sidecar.audit.session import spark_session

    with spark_session(master, settings) as spark:
        from sidecar.audit.ingest import ingest as take_in  # after the session: it is the one that says what is missing

        taken = take_in(spark, spool, audit_url, follow=follow, stop=stop)
    rows = ", ".join(f"{count} {table}" for table, count in taken.rows.items() if count) or "nothing new"
    quarantined = f"; {taken.quarantined} lines went to quarantine" if taken.quarantined else ""
    click.echo(f"{taken.files} segments: {rows}{quarantined}")


@audit.command()
@_AUDIT
@click.option("--output", type=click.Choice(["table", "json", "csv"]), default="table", show_default=True)
@_spark_options
@click.argument("query")
def sql(
    audit_url: str, output: Literal["table", "json", "csv"], master: str | None, conf: tuple[str, ...], query: str
) -> None:
    """Ask the audit log in Spark SQL: its tables, and the view `failovers`."""
    settings = _settings(conf)
    from sidecar.audit.session import spark_session

    with spark_session(master, settings) as spark:
        from sidecar.audit.sql import render, run_sql

        render(run_sql(spark, audit_url, query), output, sys.stdout)


def _settings(conf: tuple[str, ...]) -> dict[str, str]:
    settings = {}
    for setting in conf:
        key, equals, value = setting.partition("=")
        if not key or not equals:
            raise click.BadParameter(f"{setting!r} is not like spark.driver.memory=2g", param_hint="--conf")
        settings[key] = value
    return settings
