"""Decodes what the API server answers. Any bytes give one of these types or a ValueError."""

from typing import Any, Final, Generic, TypeVar

import msgspec
from msgspec import Struct, field
from msgspec.structs import replace

from sidecar.core.flink.configmaps import MAX_ANNOTATION_CHARACTERS, relevant

LEADER_ANNOTATION = "control-plane.alpha.kubernetes.io/leader"
EPISODES_ANNOTATION = "flink-ha-sidecar/episodes"
"""The annotation of our Events with the episodes that one counts, the latest last. Another observer of them does not count them again."""

_UNDECODABLE = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)
"""The errors that msgspec raises for unexpected JSON, text that is not UTF-8, and values that are nested too deep."""

OF_OBJECTS: Final = frozenset({"ADDED", "MODIFIED", "DELETED"})
"""Events of a watch that have an object."""

_T = TypeVar("_T")

Version = tuple[str, str]
"""Uid and resource version: the same pair is the same content."""


class ConfigMap(Struct, frozen=True):
    """One ConfigMap at one resource version, without values that are not text; in lists and watches, without those that say nothing of
    leaders: anybody may create a ConfigMap of 1 MiB with Flink's labels.
    """

    name: str
    uid: str
    resource_version: str
    labels: dict[str, str]
    data: dict[str, str]
    leader: str | None
    size: int = 0
    """Characters of all its values."""
    left_out: int | None = None
    """How many jobs were taken out of `data`, because they are too many to be watched; None: nobody has looked."""

    @property
    def version(self) -> Version:
        return self.uid, self.resource_version


class ConfigMapList(Struct, frozen=True):
    """The ConfigMaps of a list, by name, and the store's resource version at that moment."""

    resource_version: str
    config_maps: dict[str, ConfigMap]
    rest: str = ""
    """The token of the list's next page. Empty: this is the last page."""
    size: int = 0
    """Bytes of the answers."""


class WatchEvent(Struct, Generic[_T], frozen=True):
    """One event of a watch. A BOOKMARK has only a resource version, an ERROR only `status` and `message`."""

    kind: str
    resource_version: str
    item: _T | None = None
    """The object; None: there is none, or it cannot be decoded."""
    status: int = 0
    message: str = ""


class EventObject(Struct, frozen=True):
    """One Event of ours: its count, and the episodes that it counts."""

    resource_version: str
    count: int
    episodes: tuple[str, ...]


class _Metadata(Struct, rename="camel"):
    name: str = ""
    namespace: str = ""
    uid: str = ""
    resource_version: str = ""
    labels: dict[str, Any] | None = None
    annotations: dict[str, Any] | None = None
    rest: str = field(default="", name="continue")


class _Object(Struct):
    metadata: _Metadata = field(default_factory=_Metadata)
    data: dict[str, Any] | None = None
    code: int | None = None
    message: str | None = None
    count: int | None = None

    @property
    def is_complete(self) -> bool:
        return bool(self.metadata.name and self.metadata.uid and self.metadata.resource_version)


class _List(Struct):
    metadata: _Metadata
    items: list[_Object] | None = None


class _Event(Struct):
    type: str
    object: _Object


_OBJECT: Final = msgspec.json.Decoder(_Object)
_LIST: Final = msgspec.json.Decoder(_List)
_EVENT: Final = msgspec.json.Decoder(_Event)


def read_config_map_list(body: bytes, *, qualified: bool = False) -> ConfigMapList:
    """`qualified`: names begin with their namespace, `namespace/name`. Raises ValueError."""
    answer = _decoded(body, _LIST, "list of ConfigMaps")
    if not answer.metadata.resource_version:
        raise ValueError("no list of ConfigMaps: it has no resource version")
    items = (_config_map(item, qualified=qualified) for item in answer.items or () if item.is_complete)
    config_maps = {config_map.name: config_map for config_map in items}
    return ConfigMapList(answer.metadata.resource_version, config_maps, answer.metadata.rest, len(body))


def read_config_map(body: bytes) -> ConfigMap:
    """Raises ValueError."""
    answer = _decoded(body, _OBJECT, "ConfigMap")
    if not answer.is_complete:
        raise ValueError("no ConfigMap: it has no name, uid or resource version")
    return replace(_config_map(answer), data=_texts(answer.data))


def read_watch_event(line: bytes, *, qualified: bool = False) -> WatchEvent[ConfigMap]:
    """`qualified`: as of a list. Raises ValueError."""
    event = _decoded(line, _EVENT, "event")
    item, config_map = event.object, None
    if event.type in OF_OBJECTS:
        if not item.is_complete:
            raise ValueError(f"no event: {event.type} of an object without name, uid or resource version")
        config_map = _config_map(item, qualified=qualified)
    return WatchEvent(event.type, item.metadata.resource_version, config_map, item.code or 0, item.message or "")


def read_event(body: bytes) -> EventObject:
    """Raises ValueError."""
    answer = _decoded(body, _OBJECT, "Event")
    if not answer.is_complete:
        raise ValueError("no Event: it has no name, uid or resource version")
    counted = _texts(answer.metadata.annotations).get(EPISODES_ANNOTATION, "")
    return EventObject(answer.metadata.resource_version, answer.count or 1, tuple(filter(None, counted.split(","))))


def read_message(body: bytes) -> str:
    """The message of a refusal; "" if it has none."""
    try:
        return _decoded(body, _OBJECT, "message").message or ""
    except ValueError:
        return ""


def _decoded(data: bytes, decoder: msgspec.json.Decoder[_T], expected: str) -> _T:
    try:
        return decoder.decode(data)
    except _UNDECODABLE as error:
        raise ValueError(f"no {expected}: {error}") from error


def _config_map(item: _Object, *, qualified: bool = False) -> ConfigMap:
    metadata = item.metadata
    data = _texts(item.data)
    leader = (metadata.annotations or {}).get(LEADER_ANNOTATION)
    return ConfigMap(
        f"{metadata.namespace}/{metadata.name}" if qualified else metadata.name,
        metadata.uid,
        metadata.resource_version,
        _texts(metadata.labels),
        relevant(data),
        leader[: MAX_ANNOTATION_CHARACTERS + 1] if isinstance(leader, str) else None,
        sum(map(len, data.values())),
    )


def _texts(values: dict[str, Any] | None) -> dict[str, str]:
    return {key: value for key, value in (values or {}).items() if isinstance(value, str)}
