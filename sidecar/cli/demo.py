"""`demo`."""

import click

from sidecar.core.errors import OperatorError, installing


@click.command()
def demo() -> None:
    """Show a failover from end to end, on this machine alone.

    A real ZooKeeper and Flink, a killed leader, the alert, the metrics, the audit row: about a minute, after some downloads.
    """
    try:
        from sidecar.demo.show import show
    except ImportError as error:
        missing = f"the demo needs more than the sidecar does ({error.name} is missing)"
        raise OperatorError(f"{missing}; run: {installing('audit,lab')}") from error

    show(lambda line: print(line, flush=True))
