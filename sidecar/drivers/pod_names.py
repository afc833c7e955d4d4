"""Finds the pods that have the addresses of leaders."""

import logging
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from queue import Full, Queue
from typing import Final, NamedTuple

from sidecar.core.moment import Moment
from sidecar.core.observations import PodNamed
from sidecar.ports import KubernetesError, KubernetesRefusedError, PodDirectory
from sidecar.runtime.threads import ServiceThread, jittered

CAPACITY: Final = 1000
"""Addresses that may wait. Beyond that, their pods stay unnamed."""
ASKED_SECONDS: Final = 60.0
"""The time in which an address is not looked up again: a JobManager leads several components, and each is reported."""
REFUSED_SECONDS: Final = 600.0
"""The time in which an API server that has refused is not asked again."""
_PAUSES: Final = (0.5, 1.0, 2.0, 0.0)
"""Seconds after each try; after the last one, that there is no such pod is the answer."""
_STOP_SECONDS: Final = 1.0

_log = logging.getLogger("sidecar.pods")


class _Wanted(NamedTuple):
    cluster_id: str
    host: str
    since: float
    """Monotonic."""


class PodNames:
    """Looks pods up in the background: one request for each address of a new leader, more only while there is no answer."""

    def __init__(self, directories: Mapping[str, PodDirectory], clock: Callable[[], Moment]) -> None:
        """`directories`: by cluster."""
        self._directories = directories
        self._clock = clock
        self._observer: Callable[[PodNamed], None] | None = None
        self._wanted: Queue[_Wanted | None] = Queue(CAPACITY)
        self._asked: dict[tuple[str, str], float] = {}
        """The times (monotonic) at which each cluster's address was asked for."""
        self._refused: dict[str, float] = {}
        """Until when (monotonic) a cluster's pods are not asked for."""
        self._stopping = threading.Event()
        self._unnamed: set[str] = set()
        """Clusters whose problem is logged."""
        self._thread = ServiceThread(self._work, "pod-names")

    def start(self, observer: Callable[[PodNamed], None]) -> None:
        """Start the thread, if there is anywhere to look."""
        self._observer = observer
        if self._directories:
            self._thread.start()

    def stop(self) -> None:
        """End soon. May be called twice, or before `start`."""
        self._stopping.set()
        self._put(None)
        self._thread.join(_STOP_SECONDS)

    def find(self, cluster_id: str, host: str) -> None:
        """Find the pod with the IP address `host`; never blocks. The answer is observed."""
        self._put(_Wanted(cluster_id, host, time.monotonic()))

    def _put(self, wanted: _Wanted | None) -> None:
        with suppress(Full):
            self._wanted.put_nowait(wanted)

    def _work(self) -> None:
        while not self._stopping.is_set():
            if wanted := self._wanted.get():
                self._ask(wanted)

    def _ask(self, wanted: _Wanted) -> None:
        cluster_id, host, since = wanted
        now, key = time.monotonic(), (cluster_id, host)
        directory = self._directories.get(cluster_id)
        asked = now - self._asked.get(key, -ASKED_SECONDS) < ASKED_SECONDS
        if directory is None or asked or now - since >= ASKED_SECONDS or now < self._refused.get(cluster_id, 0.0):
            return
        if len(self._asked) >= CAPACITY:
            self._asked.clear()
        self._asked[key] = now
        for pause in _PAUSES:
            try:
                pod = directory.find(host, self._clock().wall)
            except KubernetesRefusedError as error:
                self._refused[cluster_id] = now + REFUSED_SECONDS
                self._warn(cluster_id, error)
                return
            except KubernetesError as error:
                self._warn(cluster_id, error)
            else:
                if self._observer and (pod or not pause):
                    self._observer(PodNamed(self._clock(), cluster_id, host, pod))
                if pod:
                    self._unnamed.discard(cluster_id)
                    return
            # The kubelet may not have reported the pod's address yet.
            if pause and self._stopping.wait(jittered(pause, 0.5)):
                return

    def _warn(self, cluster_id: str, error: KubernetesError) -> None:
        """Log a new problem once, until a pod is found."""
        if cluster_id not in self._unnamed:
            self._unnamed.add(cluster_id)
            _log.warning("cluster %s: messages do not name the leader's pod: %s", cluster_id, error)
