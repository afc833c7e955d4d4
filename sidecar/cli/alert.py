"""`alert send-test` and `alert preview`."""

import sys
from pathlib import Path
from typing import Any

import click

from sidecar.cli.exit_status import DONE, FAILED
from sidecar.cli.options import CONFIG, OBSERVER, OUTPUT, PATH, STATE_DIR, Output, cluster_options, options
from sidecar.cli.printing import print_line, print_value


@click.group()
def alert() -> None:
    """Try out notifications."""


@alert.command()
@options(
    CONFIG,
    click.option("--receiver", "receivers", metavar="NAME", multiple=True, help="Only this one; may be repeated."),
    OBSERVER,
    OUTPUT,
    cluster_options,
)
def send_test(config: Path | None, receivers: tuple[str, ...], output: Output, **overrides: Any) -> int:
    """Send a test message to every receiver.

    The message says that it is a test. Prints name, outcome and reason of each destination; exit status 1 if one failed.
    """
    from sidecar.clock import Clock
    from sidecar.core.observations import DeliveryOutcome
    from sidecar.settings import load
    from sidecar.sinks.notify.send_test import send_test

    status = DONE
    for name, outcome, detail in send_test(load(config, overrides), receivers, Clock()):
        line = f"{name}  {outcome}{f': {detail}' if detail else ''}"
        print_value({"destination": name, "outcome": outcome.value, "detail": detail}, line, output)
        status = status if outcome is DeliveryOutcome.DELIVERED else FAILED
    return status


@alert.command()
@click.argument("files", nargs=-1, metavar="[FILE…]", type=PATH)
@options(
    CONFIG,
    click.option(
        "--episode", default="last", show_default=True, metavar="ID", help="Which failover; its id may be cut."
    ),
    STATE_DIR,
    OBSERVER,
    OUTPUT,
    cluster_options,
)
def preview(
    files: tuple[Path, ...],
    config: Path | None,
    episode: str,
    state_dir: Path | None,
    output: Output,
    **overrides: Any,
) -> None:
    """Print what the last failover would look like at each receiver.

    Sends nothing. The failover is in the journal of this sidecar, or in FILE: records, as `replay` takes them.
    """
    from sidecar import history
    from sidecar.checking import identified
    from sidecar.settings import load
    from sidecar.simulation.preview import in_words, previews
    from sidecar.simulation.replay import replay_of, replay_of_records

    settings = identified(load(config, overrides))
    observer, policy = overrides["observer"], settings.policy()
    if files:
        replay = replay_of(files, settings, observer, policy)
    else:
        replay = replay_of_records(lambda: history.records(state_dir or settings.state_dir), settings, observer, policy)
    messages = [*previews(replay, settings.endpoints(), episode)]
    for message in messages:
        if output == "json":
            print_value(message, "", output)
        else:
            for line in in_words(message):
                print_line(line)
    if not messages:
        print("flink-ha-sidecar: no receiver gets a message about this failover", file=sys.stderr)
