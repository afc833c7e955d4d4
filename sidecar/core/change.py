"""One step of one cluster in the making: our view of its store, and the leadership table applied."""

from collections.abc import Iterator

from msgspec.structs import replace

from sidecar.core import accounting, contest, episodes
from sidecar.core.causes import Loss
from sidecar.core.downtime import Gone, LastLed, last_led
from sidecar.core.episodes import Episode
from sidecar.core.leadership import Blindness, Component, ComponentId, Held, Unknown, Vacant
from sidecar.core.moment import SECOND, Moment
from sidecar.core.observations import ConnectionState, NodeObserved
from sidecar.core.policy import Policy
from sidecar.core.recording import Scribe, Seen
from sidecar.core.records import Contention, Coverage, Transition
from sidecar.core.records import Episode as EpisodeRecord
from sidecar.core.state import ClusterState, ComponentState, Sighting, contending
from sidecar.core.transitions import Kind, Sight, kind_of

COVERAGE_INTERVAL = 3600 * SECOND
"""A long stretch of sight is recorded in pieces of this length, so that nobody has to wait for its end."""

Outcome = tuple[ClusterState, list[Transition | Coverage | Contention | EpisodeRecord]]


class Change:
    """What becomes of one cluster in one step."""

    def __init__(self, policy: Policy, cluster_id: str, cluster: ClusterState, at: Moment) -> None:
        self.scribe = Scribe(policy, cluster_id, at)
        self.policy = policy
        self.cluster_id = cluster_id
        self.before = cluster
        self.at = at
        self.view = cluster.view
        self.components: dict[ComponentId, ComponentState] = {}
        self.ended: set[ComponentId] = set()
        self.jobs = cluster.jobs
        self.contenders = cluster.contenders
        self.contested = cluster.contested
        self.zxid = cluster.zxid
        self.leases = cluster.leases
        self.episode = cluster.episode
        self.fewer = cluster.fewer
        self.last_episode = cluster.last_episode
        self.standby = cluster.standby
        self.confirmed = cluster.confirmed
        self.stale = cluster.stale
        self.missing = cluster.missing
        self.departed = cluster.departed
        self.records: list[Transition | Coverage | Contention | EpisodeRecord] = []

    def outcome(self) -> Outcome:
        components = self.before.components
        if self.components or self.ended:
            components = {**components, **self.components}
            for component in self.ended:
                del components[component]
        contested = self.contested - self.ended
        after = ClusterState(
            self.view,
            components,
            self.jobs,
            self.contenders,
            contested,
            self.zxid,
            self.leases,
            self.episode,
            self.fewer,
            self.last_episode,
            self.standby,
            self.confirmed,
            self.stale,
            self.missing,
            self.departed,
        )
        return after, self.records

    def known(self, component: ComponentId) -> ComponentState | None:
        """What is known of `component` by now."""
        if component in self.ended:
            return None
        return self.components.get(component) or self.before.components.get(component)

    def newcomer(self) -> ComponentState:
        """A component that was not there: a complete view saw that nobody led it, an incomplete one saw nothing."""
        return ComponentState(Vacant() if self.view.complete else Unknown(), self.at)

    # -- our view ------------------------------------------------------------------------------------------------------

    def view_changed(self, connection: ConnectionState) -> None:
        # A view that was stale has been gone since it was confirmed last.
        gone_at = self.view.turned_at if self.stale else self.at
        self.confirmed, self.stale = None, False
        if connection is ConnectionState.CONNECTED:
            # A fresh look at everything begins: what nobody could read before may be readable or gone now.
            for component, known in self.before.components.items():
                if isinstance(known.leadership, Unknown) and known.leadership != Unknown():
                    self.components[component] = replace(known, leadership=Unknown())
            self.view = replace(self.view, connection=connection, connected_at=self.at.steady, complete=False)
            return
        deadline = self.view.obscure_at
        if deadline is None and self.view.connection is not None:
            deadline = gone_at.steady + self.policy.trust_window
        self.cover(Sighting.BLIND, self.at)
        loss = self.view.loss
        if self.view.connection is ConnectionState.CONNECTED and (loss is None or loss.ended is not None):
            loss = Loss(gone_at)
        self.view = replace(self.view, connection=connection, complete=False, obscure_at=deadline, loss=loss)

    def something_found(self) -> None:
        """There is such a cluster. Where there was none before, nobody has been without a leader for longer than since now."""
        if self.missing:
            self.missing = None
            for component, known in self.before.components.items():
                if isinstance(known.leadership, Vacant):
                    self.components[component] = replace(known, since=self.at)

    def aged(self, *, stale: bool) -> None:
        """The view has become `stale`, which it has been since it was confirmed last; or it is fresh again."""
        self.stale = stale
        if stale and self.confirmed:
            self.cover(Sighting.BLIND, self.confirmed.at)
        else:
            self.cover(Sighting.SEEING, self.at)

    def snapshot_completed(self) -> None:
        for component in self.before.components:
            known = self.known(component)
            if known and isinstance(known.leadership, Unknown) and known.leadership.reason is not Blindness.UNREADABLE:
                self.apply(component, self._looked_for(known), Seen(without_leader(known)))
        self.cover(Sighting.SEEING, self.at)
        loss = self.view.loss
        if loss and loss.ended is None:
            loss = replace(loss, ended=self.at)
            if self.episode and self.episode.facts.loss:
                self.episode = replace(self.episode, facts=replace(self.episode.facts, loss=loss))
        self.view = replace(self.view, complete=True, obscure_at=None, loss=loss)

    def _looked_for(self, known: ComponentState) -> ComponentState:
        """`known` at the end of a view in which nobody told of its path: there is none."""
        if known.look is None or known.seen_at >= self.view.connected_at:
            return known
        absent = NodeObserved(self.at, "", known.look.path)
        return replace(known, look=accounting.look(known.look, absent), seen_at=self.at.steady)

    def obscure(self) -> None:
        """Trust has ended in all that was not looked at again since the view was lost."""
        connected = self.view.connection is ConnectionState.CONNECTED
        reason = "not read again yet" if connected else f"the store is out of sight: {self.view.connection}"
        for component, known in self.before.components.items():
            if not connected or known.seen_at < self.view.connected_at:
                self.apply(component, known, Seen(Sight.NO_VIEW, reason=reason))
        loss = self.view.loss and replace(self.view.loss, obscured=True)
        self.view = replace(self.view, obscure_at=None, loss=loss)

    def cover(self, sighting: Sighting, until: Moment) -> None:
        """Record the stretch that ends at `until`, and begin one of `sighting` there."""
        view = self.view
        # The wall clock may jump back: stretches never overlap.
        until = Moment(until.steady, max(view.since.wall, until.wall))
        if view.sighting is not sighting:
            self.view = replace(view, sighting=sighting, turned_at=until)
        elif until.steady - view.since.steady < COVERAGE_INTERVAL:
            return
        if until.steady > view.since.steady:
            self.records.append(self.scribe.coverage(view, until))
            self.view = replace(self.view, since=until)

    # -- jobs ----------------------------------------------------------------------------------------------------------

    def jobs_listed(self, store: str, job_ids: frozenset[str]) -> None:
        """The jobs in one of Flink's job stores: who is in none any more has ended."""
        self.jobs = {**self.jobs, store: job_ids}
        all_ids = frozenset[str]().union(*self.jobs.values())
        for job_id in all_ids:
            component = ComponentId(Component.JOB, job_id)
            known = self.before.components.get(component) or self.newcomer()
            if not known.registered:
                self.components[component] = replace(known, registered=True)
        for component, known in self.before.components.items():
            if known.registered and component.job_id not in all_ids:
                ended = self.components[component] = replace(known, registered=False)
                if isinstance(known.leadership, Vacant):
                    self.apply(component, ended, Seen(Sight.JOB_ENDED))

    # -- the table applied ---------------------------------------------------------------------------------------------

    def reconciled(self, component: ComponentId) -> None:
        """The leadership of `component` is not split any more."""
        known = self.before.components[component]
        self.components[component] = replace(known, contest=contest.ended(known.contest))
        self.contested -= {component}

    def apply(self, component: ComponentId, known: ComponentState, seen: Seen) -> None:
        """Bring `component` from what was known to what is seen, and record what the table says happened."""
        kind = kind_of(known.leadership, seen.sight)
        if kind is not None:
            known = self._record(component, known, seen, kind)
        match seen.sight:
            case Sight.JOB_ENDED:
                self.ended.add(component)
            case Sight.NO_VIEW:
                reason = Blindness.UNREADABLE if seen.path else Blindness.VIEW_LOST
                blind = Unknown(reason, seen.path)
                if kind is not None or seen.path:
                    self.components[component] = replace(
                        self._dated(known, kind),
                        leadership=blind,
                        vacated_at=None,
                        last_led=None,
                        published_at=None,
                    )
            case Sight.NO_LEADER:
                vacated = self.at if kind is Kind.REVOKED else known.vacated_at
                self.components[component] = replace(
                    self._dated(known, kind), leadership=Vacant(), vacated_at=vacated, published_at=None
                )
            case _:
                assert seen.leader is not None  # noqa: S101  the sights that are left all have a leader
                assert seen.position is not None  # noqa: S101  and it stands somewhere
                self.components[component] = replace(
                    self._dated(known, kind),
                    leadership=Held(seen.leader, seen.position),
                    last_known=seen.leader,
                    last_position=seen.position,
                    vacated_at=None,
                    last_led=None,
                    published_at=known.published_at if kind is None else self._published_at(kind),
                )

    def _published_at(self, kind: Kind) -> int | None:
        """When a leader that is seen now published itself, where that is now."""
        return self.at.steady if self.view.complete and kind is not Kind.DISCOVERED else None

    def _last_led(self, known: ComponentState, seen: Seen) -> LastLed | None:
        """When the leader that was known may have worked last, now that it is gone."""
        if not isinstance(known.leadership, Held):
            return None
        gone = Gone(
            known.leadership.position, self.at.steady, known.published_at, seen.reason, in_sight=self.view.complete
        )
        timeout = self.policy.session_timeouts.get(self.cluster_id)
        return last_led(gone, timeout, self.view.loss, self.before.leases)

    def _record(self, component: ComponentId, known: ComponentState, seen: Seen, kind: Kind) -> ComponentState:
        """`known` as the next transition will find it: this one has told what was missed."""
        before = known.contest
        if kind in {Kind.REVOKED, Kind.CHANGED}:
            known = replace(known, last_led=self._last_led(known, seen))
        if seen.leader and known.last_known:
            after = contest.succeeded(before, known.last_known.session_id, seen.leader.session_id, self.at)
            known = replace(known, contest=after)
            if after.since:
                self.contested |= {component}
        transition = self.scribe.transition(component, known, before, seen, kind, self.view.connection, self.contenders)
        known = self._follow(component, known, seen, transition)
        if kind is Kind.OBSCURED:
            return known
        if known.look:
            known = replace(known, look=replace(known.look, gap=accounting.NO_GAP))
        if known.elections:
            known = replace(known, elections=replace(known.elections, gap=accounting.NO_GAP))
        return known

    # -- episodes ------------------------------------------------------------------------------------------------------

    def _follow(
        self, component: ComponentId, known: ComponentState, seen: Seen, transition: Transition
    ) -> ComponentState:
        """Record `transition` as a part of the episode that it belongs to, if any, and say what it means to the component."""
        if self.episode is None and component.job_id is None and episodes.leaves(transition, known.absence):
            self._open(transition)
        self.episode, absence = episodes.moved(
            self.episode,
            known.absence,
            component,
            transition,
            seen.leader,
            (known.last_position, seen.position),
            self.at,
        )
        if self.episode and absence and absence.episode_id == self.episode.id and transition.kind != Kind.OBSCURED:
            transition = replace(transition, episode_id=self.episode.id)
        self.record_departed(component)
        if component.job_id and transition.kind == Kind.REVOKED and self.episode is None:
            self.departed = {**self.departed, component: transition}
        else:
            self.records.append(transition)
        return known if absence is known.absence else replace(known, absence=absence)

    def _open(self, transition: Transition) -> None:
        """Begin an episode: it takes in the jobs that have just left."""
        led = {c: k.last_known for c, k in self._all_known() if k.last_known}
        own = [leader for c, leader in led.items() if c.job_id is None]
        places = [k.last_position for c, k in self._all_known() if k.last_position and c.job_id is None]
        episode = Episode(
            id=episodes.key(self.cluster_id, self.policy.stores[self.cluster_id], own, places),
            opened_at=self.at,
            moved_at=self.at,
            facts=episodes.facts_at_opening(transition, self.view.loss, own, self._contended(), self.at),
            before=led.get(ComponentId(Component.DISPATCHER)) or own[0],
            jobs_total=sum(1 for c, _ in self._all_known() if c.job_id),
        )
        for component, known in self._all_known():
            absence = known.absence
            recent = absence and self.at.steady - absence.left_at <= episodes.LOOK_BACK
            if component.job_id and absence and absence.episode_id is None and recent:
                joined = replace(absence, episode_id=episode.id)
                self.components[component] = replace(known, absence=joined)
                episode = replace(episode, jobs_away=episode.jobs_away + episodes.is_away(absence))
                self.record_departed(component, episode_id=episode.id)
        self.episode = episode
        self.record_departed(*self.departed)
        if episode.facts.loss and self.view.loss:
            self.view = replace(self.view, loss=replace(self.view.loss, obscured=False))

    def record_departed(self, *components: ComponentId, episode_id: str | None = None) -> None:
        """Record that these jobs have left, where that is not recorded yet: in the episode, or by themselves."""
        for component in components:
            if transition := self.departed.get(component):
                self.records.append(replace(transition, episode_id=episode_id))
        if any(component in self.departed for component in components):
            self.departed = {c: left for c, left in self.departed.items() if c not in components}

    def _contended(self) -> int | None:
        """How many JobManagers contended before anything moved: who was lost may have left its latch a moment before its address."""
        if self.fewer and self.at.steady - self.fewer.at <= episodes.LOOK_BACK:
            return self.fewer.contended
        return contending(self.contenders)

    def close_episode(self) -> None:
        """Record the episode that is over."""
        assert self.episode  # noqa: S101  only one that is there is closed
        facts = replace(self.episode.facts, contend=contending(self.contenders))
        self.last_episode = replace(self.episode, facts=facts)
        parts = {
            component: known for component, known in self._all_known() if episodes.has_part(known.absence, self.episode)
        }
        self.records.append(self.scribe.episode(self.last_episode, parts))
        self.episode = None

    def close_blindness(self) -> None:
        """Record that sight was lost, and that every leader is still the one of before."""
        assert self.view.loss  # noqa: S101  only one that is there is closed
        known = self.known(ComponentId(Component.DISPATCHER))
        self.records.append(self.scribe.blindness(self.view.loss, known.last_known if known else None))
        self.view = replace(self.view, loss=replace(self.view.loss, obscured=False))

    def _all_known(self) -> Iterator[tuple[ComponentId, ComponentState]]:
        """All components, as they are known by now."""
        for component in {**self.before.components, **self.components}:
            if known := self.known(component):
                yield component, known

    def _dated(self, known: ComponentState, kind: Kind | None) -> ComponentState:
        """`known`, with when what follows began."""
        if kind is None or kind is Kind.READDRESSED:
            return known
        return replace(known, since=self.at, discovered=kind is Kind.DISCOVERED)


def without_leader(known: ComponentState) -> Sight:
    """What it means that nobody leads: the job may have ended."""
    return Sight.JOB_ENDED if known.registered is False else Sight.NO_LEADER
