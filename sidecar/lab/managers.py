"""Flink's two kinds of processes on this machine: a JobManager and a TaskManager."""

from collections.abc import Callable, Collection, Sequence
from pathlib import Path

from sidecar.lab import rest
from sidecar.lab.java import java_command, java_environment
from sidecar.lab.processes import ServerProcess, free_port
from sidecar.lab.rest import RestError
from sidecar.lab.settings import TASK_MANAGER_HEAP_MEGABYTES

_JOB_MANAGER_HEAP_MEGABYTES = 512


class _FlinkServer(ServerProcess):
    """A JVM of Flink, configured by `folder`/conf and by settings of its own."""

    def __init__(self, name: str, folder: Path, home: Path, java: Path) -> None:
        super().__init__(name, folder / f"{name}.log", java_environment())
        self._folder = folder
        self._home = home
        self._java = java

    def _command(self, main: str, heap_megabytes: int, settings: dict[str, object]) -> Sequence[str]:
        # Nothing but these two kinds of options: Flink 2 stops reading at the first that it does not know, without a word.
        options = ("--configDir", str(self._folder / "conf"), *(f"-D{key}={value}" for key, value in settings.items()))
        return java_command(self._java, self._home, self._folder, heap_megabytes, main, *options, log=self.log)


class JobManager(_FlinkServer):
    """One JobManager process; started again, it has the same ports. Ready: its REST server answers, whether it leads or not."""

    rest_port = 0
    rpc_port = 0

    @property
    def rest_address(self) -> str:
        """`http://127.0.0.1:PORT`, once it was started."""
        return f"http://127.0.0.1:{self.rest_port}"

    def choose_ports(self) -> None:
        self.rest_port = free_port()
        self.rpc_port = free_port()

    def build_command(self) -> Sequence[str]:
        return self._command(
            "org.apache.flink.runtime.entrypoint.StandaloneSessionClusterEntrypoint",
            _JOB_MANAGER_HEAP_MEGABYTES,
            {
                "rest.port": self.rest_port,
                "rest.bind-port": self.rest_port,
                "high-availability.jobmanager.port": self.rpc_port,  # with ZooKeeper
                "jobmanager.rpc.port": self.rpc_port,  # with Kubernetes
            },
        )

    def is_ready(self) -> bool:
        try:
            rest.call(self.rest_address, "GET", "/config")
        except RestError:
            return False
        return True


class TaskManager(_FlinkServer):
    """One TaskManager process with two slots. Ready: the leading resource manager knows it."""

    def __init__(
        self, name: str, folder: Path, home: Path, java: Path, registered: Callable[[], Collection[str]]
    ) -> None:
        """`registered` tells the resource ids of the TaskManagers that the cluster knows now."""
        super().__init__(name, folder, home, java)
        self._registered = registered
        self._starts = 0

    @property
    def resource_id(self) -> str:
        """Another one for each start, so that what the cluster still remembers of the last one is not taken for this one."""
        return f"{self.name}-{self._starts}"

    def choose_ports(self) -> None:
        """Flink does."""

    def build_command(self) -> Sequence[str]:
        self._starts += 1
        return self._command(
            "org.apache.flink.runtime.taskexecutor.TaskManagerRunner",
            TASK_MANAGER_HEAP_MEGABYTES,
            {"taskmanager.resource-id": self.resource_id},
        )

    def is_ready(self) -> bool:
        return self.resource_id in self._registered()
