"""Failovers of a real Flink after which not everything comes back, what has really come back, and what the sidecar says of it."""

import os
import shutil
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from datetime import datetime, timedelta
from functools import cached_property
from pathlib import Path
from typing import Any, Final, NamedTuple, Protocol, Self

from kazoo.client import KazooClient
from kubernetes.client import CoreV1Api
from kubernetes.config import new_client_from_config

from sidecar.drivers.kubernetes.kubernetes_ledger import LABELS
from sidecar.drivers.zookeeper.zookeeper_ledger import ROOT
from tests.kit.job_programs import program_jar
from tests.kit.kubernetes_server import Kubernetes, assets
from tests.kit.relay import Wire
from tests.kit.sidecar_process import Sidecar
from tests.kit.waiting import wait_for
from tests.lab import rest
from tests.lab.flink import Lab
from tests.lab.managers import JobManager
from tests.lab.settings import CLUSTER_ID, NAMESPACE, PATH_ROOT

Record = dict[str, Any]

SESSION: Final = timedelta(seconds=12)
"""Of ZooKeeper, and the duration of a lease: for so long nobody leads after a kill -9, and what Flink has stored can be changed.

A plan that vanishes up to 5 s before its leader does may be that of a job that ended. A killed leader's session ends as early as two
thirds of it later, since its last ping is up to a third old, and on a busy machine seconds pass until the plan is removed. Flink's default
is 60 s.
"""
PICTURE_SECONDS: Final = 13.0
"""In which a picture of the cluster is taken: the interval's default, and how long one takes."""
RECOVERY_SECONDS: Final = 120.0
"""Until a recovery is recorded, whatever the verdict: the patience set here, and the next picture."""
_PATIENCE_SECONDS: Final = 120.0
_LEDGERS: Final = ",".join(f"{name}={value}" for name, value in LABELS.items())
_RETAINED: Final = "execution.checkpointing.num-retained=10"
_DISK_MEGABYTES: Final = 64
_FULL_SECONDS: Final = 20.0
"""Until somebody makes room on the full disk."""
_HEAP_SECONDS: Final = 180.0
"""In which a JobManager ends whose heap is full: it took 56 s in a pod."""


class Store(Protocol):
    """What Flink stores of jobs."""

    plan_seconds: float
    """When a plan is removed after a kill -9. What vanishes then, its leader cannot have removed."""

    def checkpoints(self, job: str) -> list[int]:
        """The ids of the completed ones, the latest last."""

    def remove_checkpoint(self, job: str, number: int) -> None: ...

    def take_plan(self, job: str) -> object:
        """Remove the job's plan; what was there."""

    def plan(self, job: str) -> object: ...

    def put_plan(self, job: str, plan: object) -> None: ...

    def delete_leaders(self) -> None:
        """Delete what the leader of the cluster's own components has published."""

    def delete_ledgers(self) -> None:
        """Delete what sidecars have left: the next one knows nothing of them."""


class ZNodeStore:
    """In ZooKeeper. `client` is connected."""

    plan_seconds = 0.0  # a job that ends loses its leader's address first, and not as late as the session ends

    def __init__(self, client: KazooClient, *, flink_2: bool) -> None:
        self._client = client
        self._root = f"{PATH_ROOT}/{CLUSTER_ID}"
        self._plans = f"{self._root}/{'execution-plans' if flink_2 else 'jobgraphs'}"

    def checkpoints(self, job: str) -> list[int]:
        return sorted(map(int, self._client.get_children(f"{self._root}/jobs/{job}/checkpoints")))

    def remove_checkpoint(self, job: str, number: int) -> None:
        self._client.delete(f"{self._root}/jobs/{job}/checkpoints/{number:019d}", recursive=True)

    def take_plan(self, job: str) -> object:
        plan = self.plan(job)
        self._client.delete(f"{self._plans}/{job}", recursive=True)
        return plan

    def plan(self, job: str) -> object:
        return self._client.get(f"{self._plans}/{job}")[0]

    def put_plan(self, job: str, plan: object) -> None:
        self._client.create(f"{self._plans}/{job}", plan)
        self._client.create(f"{self._plans}/{job}/locks")  # without it Flink takes it for one that is being removed

    def delete_leaders(self) -> None:
        for component in ("rest_server", "resource_manager", "dispatcher"):
            self._client.delete(f"{self._root}/leader/{component}/connection_info")

    def delete_ledgers(self) -> None:
        self._client.delete(ROOT, recursive=True)


class ConfigMapStore:
    """In ConfigMaps."""

    plan_seconds = SESSION.total_seconds() / 2  # its last renewal is longer ago than the next one would be

    def __init__(self, core: CoreV1Api, *, flink_2: bool) -> None:
        self._core = core
        self._kind = "executionPlan" if flink_2 else "jobGraph"

    def checkpoints(self, job: str) -> list[int]:
        data = self._core.read_namespaced_config_map(f"{CLUSTER_ID}-{job}-config-map", NAMESPACE).data or {}
        return sorted(int(key.removeprefix("checkpointID-")) for key in data if key.startswith("checkpointID-"))

    def remove_checkpoint(self, job: str, number: int) -> None:
        self._set(f"{CLUSTER_ID}-{job}-config-map", f"checkpointID-{number:019d}", None)

    def take_plan(self, job: str) -> object:
        plan = self.plan(job)
        self.put_plan(job, None)
        return plan

    def plan(self, job: str) -> object:
        data = self._core.read_namespaced_config_map(f"{CLUSTER_ID}-cluster-config-map", NAMESPACE).data or {}
        return data[f"{self._kind}-{job}"]

    def put_plan(self, job: str, plan: object) -> None:
        self._set(f"{CLUSTER_ID}-cluster-config-map", f"{self._kind}-{job}", plan)

    def delete_leaders(self) -> None:
        self._core.delete_namespaced_config_map(f"{CLUSTER_ID}-cluster-config-map", NAMESPACE)

    def delete_ledgers(self) -> None:
        self._core.delete_collection_namespaced_config_map(NAMESPACE, label_selector=_LEDGERS)

    def _set(self, name: str, key: str, value: object) -> None:
        self._core.patch_namespaced_config_map(name, NAMESPACE, {"data": {key: value}})


class RetainingLab(Lab):
    """Keeps ten completed checkpoints of a job, twenty seconds. As root, what Flink stores is on a small disk of its own."""

    kubernetes: Kubernetes | None = None
    """Where its leaders are; None: in ZooKeeper."""
    can_be_cut = False
    """Each JobManager has a way of its own to the store. In ZooKeeper it has another quorum then, by which its process seems to be another
    cluster's.
    """

    @cached_property
    def wires(self) -> dict[str, Wire]:
        """The ways to the store, by the name of the JobManager."""
        return {}

    def way(self, wire: Wire) -> str:
        """What a client has to be given so that it takes this way: a quorum, or the path of a kubeconfig."""
        return str(self.kubernetes.kubeconfig(server=f"https://{wire.address}")) if self.kubernetes else wire.address

    def conf_by(self, wire: Wire, folder: Path) -> Path:
        """A copy of Flink's configuration in `folder`, which takes this way."""
        shutil.copytree(self.conf_dir, folder)
        for file in folder.iterdir():
            own = str(self._kubeconfig) if self._kubeconfig else self.zookeeper.address
            file.write_text(file.read_text().replace(own, self.way(wire)))
        return folder

    def new_wire(self) -> Wire:
        """A way to the store. While that is down, it turns everybody away as the store would."""
        return Wire((self.kubernetes.server if self.kubernetes else self.zookeeper).address)

    def _start(self, jobmanagers: int) -> None:
        if os.geteuid() == 0:
            self.data.mkdir(parents=True)
            size = f"size={_DISK_MEGABYTES}m"
            subprocess.run(["/bin/mount", "-t", "tmpfs", "-o", size, "tmpfs", self.data], check=True)
        super()._start(jobmanagers)

    def stop(self) -> None:
        super().stop()
        while self.wires:
            self.wires.popitem()[1].close()
        if self.data.is_mount():
            subprocess.run(["/bin/umount", "--lazy", self.data], check=True)

    @property
    def data(self) -> Path:
        return self.folder / "data"

    @property
    def filler(self) -> Path:
        """The file that fills the disk."""
        return self.data / "filler"

    def _new_jobmanager(self) -> JobManager:
        jobmanager = _Retaining(f"jobmanager-{len(self.jobmanagers) + 1}", self.folder, self._home, self._java)
        if self.can_be_cut:
            self.wires[jobmanager.name] = wire = self.new_wire()
            key = "kubernetes.config.file" if self.kubernetes else "high-availability.zookeeper.quorum"
            jobmanager.properties += (f"-D{key}={self.way(wire)}",)
        self.jobmanagers.append(jobmanager)
        self._processes.append(jobmanager)
        return jobmanager


class _Retaining(JobManager):
    properties: tuple[str, ...] = (f"-D{_RETAINED}",)

    def build_command(self) -> Sequence[str]:
        return (*super().build_command(), *self.properties)


@contextmanager
def _on_zookeeper(
    folder: Path, flink_version: str, *, can_be_cut: bool = False
) -> Iterator[tuple[RetainingLab, Store]]:
    with RetainingLab(folder / "lab", flink_version, session_timeout=SESSION) as lab:
        lab.can_be_cut = can_be_cut
        lab.start()
        client = KazooClient(lab.zookeeper.address)
        client.start()
        try:
            yield lab, ZNodeStore(client, flink_2=flink_version >= "2")
        finally:
            client.stop()
            client.close()


@contextmanager
def _on_kubernetes(
    folder: Path, flink_version: str, *, can_be_cut: bool = False
) -> Iterator[tuple[RetainingLab, Store]]:
    kubernetes = Kubernetes(folder / "kubernetes", assets())
    try:
        kubernetes.start()
        kubeconfig = kubernetes.kubeconfig()
        with (
            RetainingLab(folder / "lab", flink_version, kubeconfig=kubeconfig, session_timeout=SESSION) as lab,
            new_client_from_config(str(kubeconfig)) as client,  # type: ignore[no-untyped-call]  # the library's
        ):
            lab.kubernetes, lab.can_be_cut = kubernetes, can_be_cut
            lab.start()
            yield lab, ConfigMapStore(CoreV1Api(client), flink_2=flink_version >= "2")
    finally:
        kubernetes.kill()


LABS: Final[Mapping[str, Callable[..., AbstractContextManager[tuple[RetainingLab, Store]]]]] = {
    "zookeeper": _on_zookeeper,
    "kubernetes": _on_kubernetes,
}
"""By the store: a cluster in a folder, of a version of Flink, which may be one that `can_be_cut`."""


class Verdict(NamedTuple):
    """What came back, or what is said of it."""

    verdict: str
    outcome: str | None
    restored_from: str | None
    checkpoint_id: int | None
    behind: int | None
    jobs: int
    """That run."""
    task_managers: int | None


class Run(NamedTuple):
    """One failover."""

    truth: Verdict
    said: Verdict
    reasons: list[str]
    after: float
    """Seconds from the fault to the record."""

    @property
    def wrong(self) -> list[str]:
        """What was said that is not so. Not to know is not wrong."""
        unknown = {"unproven", None}
        return [
            f"{name}: said {said}, in truth {truth}"
            for name, said, truth in zip(Verdict._fields, self.said, self.truth, strict=True)
            if said not in unknown and said != truth
        ]


class RecoveryScene:
    """Two JobManagers, a TaskManager and a job, and `run`, which asks Flink's REST server every ten seconds."""

    def __init__(self, lab: RetainingLab, store: Store, folder: Path, *, between_checkpoints: bool = False) -> None:
        """`lab` runs. `between_checkpoints`: no leader is killed while a checkpoint is taken: nobody knows whether it was completed."""
        self.lab = lab
        self.store = store
        self.job = ""
        self._between_checkpoints = between_checkpoints
        self.sidecar = Sidecar(
            folder / "sidecar",
            f"flink_conf_dir: {lab.conf_dir}\nevidence: {{capture: [processes, flink_rest], flink_rest: {{patience: 1m}}}}",
            [],
        )
        self.folder = folder
        self._copy = folder / "ha"

    def __enter__(self) -> Self:
        self.sidecar.start().wait_ready()
        return self

    def __exit__(self, *_: object) -> None:
        if self.sidecar.process and self.sidecar.process.poll() is None:
            self.sidecar.stop()

    def play(self, scenario: "Scenario") -> Run:
        """One failover, and what was said of it."""
        self._stand_by()
        began = time.time()
        truth = scenario(self)
        rows = wait_for("the record of the recovery", lambda: self._rows(began), RECOVERY_SECONDS)
        whole, *jobs = rows
        of_job = next((row for row in jobs if row["job_id"] == self.job), {})
        said = Verdict(
            whole["verdict"],
            of_job.get("outcome"),
            of_job.get("restored_from"),
            of_job.get("checkpoint_id"),
            of_job.get("checkpoints_behind"),
            sum(row["outcome"] == "running" for row in jobs),
            whole["task_managers_after"],
        )
        return Run(truth(), said, whole["reasons"], _seconds(whole["observed_at"]) - began)

    def _rows(self, since: float) -> list[Record]:
        """Those of the failover that began since then."""
        rows = [record for record in self.sidecar.records() if record["type"] == "recovery"]
        return [row for row in rows if _seconds(row["opened_at"]) > since]

    def _stand_by(self) -> None:
        """The job runs, has more than one checkpoint, and the sidecar has seen that; a standby is there."""
        self.lab.filler.unlink(missing_ok=True)
        for jobmanager in self.lab.jobmanagers:
            jobmanager.start()
        self.lab.wait_for_leader()
        if not self.job or self.lab.job_state(self.job) != "RUNNING":
            self.job = self.lab.submit_job()
        self.lab.wait_for_job(self.job)
        wait_for("checkpoints", lambda: len(self.store.checkpoints(self.job)) > 1)
        time.sleep(PICTURE_SECONDS)

    # -- faults --------------------------------------------------------------------------------------------------------

    def leader(self) -> JobManager:
        return wait_for("a leader", self.lab.leading)

    def kill(self) -> list[int]:
        """kill -9 of the leader: the completed checkpoints that are stored while nobody leads."""
        leader = self.leader()
        if self._between_checkpoints:
            last = self.store.checkpoints(self.job)[-1]
            wait_for("the next checkpoint", lambda: self.store.checkpoints(self.job)[-1] > last)
        leader.kill()
        return self.store.checkpoints(self.job)

    def copy_files(self) -> None:
        """Keep a copy of what Flink stores in files."""
        shutil.rmtree(self._copy, ignore_errors=True)
        shutil.copytree(self.lab.folder / "data" / "ha", self._copy)

    def put_files_back(self) -> None:
        shutil.copytree(self._copy, self.lab.folder / "data" / "ha", dirs_exist_ok=True)

    # -- the truth -----------------------------------------------------------------------------------------------------

    def truth(self, last: int | None, *, had_ended: bool = False) -> Verdict:
        """What Flink says; `last`: the latest checkpoint completed before."""
        address = self.lab.wait_for_leader().rest_address
        jobs = {job["jid"]: job["state"] for job in rest.call(address, "GET", "/jobs/overview")["jobs"]}
        managers = len(rest.call(address, "GET", "/taskmanagers")["taskmanagers"])
        running = sum(state == "RUNNING" for state in jobs.values())
        if jobs.get(self.job) != "RUNNING":
            return Verdict(
                *("recovered", "ended") if had_ended else ("lost", "missing"), None, None, None, running, managers
            )
        if had_ended:
            return Verdict("degraded", "resurrected", None, None, None, running - 1, managers)
        restored = rest.call(address, "GET", f"/jobs/{self.job}/checkpoints")["latest"]["restored"]
        number = restored and restored["id"]
        verdict, restored_from = (
            ("lost", "nothing")
            if number is None
            else ("degraded", "older")
            if last and number < last
            else ("recovered", "latest")
        )
        behind = last - number if last and number and number < last else None  # none of these failed
        return Verdict(verdict, "running", restored_from, number, behind, running, managers)


Scenario = Callable[[RecoveryScene], Callable[[], Verdict]]
"""Does it, and gives what says how it is in truth once all is over."""


def _killed(scene: RecoveryScene) -> Callable[[], Verdict]:
    stored = scene.kill()
    return lambda: scene.truth(stored[-1])


def _stopped(scene: RecoveryScene) -> Callable[[], Verdict]:
    last = scene.store.checkpoints(scene.job)[-1]
    scene.leader().terminate()
    return lambda: scene.truth(last)


def _out_of_heap(scene: RecoveryScene) -> Callable[[], Verdict]:
    """A program fills the JobManager's heap; Flink ends it as soon as one of its own threads finds no room. No checkpoint may follow."""
    leader = scene.leader()
    jar = rest.upload_jar(leader.rest_address, program_jar("HeapFiller", scene.folder))
    with suppress(rest.RestError):  # no answer
        rest.call(leader.rest_address, "POST", f"/jars/{jar}/run", b"{}")
    stored = scene.store.checkpoints(scene.job)
    deadline = time.monotonic() + _HEAP_SECONDS
    while leader.running and scene.lab.leading() is leader:
        stored = scene.store.checkpoints(scene.job)
        assert time.monotonic() < deadline, "the JobManager did not end"
        time.sleep(0.1)
    leader.wait(_HEAP_SECONDS)
    return lambda: scene.truth(stored[-1])


def _on_a_full_disk(scene: RecoveryScene) -> Callable[[], Verdict]:
    """What Flink stores can grow again after a while."""
    with suppress(OSError), scene.lab.filler.open("wb") as filler:
        while True:
            filler.write(bytes(1 << 16))
    stored = scene.kill()
    time.sleep(_FULL_SECONDS)
    scene.lab.filler.unlink()
    return lambda: scene.truth(stored[-1])


def _with_its_machine(scene: RecoveryScene) -> Callable[[], Verdict]:
    """All processes of Flink end at once, and are started again."""
    scene.lab.taskmanager.kill()
    stored = scene.kill()
    for jobmanager in scene.lab.jobmanagers:
        jobmanager.kill()
    servers = (*scene.lab.jobmanagers, scene.lab.taskmanager)
    for server in servers:
        server.launch()
    for server in servers:
        server.await_ready()
    return lambda: scene.truth(stored[-1])


def _without_the_newest(scene: RecoveryScene) -> Callable[[], Verdict]:
    last = scene.kill()[-1]
    scene.store.remove_checkpoint(scene.job, last)
    return lambda: scene.truth(last)


def _with_the_oldest_only(scene: RecoveryScene) -> Callable[[], Verdict]:
    """Of ten: the last picture shows later ones. The very oldest may have been about to be removed."""
    stored = scene.kill()
    for number in stored[2:]:
        scene.store.remove_checkpoint(scene.job, number)
    return lambda: scene.truth(stored[-1])


def _without_checkpoints(scene: RecoveryScene) -> Callable[[], Verdict]:
    stored = scene.kill()
    for number in stored:
        scene.store.remove_checkpoint(scene.job, number)
    return lambda: scene.truth(stored[-1])


def _without_plan(scene: RecoveryScene) -> Callable[[], Verdict]:
    stored = scene.kill()
    time.sleep(scene.store.plan_seconds)
    scene.store.take_plan(scene.job)
    return lambda: scene.truth(stored[-1])


def _cancelled(scene: RecoveryScene) -> Callable[[], Verdict]:
    scene.lab.cancel_job(scene.job)
    time.sleep(PICTURE_SECONDS)
    scene.leader().kill()
    return lambda: scene.truth(None, had_ended=True)


def _cancelled_at_that_moment(scene: RecoveryScene) -> Callable[[], Verdict]:
    scene.lab.cancel_job(scene.job)
    scene.leader().kill()
    return lambda: scene.truth(None, had_ended=True)


def _resurrected(scene: RecoveryScene) -> Callable[[], Verdict]:
    """What FLINK-39704 leaves: the plan of a job that has ended, and no result."""
    scene.copy_files()
    plan = scene.store.plan(scene.job)
    truth = _cancelled(scene)
    scene.put_files_back()
    scene.store.put_plan(scene.job, plan)
    return truth


SCENARIOS: Final[Mapping[str, Scenario]] = {
    "kill -9": _killed,
    "SIGTERM": _stopped,
    "the heap is full": _out_of_heap,
    "the disk is full": _on_a_full_disk,
    "all processes end, as with their machine": _with_its_machine,
    "the newest checkpoint is not stored any more": _without_the_newest,
    "the two oldest checkpoints alone are stored": _with_the_oldest_only,
    "no checkpoint is stored any more": _without_checkpoints,
    "the job's plan is not stored any more": _without_plan,
    "the job was cancelled before": _cancelled,
    "the job was cancelled at that moment": _cancelled_at_that_moment,
    "the job was cancelled before, and its plan is stored again": _resurrected,
}


def _seconds(timestamp: str) -> float:
    return datetime.fromisoformat(timestamp).timestamp()
