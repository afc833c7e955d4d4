"""One read-only session with ZooKeeper through kazoo."""

import errno
import logging
import socket
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from enum import Enum, auto
from functools import partial
from typing import Any

from kazoo.client import KazooClient
from kazoo.exceptions import AuthFailedError, ConnectionLoss, NoAuthError, NoNodeError, SessionExpiredError
from kazoo.handlers.threading import SequentialThreadingHandler
from kazoo.protocol.states import Callback, EventType, WatchedEvent
from kazoo.retry import KazooRetry
from msgspec import Struct

from sidecar.core.leadership import ZNodePosition
from sidecar.core.observations import ConnectionState

# kazoo multiplies each delay by up to 1 + jitter: no pause is longer than 2.1 s. Its own default grows to an hour.
_RETRY = {"max_tries": -1, "delay": 0.1, "backoff": 1.5, "max_delay": 1.5, "max_jitter": 0.4}

_NO_REASONS = {"Transition to CONNECTING", "Session has expired"}
_PREAMBLES = ("Connection dropped: ", "Connection time-out: ", "socket connection error: ")


class Question(Enum):
    """What may be asked of a path. There is no question that writes."""

    VALUE = auto()
    CHILDREN = auto()
    EXISTS = auto()


class Value(Struct, frozen=True):
    """To VALUE: what stands there."""

    data: bytes
    position: ZNodePosition


class Children(Struct, frozen=True):
    """To CHILDREN: sorted names."""

    names: tuple[str, ...]


class Present(Struct, frozen=True):
    """To EXISTS: there is such a path."""


class Absent(Struct, frozen=True):
    """To any question: there is no such path."""


class Refused(Struct, frozen=True):
    """The server would not say. No watch is left."""

    reason: str


class Interrupted(Struct, frozen=True):
    """The connection was lost under the question; the change of its state is told as well."""


Answer = Value | Children | Present | Absent | Refused | Interrupted


class Session:
    """Reads, watches, and the state of the connection. A connection that broke is tried again for ever, about each second.

    The callables are called in kazoo's threads and may only enqueue: kazoo deadlocks when they call it back. They are called no more
    once `close` has begun.
    """

    def __init__(
        self,
        hosts: str,
        session_timeout: float,
        connection_timeout: float,
        *,
        state_changed: Callable[[ConnectionState], None],
        changed: Callable[[str], None],
        deleted: Callable[[str], None],
        failed: Callable[[str], None],
        ended: Callable[[], None],
    ) -> None:
        """`hosts` as in `h1:2181,h2:2181/chroot`; all paths are below the chroot.

        `changed` and `deleted` get the path whose watch fired, `failed` one line on an attempt to connect that failed or a connection
        that broke.
        `ended`: kazoo gave up for good, and only another Session helps. Raises ValueError when `hosts` cannot be read.
        """
        self._state_changed = state_changed
        self._changed = changed
        self._deleted = deleted
        self._failed = failed
        self._ended = ended
        self._closing = False
        noise = logging.Logger("kazoo", logging.WARNING)  # noqa: LOG001  ours alone: it must not reach the process's log
        noise.addHandler(_Reasons(self._fail))
        self._handler = _Handler(connection_timeout, self._end)
        self._client = KazooClient(
            hosts,
            timeout=session_timeout,
            handler=self._handler,
            connection_retry=KazooRetry(**_RETRY),
            read_only=True,
            logger=noise,
        )
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
                connection.shutdown(socket.SHUT_RDWR)

    def ask(self, question: Question, path: str, answered: Callable[[Any], None], *, watch: bool = True) -> None:
        """Send a question without waiting. `answered` gets what `answer` understands.

        With `watch`, a change of what was answered is told once through `changed`: of a value, of the children, or that the path comes
        to be or ceases. VALUE and CHILDREN leave no watch on a path that is absent.
        """
        match question:
            case Question.VALUE:
                ask = self._client.get_async
            case Question.CHILDREN:
                ask = self._client.get_children_async
            case Question.EXISTS:
                ask = self._client.exists_async

        def completed(result: Any) -> None:
            self.heard_at = time.monotonic()
            answered(result)

        ask(path, watch=self._fired if watch else None).rawlink(completed)

    @staticmethod
    def answer(path: str, result: Any) -> Answer:
        """The answer in what `ask` handed over."""
        match result.exception:
            case None:
                return _converted(path, result.value)
            case NoNodeError():
                return Absent()
            case NoAuthError():
                return Refused("no permission to read it")
            case ConnectionLoss() | SessionExpiredError() | AuthFailedError():
                return Interrupted()
            case error:
                return Refused(f"{type(error).__name__} {error}".strip())

    def _listen(self, state: str) -> None:
        self._handler.serving = state == ConnectionState.CONNECTED
        self.heard_at = time.monotonic()
        self._handler.in_order(partial(self._tell_state, ConnectionState(state)))

    def _tell_state(self, state: ConnectionState) -> None:
        if not self._closing:
            self._state_changed(state)

    def _fired(self, event: WatchedEvent) -> None:
        self.heard_at = time.monotonic()
        if event.path is not None and not self._closing:  # no path: the watch went with the connection
            (self._deleted if event.type == EventType.DELETED else self._changed)(event.path)

    def _fail(self, reason: str) -> None:
        if not self._closing:
            self._failed(reason)

    def _end(self) -> None:
        if not self._closing:
            self._ended()


def _converted(path: str, value: Any) -> Answer:
    match value:
        case None:
            return Absent()
        case list():
            return Children(tuple(sorted(value)))
        case (data, stat):
            owner = stat.ephemeralOwner
            position = ZNodePosition(path, stat.czxid, stat.mzxid, stat.version, owner, stat.mtime)
            return Value(data or b"", position)
        case _:
            return Present()


class _Handler(SequentialThreadingHandler):  # type: ignore[misc]  # kazoo is untyped
    """kazoo's threads and sockets, with an end that is told and time limits of our own: kazoo's are the session's, a minute."""

    def __init__(self, connection_timeout: float, ended: Callable[[], None]) -> None:
        super().__init__()
        self.serving = False
        self._connection_timeout = connection_timeout
        self._ended = ended

    def dispatch_callback(self, callback: Callback) -> None:
        """In one queue with the answers, where kazoo has two: a deletion is told behind what was read before it, and before what was
        read after it.
        """
        self.in_order(partial(callback.func, *callback.args))

    def in_order(self, act: Callable[[], None]) -> None:
        """Have `act` called by kazoo's one worker, behind all that came over the wire before."""
        self.completion_queue.put(act)

    def spawn(self, func: Callable[..., object], *args: Any, **kwargs: Any) -> threading.Thread:
        def run() -> None:
            try:
                func(*args, **kwargs)
            except Exception:  # noqa: BLE001  a server may answer anything; kazoo has logged it to us, and its thread is over
                return
            finally:
                self._ended()

        thread = threading.Thread(target=run, name="zookeeper-client", daemon=True)
        thread.start()
        return thread

    def create_connection(self, *args: Any, **options: Any) -> socket.socket:
        options["timeout"] = min(options.get("timeout") or self._connection_timeout, self._connection_timeout)
        try:
            connection: socket.socket = super().create_connection(*args, **options)
        except TimeoutError as error:
            raise TimeoutError(errno.ETIMEDOUT, "no answer") from error
        return connection

    def select(self, readable: Any, writable: Any, exceptional: Any, timeout: float) -> Any:
        if not self.serving:  # the handshake: a frozen server takes the connection and says nothing
            timeout = min(timeout, self._connection_timeout)
        return super().select(readable, writable, exceptional, timeout)


class _Reasons(logging.Handler):
    """Hears from kazoo's log why a connection failed."""

    def __init__(self, failed: Callable[[str], None]) -> None:
        super().__init__()
        self._failed = failed

    def emit(self, record: logging.LogRecord) -> None:
        reason = record.getMessage()
        if reason not in _NO_REASONS:
            for preamble in _PREAMBLES:
                reason = reason.removeprefix(preamble)
            if record.exc_info and record.exc_info[1]:
                reason = f"{reason}: {record.exc_info[1]!r}"
            self._failed(reason)
