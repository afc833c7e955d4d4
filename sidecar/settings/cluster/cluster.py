"""Reads which cluster to watch: from the command line, the environment, the configuration, or Flink's own configuration."""

import logging
import os
from collections import ChainMap
from pathlib import Path
from typing import Final

from msgspec.structs import replace

from sidecar.core.flink.znode_paths import namespace
from sidecar.settings.cluster.flink_conf import configurations, read_flink_conf
from sidecar.settings.cluster.kubernetes import read_kubernetes
from sidecar.settings.cluster.quorum import check_path, read_quorum
from sidecar.settings.file import schema
from sidecar.settings.file.durations import DAY, MILLISECOND, SECOND
from sidecar.settings.file.setting import Setting
from sidecar.settings.file.settings_error import SettingsError
from sidecar.settings.model import ClusterSettings, ZooKeeperSettings
from sidecar.settings.security import NamedSettings, read_authorization, read_sasl, read_tls

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

    The keys of a source: `_WAYS`, those of `schema.KUBERNETES_CLUSTER`, and those of `schema.ZOOKEEPER` without the quorum (`tls.ca_file`
    for a key of `tls`). A source that names its cluster in another way (Flink's configuration, not a quorum) means another cluster and is
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
        _refuse(schema.ZOOKEEPER, "ZooKeeper", settings, f"Kubernetes ({settings['kubernetes'].location})")
        return replace(read_kubernetes(settings), flink_conf=folder)
    _refuse(schema.KUBERNETES_CLUSTER, "Kubernetes", settings, f"ZooKeeper ({settings['zookeeper'].location})")
    return replace(read_zookeeper(settings, flink_settings), flink_conf=folder)


def _refuse(keys: schema.Keys, store: str, settings: NamedSettings, actual: str) -> None:
    """Raise SettingsError if `settings` has one of `keys`, which belong to a store that the cluster does not use."""
    for key in keys:
        if key in settings and key != "cluster_id":
            raise settings[key].error(f"is for {store}, and the cluster is in {actual}: remove it")


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
        return source.get(key) or Setting(schema.ZOOKEEPER[key] or "", f"the default of {key}")

    root, cluster_id = get("root"), get("cluster_id")
    for path in (root, cluster_id):
        check_path(path, path.text.strip("/"))
    name = cluster_id.text.strip("/") or root.text.strip("/")
    if not name:
        raise cluster_id.error("root and cluster id are both empty: give the cluster an id")
    cluster = ZooKeeperSettings(
        quorum=read_quorum(settings["zookeeper"]),
        namespace=namespace(root.text, cluster_id.text),
        cluster_id=name,
        session_timeout=_timeout(get("session_timeout")),
        flink_session_timeout=_timeout(get("session_timeout", flink_settings)) if flink_settings is not None else None,
        connection_timeout=_timeout(get("connection_timeout")),
        tolerate_suspended=get("tolerate_suspended_connections").flag(),
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


def _timeout(timeout: Setting) -> float:
    return (
        timeout.duration(at_least=10 * MILLISECOND, at_most=24 * DAY) / SECOND
    )  # the protocol has 31 bits of milliseconds
