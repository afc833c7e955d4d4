"""What happened, as records: the audit log's view of one step of one cluster."""

from collections.abc import Mapping, Sequence
from typing import TypedDict

from msgspec import Struct

from sidecar.core import downtime, layout
from sidecar.core.accounting import NOT_KNOWABLE, Gap
from sidecar.core.causes import Cause, Confidence, Loss, verdict
from sidecar.core.contest import Contest
from sidecar.core.episodes import Episode
from sidecar.core.leadership import (
    Component,
    ComponentId,
    ConfigMapPosition,
    Held,
    LeaderInformation,
    ZNodePosition,
    host_port,
)
from sidecar.core.leadership import Position as StorePosition
from sidecar.core.moment import SECOND, Moment, Timestamp, seconds, stored_at, timestamp
from sidecar.core.observations import ConnectionState
from sidecar.core.policy import Policy
from sidecar.core.records import Contention, Coverage, Position, Transition, record_id
from sidecar.core.records import Episode as EpisodeRecord
from sidecar.core.state import ComponentState, View, contending
from sidecar.core.transitions import Kind, Sight, pattern


class Seen(Struct, frozen=True):
    """What one observation says of one component."""

    sight: Sight
    leader: LeaderInformation | None = None
    position: StorePosition | None = None
    path: str | None = None
    reason: str | None = None


class Envelope(TypedDict):
    """What every record of one step has in common."""

    cluster_id: str
    external_labels: dict[str, str]
    store: str
    observer: str
    observed_at: Timestamp


def envelope(policy: Policy, cluster_id: str, at: Moment) -> Envelope:
    """The envelope of what is recorded of a cluster at one moment."""
    store = policy.stores.get(cluster_id)
    return {
        "cluster_id": cluster_id,
        "external_labels": policy.external_labels,
        "store": store.value if store else "",
        "observer": policy.observer,
        "observed_at": timestamp(at.wall),
    }


class Scribe:
    """Writes the records of one step of one cluster."""

    def __init__(self, policy: Policy, cluster_id: str, at: Moment) -> None:
        self._policy = policy
        self._cluster_id = cluster_id
        self._at = at
        self._envelope = envelope(policy, cluster_id, at)

    def coverage(self, view: View, until: Moment) -> Coverage:
        """What this observer could see, from where it was last recorded `until` then."""
        stretch = (view.since.wall, view.since.steady, until.wall, until.steady, view.sighting)
        return Coverage(
            id=record_id("coverage", self._cluster_id, self._policy.observer, *stretch),
            from_=timestamp(view.since.wall),
            to=timestamp(until.wall),
            state=view.sighting.value,
            **self._envelope,
        )

    def contention(self, latch: str, names: Sequence[str], before: Sequence[str] | None) -> Contention:
        """Who contends at `latch`. Curator never gives a name twice, so the names of before and after say which change it was. A first
        look is no change: it is this observer's own.
        """
        component = layout.latched(latch)
        own = (self._policy.observer, self._at.wall, self._at.steady) if before is None else ()
        return Contention(
            id=record_id("contention", self._cluster_id, latch, before, names, *own),
            component=component.value if component else None,
            contenders=len(names),
            contenders_before=None if before is None else len(before),
            **self._envelope,
        )

    def transition(
        self,
        component: ComponentId,
        known: ComponentState,
        contest: Contest,
        seen: Seen,
        kind: Kind,
        connection: ConnectionState | None,
        contenders: Mapping[str, tuple[str, ...]],
    ) -> Transition:
        """What happened to `component`, of which this was `known`; of its contest, what has become of `contest`.

        `known.last_led` is of the leader before this one.
        """
        held = known.leadership if isinstance(known.leadership, Held) else None
        before = held.leader if held else None
        position = seen.position or (held.position if held and kind is not Kind.OBSCURED else None)
        gap, elections = _counted(known) if kind is not Kind.OBSCURED else (None, None)
        vacant = self._at.steady - known.vacated_at.steady if seen.leader and known.vacated_at else None
        same_leader = bool(seen.leader and known.last_known and seen.leader.session_id == known.last_known.session_id)
        led = known.last_led
        down = downtime.until(led, self._at.steady, same_leader=same_leader) if seen.leader and led else None
        return Transition(
            id=self._transition_id(component, known, seen, kind),
            component=component.component.value,
            job_id=component.job_id,
            kind=kind.value,
            pattern=pattern(known.leadership, kind, held_after=seen.leader is not None),
            before_session_id=str(before.session_id) if before else None,
            before_address=before.address if before else None,
            after_session_id=str(seen.leader.session_id) if seen.leader else None,
            after_address=seen.leader.address if seen.leader else None,
            last_known_session_id=str(known.last_known.session_id) if known.last_known else None,
            last_known_address=known.last_known.address if known.last_known else None,
            same_leader=same_leader,
            same_process=_same_process(known, seen),
            unobserved=gap.exact if gap else None,
            unobserved_at_least=gap.at_least if gap else None,
            elections=elections,
            contenders=contending(contenders),
            store_reelected=_store_reelected(known, seen),
            returned=seen.leader is not None and seen.leader.session_id in contest.earlier,
            split=known.contest.since is not None,
            vacant_seconds=round(vacant / SECOND, 6) if vacant is not None else None,
            **downtime.in_seconds(down),
            view=connection.value if connection else "NOT_CONNECTED",
            reason=seen.reason,
            written_at=stored_at(seen.position.mtime) if isinstance(seen.position, ZNodePosition) else None,
            position=_recorded(position) if position else None,
            **self._envelope,
        )

    def episode(self, episode: Episode, parts: Mapping[ComponentId, ComponentState]) -> EpisodeRecord:
        """An episode that is over, and the components that had a part in it."""
        found = verdict(episode.facts)
        jobs = [known for component, known in parts.items() if component.job_id]
        own = [known for component, known in parts.items() if not component.job_id]
        vacant: dict[str, int] = {}
        for component, known in parts.items():
            if known.absence and known.absence.vacant is not None:
                name = component.component.value
                vacant[name] = max(vacant.get(name, 0), known.absence.vacant)
        if episode.longest_ended is not None:
            vacant[Component.JOB] = max(vacant.get(Component.JOB, 0), episode.longest_ended)
        by_component = {str(name): round(micros / SECOND, 6) for name, micros in sorted(vacant.items())}
        before, after = episode.before, episode.after
        down = [known.absence.downtime for known in own if known.absence]
        return EpisodeRecord(
            id=episode.id,
            opened_at=timestamp(episode.opened_at.wall),
            closed_at=timestamp(episode.moved_at.wall),
            cause=found.cause.value,
            confidence=found.confidence.value,
            facts=list(found.facts),
            components=sorted({component.component.value for component in parts}),
            jobs_affected=len(jobs) + episode.jobs_ended,
            jobs_ended=episode.jobs_ended,
            jobs_missing=episode.jobs_away,
            jobs_total=episode.jobs_total,
            vacant_seconds=max((s for name, s in by_component.items() if name != Component.JOB), default=None),
            vacant_seconds_by_component=by_component,
            **downtime.in_seconds(downtime.longest(down)),
            before_session_id=str(before.session_id),
            before_address=before.address,
            after_session_id=str(after.session_id) if after else None,
            after_address=after.address if after else None,
            failovers=max((known.absence.leaders for known in own if known.absence), default=0),
            **self._envelope,
        )

    def blindness(self, loss: Loss, leader: LeaderInformation | None) -> EpisodeRecord:
        """An episode in which nothing happened but to us: it is ours alone. `leader`: of the dispatcher, before and after."""
        ended = loss.ended or self._at
        lasted = seconds(ended.steady - loss.began.steady)
        stretch = (loss.began.wall, loss.began.steady, ended.wall, ended.steady)
        session, address = (str(leader.session_id), leader.address) if leader else (None, None)
        return EpisodeRecord(
            id=record_id("episode", self._cluster_id, self._policy.observer, *stretch),
            opened_at=timestamp(loss.began.wall),
            closed_at=timestamp(ended.wall),
            cause=Cause.OBSERVER_BLIND.value,
            confidence=Confidence.HIGH.value,
            facts=[
                f"This observer lost sight of the store for {lasted}; afterwards each leader was the one of before."
            ],
            components=[],
            jobs_affected=0,
            jobs_ended=0,
            jobs_missing=0,
            jobs_total=0,
            vacant_seconds=None,
            vacant_seconds_by_component={},
            before_session_id=session,
            before_address=address,
            after_session_id=session,
            after_address=address,
            failovers=0,
            **self._envelope,
        )

    def _transition_id(self, component: ComponentId, known: ComponentState, seen: Seen, kind: Kind) -> str:
        what = (
            "transition",
            self._cluster_id,
            self._policy.stores[self._cluster_id],
            component.component,
            component.job_id,
            kind,
        )
        before = known.leadership if isinstance(known.leadership, Held) else None
        session = before.leader.session_id if before else None
        match kind:
            case Kind.GRANTED | Kind.CHANGED | Kind.READDRESSED:
                assert seen.leader  # noqa: S101  these have a leader
                assert seen.position  # noqa: S101  and it stands somewhere
                return record_id(*what, session, *_written(seen.leader, seen.position))
            case Kind.REVOKED:
                assert before  # noqa: S101  only a held leadership is revoked
                return record_id(*what, session, *_written(before.leader, before.position))
            case Kind.RETIRED if known.last_known and known.last_position:
                # Whether its leader or its graph went first: the job ended once.
                return record_id(*what, known.last_known.session_id, *_begun(known.last_known, known.last_position))
            case _:  # about our view, not about Flink: ours alone
                return record_id(*what, self._policy.observer, self._at.wall, self._at.steady)


def _written(leader: LeaderInformation, position: StorePosition) -> tuple[object, ...]:
    """What tells one writing of a leader from all others, whoever looks. A store that was wiped counts from the beginning again, so its
    numbers alone do not.
    """
    match position:
        case ZNodePosition():
            stat = (position.czxid, position.mzxid, position.mtime, position.returned)
            return leader.session_id, leader.address, *stat
        case ConfigMapPosition():
            term = (position.uid, position.holder_identity, position.acquire_time)
            return leader.session_id, leader.address, *term, position.returned


def _begun(leader: LeaderInformation, position: StorePosition) -> tuple[object, ...]:
    """What tells one run of a job from another of the same id."""
    match position:
        case ZNodePosition():
            return position.czxid, position.returned
        case ConfigMapPosition():
            return leader.address, position.uid, position.returned


def _counted(known: ComponentState) -> tuple[Gap | None, int | None]:
    """What nobody saw of this component since its last transition, and its elections, as far as the store counts."""
    if known.look:
        return known.look.gap, known.look.births.count if known.look.births else None
    if known.elections and known.elections.sure:
        return known.elections.gap, known.elections.count
    return (NOT_KNOWABLE if known.elections else None), None


def _same_process(known: ComponentState, seen: Seen) -> bool | None:
    """Whether the leader after is the process of the last one, where the facts decide: one ZooKeeper session, and one holder of leases,
    is one process; another holder, or another host, is another.
    """
    before = known.last_known
    if before is None or seen.leader is None:
        return None
    match known.last_position, seen.position:
        case ConfigMapPosition(holder_identity=earlier), ConfigMapPosition(holder_identity=later):
            return earlier == later
        case ZNodePosition(ephemeral_owner=earlier), ZNodePosition(ephemeral_owner=later) if (
            earlier and earlier == later
        ):
            return True
        case ZNodePosition(), ZNodePosition():
            return None if host_port(before.address) == host_port(seen.leader.address) else False
    return None


def _store_reelected(known: ComponentState, seen: Seen) -> bool | None:
    if seen.leader is None:
        return None
    match known.last_position, seen.position:
        case ZNodePosition() as earlier, ZNodePosition() as later:
            return later.epoch != earlier.epoch
    return None


def _recorded(position: StorePosition) -> Position:
    match position:
        case ZNodePosition(path, czxid, mzxid, version, owner):
            return Position(path=path, czxid=czxid, mzxid=mzxid, version=version, ephemeral_owner=owner)
        case ConfigMapPosition():
            return Position(
                path=position.path,
                uid=position.uid,
                resource_version=position.resource_version,
                holder_identity=position.holder_identity,
                acquire_time=position.acquire_time,
            )
