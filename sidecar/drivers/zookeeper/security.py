"""TLS, SASL and authorization for kazoo, and why a secured connection failed.

kazoo reports most failures as "broken" or "time-out", trusts the system's CAs in addition to the configured one, and sends a server
without SASL thousands of requests a second.
"""

import errno
import os
import re
import socket
import ssl
import time
from collections.abc import Mapping
from contextlib import suppress
from typing import Any, Final

from msgspec import Struct
from puresasl import SASLProtocolException, mechanisms

from sidecar.settings import SaslSettings, Secret, TlsSettings

Address = tuple[str, int]

_PROBE_SECONDS = 1.5
_ALERT_SECONDS = 0.5
_MAX_ANSWER = 4096

_AUTH_FAILED = "AUTH_FAILED closing: "
_NO_SASL = "protocol error"
_DROPPED = "Connection dropped in SASL"
_BROKEN: Final = frozenset({"socket connection broken", os.strerror(errno.ECONNRESET), os.strerror(errno.EPIPE)})

_ALERT = re.compile(r"\[SSL: \w*?ALERT_(\w+)\]")
_ABOUT_OUR_CERTIFICATE = re.compile(r"\w*CERTIFICATE\w*|UNKNOWN_CA|ACCESS_DENIED")
_NO_TLS = re.compile(r"WRONG_VERSION_NUMBER|RECORD_LAYER_FAILURE|PACKET_LENGTH_TOO_LONG|HTTP")

# OpenSSL's X509_V_ERR_…: unknown issuer (2, 20, 21), self-signed (18, 19); not yet valid (9), expired (10); host mismatch (62, 64).
_UNKNOWN_ISSUER = frozenset({2, 18, 19, 20, 21})
_NOT_YET, _EXPIRED = 9, 10
_ANOTHER_HOST = frozenset({62, 64})


class Security(Struct, frozen=True):
    """The security of one connection; by default there is none."""

    tls: TlsSettings | None = None
    sasl: SaslSettings | None = None
    authorization: Mapping[str, Secret] = {}

    def client_options(self) -> dict[str, Any]:
        """Arguments of `KazooClient`. For TLS see `connect`."""
        auth_data = [(scheme, text.reveal()) for scheme, text in self.authorization.items()]
        options: dict[str, Any] = {"auth_data": auth_data}
        if self.sasl:
            username, password = self.sasl.username, self.sasl.password.reveal()
            options["sasl_options"] = {"mechanism": _DigestMD5.name, "username": username, "password": password}
        return options

    def connect(self, address: Address, host: str, timeout: float) -> socket.socket:
        """A connection to `address`; with `tls` encrypted, and the server verified as `host`. `timeout` in seconds.

        Raises OSError with a readable `strerror`.
        """
        deadline = time.monotonic() + timeout
        context = self._context()
        try:
            connection = socket.create_connection(address, timeout)
        except TimeoutError as error:
            raise TimeoutError(errno.ETIMEDOUT, "no answer") from error
        try:
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            if context is None:
                return connection
            connection.settimeout(max(deadline - time.monotonic(), 0.01))
            return context.wrap_socket(connection, server_hostname=host)
        except OSError as error:
            connection.close()
            raise self._no_handshake(error, address, host) from error

    def explain(self, reason: str, address: Address, host: str) -> str:
        """Why a connection broke before it was served; kazoo logged `reason`. Connects again to find out, for a few seconds."""
        if reason.startswith(_AUTH_FAILED):
            return self._not_authenticated(reason.removeprefix(_AUTH_FAILED))
        if alert := _ALERT.search(reason):
            return self._alert(alert[1])
        if reason not in _BROKEN:
            return reason
        explanation = self._ask_again(address, host) if self.tls else _expects_tls(address)
        return explanation or reason

    def _context(self) -> ssl.SSLContext | None:
        try:
            return self.tls.context() if self.tls else None
        except ValueError as error:
            raise OSError(errno.EINVAL, str(error)) from error

    def _no_handshake(self, error: OSError, address: Address, host: str) -> OSError:
        match error:
            case ssl.SSLCertVerificationError():
                return OSError(errno.EPROTO, self._untrusted(error, address, host))
            case TimeoutError():
                return TimeoutError(errno.ETIMEDOUT, "no answer in the TLS handshake")
            case ssl.SSLError() | ConnectionError():
                return OSError(errno.EPROTO, self._broken_off(str(error), address))
        return error

    def _untrusted(self, error: ssl.SSLCertVerificationError, address: Address, host: str) -> str:
        if error.verify_code in _UNKNOWN_ISSUER:
            ca_file = self.tls.ca_file if self.tls else None
            signer = f"the given CA ({ca_file})" if ca_file else "a CA of this system: set zookeeper.tls.ca_file"
            return f"the server's certificate is not signed by {signer}"
        if error.verify_code in _ANOTHER_HOST:
            return f"the server's certificate is for another host than {host} ({self._names(address)})"
        if error.verify_code in {_NOT_YET, _EXPIRED}:
            validity = "has expired" if error.verify_code == _EXPIRED else "is not valid yet"
            return f"the server's certificate, or that of its CA, {validity}"
        return f"the server's certificate is refused: {error.verify_message}"

    def _names(self, address: Address) -> str:
        """The names in the certificate of a server whose CA is trusted."""
        with suppress(OSError):
            if context := self._context():
                context.check_hostname = False
                with _opened(address) as connection, context.wrap_socket(connection) as secure:
                    names: Any = (secure.getpeercert() or {}).get("subjectAltName", ())
                    text = ", ".join(str(name) for _, name in names)[:200] or "it has no names"
                    return "".join(char if char.isprintable() else "?" for char in text)
        return "unknown: it did not answer again"

    def _broken_off(self, problem: str, address: Address) -> str:
        if alert := _ALERT.search(problem):
            return self._alert(alert[1])
        if _NO_TLS.search(problem) or _answer_in_plain(address):
            return "the server does not speak TLS on this port: use the secure port, or remove zookeeper.tls"
        return "the server broke off the TLS handshake: check that this is its secure port, and its TLS versions"

    def _alert(self, name: str) -> str:
        ours = self.tls.certificate_file if self.tls else None
        words = name.lower().replace("_", " ")
        if _ABOUT_OUR_CERTIFICATE.fullmatch(name):
            if ours is None:
                return "the server demands a client certificate: set zookeeper.tls.certificate_file and key_file"
            return f"the server does not accept the client certificate {ours} ({words})"
        if name == "HANDSHAKE_FAILURE" and ours is None:
            return f"the server refuses the TLS handshake ({words}): it may demand a client certificate"
        return f"the server refuses the TLS handshake ({words})"

    def _not_authenticated(self, detail: str) -> str:
        if detail == _NO_SASL:
            return "authentication failed: the server has no SASL DIGEST-MD5: remove zookeeper.sasl, or enable it there"
        if detail == _DROPPED:
            return "authentication failed: the server disconnected: check the user and password of zookeeper.sasl"
        ours = ["the user or password of zookeeper.sasl"] if self.sasl else []
        ours += [f"zookeeper.authorization.{scheme}" for scheme in self.authorization]
        return f"authentication failed: the server does not accept {' or '.join(ours)}"

    def _ask_again(self, address: Address, host: str) -> str | None:
        """A TLS 1.3 server demands a client certificate only after the handshake, and only if the client does not write meanwhile."""
        try:
            with self.connect(address, host, _PROBE_SECONDS) as connection:
                connection.settimeout(_ALERT_SECONDS)
                with suppress(TimeoutError):
                    connection.recv(1)
                connection.settimeout(_PROBE_SECONDS)
                connection.sendall(b"srvr\n")
                return _not_serving(_read(connection))
        except OSError as error:
            if alert := _ALERT.search(str(error)):
                return self._alert(alert[1])
            return error.strerror if error.errno == errno.EPROTO else None  # what `connect` makes of it


PLAIN: Final = Security()


def _expects_tls(address: Address) -> str | None:
    if answer := _answer_in_plain(address):
        return _not_serving(answer)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE  # nothing is sent to it
    try:
        with _opened(address) as connection, context.wrap_socket(connection):
            pass
    except OSError as error:
        if not _ALERT.search(str(error)):
            return None
    return "the server expects TLS on this port: set zookeeper.tls, or use the plain port"


def _not_serving(answer: bytes) -> str | None:
    serves = b"not currently serving" not in answer
    return None if serves else "the server does not serve requests: check that the ensemble has a quorum"


def _answer_in_plain(address: Address) -> bytes:
    """The answer of a server without TLS to a four-letter word, even if that is not allowed."""
    with suppress(OSError), _opened(address) as connection:
        connection.sendall(b"srvr\n")  # Netty needs five bytes to detect that they are not TLS
        answer = _read(connection)
        return answer if answer[:1].isalpha() else b""
    return b""


def _read(connection: socket.socket) -> bytes:
    answer, deadline = b"", time.monotonic() + _PROBE_SECONDS
    with suppress(OSError):
        while len(answer) < _MAX_ANSWER and time.monotonic() < deadline and (part := connection.recv(_MAX_ANSWER)):
            answer += part
    return answer


def _opened(address: Address) -> socket.socket:
    return socket.create_connection(address, _PROBE_SECONDS)


class _DigestMD5(mechanisms.DigestMD5Mechanism):  # type: ignore[misc]  # it ships no types
    """Fails when a server without SASL sends empty challenges, which would go on for ever."""

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self._begun = False

    def process(self, challenge: bytes | None = None) -> bytes | None:
        if self._begun and not challenge:
            raise SASLProtocolException("no challenge")
        self._begun = True
        response: bytes | None = super().process(challenge)
        return response


mechanisms.mechanisms[_DigestMD5.name] = _DigestMD5  # kazoo looks the mechanism up by its name
