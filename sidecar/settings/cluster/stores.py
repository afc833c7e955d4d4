"""The places where Flink clusters keep their leaders: of one cluster, or of all that are found there."""

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, ClassVar, Final

from msgspec import Struct

from sidecar.core.policy.policy import Store
from sidecar.net.endpoints import Secret
from sidecar.settings.file.durations import DAY, MILLISECOND, SECOND
from sidecar.settings.file.key import Duration, Key, Matching
from sidecar.settings.file.setting import Setting
from sidecar.settings.tls_and_sasl import Authorization, SaslSettings, TlsSettings

_SELECTOR: Final = Matching(re.compile(r"[A-Za-z0-9_./=!,() -]{1,1000}"), "a label selector, as kubectl takes it")
TIMEOUT: Final = Duration(10 * MILLISECOND, 24 * DAY, SECOND)  # the protocol has 31 bits of milliseconds


class ZooKeeperSettings(Struct, frozen=True):
    """The place in ZooKeeper where one Flink cluster keeps its leaders, and the timeouts of our session."""

    store: ClassVar[Store] = Store.ZOOKEEPER

    quorum: Annotated[str, Key()]
    """`zk-1:2181,zk-2:2181`, with `/chroot` once, at the end, if there is one; port 2181 may be left out. Read as by Flink's client"""
    namespace: Annotated[str, Key(name="root", default="/flink")]  # joined with the cluster id: /flink/default
    """Flink's `high-availability.zookeeper.path.root`"""
    cluster_id: Annotated[str, Key(default="/default")]  # without leading and trailing slashes, as records have it
    """Flink's `high-availability.cluster-id`"""
    session_timeout: Annotated[float, Key(TIMEOUT, "1m")]
    """of our own session; the servers may bound it"""
    connection_timeout: Annotated[float, Key(TIMEOUT, "15s")]
    """how long one attempt to connect may take"""
    tolerate_suspended: Annotated[bool, Key(Setting.flag, "false", "tolerate_suspended_connections")]
    """Flink's setting: whether its listeners keep their leader while SUSPENDED (for `watch --view flink`)"""
    tls: Annotated[TlsSettings | None, Key(inside=(TlsSettings,))] = None
    """below; `tls: {}` is TLS with the CAs of this system"""
    sasl: Annotated[SaslSettings | None, Key(inside=(SaslSettings,))] = None
    """below"""
    authorization: Annotated[Mapping[str, Secret], Key(inside=(Authorization,))] = {}
    """below"""
    flink_session_timeout: float | None = None
    """Seconds; Flink's own setting or default. None: Flink's configuration was not read."""
    flink_conf: Path | None = None
    """The folder of Flink's own configuration, if the cluster was found in it."""

    @property
    def place(self) -> str:
        """The place of the leaders, for log and page."""
        return f"{self.namespace} in ZooKeeper {self.quorum}"

    @property
    def identity(self) -> str:
        """The identity of the watched cluster, equal for all sidecars that watch it, and different from every other cluster's."""
        servers, _, chroot = self.quorum.partition("/")
        return f"zookeeper {','.join(sorted(servers.split(',')))}/{chroot} {self.namespace}"


class KubernetesSettings(Struct, frozen=True):
    """The place in Kubernetes where one Flink cluster keeps its leaders, and how to reach the API server."""

    store: ClassVar[Store] = Store.KUBERNETES

    cluster_id: Annotated[str, Key()]
    """Flink's `kubernetes.cluster-id`; with it, the configuration names the cluster"""
    namespace: Annotated[str, Key()]
    """that of the kubeconfig's context, or of the pod's service account; else `default`"""
    kubeconfig: Annotated[Path | None, Key()] = None
    """the file in `KUBECONFIG`, else `~/.kube/config`; without either, the service account of the pod"""
    context: Annotated[str | None, Key()] = None
    """the kubeconfig's `current-context`"""
    pod_names: Annotated[bool, Key(Setting.flag, "false")] = False
    """ask for the [pod of a new leader](../how-to/kubernetes.md#names-of-pods). This and the next four take a permission"""
    events: Annotated[bool, Key(Setting.flag, "false")] = False
    """failovers become [Kubernetes Events](../how-to/kubernetes.md#events)"""
    plans: Annotated[bool, Key(Setting.flag, "false")] = False
    """read [what is meant to happen](../how-to/kubernetes.md#planned-maintenance), so that it does not page. This and the next one also
    with `selector` and `namespaces`"""
    deaths: Annotated[bool, Key(Setting.flag, "false")] = False
    """read pods, Events and logs of JobManagers: [why a JobManager ended](../explanation/deaths.md#rights)"""
    flink_conf: Path | None = None
    """The folder of Flink's own configuration, if the cluster was found in it."""

    @property
    def identity(self) -> str:
        """The identity of the watched cluster, equal for all sidecars that watch it, and different from every other cluster's of its API
        server."""
        return f"kubernetes {self.namespace}"

    @property
    def tolerate_suspended(self) -> bool:
        """True: Flink's listeners always keep their leader while the API server is unreachable."""
        return True

    @property
    def place(self) -> str:
        way = f"context {self.context} of {self.kubeconfig}" if self.kubeconfig else "the pod's service account"
        return f"the ConfigMaps of namespace {self.namespace}, by {way}"


ClusterSettings = ZooKeeperSettings | KubernetesSettings


class FinderSettings(Struct, frozen=True):
    """The place where Flink clusters are found in Kubernetes: by the labels of their ConfigMaps."""

    store: ClassVar[Store] = Store.KUBERNETES

    selector: Annotated[str, Key(_SELECTOR, "type=flink-native-kubernetes")]
    """[clusters are found](../how-to/kubernetes.md#clusters-that-are-found): those whose ConfigMaps have these labels, as in kubectl's
    `-l`"""
    namespaces: Annotated[tuple[str, ...] | None, Key()]  # None: all
    """clusters are found in these, a list of up to 50, or in `all`; without it, in `namespace`"""
    home: str
    """The namespace of this sidecar, where its ledger is."""
    kubeconfig: Path | None = None
    """None: the service account of our own pod is used."""
    context: str | None = None
    plans: bool = False
    """Whether to read what is meant to happen to the clusters, as `kubernetes.plans` of a named cluster."""
    deaths: bool = False

    @property
    def qualified(self) -> bool:
        """True if a cluster's id begins with its namespace: `namespace/cluster-id`."""
        return self.namespaces is None or len(self.namespaces) > 1

    @property
    def place(self) -> str:
        """The place where clusters are looked for, for log and page."""
        where = "all namespaces" if self.namespaces is None else f"namespace {', '.join(self.namespaces)}"
        return f"the ConfigMaps with the labels {self.selector} in {where} of Kubernetes"


class ZooKeeperFinderSettings(Struct, frozen=True):
    """The place where Flink clusters are found in ZooKeeper: each cluster id below a root."""

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
        return f"{self.root} in ZooKeeper {self.quorum}"


AnyFinderSettings = FinderSettings | ZooKeeperFinderSettings


def session_timeouts(*clusters: ClusterSettings) -> dict[str, int]:
    """The timeout of Flink's ZooKeeper sessions (microseconds) by cluster, where it is known."""
    return {
        cluster.cluster_id: round(cluster.flink_session_timeout * SECOND)
        for cluster in clusters
        if isinstance(cluster, ZooKeeperSettings) and cluster.flink_session_timeout is not None
    }
