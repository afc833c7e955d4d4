"""The OpenAPI document of the JSON API, made from `routes` and the types of the answers."""

from typing import Any, Final

from msgspec import json

from sidecar import __version__
from sidecar.web.api_paths import (
    API,
    COMPONENTS,
    DEFAULT_COMPONENT,
    DEFAULT_LAST,
    EPISODE_ID,
    MOST_LAST,
    OPENAPI_PATH,
    ApiPath,
)

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


def document() -> dict[str, Any]:
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
