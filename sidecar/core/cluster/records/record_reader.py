"""The way back: a record as what it was made from. What a record does not hold, such as our own clock, is not known."""

from typing import Final
from uuid import UUID

from sidecar.core.cluster.downtime import Downtime
from sidecar.core.cluster.leadership_table import Kind
from sidecar.core.cluster.records.record_writer import NOT_CONNECTED
from sidecar.core.cluster.store.unobserved import Gap
from sidecar.core.cluster.transitions import Transition
from sidecar.core.flink.leadership import (
    Blindness,
    Component,
    ComponentId,
    ConfigMapPosition,
    Held,
    LeaderInformation,
    Leadership,
    Position,
    Unknown,
    Vacant,
    ZNodePosition,
)
from sidecar.core.moment import Moment, micros
from sidecar.core.observations import ConnectionState
from sidecar.core.policy.policy import Store
from sidecar.core.records import PositionRecord, TransitionRecord

_NOWHERE: Final = ZNodePosition("", 0, 0, 0, 0, 0)


def transition_of(record: TransitionRecord, at: Moment) -> Transition:
    """The transition that `record` was made from, observed `at` that time. Raises ValueError for words that no version has written."""
    kind = Kind(record.kind)
    position = _position(record.position) if record.position else None
    before = _leader(record.before_session_id, record.before_address)
    after = _leader(record.after_session_id, record.after_address)
    at_least = record.unobserved_at_least
    return Transition(
        id=record.id,
        at=at,
        cluster_id=record.cluster_id,
        store=Store(record.store),
        component=ComponentId(Component(record.component), record.job_id),
        kind=kind,
        before=_leadership(before, None, blind=record.pattern.startswith("?")),
        after=_leadership(after, position, blind=kind is Kind.OBSCURED),
        position=position,
        last_known=_leader(record.last_known_session_id, record.last_known_address),
        obscured_by=record.reason,
        gap=None if at_least is None else Gap(record.unobserved, at_least),
        elections=record.elections,
        contenders=record.contenders,
        vacant_for=None if record.vacant_seconds is None else micros(record.vacant_seconds),
        downtime=_downtime(record),
        returned=record.returned,
        split=record.split,
        plan_vanished=record.plan_vanished,
        connection=None if record.connection == NOT_CONNECTED else ConnectionState(record.connection),
        episode_id=record.episode_id,
    )


def _leader(session_id: str | None, address: str | None) -> LeaderInformation | None:
    return LeaderInformation(address or "", UUID(session_id)) if session_id else None


def _leadership(leader: LeaderInformation | None, position: Position | None, *, blind: bool) -> Leadership:
    if leader:
        return Held(leader, position or _NOWHERE)
    return Unknown(Blindness.VIEW_LOST) if blind else Vacant()


def _position(place: PositionRecord) -> Position:
    if place.holder_identity is not None or place.uid is not None:
        name, _, key = (place.path or "").partition("/")
        return ConfigMapPosition(
            name,
            key,
            place.uid or "",
            place.resource_version or "",
            place.holder_identity or "",
            place.acquire_time or "",
        )
    czxid, mzxid, version, owner = place.czxid, place.mzxid, place.version, place.ephemeral_owner
    return ZNodePosition(place.path or "", czxid or 0, mzxid or 0, version or 0, owner or 0, mtime=0)


def _downtime(record: TransitionRecord) -> Downtime | None:
    at_least, at_most = record.downtime_seconds_at_least, record.downtime_seconds_at_most
    return None if at_least is None else Downtime(micros(at_least), None if at_most is None else micros(at_most))
