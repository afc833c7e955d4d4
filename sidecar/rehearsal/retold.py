"""One cluster as records tell of it: as much of its state as the rules look at."""

from collections.abc import Mapping
from typing import Final
from uuid import UUID

from msgspec.structs import replace

from sidecar.core import contest, episodes
from sidecar.core.causes import Loss
from sidecar.core.episodes import Absence, Episode
from sidecar.core.leadership import (
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
from sidecar.core.moment import Moment
from sidecar.core.records import AnyRecord, Contention, Transition
from sidecar.core.records import Episode as EpisodeRecord
from sidecar.core.state import ClusterState, ComponentState, Sighting, Standby, View, contending, fresh_cluster
from sidecar.core.transitions import Kind
from sidecar.rehearsal.sight import Stretch

_NOWHERE: Final = ZNodePosition("", 0, 0, 0, 0, 0)


class Retold:
    """What is known of one cluster after the records so far."""

    def __init__(self, at: Moment) -> None:
        fresh = fresh_cluster(at)
        self._components: dict[ComponentId, ComponentState] = {**fresh.components}
        self._contenders: Mapping[str, tuple[str, ...]] = {}
        self._contested: frozenset[ComponentId] = frozenset()
        self._episode: Episode | None = None
        self._last_episode: Episode | None = None
        self._standby = Standby()
        self._zxid: int | None = None
        self._changed = False
        self.state = fresh

    def looks(self, blind: Stretch | None, now: int) -> None:
        """Bring the state up to date: whether the store is in sight, and what has happened. It stays the same object where nothing has."""
        view = self.state.view
        if view.complete is (blind is not None) or self._changed:
            self._changed = False
            if blind is not None:
                began = Moment(blind.began, blind.began)
                view = View(sighting=Sighting.BLIND, turned_at=began, loss=Loss(began))
            elif not view.complete:
                view = View(complete=True, sighting=Sighting.SEEING, turned_at=Moment(now, now))
            self.state = ClusterState(
                view,
                self._components,
                contenders=self._contenders,
                contested=self._contested,
                zxid=self._zxid,
                episode=self._episode,
                standby=self._standby,
                last_episode=self._last_episode,
            )

    def calm_at(self) -> int | None:
        """When the next split is over if nobody comes back; None while the store is out of sight."""
        if not self.state.view.complete:
            return None
        returns = (self._components[component].contest.returns[-1] for component in self._contested)
        since = self.state.view.turned_at.steady
        return min((max(last, since) + contest.CALM for last in returns), default=None)

    def calms(self, now: Moment) -> None:
        """Splits end for which there was no record: that nobody has come back for long enough."""
        for component in self._contested:
            known = self._components[component]
            if self.state.view.complete and contest.is_calm(known.contest, self.state.view.turned_at.steady, now):
                self._components[component] = replace(known, contest=contest.ended(known.contest))
                self._contested -= {component}
                self._changed = True

    def happened(self, record: AnyRecord, at: Moment) -> None:
        """What a record says, unless it is of when the store was in sight, which is known before."""
        self._changed = self._changed or isinstance(record, Transition | EpisodeRecord | Contention)
        match record:
            case Transition():
                self._moved(record, at)
            case EpisodeRecord() if self._episode and self._episode.id == record.id:
                self._last_episode, self._episode = self._episode, None
            case Contention():
                self._contended(record, at)

    def _contended(self, record: Contention, at: Moment) -> None:
        """The names of contenders are not recorded: numbers stand for them."""
        latch = record.component or ""
        self._contenders = {**self._contenders, latch: tuple(map(str, range(min(record.contenders, 1000))))}
        self._standby = self._standby.with_contenders(contending(self._contenders) or 0, at)

    def _moved(self, record: Transition, at: Moment) -> None:
        component = ComponentId(Component(record.component), record.job_id)
        kind = Kind(record.kind)
        leader = _leader(record.after_session_id, record.after_address)
        last = _leader(record.last_known_session_id, record.last_known_address)
        position = _position(record)
        known = self._components.get(component) or ComponentState(Unknown(), at)
        known = replace(known, last_known=last or known.last_known)
        if leader and known.last_known:
            succeeded = contest.succeeded(known.contest, known.last_known.session_id, leader.session_id, at)
            known = replace(known, contest=succeeded)
        if record.split:
            known = replace(known, contest=replace(known.contest, since=known.contest.since or at))
            known = replace(known, contest=replace(known.contest, returns=known.contest.returns or (at.steady,)))
            self._contested |= {component}
        self._zxid = max(self._zxid or 0, position.mzxid) if isinstance(position, ZNodePosition) else self._zxid
        known = self._follow(component, known, record, leader, position, at)
        if kind is Kind.RETIRED:
            self._components.pop(component, None)
            self._contested -= {component}
            return
        since = known.since if kind is Kind.READDRESSED else at
        self._components[component] = replace(
            known,
            leadership=_leadership(kind, leader, position),
            since=since,
            last_known=leader or known.last_known,
            last_position=position if leader else known.last_position,
            vacated_at=at if kind is Kind.REVOKED else None,
        )

    def _follow(
        self,
        component: ComponentId,
        known: ComponentState,
        record: Transition,
        leader: LeaderInformation | None,
        position: Position | None,
        at: Moment,
    ) -> ComponentState:
        """What the transition means to the episode that it belongs to, as `Change` has it."""
        new = record.episode_id is not None and (self._episode is None or self._episode.id != record.episode_id)
        if new and component.job_id is None:
            self._open(str(record.episode_id), known, record, at)
        self._episode, absence = episodes.moved(
            self._episode, known.absence, component, record, leader, (known.last_position, position), at
        )
        return replace(known, absence=absence)

    def _open(self, episode_id: str, known: ComponentState, record: Transition, at: Moment) -> None:
        led = {c: k.last_known for c, k in self._components.items() if k.last_known and not c.job_id}
        before = led.get(ComponentId(Component.DISPATCHER)) or known.last_known or LeaderInformation("", UUID(int=0))
        contended = contending(self._contenders)
        self._episode = Episode(
            id=episode_id,
            opened_at=at,
            moved_at=at,
            facts=episodes.facts_at_opening(record, None, [*led.values()], contended, at),
            before=before,
            jobs_total=sum(1 for each in self._components if each.job_id),
        )
        for component, job in self._components.items():
            if component.job_id and job.absence and _has_just_left(job.absence, at):
                joined = replace(job.absence, episode_id=episode_id)
                self._components[component] = replace(job, absence=joined)
                away = self._episode.jobs_away + episodes.is_away(joined)
                self._episode = replace(self._episode, jobs_away=away)


def _has_just_left(absence: Absence, at: Moment) -> bool:
    return absence.episode_id is None and at.steady - absence.left_at <= episodes.LOOK_BACK


def _leader(session_id: str | None, address: str | None) -> LeaderInformation | None:
    return LeaderInformation(address or "", UUID(session_id)) if session_id else None


def _leadership(kind: Kind, leader: LeaderInformation | None, position: Position | None) -> Leadership:
    if leader:
        return Held(leader, position or _NOWHERE)
    return Unknown(Blindness.VIEW_LOST) if kind is Kind.OBSCURED else Vacant()


def _position(record: Transition) -> Position | None:
    place = record.position
    if place is None:
        return None
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
    return ZNodePosition(place.path or "", czxid or 0, mzxid or 0, version or 0, owner or 0, 0)
