"""Requests to the API server, all with a time limit. What writes, writes to one ConfigMap of our own: see `call`."""

import ssl
import time
from contextlib import suppress
from http import HTTPStatus
from typing import Any, Final, Literal
from urllib.parse import quote, urlencode

import msgspec
from msgspec import Struct
from urllib3 import PoolManager, ProxyManager, Timeout
from urllib3.exceptions import HTTPError

from sidecar.drivers.kubernetes.access import Access, Credentials
from sidecar.drivers.kubernetes.errors import ApiError
from sidecar.drivers.kubernetes.events import ConfigMap, Listing, read_config_map, read_listing, read_message
from sidecar.drivers.kubernetes.stream import CHUNK_BYTES, Stream

_TIMEOUT = Timeout(connect=3.0, read=4.0)
_WHOLE_ANSWER_SECONDS = 15.0
_MOST_BYTES = 64 << 20
_MOST_REFUSAL_BYTES = 16 << 10
_MESSAGE_LENGTH = 300
_JSON = "application/json"
_METHODS: Final = {"get": ("GET", _JSON), "create": ("POST", _JSON), "patch": ("PATCH", "application/merge-patch+json")}
_NAMES_ALONE = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1,application/json"


Verb = Literal["get", "create", "patch"]
"""What may be done with one ConfigMap, in RBAC's words."""


class Selector(Struct, frozen=True):
    """Which ConfigMaps: one by its name, or those with all of these labels."""

    name: str = ""
    labels: str = ""

    def __str__(self) -> str:
        return f"ConfigMap {self.name}" if self.name else f"ConfigMaps with the labels {self.labels}"

    def query(self) -> list[tuple[str, str]]:
        return [("fieldSelector", f"metadata.name={self.name}")] if self.name else [("labelSelector", self.labels)]


class Api:
    """The ConfigMaps of one namespace. Used by one thread; `cut` may be called by another. Every method raises ApiError."""

    def __init__(self, access: Access, namespace: str) -> None:
        self._access = access
        self._namespace = namespace
        self._path = f"/api/v1/namespaces/{quote(namespace)}/configmaps"
        self._credentials: Credentials | None = None
        self._pool: PoolManager | None = None
        self._refused = False
        self._stream: Stream | None = None

    def read(self, selector: Selector, *, names_alone: bool = False) -> Listing:
        """What stands there now (a consistent read); with `names_alone` without the values."""
        response = self._get("list", selector, [], accept=_NAMES_ALONE if names_alone else _JSON)
        body = _body(response, _MOST_BYTES, f"cannot list {selector}")
        try:
            return read_listing(body)
        except ValueError as error:
            raise ApiError(f"cannot list {selector}: the answer is {error}") from error

    def watch(self, selector: Selector, resource_version: str, seconds: int) -> Stream:
        """What happens there after `resource_version`, for about `seconds`. The caller closes it."""
        query = [
            ("watch", "true"),
            ("allowWatchBookmarks", "true"),
            ("resourceVersion", resource_version),
            ("timeoutSeconds", str(seconds)),
        ]
        self._stream = Stream(self._get("watch", selector, query))
        return self._stream

    def call(self, verb: Verb, name: str, body: object = None) -> ConfigMap:
        """One ConfigMap: as it stands, made of `body`, or with the JSON merge patch `body`. 404 and 409 are ApiErrors, too."""
        selector, (method, kind) = Selector(name=name), _METHODS[verb]
        path = self._path if verb == "create" else f"{self._path}/{quote(name)}"
        headers = {"Accept": _JSON} if body is None else {"Accept": _JSON, "Content-Type": kind}
        response = self._ask(verb, selector, method, path, headers, None if body is None else msgspec.json.encode(body))
        try:
            return read_config_map(_body(response, _MOST_BYTES, f"cannot {verb} {selector}"))
        except ValueError as error:
            raise ApiError(f"cannot {verb} {selector}: the answer is {error}") from error

    def reopen(self) -> None:
        """Ask anew, before the next request, where the API server is and who we are there."""
        if self._pool:
            for key in self._pool.pools.keys():  # noqa: SIM118  it cannot be iterated over
                self._pool.pools[key].close()  # `clear` leaves connections to the garbage collector
        self._credentials = self._pool = None

    def cut(self) -> None:
        """End the stream that is open, if one is, and what it takes to open one."""
        self._access.cut()
        if self._stream:
            self._stream.cut()

    def _get(
        self,
        verb: Literal["list", "watch"],
        selector: Selector,
        query: list[tuple[str, str]],
        accept: str = _JSON,
    ) -> Any:
        path = f"{self._path}?{urlencode([*selector.query(), *query])}"
        return self._ask(verb, selector, "GET", path, {"Accept": accept})

    def _ask(
        self, verb: str, selector: Selector, method: str, path: str, headers: dict[str, str], body: bytes | None = None
    ) -> Any:
        doing = f"cannot {verb} {selector}"
        response = self._send(doing, method, path, headers, body)
        if response.status == HTTPStatus.UNAUTHORIZED and self._is_somebody_else_now():
            response = self._send(doing, method, path, headers, body)
        if response.status not in {HTTPStatus.OK, HTTPStatus.CREATED}:
            raise self._refusal(verb, selector, response)
        return response

    def _is_somebody_else_now(self) -> bool:
        """Whether, being refused, there are other credentials to try: a program's token may be good for minutes only."""
        before = self._credentials
        self.reopen()
        self._credentials = self._access.credentials(refused=True)
        return self._credentials != before

    def _send(self, doing: str, method: str, path: str, headers: dict[str, str], body: bytes | None) -> Any:
        credentials = self._credentials = self._credentials or self._access.credentials(refused=self._refused)
        host = credentials.host.rstrip("/")
        headers = {**headers, **credentials.headers()}
        try:
            self._pool = self._pool or _pool(credentials)
            # How often to try again, and when, is the driver's to decide; and nobody is told our token because somebody else said so.
            response = self._pool.request(
                method,
                host + path,
                body=body,
                headers=headers,
                timeout=_TIMEOUT,
                retries=False,
                redirect=False,
                preload_content=False,
            )
        except (HTTPError, OSError, ValueError) as error:
            cause = _innermost(error)
            self._refused = isinstance(cause, ssl.SSLError)
            raise ApiError(f"{doing}: {host}: {_reason(cause)}") from error
        self._refused = False
        return response

    def _refusal(self, verb: str, selector: Selector, response: Any) -> ApiError:
        status, said = response.status, ""
        with suppress(ApiError):
            said = " ".join(read_message(_body(response, _MOST_REFUSAL_BYTES, "")).split())[:_MESSAGE_LENGTH]
        match status:
            case HTTPStatus.UNAUTHORIZED:
                who = self._access.kubeconfig or "the service account"
                why = (
                    f"the API server does not know us (401): the token or certificate of {who} is wrong or has expired"
                )
            case HTTPStatus.FORBIDDEN:
                named = f" with resourceNames [{selector.name}]" if selector.name and verb != "create" else ""
                why = (
                    f"no permission (403): give us a Role in namespace {self._namespace} that allows the verb {verb} on the "
                    f"resource configmaps{named}"
                )
            case _:
                why = f"the API server answers {status}"
        return ApiError(
            f"cannot {verb} {selector} in namespace {self._namespace}: {why}" + (f" ({said})" if said else ""), status
        )


def _pool(credentials: Credentials) -> PoolManager:
    ours: Any = {"ssl_context": credentials.context(), "server_hostname": credentials.server_name}
    return ProxyManager(credentials.proxy, **ours) if credentials.proxy else PoolManager(**ours)


def _body(response: Any, most: int, doing: str) -> bytes:
    """The whole answer. It is read in pieces, since a time limit of the library is one for each piece."""
    deadline = time.monotonic() + _WHOLE_ANSWER_SECONDS
    body = bytearray()
    try:
        while piece := response.read1(CHUNK_BYTES, decode_content=False):
            body += piece
            if len(body) > most:
                raise ApiError(f"{doing}: an answer of more than {most >> 10} KiB")
            if time.monotonic() > deadline:
                raise ApiError(f"{doing}: an answer that takes more than {_WHOLE_ANSWER_SECONDS:g} s")
    except (HTTPError, OSError) as error:
        raise ApiError(f"{doing}: the answer broke off: {_reason(_innermost(error))}") from error
    finally:
        if not response.isclosed():
            response.close()
    return bytes(body)


def _innermost(error: BaseException) -> BaseException:
    """The first cause: the outer ones name addresses of objects in memory."""
    while inner := error.__cause__ or error.__context__:
        error = inner
    return error


def _reason(error: BaseException) -> str:
    """A first cause in one line."""
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"its certificate is not accepted: {error.verify_message}"
    if isinstance(error, ssl.SSLError):
        return f"no TLS connection: {error.reason or error}"
    if isinstance(error, TimeoutError):
        return "no answer in time"
    if isinstance(error, OSError) and error.strerror:
        return error.strerror + (f": {error.filename}" if error.filename else "")
    return " ".join(str(error).split())[:_MESSAGE_LENGTH] or type(error).__name__
