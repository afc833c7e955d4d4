"""What a Flink cluster keeps in ConfigMaps: in memory, and on a real API server where one is given."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, Self

import urllib3
from msgspec import json

from sidecar.core.flink.configmaps import ConfigMapLayout
from sidecar.core.flink.leadership import Component, ComponentId, LeaderInformation
from tests.kit.cluster import ALL_FOUR, CLUSTER, JobManager

ONE: Final = f"{CLUSTER}-cluster-config-map"
"""The ConfigMap that a cluster has since Flink 1.15."""
LEADER: Final = "org.apache.flink.k8s.leader."
"""What the keys of leaders begin with."""
LEASE: Final = "control-plane.alpha.kubernetes.io/leader"
"""The annotation that holds the lease."""
_ANSWER_SECONDS: Final = 10.0


@dataclass
class ConfigMap:
    """One ConfigMap: `lease` is None where there is no annotation."""

    uid: str
    version: int
    data: dict[str, str] = field(default_factory=dict)
    lease: dict[str, object] | None = None


class ApiServerWriter:
    """Writes ConfigMaps to one namespace of a real API server, over one connection. Sent to another process, it connects anew there."""

    def __init__(self, url: str, authority: Path, token: str, namespace: str = "default") -> None:
        """`authority`: the file with the certificate that `url` is trusted by."""
        self._place = (url, authority, token, namespace)
        self._folder = f"{url}/api/v1/namespaces/{namespace}/configmaps"
        self._headers = {"Authorization": f"Bearer {token}", "Content-Type": "application/json"}
        self._pool = urllib3.PoolManager(ca_certs=str(authority), timeout=_ANSWER_SECONDS, retries=False)

    def __reduce__(self) -> tuple[type[Self], tuple[str, Path, str, str]]:
        return type(self), self._place

    def create(self, name: str, written: ConfigMap, labels: Mapping[str, str]) -> None:
        self._ask("POST", self._folder, _body(name, written, labels))

    def replace(self, name: str, written: ConfigMap, labels: Mapping[str, str]) -> None:
        self._ask("PUT", f"{self._folder}/{name}", _body(name, written, labels))

    def delete(self, name: str) -> None:
        self._ask("DELETE", f"{self._folder}/{name}")

    def _ask(self, method: str, url: str, body: bytes | None = None) -> None:
        answer = self._pool.request(method, url, body=body, headers=self._headers)
        assert answer.status in {200, 201}, answer.data


def _body(name: str, written: ConfigMap, labels: Mapping[str, str]) -> bytes:
    annotations = {LEASE: json.encode(written.lease).decode()} if written.lease is not None else {}
    metadata = {"name": name, "labels": labels, "annotations": annotations}
    return json.encode({"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": written.data})


class ConfigMaps:
    """The ConfigMaps of a cluster, by name. Every method that writes is one write for each ConfigMap that it touches."""

    def __init__(
        self,
        era: ConfigMapLayout = ConfigMapLayout.K3,
        writer: ApiServerWriter | None = None,
        *,
        cluster_id: str = CLUSTER,
        duration: object = "PT15S",
    ) -> None:
        """`writer`: does the same on a real API server. `duration`: of leases, as Flink spells it."""
        self.era = era
        self.duration = duration
        self.maps: dict[str, ConfigMap] = {}
        self.changed: list[str] = []
        """ConfigMaps that changed and that the sidecar has not been shown."""
        self._cluster_id = cluster_id
        self._writer = writer
        self._written: set[str] = set()
        """Those that the writer has created."""
        self._writes = 100

    def __getitem__(self, name: str) -> ConfigMap:
        return self.maps[name]

    def __contains__(self, name: str) -> bool:
        return name in self.maps

    def name(self, component: ComponentId) -> str:
        if self.era is not ConfigMapLayout.K1:
            return f"{self._cluster_id}-cluster-config-map"
        return f"{self._cluster_id}-{component.job_id or _spelled(component)}-{'jobmanager-' if component.job_id else ''}leader"

    def key(self, component: ComponentId) -> str:
        if component.job_id is None:
            return f"{LEADER}{_spelled(component)}"
        return f"{LEADER}{'job-' if self.era is ConfigMapLayout.K3 else ''}{component.job_id}"

    def grant(self, leader: JobManager, components: tuple[ComponentId, ...]) -> None:
        """`leader` acquires the leases of these components: nothing else is written with that."""
        for name in dict.fromkeys(map(self.name, components)):
            resource = self.maps.setdefault(name, ConfigMap(f"uid-{self._writes}", 0))
            transitions = resource.lease and resource.lease["leaderTransitions"]
            with self.writing(name):
                resource.lease = {
                    "holderIdentity": f"jvm {leader.host}",
                    "leaseDuration": self.duration,
                    "acquireTime": self._stamp(),
                    "renewTime": self._stamp(),
                    "leaderTransitions": transitions + 1
                    if isinstance(transitions, int) and self.era is ConfigMapLayout.K3
                    else 0,
                }

    def renew(self, *components: ComponentId) -> Self:
        for name in dict.fromkeys(map(self.name, components or ALL_FOUR)):
            lease = self.maps[name].lease
            assert lease is not None
            with self.writing(name):
                # Up to Flink 1.17 this counts renewals.
                count = lease["leaderTransitions"]
                assert isinstance(count, int)
                counted = count if self.era is ConfigMapLayout.K3 else count + 1
                lease |= {"renewTime": self._stamp(), "leaderTransitions": counted}
        return self

    def release(self) -> Self:
        """The lease of all is given up."""
        name = self.name(ALL_FOUR[0])
        lease = self.maps[name].lease
        assert lease is not None
        with self.writing(name):
            now = self._stamp()
            lease |= {"holderIdentity": "", "leaseDuration": 1.0, "acquireTime": now, "renewTime": now}
        return self

    def publish(self, component: ComponentId, leader: LeaderInformation, _owner: int) -> None:
        name = self.name(component)
        with self.writing(name):
            if self.era is ConfigMapLayout.K1:
                self.maps[name].data |= {"address": leader.address, "sessionId": str(leader.session_id)}
            else:
                self.maps[name].data[self.key(component)] = f"{leader.session_id},{leader.address}"

    def remove(self, component: ComponentId) -> None:
        name = self.name(component)
        with self.writing(name):
            for key in ("address", "sessionId") if self.era is ConfigMapLayout.K1 else (self.key(component),):
                self.maps[name].data.pop(key, None)

    def submit(self, job_id: str) -> None:
        with self.writing(self.job_store):
            self.maps[self.job_store].data[f"{self._graph}-{job_id}"] = ""

    def forget(self, job_id: str) -> None:
        with self.writing(self.job_store):
            del self.maps[self.job_store].data[f"{self._graph}-{job_id}"]

    @contextmanager
    def writing(self, name: str) -> Iterator[None]:
        """What is done to that ConfigMap within is one write."""
        self._writes += 1
        self.maps[name].version = self._writes
        yield
        self.changed.append(name)
        if self._writer:
            self._store(self._writer, name)

    def attach(self, writer: ApiServerWriter) -> None:
        """Create what there is on a real API server, and do the same there from now on."""
        self._writer = writer
        for name in self.maps:
            self._store(writer, name)

    def write(self, name: str) -> Self:
        """A write of that ConfigMap that changes nothing in it, by whomever."""
        with self.writing(name):
            pass
        return self

    def delete(self, name: str = ONE) -> None:
        del self.maps[name]
        self.changed.append(name)
        if self._writer:
            self._writer.delete(name)
            self._written.discard(name)

    def _store(self, writer: ApiServerWriter, name: str) -> None:
        store = writer.replace if name in self._written else writer.create
        store(name, self.maps[name], {"app": self._cluster_id, "type": "flink-native-kubernetes"})
        self._written.add(name)

    @property
    def job_store(self) -> str:
        return self.name(ComponentId(Component.DISPATCHER))

    @property
    def _graph(self) -> str:
        return "executionPlan" if self.era is ConfigMapLayout.K3 else "jobGraph"

    def _stamp(self) -> str:
        return f"2026-11-20T08:00:00.{self._writes:06}Z"


def _spelled(component: ComponentId) -> str:
    return component.component.value.replace("_", "")
