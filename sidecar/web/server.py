"""HTTP: health for the kubelet, metrics for Prometheus, leaders and failovers for people and scripts.

What is so now is read from the newest snapshot, what was from the journal.
"""

import logging
import re
import socket
import threading
from collections.abc import Callable, Collection, Iterable, Sequence
from http import HTTPStatus
from types import ModuleType
from typing import TYPE_CHECKING, Final

from msgspec import json
from waitress import wasyncore

from sidecar import threads
from sidecar.core.moment import SECOND, Moment
from sidecar.core.sanitize import clean
from sidecar.core.views.explain import UnknownEpisodeError
from sidecar.core.views.leader_view import leaders
from sidecar.core.views.snapshot import Snapshot
from sidecar.journal import JournalError, JournalReader
from sidecar.web import hosts
from sidecar.web.connections import HEALTH, MOST_UNREAD, Server
from sidecar.web.past import BusyError, Past

if TYPE_CHECKING:
    from _typeshed.wsgi import StartResponse, WSGIEnvironment

STALE_SECONDS: Final = 30
"""A snapshot older than this means that the owner's thread does not move."""
_JOIN_SECONDS: Final = 5.0

DEFAULT_LAST: Final = 100
MOST_LAST: Final = 1000
EPISODES_SHOWN: Final = 10
"""On the page."""
_LAST: Final = re.compile(r"last=([0-9]{1,4})")
_ID: Final = re.compile(r"[0-9a-f-]{4,36}")

_Answer = tuple[HTTPStatus, str, bytes]
_TEXT: Final = "text/plain; charset=utf-8"
_JSON: Final = "application/json"
_HTML: Final = "text/html; charset=utf-8"
_HEADERS: Final = (
    ("Cache-Control", "no-store"),
    ("X-Content-Type-Options", "nosniff"),
    ("Referrer-Policy", "no-referrer"),
)


class Application:
    """The WSGI application."""

    def __init__(
        self,
        snapshot: Callable[[], Snapshot],
        metrics: Callable[[], bytes],
        clock: Callable[[], Moment],
        journal: Callable[[], JournalReader],
        dead: Callable[[], Sequence[str]] = threads.dead,
        allowed_hosts: Collection[str] = (),
    ) -> None:
        """`journal` makes a reader for one request; `dead` names the threads that have ended and should not have.

        `allowed_hosts` are names in a request's Host header, beside those that `hosts.is_allowed` always accepts.
        """
        self._snapshot = snapshot
        self._metrics = metrics
        self._clock = clock
        self._dead = dead
        self._allowed_hosts = allowed_hosts
        self.overloaded: Callable[[], bool] = lambda: False
        """Whether nothing but health is answered now: the server sets it."""
        self._past = Past(snapshot, journal)
        self._routes: Final[dict[str, Callable[[], _Answer]]] = {
            "/": self._page,
            "/livez": self._livez,
            "/readyz": self._readyz,
            "/metrics": lambda: (HTTPStatus.OK, "text/plain; version=0.0.4; charset=utf-8", self._metrics()),
            "/api/v1/leaders": lambda: _json(leaders(self._snapshot())),
        }
        self._lists: Final[dict[str, Callable[[int], _Answer]]] = {
            "/api/v1/transitions": lambda last: _json(self._past.transitions(last)),
            "/api/v1/episodes": lambda last: _json(self._past.episodes(last)),
        }
        self._each: Final[dict[str, Callable[[str], _Answer]]] = {
            "/api/v1/episodes/": lambda name: _json(self._past.story(name)),
            "/episodes/": self._episode_page,
        }

    def __call__(self, environ: "WSGIEnvironment", start_response: "StartResponse") -> Iterable[bytes]:
        method, path = environ.get("REQUEST_METHOD", ""), environ.get("PATH_INFO", "")
        refused = self._refused(path, environ.get("HTTP_HOST"))
        status, content_type, body = refused or self._answer(method, path, environ.get("QUERY_STRING", ""))
        headers = [("Content-Type", content_type), ("Content-Length", str(len(body))), *_HEADERS]
        if content_type == _HTML:
            headers.append(("Content-Security-Policy", _pages().POLICY))
        if status is HTTPStatus.METHOD_NOT_ALLOWED:
            headers.append(("Allow", "GET, HEAD"))
        start_response(f"{status.value} {status.phrase}", headers)
        return [] if method == "HEAD" else [body]

    def _refused(self, path: str, host: str | None) -> _Answer | None:
        """Why it is not answered. Health always is: a restart would help nobody."""
        if path in HEALTH:
            return None
        if not hosts.is_allowed(host, self._allowed_hosts):
            name = clean(host, 100)
            return _line(HTTPStatus.MISDIRECTED_REQUEST, f"unknown Host {name}: list the name under http.allowed_hosts")
        if self.overloaded():
            return _line(
                HTTPStatus.SERVICE_UNAVAILABLE, "too many answers have not been read by their clients: ask again"
            )
        return None

    def _answer(self, method: str, path: str, query: str) -> _Answer:
        try:
            route = self._route(path, query)
            if method not in {"GET", "HEAD"}:
                return _line(HTTPStatus.METHOD_NOT_ALLOWED, "only GET")
            return route()
        except _NotANumberError:
            return _line(HTTPStatus.BAD_REQUEST, f"{path} takes last=N, from 1 to {MOST_LAST}, and nothing else")
        except (_NoSuchPathError, UnknownEpisodeError) as error:
            return _line(HTTPStatus.NOT_FOUND, str(error))
        except (JournalError, BusyError) as error:
            return _line(HTTPStatus.SERVICE_UNAVAILABLE, str(error))

    def _route(self, path: str, query: str) -> Callable[[], _Answer]:
        if path in self._routes:
            return self._routes[path]
        if path in self._lists:
            last = _last(query)
            return lambda: self._lists[path](last)
        for prefix, each in self._each.items():
            name = path.removeprefix(prefix)
            if name != path and _ID.fullmatch(name):
                return lambda: each(name)
        there_is = [*self._routes, *self._lists, *(f"{prefix}ID" for prefix in self._each)]
        raise _NoSuchPathError("there is: " + " ".join(there_is))

    def _page(self) -> _Answer:
        recorded, problem = [], None
        try:
            recorded = self._past.episodes(EPISODES_SHOWN)
        except (JournalError, BusyError) as error:  # who leads is worth a page all the same
            problem = str(error)
        snapshot = self._snapshot()
        return _html(_pages().status(snapshot, recorded, problem, self._stale(snapshot)))

    def _episode_page(self, name: str) -> _Answer:
        return _html(_pages().episode(*self._past.episode(name)))

    def _livez(self) -> _Answer:
        dead = self._dead()
        problem = f"these threads have ended: {', '.join(dead)}" if dead else self._stale(self._snapshot())
        return _line(HTTPStatus.SERVICE_UNAVAILABLE, problem) if problem else _line(HTTPStatus.OK, "ok")

    def _stale(self, snapshot: Snapshot) -> str | None:
        age = (self._clock().steady - snapshot.at.steady) / SECOND
        return f"the owner's thread has not moved for {age:.0f} s" if age > STALE_SECONDS else None

    def _readyz(self) -> _Answer:
        now, snapshot = self._clock(), self._snapshot()
        clusters = snapshot.state.clusters.items()
        # By our own clock: an owner that is busy with much has not noticed yet that its view is old.
        old = {name for name, cluster in clusters if cluster.view.complete and cluster.is_overdue(now)}
        blind = [
            f"{name}: {cluster.view.connection or 'not connected yet'}{', not answering in time' if name in old else ''}"
            for name, cluster in clusters
            if name in old or not cluster.in_sight
        ]
        if blind:
            return _line(HTTPStatus.SERVICE_UNAVAILABLE, "the store is not seen whole: " + ", ".join(blind))
        if not clusters:
            return _line(HTTPStatus.SERVICE_UNAVAILABLE, "starting")
        return _line(HTTPStatus.OK, "; ".join(["ok", *(f"{name}: {c.missing}" for name, c in clusters if c.missing)]))


class _NoSuchPathError(Exception):
    """Says which there are."""


class _NotANumberError(Exception):
    """What was asked for in the query is no number, or too many."""


def _last(query: str) -> int:
    """What `last=N` asks for. Raises _NotANumberError."""
    if not query:
        return DEFAULT_LAST
    match = _LAST.fullmatch(query)
    if not match or not 1 <= int(match[1]) <= MOST_LAST:
        raise _NotANumberError
    return int(match[1])


def _json(value: object) -> _Answer:
    return HTTPStatus.OK, _JSON, json.encode(value)


def _html(page: str) -> _Answer:
    return HTTPStatus.OK, _HTML, page.encode()


def _line(status: HTTPStatus, line: str) -> _Answer:
    return status, _TEXT, f"{line}\n".encode()


def _pages() -> ModuleType:
    from sidecar.web import pages  # noqa: PLC0415  whom nobody asks for a page needs no memory for templates

    return pages


class WebServer:
    """Serves `application` from a bounded number of threads, within the bounds of `connections`; slow or idle clients are cut off."""

    def __init__(self, application: Application, host: str, port: int) -> None:
        """Binds the port. Raises OSError when it cannot."""
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        bound = socket.create_server((host, port), family=family)
        self.port: Final[int] = bound.getsockname()[1]
        """The bound port: of interest when 0 was asked for."""
        self._connections: dict[int, object] = {}
        self._server = Server(application, bound, self._connections)
        application.overloaded = lambda: self.unread > MOST_UNREAD
        self._thread = threading.Thread(target=self._server.run, name="web", daemon=True)

    @property
    def unread(self) -> int:
        """Bytes of answers that their clients have not read yet."""
        return self._server.unread

    def start(self) -> None:
        """Begin to answer."""
        logging.getLogger("waitress").setLevel(logging.ERROR)
        self._thread.start()

    def stop(self) -> None:
        """Stop answering. May be called twice, and before `start`."""
        if not self._connections:
            return
        # Workers first: one that answers wakes the server's thread by a descriptor that `_close` closes.
        self._server.end_workers(_JOIN_SECONDS)
        if self._thread.ident is None:
            self._close()
            return
        # The connections belong to the server's thread: it closes them, finds none left, and ends. Not before we have woken it.
        with self._server.trigger.lock:
            self._server.trigger.thunks.append(self._close)
            self._server.trigger.pull_trigger()
        self._thread.join(_JOIN_SECONDS)

    def _close(self) -> None:
        wasyncore.close_all(self._connections, ignore_all=True)
