"""`alert send-test`."""

from pathlib import Path
from typing import Any

import click

from sidecar.cli.options import CONFIG, OBSERVER, cluster_options, options


@click.group()
def alert() -> None:
    """Try out notifications."""


@alert.command()
@options(
    CONFIG,
    click.option("--receiver", "receivers", metavar="NAME", multiple=True, help="Only this one; may be repeated."),
    OBSERVER,
    cluster_options,
)
def send_test(config: Path | None, receivers: tuple[str, ...], **overrides: Any) -> int:
    """Send a test message to every receiver.

    The message says that it is a test. Prints name, outcome and reason of each destination; exit status 1 if one failed.
    """
    from sidecar.clock import Clock
    from sidecar.core.observations import DeliveryOutcome
    from sidecar.settings import load
    from sidecar.sinks.notify.test_message import send_test

    status = 0
    for name, outcome, detail in send_test(load(config, overrides), receivers, Clock()):
        click.echo(f"{name}  {outcome}{f': {detail}' if detail else ''}")
        status = status if outcome is DeliveryOutcome.DELIVERED else 1
    return status
