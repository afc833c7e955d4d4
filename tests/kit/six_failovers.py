"""Six failovers of a real Flink in a row, and the messages about them by the shipped rules, as they arrive and as a phone shows them.

`python -m tests.kit.six_failovers docs/reference/messages.md` writes the page about them.
"""

import re
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from textwrap import wrap
from typing import Final

from msgspec import Struct

from tests.kit.sidecar_process import Sidecar
from tests.kit.waiting import wait_for
from tests.lab.flink import Lab
from tests.lab.managers import JobManager
from tests.lab.receivers import HttpReceiver, ReceivedMessage

_PATIENCE: Final = 180.0
_COLUMNS: Final = 42
"""Of a phone's lock screen."""
_LINES: Final = 4
"""Of a message's text there."""
OK: Final = r"^\[OK\] "


class Failover(Struct, frozen=True):
    """What happened, and the messages that followed."""

    what: str
    messages: tuple[ReceivedMessage, ...]


def six_failovers(lab: Lab, folder: Path) -> list[Failover]:
    """Begin, update and all-clear, in about seven minutes. `lab` has two JobManagers and a job."""
    receiver = HttpReceiver()
    receiver.start()
    sidecar = Sidecar(
        folder,
        f"flink_conf_dir: {lab.conf_dir}\nevidence: {{flink_rest: auto}}",
        [receiver.url],
        group_wait="5s",
        group_interval="1m",
    )
    try:
        sidecar.start().wait_ready()
        wait_for("the running job", lambda: '"status":"OK"' in sidecar.get("/api/v1/clusters")[1], _PATIENCE)
        return [*_in_a_row(lab, receiver)]
    finally:
        sidecar.end()
        receiver.stop()


def _in_a_row(lab: Lab, receiver: HttpReceiver) -> list[Failover]:
    failovers: list[Failover] = []

    def after(what: str, act: Callable[[], object], said: str) -> None:
        """`said`: a pattern that one of the messages has."""
        before = len(receiver.received)
        act()
        wait_for(
            what,
            lambda: any(re.search(said, f"{each.title}\n{each.body}") for each in receiver.received[before:]),
            _PATIENCE,
        )
        failovers.append(Failover(what, tuple(receiver.received[before:])))

    def killed() -> None:
        _leader(lab).kill()
        lab.add_jobmanager()

    def stopped() -> None:
        _leader(lab).terminate()
        lab.add_jobmanager()

    def frozen() -> None:
        leader = _leader(lab)
        leader.pause()
        wait_for("another leader", lambda: lab.leading() not in {leader, None}, _PATIENCE)
        leader.kill()
        lab.add_jobmanager()

    def all_killed() -> None:
        for job_manager in lab.jobmanagers:
            if job_manager.running:
                job_manager.kill()

    after("The leader is killed", killed, OK)
    after("The next leader is stopped in order", stopped, OK)
    after("The next leader does not answer any more: the third failover within an hour", frozen, "3 failovers within")
    after("The next leader is killed while they are too many", killed, OK)
    after("All JobManagers are killed", all_killed, r"^\[DOWN\] ")
    after("A JobManager is started", lab.add_jobmanager, OK)
    return failovers


def _leader(lab: Lab) -> JobManager:
    return wait_for("a leader", lab.leading, _PATIENCE)


def label(title: str) -> str:
    """`[OK] lab`: the rest of a title is another one each time."""
    return title.partition(":")[0]


def page(failovers: list[Failover]) -> str:
    """The page of docs/ about them."""
    lines = []
    for number, failover in enumerate(failovers, 1):
        lines += [f"## {number}. {failover.what}", ""]
        for message in failover.messages:
            body = message.body.strip()
            short = [line for text in body.split("\n") if text for line in wrap(text, _COLUMNS)][:_LINES]
            locked = "\n".join([*wrap(message.title, _COLUMNS), *short]) + "…"
            lines += ["On the lock screen:", "", f"```\n{locked}\n```", "", "In full:", ""]
            lines += [f"```\n{message.title}\n\n{body}\n```", ""]
    return "\n".join(lines)


def main(file: Path) -> None:
    """Let them happen, and keep the page up to its first heading of one."""
    introduction = file.read_text().partition("\n## ")[0].rstrip()
    with tempfile.TemporaryDirectory() as folder, Lab(Path(folder) / "lab", progress=print) as lab:
        lab.start()
        lab.submit_job()
        failovers = six_failovers(lab, Path(folder) / "sidecar")
    file.write_text(f"{introduction}\n\n{page(failovers)}".rstrip() + "\n")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
