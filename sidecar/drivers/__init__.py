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
        self._known = known
        self._jobs = Shares(JOBS_OF_ALL.most_items)
        self._accesses: dict[tuple[Path | None, str | None], Access] = {}
        self._drivers = {cluster.cluster_id: self._driver(cluster) for cluster in clusters}
        self._finder = self._cluster_finder(finder) if finder else None
        self._plans = plan_source_of(clusters, finder, clock)
        self._process_ends = process_ends
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
            if self._finder and not self._stopped:
                self._finder.start(observer)
            if self._plans and not self._stopped:
                self._plans.start(observer)
            if self._process_ends and not self._stopped:
                self._process_ends.start(observer)

    def stop(self) -> None:
        """Stop all drivers in parallel: each may take seconds. The process may exit without waiting for the threads."""
        with self._lock:
            self._stopped = True
        sources = (self._finder, self._plans, self._process_ends)
        drivers = [*self._drivers.values(), *(source for source in sources if source)]
        stops = [threading.Thread(target=driver.stop, name="stop", daemon=True) for driver in drivers]
        for stop in stops:
            stop.start()
        for stop in stops:
            stop.join()

    def _driver(self, cluster: ClusterSettings) -> LeaderRetrievalDriver:
        match cluster:
            case KubernetesSettings():
                from sidecar.drivers.kubernetes import Access, KubernetesDriver

                source = (cluster.kubeconfig, cluster.context)
                access = self._accesses.setdefault(source, Access(*source))
                return KubernetesDriver(access, cluster.namespace, cluster.cluster_id, self._clock, self._jobs)
            case ZooKeeperSettings():
                from sidecar.drivers.zookeeper import ZooKeeperDriver
                from sidecar.drivers.zookeeper.security import Security

                return ZooKeeperDriver(
                    cluster.quorum,
                    cluster.namespace,
                    cluster.cluster_id,
                    self._clock,
                    self._jobs,
                    session_timeout=cluster.session_timeout,
                    connection_timeout=cluster.connection_timeout,
                    security=Security(cluster.tls, cluster.sasl, cluster.authorization),
                )
            case _:
                assert_never(cluster)

    def _cluster_finder(self, finder: AnyFinderSettings) -> ClusterFinder:
        match finder:
            case ZooKeeperFinderSettings():
                from sidecar.drivers.zookeeper.clusters_below_root import ZooKeeperFinder

                return ZooKeeperFinder(finder, self._clock, known=self._known)
            case FinderSettings():
                from sidecar.drivers.kubernetes import Access, KubernetesFinder

                access = Access(finder.kubeconfig, finder.context)
                return KubernetesFinder(access, finder, self._clock, known=self._known)
            case _:
                assert_never(finder)


def ledger_of_found(finder: AnyFinderSettings, name: str = "ledger") -> LedgerStore:
    """The document of this name that all sidecars share that find the same clusters: one for all of these clusters, in Kubernetes in the
    sidecars' own namespace.
    """
    match finder:
        case ZooKeeperFinderSettings():
            return _zookeeper_ledger(finder, finder.root.rstrip("/"), name)
        case FinderSettings():
            return _kubernetes_ledger(finder, finder.home, ALL_FOUND, name)
        case _:
            assert_never(finder)


def pod_directories_of(clusters: Sequence[ClusterSettings]) -> dict[str, PodDirectory]:
    """The pods of the namespaces of those clusters that want them named."""
    wanted = [cluster for cluster in clusters if isinstance(cluster, KubernetesSettings) and cluster.pod_names]
    if not wanted:
        return {}
    from sidecar.drivers.kubernetes import Access
    from sidecar.drivers.kubernetes.pod_objects import KubernetesPods

    return {
        cluster.cluster_id: KubernetesPods(Access(cluster.kubeconfig, cluster.context), cluster.namespace)
        for cluster in wanted
    }


def ha_probe_of(
    cluster: ClusterSettings, wall: Callable[[], int], *, ledger: bool
) -> "EnsembleProbe | DeploymentProbe":
    """The probe that reads the facts of `ha check`. `wall`: microseconds; `ledger`: whether sidecars share documents in the cluster's
    store."""
    match cluster:
        case KubernetesSettings():
            from sidecar.drivers.kubernetes import Access
            from sidecar.drivers.kubernetes.deployment_probe import DeploymentProbe

            return DeploymentProbe(Access(cluster.kubeconfig, cluster.context), cluster, wall, ledger=ledger)
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
    from sidecar.drivers.kubernetes import Access
    from sidecar.drivers.kubernetes.events import KubernetesEvents

    return {
        cluster.cluster_id: KubernetesEvents(Access(cluster.kubeconfig, cluster.context), cluster.namespace)
        for cluster in wanted
    }


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
        access, kinds = Access(finding.kubeconfig, finding.context), _plan_kinds(finding)
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


def ledger_of(cluster: ClusterSettings, name: str = "ledger") -> LedgerStore:
    """The document of this name that all sidecars of `cluster` share, in the cluster's own store. It connects when it is used."""
    match cluster:
        case KubernetesSettings():
            return _kubernetes_ledger(cluster, cluster.namespace, cluster.cluster_id, name)
        case ZooKeeperSettings():
            return _zookeeper_ledger(cluster, cluster.namespace, name)
        case _:
            assert_never(cluster)


def _kubernetes_ledger(
    settings: KubernetesSettings | FinderSettings, namespace: str, cluster_id: str, name: str
) -> LedgerStore:
    from sidecar.drivers.kubernetes import Access
    from sidecar.drivers.kubernetes.kubernetes_ledger import KubernetesLedger

    return KubernetesLedger(Access(settings.kubeconfig, settings.context), namespace, cluster_id, name=name)


def _zookeeper_ledger(settings: ZooKeeperSettings | ZooKeeperFinderSettings, root: str, name: str) -> LedgerStore:
    from sidecar.drivers.zookeeper.security import Security
    from sidecar.drivers.zookeeper.zookeeper_ledger import ZooKeeperLedger

    security = Security(settings.tls, settings.sasl, settings.authorization)
    return ZooKeeperLedger(settings.quorum, root, name=name, security=security)


def silence_stores_of(settings: Settings) -> dict[str, LedgerStore]:
    """The documents of silences, by their names in `Settings.silence_documents`."""
    if not settings.silence_documents:
        return {}
    if settings.finder:
        return {ALL_FOUND: ledger_of_found(settings.finder, "silences")}
    return {cluster.cluster_id: ledger_of(cluster, "silences") for cluster in settings.clusters}
