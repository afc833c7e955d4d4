"""Reads which cluster to watch (from the command line, the environment, the configuration, or Flink's own configuration), or where clusters
are found in place of a list of them; and the servers of a ZooKeeper ensemble as ZooKeeper's Java client reads them, which is Flink's."""

import logging
import os
import re
from collections import ChainMap
from pathlib import Path
from typing import Annotated, Final

from msgspec import Struct
from msgspec.structs import replace

from sidecar.core.flink.znode_paths import namespace
from sidecar.settings.cluster.flink_conf import configurations, read_flink_conf
from sidecar.settings.cluster.kubernetes import PLAN_FLAGS, find_access, read_kubernetes, read_namespace
from sidecar.settings.cluster.stores import (
    TIMEOUT,
    AnyFinderSettings,
    ClusterSettings,
    FinderSettings,
    KubernetesSettings,
    ZooKeeperFinderSettings,
    ZooKeeperSettings,
)
from sidecar.settings.file.key import Key, default_of, keys_of, read_settings
from sidecar.settings.file.section import Section
from sidecar.settings.file.setting import Setting, is_host
from sidecar.settings.file.settings_error import SettingsError
from sidecar.settings.tls_and_sasl import (
    SECURITY,
    NamedSettings,
    read_authorization,
    read_sasl,
    read_tls,
    security_settings,
)

_LIKE: Final = "is not a list of ZooKeeper servers: "
_EXAMPLE: Final = "write it like zk-1:2181,zk-2:2181"
_HOST = re.compile(r"[A-Za-z0-9_.-]+|\[[0-9A-Fa-f:.]+\]")
_PORT = re.compile(r"\+?[0-9]{1,9}", re.ASCII)


def read_quorum(setting: Setting) -> str:
    """`h1:2181,h2:2181[/chroot]`, without blanks around them, empty parts and colons without a port; IPv6 addresses in brackets.

    Raises SettingsError.
    """
    if "://" in setting.text:
        raise setting.invalid(f"{_LIKE}it is no URL: {_EXAMPLE}")
    servers, slash, chroot = setting.text.strip().partition("/")
    addresses = [_server(setting, part.strip()) for part in servers.split(",") if part.strip()]
    if not addresses:
        raise setting.invalid(f"{_LIKE}{_EXAMPLE}")
    if not slash or not chroot:
        return ",".join(addresses)
    if "," in chroot:
        raise setting.invalid(
            f"{_LIKE}ZooKeeper's client takes everything after the first slash for the chroot: "
            "give the chroot once, after the last server, like zk-1:2181,zk-2:2181/chroot"
        )
    check_path(setting, chroot)
    return f"{','.join(addresses)}/{chroot}"


def check_path(setting: Setting, path: str) -> None:
    """Raise SettingsError if `path`, without its outer slashes, breaks ZooKeeper's rules."""
    if path and any(part in {"", ".", ".."} for part in path.split("/")):
        raise setting.invalid("is not a ZooKeeper path: it has an empty part, or one that is . or ..")


def _server(setting: Setting, part: str) -> str:
    """Mirrors the loop of `ConnectStringParser`: the port follows the last colon, in an IPv6 address without brackets too."""
    host, colon, port = (part, "", "") if part.endswith("]") or ":" not in part else part.rpartition(":")
    port_is_missing = bool(colon) and not port and host.endswith("]")
    port_is_wrong = bool(port) and not (_PORT.fullmatch(port) and 0 < int(port) < 1 << 16)
    bracketed = f"[{host}]" if ":" in host and not host.startswith("[") else host
    if port_is_missing or port_is_wrong or not _HOST.fullmatch(bracketed):
        raise setting.invalid(f"{_LIKE}{_EXAMPLE}")
    if not is_host(bracketed):
        in_brackets = "write an IPv6 address in brackets, like [2001:db8::1]:2181"
        raise setting.invalid(f"{_LIKE}{in_brackets if is_host(part) else f'{host} is no IP address'}")
    return f"{bracketed}:{int(port)}" if port else bracketed


FLINK_CONF_DIR: Final = "FLINK_CONF_DIR"
"""Flink's own variable."""
IMAGE_CONF_DIR: Final = Path("/opt/flink/conf")
"""The configuration folder of Flink's image."""

_log = logging.getLogger(__name__)

_WAYS: Final = ("flink_conf", "zookeeper", "kubernetes")
"""The settings that name a cluster."""


def names_cluster(source: NamedSettings) -> bool:
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
    """True if the server can identify us."""
    return bool(settings.sasl or settings.authorization or (settings.tls and settings.tls.certificate_file))


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
    if "zookeeper" in file and (below := _read_zookeeper_finder(file, *overrides)):
        return below
    if "kubernetes" not in file:
        return None
    section = file.section("kubernetes")
    key = next((key for key in _FINDING if key in section), None)
    if key is None:
        return None
    own = {name: setting for name in keys_of(KubernetesSettings) if (setting := section.find(name))}
    settings = ChainMap(*map(dict, overrides), own)
    _names_no_cluster(file, section, f"kubernetes.{key}", settings)
    if "namespace" in settings and "namespaces" in section:
        raise settings["namespace"].error("namespaces is given too: remove one of the two")
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
    """Nothing else says which clusters there are. `key`: the one of `section` that finds them. Raises SettingsError."""
    for other in ("clusters", "flink_conf_dir", "zookeeper", "kubernetes"):
        if other in file and not key.startswith(other):
            raise file.error(other, f"{key} finds clusters, and names them all: remove one of the two")
    for name in ("pod_names", "events", "tolerate_suspended_connections"):
        if name in section:
            raise section.error(name, f"is for a cluster that is named, and {key} finds them: remove it")
    if "cluster_id" in settings:
        raise settings["cluster_id"].error(f"names one cluster, and {key} finds all of them: remove one of the two")


def _read_zookeeper_finder(file: Section, *overrides: NamedSettings) -> ZooKeeperFinderSettings | None:
    section = file.section("zookeeper")
    if "clusters" not in section:
        return None
    section.get("clusters").one_of(
        {ALL}, "choices: all clusters below zookeeper.root; to name some, list them under clusters"
    )
    settings = dict(ChainMap(*map(dict, overrides), zookeeper_settings(section)))
    _names_no_cluster(file, section, "zookeeper.clusters", settings)
    if "zookeeper" not in settings:
        raise section.error("clusters", "needs zookeeper.quorum: the servers, like zk-1:2181,zk-2:2181")
    root = settings.get("root") or default_of(ZooKeeperSettings, "root")
    zookeeper = read_zookeeper({**settings, "cluster_id": Setting(ALL, "the clusters that are found")})
    same = {name: getattr(zookeeper, name) for name in ZooKeeperFinderSettings.__struct_fields__ if name != "root"}
    return ZooKeeperFinderSettings(root=namespace(root.text, ""), **same)


def _namespaces(section: Section) -> tuple[str, ...] | None:
    if not section.is_list("namespaces"):
        section.get("namespaces").one_of({ALL}, "choices; otherwise it is a list of namespaces")
        return None
    names = tuple(map(read_namespace, section.texts("namespaces")))
    if not names or len({*names}) < len(names) or len(names) > _MOST_NAMESPACES:
        raise section.error("namespaces", f"must be {ALL}, or a list of 1 to {_MOST_NAMESPACES} different namespaces")
    return names
