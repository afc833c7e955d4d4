"""The state as rows of a journal, and back. Only values that a step replaced become rows: the others are the same objects."""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final, TypeVar

import msgspec
from msgspec import Struct, json

from sidecar.core.alerting.alerts import Alerts, Failovers, Group, Pending, PendingKey
from sidecar.core.alerting.outbox import Delivery
from sidecar.core.alerting.suppression import Documents, Silence, Silences
from sidecar.core.captures import Capture
from sidecar.core.cluster.cluster_state import ClusterState, ComponentState, Drilled, RestServer, View
from sidecar.core.cluster.status import Stated
from sidecar.core.drills.drill import RunningDrill
from sidecar.core.failover.ends import NOTHING, Ends
from sidecar.core.failover.episodes import Episode
from sidecar.core.failover.plans import Disruption, Operated
from sidecar.core.failover.recovery_state import Assessed, Assessment, JobAfter, JobFault
from sidecar.core.flink.configmaps import LeaderElectionRecord
from sidecar.core.flink.leadership import ComponentId
from sidecar.core.leadership.leadership_account import Account, Standby
from sidecar.core.leadership.leases import Lease
from sidecar.core.leadership.transitions import Transition
from sidecar.core.moment import Moment
from sidecar.core.overlay import Overlay, differing
from sidecar.core.pictures import Picture
from sidecar.core.pods import Pod
from sidecar.core.state import State

_K = TypeVar("_K")
_S = TypeVar("_S", bound=Struct)

_TYPES: Final[dict[str, tuple[Any, type[Struct]]]] = {
    "alive": (str, Moment),
    "view": (str, View),
    "episode": (str, Episode),
    "last_episode": (str, Episode),
    "standby": (str, Standby),
    "component": (tuple[str, ComponentId], ComponentState),
    "lapsed": (tuple[str, str], LeaderElectionRecord),
    "departed": (tuple[str, ComponentId], Transition),
    "pod": (tuple[str, str], Pod),
    "operated": (str, Operated),
    "disruption": (tuple[str, str], Disruption),
    "ends": (str, Ends),
    "picture": (str, Picture),
    "recovery": (str, Assessment),
    "recovering": (tuple[str, str], JobAfter),
    "assessed": (str, Assessed),
    "job_fault": (tuple[str, str], JobFault),
    "rest_server": (str, RestServer),
    "account": (str, Account),
    "stated": (str, Stated),
    "pending": (PendingKey, Pending),
    "group": (str, Group),
    "failovers": (str, Failovers),
    "delivery": (str, Delivery),
    "capture": (str, Capture),
    "silence": (tuple[str, str], Silence),
    "drill": (str, RunningDrill),
    "drilled": (str, Drilled),
}
"""Key and value of each kind of row."""
_ONE: Final = {
    **{kind: kind for kind in ("view", "episode", "last_episode", "standby", "operated", "drilled", "account")},
    "stated": "stated",
    **{kind: kind for kind in ("recovery", "assessed", "rest_server")},
    "picture": "picture_kept",
}
"""Kinds of which a cluster has one row, and the field of its state that the row holds."""
_MANY: Final = {
    "component": "components",
    "departed": "departed",
    "pod": "pods",
    "disruption": "disruptions",
    "recovering": "recovering",
    "job_fault": "job_faults",
}
"""Kinds of which a cluster has a row by key, likewise."""
_NONE: Final[Mapping[Any, Struct]] = {}
# Built by the import: msgspec 0.22 crashes when two threads are the first to decode one type.
_DECODERS: Final = {kind: (json.Decoder(key), json.Decoder(value)) for kind, (key, value) in _TYPES.items()}
_encode: Final = json.Encoder(enc_hook=Overlay.whole).encode
KINDS: Final = frozenset(_TYPES)
"""All kinds of rows."""
FORMAT: Final = 1
"""The format of the rows. A new format needs a function from each earlier one to the next, applied when a file is opened."""


class JournalRow(Struct, frozen=True):
    """One value of the state as JSON. `value` None: the value was removed."""

    kind: str
    key: bytes
    value: bytes | None


def changes(before: State, after: State) -> Iterator[JournalRow]:
    """The rows that turn `before` into `after`."""
    yield from _diff("alive", _row_of_one("", before.alive), _row_of_one("", after.alive))
    yield from _diff("pending", before.alerts.pending, after.alerts.pending)
    yield from _diff("group", before.alerts.groups, after.alerts.groups)
    yield from _diff("failovers", before.alerts.failovers, after.alerts.failovers)
    yield from _diff("delivery", before.outbox, after.outbox)
    yield from _diff("capture", before.captures, after.captures)
    yield from _diff("drill", before.drills, after.drills)
    if before.silences is not after.silences:
        yield from _diff("silence", _silences(before.silences), _silences(after.silences))
    removed, replaced = differing(before.clusters, after.clusters)
    for name in (*removed, *replaced):
        yield from _cluster_changes(name, before.clusters.get(name), after.clusters.get(name))


def _cluster_changes(name: str, old: ClusterState | None, new: ClusterState | None) -> Iterator[JournalRow]:
    for kind, field in _ONE.items():
        if (before := getattr(old, field, None)) is not (after := getattr(new, field, None)):
            yield from _diff(kind, _row_of_one(name, before), _row_of_one(name, after))
    for kind, field in _MANY.items():
        if (values := getattr(old, field, _NONE)) is not (others := getattr(new, field, _NONE)):
            yield from _diff(kind, values, others, prefix=name)
    yield from _diff("ends", _ends(name, old), _ends(name, new))
    yield from _diff("lapsed", _expired_leases(old), _expired_leases(new), prefix=name)


def assemble(rows: Iterable[JournalRow]) -> tuple[State, list[str]]:
    """The state that the rows hold, and one line for each row that could not be decoded (and is left out)."""
    values, problems = _decoded(rows)
    silences: dict[str, Silences] = {}
    for (document, silence_id), silence in values["silence"].items():
        by_id = silences.get(document, Silences()).known
        silences[document] = Silences({**by_id, silence_id: silence})
    state = State(
        {name: _cluster(name, values) for name in values["view"]},
        values["capture"],
        values["alive"].get(""),
        alerts=Alerts(values["pending"], values["group"], values["failovers"]),
        outbox=dict(sorted(values["delivery"].items(), key=lambda item: item[1].queued_at)),
        silences=silences,
        drills=values["drill"],
    )
    return state, problems


def _decoded(rows: Iterable[JournalRow]) -> tuple[dict[str, dict[Any, Any]], list[str]]:
    """The values by kind and key, and the problems."""
    values: dict[str, dict[Any, Any]] = {kind: {} for kind in _TYPES}
    problems = []
    for row in rows:
        if row.kind in _TYPES and row.value is not None:
            key, value = _DECODERS[row.kind]
            try:
                values[row.kind][key.decode(row.key)] = value.decode(row.value)
            except (msgspec.DecodeError, UnicodeDecodeError) as error:
                problems.append(f"a row of kind {row.kind} cannot be decoded and is left out: {error}")
    return values, problems


def _cluster(name: str, values: Mapping[str, Mapping[Any, Any]]) -> ClusterState:
    def cluster_rows(kind: str) -> dict[Any, Any]:
        return {key: value for (cluster, key), value in values[kind].items() if cluster == name}

    fields: dict[str, Any] = {field: cluster_rows(kind) for kind, field in _MANY.items()}
    fields |= {field: values[kind][name] for kind, field in (*_ONE.items(), ("ends", "ends")) if name in values[kind]}
    return ClusterState(
        **fields,
        contested=frozenset(component for component, state in fields["components"].items() if state.contest.since),
        leases={lease: Lease(record=record, lapsed=True) for lease, record in cluster_rows("lapsed").items()},
        picture=fields.get("picture_kept"),
    )


def _diff(
    kind: str, before: Mapping[_K, Struct], after: Mapping[_K, Struct], prefix: str | None = None
) -> Iterator[JournalRow]:
    if before is after:
        return
    removed, replaced = differing(before, after)
    for key in removed:
        yield JournalRow(kind, _key(key, prefix), None)
    for key, value in replaced.items():
        yield JournalRow(kind, _key(key, prefix), _encode(value))


def _key(key: object, prefix: str | None) -> bytes:
    return json.encode(key if prefix is None else (prefix, key))


def _row_of_one(name: str, value: _S | None) -> Mapping[str, _S]:
    return {name: value} if value else {}


def _silences(documents: Documents) -> Mapping[tuple[str, str], Silence]:
    return {(name, key): silence for name, document in documents.items() for key, silence in document.known.items()}


def _ends(name: str, cluster: ClusterState | None) -> Mapping[str, Ends]:
    return {name: cluster.ends} if cluster and cluster.ends != NOTHING else {}


def _expired_leases(cluster: ClusterState | None) -> Mapping[str, LeaderElectionRecord]:
    """The expired leases: a new process must not take them for valid."""
    return {
        name: lease.record
        for name, lease in (cluster.leases if cluster else {}).items()
        if lease.lapsed and isinstance(lease.record, LeaderElectionRecord)
    }
