"""The driver's one thread: the connection's states and the answers in, observations out."""

import logging
import math
import random
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from queue import Empty, SimpleQueue

from sidecar.core.cluster.state import Missing
from sidecar.core.moment import SECOND, Moment
from sidecar.core.observations import (
    ClusterObservation,
    ConnectionState,
    SnapshotCompleted,
    StoreObserved,
    ViewConfirmed,
    ViewObserved,
)
from sidecar.drivers.log_throttle import LogThrottle
from sidecar.drivers.zookeeper import news
from sidecar.drivers.zookeeper.persistent import Event
from sidecar.drivers.zookeeper.probe import Confirmations, Probe
from sidecar.drivers.zookeeper.security import PLAIN, Security
from sidecar.drivers.zookeeper.session import Answer, Done, Interrupted, Question, Refused, Session
from sidecar.drivers.zookeeper.tree import Tree
from sidecar.drivers.zookeeper.watch_set import Ask, WatchReport
from sidecar.ports import Observer
from sidecar.threads import ServiceThread

_log = logging.getLogger("sidecar.zookeeper")

_READS_IN_FLIGHT = 200
_CUT_AGAIN_SECONDS = 1.0
_REFUSED_INTERVAL = 30.0
_ANEW_SECONDS = 2.0
_LONGEST_WAIT = 60.0
_MOST_WAITING = 50_000
_CONFIRMED_AT_ONCE = 8
_CONTESTED_SECONDS = 1.0
_TOLD_EACH_TRANSACTIONS = 1 << 24
_GOODBYE_SECONDS = 1.5
_STOP_SECONDS = 4.5


class ZooKeeperDriver:
    """Sees one Flink cluster's leaders in ZooKeeper. Mirrors `org.apache.flink.runtime.leaderretrieval.ZooKeeperLeaderRetrievalDriver`.

    All components and jobs, the layouts of all Flink versions, one connection, two threads (this one and kazoo's). Recursive
    persistent watches tell of every change; a server before 3.6 has one-shot watches only. A connection that is open and silent is cut
    after 10 s or a third of the session timeout; one on which a probe is not answered, after 10 s, whatever else comes in. One that
    cannot be had again within the session timeout is LOST, also where no server is left to say so.
    A probe each second confirms the view: everything that was there when it was sent has been observed.
    """

    def __init__(
        self,
        quorum: str,
        namespace: str,
        cluster_id: str,
        clock: Callable[[], Moment],
        *,
        session_timeout: float = 60.0,
        connection_timeout: float = 15.0,
        security: Security = PLAIN,
    ) -> None:
        """`quorum` as in `h1:2181,h2:2181[/chroot]`, `namespace` as in `/flink/default`; observed paths are relative to it.

        `clock` is called in several threads. Timeouts in seconds, as Flink's `high-availability.zookeeper.client.*`. Raises ValueError
        when the quorum cannot be read.
        """
        self._cluster_id = cluster_id
        self._clock = clock
        self._session_timeout = session_timeout
        self._connection_timeout = connection_timeout
        self._security = security
        self._probe = Probe(session_timeout)
        self._confirmations = Confirmations()
        # Bounded by what is put in: one call for each read in flight, each attempt to connect, a second apart, and each change that a
        # watch tells of, of which no more than `_MOST_WAITING` wait: beyond that they are dropped, and everything is read anew.
        self._inbox: SimpleQueue[Callable[[], None]] = SimpleQueue()
        self._where = f"{''.join(quorum.split()).rstrip('/')}/{namespace.strip('/')}".rstrip("/")
        try:
            self._session = self._new_session()
        except ValueError as error:
            raise ValueError(f"ZooKeeper quorum {quorum!r} is not like host:port,host:port/chroot: {error}") from error
        self._tree = Tree()
        self._view: ConnectionState | None = None
        self._found = False  # anything of a cluster, at any time
        self._connection = 0  # counts connections, so that a late answer of an earlier one is not taken for one of this
        self._connected_at = clock()
        self._reads_in_flight = 0
        self._watched_below: frozenset[str] = frozenset()
        self._one_shot_next = False
        self._overflowed = False
        self._zxid = 0  # as told last
        self._due: dict[Callable[[], None], float] = {}  # what to do next, and when (monotonic)
        self._why = "unknown reason"
        self._throttle = LogThrottle()
        self._observer: Observer | None = None
        self._thread: ServiceThread | None = None
        self._stopping = threading.Event()

    def start(self, observer: Observer) -> None:
        if self._thread is None and not self._stopping.is_set():
            self._observer = observer
            self._thread = ServiceThread(self._run, "zookeeper-driver")
            self._thread.start()

    def stop(self) -> None:
        self._stopping.set()
        if self._thread is None:
            return
        deadline = time.monotonic() + _STOP_SECONDS
        self._inbox.put(lambda: None)
        self._thread.join(_GOODBYE_SECONDS)
        if self._thread.is_alive():
            self._session.drop()  # it waits for a server that is silent
            self._thread.join(deadline - time.monotonic())
        if self._thread.is_alive():
            _log.warning("abandoned the connection to ZooKeeper %s: it did not close in time", self._where)

    # -- the thread ----------------------------------------------------------------------------------------------------

    def _run(self) -> None:
        self._after(0, self._session.open)
        while not self._stopping.is_set():
            try:
                self._take_one()
            except Exception:  # noqa: BLE001  the ear must not go deaf: from whatever surprise, it begins anew
                _log.exception("reading ZooKeeper %s failed", self._where)
                self._why = "an unexpected error"
                self._inbox.put(self._gave_up)
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
            if self._due.pop(act, None):  # what was done before it may have called it off
                act()
        if self._tree.resting and self._tree.wake not in self._due:
            self._after(_CONTESTED_SECONDS, self._tree.wake)
        if self._view is ConnectionState.CONNECTED:
            self._watch()
            while self._reads_in_flight < _READS_IN_FLIGHT and (ask := self._tree.next()):
                self._reads_in_flight += 1
                answered = partial(self._completed, self._connection, ask)
                self._session.ask(ask.question, ask.path, answered, watch=not self._tree.persistent)

    def _after(self, seconds: float, act: Callable[[], None]) -> None:
        self._due[act] = time.monotonic() + seconds

    # -- the connection ------------------------------------------------------------------------------------------------

    def _state_changed(self, at: Moment, state: ConnectionState) -> None:
        self._forget_connection()
        match state:
            case ConnectionState.CONNECTED:
                _log.info("connected to ZooKeeper %s", self._where)
                self._throttle.reset()
                self._connected_at = at
                self._probe.forget()
                self._after(0, self._ask_something)
                self._after(0, self._read_again)
                self._after(_jittered(_REFUSED_INTERVAL), self._read_refused)
                self._tell_view(at, state)
                self._tree.read_all(persistent=not self._one_shot_next)
                self._one_shot_next = False
                self._watch()  # before all else: a server that does not know this refuses it out of turn
                self._session.ask(Question.SYNC, "/", lambda _: None)
            case ConnectionState.SUSPENDED:
                _log.warning("lost the connection to ZooKeeper %s: %s", self._where, self._why)
                self._after(self._session_timeout, self._lose)
                self._tell_view(at, state)
            case ConnectionState.LOST:
                self._tell_view(at, state)

    def _forget_connection(self) -> None:
        self._connection += 1
        self._reads_in_flight = 0
        self._confirmations.forget()
        self._watched_below = frozenset()
        self._due.clear()

    def _lose(self) -> None:
        """kazoo loses a session only when a server says so. The new one also forgets the old one's zxid, for which a server that came
        back without its data would refuse us for ever.
        """
        self._begin_anew(after=0)

    def _gave_up(self) -> None:
        if self._why not in self._throttle:
            _log.warning("the session with ZooKeeper %s ended (%s): reconnecting", self._where, self._why)
        self._begin_anew(after=_jittered(_ANEW_SECONDS))

    def _begin_anew(self, *, after: float) -> None:
        self._tell_view(self._clock(), ConnectionState.LOST)
        self._forget_connection()
        self._session.close(goodbye=False)
        self._session = self._new_session()
        self._after(after, self._session.open)

    def _new_session(self) -> Session:
        clock, current = self._clock, object()
        self._current = current

        def put(act: Callable[[], None]) -> None:
            self._inbox.put(partial(self._act_for, current, act))

        def heard(event: Event, path: str) -> None:
            if self._inbox.qsize() < _MOST_WAITING:
                put(partial(self._happened, clock(), event, path))
            else:
                self._overflowed = True

        return Session(
            self._where,
            self._session_timeout,
            self._connection_timeout,
            self._security,
            state_changed=lambda state: put(partial(self._state_changed, clock(), state)),
            happened=heard,
            failed=lambda why: put(partial(self._failed, clock(), why)),
            ended=lambda: put(self._gave_up),
        )

    def _act_for(self, session: object, act: Callable[[], None]) -> None:
        if session is self._current:  # what an earlier session still had to say would undo what is due for this one
            act()

    def _failed(self, at: Moment, why: str) -> None:
        self._why = why
        if self._view is ConnectionState.CONNECTED:
            return  # SUSPENDED follows
        if self._throttle.is_due(why):
            _log.warning("no connection to ZooKeeper %s: %s; retrying", self._where, why)
        if self._view is None:
            self._tell_view(at, ConnectionState.SUSPENDED)

    def _ask_something(self) -> None:
        """Now and then: what is answered confirms the view, and what is not ends the connection."""
        if self._probe.is_due:
            probed = partial(self._probed, self._connection, self._clock(), self._probe.send())
            self._session.ask(Question.EXISTS, "/", probed)
            self._after(self._probe.each, self._ask_something)
            return
        patience = self._probe.patience(self._session.heard_at)
        if patience <= 0:
            waited = self._probe.waited
            _log.warning("ZooKeeper %s has not answered for %.1f s: closing the connection", self._where, waited)
            self._session.drop()
            patience = _CUT_AGAIN_SECONDS
        self._after(min(patience, self._probe.each), self._ask_something)

    def _probed(self, connection: int, at: Moment, answered: threading.Event, answer: Answer) -> None:
        answered.set()
        if not isinstance(answer, Interrupted):
            self._inbox.put(partial(self._heard_all_before, connection, at))

    def _heard_all_before(self, connection: int, at: Moment) -> None:
        if connection == self._connection:
            self._confirmations.heard_all_before(at, self._reads_in_flight + self._tree.waiting)
            self._confirm()

    def _confirm(self) -> None:
        at = self._confirmations.confirmed()
        if at and self._tree.is_complete:
            self._tell_confirmed(at)

    def _tell_confirmed(self, at: Moment) -> None:
        self._tell(ViewConfirmed(at, self._cluster_id, round(self._probe.each * SECOND)))

    def _read_again(self) -> None:
        self._tree.confirm(_CONFIRMED_AT_ONCE, time.monotonic())
        self._tell_store()
        self._after(self._probe.longest_silence / 3, self._read_again)

    # -- reading -------------------------------------------------------------------------------------------------------

    def _watch(self) -> None:
        """Hear of everything below new roots before anything there is read."""
        roots = self._tree.roots
        if roots != self._watched_below:
            for root in roots - self._watched_below:
                self._session.ask(Question.WATCH_BELOW, root, partial(self._watching, self._connection))
            for root in self._watched_below - roots:
                self._session.ask(Question.WATCH_NO_MORE, root, lambda _: None)
            self._watched_below = roots

    def _watching(self, connection: int, answer: Answer) -> None:
        self._inbox.put(partial(self._watched, connection, answer))

    def _watched(self, connection: int, answer: Answer) -> None:
        if connection == self._connection and not isinstance(answer, Done | Interrupted):
            _log.info(
                "ZooKeeper %s is older than 3.6 and has no persistent watches: using one watch per path", self._where
            )
            self._begin_one_shot()

    def _begin_one_shot(self) -> None:
        """The next connection does without persistent watches; the one after it tries them again, perhaps with another server."""
        self._one_shot_next = True
        self._session.drop()

    def _happened(self, at: Moment, event: Event, path: str) -> None:
        if told := self._tree.happened(event, path, time.monotonic()):
            self._tell_news(at, told)

    def _read_refused(self) -> None:
        self._tree.read_refused()
        self._after(_jittered(_REFUSED_INTERVAL), self._read_refused)

    def _completed(self, connection: int, ask: Ask, answer: Answer) -> None:
        self._inbox.put(partial(self._answered, connection, ask, self._clock(), answer))

    def _answered(self, connection: int, ask: Ask, at: Moment, answer: Answer) -> None:
        if connection != self._connection:
            return
        self._reads_in_flight -= 1
        self._confirmations.answered += 1
        if told := self._tree.answered(ask, answer, time.monotonic()):
            self._tell_news(at, told)
        if self._tree.completed():
            self._tell(SnapshotCompleted(at, self._cluster_id))
            self._tell_confirmed(self._connected_at)
            self._tell_store()
            self._look_beside()
        self._confirm()
        if self._tree.deaf_at:
            _log.warning(
                "%s changed in ZooKeeper %s but no watch reported it: reconnecting", self._tree.deaf_at, self._where
            )
            self._tree.deaf_at = None
            self._begin_one_shot()

    def _look_beside(self) -> None:
        """Where nothing is, say what is there instead."""
        if not self._found and not self._session.ask_beside(partial(self._beside_completed, self._connection)):
            self._tell_nothing(self._connection, Refused("the root has no parent"))

    def _beside_completed(self, connection: int, answer: Answer) -> None:
        self._inbox.put(partial(self._tell_nothing, connection, answer))

    def _tell_nothing(self, connection: int, answer: Answer) -> None:
        if connection != self._connection or self._found or isinstance(answer, Interrupted):
            return
        nothing = news.nothing_found(self._cluster_id, self._where, self._clock(), answer)
        if self._throttle.is_due(f"nothing below {self._where}"):
            _log.warning("%s. It will be watched as soon as it exists", Missing(nothing.place, nothing.beside))
        self._tell(nothing)

    def _tell_news(self, at: Moment, told: WatchReport) -> None:
        self._found = self._found or news.is_trace(told)
        if observation := news.observation(self._cluster_id, self._where, at, told):
            self._tell(observation)

    def _tell_store(self) -> None:
        zxid = self._session.zxid
        if zxid >> 32 != self._zxid >> 32 or zxid - self._zxid >= _TOLD_EACH_TRANSACTIONS:
            self._zxid = zxid
            self._tell(StoreObserved(self._clock(), self._cluster_id, zxid))

    def _tell_view(self, at: Moment, connection: ConnectionState) -> None:
        if connection is not self._view:
            self._view = connection
            self._tell(ViewObserved(at, self._cluster_id, connection))

    def _tell(self, observation: ClusterObservation) -> None:
        if self._observer and not self._stopping.is_set():
            self._observer(observation)


def _jittered(seconds: float) -> float:
    return seconds * random.uniform(0.75, 1.0)  # noqa: S311  spreads sidecars over time, hides nothing
