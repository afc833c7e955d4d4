"""`run` and `config check`."""

import signal
from pathlib import Path
from typing import Any

import click

from sidecar.cli.options import CONFIG, OBSERVER, STATE_DIR, cluster_options, options

_sidecar_options = options(
    CONFIG,
    OBSERVER,
    STATE_DIR,
    click.option(
        "--spool", metavar="DIR|URL", help="Where segments are written: a folder, or a URL in an object store."
    ),
    cluster_options,
)


@click.command()
@_sidecar_options
def run(config: Path | None, **overrides: Any) -> int:
    """Run the sidecar until SIGTERM."""
    signal.signal(signal.SIGHUP, signal.SIG_IGN)  # until the first configuration is loaded there is nothing to reload
    from sidecar import app
    from sidecar.settings import load

    return app.run(lambda: load(config, overrides))


@click.group()
def config() -> None:
    """Check the configuration."""


@config.command()
@_sidecar_options
def check(config: Path | None, **overrides: Any) -> None:
    """Check the configuration and print a summary. Connects to nothing."""
    from sidecar import app
    from sidecar.core.policy.routing import every
    from sidecar.settings import load

    settings = load(config, overrides)
    app.check(settings)
    policy = settings.policy()
    for cluster in settings.clusters:
        click.echo(f"cluster    {cluster.cluster_id}: {cluster.place}")
    if settings.finder:
        click.echo(f"clusters   found in {settings.finder.place}")
    click.echo(f"observer   {policy.observer}")
    click.echo(f"rules      {', '.join(rule.alert for rule in policy.rules) or 'none'}")
    routed = sorted({route.receiver for route in every(policy.route)} - {""})
    names = [destination.name for receiver in routed for destination in policy.receivers[receiver]]
    click.echo(f"notified   {', '.join(names) or 'none'}")
    click.echo("ok")
