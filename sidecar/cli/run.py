"""`run` and `config check`."""

import signal
from pathlib import Path
from typing import Any

import click

from sidecar.cli.options import CONFIG, STATE_DIR, cluster_options, options

_sidecar_options = options(
    CONFIG,
    click.option("--observer", metavar="NAME", help="The name of this sidecar  [$POD_NAME, the host name]"),
    STATE_DIR,
    click.option("--spool", metavar="DIR|URL", help="Where segments go: a folder, or a place in an object store."),
)
"""What a sidecar is told beside where the cluster is."""


@click.command()
@_sidecar_options
@cluster_options
def run(config: Path | None, **overrides: Any) -> int:
    """Run the sidecar until SIGTERM."""
    signal.signal(
        signal.SIGHUP, signal.SIG_IGN
    )  # loading takes a moment: until then there is nothing to be loaded again
    from sidecar import app
    from sidecar.settings import load

    return app.run(lambda: load(config, overrides))


@click.group()
def config() -> None:
    """Check the configuration."""


@config.command()
@_sidecar_options
@cluster_options
def check(config: Path | None, **overrides: Any) -> None:
    """Check the configuration without connecting to anything; say what it amounts to."""
    from sidecar import app
    from sidecar.core.policy.routing import every
    from sidecar.settings import load

    settings = load(config, overrides)
    app.check(settings)
    policy = settings.policy()
    for cluster in settings.clusters:
        click.echo(f"cluster    {cluster.cluster_id}: {cluster.place}")
    click.echo(f"observer   {policy.observer}")
    click.echo(f"rules      {', '.join(rule.alert for rule in policy.rules) or 'none'}")
    told = sorted({route.receiver for route in every(policy.route)} - {""})
    names = [destination.name for receiver in told for destination in policy.receivers[receiver]]
    click.echo(f"told       {', '.join(names) or 'nobody'}")
    click.echo("ok")
