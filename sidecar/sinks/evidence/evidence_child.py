"""Captures evidence and ends: the short-lived child process of every request (`sidecar.sinks.evidence.collector`).

One JSON line arrives on stdin, the arguments of `capture`; one leaves on stdout, a list of items as `sidecar.core.captures.EvidenceItem`.
It imports little, so that it runs before the evidence is gone, and writes each file as soon as it has the content.
"""

import os
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from sidecar.host import ownership, processes
from sidecar.host.process_attributes import attributes
from sidecar.host.processes import FlinkProcess
from sidecar.runtime.answering import answer_once
from sidecar.sinks.evidence import flink_rest, thread_dumps
from sidecar.sinks.evidence.evidence_files import (
    ABSENT,
    CAPTURED,
    ENDED,
    FAILED,
    EvidenceFolder,
    NotCapturedError,
    evidence_item,
)

MOST_PROCESSES: Final = 10
"""Processes captured in one request."""


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
    """The items of one request, within `seconds`. `name` is how the names of their files in `folder` begin.

    `cluster` is the cluster's `ownership.identity`: processes that certainly belong to another one are skipped. None: there is no other.
    """
    files = EvidenceFolder(folder, name)
    if source == "flink_rest":
        return list(flink_rest.capture(rest_address, jobs, tls, seconds, files if thread_dump else None))
    return list(_processes(files, time.monotonic() + seconds, cluster))


def _processes(files: EvidenceFolder, deadline: float, cluster: Mapping[str, str] | None) -> Iterator[dict[str, Any]]:
    visible = processes.find({os.getpid(), os.getppid()})
    if not visible:
        why = "no Flink process is visible: in a pod, set shareProcessNamespace: true"
        yield evidence_item("process", "", ABSENT, why)
    selected = ownership.select(visible, cluster)
    if selected.others:
        counts = [f"{selected.others} of another cluster"]
        if selected.unknown:
            counts.append(f"{selected.unknown} of a cluster that cannot be determined")
        none = "" if selected.ours else "; none of this cluster is visible"
        yield evidence_item("process", "other clusters", ABSENT, f"not captured: {', '.join(counts)}{none}")
    captured, rest = selected.ours[:MOST_PROCESSES], selected.ours[MOST_PROCESSES:]
    for process in captured:
        yield _attributes(process)
    # Python first: a TaskManager ends its workers as soon as their job has no leader. JVMs remain.
    for process in sorted(captured, key=lambda process: process.is_java):
        yield _stacks(process, files, deadline)
    if rest:
        why = f"{len(rest)} more Flink processes are visible and not captured: the limit is {MOST_PROCESSES}"
        yield evidence_item("process", "others", FAILED, why)


def _attributes(process: FlinkProcess) -> dict[str, Any]:
    values = attributes(process.pid)
    if processes.has_ended(process):
        return evidence_item("process", process.subject, FAILED, ENDED, **values, program=process.name)
    parts = [
        f"state {values['state']}" if "state" in values else "",
        f"{values['threads']} threads" if "threads" in values else "",
        f"{int(values['rss_bytes']) / 1e6:.0f} MB" if "rss_bytes" in values else "",
        f"started {values['started_seconds_ago']} s ago" if "started_seconds_ago" in values else "",
    ]
    text = ", ".join(filter(None, parts))
    return evidence_item("process", process.subject, CAPTURED, text, **values, program=process.name)


def _stacks(process: FlinkProcess, files: EvidenceFolder, deadline: float) -> dict[str, Any]:
    kind = "thread_dump" if process.is_java else "py_spy"
    seconds = deadline - time.monotonic()
    try:
        if seconds <= 0:
            raise NotCapturedError(FAILED, "no time was left")
        if not process.is_java:
            text, threads = thread_dumps.stacks(process, seconds)
            return files.save(kind, process.pid, process.subject, text, threads=threads)
        text = thread_dumps.thread_dump(process, seconds)
    except NotCapturedError as error:
        return evidence_item(kind, process.subject, error.outcome, str(error))
    threads = sum(line.startswith('"') for line in text.splitlines())
    deadlocked = "yes" if "Found one Java-level deadlock" in text else "no"
    return files.save(kind, process.pid, process.subject, text, threads=threads, deadlock=deadlocked)


if __name__ == "__main__":
    answer_once(capture)
