"""The settings from files, environment and command line."""

import os
import re
import socket
from collections import ChainMap
from collections.abc import Mapping
from pathlib import Path
from typing import Final
from urllib.parse import SplitResult, unquote

from msgspec import structs

from sidecar.core.pods import is_address
from sidecar.core.policy.labels import OWN_LABELS
from sidecar.core.policy.policy import Objective, Source
from sidecar.settings.alerting.alerting import read_alerting
from sidecar.settings.cluster.cluster import find_cluster, names_cluster
from sidecar.settings.cluster.cluster_finder import read_finder
from sidecar.settings.evidence import read_evidence
from sidecar.settings.file import schema
from sidecar.settings.file.durations import DAY, MILLISECOND, MINUTE, SECOND
from sidecar.settings.file.hosts import is_host
from sidecar.settings.file.section import ReadFile, Section, read_file
from sidecar.settings.file.setting import Setting, overrides_of
from sidecar.settings.model import (
    ClusterSettings,
    HttpSettings,
    LedgerMode,
    LogFormat,
    OwnPod,
    Settings,
    SilenceSettings,
    SpoolSettings,
)
from sidecar.settings.security import NamedSettings, security_settings
from sidecar.settings.slo import read_slo

_OBSERVER = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,252}")
_HOST_NAME = re.compile(r"[A-Za-z0-9_]([A-Za-z0-9_.-]{0,252})|\*")
_CLUSTER_KEYS: Final = ("flink_conf_dir", "zookeeper.quorum", "kubernetes.cluster_id")
_OBJECT_STORES: Final = ("s3", "s3a", "gs", "az", "abfs", "abfss")


def load(
    config: Path | None, overrides: Mapping[str, object], *, secrets: bool = True, read: ReadFile = read_file
) -> Settings:
    """The settings of `run`: of `overrides` (the command line, by the names in `schema.OVERRIDES`; None: not given), the environment
    (FLINK_HA_SIDECAR_…), the file `config`, and the defaults, in this order. Without `secrets`, those of receivers are not read.
    Raises SettingsError: one line, without any secret.
    """
    line, environment = overrides_of(overrides)
    overriding = ChainMap(line, environment)
    file = read(config, schema.CONFIG)
    rule_files = [setting.path() for setting in file.texts("rule_files")]
    documents = [file, *(read(path, schema.RULE_FILE) for path in rule_files)]
    alerting = read_alerting(documents, external_labels(file), secrets=secrets)
    state_dir = (overriding.get("state_dir") or file.get("state_dir")).path()
    spool = _spool(file.section("spool", schema.SPOOL), overriding.get("spool"))
    cluster_overrides = _cluster_settings(line), _cluster_settings(environment)
    finder = None if any(map(names_cluster, cluster_overrides)) else read_finder(file, *cluster_overrides)
    evidence = read_evidence(file.section("evidence", schema.EVIDENCE), state_dir, spool.place)
    if finder and Source.PROCESSES in evidence.sources:
        raise file.error("evidence", "capture: processes are those of this pod, and belong to no cluster that is found")
    settings = Settings(
        **structs.asdict(alerting),
        state_dir=state_dir,
        spool=spool,
        ledger=file.section("ledger", schema.LEDGER).get("mode").choice(LedgerMode),
        silences=SilenceSettings(file.section("silences", schema.SILENCES).get("longest").duration(at_least=SECOND)),
        trust_window=file.get("trust_window").duration() / SECOND,
        log=file.section("log", schema.LOG).get("format").choice(LogFormat),
        http=_http(file.section("http", schema.HTTP)),
        evidence=evidence,
        ha_check=_ha_check_interval(file.section("ha_check", schema.HA_CHECK).get("interval")),
        files=(*([config] if config else []), *rule_files),
        observer=_observer(overriding.get("observer") or file.find("observer")),
        own_pod=_own_pod(),
        finder=finder,
        clusters=(),
        slo=read_slo(file),
    )
    return settings if finder else _with_clusters(settings, *_clusters(*cluster_overrides, file))


def _with_clusters(settings: Settings, *clusters: tuple[ClusterSettings, Objective | None]) -> Settings:
    objectives = {cluster.cluster_id: objective for cluster, objective in clusters if objective}
    return structs.replace(settings, clusters=tuple(cluster for cluster, _ in clusters), objectives=objectives)


def _spool(section: Section, override: Setting | None) -> SpoolSettings:
    return SpoolSettings(
        place=_spool_place(override or section.get("url")),
        roll_interval=section.get("roll_interval").duration(at_least=100 * MILLISECOND) / SECOND,
        roll_records=section.get("roll_records").integer(1, 1_000_000),
    )


def load_cluster(overrides: Mapping[str, object]) -> ClusterSettings:
    """The cluster alone, for commands without a configuration: from `overrides`, the environment, or Flink's own configuration.

    Raises SettingsError.
    """
    return find_cluster(*map(_cluster_settings, overrides_of(overrides)))


def _clusters(
    line: NamedSettings, environment: NamedSettings, file: Section
) -> tuple[tuple[ClusterSettings, Objective | None], ...]:
    """The entries of `clusters`, unless the command line or the environment names another cluster; each with its own objective."""
    if "clusters" not in file or names_cluster(line) or names_cluster(environment):
        cluster = find_cluster(line, environment, _cluster_in(file, schema.ZOOKEEPER_FINDER, schema.KUBERNETES))
        return ((cluster, None),)
    for key in schema.CLUSTER:
        if key in file:
            raise file.error(key, "clusters is given too: move this cluster into the list, or remove the other")
    for source in (line, environment):
        if "cluster_id" in source:
            raise source["cluster_id"].error("the configuration lists clusters: name the store of this one too")
    clusters: dict[str, tuple[ClusterSettings, Objective | None]] = {}
    for section in file.sections("clusters", schema.LISTED_CLUSTER):
        listed = _cluster_in(section)
        if not names_cluster(listed):
            raise section.mistake(f"names no cluster: give {', '.join(_CLUSTER_KEYS)}")
        cluster = find_cluster(line, environment, listed)
        if cluster.cluster_id in clusters:
            other, _ = clusters[cluster.cluster_id]
            raise section.mistake(
                f"there is a cluster {cluster.cluster_id} already ({other.place}), and records and alerts "
                "identify clusters by id: watch this one with a sidecar of its own"
            )
        clusters[cluster.cluster_id] = cluster, read_slo(section)
    if not clusters:
        raise file.error("clusters", "the list is empty: add a cluster, or remove the key")
    return tuple(clusters.values())


def _cluster_settings(source: NamedSettings) -> NamedSettings:
    settings = {name: source[name] for name in schema.CLUSTER_OVERRIDES if name in source}
    if "kubernetes" in settings and not settings["kubernetes"].flag():
        del settings["kubernetes"]
    return settings


def _cluster_in(
    section: Section,
    zookeeper_keys: schema.Keys = schema.ZOOKEEPER,
    kubernetes_keys: schema.Keys = schema.KUBERNETES_CLUSTER,
) -> NamedSettings:
    """The settings of one cluster, by the names that `find_cluster` expects."""
    settings = {"flink_conf": section.find("flink_conf_dir")}
    if "kubernetes" not in section:
        zookeeper = section.section("zookeeper", zookeeper_keys)
        plain = schema.ZOOKEEPER.keys() - schema.ZOOKEEPER_SECURITY.keys()
        settings |= {"zookeeper" if key == "quorum" else key: zookeeper.find(key) for key in plain}
        settings |= security_settings(zookeeper)
    elif "zookeeper" not in section:
        kubernetes = section.section("kubernetes", kubernetes_keys)
        settings |= {key: kubernetes.find(key) for key in schema.KUBERNETES_CLUSTER}
        settings["kubernetes"] = settings["cluster_id"]
    else:
        raise section.error("kubernetes", "zookeeper is given too, and a cluster is in one of them: remove the other")
    return {name: setting for name, setting in settings.items() if setting is not None}


def _observer(setting: Setting | None) -> str:
    """The name of this sidecar and of its folder in the spool."""
    if setting is None:
        name = os.environ.get("POD_NAME") or socket.gethostname()
        setting = Setting(name, "the observer's name, from POD_NAME or the host name")
    return setting.matching(_OBSERVER, "a name of letters, digits, _, - and .: set observer")


def _own_pod() -> OwnPod | None:
    """Our own pod, from the variables that its manifest sets: POD_NAME, POD_IP, POD_UID."""
    name, address = os.environ.get("POD_NAME"), os.environ.get("POD_IP")
    if not name or not address:
        return None
    if not is_address(address):
        raise Setting(address, "POD_IP").invalid(
            "is not an IP address: set it from the field status.podIP, or not at all"
        )
    return OwnPod(name, address, os.environ.get("POD_UID") or None)


def external_labels(file: Section) -> dict[str, str]:
    """The labels that every alert and record of this sidecar has."""
    labels = file.labels("external_labels")
    for name, setting in labels.items():
        if name in OWN_LABELS or name == "alertname":  # as Alertmanagers and webhooks get the label `alert`
            raise setting.error("alerts already have a label of this name: choose another")
    return {name: setting.text for name, setting in labels.items()}


def _spool_place(url: Setting) -> Path | str:
    """The folder that a path or a `file://` URL names, or the URL of a place in an object store."""
    if "://" not in url.text:
        return url.path()
    parts = url.url()
    if parts.scheme in _OBJECT_STORES:
        return _object_url(url, parts)
    if parts.scheme != "file":
        raise url.error(
            f"must be a folder on this machine, file:///…, or begin with one of {', '.join(_OBJECT_STORES)} and ://"
        )
    if parts.netloc not in {"", "localhost"} or not parts.path:
        raise url.error("must be like file:///var/spool/flink-ha-sidecar, with three slashes")
    return Path(unquote(parts.path))


def _object_url(url: Setting, parts: SplitResult) -> str:
    """The URL, which holds no secret. In Azure's `abfss://container@account…` the part before the host is not a user."""
    if "@" in parts.netloc and (":" in parts.netloc or not parts.scheme.startswith("abfs")):
        raise url.error("must hold no user and no password: credentials come from the environment")
    if "?" in url.text or "#" in url.text:
        raise url.error("must end with its path, without ? and #: credentials and options come from the environment")
    if not parts.netloc:
        raise url.error(f"names no bucket: give one like {parts.scheme}://bucket/prefix")
    return url.text


def _http(section: Section) -> HttpSettings:
    allowed = [
        setting.matching(_HOST_NAME, "a host name without a port, or *") for setting in section.texts("allowed_hosts")
    ]
    return HttpSettings(
        host=_listening(section.get("host")),
        port=section.get("port").integer(0, (1 << 16) - 1),
        external_url=section.read("external_url", _external_url, None),
        allowed_hosts=frozenset(name.lower().removesuffix(".") for name in allowed),
    )


def _ha_check_interval(interval: Setting) -> float | None:
    """0 turns it off."""
    return None if interval.text == "0" else interval.duration(10 * MINUTE, 7 * DAY) / SECOND


def _listening(setting: Setting) -> str:
    if not is_host(setting.not_empty()):
        raise setting.invalid("is no IP address, and no host name")
    return setting.text.removeprefix("[").removesuffix("]")


def _external_url(setting: Setting) -> str:
    parts = setting.url()
    extra = "@" in parts.netloc or parts.query or parts.fragment
    if parts.scheme not in {"http", "https"} or not is_host(parts.hostname or "") or extra:
        raise setting.error("must be like https://host/path, without a user, ? and #: messages show it")
    return setting.text.rstrip("/")
