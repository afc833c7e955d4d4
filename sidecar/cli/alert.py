"""`alert send-test`."""

from pathlib import Path
from typing import Any

import click

from sidecar.cli.options import CONFIG, cluster_options, options


@click.group()
def alert() -> None:
    """Try out how people are told."""


@alert.command()
@options(
    CONFIG,
    click.option("--receiver", "receivers", metavar="NAME", multiple=True, help="Only this one; may be repeated."),
    click.option("--observer", metavar="NAME", help="The name of this sidecar  [$POD_NAME, the host name]"),
    cluster_options,
)
def send_test(config: Path | None, receivers: tuple[str, ...], **overrides: Any) -> int:
    """Send a test message to every receiver.

    It says that it is one. A line for each destination: its name, how it went, why. Exit status 1 where one was not delivered.
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
