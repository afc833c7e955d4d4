"""One cluster as its records describe it: the state that the rules look at, by the same function as observations take."""

from msgspec.structs import replace

from sidecar.core.cluster import leadership_changes, split_leadership
from sidecar.core.cluster.causes import Loss
from sidecar.core.cluster.draft import Draft
from sidecar.core.cluster.record_reader import transition_of
from sidecar.core.cluster.state import ClusterState, ComponentState, Sighting, View, contending, fresh_cluster
from sidecar.core.cluster.transitions import Transition
from sidecar.core.flink.leadership import Unknown, ZNodePosition
from sidecar.core.moment import Moment
from sidecar.core.policy.policy import Policy
from sidecar.core.records import AnyRecord, Contention, EpisodeRecord, TransitionRecord
from sidecar.simulation.coverage import Stretch

_MOST_CONTENDERS = 1000
"""Their names are not recorded, so numbers stand for them; no record makes us count further."""


class ReplayedCluster:
    """One cluster behind the records so far. `state` stays the same object where nothing changes."""

    def __init__(self, policy: Policy, cluster_id: str, at: Moment) -> None:
        self._policy = policy
        self._cluster_id = cluster_id
        self.state: ClusterState = fresh_cluster(at)

    def happened(self, record: AnyRecord, at: Moment) -> AnyRecord | Transition:
        """Take over what a record says; what the rules hear of it. When the store was observed is known from elsewhere."""
        happened: AnyRecord | Transition = record
        draft = Draft(self._policy, self._cluster_id, self.state, at)
        match record:
            case TransitionRecord():
                happened = self._take(draft, transition_of(record, at))
            case EpisodeRecord() if self.state.episode and self.state.episode.id == record.id:
                draft.update(episode=None, last_episode=self.state.episode)
            case Contention():
                names = tuple(map(str, range(min(record.contenders, _MOST_CONTENDERS))))
                contenders = {**self.state.contenders, record.component or "": names}
                standby = self.state.standby.with_contenders(contending(contenders) or 0, at)
                draft.update(contenders=contenders, standby=standby)
        self.state, _ = draft.outcome()
        return happened

    def _take(self, draft: Draft, transition: Transition) -> Transition:
        known = draft.known(transition.component) or ComponentState(Unknown(), draft.at)
        if isinstance(transition.position, ZNodePosition):
            draft.update(zxid=max(self.state.zxid or 0, transition.position.mzxid))
        leadership_changes.take(draft, known, replace(transition, last_position=known.last_position))
        return transition

    def observed(self, blind: Stretch | None, now: int) -> None:
        """Whether the store could be observed `now`, and else since when not."""
        view = self.state.view
        if blind is not None and view.complete:
            began = Moment(blind.began, blind.began)
            self.state = replace(self.state, view=View(sighting=Sighting.BLIND, turned_at=began, loss=Loss(began)))
        elif blind is None and not view.complete:
            seeing = View(complete=True, sighting=Sighting.SEEING, turned_at=Moment(now, now))
            self.state = replace(self.state, view=seeing)

    def split_ends_at(self) -> int | None:
        """When the next split leadership is over if no leader comes back; None while the store cannot be observed."""
        if not self.state.view.complete:
            return None
        contests = (self.state.components[component].contest for component in self.state.contested)
        since = self.state.view.turned_at.steady
        return min((max(contest.returns[-1], since) + split_leadership.CALM for contest in contests), default=None)

    def end_splits(self, now: Moment) -> None:
        """End split leaderships in which no leader has come back for long enough: there is no record of that."""
        draft = Draft(self._policy, self._cluster_id, self.state, now)
        for component in self.state.contested if self.state.view.complete else ():
            known = self.state.components[component]
            if split_leadership.is_calm(known.contest, self.state.view.turned_at.steady, now):
                leadership_changes.reconciled(draft, component)
        self.state, _ = draft.outcome()
