"""HAProxy from Debian's package, in front of JobManagers, with the configuration that docs/how-to/load-balancers.md shows."""

import os
import re
import socket
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

from tests import ROOT
from tests.kit.debian import find_tool, libraries
from tests.lab.processes import ServerProcess, free_port

SERVED_BY: Final = "X-Served-By"
"""The header of an answer that names the server."""
_PAGE: Final = ROOT / "docs" / "how-to" / "load-balancers.md"
_CONFIGURATION: Final = re.compile(r"^```haproxy\n(defaults\n.*?)^```", re.MULTILINE | re.DOTALL)
_SERVERS: Final = re.compile(r"^    server .*\n", re.MULTILINE)
_LEADER: Final = "uri /leader?component=dispatcher"
"""The lab's REST servers listen on addresses of the loopback, and publish those: the dispatchers publish names."""
_OF_THE_SIDECAR: Final = re.compile(
    r"^    http-check connect port .*\n    http-check send .*leader.*\n    http-check expect .*\n", re.MULTILINE
)


def find_haproxy() -> Path:
    """The program, with the libraries that it needs. Raises PackageError."""
    return find_tool("haproxy", "haproxy", dependencies=True)


class HAProxy(ServerProcess):
    """Serves at `address`. Ready: it listens, whether any server is up or not."""

    def __init__(
        self, folder: Path, servers: Mapping[str, str], sidecar_port: int, *, asks_sidecar: bool = True
    ) -> None:
        """`servers`: `host:port` of each JobManager's REST server, by name. `asks_sidecar`: else only whether Flink answers."""
        self._program = find_haproxy()
        super().__init__("HAProxy", folder / "haproxy.log", {**os.environ, **libraries(self._program)})
        self._folder = folder
        self._servers = servers
        self._sidecar_port = sidecar_port
        self._asks_sidecar = asks_sidecar
        self._port = 0

    @property
    def address(self) -> str:
        """`http://127.0.0.1:PORT`, after the first start."""
        return f"http://127.0.0.1:{self._port}"

    def choose_ports(self) -> None:
        self._port = free_port()

    def build_command(self) -> Sequence[str]:
        self._folder.mkdir(parents=True, exist_ok=True)
        file = self._folder / "haproxy.cfg"
        file.write_text(self._configuration())
        return (str(self._program), "-db", "-f", str(file))

    def is_ready(self) -> bool:
        with socket.socket() as probe:
            return probe.connect_ex(("127.0.0.1", self._port)) == 0

    def _configuration(self) -> str:
        match = _CONFIGURATION.search(_PAGE.read_text(encoding="utf-8"))
        assert match, f"{_PAGE} has no configuration of HAProxy"
        text = match[1].replace("bind :8081", f"bind 127.0.0.1:{self._port}")
        text = text.replace("connect port 9250", f"connect port {self._sidecar_port}").replace("uri /leader", _LEADER)
        if not self._asks_sidecar:
            text = _OF_THE_SIDECAR.sub("", text)
        servers = "".join(f"    server {name} {address}\n" for name, address in self._servers.items())
        return f"{_SERVERS.sub('', text)}{servers}    http-response set-header {SERVED_BY} %s\n"
