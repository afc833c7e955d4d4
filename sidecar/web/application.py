"""HTTP: health for the kubelet, metrics for Prometheus, leaders, alerts and failovers as pages and JSON.

The current state comes from the newest snapshot, the past from the journal.
"""

from collections.abc import Callable, Collection, Iterable, Sequence
from functools import cache, partial
from http import HTTPStatus
from types import ModuleType
from typing import TYPE_CHECKING, Final

from msgspec import json

from sidecar.core.flink.leadership import ComponentId
from sidecar.core.moment import Moment
from sidecar.core.sanitize import clean
from sidecar.core.views.explain import UnknownEpisodeError
from sidecar.core.views.leader_here import cluster_leader, observations
from sidecar.core.views.snapshot import Snapshot
from sidecar.journal import JournalError, JournalReader
from sidecar.runtime import threads
from sidecar.web import api_paths, health, host_header
from sidecar.web.answers import HTML, JSON, Answer, as_html, as_json, one_line
from sidecar.web.api_paths import API, EPISODE_ID, OPENAPI_PATH, ParameterError
from sidecar.web.health import HEALTH, LEADER, STANDBY
from sidecar.web.last_day import LastDay
from sidecar.web.queries import BusyError, Queries

if TYPE_CHECKING:
    from _typeshed.wsgi import StartResponse, WSGIEnvironment

_HEADERS: Final = (
    ("Cache-Control", "no-store"),
    ("X-Content-Type-Options", "nosniff"),
    ("Referrer-Policy", "no-referrer"),
)
_EPISODE_PAGE: Final = "/episodes/"
_CLUSTER_LEADER: Final = "/api/v1/clusters/ID/leader"


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
        """`journal` opens a reader for one request; `dead` names the required threads that have ended; `allowed_hosts` are accepted in
        the Host header, in addition to those that `host_header.is_allowed` always accepts.
        """
        self._snapshot = snapshot
        self._metrics = metrics
        self._clock = clock
        self._dead = dead
        self._allowed_hosts = allowed_hosts
        self.overloaded: Callable[[], bool] = lambda: False
        """Whether only health is answered now. Set by the server."""
        self._queries = Queries(snapshot, journal)
        self._monitored: Final[dict[str, Callable[[], Answer]]] = {
            "/livez": lambda: health.livez(self._dead(), self._snapshot(), self._clock()),
            "/readyz": lambda: health.readyz(self._snapshot(), self._clock()),
            "/metrics": lambda: (HTTPStatus.OK, "text/plain; version=0.0.4; charset=utf-8", self._metrics()),
        }
        """What programs ask for, which may add parameters of their own."""
        self._plain: Final[dict[str, Callable[[], Answer]]] = {
            "/troubleshooting": lambda: as_html(_pages().troubleshooting()),
            **{of.path: partial(self._view, of.view) for of in API if of.view},
            "/api/v1/observations": lambda: as_json(observations(self._snapshot(), self._clock())),
            OPENAPI_PATH: lambda: (HTTPStatus.OK, JSON, _openapi()),
        }
        self._lists: Final[dict[str, Callable[[int], Answer]]] = {
            "/api/v1/transitions": lambda last: as_json(self._queries.transitions(last)),
            "/api/v1/episodes": lambda last: as_json(self._queries.episodes(last)),
        }
        self._by_id: Final[dict[str, Callable[[str], Answer]]] = {
            "/api/v1/episodes/": lambda name: as_json(self._queries.details(name)),
            _EPISODE_PAGE: self._episode_page,
        }

    def __call__(self, environ: "WSGIEnvironment", start_response: "StartResponse") -> Iterable[bytes]:
        method = environ.get("REQUEST_METHOD", "")
        try:
            status, content_type, body = self._answer(method, environ)
        except _RefusedError as error:
            status, content_type, body = one_line(error.status, str(error))
        except ParameterError as error:
            status, content_type, body = one_line(HTTPStatus.BAD_REQUEST, str(error))
        except UnknownEpisodeError as error:
            status, content_type, body = one_line(HTTPStatus.NOT_FOUND, str(error))
        except (JournalError, BusyError) as error:
            status, content_type, body = one_line(HTTPStatus.SERVICE_UNAVAILABLE, str(error))
        headers = [("Content-Type", content_type), ("Content-Length", str(len(body))), *_HEADERS]
        if content_type == HTML:
            headers.append(("Content-Security-Policy", _pages().POLICY))
        if status is HTTPStatus.METHOD_NOT_ALLOWED:
            headers.append(("Allow", "GET, HEAD"))
        start_response(f"{status.value} {status.phrase}", headers)
        return [] if method == "HEAD" else [body]

    def _answer(self, method: str, environ: "WSGIEnvironment") -> Answer:
        path = environ.get("PATH_INFO", "")
        if path not in HEALTH:  # always answered: a restart would not help, and a load balancer must know
            host = environ.get("HTTP_HOST")
            if not host_header.is_allowed(host, self._allowed_hosts):
                problem = f"unknown Host {clean(host, 100)}: list the name under http.allowed_hosts"
                raise _RefusedError(HTTPStatus.MISDIRECTED_REQUEST, problem)
            if self.overloaded():
                problem = "too many answers have not been read by their clients: try again"
                raise _RefusedError(HTTPStatus.SERVICE_UNAVAILABLE, problem)
        route = self._route(path, environ.get("QUERY_STRING", ""))
        if method not in {"GET", "HEAD"}:
            raise _RefusedError(HTTPStatus.METHOD_NOT_ALLOWED, "only GET")
        return route()

    def _route(self, path: str, query: str) -> Callable[[], Answer]:
        if path in self._monitored:
            return self._monitored[path]
        if path == "/":
            return partial(self._page, api_paths.page_query(path, query))
        if path in {LEADER, STANDBY}:
            return partial(health.leads, path, query, self._snapshot(), self._clock())
        if path in self._lists:
            return partial(self._lists[path], api_paths.last(path, query))
        if path in self._plain:
            api_paths.nothing(path, query)
            return self._plain[path]
        return self._route_with_id(path, query)

    def _route_with_id(self, path: str, query: str) -> Callable[[], Answer]:
        if (cluster_id := api_paths.cluster_in(path)) is not None:
            component = api_paths.leader_query(_CLUSTER_LEADER, query, names_cluster=True).component
            return partial(self._cluster_leader, cluster_id, component)
        for prefix, answer in self._by_id.items():
            name = path.removeprefix(prefix)
            if name and name != path and "/" not in name:
                api_paths.nothing(f"{prefix}ID", query)
                if not EPISODE_ID.fullmatch(name):
                    problem = (
                        f"no episode has an id like {clean(name, 40)!r}: it takes its first characters, at least four"
                    )
                    raise UnknownEpisodeError(problem)
                return partial(answer, name)
        paths = ["/", *self._monitored, LEADER, STANDBY, *self._plain, *self._lists]
        paths += [*(f"{prefix}ID" for prefix in self._by_id), _CLUSTER_LEADER]
        raise _RefusedError(HTTPStatus.NOT_FOUND, "the paths are: " + " ".join(paths))

    def _view(self, view: Callable[[Snapshot], object]) -> Answer:
        return as_json(view(self._snapshot()))

    def _page(self, query: api_paths.PageQuery) -> Answer:
        snapshot = self._snapshot()
        if query.cluster is not None:
            _must_be_watched(query.cluster, snapshot)
        day, problem = LastDay(), None
        try:
            day = self._queries.last_day()
        except (JournalError, BusyError) as error:  # the page still shows the leaders
            problem = str(error)
        now = self._clock()
        return as_html(_pages().status(snapshot, day, now, problem, health.stuck(snapshot, now), query))

    def _episode_page(self, name: str) -> Answer:
        return as_html(_pages().episode(self._queries.episode(name), self._snapshot(), self._clock()))

    def _cluster_leader(self, cluster_id: str, component: ComponentId) -> Answer:
        snapshot = self._snapshot()
        _must_be_watched(cluster_id, snapshot)
        return as_json(cluster_leader(snapshot, cluster_id, component, self._clock()))


class _RefusedError(Exception):
    """A request that is refused with `status`."""

    def __init__(self, status: HTTPStatus, line: str) -> None:
        super().__init__(line)
        self.status = status


def _must_be_watched(cluster_id: str, snapshot: Snapshot) -> None:
    if cluster_id not in snapshot.state.clusters:
        raise _RefusedError(HTTPStatus.NOT_FOUND, f"no cluster {clean(cluster_id, 100)!r} is watched")


def _pages() -> ModuleType:
    from sidecar.web import pages  # noqa: PLC0415  saves memory until the first page

    return pages


@cache
def _openapi() -> bytes:
    from sidecar.web.openapi import document  # noqa: PLC0415  saves memory until it is asked for

    return json.encode(document())
