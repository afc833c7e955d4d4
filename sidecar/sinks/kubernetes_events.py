"""Writes Kubernetes Events in the background: a courtesy that delays nothing, and that may be dropped."""

import logging
import threading
import time
from collections import Counter, deque
from collections.abc import Mapping
from typing import Final

from msgspec import Struct

from sidecar.core.cluster.failover_events import KubernetesEvent
from sidecar.ports import EventStore, KubernetesError, KubernetesRefusedError
from sidecar.runtime.threads import ServiceThread, jittered

CAPACITY: Final = 256
"""Events that may wait. Beyond that, new ones are dropped."""
PAUSE_SECONDS: Final = 0.2
"""The pause after each Event: at most five a second, for all clusters together."""
KEPT_SECONDS: Final = 600.0
"""The time for which an Event that cannot be written is tried again."""
REFUSED_SECONDS: Final = 600.0
"""The time in which a store that has refused is not tried again."""
OUTCOMES: Final = ("written", "dropped")
_LONGEST_PAUSE: Final = 30.0
_STOP_SECONDS: Final = 1.0

_log = logging.getLogger("sidecar.events")


class _Waiting(Struct):
    event: KubernetesEvent
    until: float
    """Monotonic."""
    due: float = 0.0
    pause: float = 1.0


class Events:
    """Writes the Events of each cluster to its store, in one thread."""

    def __init__(self, stores: Mapping[str, EventStore]) -> None:
        self._stores = stores
        self._waiting: deque[_Waiting] = deque()
        self._changed = threading.Condition()
        self._stopping = False
        self._refused: dict[str, float] = {}
        """Until when (monotonic) a cluster's store is not tried."""
        self._dropping: set[str] = set()
        """Clusters of which it is logged that Events are dropped, until one is written."""
        self._counts = Counter(dict.fromkeys(OUTCOMES, 0))
        self._thread = ServiceThread(self._work, "kubernetes-events")

    @property
    def counts(self) -> Mapping[str, int]:
        """The number of Events by outcome; empty where no cluster has a store for Events."""
        return dict(self._counts) if self._stores else {}

    def start(self) -> None:
        """Start the thread, if there is anything to write to."""
        if self._stores:
            self._thread.start()

    def stop(self) -> None:
        """End soon: what waits is dropped. May be called twice, or before `start`."""
        with self._changed:
            self._stopping = True
            self._changed.notify()
        self._thread.join(_STOP_SECONDS)

    def publish(self, event: KubernetesEvent) -> None:
        """Write soon; never blocks. Beyond CAPACITY the Event is dropped."""
        with self._changed:
            if len(self._waiting) < CAPACITY:
                self._waiting.append(_Waiting(event, time.monotonic() + KEPT_SECONDS))
                self._changed.notify()
                return
        self._drop(event, f"{CAPACITY} others wait")

    def _work(self) -> None:
        while (waiting := self._next()) is not None:
            self._write(waiting)
            with self._changed:
                self._changed.wait_for(lambda: self._stopping, PAUSE_SECONDS)

    def _next(self) -> _Waiting | None:
        """The first Event that is due, as soon as there is one; None: the sidecar ends."""
        with self._changed:
            while not self._stopping:
                now = time.monotonic()
                if first := next((waiting for waiting in self._waiting if waiting.due <= now), None):
                    self._waiting.remove(first)
                    return first
                self._changed.wait(min((waiting.due for waiting in self._waiting), default=now + 60.0) - now)
        return None

    def _write(self, waiting: _Waiting) -> None:
        event = waiting.event
        store = self._stores.get(event.cluster_id)
        if store is None or time.monotonic() < self._refused.get(event.cluster_id, 0.0):
            self._count("dropped")  # why is logged
            return
        try:
            store.write(event)
        except KubernetesRefusedError as error:
            self._refused[event.cluster_id] = time.monotonic() + REFUSED_SECONDS
            self._drop(event, str(error))
        except KubernetesError as error:
            self._again(waiting, str(error))
        else:
            self._count("written")
            self._dropping.discard(event.cluster_id)

    def _again(self, waiting: _Waiting, problem: str) -> None:
        """Try the Event again later, behind the others."""
        now = time.monotonic()
        if now >= waiting.until:
            self._drop(waiting.event, problem)
            return
        waiting.due = now + jittered(waiting.pause, 0.5)
        waiting.pause = min(waiting.pause * 2, _LONGEST_PAUSE)
        with self._changed:
            self._waiting.append(waiting)

    def _drop(self, event: KubernetesEvent, problem: str) -> None:
        self._count("dropped")
        if event.cluster_id not in self._dropping:
            self._dropping.add(event.cluster_id)
            _log.warning("cluster %s: Kubernetes Events are dropped: %s", event.cluster_id, problem)

    def _count(self, outcome: str) -> None:
        with self._changed:
            self._counts[outcome] += 1
