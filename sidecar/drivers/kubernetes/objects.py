"""Decodes what the API server answers: the one shape of an object of any kind, lists and watches of them, ConfigMaps and FlinkDeployments.

Any bytes give one of these types or a ValueError; odd values in an object count as absent. Of ConfigMaps, one that cannot be decoded makes
the whole answer a ValueError: its leaders would be missing. Other objects are decoded each by itself: one that cannot be is left out, and
hides no other. `pod_objects` makes pods and Events of an object, `deployed_objects` what a Flink cluster is made of.
"""

from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final, Generic, TypeVar

import msgspec
from msgspec import UNSET, Raw, Struct, field
from msgspec.structs import replace

from sidecar.core.flink.configmaps import MAX_ANNOTATION_CHARACTERS, relevant
from sidecar.core.flink.deployments import FlinkDeployment, Reconciliation
from sidecar.core.moment import parsed

LEADER_ANNOTATION = "control-plane.alpha.kubernetes.io/leader"
EPISODES_ANNOTATION = "flink-ha-sidecar/episodes"
"""The annotation of our Events with the episodes that one counts, the latest last. Another observer of them does not count them again."""

_UNDECODABLE = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)
"""The errors that msgspec raises for unexpected JSON, text that is not UTF-8, and values that are nested too deep."""
_MOST = 1 << 53
"""Numbers that JSON holds exactly."""
LONGEST_TEXT = 253

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
    """The number of jobs taken out of `data`, because they are too many to be watched; None: nobody has looked."""

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


class Item(Struct, Generic[_T], frozen=True):
    """One object. `name` has its namespace if several namespaces are read."""

    name: str
    value: _T


class Page(Struct, Generic[_T], frozen=True):
    """One page of a list."""

    resource_version: str
    items: tuple[Item[_T], ...]
    left_out: int = 0
    """Objects that could not be decoded."""


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


class _Metadata(Struct, rename="camel", frozen=True):
    name: str = ""
    namespace: str = ""
    uid: str = ""
    resource_version: str = ""
    generation: Any = None
    creation_timestamp: Any = None
    deletion_timestamp: Any = None
    deletion_grace_period_seconds: Any = None
    labels: Any = None
    annotations: Any = None
    owner_references: Any = None
    rest: str = field(default="", name="continue")


class Spec(Struct, rename="camel", frozen=True):
    """The specs of all kinds that are read."""

    affinity: Any = None
    containers: Any = None
    job: Any = None
    job_manager: Any = None
    max_unavailable: Any = None
    min_available: Any = None
    node_name: Any = None
    replicas: Any = None
    restart_policy: Any = None
    selector: Any = UNSET
    """An empty one selects everything, and a missing one nothing."""
    service_account_name: Any = None
    suspend: Any = None
    template: Any = None
    topology_spread_constraints: Any = None
    unschedulable: Any = None
    volumes: Any = None


class ObjectStatus(Struct, rename="camel", frozen=True):
    """The statuses of all kinds that are read."""

    allowed: Any = None
    observed_generation: Any = None
    lifecycle_state: Any = None
    reconciliation_status: Any = None
    pod_ip: Any = field(default=None, name="podIP")
    conditions: Any = None
    container_statuses: Any = None
    phase: Any = None
    reason: Any = None
    message: Any = None
    replicas: Any = None
    updated_replicas: Any = None
    ready_replicas: Any = None
    current_revision: Any = None
    update_revision: Any = None


class _Object(Struct):
    """An object without spec and status: a ConfigMap, an Event's count, or a refusal, whose `status` is a word."""

    metadata: _Metadata = _Metadata()
    data: dict[str, Any] | None = None
    code: Any = None
    message: Any = None
    count: Any = None

    @property
    def is_complete(self) -> bool:
        return bool(self.metadata.name and self.metadata.uid and self.metadata.resource_version)


class Full(_Object, rename="camel"):
    """An object of any kind that is read. The fields below `binary_data` are those of an Event."""

    spec: Spec = Spec()
    status: ObjectStatus = ObjectStatus()
    binary_data: Any = None
    involved_object: Any = None
    reason: Any = None
    first_timestamp: Any = None
    last_timestamp: Any = None
    event_time: Any = None
    series: Any = None


class _List(Struct, Generic[_T]):
    metadata: _Metadata
    items: list[_T] | None = None


class _Event(Struct, Generic[_T]):
    type: str
    object: _T


_OBJECT: Final = msgspec.json.Decoder(_Object)
_FULL: Final = msgspec.json.Decoder(Full)
_LIST: Final = msgspec.json.Decoder(_List[Raw])
_EVENT: Final = msgspec.json.Decoder(_Event[Raw])
_CONFIG_MAPS: Final = msgspec.json.Decoder(_List[_Object])
_CONFIG_MAP_EVENT: Final = msgspec.json.Decoder(_Event[_Object])

Read = Callable[[Full], _T]
"""Makes the value of an object."""


def read_config_map_list(body: bytes, *, qualified: bool = False) -> ConfigMapList:
    """`qualified`: names begin with their namespace, `namespace/name`. Raises ValueError."""
    answer = _decoded(body, _CONFIG_MAPS, "list of ConfigMaps")
    if not answer.metadata.resource_version:
        raise ValueError("no list of ConfigMaps: it has no resource version")
    items = (_config_map(item, qualified=qualified) for item in answer.items or () if item.is_complete)
    config_maps = {config_map.name: config_map for config_map in items}
    return ConfigMapList(answer.metadata.resource_version, config_maps, answer.metadata.rest, len(body))


def read_config_map(body: bytes) -> ConfigMap:
    """Raises ValueError."""
    answer = _complete(body, "ConfigMap")
    return replace(_config_map(answer), data=texts(answer.data))


def read_watch_event(line: bytes, *, qualified: bool = False) -> WatchEvent[ConfigMap]:
    """`qualified`: as of a list. Raises ValueError."""
    event = _decoded(line, _CONFIG_MAP_EVENT, "event")
    if event.type not in OF_OBJECTS:
        return _watch_event(event.type, event.object, None)
    if not event.object.is_complete:
        raise ValueError(f"no event: {event.type} of an object without name, uid or resource version")
    return _watch_event(event.type, event.object, _config_map(event.object, qualified=qualified))


def read_event(body: bytes) -> EventObject:
    """Raises ValueError."""
    answer = _complete(body, "Event")
    counted = texts(answer.metadata.annotations).get(EPISODES_ANNOTATION, "")
    return EventObject(
        answer.metadata.resource_version, number(answer.count) or 1, tuple(filter(None, counted.split(",")))
    )


def read_message(body: bytes) -> str:
    """The message of a refusal; "" if it has none."""
    try:
        return _message(_decoded(body, _OBJECT, "message"))
    except ValueError:
        return ""


def read_page(body: bytes, read: Read[_T], *, qualified: bool) -> tuple[Page[_T], str]:
    """A page, and where the next one begins. `qualified`: names begin with their namespace. Raises ValueError."""
    answer = _decoded(body, _LIST, "list")
    if not answer.metadata.resource_version:
        raise ValueError("no list: it has no resource version")
    raws = answer.items or ()
    items = tuple(item for raw in raws if (item := _item(raw, read, qualified=qualified)))
    return Page(answer.metadata.resource_version, items, len(raws) - len(items)), answer.metadata.rest


def read_change(line: bytes, read: Read[_T], *, qualified: bool) -> WatchEvent[Item[_T]]:
    """One line of a watch, decoded. Raises ValueError."""
    event = _decoded(line, _EVENT, "event")
    head = _decoded(bytes(event.object), _OBJECT, "event")
    return _watch_event(
        event.type, head, _item(event.object, read, qualified=qualified) if event.type in OF_OBJECTS else None
    )


def read_objects(body: bytes, read: Read[_T | None]) -> tuple[list[_T], str]:
    """The objects of a page, as `read` makes them, and where the next page begins. Raises ValueError."""
    page = _decoded(body, _LIST, "list")
    manifests = filter(None, map(_full, page.items or ()))
    return [value for manifest in manifests if (value := read(manifest)) is not None], page.metadata.rest


def read_object(body: bytes, kind: str = "object") -> Full:
    """The decoded object, of which an error says that it is no `kind`. Raises ValueError."""
    return _decoded(body, _FULL, kind)


def flink_deployment(manifest: Full) -> FlinkDeployment:
    status, job = mapping(manifest.status.reconciliation_status), mapping(manifest.spec.job)
    reconciled = number(status.get("reconciliationTimestamp"))
    return FlinkDeployment(
        manifest.metadata.uid[:LONGEST_TEXT],
        number(manifest.metadata.generation) or 0,
        number(manifest.status.observed_generation),
        _reconciliation(status.get("state")) or _reconciliation(manifest.status.lifecycle_state),
        None if reconciled is None else reconciled * 1000,
        suspended=job.get("state") == "suspended",
        deleting=manifest.metadata.deletion_timestamp is not None,
        owner=_owner(manifest.metadata.owner_references),
    )


def read_terminating(body: bytes) -> bool:
    """True if a namespace is being deleted. Raises ValueError."""
    manifest = read_object(body, "Namespace")
    return manifest.metadata.deletion_timestamp is not None or manifest.status.phase == "Terminating"


def read_cordoned(body: bytes) -> bool:
    """True if a node is cordoned. Raises ValueError."""
    return read_object(body, "Node").spec.unschedulable is True


def _complete(body: bytes, kind: str) -> _Object:
    answer = _decoded(body, _OBJECT, kind)
    if not answer.is_complete:
        raise ValueError(f"no {kind}: it has no name, uid or resource version")
    return answer


def _watch_event(kind: str, head: _Object, item: _T | None) -> WatchEvent[_T]:
    return WatchEvent(kind, head.metadata.resource_version, item, number(head.code) or 0, _message(head))


def _config_map(item: _Object, *, qualified: bool = False) -> ConfigMap:
    metadata = item.metadata
    data = texts(item.data)
    leader = mapping(metadata.annotations).get(LEADER_ANNOTATION)
    return ConfigMap(
        _name(metadata, qualified=qualified),
        metadata.uid,
        metadata.resource_version,
        texts(metadata.labels),
        relevant(data),
        leader[: MAX_ANNOTATION_CHARACTERS + 1] if isinstance(leader, str) else None,
        sum(map(len, data.values())),
    )


def _item(raw: Raw, read: Read[_T], *, qualified: bool) -> Item[_T] | None:
    manifest = _full(raw)
    if manifest is None or not manifest.metadata.uid:
        return None
    return Item(_name(manifest.metadata, qualified=qualified), read(manifest))


def _full(raw: Raw) -> Full | None:
    """The object; None: it cannot be decoded, or has no name."""
    try:
        manifest = _FULL.decode(raw)
    except _UNDECODABLE:
        return None
    return manifest if manifest.metadata.name else None


def _name(metadata: _Metadata, *, qualified: bool) -> str:
    return f"{metadata.namespace}/{metadata.name}" if qualified else metadata.name


def _message(answer: _Object) -> str:
    return answer.message if isinstance(answer.message, str) else ""


def number(value: object) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) and 0 <= value < _MOST else None


def text(value: object) -> str:
    return value[:LONGEST_TEXT] if isinstance(value, str) else ""


def mapping(value: object) -> Mapping[str, Any]:
    return value if isinstance(value, dict) else {}


def mappings(values: object) -> Iterator[Mapping[str, Any]]:
    return (value for value in (values if isinstance(values, list) else ()) if isinstance(value, dict))


def texts(values: object) -> dict[str, str]:
    return {key: value for key, value in mapping(values).items() if isinstance(value, str)}


def wall_time(value: object) -> int | None:
    """Wall microseconds of an RFC 3339 time."""
    try:
        return max(parsed(value), 0) if isinstance(value, str) else None
    except (ValueError, OverflowError):
        return None


def _reconciliation(value: object) -> Reconciliation | None:
    return Reconciliation(value) if isinstance(value, str) and value in {*Reconciliation} else None


def _owner(references: object) -> str | None:
    for reference in mappings(references):
        if reference.get("kind") == "FlinkBlueGreenDeployment":
            return text(reference.get("name")) or None
    return None


def _decoded(data: bytes, decoder: msgspec.json.Decoder[_T], expected: str) -> _T:
    try:
        return decoder.decode(data)
    except _UNDECODABLE as error:
        raise ValueError(f"no {expected}: {error}") from error
