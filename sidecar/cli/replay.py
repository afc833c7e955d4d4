"""`replay`."""

import sys
from pathlib import Path

import click

from sidecar.cli.options import OUTPUT, RULES_CONFIG, Output, options
from sidecar.cli.printing import print_value


@click.command()
@click.argument("files", nargs=-1, required=True, metavar="FILE…", type=click.Path(path_type=Path))
@options(
    RULES_CONFIG,
    click.option("--observer", metavar="NAME", help="Whose records, where the files hold those of several sidecars."),
    OUTPUT,
)
def replay(files: tuple[Path, ...], config: Path | None, observer: str | None, output: Output) -> None:
    """Print what today's rules would have told of what was recorded.

    FILE holds records: segments of the spool, in the order of time, packed or not; or ZooKeeper's transactions as JSON lines.
    """
    from sidecar.settings.rules_only import read_rules
    from sidecar.simulation.replay import replay_of

    found = replay_of(files, read_rules(config), observer)
    for told in found.notifications():
        text = f"{told.at} {told.receiver} {told.reason} {told.title}"
        print_value(told, text, output)
    if found.unreadable:
        print(f"flink-ha-sidecar: {found.unreadable} lines could not be read, and were left out", file=sys.stderr)
