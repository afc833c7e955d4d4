"""HTTP: health for the kubelet, metrics for Prometheus, leaders and failovers as pages and JSON.

The current state comes from the newest snapshot, the past from the journal.
"""

import logging
import re
import socket
import threading
from collections.abc import Callable, Collection, Iterable, Sequence
from functools import partial
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
from sidecar.core.views.silence_view import silences
from sidecar.core.views.snapshot import Snapshot
from sidecar.journal import JournalError, JournalReader
from sidecar.web import hosts
from sidecar.web.connections import HEALTH, MOST_UNREAD, BoundedServer
from sidecar.web.queries import BusyError, Queries

if TYPE_CHECKING:
    from _typeshed.wsgi import StartResponse, WSGIEnvironment

STALE_SECONDS: Final = 30
"""A snapshot older than this means that the owner's thread is stuck."""
_JOIN_SECONDS: Final = 5.0

DEFAULT_LAST: Final = 100
MOST_LAST: Final = 1000
EPISODES_SHOWN: Final = 10
MOST_NAMED: Final = 20
"""Clusters that `/readyz` names."""
"""On the status page."""
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
        """`journal` opens a reader for one request; `dead` names the required threads that have ended.

        `allowed_hosts` are accepted in the Host header, in addition to those that `hosts.is_allowed` always accepts.
        """
        self._snapshot = snapshot
        self._metrics = metrics
        self._clock = clock
        self._dead = dead
        self._allowed_hosts = allowed_hosts
        self.overloaded: Callable[[], bool] = lambda: False
        """Whether only health is answered now. Set by the server."""
        self._queries = Queries(snapshot, journal)
        self._routes: Final[dict[str, Callable[[], _Answer]]] = {
            "/": self._page,
            "/livez": self._livez,
            "/readyz": self._readyz,
            "/metrics": lambda: (HTTPStatus.OK, "text/plain; version=0.0.4; charset=utf-8", self._metrics()),
            "/api/v1/leaders": lambda: _json(leaders(self._snapshot())),
            "/api/v1/silences": lambda: _json(silences(self._snapshot())),
        }
        self._lists: Final[dict[str, Callable[[int], _Answer]]] = {
            "/api/v1/transitions": lambda last: _json(self._queries.transitions(last)),
            "/api/v1/episodes": lambda last: _json(self._queries.episodes(last)),
        }
        self._each: Final[dict[str, Callable[[str], _Answer]]] = {
            "/api/v1/episodes/": lambda name: _json(self._queries.details(name)),
            "/episodes/": self._episode_page,
        }

    def __call__(self, environ: "WSGIEnvironment", start_response: "StartResponse") -> Iterable[bytes]:
        method = environ.get("REQUEST_METHOD", "")
        try:
            status, content_type, body = self._answer(method, environ)
        except _RefusedError as error:
            status, content_type, body = _line(error.status, str(error))
        except UnknownEpisodeError as error:
            status, content_type, body = _line(HTTPStatus.NOT_FOUND, str(error))
        except (JournalError, BusyError) as error:
            status, content_type, body = _line(HTTPStatus.SERVICE_UNAVAILABLE, str(error))
        headers = [("Content-Type", content_type), ("Content-Length", str(len(body))), *_HEADERS]
        if content_type == _HTML:
            headers.append(("Content-Security-Policy", _pages().POLICY))
        if status is HTTPStatus.METHOD_NOT_ALLOWED:
            headers.append(("Allow", "GET, HEAD"))
        start_response(f"{status.value} {status.phrase}", headers)
        return [] if method == "HEAD" else [body]

    def _answer(self, method: str, environ: "WSGIEnvironment") -> _Answer:
        path = environ.get("PATH_INFO", "")
        if path not in HEALTH:  # health is always answered: a restart would not help
            host = environ.get("HTTP_HOST")
            if not hosts.is_allowed(host, self._allowed_hosts):
                problem = f"unknown Host {clean(host, 100)}: list the name under http.allowed_hosts"
                raise _RefusedError(HTTPStatus.MISDIRECTED_REQUEST, problem)
            if self.overloaded():
                problem = "too many answers have not been read by their clients: try again"
                raise _RefusedError(HTTPStatus.SERVICE_UNAVAILABLE, problem)
        route = self._route(path, environ.get("QUERY_STRING", ""))
        if method not in {"GET", "HEAD"}:
            raise _RefusedError(HTTPStatus.METHOD_NOT_ALLOWED, "only GET")
        return route()

    def _route(self, path: str, query: str) -> Callable[[], _Answer]:
        if path in self._routes:
            return self._routes[path]
        if path in self._lists:
            match = _LAST.fullmatch(query or f"last={DEFAULT_LAST}")
            if not match or not 1 <= int(match[1]) <= MOST_LAST:
                problem = f"{path} takes last=N, from 1 to {MOST_LAST}, and nothing else"
                raise _RefusedError(HTTPStatus.BAD_REQUEST, problem)
            return partial(self._lists[path], int(match[1]))
        for prefix, each in self._each.items():
            name = path.removeprefix(prefix)
            if name != path and _ID.fullmatch(name):
                return partial(each, name)
        paths = [*self._routes, *self._lists, *(f"{prefix}ID" for prefix in self._each)]
        raise _RefusedError(HTTPStatus.NOT_FOUND, "the paths are: " + " ".join(paths))

    def _page(self) -> _Answer:
        recorded, problem = [], None
        try:
            recorded = self._queries.episodes(EPISODES_SHOWN)
        except (JournalError, BusyError) as error:  # the page still shows the leaders
            problem = str(error)
        snapshot = self._snapshot()
        return _html(_pages().status(snapshot, recorded, problem, self._stale(snapshot)))

    def _episode_page(self, name: str) -> _Answer:
        return _html(_pages().episode(*self._queries.episode(name)))

    def _livez(self) -> _Answer:
        dead = self._dead()
        problem = f"these threads have ended: {', '.join(dead)}" if dead else self._stale(self._snapshot())
        return _line(HTTPStatus.SERVICE_UNAVAILABLE, problem) if problem else _line(HTTPStatus.OK, "ok")

    def _stale(self, snapshot: Snapshot) -> str | None:
        age = (self._clock().steady - snapshot.at.steady) / SECOND
        return f"the owner's thread has been stuck for {age:.0f} s" if age > STALE_SECONDS else None

    def _readyz(self) -> _Answer:
        now, snapshot = self._clock(), self._snapshot()
        clusters = snapshot.state.clusters.items()
        # By the current time: a busy owner may not have noticed yet that its view is old.
        old = {name for name, cluster in clusters if cluster.view.complete and cluster.is_overdue(now)}
        blind = [
            f"{name}: {cluster.view.connection or 'not connected yet'}{', not answering in time' if name in old else ''}"
            for name, cluster in clusters
            if name in old or not cluster.in_sight
        ]
        if blind:
            more = f", and {len(blind) - MOST_NAMED} more" if len(blind) > MOST_NAMED else ""
            line = f"the view of the store is incomplete: {', '.join(blind[:MOST_NAMED])}{more}"
            return _line(HTTPStatus.SERVICE_UNAVAILABLE, line)
        if not snapshot.ready:
            place = snapshot.state.finder and snapshot.state.finder.place
            line = f"the clusters in {place} cannot be listed" if place else "starting"
            return _line(HTTPStatus.SERVICE_UNAVAILABLE, line)
        problems = [f"{name}: {c.missing}" for name, c in clusters if c.missing]
        if (finder := snapshot.state.finder) and (problem := finder.problem(len(clusters))):
            problems.append(problem)
        return _line(HTTPStatus.OK, "; ".join(["ok", *problems]))


class _RefusedError(Exception):
    """A request that is refused with `status`."""

    def __init__(self, status: HTTPStatus, line: str) -> None:
        super().__init__(line)
        self.status = status


def _json(value: object) -> _Answer:
    return HTTPStatus.OK, _JSON, json.encode(value)


def _html(page: str) -> _Answer:
    return HTTPStatus.OK, _HTML, page.encode()


def _line(status: HTTPStatus, line: str) -> _Answer:
    return status, _TEXT, f"{line}\n".encode()


def _pages() -> ModuleType:
    from sidecar.web import pages  # noqa: PLC0415  saves memory until the first page

    return pages


class WebServer:
    """Serves `application` with the limits of `connections`."""

    def __init__(self, application: Application, host: str, port: int) -> None:
        """Binds the port. Raises OSError when it cannot."""
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        bound = socket.create_server((host, port), family=family)
        self.port: Final[int] = bound.getsockname()[1]
        """The bound port, also if `port` was 0."""
        self._connections: dict[int, object] = {}
        self._server = BoundedServer(application, bound, self._connections)
        application.overloaded = lambda: self.unread > MOST_UNREAD
        self._thread = threading.Thread(target=self._server.run, name="web", daemon=True)

    @property
    def unread(self) -> int:
        """Bytes of answers that clients have not read yet."""
        return self._server.unread

    def start(self) -> None:
        """Start to answer."""
        logging.getLogger("waitress").setLevel(logging.ERROR)
        self._thread.start()

    def stop(self) -> None:
        """Stop answering. May be called twice, and before `start`."""
        if not self._connections:
            return
        # Workers first: they wake the server's thread through a descriptor that `_close` closes.
        self._server.end_workers(_JOIN_SECONDS)
        if self._thread.ident is None:
            self._close()
            return
        # The connections belong to the server's thread: woken, it closes them, finds none left, and ends.
        with self._server.trigger.lock:
            self._server.trigger.thunks.append(self._close)
            self._server.trigger.pull_trigger()
        self._thread.join(_JOIN_SECONDS)

    def _close(self) -> None:
        wasyncore.close_all(self._connections, ignore_all=True)
