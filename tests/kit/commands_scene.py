"""Two clusters in a real ZooKeeper, a failover of one, a vacancy of the other, and the sidecar that has observed both."""

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from kazoo.client import KazooClient

from tests.kit.cluster import job_manager
from tests.kit.fake_flink import Flink
from tests.kit.sidecar_process import Sidecar
from tests.kit.waiting import wait_for
from tests.kit.znodes import ZNodes, ZooKeeperWriter
from tests.kit.zookeeper_client import connected
from tests.lab.receivers import HttpReceiver
from tests.lab.zookeeper import ZooKeeper

_RULES = """\
rules: [{alert: FlinkNoLeader, on: vacant, for: 1s, severity: critical}]
shipped_rules: keep
log: {format: json}
"""
SECRET = "t0ken-t0ken"
"""In the URL of a receiver that nobody listens at."""


class JobManagers:
    """The JobManagers of one cluster, each with a session of its own: `jm-a` leads first, then `jm-b`, …"""

    def __init__(self, address: str, cluster_id: str, names: str = "abc") -> None:
        self._closing = ExitStack()
        self._clients = {f"jm-{name}": self._closing.enter_context(connected(address)) for name in names}
        self._namespace = f"/flink/{cluster_id}"
        self.terms = 0
        for client in self._clients.values():
            contender = f"{self._namespace}/leader/latch/_c_latch-"
            client.create(contender, ephemeral=True, sequence=True, makepath=True)
        self.elect()

    @property
    def leader(self) -> str:
        return next(iter(self._clients))

    def elect(self) -> None:
        """The first of those that are left publishes itself everywhere."""
        self.terms += 1
        client: KazooClient = self._clients[self.leader]
        flink = Flink(ZNodes(writer=ZooKeeperWriter(client, self._namespace))).submit()
        flink.elect(job_manager(self.leader, self.terms))

    def kill(self) -> None:
        """The session of the leader ends, and with it everything that it has published."""
        client = self._clients.pop(self.leader)
        client.stop()

    def stop(self) -> None:
        self._closing.close()


class Scene:
    """`orders` has failed over from jm-a to jm-b, with a standby; the only JobManager of `payments` was lost. The sidecar logs JSON.
    It does not observe `spare`, which is for tests that change something.
    """

    def __init__(self, folder: Path, zookeeper: ZooKeeper) -> None:
        self.zookeeper = zookeeper
        self.orders, self.payments, self.spare = (
            JobManagers(zookeeper.address, name, contenders)
            for name, contenders in (("orders", "abc"), ("payments", "a"), ("spare", "a"))
        )
        self.receiver = HttpReceiver()
        self.receiver.start()
        place = f"  - zookeeper: {{quorum: '{zookeeper.address}', cluster_id: %s}}"
        clusters = "\n".join(["clusters:", place % "orders", place % "payments"])
        self.sidecar = Sidecar(
            folder, f"{_RULES}{clusters}", [self.receiver.url, f"json://127.0.0.1:1/{SECRET}"], group_wait="100ms"
        )

    @property
    def config(self) -> str:
        return str(self.sidecar.config)

    def play(self) -> None:
        """Until the failover is over, and the alert of the vacancy was delivered to one receiver and failed at the other."""
        self.sidecar.start().wait_ready()
        self.orders.kill()
        self._await("REVOKED", "orders")
        self.orders.elect()
        self._await("episode", "orders")
        self.payments.kill()
        for outcome in ("delivered", "failed"):
            self._await(outcome, "payments")

    def stop(self) -> None:
        self.sidecar.stop()
        self.receiver.stop()
        for cluster in (self.orders, self.payments, self.spare):
            cluster.stop()

    def _await(self, what: str, cluster_id: str) -> None:
        def recorded() -> bool:
            records = (record for record in self.sidecar.records() if record["cluster_id"] == cluster_id)
            return any(what in {record["type"], record.get("kind"), record.get("outcome")} for record in records)

        wait_for(f"{what} of {cluster_id}", recorded)


@contextmanager
def played(folder: Path, zookeeper: ZooKeeper) -> Iterator[Scene]:
    """A scene that has been played."""
    scene = Scene(folder, zookeeper)
    try:
        scene.play()
        yield scene
    finally:
        scene.stop()
