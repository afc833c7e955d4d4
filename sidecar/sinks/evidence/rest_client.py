"""Asks a REST server of Flink for JSON: no proxy, no redirect, nothing that takes longer or is larger than it may be.

Whoever may write where leaders are published chooses the address: it is not asked where a JobManager cannot be.
"""

import json
import re
import socket
import ssl
import threading
import time
from collections.abc import Mapping
from contextlib import suppress
from http.client import HTTPConnection, HTTPException, IncompleteRead
from ipaddress import IPv6Address, ip_address, ip_network
from queue import Empty, Queue
from typing import Any, Final

from sidecar.core.sanitize import clean
from sidecar.sinks.evidence.evidence_files import FAILED, REFUSED, NotCapturedError

MOST_BYTES: Final = 2 << 20
"""Of an answer. As JSON it takes up to thirty times as much memory."""

_SECONDS: Final = 5.0
"""For one request, from the first byte to the last."""
_RETRY_SECONDS: Final = 0.25
_ADDRESS: Final = re.compile(r"(https?)://([A-Za-z0-9_-][A-Za-z0-9._-]{0,252}|\[[0-9A-Fa-f:.]{2,45}\]):([0-9]{1,5})/?")
_WEB_PORTS: Final = frozenset({80, 443})
"""The only ones below 1024 that are asked: no other service there speaks HTTP, and a JobManager takes root to listen there."""
_METADATA: Final = tuple(
    map(ip_network, ("100.100.100.200/32", "168.63.129.16/32", "fd00:ec2::/32", "fd20:ce::254/128"))
)
"""Where clouds tell a machine its credentials, outside of the link-local networks."""
_NAT64: Final = ip_network("64:ff9b::/96")
_ELECTING: Final = frozenset({500, 502, 503, 504})
"""What is answered while a leader is elected, or while the JobMaster of a job begins."""
_CLASS: Final = re.compile(r"(?:[\w$]+\.)+[\w$]+: ")
_NO_REASON: Final = ("Internal server error.", "<Exception on server side:")


class RestClient:
    """One server. `patience` seconds long, what passes (nobody there, an election) is tried again; after `seconds` it is asked nothing."""

    def __init__(self, address: str, tls: Mapping[str, str | None] | None, seconds: float, patience: float) -> None:
        """`tls`: the fields of `TlsSettings`. Raises NotCapturedError where the address is none of a REST server."""
        match = _ADDRESS.fullmatch(address)
        if match is None or not 0 < int(match[3]) < 65536:
            raise NotCapturedError(FAILED, f"this is no address of a REST server: {clean(address, 100)}")
        self._host, self._port = match[2].strip("[]"), int(match[3])
        self._tls = _context(tls or {}) if match[1] == "https" else None
        if self._port < 1024 and self._port not in _WEB_PORTS:
            raise NotCapturedError(
                REFUSED, f"no REST server is asked on port {self._port}: below 1024 on 80 and 443 alone"
            )
        self._end = time.monotonic() + seconds
        self._patient_until = time.monotonic() + patience
        self._problem: str | None = None
        """Why it was last asked in vain."""

    @property
    def is_patient(self) -> bool:
        """Whether what passes is still waited for."""
        return time.monotonic() + _RETRY_SECONDS < min(self._patient_until, self._end)

    @property
    def is_out_of_time(self) -> bool:
        """Whether it is asked nothing any more."""
        return time.monotonic() >= self._end

    def pause(self) -> None:
        """Until it is worth to ask again."""
        time.sleep(_RETRY_SECONDS)

    def get(self, path: str) -> tuple[int, dict[str, Any]]:
        """The status, 200 or 404, and the JSON object. Raises NotCapturedError: how everything else went."""
        while True:
            try:
                status, content = self._get(path)
                if status in {200, 404}:
                    self._problem = None
                    return status, _object(content, status)
                problem = f"answers with status {status}: {reason(_object(content, status))}"
                if status not in _ELECTING:
                    raise NotCapturedError(FAILED, f"Flink's REST server {problem}")
            except ConnectionRefusedError:
                problem = "cannot be reached: connection refused"
            except (TimeoutError, _TooLateError):
                # Out of time, what it did while there was time says more.
                problem = (self._problem if self.is_out_of_time else None) or "has not answered in time"
                raise NotCapturedError(FAILED, f"Flink's REST server {problem}") from None
            except (OSError, HTTPException, UnicodeError) as error:
                said = error.strerror if isinstance(error, OSError) and error.strerror else type(error).__name__
                raise NotCapturedError(FAILED, f"Flink's REST server cannot be asked: {clean(said, 200)}") from error
            self._problem = problem
            if not self.is_patient:
                raise NotCapturedError(FAILED, f"Flink's REST server {problem}")
            self.pause()

    def _get(self, path: str) -> tuple[int, bytes]:
        """Raises OSError, HTTPException, _TooLateError."""
        seconds = min(_SECONDS, self._end - time.monotonic())
        if seconds <= 0:
            raise _TooLateError
        connection = HTTPConnection(self._host, self._port)
        raw = _connected(self._host, self._port, seconds)
        limit = _Limit(raw, seconds)
        try:
            connection.sock = self._tls.wrap_socket(raw, server_hostname=self._host) if self._tls else raw
            connection.request("GET", path, headers={"Accept": "application/json", "Connection": "close"})
            response = connection.getresponse()
            content = response.read(MOST_BYTES + 1)
            if limit.reached:  # what was read until then looks as if it were all
                raise _TooLateError
            if len(content) > MOST_BYTES:
                raise NotCapturedError(FAILED, f"Flink's REST server answers with more than {MOST_BYTES >> 20} MiB")
            if response.length:  # `read` of a number of bytes does not mind
                raise IncompleteRead(content, response.length)
        except (OSError, HTTPException) as error:
            if limit.reached:
                raise _TooLateError from error
            raise
        else:
            return response.status, content
        finally:
            limit.lift()
            connection.close()
            raw.close()


def reason(answer: Mapping[str, Any]) -> str:
    """Flink's own explanation in one line, without its stack trace."""
    errors = answer.get("errors")
    lines = [line for text in errors for line in str(text)[:10_000].splitlines()] if isinstance(errors, list) else []
    said = next((line for line in lines if line.strip() and line.strip() not in _NO_REASON), "no reason given")
    return clean(_CLASS.sub("", said.strip(), count=1), 200)


class _TooLateError(Exception):
    """There was no answer within the limit."""


def _connected(host: str, port: int, seconds: float) -> socket.socket:
    """However many addresses it has, and however slowly its name is resolved. Raises OSError, UnicodeError."""
    deadline = time.monotonic() + seconds
    found: Queue[list[Any] | Exception] = Queue()

    def resolve() -> None:
        try:
            found.put(socket.getaddrinfo(host, port, type=socket.SOCK_STREAM))
        except (OSError, UnicodeError) as error:
            found.put(error)

    threading.Thread(target=resolve, daemon=True).start()  # nothing else bounds it
    try:
        addresses = found.get(timeout=seconds)
    except Empty:
        raise TimeoutError from None
    if isinstance(addresses, Exception):
        raise addresses
    for *_, address in addresses:
        if not _is_plausible(address[0]):
            raise NotCapturedError(
                REFUSED,
                f"no JobManager has the address {clean(address[0], 60)} (link-local, of a cloud's metadata, or of no machine)",
            )
    problem: OSError = TimeoutError()
    for family, kind, protocol, _, address in addresses:
        connection = socket.socket(family, kind, protocol)
        try:
            connection.settimeout(max(deadline - time.monotonic(), 0.001))
            connection.connect(address)
        except OSError as error:
            connection.close()
            problem = error
        else:
            return connection
    raise problem


def _is_plausible(host: str) -> bool:
    """Whether a JobManager may be at this address. It is the resolved one that is connected to: a name cannot change meanwhile."""
    address = ip_address(host.partition("%")[0])
    if isinstance(address, IPv6Address):
        if address.ipv4_mapped is not None:
            address = address.ipv4_mapped
        elif address in _NAT64:
            address = ip_address(int(address) & 0xFFFFFFFF)
    nowhere = address.is_link_local or address.is_multicast or address.is_unspecified
    return not nowhere and not any(address in network for network in _METADATA)


class _Limit:
    """Cuts a connection after so many seconds: a server that sends a byte now and then would hold us for ever."""

    def __init__(self, connection: socket.socket, seconds: float) -> None:
        self.reached = False
        # A number of its own for the same connection: what TLS does with the other one is not waited for.
        self._connection = connection.dup()
        self._timer = threading.Timer(seconds, self._cut)
        self._timer.daemon = True
        self._timer.start()

    def _cut(self) -> None:
        self.reached = True
        with suppress(OSError):
            self._connection.shutdown(socket.SHUT_RDWR)

    def lift(self) -> None:
        self._timer.cancel()
        self._timer.join()
        self._connection.close()


def _object(content: bytes, status: int) -> dict[str, Any]:
    try:
        answer = json.loads(content)
    except (ValueError, RecursionError):
        answer = None
    if not isinstance(answer, dict):
        raise NotCapturedError(
            FAILED, f"this is no REST server of Flink: it answers with status {status} and no JSON object"
        )
    return answer


def _context(tls: Mapping[str, str | None]) -> ssl.SSLContext:
    """As `sidecar.settings.TlsSettings.context`. Raises NotCapturedError."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    file = tls.get("ca_file")
    try:
        if file is None:
            context.load_default_certs()
        else:
            context.load_verify_locations(file)
        if certificate := tls.get("certificate_file"):
            file = certificate
            # Without a password OpenSSL would ask the terminal for it, and wait.
            context.load_cert_chain(certificate, tls.get("key_file") or certificate, tls.get("key_password") or "")
    except (OSError, ValueError) as error:
        raise NotCapturedError(FAILED, f"the TLS file {clean(file, 300)} cannot be used") from error
    return context
