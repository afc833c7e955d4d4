"""What a campaign is played on: one store, several sidecars that share a ledger, a receiver, and Flink's leaders."""

import json
import os
import shutil
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from random import Random
from typing import Final, Self

from kazoo.client import KazooClient
from kazoo.exceptions import NodeExistsError

from tests.campaign.diary import Diary
from tests.campaign.flink import CLUSTER, FakeFlink
from tests.campaign.flink_kubernetes import KubernetesFlink
from tests.campaign.flink_zookeeper import ZooKeeperFlink
from tests.campaign.watcher import Watcher
from tests.kit.kubernetes_server import Kubernetes
from tests.kit.receivers import Mood, Receiver
from tests.kit.relay import Wire
from tests.lab.processes import ServerProcess
from tests.lab.zookeeper import ZooKeeper

RECOVERY_SECONDS: Final = 150.0
"""Above all that anything may take: a claim that is taken over (10 s), a receiver asked again after a pause, a busy machine."""
_POLL_SECONDS: Final = 0.1


class Scene(ABC):
    """Everything of one store, in `folder`. A context manager: all of it is ended at the end, and the evidence stays."""

    store: str
    flink: FakeFlink
    server: ServerProcess

    def __init__(self, folder: Path, seed: int, sidecars: int) -> None:
        folder.mkdir(parents=True)
        self.folder = folder
        self.diary = Diary(folder / "truth.jsonl")
        self.moments = Random(f"{seed} {self.store}")
        self.receiver = Receiver(Random(seed), {Mood.WELL: 1})
        self.watchers: list[Watcher] = []
        self.limited = os.geteuid() == 0
        """Whether the disk of a sidecar can be filled."""
        self._sidecars = sidecars
        self._stack = ExitStack()

    def __enter__(self) -> Self:
        with self._stack:
            self._start_store()
            self.receiver.start()
            self._stack.callback(self.keep_messages)
            self._stack.callback(self.receiver.stop)
            self._stack.callback(self.flink.stop)
            self.flink.start()
            for number in range(self._sidecars):
                self._add_watcher("abcdefgh"[number])
            self._stack = self._stack.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def wait_well(self, seconds: float = RECOVERY_SECONDS) -> str:
        """Wait until every sidecar is well and shows the present leader. What is wrong when that takes too long; empty where it is not."""
        return wait(self._what_is_wrong, seconds)

    def one(self) -> Watcher:
        """Any of the sidecars."""
        return self.moments.choice(self.watchers)

    def pause(self, least: float, most: float) -> None:
        """Some time passes: what happens in it is the experiment."""
        time.sleep(self.moments.uniform(least, most))

    def _what_is_wrong(self) -> str:
        return next((wrong for watcher in self.watchers if (wrong := watcher.what_is_wrong(self.flink.host))), "")

    def _add_watcher(self, name: str) -> None:
        relay = Wire(self._target())
        self._stack.callback(relay.close)
        watcher = Watcher(self.folder / name, self._cluster(relay), self.receiver.url, relay, name)
        self.limited = self.limited and watcher.limit_state()
        if self.limited:
            self._stack.callback(watcher.keep_state)
        self.watchers.append(watcher)
        self._stack.callback(self._end, watcher)
        watcher.start().wait_ready()

    @staticmethod
    def _end(watcher: Watcher) -> None:
        if watcher.running:
            watcher.kill()

    def keep_messages(self) -> None:
        """Write down what the receiver has kept until now."""
        lines = [json.dumps({"at": arrival.at, "body": arrival.body}) for arrival in self.receiver.arrivals]
        (self.folder / "messages.jsonl").write_text("".join(f"{line}\n" for line in lines))

    @abstractmethod
    def write_document(self, name: str, content: bytes | None) -> None:
        """Write a shared document (ledger, handover, silences) as anybody might; None deletes it."""

    @abstractmethod
    def read_document(self, name: str) -> bytes:
        """A shared document; empty where there is none."""

    @abstractmethod
    def set_back(self, between: Callable[[], None]) -> None:
        """Set the store back to what it is now, after `between` has happened."""

    @abstractmethod
    def _start_store(self) -> None: ...

    @abstractmethod
    def _target(self) -> str: ...

    @abstractmethod
    def _cluster(self, relay: Wire) -> str: ...


class ZooKeeperScene(Scene):
    """On a real ZooKeeper."""

    store = "zookeeper"
    server: ZooKeeper
    flink: ZooKeeperFlink

    def __init__(self, folder: Path, seed: int, sidecars: int, *, home: Path, java: Path) -> None:
        super().__init__(folder, seed, sidecars)
        self.server = ZooKeeper(folder / "zookeeper", home, java)
        self._data = folder / "zookeeper" / "data"

    def write_document(self, name: str, content: bytes | None) -> None:
        with self.client() as client:
            if content is None:
                client.delete(f"{_DOCUMENTS}/{name}")
                return
            with suppress(NodeExistsError):
                client.create(f"{_DOCUMENTS}/{name}", makepath=True)
            client.set(f"{_DOCUMENTS}/{name}", content)

    def read_document(self, name: str) -> bytes:
        path = f"{_DOCUMENTS}/{name}"
        with self.client() as client:
            return bytes(client.get(path)[0]) if client.exists(path) else b""

    @contextmanager
    def client(self) -> Iterator[KazooClient]:
        """Somebody who may write anywhere."""
        client = KazooClient(self.server.address, timeout=10)
        client.start(30)
        try:
            yield client
        finally:
            client.stop()
            client.close()

    def set_back(self, between: Callable[[], None]) -> None:
        copy = self._data.with_name("copy")
        self.server.stop()
        shutil.copytree(self._data, copy)
        self.server.start()
        between()
        self.server.kill()
        self.flink.forget()
        shutil.rmtree(self._data)
        copy.rename(self._data)
        self.server.start()
        self.flink.confirm()

    def _start_store(self) -> None:
        self._stack.callback(self.server.kill)
        self.server.start()
        self.flink = ZooKeeperFlink(self.diary, self.server.address)

    def _target(self) -> str:
        return self.server.address

    def _cluster(self, relay: Wire) -> str:
        return f"zookeeper: {{quorum: '{relay.address}', cluster_id: /{CLUSTER}}}"


_DOCUMENTS: Final = f"/flink-ha-sidecar/flink/{CLUSTER}"


class KubernetesScene(Scene):
    """On a real API server."""

    store = "kubernetes"
    flink: KubernetesFlink

    def __init__(self, folder: Path, seed: int, sidecars: int, *, binaries: Path) -> None:
        super().__init__(folder, seed, sidecars)
        self._kubernetes = Kubernetes(folder / "kubernetes", binaries)
        self.server = self._kubernetes.server
        self._etcd_data = folder / "kubernetes" / "etcd"

    def write_document(self, name: str, content: bytes | None) -> None:
        data = {key: text for key, text in self._documents().items() if key != name}
        if content is not None:
            data[name] = content.decode("latin-1")
        self._kubernetes.namespace("default").replace(f"{CLUSTER}-flink-ha-sidecar", data)

    def read_document(self, name: str) -> bytes:
        return self._documents().get(name, "").encode("latin-1")

    def _documents(self) -> dict[str, str]:
        path = f"/api/v1/namespaces/default/configmaps/{CLUSTER}-flink-ha-sidecar"
        return dict(self._kubernetes.server.ask("GET", path).get("data") or {})

    def set_back(self, between: Callable[[], None]) -> None:
        copy = self._etcd_data.with_name("copy")
        self._kubernetes.etcd.stop()
        shutil.copytree(self._etcd_data, copy)
        self._kubernetes.etcd.start()
        stood = self.flink.remember()
        between()
        self._kubernetes.kill()
        self.flink.forget()
        self.flink.recall(stood)
        shutil.rmtree(self._etcd_data)
        copy.rename(self._etcd_data)
        self._kubernetes.start()
        self.flink.confirm()

    def _start_store(self) -> None:
        self._stack.callback(self._kubernetes.kill)
        self._kubernetes.start()
        namespace = self._kubernetes.namespace("default")
        namespace.create(f"{CLUSTER}-flink-ha-sidecar")
        self.flink = KubernetesFlink(self.diary, namespace)

    def _target(self) -> str:
        return self._kubernetes.server.address

    def _cluster(self, relay: Wire) -> str:
        kubeconfig = self._kubernetes.kubeconfig(server=f"https://{relay.address}")
        return f"kubernetes: {{namespace: default, cluster_id: {CLUSTER}, kubeconfig: '{kubeconfig}'}}"


def wait(what_is_wrong: Callable[[], str], seconds: float) -> str:
    """Wait until nothing is wrong. What still is after so many seconds; empty where nothing is."""
    deadline = time.monotonic() + seconds
    while (wrong := what_is_wrong()) and time.monotonic() < deadline:
        time.sleep(_POLL_SECONDS)
    return wrong
