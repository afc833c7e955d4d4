"""Runs the ZooKeeper server that the Flink distribution contains."""

import socket
from collections.abc import Sequence
from pathlib import Path

from kazoo.client import KazooClient
from kazoo.exceptions import KazooException, NoNodeError
from kazoo.handlers.threading import KazooTimeoutError

from tests.lab.java import java_command, java_environment
from tests.lab.lab_error import LabError
from tests.lab.processes import ServerProcess, free_port

_MAIN = "org.apache.flink.shaded.zookeeper3.org.apache.zookeeper.server.quorum.QuorumPeerMain"
_HEAP_MEGABYTES = 128
_ANSWER_SECONDS = 2.0

# Session timeouts from 2 s (two ticks) to 60 s (Flink's default) are accepted.
_CONFIG = """\
tickTime=1000
maxSessionTimeout=60000
dataDir={data}
clientPortAddress=127.0.0.1
clientPort={port}
maxClientCnxns=0
admin.enableServer=false
4lw.commands.whitelist=*
"""


class ZooKeeper(ServerProcess):
    """One standalone ZooKeeper server. It keeps its address and data across restarts.

    `home` is a Flink distribution (`flink_home`). Data and log are in `folder`. It serves 0.6 s after its start.
    """

    def __init__(self, folder: Path, home: Path, java: Path) -> None:
        folder = folder.absolute()
        super().__init__("ZooKeeper", folder / "zookeeper.log", java_environment())
        self._folder = folder
        self._home = home
        self._java = java
        self._port = 0

    @property
    def address(self) -> str:
        """`127.0.0.1:PORT`, after the first start."""
        return f"127.0.0.1:{self._port}"

    def read(self, path: str) -> tuple[bytes, float] | None:
        """The data of a znode and when it was last written (seconds since the epoch), read in a session of its own.

        None when the znode does not exist. Raises LabError when ZooKeeper does not answer.
        """
        client = KazooClient(self.address, timeout=_ANSWER_SECONDS)
        try:
            client.start(_ANSWER_SECONDS)
            data, stat = client.get_async(path).get(timeout=_ANSWER_SECONDS)
            return bytes(data), stat.mtime / 1000
        except NoNodeError:
            return None
        except (KazooException, KazooTimeoutError) as error:
            raise LabError(
                f"could not read {path} from ZooKeeper at {self.address}: {error or type(error).__name__}"
            ) from error
        finally:
            client.stop()
            client.close()

    def choose_ports(self) -> None:
        self._port = free_port()

    def build_command(self) -> Sequence[str]:
        data = self._folder / "data"
        data.mkdir(parents=True, exist_ok=True)
        config = self._folder / "zoo.cfg"
        config.write_text(_CONFIG.format(data=data, port=self._port))
        return java_command(self._java, self._home, self._folder, _HEAP_MEGABYTES, _MAIN, str(config), log=self.log)

    def is_ready(self) -> bool:
        """Whether the response to the four-letter word `srvr` is that of a serving server."""
        try:
            with socket.create_connection(("127.0.0.1", self._port), _ANSWER_SECONDS) as connection:
                connection.sendall(b"srvr")
                answer = b""
                while part := connection.recv(4096):
                    answer += part
        except OSError:
            return False
        return b"Mode: " in answer
