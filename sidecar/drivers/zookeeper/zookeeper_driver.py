"""Runs one thread that gets connection states, watch events and answers of one session, and passes them on as observations."""

import logging
import math
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from queue import Empty, SimpleQueue

from sidecar.core.bounds import JOBS_OF_ALL
from sidecar.core.moment import SECOND, Moment
from sidecar.core.observations import ConnectionState
from sidecar.drivers.log_throttle import LogThrottle
from sidecar.drivers.shares import Shares, WatchedJobs
from sidecar.drivers.zookeeper.persistent import ZNodeEvent
from sidecar.drivers.zookeeper.place import Inquiry, Place
from sidecar.drivers.zookeeper.reporter import Confirmations, Probe, Reporter
from sidecar.drivers.zookeeper.security import PLAIN, Security
from sidecar.drivers.zookeeper.zookeeper_session import Answer, Done, Interrupted, Question, Refused, Session
from sidecar.ports import Observer
from sidecar.runtime.threads import ServiceThread, jittered

_log = logging.getLogger("sidecar.zookeeper")

_READS_IN_FLIGHT = 200
_CUT_AGAIN_SECONDS = 1.0
_REFUSED_INTERVAL = 30.0
_NEW_SESSION_SECONDS = 2.0
_LONGEST_WAIT = 60.0
_MOST_WAITING = 50_000

_CONTESTED_SECONDS = 1.0
_GOODBYE_SECONDS = 1.5
_STOP_SECONDS = 4.5


class Connection:
    """The thread and the session of one `place`: connects for ever, watches, reads, probes, and hands over what it gets.

    Two threads: this one and kazoo's. Recursive persistent watches report every change; servers before 3.6 have only one-shot watches. A
    silent connection is cut after 10 s or a third of the session timeout; one on which a probe is not answered, after 10 s, even if other
    data arrives. A connection that cannot be restored within the session timeout is LOST, even if no server is left to report it.
    A probe each second confirms the view: everything that existed when it was sent has been observed.
    """

    def __init__(
        self,
        where: str,
        place: Place,
        probe: Probe,
        clock: Callable[[], Moment],
        *,
        session_timeout: float,
        connection_timeout: float,
        security: Security,
    ) -> None:
        """`where` as in `h1:2181,h2:2181/root`: paths are below the root. `clock` is called in several threads.

        Timeouts in seconds. Raises ValueError when `where` is malformed.
        """
        self._clock = clock
        self._session_timeout = session_timeout
        self._connection_timeout = connection_timeout
        self._security = security
        self._probe = probe
        self._confirmations = Confirmations()
        # Bounded: one call for each read in flight, one for each attempt to connect, a second apart, and at most `_MOST_WAITING` watch
        # events. More events are dropped, and everything is read again.
        self._inbox: SimpleQueue[Callable[[], None]] = SimpleQueue()
        self._where = where
        self._place = place
        self._session = self._new_session()
        self._connection = 0  # counts connections, to ignore late answers of earlier ones
        self._connected_at = clock()
        self._reads_in_flight = 0
        self._one_shot_next = False
        self._overflowed = False
        self._due: dict[Callable[[], None], float] = {}  # what to call next, and when (monotonic)
        self._failure = "unknown reason"
        self._thread: ServiceThread | None = None
        self._stopping = threading.Event()

    def _begin(self) -> None:
        """Start in the background. May be called twice."""
        if self._thread is None and not self._stopping.is_set():
            self._thread = ServiceThread(self._run, "zookeeper-driver")
            self._thread.start()

    def stop(self) -> None:
        """End in bounded time. May be called twice, or before `start`."""
        self._stopping.set()
        if self._thread is None:
            return
        deadline = time.monotonic() + _STOP_SECONDS
        self._inbox.put(lambda: None)
        self._thread.join(_GOODBYE_SECONDS)
        if self._thread.is_alive():
            self._session.drop()  # it waits for a silent server
            self._thread.join(deadline - time.monotonic())
        if self._thread.is_alive():
            _log.warning("abandoned the connection to ZooKeeper %s: it did not close in time", self._where)

    # -- the thread ----------------------------------------------------------------------------------------------------

    def _run(self) -> None:
        self._schedule(0, self._session.open)
        while not self._stopping.is_set():
            try:
                self._take_one()
            except Exception:  # noqa: BLE001  the driver must not go blind: it starts over after any error
                _log.exception("reading ZooKeeper %s failed", self._where)
                self._failure = "an unexpected error"
                self._inbox.put(self._session_ended)
        self._session.close()

    def _take_one(self) -> None:
        wait = min(self._due.values(), default=math.inf) - time.monotonic()
        with suppress(Empty):
            self._inbox.get(timeout=min(max(0.0, wait), _LONGEST_WAIT))()
        if self._overflowed:
            self._overflowed = False
            _log.warning("ZooKeeper %s changes faster than can be processed: reading everything again", self._where)
            self._session.drop()
        now = time.monotonic()
        for act in [act for act, due in self._due.items() if due <= now]:
            if self._due.pop(act, None):  # an earlier call may have cancelled it
                act()
        if self._place.throttled and self._place.read_throttled not in self._due:
            self._schedule(_CONTESTED_SECONDS, self._place.read_throttled)
        if self._place.view is ConnectionState.CONNECTED:
            self._watch()
            while self._reads_in_flight < _READS_IN_FLIGHT and (inquiry := self._place.next()):
                self._reads_in_flight += 1
                answered = self._answer_callback(partial(self._process_answer, inquiry))
                self._session.ask(inquiry.question, inquiry.path, answered, watch=inquiry.watch)

    def _schedule(self, seconds: float, act: Callable[[], None]) -> None:
        self._due[act] = time.monotonic() + seconds

    def _answer_callback(self, act: Callable[[Moment, Answer], None]) -> Callable[[Answer], None]:
        """A callback for kazoo's thread. It makes this thread call `act`, unless the connection has ended by then."""
        connection = self._connection

        def answered(answer: Answer) -> None:
            self._inbox.put(partial(self._if_connected, connection, partial(act, self._clock(), answer)))

        return answered

    def _if_connected(self, connection: int, act: Callable[[], None]) -> None:
        if connection == self._connection:
            act()

    # -- the connection ------------------------------------------------------------------------------------------------

    def _state_changed(self, at: Moment, state: ConnectionState) -> None:
        self._forget_connection()
        match state:
            case ConnectionState.CONNECTED:
                _log.info("connected to ZooKeeper %s", self._where)
                self._connected_at = at
                self._probe.forget()
                self._schedule(0, self._send_probe)
                self._schedule(0, self._read_again)
                self._schedule(jittered(_REFUSED_INTERVAL), self._read_refused)
                self._place.connected(at, persistent=not self._one_shot_next)
                self._one_shot_next = False
                self._watch()  # first: a server that has no such watches refuses them out of turn
                self._session.ask(Question.SYNC, "/", lambda _: None)
            case ConnectionState.SUSPENDED:
                _log.warning("lost the connection to ZooKeeper %s: %s", self._where, self._failure)
                # kazoo reports LOST only if a server does. A new session also forgets the zxid, because of which a server that was
                # restored without its data would refuse the old one for ever.
                self._schedule(self._session_timeout, self._start_over)
                self._place.disconnected(at, state)
            case ConnectionState.LOST:
                self._place.disconnected(at, state)

    def _forget_connection(self) -> None:
        self._connection += 1
        self._reads_in_flight = 0
        self._confirmations.forget()
        self._due.clear()

    def _session_ended(self) -> None:
        if self._failure not in self._place.throttle:
            _log.warning("the session with ZooKeeper %s ended (%s): reconnecting", self._where, self._failure)
        self._start_over(jittered(_NEW_SESSION_SECONDS))

    def _start_over(self, pause: float = 0) -> None:
        """Open a new session after `pause` seconds."""
        self._place.disconnected(self._clock(), ConnectionState.LOST)
        self._forget_connection()
        self._session.close(goodbye=False)
        self._session = self._new_session()
        self._schedule(pause, self._session.open)

    def _new_session(self) -> Session:
        clock, current = self._clock, object()
        self._current = current

        def put(act: Callable[[], None]) -> None:
            self._inbox.put(partial(self._if_current, current, act))

        def happened(event: ZNodeEvent, path: str) -> None:
            if self._inbox.qsize() < _MOST_WAITING:
                put(partial(self._place.happened, clock(), event, path))
            else:
                self._overflowed = True

        return Session(
            self._where,
            self._session_timeout,
            self._connection_timeout,
            self._security,
            state_changed=lambda state: put(partial(self._state_changed, clock(), state)),
            happened=happened,
            failed=lambda reason: put(partial(self._failed, clock(), reason)),
            ended=lambda: put(self._session_ended),
        )

    def _if_current(self, session: object, act: Callable[[], None]) -> None:
        if session is self._current:  # a call of an earlier session would undo what is due for this one
            act()

    def _failed(self, at: Moment, reason: str) -> None:
        self._failure = reason
        if self._place.view is ConnectionState.CONNECTED:
            return  # SUSPENDED follows
        if self._place.throttle.is_due(reason):
            _log.warning("no connection to ZooKeeper %s: %s; retrying", self._where, reason)
        if self._place.view is None:
            self._place.disconnected(at, ConnectionState.SUSPENDED)

    def _send_probe(self) -> None:
        """Send a probe when the last one is answered. Cut the connection when it is not answered in time."""
        if self._probe.is_due:
            probed = partial(self._probed, self._connection, self._clock(), self._probe.send())
            self._session.ask(Question.EXISTS, "/", probed)
            self._schedule(self._probe.interval, self._send_probe)
            return
        patience = self._probe.patience(self._session.heard_at)
        if patience <= 0:
            waited = self._probe.waited
            _log.warning("ZooKeeper %s has not answered for %.1f s: closing the connection", self._where, waited)
            self._session.drop()
            patience = _CUT_AGAIN_SECONDS
        self._schedule(min(patience, self._probe.interval), self._send_probe)

    def _probed(self, connection: int, sent_at: Moment, answered: threading.Event, answer: Answer) -> None:
        answered.set()
        if not isinstance(answer, Interrupted):
            self._inbox.put(partial(self._if_connected, connection, partial(self._notified_until, sent_at)))

    def _notified_until(self, at: Moment) -> None:
        self._confirmations.notified_until(at, self._reads_in_flight + self._place.waiting)
        self._confirm()

    def _confirm(self) -> None:
        if at := self._confirmations.confirmed():
            self._place.confirmed(at)

    def _read_again(self) -> None:
        self._place.read_again(self._clock(), self._session.zxid)
        self._schedule(self._probe.longest_silence / 3, self._read_again)

    # -- reading -------------------------------------------------------------------------------------------------------

    def _watch(self) -> None:
        """Watch new roots before anything below them is read."""
        for root, wanted in self._place.changed_roots():
            if wanted:
                self._session.ask(Question.WATCH_BELOW, root, self._answer_callback(self._watch_answered))
            else:
                self._session.ask(Question.WATCH_NO_MORE, root, lambda _: None)

    def _watch_answered(self, _at: Moment, answer: Answer) -> None:
        if not isinstance(answer, Done | Interrupted):
            reason = "is older than 3.6 and has no persistent watches"
            _log.info("ZooKeeper %s %s: using one watch per path", self._where, reason)
            self._one_shot_next = True  # on the next connection only: the one after it may reach a newer server

    def _read_refused(self) -> None:
        self._place.read_refused()
        self._schedule(jittered(_REFUSED_INTERVAL), self._read_refused)

    def _process_answer(self, inquiry: Inquiry, at: Moment, answer: Answer) -> None:
        self._reads_in_flight -= 1
        self._confirmations.answered += 1
        inquiry.answered(at, answer)
        if self._place.completed(at, self._connected_at, self._session.zxid):
            answered = self._answer_callback(self._place.nothing_found)
            if not self._place.ever_found and not self._session.ask_siblings(answered):
                self._place.nothing_found(at, Refused("the root has no parent"))
        self._confirm()
        if path := self._place.lost_watch():
            _log.warning("%s changed in ZooKeeper %s but no watch reported it: reconnecting", path, self._where)
            self._one_shot_next = True
            self._session.drop()


class ZooKeeperDriver(Connection):
    """Observes one Flink cluster's leaders in ZooKeeper. Mirrors `org.apache.flink.runtime.leaderretrieval.ZooKeeperLeaderRetrievalDriver`.

    All components and jobs, the layouts of all Flink versions, one connection, two threads.
    """

    def __init__(
        self,
        quorum: str,
        namespace: str,
        cluster_id: str,
        clock: Callable[[], Moment],
        jobs: Shares | None = None,
        *,
        session_timeout: float = 60.0,
        connection_timeout: float = 15.0,
        security: Security = PLAIN,
    ) -> None:
        """`quorum` as in `h1:2181,h2:2181[/chroot]`, `namespace` as in `/flink/default`; observed paths are relative to it.

        `clock` is called in several threads. `jobs`: of all clusters together; None: it is the only one. Timeouts in seconds, as Flink's
        `high-availability.zookeeper.client.*`. Raises ValueError when the quorum is malformed.
        """
        where, probe, throttle = root_of(quorum, namespace), Probe(session_timeout), LogThrottle()
        self._reporter = Reporter(cluster_id, where, throttle, round(probe.interval * SECOND))
        place = Place(throttle)
        jobs = jobs or Shares(JOBS_OF_ALL.most_items)
        place.add("", self._reporter, WatchedJobs(jobs, cluster_id))
        timeouts = {"session_timeout": session_timeout, "connection_timeout": connection_timeout}
        try:
            super().__init__(where, place, probe, clock, **timeouts, security=security)
        except ValueError as error:
            raise ValueError(f"ZooKeeper quorum {quorum!r} is not like host:port,host:port/chroot: {error}") from error

    def start(self, observer: Observer) -> None:
        if self._reporter.observer is None:
            self._reporter.observer = observer
            self._begin()

    def stop(self) -> None:
        self._reporter.observer = None
        super().stop()


def root_of(quorum: str, namespace: str) -> str:
    """`host:port/root`, as a Connection takes it."""
    return f"{''.join(quorum.split()).rstrip('/')}/{namespace.strip('/')}".rstrip("/")
