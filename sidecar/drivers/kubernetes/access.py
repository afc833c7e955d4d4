"""The address of the API server, the credentials for it, and the one exception that requests to it raise."""

import os
import ssl
import threading
import time
from collections.abc import Mapping
from http import HTTPStatus
from pathlib import Path
from typing import Final

from msgspec import Struct, json

from sidecar.core.bounds import KUBECONFIG_READER
from sidecar.net.retry_after import asked_wait
from sidecar.net.tls import client_context
from sidecar.runtime.child import Child, NoAnswerError
from sidecar.settings.file.setting import secret_variables

_LONGEST_WAIT: Final = 60.0
_THROTTLED_WAIT: Final = 1.0
"""The wait in seconds that API Priority and Fairness asks for."""


class ApiError(Exception):
    """The API server is unreachable or refused a request: one line, free of secrets.

    `status` is the HTTP status of the answer, None if there was none.
    """

    def __init__(self, line: str, status: int | None = None, retry_after: float = 0.0) -> None:
        """`retry_after`: how many seconds the API server asks to wait."""
        super().__init__(line)
        self.status = status
        self.retry_after = retry_after

    @property
    def refused(self) -> bool:
        """True if the API server can be reached and does not allow the request, as far as is known."""
        return self.status in {HTTPStatus.UNAUTHORIZED, HTTPStatus.FORBIDDEN}

    @property
    def throttled(self) -> bool:
        """True if the API server has too much to do for us now (API Priority and Fairness)."""
        return self.status == HTTPStatus.TOO_MANY_REQUESTS


class AccessError(ApiError):
    """The credentials with which to ask the API server are missing."""

    @property
    def refused(self) -> bool:
        return True


class TooLargeError(ApiError):
    """An answer is larger than it may be."""


def wait_after(status: int, headers: Mapping[str, str]) -> float:
    """The seconds to wait after an answer, as it asks, within bounds."""
    seconds = min(asked_wait(headers) or 0.0, _LONGEST_WAIT)
    return max(seconds, _THROTTLED_WAIT) if status == HTTPStatus.TOO_MANY_REQUESTS else seconds


SERVICE_ACCOUNT: Final = Path("/var/run/secrets/kubernetes.io/serviceaccount")
"""The folder of `token` and `ca.crt` in every pod."""

_KUBECONFIG_SECONDS: Final = 30.0
"""A kubeconfig may name a program that requests a token from a remote server."""
_READ_AGAIN_SECONDS: Final = 5.0


class Credentials(Struct, frozen=True):
    """The address of an API server, and the credentials for it. Texts are PEM."""

    host: str
    """The URL."""
    token: str = ""
    token_file: Path | None = None
    """The file with the token that is valid now."""
    authority: str | None = None
    """The trusted CA; None: the CAs of this system."""
    certificate: str | None = None
    key: str | None = None
    verified: bool = True
    """False: the server's certificate is not verified (the kubeconfig's `insecure-skip-tls-verify`)."""
    server_name: str | None = None
    proxy: str | None = None

    def __repr__(self) -> str:
        return f"<credentials for {self.host}>"

    def headers(self) -> dict[str, str]:
        """The authorization header of one request. Raises AccessError."""
        token = self.token
        if self.token_file:  # the kubelet replaces the file long before the token expires
            token = _text_of(self.token_file, "the service account's token")
        elif not token:
            return {}
        if not (token := token.strip()) or not token.isascii() or not token.isprintable():
            raise AccessError(f"{self.token_file or 'the kubeconfig'} holds no token")
        # No token has a blank: this is a user name and its password.
        return {"Authorization": token if token.startswith("Basic ") else f"Bearer {token}"}

    def context(self) -> ssl.SSLContext:
        """The TLS context. Raises AccessError."""
        context = client_context()
        try:
            if not self.verified:
                context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
            elif self.authority is None:
                context.load_default_certs()
            else:
                context.load_verify_locations(cadata=self.authority)
            if self.certificate is not None:
                self._identify(context, self.certificate)
        except (ssl.SSLError, ValueError) as error:
            raise AccessError(f"{self.host}: its CA, certificate or key is not valid PEM") from error
        return context

    def _identify(self, context: ssl.SSLContext, certificate: str) -> None:
        """OpenSSL reads keys only from files; this file is never on a disk."""
        descriptor = os.memfd_create("client-certificate")
        with os.fdopen(descriptor, "w") as file:
            file.write(f"{certificate}\n{self.key or ''}")
            file.flush()
            # Without a password OpenSSL would prompt for it on the terminal, and wait.
            context.load_cert_chain(f"/proc/self/fd/{descriptor}", password="")


class _Answer(Struct, frozen=True):
    """The answer of the `kubeconfig` process: one of the two."""

    credentials: Credentials | None = None
    problem: str = ""


_ANSWER: Final = json.Decoder(_Answer)


class Access:
    """Reads the credentials: of the pod's service account, or of a kubeconfig. Drivers may share one."""

    def __init__(self, kubeconfig: Path | None = None, context: str | None = None) -> None:
        """`kubeconfig` None: the pod's service account. `context` None: the kubeconfig's current one."""
        self.kubeconfig = kubeconfig
        self._context = context
        self._reading = threading.Lock()
        self._child: Child | None = None
        self._credentials: Credentials | None = None
        self._read_at = 0.0
        self._version: object = None

    def credentials(self, *, refused: bool = False) -> Credentials:
        """The current credentials. A kubeconfig is read again when it has changed, or when its credentials were `refused`.

        Raises AccessError.
        """
        if self.kubeconfig is None:
            return _pod_credentials()
        with self._reading:
            version = _version(self.kubeconfig)
            outdated = version != self._version or (refused and time.monotonic() - self._read_at > _READ_AGAIN_SECONDS)
            if self._credentials is None or outdated:
                self._credentials = None
                self._credentials = self._read_kubeconfig(self.kubeconfig)
                self._read_at, self._version = time.monotonic(), version
            return self._credentials

    def cut(self) -> None:
        """Abort a kubeconfig's program that a thread waits for. May be called at any time."""
        if child := self._child:
            child.kill()

    def _read_kubeconfig(self, kubeconfig: Path) -> Credentials:
        doing = f"the kubeconfig {kubeconfig} cannot be used"
        try:
            self._child = child = Child(
                "sidecar.drivers.kubernetes.kubeconfig", "its reader", _environment(), KUBECONFIG_READER.most_bytes
            )
        except OSError as error:
            raise AccessError(f"{doing}: its reader process does not start: {error.strerror}") from error
        try:
            answer = child.ask({"file": str(kubeconfig), "context": self._context}, _ANSWER, _KUBECONFIG_SECONDS)
        except NoAnswerError as error:
            raise AccessError(f"{doing}: {error}") from error
        finally:
            child.end()
        if answer.credentials is None:
            raise AccessError(answer.problem)
        return answer.credentials


def _environment() -> dict[str, str]:
    """Our environment, which a kubeconfig's program needs, without our secrets: receivers' URLs, passwords."""
    withheld = secret_variables()
    return {name: value for name, value in os.environ.items() if name not in withheld}


def _version(file: Path) -> object:
    """A value that differs when the file has changed."""
    try:
        status = file.stat()
    except OSError:
        return None
    return status.st_ino, status.st_mtime_ns, status.st_size


def _pod_credentials() -> Credentials:
    """The pod's own credentials, without a proxy: the API server is in the same cluster. Raises AccessError."""
    host, port = os.environ.get("KUBERNETES_SERVICE_HOST"), os.environ.get("KUBERNETES_SERVICE_PORT")
    if not host or not port:
        raise AccessError(
            "not in a pod (KUBERNETES_SERVICE_HOST, KUBERNETES_SERVICE_PORT are not set): set a kubeconfig"
        )
    return Credentials(
        host=f"https://[{host}]:{port}" if ":" in host else f"https://{host}:{port}",
        token_file=SERVICE_ACCOUNT / "token",
        authority=_text_of(SERVICE_ACCOUNT / "ca.crt", "the API server's CA"),
    )


def _text_of(file: Path, kind: str) -> str:
    try:
        return file.read_text()
    except (OSError, ValueError) as error:
        raise AccessError(f"cannot read {kind} {file}: {getattr(error, 'strerror', None) or 'not text'}") from error
