"""`alert send-test` and `alert preview`."""

import sys
from pathlib import Path
from typing import Any

import click

from sidecar.cli.exit_status import DONE, FAILED
from sidecar.cli.options import CONFIG, OBSERVER, OUTPUT, Output, cluster_options, options
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
    from sidecar.core.observations import DeliveryOutcome
    from sidecar.runtime.clock import Clock
    from sidecar.settings import load
    from sidecar.sinks.notify.send_test import send_test

    status = DONE
    for name, outcome, detail in send_test(load(config, overrides), receivers, Clock()):
        line = f"{name}  {outcome}{f': {detail}' if detail else ''}"
        print_value({"destination": name, "outcome": outcome.value, "detail": detail}, line, output)
        status = status if outcome is DeliveryOutcome.DELIVERED else FAILED
    return status


@alert.command()
@options(CONFIG, OBSERVER, OUTPUT, cluster_options)
def preview(config: Path | None, output: Output, **overrides: Any) -> None:
    """Print what a failover would look like at each receiver.

    The failover is simulated: no leader for 40 s, another 15 s until two jobs run again. Sends nothing.
    """
    from sidecar.app.checking import identified
    from sidecar.settings import load
    from sidecar.simulation.preview import in_words, previews

    settings = identified(load(config, overrides))
    messages = [*previews(settings.policy(), settings.endpoints())]
    for message in messages:
        if output == "json":
            print_value(message, "", output)
        else:
            for line in in_words(message):
                print_line(line)
    if not messages:
        print("flink-ha-sidecar: no receiver gets a message about this failover", file=sys.stderr)
