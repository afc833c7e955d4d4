"""The state of one cluster, rebuilt from its records by the functions that also apply observations."""

from collections.abc import Mapping
from typing import Final

from msgspec.structs import replace

from sidecar.core.cluster import leadership_changes, split_leadership
from sidecar.core.cluster.draft import Draft, Happened
from sidecar.core.cluster.failover.causes import Cause, Confidence, Loss, Verdict
from sidecar.core.cluster.failover.plans import Intent, Operated, Plan
from sidecar.core.cluster.records.record_reader import transition_of
from sidecar.core.cluster.state import ClusterState, ComponentState, Sighting, View, contending, fresh_cluster
from sidecar.core.cluster.transitions import Transition
from sidecar.core.flink.leadership import Unknown, ZNodePosition
from sidecar.core.moment import Moment
from sidecar.core.policy.policy import Policy
from sidecar.core.records import AnyRecord, Contention, Death, EpisodeRecord, Recovery, TransitionRecord
from sidecar.simulation import replayed_recovery
from sidecar.simulation.coverage import BlindPeriod

_PLANS: Final[Mapping[str, Plan]] = {
    Cause.PLANNED_UPGRADE: Plan.UPGRADE,
    Cause.ROLLBACK: Plan.ROLLBACK,
    Cause.NODE_DRAIN: Plan.DRAIN,
}
_MOST_CONTENDERS = 1000
"""Records have the number of contenders, not their names. A larger number is cut to this."""


class ReplayedCluster:
    """One cluster after the records so far. `state` is the same object as long as nothing changes."""

    def __init__(self, policy: Policy, cluster_id: str, at: Moment, planned: Mapping[str, str] | None = None) -> None:
        """`planned`: the causes of planned episodes, by id."""
        self._policy = policy
        self._planned = planned or {}
        self._cluster_id = cluster_id
        self.state: ClusterState = fresh_cluster(at)

    def apply(self, record: AnyRecord, at: Moment) -> AnyRecord | Happened:
        """Apply a record; returns the input of the rules. `observed` has the state of the view."""
        happened: AnyRecord | Happened = record
        draft = Draft(self._policy, self._cluster_id, self.state, at)
        match record:
            case TransitionRecord():
                happened = self._take(draft, transition_of(record, at))
            case EpisodeRecord() if self.state.episode and self.state.episode.id == record.id:
                closed = replace(self.state.episode, recorded=_verdict(record))
                draft.update(episode=None, last_episode=closed, operated=None)
            case Contention():
                names = tuple(map(str, range(min(record.contenders, _MOST_CONTENDERS))))
                contenders = {**self.state.contenders, record.component or "": names}
                standby = self.state.standby.with_contenders(contending(contenders) or 0, at)
                draft.update(contenders=contenders, standby=standby)
            case Death():
                self.state = replayed_recovery.with_death(self.state, record)
                return record
            case Recovery():
                left_out = self._planned.get(record.episode_id, Cause.ROLLBACK) != Cause.ROLLBACK
                self.state, happened = replayed_recovery.with_recovery(self.state, record, at, left_out=left_out)
                return happened
        self.state, _ = draft.outcome()
        return happened

    def _take(self, draft: Draft, transition: Transition) -> Transition:
        state = draft.state_of(transition.component) or ComponentState(Unknown(), draft.at)
        if isinstance(transition.position, ZNodePosition):
            draft.update(zxid=max(self.state.zxid or 0, transition.position.mzxid))
        leadership_changes.take(draft, state, replace(transition, last_position=state.last_position))
        episode = draft.state.episode
        if episode and episode.facts.intent is None and (cause := self._planned.get(episode.id)):
            intent = Intent(_PLANS.get(cause, Plan.SUSPENSION), 0)
            unwanted = Operated(None, unwanted_since=draft.at) if intent.plan is Plan.SUSPENSION else None
            facts = replace(episode.facts, intent=intent)
            draft.update(episode=replace(episode, facts=facts), operated=unwanted)
        return transition

    def observed(self, blind: BlindPeriod | None, now: int) -> None:
        """Set the view: `blind`, or None if the store can be observed `now`; and forget what is over."""
        self.state = replayed_recovery.observed(self.state, Moment(now, now))
        view = self.state.view
        if blind is not None and view.complete:
            began = Moment(blind.began, blind.began)
            self.state = replace(self.state, view=View(sighting=Sighting.BLIND, turned_at=began, loss=Loss(began)))
        elif blind is None and not view.complete:
            seeing = View(complete=True, sighting=Sighting.SEEING, turned_at=Moment(now, now))
            self.state = replace(self.state, view=seeing)

    def split_ends_at(self) -> int | None:
        """When the next split leadership ends if no leader comes back; None while blind."""
        if not self.state.view.complete:
            return None
        contests = (self.state.components[component].contest for component in self.state.contested)
        since = self.state.view.turned_at.steady
        return min((max(contest.returns[-1], since) + split_leadership.CALM for contest in contests), default=None)

    def end_splits(self, now: Moment) -> None:
        """End split leaderships in which no leader came back for long enough; no record has that."""
        draft = Draft(self._policy, self._cluster_id, self.state, now)
        for component in self.state.contested if self.state.view.complete else ():
            component_state = self.state.components[component]
            if split_leadership.is_calm(component_state.contest, self.state.view.turned_at.steady, now):
                leadership_changes.reconciled(draft, component)
        self.state, _ = draft.outcome()


def _verdict(record: EpisodeRecord) -> Verdict | None:
    """The recorded verdict; None of one in words of another version."""
    try:
        return Verdict(Cause(record.cause), Confidence(record.confidence), tuple(record.facts))
    except ValueError:
        return None
