"""From files, environment and command line to settings: the only way in."""

import os
import re
import socket
from collections.abc import Mapping
from pathlib import Path
from typing import Final
from urllib.parse import SplitResult, unquote, urlsplit

from sidecar.core.policy.labels import OWN_LABELS
from sidecar.settings.alerting.alerting import read_alerting
from sidecar.settings.cluster.cluster import find_cluster, names_cluster
from sidecar.settings.evidence import read_evidence
from sidecar.settings.file import schema
from sidecar.settings.file.durations import MILLISECOND, SECOND
from sidecar.settings.file.errors import SettingsError
from sidecar.settings.file.nodes import Table
from sidecar.settings.file.schema import Keys
from sidecar.settings.file.section import Section
from sidecar.settings.file.value import Given, overrides_of
from sidecar.settings.model import ClusterSettings, HttpSettings, LedgerMode, Settings, SpoolSettings
from sidecar.settings.security import Place

_OBSERVER = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,252}")
_HOST_NAME = re.compile(r"[A-Za-z0-9_]([A-Za-z0-9_.-]{0,252})|\*")
_NAMING: Final = ("flink_conf_dir", "zookeeper.quorum", "kubernetes.cluster_id")
_OBJECT_STORES: Final = ("s3", "s3a", "gs", "az", "abfs", "abfss")


def load(config: Path | None, overrides: Mapping[str, object]) -> Settings:
    """The settings of `run`: `overrides` (what the command line gave, by the names in `keys.OVERRIDES`; None: nothing) over
    the environment (FLINK_HA_SIDECAR_…) over the file `config` over the defaults. Without a file, everything else has its default.

    Raises SettingsError: one clear line, without any secret.
    """
    line, environment = overrides_of(overrides)
    file = (
        _document(config, schema.CONFIG)
        if config
        else Section(Table({}, {}, 1), schema.CONFIG, "the configuration", None)
    )
    rule_files = [given.path() for given in file.texts("rule_files")]
    documents = [file, *(_document(path, schema.RULE_FILE) for path in rule_files)]
    own_labels = external_labels(file)
    alerting = read_alerting(documents, own_labels)
    spool, http = file.section("spool", schema.SPOOL), file.section("http", schema.HTTP)
    state_dir = (line.get("state_dir") or environment.get("state_dir") or file.get("state_dir")).path()
    spool_place = _spool_place(line.get("spool") or environment.get("spool") or spool.get("url"))
    return Settings(
        clusters=_clusters(_cluster_of(line), _cluster_of(environment), file),
        observer=_observer(line.get("observer") or environment.get("observer") or file.find("observer")),
        external_labels=own_labels,
        state_dir=state_dir,
        spool=SpoolSettings(
            place=spool_place,
            roll_interval=spool.get("roll_interval").duration(at_least=100 * MILLISECOND) / SECOND,
            roll_records=spool.get("roll_records").integer(1, 1_000_000),
        ),
        ledger=file.section("ledger", schema.LEDGER).get("mode").choice(LedgerMode),
        trust_window=file.get("trust_window").duration() / SECOND,
        http=_http(http),
        evidence=read_evidence(file.section("evidence", schema.EVIDENCE), state_dir, spool_place),
        rules=alerting.rules,
        receivers=alerting.receivers,
        route=alerting.route,
        inhibit_rules=alerting.inhibit_rules,
        files=(*([config] if config else []), *rule_files),
    )


def load_cluster(overrides: Mapping[str, object]) -> ClusterSettings:
    """Only where the cluster is, for commands that need no configuration: `overrides` over the environment over Flink's own configuration.

    Raises SettingsError.
    """
    return find_cluster(*(_cluster_of(place) for place in overrides_of(overrides)))


def _document(path: Path, known: Keys) -> Section:
    from sidecar.settings.file.document import parse, read_text  # noqa: PLC0415  imports ruamel.yaml

    return Section(parse(read_text(path), str(path)), known, str(path), path.absolute().parent)


def _clusters(line: Place, environment: Place, file: Section) -> tuple[ClusterSettings, ...]:
    """Those that `clusters` lists, unless the command line or the environment names another one."""
    if "clusters" not in file or names_cluster(line) or names_cluster(environment):
        return (find_cluster(line, environment, _cluster_of_file(file)),)
    for key in schema.CLUSTER.defaults:
        if key in file:
            raise file.error(key, "clusters is given too: put this one among them, or remove the other")
    for place in (line, environment):
        if "cluster_id" in place:
            raise place["cluster_id"].error("the configuration lists clusters: which one is meant? name its store too")
    found: dict[str, ClusterSettings] = {}
    for section in file.sections("clusters", schema.CLUSTER):
        listed = _cluster_of_file(section)
        if not names_cluster(listed):
            raise SettingsError(f"{section.where}: names no cluster: give {', '.join(_NAMING)}")
        cluster = find_cluster(line, environment, listed)
        if (other := found.get(cluster.cluster_id)) is not None:
            raise SettingsError(
                f"{section.where}: there is a cluster {cluster.cluster_id} already ({other.place}), and records and alerts tell "
                "clusters apart by their ids: watch this one with a sidecar of its own"
            )
        found[cluster.cluster_id] = cluster
    if not found:
        raise file.error("clusters", "lists none: list at least one, or remove it")
    return tuple(found.values())


def _cluster_of(place: Place) -> Place:
    found = {name: place[name] for name in schema.CLUSTER_OVERRIDES if name in place}
    if "kubernetes" in found and not found["kubernetes"].flag():
        del found["kubernetes"]
    return found


def _cluster_of_file(file: Section) -> Place:
    if "kubernetes" not in file:
        found = _zookeeper_of(file.section("zookeeper", schema.ZOOKEEPER))
    elif "zookeeper" not in file:
        section = file.section("kubernetes", schema.KUBERNETES)
        found = {key: section.find(key) for key in schema.KUBERNETES.defaults}
        found["kubernetes"] = found["cluster_id"]
    else:
        raise file.error("kubernetes", "zookeeper is given too, and a cluster is in one of them: remove the other")
    found["flink_conf"] = file.find("flink_conf_dir")
    return {name: given for name, given in found.items() if given is not None}


def _zookeeper_of(section: Section) -> dict[str, Given | None]:
    plain = schema.ZOOKEEPER.defaults.keys() - schema.ZOOKEEPER_SECURITY.keys()
    found = {"zookeeper" if key == "quorum" else key: section.find(key) for key in plain}
    for name, known in schema.ZOOKEEPER_SECURITY.items():
        if name in section:
            nested = section.section(name, known)
            found[name] = Given("", "", nested.where)
            found |= {f"{name}.{key}": nested.find(key) for key in known.defaults}
    return {
        name: given.secret("value") if given and name in schema.ZOOKEEPER_SECRETS else given
        for name, given in found.items()
    }


def _observer(given: Given | None) -> str:
    """The name of this sidecar: also that of its folder in the spool."""
    if given is None:
        name = os.environ.get("POD_NAME") or socket.gethostname()
        given = Given(name, name, "the observer's name, from POD_NAME or the host name")
    return given.matching(_OBSERVER, "a name of letters, digits, _, - and .: set observer")


def external_labels(file: Section) -> dict[str, str]:
    """The labels of everything that this sidecar says."""
    labels = file.labels("external_labels")
    for name, given in labels.items():
        if name in OWN_LABELS:
            raise given.error("alerts have a label of that name themselves: choose another")
    return {name: given.text for name, given in labels.items()}


def _spool_place(url: Given) -> Path | str:
    """The folder that a path or a `file://` URL names, or the URL of a place in an object store."""
    if "://" not in url.text:
        return url.path()
    try:
        parts = urlsplit(url.text)
    except ValueError:
        raise url.error("is no URL") from None
    if parts.scheme in _OBJECT_STORES:
        return _object_url(url, parts)
    if parts.scheme != "file":
        raise url.error(
            f"must be a folder on this machine, file:///…, or begin with one of {', '.join(_OBJECT_STORES)} and ://"
        )
    if parts.netloc not in {"", "localhost"} or not parts.path:
        raise url.error("must be like file:///var/spool/flink-ha-sidecar, with three slashes")
    return Path(unquote(parts.path))


def _object_url(url: Given, parts: SplitResult) -> str:
    """A URL that may be shown. Azure's `abfss://container@account…` has something before its host that is no user."""
    if "@" in parts.netloc and (":" in parts.netloc or not parts.scheme.startswith("abfs")):
        raise url.error("must hold no user and no password: credentials come from the environment")
    if "?" in url.text or "#" in url.text:
        raise url.error("must end with its path, without ? and #: credentials and options come from the environment")
    if not parts.netloc:
        raise url.error(f"names no bucket: give one like {parts.scheme}://bucket/prefix")
    return url.text


def _http(section: Section) -> HttpSettings:
    listed = [
        given.matching(_HOST_NAME, "a host name without a port, or *") for given in section.texts("allowed_hosts")
    ]
    return HttpSettings(
        host=_not_empty(section.get("host")),
        port=section.get("port").integer(0, (1 << 16) - 1),
        external_url=_external_url(section.find("external_url")),
        allowed_hosts=frozenset(name.lower().removesuffix(".") for name in listed),
    )


def _external_url(given: Given | None) -> str | None:
    if given is None:
        return None
    try:
        parts = urlsplit(given.text)
    except ValueError:
        raise given.error("is no URL") from None
    if (
        parts.scheme not in {"http", "https"}
        or not parts.netloc
        or "@" in parts.netloc
        or parts.query
        or parts.fragment
    ):
        raise given.error("must be like https://host/path, without a user, ? and #: it stands in messages")
    return given.text.rstrip("/")


def _not_empty(given: Given) -> str:
    if not given.text:
        raise given.error("is empty: give a value, or remove it")
    return given.text
