"""Requests to the API server, all with a time limit. The only writes go to the ledger's own ConfigMap and to Events."""

import ssl
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import partial
from http import HTTPStatus
from typing import Any, Final, Literal, TypeVar
from urllib.parse import quote, unquote, urlencode

import msgspec
from msgspec import Struct
from urllib3 import PoolManager, ProxyManager, Timeout
from urllib3.exceptions import HTTPError, ReadTimeoutError
from urllib3.util import make_headers, parse_url

from sidecar.core.bounds import CONFIG_MAP, STORE_LIST
from sidecar.drivers.kubernetes.access import Access, ApiError, Credentials, TooLargeError, wait_after
from sidecar.drivers.kubernetes.objects import (
    ConfigMap,
    ConfigMapList,
    read_config_map_list,
    read_message,
)

CHUNK_BYTES: Final = 64 << 10
_LONGEST_LINE = 8 << 20
"""Bytes. A ConfigMap holds 1 MiB, which JSON escapes may make six times as long."""
_SHORTEST_WAIT = 0.001


class Stream:
    """Reads the lines of an open watch. Used by one thread; any thread may call `cut`."""

    def __init__(self, response: Any) -> None:
        """`response`: an unread `urllib3.HTTPResponse`."""
        self._response = response
        self._lines: list[bytes] = []
        self._rest = bytearray()
        self.silent = False
        """True if the stream ended because no line arrived by the deadline."""
        self.oversized = False
        """True if the stream ended because a line was too long."""

    def read(self, deadline: float) -> bytes | None:
        """The next line. None: the stream has ended, broke, or had no complete line by `deadline` (monotonic)."""
        while not self._lines:
            try:
                connection = self._response.connection
                if connection and connection.sock:  # otherwise it closes after this answer: the usual timeout
                    connection.sock.settimeout(max(deadline - time.monotonic(), _SHORTEST_WAIT))
                chunk = self._response.read1(CHUNK_BYTES, decode_content=False)
            except ReadTimeoutError:
                self.silent = True
                return None
            except (HTTPError, OSError, ValueError):
                return None  # the next request reports the reason
            if not chunk:
                return None
            self._split(chunk)
            if not self._lines and time.monotonic() > deadline:
                self.silent = True  # bytes arrive, but no line: each byte would extend the wait
                return None
            if len(self._rest) > _LONGEST_LINE:
                self.oversized = True
                return None
        return self._lines.pop()

    def cut(self) -> None:
        """Abort the reading thread's wait. May be called at any time."""
        with suppress(OSError, RuntimeError, ValueError):  # already ended
            self._response.shutdown()

    def close(self) -> None:
        with suppress(OSError):
            self._response.close()

    def _split(self, chunk: bytes) -> None:
        *lines, rest = chunk.split(b"\n")
        if lines:
            lines[0] = bytes(self._rest) + lines[0]
            self._rest.clear()
            self._lines = [line for line in reversed(lines) if line]
        self._rest += rest


# The driver decides when to retry. A redirect would send the token to another server.
_OPTIONS: Final[dict[str, Any]] = {
    "timeout": Timeout(connect=3.0, read=4.0),
    "retries": False,
    "redirect": False,
    "preload_content": False,
}
_WHOLE_ANSWER_SECONDS = 15.0
_MOST_BYTES = CONFIG_MAP.most_bytes
"""The most bytes of one object. The API server takes 1 MiB, which JSON escapes may make six times as long."""
_MOST_PAGE_BYTES = STORE_LIST.most_bytes
_MOST_IN_PAGE = 500
_FEW_IN_PAGE = 4
"""The objects in a page where their size is not known: the API server encodes a whole page before it sends the first byte."""
_MOST_REFUSAL_BYTES = 16 << 10
_MESSAGE_LENGTH = 300
_JSON = "application/json"
_METHODS: Final = {"get": ("GET", _JSON), "create": ("POST", _JSON), "patch": ("PATCH", "application/merge-patch+json")}
_NAMED: Final = frozenset({"ConfigMap", "FlinkDeployment"})
"""Kinds that a Role may allow by `resourceNames`."""
_NAMES_ONLY = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1,application/json"
_T = TypeVar("_T")

Keep = Callable[[ConfigMap], ConfigMap | None]
"""Reduces a ConfigMap to the part that is kept. None: nothing is kept."""
Verb = Literal["get", "create", "patch"]
"""RBAC's verbs for one object."""


class Selector(Struct, frozen=True):
    """Selects one object by its name, or those with all of these labels, or fields; without any of them, all of this kind."""

    name: str = ""
    labels: str = ""
    fields: str = ""
    kind: str = "ConfigMap"
    group: str = ""
    """The API group with its version: `flink.apache.org/v1beta1`. Empty: `v1`."""
    part: str = ""
    """The subresource."""

    def __str__(self) -> str:
        if self.name:
            return f"{self.part} of {self.kind} {self.name}" if self.part else f"{self.kind} {self.name}"
        if self.fields:
            return f"{self.kind}s with {self.fields}"
        return f"{self.kind}s with the labels {self.labels}" if self.labels else f"{self.kind}s"

    @property
    def resource(self) -> str:
        return f"{self.kind.lower()}s{f'/{self.part}' if self.part else ''}"

    def rule(self, *verbs: str) -> str:
        """The rule of a Role that allows these verbs."""
        names = f", resourceNames: [{self.name}]" if self.name and "create" not in verbs else ""
        group = self.group.partition("/")[0] or '""'
        return f"{{apiGroups: [{group}], resources: [{self.resource}]{names}, verbs: [{', '.join(verbs)}]}}"

    def query(self) -> list[tuple[str, str]]:
        fields = f"metadata.name={self.name}" if self.name else self.fields
        return [("fieldSelector", fields)] if fields else [("labelSelector", self.labels)] if self.labels else []


class Api:
    """The objects of one namespace, or of all. Used by one thread; any thread may call `cut`. Every method raises ApiError."""

    def __init__(self, access: Access, namespace: str | None, *, qualified: bool = False) -> None:
        """`namespace` None: all. `qualified`: names begin with their namespace, `namespace/name`."""
        self._access = access
        self._namespace = namespace
        self.qualified = qualified
        self._credentials: Credentials | None = None
        self._pool: PoolManager | None = None
        self._refused = False
        self._stream: Stream | None = None
        self._limits: dict[bool, int] = {}
        """The number of objects of a page that could be read last, by whether they are read without their values."""
        self._ceilings: dict[bool, int] = {}
        """The most objects asked for since a page was too large or too late. Grows again after each complete list."""

    @property
    def where(self) -> str:
        """The namespace, for texts."""
        return f"namespace {self._namespace}" if self._namespace else "all namespaces"

    def read(self, selector: Selector) -> ConfigMapList:
        """The one object with that name (a consistent read)."""
        return self._listed(self._get("list", selector, []), selector)

    def read_pages(self, selector: Selector, keep: Keep = lambda _: _, *, names_only: bool = False) -> ConfigMapList:
        """The current objects, in as many requests as it takes (a consistent read); with `names_only` without their values. `keep`: what is
        kept of each, so that only one page at a time is held as a whole.
        """
        config_maps: dict[str, ConfigMap] = {}
        version, size = "", 0
        for page in self.pages(selector, self._page, names_only=names_only):
            kept = {name: keep(config_map) for name, config_map in page.config_maps.items()}
            config_maps |= {name: config_map for name, config_map in kept.items() if config_map}
            version, size = page.resource_version, size + page.size
        return ConfigMapList(version, config_maps, size=size)

    def _page(self, body: bytes) -> tuple[ConfigMapList, str]:
        page = read_config_map_list(body, qualified=self.qualified)
        return page, page.rest

    def pages(
        self, selector: Selector, read: Callable[[bytes], tuple[_T, str]], *, names_only: bool = False
    ) -> Iterator[_T]:
        """The current objects of any kind, page by page. `read` decodes one, and says where the next one begins: "" after the last.

        Anybody may create large objects: a page that is too large, or for which the API server takes too long, is asked for again, with
        fewer of them. Otherwise the large objects of one namespace would hide all others.
        """
        rest, doing = "", f"cannot list {selector}"
        ceiling = self._ceilings[names_only] = min(2 * self._ceilings.get(names_only, _MOST_IN_PAGE), _MOST_IN_PAGE)
        while True:
            limit = min(self._limits.get(names_only, _FEW_IN_PAGE), ceiling)
            query = [("limit", str(limit)), *([("continue", rest)] if rest else [])]
            try:
                response = self._get("list", selector, query, accept=_NAMES_ONLY if names_only else _JSON)
                body = _body(response, _MOST_PAGE_BYTES if limit > 1 else _MOST_BYTES, doing)
            except ApiError as error:
                fewer = max(1, limit // 4)
                self._limits[names_only] = fewer if isinstance(error, TooLargeError) else min(limit, _FEW_IN_PAGE)
                if limit == 1 or (limit <= _FEW_IN_PAGE and not isinstance(error, TooLargeError)) or error.status:
                    raise
                ceiling = self._ceilings[names_only] = max(_FEW_IN_PAGE, fewer)
                continue
            page, rest = _parsed(body, read, doing)
            yield page
            if not rest:
                return
            if len(body) < _MOST_PAGE_BYTES // 4:
                self._limits[names_only] = min(4 * limit, ceiling)

    def read_one(self, name: str, at: str = "") -> ConfigMapList:
        """The ConfigMap with this name, as a list (see `read`). The name is qualified if all names are. `at`: as it was at that resource
        version."""
        namespace, _, plain = name.rpartition("/")
        selector = Selector(name=plain)
        query = [*selector.query(), *([("resourceVersion", at), ("resourceVersionMatch", "Exact")] if at else [])]
        path = f"{_path(namespace or self._namespace, '')}/{selector.resource}?{urlencode(query)}"
        response = self._request("list", selector, "GET", path, {"Accept": _JSON})
        return self._listed(response, selector)

    def watch(self, selector: Selector, resource_version: str, seconds: int) -> Stream:
        """The changes after `resource_version`, for about `seconds`. The caller closes the stream."""
        query = [
            ("watch", "true"),
            ("allowWatchBookmarks", "true"),
            ("resourceVersion", resource_version),
            ("timeoutSeconds", str(seconds)),
        ]
        self._stream = Stream(self._get("watch", selector, query))
        return self._stream

    def exchange(self, verb: Verb, selector: Selector, body: object, read: Callable[[bytes], _T]) -> _T:
        """Get one object, create it from `body`, or patch it with the JSON merge patch `body`. Returns what `read` makes of it."""
        method, content_type = _METHODS[verb]
        path = f"{_path(self._namespace, selector.group)}/{selector.resource}"
        if verb != "create":
            path += f"/{quote(selector.name)}"
        headers = {"Accept": _JSON} if body is None else {"Accept": _JSON, "Content-Type": content_type}
        content = None if body is None else msgspec.json.encode(body)
        response = self._request(verb, selector, method, path, headers, content)
        return _decoded(response, read, f"cannot {verb} {selector}")

    def read_log(self, pod: str, container: str, *, previous: bool, lines: int, most: int) -> str:
        """The last lines of a container's log, at most so many bytes of them. `previous`: of the container before the present one."""
        namespace, _, name = pod.rpartition("/")
        query = {"container": container, "previous": str(previous).lower(), "tailLines": lines, "limitBytes": most}
        path = f"{_path(namespace or self._namespace, '')}/pods/{quote(name)}/log?{urlencode(query)}"
        selector = Selector(name=name, kind="Pod", part="log")
        response = self._request("get", selector, "GET", path, {"Accept": "*/*"})
        return _body(response, most, f"cannot get the log of pod {name}").decode(errors="replace")

    def reopen(self) -> None:
        """Close all connections. The next request reads the address and the credentials again."""
        if self._pool:
            for key in self._pool.pools.keys():  # noqa: SIM118  not iterable itself
                self._pool.pools[key].close()  # `clear` would leave connections to the garbage collector
        self._credentials = self._pool = None

    def cut(self) -> None:
        """End the open stream and the kubeconfig's program, if any. From any thread."""
        self._access.cut()
        if self._stream:
            self._stream.cut()

    def _listed(self, response: Any, selector: Selector) -> ConfigMapList:
        read = partial(read_config_map_list, qualified=self.qualified)
        return _decoded(response, read, f"cannot list {selector}")

    def _get(self, verb: str, selector: Selector, query: list[tuple[str, str]], accept: str = _JSON) -> Any:
        path = f"{_path(self._namespace, selector.group)}/{selector.resource}?{urlencode([*selector.query(), *query])}"
        return self._request(verb, selector, "GET", path, {"Accept": accept})

    def _request(
        self, verb: str, selector: Selector, method: str, path: str, headers: dict[str, str], body: bytes | None = None
    ) -> Any:
        doing = f"cannot {verb} {selector}"
        response = self._send(doing, method, path, headers, body)
        if response.status == HTTPStatus.UNAUTHORIZED and self._credentials_changed():
            response = self._send(doing, method, path, headers, body)
        if response.status not in {HTTPStatus.OK, HTTPStatus.CREATED}:
            raise self._refusal(verb, selector, response)
        return response

    def _credentials_changed(self) -> bool:
        """Read the refused credentials again: a program's token may be valid for minutes only."""
        refused = self._credentials
        self.reopen()
        self._credentials = self._access.credentials(refused=True)
        return self._credentials != refused

    def _send(self, doing: str, method: str, path: str, headers: dict[str, str], body: bytes | None) -> Any:
        credentials = self._credentials = self._credentials or self._access.credentials(refused=self._refused)
        host = credentials.host.rstrip("/")
        headers = {**headers, **credentials.headers()}
        try:
            self._pool = self._pool or _pool(credentials)
            response = self._pool.request(method, host + path, body=body, headers=headers, **_OPTIONS)
        except (HTTPError, OSError, ValueError) as error:
            cause = _innermost(error)
            self._refused = isinstance(cause, ssl.SSLError)
            raise ApiError(f"{doing}: {host}: {_reason(cause)}") from error
        self._refused = False
        return response

    def _refusal(self, verb: str, selector: Selector, response: Any) -> ApiError:
        status, message = response.status, ""
        wait = wait_after(status, response.headers)
        with suppress(ApiError):
            message = " ".join(read_message(_body(response, _MOST_REFUSAL_BYTES, "")).split())[:_MESSAGE_LENGTH]
        match status:
            case HTTPStatus.UNAUTHORIZED:
                who = self._access.kubeconfig or "the service account"
                why = f"unauthorized (401): the token or certificate of {who} is wrong or has expired"
            case HTTPStatus.FORBIDDEN:
                of_one = selector.kind in _NAMED and selector.name and verb != "create"
                names = f" with resourceNames [{selector.name}]" if of_one else ""
                role = f"Role in namespace {self._namespace}" if self._namespace else "ClusterRole"
                group = f" of the group {selector.group.partition('/')[0]}" if selector.group else ""
                allowed = f"the verb {verb} on the resource {selector.resource}{group}{names}"
                why = f"no permission (403): grant a {role} that allows {allowed}"
            case HTTPStatus.TOO_MANY_REQUESTS:
                why = f"the API server throttles requests (429, API Priority and Fairness): not asked again for {wait:g} s"
            case HTTPStatus.NOT_FOUND if selector.group:
                why = f"there is no such resource (404): the CRD {selector.resource}.{selector.group.partition('/')[0]} is not installed"
            case _:
                why = f"the API server answers {status}"
        detail = f" ({message})" if message else ""
        return ApiError(f"cannot {verb} {selector} in {self.where}: {why}{detail}", status, wait)


def _path(namespace: str | None, group: str) -> str:
    api = f"/apis/{group}" if group else "/api/v1"
    return f"{api}/namespaces/{quote(namespace)}" if namespace else api


def _pool(credentials: Credentials) -> PoolManager:
    # Two: a watch, and what is asked beside it. With one, urllib3 warns whenever both are returned.
    ours: Any = {"ssl_context": credentials.context(), "server_hostname": credentials.server_name, "maxsize": 2}
    if not credentials.proxy:
        return PoolManager(**ours)
    login = parse_url(credentials.proxy).auth
    headers = make_headers(proxy_basic_auth=unquote(login)) if login else None
    return ProxyManager(credentials.proxy, proxy_headers=headers, **ours)


def _decoded(response: Any, read: Callable[[bytes], _T], doing: str) -> _T:
    return _parsed(_body(response, _MOST_BYTES, doing), read, doing)


def _parsed(body: bytes, read: Callable[[bytes], _T], doing: str) -> _T:
    try:
        return read(body)
    except ValueError as error:
        raise ApiError(f"{doing}: the answer is {error}") from error


def _body(response: Any, most: int, doing: str) -> bytes:
    """The whole answer. Read in chunks, because urllib3's read timeout applies to each chunk. Raises ApiError."""
    deadline = time.monotonic() + _WHOLE_ANSWER_SECONDS
    body = bytearray()
    try:
        while chunk := response.read1(CHUNK_BYTES, decode_content=False):
            body += chunk
            if len(body) > most:
                raise TooLargeError(f"{doing}: the answer is larger than {most >> 10} KiB")
            if time.monotonic() > deadline:
                raise ApiError(f"{doing}: the answer takes longer than {_WHOLE_ANSWER_SECONDS:g} s")
    except (HTTPError, OSError) as error:
        raise ApiError(f"{doing}: the answer broke off: {_reason(_innermost(error))}") from error
    finally:
        if not response.isclosed():
            response.close()
    return bytes(body)


def _innermost(error: BaseException) -> BaseException:
    """The first cause: the outer exceptions print memory addresses of objects."""
    while inner := error.__cause__ or error.__context__:
        error = inner
    return error


def _reason(error: BaseException) -> str:
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"its certificate is not accepted: {error.verify_message}"
    if isinstance(error, ssl.SSLError):
        return f"no TLS connection: {error.reason or error}"
    if isinstance(error, TimeoutError):
        return "no answer in time"
    if isinstance(error, OSError) and error.strerror:
        return error.strerror + (f": {error.filename}" if error.filename else "")
    return " ".join(str(error).split())[:_MESSAGE_LENGTH] or type(error).__name__
