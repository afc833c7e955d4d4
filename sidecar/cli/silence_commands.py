"""`silence` and `drill`, which write to the stores."""

import getpass
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from sidecar.cli.exit_status import CannotTellError
from sidecar.cli.options import CONFIG, OUTPUT, STATE_DIR, Output, cluster_options, options, output
from sidecar.cli.printing import columns, print_line, print_table, print_text, print_value

if TYPE_CHECKING:
    from sidecar.core.views.alert_view import SilenceView

_which_store = options(CONFIG, cluster_options)


@click.group()
def silence() -> None:
    """Silence alerts for a while.

    A silence is kept in the store of Flink's leaders and holds for every sidecar of the cluster.
    """


@silence.command()
@click.option(
    "--matcher",
    "texts",
    metavar="MATCHER",
    multiple=True,
    help="""A condition on a label of alerts: 'cluster_id="default"'; all of several must be true.""",
)
@click.option("--all", "everything", is_flag=True, help="Silence all alerts.")
@click.option("--duration", required=True, metavar="TIME", help="How long: 30m, 2h, 1d12h.")
@click.option("--comment", required=True, metavar="TEXT", help="Why, up to 500 characters.")
@click.option("--author", metavar="NAME", help="Who  [the login name]")
@OUTPUT
@_which_store
def add(
    texts: tuple[str, ...],
    everything: bool,
    duration: str,
    comment: str,
    author: str | None,
    output: Output,
    config: Path | None,
    **overrides: Any,
) -> None:
    """Silence the alerts that all matchers match. Prints the id of the silence."""
    if not texts and not everything:
        raise click.UsageError("give --matcher, or --all to silence all alerts")
    from sidecar.app import silencing
    from sidecar.core.alerting.silence_document import LONGEST_NAME, LONGEST_TEXT
    from sidecar.settings import load
    from sidecar.settings.file.durations import SECOND
    from sidecar.settings.file.setting import Setting

    settings = load(config, overrides, secrets=False)
    wanted = silencing.read_matchers(settings, texts, everything=everything)
    lasts = Setting(duration, "--duration").duration(at_least=SECOND, at_most=settings.silences.longest)
    why = text_line("--comment", comment, LONGEST_TEXT)
    entry = silencing.add(settings, wanted, lasts, why, text_line("--author", author or login(), LONGEST_NAME))
    print_value(entry, entry.id, output)


@silence.command("list")
@click.option("--expired", is_flag=True, help="Also those that have ended in the last day.")
@output("text", "wide", "json")
@STATE_DIR
@_which_store
def list_(expired: bool, output: str, config: Path | None, **overrides: Any) -> None:
    """Print the silences, the one that ends next first.

    "Hid" is the number of alerts that it has hidden, or hides now, as the sidecar in the state folder knows. Exit status 3 if a store
    cannot be read.
    """
    from sidecar.app import history, silencing
    from sidecar.settings import load

    settings = load(config, overrides, secrets=False)
    listing = silencing.listed(settings, history.hidden(settings.state_dir, settings.policy()), expired=expired)
    if output == "json":
        for silence in listing.silences:
            print_value(silence, "", "json")
    elif listing.silences or not listing.problem:
        width = None if output == "wide" else columns()
        header = ("ID", "Matchers", "Ends At (UTC)", "Created By", "Hid", "Comment")
        rows = [header, *(_row(silence, wide=width is None) for silence in listing.silences)]
        print_table(rows, width=width, flexible=[1, 3, 5])
    if listing.problem:
        raise CannotTellError(listing.problem)


@silence.command()
@click.argument("name", metavar="ID")
@OUTPUT
@_which_store
def expire(name: str, output: Output, config: Path | None, **overrides: Any) -> None:
    """End a silence now. Alerts that still fire are notified.

    The first characters of the id are enough.
    """
    from sidecar.app import silencing
    from sidecar.settings import load

    ended = silencing.expire(load(config, overrides, secrets=False), name)
    print_value({"id": ended}, ended, output)


def _row(silence: "SilenceView", *, wide: bool) -> tuple[str, ...]:
    ends = f"{silence.ends_at[:19]}Z".replace("T", " ") if wide else silence.ends_at[:16].replace("T", " ")
    ends += " (ended)" if silence.state == "expired" else ""
    hid = "-" if silence.hid is None else str(silence.hid)
    matchers = f"{'drill of ' if silence.drill else ''}{', '.join(silence.matchers)}"
    return silence.id if wide else silence.id[:8], matchers, ends, silence.author, hid, silence.comment


def text_line(name: str, text: str, longest: int) -> str:
    """One line of text for people. Raises BadParameter."""
    line = " ".join(text.split())
    if not line or len(line) > longest or not line.isprintable():
        raise click.UsageError(f"{name} must be 1 to {longest} printable characters")
    return line


def login() -> str:
    """The name of who runs the command."""
    try:
        return getpass.getuser()
    except (OSError, KeyError):  # a user id without a name, as in many containers
        return "unknown"


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
    from sidecar.app import silencing
    from sidecar.core.alerting.silence_document import LONGEST_DRILL, LONGEST_NAME, LONGEST_TEXT, Expectation
    from sidecar.settings import load
    from sidecar.settings.file.durations import SECOND
    from sidecar.settings.file.setting import Setting

    settings = load(config, overrides, secrets=False)
    most = min(LONGEST_DRILL, settings.silences.longest)
    lasts = Setting(window, "--window").duration(at_least=60 * SECOND, at_most=most)
    why = text_line("--comment", comment, LONGEST_TEXT) if comment else ""
    who = text_line("--author", author or login(), LONGEST_NAME)
    entry = silencing.start_drill(settings, cluster, lasts, Expectation(expect), why, who)
    print_value(entry, entry.id, output)


@drill.command()
@click.argument("name", metavar="[ID]", required=False)
@OUTPUT
@_which_store
def stop(name: str | None, output: Output, config: Path | None, **overrides: Any) -> None:
    """End the window of a drill now. Alerts that still fire are notified.

    Without ID the only open one. The first characters of the id are enough.
    """
    from sidecar.app import silencing
    from sidecar.settings import load

    ended = silencing.stop_drill(load(config, overrides, secrets=False), name)
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
    from sidecar.app import silencing
    from sidecar.core.views.drill_report import exit_status, report_lines, table
    from sidecar.settings import load

    folder = state_dir or load(config, overrides, secrets=False).state_dir
    result = silencing.report_drill(folder, name)
    if output == "json":
        print_value(result, "", output)
        return exit_status(result)
    width = columns() if sys.stdout.isatty() else None
    for line in report_lines(result):
        print_text(line, width=width, indent=" " * 11)
    if rows := table(result):
        print_line("")
        print_table(rows, width=width)
    return exit_status(result)
