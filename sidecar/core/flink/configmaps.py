"""Flink's ConfigMaps in all versions: names and keys ⇄ component ids, and the decoding of their values.

| layout | Flink       | ConfigMap and its lease                          | leader of a cluster component | leader of a job    |
|--------|-------------|--------------------------------------------------|-------------------------------|--------------------|
| K1     | ≤ 1.14      | one each: `<cluster>-<component>-leader`, …      | `address`, `sessionId`        | the same           |
| K2     | 1.15 - 1.18 | one for all: `<cluster>-cluster-config-map`      | `….leader.<component>`        | `….leader.<job>`   |
| K3     | ≥ 1.19      | the same                                         | the same                      | `….leader.job-<job>` |

`….` is `org.apache.flink.k8s`, and a value there is `<session id>,<address>`. Names of components have no underscore.
"""

import re
from collections.abc import Mapping
from enum import StrEnum
from typing import Annotated, Final
from uuid import UUID

import msgspec
from msgspec import Meta, Struct

from sidecar.core.flink.leadership import (
    LONGEST_ADDRESS,
    TOO_LONG,
    Component,
    ComponentId,
    LeaderInformation,
    Unreadable,
)
from sidecar.core.moment import SECOND


class ConfigMapLayout(StrEnum):
    """A layout of Flink's ConfigMaps, named by the versions that write it."""

    K1 = "1.14 or older"
    K2 = "1.15 - 1.18"
    K3 = "1.19 or newer"


MAX_CHARACTERS: Final = 36 + 1 + LONGEST_ADDRESS
"""The most characters of a session id, a comma and an address. Longer values are not decoded; one character more of them is kept."""
MAX_ANNOTATION_CHARACTERS: Final = 10_000
LONGEST_FIELD: Final = 256
"""Characters of a field of a lease: its holder is a UUID, or a name with at most 253."""
LONGEST_LEASE: Final = 24 * 3600 * SECOND
DEFAULT_LEASE: Final = 15 * SECOND
"""Flink's own default, used if the annotation has no duration."""
LEASE_MARGIN: Final = 3 * SECOND // 2
"""How long a lease stays valid after its duration has passed without a renewal."""

_ADDRESS, _SESSION_ID = "address", "sessionId"
_LEADER: Final = "org.apache.flink.k8s.leader."
_COMPONENTS: Final = {
    "restserver": ComponentId(Component.REST_SERVER),
    "resourcemanager": ComponentId(Component.RESOURCE_MANAGER),
    "dispatcher": ComponentId(Component.DISPATCHER),
}
_JOB: Final = re.compile(r"(?:job-)?([0-9a-f]{32})")
_OLD_NAME: Final = re.compile(rf"({'|'.join(_COMPONENTS)})-leader|([0-9a-f]{{32}})-jobmanager-leader")
_IN_JOB_STORE: Final = re.compile(r"(?:jobGraph|executionPlan|runningJobsRegistry)-([0-9a-f]{32})")
_UUID: Final = re.compile(r"[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}")
_DURATION: Final = re.compile(r"PT(?:([0-9]{1,9})H)?(?:([0-9]{1,9})M)?(?:([0-9]{1,9}(?:\.[0-9]{1,9})?)S)?")


class LeaderElectionRecord(Struct, frozen=True):
    """The lease as its holder last wrote it. Mirrors fabric8's `LeaderElectionRecord`; times are the holder's own and stay text."""

    holder_identity: str = ""
    """A random UUID for each JobManager process; empty: the lease was released."""
    lease_duration: int = DEFAULT_LEASE
    """Microseconds."""
    acquire_time: str = ""
    renew_time: str = ""
    leader_transitions: int | None = None

    @property
    def lapses_after(self) -> int:
        """How long after its last renewal it expires (microseconds)."""
        return self.lease_duration + LEASE_MARGIN


_Field = Annotated[str, Meta(max_length=LONGEST_FIELD)]


class _Annotation(Struct, frozen=True, rename="camel"):
    holder_identity: _Field | None = None
    lease_duration: float | _Field | None = None
    acquire_time: _Field | None = None
    renew_time: _Field | None = None
    leader_transitions: int | None = None


_ANNOTATION: Final = msgspec.json.Decoder(_Annotation)


def cluster_config_map(cluster_id: str) -> str:
    """The name of the ConfigMap of all leaders, since 1.15."""
    return f"{cluster_id}-cluster-config-map"


def dispatcher_config_map(cluster_id: str) -> str:
    """The name of the ConfigMap of the dispatcher's leader, up to 1.14."""
    return f"{cluster_id}-dispatcher-leader"


def is_job_store(cluster_id: str, name: str) -> bool:
    """Whether the ConfigMap `name` lists the jobs that Flink would recover."""
    return name in {cluster_config_map(cluster_id), dispatcher_config_map(cluster_id)}


def owner_of(cluster_id: str, name: str) -> ComponentId | None:
    """The one component whose leader is in the ConfigMap `name` (≤ 1.14); None for other ConfigMaps."""
    prefix = f"{cluster_id}-"
    if not name.startswith(prefix) or not (match := _OLD_NAME.fullmatch(name.removeprefix(prefix))):
        return None
    return _COMPONENTS[match[1]] if match[1] else ComponentId(Component.JOB, match[2])


def places(cluster_id: str, component: ComponentId) -> tuple[tuple[str, str], ...]:
    """The names and keys that may hold the leader of `component`, the newest layout's last."""
    one = cluster_config_map(cluster_id)
    if component.job_id:
        old = f"{cluster_id}-{component.job_id}-jobmanager-leader"
        return (old, _ADDRESS), (one, f"{_LEADER}{component.job_id}"), (one, f"{_LEADER}job-{component.job_id}")
    spelled = component.component.value.replace("_", "")
    return (f"{cluster_id}-{spelled}-leader", _ADDRESS), (one, f"{_LEADER}{spelled}")


def is_leaders(cluster_id: str, name: str) -> bool:
    """Whether the ConfigMap `name` holds leaders of the cluster, unlike those of checkpoints and of the operator's autoscaler."""
    return name == cluster_config_map(cluster_id) or owner_of(cluster_id, name) is not None


def layout_of(cluster_id: str, name: str, key: str) -> ConfigMapLayout | None:
    """The only layout with this key, or None if several layouts have it."""
    if owner_of(cluster_id, name):
        return ConfigMapLayout.K1
    if not _JOB.fullmatch(key.removeprefix(_LEADER)):
        return None
    return ConfigMapLayout.K3 if key.startswith(f"{_LEADER}job-") else ConfigMapLayout.K2


def relevant(data: Mapping[str, str]) -> dict[str, str]:
    """The part of a ConfigMap's data for `ConfigMapObserved.data`: leaders, and the names of the jobs to recover.

    Of a value that is too long for a leader, as much is kept as shows that it is.
    """
    kept = {
        key: value[: MAX_CHARACTERS + 1]
        for key, value in data.items()
        if key in {_ADDRESS, _SESSION_ID} or key.startswith(_LEADER)
    }
    return kept | {key: "" for key in data if _IN_JOB_STORE.fullmatch(key)}


def job_ids(data: Mapping[str, str]) -> frozenset[str]:
    """The jobs that Flink would recover, by the keys of a job store."""
    return frozenset(match[1] for match in map(_IN_JOB_STORE.fullmatch, data) if match)


def job_of(key: str) -> str | None:
    """The job that a key is about: its leader, or its place in a job store."""
    if match := _IN_JOB_STORE.fullmatch(key) or (key.startswith(_LEADER) and _JOB.fullmatch(key.removeprefix(_LEADER))):
        return match[1]
    return None


def values(cluster_id: str, name: str, data: Mapping[str, str]) -> dict[str, tuple[ComponentId, str]]:
    """The component of each key with a leader, and its value in the form of 1.15, `<session id>,<address>`. Empty values are left out."""
    if owner := owner_of(cluster_id, name):
        session_id, address = data.get(_SESSION_ID), data.get(_ADDRESS)
        return {_ADDRESS: (owner, f"{session_id or ''},{address or ''}")} if session_id or address else {}
    if name != cluster_config_map(cluster_id):
        return {}
    by_key = {}
    for key, value in data.items():
        leader = key.removeprefix(_LEADER) if key.startswith(_LEADER) else ""
        if value and leader in _COMPONENTS:
            by_key[key] = _COMPONENTS[leader], value
        elif value and (match := _JOB.fullmatch(leader)):
            by_key[key] = ComponentId(Component.JOB, match[1]), value
    return by_key


def decode_leader(value: str) -> LeaderInformation | Unreadable:
    """The leader in `<session id>,<address>`; an address may have commas. Never raises."""
    if len(value) > MAX_CHARACTERS:
        return TOO_LONG
    session_id, comma, address = value.partition(",")
    if not comma:
        return Unreadable("no comma between a session id and an address")
    if not _UUID.fullmatch(session_id):
        return Unreadable("the session id is not a UUID")
    if not address:
        return Unreadable("no address behind the session id")
    if not _is_text(address):
        return Unreadable("the address is not text")
    return TOO_LONG if len(address.encode()) > LONGEST_ADDRESS else LeaderInformation(address, UUID(session_id))


def decode_lease(annotation: str) -> LeaderElectionRecord | Unreadable:
    """The annotation `control-plane.alpha.kubernetes.io/leader`: fields that are null or missing take their defaults. Never raises."""
    if len(annotation) > MAX_ANNOTATION_CHARACTERS:
        return Unreadable(f"more than {MAX_ANNOTATION_CHARACTERS} characters: longer than any lease")
    if not _is_text(annotation):
        return Unreadable("the lease is not text")
    try:
        lease = _ANNOTATION.decode(annotation)
    except msgspec.ValidationError:
        return Unreadable("a field of the lease has a value that it never has")
    except (msgspec.DecodeError, RecursionError):
        return Unreadable("the lease is not JSON")
    duration = _duration(lease.lease_duration)
    if duration is None:
        return Unreadable("the duration of the lease cannot be read")
    transitions = lease.leader_transitions
    return LeaderElectionRecord(
        lease.holder_identity or "",
        duration,
        lease.acquire_time or "",
        lease.renew_time or "",
        transitions if transitions is not None and 0 <= transitions < 1 << 63 else None,
    )


def lapses_after(annotation: str | None) -> int | None:
    """How long after its last renewal the lease expires (microseconds), or None without a held lease."""
    lease = decode_lease(annotation) if annotation else None
    return lease.lapses_after if isinstance(lease, LeaderElectionRecord) and lease.holder_identity else None


def _duration(value: float | str | None) -> int | None:
    """Microseconds; fabric8 writes seconds as a number, since version 7 as `PT15S`."""
    if value is None:
        return DEFAULT_LEASE
    if isinstance(value, str):
        match = _DURATION.fullmatch(value)
        if match is None or not any(match.groups()):
            return None
        hours, minutes, seconds = match.groups()
        value = int(hours or 0) * 3600 + int(minutes or 0) * 60 + float(seconds or 0)
    micros = round(min(max(value, -1), LONGEST_LEASE) * SECOND)
    return micros if 0 <= micros <= LONGEST_LEASE else None


def _is_text(value: str) -> bool:
    """Whether UTF-8 can encode it: JSON can hold lone surrogates."""
    return value.isascii() or not any("\ud800" <= char <= "\udfff" for char in value)
