"""A witness of every step, who objects to what may never be."""

from collections.abc import Mapping, Sequence

from msgspec import msgpack
from msgspec.structs import replace

from sidecar.core.alerting.outbox import Stage
from sidecar.core.cluster.cluster_state import ClusterState, View
from sidecar.core.cluster.draft import transition_record
from sidecar.core.flink.leadership import ComponentId, Held, Leadership, Unknown, Vacant
from sidecar.core.moment import timestamp
from sidecar.core.observations import Observation, Started, Ticked, ViewObserved
from sidecar.core.policy.policy import Policy
from sidecar.core.records import AnyRecord, Contention, Coverage, EpisodeRecord, Evidence, TransitionRecord
from sidecar.core.state import Append, Effect, Gather, State
from sidecar.core.step import Step, step
from tests.kit.cluster import CLUSTER, START

Sight = tuple[str, str | None, str | None]
"""What is true of a leadership, as records have it: letter, session id, address."""
UNKNOWN, VACANT, GONE = ("?", None, None), ("null", None, None), ("gone", None, None)
Sights = dict[ComponentId, Sight]


def sights(state: State, cluster_id: str = CLUSTER) -> Sights:
    """What `state` says of each leadership."""
    cluster = state.clusters.get(cluster_id)
    return {component: _sight(now.leadership) for component, now in cluster.components.items()} if cluster else {}


def _sight(leadership: Leadership) -> Sight:
    match leadership:
        case Held(leader):
            return "A", str(leader.session_id), leader.address
        case Vacant():
            return VACANT
        case Unknown():
            return UNKNOWN


class Witness:
    """Takes every step of one observer of one cluster. `consistent`: what it observes is the history of a real store."""

    def __init__(self, *, consistent: bool = False, cluster_id: str = CLUSTER) -> None:
        self._consistent = consistent
        self._cluster_id = cluster_id
        self._covered_until: str | None = timestamp(START)
        """None: a cluster that is found begins to be covered then."""
        self._ids: set[str] = set()
        self._asked: set[str] = set()

    def step(self, policy: Policy, before: State, observation: Observation) -> Step:
        """As `sidecar.core.step.step`, twice, with all that has to be true of it."""
        picture = msgpack.encode(before)
        after, effects = step(policy, before, observation)
        assert msgpack.encode(before) == picture, "a state was changed in place"
        assert (after, effects) == step(policy, before, observation), "the same step gave something else"
        records = [effect.record for effect in effects if isinstance(effect, Append)]
        earlier = sights(before, self._cluster_id)
        if isinstance(observation, Started):  # remembered, but not in sight
            earlier = dict.fromkeys(earlier, UNKNOWN)
            assert set(sights(after, self._cluster_id).values()) <= {UNKNOWN}
        transitions = _happened(
            _departed(policy, before, self._cluster_id),
            _departed(policy, after, self._cluster_id),
            [record for record in records if isinstance(record, TransitionRecord)],
        )
        now = after.clusters.get(self._cluster_id)
        if now is None:  # it was removed: of what never had a leader nothing is recorded
            components = before.clusters[self._cluster_id].components if self._cluster_id in before.clusters else {}
            never_led = {component for component, state in components.items() if state.last_known is None}
            earlier = {name: sight for name, sight in earlier.items() if sight != UNKNOWN or name not in never_led}
        _check_transitions(earlier, sights(after, self._cluster_id), transitions)
        if now:
            _check_sight(observation, now.view, transitions)
            _check_episode(now, records)
        self._check_coverage(after, [record for record in records if isinstance(record, Coverage)])
        self._check_ids(records)
        self._check_evidence(before, after, effects)
        under_way = [d.destination for d in after.outbox.values() if d.stage is Stage.SENDING]
        assert len(set(under_way)) == len(under_way), "two deliveries to one destination at once"
        return after, effects

    def _check_coverage(self, after: State, stretches: Sequence[Coverage]) -> None:
        for stretch in stretches:
            assert stretch.began_at <= stretch.ended_at
            assert stretch.began_at == self._covered_until or not self._covered_until, "a gap, or an overlap"
            self._covered_until = stretch.ended_at
        cluster = after.clusters.get(self._cluster_id)
        if cluster is None:
            self._covered_until = None
        elif self._covered_until:
            assert timestamp(cluster.view.since.wall) == self._covered_until

    def _check_evidence(self, before: State, after: State, effects: Sequence[Effect]) -> None:
        """What is asked for is asked for once, and owed until something of it is recorded."""
        asked = [effect.capture.id for effect in effects if isinstance(effect, Gather)]
        assert self._asked.isdisjoint(asked), "evidence was asked for twice"
        self._asked.update(asked)
        answered = before.captures.keys() - after.captures.keys()
        assert after.captures.keys() == (before.captures.keys() | set(asked)) - answered
        recorded = {e.record.episode_id for e in effects if isinstance(e, Append) and isinstance(e.record, Evidence)}
        assert {before.captures[key].episode_id for key in answered} == recorded

    def _check_ids(self, records: Sequence[AnyRecord]) -> None:
        """An arbitrary sequence may show the same happening twice, with one id then; all that is about ourselves has its own."""
        own = [
            record.id
            for record in records
            if self._consistent or not (isinstance(record, Contention) or _is_of_flink(record))
        ]
        assert len(set(own)) == len(own)
        assert self._ids.isdisjoint(own), "an id was used twice"
        self._ids.update(own)


def _departed(policy: Policy, state: State, cluster_id: str) -> Mapping[ComponentId, TransitionRecord]:
    """What is to be recorded of jobs that have just left."""
    cluster = state.clusters.get(cluster_id)
    departed = cluster.departed if cluster else {}
    return {component: transition_record(policy, transition) for component, transition in departed.items()}


def _happened(
    before: Mapping[ComponentId, TransitionRecord],
    after: Mapping[ComponentId, TransitionRecord],
    recorded: Sequence[TransitionRecord],
) -> list[TransitionRecord]:
    """What happened in the step: recorded in it, or kept in the state to be recorded in a moment. That is recorded once, and as it was."""
    happened = list(recorded)
    for component, transition in before.items():
        if after.get(component) != transition:
            late = [other for other in happened if replace(other, episode_id=None) == transition]
            assert len(late) == 1, "what was kept is gone, or was recorded otherwise"
            happened.remove(late[0])
    for component, transition in after.items():
        assert component.job_id, "a component of the cluster waits for nobody"
        assert transition.kind == "REVOKED"
        if before.get(component) != transition:
            happened.append(transition)
    return happened


def _is_of_flink(record: AnyRecord) -> bool:
    return isinstance(record, TransitionRecord) and record.kind not in {"DISCOVERED", "OBSCURED"}


def _check_transitions(earlier: Sights, later: Sights, transitions: Sequence[TransitionRecord]) -> None:
    """The transitions lead each leadership from where it was to where it is, one from the end of the other, and none leads nowhere."""
    for component in earlier.keys() | later.keys():
        # A new job begins unseen, or with nobody in a complete view: both without a record.
        possible = {earlier[component]} if component in earlier else {UNKNOWN, VACANT}
        for transition in transitions:
            if (transition.component, transition.job_id) == (component.component.value, component.job_id):
                left, _, right = transition.pattern.partition("->")
                origin = (left, transition.before_session_id, transition.before_address)
                assert origin in possible, "a transition from elsewhere"
                after = ("A", transition.after_session_id, transition.after_address)
                end = {"?": UNKNOWN, "null": VACANT, "gone": GONE}.get(right, after)
                assert end != origin, "a transition to nowhere"
                _check_downtime(transition)
                possible = (
                    {GONE, UNKNOWN, VACANT} if end == GONE else {end}
                )  # it may begin anew at once, as a new job does
        assert later.get(component, GONE) in possible, "a leadership moved without a record"


def _check_downtime(transition: TransitionRecord) -> None:
    """No leader worked for at least as long as none was published, unless the same one is back; bounds are in order."""
    vacant = transition.vacant_seconds
    assert vacant is None or vacant >= 0
    at_least, at_most = transition.downtime_seconds_at_least, transition.downtime_seconds_at_most
    if at_least is None:
        assert at_most is None
        return
    assert transition.after_session_id, "the time without a working leader is known when one leads"
    assert transition.kind in {"GRANTED", "CHANGED"}
    assert at_least >= (0 if transition.same_leader else vacant or 0)
    assert at_most is None or at_most >= max(at_least, vacant or 0)


def _check_episode(after: ClusterState, records: Sequence[AnyRecord]) -> None:
    """Who is waited for is counted right, and whoever is over waits for none of the cluster's own components."""
    away = {
        component: now.absence.episode_id
        for component, now in after.components.items()
        if now.absence and now.absence.since is not None
    }
    if after.episode:
        waited_for = [component for component, episode_id in away.items() if episode_id == after.episode.id]
        assert after.episode.away == sum(component.job_id is None for component in waited_for)
        assert after.episode.jobs_away == sum(component.job_id is not None for component in waited_for)
    for record in records:
        if isinstance(record, EpisodeRecord):
            assert after.episode is None
            assert all(component.job_id for component, episode_id in away.items() if episode_id == record.id)
            assert record.jobs_missing == sum(episode_id == record.id for episode_id in away.values())
            assert record.jobs_ended + record.jobs_missing <= record.jobs_affected
            if record.downtime_seconds_at_most is not None:
                assert record.downtime_seconds_at_least is not None
                assert record.downtime_seconds_at_least <= record.downtime_seconds_at_most


def _check_sight(observation: Observation, view: View, transitions: Sequence[TransitionRecord]) -> None:
    """ "I cannot see" is never reported as "there is no leader"."""
    vacancies = [transition for transition in transitions if transition.pattern.endswith("->null")]
    assert {transition.connection for transition in vacancies} <= {"CONNECTED"}
    assert not (vacancies and isinstance(observation, ViewObserved | Ticked | Started))
    if any(transition.kind == "DISCOVERED" for transition in vacancies):
        assert view.complete, "nobody was found before all was looked at"
