"""Watches the JobManagers that run on this machine, or in this pod."""

import logging
import os
import re
import select
import threading
import time
import weakref
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Final

from msgspec.structs import replace

from sidecar.core.moment import Moment
from sidecar.core.observations import EndObservation, LogEndRead, ProcessEnded, ProcessSeen
from sidecar.core.process_end import LogEnd, RunningProcess
from sidecar.drivers.processes.held_log import FollowedLog
from sidecar.drivers.processes.watched_process import WatchedProcess
from sidecar.host import ownership, processes
from sidecar.host.ownership import Owner
from sidecar.host.processes import FlinkProcess
from sidecar.runtime.threads import ServiceThread

if TYPE_CHECKING:
    from sidecar.settings import ClusterSettings

MOST_WATCHED: Final = 20
"""Processes; each has up to nine descriptors open."""
LOOK_SECONDS: Final = 2.0
"""The time between two reads of the counters of OOM kills."""
SEEN_SECONDS: Final = 60.0
"""The time after which a running JobManager is reported again without a change: the first report may have been too early."""
SCAN_SHARE: Final = 50
"""Looking for processes takes at most this part of the time: thousands may run here."""
STATUS_SECONDS: Final = 2.0
"""The time that the parent of an ended process may take to wait for it. Beyond that its exit code is not known."""
_STATUS_PAUSE: Final = 0.05
_STOP_SECONDS: Final = 1.0
JOB_MANAGER: Final = re.compile(r"(Entrypoint|EntryPoint|ClusterDriver)$")
"""The main class of a JobManager, in every version of Flink and on every platform."""

_NO_LOG: Final = "what the end of a JobManager's log says is not known"

_log = logging.getLogger("sidecar.processes")
_Key = tuple[int, int]
"""A process: its number, and when it was started."""


class ProcessWatch:
    """A thread that observes the ends of JobManagers."""

    def __init__(
        self, clusters: "Sequence[ClusterSettings]", clock: Callable[[], Moment], log: Path | None = None
    ) -> None:
        """`log`: the JobManager's log, or the folder that it is in. None: it is not read."""
        self._clusters = {cluster.cluster_id: ownership.identity(cluster) for cluster in clusters}
        self._clock = clock
        self._log = log
        self._observer: Callable[[EndObservation], None] | None = None
        self._owners: dict[_Key, dict[str, Owner]] = {}
        """The owners of each visible JobManager, by cluster."""
        self._watched: dict[_Key, WatchedProcess] = {}
        self._seen: dict[int, RunningProcess] = {}
        """The last report of each running JobManager, by process id."""
        self._followed = FollowedLog(log) if log and len(self._clusters) == 1 else None
        """None once a JobManager was visible: then its end is observed."""
        self._logged: set[str] = set()
        self._stopping = threading.Event()
        self._wake = os.eventfd(0)
        weakref.finalize(self, os.close, self._wake)
        self._thread = ServiceThread(self._run, "processes")

    def start(self, observer: Callable[[EndObservation], None]) -> None:
        """Start the thread, if there is a cluster to watch."""
        self._observer = observer
        if self._clusters:
            self._thread.start()

    def stop(self) -> None:
        """End soon. May be called twice, or before `start`."""
        self._stopping.set()
        os.eventfd_write(self._wake, 1)
        self._thread.join(_STOP_SECONDS)

    def _run(self) -> None:
        try:
            self._watch()
        finally:
            for process in self._watched.values():
                process.close()
            self._watched.clear()
            self._stop_following()

    def _watch(self) -> None:
        scan_at = look_at = seen_at = 0.0
        deadlines: dict[_Key, float] = {}
        """Until when the exit code of each ended process is waited for."""
        while not self._stopping.is_set():
            now = time.monotonic()
            if now >= scan_at:
                self._scan()
                scan_at = now + max(LOOK_SECONDS, (time.monotonic() - now) * SCAN_SHARE)
            if now >= look_at:
                look_at = now + LOOK_SECONDS
                if now >= seen_at:
                    seen_at = now + SEEN_SECONDS
                    self._seen.clear()
                for process in self._watched.values():
                    process.look()
                    self._report_running(process)
                    self._look_at_log(process)
                if self._followed:
                    self._follow(self._followed)
            for key in self._wait(_STATUS_PAUSE if deadlines else LOOK_SECONDS):
                deadlines[key] = time.monotonic() + STATUS_SECONDS
            for key, deadline in [*deadlines.items()]:
                if self._watched[key].has_status() or time.monotonic() >= deadline:
                    del deadlines[key]
                    self._report(self._watched.pop(key))

    def _wait(self, seconds: float) -> list[_Key]:
        """The processes that end within this time. Their short-lived facts have been read."""
        running = {process.pidfd: key for key, process in self._watched.items() if process.ended is None}
        poll = select.poll()
        for descriptor in (self._wake, *running):
            poll.register(descriptor, select.POLLIN)
        ended = [running[descriptor] for descriptor, _ in poll.poll(seconds * 1000) if descriptor in running]
        for key in ended:
            self._watched[key].end(self._clock().wall)
        return ended

    def _report_running(self, watched: WatchedProcess) -> None:
        running = watched.running
        if watched.ended is None and self._seen.get(running.pid) != running:
            self._seen[running.pid] = running
            for cluster_id in watched.clusters:
                if self._observer:
                    self._observer(ProcessSeen(self._clock(), cluster_id, running))

    def _report(self, ended: WatchedProcess) -> None:
        with ended:
            at, log = self._clock(), self._end_of_log(ended)
            for cluster_id in ended.clusters:
                if self._observer and ended.ended:
                    self._observer(ProcessEnded(at, cluster_id, ended.ended))
                if self._observer and log:
                    self._observer(LogEndRead(at, cluster_id, log))

    def _look_at_log(self, watched: WatchedProcess) -> None:
        if watched.log and watched.ended is None:
            with self._reading_log(), suppress(FileNotFoundError):  # it has only begun; at its end that is a problem
                watched.log.look(alone=len(self._owners) <= 1)

    def _follow(self, followed: FollowedLog) -> None:
        """Report a run that is over. No JobManager has been visible."""
        ended = None
        with self._reading_log(), suppress(FileNotFoundError):
            ended = followed.ended_run()
        for cluster_id in self._clusters if ended else ():
            if self._observer and ended:
                self._observer(LogEndRead(self._clock(), cluster_id, ended))

    def _stop_following(self) -> None:
        if self._followed:
            self._followed.close()
            self._followed = None

    def _end_of_log(self, ended: WatchedProcess) -> LogEnd | None:
        end = None
        if ended.log:
            with self._reading_log():
                end = ended.log.end(alone=len(self._owners) <= 1)
        return replace(end, pid=ended.process.pid) if end else None

    @contextmanager
    def _reading_log(self) -> Iterator[None]:
        """Log once that a log cannot be read."""
        try:
            yield
        except OSError as error:
            self._log_once(f"{_NO_LOG}: {self._log}: {error.strerror}")

    # -- which are watched ---------------------------------------------------------------------------------------------

    def _scan(self) -> None:
        job_managers = {
            (process.pid, process.started): process
            for process in processes.find(())
            if process.is_java and JOB_MANAGER.search(process.name)
        }
        if job_managers:
            self._stop_following()
        self._owners = {
            key: self._owners.get(key) or {name: ownership.owner(process, own) for name, own in self._clusters.items()}
            for key, process in job_managers.items()
        }
        for key, process in job_managers.items():
            clusters = self._clusters_of(key)
            if key in self._watched or not clusters:
                continue
            if len(self._watched) >= MOST_WATCHED:
                self._log_once(f"more than {MOST_WATCHED} JobManagers run here: how the others end is not observed")
                return
            self._begin(process, clusters)

    def _clusters_of(self, key: _Key) -> tuple[str, ...]:
        """The clusters whose JobManager it is. Whose is unknown is ours only if nothing else can be meant, as in a pod."""
        owners = self._owners[key]
        if ours := tuple(name for name, owner in owners.items() if owner is Owner.OURS):
            return ours
        if Owner.UNKNOWN not in owners.values():
            return ()
        if len(self._owners) == len(self._clusters) == 1:
            return (*self._clusters,)
        self._log_once(
            "how some of the JobManagers that run here end is not observed: their configuration cannot be read, and so their "
            "cluster is not known; run the sidecar as the same user as Flink"
        )
        return ()

    def _begin(self, process: FlinkProcess, clusters: tuple[str, ...]) -> None:
        try:
            watched = WatchedProcess(process, clusters)
        except ProcessLookupError:
            return
        except OSError as error:
            self._log_once(f"how JobManagers end is not observed: {error.strerror}")
        else:
            self._watched[process.pid, process.started] = watched
            if self._log:
                watched.hold_log(self._log)
            self._look_at_log(watched)

    def _log_once(self, line: str) -> None:
        if line not in self._logged:
            self._logged.add(line)
            _log.warning("%s", line)
