"""Drivers observe stores. Only this package imports the stores' libraries."""

# ruff: noqa: PLC0415  a library is loaded only if a cluster needs it: each takes a third of the memory

import threading
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from sidecar.core.moment import Moment
from sidecar.ports import LeaderRetrievalDriver, LedgerStore, Observer
from sidecar.settings import ClusterSettings, KubernetesSettings

if TYPE_CHECKING:
    from pathlib import Path

    from sidecar.drivers.kubernetes import Access


class Drivers:
    """One driver for each cluster; starts and stops them together."""

    def __init__(self, clusters: Sequence[ClusterSettings], clock: Callable[[], Moment]) -> None:
        """`clusters`: at least one."""
        self._clock = clock
        self._accesses: dict[tuple[Path | None, str | None], Access] = {}
        self._drivers = [self._driver(cluster) for cluster in clusters]

    def start(self, observer: Observer) -> None:
        for driver in self._drivers:
            driver.start(observer)

    def stop(self) -> None:
        """Stop all drivers in parallel: each may take seconds. The process may exit without waiting for the threads."""
        stops = [threading.Thread(target=driver.stop, name="stop", daemon=True) for driver in self._drivers]
        for stop in stops:
            stop.start()
        for stop in stops:
            stop.join()

    def _driver(self, cluster: ClusterSettings) -> LeaderRetrievalDriver:
        if isinstance(cluster, KubernetesSettings):
            from sidecar.drivers.kubernetes import Access, KubernetesDriver

            source = (cluster.kubeconfig, cluster.context)
            access = self._accesses.setdefault(source, Access(*source))
            return KubernetesDriver(access, cluster.namespace, cluster.cluster_id, self._clock)
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


def ledger_of(cluster: ClusterSettings) -> LedgerStore:
    """The ledger of `cluster`, in the cluster's own store. It connects when it is used."""
    if isinstance(cluster, KubernetesSettings):
        from sidecar.drivers.kubernetes import Access
        from sidecar.drivers.kubernetes.ledger import KubernetesLedger

        return KubernetesLedger(Access(cluster.kubeconfig, cluster.context), cluster.namespace, cluster.cluster_id)
    from sidecar.drivers.zookeeper.ledger import ZooKeeperLedger
    from sidecar.drivers.zookeeper.security import Security

    security = Security(cluster.tls, cluster.sasl, cluster.authorization)
    return ZooKeeperLedger(cluster.quorum, cluster.namespace, security=security)
