"""Drivers bring observations in. They alone import the libraries of the stores."""

# ruff: noqa: PLC0415  a library that is not needed is not loaded: each is a third of the memory

import threading
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from sidecar.core.moment import Moment
from sidecar.ports import LeaderRetrievalDriver, LedgerStore, Observer
from sidecar.settings import ClusterSettings, KubernetesSettings, ZooKeeperSettings

if TYPE_CHECKING:
    from pathlib import Path

    from sidecar.drivers.kubernetes import Access


class Drivers:
    """One driver for each cluster; together they promise what each of them does. The library of a store without a cluster is not loaded."""

    def __init__(self, clusters: Sequence[ClusterSettings], clock: Callable[[], Moment]) -> None:
        """`clusters`: at least one."""
        self._clock = clock
        self._accesses: dict[tuple[Path | None, str | None], Access] = {}
        self._drivers = {
            cluster.cluster_id: self._in_kubernetes(cluster)
            if isinstance(cluster, KubernetesSettings)
            else self._in_zookeeper(cluster)
            for cluster in clusters
        }
        self._lock = threading.Lock()
        self._stopped = False

    def start(self, observer: Observer, *cluster_ids: str) -> None:
        """Watch these clusters; without any, all. From any thread; after `stop`, nothing starts."""
        with self._lock:
            for cluster_id in () if self._stopped else cluster_ids or self._drivers:
                self._drivers[cluster_id].start(observer)

    def stop(self) -> None:
        """All at once: each may take seconds. In threads that do not keep the process when it does not wait for them."""
        with self._lock:
            self._stopped = True
        stops = [threading.Thread(target=driver.stop, name="stop", daemon=True) for driver in self._drivers.values()]
        for stop in stops:
            stop.start()
        for stop in stops:
            stop.join()

    def _in_kubernetes(self, cluster: KubernetesSettings) -> LeaderRetrievalDriver:
        from sidecar.drivers.kubernetes import Access, KubernetesDriver

        who = (cluster.kubeconfig, cluster.context)
        access = self._accesses.setdefault(who, Access(*who))
        return KubernetesDriver(access, cluster.namespace, cluster.cluster_id, self._clock)

    def _in_zookeeper(self, cluster: ZooKeeperSettings) -> LeaderRetrievalDriver:
        from sidecar.drivers.zookeeper import ZooKeeperDriver
        from sidecar.drivers.zookeeper.security import Security

        return ZooKeeperDriver(
            cluster.quorum,
            cluster.namespace,
            cluster.cluster_id,
            self._clock,
            session_timeout=cluster.session_timeout,
            connection_timeout=cluster.connection_timeout,
            security=Security(cluster.tls, cluster.sasl, cluster.authorization),
        )


def ledger_of(cluster: ClusterSettings, name: str = "ledger") -> LedgerStore:
    """The document of this name that all sidecars of `cluster` share, in the cluster's own store. Nobody connects before it is used."""
    if isinstance(cluster, KubernetesSettings):
        from sidecar.drivers.kubernetes import Access
        from sidecar.drivers.kubernetes.ledger import KubernetesLedger

        access = Access(cluster.kubeconfig, cluster.context)
        return KubernetesLedger(access, cluster.namespace, cluster.cluster_id, name=name)
    from sidecar.drivers.zookeeper.ledger import ZooKeeperLedger
    from sidecar.drivers.zookeeper.security import Security

    security = Security(cluster.tls, cluster.sasl, cluster.authorization)
    return ZooKeeperLedger(cluster.quorum, cluster.namespace, name=name, security=security)
