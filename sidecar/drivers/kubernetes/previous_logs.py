"""Reads the end of the log of a container that ended: the API has it for seconds."""

import logging
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from http import HTTPStatus
from queue import Full, Queue
from typing import Final, NamedTuple

from sidecar.core.first_fault import log_end
from sidecar.core.moment import Moment
from sidecar.core.observations import LogEndRead
from sidecar.drivers.kubernetes.api import Api
from sidecar.drivers.kubernetes.api_error import ApiError
from sidecar.ports import PlanObserver
from sidecar.runtime.threads import ServiceThread

LOGS_ROLE: Final = '{apiGroups: [""], resources: [pods/log], verbs: [get]}'
_WAITING: Final = 16
"""Containers that may wait. The log of one that ends beyond that is not read."""
_LINES, _BYTES = 400, 128 << 10
_PAUSES: Final = (0.3, 0.7, 1.0, 2.0, 3.0, 3.0)
"""Seconds before each try. Until the kubelet has started the next container, there is no previous one."""
_REFUSED_SECONDS: Final = 600.0

_log = logging.getLogger("sidecar.plans")


class EndedContainer(NamedTuple):
    """A main container that ended, of a pod that may be any of these clusters'."""

    pod: str
    """The pod's name, with its namespace if names have one."""
    uid: str
    container: str
    clusters: frozenset[str]


class PreviousLogs:
    """A thread that reads logs one after the other."""

    def __init__(self, api: Api, clock: Callable[[], Moment], report: PlanObserver) -> None:
        self._api = api
        self._clock = clock
        self._report = report
        self._waiting: Queue[EndedContainer | None] = Queue(_WAITING)
        self._refused_until = 0.0
        self._stopping = threading.Event()
        self.thread = ServiceThread(self._run, "kubernetes-logs")

    def read(self, ended: EndedContainer) -> None:
        """Read the end of its log soon; never blocks."""
        self._put(ended)

    def cut(self) -> None:
        """Ask the thread to end. May be called repeatedly."""
        self._stopping.set()
        self._put(None)
        self._api.cut()

    def _put(self, ended: EndedContainer | None) -> None:
        with suppress(Full):
            self._waiting.put_nowait(ended)

    def _run(self) -> None:
        while not self._stopping.is_set():
            ended = self._waiting.get()
            if ended and time.monotonic() >= self._refused_until:
                self._try(ended)
                self._api.reopen()  # containers end seldom: no connection is kept

    def _try(self, ended: EndedContainer) -> None:
        problem: ApiError | None = None
        for pause in _PAUSES:
            if self._stopping.wait(pause):
                return
            try:
                tail = self._api.read_log(ended.pod, ended.container, previous=True, lines=_LINES, most=_BYTES)
            except ApiError as error:
                problem = error
                if error.status == HTTPStatus.FORBIDDEN:
                    self._refused_until = time.monotonic() + _REFUSED_SECONDS
                    _log.warning("%s: %s; the Role needs %s", _WITHOUT, error, LOGS_ROLE)
                    return
                if error.status == HTTPStatus.NOT_FOUND:
                    return  # the pod is gone, and its logs with it
                continue
            at, log = self._clock(), log_end(ended.pod, tail)
            for cluster_id in ended.clusters:
                self._report(LogEndRead(at, cluster_id, log, ended.uid))
            return
        # A pod that is deleted or evicted gets no other container: that is no problem.
        _log.info("%s: %s", _WITHOUT, problem)


_WITHOUT: Final = "the last lines of a JobManager's log are not known"
