"""Drivers observe stores. Only this package imports the stores' libraries."""

# ruff: noqa: PLC0415  a library is loaded only if a cluster needs it: each takes a third of the memory

import threading
from collections.abc import Callable, Collection, Sequence
from typing import TYPE_CHECKING, assert_never

from sidecar.core.bounds import JOBS_OF_ALL
from sidecar.core.moment import Moment
from sidecar.core.observations import EndObservation, FinderObservation, PlanObservation
from sidecar.core.policy.policy import ALL_FOUND, Source
from sidecar.drivers.shares import Shares
from sidecar.ports import (
    ClusterFinder,
    EventStore,
    LeaderRetrievalDriver,
    LedgerStore,
    Observer,
    PlanSource,
    PodDirectory,
)
from sidecar.settings import (
    AnyFinderSettings,
    ClusterSettings,
    FinderSettings,
    KubernetesSettings,
    LedgerMode,
    Settings,
    ZooKeeperFinderSettings,
    ZooKeeperSettings,
)

if TYPE_CHECKING:
    from pathlib import Path

    from sidecar.drivers.kubernetes import Access
    from sidecar.drivers.kubernetes.deployment_probe import DeploymentProbe
    from sidecar.drivers.processes import ProcessWatch
    from sidecar.drivers.zookeeper.ensemble_probe import EnsembleProbe
    from sidecar.drivers.zookeeper.security import Security


class Drivers:
    """One driver for each cluster; starts and stops them together."""

    def __init__(
        self,
        clusters: Sequence[ClusterSettings],
        clock: Callable[[], Moment],
        finder: AnyFinderSettings | None = None,
        process_ends: "ProcessWatch | None" = None,
        known: Collection[str] = (),
    ) -> None:
        """`known`: clusters that were watched before; where there are too many, they come first."""
        self._clock = clock
        self._jobs = Shares(JOBS_OF_ALL.most_items)
        self._accesses: dict[tuple[Path | None, str | None], Access] = {}
        self._drivers = {cluster.cluster_id: self._driver(cluster) for cluster in clusters}
        others: tuple[ClusterFinder | PlanSource | ProcessWatch | None, ...] = (
            _cluster_finder(finder, clock, known) if finder else None,
            plan_source_of(clusters, finder, clock),
            process_ends,
        )
        self._others = [source for source in others if source]
        self._lock = threading.Lock()
        self._stopped = False

    def start(self, observer: Observer, *cluster_ids: str) -> None:
        """Watch these clusters; without any, all. From any thread; after `stop`, nothing starts."""
        with self._lock:
            for cluster_id in () if self._stopped else cluster_ids or self._drivers:
                self._drivers[cluster_id].start(observer)

    def find(self, observer: Callable[[FinderObservation | PlanObservation | EndObservation], None]) -> None:
        """Find clusters and watch them, if there is a finder; observe what is meant to happen to clusters, and how their processes end,
        where that is wanted. After `stop`, nothing starts.
        """
        with self._lock:
            for source in () if self._stopped else self._others:
                source.start(observer)

    def stop(self) -> None:
        """Stop all drivers in parallel: each may take seconds. The process may exit without waiting for the threads."""
        with self._lock:
            self._stopped = True
        drivers = [driver.stop for driver in (*self._drivers.values(), *self._others)]
        stops = [threading.Thread(target=stop, name="stop", daemon=True) for stop in drivers]
        for stop in stops:
            stop.start()
        for stop in stops:
            stop.join()

    def _driver(self, cluster: ClusterSettings) -> LeaderRetrievalDriver:
        match cluster:
            case KubernetesSettings():
                from sidecar.drivers.kubernetes import KubernetesDriver

                access = self._accesses.setdefault((cluster.kubeconfig, cluster.context), _access(cluster))
                return KubernetesDriver(access, cluster.namespace, cluster.cluster_id, self._clock, self._jobs)
            case ZooKeeperSettings():
                from sidecar.drivers.zookeeper import ZooKeeperDriver

                return ZooKeeperDriver(
                    cluster.quorum,
                    cluster.namespace,
                    cluster.cluster_id,
                    self._clock,
                    self._jobs,
                    session_timeout=cluster.session_timeout,
                    connection_timeout=cluster.connection_timeout,
                    security=_security(cluster),
                )
            case _:
                assert_never(cluster)


def _cluster_finder(finder: AnyFinderSettings, clock: Callable[[], Moment], known: Collection[str]) -> ClusterFinder:
    match finder:
        case ZooKeeperFinderSettings():
            from sidecar.drivers.zookeeper.clusters_below_root import ZooKeeperFinder

            return ZooKeeperFinder(finder, clock, known=known)
        case FinderSettings():
            from sidecar.drivers.kubernetes import KubernetesFinder

            return KubernetesFinder(_access(finder), finder, clock, known=known)
        case _:
            assert_never(finder)


def _access(settings: KubernetesSettings | FinderSettings) -> "Access":
    from sidecar.drivers.kubernetes import Access

    return Access(settings.kubeconfig, settings.context)


def _security(settings: ZooKeeperSettings | ZooKeeperFinderSettings) -> "Security":
    from sidecar.drivers.zookeeper.security import Security

    return Security(settings.tls, settings.sasl, settings.authorization)


def pod_directories_of(clusters: Sequence[ClusterSettings]) -> dict[str, PodDirectory]:
    """The pods of the namespaces of those clusters that want them named."""
    wanted = [cluster for cluster in clusters if isinstance(cluster, KubernetesSettings) and cluster.pod_names]
    if not wanted:
        return {}
    from sidecar.drivers.kubernetes.pod_objects import KubernetesPods

    return {cluster.cluster_id: KubernetesPods(_access(cluster), cluster.namespace) for cluster in wanted}


def ha_probe_of(
    cluster: ClusterSettings, wall: Callable[[], int], *, ledger: bool
) -> "EnsembleProbe | DeploymentProbe":
    """The probe that reads the facts of `ha check`. `wall`: microseconds; `ledger`: whether sidecars share documents in the cluster's
    store."""
    match cluster:
        case KubernetesSettings():
            from sidecar.drivers.kubernetes.deployment_probe import DeploymentProbe

            return DeploymentProbe(_access(cluster), cluster, wall, ledger=ledger)
        case ZooKeeperSettings():
            from sidecar.drivers.zookeeper.ensemble_probe import EnsembleProbe

            return EnsembleProbe(cluster, wall)
        case _:
            assert_never(cluster)


def event_stores_of(clusters: Sequence[ClusterSettings]) -> dict[str, EventStore]:
    """The stores that take Events about those clusters whose settings ask for Events, by cluster."""
    wanted = [cluster for cluster in clusters if isinstance(cluster, KubernetesSettings) and cluster.events]
    if not wanted:
        return {}
    from sidecar.drivers.kubernetes.events import KubernetesEvents

    return {cluster.cluster_id: KubernetesEvents(_access(cluster), cluster.namespace) for cluster in wanted}


def plan_source_of(
    clusters: Sequence[ClusterSettings], finder: AnyFinderSettings | None, clock: Callable[[], Moment]
) -> PlanSource | None:
    """The source of plans for those clusters whose settings ask for it. None: none does. One watch for all clusters of a namespace."""
    wanted = [cluster for cluster in clusters if isinstance(cluster, KubernetesSettings) and any(_plan_kinds(cluster))]
    finding = finder if isinstance(finder, FinderSettings) and any(_plan_kinds(finder)) else None
    if not wanted and finding is None:
        return None
    from sidecar.drivers.kubernetes import Access
    from sidecar.drivers.kubernetes.plan_watch import KubernetesPlans
    from sidecar.drivers.kubernetes.pod_reports import Scope

    together: dict[tuple[Path | None, str | None, str, tuple[bool, bool]], set[str]] = {}
    for cluster in wanted:
        key = cluster.kubeconfig, cluster.context, cluster.namespace, _plan_kinds(cluster)
        together.setdefault(key, set()).add(cluster.cluster_id)
    scopes = [
        (Access(kubeconfig, context), Scope(namespace, frozenset(names), *kinds))
        for (kubeconfig, context, namespace, kinds), names in together.items()
    ]
    if finding:
        access, kinds = _access(finding), _plan_kinds(finding)
        namespaces = [None] if finding.namespaces is None else finding.namespaces
        scopes += [(access, Scope(name, None, *kinds, qualified=finding.qualified)) for name in namespaces]
    return KubernetesPlans(scopes, clock)


def _plan_kinds(settings: KubernetesSettings | FinderSettings) -> tuple[bool, bool]:
    """Two flags: read what is meant to happen, and how JobManagers end."""
    return settings.plans, settings.deaths


def process_ends_of(settings: Settings, clock: Callable[[], Moment]) -> "ProcessWatch | None":
    """The ends of the JobManagers that are visible here; None: processes are not captured."""
    if Source.PROCESSES not in settings.evidence.sources:
        return None
    from sidecar.drivers.processes import ProcessWatch

    return ProcessWatch(settings.clusters, clock, settings.evidence.log)


def ledger_of(settings: ClusterSettings | AnyFinderSettings, name: str = "ledger") -> LedgerStore:
    """The document of this name that all sidecars of a cluster share, in the cluster's own store; of a finder: that all sidecars share that
    find the same clusters, one for all of these, in Kubernetes in the sidecars' own namespace. It connects when it is used.
    """
    match settings:
        case KubernetesSettings() | FinderSettings():
            from sidecar.drivers.kubernetes.kubernetes_ledger import KubernetesLedger

            namespace = settings.namespace if isinstance(settings, KubernetesSettings) else settings.home
            cluster_id = settings.cluster_id if isinstance(settings, KubernetesSettings) else ALL_FOUND
            return KubernetesLedger(_access(settings), namespace, cluster_id, name=name)
        case ZooKeeperSettings() | ZooKeeperFinderSettings():
            from sidecar.drivers.zookeeper.zookeeper_ledger import ZooKeeperLedger

            root = settings.namespace if isinstance(settings, ZooKeeperSettings) else settings.root.rstrip("/")
            return ZooKeeperLedger(settings.quorum, root, name=name, security=_security(settings))
        case _:
            assert_never(settings)


def shared_documents(settings: Settings, name: str) -> dict[str, LedgerStore]:
    """The documents of this name, by cluster; one at ALL_FOUND for all clusters that are found. None if nothing is shared."""
    if settings.ledger is LedgerMode.LOCAL:
        return {}
    if settings.finder:
        return {ALL_FOUND: ledger_of(settings.finder, name)}
    return {cluster.cluster_id: ledger_of(cluster, name) for cluster in settings.clusters}
