"""A real Flink cluster on a real store, each of its processes with a way there that can be shut."""

import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from datetime import timedelta
from pathlib import Path

from sidecar.core.flink.configmaps import cluster_config_map
from tests.bench.apiserver import OpenKubernetes
from tests.bench.truth import Truth
from tests.kit.relay import Gate
from tests.lab.flink import Lab
from tests.lab.managers import JobManager
from tests.lab.processes import ServerProcess
from tests.lab.settings import CLUSTER_ID, NAMESPACE, PATH_ROOT

SESSION = timedelta(seconds=5)
"""Of ZooKeeper; in Kubernetes, the duration of the lease: a third of Flink's default."""


class _Apart(JobManager):
    """Has a way of its own to the store."""

    way: str
    """As a setting of Flink."""

    def build_command(self) -> Sequence[str]:
        return (*super().build_command(), f"-D{self.way}")


class ApartLab(Lab, ABC):
    """Its JobManagers can be cut from the store one by one."""

    gates: dict[str, Gate]
    """By the name of the JobManager."""
    restart_seconds: float
    """The store's: no real outage is shorter."""
    tells_contenders: bool
    """Whether the store knows who would lead."""

    @property
    @abstractmethod
    def store(self) -> ServerProcess:
        """What can be killed."""

    @abstractmethod
    def new_gate(self) -> Gate:
        """A way to the store. While that is down, it turns everybody away as the store would."""

    @abstractmethod
    def sidecar_settings(self, gate: Gate) -> str:
        """The lines of the sidecar's configuration that say where the cluster is."""

    @abstractmethod
    def led(self) -> object:
        """What is written of the dispatcher's leader, as it stands there; None: nothing."""

    def silence(self, _since: float) -> float:
        """For how many seconds the leader did not renew its lease, at most, since then (seconds since the epoch). 0: there is none."""
        return 0.0

    def stop(self) -> None:
        super().stop()
        while self.gates:
            self.gates.popitem()[1].close()

    @abstractmethod
    def _way(self, gate: Gate) -> str: ...

    def _new_jobmanager(self) -> JobManager:
        name = f"jobmanager-{len(self.jobmanagers) + 1}"
        jobmanager = _Apart(name, self.folder, self._home, self._java)
        self.gates[name] = gate = self.new_gate()
        jobmanager.way = self._way(gate)
        self.jobmanagers.append(jobmanager)
        self._processes.append(jobmanager)
        return jobmanager


class ZooKeeperLab(ApartLab):
    """Its leaders are in a ZooKeeper of its own."""

    restart_seconds = 2.0
    tells_contenders = True

    def __init__(self, folder: Path, flink_version: str) -> None:
        super().__init__(folder, flink_version, session_timeout=SESSION)
        self.gates = {}

    @property
    def store(self) -> ServerProcess:
        return self.zookeeper

    def new_gate(self) -> Gate:
        return Gate(self.zookeeper.address, lambda: True)

    def sidecar_settings(self, gate: Gate) -> str:
        where = f"quorum: '{gate.address}', root: {PATH_ROOT}, cluster_id: /{CLUSTER_ID}"
        return f"zookeeper: {{{where}, session_timeout: {SESSION.seconds}s}}"

    def led(self) -> object:
        return self._in_zookeeper()

    def _way(self, gate: Gate) -> str:
        return f"high-availability.zookeeper.quorum={gate.address}"


class KubernetesLab(ApartLab):
    """Its leaders are in ConfigMaps."""

    restart_seconds = 5.0
    tells_contenders = False

    def __init__(self, folder: Path, flink_version: str, kubernetes: OpenKubernetes) -> None:
        """`kubernetes` is there, and is somebody else's to end."""
        self._kubernetes = kubernetes
        self._truth = Truth(kubernetes.etcd.url, CLUSTER_ID)
        gate = self.new_gate()
        super().__init__(folder, flink_version, kubeconfig=self._kubeconfig_by(gate), session_timeout=SESSION)
        self.gates = {"everybody else": gate}

    @property
    def store(self) -> ServerProcess:
        return self._kubernetes.server

    def new_gate(self) -> Gate:
        return Gate(self._kubernetes.server.address, lambda: True)

    def sidecar_settings(self, gate: Gate) -> str:
        where = f"cluster_id: {CLUSTER_ID}, namespace: {NAMESPACE}"
        return f"kubernetes: {{{where}, kubeconfig: '{self._kubeconfig_by(gate)}'}}"

    def led(self) -> object:
        assert self._kubeconfig
        found = self._in_kubernetes(self._kubeconfig)
        return found and found[0]

    def silence(self, since: float) -> float:
        begin = time.monotonic() - (time.time() - since)
        return self._truth.silence(cluster_config_map(CLUSTER_ID), begin)

    def _way(self, gate: Gate) -> str:
        return f"kubernetes.config.file={self._kubeconfig_by(gate)}"

    def _kubeconfig_by(self, gate: Gate) -> Path:
        return self._kubernetes.kubeconfig(server=f"https://{gate.address}")


@contextmanager
def _on_zookeeper(folder: Path, flink_version: str) -> Iterator[ApartLab]:
    with ZooKeeperLab(folder / "lab", flink_version) as lab:
        yield lab


@contextmanager
def _on_kubernetes(folder: Path, flink_version: str) -> Iterator[ApartLab]:
    kubernetes = OpenKubernetes(folder / "kubernetes")
    try:
        kubernetes.start()
        with KubernetesLab(folder / "lab", flink_version, kubernetes) as lab:
            yield lab
    finally:
        kubernetes.kill()


LABS: Mapping[str, Callable[[Path, str], AbstractContextManager[ApartLab]]] = {
    "zookeeper": _on_zookeeper,
    "kubernetes": _on_kubernetes,
}
"""By the store: a cluster in a folder, of a version of Flink."""
