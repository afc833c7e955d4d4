"""One read-only session with ZooKeeper through kazoo."""

import logging
import socket
import time
from collections.abc import Callable
from contextlib import suppress
from enum import Enum
from typing import Any

from kazoo.client import KazooClient
from kazoo.exceptions import (
    AuthFailedError,
    ConnectionLoss,
    NoAuthError,
    NoNodeError,
    SessionClosedRequireSaslError,
    SessionExpiredError,
    UnimplementedError,
)
from kazoo.retry import KazooRetry
from msgspec import Struct

from sidecar.core.flink.leadership import Births, ZNodePosition
from sidecar.core.observations import ConnectionState
from sidecar.drivers.zookeeper import persistent
from sidecar.drivers.zookeeper.handler import Handler, Reasons
from sidecar.drivers.zookeeper.persistent import Event
from sidecar.drivers.zookeeper.security import Security

# kazoo multiplies each delay by up to 1 + jitter: no pause is longer than 2.1 s. Its own default grows to an hour.
_RETRY = {"max_tries": -1, "delay": 0.1, "backoff": 1.5, "max_delay": 1.5, "max_jitter": 0.4}


class Value(Struct, frozen=True):
    """To VALUE: what stands there."""

    data: bytes
    position: ZNodePosition


class Children(Struct, frozen=True):
    """To CHILDREN: sorted names."""

    names: tuple[str, ...]


class TooManyChildren(Struct, frozen=True):
    """To CHILDREN: `count` are more than are read: more than `most`, or with too long names."""

    count: int
    most: int | None = None


class Present(Struct, frozen=True):
    """To EXISTS: there is such a path, how often a child of it came to be, and how many children it has."""

    births: Births
    children: int = 0


class Absent(Struct, frozen=True):
    """To any question: there is no such path."""


class Done(Struct, frozen=True):
    """To SYNC, WATCH_BELOW and WATCH_NO_MORE."""


class Unsupported(Struct, frozen=True):
    """To WATCH_BELOW: the server is older than 3.6. It breaks the connection."""


class Refused(Struct, frozen=True):
    """The server would not say. No watch is left."""

    reason: str


class Interrupted(Struct, frozen=True):
    """The connection was lost under the question; the change of its state is told as well."""


Answer = Value | Children | TooManyChildren | Present | Absent | Done | Unsupported | Refused | Interrupted


class Question(Enum):
    """What may be asked of a path. There is no question that writes."""

    VALUE = persistent.GetData
    CHILDREN = persistent.GetChildren
    EXISTS = persistent.Exists
    SYNC = persistent.Sync
    """Let the server catch up with the ensemble's leader first."""
    WATCH_BELOW = persistent.AddWatch
    """Tell of every change of this path and of all below it, for as long as the connection lasts."""
    WATCH_NO_MORE = persistent.RemoveWatches
    """Tell no more of what is below this path."""


class Session:
    """Reads, watches, and the state of the connection. A connection that broke is tried again for ever, about each second.

    The callables are called in kazoo's connection thread and may only enqueue: kazoo deadlocks when they call it back. They are called no
    more once `close` has begun.
    """

    def __init__(
        self,
        hosts: str,
        session_timeout: float,
        connection_timeout: float,
        security: Security,
        *,
        state_changed: Callable[[ConnectionState], None],
        happened: Callable[[Event, str], None],
        failed: Callable[[str], None],
        ended: Callable[[], None],
    ) -> None:
        """`hosts` as in `h1:2181,h2:2181/chroot`; all paths are below the chroot.

        `happened` gets what a watch told, `failed` one line on an attempt to connect that failed or a connection that broke. States,
        answers and events are told in the order in which they came.
        `ended`: kazoo gave up for good, and only another Session helps. Raises ValueError when `hosts` cannot be read.
        """
        self._state_changed = state_changed
        self._happened = happened
        self._failed = failed
        self._ended = ended
        self._closing = False
        noise = logging.Logger("kazoo", logging.WARNING)  # noqa: LOG001  ours alone: it must not reach the process's log
        noise.addHandler(Reasons(self._fail))
        self._handler = Handler(connection_timeout, security, self._end)
        self._state: ConnectionState | None = None
        self._client = KazooClient(
            hosts,
            timeout=session_timeout,
            handler=self._handler,
            connection_retry=KazooRetry(**_RETRY),
            logger=noise,
            **security.client_options(),
        )
        persistent.hear(self._client, self._hear)
        self._client.add_listener(self._listen)
        self.heard_at = 0.0
        """When something was last heard of the server, on the monotonic clock."""

    def open(self) -> None:
        """Begin to connect; returns at once. Once only."""
        self._client.start_async()

    def close(self, *, goodbye: bool = True) -> None:
        """End the session, with a `goodbye` to the server or without.

        Waits for the server's answer (until `drop` is called) or for an attempt to connect to time out. What does not end within the
        session timeout is left to itself.
        """
        self._closing = True
        if not goodbye:
            self.drop()
        with suppress(Exception):  # kazoo raises bare Exceptions here
            self._client.stop()
            self._client.close()

    def drop(self) -> None:
        """Cut the connection; kazoo notices at once and connects again, within the same session where it still can."""
        connection: socket.socket | None = self._client._connection._socket  # noqa: SLF001  kazoo has no other way to it
        if connection is not None:
            with suppress(OSError):  # closed in between
                # Not the connection's own: with TLS, that would let the next words out in plain.
                socket.socket.shutdown(connection, socket.SHUT_RDWR)

    def ask(self, question: Question, path: str, answered: Callable[[Answer], None], *, watch: bool = False) -> None:
        """Send a question without waiting.

        With `watch`, a change of what is answered is told once through `happened`: of a value, of the children, or that the path comes
        to be or ceases. VALUE and CHILDREN leave no such watch on a path that is absent.
        """

        def completed(result: Any, error: Exception | None) -> None:
            self.heard_at = time.monotonic()
            answered(_failure(error) if error else _converted(question, path, result))

        persistent.ask(self._client, question.value, path, completed, watch=watch)

    def ask_beside(self, answered: Callable[[Answer], None]) -> bool:
        """Ask for the children of the namespace's parent, which are clusters: this one, if it is there, and others. False: no parent."""

        def completed(result: Any, error: Exception | None) -> None:
            self.heard_at = time.monotonic()
            answered(_failure(error) if error else _converted(Question.CHILDREN, "", result))

        return persistent.ask_beside(self._client, persistent.GetChildren, completed)

    @property
    def zxid(self) -> int:
        """The newest transaction that the server has told of."""
        zxid: int = self._client.last_zxid
        return zxid

    def _listen(self, state: str) -> None:
        self.heard_at = time.monotonic()
        if state == ConnectionState.CONNECTED:
            # kazoo says so before it authenticates, and a server that demands to know us tells with its first answer.
            self.ask(Question.EXISTS, "/", self._hear_first)
        else:
            self._handler.serving = False
            if state == ConnectionState.LOST or self._state is ConnectionState.CONNECTED:
                self._tell(ConnectionState(state))

    def _hear_first(self, answer: Answer) -> None:
        match answer:
            case Present() | Absent():
                self._handler.serving = True
                self._tell(ConnectionState.CONNECTED)
            case Refused(reason):
                self._handler.refused(reason)
                self.drop()

    def _tell(self, state: ConnectionState) -> None:
        if not self._closing and state is not self._state:
            self._state = state
            self._state_changed(state)

    def _hear(self, event: Event, path: str) -> None:
        self.heard_at = time.monotonic()
        if not self._closing:
            self._happened(event, path)

    def _fail(self, reason: str) -> None:
        if not self._closing:
            self._failed(self._handler.explained(reason))

    def _end(self) -> None:
        if not self._closing:
            self._ended()


def _failure(error: Exception) -> Answer:
    match error:
        case NoNodeError():
            return Absent()
        case NoAuthError():
            return Refused("no permission to read it")
        case UnimplementedError():
            return Unsupported()
        case SessionClosedRequireSaslError():
            return Refused("the server demands authentication: give zookeeper.sasl, or what else it accepts")
        case ConnectionLoss() | SessionExpiredError() | AuthFailedError():
            return Interrupted()
        case _:
            return Refused(f"{type(error).__name__} {error}".strip())


def _converted(question: Question, path: str, result: Any) -> Answer:
    match question, result:
        case Question.VALUE, (data, stat):
            owner = stat.ephemeralOwner
            position = ZNodePosition(path, stat.czxid, stat.mzxid, stat.version, owner, stat.mtime)
            return Value(data or b"", position)
        case Question.CHILDREN, (names, count):
            return Children(tuple(sorted(names))) if len(names) == count else TooManyChildren(count)
        case Question.EXISTS, None:
            return Absent()
        case Question.EXISTS, stat:
            # What clients see of cversion is twice the creations less the children that there are.
            return Present(Births(stat.czxid, (stat.cversion + stat.numChildren) // 2), stat.numChildren)
        case _:
            return Done()
