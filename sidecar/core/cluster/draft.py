"""One cluster in one step: its next state, and what is recorded of it for the audit log."""

from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple, TypedDict

from msgspec.structs import replace

from sidecar.core.cluster.cluster_state import ClusterState, ComponentState, View
from sidecar.core.failover.causes import Cause, Confidence, is_planned, verdict
from sidecar.core.failover.death_verdict import DeathVerdict
from sidecar.core.failover.episodes import Episode, failovers_of
from sidecar.core.failover.recovery_state import BadRestore
from sidecar.core.flink import znode_paths
from sidecar.core.flink.leadership import (
    CLUSTER_COMPONENTS,
    Component,
    ComponentId,
    ConfigMapPosition,
    Held,
    LeaderInformation,
    Position,
    Unknown,
    Vacant,
    ZNodePosition,
)
from sidecar.core.ha.results import KnownCheck
from sidecar.core.leadership import unobserved
from sidecar.core.leadership.transitions import Transition, pattern
from sidecar.core.leadership.unobserved import Loss
from sidecar.core.moment import Moment, Timestamp, in_seconds, seconds, stored_at, timestamp
from sidecar.core.overlay import with_items, without_items
from sidecar.core.pods import Pods, name_at
from sidecar.core.policy.policy import Policy
from sidecar.core.records import (
    Contention,
    Coverage,
    Death,
    EpisodeRecord,
    HaCheck,
    PositionRecord,
    Recovery,
    StatusRecord,
    TransitionRecord,
    record_id,
)

NOT_CONNECTED: Final = "NOT_CONNECTED"
"""The view of a record before the first connection."""


class Envelope(TypedDict):
    """The fields that all records of one step share."""

    cluster_id: str
    external_labels: dict[str, str]
    store: str
    observer: str
    observed_at: Timestamp


def envelope(policy: Policy, cluster_id: str, at: Moment) -> Envelope:
    """The envelope of what is recorded of a cluster at one moment."""
    return {
        "cluster_id": cluster_id,
        "external_labels": policy.external_labels,
        "store": policy.store_of(cluster_id).value if policy.watches(cluster_id) else "",
        "observer": policy.observer,
        "observed_at": timestamp(at.wall),
    }


def transition_record(policy: Policy, transition: Transition) -> TransitionRecord:
    before = transition.before.leader if isinstance(transition.before, Held) else None
    after, last, gap, vacant = transition.leader, transition.last_known, transition.gap, transition.vacant_for
    return TransitionRecord(
        id=transition.id,
        component=transition.component.component.value,
        job_id=transition.component.job_id,
        kind=transition.kind.value,
        pattern=pattern(transition.before, transition.kind, held_after=after is not None),
        before_session_id=str(before.session_id) if before else None,
        before_address=before.address if before else None,
        after_session_id=str(after.session_id) if after else None,
        after_address=after.address if after else None,
        last_known_session_id=str(last.session_id) if last else None,
        last_known_address=last.address if last else None,
        same_leader=transition.same_leader,
        same_process=transition.same_process,
        unobserved=gap.exact if gap else None,
        unobserved_at_least=gap.at_least if gap else None,
        elections=transition.elections,
        contenders=transition.contenders,
        store_reelected=transition.store_reelected,
        returned=transition.returned,
        split=transition.split,
        plan_vanished=transition.plan_vanished,
        vacant_seconds=None if vacant is None else in_seconds(vacant),
        **unobserved.bounds_in_seconds(transition.downtime),
        connection=transition.connection.value if transition.connection else NOT_CONNECTED,
        reason=str(transition.vacancy) if transition.vacancy else transition.obscured_by,
        written_at=None if transition.written_at is None else stored_at(transition.written_at),
        position=_recorded(transition.position) if transition.position else None,
        episode_id=transition.episode_id,
        **envelope(policy, transition.cluster_id, transition.at),
    )


class RecordWriter(NamedTuple):
    """Writes the records of one step of one cluster, but those of transitions."""

    policy: Policy
    cluster_id: str
    at: Moment

    def coverage(self, view: View, until: Moment) -> Coverage:
        """The coverage record of this observer's `view`, from where it was last recorded to `until`."""
        stretch = (view.since.wall, view.since.steady, until.wall, until.steady, view.sighting)
        objective = self.policy.objective_of(self.cluster_id)
        return Coverage(
            id=record_id("coverage", self.cluster_id, self.policy.observer, *stretch),
            began_at=timestamp(view.since.wall),
            ended_at=timestamp(until.wall),
            state=view.sighting.value,
            suspended=view.suspended,
            slo_leadership=objective.leadership if objective else None,
            slo_window_seconds=in_seconds(objective.window) if objective else None,
            **envelope(self.policy, self.cluster_id, self.at),
        )

    def contention(self, latch: str, names: Sequence[str], before: Sequence[str] | None) -> Contention:
        """Who contends at `latch`. Curator never gives a name twice, so the previous and the new names say which change it was. A first
        look is no change: it is this observer's own.
        """
        component = znode_paths.latched(latch)
        own = (self.policy.observer, self.at.wall, self.at.steady) if before is None else ()
        return Contention(
            id=record_id("contention", self.cluster_id, latch, before, names, *own),
            component=component.value if component else None,
            contenders=len(names),
            contenders_before=None if before is None else len(before),
            **envelope(self.policy, self.cluster_id, self.at),
        )

    def episode(self, episode: Episode, parts: Mapping[ComponentId, ComponentState], pods: Pods) -> EpisodeRecord:
        """An episode that is over, and the components that had a part in it."""
        why, vacant = verdict(episode.facts), _vacancies(episode, parts)
        own = [state for component in CLUSTER_COMPONENTS if (state := parts.get(component))]
        before, after = episode.before, episode.after
        down = [state.absence.downtime for state in own if state.absence]
        return EpisodeRecord(
            id=episode.id,
            episode_id=episode.id,
            opened_at=timestamp(episode.opened_at.wall),
            closed_at=timestamp(episode.moved_at.wall),
            cause=why.cause.value,
            confidence=why.confidence.value,
            facts=list(why.facts),
            components=sorted({component.component.value for component in parts}),
            jobs_affected=len(parts) - len(own) + episode.jobs_ended,
            jobs_ended=episode.jobs_ended,
            jobs_lost=episode.jobs_lost,
            jobs_missing=episode.jobs_away,
            jobs_total=episode.jobs_total,
            vacant_seconds=max((lasted for name, lasted in vacant.items() if name != Component.JOB), default=None),
            vacant_seconds_by_component=vacant,
            **unobserved.bounds_in_seconds(unobserved.longest(down)),
            before_session_id=str(before.session_id),
            before_address=before.address,
            before_pod=name_at(pods, before.address),
            after_session_id=str(after.session_id) if after else None,
            after_address=after.address if after else None,
            after_pod=name_at(pods, after.address) if after else None,
            planned=is_planned(episode.facts),
            failovers=failovers_of([state.absence for state in own]),
            **envelope(self.policy, self.cluster_id, self.at),
        )

    def death(self, episode_id: str, death: DeathVerdict) -> Death:
        """Why the previous leader ended in this failover, as this observer knows it."""
        return Death(
            id=record_id("death", episode_id, self.policy.observer),
            episode_id=episode_id,
            reason=death.reason.value,
            confidence=death.confidence.value,
            facts=list(death.facts),
            exit_code=death.exit_code,
            limit_bytes=death.limit_bytes,
            ended_at=None if death.ended_at is None else timestamp(death.ended_at),
            seen_at=None if death.seen_at is None else timestamp(death.seen_at),
            address=death.address or None,
            pod=death.pod,
            fault=death.fault,
            **envelope(self.policy, self.cluster_id, self.at),
        )

    def blindness(self, loss: Loss, leader: LeaderInformation | None) -> EpisodeRecord:
        """An episode in which nothing happened but to us: it is ours alone. `leader`: of the dispatcher, before and after."""
        ended = loss.ended or self.at
        lasted = seconds(ended.steady - loss.began.steady)
        stretch = (loss.began.wall, loss.began.steady, ended.wall, ended.steady)
        session, address = (str(leader.session_id), leader.address) if leader else (None, None)
        episode_id = record_id("episode", self.cluster_id, self.policy.observer, *stretch)
        return EpisodeRecord(
            id=episode_id,
            episode_id=episode_id,
            opened_at=timestamp(loss.began.wall),
            closed_at=timestamp(ended.wall),
            cause=Cause.OBSERVER_BLIND.value,
            confidence=Confidence.HIGH.value,
            facts=[
                f"This observer could not read the store for {lasted}; afterwards every leader was the same as before."
            ],
            components=[],
            jobs_affected=0,
            jobs_ended=0,
            jobs_lost=0,
            jobs_missing=0,
            jobs_total=0,
            vacant_seconds=None,
            vacant_seconds_by_component={},
            before_session_id=session,
            before_address=address,
            after_session_id=session,
            after_address=address,
            failovers=0,
            **envelope(self.policy, self.cluster_id, self.at),
        )

    def ha_check(self, check: KnownCheck, before: KnownCheck | None) -> HaCheck:
        """The result of a check, and its previous verdict."""
        result, since = check.result, timestamp(self.at.wall)
        return HaCheck(
            id=record_id("ha_check", self.policy.observer, self.cluster_id, result.check, since),
            **envelope(self.policy, self.cluster_id, self.at),
            check_name=result.check,
            verdict=result.verdict.value,
            verdict_before=before.result.verdict.value if before else None,
            since=timestamp(check.since.wall),
            finding=result.text,
            advice=result.advice or None,
        )


def _vacancies(episode: Episode, parts: Mapping[ComponentId, ComponentState]) -> dict[str, float]:
    """The longest vacancy in seconds, by kind of component."""
    vacant: dict[str, int] = {}
    for component, state in parts.items():
        if state.absence and state.absence.vacant is not None:
            name = component.component.value
            vacant[name] = max(vacant.get(name, 0), state.absence.vacant)
    if episode.longest_ended is not None:
        vacant[Component.JOB.value] = max(vacant.get(Component.JOB.value, 0), episode.longest_ended)
    return {name: in_seconds(micros) for name, micros in sorted(vacant.items())}


def _recorded(position: Position) -> PositionRecord:
    match position:
        case ZNodePosition(path, czxid, mzxid, version, owner):
            return PositionRecord(path=path, czxid=czxid, mzxid=mzxid, version=version, ephemeral_owner=owner)
        case ConfigMapPosition():
            return PositionRecord(
                path=position.path,
                uid=position.uid,
                resource_version=position.resource_version,
                holder_identity=position.holder_identity,
                acquire_time=position.acquire_time,
            )


Happened = Transition | Coverage | Contention | EpisodeRecord | Death | Recovery | StatusRecord | HaCheck | BadRestore
"""What one step records about a cluster, and what rules evaluate."""
ClusterStep = tuple[ClusterState, list[Happened]]


class Draft:
    """The next state of one cluster, while a step builds it.

    `state` lacks the components that the step touched: thousands of jobs may change in one step, and `outcome` adds them together.
    """

    def __init__(self, policy: Policy, cluster_id: str, cluster: ClusterState, at: Moment) -> None:
        self.policy = policy
        self.cluster_id = cluster_id
        self.before = cluster
        self.state = cluster
        self.at = at
        self.happened: list[Happened] = []
        self._components: dict[ComponentId, ComponentState] = {}
        self._ended: set[ComponentId] = set()

    def outcome(self) -> ClusterStep:
        """The next state (the same object if nothing changed), and what happened."""
        if self._components or self._ended:
            components, contested = with_items(self.before.components, self._components), self.state.contested
            if self._ended:
                components, contested = without_items(components, self._ended), contested - self._ended
            self.state = replace(self.state, components=components, contested=contested)
        return self.state, self.happened

    @property
    def writer(self) -> RecordWriter:
        return RecordWriter(self.policy, self.cluster_id, self.at)

    def update(self, **fields: Any) -> None:
        """Set fields of the state, except `components`."""
        self.state = replace(self.state, **fields)

    def state_of(self, component: ComponentId) -> ComponentState | None:
        if component in self._ended:
            return None
        return self._components.get(component) or self.before.components.get(component)

    def components(self) -> Mapping[ComponentId, ComponentState]:
        """All components, including those removed in this step."""
        return with_items(self.before.components, self._components)

    def all_states(self) -> list[tuple[ComponentId, ComponentState]]:
        """All components with their current state."""
        return [(component, state) for component in self.components() if (state := self.state_of(component))]

    @property
    def own(self) -> dict[ComponentId, ComponentState]:
        """The cluster's own components with their current state: see `ClusterState.own`."""
        return {component: state for component in CLUSTER_COMPONENTS if (state := self.state_of(component))}

    def keep(self, component: ComponentId, state: ComponentState) -> None:
        self._ended.discard(component)
        self._components[component] = state

    def remove(self, component: ComponentId) -> None:
        self._components.pop(component, None)
        self._ended.add(component)

    def newcomer(self) -> ComponentState:
        """The state of a new component: vacant in a view that is complete and hides no leaders, unknown otherwise."""
        hides = self.state.beyond is not None and self.state.beyond.hides_leaders
        return ComponentState(Vacant() if self.state.view.complete and not hides else Unknown(), self.at)
