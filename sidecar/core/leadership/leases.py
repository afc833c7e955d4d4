"""Derives the leader from the lease: a ConfigMap keeps the address of a dead leader, so a vacancy has to be derived.

A value is a leader's if it was written in the current term of the lease, the lease has a holder, and the holder renews it. The time since
the last renewal is measured on our own clock, from the last observed change or from reconnecting: neither other clocks nor a lost
connection let a lease expire.
"""

from collections.abc import Callable, Mapping
from enum import StrEnum
from typing import Final

from msgspec import Struct
from msgspec.structs import replace

from sidecar.core.flink import configmaps
from sidecar.core.flink.configmaps import LeaderElectionRecord
from sidecar.core.flink.leadership import (
    CLUSTER_COMPONENTS,
    ComponentId,
    ConfigMapPosition,
    Held,
    LeaderInformation,
    Position,
    Unreadable,
)
from sidecar.core.moment import SECOND
from sidecar.core.observations import ConfigMapObserved


class VacancyReason(StrEnum):
    """One fact each; the value is how records put it."""

    REMOVED = "the address was removed"
    CLEARED = "another holder, the old address removed"
    """It is not known who removed the address: takeover and removal were observed together."""
    CONFIG_MAP_GONE = "the ConfigMap is gone"
    MADE_ANEW = "the ConfigMap was deleted and made anew"
    NOTHING_WRITTEN = "no address is written"
    RELEASED = "the lease was released"
    NO_LEASE = "nobody holds a lease"
    ANOTHER_HOLDER = "another holder, the old address still there"
    TAKEN_ANEW = "the same holder took the lease anew, the old address still there"
    LEFT = "left by an earlier leader"
    NOT_RENEWED = "the lease was not renewed for"
    """Followed by how long."""
    LAPSED_BEFORE = "the lease had run out and was not renewed since"


class Vacancy(Struct, frozen=True):
    """A reason; with NOT_RENEWED, for how long the lease was not renewed (microseconds)."""

    reason: VacancyReason
    not_renewed_for: int | None = None

    def __str__(self) -> str:
        return self.reason if self.not_renewed_for is None else f"{self.reason} {self.not_renewed_for / SECOND:.1f} s"


_NOTHING_WRITTEN: Final = Vacancy(VacancyReason.NOTHING_WRITTEN)
_CONFIG_MAP_GONE: Final = Vacancy(VacancyReason.CONFIG_MAP_GONE)
_NOTHING_THERE: Final = (_NOTHING_WRITTEN, _CONFIG_MAP_GONE)


class Term(Struct, frozen=True):
    """The time in which one holder has the lease."""

    holder_identity: str
    acquire_time: str


class WrittenLeader(Struct, frozen=True):
    """One value, and the term in which it was observed to be written. None: no term, or an unreadable one."""

    component: ComponentId
    value: str
    leader: LeaderInformation | Unreadable
    term: Term | None
    left_behind: bool = False
    """A job's that an earlier leader has left: it was there at first sight, and the cluster's leader has another session."""


class Lease(Struct, frozen=True):
    """One ConfigMap as last observed."""

    uid: str = ""
    resource_version: str = ""
    record: LeaderElectionRecord | Unreadable | None = None
    written: Mapping[str, WrittenLeader] = {}
    """The values by key."""
    changed_at: int = 0
    """When the record last changed (steady)."""
    seen_at: int = 0
    quiet_for: int = 0
    """How long the lease had not been renewed when it expired."""
    lapsed: bool = False
    """Whether the lease expired and was not renewed since."""
    renewed_at: int | None = None
    """When its holder was last observed to renew or acquire it (steady): it was alive then. None: not in this term."""
    renewed_every: int | None = None
    """The longest time between two observed renewals of this term. None: fewer than two."""
    counts: bool | None = None
    """Whether `leaderTransitions` counts elections. Up to Flink 1.17 it counts renewals; None: no renewal has shown it yet."""

    @property
    def term(self) -> Term | None:
        record = self.record
        return Term(record.holder_identity, record.acquire_time) if isinstance(record, LeaderElectionRecord) else None

    @property
    def elections(self) -> int | None:
        """How often the lease changed its holder. None: the counter counts something else."""
        if self.counts is False or not isinstance(self.record, LeaderElectionRecord):
            return None
        return self.record.leader_transitions

    def stands_as(self, before: "Lease") -> bool:
        """Whether all that decides who leads is as `before`: a renewal at most."""
        return self.decisive == before.decisive and self.written == before.written

    @property
    def decisive(self) -> tuple[object, ...]:
        """All that decides who leads, beside the values."""
        unreadable = self.record if isinstance(self.record, Unreadable) else None
        return self.uid, self.term, unreadable, self.lapsed, self.elections, self.counts


class LeaseClock(Struct, frozen=True):
    """The times by which leases are judged: now, and the beginning of the present view (steady)."""

    now: int
    connected_at: int


Leases = Mapping[str, Lease]
"""The leases by the names of their ConfigMaps."""
Last = Callable[[ComponentId], Held | None]
"""The last known leader of a component and its position."""


class LeaseVerdict(Struct, frozen=True):
    """The leader of a component. Without a leader: why there is none, and where that is known; `path`: the place that decided."""

    leader: LeaderInformation | Unreadable | None
    position: ConfigMapPosition | None
    path: str
    vacancy: Vacancy | None = None


def take(before: Lease | None, observed: ConfigMapObserved, clock: LeaseClock, last: Last) -> Lease:
    """The lease that follows `before` after an observation of its ConfigMap."""
    record = configmaps.decode_lease(observed.leader) if observed.leader is not None else None
    same = before if before and before.record == record else None
    lease = Lease(
        uid=observed.uid or "",
        resource_version=observed.resource_version,
        record=record,
        changed_at=same.changed_at if same and same.seen_at else clock.now,
        seen_at=clock.now,
    )
    lease = _with_expiry(lease, same, clock)
    earlier = before if before and before.uid == lease.uid else None
    lease = _renewed(lease, earlier, clock)
    written = _values(earlier, observed, lease.term, last)
    first_look = earlier is None or earlier.seen_at < clock.connected_at
    if first_look and observed.name == configmaps.cluster_config_map(observed.cluster_id):
        written = _with_left_behind(earlier, written)
    return replace(lease, written=written, counts=_counts(earlier, record))


def _with_expiry(lease: Lease, same: Lease | None, clock: LeaseClock) -> Lease:
    """The lease, which expires if its holder has not renewed it for long enough. `same`: the one before, if its record is the same."""
    if not isinstance(lease.record, LeaderElectionRecord):
        return lease
    if same and same.lapsed:
        return replace(lease, lapsed=True, quiet_for=same.quiet_for)
    quiet_for = clock.now - max(lease.changed_at, clock.connected_at)
    return replace(lease, lapsed=True, quiet_for=quiet_for) if quiet_for >= lease.record.lapses_after else lease


def _renewed(lease: Lease, before: Lease | None, clock: LeaseClock) -> Lease:
    """`lease` with the time at which its holder was last alive. The time of an unobserved change is not known."""
    if before is None:
        return lease
    in_sight = before.seen_at >= clock.connected_at
    if lease.term != before.term:
        return replace(lease, renewed_at=clock.now if in_sight else None)
    if lease.record == before.record or not in_sight:
        return replace(lease, renewed_at=before.renewed_at, renewed_every=before.renewed_every)
    if before.renewed_at is None:
        return replace(lease, renewed_at=clock.now)
    pause = max(clock.now - before.renewed_at, before.renewed_every or 0)
    return replace(lease, renewed_at=clock.now, renewed_every=pause)


def judge(cluster_id: str, leases: Leases, component: ComponentId, held: Position | None) -> LeaseVerdict:
    """The verdict about `component`, which was last known to be `held` there. If several places hold a leader, that place wins."""
    verdicts = []
    for order, (name, key) in enumerate(configmaps.places(cluster_id, component)):
        here = held if isinstance(held, ConfigMapPosition) and (held.name, held.key) == (name, key) else None
        verdict = _judge_place(leases.get(name), name, key, here)
        surest = 2 if isinstance(verdict.leader, LeaderInformation) else int(verdict.leader is not None)
        written = verdict.vacancy not in _NOTHING_THERE
        verdicts.append(((surest, here is not None, written, order), verdict))
    return max(verdicts, key=lambda ranked: ranked[0])[1]


def _judge_place(lease: Lease | None, name: str, key: str, held: ConfigMapPosition | None) -> LeaseVerdict:
    path = f"{name}/{key}"
    if lease is None:
        return LeaseVerdict(None, None, path, _CONFIG_MAP_GONE if held else _NOTHING_WRITTEN)
    term = lease.term or Term("", "")
    position = ConfigMapPosition(name, key, lease.uid, lease.resource_version, term.holder_identity, term.acquire_time)
    written = lease.written.get(key)
    if written is None:
        return LeaseVerdict(None, position, path, _missing(lease, held) if held else _NOTHING_WRITTEN)
    if isinstance(lease.record, Unreadable):
        return LeaseVerdict(lease.record, position, path)
    vacancy = _vacancy(lease, written)
    return LeaseVerdict(None if vacancy else written.leader, position, path, vacancy)


def _missing(lease: Lease, held: ConfigMapPosition) -> Vacancy:
    """Why the address is gone that was `held` there."""
    if held.uid != lease.uid:
        return Vacancy(VacancyReason.MADE_ANEW)
    holder = lease.term.holder_identity if lease.term else ""
    removed = holder in {"", held.holder_identity}
    return Vacancy(VacancyReason.REMOVED if removed else VacancyReason.CLEARED)


def _vacancy(lease: Lease, written: WrittenLeader) -> Vacancy | None:
    """Why the written address is no leader's, or None if it is the lease holder's."""
    if lease.term is None:
        return Vacancy(VacancyReason.NO_LEASE)
    if not lease.term.holder_identity:
        return Vacancy(VacancyReason.RELEASED)
    if written.left_behind:
        return Vacancy(VacancyReason.LEFT)
    if written.term != lease.term:
        same_holder = written.term and written.term.holder_identity == lease.term.holder_identity
        return Vacancy(VacancyReason.TAKEN_ANEW if same_holder else VacancyReason.ANOTHER_HOLDER)
    if lease.lapsed:
        seen_to_lapse = lease.quiet_for > 0
        return (
            Vacancy(VacancyReason.NOT_RENEWED, lease.quiet_for)
            if seen_to_lapse
            else Vacancy(VacancyReason.LAPSED_BEFORE)
        )
    return None


def _values(
    before: Lease | None, observed: ConfigMapObserved, term: Term | None, last: Last
) -> dict[str, WrittenLeader]:
    """The values, each with the term in which it was first observed."""
    values = configmaps.values(observed.cluster_id, observed.name, observed.data)
    written = {}
    for key, (component, value) in values.items():
        old = before.written.get(key) if before else None
        if old and old.value == value:
            written[key] = old if old.term else replace(old, term=term)
            continue
        leader = configmaps.decode_leader(value)
        held = None if before else last(component)
        place = held.position if held and held.leader == leader else None
        if isinstance(place, ConfigMapPosition) and (place.name, place.key, place.uid) == (
            observed.name,
            key,
            observed.uid,
        ):
            written[key] = WrittenLeader(component, value, leader, Term(place.holder_identity, place.acquire_time))
        else:
            written[key] = WrittenLeader(component, value, leader, term)
    return written


def _with_left_behind(before: Lease | None, written: Mapping[str, WrittenLeader]) -> dict[str, WrittenLeader]:
    """`written` with jobs of an earlier leader marked. Their session identifies them: since 1.15 a leader has one session for
    everything."""
    leaders = [value.leader for value in written.values() if value.component in CLUSTER_COMPONENTS]
    if any(isinstance(leader, Unreadable) for leader in leaders):
        return dict(written)
    sessions = {leader.session_id for leader in leaders if isinstance(leader, LeaderInformation)}
    marked = dict(written)
    for key, value in written.items():
        new = before is None or before.written.get(key) != value
        if new and value.component.job_id and isinstance(value.leader, LeaderInformation):
            marked[key] = replace(value, left_behind=value.leader.session_id not in sessions)
    return marked


def _counts(before: Lease | None, record: LeaderElectionRecord | Unreadable | None) -> bool | None:
    """Whether the lease counts elections, given its new `record` and the previous one."""
    earlier = before.record if before else None
    if before is None or not isinstance(earlier, LeaderElectionRecord) or not isinstance(record, LeaderElectionRecord):
        return None
    if record.leader_transitions is None or earlier.leader_transitions is None:
        return None
    risen = record.leader_transitions - earlier.leader_transitions
    if (record.holder_identity, record.acquire_time) != (earlier.holder_identity, earlier.acquire_time):
        return before.counts if risen >= 0 else None  # up to 1.17 another holder begins at 0
    return before.counts if record == earlier else risen == 0
