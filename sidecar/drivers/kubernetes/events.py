"""What the API server answers, in our words. Whatever it says: a value of ours, or ValueError."""

from typing import Any

import msgspec
from msgspec import Struct, field

LEADER_ANNOTATION = "control-plane.alpha.kubernetes.io/leader"

_NO_JSON = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)
"""What is raised by bytes that are none of what was asked for: nested too deep, or with text that is not UTF-8, among them."""

Version = tuple[str, str]
"""Uid and resource version: the same pair is the same content."""


class ConfigMap(Struct, frozen=True):
    """One ConfigMap as it stood at one resource version. What is not text in it is left out."""

    name: str
    uid: str
    resource_version: str
    labels: dict[str, str]
    data: dict[str, str]
    leader: str | None

    @property
    def version(self) -> Version:
        return self.uid, self.resource_version


class Listing(Struct, frozen=True):
    """What a list found, and the resource version of the whole store at which it did."""

    resource_version: str
    found: dict[str, ConfigMap]


class Event(Struct, frozen=True):
    """One event of a watch. Of a BOOKMARK only the resource version means something, of an ERROR only `status` and `message`."""

    kind: str
    config_map: ConfigMap
    status: int = 0
    message: str = ""


class _Metadata(Struct, rename="camel"):
    name: str = ""
    uid: str = ""
    resource_version: str = ""
    labels: dict[str, Any] | None = None
    annotations: dict[str, Any] | None = None


class _Object(Struct):
    metadata: _Metadata = field(default_factory=_Metadata)
    data: dict[str, Any] | None = None
    code: int | None = None
    message: str | None = None


class _List(Struct):
    metadata: _Metadata
    items: list[_Object] | None = None


class _Event(Struct):
    type: str
    object: _Object


_list = msgspec.json.Decoder(_List)
_event = msgspec.json.Decoder(_Event)
_object = msgspec.json.Decoder(_Object)


def read_listing(body: bytes) -> Listing:
    """Raises ValueError when it is none."""
    try:
        answer = _list.decode(body)
    except _NO_JSON as error:
        raise ValueError(f"no list of ConfigMaps: {error}") from error
    if not answer.metadata.resource_version:
        raise ValueError("no list of ConfigMaps: it has no resource version")
    found = {item.metadata.name: _config_map(item) for item in answer.items or () if _is_whole(item)}
    return Listing(answer.metadata.resource_version, found)


def read_config_map(body: bytes) -> ConfigMap:
    """Raises ValueError when it is none."""
    try:
        answer = _object.decode(body)
    except _NO_JSON as error:
        raise ValueError(f"no ConfigMap: {error}") from error
    if not _is_whole(answer):
        raise ValueError("no ConfigMap: it has no name, uid or resource version")
    return _config_map(answer)


def read_event(line: bytes) -> Event:
    """Raises ValueError when it is none."""
    try:
        event = _event.decode(line)
    except _NO_JSON as error:
        raise ValueError(f"no event: {error}") from error
    if event.type in {"ADDED", "MODIFIED", "DELETED"} and not _is_whole(event.object):
        raise ValueError(f"no event: {event.type} of an object without name, uid or resource version")
    return Event(event.type, _config_map(event.object), event.object.code or 0, event.object.message or "")


def read_message(body: bytes) -> str:
    """The message of a refusal, "" where it has none."""
    try:
        return _object.decode(body).message or ""
    except _NO_JSON:
        return ""


def _is_whole(item: _Object) -> bool:
    return bool(item.metadata.name and item.metadata.uid and item.metadata.resource_version)


def _config_map(item: _Object) -> ConfigMap:
    metadata = item.metadata
    leader = (metadata.annotations or {}).get(LEADER_ANNOTATION)
    return ConfigMap(
        metadata.name,
        metadata.uid,
        metadata.resource_version,
        _texts(metadata.labels),
        _texts(item.data),
        leader if isinstance(leader, str) else None,
    )


def _texts(values: dict[str, Any] | None) -> dict[str, str]:
    return {key: value for key, value in (values or {}).items() if isinstance(value, str)}
