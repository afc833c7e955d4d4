"""Runs a real Flink cluster on this machine: its store, JobManagers, a TaskManager, and a job that never ends."""

import re
import time
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any, Self, TypeVar

from sidecar.core.flink.leadership import LeaderInformation, decode_connection_info
from tests.lab import rest
from tests.lab.distribution import flink_home
from tests.lab.java import find_java
from tests.lab.lab_error import LabError
from tests.lab.managers import JobManager, TaskManager, write_hosts
from tests.lab.processes import ServerProcess
from tests.lab.rest import RestError
from tests.lab.settings import CLUSTER_ID, NAMESPACE, PATH_ROOT, write_conf_dir, write_kubernetes_conf_dir
from tests.lab.zookeeper import ZooKeeper

_JOB_JAR = Path(__file__).parent / "job" / "never-ending-job.jar"
_OLDEST = (1, 15)
_POLL_SECONDS = 0.1
_PATIENCE_SECONDS = 120.0

T = TypeVar("T")


class Lab:
    """A Flink cluster in HA mode on 127.0.0.1. `folder` contains its configuration and logs.

    Leaders are in its own ZooKeeper, or in ConfigMaps of the Kubernetes that a kubeconfig names. `zookeeper` (if any) and `taskmanager`
    are set by `start`. All processes end with `stop`, with the `with` block, or with this process.
    """

    cluster_id = CLUSTER_ID
    zookeeper: ZooKeeper
    taskmanager: TaskManager

    def __init__(
        self,
        folder: Path,
        flink_version: str = "2.3.0",
        *,
        kubeconfig: Path | None = None,
        session_timeout: timedelta = timedelta(seconds=5),
        named_hosts: bool = False,
        progress: Callable[[str], None] = lambda _line: None,
    ) -> None:
        """`session_timeout`: ZooKeeper's session timeout, or the duration of the Kubernetes lease. `named_hosts`: the JobManagers have host
        names and addresses of their own, `jobmanager-1` at 127.0.0.2, as on several machines. `progress` receives a line per step.
        """
        version = re.fullmatch(r"(\d+)\.(\d+)\.\d+", flink_version)
        if not version:
            raise LabError(f"{flink_version!r} is no Flink version: give one like 2.3.0")
        self._version = (int(version[1]), int(version[2]))
        if self._version < _OLDEST and kubeconfig is None:
            raise LabError(
                f"Flink {flink_version} needs Java 11 for its ZooKeeper client; the lab runs Flink 1.15 and newer, on Java 17"
            )
        self.folder = folder.absolute()
        self.flink_version = flink_version
        self.conf_dir = self.folder / "conf"
        self._hosts = self.folder / "hosts"
        self.jobmanagers: list[JobManager] = []
        self._kubeconfig = kubeconfig
        self._session_timeout = session_timeout
        self._named_hosts = named_hosts
        self._progress = progress
        self._processes: list[ServerProcess] = []

    def start(self, jobmanagers: int = 2) -> None:
        """Start the store, that many JobManagers and a TaskManager, and wait until all serve. On failure, nothing is left running."""
        if self.conf_dir.exists():
            raise LabError(f"{self.folder} already holds a lab: give it an empty folder")
        try:
            self._start(jobmanagers)
        except OSError as error:
            self.stop()
            raise LabError(
                f"could not start Flink {self.flink_version} in {self.folder}: {error.strerror or error}"
            ) from error
        except BaseException:
            self.stop()
            raise

    def _start(self, jobmanagers: int) -> None:
        self._java = find_java()
        self._home = flink_home(self.flink_version, self._progress)
        data = self.folder / "data"
        if self._kubeconfig:
            write_kubernetes_conf_dir(self.conf_dir, self._version, self._kubeconfig, data, self._session_timeout)
        else:
            self._progress("starting ZooKeeper")
            self.zookeeper = ZooKeeper(self.folder / "zookeeper", self._home, self._java)
            self._processes.append(self.zookeeper)
            self.zookeeper.start()
            write_conf_dir(self.conf_dir, self._version, self.zookeeper.address, data, self._session_timeout)
        self._progress(f"starting Flink {self.flink_version}: {jobmanagers} JobManagers, 1 TaskManager")
        managers = [self._new_jobmanager() for _ in range(jobmanagers)]
        self.taskmanager = TaskManager(
            "taskmanager", self.folder, self._home, self._java, self._registered_taskmanagers
        )
        self._processes.append(self.taskmanager)
        if self._named_hosts:
            self.taskmanager.know_hosts(self._hosts)
        for server in (*managers, self.taskmanager):
            server.launch()
        for server in (*managers, self.taskmanager):
            server.await_ready()

    def stop(self) -> None:
        """Kill every process of the lab, usually within a second. May be called at any time, also twice."""
        stuck = []
        for process in reversed(self._processes):
            try:
                process.kill()
            except LabError as error:
                stuck.append(error)
        if stuck:
            raise stuck[0]

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def add_jobmanager(self) -> JobManager:
        """Start one more JobManager, a standby."""
        jobmanager = self._new_jobmanager()
        jobmanager.start()
        return jobmanager

    def leading(self) -> JobManager | None:
        """The JobManager whose dispatcher leads according to the store, if that process and the store are alive."""
        try:
            leader = self._in_kubernetes(self._kubeconfig) if self._kubeconfig else self._in_zookeeper()
        except LabError:
            return None
        if leader is None:
            return None
        address, written_at = leader
        for jobmanager in self.jobmanagers:
            if jobmanager.running and f"@{jobmanager.host}:{jobmanager.rpc_port}/" in address:
                # An older entry is that of a previous process on the same ports.
                return jobmanager if written_at >= jobmanager.started_at else None
        return None

    def _in_zookeeper(self) -> tuple[str, float] | None:
        """The address of the leading dispatcher, and when it was written (seconds since the epoch)."""
        node = self.zookeeper.read(f"{PATH_ROOT}/{CLUSTER_ID}/leader/dispatcher/connection_info")
        if node is None:
            return None
        data, written_at = node
        leader = decode_connection_info(data)
        return (leader.address, written_at) if isinstance(leader, LeaderInformation) else None

    def _in_kubernetes(self, kubeconfig: Path) -> tuple[str, float] | None:
        from tests.lab.config_maps import read_dispatcher  # the demo needs no Kubernetes library

        return read_dispatcher(kubeconfig, NAMESPACE, CLUSTER_ID, self._version)

    def wait_for_leader(self, timeout: float = _PATIENCE_SECONDS) -> JobManager:
        """Wait for a leader, and return it. Raises LabError after `timeout` seconds."""
        return self._until("a JobManager to lead", self.leading, timeout)

    def submit_job(self, *, wait_for_checkpoint: bool = True) -> str:
        """Submit the job that never ends and wait for its tasks (and a checkpoint); returns the job id (32 hex digits)."""
        leader = self.wait_for_leader()
        self._progress("submitting a job that never ends")
        jar = self._until("Flink to take the job's jar", lambda: rest.upload_jar(leader.rest_address, _JOB_JAR))
        answer = rest.call(leader.rest_address, "POST", f"/jars/{jar}/run", b"{}", timeout=_PATIENCE_SECONDS)
        job_id = str(answer["jobid"])
        self.wait_for_job(job_id, checkpoint=wait_for_checkpoint)
        return job_id

    def wait_for_job(self, job_id: str, *, checkpoint: bool = True, timeout: float = _PATIENCE_SECONDS) -> None:
        """Wait until all tasks of the job run and its current JobMaster completed a checkpoint. Raises LabError after `timeout` seconds."""
        self._until(f"job {job_id} to run", lambda: self._is_running(job_id, checkpoint) or None, timeout)

    def job_state(self, job_id: str) -> str | None:
        """Flink's state of the job ("RUNNING", "RESTARTING", "CANCELED", …); None while no JobManager responds or knows the job."""
        try:
            return str(self._ask("GET", f"/jobs/{job_id}")["state"])
        except RestError:
            return None

    def cancel_job(self, job_id: str) -> None:
        """Cancel the job and wait until it is CANCELED."""
        self._ask("PATCH", f"/jobs/{job_id}?mode=cancel")
        self._until(f"job {job_id} to be cancelled", lambda: self.job_state(job_id) == "CANCELED" or None)

    def _new_jobmanager(self) -> JobManager:
        number = len(self.jobmanagers) + 1
        jobmanager = JobManager(f"jobmanager-{number}", self.folder, self._home, self._java)
        self.jobmanagers.append(jobmanager)
        if self._named_hosts:
            jobmanager.host, jobmanager.ip_address = jobmanager.name, f"127.0.0.{number + 1}"
            write_hosts(self._hosts, *self.jobmanagers)
            jobmanager.know_hosts(self._hosts)
        self._processes.append(jobmanager)
        return jobmanager

    def _registered_taskmanagers(self) -> set[str]:
        try:
            return {taskmanager["id"] for taskmanager in self._ask("GET", "/taskmanagers")["taskmanagers"]}
        except RestError:
            return set()

    def _is_running(self, job_id: str, checkpoint: bool) -> bool:
        job = self._ask("GET", f"/jobs/{job_id}")
        states = {job["state"], *(vertex["status"] for vertex in job["vertices"])}
        if states != {"RUNNING"}:
            return False
        return not checkpoint or self._ask("GET", f"/jobs/{job_id}/checkpoints")["counts"]["completed"] > 0

    def _ask(self, method: str, path: str) -> dict[str, Any]:
        """The response of the first JobManager that responds; a standby forwards the request to the leader."""
        failure = RestError("no JobManager is running")
        for jobmanager in self.jobmanagers:
            if jobmanager.running and not jobmanager.paused:
                try:
                    return rest.call(jobmanager.rest_address, method, path)
                except RestError as error:
                    failure = error
        raise failure

    def _until(self, state: str, probe: Callable[[], T | None], timeout: float = _PATIENCE_SECONDS) -> T:
        """Repeat `probe` until it returns a result that is not None. A RestError means: not yet."""
        deadline = time.monotonic() + timeout
        while True:
            reason = ""
            try:
                if (result := probe()) is not None:
                    return result
            except RestError as error:
                reason = f" ({error})"
            if time.monotonic() > deadline:
                raise LabError(f"waited {timeout:g} s for {state}{reason}; the logs are in {self.folder}")
            time.sleep(_POLL_SECONDS)
