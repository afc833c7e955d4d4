"""What kazoo 2.11 lacks: recursive persistent watches (ZooKeeper ≥ 3.6), and answers and events in one order, that of the wire.

kazoo knows neither `AddWatch` nor a watch that stays; it hands answers and events to two threads, so that a change may be told before or
after what was read of it. Here both are told in kazoo's connection thread, as they come. Only private ways lead there: kazoo is pinned.
"""

import ssl
import struct
from collections.abc import Callable
from enum import IntEnum
from typing import Any, ClassVar

from kazoo.client import KazooClient
from kazoo.protocol import serialization
from kazoo.protocol.connection import ConnectionDropped, ConnectionHandler
from kazoo.protocol.paths import _prefix_root

_PERSISTENT_RECURSIVE = 1
_ANY_WATCH = 3

_LENGTH = struct.Struct("!i")
_AT_ONCE = 1 << 16
_MOST_BYTES = 1 << 24
"""Of one message. Of a longer one (a list of very many children) the rest is thrown away."""


class Event(IntEnum):
    """What a watch event says of a path (`org.apache.zookeeper.Watcher.Event.EventType`)."""

    CREATED = 1
    DELETED = 2
    CHANGED = 3
    CHILDREN = 4
    """One-shot watches only: a recursive watch tells of each child by itself."""


_EVENTS = {event.value: event for event in Event}


class Request:
    """One question of ZooKeeper's protocol, which may leave a one-shot `watch`. kazoo is not told of it: whoever hears, hears it too."""

    __slots__ = ("path", "watch")
    type: ClassVar[int]

    def __init__(self, path: str, watch: bool) -> None:
        self.path = path
        self.watch = watch

    def serialize(self) -> bytes:
        return bytes(serialization.write_string(self.path)) + bytes([self.watch])


class GetData(Request):
    """Answered with (data, Stat)."""

    __slots__ = ()
    type = serialization.GetData.type
    deserialize = serialization.GetData.deserialize


class GetChildren(Request):
    """Answered with names, and how many there are in all: more, where there are too many to be read."""

    __slots__ = ()
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

    __slots__ = ()
    type = serialization.Exists.type
    deserialize = serialization.Exists.deserialize


class Sync(Request):
    """Answered when this server has caught up with the ensemble's leader. Leaves no transaction."""

    __slots__ = ()
    type = serialization.Sync.type
    deserialize = serialization.Sync.deserialize

    def serialize(self) -> bytes:
        return bytes(serialization.write_string(self.path))


class _OfWatches(Request):
    """About what is heard of a path, in one `number`: the mode, or which kind of watches. That there is an answer says it all."""

    __slots__ = ()
    number: ClassVar[int]

    def serialize(self) -> bytes:
        return bytes(serialization.write_string(self.path) + serialization.int_struct.pack(self.number))

    @staticmethod
    def deserialize(_buffer: bytes, _offset: int) -> None:
        """Nothing is in it."""


class AddWatch(_OfWatches):
    """Watch a path, which need not exist, and everything below it, for as long as the connection lasts.

    Servers before 3.6 answer `UnimplementedError` and close the connection.
    """

    __slots__ = ()
    type = 106
    number = _PERSISTENT_RECURSIVE


class RemoveWatches(_OfWatches):
    """End what `AddWatch` began at this path."""

    __slots__ = ()
    type = 18
    number = _ANY_WATCH


Answered = Callable[[Any, Exception | None], None]
"""Called once with a result or an error, as `Heard` is."""
Heard = Callable[[Event, str], None]
"""Called in kazoo's connection thread with an event and its path, below the chroot. May only enqueue."""


def ask_beside(client: KazooClient, request: type[Request], answered: Answered) -> bool:
    """Send a question about the parent of the client's chroot, without waiting. False: there is none."""
    if not client.chroot:
        return False
    client._call(request(client.chroot.rpartition("/")[0] or "/", False), _Answer(answered))  # noqa: SLF001  see the module
    return True


def ask(client: KazooClient, request: type[Request], path: str, answered: Answered, *, watch: bool = False) -> None:
    """Send a question without waiting."""
    client._call(request(_prefix_root(client.chroot, path), watch), _Answer(answered))  # noqa: SLF001  see the module


def hear(client: KazooClient, heard: Heard) -> None:
    """Have `heard` told every watch event of `client`, which is not started yet."""
    old = client._connection  # noqa: SLF001  see the module
    client._connection = _Connection(heard, client, old.retry_sleeper, old.logger, old.sasl_options)  # noqa: SLF001


class _Answer:
    """What kazoo takes for its `AsyncResult`."""

    __slots__ = ("_answered",)

    def __init__(self, answered: Answered) -> None:
        self._answered: Answered | None = answered

    def set(self, result: Any) -> None:
        self._tell(result, None)

    def set_exception(self, error: Exception) -> None:
        self._tell(None, error)

    def _tell(self, result: Any, error: Exception | None) -> None:
        answered, self._answered = self._answered, None  # a client that is being closed says so twice
        if answered is not None:
            answered(result, error)


class _Connection(ConnectionHandler):  # type: ignore[misc]  # kazoo is untyped
    """Reads what has come at once, where kazoo asks the system four times for each answer and each event."""

    def __init__(self, heard: Heard, *of_kazoo: Any) -> None:
        super().__init__(*of_kazoo)
        self._heard = heard
        self._unread = bytearray()

    def _connect(self, *where: Any) -> Any:
        self._unread.clear()
        return super()._connect(*where)

    def _read_socket(self, read_timeout: float) -> Any:
        """All that is here whole: what is left in the buffer, nobody would be told of."""
        ended = super()._read_socket(read_timeout)
        while ended is None and self._has_whole_message():
            ended = super()._read_socket(read_timeout)
        return ended

    def _has_whole_message(self) -> bool:
        return (
            len(self._unread) >= _LENGTH.size
            and len(self._unread) - _LENGTH.size >= _LENGTH.unpack_from(self._unread)[0]
        )

    def _read(self, length: int, timeout: float) -> bytes:
        if length < 0:
            raise ConnectionDropped(f"a message of {length} bytes")
        kept = min(length, _MOST_BYTES)
        with self._socket_error_handling():
            while len(self._unread) < kept:
                self._read_more(timeout)
            data = bytes(self._unread[:kept])
            del self._unread[:kept]
            left = length - kept
            while left > len(self._unread):
                left -= len(self._unread)
                self._unread.clear()
                self._read_more(timeout)
            del self._unread[:left]
        return data

    def _read_more(self, timeout: float) -> None:
        if not self.handler.select([self._socket], [], [], timeout)[0]:
            raise self.handler.timeout_exception("socket time-out during read")
        try:
            data = self._socket.recv(_AT_ONCE)
        except (ssl.SSLWantReadError, ssl.SSLWantWriteError):
            return
        if not data:
            raise ConnectionDropped("socket connection broken")
        self._unread += data

    def _read_watch_event(self, buffer: bytes, offset: int) -> None:
        watch, _ = serialization.Watch.deserialize(buffer, offset)
        event = _EVENTS.get(watch.type)
        if event is not None:
            self._heard(event, self.client.unchroot(watch.path))
