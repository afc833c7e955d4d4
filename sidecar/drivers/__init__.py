"""Drivers bring observations in. They alone import the libraries of the stores."""

# ruff: noqa: PLC0415  a library that is not needed is not loaded: each is a third of the memory

from collections.abc import Callable

from sidecar.core.moment import Moment
from sidecar.ports import LeaderRetrievalDriver
from sidecar.settings import ClusterSettings, KubernetesSettings


def driver_for(cluster: ClusterSettings, clock: Callable[[], Moment]) -> LeaderRetrievalDriver:
    """The driver that watches this cluster, not started yet. The library of the other store is never loaded."""
    if isinstance(cluster, KubernetesSettings):
        from sidecar.drivers.kubernetes import Access, KubernetesDriver

        return KubernetesDriver(
            Access(cluster.kubeconfig, cluster.context), cluster.namespace, cluster.cluster_id, clock
        )

    from sidecar.drivers.zookeeper import ZooKeeperDriver
    from sidecar.drivers.zookeeper.security import Security

    return ZooKeeperDriver(
        cluster.quorum,
        cluster.namespace,
        cluster.cluster_id,
        clock,
        session_timeout=cluster.session_timeout,
        connection_timeout=cluster.connection_timeout,
        security=Security(cluster.tls, cluster.sasl, cluster.authorization),
    )
