"""One cluster: raw observations in, the next state and its records out."""

from collections.abc import Callable

from msgspec.structs import replace

from sidecar.core import accounting, contest, layout
from sidecar.core.leadership import (
    Blindness,
    Component,
    ComponentId,
    Held,
    LeaderInformation,
    Unknown,
    Vacant,
)
from sidecar.core.moment import SECOND, Moment
from sidecar.core.observations import (
    ChildrenObserved,
    ClusterObservation,
    ConnectionState,
    NodeObserved,
    NodeRefused,
    SnapshotCompleted,
    StoreObserved,
    ViewObserved,
)
from sidecar.core.policy import Policy
from sidecar.core.recording import Scribe, Seen
from sidecar.core.records import Contention, Coverage, Transition
from sidecar.core.state import ClusterState, ComponentState, Sighting, View
from sidecar.core.transitions import Kind, Sight, compare, kind_of
from sidecar.core.wire import Unreadable, decode_connection_info

COVERAGE_INTERVAL = 3600 * SECOND
"""A long stretch of sight is recorded in pieces of this length, so that nobody has to wait for its end."""


Outcome = tuple[ClusterState, list[Transition | Coverage | Contention]]
Act = Callable[[Policy, str, ClusterState, Moment], Outcome]


def observe(policy: Policy, cluster_id: str, cluster: ClusterState, observation: ClusterObservation) -> Outcome:
    """The cluster after `observation`, and what is to be recorded of it."""
    if not isinstance(observation, ViewObserved) and cluster.view.connection is not ConnectionState.CONNECTED:
        return cluster, []  # a late answer of a connection that is gone: all of it is read again on the next one
    change = _Change(policy, cluster_id, cluster, observation.at)
    match observation:
        case ViewObserved():
            change.view_changed(observation.connection)
        case SnapshotCompleted():
            change.snapshot_completed()
        case NodeObserved():
            change.node_observed(observation)
        case NodeRefused():
            change.node_refused(observation)
        case ChildrenObserved():
            change.children_observed(observation)
        case StoreObserved():
            change.zxid = observation.zxid
    return change.outcome()


def tick(policy: Policy, cluster_id: str, cluster: ClusterState, now: Moment) -> Outcome:
    """The cluster when nothing but time has passed: a lost view is trusted no longer than the trust window."""
    view = cluster.view
    obscured = view.obscure_at is not None and now.steady >= view.obscure_at
    calm = [component for component in cluster.contested if view.complete and _is_calm(cluster, component, now)]
    if not obscured and not calm and now.steady - view.since.steady < COVERAGE_INTERVAL:
        return cluster, []
    change = _Change(policy, cluster_id, cluster, now)
    if obscured:
        change.obscure()
    for component in calm:
        change.reconciled(component)
    change.cover(view.sighting, now)
    return change.outcome()


def restart(policy: Policy, cluster_id: str, cluster: ClusterState, alive: Moment, now: Moment) -> Outcome:
    """The cluster as a new process finds it in the journal: nothing of it is in sight, all of it is remembered."""
    change = _Change(policy, cluster_id, cluster, now)
    change.cover(Sighting.BLIND, max(alive, cluster.view.since))
    for component, known in cluster.components.items():
        change.components[component] = replace(known, leadership=Unknown(), since=now, vacated_at=None)
    change.view = View(since=change.view.since)
    return change.outcome()


def stop(policy: Policy, cluster_id: str, cluster: ClusterState, now: Moment) -> Outcome:
    """The cluster at an orderly end: what was covered until now is recorded."""
    change = _Change(policy, cluster_id, cluster, now)
    change.cover(Sighting.BLIND, now)
    return change.outcome()


def _is_calm(cluster: ClusterState, component: ComponentId, now: Moment) -> bool:
    return contest.is_calm(cluster.components[component].contest, cluster.view.since.steady, now)


class _Change:
    """One step of one cluster in the making."""

    def __init__(self, policy: Policy, cluster_id: str, cluster: ClusterState, at: Moment) -> None:
        self.scribe = Scribe(policy, cluster_id, at)
        self.trust_window = policy.trust_window
        self.before = cluster
        self.at = at
        self.view = cluster.view
        self.components: dict[ComponentId, ComponentState] = {}
        self.ended: set[ComponentId] = set()
        self.jobs = cluster.jobs
        self.contenders = cluster.contenders
        self.contested = cluster.contested
        self.zxid = cluster.zxid
        self.records: list[Transition | Coverage | Contention] = []

    def outcome(self) -> Outcome:
        components = self.before.components
        if self.components or self.ended:
            components = {**components, **self.components}
            for component in self.ended:
                del components[component]
        contested = self.contested - self.ended
        return ClusterState(self.view, components, self.jobs, self.contenders, contested, self.zxid), self.records

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
            deadline = self.at.steady + self.trust_window
        self.cover(Sighting.BLIND, self.at)
        self.view = replace(self.view, connection=connection, complete=False, obscure_at=deadline)

    def snapshot_completed(self) -> None:
        for component, known in self.before.components.items():
            if isinstance(known.leadership, Unknown) and known.leadership.reason is not Blindness.UNREADABLE:
                self.apply(component, self._looked_for(known), Seen(_without_leader(known)))
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

    # -- what stands in the store --------------------------------------------------------------------------------------

    def node_observed(self, node: NodeObserved) -> None:
        component = layout.component_of(node.path)
        if component is None:
            return
        leader = decode_connection_info(node.data) if node.position and node.data else None
        known = self.before.components.get(component)
        if known is None:
            if leader is None:
                return
            known = self._newcomer()
        if not _speaks_for(known, node):
            return
        if node.position or not known.look or known.look.path == node.path:
            known = replace(known, look=accounting.look(known.look, node), seen_at=self.at.steady)
        match leader:
            case LeaderInformation():
                self.apply(component, known, Seen(compare(known.leadership, leader), leader, node.position, node.path))
            case Unreadable(reason):
                self.apply(component, known, Seen(Sight.NO_VIEW, position=node.position, path=node.path, reason=reason))
            case None if not isinstance(known.leadership, Unknown) or self.view.complete:
                self.apply(component, known, Seen(_without_leader(known), position=node.position, path=node.path))
            case None:
                # One of several places is empty; whether nobody leads is known when all have been looked at.
                self.components[component] = replace(known, leadership=Unknown())

    def node_refused(self, node: NodeRefused) -> None:
        component = layout.component_of(node.path)
        if component is None:
            return
        known = self.before.components.get(component) or self._newcomer()
        if not isinstance(known.leadership, Held) or known.leadership.position.path == node.path:
            self.apply(component, known, Seen(Sight.NO_VIEW, path=node.path, reason=node.reason))

    def children_observed(self, seen: ChildrenObserved) -> None:
        if layout.is_latch(seen.path):
            before = self.contenders.get(seen.path)
            if seen.names != before:
                self.contenders = {**self.contenders, seen.path: seen.names}
                if seen.names or before:
                    self.records.append(self.scribe.contention(seen.path, seen.names, before))
        elif seen.path in layout.JOB_STORES:
            self.jobs = {**self.jobs, seen.path: layout.job_ids(seen.names)}
            self._register_jobs(frozenset[str]().union(*self.jobs.values()))

    def _register_jobs(self, job_ids: frozenset[str]) -> None:
        for job_id in job_ids:
            component = ComponentId(Component.JOB, job_id)
            known = self.before.components.get(component) or self._newcomer()
            if not known.registered:
                self.components[component] = replace(known, registered=True)
        for component, known in self.before.components.items():
            if known.registered and component.job_id not in job_ids:
                ended = self.components[component] = replace(known, registered=False)
                if isinstance(known.leadership, Vacant):
                    self.apply(component, ended, Seen(Sight.JOB_ENDED))

    def _newcomer(self) -> ComponentState:
        """A component that was not there: a complete view saw that nobody led it, an incomplete one saw nothing."""
        return ComponentState(Vacant() if self.view.complete else Unknown(), self.at)

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
        if known.look and kind is not Kind.OBSCURED:
            known = replace(known, look=replace(known.look, gap=accounting.NO_GAP))
        return known

    def _since(self, known: ComponentState, kind: Kind | None) -> Moment:
        return known.since if kind is None or kind is Kind.READDRESSED else self.at


def _without_leader(known: ComponentState) -> Sight:
    return Sight.JOB_ENDED if known.registered is False else Sight.NO_LEADER


def _speaks_for(known: ComponentState, node: NodeObserved) -> bool:
    """Whether `node` says something of the leadership: in an upgrade, the old layout's place is empty while the new one's is held."""
    match known.leadership:
        case Held(position=held):
            newer = node.position is not None and bool(node.data) and node.position.mzxid > held.mzxid
            return held.path == node.path or newer
        case Unknown(Blindness.UNREADABLE, path):
            return path == node.path or bool(node.data)
    return True
