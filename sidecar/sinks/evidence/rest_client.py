"""A client for Flink's REST server: JSON, without proxies or redirects, within limits of time and size.

Whoever can write to the leader paths chooses the address: addresses at which no JobManager can be are refused.
"""

import json
import re
import socket
import ssl
import threading
import time
from collections.abc import Mapping
from contextlib import closing
from http.client import HTTPConnection, HTTPException, IncompleteRead
from ipaddress import IPv6Address, ip_address, ip_network
from queue import Empty, Queue
from typing import Any, Final

from sidecar.core.sanitize import clean
from sidecar.sinks.evidence.evidence_files import FAILED, REFUSED, NotCapturedError

MOST_BYTES: Final = 2 << 20
"""Of an answer. Parsed as JSON it takes up to thirty times as much memory."""

_SECONDS: Final = 5.0
"""For one request, name resolution included."""
_RETRY_SECONDS: Final = 0.25
_ADDRESS: Final = re.compile(r"(https?)://([A-Za-z0-9_-][A-Za-z0-9._-]{0,252}|\[[0-9A-Fa-f:.]{2,45}\]):([0-9]{1,5})/?")
_WEB_PORTS: Final = frozenset({80, 443})
"""The only allowed ports below 1024: the others belong to services that do not speak HTTP."""
_METADATA: Final = tuple(
    map(ip_network, ("100.100.100.200/32", "168.63.129.16/32", "fd00:ec2::/32", "fd20:ce::254/128"))
)
"""Metadata servers of clouds, which hand out credentials, outside of the link-local networks."""
_NAT64: Final = ip_network("64:ff9b::/96")
_ELECTING: Final = frozenset({500, 502, 503, 504})
"""Status codes during a leader election, or while a job's JobMaster starts."""
_CLASS: Final = re.compile(r"(?:[\w$]+\.)+[\w$]+: ")
_NO_REASON: Final = ("Internal server error.", "<Exception on server side:")


class RestClient:
    """One server. For `patience` seconds it retries refused connections and elections; after `seconds` it sends no request."""

    def __init__(self, address: str, tls: Mapping[str, str | None] | None, seconds: float, patience: float) -> None:
        """`tls`: the fields of `TlsSettings`. Raises NotCapturedError if the address cannot be a REST server's."""
        match = _ADDRESS.fullmatch(address)
        if match is None or not 0 < int(match[3]) < 65536:
            raise NotCapturedError(FAILED, f"not the address of a REST server: {clean(address, 100)}")
        self._host, self._port = match[2].strip("[]"), int(match[3])
        self._tls = _context(tls or {}) if match[1] == "https" else None
        if self._port < 1024 and self._port not in _WEB_PORTS:
            raise NotCapturedError(REFUSED, f"port {self._port} is not allowed: below 1024 only 80 and 443 are")
        self._end = time.monotonic() + seconds
        self._patient_until = time.monotonic() + patience
        self._problem: str | None = None
        """Why the last request failed."""

    @property
    def is_patient(self) -> bool:
        """Whether temporary failures are still retried."""
        return time.monotonic() + _RETRY_SECONDS < min(self._patient_until, self._end)

    @property
    def is_out_of_time(self) -> bool:
        """Whether no request is sent any more."""
        return time.monotonic() >= self._end

    def pause(self) -> None:
        """Wait before a retry."""
        time.sleep(_RETRY_SECONDS)

    def get(self, path: str) -> tuple[int, dict[str, Any]]:
        """The status, 200 or 404, and the JSON object. Raises NotCapturedError for everything else."""
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
            except TimeoutError:
                # Once the time for all requests is over, an earlier failure explains more.
                problem = (self._problem if self.is_out_of_time else None) or "has not answered in time"
                raise NotCapturedError(FAILED, f"Flink's REST server {problem}") from None
            except (OSError, HTTPException, UnicodeError) as error:
                why = error.strerror if isinstance(error, OSError) and error.strerror else type(error).__name__
                raise NotCapturedError(
                    FAILED, f"the request to Flink's REST server failed: {clean(why, 200)}"
                ) from error
            self._problem = problem
            if not self.is_patient:
                raise NotCapturedError(FAILED, f"Flink's REST server {problem}")
            self.pause()

    def _get(self, path: str) -> tuple[int, bytes]:
        """Status and content. Raises TimeoutError, and what `_request` raises."""
        seconds = min(_SECONDS, self._end - time.monotonic())
        if seconds <= 0:
            raise TimeoutError
        answers: Queue[tuple[int, bytes] | Exception] = Queue()

        def request() -> None:
            try:
                answers.put(self._request(path, seconds))
            except Exception as error:  # noqa: BLE001  raised below, in the caller's thread
                answers.put(error)

        # In a thread, because nothing else limits the resolver, or a server that sends one byte at a time.
        # The thread may outlive the request, but not this process, which ends soon.
        threading.Thread(target=request, daemon=True).start()
        try:
            answer = answers.get(timeout=seconds)
        except Empty:
            raise TimeoutError from None
        if isinstance(answer, Exception):
            raise answer
        return answer

    def _request(self, path: str, seconds: float) -> tuple[int, bytes]:
        """Raises NotCapturedError, OSError, HTTPException, UnicodeError."""
        with closing(HTTPConnection(self._host, self._port)) as connection:
            connection.sock = _connected(self._host, self._port, seconds)
            if self._tls:
                connection.sock = self._tls.wrap_socket(connection.sock, server_hostname=self._host)
            connection.request("GET", path, headers={"Accept": "application/json", "Connection": "close"})
            response = connection.getresponse()
            content = response.read(MOST_BYTES + 1)
        if len(content) > MOST_BYTES:
            raise NotCapturedError(FAILED, f"Flink's REST server answers with more than {MOST_BYTES >> 20} MiB")
        if response.length:  # a bounded `read` does not report a truncated answer
            raise IncompleteRead(content, response.length)
        return response.status, content


def reason(answer: Mapping[str, Any]) -> str:
    """Flink's own explanation as one line, without a stack trace."""
    errors = answer.get("errors")
    lines = [line for text in errors for line in str(text)[:10_000].splitlines()] if isinstance(errors, list) else []
    first = next((line for line in map(str.strip, lines) if line and line not in _NO_REASON), "no reason given")
    return clean(_CLASS.sub("", first, count=1), 200)


def _connected(host: str, port: int, seconds: float) -> socket.socket:
    """A connection to one of the host's addresses. Raises NotCapturedError, OSError, UnicodeError."""
    addresses = [str(address[0]) for *_, address in socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)]
    for address in addresses:
        if not _is_plausible(address):
            raise NotCapturedError(
                REFUSED,
                f"no JobManager can have the address {clean(address, 60)} (link-local, cloud metadata, multicast or unspecified)",
            )
    problem: OSError = TimeoutError()
    for address in addresses:
        try:  # the checked address, not the name: the name may resolve to another one by now
            return socket.create_connection((address, port), seconds)
        except OSError as error:
            problem = error
    raise problem


def _is_plausible(host: str) -> bool:
    """Whether a JobManager can have this address."""
    address = ip_address(host.partition("%")[0])
    if isinstance(address, IPv6Address):
        if address.ipv4_mapped is not None:
            address = address.ipv4_mapped
        elif address in _NAT64:
            address = ip_address(int(address) & 0xFFFFFFFF)
    nowhere = address.is_link_local or address.is_multicast or address.is_unspecified
    return not nowhere and not any(address in network for network in _METADATA)


def _object(content: bytes, status: int) -> dict[str, Any]:
    try:
        answer = json.loads(content)
    except (ValueError, RecursionError):
        answer = None
    if not isinstance(answer, dict):
        raise NotCapturedError(FAILED, f"not Flink's REST server: it answers with status {status} and no JSON object")
    return answer


def _context(tls: Mapping[str, str | None]) -> ssl.SSLContext:
    """Like `TlsSettings.context`, which this process does not import. Raises NotCapturedError."""
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
