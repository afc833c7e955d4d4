"""The paths of the JSON API and their parameters: one table, from which requests are answered and the OpenAPI document is made."""

import re
from collections.abc import Callable, Mapping
from typing import Any, Final, NamedTuple
from urllib.parse import unquote_plus

from msgspec import Struct, json

from sidecar import __version__
from sidecar.core.flink.leadership import CLUSTER_COMPONENTS, Component, ComponentId
from sidecar.core.records import TransitionRecord
from sidecar.core.views.alert_view import AlertView, alerts
from sidecar.core.views.episode_view import EpisodeView
from sidecar.core.views.ha_check_view import HaCheckView, ha_checks
from sidecar.core.views.leader_here import ClusterLeader
from sidecar.core.views.leader_view import Leader, leaders
from sidecar.core.views.observation_view import ObservationView
from sidecar.core.views.silence_view import SilenceView, silences
from sidecar.core.views.snapshot import Snapshot
from sidecar.core.views.verdict import ClusterVerdict, verdicts
from sidecar.web.queries import EpisodeDetails

COMPONENTS: Final = {component.component.value: component for component in reversed(CLUSTER_COMPONENTS)}
"""The values of `component=`."""
DEFAULT_LAST: Final = 100
MOST_LAST: Final = 1000
EPISODE_ID: Final = re.compile(r"[0-9a-f-]{4,36}")
"""An episode's id, or the beginning of one."""

_CLUSTER_LEADER: Final = re.compile(r"/api/v1/clusters/(.+)/leader", re.DOTALL)
_NUMBER: Final = re.compile(r"[0-9]{1,4}")
_LONGEST: Final = 1000
"""Characters of a cluster id in a request, and of a query."""


class ApiPath(Struct, frozen=True):
    """A path of the API. `answers`: the type that is encoded as JSON."""

    path: str
    """With `{id}` in the place of an id."""
    summary: str
    answers: Any
    view: Callable[[Snapshot], object] | None = None
    """The answer, where a snapshot is enough."""
    takes: str | None = None
    """The parameter that it takes: `last` or `component`."""
    id_of: str | None = None
    """The kind of the id in the path: `episode` or `cluster`."""


API: Final = (
    ApiPath("/api/v1/clusters", "How each watched cluster is, the worst first", list[ClusterVerdict], verdicts),
    ApiPath("/api/v1/leaders", "Who leads each component, of every watched cluster", list[Leader], leaders),
    ApiPath("/api/v1/alerts", "Alerts that fire, are suppressed, or will fire soon", list[AlertView], alerts),
    ApiPath("/api/v1/silences", "Silences, active ones first", list[SilenceView], silences),
    ApiPath("/api/v1/ha-checks", "Checks of high availability, risks first", list[HaCheckView], ha_checks),
    ApiPath(
        "/api/v1/observations", "What this observer sees of each cluster, for other observers", list[ObservationView]
    ),
    ApiPath("/api/v1/transitions", "The last transitions, newest first", list[TransitionRecord], takes="last"),
    ApiPath("/api/v1/episodes", "The last failovers, those in progress first", list[EpisodeView], takes="last"),
    ApiPath("/api/v1/episodes/{id}", "Everything that is known of one failover", EpisodeDetails, id_of="episode"),
    ApiPath(
        "/api/v1/clusters/{id}/leader",
        "Who leads a component of one cluster",
        ClusterLeader,
        takes="component",
        id_of="cluster",
    ),
)
RANGES: Final = (1, 6, 24)
"""Hours that the pictures of the status page may show. The last of them, if none are named."""
OPENAPI_PATH: Final = "/api/v1/openapi.json"
DEFAULT_COMPONENT: Final = Component.REST_SERVER


class ParameterError(Exception):
    """The query of a request is not understood."""


def last(path: str, query: str) -> int:
    """The number in `last=N`. Raises ParameterError."""
    try:
        number = _parameters(query, "last").get("last", str(DEFAULT_LAST))
    except ParameterError:
        number = ""
    if not _NUMBER.fullmatch(number) or not number.isascii() or not 1 <= int(number) <= MOST_LAST:
        raise ParameterError(f"{path} takes last=N, from 1 to {MOST_LAST}, and nothing else")
    return int(number)


class PageQuery(NamedTuple):
    """The part that the status page is asked to show."""

    cluster: str | None = None
    """None: all clusters."""
    hours: int = RANGES[-1]
    """The hours of its pictures."""


def page_query(path: str, query: str) -> PageQuery:
    """The query of `cluster=ID` and `hours=N`. Raises ParameterError."""
    try:
        values = _parameters(query, "cluster", "hours")
        return PageQuery(
            values.get("cluster"), {str(hours): hours for hours in RANGES}[values.get("hours", str(RANGES[-1]))]
        )
    except (ParameterError, KeyError):
        ranges = f"{', '.join(map(str, RANGES[:-1]))} or {RANGES[-1]}"
        raise ParameterError(f"{path} takes cluster=ID and hours={ranges}, and nothing else") from None


class LeaderQuery(NamedTuple):
    """Whose leader is asked for."""

    component: ComponentId
    cluster_id: str | None = None
    """None: that of the only cluster."""


def leader_query(path: str, query: str, *, names_cluster: bool = False) -> LeaderQuery:
    """The query of `component=NAME`, and where the path does not name the cluster, `cluster_id=ID`. Raises ParameterError."""
    try:
        parameters = _parameters(query, "component", *([] if names_cluster else ["cluster_id"]))
        component = COMPONENTS[parameters.get("component", DEFAULT_COMPONENT)]
    except (ParameterError, KeyError):
        *others, last = COMPONENTS
        names = f"component={', '.join(others)} or {last}{'' if names_cluster else ' and cluster_id=ID'}"
        raise ParameterError(f"{path} takes {names}, and nothing else") from None
    cluster_id = parameters.get("cluster_id")
    return LeaderQuery(component, None if cluster_id is None else cluster_id.strip("/"))


def cluster_in(path: str) -> str | None:
    """The id in `/api/v1/clusters/ID/leader`, which may have slashes; None: it is another path."""
    match = _CLUSTER_LEADER.fullmatch(path)
    # WSGI: the bytes of a path, one to a character.
    return match[1].encode("latin-1").decode(errors="replace").strip("/") if match else None


def nothing(path: str, query: str) -> None:
    """Raises ParameterError if there is any parameter."""
    if query:
        raise ParameterError(f"{path} takes no parameters")


def _parameters(query: str, *names: str) -> Mapping[str, str]:
    """The parameters, each at most once. Raises ParameterError for others, and for long ones."""
    if len(query) > _LONGEST:
        raise ParameterError
    values: dict[str, str] = {}
    for part in query.split("&") if query else ():
        name, equals, value = part.partition("=")
        if name not in names or not equals or name in values:
            raise ParameterError
        values[name] = unquote_plus(value)
    return values


_ERRORS: Final = {
    "400": "A parameter is unknown or has a wrong value.",
    "404": "There is no such failover or watched cluster, or there are several failovers.",
    "421": "The name in the Host header is not one of http.allowed_hosts.",
    "503": "The journal cannot be read, or too many requests are being answered: try again. Or the answer would be too large.",
}
_PARAMETERS: Final[dict[str, dict[str, Any]]] = {
    "last": {
        "name": "last",
        "in": "query",
        "description": "The number of newest entries. Fewer are answered if they are larger than 4 MiB together.",
        "schema": {"type": "integer", "minimum": 1, "maximum": MOST_LAST, "default": DEFAULT_LAST},
    },
    "component": {
        "name": "component",
        "in": "query",
        "description": "Whose leader.",
        "schema": {"type": "string", "enum": [*COMPONENTS], "default": DEFAULT_COMPONENT},
    },
    "episode": {
        "name": "id",
        "in": "path",
        "required": True,
        "description": "The episode's id, or its first characters, at least four.",
        "schema": {"type": "string", "pattern": f"^{EPISODE_ID.pattern}$"},
    },
    "cluster": {
        "name": "id",
        "in": "path",
        "required": True,
        "description": "The id of a watched cluster. Slashes in it may be encoded or not.",
        "schema": {"type": "string", "minLength": 1},
    },
}


def openapi_document() -> dict[str, Any]:
    """OpenAPI 3.1."""
    schemas, components = json.schema_components(
        [path.answers for path in API], ref_template="#/components/schemas/{name}"
    )
    paths = {path.path: _operation(path, schema) for path, schema in zip(API, schemas, strict=True)}
    itself = {"type": "object", "description": "An OpenAPI 3.1 document."}
    paths[OPENAPI_PATH] = _get("openapi", "This document", itself, [], ["400", "421", "503"])
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "flink-ha-sidecar",
            "version": __version__,
            "description": "Read only. Times are RFC 3339 in UTC with microseconds. Fields are added, never renamed or removed.",
        },
        "servers": [{"url": "../.."}],
        "paths": paths,
        "components": {"schemas": components},
    }


def _operation(path: ApiPath, schema: dict[str, Any]) -> dict[str, Any]:
    parameters = [_PARAMETERS[name] for name in (path.id_of, path.takes) if name]
    errors = ["400", *(["404"] if path.id_of else []), "421", "503"]
    name = "episode" if path.id_of == "episode" else path.path.rpartition("/")[2]
    return _get(name, path.summary, schema, parameters, errors)


def _get(
    name: str, summary: str, schema: dict[str, Any], parameters: list[dict[str, Any]], errors: list[str]
) -> dict[str, Any]:
    line = {"text/plain": {"schema": {"type": "string"}}}
    return {
        "get": {
            "operationId": name,
            "summary": summary,
            "parameters": parameters,
            "responses": {
                "200": {"description": summary, "content": {"application/json": {"schema": schema}}},
                **{code: {"description": _ERRORS[code], "content": line} for code in errors},
            },
        }
    }
