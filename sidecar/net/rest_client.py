"""A connection to Flink's REST server, without proxies or redirects, within limits of time and size.

Whoever can write to the leader paths chooses the address: addresses at which no JobManager can be are refused.
"""

import io
import re
import socket
import ssl
import threading
import time
from collections.abc import Callable
from http.client import HTTPException, HTTPResponse, IncompleteRead
from ipaddress import IPv6Address, ip_address, ip_network
from queue import Empty, SimpleQueue
from typing import TYPE_CHECKING, Final, cast

from sidecar.core.masking import masked
from sidecar.core.reach import Reach
from sidecar.core.sanitize import clean

if TYPE_CHECKING:
    from _typeshed import WriteableBuffer

_ADDRESS: Final = re.compile(r"(https?)://([A-Za-z0-9_-][A-Za-z0-9._-]{0,252}|\[[0-9A-Fa-f:.]{2,45}\]):([0-9]{1,5})/?")
_WEB_PORTS: Final = frozenset({80, 443})
"""The only allowed ports below 1024: the others belong to services that do not speak HTTP."""
_METADATA: Final = tuple(
    map(ip_network, ("100.100.100.200/32", "168.63.129.16/32", "fd00:ec2::/32", "fd20:ce::254/128"))
)
"""Metadata servers of clouds, which hand out credentials, outside of the link-local networks."""
_CLASS: Final = re.compile(r"(?:[\w$]+\.)+[\w$]+: ")
_NO_REASON: Final = ("Internal server error.", "<Exception on server side:")
_OFF: Final = re.compile(r"Checkpointing (?:is|was|has) not (?:been )?enabled")
_NAT64: Final = ip_network("64:ff9b::/96")
_CLOSED: Final = (ssl.SSLEOFError, ssl.SSLZeroReturnError)
"""The connection ended within the handshake: Python 3.11.2 raises the second one."""


class RestError(Exception):
    """Why a request was not answered: one line for operators."""


class NotListeningError(RestError):
    """The connection was refused: nobody listens there (yet)."""


class TooSlowError(RestError):
    """The answer was not there in time."""


class RefusedAddressError(RestError):
    """No JobManager can have this address: nothing was sent."""


class RestConnection:
    """Connects at the first request, and again after a failed one. Used by one thread."""

    def __init__(self, address: str, tls: Callable[[], ssl.SSLContext]) -> None:
        """`tls` makes the context of each connection to an `https` address; it may raise RestError. Raises RestError if `address` cannot
        be a REST server's.
        """
        match = _ADDRESS.fullmatch(address)
        if match is None or not 0 < int(match[3]) < 65536:
            raise RestError(f"not the address of a REST server: {clean(address, 100)}")
        self._host, self._port = match[2].strip("[]"), int(match[3])
        self._authority = f"{match[2]}:{match[3]}"
        self._tls = tls if match[1] == "https" else None
        if self._port < 1024 and self._port not in _WEB_PORTS:
            raise RefusedAddressError(f"port {self._port} is not allowed: below 1024 only 80 and 443 are")
        self._stream: _Stream | None = None
        self.reach: Reach | None = None
        """The reach of the last request. None: nothing was sent."""

    @property
    def is_open(self) -> bool:
        """True if the next request is sent over a connection that exists, as far as is known."""
        return self._stream is not None

    def close(self) -> None:
        if self._stream:
            self._stream.socket.close()
            self._stream = None

    def get(self, path: str, seconds: float, most_bytes: int) -> tuple[int, bytes]:
        """Status and content. Raises RestError, at the latest after `seconds`, name resolution included."""
        try:
            return self._get(path, time.monotonic() + seconds, most_bytes)
        except ConnectionRefusedError as error:
            raise NotListeningError("Flink's REST server cannot be reached: connection refused") from error
        except TimeoutError as error:
            raise TooSlowError("Flink's REST server has not answered in time") from error
        except (OSError, HTTPException, ValueError) as error:  # ValueError: UnicodeError and those of http.client
            why = error.strerror if isinstance(error, OSError) and error.strerror else type(error).__name__
            raise RestError(f"the request to Flink's REST server failed: {clean(why, 200)}") from error

    def _get(self, path: str, deadline: float, most_bytes: int) -> tuple[int, bytes]:
        """Raises RestError, OSError, HTTPException, ValueError."""
        stream, self._stream = self._stream, None  # it stays closed unless all goes well
        self.reach = Reach.SILENT if stream else None
        stream = stream or self._connect(deadline)
        try:
            stream.deadline = deadline
            stream.sendall(
                f"GET {path} HTTP/1.1\r\nHost: {self._authority}\r\nAccept: application/json\r\n\r\n".encode()
            )
            with HTTPResponse(cast("socket.socket", stream), method="GET") as response:
                response.begin()
                self.reach = Reach.ANSWERS
                content = response.read(most_bytes + 1)
                if len(content) > most_bytes:
                    raise RestError(f"Flink's REST server answers with more than {_size(most_bytes)}")
                if response.length:  # a bounded `read` does not report a truncated answer
                    raise IncompleteRead(content, response.length)
                if response.length == 0 and not response.will_close:
                    self._stream = stream
            return response.status, content
        finally:
            if self._stream is None:
                stream.socket.close()

    def _connect(self, deadline: float) -> "_Stream":
        context = self._tls() if self._tls else None
        self.reach = Reach.UNREACHABLE
        try:
            plain = _connected(self._host, self._port, deadline)
        except RefusedAddressError:
            self.reach = None
            raise
        except ConnectionResetError:  # where nobody listens it is refused
            self.reach = Reach.SILENT
            raise
        self.reach = Reach.SILENT
        if context is None:
            return _Stream(plain, deadline)
        try:
            plain.settimeout(_seconds_left(deadline))
            return _Stream(context.wrap_socket(plain, server_hostname=self._host), deadline)
        except BaseException as error:
            plain.close()
            if isinstance(error, ssl.SSLError) and not isinstance(error, _CLOSED):
                self.reach = Reach.ANSWERS  # in the language of TLS
            raise


class _Stream:
    """The part of a socket that `HTTPResponse` uses: each call ends at the deadline, however slowly the server sends."""

    def __init__(self, connected: socket.socket, deadline: float) -> None:
        self.socket = connected
        self.deadline = deadline

    def sendall(self, data: bytes) -> None:
        self.socket.settimeout(_seconds_left(self.deadline))
        self.socket.sendall(data)

    def makefile(self, _mode: str) -> io.BufferedReader:
        return io.BufferedReader(_Reader(self))


class _Reader(io.RawIOBase):
    def __init__(self, stream: _Stream) -> None:
        self._stream = stream

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: "WriteableBuffer") -> int:
        self._stream.socket.settimeout(_seconds_left(self._stream.deadline))
        return self._stream.socket.recv_into(buffer)


def reason(errors: object) -> str:
    """Flink's own explanation, the field `errors` of its answer, as one line without a stack trace."""
    lines = [line for text in errors for line in str(text)[:10_000].splitlines()] if isinstance(errors, list) else []
    first = next((line for line in map(str.strip, lines) if line and line not in _NO_REASON), "no reason given")
    return clean(masked(_CLASS.sub("", first, count=1)), 200)


def _size(size: int) -> str:
    return f"{size >> 20} MiB" if size >> 20 else f"{size >> 10} KiB"


def is_off(why: str) -> bool:
    """True if Flink refuses to speak of a job's checkpoints because it takes none: with other words in each of its handlers."""
    return _OFF.search(why) is not None


def _seconds_left(deadline: float) -> float:
    """Raises TimeoutError."""
    if (seconds := deadline - time.monotonic()) <= 0:
        raise TimeoutError
    return seconds


def _connected(host: str, port: int, deadline: float) -> socket.socket:
    """A connection to one of the host's addresses. Raises RestError, OSError, UnicodeError."""
    addresses = _resolved(host, port, deadline)
    for address in addresses:
        if not _is_plausible(address):
            raise RefusedAddressError(
                f"no JobManager can have the address {clean(address, 60)} (link-local, cloud metadata, multicast or unspecified)"
            )
    problem: OSError = TimeoutError()
    for address in addresses:
        try:  # the checked address, not the name: the name may resolve to another one by now
            return socket.create_connection((address, port), _seconds_left(deadline))
        except OSError as error:
            problem = error
    raise problem


def _resolved(host: str, port: int, deadline: float) -> list[str]:
    """The host's addresses. Raises OSError, UnicodeError."""
    answers: SimpleQueue[list[str] | Exception] = SimpleQueue()

    def resolve() -> None:
        try:
            answers.put([str(address[0]) for *_, address in socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)])
        except Exception as error:  # noqa: BLE001  raised below, in the caller's thread
            answers.put(error)

    # In a thread, because nothing else limits the resolver. It may outlive the request by what resolv.conf allows.
    threading.Thread(target=resolve, name="resolver", daemon=True).start()
    try:
        answer = answers.get(timeout=_seconds_left(deadline))
    except Empty:
        raise TimeoutError from None
    if isinstance(answer, Exception):
        raise answer
    return answer


def _is_plausible(host: str) -> bool:
    """True if a JobManager can have this address."""
    address = ip_address(host.partition("%")[0])
    if isinstance(address, IPv6Address):
        if address.ipv4_mapped is not None:
            address = address.ipv4_mapped
        elif address in _NAT64:
            address = ip_address(int(address) & 0xFFFFFFFF)
    nowhere = address.is_link_local or address.is_multicast or address.is_unspecified
    return not nowhere and not any(address in network for network in _METADATA)
