"""What a Flink cluster keeps in ZooKeeper: in memory, and in a real one where that is given."""

from typing import Final

from kazoo.client import KazooClient
from msgspec.structs import replace

from sidecar.core.flink.leadership import ComponentId, LeaderInformation, ZNodePosition
from sidecar.core.flink.znode_paths import ZNodeLayout
from tests.kit.cluster import CLUSTER, START, JobManager
from tests.kit.java_serialization import connection_info
from tests.kit.zookeeper_recordings import Tree, ZNode

NAMESPACE: Final = f"/flink/{CLUSTER}"


class ZooKeeperWriter:
    """Writes znodes to a real ZooKeeper, below `namespace`; tries again, as the client does, while the connection is lost."""

    def __init__(self, client: KazooClient, namespace: str = NAMESPACE, *, ephemeral: bool = True) -> None:
        """`client` is connected. `ephemeral`: what a leader publishes goes with the client's session."""
        self._client = client
        self._namespace = namespace
        self._ephemeral = ephemeral

    def write(self, path: str, data: bytes) -> None:
        """As a leader does: set the data of a node of one's own, else delete what is there and create it anew."""
        self._client.retry(self._write, self._namespace + path, data)

    def ensure(self, path: str) -> None:
        """Create a node without data, and those above it, where there is none."""
        self._client.retry(self._client.ensure_path, self._namespace + path)

    def delete(self, path: str) -> None:
        """Delete a node if it is there."""
        self._client.retry(self._delete, self._namespace + path)

    def _write(self, path: str, data: bytes) -> None:
        stat = self._client.exists(path)
        if stat and stat.ephemeralOwner == self._client.client_id[0]:
            self._client.set(path, data)
            return
        if stat:
            self._client.delete(path)
        self._client.create(path, data, ephemeral=self._ephemeral, makepath=True)

    def _delete(self, path: str) -> None:
        if self._client.exists(path):
            self._client.delete(path)


class ZNodes:
    """The znodes of a cluster, by path below its namespace. Every method that writes is one ZooKeeper transaction."""

    def __init__(self, era: ZNodeLayout = ZNodeLayout.Z4, writer: ZooKeeperWriter | None = None) -> None:
        """`writer`: does the same in a real ZooKeeper."""
        self.era = era
        self.tree = Tree()
        self.zxid = 100
        self.changed: list[str] = []
        """Paths that changed and that the sidecar has not been shown."""
        self._writer = writer

    @property
    def job_store(self) -> str:
        return "/execution-plans" if self.era is ZNodeLayout.Z4 else "/jobgraphs"

    def path(self, component: ComponentId) -> str:
        """Where the leader of `component` stands."""
        if component.job_id is None:
            name = component.component.value
            return f"/leader/{name}_lock" if self.era is ZNodeLayout.Z1 else f"/leader/{name}/connection_info"
        return {
            ZNodeLayout.Z1: f"/leader/{component.job_id}/job_manager_lock",
            ZNodeLayout.Z2: f"/jobs/{component.job_id}/leader/connection_info",
            ZNodeLayout.Z3: f"/leader/{component.job_id}/connection_info",
            ZNodeLayout.Z4: f"/leader/job-{component.job_id}/connection_info",
        }[self.era]

    def submit(self, job_id: str) -> None:
        self.write(f"{self.job_store}/{job_id}", None, 0)

    def forget(self, job_id: str) -> None:
        self.delete(f"{self.job_store}/{job_id}")

    def grant(self, _leader: JobManager, _components: tuple[ComponentId, ...]) -> None:
        """The latch, of which only the folder matters."""
        if self.era in {ZNodeLayout.Z3, ZNodeLayout.Z4}:
            self._parents("/leader/latch/x")
            if self._writer:
                self._writer.ensure("/leader/latch")

    def publish(self, component: ComponentId, leader: LeaderInformation, owner: int) -> None:
        self.write(self.path(component), connection_info(leader.address, leader.session_id), owner)

    def remove(self, component: ComponentId) -> None:
        self.delete(self.path(component))

    def write(self, path: str, data: bytes | None, owner: int) -> None:
        """As Flink does: set the data of a node of one's own, else delete what is there and create it anew."""
        self.zxid += 1
        old = self.tree.nodes.get(path)
        mtime = START // 1000 + self.zxid
        if old and old.position.ephemeral_owner == owner:
            position = replace(old.position, mzxid=self.zxid, version=old.position.version + 1, mtime=mtime)
        else:
            position = ZNodePosition(path, self.zxid, self.zxid, 0, owner, mtime)
        self._parents(path)
        self.tree.nodes[path] = ZNode(data, position)
        self.changed.append(path)
        if self._writer and data is None:
            self._writer.ensure(path)
        elif self._writer:
            self._writer.write(path, data or b"")

    def delete(self, path: str) -> None:
        self.zxid += 1
        if self.tree.nodes.pop(path, None):
            self.changed.append(path)
        if self._writer:
            self._writer.delete(path)

    def _parents(self, path: str) -> None:
        parent = path.rpartition("/")[0]
        if parent and parent not in self.tree.nodes:
            self.tree.nodes[parent] = ZNode(b"", ZNodePosition(parent, self.zxid, self.zxid, 0, 0, 0))
            self._parents(parent)
