"""Which cluster is meant: named on the command line, in the environment, in the configuration, or by Flink's own configuration."""

import logging
import os
import re
from collections import ChainMap
from pathlib import Path
from typing import Final

from sidecar.core.flink.znode_paths import namespace
from sidecar.settings.cluster.flink_conf import configurations, read_flink_conf
from sidecar.settings.cluster.kubernetes import read_kubernetes
from sidecar.settings.file import schema
from sidecar.settings.file.durations import DAY, MILLISECOND, SECOND
from sidecar.settings.file.errors import SettingsError
from sidecar.settings.file.schema import Keys
from sidecar.settings.file.value import Given
from sidecar.settings.model import ClusterSettings, ZooKeeperSettings
from sidecar.settings.security import Place, read_authorization, read_sasl, read_tls

FLINK_CONF_DIR: Final = "FLINK_CONF_DIR"
"""Flink's own variable."""
IMAGE_CONF_DIR: Final = Path("/opt/flink/conf")
"""Where Flink's image has its configuration."""

_log = logging.getLogger(__name__)

_SERVER = re.compile(r"(?:[A-Za-z0-9_.-]+|\[[0-9A-Fa-f:.]+\])(?::(?P<port>[0-9]{1,5}))?")


_WAYS: Final = ("flink_conf", "zookeeper", "kubernetes")


def names_cluster(place: Place) -> bool:
    """Whether it says which cluster is meant."""
    return any(way in place for way in _WAYS)


def find_cluster(*places: Place) -> ClusterSettings:
    """The cluster that the first of `places` names that names one; each other value comes from the first place that gives it.

    A place gives one of `_WAYS`, and keys of `keys.KUBERNETES`, or of `keys.ZOOKEEPER` but the quorum (`tls.ca_file` is one of `tls`).

    A place that names its cluster in another way (Flink's configuration here, a quorum there) means another one and is passed over.
    Where none names it, Flink's configuration is looked for. Raises SettingsError.
    """
    for place in places:
        named = [place[way] for way in _WAYS if way in place]
        if len(named) > 1:
            raise named[1].error(f"the cluster is named by {named[0].where} too: give one of them")
    way = next((way for place in places for way in _WAYS if way in place), "flink_conf")
    others = {*_WAYS} - {way}
    given = ChainMap(*(dict(place) for place in places if others.isdisjoint(place)))
    flinks: Place | None = None
    if way == "flink_conf":
        flinks = read_flink_conf(given.get(way) or _flink_conf_dir())
        given = ChainMap(*given.maps, dict(flinks))
    if "kubernetes" in given:
        _demand_none_of(schema.ZOOKEEPER, "ZooKeeper", given, f"Kubernetes ({given['kubernetes'].where})")
        return read_kubernetes(given)
    _demand_none_of(schema.KUBERNETES, "Kubernetes", given, f"ZooKeeper ({given['zookeeper'].where})")
    return _zookeeper(given, flinks)


def _demand_none_of(foreign: Keys, store: str, given: Place, actual: str) -> None:
    """What belongs to the other store alone was given for another cluster, or by mistake."""
    for key in foreign.defaults:
        if key in given and key != "cluster_id":
            raise given[key].error(f"is for {store}, and the cluster is in {actual}: remove it")


def _flink_conf_dir() -> Given:
    if named := os.environ.get(FLINK_CONF_DIR):
        return Given(named, named, FLINK_CONF_DIR)
    image = Given(str(IMAGE_CONF_DIR), str(IMAGE_CONF_DIR), "Flink's configuration")
    if configurations(image):
        return image
    raise SettingsError(
        "which Flink cluster? give --flink-conf DIR (the folder of Flink's config.yaml), or --zookeeper HOST:PORT[,…] "
        "[--root /flink] [--cluster-id /default], or --kubernetes --cluster-id ID [--namespace NS] [--kubeconfig FILE]; "
        "in the configuration: flink_conf_dir, zookeeper.quorum, or kubernetes.cluster_id"
    )


def _zookeeper(given: Place, flinks: Place | None) -> ZooKeeperSettings:
    """`flinks`: what Flink's own configuration says, where it was read."""

    def value(key: str, place: Place = given) -> Given:
        default = schema.ZOOKEEPER.defaults[key] or ""
        return place.get(key) or Given(default, default, f"the default of {key}")

    root, cluster_id = value("root"), value("cluster_id")
    for path in (root, cluster_id):
        _demand_path(path, path.text.strip("/"))
    name = cluster_id.text.strip("/") or root.text.strip("/")
    if not name:
        raise cluster_id.error("root and cluster id are both empty: give the cluster an id")
    settings = ZooKeeperSettings(
        quorum=_quorum(given["zookeeper"]),
        namespace=namespace(root.text, cluster_id.text),
        cluster_id=name,
        session_timeout=_patience(value("session_timeout")),
        flink_session_timeout=_patience(value("session_timeout", flinks)) if flinks is not None else None,
        connection_timeout=_patience(value("connection_timeout")),
        tolerate_suspended=value("tolerate_suspended_connections").flag(),
        tls=read_tls(given),
        sasl=read_sasl(given),
        authorization=read_authorization(given),
    )
    if (acl := given.get("acl")) and acl.text.lower() == "creator" and not _is_somebody(settings):
        _log.warning(
            "%s is creator: only Flink's own identity may read its leaders. Configure zookeeper.sasl, zookeeper.authorization or "
            "zookeeper.tls.certificate_file with that identity",
            acl.where,
        )
    return settings


def _is_somebody(settings: ZooKeeperSettings) -> bool:
    """Whether the server can tell us from anybody."""
    return bool(settings.sasl or settings.authorization or (settings.tls and settings.tls.certificate_file))


def _quorum(given: Given) -> str:
    quorum = "".join(given.text.split())
    servers, slash, chroot = quorum.partition("/")
    for server in servers.split(","):
        match = _SERVER.fullmatch(server)
        if not match or not 0 < int(match["port"] or 2181) < 1 << 16:
            raise given.wrong("is no list of ZooKeeper servers: write it like zk-1:2181,zk-2:2181")
    if slash:
        _demand_path(given, chroot)
    return quorum


def _demand_path(given: Given, path: str) -> None:
    """ZooKeeper's own rules for a path, of which `path` is the middle."""
    if path and any(part in {"", ".", ".."} for part in path.split("/")):
        raise given.wrong("is no path of ZooKeeper: it has an empty part, or one that is . or ..")


def _patience(timeout: Given) -> float:
    return timeout.duration(at_least=10 * MILLISECOND, at_most=24 * DAY) / SECOND  # 31 bits of milliseconds on the wire
