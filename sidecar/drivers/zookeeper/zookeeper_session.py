"""One read-only session with ZooKeeper through kazoo."""

import logging
import os
import select
import socket
import ssl
import threading
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
)
from kazoo.handlers.threading import SequentialThreadingHandler
from kazoo.retry import KazooRetry
from msgspec import Struct

from sidecar.core.flink.leadership import Births, ZNodePosition
from sidecar.core.observations import ConnectionState
from sidecar.drivers.zookeeper import persistent
from sidecar.drivers.zookeeper.persistent import TooLongError, ZNodeEvent
from sidecar.drivers.zookeeper.security import Address, Security

_NOT_REASONS = {"Transition to CONNECTING", "Session has expired"}
_PREAMBLES = ("Connection dropped: ", "Connection time-out: ", "socket connection error: ")


class Handler(SequentialThreadingHandler):  # type: ignore[misc]  # kazoo is untyped
    """kazoo's threads and sockets, with a callback when the thread ends, and shorter time limits (kazoo's: the session timeout)."""

    def __init__(self, connection_timeout: float, security: Security, ended: Callable[[], None]) -> None:
        super().__init__()
        self.serving = False
        self._connection_timeout = connection_timeout
        self._security = security
        self._peer: tuple[Address, str] | None = None
        self._refusal: str | None = None
        self._ended = ended

    def start(self) -> None:
        """Start without kazoo's two workers, which are not used."""
        self._running = True

    def stop(self) -> None:
        self._running = False

    def create_socket_pair(self) -> tuple["_PipeEnd", "_PipeEnd"]:
        read_end, write_end = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        return _PipeEnd(read_end), _PipeEnd(write_end)

    def spawn(self, func: Callable[..., object], *args: Any, **kwargs: Any) -> threading.Thread:
        def run() -> None:
            try:
                func(*args, **kwargs)
            except Exception:  # noqa: BLE001  a server may answer anything; kazoo has logged the error
                return
            finally:
                self._ended()

        thread = threading.Thread(target=run, name="zookeeper-client", daemon=True)
        thread.start()
        return thread

    def create_connection(self, address: Address, hostname: str, timeout: float, **_options: Any) -> socket.socket:
        self._peer = self._refusal = None
        connection = self._security.connect(address, hostname, min(timeout, self._connection_timeout))
        self._peer = address, hostname
        return connection

    def refused(self, reason: str) -> None:
        """The server accepted the connection, but refuses to serve it."""
        self._refusal = reason

    def explained(self, reason: str) -> str:
        """Why the connection failed; kazoo logged `reason`."""
        if self._refusal is not None:
            return self._refusal
        return reason if self.serving or self._peer is None else self._security.explain(reason, *self._peer)

    def select(self, readable: Any, writable: Any, _exceptional: Any, timeout: float) -> Any:
        if unread := [stream for stream in readable if isinstance(stream, ssl.SSLSocket) and stream.pending()]:
            return unread, [], []  # decrypted with the last record: poll does not report these bytes
        if not self.serving:  # the handshake: a frozen server accepts connections and sends nothing
            timeout = min(timeout, self._connection_timeout)
        poll = select.poll()  # kazoo creates an epoll each time: several system calls
        streams = {stream.fileno(): stream for stream in (*readable, *writable)}
        for stream in readable:
            poll.register(stream, select.POLLIN)
        for stream in writable:
            poll.register(stream, select.POLLOUT)
        ready = [streams[descriptor] for descriptor, _ in poll.poll(timeout * 1000)]
        return (
            [stream for stream in readable if stream in ready],
            [stream for stream in writable if stream in ready],
            [],
        )


class _PipeEnd:
    """One end of a pipe that wakes kazoo's connection thread: one byte for each request.

    kazoo's pair of sockets blocks the sender when some 280 bytes are unread. That happens when a connection breaks: kazoo drops the
    requests, but not their bytes.
    """

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor

    def fileno(self) -> int:
        return self._descriptor

    def recv(self, size: int) -> bytes:
        return os.read(self._descriptor, size)

    def send(self, data: bytes) -> int:
        with suppress(BlockingIOError):  # thousands of bytes are unread: the thread wakes anyway
            return os.write(self._descriptor, data)
        return 0

    def close(self) -> None:
        descriptor, self._descriptor = self._descriptor, -1
        if descriptor >= 0:
            os.close(descriptor)


class FailureReasons(logging.Handler):
    """Reads from kazoo's log why a connection failed."""

    def __init__(self, failed: Callable[[str], None]) -> None:
        super().__init__()
        self._failed = failed

    def emit(self, record: logging.LogRecord) -> None:
        reason = record.getMessage()
        if reason not in _NOT_REASONS:
            for preamble in _PREAMBLES:
                reason = reason.removeprefix(preamble)
            if record.exc_info and record.exc_info[1]:
                reason = f"{reason}: {record.exc_info[1]!r}"
            self._failed(reason)


NO_PERMISSION = "no permission to read it"
"""The reason of a Refused that comes from the server's ACL."""

# kazoo multiplies each delay by up to 1 + jitter: no pause is longer than 2.1 s. Its own default grows to an hour.
_RETRY = {"max_tries": -1, "delay": 0.1, "backoff": 1.5, "max_delay": 1.5, "max_jitter": 0.4}


class Value(Struct, frozen=True):
    """The answer to VALUE: the content."""

    data: bytes
    position: ZNodePosition


class Children(Struct, frozen=True):
    """The answer to CHILDREN: sorted names."""

    names: tuple[str, ...]


class TooManyChildren(Struct, frozen=True):
    """The answer to CHILDREN where the `count` children are more than `most`, or their names are too long to be read."""

    count: int
    most: int | None = None


class Present(Struct, frozen=True):
    """The answer to EXISTS for an existing path: how often a child was created, and the number of children."""

    births: Births
    children: int = 0


class Absent(Struct, frozen=True):
    """The answer to any question about a path that does not exist."""


class Done(Struct, frozen=True):
    """The answer to SYNC, WATCH_BELOW and WATCH_NO_MORE."""


class Refused(Struct, frozen=True):
    """The server refused the question. It has set no watch."""

    reason: str


class Interrupted(Struct, frozen=True):
    """The connection was lost before the answer; the new connection state is reported, too."""


Answer = Value | Children | TooManyChildren | Present | Absent | Done | Refused | Interrupted


class Question(Enum):
    """The questions about a path. None of them writes."""

    VALUE = persistent.GetData
    CHILDREN = persistent.GetChildren
    EXISTS = persistent.Exists
    SYNC = persistent.Sync
    """Let the server catch up with the ensemble's leader."""
    WATCH_BELOW = persistent.AddWatch
    """Report every change of this path and of all below it, until the connection ends. Servers before 3.6 refuse; that ends it, too."""
    WATCH_NO_MORE = persistent.RemoveWatches
    """End WATCH_BELOW of this path."""


class Session:
    """Reads, watches, and the state of the connection. Reconnects for ever, about once a second.

    kazoo's connection thread calls the callables, which may only enqueue: kazoo deadlocks when they call back into it. They are not called
    after `close` has begun.
    """

    def __init__(
        self,
        hosts: str,
        session_timeout: float,
        connection_timeout: float,
        security: Security,
        *,
        state_changed: Callable[[ConnectionState], None],
        happened: Callable[[ZNodeEvent, str], None],
        failed: Callable[[str], None],
        ended: Callable[[], None],
    ) -> None:
        """`hosts` as in `h1:2181,h2:2181/chroot`; all paths are below the chroot.

        `happened` gets watch events, `failed` one line on a failed attempt to connect or a broken connection. States, answers and events
        keep their order. `ended`: kazoo has given up, only another Session helps. Raises ValueError when `hosts` is malformed.
        """
        self._state_changed = state_changed
        self._happened = happened
        self._failed = failed
        self._ended = ended
        self._closing = False
        kazoo_log = logging.Logger("kazoo", logging.WARNING)  # noqa: LOG001  must not reach the process's log
        kazoo_log.addHandler(FailureReasons(self._fail))
        self._handler = Handler(connection_timeout, security, self._end)
        self._state: ConnectionState | None = None
        self._client = KazooClient(
            hosts,
            timeout=session_timeout,
            handler=self._handler,
            connection_retry=KazooRetry(**_RETRY),
            logger=kazoo_log,
            **security.client_options(),
        )
        persistent.listen(self._client, self._notified)
        self._client.add_listener(self._kazoo_state_changed)
        self.heard_at = 0.0
        """The time at which the server last sent anything (monotonic)."""

    def open(self) -> None:
        """Start connecting; returns at once. May be called once."""
        self._client.start_async()

    def close(self, *, goodbye: bool = True) -> None:
        """End the session, with or without a `goodbye` to the server.

        Waits for the server's answer (until `drop` is called) or for an attempt to connect to time out, at most the session timeout.
        """
        self._closing = True
        if not goodbye:
            self.drop()
        with suppress(Exception):  # kazoo raises bare Exceptions here
            self._client.stop()
            self._client.close()

    def drop(self) -> None:
        """Cut the connection. kazoo reconnects at once, with the same session if it has not expired."""
        connection: socket.socket | None = self._client._connection._socket  # noqa: SLF001  not public
        if connection is not None:
            with suppress(OSError):  # already closed
                # Not the TLS socket's own shutdown: after that, writes would be in plain text.
                socket.socket.shutdown(connection, socket.SHUT_RDWR)

    def ask(self, question: Question, path: str, answered: Callable[[Answer], None], *, watch: bool = False) -> None:
        """Send a question without waiting.

        With `watch`, `happened` gets the next change of the answer: the value, the children, or whether the path exists. VALUE and
        CHILDREN set no such watch on an absent path.
        """
        persistent.ask(self._client, question.value, path, self._converting(question, path, answered), watch=watch)

    def ask_siblings(self, answered: Callable[[Answer], None]) -> bool:
        """Ask for the children of the chroot's parent: this cluster, if it exists, and others. False: no parent."""
        completed = self._converting(Question.CHILDREN, "", answered)
        return persistent.ask_parent(self._client, persistent.GetChildren, completed)

    @property
    def zxid(self) -> int:
        """The newest transaction that the server has reported."""
        return int(self._client.last_zxid)

    def _converting(self, question: Question, path: str, answered: Callable[[Answer], None]) -> persistent.Answered:
        def completed(result: Any, error: Exception | None) -> None:
            self.heard_at = time.monotonic()
            answer = _failure(error) if error else _converted(question, path, result)
            answered(answer)
            if question is Question.WATCH_BELOW and not isinstance(answer, Done | Interrupted):
                self.drop()  # in kazoo's thread: in another one, a moment later, it might cut the next connection

        return completed

    def _kazoo_state_changed(self, state: str) -> None:
        self.heard_at = time.monotonic()
        if state == ConnectionState.CONNECTED:
            # kazoo reports this before it authenticates; a server that demands authentication refuses the first question.
            self.ask(Question.EXISTS, "/", self._first_answered)
        else:
            self._handler.serving = False
            if state == ConnectionState.LOST or self._state is ConnectionState.CONNECTED:
                self._change_state(ConnectionState(state))

    def _first_answered(self, answer: Answer) -> None:
        match answer:
            case Present() | Absent():
                self._handler.serving = True
                self._change_state(ConnectionState.CONNECTED)
            case Refused(reason):
                self._handler.refused(reason)
                self.drop()

    def _change_state(self, state: ConnectionState) -> None:
        if not self._closing and state is not self._state:
            self._state = state
            self._state_changed(state)

    def _notified(self, event: ZNodeEvent, path: str) -> None:
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
            return Refused(NO_PERMISSION)
        case SessionClosedRequireSaslError():
            return Refused("the server demands authentication: set zookeeper.sasl or zookeeper.authorization")
        case TooLongError():
            return Refused(str(error))
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
            # The cversion that clients see is twice the number of creations, less the number of children.
            return Present(Births(stat.czxid, (stat.cversion + stat.numChildren) // 2), stat.numChildren)
        case _:
            return Done()
