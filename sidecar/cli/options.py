"""Options that several commands share."""

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final, Literal, TypeVar

import click

from sidecar.cli import logs

_F = TypeVar("_F", bound=Callable[..., Any])

PATH: Final = click.Path(path_type=Path)
CONFIG_VARIABLE: Final = "FLINK_HA_SIDECAR_CONFIG"
DEFAULT_CONFIG: Final = Path("/etc/flink-ha-sidecar/config.yaml")


def _default_config() -> Path | None:
    """The configuration where none is given; None: there is none."""
    if path := os.environ.get(CONFIG_VARIABLE):
        return Path(path)
    try:
        return DEFAULT_CONFIG if DEFAULT_CONFIG.is_file() else None
    except OSError:
        return DEFAULT_CONFIG  # it may be there: whoever reads it says why it cannot be read


def _config_option(what: str, without: str) -> Callable[[_F], _F]:
    text = f"{what}  [${CONFIG_VARIABLE}, {DEFAULT_CONFIG}]. Without one: {without}."
    return click.option("--config", type=PATH, metavar="FILE", default=_default_config, help=text)


CONFIG: Final = _config_option("The configuration file", "defaults, environment, options")
RULES_CONFIG: Final = _config_option("A rule file or a configuration", "the shipped rules")
OBSERVER: Final = click.option(
    "--observer", metavar="NAME", help="The name of this sidecar  [$POD_NAME, the host name]"
)
STATE_DIR: Final = click.option("--state-dir", type=PATH, metavar="DIR", help="The folder of the journal.")


def _seconds(_context: click.Context, option: click.Parameter, text: str) -> float:
    """A duration in seconds: 0.1 s to an hour. Raises SettingsError."""
    from sidecar.core.moment import SECOND
    from sidecar.settings.file.setting import Setting

    return Setting(text, f"--{option.name}").duration(at_least=SECOND // 10, at_most=3600 * SECOND) / SECOND


TIMEOUT: Final = click.option(
    "--timeout",
    default="30s",
    show_default=True,
    metavar="TIME",
    callback=_seconds,
    help="How long to wait until all leaders are read and all leases are confirmed.",
)


def output(*forms: str) -> Callable[[_F], _F]:
    """The option for the form of what is printed; the first one is the default."""
    return click.option(
        "-o", "--output", type=click.Choice(forms), default=forms[0], show_default=True, help="How to print it."
    )


OUTPUT: Final = output("text", "json")
Output = Literal["text", "json"]
DEBUG_HELP: Final = "Show tracebacks and debug logs."


def accept_debug(command: click.Command) -> None:
    """Let the command, and those below it, take --debug too: it is found out to be needed when the command line is written."""

    def switch(_context: click.Context, _option: click.Parameter, wanted: bool) -> None:
        if wanted:
            logs.set_up(debug=True)

    command.params.append(click.Option(["--debug"], is_flag=True, expose_value=False, callback=switch, help=DEBUG_HELP))
    for below in command.commands.values() if isinstance(command, click.Group) else ():
        accept_debug(below)


def options(*decorators: Callable[[Any], Any]) -> Callable[[_F], _F]:
    """Several options as one decorator; `--help` shows them in this order."""

    def decorate(command: _F) -> _F:
        for option in reversed(decorators):
            command = option(command)
        return command

    return decorate


cluster_options = options(
    click.option("--flink-conf", type=PATH, metavar="DIR", help="The folder of Flink's own configuration."),
    click.option("--zookeeper", metavar="HOST:PORT[,…]", help="The ZooKeeper quorum, without a Flink configuration."),
    click.option("--root", metavar="PATH", help="high-availability.zookeeper.path.root  [/flink]"),
    click.option(
        "--kubernetes", is_flag=True, default=None, help="Flink keeps its leaders in ConfigMaps; needs --cluster-id."
    ),
    click.option("--namespace", metavar="NS", help="kubernetes.namespace  [that of the kubeconfig or of the pod]"),
    click.option(
        "--kubeconfig",
        type=PATH,
        metavar="FILE",
        help="Access to the API server  [$KUBECONFIG, ~/.kube/config, the service account of the pod]",
    ),
    click.option("--context", metavar="NAME", help="A context of the kubeconfig  [its current one]"),
    click.option(
        "--cluster-id",
        metavar="ID",
        help="In ZooKeeper high-availability.cluster-id  [/default], in Kubernetes kubernetes.cluster-id.",
    ),
)
"""Name the cluster. Each option has an environment variable FLINK_HA_SIDECAR_…"""
