"""One cluster in one step: what is observed becomes transitions, and these become the next state and what is to be recorded."""

from collections.abc import Iterator
from typing import Any
from uuid import UUID

from msgspec import Struct
from msgspec.structs import replace

from sidecar.core.cluster import downtime, episodes, split_leadership, unobserved
from sidecar.core.cluster.causes import Loss
from sidecar.core.cluster.downtime import Gone, LastLed
from sidecar.core.cluster.episodes import Episode
from sidecar.core.cluster.evolve import evolve
from sidecar.core.cluster.leadership_table import Kind, Sight, kind_of
from sidecar.core.cluster.record_writer import RecordWriter
from sidecar.core.cluster.state import ClusterState, ComponentState, Sighting, contending
from sidecar.core.cluster.transition_ids import transition_id
from sidecar.core.cluster.transitions import Transition
from sidecar.core.cluster.unobserved import NOT_KNOWABLE, Gap
from sidecar.core.cluster.vacancy import Vacancy
from sidecar.core.flink.leadership import (
    Blindness,
    Component,
    ComponentId,
    Held,
    LeaderInformation,
    Leadership,
    Position,
    Unknown,
    Vacant,
    ZNodePosition,
)
from sidecar.core.moment import SECOND, Moment
from sidecar.core.observations import ConnectionState, NodeObserved
from sidecar.core.policy.policy import Policy
from sidecar.core.records import Contention, Coverage, EpisodeRecord

COVERAGE_INTERVAL = 3600 * SECOND
"""A long stretch in which the store was observed is recorded in parts of this length, so that the audit need not wait for its end."""

Happened = Transition | Coverage | Contention | EpisodeRecord
"""What is to be recorded of a cluster."""
ClusterStep = tuple[ClusterState, list[Happened]]


class Seen(Struct, frozen=True):
    """What one observation says of one component."""

    sight: Sight
    leader: LeaderInformation | None = None
    position: Position | None = None
    path: str | None = None
    vacancy: Vacancy | None = None
    obscured_by: str | None = None


class Draft:
    """What becomes of one cluster in one step.

    `state` is the next state, but for the components that the step touched: thousands of jobs may change in one, and are taken over
    together, by `outcome`.
    """

    def __init__(self, policy: Policy, cluster_id: str, cluster: ClusterState, at: Moment) -> None:
        self.policy = policy
        self.cluster_id = cluster_id
        self.before = cluster
        self.state = cluster
        self.at = at
        self.happened: list[Happened] = []
        self.writer = RecordWriter(policy, cluster_id, at)
        self._components: dict[ComponentId, ComponentState] = {}
        self._ended: set[ComponentId] = set()

    def outcome(self) -> ClusterStep:
        """The next state, the same object where nothing changed, and what happened."""
        if self._components or self._ended:
            components = self.components()
            for component in self._ended:
                components.pop(component, None)
            self.update(components=components, contested=self.state.contested - self._ended)
        return self.state, self.happened

    def update(self, **fields: Any) -> None:
        """Set fields of the state, `components` excepted."""
        self.state = replace(self.state, **fields)

    # -- components ----------------------------------------------------------------------------------------------------

    def known(self, component: ComponentId) -> ComponentState | None:
        """What is known of `component` now."""
        if component in self._ended:
            return None
        return self._components.get(component) or self.before.components.get(component)

    def components(self) -> dict[ComponentId, ComponentState]:
        """All components of this step and before it, also those that have ended in it."""
        return {**self.before.components, **self._components}

    def all_known(self) -> Iterator[tuple[ComponentId, ComponentState]]:
        """All components, as they are known now."""
        for component in self.components():
            if known := self.known(component):
                yield component, known

    def keep(self, component: ComponentId, known: ComponentState) -> None:
        """Have `known` be what is known of `component`. One that has ended in this step begins anew."""
        self._ended.discard(component)
        self._components[component] = known

    def newcomer(self) -> ComponentState:
        """A component that was not known: in a complete view it had no leader, in an incomplete one that is unknown."""
        return ComponentState(Vacant() if self.state.view.complete else Unknown(), self.at)

    # -- our view ------------------------------------------------------------------------------------------------------

    def view_changed(self, connection: ConnectionState) -> None:
        view = self.state.view
        # A view that was stale has been gone since it was confirmed last.
        gone_at = view.turned_at if self.state.stale else self.at
        self.update(confirmed=None, stale=False)
        if connection is ConnectionState.CONNECTED:
            # Everything is read again from here on: what was unreadable may be readable or gone now.
            for component, known in self.before.components.items():
                if isinstance(known.leadership, Unknown) and known.leadership != Unknown():
                    self.keep(component, replace(known, leadership=Unknown()))
            self.update(view=replace(view, connection=connection, connected_at=self.at.steady, complete=False))
            return
        deadline = view.obscure_at
        if deadline is None and view.connection is not None:
            deadline = gone_at.steady + self.policy.trust_window
        loss = view.loss
        if view.connection is ConnectionState.CONNECTED and (loss is None or loss.ended is not None):
            loss = Loss(gone_at)
        self.cover(Sighting.BLIND, self.at)
        view = replace(self.state.view, connection=connection, complete=False, obscure_at=deadline, loss=loss)
        self.update(view=view)

    def something_found(self) -> None:
        """The cluster exists. If it did not before, its vacancies begin now."""
        if self.state.missing:
            self.update(missing=None)
            for component, known in self.before.components.items():
                if isinstance(known.leadership, Vacant):
                    self.keep(component, replace(known, since=self.at))

    def aged(self, *, stale: bool) -> None:
        """The view has become `stale`, which it has been since it was confirmed last; or it is fresh again."""
        self.update(stale=stale)
        confirmed = self.state.confirmed
        if stale and confirmed:
            self.cover(Sighting.BLIND, confirmed.at)
        else:
            self.cover(Sighting.SEEING, self.at)

    def snapshot_completed(self) -> None:
        for component in self.before.components:
            known = self.known(component)
            if known and isinstance(known.leadership, Unknown) and known.leadership.reason is not Blindness.UNREADABLE:
                self.apply(component, self._looked_for(known), Seen(without_leader(known)))
        self.cover(Sighting.SEEING, self.at)
        loss = self.state.view.loss
        if loss and loss.ended is None:
            loss = replace(loss, ended=self.at)
            episode = self.state.episode
            if episode and episode.facts.loss:
                self.update(episode=replace(episode, facts=replace(episode.facts, loss=loss)))
        self.update(view=replace(self.state.view, complete=True, obscure_at=None, loss=loss), handed_over_by=None)

    def _looked_for(self, known: ComponentState) -> ComponentState:
        """`known` at the end of a snapshot that had nothing at its path: there is no leader's node."""
        if known.look is None or known.seen_at >= self.state.view.connected_at:
            return known
        absent = NodeObserved(self.at, "", known.look.path)
        return replace(known, look=unobserved.look(known.look, absent), seen_at=self.at.steady)

    def obscure(self) -> None:
        """Trust has ended in all that was not read again since the view was lost."""
        view = self.state.view
        connected = view.connection is ConnectionState.CONNECTED
        why = "not read again yet" if connected else f"the store cannot be read: {view.connection}"
        for component, known in self.before.components.items():
            if not connected or known.seen_at < view.connected_at:
                self.apply(component, known, Seen(Sight.NO_VIEW, obscured_by=why))
        loss = self.state.view.loss and replace(self.state.view.loss, obscured=True)
        self.update(view=replace(self.state.view, obscure_at=None, loss=loss))

    def cover(self, sighting: Sighting, until: Moment) -> None:
        """Record the stretch that ends at `until`, and begin one of `sighting` there."""
        view = self.state.view
        # The wall clock may jump back: stretches never overlap.
        until = Moment(until.steady, max(view.since.wall, until.wall))
        if view.sighting is not sighting:
            self.update(view=replace(view, sighting=sighting, turned_at=until))
        elif until.steady - view.since.steady < COVERAGE_INTERVAL:
            return
        if until.steady > view.since.steady:
            self.happened.append(self.writer.coverage(view, until))
            self.update(view=replace(self.state.view, since=until))

    # -- jobs ----------------------------------------------------------------------------------------------------------

    def jobs_listed(self, store: str, job_ids: frozenset[str]) -> None:
        """The jobs in one of Flink's job stores: a job that is in none any more has ended."""
        self.update(jobs={**self.state.jobs, store: job_ids})
        all_ids = frozenset[str]().union(*self.state.jobs.values())
        for job_id in all_ids:
            component = ComponentId(Component.JOB, job_id)
            known = self.before.components.get(component) or self.newcomer()
            if not known.registered:
                self.keep(component, replace(known, registered=True))
        for component, known in self.before.components.items():
            if known.registered and component.job_id not in all_ids:
                ended = replace(known, registered=False)
                self.keep(component, ended)
                if isinstance(known.leadership, Vacant):
                    self.apply(component, ended, Seen(Sight.JOB_ENDED))

    # -- the table applied ---------------------------------------------------------------------------------------------

    def reconciled(self, component: ComponentId) -> None:
        """The leadership of `component` is not split any more."""
        known = self.before.components[component]
        self.keep(component, replace(known, contest=split_leadership.ended(known.contest)))
        self.update(contested=self.state.contested - {component})

    def apply(self, component: ComponentId, known: ComponentState, seen: Seen) -> None:
        """Bring `component` from what was known to what is seen; what the table says happened is a transition."""
        kind = kind_of(known.leadership, seen.sight)
        if kind is None:
            self._refresh(component, known, seen)
            return
        transition = self._transition(component, known, seen, kind)
        self.take(known, transition)
        self.record_departed(component)
        if component.job_id and kind is Kind.REVOKED and self.state.episode is None:
            self.update(departed={**self.state.departed, component: transition})
        else:
            self.happened.append(transition)

    def _refresh(self, component: ComponentId, known: ComponentState, seen: Seen) -> None:
        """Nothing happened; what was read may be newer all the same."""
        match after := _leadership(seen):
            case Held(leader, position):
                known = replace(
                    known, leadership=after, last_known=leader, last_position=position, vacated_at=None, last_led=None
                )
            case Vacant():
                known = replace(known, leadership=after, published_at=None)
            case Unknown() if seen.path:
                known = replace(known, leadership=after, vacated_at=None, last_led=None, published_at=None)
            case Unknown():
                return
        self.keep(component, known)

    def take(self, known: ComponentState, transition: Transition) -> None:
        """The next state behind `transition`, which happened to the component of which this is `known`."""
        component, episode = transition.component, self.state.episode
        begins = transition.episode_id is not None and (episode is None or episode.id != transition.episode_id)
        if begins and component.job_id is None:
            self._open_episode(transition)
        known, episode = evolve(known, self.state.episode, transition, complete=self.state.view.complete)
        if episode is not self.state.episode:
            self.update(episode=episode)
        if transition.kind is Kind.RETIRED:
            self._components.pop(component, None)
            self._ended.add(component)
            return
        self.keep(component, known)
        if known.contest.since and component not in self.state.contested:
            self.update(contested=self.state.contested | {component})

    def _transition(self, component: ComponentId, known: ComponentState, seen: Seen, kind: Kind) -> Transition:
        held = known.leadership if isinstance(known.leadership, Held) else None
        gap, elections = _counted(known) if kind is not Kind.OBSCURED else (None, None)
        last = self._last_led(known, seen) if kind in {Kind.REVOKED, Kind.CHANGED} else known.last_led
        contest = split_leadership.succeeded(known.contest, known.last_known, seen.leader, self.at)
        transition = Transition(
            id="",
            at=self.at,
            cluster_id=self.cluster_id,
            store=self.policy.stores[self.cluster_id],
            component=component,
            kind=kind,
            before=known.leadership,
            after=Vacant() if kind is Kind.RETIRED else _leadership(seen),
            position=seen.position or (held.position if held and kind is not Kind.OBSCURED else None),
            written_at=seen.position.mtime if isinstance(seen.position, ZNodePosition) else None,
            last_known=known.last_known,
            last_position=known.last_position,
            last_led=last,
            vacancy=seen.vacancy,
            obscured_by=seen.obscured_by,
            gap=gap,
            elections=elections,
            contenders=contending(self.state.contenders),
            vacant_for=self.at.steady - known.vacated_at.steady if seen.leader and known.vacated_at else None,
            returned=seen.leader is not None and seen.leader.session_id in known.contest.earlier,
            split=contest.since is not None,
            connection=self.state.view.connection,
        )
        if seen.leader and last:
            down = downtime.until(last, self.at.steady, same_leader=transition.same_leader)
            transition = replace(transition, downtime=down)
        return replace(
            transition,
            id=transition_id(transition, self.policy.observer),
            episode_id=self._episode_id(known, transition),
        )

    def _last_led(self, known: ComponentState, seen: Seen) -> LastLed | None:
        """When the leader that was known may have worked last, now that it is gone."""
        if not isinstance(known.leadership, Held):
            return None
        view = self.state.view
        gone = Gone(known.leadership.position, self.at.steady, known.published_at, seen.vacancy, in_sight=view.complete)
        timeout = self.policy.session_timeouts.get(self.cluster_id)
        return downtime.last_led(gone, timeout, view.loss, self.before.leases)

    # -- episodes ------------------------------------------------------------------------------------------------------

    def _episode_id(self, known: ComponentState, transition: Transition) -> str | None:
        """Of the episode that the transition is a part of, or begins."""
        if self.state.episode:
            is_part = episodes.belongs(transition, known.absence, self.state.episode)
            return self.state.episode.id if is_part else None
        if transition.component.job_id or not episodes.leaves(transition, known.absence):
            return None
        own = [k for c, k in self.all_known() if c.job_id is None]
        led = [k.last_known for k in own if k.last_known]
        return episodes.key(self.cluster_id, transition.store, led, [k.last_position for k in own if k.last_position])

    def _open_episode(self, transition: Transition) -> None:
        """Begin the episode that `transition` opens: it takes in the jobs that have just left."""
        led = {c: k.last_known for c, k in self.all_known() if k.last_known and c.job_id is None}
        first = next(iter(led.values()), transition.last_known) or LeaderInformation("", UUID(int=0))
        loss = self.state.view.loss
        facts = episodes.facts_at_opening(transition, loss, [*led.values()], self._contended())
        facts = replace(facts, handed_over_by=self.state.handed_over_by)
        episode = Episode(
            id=transition.episode_id or "",
            opened_at=self.at,
            moved_at=self.at,
            facts=facts,
            before=led.get(ComponentId(Component.DISPATCHER)) or first,
            jobs_total=sum(1 for c, _ in self.all_known() if c.job_id),
        )
        for component, known in [*self.all_known()]:
            absence = known.absence
            recent = absence and self.at.steady - absence.left_at <= episodes.LOOK_BACK
            if component.job_id and absence and absence.episode_id is None and recent:
                self.keep(component, replace(known, absence=replace(absence, episode_id=episode.id)))
                episode = replace(episode, jobs_away=episode.jobs_away + episodes.is_away(absence))
                self.record_departed(component, episode_id=episode.id)
        self.update(episode=episode)
        self.record_departed(*self.state.departed)
        if facts.loss and loss:
            self.update(view=replace(self.state.view, loss=replace(loss, obscured=False)))

    def record_departed(self, *components: ComponentId, episode_id: str | None = None) -> None:
        """Record that these jobs have left, where that is not recorded yet: in the episode, or by themselves."""
        departed = self.state.departed
        for component in components:
            if transition := departed.get(component):
                self.happened.append(replace(transition, episode_id=episode_id))
        if any(component in departed for component in components):
            self.update(departed={c: left for c, left in departed.items() if c not in components})

    def _contended(self) -> int | None:
        """How many JobManagers contended before anything moved: who was lost may have left its latch a moment before its address."""
        fewer = self.state.fewer
        if fewer and self.at.steady - fewer.at <= episodes.LOOK_BACK:
            return fewer.contended
        return contending(self.state.contenders)

    def close_episode(self) -> None:
        """Record the episode that is over."""
        episode = self.state.episode
        assert episode  # noqa: S101  only one that is there is closed
        closed = replace(episode, facts=replace(episode.facts, contend=contending(self.state.contenders)))
        parts = {component: known for component, known in self.all_known() if episodes.has_part(known.absence, episode)}
        self.happened.append(self.writer.episode(closed, parts))
        self.update(episode=None, last_episode=closed)

    def close_blindness(self) -> None:
        """Record that the store could not be read, and that every leader is still the previous one."""
        loss = self.state.view.loss
        assert loss  # noqa: S101  only one that is there is closed
        known = self.known(ComponentId(Component.DISPATCHER))
        self.happened.append(self.writer.blindness(loss, known.last_known if known else None))
        self.update(view=replace(self.state.view, loss=replace(loss, obscured=False)))


def without_leader(known: ComponentState) -> Sight:
    """What a missing leader means: the job may have ended."""
    return Sight.JOB_ENDED if known.registered is False else Sight.NO_LEADER


def _leadership(seen: Seen) -> Leadership:
    match seen.sight:
        case Sight.NO_VIEW:
            return Unknown(Blindness.UNREADABLE if seen.path else Blindness.VIEW_LOST, seen.path)
        case Sight.NO_LEADER | Sight.JOB_ENDED:
            return Vacant()
    assert seen.leader is not None  # noqa: S101  the sights that are left all have a leader
    assert seen.position is not None  # noqa: S101  and it stands somewhere
    return Held(seen.leader, seen.position)


def _counted(known: ComponentState) -> tuple[Gap | None, int | None]:
    """Unobserved changes of this component since its last transition, and its elections, as far as the store counts."""
    if known.look:
        return known.look.gap, known.look.births.count if known.look.births else None
    if known.elections and known.elections.sure:
        return known.elections.gap, known.elections.count
    return (NOT_KNOWABLE if known.elections else None), None
