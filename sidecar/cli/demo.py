"""`demo`."""

import click


@click.command()
def demo() -> None:
    """A real ZooKeeper, a real Flink, a killed leader, the alert, the audit row: in about a minute, on this machine alone."""
    from sidecar.demo.show import show

    show(lambda line: print(line, flush=True))
