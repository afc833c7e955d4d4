"""A real Alertmanager (Debian's package), which notifies a webhook, and `amtool`."""

import socket
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from msgspec import json

from tests.kit.debian import find_tool
from tests.lab.processes import ServerProcess, free_port

PACKAGE: Final = "prometheus-alertmanager"
_ASK_SECONDS: Final = 30.0
_ROUTE: Final = {
    "receiver": "webhook",
    "group_by": ["..."],
    "group_wait": "1s",
    "group_interval": "1s",
    "repeat_interval": "1h",
}
# Debian's build opens its own templates there, and it does not start without them.
_TEMPLATES: Final = Path("/usr/share/prometheus/alertmanager")


class Alertmanager(ServerProcess):
    """A server on its own, not in a cluster. Its silences and what it has notified of survive a restart; alerts do not."""

    def __init__(
        self, folder: Path, webhook: str = "http://127.0.0.1:1/", security: Mapping[str, Any] | None = None
    ) -> None:
        """`webhook`: the URL that it notifies, of each alert by itself. `security`: its web configuration."""
        super().__init__("Alertmanager", folder / "alertmanager.log")
        self._folder = folder
        self._webhook = webhook
        self._security = security
        self._port = 0

    @property
    def url(self) -> str:
        return f"{'https' if self._security else 'http'}://127.0.0.1:{self._port}"

    def choose_ports(self) -> None:
        self._port = free_port()

    def build_command(self) -> Sequence[str]:
        self._folder.mkdir(parents=True, exist_ok=True)
        config, web = self._folder / "alertmanager.yml", self._folder / "web.yml"
        config.write_bytes(json.encode({"route": _ROUTE, "receivers": [_receiver(self._webhook)]}))  # JSON is YAML
        web.write_bytes(json.encode(self._security or {}))
        return (
            *_program(),
            f"--config.file={config}",
            f"--web.config.file={web}",
            f"--storage.path={self._folder / 'data'}",
            f"--web.listen-address=127.0.0.1:{self._port}",
            "--cluster.listen-address=",
        )

    def is_ready(self) -> bool:
        with socket.socket() as probe:
            return probe.connect_ex(("127.0.0.1", self._port)) == 0

    def amtool(self, *arguments: str) -> str:
        """What `amtool` prints about this server."""
        command = [str(find_tool("amtool", PACKAGE)), f"--alertmanager.url={self.url}", *arguments]
        answer = subprocess.run(command, capture_output=True, text=True, timeout=_ASK_SECONDS, check=False)
        assert answer.returncode == 0, answer.stderr
        return answer.stdout

    def alerts(self, *matchers: str) -> list[dict[str, Any]]:
        """The alerts that fire, silenced ones too, as `amtool alert query -o json` has them."""
        firing: list[dict[str, Any]] = json.decode(
            self.amtool(
                "alert", "query", "--output=json", "--active", "--silenced", "--inhibited", "--unprocessed", *matchers
            )
        )
        return firing


def _receiver(webhook: str) -> dict[str, Any]:
    return {"name": "webhook", "webhook_configs": [{"url": webhook, "send_resolved": True}]}


def _program() -> tuple[str, ...]:
    """The command without options. A package that was unpacked, not installed, runs as a copy that finds its templates in its working
    directory: the path in it is replaced by one of the same length.
    """
    binary = find_tool("prometheus-alertmanager", PACKAGE)
    if _TEMPLATES.is_dir():
        return (str(binary),)
    copy = binary.with_name("alertmanager-anywhere")
    if not copy.is_file():
        path = bytes(_TEMPLATES)
        with tempfile.NamedTemporaryFile(dir=copy.parent, delete=False) as aside:
            aside.write(binary.read_bytes().replace(path, b"/proc/self/cwd".ljust(len(path), b"/")))
        Path(aside.name).chmod(0o755)
        Path(aside.name).rename(copy)
    return ("env", f"--chdir={binary.parents[2] / _TEMPLATES.relative_to('/')}", str(copy))
