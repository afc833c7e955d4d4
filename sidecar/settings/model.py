"""The settings, typed. Times are seconds here unless noted, and microseconds in the `Policy`."""

import ssl
from collections.abc import Callable, Iterator, Mapping
from enum import StrEnum
from pathlib import Path
from typing import ClassVar, Self
from urllib.parse import urlsplit

from msgspec import Struct
from msgspec.structs import replace

from sidecar.core.moment import SECOND
from sidecar.core.policy.policy import (
    ALL_FOUND,
    Destination,
    Feed,
    Heartbeat,
    Need,
    Objective,
    Policy,
    Rule,
    Source,
    Store,
)
from sidecar.core.policy.routing import InhibitRule, Route
from sidecar.net.endpoints import AppriseUrl, Endpoint
from sidecar.net.secret import Secret
from sidecar.net.tls import client_context


class TlsSettings(Struct, frozen=True):
    """TLS of a connection: CAs (None: those of this system) and our own certificate. The files are PEM."""

    ca_file: Path | None = None
    certificate_file: Path | None = None
    key_file: Path | None = None
    """None: the key is in `certificate_file`."""
    key_password: Secret | None = None

    def context(self) -> ssl.SSLContext:
        """A context with the current content of the files: each call reads them, so that renewed certificates are used.

        Raises ValueError with the name of the file, never the password.
        """
        context = client_context()
        if self.ca_file is None:
            context.load_default_certs()
        else:
            try:
                context.load_verify_locations(cadata=_pem(self.ca_file))
            except ssl.SSLError as error:
                raise ValueError(f"{self.ca_file} has no certificate in PEM format") from error
        if self.certificate_file is not None:
            key_file = self.key_file or self.certificate_file
            for file in (self.certificate_file, key_file):
                _pem(file)
            # Without a password OpenSSL would prompt on the terminal and block.
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
    """Our SASL DIGEST-MD5 identity."""

    username: str
    password: Secret


class ZooKeeperSettings(Struct, frozen=True):
    """Where one Flink cluster keeps its leaders in ZooKeeper, and the timeouts of our session."""

    store: ClassVar[Store] = Store.ZOOKEEPER

    quorum: str
    """`host:port,host:port[/chroot]`, without blanks."""
    namespace: str
    """Flink's root path and cluster id, joined: `/flink/default`."""
    cluster_id: str
    """Without leading and trailing slashes, as records and messages have it."""
    session_timeout: float
    connection_timeout: float
    tolerate_suspended: bool
    """Whether Flink's listeners keep their leader while the connection is SUSPENDED."""
    tls: TlsSettings | None = None
    sasl: SaslSettings | None = None
    authorization: Mapping[str, Secret] = {}
    """By scheme, as Flink's `high-availability.zookeeper.client.authorization`: `digest` is `user:password`."""
    flink_session_timeout: float | None = None
    """Seconds; Flink's own setting or default. None: Flink's configuration was not read."""
    flink_conf: Path | None = None
    """The folder of Flink's own configuration, if the cluster was found in it."""

    @property
    def place(self) -> str:
        """Where the leaders are, for log and page."""
        return f"{self.namespace} in ZooKeeper {self.quorum}"

    @property
    def identity(self) -> str:
        """The same for all that watch this cluster, and another for every other one."""
        servers, _, chroot = self.quorum.partition("/")
        return f"zookeeper {','.join(sorted(servers.split(',')))}/{chroot} {self.namespace}"


class KubernetesSettings(Struct, frozen=True):
    """Where one Flink cluster keeps its leaders in Kubernetes, and how the API server is reached."""

    store: ClassVar[Store] = Store.KUBERNETES

    cluster_id: str
    namespace: str
    kubeconfig: Path | None = None
    """None: the service account of our own pod is used."""
    context: str | None = None
    """A context of the kubeconfig; None without one."""
    pod_names: bool = False
    """Whether the pods of leaders are looked up."""
    events: bool = False
    """Whether failovers become Events."""
    plans: bool = False
    """Whether what is meant to happen is read: what makes its JobManagers, and evictions of their pods."""
    deaths: bool = False
    """Whether its JobManagers' pods, their Events and the logs of those that ended are read."""
    flink_conf: Path | None = None
    """The folder of Flink's own configuration, if the cluster was found in it."""

    @property
    def identity(self) -> str:
        """The same for all that watch this cluster, and another for every other one of its API server."""
        return f"kubernetes {self.namespace}"

    @property
    def tolerate_suspended(self) -> bool:
        """True: Flink's listeners always keep their leader while the API server is unreachable."""
        return True

    @property
    def place(self) -> str:
        """Where the leaders are, for log and page."""
        way = f"context {self.context} of {self.kubeconfig}" if self.kubeconfig else "the pod's service account"
        return f"the ConfigMaps of namespace {self.namespace}, by {way}"


ClusterSettings = ZooKeeperSettings | KubernetesSettings


class OwnPod(Struct, frozen=True):
    """The pod in which this sidecar runs, and its IP address."""

    name: str
    address: str
    uid: str | None = None


class FinderSettings(Struct, frozen=True):
    """Where Flink clusters are found in Kubernetes: by the labels of their ConfigMaps."""

    store: ClassVar[Store] = Store.KUBERNETES

    selector: str
    """A label selector, as kubectl takes it."""
    namespaces: tuple[str, ...] | None
    """None: all."""
    home: str
    """The namespace of this sidecar, where its ledger is."""
    kubeconfig: Path | None = None
    """None: the service account of our own pod is used."""
    context: str | None = None
    plans: bool = False
    """As of a cluster that is named. Likewise `deaths`."""
    deaths: bool = False

    @property
    def qualified(self) -> bool:
        """Whether a cluster's id begins with its namespace: `namespace/cluster-id`."""
        return self.namespaces is None or len(self.namespaces) > 1

    @property
    def place(self) -> str:
        """Where clusters are looked for, for log and page."""
        where = "all namespaces" if self.namespaces is None else f"namespace {', '.join(self.namespaces)}"
        return f"the ConfigMaps with the labels {self.selector} in {where} of Kubernetes"


class ZooKeeperFinderSettings(Struct, frozen=True):
    """Where Flink clusters are found in ZooKeeper: each cluster id below a root."""

    store: ClassVar[Store] = Store.ZOOKEEPER

    quorum: str
    """`host:port,host:port[/chroot]`, without blanks."""
    root: str
    """Flink's root path, with one slash in front and none behind it."""
    session_timeout: float
    connection_timeout: float
    tls: TlsSettings | None = None
    sasl: SaslSettings | None = None
    authorization: Mapping[str, Secret] = {}

    @property
    def place(self) -> str:
        """Where clusters are looked for, for log and page."""
        return f"{self.root} in ZooKeeper {self.quorum}"


AnyFinderSettings = FinderSettings | ZooKeeperFinderSettings


class SpoolSettings(Struct, frozen=True):
    """Where segments are written, and when a segment is sealed."""

    place: Path | str
    """A folder, or a URL in an object store, without any secret."""
    roll_interval: float
    roll_records: int


class HttpSettings(Struct, frozen=True):
    """Where metrics and health are served. Port 0: any free port."""

    host: str
    port: int
    external_url: str | None = None
    """For links in messages."""
    allowed_hosts: frozenset[str] = frozenset()
    """Allowed Host headers, in lower case; `*`: any."""

    @property
    def names(self) -> frozenset[str]:
        """`allowed_hosts`, our own host and that of `external_url`."""
        reached = urlsplit(self.external_url).hostname if self.external_url else None
        return self.allowed_hosts | {self.host.lower(), *([reached] if reached else [])}


class FlinkRestSettings(Struct, frozen=True):
    """How Flink's REST server is compared before and after a failover. Microseconds."""

    interval: int = 10 * SECOND
    """How often it is asked."""
    patience: int = 600 * SECOND
    """How long a recovery is assessed."""


class EvidenceSettings(Struct, frozen=True):
    """What is captured at a failover, and where and how long its files are kept. `keep` is in seconds."""

    sources: frozenset[Source]
    folder: Path
    keep: float
    most_bytes: int
    """The limit for all files together."""
    tls: TlsSettings | None = None
    """For Flink REST servers with TLS; None: the CAs of this system."""
    flink_rest: FlinkRestSettings = FlinkRestSettings()
    log: Path | None = None
    """The log of the JobManager beside the sidecar, or the folder that it is in; None: it is not read."""


class LedgerMode(StrEnum):
    """How several sidecars notify once."""

    AUTO = "auto"
    STORE = "store"
    LOCAL = "local"


class LogFormat(StrEnum):
    """What a line of the log is."""

    TEXT = "text"
    JSON = "json"


class SilenceSettings(Struct, frozen=True):
    """`longest`: the longest duration of a silence, in microseconds."""

    longest: int


class Receiver(Struct, frozen=True):
    """Every endpoint gets each message; the resolved ones only if `send_resolved`."""

    name: str
    endpoints: tuple[Endpoint, ...]
    """Those of `urls` first, in their order: deliveries that are queued name a destination by its index."""
    send_resolved: bool
    heartbeat: int | None = None
    """Microseconds between heartbeats. None: the receiver gets alerts and no heartbeats."""
    feed: Feed | None = None
    """None: it gets messages."""
    locations: tuple[str, ...] = ()
    """Of each endpoint, where it is configured."""

    def destinations(self) -> tuple[Destination, ...]:
        return tuple(
            Destination(
                self.name,
                index,
                self.send_resolved,
                endpoint.in_order,
                endpoint.keeps_incidents,
                self.feed,
                endpoint.service,
            )
            for index, endpoint in enumerate(self.endpoints)
        )


def session_timeouts(*clusters: ClusterSettings) -> dict[str, int]:
    """The timeout of Flink's ZooKeeper sessions (microseconds) by cluster, where it is known."""
    return {
        cluster.cluster_id: round(cluster.flink_session_timeout * SECOND)
        for cluster in clusters
        if isinstance(cluster, ZooKeeperSettings) and cluster.flink_session_timeout is not None
    }


class Alerting(Struct, frozen=True, kw_only=True):
    """What decides which notification each receiver gets."""

    rules: tuple[Rule, ...]
    route: Route
    inhibit_rules: tuple[InhibitRule, ...]
    receivers: tuple[Receiver, ...]
    external_labels: dict[str, str]

    def policy_for(self, observer: str, stores: Mapping[str, Store], labels: Mapping[str, str] | None = None) -> Policy:
        """The policy of a sidecar that watches `stores`. `labels`: used if the configuration has no external labels."""
        return Policy(
            observer,
            stores,
            dict(self.external_labels or labels or {}),
            rules=self.rules,
            route=self.route,
            inhibit_rules=self.inhibit_rules,
            receivers={receiver.name: receiver.destinations() for receiver in self.receivers},
        )


class Settings(Alerting, frozen=True, kw_only=True):
    """The whole configuration of `run`."""

    clusters: tuple[ClusterSettings, ...]
    """Their ids differ. At least one, unless clusters are found."""
    finder: AnyFinderSettings | None = None
    """None: only `clusters` are watched."""
    observer: str
    own_pod: OwnPod | None = None
    """None: not known."""
    state_dir: Path
    spool: SpoolSettings
    ledger: LedgerMode
    silences: SilenceSettings
    trust_window: float
    log: LogFormat = LogFormat.TEXT
    http: HttpSettings
    evidence: EvidenceSettings
    ha_check: float | None
    """Seconds between two checks of high availability. None: they are not made."""
    slo: Objective | None = None
    """The objective of each cluster that has none of its own. None: they have none."""
    objectives: Mapping[str, Objective] = {}
    """Of clusters with an objective of their own."""
    files: tuple[Path, ...] = ()
    """The configuration and its rule files."""

    def policy(self) -> Policy:
        """The part of the settings that the core needs."""

        def those(has: Callable[[KubernetesSettings], bool]) -> frozenset[str]:
            kubernetes = (cluster for cluster in self.clusters if isinstance(cluster, KubernetesSettings))
            return frozenset(cluster.cluster_id for cluster in kubernetes if has(cluster))

        return replace(
            self.policy_for(self.observer, {cluster.cluster_id: cluster.store for cluster in self.clusters}),
            trust_window=round(self.trust_window * SECOND),
            heartbeats=tuple(
                Heartbeat(destination, receiver.heartbeat)
                for receiver in self.receivers
                if receiver.heartbeat is not None
                for destination in receiver.destinations()
            ),
            session_timeouts=session_timeouts(*self.clusters),
            link=self.http.external_url,
            places={cluster.cluster_id: cluster.identity for cluster in self.clusters},
            evidence=self.evidence.sources,
            picture_interval=self.evidence.flink_rest.interval,
            recovery_patience=self.evidence.flink_rest.patience,
            pod_names=those(lambda cluster: cluster.pod_names),
            plans=those(lambda cluster: cluster.plans),
            deaths=those(lambda cluster: cluster.deaths),
            events=those(lambda cluster: cluster.events),
            finds=self.finder.store if self.finder else None,
            silence_documents=self.silence_documents if self.receivers else frozenset(),
            longest_silence=self.silences.longest,
            objectives=self.objectives,
            objective=self.slo,
            lacks=frozenset(need for need, is_met in self._needs() if not is_met),
        )

    def _needs(self) -> Iterator[tuple[Need, bool]]:
        """Whether at least one cluster has what triggers need."""
        watched = (*self.clusters, *((self.finder,) if self.finder else ()))
        yield Need.ZOOKEEPER, any(cluster.store is Store.ZOOKEEPER for cluster in watched)
        yield Need.KUBERNETES, any(cluster.store is Store.KUBERNETES for cluster in watched)
        yield Need.FLINK_REST, Source.FLINK_REST in self.evidence.sources
        kubernetes = (cluster for cluster in watched if isinstance(cluster, KubernetesSettings | FinderSettings))
        yield Need.PLANS, any(cluster.plans for cluster in kubernetes)
        yield Need.HA_CHECK, bool(self.ha_check and self.clusters)
        yield Need.SHARED_STORE, bool(self.silence_documents)

    @property
    def silence_documents(self) -> frozenset[str]:
        """The names of the documents of silences, as in the policy: none if nothing is shared with other sidecars."""
        if self.ledger is LedgerMode.LOCAL:
            return frozenset()
        return frozenset({ALL_FOUND} if self.finder else {cluster.cluster_id for cluster in self.clusters})

    def identified(self, natives: Mapping[str, str]) -> Self:
        """With the schemes of services' own URLs, by destination."""

        def with_native(name: str, endpoint: Endpoint) -> Endpoint:
            return (
                replace(endpoint, native=natives[name])
                if isinstance(endpoint, AppriseUrl) and name in natives
                else endpoint
            )

        receivers = (
            replace(
                receiver,
                endpoints=tuple(
                    with_native(f"{receiver.name}#{index}", endpoint)
                    for index, endpoint in enumerate(receiver.endpoints)
                ),
            )
            for receiver in self.receivers
        )
        return replace(self, receivers=tuple(receivers))

    def locations(self) -> dict[str, str]:
        """Where the endpoint of every destination is configured."""
        return {
            destination.name: location
            for receiver in self.receivers
            for destination, location in zip(receiver.destinations(), receiver.locations, strict=True)
        }

    def endpoints(self) -> dict[str, Endpoint]:
        """The endpoint of every destination (`ops#0`), also of those that no route names now: deliveries for them may be queued."""
        return {
            destination.name: endpoint
            for receiver in self.receivers
            for destination, endpoint in zip(receiver.destinations(), receiver.endpoints, strict=True)
        }
