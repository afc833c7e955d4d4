"""`run` and `config check`."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from sidecar.cli import logs
from sidecar.cli.options import CONFIG, OBSERVER, OUTPUT, STATE_DIR, Output, cluster_options, options
from sidecar.cli.printing import print_line, print_mistake, print_value

if TYPE_CHECKING:
    from sidecar.settings import Settings

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
    from sidecar.app import running
    from sidecar.settings import LogFormat, Settings, load

    def loaded() -> Settings:
        settings = load(config, overrides)
        logs.use_json(wanted=settings.log is LogFormat.JSON)
        return settings

    return running.run(loaded)


@click.group()
def config() -> None:
    """Check the configuration."""


@config.command()
@_sidecar_options
@OUTPUT
def check(config: Path | None, output: Output, **overrides: Any) -> int:
    """Check the configuration and print a summary. Connects to nothing.

    Prints every mistake, each with its file and line, as far as one does not hide another. Exit status 2 if there is one.
    """
    from sidecar.app import checking
    from sidecar.settings import SettingsError
    from sidecar.settings import mistakes as reading

    read = reading.check(config, overrides)
    errors, settings = list(read.mistakes), read.settings
    if settings:
        settings, more = checking.checked(settings)
        errors += more
        if problem := checking.unwritable(settings.state_dir):
            errors.append(SettingsError(f"{read.state_dir}: {problem}"))
    summary = _summary(settings) if settings and not errors else {}
    if output == "json":
        print_value({"mistakes": [*map(str, reading.sorted_mistakes(errors))], **summary}, "", output)
        return SettingsError.exit_status if errors else 0
    for mistake in reading.sorted_mistakes(errors):
        print_mistake(str(mistake))
    if errors or not settings:
        return SettingsError.exit_status
    _print_summary(summary, settings.policy().services())
    print_line("ok")
    return 0


def _print_summary(summary: Mapping[str, Sequence[str]], services: Mapping[str, str]) -> None:
    for name, values in summary.items():
        entries = [f"{value} ({services[value]})" if services.get(value) else value for value in values]
        for line in values if name in {"cluster", "lacks", "idle"} else [", ".join(entries) or "none"]:
            print_line(f"{name:10} {line}")


def _summary(settings: "Settings") -> dict[str, list[str]]:
    """The facts about the configuration that are logged at the start, by name."""
    from sidecar.core.policy.policy import Store
    from sidecar.core.policy.routing import every

    policy = settings.policy()
    routed = sorted({route.receiver for route in every(policy.route)} - {""})
    silent = [receiver for receiver in routed if not policy.receivers[receiver]]
    if settings.finder:
        clusters = {"clusters": [f"found in {settings.finder.place}"]}
    else:
        clusters = {"cluster": [f"{cluster.cluster_id}: {cluster.place}" for cluster in settings.clusters]}
    ids = (cluster.cluster_id for cluster in settings.clusters)
    zookeeper = (name for name in ids if policy.store_of(name) is Store.ZOOKEEPER)
    unbounded = [name for name in zookeeper if name not in policy.session_timeouts]
    lacks = [f"flink_conf_dir: messages cannot say how long {name} was without a leader at most" for name in unbounded]
    by_need = policy.idle_rules()
    idle = {rule for rules in by_need.values() for rule in rules}
    without = [f"{', '.join(rules)}: cannot fire without {need}" for need, rules in by_need.items()]
    return {
        **clusters,
        **({"lacks": lacks} if lacks else {}),
        "observer": [policy.observer],
        "rules": [rule.alert for rule in policy.rules if rule.alert not in idle],
        **({"idle": without} if idle else {}),
        "notified": [destination.name for receiver in routed for destination in policy.receivers[receiver]],
        **({"nobody": silent} if silent else {}),
    }
