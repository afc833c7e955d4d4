"""Drivers bring observations in. They alone import the libraries of the stores."""

from collections.abc import Callable

from sidecar.core.moment import Moment
from sidecar.drivers.zookeeper import ZooKeeperDriver
from sidecar.drivers.zookeeper.security import Security
from sidecar.ports import LeaderRetrievalDriver
from sidecar.settings import ZooKeeperSettings


def driver_for(cluster: ZooKeeperSettings, clock: Callable[[], Moment]) -> LeaderRetrievalDriver:
    """The driver that watches this cluster, not started yet."""
    return ZooKeeperDriver(
        cluster.quorum,
        cluster.namespace,
        cluster.cluster_id,
        clock,
        session_timeout=cluster.session_timeout,
        connection_timeout=cluster.connection_timeout,
        security=Security(cluster.tls, cluster.sasl, cluster.authorization),
    )
