"""`replay`."""

import sys
from pathlib import Path

import click

from sidecar.cli.options import OUTPUT, PATH, RULES_CONFIG, Output, options
from sidecar.cli.printing import print_value


@click.command()
@click.argument("files", nargs=-1, required=True, metavar="FILE…", type=PATH)
@options(
    RULES_CONFIG,
    click.option("--observer", metavar="NAME", help="The sidecar to replay, if the files have records of several."),
    OUTPUT,
)
def replay(files: tuple[Path, ...], config: Path | None, observer: str | None, output: Output) -> None:
    """Replay records through today's rules. Prints the notifications that they send.

    FILE has records: segments of the spool, in the order of time, packed or not.
    """
    from sidecar.settings.rules_only import read_rules
    from sidecar.simulation.replay import replay_of

    replayed = replay_of(files, read_rules(config), observer)
    for sent in replayed.notifications():
        print_value(sent, f"{sent.at} {sent.receiver} {sent.reason} {sent.title}", output)
    if replayed.unreadable:
        print(f"flink-ha-sidecar: {replayed.unreadable} lines could not be read, and were skipped", file=sys.stderr)
