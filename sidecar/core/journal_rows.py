"""The state as rows of a journal, and back. Only values that a step replaced become rows: the others are the same objects."""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final, TypeVar

import msgspec
from msgspec import Struct, json

from sidecar.core.alerting.alerts import Alerts, Failovers, Group, Pending, PendingKey
from sidecar.core.alerting.silences import Documents, Silence, Silences
from sidecar.core.cluster.death.ends import NOTHING, Ends
from sidecar.core.cluster.failover.episodes import Episode
from sidecar.core.cluster.failover.plans import Disruption, Operated
from sidecar.core.cluster.leadership_account import Account
from sidecar.core.cluster.recovery.recovery_state import Assessed, Assessment, JobAfter, JobFault
from sidecar.core.cluster.state import ClusterState, ComponentState, Drilled, RestServer, Standby, View
from sidecar.core.cluster.store.leases import Lease
from sidecar.core.cluster.transitions import Transition
from sidecar.core.delivery.outbox import Delivery
from sidecar.core.drills.drill import RunningDrill
from sidecar.core.evidence import Capture
from sidecar.core.flink.configmaps import LeaderElectionRecord
from sidecar.core.flink.leadership import ComponentId
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
# Built by the import: msgspec 0.22 crashes when two threads are the first to decode one type.
_DECODERS: Final = {kind: (json.Decoder(key), json.Decoder(value)) for kind, (key, value) in _TYPES.items()}
_encode: Final = json.Encoder(enc_hook=Overlay.whole).encode
KINDS: Final = frozenset(_TYPES)
"""All kinds of rows."""


class Row(Struct, frozen=True):
    """One value of the state as JSON; `value` None: the value was removed."""

    kind: str
    key: bytes
    value: bytes | None


def changes(before: State, after: State) -> Iterator[Row]:
    """The rows that turn `before` into `after`."""
    yield from _diff("alive", _one("", before.alive), _one("", after.alive))
    yield from _diff("pending", before.alerts.pending, after.alerts.pending)
    yield from _diff("group", before.alerts.groups, after.alerts.groups)
    yield from _diff("failovers", before.alerts.failovers, after.alerts.failovers)
    yield from _diff("delivery", before.outbox, after.outbox)
    yield from _diff("capture", before.captures, after.captures)
    yield from _diff("drill", before.drills, after.drills)
    if before.silences is not after.silences:
        yield from _diff("silence", _silences(before.silences), _silences(after.silences))
    for name in {**before.clusters, **after.clusters}:
        old, new = before.clusters.get(name), after.clusters.get(name)
        if old is not new:
            yield from _diff("view", _one(name, old and old.view), _one(name, new and new.view))
            yield from _diff("episode", _one(name, old and old.episode), _one(name, new and new.episode))
            yield from _diff("last_episode", _one(name, old and old.last_episode), _one(name, new and new.last_episode))
            yield from _diff("standby", _one(name, old and old.standby), _one(name, new and new.standby))
            yield from _diff("component", old.components if old else {}, new.components if new else {}, prefix=name)
            yield from _diff("lapsed", _lapsed(old), _lapsed(new), prefix=name)
            yield from _diff("departed", old.departed if old else {}, new.departed if new else {}, prefix=name)
            yield from _diff("pod", old.pods if old else {}, new.pods if new else {}, prefix=name)
            yield from _diff("operated", _one(name, old and old.operated), _one(name, new and new.operated))
            disruptions = old.disruptions if old else {}, new.disruptions if new else {}
            yield from _diff("disruption", *disruptions, prefix=name)
            yield from _diff("ends", _ends(name, old), _ends(name, new))
            yield from _diff("drilled", _one(name, old and old.drilled), _one(name, new and new.drilled))
            yield from _diff("account", _one(name, old and old.account), _one(name, new and new.account))
            yield from _recovery(name, old, new)


def _recovery(name: str, old: ClusterState | None, new: ClusterState | None) -> Iterator[Row]:
    """The rows of what Flink's REST server said, and of what is compared after a failover."""
    yield from _diff("picture", _one(name, old and old.picture_kept), _one(name, new and new.picture_kept))
    yield from _diff("recovery", _one(name, old and old.recovery), _one(name, new and new.recovery))
    yield from _diff("recovering", old.recovering if old else {}, new.recovering if new else {}, prefix=name)
    yield from _diff("assessed", _one(name, old and old.assessed), _one(name, new and new.assessed))
    yield from _diff("job_fault", old.job_faults if old else {}, new.job_faults if new else {}, prefix=name)
    yield from _diff("rest_server", _one(name, old and old.rest_server), _one(name, new and new.rest_server))


def assemble(rows: Iterable[Row]) -> tuple[State, list[str]]:
    """The state that the rows hold, and one line for each row that could not be decoded (and is left out)."""
    found: dict[str, dict[Any, Any]] = {kind: {} for kind in _TYPES}
    problems = []
    for row in rows:
        if row.kind in _TYPES and row.value is not None:
            key, value = _DECODERS[row.kind]
            try:
                found[row.kind][key.decode(row.key)] = value.decode(row.value)
            except (msgspec.DecodeError, UnicodeDecodeError) as error:
                problems.append(f"a row of kind {row.kind} cannot be decoded and is left out: {error}")
    clusters = {}
    for name, view in found["view"].items():
        components = {component: known for (cluster, component), known in found["component"].items() if cluster == name}
        lapsed = {lease: record for (cluster, lease), record in found["lapsed"].items() if cluster == name}
        clusters[name] = ClusterState(
            view,
            components,
            contested=frozenset(component for component, known in components.items() if known.contest.since),
            leases={lease: Lease(record=record, lapsed=True) for lease, record in lapsed.items()},
            episode=found["episode"].get(name),
            last_episode=found["last_episode"].get(name),
            standby=found["standby"].get(name, Standby()),
            departed={left: t for (cluster, left), t in found["departed"].items() if cluster == name},
            pods={host: pod for (cluster, host), pod in found["pod"].items() if cluster == name},
            operated=found["operated"].get(name),
            disruptions={uid: each for (cluster, uid), each in found["disruption"].items() if cluster == name},
            ends=found["ends"].get(name, Ends()),
            picture=found["picture"].get(name),
            picture_kept=found["picture"].get(name),
            recovery=found["recovery"].get(name),
            recovering={job: each for (cluster, job), each in found["recovering"].items() if cluster == name},
            assessed=found["assessed"].get(name),
            job_faults={job: each for (cluster, job), each in found["job_fault"].items() if cluster == name},
            rest_server=found["rest_server"].get(name),
            drilled=found["drilled"].get(name, Drilled()),
            account=found["account"].get(name),
        )
    outbox = dict(sorted(found["delivery"].items(), key=lambda item: item[1].queued_at))
    alerts = Alerts(found["pending"], found["group"], found["failovers"])
    silences: dict[str, Silences] = {}
    for (document, silence_id), silence in found["silence"].items():
        known = silences.get(document, Silences()).known
        silences[document] = Silences({**known, silence_id: silence})
    alive = found["alive"].get("")
    captures, drills = found["capture"], found["drill"]
    return State(clusters, alerts, outbox, captures, alive, silences=silences, drills=drills), problems


def _diff(
    kind: str, before: Mapping[_K, Struct], after: Mapping[_K, Struct], prefix: str | None = None
) -> Iterator[Row]:
    if before is after:
        return
    removed, replaced = differing(before, after)
    for key in removed:
        yield Row(kind, _key(key, prefix), None)
    for key, value in replaced.items():
        yield Row(kind, _key(key, prefix), _encode(value))


def _key(key: object, prefix: str | None) -> bytes:
    return json.encode(key if prefix is None else (prefix, key))


def _one(name: str, value: _S | None) -> Mapping[str, _S]:
    return {name: value} if value else {}


def _silences(documents: Documents) -> Mapping[tuple[str, str], Silence]:
    return {(name, key): silence for name, each in documents.items() for key, silence in each.known.items()}


def _ends(name: str, cluster: ClusterState | None) -> Mapping[str, Ends]:
    return {name: cluster.ends} if cluster and cluster.ends != NOTHING else {}


def _lapsed(cluster: ClusterState | None) -> Mapping[str, LeaderElectionRecord]:
    """The expired leases: a new process must not take them for valid."""
    return {
        name: lease.record
        for name, lease in (cluster.leases if cluster else {}).items()
        if lease.lapsed and isinstance(lease.record, LeaderElectionRecord)
    }
