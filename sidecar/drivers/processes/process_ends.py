"""The ends of JobManagers that are visible here: seen through a pidfd at the moment, with what else can only be read then."""

import logging
import os
import re
import select
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from typing import Final

from sidecar.core.moment import Moment
from sidecar.core.observations import ProcessEnded
from sidecar.core.process_end import ProcessEnd
from sidecar.host import ownership, processes
from sidecar.host.exit_info import exit_info
from sidecar.host.memory_cgroup import MemoryCgroup
from sidecar.host.processes import FlinkProcess
from sidecar.settings import ClusterSettings
from sidecar.threads import ServiceThread

LOOK_SECONDS: Final = 2.0
"""How often new JobManagers are looked for, and counters are read."""
MOST_WATCHED: Final = 20
_REAP_SECONDS: Final = 2.0
"""How long its parent may take to reap a process: its exit code is known then."""
_JOIN_SECONDS: Final = 3.0
_JOB_MANAGER: Final = re.compile(r"(?:.*\.)?\w*Cluster(?:Entrypoint|EntryPoint)", re.ASCII)

_log = logging.getLogger("sidecar.drivers.processes")


class _Watched:
    """A running JobManager, and what is held open until its end. Raises OSError when it has ended."""

    def __init__(self, cluster_id: str, process: FlinkProcess) -> None:
        self.cluster_id = cluster_id
        self.process = process
        self.pidfd = os.pidfd_open(process.pid)
        if processes.has_ended(process):  # the pidfd may be of another process with its id
            os.close(self.pidfd)
            raise ProcessLookupError
        self._cgroup = MemoryCgroup(process.pid)
        self._kills: int | None = None
        self.look()

    def look(self) -> None:
        """Remember what is compared at the end."""
        self._kills = self._cgroup.oom_kills()

    def end(self, wall: int) -> ProcessEnd:
        """What is known of its end, at `wall`: the cgroup first, which may be removed at once."""
        kills, limit = self._cgroup.oom_kills(), self._cgroup.limit_bytes()
        rose = kills - self._kills if kills is not None and self._kills is not None else None
        poll = select.poll()
        poll.register(self.pidfd, 0)  # POLLHUP: it has been reaped
        poll.poll(_REAP_SECONDS * 1000)
        info = exit_info(self.pidfd)
        code, signal = info or (None, None)
        return ProcessEnd(self.process.pid, wall, code, signal, rose, limit)

    def close(self) -> None:
        os.close(self.pidfd)
        self._cgroup.close()


class ProcessEnds:
    """One thread that watches the visible JobManagers of `clusters`. Those of other clusters are left alone."""

    def __init__(
        self, clusters: Iterable[ClusterSettings], clock: Callable[[], Moment], observer: Callable[[ProcessEnded], None]
    ) -> None:
        self._identities: Mapping[str, dict[str, str]] = {
            each.cluster_id: ownership.identity(each) for each in clusters
        }
        self._clock = clock
        self._watched: dict[int, _Watched] = {}
        """By pid."""
        self._others: set[int] = set()
        """JobManagers of other clusters."""
        self._observer = observer
        self._stopping = threading.Event()
        self._wake = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)
        self._thread = ServiceThread(self._run, "process-ends")

    def start(self) -> None:
        """Watch in the background."""
        self._thread.start()

    def stop(self) -> None:
        """End in bounded time. May be called twice, or before `start`."""
        self._stopping.set()
        os.eventfd_write(self._wake, 1)
        if self._thread.ident is not None:
            self._thread.join(_JOIN_SECONDS)

    def _run(self) -> None:
        look_at = 0.0
        while not self._stopping.is_set():
            if time.monotonic() >= look_at:
                self._look()
                look_at = time.monotonic() + LOOK_SECONDS
            poll = select.poll()
            poll.register(self._wake, select.POLLIN)
            for watched in self._watched.values():
                poll.register(watched.pidfd, select.POLLIN)
            ended = {file for file, _ in poll.poll(max(0.0, look_at - time.monotonic()) * 1000)}
            at = self._clock()
            for watched in [each for each in self._watched.values() if each.pidfd in ended]:
                self._end(watched, at)
        for watched in self._watched.values():
            watched.close()
        self._watched.clear()

    def _end(self, watched: _Watched, at: Moment) -> None:
        del self._watched[watched.process.pid]
        try:
            end = watched.end(at.wall)
        finally:
            watched.close()
        self._observer(ProcessEnded(at, watched.cluster_id, end))

    def _look(self) -> None:
        """Watch new JobManagers. Whose they are is asked only when there is one: that parses Flink's configuration."""
        for watched in self._watched.values():
            watched.look()
        visible = processes.running(_JOB_MANAGER)
        self._others &= visible
        if not visible - self._watched.keys() - self._others:
            return
        flink = processes.find({os.getpid()})
        owners: dict[FlinkProcess, list[str]] = {}
        for cluster_id, identity in self._identities.items():
            for process in ownership.select(flink, identity).ours:
                if _JOB_MANAGER.fullmatch(process.name) and process.is_java:
                    owners.setdefault(process, []).append(cluster_id)
        own = {process: names[0] for process, names in owners.items() if len(names) == 1}
        self._others |= visible - {process.pid for process in own}
        for process, cluster_id in own.items():
            if process.pid not in self._watched and len(self._watched) < MOST_WATCHED:
                with suppress(OSError):  # it has just ended, or descriptors are used up
                    self._watched[process.pid] = _Watched(cluster_id, process)
                    _log.debug("watching %s of %s", process.subject, cluster_id)
