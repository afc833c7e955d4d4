"""`silence`."""

import getpass
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from sidecar.cli.options import CONFIG, OUTPUT, STATE_DIR, Output, cluster_options, options
from sidecar.cli.printing import print_line, print_value
from sidecar.core.sanitize import clean

if TYPE_CHECKING:
    from sidecar.silencing import Listed

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
    from sidecar import silencing
    from sidecar.core.alerting.silence_document import LONGEST_NAME, LONGEST_TEXT
    from sidecar.settings import load
    from sidecar.settings.file.durations import SECOND
    from sidecar.settings.file.setting import Setting

    settings = load(config, overrides)
    wanted = silencing.read_matchers(settings, texts, everything=everything)
    lasts = Setting(duration, "--duration").duration(at_least=SECOND, at_most=settings.silences.longest)
    why = _line("--comment", comment, LONGEST_TEXT)
    made = silencing.add(settings, wanted, lasts, why, _line("--author", author or _login(), LONGEST_NAME))
    print_value(made, made.id, output)


@silence.command("list")
@click.option("--expired", is_flag=True, help="Also those that have ended in the last day.")
@OUTPUT
@STATE_DIR
@_which_store
def list_(expired: bool, output: Output, config: Path | None, **overrides: Any) -> None:
    """Print the silences, the one that ends next first.

    "Hid" is the number of alerts that the records of the sidecar in the state folder say it has hidden.
    """
    from sidecar import history, silencing
    from sidecar.core.alerting.silence_document import SilencesError
    from sidecar.settings import load

    settings = load(config, overrides)
    found = silencing.listed(settings, history.hidden(settings.state_dir), expired=expired)
    if output == "json":
        for each in found.silences:
            print_value(each, "", output)
    elif found.silences or not found.problem:
        _print_table([("ID", "Matchers", "Ends At", "Created By", "Hid", "Comment"), *map(_row, found.silences)])
    if found.problem:
        raise SilencesError(found.problem)


@silence.command()
@click.argument("name", metavar="ID")
@_which_store
def expire(name: str, config: Path | None, **overrides: Any) -> None:
    """End a silence now. Alerts that still fire are notified.

    The first characters of the id are enough.
    """
    from sidecar import silencing
    from sidecar.settings import load

    print_line(silencing.expire(load(config, overrides), name))


def _print_table(rows: Sequence[Sequence[str]]) -> None:
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    for row in rows:
        print_line("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip())


def _row(each: "Listed") -> tuple[str, ...]:
    ends = f"{each.ends_at[:19]}Z".replace("T", " ") + (" (ended)" if each.state == "expired" else "")
    hid = "-" if each.hid is None else str(each.hid)
    return each.id, clean(", ".join(each.matchers)), ends, clean(each.author), hid, clean(each.comment)


def _line(name: str, text: str, longest: int) -> str:
    """One line of text for people. Raises BadParameter."""
    line = " ".join(text.split())
    if not line or len(line) > longest or not line.isprintable():
        raise click.UsageError(f"{name} must be 1 to {longest} printable characters")
    return line


def _login() -> str:
    try:
        return getpass.getuser()
    except (OSError, KeyError):  # a user id without a name, as in many containers
        return "unknown"
