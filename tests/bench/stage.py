"""What several benchmarks are played on: a real ZooKeeper, and listeners in processes of their own."""

import subprocess
import tempfile
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from uuid import UUID

from tests.kit.flink_listener import flink_listener
from tests.kit.java_serialization import connection_info
from tests.kit.waiting import until
from tests.lab.distribution import flink_home
from tests.lab.java import find_java, java_environment
from tests.lab.zookeeper import ZooKeeper

FLINK = "2.3.0"
ROOT = "/flink"
DISPATCHER = "/leader/dispatcher"
_ADDRESS = "pekko.tcp://flink@127.0.0.1:6123/user/rpc/dispatcher_1"
_GRACE_SECONDS = 10.0


def leader(session_id: UUID) -> bytes:
    """What Flink writes for a leader with this session id: 138 bytes."""
    return connection_info(_ADDRESS, session_id)


def node(cluster_id: str, component: str = DISPATCHER) -> str:
    """The leader's node of a component: its whole path."""
    return f"{ROOT}/{cluster_id}{component}/connection_info"


@contextmanager
def zookeeper() -> Iterator[tuple[ZooKeeper, Path]]:
    """A server that serves, and a folder for whatever else is needed."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        server = ZooKeeper(folder / "zookeeper", flink_home(FLINK, print), find_java())
        server.start()
        try:
            yield server, folder
        finally:
            server.kill()


class Flinks:
    """Flink's own listener, compiled once. Whether there is one: a JRE has no compiler."""

    def __init__(self, folder: Path) -> None:
        classes = folder / "classes"
        classes.mkdir()
        self._command = flink_listener(find_java(), flink_home(FLINK, print), classes)

    def __bool__(self) -> bool:
        return self._command is not None

    def listener(self, address: str, cluster_id: str, log: Path) -> "Listener":
        """A listener for the dispatcher's leader; not started yet."""
        assert self._command is not None
        settings = {
            "high-availability.type": "zookeeper",
            "high-availability.zookeeper.quorum": address,
            "high-availability.zookeeper.path.root": ROOT,
            "high-availability.cluster-id": f"/{cluster_id}",
        }
        dynamic = [f"-D{key}={value}" for key, value in settings.items()]
        return Listener([*self._command, *dynamic, DISPATCHER], log, java_environment())


class Listener:
    """A program that prints a line for what it hears, and when this process had the line in hand."""

    def __init__(self, command: list[str], log: Path, environment: Mapping[str, str] | None = None) -> None:
        self.lines: list[tuple[int, bytes]] = []
        """Monotonic nanoseconds, and the line."""
        self._log = log
        with log.open("wb") as errors:
            self._process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=errors, env=environment)
        self._reading = threading.Thread(target=self._read, daemon=True)
        self._reading.start()

    def wait_for(self, text: str, seconds: float) -> bool:
        """Whether a line with `text` comes, or came, in time."""
        wanted = text.encode()
        return until(lambda: any(wanted in line for _, line in reversed(self.lines)), seconds)

    def assert_runs(self) -> None:
        assert self._process.poll() is None, f"a listener ended: {self._log.read_text()[-2000:]}"

    def stop(self) -> None:
        self._process.terminate()
        try:
            self._process.wait(_GRACE_SECONDS)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait(_GRACE_SECONDS)
        self._reading.join(_GRACE_SECONDS)

    def _read(self) -> None:
        assert self._process.stdout is not None
        with self._process.stdout as lines:
            for line in lines:
                self.lines.append((time.monotonic_ns(), line))


class Table:
    """Rows as they come, the targets behind them."""

    def __init__(self, *columns: str) -> None:
        self._targets: list[str] = []
        self.row(*columns)
        self.row(*("---" for _ in columns))

    def row(self, *cells: object) -> None:
        print("|", " | ".join(str(cell) for cell in cells), "|", flush=True)

    def target(self, what: str, measured: float, limit: float, unit: str = "") -> None:
        met = "met" if measured <= limit else "MISSED"
        self._targets.append(f"target {met}: {what} {measured:.2f}{unit}, at most {limit:g}{unit}")

    def end(self) -> None:
        print("", *self._targets, "", sep="\n", flush=True)
