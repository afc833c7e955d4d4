"""The settings from files, environment and command line."""

import os
import re
import socket
from collections import ChainMap
from collections.abc import Mapping
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Final

from msgspec import Struct, structs

from sidecar.core.pods import is_address
from sidecar.core.policy.policy import Objective, Source
from sidecar.core.policy.routing import OWN_LABELS, Operator
from sidecar.settings.alerting.alerting import RULE_FILE, RuleFile, read_alerting
from sidecar.settings.alerting.receivers import UNUSED_URL
from sidecar.settings.alerting.routes import matchers
from sidecar.settings.cluster.cluster import (
    ZooKeeperFinderKeys,
    find_cluster,
    names_cluster,
    read_finder,
    zookeeper_settings,
)
from sidecar.settings.cluster.stores import ClusterSettings, FinderSettings, KubernetesSettings, ZooKeeperSettings
from sidecar.settings.file.key import Key, Keys, keys_of
from sidecar.settings.file.section import ReadFile, Section, read_file
from sidecar.settings.file.setting import CLUSTER_OVERRIDES, Setting, overrides_of, spool_place
from sidecar.settings.model import (
    Alerting,
    EvidenceSettings,
    FlinkRestSettings,
    OwnPod,
    Settings,
    SloKeys,
    SpoolSettings,
    read_objective,
)
from sidecar.settings.tls_and_sasl import NamedSettings, read_tls, security_settings

_OBSERVER = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,252}")
_CLUSTER_KEYS: Final = ("flink_conf_dir", "zookeeper.quorum", "kubernetes.cluster_id")


class ClusterKeys(Struct, frozen=True):
    """The keys that name a cluster, in each entry of `clusters`; at the top level where there is only one."""

    flink_conf_dir: Annotated[Path, Key()]
    """the folder of Flink's configuration"""
    zookeeper: Annotated[object, Key(inside=(ZooKeeperSettings,))]
    kubernetes: Annotated[object, Key(inside=(KubernetesSettings,))]
    """a configuration has one of the two"""


class _ListedCluster(ClusterKeys, frozen=True):
    slo: Annotated[Objective | None, Key(read_objective, inside=(SloKeys,))] = None


class _TopLevel(ClusterKeys, frozen=True):
    zookeeper: Annotated[object, Key(inside=(ZooKeeperSettings, ZooKeeperFinderKeys))]
    kubernetes: Annotated[object, Key(inside=(KubernetesSettings, FinderSettings))]
    """a configuration has one of the two"""
    clusters: Annotated[tuple[_ListedCluster, ...], Key(inside=(_ListedCluster,), many=tuple)]
    """[several clusters](#several-clusters)"""
    rule_files: Annotated[tuple[Path, ...], Key()]
    """more files with `rules`, `route`, `inhibit_rules`, `time_intervals` and `receivers`, which add up"""


CONFIG: Final[Keys] = keys_of(_TopLevel, Settings, RuleFile)


def load(
    config: Path | None, overrides: Mapping[str, object], *, secrets: bool = True, read: ReadFile = read_file
) -> Settings:
    """The settings of `run`: of `overrides` (the command line, by the names in OVERRIDES; None: not given), the environment
    (FLINK_HA_SIDECAR_…), the file `config`, and the defaults, in this order. Without `secrets`, those of receivers are not read.
    Raises SettingsError: one line, without any secret.
    """
    line, environment = overrides_of(overrides)
    overriding = ChainMap(line, environment)
    file = read(config, CONFIG)
    rule_files = [setting.path() for setting in file.texts("rule_files")]
    documents = [file, *(read(path, RULE_FILE) for path in rule_files)]
    alerting = structs.asdict(read_alerting(documents, external_labels(file), secrets=secrets))
    state_dir = (overriding.get("state_dir") or file.get("state_dir")).path()
    place = {"place": spool_place(overriding["spool"])} if "spool" in overriding else {}
    spool = file.section("spool").make(SpoolSettings, **place)
    own = file.values(Settings, *alerting, "observer", "state_dir", "spool", "evidence")
    cluster_overrides = _cluster_settings(line), _cluster_settings(environment)
    finder = None if any(map(names_cluster, cluster_overrides)) else read_finder(file, *cluster_overrides)
    evidence = _evidence(file.section("evidence"), state_dir, spool.place)
    if finder and Source.PROCESSES in evidence.sources:
        raise file.error("evidence", "capture: processes are those of this pod, and belong to no cluster that is found")
    settings = Settings(
        **alerting,
        **own,
        state_dir=state_dir,
        spool=spool,
        evidence=evidence,
        files=(*([config] if config else []), *rule_files),
        observer=_observer(overriding.get("observer") or file.find("observer")),
        own_pod=_own_pod(),
        finder=finder,
        clusters=(),
    )
    return settings if finder else _add_clusters(settings, *_clusters(*cluster_overrides, file))


def _add_clusters(settings: Settings, *clusters: tuple[ClusterSettings, Objective | None]) -> Settings:
    objectives = {cluster.cluster_id: objective for cluster, objective in clusters if objective}
    return structs.replace(settings, clusters=tuple(cluster for cluster, _ in clusters), objectives=objectives)


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
        cluster = find_cluster(line, environment, _cluster_in(file))
        return ((cluster, None),)
    for key in keys_of(ClusterKeys):
        if key in file:
            raise file.error(key, "clusters is given too: move this cluster into the list, or remove the other")
    for source in (line, environment):
        if "cluster_id" in source:
            raise source["cluster_id"].error("the configuration lists clusters: name the store of this one too")
    clusters: dict[str, tuple[ClusterSettings, Objective | None]] = {}
    for section in file.sections("clusters"):
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
        clusters[cluster.cluster_id] = cluster, section.value("slo")
    if not clusters:
        raise file.error("clusters", "the list is empty: add a cluster, or remove the key")
    return tuple(clusters.values())


def _cluster_settings(source: NamedSettings) -> NamedSettings:
    settings = {name: source[name] for name in CLUSTER_OVERRIDES if name in source}
    if "kubernetes" in settings and not settings["kubernetes"].flag():
        del settings["kubernetes"]
    return settings


def _cluster_in(section: Section) -> NamedSettings:
    """The settings of one cluster, by the names that `find_cluster` expects."""
    settings = {"flink_conf": section.find("flink_conf_dir")}
    if "kubernetes" not in section:
        zookeeper = section.section("zookeeper")
        settings |= zookeeper_settings(zookeeper)
    elif "zookeeper" not in section:
        kubernetes = section.section("kubernetes")
        settings |= {key: kubernetes.find(key) for key in keys_of(KubernetesSettings)}
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


class _FlinkRest(StrEnum):
    """Whether the leading REST server is asked."""

    AUTO = "auto"
    """Flink's REST server is asked at the address that the leader publishes."""
    NEVER = "never"


def _evidence(section: Section, state_dir: Path, spool: Path | str) -> EvidenceSettings:
    """The settings of `section`; an empty one asks Flink's REST server alone. Raises SettingsError."""
    sources = {setting.choice(Source) for setting in section.texts("capture")}
    if len(sources) < len(section.texts("capture")):
        raise section.error("capture", "names a source twice")
    is_asked = not section.is_word("flink_rest") or section.get("flink_rest").choice(_FlinkRest) is _FlinkRest.AUTO
    if is_asked:
        sources.add(Source.FLINK_REST)
    elif Source.FLINK_REST in sources:
        raise section.error("flink_rest", "says never, and capture names it: remove one of the two")
    if section.value("log") and Source.PROCESSES not in sources:
        raise section.error("log", "is read when a JobManager ends, which takes capture: [processes]")
    return section.make(
        EvidenceSettings,
        sources=frozenset(sources),
        folder=section.read("dir", lambda setting: _evidence_folder(setting, state_dir, spool), state_dir / "evidence"),
        tls=read_tls(security_settings(section)),
        **({"flink_rest": FlinkRestSettings()} if section.is_word("flink_rest") else {}),
    )


def _evidence_folder(setting: Setting, state_dir: Path, spool: Path | str) -> Path:
    """A folder that holds evidence only, because old files in it are removed."""
    folder = setting.path()
    real = Path(os.path.realpath(folder))
    for key, other in (("state_dir", state_dir), ("spool.url", spool)):
        if isinstance(other, Path) and Path(os.path.realpath(other)).is_relative_to(real):
            raise setting.error(f"old evidence is removed from it, and {key} is the same folder or in it: give another")
    return folder


_DEFAULT_RECEIVER: Final = f"receivers: [{{name: ops, urls: ['{UNUSED_URL}']}}]"


def read_rules(config: Path | None) -> Alerting:
    """The alerting settings of `config` (a rule file or a whole configuration) and its rule files; None: the shipped rules.

    Raises SettingsError.
    """
    return rules_in(read_file(config, CONFIG))


def rules_in(file: Section, read: ReadFile = read_file) -> Alerting:
    """The alerting settings of `file` and its rule files; each may be a whole configuration with rule files. Raises SettingsError."""
    from sidecar.settings.file.yaml_document import parse  # noqa: PLC0415  imports ruamel.yaml

    configurations = [read(setting.path(), CONFIG) for setting in file.texts("rule_files")]
    rule_files = [setting for document in configurations for setting in document.texts("rule_files")]
    documents = [file, *configurations, *(read(setting.path(), RULE_FILE) for setting in rule_files)]
    if not any("receivers" in document for document in documents):
        documents.append(Section(parse(_DEFAULT_RECEIVER, "defaults"), RULE_FILE, "defaults"))
    labels = {name: text for document in documents for name, text in external_labels(document).items()}
    return read_alerting(documents, labels, secrets=False)


def labels_in(setting: Setting) -> dict[str, str]:
    """The labels of an alert, written as matchers: `alert="X",severity="critical"`. Any name is accepted. Raises SettingsError."""
    pairs = matchers(setting, None) if setting.text.strip() else []
    for matcher in pairs:
        if matcher.operator is not Operator.EQUAL:
            raise setting.error(f'an alert has labels, not conditions: write {matcher.label}="…"')
    return {matcher.label: matcher.value for matcher in pairs}
