"""A Deployment or StatefulSet of JobManagers on a real API server, and Flink's real processes: the border of what is real.

Real: the API server with every object that the sidecar reads, its rules for deletion, generations and watches; Flink, its leases, its exit.
Pretended: the controllers, the scheduler and the kubelet. This module writes what they write, in the order in which they did it in real
pods (`deployment-scaled-to-0` and its like in tests/core/failover/test_planned_recordings.py). A "pod" is a process of this
machine with an address of its own (127.0.0.N). There are no images, probes, cgroups or networks.
"""

import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from itertools import count
from typing import Any, Final
from urllib.error import HTTPError

from sidecar.core.flink.deployments import Maker
from tests.kit.kubernetes_server import ApiServer, Json, Namespace
from tests.lab.managers import JobManager
from tests.lab.settings import NAMESPACE
from tests.night.truth import Truth

NAME: Final = "flink-jobmanager"
_LABELS: Final = {"app": "flink", "component": "jobmanager"}
_APPS: Final = f"/apis/apps/v1/namespaces/{NAMESPACE}"
_PODS: Final = f"/api/v1/namespaces/{NAMESPACE}/pods"
_GRACE_SECONDS: Final = 30.0
_NODES: Final = ("node-a", "node-b")


class Deployed:
    """What makes the JobManagers of a lab. `kind`: Deployment or StatefulSet."""

    def __init__(self, server: ApiServer, truth: Truth, managers: Sequence[JobManager]) -> None:
        """`managers` run; each is moved into a pod by `adopt`."""
        self.kind = Maker.DEPLOYMENT
        self._server = server
        self._namespace = Namespace(server, NAMESPACE)
        self._truth = truth
        self._managers = list(managers)
        self._pods: dict[str, str] = {}
        """The pod of each JobManager, by its name."""
        self._numbers = count(2)
        self._revision = 0
        self._broken = True
        self._node = _NODES[0]

    def adopt(self, kind: Maker = Maker.DEPLOYMENT) -> None:
        """Make the maker and its pods anew, and start the JobManagers in them."""
        self.remove()
        self.kind, self._broken = kind, False
        self._revision += 1
        template = {"metadata": {"labels": _LABELS}, "spec": {"containers": [{"name": "jobmanager", "image": "flink"}]}}
        spec: Json = {"replicas": len(self._managers), "selector": {"matchLabels": _LABELS}, "template": template}
        spec |= {"serviceName": NAME} if kind is Maker.STATEFUL_SET else {}
        self._server.ask("POST", self._folder, {"metadata": {"name": NAME, "labels": _LABELS}, "spec": spec})
        if kind is Maker.DEPLOYMENT:
            self._replica_set()
        self._run(self._managers)

    def remove(self) -> None:
        """As if it had never been there: of the objects alone."""
        for pod in self._pods.values():
            with suppress(HTTPError):
                self._namespace.remove_pod(pod)
        self._pods.clear()
        for kind in ("deployments", "statefulsets", "replicasets"):
            for found in self._server.ask("GET", f"{_APPS}/{kind}")["items"]:
                self._finalized(f"{_APPS}/{kind}/{found['metadata']['name']}")
                with suppress(HTTPError):
                    self._server.ask(
                        "DELETE", f"{_APPS}/{kind}/{found['metadata']['name']}", {"propagationPolicy": "Background"}
                    )

    def is_whole(self, kind: Maker) -> bool:
        """Whether there is such a maker, and each JobManager is in a pod of it."""
        return self.kind is kind and not self._broken and len(self._pods) == len(self._managers)

    # -- what people do -----------------------------------------------------------------------------------------------------

    def scale(self, replicas: int) -> None:
        """To 0, or back to all."""
        self._changed(lambda spec: spec | {"replicas": replicas})
        self._processed()
        if replicas == 0:
            self._end(self._managers)
        else:
            self._run(self._managers)

    def roll(self, *, at_once: bool, pull_seconds: float = 0.0) -> None:
        """Another template. `at_once`: all end before the first of the new ones starts (Recreate), which takes `pull_seconds` more."""
        self._revision += 1
        self._changed(lambda spec: _annotated(spec, str(self._revision)))
        if self.kind is Maker.DEPLOYMENT:
            self._processed()
            self._replica_set()
        groups = [self._managers] if at_once else [[manager] for manager in self._managers]
        for group in groups:
            self._end(group)
            if self.kind is Maker.STATEFUL_SET:
                self._processed()
            time.sleep(pull_seconds)
            self._run(group)

    def roll_without_an_image(self) -> None:
        """Recreate, and the new pods cannot be started."""
        self._broken = True
        self._revision += 1
        self._changed(lambda spec: _annotated(spec, str(self._revision)))
        self._processed()
        self._replica_set()
        self._end(self._managers)
        waiting = {"waiting": {"reason": "ErrImagePull", "message": "not found"}}
        for manager in self._managers:
            self._show(self._pod(manager), "Pending", "", state=waiting)

    def delete(self, *, foreground: bool = False) -> None:
        """kubectl delete, as Helm's uninstall does in the background."""
        policy = {"propagationPolicy": "Foreground" if foreground else "Background"}
        self._server.ask("DELETE", f"{self._folder}/{NAME}", policy)
        self._end(self._managers)
        self._finalized(f"{self._folder}/{NAME}")
        for found in self._server.ask("GET", f"{_APPS}/replicasets")["items"]:
            self._server.ask(
                "DELETE", f"{_APPS}/replicasets/{found['metadata']['name']}", {"propagationPolicy": "Background"}
            )

    def drain(self, manager: JobManager) -> None:
        """Cordon the node, evict the pod; the next one runs on the other node. Then the node takes pods again."""
        here, there = self._node, next(one for one in _NODES if one != self._node)
        self._cordon(there, cordoned=False)
        self._cordon(here, cordoned=True)
        self._node = there
        self.replace(manager)
        self._cordon(here, cordoned=False)

    def _cordon(self, node: str, *, cordoned: bool) -> None:
        path = f"/api/v1/nodes/{node}"
        with suppress(HTTPError):  # it is there
            self._server.ask("POST", "/api/v1/nodes", {"metadata": {"name": node}})
        self._server.ask("PUT", path, self._server.ask("GET", path) | {"spec": {"unschedulable": cordoned}})

    def replace(self, manager: JobManager) -> None:
        """Its pod is deleted, by whomever; the ReplicaSet makes another one."""
        self._end([manager])
        self._run([manager])

    # -- what controllers and kubelets do -----------------------------------------------------------------------------------

    @property
    def _folder(self) -> str:
        return f"{_APPS}/{'deployments' if self.kind is Maker.DEPLOYMENT else 'statefulsets'}"

    @property
    def _hash(self) -> str:
        return f"{self._revision:010d}"

    def _changed(self, change: Any) -> None:
        found = self._server.ask("GET", f"{self._folder}/{NAME}")
        found["spec"] = change(found["spec"])
        self._server.ask("PUT", f"{self._folder}/{NAME}", found)

    def _processed(self) -> None:
        """The controller's status: every living pod that is of this revision is updated, and ready."""
        with suppress(HTTPError):  # it is deleted
            found = self._server.ask("GET", f"{self._folder}/{NAME}")
            alive = [name for name in self._pods.values() if name]
            new = [name for name in alive if self._hash in self._labels(name).values()]
            found["status"] = {
                "observedGeneration": found["metadata"]["generation"],
                "replicas": len(alive),
                "updatedReplicas": len(new),
                "readyReplicas": len(alive),
                **(
                    {"updateRevision": self._hash, "currentRevision": self._current(alive)}
                    if self.kind is Maker.STATEFUL_SET
                    else {}
                ),
            }
            self._server.ask("PUT", f"{self._folder}/{NAME}/status", found)

    def _current(self, alive: Sequence[str]) -> str:
        revisions = [self._labels(name).get("controller-revision-hash", self._hash) for name in alive]
        return min(revisions, default=self._hash)

    def _labels(self, pod: str) -> dict[str, str]:
        with suppress(HTTPError):
            return dict(self._server.ask("GET", f"{_PODS}/{pod}")["metadata"]["labels"])
        return {}

    def _replica_set(self) -> None:
        name = f"{NAME}-{self._hash}"
        labels = {**_LABELS, "pod-template-hash": self._hash}
        template = {"metadata": {"labels": labels}, "spec": {"containers": [{"name": "jobmanager", "image": "flink"}]}}
        spec = {"replicas": len(self._managers), "selector": {"matchLabels": labels}, "template": template}
        owner = self._owner("Deployment", self._server.ask("GET", f"{self._folder}/{NAME}"))
        self._server.ask(
            "POST",
            f"{_APPS}/replicasets",
            {"metadata": {"name": name, "labels": labels, "ownerReferences": [owner]}, "spec": spec},
        )

    def _owner(self, kind: str, found: Json) -> Json:
        metadata = found["metadata"]
        return {
            "apiVersion": "apps/v1",
            "kind": kind,
            "name": metadata["name"],
            "uid": metadata["uid"],
            "controller": True,
        }

    def _pod(self, manager: JobManager) -> str:
        """A new pod for it, whose name is returned."""
        if self.kind is Maker.DEPLOYMENT:
            name, label = f"{NAME}-{self._hash}-{next(self._numbers):05d}", "pod-template-hash"
            owner = self._owner("ReplicaSet", self._server.ask("GET", f"{_APPS}/replicasets/{NAME}-{self._hash}"))
        else:
            name, label = f"{NAME}-{self._managers.index(manager)}", "controller-revision-hash"
            owner = self._owner("StatefulSet", self._server.ask("GET", f"{self._folder}/{NAME}"))
        self._pods[manager.name] = name
        metadata = {"name": name, "labels": {**_LABELS, label: self._hash}, "ownerReferences": [owner]}
        spec = {"containers": [{"name": "jobmanager", "image": "flink"}], "nodeName": self._node}
        self._server.ask("POST", _PODS, {"metadata": metadata, "spec": spec})
        return name

    def _show(self, pod: str, phase: str, address: str, **container: Json) -> None:
        status = {
            "name": "jobmanager",
            "image": "flink",
            "imageID": "",
            "ready": phase == "Running",
            "restartCount": 0,
            **container,
        }
        conditions = [{"type": "Ready", "status": str(phase == "Running" and "running" in container.get("state", {}))}]
        addresses = {"podIP": address, "podIPs": [{"ip": address}]} if address else {}
        with suppress(HTTPError):
            self._namespace.show_pod(pod, phase=phase, containerStatuses=[status], conditions=conditions, **addresses)

    def _run(self, managers: Sequence[JobManager]) -> None:
        """New pods, and a process in each."""
        for manager in managers:
            pod = self._pod(manager)
            if manager.running:
                with self._truth.ending("killed", manager):
                    manager.kill()
            number = next(self._numbers)
            manager.host = manager.ip_address = f"127.0.{number // 250}.{2 + number % 250}"
            manager.launch()
            self._show(pod, "Running", manager.host, state={"running": {}})
        for manager in managers:
            manager.await_ready()
        self._processed()

    def _end(self, managers: Sequence[JobManager]) -> None:
        """The pods are deleted; the kubelet ends their processes, and then the pods are gone."""
        for manager in managers:
            self._namespace.delete_pod(self._pods[manager.name])
        with self._truth.ending("stopped", *managers), ThreadPoolExecutor() as kubelets:
            for manager in managers:
                manager.terminate()
            codes = list(kubelets.map(_code, managers))
        for manager, code in zip(managers, codes, strict=True):
            pod = self._pods.pop(manager.name)
            at = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
            ended = {"terminated": {"exitCode": code, "reason": "Error" if code else "Completed", "finishedAt": at}}
            self._show(pod, "Running", manager.host, state=ended)
            with suppress(HTTPError):
                self._namespace.remove_pod(pod)
        self._processed()

    def _finalized(self, path: str) -> None:
        """The garbage collector takes its finalizers away, once what it owned is gone."""
        with suppress(HTTPError):
            found = self._server.ask("GET", path)
            if found["metadata"].pop("finalizers", None):
                self._server.ask("PUT", path, found)


def _code(manager: JobManager) -> int:
    """The exit code as the kubelet has it."""
    code = manager.wait(_GRACE_SECONDS)
    return 128 - code if code < 0 else code


def _annotated(spec: Json, revision: str) -> Json:
    template = spec["template"]
    metadata = {**template["metadata"], "annotations": {"kubectl.kubernetes.io/restartedAt": revision}}
    return {**spec, "template": {**template, "metadata": metadata}}
