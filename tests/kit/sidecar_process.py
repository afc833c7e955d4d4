"""The real command, as a child process, with its configuration and what it leaves behind."""

import json
import os
import signal
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Mapping
from contextlib import closing
from pathlib import Path
from typing import Any, Self

from sidecar.journal import JournalReader
from tests.kit.waiting import wait_for
from tests.lab.processes import free_port, start_child

COMMAND = (sys.executable, "-m", "sidecar")


def command(
    *arguments: str, environment: Mapping[str, str] | None = None, seconds: float = 300
) -> subprocess.CompletedProcess[str]:
    """Run one of our commands to its end."""
    return subprocess.run(
        [*COMMAND, *arguments],
        capture_output=True,
        text=True,
        timeout=seconds,
        check=False,
        env={**os.environ, **(environment or {})},
    )


class Sidecar:
    """`flink-ha-sidecar run` in a folder of its own."""

    def __init__(
        self,
        folder: Path,
        cluster: str,
        receiver_urls: list[str],
        *,
        observer: str = "jm-0",
        address: str = "",
        group_wait: str = "3s",
        group_interval: str = "5s",
    ) -> None:
        """`cluster`: the lines of the configuration that say where the cluster is; unless they have the section `evidence`, Flink's REST
        server is not asked: the leaders of most tests publish addresses that are nobody's. `address`: `host:port` to serve on; a free
        port of 127.0.0.1, if none is given.
        """
        folder.mkdir(parents=True, exist_ok=True)
        self.folder = folder
        self.state = folder / "state"
        self.spool = folder / "spool"
        self.host, port = address.split(":") if address else ("127.0.0.1", free_port())
        self.port = int(port)
        self.log = folder / "sidecar.log"
        self.config = folder / "sidecar.yaml"
        receivers = f"receivers: [{{name: ops, urls: {json.dumps(receiver_urls)}}}]" if receiver_urls else ""
        route = (
            f"route: {{receiver: ops, group_wait: {group_wait}, group_interval: {group_interval}}}"
            if receiver_urls
            else ""
        )
        evidence = "" if "evidence:" in cluster else "evidence: {flink_rest: never}"
        self.config.write_text(f"""\
{cluster}
{evidence}
observer: {observer}
external_labels: {{env: test}}
state_dir: {self.state}
spool: {{url: "{self.spool}", roll_interval: 1s}}
http: {{host: {self.host}, port: {self.port}}}
{route}
{receivers}
""")
        self.environment: Mapping[str, str] = {}
        self.process: subprocess.Popen[bytes] | None = None

    def start(self) -> Self:
        with self.log.open("ab") as log:
            variables = {**os.environ, **self.environment}
            self.process = start_child([*COMMAND, "run", "--config", str(self.config)], log, variables)
        return self

    def kill(self) -> None:
        """kill -9."""
        assert self.process is not None
        self.process.kill()
        self.process.wait()

    def end(self) -> None:
        """kill -9, if it runs."""
        if self.process and self.process.poll() is None:
            self.kill()

    def stop(self) -> int:
        """SIGTERM; the exit status."""
        assert self.process is not None
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
        try:
            return self.process.wait(timeout=30)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
            raise

    def leader_addresses(self) -> list[str]:
        """The address of each leader that it shows; none while it does not answer."""
        status, answer = self.get("/api/v1/leaders")
        return (
            [leader["leader_address"] for leader in json.loads(answer) if leader["leader_address"]]
            if status == 200
            else []
        )

    def get(self, path: str, seconds: float = 5) -> tuple[int, str]:
        """Status and body; 0 while nothing answers in so many seconds."""
        try:
            with urllib.request.urlopen(f"http://{self.host}:{self.port}{path}", timeout=seconds) as answer:
                return answer.status, answer.read().decode()
        except urllib.error.HTTPError as error:
            with error:
                return error.code, error.read().decode()
        except OSError:
            return 0, ""

    def wait_ready(self, seconds: float = 60) -> None:
        def ready() -> bool:
            assert self.process is not None
            assert self.process.poll() is None, self.log.read_text()
            return self.get("/readyz")[0] == 200

        wait_for("readiness", ready, seconds)

    def records(self) -> list[dict[str, Any]]:
        """Everything in the journal, in order."""
        with closing(JournalReader(self.state)) as reader:
            return [json.loads(line) for _, line in reader.records(0, 1_000_000)]

    def transitions(self) -> list[dict[str, Any]]:
        return [record for record in self.records() if record["type"] == "transition"]

    def memory_mib(self, of: str = "VmRSS") -> float:
        """Memory of the running process: `VmRSS` now, `VmHWM` at its peak."""
        assert self.process is not None
        status = Path(f"/proc/{self.process.pid}/status").read_text()
        return next(int(line.split()[1]) for line in status.splitlines() if line.startswith(of)) / 1024

    def cpu_seconds(self) -> float:
        """User and system time so far."""
        assert self.process is not None
        fields = Path(f"/proc/{self.process.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
