"""Options that several commands share."""

from collections.abc import Callable
from pathlib import Path
from typing import Any, Final, Literal, TypeVar

import click

_F = TypeVar("_F", bound=Callable[..., Any])


CONFIG: Final = click.option(
    "--config",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="The configuration file. Without it: defaults, environment, options.",
)
RULES_CONFIG: Final = click.option(
    "--config",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="A rule file, or a whole configuration. Without it: the shipped rules.",
)
STATE_DIR: Final = click.option(
    "--state-dir", type=click.Path(path_type=Path), metavar="DIR", help="Where the journal is."
)
OUTPUT: Final = click.option("--output", type=click.Choice(["text", "json"]), default="text", show_default=True)
Output = Literal["text", "json"]


def options(*all_of_them: Callable[[Any], Any]) -> Callable[[_F], _F]:
    """Several options as one decorator: `--help` shows them in this order."""

    def decorate(command: _F) -> _F:
        for option in reversed(all_of_them):
            command = option(command)
        return command

    return decorate


cluster_options = options(
    click.option(
        "--flink-conf",
        type=click.Path(path_type=Path),
        metavar="DIR",
        help="Flink's own configuration tells where the cluster is.",
    ),
    click.option(
        "--zookeeper",
        metavar="HOST:PORT[,…]",
        help="The ZooKeeper quorum, when there is no Flink configuration at hand.",
    ),
    click.option("--root", metavar="PATH", help="high-availability.zookeeper.path.root  [/flink]"),
    click.option(
        "--kubernetes", is_flag=True, default=None, help="Flink keeps its leaders in ConfigMaps; needs --cluster-id."
    ),
    click.option("--namespace", metavar="NS", help="kubernetes.namespace  [that of the kubeconfig or of the pod]"),
    click.option(
        "--kubeconfig",
        type=click.Path(path_type=Path),
        metavar="FILE",
        help="How its API server is reached  [$KUBECONFIG, ~/.kube/config, the service account of the pod]",
    ),
    click.option("--context", metavar="NAME", help="Of the kubeconfig  [its current one]"),
    click.option(
        "--cluster-id",
        metavar="ID",
        help="In ZooKeeper high-availability.cluster-id  [/default], in Kubernetes kubernetes.cluster-id.",
    ),
)
"""Where the cluster is. Each option may also be given as FLINK_HA_SIDECAR_…"""
