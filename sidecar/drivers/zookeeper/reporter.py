"""Turns what the driver reads into observations, logs what has no observation, and probes how old the view is."""

import logging
import threading
import time
from collections import deque
from collections.abc import Iterable

from sidecar.core.cluster.cluster_state import Missing
from sidecar.core.flink import znode_paths
from sidecar.core.flink.leadership import MAX_BYTES
from sidecar.core.moment import Moment
from sidecar.core.observations import (
    ChildrenObserved,
    ClusterObservation,
    ConnectionState,
    LeftOut,
    NodeObserved,
    NodeRefused,
    NothingFound,
    PlaceRemoved,
    SnapshotCompleted,
    StoreObserved,
    StoreRefused,
    ViewConfirmed,
    ViewObserved,
)
from sidecar.drivers.log_throttle import LogThrottle
from sidecar.drivers.zookeeper.watch_set import DISCOVERY, ParentGone, WatchReport
from sidecar.drivers.zookeeper.zookeeper_session import (
    NO_PERMISSION,
    Absent,
    Answer,
    Children,
    Interrupted,
    Question,
    Refused,
    TooManyChildren,
    Value,
)
from sidecar.ports import Observer

_LONGEST_SILENCE = 10.0
_LONGEST_ANSWER = 10.0
"""Seconds that a probe may wait while other data arrives: that data is as old as the probe."""
_INTERVAL_SECONDS = 1.0


class Probe:
    """One probe at a time. kazoo considers a connection alive as long as it can write to it. Times are monotonic seconds."""

    def __init__(self, session_timeout: float) -> None:
        self.longest_silence = min(_LONGEST_SILENCE, session_timeout / 3)
        self.interval = min(_INTERVAL_SECONDS, self.longest_silence / 3)
        """Seconds between two probes."""
        self._answered = threading.Event()
        self._answered.set()
        self._sent_at = 0.0

    @property
    def is_due(self) -> bool:
        """True if the last probe was answered."""
        return self._answered.is_set()

    @property
    def waited(self) -> float:
        """Seconds since the last probe was sent."""
        return time.monotonic() - self._sent_at

    def send(self) -> threading.Event:
        """Start a probe. Returns the event to set, from any thread, when it is answered."""
        self._sent_at = time.monotonic()
        self._answered = threading.Event()
        return self._answered

    def forget(self) -> None:
        """Forget the probe of an earlier connection."""
        self._answered.set()

    def patience(self, heard_at: float) -> float:
        """Seconds until the connection must be cut, if the server last sent anything at `heard_at`. 0 or less: now."""
        silent = time.monotonic() - heard_at
        silence_left = max(self.longest_silence - silent, self.longest_silence * 2 / 3 - self.waited)
        return min(silence_left, _LONGEST_ANSWER - self.waited)


class Confirmations:
    """Decides when a probe confirms the view: when all reads pending at its answer are answered. Answers arrive in order."""

    def __init__(self) -> None:
        self.answered = 0
        """The number of answered reads."""
        self._waiting: deque[tuple[int, Moment]] = deque()

    def forget(self) -> None:
        """Start over, on a new connection."""
        self._waiting.clear()

    def notified_until(self, at: Moment, reads: int) -> None:
        """All watch events from before `at` have arrived; `reads` caused by them are pending."""
        self._waiting.append((self.answered + reads, at))

    def confirmed(self) -> Moment | None:
        """The latest moment up to which everything has been observed; None: unchanged."""
        at = None
        while self._waiting and self._waiting[0][0] <= self.answered:
            _, at = self._waiting.popleft()
        return at


_log = logging.getLogger("sidecar.zookeeper")

_CREDENTIALS = ": give Flink's credentials, zookeeper.authorization or zookeeper.sasl"
_REPORTED_EACH_TRANSACTIONS = 1 << 24


class Reporter:
    """Reports observations of one cluster to `observer`. Used by the driver's thread."""

    def __init__(self, cluster_id: str, where: str, throttle: LogThrottle, confirmed_within: int) -> None:
        """`where`: the quorum and the cluster's root. `confirmed_within`: microseconds between two confirmations."""
        self.observer: Observer | None = None
        """None: before the start and after the stop, nothing is reported."""
        self.ever_found = False
        """True if anything of the cluster has ever been found."""
        self.view: ConnectionState | None = None
        """The last reported connection state."""
        self._cluster_id = cluster_id
        self._where = where
        self._throttle = throttle
        self._confirmed_within = confirmed_within
        self._zxid = 0
        self._left_out: tuple[int, tuple[str, ...]] = (0, ())

    def report_view(self, at: Moment, connection: ConnectionState) -> None:
        if connection is not self.view:
            self.view = connection
            if connection is ConnectionState.CONNECTED:
                self._left_out = (0, ())  # everything is read again
            self._report(ViewObserved(at, self._cluster_id, connection))

    def report_complete(self, at: Moment) -> None:
        self._report(SnapshotCompleted(at, self._cluster_id))

    def report_confirmed(self, at: Moment) -> None:
        self._report(ViewConfirmed(at, self._cluster_id, self._confirmed_within))

    def report_store(self, at: Moment, zxid: int) -> None:
        """Report the newest transaction in each new epoch, and now and then."""
        if zxid >> 32 != self._zxid >> 32 or zxid - self._zxid >= _REPORTED_EACH_TRANSACTIONS:
            self._zxid = zxid
            self._report(StoreObserved(at, self._cluster_id, zxid))

    def report_path(self, at: Moment, report: WatchReport) -> None:
        """Report the change of a watched path."""
        is_empty = isinstance(report.answer, Absent | ParentGone) or report.answer == Children(())
        self.ever_found = self.ever_found or not is_empty
        if observation := self._observation(at, report):
            self._report(observation)

    def report_left_out(self, at: Moment, jobs: int, lists: Iterable[str]) -> None:
        """Report what is not observed, if that changed."""
        left_out = jobs, tuple(sorted(lists))
        if left_out != self._left_out:
            self._left_out = left_out
            self._report(LeftOut(at, self._cluster_id, *left_out))
            if jobs and self._throttle.is_due(f"left out of {self._where}"):
                _log.warning(
                    "at least %d jobs of %s in ZooKeeper are not observed: there are too many", jobs, self._where
                )

    def report_missing(self, at: Moment, siblings: Answer) -> None:
        """Report that nothing of the cluster exists, if that is still true. `siblings`: the children of its root's parent."""
        if self.ever_found or isinstance(siblings, Interrupted):
            return
        names: tuple[str, ...] | None = None
        if isinstance(siblings, Absent):
            names = ()
        elif isinstance(siblings, Children):
            names = tuple(name for name in siblings.names if name != self._where.rpartition("/")[2])
        place = f"{self._where} in ZooKeeper"
        if self._throttle.is_due(f"nothing below {self._where}"):
            _log.warning("%s. Until it exists there is nothing to watch", Missing(place, names))
        self._report(NothingFound(at, self._cluster_id, place, names))

    def _report(self, observation: ClusterObservation) -> None:
        if observer := self.observer:
            observer(observation)

    def _observation(self, at: Moment, report: WatchReport) -> ClusterObservation | None:
        path, answer = report.watched.path, report.answer
        match report.watched.question, answer:
            case Question.VALUE, Value(data, position):
                return NodeObserved(
                    at, self._cluster_id, path, data[: MAX_BYTES + 1], position, report.writes, report.births
                )
            case Question.VALUE, ParentGone():
                return PlaceRemoved(at, self._cluster_id, path)
            case Question.VALUE, Refused(reason):
                return NodeRefused(at, self._cluster_id, path, reason)
            case Question.VALUE, _:
                return NodeObserved(at, self._cluster_id, path, writes=report.writes, births=report.births)
        return self._list_observation(at, path, answer)

    def _list_observation(self, at: Moment, path: str, answer: Answer | ParentGone) -> ClusterObservation | None:
        match answer:
            case Refused(reason):
                _log.warning("cannot list %s in ZooKeeper %s: %s; retrying", path, self._where, reason)
                if path in DISCOVERY:
                    advice = _CREDENTIALS if reason == NO_PERMISSION else ""
                    full = f"/{self._where.partition('/')[2]}{path}"
                    return StoreRefused(at, self._cluster_id, f"{full}: {reason}{advice}")
                return _store_refused(at, self._cluster_id, path, reason)
            case TooManyChildren(count, most):
                children = f"{count} children, more than {'can be read' if most is None else most}"
                consequence = "only children created from now on are watched"
                _log.warning("%s in ZooKeeper %s has %s: %s", path, self._where, children, consequence)
                return _store_refused(at, self._cluster_id, path, children)
            case _ if znode_paths.is_list(path):
                names = answer.names if isinstance(answer, Children) else ()
                return ChildrenObserved(at, self._cluster_id, path, names)
        return None


def _store_refused(at: Moment, cluster_id: str, path: str, reason: str) -> NodeRefused | None:
    """The report that the jobs in a store are not known any more. None: `path` is no job store."""
    return NodeRefused(at, cluster_id, path, reason) if path in znode_paths.JOB_STORES else None
