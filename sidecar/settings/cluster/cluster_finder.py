"""Reads where clusters are found, in place of a list of them."""

from collections import ChainMap
from typing import Annotated, Final

from msgspec import Struct

from sidecar.core.flink.znode_paths import namespace
from sidecar.settings.cluster.cluster import read_zookeeper, zookeeper_settings
from sidecar.settings.cluster.kubernetes import PLAN_FLAGS, find_access, read_namespace
from sidecar.settings.cluster.stores import (
    AnyFinderSettings,
    FinderSettings,
    KubernetesSettings,
    ZooKeeperFinderSettings,
    ZooKeeperSettings,
)
from sidecar.settings.file.key import Key, default_of, keys_of
from sidecar.settings.file.section import Section
from sidecar.settings.file.setting import Setting
from sidecar.settings.security import NamedSettings

ALL: Final = "all"
_FINDING: Final = ("selector", "namespaces")
_MOST_NAMESPACES: Final = 50


class ZooKeeperFinderKeys(Struct, frozen=True):
    """The keys of `zookeeper` at the top level, where it may find clusters."""

    clusters: Annotated[str, Key()]
    """`all`: [every cluster below `root` is found](../how-to/zookeeper.md#clusters-that-are-found)"""


def read_finder(file: Section, *overrides: NamedSettings) -> AnyFinderSettings | None:
    """The place where the configuration finds clusters; None: it names them. `overrides`: the command line and the environment.

    Raises SettingsError.
    """
    if "zookeeper" in file and (below := _below_root(file, *overrides)):
        return below
    if "kubernetes" not in file:
        return None
    section = file.section("kubernetes")
    key = next((key for key in _FINDING if key in section), None)
    if key is None:
        return None
    own = {name: setting for name in keys_of(KubernetesSettings) if (setting := section.find(name))}
    settings = ChainMap(*map(dict, overrides), own)
    _names_no_cluster(file, section, key, settings)
    kubeconfig, context, home = find_access(settings)
    namespaces = (
        _namespaces(section) if "namespaces" in section else (read_namespace(settings.get("namespace") or home),)
    )
    return section.make(
        FinderSettings,
        namespaces=namespaces,
        home=read_namespace(home),
        kubeconfig=kubeconfig,
        context=context,
        **{flag: flag in settings and settings[flag].flag() for flag in PLAN_FLAGS},
    )


def _names_no_cluster(file: Section, section: Section, key: str, settings: NamedSettings) -> None:
    """Nothing else says which clusters there are. `key`: the one of the section that finds them. Raises SettingsError."""
    for other in ("clusters", "flink_conf_dir", "zookeeper"):
        if other in file:
            raise file.error(other, f"kubernetes.{key} finds clusters, and names them all: remove one of the two")
    for name in ("pod_names", "events"):
        if name in section:
            raise section.error(name, f"is for clusters that are named, and kubernetes.{key} finds them: remove it")
    if "cluster_id" in settings:
        problem = f"names one cluster, and kubernetes.{key} finds all of them: remove one of the two"
        raise settings["cluster_id"].error(problem)
    if "namespace" in settings and "namespaces" in section:
        raise settings["namespace"].error("namespaces is given too: remove one of the two")


def _below_root(file: Section, *overrides: NamedSettings) -> ZooKeeperFinderSettings | None:
    section = file.section("zookeeper")
    if "clusters" not in section:
        return None
    section.get("clusters").one_of(
        {ALL}, "choices: all clusters below zookeeper.root; to name some, list them under clusters"
    )
    for other in ("clusters", "flink_conf_dir", "kubernetes"):
        if other in file:
            raise file.error(other, "zookeeper.clusters finds clusters, and names them all: remove one of the two")
    if "tolerate_suspended_connections" in section:
        raise section.error(
            "tolerate_suspended_connections",
            "is for a cluster that is named, and zookeeper.clusters finds them: remove it",
        )
    settings = dict(ChainMap(*map(dict, overrides), zookeeper_settings(section)))
    if "cluster_id" in settings:
        raise settings["cluster_id"].error(
            "names one cluster, and zookeeper.clusters finds all of them: remove one of the two"
        )
    if "zookeeper" not in settings:
        raise section.error("clusters", "needs zookeeper.quorum: the servers, like zk-1:2181,zk-2:2181")
    root = settings.get("root") or default_of(ZooKeeperSettings, "root")
    zookeeper = read_zookeeper({**settings, "cluster_id": Setting(ALL, "the clusters that are found")})
    return ZooKeeperFinderSettings(
        quorum=zookeeper.quorum,
        root=namespace(root.text, ""),
        session_timeout=zookeeper.session_timeout,
        connection_timeout=zookeeper.connection_timeout,
        tls=zookeeper.tls,
        sasl=zookeeper.sasl,
        authorization=zookeeper.authorization,
    )


def _namespaces(section: Section) -> tuple[str, ...] | None:
    if not section.is_list("namespaces"):
        section.get("namespaces").one_of({ALL}, "choices; otherwise it is a list of namespaces")
        return None
    names = tuple(map(read_namespace, section.texts("namespaces")))
    if not names or len({*names}) < len(names) or len(names) > _MOST_NAMESPACES:
        raise section.error("namespaces", f"must be {ALL}, or a list of 1 to {_MOST_NAMESPACES} different namespaces")
    return names
