"""JobManager and TaskManager processes on this machine."""

import socket
from collections.abc import Callable, Collection, Sequence
from pathlib import Path

from tests.lab import rest
from tests.lab.java import java_command, java_environment
from tests.lab.processes import ServerProcess, free_port
from tests.lab.rest import RestError
from tests.lab.settings import LOOPBACK, TASK_MANAGER_HEAP_MEGABYTES

_JOB_MANAGER_HEAP_MEGABYTES = 512


class _FlinkServer(ServerProcess):
    """A Flink JVM, configured by `folder`/conf and by its own settings."""

    def __init__(self, name: str, folder: Path, home: Path, java: Path) -> None:
        super().__init__(name, folder / f"{name}.log", java_environment())
        self._folder = folder
        self._home = home
        self._java = java

    def know_hosts(self, hosts: Path) -> None:
        """Resolve names by this file alone, from the next start on. It is in the format of /etc/hosts."""
        self._environment = java_environment() | {"JDK_JAVA_OPTIONS": f"-Djdk.net.hosts.file={hosts}"}

    def _command(self, main: str, heap_megabytes: int, settings: dict[str, object]) -> Sequence[str]:
        # Only these two kinds of options: Flink 2 stops reading, without an error, at the first unknown one.
        options = ("--configDir", str(self._folder / "conf"), *(f"-D{key}={value}" for key, value in settings.items()))
        return java_command(self._java, self._home, self._folder, heap_megabytes, main, *options, log=self.log)


class JobManager(_FlinkServer):
    """One JobManager process. It keeps its ports across restarts. Ready: its REST server responds, whether it leads or not."""

    host = LOOPBACK
    """The host in the addresses that it publishes."""
    ip_address = LOOPBACK
    """On which it listens."""
    rest_port = 0
    rpc_port = 0

    @property
    def rest_address(self) -> str:
        """`http://127.0.0.1:PORT`, after the first start."""
        return f"http://{self.ip_address}:{self.rest_port}"

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
                **dict.fromkeys(("jobmanager.rpc.address", "rest.address"), self.host),
                "rest.bind-address": self.ip_address,
                "jobmanager.bind-host": self._bind_host(),
            },
        )

    def _bind_host(self) -> str:
        # Flink 1 uploads a job to its own BLOB server by the name localhost, wherever that listens.
        return "0.0.0.0" if any(self._home.glob("lib/flink-dist-1.*")) else self.ip_address  # noqa: S104

    def is_ready(self) -> bool:
        try:
            rest.call(self.rest_address, "GET", "/config")
        except RestError:
            return False
        return True


class TaskManager(_FlinkServer):
    """One TaskManager process with two slots. Ready: it is registered at the leading resource manager."""

    def __init__(
        self, name: str, folder: Path, home: Path, java: Path, registered: Callable[[], Collection[str]]
    ) -> None:
        """`registered` returns the resource ids of the TaskManagers that are registered now."""
        super().__init__(name, folder, home, java)
        self._registered = registered
        self._starts = 0

    @property
    def resource_id(self) -> str:
        """New for each start: the cluster may still list the previous process."""
        return f"{self.name}-{self._starts}"

    def choose_ports(self) -> None:
        """Nothing: Flink chooses them."""

    def build_command(self) -> Sequence[str]:
        self._starts += 1
        return self._command(
            "org.apache.flink.runtime.taskexecutor.TaskManagerRunner",
            TASK_MANAGER_HEAP_MEGABYTES,
            {"taskmanager.resource-id": self.resource_id},
        )

    def is_ready(self) -> bool:
        return self.resource_id in self._registered()


def write_hosts(file: Path, *jobmanagers: JobManager) -> None:
    """Write the addresses of this machine and of these JobManagers, for `know_hosts`."""
    lines = [
        (LOOPBACK, f"localhost {socket.gethostname()}"),
        *((manager.ip_address, manager.host) for manager in jobmanagers),
    ]
    file.write_text("".join(f"{address} {names}\n" for address, names in lines))
