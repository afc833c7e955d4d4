"""Captures evidence and ends: the short-lived child process of every request (`sidecar.sinks.evidence.collector`).

One JSON line comes in on stdin, the arguments of `capture`; one goes out on stdout: a list of pieces, as `sidecar.core.evidence.Piece`.
It imports little, for it must be there before what it looks at is gone, and it writes each file as soon as it has what is in it.
"""

import os
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from sidecar.answering import answer_once
from sidecar.sinks.evidence import flink_rest, jvm_attach, ownership, processes, py_spy
from sidecar.sinks.evidence.evidence_files import ABSENT, CAPTURED, FAILED, NotCapturedError, Shelf, piece
from sidecar.sinks.evidence.processes import FlinkProcess

MOST_PROCESSES: Final = 10
"""Of what can be seen so many are captured."""


def capture(
    source: str,
    folder: str,
    name: str,
    seconds: float,
    rest_address: str | None = None,
    jobs: Sequence[str] = (),
    thread_dump: bool = False,
    tls: Mapping[str, str | None] | None = None,
    cluster: Mapping[str, str] | None = None,
) -> list[dict[str, Any]]:
    """The pieces of one request, within `seconds`. `name` is how the names of their files in `folder` begin.

    Processes that certainly belong to another cluster than the one with this `ownership.identity` are left alone. None: there is no other.
    """
    shelf = Shelf(folder, name)
    if source == "flink_rest":
        return list(flink_rest.capture(rest_address, jobs, tls, seconds, shelf if thread_dump else None))
    return list(_processes(shelf, time.monotonic() + seconds, cluster))


def _processes(shelf: Shelf, deadline: float, cluster: Mapping[str, str] | None) -> Iterator[dict[str, Any]]:
    found = processes.find({os.getpid(), os.getppid()})
    if not found:
        why = "no process of Flink is visible from here: in a pod, set shareProcessNamespace: true"
        yield piece("process", "", ABSENT, why)
    owned = ownership.sort(found, cluster)
    if owned.others:
        yield _of_others(owned)
    captured, others = owned.ours[:MOST_PROCESSES], owned.ours[MOST_PROCESSES:]
    for process in captured:
        yield _kernel(process)
    for process in captured:
        yield _stacks(process, shelf, deadline)
    if others:
        why = f"{len(others)} more processes of Flink are visible, and are not captured: {MOST_PROCESSES} are"
        yield piece("process", "others", FAILED, why)


def _of_others(owned: ownership.Sorted) -> dict[str, Any]:
    """That there are processes which are not ours to look at."""
    counts = [f"{owned.others} of another cluster"]
    if owned.unknown:
        counts.append(f"{owned.unknown} of a cluster that cannot be determined")
    ours = "" if owned.ours else "; none of this cluster is visible"
    return piece("process", "other clusters", ABSENT, f"not captured: {', '.join(counts)}{ours}")


def _kernel(process: FlinkProcess) -> dict[str, Any]:
    """What the kernel says of it."""
    known = processes.attributes(process)
    if processes.has_ended(process):
        return piece("process", process.subject, FAILED, "it has ended", **known, program=process.name)
    shown = [
        f"state {known['state']}" if "state" in known else "",
        f"{known['threads']} threads" if "threads" in known else "",
        f"{int(known['rss_bytes']) / 1e6:.0f} MB" if "rss_bytes" in known else "",
        f"started {known['started_seconds_ago']} s ago" if "started_seconds_ago" in known else "",
    ]
    return piece("process", process.subject, CAPTURED, ", ".join(filter(None, shown)), **known, program=process.name)


def _stacks(process: FlinkProcess, shelf: Shelf, deadline: float) -> dict[str, Any]:
    """What all its threads do."""
    kind = "thread_dump" if process.is_java else "py_spy"
    seconds = deadline - time.monotonic()
    try:
        if seconds <= 0:
            raise NotCapturedError(FAILED, "no time was left for it")
        if not process.is_java:
            text, threads = py_spy.stacks(process, seconds)
            return shelf.keep(kind, process.pid, process.subject, text, threads=threads)
        text = jvm_attach.thread_dump(process, seconds)
    except NotCapturedError as error:
        return piece(kind, process.subject, error.outcome, str(error))
    threads = sum(line.startswith('"') for line in text.splitlines())
    deadlocked = "yes" if "Found one Java-level deadlock" in text else "no"
    return shelf.keep(kind, process.pid, process.subject, text, threads=threads, deadlock=deadlocked)


if __name__ == "__main__":
    answer_once(capture)
