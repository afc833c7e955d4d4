"""What happened, from the store's writes and from the ends of processes. Nothing here imports anything of the sidecar."""

import os
import re
import select
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, Final, NamedTuple
from uuid import UUID

from kazoo.client import KazooClient

from tests.kit.pods.api import Api

COMPONENTS: Final = ("resourcemanager", "dispatcher", "restserver")
_PREFIX: Final = "org.apache.flink.k8s.leader."
_LEASE: Final = "control-plane.alpha.kubernetes.io/leader"
_HOST: Final = re.compile(r"@(\d+\.\d+\.\d+\.\d+):")
_ADDRESS: Final = re.compile(rb"(?:pekko\.tcp|http)://[\w.:@/]+")
_SILENCE_SECONDS: Final = 30.0
_AGAIN_SECONDS: Final = 0.1


class Write(NamedTuple):
    """What the store held since `at` (seconds since the epoch): each component's published leader, `SESSION-ID,ADDRESS`."""

    at: float
    leaders: Mapping[str, str]
    lease: str = ""

    @property
    def host(self) -> str | None:
        """The address of the leading dispatcher's pod."""
        match = _HOST.search(self.leaders.get("dispatcher", ""))
        return match[1] if match else None

    @property
    def sessions(self) -> dict[str, str]:
        """The leader session id of each component."""
        return {component: value.partition(",")[0] for component, value in self.leaders.items()}

    @property
    def is_complete(self) -> bool:
        return all(component in self.leaders for component in COMPONENTS)


class Truth:
    """All writes since the start, in order."""

    def __init__(self) -> None:
        self.writes: list[Write] = [Write(time.time(), {})]

    @property
    def now(self) -> Write:
        return self.writes[-1]

    def replaced_since(self, old: Write) -> Write | None:
        """The first write since when every component has another leader than in `old`."""
        for write in self.writes:
            if write.at > old.at and write.is_complete and not set(write.leaders.values()) & set(old.leaders.values()):
                return write
        return None

    def vacancy(self, old: Write, died_at: float | None) -> float:
        """Seconds without a working leader: the longest of all components.

        From when the old leader's address was removed, or its process ended, until the next one's was written.
        """
        return max(self._vacancy(component, old, died_at) for component in COMPONENTS)

    def _vacancy(self, component: str, old: Write, died_at: float | None) -> float:
        later = [write for write in self.writes if write.at > old.at]
        before = old.leaders[component]
        removed_at = next(write.at for write in later if write.leaders.get(component) != before)
        written_at = next(write.at for write in later if write.leaders.get(component, before) != before)
        return written_at - min(removed_at, died_at or removed_at)


class ConfigMapTruth(Truth):
    """A raw watch on the ConfigMap of one cluster."""

    def __init__(self, api: Api, namespace: str, name: str) -> None:
        super().__init__()
        self._api = api
        self._path = f"/api/v1/namespaces/{namespace}/configmaps?watch=true&fieldSelector=metadata.name%3D{name}"
        self._stopping = threading.Event()

    def start(self) -> None:
        threading.Thread(target=self._watch, name="truth", daemon=True).start()

    def stop(self) -> None:
        self._stopping.set()

    def _watch(self) -> None:
        while not self._stopping.wait(_AGAIN_SECONDS):
            with suppress(OSError, ValueError):  # the server was restarted, or nothing was written
                for event in self._api.watch(self._path, _SILENCE_SECONDS):
                    if self._stopping.is_set():
                        return
                    if event["type"] in {"ADDED", "MODIFIED"}:
                        self._see(event["object"])

    def _see(self, config_map: dict[str, Any]) -> None:
        data = config_map.get("data") or {}
        leaders = {component: value for component in COMPONENTS if (value := data.get(_PREFIX + component))}
        write = Write(time.time(), leaders, (config_map["metadata"].get("annotations") or {}).get(_LEASE, ""))
        if write[1:] != self.now[1:]:
            self.writes.append(write)


class ZNodeTruth(Truth):
    """Watches on the leader nodes of the cluster `/flink/default`."""

    def __init__(self, address: str) -> None:
        super().__init__()
        self._client = KazooClient(address)
        self._lock = threading.Lock()

    def start(self) -> None:
        self._client.start()
        for component, node in zip(COMPONENTS, ("resource_manager", "dispatcher", "rest_server"), strict=True):
            self._client.DataWatch(f"/flink/default/leader/{node}/connection_info", self._watcher(component))

    def stop(self) -> None:
        self._client.stop()
        self._client.close()

    def _watcher(self, component: str) -> Callable[[bytes | None, object], None]:
        def see(data: bytes | None, _stat: object) -> None:
            with self._lock:
                leaders = {name: value for name, value in self.now.leaders.items() if name != component}
                if data:
                    leaders[component] = _published(data)
                self.writes.append(Write(time.time(), leaders))

        return see


def _published(data: bytes) -> str:
    """The content of a leader node: an address, then a serialized UUID, which ends with its two halves, the lower one first."""
    address = _ADDRESS.search(data)
    session = UUID(bytes=data[-8:] + data[-16:-8])
    return f"{session},{address[0].decode() if address else ''}"


class Death:
    """When a process ends: exactly, also one that is no child of ours."""

    def __init__(self, pid: int) -> None:
        self.at: float | None = None
        """Seconds since the epoch; None while it runs."""
        self._handle = os.pidfd_open(pid)
        threading.Thread(target=self._wait, name="death", daemon=True).start()

    def _wait(self) -> None:
        select.select([self._handle], [], [])
        self.at = time.time()
        os.close(self._handle)


def cgroup_of(group: str, pod_uid: str, container_id: str) -> Path:
    """The folder of the memory cgroup of a container, of a pod of class Burstable. `group`: the sandbox's."""
    return Path("/sys/fs/cgroup/memory", group, "kubepods", "burstable", f"pod{pod_uid}", container_id)


def first_process(cgroup: Path) -> int:
    """The process of a container that was started first, by its number here."""
    return min(map(int, (cgroup / "cgroup.procs").read_text().split()))


def peak_bytes(cgroup: Path) -> int:
    """The most memory that a container has used, the kernel's and the page cache included."""
    return int((cgroup / "memory.max_usage_in_bytes").read_text())
