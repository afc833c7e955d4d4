"""Takes pictures of clusters in the background, when the owner asks for one."""

import heapq
import logging
import ssl
import threading
import time
from collections import OrderedDict
from collections.abc import Callable
from enum import StrEnum
from functools import partial
from itertools import islice
from typing import Final

from sidecar.core.bounds import REST_ANSWER
from sidecar.core.observations import PictureTaken
from sidecar.core.pictures import MOST_HELD, Picture, PictureRequest
from sidecar.core.reach import Reach
from sidecar.net.rest_client import RestConnection, RestError
from sidecar.runtime.clock import Clock
from sidecar.runtime.threads import ServiceThread, jittered, join_all
from sidecar.settings import TlsSettings
from sidecar.sinks.pictures.described_cluster import DescribedCluster

CAPACITY: Final = 10_000
"""Requests that may wait. The owner waits for an answer before it asks for the same cluster again."""
MOST_OPEN: Final = 32
"""Connections that are kept from one picture to the next."""
MOST_DESCRIBED: Final = 5_000
"""Clusters of which the previous picture is remembered, while all of them have MOST_HELD jobs at most."""
JITTER_SECONDS: Final = 0.5
"""Several sidecars, and the clusters of one, do not ask at the same moment."""
THREADS_OF_A_LANE: Final = 2
HEAD_START_SECONDS: Final = 30.0
"""A failover is assessed before ordinary pictures, but for those that have waited so long: an outage may be of all clusters."""
MOST_SECONDS_LATE: Final = 120.0
"""A request that has waited longer is not sent: the owner repeats it, less often."""
REST: Final = 9
"""The rest of a thread after a picture, in times of its CPU time: of thousands of clusters pictures are rare, and cost little."""
_STOP_SECONDS: Final = 1.0

_log = logging.getLogger("sidecar.pictures")


class Lane(StrEnum):
    """The queue in which a request waits."""

    PROMPT = "prompt"
    SLOW = "slow"
    """Clusters whose server took as long as a request may take when it was last asked."""


class PictureTaker:
    """Answers every request with one `PictureTaken`; those that wait at the end are not answered.

    In two lanes: a server that took its time when it was last asked delays only others that did.
    """

    def __init__(self, clock: Clock, tls: TlsSettings | None = None) -> None:
        """`tls` is for Flink's REST servers."""
        self._clock = clock
        self._tls = tls or TlsSettings()
        self._observer: Callable[[PictureTaken], None] | None = None
        self._changed = threading.Condition()
        """Held while one of the following is read or changed."""
        self._waiting: dict[Lane, list[tuple[float, float, int, PictureRequest]]] = {lane: [] for lane in Lane}
        """Heaps: by when each is due (monotonic), urgent ones HEAD_START_SECONDS earlier; when each is due, and its number."""
        self._asked = 0
        self._stopping = False
        self._described: OrderedDict[str, DescribedCluster] = OrderedDict()
        """The described clusters by cluster id, the latest last. Not while a thread asks one."""
        self._threads = [
            ServiceThread(partial(self._work, lane), f"pictures ({lane})")
            for lane in Lane
            for _ in range(THREADS_OF_A_LANE)
        ]

    def start(self, observer: Callable[[PictureTaken], None]) -> None:
        """Start the threads. `observer` is called from them, and may block."""
        self._observer = observer
        for thread in self._threads:
            thread.start()

    def stop(self) -> None:
        """End soon. May be called twice, or before `start`."""
        with self._changed:
            self._stopping = True
            self._changed.notify_all()
        join_all(self._threads, _STOP_SECONDS)

    def take(self, request: PictureRequest) -> None:
        """Take a picture soon; never blocks. Beyond CAPACITY the answer is that it was not taken."""
        urgent = request.thorough or request.at_once
        due = time.monotonic() + (0.0 if urgent else jittered(JITTER_SECONDS, 0.0))
        rank = due - HEAD_START_SECONDS if urgent else due
        with self._changed:
            self._asked += 1
            described = self._described.get(request.cluster_id)
            is_slow = described is not None and described.is_slow and described.address == request.address
            lane = Lane.SLOW if is_slow else Lane.PROMPT
            heapq.heappush(self._waiting[lane], (rank, due, self._asked, request))
            self._changed.notify_all()

    def _work(self, lane: Lane) -> None:
        while following := self._next(lane):
            due, request = following
            began = time.thread_time()
            taken = self._answer(request, time.monotonic() - due, len(self._waiting[lane]))
            if self._observer:
                self._observer(taken)
            if not request.thorough:
                with self._changed:
                    self._changed.wait_for(lambda: self._stopping, REST * (time.thread_time() - began))
        with self._changed:
            for described in self._described.values():
                described.close()

    def _next(self, lane: Lane) -> tuple[float, PictureRequest] | None:
        """The first request that is due, as soon as there is one; None: the sidecar ends."""
        with self._changed:
            waiting = self._waiting[lane]
            while not self._stopping:
                wait = waiting[0][1] - time.monotonic() if waiting else None
                if wait is not None and wait <= 0:
                    _, due, _, request = heapq.heappop(waiting)
                    return due, request
                self._changed.wait(wait)
        return None

    def _answer(self, request: PictureRequest, late: float, others: int) -> PictureTaken:
        """A picture, or why there is none."""
        picture: Picture | None = None
        reach: Reach | None = None
        problem, asked_at = None, self._clock()
        if others >= CAPACITY or late > MOST_SECONDS_LATE:
            problem = "not asked: too many other clusters wait"
            return PictureTaken(asked_at, request.cluster_id, request.address, None, problem)
        try:
            described = self._taken(request)
            began = time.monotonic()
            try:
                picture = described.picture(request)
            finally:
                reach = described.reach
                described.is_slow = time.monotonic() - began >= REST_ANSWER.most_seconds
                self._put_back(request.cluster_id, described)
        except RestError as error:
            problem = str(error)
        except Exception as error:  # noqa: BLE001  every request gets an answer
            _log.error(
                "cluster %s: a picture failed: %s: %s",
                request.cluster_id,
                type(error).__name__,
                error,
                exc_info=_log.isEnabledFor(logging.DEBUG),
            )
            problem = f"unexpected {type(error).__name__}"
        return PictureTaken(
            self._clock(), request.cluster_id, request.address, picture, problem, reach, asked_at if reach else None
        )

    def _taken(self, request: PictureRequest) -> DescribedCluster:
        """The description of the cluster, for one thread alone. Raises RestError."""
        with self._changed:
            described = self._described.pop(request.cluster_id, None)
        if described is None or described.address != request.address:
            if described:
                described.close()
            described = DescribedCluster(request.address, RestConnection(request.address, self._context), self._clock)
        return described

    def _put_back(self, cluster_id: str, described: DescribedCluster) -> None:
        with self._changed:
            self._described[cluster_id] = described
            self._described.move_to_end(cluster_id)
            if len(self._described) > MOST_OPEN:
                nth = next(islice(reversed(self._described.values()), MOST_OPEN, None))
                nth.close()
            jobs = sum(cluster.jobs for cluster in self._described.values())
            while len(self._described) > MOST_DESCRIBED or jobs > MOST_HELD:
                _, oldest = self._described.popitem(last=False)
                oldest.close()
                jobs -= oldest.jobs

    def _context(self) -> ssl.SSLContext:
        try:
            return self._tls.context()
        except ValueError as error:
            raise RestError(str(error)) from error
