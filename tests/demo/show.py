"""The demo, step by step: each step shows its real output, or fails."""

import io
import os
import re
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Final, TypeVar

from sidecar.audit.ask.sql import render, run_sql
from sidecar.audit.ingest.ingest import ingest
from sidecar.audit.spark.spark_session import spark_session
from sidecar.core.errors import OperatorError
from tests.lab.flink import Lab
from tests.lab.processes import free_port
from tests.lab.receivers import HttpReceiver, MailReceiver

FLINK: Final = "2.3.0"
COMPONENTS: Final = 4
"""Resource manager, dispatcher, REST server and the one job."""

_TIMEOUT_SECONDS: Final = 60.0
_POLL_SECONDS: Final = 0.1
_METRICS: Final = ("flink_ha_leader_transitions_total", "flink_ha_evidence_total", "flink_ha_notifications_total")
_QUERY: Final = """
    SELECT component, before_address, after_address, round(vacant_seconds, 3) AS vacant_seconds
    FROM leader_changes ORDER BY changed_at, component
"""

T = TypeVar("T")


class DemoError(OperatorError):
    """A step of the demo failed."""


class DemoOutput:
    """Prints the demo's progress and results."""

    def __init__(self, write: Callable[[str], None]) -> None:
        self._write = write
        self._began = time.monotonic()

    def heading(self, text: str) -> None:
        """Print the heading of a step."""
        self._write(f"\n\033[1m{text}\033[0m" if sys.stdout.isatty() else f"\n== {text}")

    def line(self, text: str) -> None:
        """Print an event, with the time since the demo began."""
        self._write(f"  {time.monotonic() - self._began:5.1f} s  {text}")

    def block(self, text: str) -> None:
        """Print a result, indented."""
        for line in text.splitlines():
            self._write(f"    {line}")

    def wait(self, event: str, ready: Callable[[], T | None]) -> T:
        """Repeat `ready` until it returns a result that is not None; print every few seconds what is awaited."""
        reported = time.monotonic()
        deadline = reported + _TIMEOUT_SECONDS
        while (result := ready()) is None:
            now = time.monotonic()
            if now >= deadline:
                raise DemoError(f"waiting for {event}: nothing after {_TIMEOUT_SECONDS:.0f} s")
            if now - reported >= 3:
                self.line(f"… waiting for {event}")
                reported = now
            time.sleep(_POLL_SECONDS)
        return result


def show(write: Callable[[str], None]) -> None:
    """Run the demo. Raises OperatorError when a step fails; cleans up in any case."""
    with tempfile.TemporaryDirectory(prefix="flink-ha-sidecar-demo-") as folder, ExitStack() as cleanup:
        _Demo(Path(folder), DemoOutput(write), cleanup).run()


class _Demo:
    def __init__(self, folder: Path, output: DemoOutput, cleanup: ExitStack) -> None:
        self.folder = folder
        self.output = output
        self.cleanup = cleanup
        self.port = free_port()
        self.spool = folder / "spool"
        self.audit = folder / "audit"

    def run(self) -> None:
        lab = self.start_flink()
        web, mail = self.start_receivers()
        sidecar = self.start_sidecar(lab, web, mail)
        watched = self.start_watch(lab)
        before = self.metrics()
        self.kill_the_leader(lab, watched)
        self.show_alerts(web, mail)
        self.show_metrics(before)
        _end(sidecar, "the sidecar")
        self.show_audit()
        self.output.heading("The failover was observed, notified, counted and archived.")

    def start_flink(self) -> Lab:
        self.output.heading(f"A real ZooKeeper and a real Flink {FLINK}: two JobManagers, a TaskManager, a job")
        lab = self.cleanup.enter_context(Lab(self.folder / "lab", FLINK, progress=self.output.line))
        lab.start(jobmanagers=2)
        job = lab.submit_job()
        self.output.line(f"job {job} is running")
        return lab

    def start_receivers(self) -> tuple[HttpReceiver, MailReceiver]:
        web, mail = HttpReceiver(), MailReceiver()
        for receiver in (web, mail):
            receiver.start()
            self.cleanup.callback(receiver.stop)
        return web, mail

    def start_sidecar(self, lab: Lab, web: HttpReceiver, mail: MailReceiver) -> "subprocess.Popen[bytes]":
        self.output.heading("The sidecar, as it would run in the pod")
        config = self.folder / "sidecar.yaml"
        config.write_text(f"""\
flink_conf_dir: {lab.conf_dir}
observer: demo
state_dir: {self.folder / "state"}
spool: {{url: "{self.spool}", roll_interval: 1s}}
http: {{host: 127.0.0.1, port: {self.port}}}
route: {{receiver: everybody, group_wait: 3s}}
receivers:
  - name: everybody
    urls: ["{web.url}", "{mail.url}"]
""")
        self.output.block(config.read_text())
        sidecar = self.start_command("sidecar.log", "run", "--config", str(config))
        self.output.wait("the sidecar to read every leader", lambda: self.get("/readyz"))
        self.output.line("ready: every leader is known")
        return sidecar

    def start_watch(self, lab: Lab) -> Path:
        """Start `watch` beside the sidecar; returns the file with its output."""
        self.start_command("watch.log", "watch", "--flink-conf", str(lab.conf_dir))
        log = self.folder / "watch.log"
        self.output.wait(
            "watch to read every leader", lambda: log.read_text().count("DISCOVERED") >= COMPONENTS or None
        )
        return log

    def kill_the_leader(self, lab: Lab, watched: Path) -> None:
        leader = self.output.wait("a leader", lab.leading)
        printed = len(watched.read_text().splitlines())

        def new_leaders() -> bool | None:
            nonlocal printed
            output = watched.read_text()
            lines = output.splitlines()
            for line in lines[printed:]:
                self.output.line(line)
            printed = len(lines)
            return len(re.findall("GRANTED|CHANGED", output)) >= COMPONENTS or None

        self.output.heading(f"kill -9 {leader.pid}: {leader.name}, the leader")
        leader.kill()
        self.output.wait("a new leader of every component", new_leaders)

    def show_alerts(self, web: HttpReceiver, mail: MailReceiver) -> None:
        self.output.heading("The alert, as the webhook and the mail server received it")
        received = {"HTTP": web.received, "mail": mail.received}
        self.output.wait("the alert by HTTP and mail", lambda: all(received.values()) or None)
        for name, messages in received.items():
            self.output.line(f"by {name}: {messages[0].title}")
            self.output.block(messages[0].body)
            if len(messages) != 1:
                raise DemoError(f"{len(messages)} alerts came by {name}: one failover is one alert")

    def show_metrics(self, before: set[str]) -> None:
        self.output.heading("The metrics that changed")

        def changed() -> str | None:
            lines = "\n".join(sorted(line for line in self.metrics() - before if line.startswith(_METRICS)))
            return lines if 'outcome="delivered"' in lines else None

        self.output.block(self.output.wait("the deliveries to be counted", changed))

    def show_audit(self) -> None:
        self.output.heading("The audit log: segments become Parquet, and Spark SQL queries them")
        self.output.line("starting Spark")
        with spark_session() as spark:
            rows = ingest(spark, str(self.spool), str(self.audit)).rows
            self.output.line(f"ingested: {rows['transitions']} transitions, {rows['notifications']} notifications")
            self.output.block(" ".join(_QUERY.split()))
            answer = io.StringIO()
            render(run_sql(spark, str(self.audit), _QUERY), "table", answer)
        self.output.block(answer.getvalue())
        if f"({COMPONENTS} rows)" not in answer.getvalue():
            raise DemoError(f"the audit log does not contain {COMPONENTS} changed leaders")

    def start_command(self, log: str, *arguments: str) -> "subprocess.Popen[bytes]":
        """Start a command of the sidecar; it ends with the demo."""
        output = self.cleanup.enter_context((self.folder / log).open("w"))
        command = [sys.executable, "-m", "sidecar", *arguments]
        process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=output, stderr=output)
        self.cleanup.callback(_end, process, arguments[0], checked=False)
        return process

    def metrics(self) -> set[str]:
        return set((self.get("/metrics") or "").splitlines())

    def get(self, path: str) -> str | None:
        """The response of the sidecar's HTTP server; None while there is none."""
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{self.port}{path}", timeout=5) as answer:
                return str(answer.read().decode())
        except OSError:
            return None


def _end(process: "subprocess.Popen[bytes]", name: str, *, checked: bool = True) -> None:
    """Stop a command with SIGTERM. `checked`: raise DemoError unless it ends cleanly."""
    process.terminate()
    try:
        status = process.wait(timeout=_TIMEOUT_SECONDS)
    except subprocess.TimeoutExpired:
        process.kill()
        status = process.wait()
        if checked:
            raise DemoError(f"{name} had not ended {_TIMEOUT_SECONDS:g} s after SIGTERM") from None
    if checked and status != os.EX_OK:
        raise DemoError(f"{name} ended with status {status}")
