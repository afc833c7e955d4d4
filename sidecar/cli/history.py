"""`timeline`, `explain` and `annotate`."""

from pathlib import Path
from typing import Any

import click

from sidecar.cli.options import CONFIG, OUTPUT, STATE_DIR, Output, cluster_options, options
from sidecar.cli.printing import print_line, print_value

_which_sidecar = options(CONFIG, STATE_DIR, cluster_options)


@click.command()
@click.option(
    "--last", default=50, show_default=True, metavar="N", type=click.IntRange(1), help="The number of records."
)
@OUTPUT
@_which_sidecar
def timeline(last: int, output: Output, config: Path | None, state_dir: Path | None, **overrides: Any) -> None:
    """Print the last records of this sidecar.

    Leader changes, failovers, contenders, coverage, messages.
    """
    from sidecar import history
    from sidecar.core.cluster.record_lines import record_line

    found = history.latest(_state_dir(config, state_dir, overrides), last)
    named = len(found.clusters) > 1
    for record in found.records:
        print_value(record, f"{record.observed_at} {record_line(record, named=named)}", output)


@click.command()
@click.argument("episode")
@OUTPUT
@_which_sidecar
def explain(episode: str, output: Output, config: Path | None, state_dir: Path | None, **overrides: Any) -> None:
    """Describe one failover and its cause.

    With the facts behind the cause. The first characters of the episode id are enough; `timeline` shows it.
    """
    from sidecar import history
    from sidecar.core.views.explain import find, in_words

    explained = find(history.records(_state_dir(config, state_dir, overrides)), episode)
    if output == "json":
        print_value(explained, "", output)
        return
    for line in in_words(explained):
        print_line(line)


@click.command()
@click.argument("episode")
@click.option("--reason", required=True, metavar="TEXT", help="The note, up to 2000 characters.")
@click.option("--author", metavar="NAME", help="The author of the note.")
@click.option("--planned", is_flag=True, help="Say that the failover was planned.")
@_which_sidecar
def annotate(
    episode: str,
    reason: str,
    author: str | None,
    planned: bool,
    config: Path | None,
    state_dir: Path | None,
    **overrides: Any,
) -> None:
    """Record a note on one failover.

    The sidecar need not run. `explain`, the episode's page and the audit log show the note.
    """
    from sidecar import history

    noted = history.annotate(_state_dir(config, state_dir, overrides), episode, reason, author, planned=planned)
    print_line(f"noted on episode {noted.episode_id}")


def _state_dir(config: Path | None, given: Path | None, overrides: dict[str, Any]) -> Path:
    """The folder of the journal. With `given`, no configuration is needed."""
    from sidecar.settings import load

    return given or load(config, overrides).state_dir
