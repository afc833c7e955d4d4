"""`drill`."""

import sys
from pathlib import Path
from typing import Any

import click

from sidecar.cli.options import CONFIG, OUTPUT, STATE_DIR, Output, cluster_options, options
from sidecar.cli.printing import print_line, print_value
from sidecar.cli.silence import login, text_line
from sidecar.cli.tables import columns, print_table, print_text

_which_store = options(CONFIG, cluster_options)


@click.group()
def drill() -> None:
    """Prove that a failover works, and measure it.

    A person ends the leader: no command does. Meanwhile alerts that a failover causes are recorded and not sent.
    """


@drill.command()
@click.option("--window", default="15m", show_default=True, metavar="TIME", help="How long: 1m to 4h.")
@click.option(
    "--expect", type=click.Choice(["failover"]), default="failover", show_default=True, help="What is to happen in it."
)
@click.option("--cluster", metavar="ID", help="Which cluster, if the configuration has several.")
@click.option("--comment", default="", metavar="TEXT", help="Why, up to 500 characters.")
@click.option("--author", metavar="NAME", help="Who  [the login name]")
@OUTPUT
@_which_store
def start(
    window: str,
    expect: str,
    cluster: str | None,
    comment: str,
    author: str | None,
    output: Output,
    config: Path | None,
    **overrides: Any,
) -> None:
    """Open the window of a drill. Prints its id.

    Each receiver that a critical alert of the cluster would reach gets a message that says that it is a drill. End the leader ten
    seconds later: every sidecar knows of the drill then.
    """
    from sidecar.app import drills
    from sidecar.core.alerting.silence_document import LONGEST_DRILL, LONGEST_NAME, LONGEST_TEXT, Expectation
    from sidecar.settings import load
    from sidecar.settings.file.durations import SECOND
    from sidecar.settings.file.setting import Setting

    settings = load(config, overrides, secrets=False)
    most = min(LONGEST_DRILL, settings.silences.longest)
    lasts = Setting(window, "--window").duration(at_least=60 * SECOND, at_most=most)
    why = text_line("--comment", comment, LONGEST_TEXT) if comment else ""
    who = text_line("--author", author or login(), LONGEST_NAME)
    entry = drills.start(settings, cluster, lasts, Expectation(expect), why, who)
    print_value(entry, entry.id, output)


@drill.command()
@click.argument("name", metavar="[ID]", required=False)
@OUTPUT
@_which_store
def stop(name: str | None, output: Output, config: Path | None, **overrides: Any) -> None:
    """End the window of a drill now. Alerts that still fire are notified.

    Without ID the only open one. The first characters of the id are enough.
    """
    from sidecar.app import drills
    from sidecar.settings import load

    ended = drills.stop(load(config, overrides, secrets=False), name)
    print_value({"id": ended}, ended, output)


@drill.command()
@click.argument("name", metavar="[ID]", default="last")
@OUTPUT
@options(CONFIG, STATE_DIR, cluster_options)
def report(name: str, output: Output, config: Path | None, state_dir: Path | None, **overrides: Any) -> int:
    """Say whether a drill has passed, and what it measured.

    ID is `last`, or the first characters of an id. From the records of the sidecar in the state folder. Exit status: 0 passed, 1 failed,
    3 cannot tell yet.
    """
    from sidecar.app import drills
    from sidecar.core.views.drill_report import exit_status, in_words, table
    from sidecar.settings import load

    folder = state_dir or load(config, overrides, secrets=False).state_dir
    result = drills.report(folder, name)
    if output == "json":
        print_value(result, "", output)
        return exit_status(result)
    width = columns() if sys.stdout.isatty() else None
    for line in in_words(result):
        print_text(line, width=width, indent=" " * 11)
    if rows := table(result):
        print_line("")
        print_table(rows, width=width)
    return exit_status(result)
