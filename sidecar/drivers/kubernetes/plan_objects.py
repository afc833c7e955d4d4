"""Decodes lists and watches of any kind, FlinkDeployments and nodes; `pod_objects` pods and Events.

Any bytes give one of these types or a ValueError; odd values in an object count as absent.
Each object is decoded by itself: one that cannot be is left out, and hides no other.
"""

from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final, Generic, TypeVar

import msgspec
from msgspec import Raw, Struct, field

from sidecar.core.flink.deployments import FlinkDeployment, Reconciliation
from sidecar.core.moment import parsed
from sidecar.drivers.kubernetes.responses import OF_OBJECTS, WatchEvent

_UNDECODABLE = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)
_MOST = 1 << 53
"""Numbers that JSON holds exactly."""
LONGEST_TEXT = 253

_T = TypeVar("_T")


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


class _Metadata(Struct, rename="camel"):
    name: str = ""
    namespace: str = ""
    uid: str = ""
    resource_version: str = ""
    generation: Any = None
    creation_timestamp: Any = None
    deletion_timestamp: Any = None
    deletion_grace_period_seconds: Any = None
    labels: Any = None
    owner_references: Any = None
    rest: str = field(default="", name="continue")


class _Object(Struct):
    metadata: _Metadata = field(default_factory=_Metadata)
    code: Any = None
    message: Any = None


class _Spec(Struct, rename="camel"):
    job: Any = None
    node_name: Any = None
    containers: Any = None
    unschedulable: Any = None
    replicas: Any = None
    template: Any = None
    suspend: Any = None


class _Status(Struct, rename="camel"):
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


class Full(_Object, rename="camel"):
    """An object of any kind that is read. The fields below `status` are those of an Event."""

    spec: _Spec = field(default_factory=_Spec)
    status: _Status = field(default_factory=_Status)
    involved_object: Any = None
    reason: Any = None
    first_timestamp: Any = None
    last_timestamp: Any = None
    event_time: Any = None
    series: Any = None


class _List(Struct):
    metadata: _Metadata
    items: list[Raw] = []


class _Event(Struct):
    type: str
    object: Raw


_OBJECT: Final = msgspec.json.Decoder(_Object)
_FULL: Final = msgspec.json.Decoder(Full)
_LIST: Final = msgspec.json.Decoder(_List)
_EVENT: Final = msgspec.json.Decoder(_Event)

Read = Callable[[Full], _T]
"""Makes the value of an object."""


def read_page(body: bytes, read: Read[_T], *, qualified: bool) -> tuple[Page[_T], str]:
    """A page, and where the next one begins. `qualified`: names begin with their namespace. Raises ValueError."""
    answer = _decoded(body, _LIST, "list")
    if not answer.metadata.resource_version:
        raise ValueError("no list: it has no resource version")
    items = tuple(item for raw in answer.items if (item := _item(raw, read, qualified=qualified)))
    return Page(answer.metadata.resource_version, items, len(answer.items) - len(items)), answer.metadata.rest


def read_change(line: bytes, read: Read[_T], *, qualified: bool) -> WatchEvent[Item[_T]]:
    """One line of a watch, decoded. Raises ValueError."""
    event = _decoded(line, _EVENT, "event")
    head = _decoded(bytes(event.object), _OBJECT, "event")
    status = head.code if isinstance(head.code, int) else 0
    item = _item(event.object, read, qualified=qualified) if event.type in OF_OBJECTS else None
    return WatchEvent(event.type, head.metadata.resource_version, item, status, text(head.message))


def flink_deployment(manifest: Full) -> FlinkDeployment:
    """The FlinkDeployment that a manifest describes."""
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
    """Whether a namespace is being deleted. Raises ValueError."""
    manifest = _decoded(body, _FULL, "Namespace")
    return manifest.metadata.deletion_timestamp is not None or manifest.status.phase == "Terminating"


def read_cordoned(body: bytes) -> bool:
    """Whether a node is cordoned. Raises ValueError."""
    return _decoded(body, _FULL, "Node").spec.unschedulable is True


def _item(raw: Raw, read: Read[_T], *, qualified: bool) -> Item[_T] | None:
    try:
        manifest = _FULL.decode(raw)
    except _UNDECODABLE:
        return None
    if not manifest.metadata.name or not manifest.metadata.uid:
        return None
    return Item(_name(manifest.metadata, qualified=qualified), read(manifest))


def _name(metadata: _Metadata, *, qualified: bool) -> str:
    return f"{metadata.namespace}/{metadata.name}" if qualified else metadata.name


def number(value: object) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) and 0 <= value < _MOST else None


def text(value: object) -> str:
    return value[:LONGEST_TEXT] if isinstance(value, str) else ""


def mapping(value: object) -> Mapping[str, Any]:
    return value if isinstance(value, dict) else {}


def mappings(values: object) -> Iterator[Mapping[str, Any]]:
    return (value for value in (values if isinstance(values, list) else ()) if isinstance(value, dict))


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
