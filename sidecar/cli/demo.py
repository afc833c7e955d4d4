"""`demo`."""

import click

from sidecar.core.errors import OperatorError


@click.command()
def demo() -> None:
    """Show a failover from end to end, on this machine alone.

    A real ZooKeeper and Flink, a killed leader, the alert, the metrics, the audit row: about a minute, after some downloads.
    """
    try:
        from sidecar.demo.show import show
    except ImportError as error:
        extras = "pip install 'flink-ha-sidecar[audit,lab]'"
        raise OperatorError(
            f"the demo needs more than the sidecar does ({error.name} is missing); run: {extras}"
        ) from error

    show(lambda line: print(line, flush=True))
