"""The demo, station by station: each shows what really came out of it, or fails."""

import contextlib
import io
import os
import re
import signal
import subprocess
import sys
import tempfile
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Final, TypeVar

from sidecar.audit.ingest import ingest
from sidecar.audit.session import spark_session
from sidecar.audit.sql import render, run_sql
from sidecar.core.errors import OperatorError
from sidecar.lab.flink import Lab
from sidecar.lab.managers import JobManager
from sidecar.lab.processes import free_port
from sidecar.lab.receivers import HttpReceiver, MailReceiver, ReceivedMessage

FLINK: Final = "2.3.0"
COMPONENTS: Final = 4
"""Resource manager, dispatcher, REST server and the one job."""

_PATIENCE: Final = 60.0
_POLL: Final = 0.1
_METRICS: Final = ("flink_ha_leader_transitions_total", "flink_ha_evidence_total", "flink_ha_notifications_total")
_QUESTION: Final = """
    SELECT component, before_address, after_address, round(vacant_seconds, 3) AS vacant_seconds
    FROM failovers ORDER BY at, component
"""

T = TypeVar("T")


class DemoError(OperatorError):
    """A station of the demo failed."""


class DemoOutput:
    """Where the demo speaks: what it does, how long that took, and what came out."""

    def __init__(self, say: Callable[[str], None]) -> None:
        self._say = say
        self._began = time.monotonic()

    def scene(self, text: str) -> None:
        """A new station begins."""
        self._say(f"\n\033[1m{text}\033[0m" if sys.stdout.isatty() else f"\n== {text}")

    def line(self, text: str) -> None:
        """Something that happened, with the time since the demo began."""
        self._say(f"  {time.monotonic() - self._began:5.1f} s  {text}")

    def shown(self, text: str) -> None:
        """Something that came out, as it is."""
        for line in text.splitlines():
            self._say(f"    {line}")

    def wait(self, what: str, ready: Callable[[], T | None], patience: float = _PATIENCE) -> T:
        """Wait for `ready` to give something, showing every few seconds that we wait."""
        deadline, said = time.monotonic() + patience, time.monotonic()
        while (found := ready()) is None:
            now = time.monotonic()
            if now >= deadline:
                raise DemoError(f"waiting for {what}: nothing after {patience:.0f} s")
            if now - said >= 3:
                self.line(f"… waiting for {what}")
                said = now
            time.sleep(_POLL)
        return found


def show(say: Callable[[str], None]) -> None:
    """Run the demo. Raises OperatorError when a station fails; cleans up after itself in any case."""
    with tempfile.TemporaryDirectory(prefix="flink-ha-sidecar-demo-") as folder, ExitStack() as cleanup:
        _Demo(Path(folder), DemoOutput(say), cleanup).run()


class _Demo:
    def __init__(self, folder: Path, stage: DemoOutput, cleanup: ExitStack) -> None:
        self.folder = folder
        self.stage = stage
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
        self.stage.scene("That was the whole way: seen, told, counted, kept.")

    def start_flink(self) -> Lab:
        self.stage.scene(f"A real ZooKeeper and a real Flink {FLINK}: two JobManagers, a TaskManager, a job")
        lab = self.cleanup.enter_context(Lab(self.folder / "lab", FLINK, progress=self.stage.line))
        lab.start(jobmanagers=2)
        job = lab.submit_job()
        self.stage.line(f"job {job} is running")
        return lab

    def start_receivers(self) -> tuple[HttpReceiver, MailReceiver]:
        web, mail = HttpReceiver(), MailReceiver()
        for receiver in (web, mail):
            receiver.start()
            self.cleanup.callback(receiver.stop)
        return web, mail

    def start_sidecar(self, lab: Lab, web: HttpReceiver, mail: MailReceiver) -> "subprocess.Popen[str]":
        self.stage.scene("The sidecar, as it would run in the pod")
        config = self.folder / "sidecar.yaml"
        config.write_text(f"""\
flink_conf_dir: {lab.conf_dir}
observer: demo
state_dir: {self.folder / "state"}
spool: {{url: "{self.spool}", roll_interval: 1s}}
http: {{host: 127.0.0.1, port: {self.port}}}
evidence: {{capture: [flink_rest]}}
route: {{receiver: everybody, group_wait: 3s}}
receivers:
  - name: everybody
    urls: ["{web.url}", "{mail.url}"]
""")
        self.stage.shown(config.read_text())
        sidecar = self.start_command("sidecar.log", "run", "--config", str(config))
        self.stage.wait("the sidecar to see every leader", lambda: self.get("/readyz"))
        self.stage.line("ready: every leader is known")
        return sidecar

    def start_watch(self, lab: Lab) -> Path:
        """The second pair of eyes: `watch`, whose lines are shown as they come."""
        self.start_command("watch.log", "watch", "--flink-conf", str(lab.conf_dir))
        log = self.folder / "watch.log"
        self.stage.wait("watch to see every leader", lambda: log.read_text().count("DISCOVERED") >= COMPONENTS or None)
        return log

    def kill_the_leader(self, lab: Lab, watched: Path) -> None:
        leader: JobManager = self.stage.wait("a leader", lab.leading)
        seen = len(watched.read_text().splitlines())
        self.stage.scene(f"kill -9 {leader.pid}: {leader.name}, the leader")
        leader.kill()
        with _following(watched, seen, self.stage):
            self.stage.wait(
                "another leader of everything",
                lambda: len(re.findall("GRANTED|CHANGED", watched.read_text())) >= COMPONENTS or None,
            )

    def show_alerts(self, web: HttpReceiver, mail: MailReceiver) -> None:
        self.stage.scene("The alert, as the HTTP receiver and the mail server got it")
        both = (("HTTP", web), ("mail", mail))
        for name, receiver in both:
            (message, *_) = self.stage.wait(f"the alert by {name}", partial(_received, receiver))
            self.stage.line(f"by {name}: {message.title}")
            self.stage.shown(message.body)
        for name, receiver in both:
            if len(receiver.received) != 1:
                raise DemoError(f"{len(receiver.received)} alerts came by {name}: one failover is one alert")

    def show_metrics(self, before: set[str]) -> None:
        self.stage.scene("The metrics that moved")

        def moved() -> list[str] | None:
            lines = sorted(line for line in self.metrics() - before if line.startswith(_METRICS))
            settled = [line for line in lines if 'outcome="delivered"' in line]
            return lines if settled else None

        self.stage.shown("\n".join(self.stage.wait("the deliveries to be counted", moved)))

    def show_audit(self) -> None:
        self.stage.scene("The audit log: segments into Parquet, and an answer in Spark SQL")
        self.stage.line("starting Spark")
        with spark_session() as spark:
            taken = ingest(spark, str(self.spool), str(self.audit))
            self.stage.line(
                f"taken in: {taken.rows['transitions']} transitions, {taken.rows['notifications']} notifications"
            )
            self.stage.shown(" ".join(_QUESTION.split()))
            answer = io.StringIO()
            render(run_sql(spark, str(self.audit), _QUESTION), "table", answer)
        self.stage.shown(answer.getvalue())
        if f"({COMPONENTS} rows)" not in answer.getvalue():
            raise DemoError(f"the audit log does not know {COMPONENTS} changed leaders")

    def start_command(self, log: str, *arguments: str) -> "subprocess.Popen[str]":
        """Start one of our own commands; it ends with the demo."""
        output = self.cleanup.enter_context((self.folder / log).open("w"))
        process = subprocess.Popen(
            [sys.executable, "-m", "sidecar", *arguments],
            stdout=output,
            stderr=output,
            stdin=subprocess.DEVNULL,
            text=True,
        )
        self.cleanup.callback(_end, process, arguments[0], checked=False)
        return process

    def metrics(self) -> set[str]:
        return set((self.get("/metrics") or "").splitlines())

    def get(self, path: str) -> str | None:
        """What our own HTTP server says, or None while it does not say it."""
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{self.port}{path}", timeout=5) as answer:
                return str(answer.read().decode())
        except (urllib.error.URLError, OSError):
            return None


def _received(receiver: HttpReceiver | MailReceiver) -> list[ReceivedMessage] | None:
    return list(receiver.received) or None


def _end(process: "subprocess.Popen[str]", name: str, *, checked: bool = True) -> None:
    """SIGTERM, and the status that a clean stop has."""
    if process.poll() is None:
        process.send_signal(signal.SIGTERM)
    try:
        status = process.wait(timeout=_PATIENCE)
    except subprocess.TimeoutExpired:
        process.kill()
        status = process.wait()
        if checked:
            raise DemoError(f"{name} had not ended {_PATIENCE:g} s after SIGTERM") from None
    if checked and status != os.EX_OK:
        raise DemoError(f"{name} ended with status {status}")


@contextlib.contextmanager
def _following(log: Path, seen: int, stage: DemoOutput) -> Iterator[None]:
    """Show the lines that are added to `log` while the block runs."""
    done = threading.Event()

    def follow() -> None:
        nonlocal seen
        while True:
            last = done.wait(_POLL)
            lines = log.read_text().splitlines()
            for line in lines[seen:]:
                stage.line(line)
            seen = len(lines)
            if last:
                return

    follower = threading.Thread(target=follow)
    follower.start()
    try:
        yield
    finally:
        done.set()
        follower.join()
