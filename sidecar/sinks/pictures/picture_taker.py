"""Takes pictures of clusters in the background, when the owner asks for one."""

import heapq
import logging
import random
import ssl
import threading
import time
from collections import OrderedDict
from collections.abc import Callable
from typing import Final

from sidecar.clock import Clock
from sidecar.core.observations import PictureTaken
from sidecar.core.pictures import Picture, PictureRequest
from sidecar.rest_client import RestConnection, RestError
from sidecar.settings.model import TlsSettings
from sidecar.sinks.pictures.described_cluster import DescribedCluster
from sidecar.threads import ServiceThread

CAPACITY: Final = 10_000
"""Requests that may wait. The owner waits for an answer before it asks for the same cluster again."""
MOST_OPEN: Final = 32
"""Connections that are kept from one picture to the next."""
MOST_DESCRIBED: Final = 5_000
"""Clusters of which the previous picture is remembered."""
JITTER_SECONDS: Final = 0.5
"""Several sidecars, and the clusters of one, do not ask at the same moment."""
_STOP_SECONDS: Final = 1.0

_log = logging.getLogger("sidecar.pictures")


class PictureTaker:
    """Answers every request with one `PictureTaken`, one after the other in one thread; those that wait at the end are not answered."""

    def __init__(self, clock: Clock, tls: TlsSettings | None = None) -> None:
        """`tls` is for Flink's REST servers."""
        self._clock = clock
        self._tls = tls or TlsSettings()
        self._observer: Callable[[PictureTaken], None] | None = None
        self._changed = threading.Condition()
        self._waiting: list[tuple[float, int, PictureRequest]] = []
        """A heap: when each is due (monotonic), and its number."""
        self._asked = 0
        self._stopping = False
        self._described: OrderedDict[str, DescribedCluster] = OrderedDict()
        """By cluster, the latest last."""
        self._thread = ServiceThread(self._work, "pictures")

    def start(self, observer: Callable[[PictureTaken], None]) -> None:
        """Start the thread. `observer` is called from it, and may block."""
        self._observer = observer
        self._thread.start()

    def stop(self) -> None:
        """End soon. May be called twice, or before `start`."""
        with self._changed:
            self._stopping = True
            self._changed.notify()
        if self._thread.ident is not None:
            self._thread.join(_STOP_SECONDS)

    def take(self, request: PictureRequest) -> None:
        """Take a picture soon; never blocks. Beyond CAPACITY the answer is that it was not taken."""
        delay = 0.0 if request.thorough else random.uniform(0.0, JITTER_SECONDS)  # noqa: S311  jitter
        with self._changed:
            self._asked += 1
            heapq.heappush(self._waiting, (time.monotonic() + delay, self._asked, request))
            self._changed.notify()

    def _work(self) -> None:
        while request := self._next():
            picture, problem = self._answer(request)
            if self._observer:
                self._observer(PictureTaken(self._clock(), request.cluster_id, request.address, picture, problem))
        for described in self._described.values():
            described.close()

    def _next(self) -> PictureRequest | None:
        """The first request that is due, as soon as there is one; None: the sidecar ends."""
        with self._changed:
            while not self._stopping:
                wait = self._waiting[0][0] - time.monotonic() if self._waiting else None
                if wait is not None and wait <= 0:
                    return heapq.heappop(self._waiting)[2]
                self._changed.wait(wait)
        return None

    def _answer(self, request: PictureRequest) -> tuple[Picture | None, str | None]:
        """A picture, or why there is none."""
        if len(self._waiting) >= CAPACITY:
            return None, f"not asked: {CAPACITY} other clusters wait"
        try:
            return self._cluster(request).picture(request), None
        except RestError as error:
            return None, str(error)
        except Exception as error:  # noqa: BLE001  every request gets an answer
            _log.error(
                "cluster %s: a picture failed: %s: %s",
                request.cluster_id,
                type(error).__name__,
                error,
                exc_info=_log.isEnabledFor(logging.DEBUG),
            )
            return None, f"unexpected {type(error).__name__}"

    def _cluster(self, request: PictureRequest) -> DescribedCluster:
        """Raises RestError."""
        described = self._described.pop(request.cluster_id, None)
        if described is None or described.address != request.address:
            if described:
                described.close()
            described = DescribedCluster(request.address, RestConnection(request.address, self._context), self._clock)
        self._described[request.cluster_id] = described
        if len(self._described) > MOST_OPEN:
            [*self._described.values()][-MOST_OPEN - 1].close()
        if len(self._described) > MOST_DESCRIBED:
            self._described.popitem(last=False)
        return described

    def _context(self) -> ssl.SSLContext:
        try:
            return self._tls.context()
        except ValueError as error:
            raise RestError(str(error)) from error
