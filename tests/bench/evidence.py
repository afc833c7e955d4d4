"""What evidence costs, and how soon it is there: `python -m tests.bench.evidence [FAILOVERS]`, about half a minute for each failover.

Real Flink on a real ZooKeeper, a job, two `run` with a receiver each: one captures all that there is, one nothing. The leader is killed
with -9, once its job has a checkpoint; times are those of the first one's records and files.
"""

import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack
from datetime import datetime
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

from sidecar.host import processes
from tests.bench.stage import FLINK, Table
from tests.kit.sidecar_process import Sidecar
from tests.kit.waiting import wait_for
from tests.lab.flink import Lab
from tests.lab.receivers import HttpReceiver, ReceivedMessage

FAILOVERS = 5
_EVERYTHING = "evidence: {capture: [processes, flink_rest, leader_thread_dump]}"
_MODULE = b"sidecar.sinks.evidence.evidence_child"
_SETTLE_SECONDS = 5.0
_FAILOVER_SECONDS = 120.0
_LOOK_SECONDS = 0.005
_MOST_GROWTH_MIB = 1.0

Record = dict[str, Any]


class Life(NamedTuple):
    """Of a capturing process. `began_at`: seconds since the epoch."""

    began_at: float
    seconds: float
    peak_mib: float


class Children:
    """Looks 200 times a second which capturing processes the sidecar `parent` has, and how large they are."""

    def __init__(self, parent: int) -> None:
        self.lives: list[Life] = []
        """Of those that have ended, in order."""
        self._parent = parent
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._look, daemon=True)
        self._thread.start()

    def stop(self) -> None:
        self._stopped.set()
        self._thread.join()

    def _look(self) -> None:
        strangers: set[int] = set()
        alive: dict[int, Life] = {}
        while not self._stopped.wait(_LOOK_SECONDS):
            pids = {int(path.name) for path in processes.PROC.iterdir() if path.name.isdecimal()}
            strangers &= pids
            for pid in pids - strangers:
                life = alive.get(pid) or Life(time.time(), 0.0, 0.0)
                match self._peak(pid):
                    case None:
                        strangers.add(pid)
                    case peak:
                        seconds = time.time() - life.began_at
                        alive[pid] = Life(life.began_at, seconds, max(life.peak_mib, peak))
            for pid in alive.keys() - (pids - strangers):
                if (life := alive.pop(pid)).peak_mib:
                    self.lives.append(life)

    def _peak(self, pid: int) -> float | None:
        """MiB it had at most; 0 of another child, which may be about to become one. None: it is no child, or has ended."""
        try:
            known = processes.status(pid)
            if int(known["PPid"]) != self._parent:
                return None
            peak = int(known["VmHWM"].split()[0]) / 1024
            return peak if _MODULE in (processes.PROC / str(pid) / "cmdline").read_bytes() else 0.0
        except (OSError, LookupError, ValueError):
            return None


class Failover(NamedTuple):
    """What the records say of one: seconds, behind the moment at which the first leader was seen to be gone."""

    began_at: float
    """That moment, in seconds since the epoch."""
    asked: float
    on_disk: list[float]
    """Each dump of a JVM of the lab that was taken when it began."""
    recorded: float
    led_again: float
    restored: float
    """Until it was known from which checkpoint the job was restored."""


def main(failovers: int = FAILOVERS) -> None:
    """Three tables and the target."""
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        lab = stack.enter_context(Lab(folder / "lab", FLINK))
        lab.start()
        job = lab.submit_job()
        receivers = [_receiver(stack) for _ in range(2)]
        place = f"flink_conf_dir: {lab.conf_dir}\nledger: {{mode: local}}"
        with_it = Sidecar(folder / "with", f"{place}\n{_EVERYTHING}", [receivers[0].url], group_wait="5s")
        without = Sidecar(folder / "without", place, [receivers[1].url], group_wait="5s")
        sidecars = (with_it, without)
        for sidecar in sidecars:
            sidecar.start()
            stack.callback(sidecar.stop)
            sidecar.wait_ready()
        time.sleep(_SETTLE_SECONDS)
        memory = [[sidecar.memory_mib() for sidecar in sidecars]]
        assert with_it.process is not None
        children = Children(with_it.process.pid)
        stack.callback(children.stop)
        ours: set[int] = set()
        for number in range(1, failovers + 1):
            _fail_over(lab, job, number, sidecars)
            ours |= {process.pid for process in (*lab.jobmanagers, lab.taskmanager)}
            memory.append([sidecar.memory_mib() for sidecar in sidecars])
        records = with_it.records()
        found = [*_failovers(with_it, records, ours)]
        _print_failovers(found, receivers[0].received)
        _print_children(children.lives, records)
        _print_memory(memory)


def _receiver(stack: ExitStack) -> HttpReceiver:
    receiver = HttpReceiver()
    receiver.start()
    stack.callback(receiver.stop)
    return receiver


# -- failovers ---------------------------------------------------------------------------------------------------------


def _fail_over(lab: Lab, job: str, number: int, sidecars: Iterable[Sidecar]) -> None:
    """The one with this number, to its end."""
    if sum(jobmanager.running for jobmanager in lab.jobmanagers) < 2:
        lab.add_jobmanager()
    lab.wait_for_job(job)
    lab.wait_for_leader().kill()
    for sidecar in sidecars:
        wait_for(f"the end of failover {number}", _has_ended(sidecar, number), _FAILOVER_SECONDS)


def _has_ended(sidecar: Sidecar, number: int) -> Callable[[], bool]:
    def has_ended() -> bool:
        time.sleep(0.5)
        return len([record for record in sidecar.records() if record["type"] == "episode"]) >= number

    return has_ended


def _failovers(sidecar: Sidecar, records: Sequence[Record], ours: set[int]) -> Iterator[Failover]:
    for episode in [record for record in records if record["type"] == "episode"]:
        of_it = [record for record in records if record.get("episode_id") == episode["id"]]
        moved = [record for record in of_it if record["type"] == "transition"]
        began = min(seconds_of(record["observed_at"]) for record in moved)
        led = max(seconds_of(record["observed_at"]) for record in moved if record["kind"] == "GRANTED")
        evidence = [record for record in of_it if record["type"] == "evidence"]
        opened = [record for record in evidence if record["occasion"] == "opened"]
        (restored,) = (record for record in evidence if record["kind"] == "job")
        assert "restored from" in restored["detail"], restored
        dumps = [record["file"] for record in opened if record["kind"] == "thread_dump" and _is_of(record, ours)]
        assert all(dumps), opened
        files = [sidecar.state / "evidence" / file for file in dumps]
        yield Failover(
            began_at=began,
            asked=seconds_of(opened[0]["asked_at"]) - began,
            on_disk=[file.stat().st_ctime - began for file in files],  # when it got its name, and could be seen
            recorded=seconds_of(opened[0]["observed_at"]) - began,
            led_again=led - began,
            restored=seconds_of(restored["observed_at"]) - began,
        )


def _is_of(record: Record, ours: set[int]) -> bool:
    """Whether it is of one of these processes: others may be in sight."""
    return int(record["subject"].split()[1]) in ours


def _print_failovers(failovers: Sequence[Failover], messages: Sequence[ReceivedMessage]) -> None:
    table = Table("behind the first leader that was seen to be gone", "of", "p50 s", "max s")
    dumps = [seconds for failover in failovers for seconds in failover.on_disk]
    row(table, "asked for", [each.asked for each in failovers])
    row(table, "a thread dump on disk", dumps)
    row(table, "all of that recorded", [each.recorded for each in failovers])
    row(table, "all are led again", [each.led_again for each in failovers])
    row(table, "it is known from what the job was restored", [each.restored for each in failovers])
    row(table, "… behind the last that was led again", [each.restored - each.led_again for each in failovers])
    table.end()
    firsts = [next(message.body for message in messages if message.at >= each.began_at) for each in failovers]
    count = sum("restored from" in body for body in firsts)
    print(f"first messages that say from what the job was restored: {count} of {len(failovers)}\n")


# -- our own processes -------------------------------------------------------------------------------------------------


def _print_children(lives: Sequence[Life], records: Iterable[Record]) -> None:
    evidence = [record for record in records if record["type"] == "evidence"]
    asked = sorted({(seconds_of(record["asked_at"]), str(record["occasion"])) for record in evidence})
    table = Table("capturing process", "of", "s, p50", "s, max", "peak RSS, MiB at most")
    for occasion, what in (("opened", "what Flink's processes do"), ("led_again", "what Flink's REST says")):
        of_it = [life for life in lives if [name for at, name in asked if at <= life.began_at][-1:] == [occasion]]
        row(table, what, [life.seconds for life in of_it], f"{max(life.peak_mib for life in of_it):.1f}")
    table.end()


def _print_memory(memory: Sequence[Sequence[float]]) -> None:
    table = Table(
        "RSS of `run`, MiB", "before", "behind the first failover", f"behind the last of {len(memory) - 1}", "grown by"
    )
    grown = []
    for way, (before, first, *later) in zip(("with evidence", "without"), zip(*memory, strict=True), strict=True):
        last = [first, *later][-1]
        grown.append(last - before)
        table.row(way, f"{before:.1f}", f"{first:.1f}", f"{last:.1f}", f"{last - before:.1f}")
    table.target("RSS that evidence adds for good", grown[0] - grown[1], _MOST_GROWTH_MIB, " MiB")
    table.end()


def row(table: Table, what: str, values: Sequence[float], *more: object) -> None:
    """How many, their median, and the largest."""
    table.row(what, len(values), f"{median(values):.2f}", f"{max(values):.2f}", *more)


def seconds_of(timestamp: str) -> float:
    """Since the epoch."""
    return datetime.fromisoformat(timestamp).timestamp()


if __name__ == "__main__":
    main(*map(int, sys.argv[1:2]))
