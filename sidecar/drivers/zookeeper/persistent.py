"""Adds to kazoo 2.11: recursive persistent watches (ZooKeeper ≥ 3.6), and answers and events in the order in which they arrive.

kazoo has no `AddWatch`, and hands answers and events to two threads, which loses their order. Here kazoo's connection thread calls back
for both. This takes kazoo's private attributes: kazoo is pinned.
"""

import ssl
import struct
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from enum import IntEnum
from typing import Any, ClassVar

from kazoo.client import KazooClient
from kazoo.exceptions import KazooException
from kazoo.protocol import serialization
from kazoo.protocol.connection import ConnectionDropped, ConnectionHandler
from kazoo.protocol.paths import _prefix_root

from sidecar.core.bounds import MIB, STORE_LIST

_PERSISTENT_RECURSIVE = 1
_ANY_WATCH = 3

_LENGTH = struct.Struct("!i")
_CHUNK_BYTES = 1 << 16
_MOST_BYTES = STORE_LIST.most_bytes
"""The most bytes of one message. The rest of a longer one (a list of very many children) is discarded."""


class TooLongError(KazooException):  # type: ignore[misc]  # kazoo is untyped
    """An answer is longer than anything that is read. The session goes on."""


class ZNodeEvent(IntEnum):
    """A watch event's type (`org.apache.zookeeper.Watcher.Event.EventType`)."""

    CREATED = 1
    DELETED = 2
    CHANGED = 3
    CHILDREN = 4
    """Reported to one-shot watches only: a recursive watch reports each child."""


_EVENTS = {event.value: event for event in ZNodeEvent}


class Request:
    """One request of ZooKeeper's protocol, which may set a one-shot `watch`. Its event goes to the listener of `listen`."""

    type: ClassVar[int]

    def __init__(self, path: str, watch: bool) -> None:
        self.path = path
        self.watch = watch

    def serialize(self) -> bytes:
        return bytes(serialization.write_string(self.path)) + bytes([self.watch])


class GetData(Request):
    """Answered with (data, Stat)."""

    type = serialization.GetData.type
    deserialize = serialization.GetData.deserialize


class GetChildren(Request):
    """Answered with the names that could be read, and the number of all children."""

    type = serialization.GetChildren.type

    @staticmethod
    def deserialize(buffer: bytes, offset: int) -> tuple[list[str], int]:
        (count,) = _LENGTH.unpack_from(buffer, offset)
        names: list[str] = []
        offset += _LENGTH.size
        while len(names) < count and offset + _LENGTH.size <= len(buffer):
            begin = offset + _LENGTH.size
            offset = begin + max(0, _LENGTH.unpack_from(buffer, offset)[0])
            if offset > len(buffer):
                break
            names.append(buffer[begin:offset].decode("utf-8", "replace"))
        return names, max(0, count)


class Exists(Request):
    """Answered with the Stat, or None."""

    type = serialization.Exists.type
    deserialize = serialization.Exists.deserialize


class Sync(Request):
    """Answered when this server has caught up with the ensemble's leader. Makes no transaction."""

    type = serialization.Sync.type
    deserialize = serialization.Sync.deserialize

    def serialize(self) -> bytes:
        return bytes(serialization.write_string(self.path))


class _WatchRequest(Request):
    """A request with one `number` (the watch mode or the kind of watches) and an empty answer."""

    number: ClassVar[int]

    def serialize(self) -> bytes:
        return bytes(serialization.write_string(self.path) + serialization.int_struct.pack(self.number))

    @staticmethod
    def deserialize(_buffer: bytes, _offset: int) -> None:
        pass


class AddWatch(_WatchRequest):
    """Watch a path, which need not exist, and everything below it, for as long as the connection lasts.

    Servers before 3.6 answer `UnimplementedError` and close the connection.
    """

    type = 106
    number = _PERSISTENT_RECURSIVE


class RemoveWatches(_WatchRequest):
    """Remove the watch that `AddWatch` set on this path."""

    type = 18
    number = _ANY_WATCH


Answered = Callable[[Any, Exception | None], None]
"""Called once, in kazoo's connection thread, with a result or an error. May only enqueue."""
Listener = Callable[[ZNodeEvent, str], None]
"""Called in kazoo's connection thread with an event and its path below the chroot. May only enqueue."""


def ask_parent(client: KazooClient, request: type[Request], answered: Answered) -> bool:
    """Send a request about the parent of the client's chroot, without waiting. False: there is no chroot."""
    if not client.chroot:
        return False
    client._call(request(client.chroot.rpartition("/")[0] or "/", False), _Answer(answered))  # noqa: SLF001  see the module
    return True


def ask(client: KazooClient, request: type[Request], path: str, answered: Answered, *, watch: bool = False) -> None:
    """Send a request without waiting."""
    client._call(request(_prefix_root(client.chroot, path), watch), _Answer(answered))  # noqa: SLF001  see the module


def listen(client: KazooClient, listener: Listener) -> None:
    """Call `listener` with every watch event of `client`, which must not be started yet."""
    old = client._connection  # noqa: SLF001  see the module
    client._connection = _Connection(listener, client, old.retry_sleeper, old.logger, old.sasl_options)  # noqa: SLF001


class _Answer:
    """Takes the place of kazoo's `AsyncResult`."""

    def __init__(self, answered: Answered) -> None:
        self._answered: Answered | None = answered

    def set(self, result: Any) -> None:
        self._call(result, None)

    def set_exception(self, error: Exception) -> None:
        self._call(None, error)

    def _call(self, result: Any, error: Exception | None) -> None:
        answered, self._answered = self._answered, None  # a client that is closed sets it twice
        if answered is not None:
            answered(result, error)


class _Connection(ConnectionHandler):  # type: ignore[misc]  # kazoo is untyped
    """Reads all received bytes at once; kazoo makes four system calls for each answer and event.

    What a server has sent before it hung up is processed even if it is noticed by writing to it: it may be why it hung up.
    """

    def __init__(self, listener: Listener, *kazoo_arguments: Any) -> None:
        super().__init__(*kazoo_arguments)
        self._listener = listener
        self._unread = bytearray()
        self._was_cut = False
        """True if the last message was longer than `_MOST_BYTES`."""

    def _connect(self, *address: Any) -> Any:
        self._unread.clear()
        return super()._connect(*address)

    def _read_socket(self, read_timeout: float) -> Any:
        """Process all complete messages: select does not report those left in the buffer."""
        ended = super()._read_socket(read_timeout)
        while ended is None and self._has_whole_message():
            ended = super()._read_socket(read_timeout)
        return ended

    def _send_request(self, *timeouts: float) -> None:
        with self._reading_the_rest():
            super()._send_request(*timeouts)

    def _send_ping(self, *timeouts: float) -> None:
        with self._reading_the_rest():
            super()._send_ping(*timeouts)

    @contextmanager
    def _reading_the_rest(self) -> Iterator[None]:
        try:
            yield
        except ConnectionDropped:
            with suppress(ConnectionDropped, self.handler.timeout_exception):
                while True:
                    self._read_socket(0)
            raise

    def _has_whole_message(self) -> bool:
        content = len(self._unread) - _LENGTH.size
        return content >= 0 and content >= _LENGTH.unpack_from(self._unread)[0]

    def _read(self, length: int, timeout: float) -> bytes:
        if length < 0:
            raise ConnectionDropped(f"a message of {length} bytes")
        size = min(length, _MOST_BYTES)
        self._was_cut = size < length
        with self._socket_error_handling():
            while len(self._unread) < size:
                self._read_more(timeout)
            data = bytes(self._unread[:size])
            del self._unread[:size]
            excess = length - size
            while excess > len(self._unread):
                excess -= len(self._unread)
                self._unread.clear()
                self._read_more(timeout)
            del self._unread[:excess]
        return data

    def _read_more(self, timeout: float) -> None:
        if not self.handler.select([self._socket], [], [], timeout)[0]:
            raise self.handler.timeout_exception("socket time-out during read")
        try:
            data = self._socket.recv(_CHUNK_BYTES)
        except (ssl.SSLWantReadError, ssl.SSLWantWriteError):
            return
        if not data:
            raise ConnectionDropped("socket connection broken")
        self._unread += data

    def _read_response(self, header: Any, buffer: bytes, offset: int) -> Any:
        """An answer that was cut is an error of that request alone, also of kazoo's own ones, which would be read beyond their end."""
        request, answer, xid = self.client._pending[0]  # noqa: SLF001  see the module
        if not self._was_cut or header.err or header.xid != xid or isinstance(request, GetChildren):
            return super()._read_response(header, buffer, offset)
        self.client._pending.popleft()  # noqa: SLF001  see the module
        answer.set_exception(TooLongError(f"its answer is longer than {_MOST_BYTES // MIB} MiB"))
        return None

    def _read_watch_event(self, buffer: bytes, offset: int) -> None:
        watch, _ = serialization.Watch.deserialize(buffer, offset)
        event = _EVENTS.get(watch.type)
        if event is not None:
            self._listener(event, self.client.unchroot(watch.path))
