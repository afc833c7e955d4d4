"""A Flink cluster in pods of a namespace of its own, each JobManager with the sidecar of `deploy/base`, and a receiver of its messages."""

import gzip
import json
import os
import socket
import threading
import urllib.request
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from http import HTTPStatus
from itertools import count, pairwise
from pathlib import Path
from typing import Final, Self
from urllib.error import HTTPError

from tests.kit.pods import manifests
from tests.kit.pods.api import NODE_ADDRESS, Json
from tests.kit.pods.manifests import CONFIG_MAP, CONTAINER, JOBMANAGER
from tests.kit.pods.node import NAME as NODE
from tests.kit.pods.node import admin, sandbox
from tests.kit.pods.truth import ConfigMapTruth, Death, Write, ZNodeTruth, cgroup_of, first_process, peak_bytes
from tests.kit.relay import Wire
from tests.kit.waiting import wait_for
from tests.lab.receivers import HttpReceiver, ReceivedMessage
from tests.lab.rest import RestError, call, upload_jar

POD_SECONDS: Final = 240.0
"""For pods to start and leaders to be elected, on a machine that does much else."""
_ANSWER_SECONDS: Final = 5.0
_numbers: Final = count(1)
"""Names of clusters are used once."""
_WATCH_SECONDS: Final = 0.5


@dataclass(frozen=True)
class Form:
    """How a cluster is deployed. All else is as shipped."""

    jobmanagers: int = 1
    memory: str = "900Mi"
    """The limit of a JobManager's container."""
    config: Json = field(default_factory=dict)
    """Changes to the top level of the sidecar's configuration."""
    container: Json = field(default_factory=dict)
    """Changes to the sidecar's container."""
    jobmanager: Json = field(default_factory=dict)
    """Changes to the JobManager's container."""
    rights: list[Json] = field(default_factory=list)
    """Rules that the account of the pods has beside those for ConfigMaps."""
    cluster_rights: list[Json] = field(default_factory=list)
    """Rules that it has for the whole of Kubernetes."""
    pod: Json = field(default_factory=dict)
    """Changes to the JobManager's pod, its containers and volumes excepted."""
    spool_kept: bool = True
    """Whether the spool outlives its pod: on a folder of the node. Else it is the emptyDir of `deploy/base`."""
    zookeeper: str | None = None
    """`HOST:PORT` of a server as this process reaches it: ZooKeeper HA instead of Kubernetes HA."""


class Pod:
    """One pod, as the API server had it."""

    def __init__(self, resource: Json) -> None:
        self.name: str = resource["metadata"]["name"]
        self.uid: str = resource["metadata"]["uid"]
        self.address: str | None = resource["status"].get("podIP")
        self.is_deleted = "deletionTimestamp" in resource["metadata"]
        self._containers = {status["name"]: status for status in resource["status"].get("containerStatuses", [])}

    def is_ready(self) -> bool:
        return bool(self._containers) and all(container["ready"] for container in self._containers.values())

    def restarts(self, container: str) -> int:
        return int(self._containers[container]["restartCount"])

    def last_end(self, container: str) -> tuple[str, int] | None:
        """Why the container's previous run ended, with its exit status, in the kubelet's words."""
        ended = self._containers[container]["lastState"].get("terminated")
        return (ended["reason"], ended["exitCode"]) if ended else None

    def cgroup(self, container: str) -> Path:
        return cgroup_of(sandbox().name, self.uid, self._containers[container]["containerID"].partition("//")[2])


class FlinkPods:
    """One cluster."""

    def __init__(self, name: str, form: Form) -> None:
        namespace = f"{name}-{os.getpid()}-{next(_numbers)}"
        self.namespace = namespace
        self.form = form
        self.api = admin()
        self.peaks: dict[str, int] = {}
        """Peak memory of each sidecar in bytes, by name of pod."""
        self._path = f"/api/v1/namespaces/{namespace}"
        self._apps = f"/apis/apps/v1/namespaces/{namespace}/deployments"
        self._folder = sandbox() / "clusters" / namespace
        self._receiver = HttpReceiver()
        self._open = ExitStack()
        self._stopping = threading.Event()
        self.truth: ConfigMapTruth | ZNodeTruth = (
            ZNodeTruth(form.zookeeper) if form.zookeeper else ConfigMapTruth(self.api, namespace, CONFIG_MAP)
        )

    def __enter__(self) -> Self:
        for name in ("flink-ha", "spool"):
            (self._folder / name).mkdir(parents=True)
            (self._folder / name).chmod(0o777)
        self._receiver.start()
        self._apply()
        self.truth.start()
        threading.Thread(target=self._watch_memory, name="memory", daemon=True).start()
        self.scale(self.form.jobmanagers)
        return self

    def __exit__(self, *_: object) -> None:
        self._stopping.set()
        self.truth.stop()
        self.api.ask("DELETE", f"/api/v1/namespaces/{self.namespace}")
        self._receiver.stop()
        self._open.close()

    @property
    def messages(self) -> list[ReceivedMessage]:
        return list(self._receiver.received)

    def scale(self, jobmanagers: int) -> None:
        """Change the number of JobManagers, and wait until each is ready and there is a leader."""
        self.api.patch(f"{self._apps}/{JOBMANAGER}", {"spec": {"replicas": jobmanagers}})
        wait_for(f"{jobmanagers} pods in {self.namespace}", lambda: self._are_ready(jobmanagers), POD_SECONDS)
        wait_for(f"a leader in {self.namespace}", lambda: self.truth.now.is_complete, POD_SECONDS)

    def _are_ready(self, count: int) -> bool:
        pods = self.pods()
        return len(pods) == count and all(pod.is_ready() and self.sees(pod, self.truth.now) for pod in pods)

    def sees(self, pod: Pod, leaders: Write) -> bool:
        """Whether the pod's sidecar shows these leaders."""
        shown = self.get(pod, "/api/v1/leaders")
        return leaders.is_complete and all(session in shown for session in leaders.sessions.values())

    def get(self, pod: Pod, path: str) -> str:
        """An answer of the pod's sidecar, empty where there is none."""
        with (
            suppress(OSError),
            urllib.request.urlopen(f"http://{pod.address}:9250{path}", timeout=_ANSWER_SECONDS) as answer,
        ):
            return str(answer.read().decode())
        return ""

    def pods(self) -> list[Pod]:
        """The JobManagers that are not being deleted."""
        resources = self.api.ask("GET", f"{self._path}/pods?labelSelector=component%3Djobmanager")["items"]
        return [pod for pod in map(Pod, resources) if not pod.is_deleted]

    def leader(self) -> Pod:
        """The pod of the published leader."""
        (pod,) = (pod for pod in self.pods() if pod.address == self.truth.now.host)
        return pod

    def again(self, pod: Pod) -> Pod | None:
        """The pod as it is now; None when it is gone."""
        resource = self.api.resource(f"{self._path}/pods/{pod.name}")
        return Pod(resource) if resource and resource["metadata"]["uid"] == pod.uid else None

    def process(self, pod: Pod, container: str = "jobmanager") -> int:
        return first_process(pod.cgroup(container))

    def death(self, pod: Pod) -> Death:
        return Death(self.process(pod))

    def log(self, pod: Pod, container: str = CONTAINER, *, previous: bool = False) -> str:
        """What a container logged."""
        return self.api.text(f"{self._path}/pods/{pod.name}/log?container={container}&previous={str(previous).lower()}")

    def delete(self, pod: Pod, grace_seconds: int | None = None) -> None:
        """As `kubectl delete pod`. With 0: as with `--force --grace-period=0`."""
        options = {} if grace_seconds is None else {"gracePeriodSeconds": grace_seconds}
        self.api.ask("DELETE", f"{self._path}/pods/{pod.name}", options)

    def evict(self, pod: Pod) -> bool:
        """As `kubectl drain` does. Whether a disruption budget allowed it."""
        eviction = {"apiVersion": "policy/v1beta1", "kind": "Eviction", "metadata": {"name": pod.name}}
        try:
            self.api.ask("POST", f"{self._path}/pods/{pod.name}/eviction", eviction)
        except HTTPError as error:
            if error.code != HTTPStatus.TOO_MANY_REQUESTS:
                raise
            return False
        return True

    def budget(self, unavailable: int) -> None:
        """A PodDisruptionBudget: how many JobManagers may be away."""
        path = f"/apis/policy/v1beta1/namespaces/{self.namespace}/poddisruptionbudgets"
        spec = {"maxUnavailable": unavailable, "selector": {"matchLabels": {"component": "jobmanager"}}}
        with suppress(HTTPError):
            self.api.ask("DELETE", f"{path}/{JOBMANAGER}")
        self.api.ask("POST", path, {"metadata": {"name": JOBMANAGER}, "spec": spec})
        wait_for(
            "the disruption budget",
            lambda: "observedGeneration" in self.api.ask("GET", f"{path}/{JOBMANAGER}")["status"],
        )

    def rollout(self) -> None:
        """As `kubectl rollout restart`."""
        annotations = {"kubectl.kubernetes.io/restartedAt": str(len(self.truth.writes))}
        self._change_template({"metadata": {"annotations": annotations}})

    def roll_out_image(self, image: str) -> None:
        """As `kubectl set image`: new pods whose JobManager has this image."""
        self._change_template({"spec": {"containers": [{"name": "jobmanager", "image": image}]}})

    def _change_template(self, change: Json) -> None:
        self.api.patch(f"{self._apps}/{JOBMANAGER}", {"spec": {"template": change}})

    def cordon(self, *, cordoned: bool) -> None:
        """As `kubectl cordon` and `uncordon`."""
        self.api.patch(f"/api/v1/nodes/{NODE}", {"spec": {"unschedulable": cordoned}})

    def run_program(self, pod: Pod, jar: Path) -> None:
        """Have the pod's JobManager run the program of a job. It may end by that."""
        address = f"http://{pod.address}:8081"
        name = upload_jar(address, jar)
        with suppress(RestError):
            call(address, "POST", f"/jars/{name}/run", b"{}")

    def change_image(self, pod: Pod, image: str) -> None:
        """Give the running pod's sidecar another image: the kubelet starts that container again, and no other."""
        self.api.patch(f"{self._path}/pods/{pod.name}", {"spec": {"containers": [{"name": CONTAINER, "image": image}]}})

    def records(self) -> list[Json]:
        """What is sealed in spools that were kept, of all pods, by the order of observers and then of time."""
        return list(read_spool(self._folder / "spool"))

    def gaps(self) -> list[str]:
        """Where numbers of records are missing in spools that were kept."""
        return spool_gaps(self._folder / "spool")

    def spool(self, pod: Pod) -> Path:
        """The folder on the node of a pod's emptyDir."""
        return sandbox() / "kubelet" / "pods" / pod.uid / "volumes" / "kubernetes.io~empty-dir" / "ha-sidecar-spool"

    def describe(self) -> list[tuple[str, str]]:
        """What the store and the sidecars said last, by headline: for the report of a test that failed."""
        writes = [f"{write.at:.3f} {write.sessions} {write.lease}" for write in self.truth.writes[-40:]]
        said = [(f"messages in {self.namespace}", "\n".join(message.body for message in self.messages))]
        said.append((f"writes in {self.namespace}", "\n".join(writes)))
        for pod in self.pods():
            for container in ("jobmanager", CONTAINER):
                with suppress(OSError):
                    said.append((f"log of {pod.name} {container}", self.log(pod, container)[-8000:]))
        return said

    def _apply(self) -> None:
        form, api = self.form, self.api
        api.ask("POST", "/api/v1/namespaces", {"metadata": {"name": self.namespace}})
        for path, manifest in manifests.permissions(self.namespace, form.rights, form.cluster_rights):
            api.ask("POST", path, manifest)
        quorum = self._open.enter_context(reachable(form.zookeeper)) if form.zookeeper else None
        config = {"route": {"receiver": "ops", "group_interval": "5s"}} | form.config
        for config_map in (manifests.flink_config(self.namespace, quorum), manifests.sidecar_config(config)):
            api.ask("POST", f"{self._path}/configmaps", config_map)
        url = f"json://{self._open.enter_context(reachable(self._receiver.address))}/"
        secret = {"metadata": {"name": "flink-ha-sidecar-receivers"}, "stringData": {"SLACK_URL": url}}
        api.ask("POST", f"{self._path}/secrets", secret)
        api.ask("POST", self._apps, manifests.jobmanager(self._folder / "flink-ha", form.memory, form.jobmanager))
        kept = {"name": "ha-sidecar-spool", "hostPath": {"path": str(self._folder / "spool"), "type": "Directory"}}
        patch = manifests.sidecar_patch(form.container, [kept] if form.spool_kept else [], form.pod)
        api.patch(f"{self._apps}/{JOBMANAGER}", patch)

    def _watch_memory(self) -> None:
        while not self._stopping.wait(_WATCH_SECONDS):
            with suppress(OSError, KeyError, ValueError):  # a pod that starts or ends
                for pod in self.pods():
                    with suppress(OSError, KeyError, ValueError):
                        self.peaks[pod.name] = max(self.peaks.get(pod.name, 0), peak_bytes(pod.cgroup(CONTAINER)))


@contextmanager
def reachable(address: str) -> Iterator[str]:
    """The address by which pods reach a server that listens for this machine only."""
    relay = Wire(address, socket.create_server((NODE_ADDRESS, 0)))
    try:
        yield f"{NODE_ADDRESS}:{relay.address.rpartition(':')[2]}"
    finally:
        relay.close()


def read_spool(folder: Path) -> Iterator[Json]:
    """The records of all segments below a folder."""
    for segment in sorted(folder.rglob("*.jsonl.gz")):
        for line in gzip.decompress(segment.read_bytes()).splitlines():
            yield json.loads(line)


def spool_gaps(folder: Path) -> list[str]:
    """The numbers of records that are missing between the segments of each observer below a folder."""
    missing = []
    for observer in sorted(folder.iterdir()):
        segments = sorted(tuple(map(int, name.name.split(".")[0].split("-"))) for name in observer.glob("*.jsonl.gz"))
        for (_, last), (first, _) in pairwise(segments):
            if first != last + 1:
                missing.append(f"{observer.name}: {last + 1} to {first - 1}")
    return missing
