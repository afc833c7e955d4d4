"""The settings, typed. Times are seconds here and microseconds in the `Policy`; values are frozen."""

import ssl
from collections.abc import Mapping
from enum import StrEnum
from pathlib import Path
from typing import ClassVar, Final
from urllib.parse import urlsplit

from msgspec import Struct

from sidecar.core.moment import SECOND
from sidecar.core.policy.policy import Destination, Heartbeat, Policy, Rule, Source, Store
from sidecar.core.policy.routing import InhibitRule, Route
from sidecar.tls import client_context


class Secret:
    """A text that shows itself to nobody: `reveal` where it is used, and nowhere else."""

    __slots__ = ("_text",)

    def __init__(self, text: str) -> None:
        self._text: Final = text

    def reveal(self) -> str:
        return self._text

    def __repr__(self) -> str:
        return "<secret>"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Secret) and other._text == self._text

    def __hash__(self) -> int:
        return hash(self._text)


class TlsSettings(Struct, frozen=True):
    """How the connection is encrypted: whom we trust (None: the CAs of this system), and who we are. The files are PEM."""

    ca_file: Path | None = None
    certificate_file: Path | None = None
    key_file: Path | None = None
    """None: the key stands in `certificate_file`."""
    key_password: Secret | None = None

    def context(self) -> ssl.SSLContext:
        """What the files say now: they are read each time, so that renewed certificates are used.

        Raises ValueError: the line names the file, never the password.
        """
        context = client_context()
        if self.ca_file is None:
            context.load_default_certs()
        else:
            try:
                context.load_verify_locations(cadata=_pem(self.ca_file))
            except ssl.SSLError as error:
                raise ValueError(f"{self.ca_file} holds no certificate in PEM format") from error
        if self.certificate_file is not None:
            key_file = self.key_file or self.certificate_file
            for file in (self.certificate_file, key_file):
                _pem(file)
            # Without a password OpenSSL would ask the terminal for it, and wait.
            password = self.key_password.reveal() if self.key_password else ""
            try:
                context.load_cert_chain(self.certificate_file, key_file, password)
            except (OSError, ValueError) as error:
                raise ValueError(
                    f"{self.certificate_file} and its private key {key_file} cannot be used: both must be PEM, belong together, and the "
                    f"key_password must be {'right' if self.key_password else 'given where the key is encrypted'}"
                ) from error
        return context


def _pem(file: Path) -> str:
    try:
        return file.read_text(encoding="ascii", errors="replace")
    except OSError as error:
        raise ValueError(f"{file} cannot be read: {error.strerror or error}") from error


class SaslSettings(Struct, frozen=True):
    """Who we are by SASL DIGEST-MD5."""

    username: str
    password: Secret


class ZooKeeperSettings(Struct, frozen=True):
    """Where one Flink cluster keeps its leaders, and how patient its ZooKeeper clients are."""

    store: ClassVar[Store] = Store.ZOOKEEPER

    quorum: str
    """`host:port,host:port[/chroot]`, without blanks."""
    namespace: str
    """Flink's root path and cluster id, joined: `/flink/default`."""
    cluster_id: str
    """For people and records: without the slashes around it."""
    session_timeout: float
    connection_timeout: float
    tolerate_suspended: bool
    """Whether Flink's listeners keep their leader while the connection is SUSPENDED."""
    tls: TlsSettings | None = None
    sasl: SaslSettings | None = None
    authorization: Mapping[str, Secret] = {}
    """By scheme, as Flink's `high-availability.zookeeper.client.authorization`: `digest` is `user:password`."""
    flink_session_timeout: float | None = None
    """Of Flink's sessions (seconds): what its configuration says, or its default. None: Flink's configuration was not read."""

    @property
    def place(self) -> str:
        """Where its leaders are, for people."""
        return f"{self.namespace} in ZooKeeper {self.quorum}"


class KubernetesSettings(Struct, frozen=True):
    """Where one Flink cluster keeps its leaders in Kubernetes, and how the API server is reached."""

    store: ClassVar[Store] = Store.KUBERNETES

    cluster_id: str
    namespace: str
    kubeconfig: Path | None = None
    """None: with the service account of our own pod."""
    context: str | None = None
    """Of the kubeconfig; None without one."""

    @property
    def tolerate_suspended(self) -> bool:
        """Flink's listeners keep their leader while the API server is out of reach, always."""
        return True

    @property
    def place(self) -> str:
        """Where its leaders are, for people."""
        way = f"context {self.context} of {self.kubeconfig}" if self.kubeconfig else "the pod's service account"
        return f"the ConfigMaps of namespace {self.namespace}, by {way}"


ClusterSettings = ZooKeeperSettings | KubernetesSettings
"""Where one Flink cluster keeps its leaders."""


class SpoolSettings(Struct, frozen=True):
    """Where records wait for the audit, and when a segment is sealed."""

    place: Path | str
    """A folder, or the URL of a place in an object store, without any secret."""
    roll_interval: float
    roll_records: int


class HttpSettings(Struct, frozen=True):
    """Where metrics and health are served. Port 0 is any free one."""

    host: str
    port: int
    external_url: str | None = None
    """Where people reach it."""
    allowed_hosts: frozenset[str] = frozenset()
    """Names by which it may be asked, in small letters; `*`: any."""

    @property
    def names(self) -> frozenset[str]:
        """The same, and those that follow from the rest."""
        reached = urlsplit(self.external_url).hostname if self.external_url else None
        return self.allowed_hosts | {self.host.lower(), *([reached] if reached else [])}


class EvidenceSettings(Struct, frozen=True):
    """What is captured at a failover, and where and how long its files are kept."""

    sources: frozenset[Source]
    folder: Path
    keep: float
    most_bytes: int
    """Of all files together."""
    tls: TlsSettings | None = None
    """How Flink's REST servers are reached where they have TLS; None: the CAs of this system are trusted."""


class LedgerMode(StrEnum):
    """Who makes several sidecars one voice."""

    AUTO = "auto"
    STORE = "store"
    LOCAL = "local"


class Receiver(Struct, frozen=True):
    """Somebody to tell: every one of `urls`, and whether also that it is over."""

    name: str
    urls: tuple[Secret, ...]
    send_resolved: bool
    heartbeat: int | None = None
    """It is not told of alerts, but this often (microseconds) that somebody watches."""

    def destinations(self) -> tuple[Destination, ...]:
        return tuple(Destination(self.name, index, self.send_resolved) for index in range(len(self.urls)))


def session_timeouts(*clusters: ClusterSettings) -> dict[str, int]:
    """After how long Flink's ZooKeeper sessions expire (microseconds), by cluster: of those of which that is known."""
    return {
        cluster.cluster_id: round(cluster.flink_session_timeout * SECOND)
        for cluster in clusters
        if isinstance(cluster, ZooKeeperSettings) and cluster.flink_session_timeout is not None
    }


class Settings(Struct, frozen=True):
    """Everything the operator decided."""

    clusters: tuple[ClusterSettings, ...]
    """At least one; each has an id of its own."""
    observer: str
    external_labels: dict[str, str]
    state_dir: Path
    spool: SpoolSettings
    ledger: LedgerMode
    trust_window: float
    http: HttpSettings
    evidence: EvidenceSettings
    rules: tuple[Rule, ...]
    receivers: tuple[Receiver, ...]
    route: Route
    inhibit_rules: tuple[InhibitRule, ...]
    files: tuple[Path, ...] = ()
    """The configuration and its rule files."""

    def policy(self) -> Policy:
        """What the core needs of it."""
        return Policy(
            observer=self.observer,
            stores={cluster.cluster_id: cluster.store for cluster in self.clusters},
            external_labels=self.external_labels,
            trust_window=round(self.trust_window * SECOND),
            rules=self.rules,
            route=self.route,
            inhibit_rules=self.inhibit_rules,
            receivers={receiver.name: receiver.destinations() for receiver in self.receivers},
            heartbeats=tuple(
                Heartbeat(destination, receiver.heartbeat)
                for receiver in self.receivers
                if receiver.heartbeat is not None
                for destination in receiver.destinations()
            ),
            session_timeouts=session_timeouts(*self.clusters),
            link=self.http.external_url,
            evidence=self.evidence.sources,
        )

    def destination_urls(self) -> dict[str, str]:
        """The secret URL of each destination by its name (`ops#0`), of every receiver: what is queued outlives a change of route."""
        return {
            destination.name: url.reveal()
            for receiver in self.receivers
            for destination, url in zip(receiver.destinations(), receiver.urls, strict=True)
        }
