"""The audit's jobs in pods: the objects of `deploy/audit/on-kubernetes`, with spool and log in a bucket, in a namespace of their own."""

import json
import os
import signal
from collections.abc import Iterator, Sequence
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Final, Self

from sidecar.core.records import TransitionRecord
from tests.audit.spooling import seal, transition
from tests.deploy.manifests import DEPLOY, apply, document, example, of_kind, pod_of
from tests.kit.files import files_below
from tests.kit.kubectl import Manifest
from tests.kit.pods.api import URL, Json
from tests.kit.pods.images import AUDIT
from tests.kit.pods.node import admin, sandbox
from tests.kit.pods.truth import cgroup_of, first_process, peak_bytes
from tests.kit.s3_server import reach
from tests.kit.waiting import wait_for

ACCOUNT: Final = "flink-ha-sidecar-audit"
JOB_SECONDS: Final = 600.0
_CREDENTIALS: Final = ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY")
_SECRET: Final = "flink-ha-audit-credentials"
_LITTLE_CPU: Final = "100m"
"""What a pod asks for: a whole CPU each is more than this node has."""


class AuditJobs:
    """Its CronJob's jobs are run one after the other."""

    def __init__(self, folder: Path, bucket: Path, endpoint: str) -> None:
        """`endpoint`: of the S3 server whose objects are the files in `bucket`, as pods reach it."""
        self.bucket = bucket
        self.records: list[TransitionRecord] = []
        """What is in the spool."""
        self.peaks: dict[str, int] = {}
        """Peak memory in bytes of a `driver` and an `executor`."""
        self._killed: set[str] = set()
        self.namespace = f"spark-{os.getpid()}"
        self._api = admin()
        self._path = f"/api/v1/namespaces/{self.namespace}"
        self._jobs = f"/apis/batch/v1/namespaces/{self.namespace}/jobs"
        self._store = reach(f"http://{endpoint}")
        # In the namespace of the example.
        text = json.dumps(example(folder, "kubernetes", "audit", "audit/on-kubernetes"))
        self._manifests: list[Manifest] = json.loads(
            text.replace('"namespace": "flink"', f'"namespace": "{self.namespace}"')
        )
        (self.role,) = self._of_the_audit("Role")
        self._job: Json = of_kind(self._manifests, "CronJob")["spec"]["jobTemplate"]["spec"]
        self._driver = pod_of(of_kind(self._manifests, "CronJob"))["initContainers"][0]

    def __enter__(self) -> Self:
        config, spark = (one["data"] for one in self._of_the_audit("ConfigMap"))
        config |= {"SPOOL": "s3://bucket/spool", "AUDIT": "s3://bucket/audit", "EXECUTOR_IMAGE": AUDIT}
        config |= {name: value for name, value in self._store.items() if name not in _CREDENTIALS}
        spark["spark-defaults.conf"] += f"spark.kubernetes.executor.request.cores {_LITTLE_CPU}\n"
        secret = {
            "apiVersion": "v1",
            "kind": "Secret",
            "metadata": {"name": _SECRET, "namespace": self.namespace},
            "stringData": {name: self._store[name] for name in _CREDENTIALS},
        }
        pod = self._job["template"]["spec"]
        for container in (*pod["initContainers"], *pod["containers"]):
            container["resources"]["requests"]["cpu"] = _LITTLE_CPU
        self._api.ask("POST", "/api/v1/namespaces", {"metadata": {"name": self.namespace}})
        kinds = ("ServiceAccount", "Role", "RoleBinding", "ConfigMap", "NetworkPolicy")
        apply(sandbox() / "admin.kubeconfig", [*self._of_the_audit(*kinds), secret])
        return self

    def __exit__(self, *_: object) -> None:
        self._api.ask("DELETE", f"/api/v1/namespaces/{self.namespace}")

    def fill(self) -> None:
        """Another 40 segments of records on three dates."""
        first, today = len(self.records), datetime.now(UTC)
        for begin in range(first, first + 4000, 100):
            new = [transition(n, today - timedelta(days=1 + n % 3)) for n in range(begin, begin + 100)]
            seal(self.bucket / "spool", "jm-0", begin + 1, new)
            self.records += new

    def start(self, name: str) -> None:
        self._api.ask("POST", self._jobs, {"metadata": {"name": name}, "spec": self._job})

    def start_as_operator(self, name: str) -> None:
        """Start the driver of the application for Spark's operator, as spark-submit does it in cluster mode; but for a name service."""
        app = document(DEPLOY / "audit" / "spark-operator" / "ingest.yaml")["spec"]["template"]
        master = f"k8s://{URL}"
        settings = app["sparkConf"] | {
            "spark.master": master,
            "spark.driver.host": "$(POD_IP)",
            "spark.kubernetes.driver.pod.name": name,
            "spark.kubernetes.namespace": self.namespace,
            "spark.kubernetes.container.image": AUDIT,
            "spark.kubernetes.executor.request.cores": _LITTLE_CPU,
            "spark.executor.instances": app["executor"]["instances"],
            "spark.executor.memory": app["executor"]["memory"],
            **{f"spark.kubernetes.executor.secretKeyRef.{key}": f"{_SECRET}:{key}" for key in _CREDENTIALS},
        }
        confs = [f"--conf={key}={value}" for key, value in settings.items()]
        arguments = [*app["arguments"][:2], "--spool=$(SPOOL)", "--audit=$(AUDIT)", f"--master={master}"]
        container = {
            "name": self._driver["name"],
            "image": AUDIT,
            "args": ["driver", *confs, app["mainApplicationFile"], *arguments],
            "envFrom": self._driver["envFrom"],
            "env": [
                *(variable for variable in self._driver["env"] if variable["name"] != "SPARK_CONF_DIR"),
                {"name": "SPARK_DRIVER_BIND_ADDRESS", "value": "$(POD_IP)"},
            ],
            "resources": {"requests": {"cpu": _LITTLE_CPU}},
            "securityContext": app["driver"]["securityContext"],
        }
        spec = {"serviceAccountName": ACCOUNT, "restartPolicy": "Never", "containers": [container]}
        metadata = {"name": name, "labels": {"job-name": name}}
        self._api.ask("POST", f"{self._path}/pods", {"metadata": metadata, "spec": spec})

    def await_rows(self) -> None:
        """Until executors write what is ingested."""
        wait_for("executors at work", lambda: any(files_below(self.bucket / "audit" / "_staging")), JOB_SECONDS)

    def is_done(self, name: str) -> bool:
        """Whether a pod of the job has ended well. AssertionError if one has failed that was not killed."""
        self._note_memory()
        pods = self._pods(f"job-name%3D{name}")
        failed = {pod["metadata"]["name"] for pod in pods if pod["status"]["phase"] == "Failed"}
        assert failed <= self._killed, self.log(name)
        return any(pod["status"]["phase"] == "Succeeded" for pod in pods)

    def kill(self, pod: Json) -> None:
        """End what runs in a pod with kill -9."""
        (running,) = self._running(pod)
        self._killed.add(pod["metadata"]["name"])
        os.kill(first_process(running), signal.SIGKILL)

    def driver(self, name: str) -> Json:
        """The last pod of a job."""
        return max(self._pods(f"job-name%3D{name}"), key=lambda pod: str(pod["metadata"]["creationTimestamp"]))

    def executors(self) -> Sequence[Json]:
        """Those that run."""
        return [pod for pod in self._pods("spark-role%3Dexecutor") if pod["status"]["phase"] == "Running"]

    def log(self, name: str) -> str:
        """What each pod of a job has printed."""
        logs = ""
        for pod in self._pods(f"job-name%3D{name}"):
            for container in ("ingest", "compact"):
                with suppress(OSError):
                    logs += self._api.text(f"{self._path}/pods/{pod['metadata']['name']}/log?container={container}")
        return logs

    def _of_the_audit(self, *kinds: str) -> list[Manifest]:
        names = (ACCOUNT, "flink-ha-audit")
        return [one for one in self._manifests if one["kind"] in kinds and one["metadata"]["name"].startswith(names)]

    def _pods(self, selector: str) -> list[Json]:
        return list(self._api.ask("GET", f"{self._path}/pods?labelSelector={selector}")["items"])

    def _running(self, pod: Json) -> Iterator[Path]:
        """The cgroups of its containers that run."""
        statuses = pod["status"].get("initContainerStatuses", []) + pod["status"].get("containerStatuses", [])
        for status in statuses:
            if "running" in status["state"]:
                yield cgroup_of(sandbox().name, pod["metadata"]["uid"], status["containerID"].partition("//")[2])

    def _note_memory(self) -> None:
        for pod in self._pods(""):
            kind = pod["metadata"]["labels"].get("spark-role", "driver")
            for cgroup in self._running(pod):
                with suppress(OSError):  # it has ended
                    self.peaks[kind] = max(self.peaks.get(kind, 0), peak_bytes(cgroup))
