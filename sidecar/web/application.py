"""HTTP: health for the kubelet, metrics for Prometheus, leaders, alerts and failovers as pages and JSON.

The current state comes from the newest snapshot, the past from the journal.
"""

import re
from collections.abc import Callable, Collection, Iterable, Sequence
from functools import cache, partial
from http import HTTPStatus
from types import ModuleType
from typing import TYPE_CHECKING, Final

from msgspec import json

from sidecar.core.flink.leadership import ComponentId
from sidecar.core.moment import SECOND, Moment
from sidecar.core.pods import canonical, is_address
from sidecar.core.sanitize import clean, escaped, printable
from sidecar.core.views.explain import UnknownEpisodeError
from sidecar.core.views.leader_here import cluster_leader, leader_here, observations
from sidecar.core.views.snapshot import Snapshot
from sidecar.journal import JournalError, JournalReader
from sidecar.runtime import threads
from sidecar.web import api_paths
from sidecar.web.api_paths import API, EPISODE_ID, OPENAPI_PATH, ParameterError
from sidecar.web.queries import BusyError, LastDay, Queries

if TYPE_CHECKING:
    from _typeshed.wsgi import StartResponse, WSGIEnvironment


Answer = tuple[HTTPStatus, str, bytes]
"""Status, content type, body."""

MOST_BYTES: Final = 8 << 20
"""The size of a body. What lists records is shortened to less; beyond it nothing is sent, because half of a JSON text or page is none."""
TEXT: Final = "text/plain; charset=utf-8"
JSON: Final = "application/json"
HTML: Final = "text/html; charset=utf-8"


def json_answer(value: object) -> Answer:
    """The value as JSON, in which everything unprintable is escaped: it may be read on a terminal."""
    body = json.encode(value)
    return _bounded(JSON, body if len(body) > MOST_BYTES else escaped(body.decode()).encode())


def html_answer(page: str) -> Answer:
    return _bounded(HTML, page.encode())


def one_line(status: HTTPStatus, text: str) -> Answer:
    return status, TEXT, f"{printable(text)}\n".encode()


def _bounded(content_type: str, body: bytes) -> Answer:
    if len(body) > MOST_BYTES:
        return one_line(HTTPStatus.SERVICE_UNAVAILABLE, f"the answer would be larger than {MOST_BYTES >> 20} MiB")
    return HTTPStatus.OK, content_type, body


ANY: Final = "*"
_HOST: Final = re.compile(r"(\[[^\[\]]*\]|[^:\[\]]*)(:[0-9]*)?")
_PRIVATE: Final = (".svc", ".cluster.local", ".localhost")
"""Suffixes that are in no public DNS, among them Kubernetes' services."""


def is_allowed(host: str | None, allowed: Collection[str]) -> bool:
    """True if the Host header is accepted: an address, a name without a dot, a Kubernetes service, or one of `allowed`.

    This protects from DNS rebinding: a foreign page can point its own host name at our address and read our answers in a visitor's browser,
    which sends that name. It cannot with an address, or a name that cannot be registered publicly. Browsers always send the header: a
    request without it is accepted.
    """
    if host is None or ANY in allowed:
        return True
    match = _HOST.fullmatch(host.strip())
    if match is None:
        return False
    name = match[1].lower().removesuffix(".")
    return is_address(canonical(name)) or "." not in name or name.endswith(_PRIVATE) or name in allowed


LEADER: Final = "/leader"
STANDBY: Final = "/standby"
HEALTH: Final = frozenset({"/livez", "/readyz", LEADER, STANDBY})
STALE_SECONDS: Final = 30
"""A snapshot older than this means that the owner's thread is stuck."""
MOST_NAMED: Final = 20
"""Clusters that `/readyz` names."""


def livez(dead: Sequence[str], snapshot: Snapshot, now: Moment) -> Answer:
    """Says if the process works. `dead`: the required threads that have ended."""
    problem = f"these threads have ended: {', '.join(dead)}" if dead else stuck(snapshot, now)
    return one_line(HTTPStatus.SERVICE_UNAVAILABLE, problem) if problem else one_line(HTTPStatus.OK, "ok")


def stuck(snapshot: Snapshot, now: Moment) -> str | None:
    """Why the snapshot is out of date."""
    age = (now.steady - snapshot.at.steady) / SECOND
    return f"the owner's thread has been stuck for {age:.0f} s" if age > STALE_SECONDS else None


def readyz(snapshot: Snapshot, now: Moment) -> Answer:
    """Says if each store is connected and fully read."""
    if problem := _not_ready(snapshot, now):
        return one_line(HTTPStatus.SERVICE_UNAVAILABLE, problem)
    clusters, finder = snapshot.state.clusters, snapshot.state.finder
    problems = [f"{name}: {cluster.missing}" for name, cluster in clusters.items() if cluster.missing]
    problems += [f"{name}: {cluster.beyond}" for name, cluster in clusters.items() if cluster.beyond][:MOST_NAMED]
    if finder and (problem := finder.problem(len(clusters))):
        problems.append(problem)
    problems += (f"left out because of an error in the sidecar: {name}" for name in snapshot.health.quarantined)
    return one_line(HTTPStatus.OK, "; ".join(["ok", *problems]))


def _not_ready(snapshot: Snapshot, now: Moment) -> str | None:
    blind = []
    for name, cluster in snapshot.state.clusters.items():
        # By the current time: a busy owner may not have noticed yet that its view is old.
        overdue = cluster.view.complete and cluster.is_overdue(now)
        if overdue or not cluster.is_in_sight:
            late = ", not answering in time" if overdue else ""
            blind.append(f"{name}: {cluster.view.connection or 'not connected yet'}{late}")
    if blind:
        more = f", and {len(blind) - MOST_NAMED} more" if len(blind) > MOST_NAMED else ""
        return f"the view of the store is incomplete: {', '.join(blind[:MOST_NAMED])}{more}"
    finder = snapshot.state.finder
    if finder and finder.leaves_out and not snapshot.state.clusters:
        return finder.problem(0)
    if snapshot.ready:
        return None
    place = snapshot.state.finder and snapshot.state.finder.place
    return f"the clusters in {place} cannot be listed" if place else "starting"


def leads(path: str, query: str, snapshot: Snapshot, now: Moment) -> Answer:
    """Says if the JobManager beside this sidecar leads, or stands by. Raises ParameterError."""
    component, cluster_id = api_paths.leader_query(path, query)
    here = leader_here(snapshot, component, cluster_id, now)
    is_so = here.leads if path == LEADER else here.stands_by
    return one_line(HTTPStatus.OK if is_so else HTTPStatus.SERVICE_UNAVAILABLE, here.reason)


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
        the Host header, in addition to those that `is_allowed` always accepts.
        """
        self._snapshot = snapshot
        self._metrics = metrics
        self._clock = clock
        self._dead = dead
        self._allowed_hosts = allowed_hosts
        self.overloaded: Callable[[], bool] = lambda: False
        """True if only health is answered now. Set by the server."""
        self._queries = Queries(snapshot, journal)
        self._monitored: Final[dict[str, Callable[[], Answer]]] = {
            "/livez": lambda: livez(self._dead(), self._snapshot(), self._clock()),
            "/readyz": lambda: readyz(self._snapshot(), self._clock()),
            "/metrics": lambda: (HTTPStatus.OK, "text/plain; version=0.0.4; charset=utf-8", self._metrics()),
        }
        """The paths that programs ask for, which may add parameters of their own."""
        self._plain: Final[dict[str, Callable[[], Answer]]] = {
            "/troubleshooting": lambda: html_answer(_pages().troubleshooting()),
            **{of.path: partial(self._view, of.view) for of in API if of.view},
            "/api/v1/observations": lambda: json_answer(observations(self._snapshot(), self._clock())),
            OPENAPI_PATH: lambda: (HTTPStatus.OK, JSON, _openapi()),
        }
        self._lists: Final[dict[str, Callable[[int], Answer]]] = {
            "/api/v1/transitions": lambda last: json_answer(self._queries.transitions(last)),
            "/api/v1/episodes": lambda last: json_answer(self._queries.episodes(last)),
        }
        self._by_id: Final[dict[str, Callable[[str], Answer]]] = {
            "/api/v1/episodes/": lambda name: json_answer(self._queries.details(name)),
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
            if not is_allowed(host, self._allowed_hosts):
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
            return partial(leads, path, query, self._snapshot(), self._clock())
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
        return json_answer(view(self._snapshot()))

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
        return html_answer(_pages().status(snapshot, day, now, problem, stuck(snapshot, now), query))

    def _episode_page(self, name: str) -> Answer:
        return html_answer(_pages().episode(self._queries.episode(name), self._snapshot(), self._clock()))

    def _cluster_leader(self, cluster_id: str, component: ComponentId) -> Answer:
        snapshot = self._snapshot()
        _must_be_watched(cluster_id, snapshot)
        return json_answer(cluster_leader(snapshot, cluster_id, component, self._clock()))


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
    return json.encode(api_paths.openapi_document())
