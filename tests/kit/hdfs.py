"""A real HDFS on this machine: a NameNode and a DataNode, on the classes of Hadoop's own tests and those that PySpark has."""

import hashlib
import json
import subprocess
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Final
from urllib.error import URLError
from urllib.request import urlopen

import pyspark

from sidecar.lab.java import find_java, java_environment
from sidecar.lab.processes import ServerProcess, free_port
from sidecar.user_folders import cache_folder

_SPARK: Final = Path(pyspark.__file__).parent / "jars"
_ARTIFACT: Final = "hadoop-client-minicluster"
_VERSION: Final = "3.5.0"
"""That of the Hadoop client in PySpark, whose classes it needs."""
_SHA256: Final = "06772d24529e59939915979b3edba204d367750ef7dc5120411f35221dd4818c"
_FETCH_SECONDS: Final = 600.0
_FORMAT_SECONDS: Final = 60.0
_ANSWER_SECONDS: Final = 2.0


def find_hadoop() -> Path:
    """Hadoop's servers in one jar of 56 MB: fetched by Maven into the user's cache."""
    kept = cache_folder() / "hadoop" / f"{_ARTIFACT}-{_VERSION}.jar"
    if not kept.is_file():
        kept.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=kept.parent) as folder:
            copy = ("dependency:copy", f"-Dartifact=org.apache.hadoop:{_ARTIFACT}:{_VERSION}")
            command = ["mvn", "--quiet", "--batch-mode", *copy, f"-DoutputDirectory={folder}"]
            subprocess.run(command, cwd=folder, check=True, timeout=_FETCH_SECONDS)
            fetched = Path(folder, kept.name)
            assert hashlib.sha256(fetched.read_bytes()).hexdigest() == _SHA256, f"{kept.name} is not what is locked"
            fetched.rename(kept)
    return kept


@contextmanager
def hdfs(folder: Path) -> Iterator[str]:
    """The URL of an HDFS that is empty. It ends with the block."""
    with ExitStack() as stack:
        name_node = NameNode(folder)
        servers = (name_node, DataNode(folder, name_node))
        for server in servers:
            stack.callback(server.kill)
            server.launch()
        for server in servers:
            server.await_ready()
        yield name_node.url


class _Server(ServerProcess):
    def _command(self, main: str, options: Mapping[str, str], *arguments: str) -> list[str]:
        settings = [f"-Ddfs.{name}={value}" for name, value in options.items()]
        small = ("-Xmx128m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1")
        classes = f"{find_hadoop()}:{_SPARK}/*"
        return [
            str(find_java()),
            *small,
            "-cp",
            classes,
            f"org.apache.hadoop.hdfs.server.{main}",
            *settings,
            *arguments,
        ]


class NameNode(_Server):
    """It knows which files there are."""

    def __init__(self, folder: Path) -> None:
        super().__init__("the NameNode", folder / "name-node.log", java_environment())
        self._folder = folder / "names"
        self._port = self._http_port = 0

    @property
    def url(self) -> str:
        """Of all files, once it was started."""
        return f"hdfs://127.0.0.1:{self._port}"

    def choose_ports(self) -> None:
        self._port, self._http_port = free_port(), free_port()

    def build_command(self) -> Sequence[str]:
        if not self._folder.exists():
            command = self._daemon("-format", "-nonInteractive")
            subprocess.run(command, env=java_environment(), capture_output=True, check=True, timeout=_FORMAT_SECONDS)
        return self._daemon()

    def is_ready(self) -> bool:
        return self.data_nodes() is not None

    def data_nodes(self) -> int | None:
        """How many DataNodes have registered; None if it does not answer."""
        query = "jmx?qry=Hadoop:service=NameNode,name=FSNamesystemState"
        try:
            with urlopen(f"http://127.0.0.1:{self._http_port}/{query}", timeout=_ANSWER_SECONDS) as answer:
                beans = json.load(answer)["beans"]
        except (URLError, TimeoutError, ConnectionError):
            return None
        return int(beans[0]["NumLiveDataNodes"]) if beans else None

    def _daemon(self, *arguments: str) -> list[str]:
        options = {
            "namenode.name.dir": self._folder.as_uri(),
            "namenode.rpc-address": f"127.0.0.1:{self._port}",
            "namenode.http-address": f"127.0.0.1:{self._http_port}",
        }
        return self._command("namenode.NameNode", options, f"-Dfs.defaultFS={self.url}", *arguments)


class DataNode(_Server):
    """It has what is in the files."""

    def __init__(self, folder: Path, name_node: NameNode) -> None:
        super().__init__("the DataNode", folder / "data-node.log", java_environment())
        self._folder = folder / "data"
        self._name_node = name_node

    def choose_ports(self) -> None:
        """It takes any, and notifies the NameNode."""

    def build_command(self) -> Sequence[str]:
        options = {"datanode.data.dir": self._folder.as_uri()}
        options |= {f"datanode.{name}": "127.0.0.1:0" for name in ("address", "ipc.address", "http.address")}
        return self._command("datanode.DataNode", options, f"-Dfs.defaultFS={self._name_node.url}")

    def is_ready(self) -> bool:
        return self._name_node.data_nodes() == 1
