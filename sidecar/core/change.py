"""One step of one cluster in the making: our view of its store, and the leadership table applied."""

from msgspec.structs import replace

from sidecar.core import accounting, contest
from sidecar.core.leadership import Blindness, Component, ComponentId, Held, Unknown, Vacant
from sidecar.core.moment import SECOND, Moment
from sidecar.core.observations import ConnectionState, NodeObserved
from sidecar.core.policy import Policy
from sidecar.core.recording import Scribe, Seen
from sidecar.core.records import Contention, Coverage, Transition
from sidecar.core.state import ClusterState, ComponentState, Sighting
from sidecar.core.transitions import Kind, Sight, kind_of

COVERAGE_INTERVAL = 3600 * SECOND
"""A long stretch of sight is recorded in pieces of this length, so that nobody has to wait for its end."""

Outcome = tuple[ClusterState, list[Transition | Coverage | Contention]]


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
        self.records: list[Transition | Coverage | Contention] = []

    def outcome(self) -> Outcome:
        components = self.before.components
        if self.components or self.ended:
            components = {**components, **self.components}
            for component in self.ended:
                del components[component]
        contested = self.contested - self.ended
        after = ClusterState(self.view, components, self.jobs, self.contenders, contested, self.zxid, self.leases)
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
        if connection is ConnectionState.CONNECTED:
            # A fresh look at everything begins: what nobody could read before may be readable or gone now.
            for component, known in self.before.components.items():
                if isinstance(known.leadership, Unknown) and known.leadership != Unknown():
                    self.components[component] = replace(known, leadership=Unknown())
            self.view = replace(self.view, connection=connection, connected_at=self.at.steady, complete=False)
            return
        deadline = self.view.obscure_at
        if deadline is None and self.view.connection is not None:
            deadline = self.at.steady + self.policy.trust_window
        self.cover(Sighting.BLIND, self.at)
        self.view = replace(self.view, connection=connection, complete=False, obscure_at=deadline)

    def snapshot_completed(self) -> None:
        for component in self.before.components:
            known = self.known(component)
            if known and isinstance(known.leadership, Unknown) and known.leadership.reason is not Blindness.UNREADABLE:
                self.apply(component, self._looked_for(known), Seen(without_leader(known)))
        self.cover(Sighting.SEEING, self.at)
        self.view = replace(self.view, complete=True, obscure_at=None)

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
        self.view = replace(self.view, obscure_at=None)

    def cover(self, sighting: Sighting, until: Moment) -> None:
        """Record the stretch that ends at `until`, and begin one of `sighting` there."""
        view = self.view
        # The wall clock may jump back: stretches never overlap.
        until = Moment(until.steady, max(view.since.wall, until.wall))
        if until.steady > view.since.steady and (
            view.sighting is not sighting or until.steady - view.since.steady >= COVERAGE_INTERVAL
        ):
            self.records.append(self.scribe.coverage(view, until))
            self.view = replace(view, sighting=sighting, since=until)
        else:
            self.view = replace(view, sighting=sighting)

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
                        known, leadership=blind, since=self._since(known, kind), vacated_at=None
                    )
            case Sight.NO_LEADER:
                vacated = self.at if kind is Kind.REVOKED else known.vacated_at
                self.components[component] = replace(
                    known, leadership=Vacant(), since=self._since(known, kind), vacated_at=vacated
                )
            case _:
                assert seen.leader is not None  # noqa: S101  the sights that are left all have a leader
                assert seen.position is not None  # noqa: S101  and it stands somewhere
                self.components[component] = replace(
                    known,
                    leadership=Held(seen.leader, seen.position),
                    since=self._since(known, kind),
                    last_known=seen.leader,
                    last_position=seen.position,
                    vacated_at=None,
                )

    def _record(self, component: ComponentId, known: ComponentState, seen: Seen, kind: Kind) -> ComponentState:
        """`known` as the next transition will find it: this one has told what was missed."""
        before = known.contest
        if seen.leader and known.last_known:
            after = contest.succeeded(before, known.last_known.session_id, seen.leader.session_id, self.at)
            known = replace(known, contest=after)
            if after.since:
                self.contested |= {component}
        self.records.append(
            self.scribe.transition(component, known, before, seen, kind, self.view.connection, self.contenders)
        )
        if kind is Kind.OBSCURED:
            return known
        if known.look:
            known = replace(known, look=replace(known.look, gap=accounting.NO_GAP))
        if known.elections:
            known = replace(known, elections=replace(known.elections, gap=accounting.NO_GAP))
        return known

    def _since(self, known: ComponentState, kind: Kind | None) -> Moment:
        return known.since if kind is None or kind is Kind.READDRESSED else self.at


def without_leader(known: ComponentState) -> Sight:
    """What it means that nobody leads: the job may have ended."""
    return Sight.JOB_ENDED if known.registered is False else Sight.NO_LEADER
