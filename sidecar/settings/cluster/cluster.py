"""Reads which cluster to watch: from the command line, the environment, the configuration, or Flink's own configuration."""

import logging
import os
from collections import ChainMap
from pathlib import Path
from typing import Final

from msgspec import Struct
from msgspec.structs import replace

from sidecar.core.flink.znode_paths import namespace
from sidecar.settings.cluster.flink_conf import configurations, read_flink_conf
from sidecar.settings.cluster.kubernetes import read_kubernetes
from sidecar.settings.cluster.quorum import check_path, read_quorum
from sidecar.settings.cluster.stores import TIMEOUT, ClusterSettings, KubernetesSettings, ZooKeeperSettings
from sidecar.settings.file.key import default_of, keys_of, read_settings
from sidecar.settings.file.section import Section
from sidecar.settings.file.setting import Setting
from sidecar.settings.file.settings_error import SettingsError
from sidecar.settings.security import (
    SECURITY,
    NamedSettings,
    read_authorization,
    read_sasl,
    read_tls,
    security_settings,
)

FLINK_CONF_DIR: Final = "FLINK_CONF_DIR"
"""Flink's own variable."""
IMAGE_CONF_DIR: Final = Path("/opt/flink/conf")
"""The configuration folder of Flink's image."""

_log = logging.getLogger(__name__)

_WAYS: Final = ("flink_conf", "zookeeper", "kubernetes")
"""The settings that name a cluster."""


def names_cluster(source: NamedSettings) -> bool:
    """Whether `source` names a cluster."""
    return any(way in source for way in _WAYS)


def find_cluster(*sources: NamedSettings) -> ClusterSettings:
    """The cluster that the first of `sources` names. Every other value comes from the first source that has it.

    The keys of a source: `_WAYS`, those of KubernetesSettings, and those of ZooKeeperSettings without the quorum (`tls.ca_file` for a key
    of `tls`). A source that names its cluster in another way (Flink's configuration, not a quorum) means another cluster and is
    skipped. If no source names a cluster, Flink's configuration is searched for. Raises SettingsError.
    """
    for source in sources:
        ways = [source[way] for way in _WAYS if way in source]
        if len(ways) > 1:
            raise ways[1].error(f"{ways[0].location} names a cluster too: give one of them")
    way = next((way for source in sources for way in _WAYS if way in source), "flink_conf")
    others = {*_WAYS} - {way}
    settings = ChainMap(*(dict(source) for source in sources if others.isdisjoint(source)))
    flink_settings: NamedSettings | None = None
    folder: Path | None = None
    if way == "flink_conf":
        named_folder = settings.get(way) or _flink_conf_dir()
        flink_settings, folder = read_flink_conf(named_folder), named_folder.path()
        settings = ChainMap(*settings.maps, dict(flink_settings))
    if "kubernetes" in settings:
        _refuse(ZooKeeperSettings, "ZooKeeper", settings, f"Kubernetes ({settings['kubernetes'].location})")
        return replace(read_kubernetes(settings), flink_conf=folder)
    _refuse(KubernetesSettings, "Kubernetes", settings, f"ZooKeeper ({settings['zookeeper'].location})")
    return replace(read_zookeeper(settings, flink_settings), flink_conf=folder)


def _refuse(struct: type[Struct], store: str, settings: NamedSettings, actual: str) -> None:
    """Raise SettingsError if `settings` has a key of `struct`, the store that the cluster does not use."""
    for key in keys_of(struct):
        if key in settings and key != "cluster_id":
            raise settings[key].error(f"is for {store}, and the cluster is in {actual}: remove it")


def zookeeper_settings(section: Section) -> dict[str, Setting]:
    """The settings of the section `zookeeper`, by the names that `find_cluster` expects."""
    plain = keys_of(ZooKeeperSettings).keys() - SECURITY.keys()
    found = {"zookeeper" if key == "quorum" else key: section.find(key) for key in plain}
    return {**{key: setting for key, setting in found.items() if setting}, **security_settings(section)}


def _flink_conf_dir() -> Setting:
    if folder := os.environ.get(FLINK_CONF_DIR):
        return Setting(folder, FLINK_CONF_DIR)
    image = Setting(str(IMAGE_CONF_DIR), "Flink's configuration")
    if configurations(image):
        return image
    raise SettingsError(
        "which Flink cluster? give --flink-conf DIR (the folder of Flink's config.yaml), or --zookeeper HOST:PORT[,…] "
        "[--root /flink] [--cluster-id /default], or --kubernetes --cluster-id ID [--namespace NS] [--kubeconfig FILE]; "
        "in the configuration: flink_conf_dir, zookeeper.quorum, or kubernetes.cluster_id"
    )


def read_zookeeper(settings: NamedSettings, flink_settings: NamedSettings | None = None) -> ZooKeeperSettings:
    """The cluster whose settings these are, by the keys that `find_cluster` takes. Raises SettingsError.

    `flink_settings`: the settings in Flink's own configuration, if that was read."""

    def get(key: str, source: NamedSettings = settings) -> Setting:
        return source.get(key) or default_of(ZooKeeperSettings, key)

    root, cluster_id = get("root"), get("cluster_id")
    for path in (root, cluster_id):
        check_path(path, path.text.strip("/"))
    name = cluster_id.text.strip("/") or root.text.strip("/")
    if not name:
        raise cluster_id.error("root and cluster id are both empty: give the cluster an id")
    cluster = read_settings(
        ZooKeeperSettings,
        settings,
        quorum=read_quorum(settings["zookeeper"]),
        namespace=namespace(root.text, cluster_id.text),
        cluster_id=name,
        flink_session_timeout=None if flink_settings is None else TIMEOUT(get("session_timeout", flink_settings)),
        tls=read_tls(settings),
        sasl=read_sasl(settings),
        authorization=read_authorization(settings),
    )
    if (acl := settings.get("acl")) and acl.text.lower() == "creator" and not _has_identity(cluster):
        _log.warning(
            "%s is creator: only Flink's own identity may read its leaders. Configure zookeeper.sasl, zookeeper.authorization or "
            "zookeeper.tls.certificate_file with that identity",
            acl.location,
        )
    return cluster


def _has_identity(settings: ZooKeeperSettings) -> bool:
    """Whether the server can identify us."""
    return bool(settings.sasl or settings.authorization or (settings.tls and settings.tls.certificate_file))
