"""Asks one server of an ensemble what it is, and which session timeout it grants: facts of `ha check`."""

import re
import socket
import struct
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Final

from kazoo.hosts import collect_hosts
from kazoo.protocol.serialization import Close, Connect

from sidecar.core.ha.finding import Unknown
from sidecar.core.ha.zookeeper_checks import Mode, Server, ServerReport
from sidecar.core.sanitize import clean
from sidecar.drivers.zookeeper.security import Security

_SECONDS: Final = 4.0
"""The time for a connection to a server, and for its answer."""
_MOST_BYTES: Final = 16 << 10
"""The most bytes of a report."""
_MOST_GRANTED_BYTES: Final = 64
"""The most bytes of the answer to a request for a session, which has 37."""
_PASSWORD_BYTES: Final = 16
_LONGEST_SESSION: Final = (1 << 31) - 1
"""Milliseconds: ZooKeeper's protocol has no longer one."""
_REPORT: Final = {
    "mode": re.compile(r"^Mode: (leader|follower|observer|standalone)$", re.MULTILINE),
    "latency": re.compile(r"^Latency min/avg/max: [0-9.]+/([0-9]{1,10}(?:\.[0-9]{1,10})?)/[0-9.]+$", re.MULTILINE),
    "outstanding": re.compile(r"^Outstanding: ([0-9]{1,10})$", re.MULTILINE),
}
_VERSION: Final = re.compile(r"^Zookeeper version: ([\w.-]{1,40})", re.MULTILINE)
_LENGTH: Final = struct.Struct("!i")
_REQUEST: Final = struct.Struct("!ii")


def read_servers(
    addresses: list[str], requested: float, security: Security, seconds: float, stopped: Callable[[], bool]
) -> Iterator[Server]:
    """The servers of a connection string, none of which is asked after `seconds`. `requested`: the session timeout, in seconds."""
    deadline = time.monotonic() + seconds
    for address in addresses:
        if stopped() or time.monotonic() > deadline:
            reason = Unknown("the sidecar ends" if stopped() else f"it was not asked: {seconds:g} s are over")
            yield Server(address, reason, reason, asked=False)
        else:
            yield Server(address, _granted(address, requested, security), _report(address, security))


def _granted(address: str, requested: float, security: Security) -> float | Unknown:
    """The session timeout that a server grants, in seconds. The session is closed again."""
    asked = Connect(0, 0, min(round(requested * 1000), _LONGEST_SESSION), 0, b"\0" * 16, False).serialize()
    try:
        with _connected(address, security) as connection:
            connection.sendall(_LENGTH.pack(len(asked)) + asked)
            answer = _exactly(connection, _LENGTH.unpack(_exactly(connection, _LENGTH.size))[0])
            granted, _ = Connect.deserialize(answer, 0)
            if len(granted.passwd or b"") != _PASSWORD_BYTES:
                return Unknown(_OTHER_PROTOCOL)
            connection.sendall(_LENGTH.pack(_REQUEST.size) + _REQUEST.pack(1, Close.type))
            with suppress(OSError):  # so that the server reads the request before the connection ends
                connection.recv(_LENGTH.size)
    except struct.error:
        return Unknown(_OTHER_PROTOCOL)
    except OSError as error:
        return Unknown(_reason(error))
    return granted.time_out / 1000 if granted.time_out > 0 else Unknown("it refuses sessions now")


_OTHER_PROTOCOL: Final = "it does not speak ZooKeeper's protocol"


def _report(address: str, security: Security) -> ServerReport | Unknown:
    try:
        with _connected(address, security) as connection:
            connection.sendall(b"srvr")
            text = b"".join(_rest(connection)).decode(errors="replace")
    except OSError as error:
        return Unknown(f"{address}: {_reason(error)}")
    values = {name: match[1] for name, pattern in _REPORT.items() if (match := pattern.search(text))}
    if values.keys() != _REPORT.keys():
        answer = clean(" ".join(text.split()), 100) or "no answer"
        return Unknown(f"{address} does not answer srvr: {answer}")
    version = _VERSION.search(text)
    return ServerReport(
        Mode(values["mode"]), float(values["latency"]), int(values["outstanding"]), version[1] if version else ""
    )


def _connected(address: str, security: Security) -> socket.socket:
    """Raises OSError."""
    host, port = collect_hosts(address)[0][0]
    connection = security.connect((host, port), host, _SECONDS)
    connection.settimeout(_SECONDS)
    return connection


def _exactly(connection: socket.socket, count: int) -> bytes:
    """The next `count` bytes. Raises OSError."""
    if not 0 < count <= _MOST_GRANTED_BYTES:
        raise OSError(_OTHER_PROTOCOL)
    content, deadline = b"", time.monotonic() + _SECONDS
    while len(content) < count:
        if time.monotonic() > deadline:
            raise TimeoutError(f"it has not answered in {_SECONDS:g} s")
        part = connection.recv(count - len(content))
        if not part:
            raise OSError("it closed the connection")
        content += part
    return content


def _rest(connection: socket.socket) -> Iterator[bytes]:
    """The bytes that the server sends until it closes the connection, up to a limit of bytes and time. Raises OSError."""
    deadline, count = time.monotonic() + _SECONDS, 0
    while count < _MOST_BYTES and time.monotonic() < deadline and (part := connection.recv(4096)):
        count += len(part)
        yield part


def _reason(error: OSError) -> str:
    if isinstance(error, TimeoutError):
        return f"it has not answered in {_SECONDS:g} s"
    return clean(error.strerror or str(error) or type(error).__name__)
