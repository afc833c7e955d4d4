"""All state changes go through here: `step(policy, state, observation) → (state, effects)`."""

from collections.abc import Callable, Iterable
from contextlib import suppress
from typing import Final, TypeVar

from msgspec.structs import replace

from sidecar.core import capturing, drilling, handover
from sidecar.core.alerting import alerting_step
from sidecar.core.cluster import cluster_step, status_of
from sidecar.core.cluster.cluster_state import ClusterState, fresh_cluster, without_memory
from sidecar.core.cluster.draft import ClusterStep, transition_record
from sidecar.core.failover import assessment, plans, rest_server
from sidecar.core.failover.failover_events import events
from sidecar.core.failover.recovery_state import BadRestore
from sidecar.core.finder import Finder
from sidecar.core.flink.deployments import Maker
from sidecar.core.leadership.leadership_machine import accounted
from sidecar.core.leadership.transitions import Transition
from sidecar.core.moment import SECOND, Moment
from sidecar.core.observations import (
    ANY,
    ClusterFound,
    ClusterObservation,
    ClusterRemoved,
    ClustersListed,
    DeliverySettled,
    DeploymentObserved,
    DeploymentUnreadable,
    EndObservation,
    EvidenceGathered,
    FailoverAnnotated,
    HaChecked,
    HandoverRead,
    MakerObserved,
    MakersListed,
    NotProcessed,
    Observation,
    PeersAsked,
    PictureTaken,
    PlanObservation,
    PodNamed,
    PolicyLoaded,
    RightRefused,
    SilencesRead,
    Started,
    Stopped,
    Ticked,
)
from sidecar.core.overlay import differing, with_items, without_items
from sidecar.core.pictures import PictureRequest
from sidecar.core.pods import ip_addresses, with_pod
from sidecar.core.policy.policy import Policy, Source
from sidecar.core.quarantine import Quarantine, Quarantined
from sidecar.core.state import Append, Effect, NamePod, Publish, State, TakePicture, effects_of

ALIVE_INTERVAL = 30 * SECOND
"""How often the journal records that the sidecar runs."""
MOST_UNCLAIMED: Final = 10_000
"""FlinkDeployments without a cluster that are remembered."""

Step = tuple[State, list[Effect]]
_T = TypeVar("_T")
_Act = Callable[[Policy, str, ClusterState, _T], ClusterStep]
_Informing = EndObservation | PictureTaken | HaChecked | PeersAsked | FailoverAnnotated


def step(policy: Policy, state: State, observation: Observation) -> Step:
    """The state after `observation`, and its effects in order: append records, then the others."""
    match observation:
        case Ticked():
            state, effects = _tick(policy, state, observation.at)
        case DeliverySettled():
            state, records = alerting_step.settled(policy, state, observation)
            effects = effects_of(records)
        case EvidenceGathered():
            state, effects = capturing.take_result(policy, state, observation)
        case Started() | PolicyLoaded() | HandoverRead():
            state, effects = _begin(policy, state, observation)
        case PodNamed() | SilencesRead():
            state, effects = _load(policy, state, observation), []
        case Stopped():
            state = replace(state, alive=observation.at)
            state, effects = _each_cluster(policy, state, observation.at, cluster_step.stop)
        case ClusterFound() | ClusterRemoved() | ClustersListed():
            state, effects = _find(policy, state, observation)
        case _:
            state, effects = _observe(policy, state, observation)
    return drilling.with_records(state, effects) if state.drills else state, effects


def _observe(
    policy: Policy, state: State, observation: ClusterObservation | PlanObservation | _Informing | NotProcessed
) -> Step:
    if isinstance(observation, _Informing):
        return _inform(policy, state, observation)
    if isinstance(observation, PlanObservation):
        return _plan(policy, state, observation)
    name = observation.cluster_id
    before = state.clusters.get(name)
    if before is None:
        if name not in policy.stores:
            return state, []  # a late observation of a cluster that was removed
        before = fresh_cluster(observation.at)

    state, effects = _act(policy, state, name, before, cluster_step.leaders_observed, observation, observation.at)
    after = state.clusters[name]
    if after.operated is None and after.components is not before.components and (state.makers or state.listed):
        state, more = _made(policy, state, name, observation.at)
        effects += more
    return state, effects


def _find(policy: Policy, state: State, observation: ClusterFound | ClusterRemoved | ClustersListed) -> Step:
    """The state after a cluster came or went."""
    at = observation.at
    match observation:
        case ClusterFound(cluster_id=name):
            if name in state.clusters:
                return state, []
            new = replace(fresh_cluster(at), operated=state.unclaimed.get(name))
            clusters = with_items(state.clusters, {name: new})
            return replace(state, clusters=clusters, unclaimed=without_items(state.unclaimed, [name])), []
        case ClusterRemoved(cluster_id=name, on_purpose=on_purpose):
            cluster = state.clusters.get(name)
            if cluster and cluster_step.has_leader(cluster) and not on_purpose:
                # Nothing of it will be confirmed any more.
                gone = replace(cluster, gone=at, confirmed=None, stale=False)
                return replace(state, clusters=with_items(state.clusters, {name: gone})), []
            return _remove(policy, state, [name] if cluster else [], at)
        case ClustersListed(cluster_ids=names):
            state = replace(state, finder=Finder.from_listed(observation, state.finder))
            # Of those that are not there any more, the ones that an earlier process knew.
            ended = {n for n, cluster in state.clusters.items() if cluster.view.connection is None} - (names or set())
            return _remove(policy, state, sorted(ended - policy.stores.keys()) if names is not None else [], at)


def _remove(policy: Policy, state: State, names: Iterable[str], at: Moment) -> Step:
    """Retire clusters that were removed, resolve their alerts, and forget them."""
    effects: list[Effect] = []
    for name in names:
        state, more = _act(policy, state, name, state.clusters[name], cluster_step.removed, at, at)
        effects += more
        alerts = alerting_step.without_cluster(policy, state.alerts, name, at)
        operated = state.clusters[name].operated
        unclaimed = {**state.unclaimed, name: operated} if operated and operated.is_read else state.unclaimed
        state = replace(state, clusters=without_items(state.clusters, [name]), alerts=alerts, unclaimed=unclaimed)
    return state, effects


def _plan(policy: Policy, state: State, observation: PlanObservation) -> Step:
    """The state after an observation of what is meant to happen to a cluster, or to one of several."""
    name = observation.cluster_id
    listed = state.listed.get(name)
    if isinstance(observation, MakersListed):
        state = replace(state, listed={**state.listed, name: observation.there})
    elif isinstance(observation, DeploymentUnreadable) and observation.kind is Maker.NOTHING:
        state = replace(state, listed=without_items(state.listed, [name]))  # not all of it can be read any more
    if not isinstance(observation, MakerObserved) and not observation.cluster_id.endswith(ANY):
        return _plan_of_one(policy, state, observation)
    names = _meant(policy, state, observation.cluster_id)
    if isinstance(observation, MakerObserved):
        seen = observation.seen
        seen = replace(seen, alone=seen.alone and len(names) <= 1)
        observation, key = replace(observation, seen=seen), (observation.cluster_id, seen.kind, seen.name)
        if seen.deployment is None:
            state = replace(state, makers={other: maker for other, maker in state.makers.items() if other != key})
        elif key in state.makers or len(state.makers) < MOST_UNCLAIMED:
            state = replace(state, makers={**state.makers, key: seen})
    elif isinstance(observation, MakersListed) and listed is not None:
        there = observation.there
        changed = {namespace for namespace in {*listed, *there} if listed.get(namespace) != there.get(namespace)}
        names = [name for name in names if name.rpartition("/")[0] in changed]
    effects: list[Effect] = []
    for name in names:
        state, more = _plan_of_one(policy, state, replace(observation, cluster_id=name))
        effects += more
    return state, effects


def _meant(policy: Policy, state: State, cluster_id: str) -> list[str]:
    """The clusters that an observation may be about."""
    if not cluster_id.endswith(ANY):
        return [cluster_id]
    return [name for name in state.clusters if name.startswith(cluster_id[:-1]) and name not in policy.stores]


def _made(policy: Policy, state: State, name: str, at: Moment) -> Step:
    """The state after somebody else leads a cluster: what makes its JobManagers may have been observed before."""
    effects: list[Effect] = []
    known: list[tuple[str, PlanObservation]] = [
        *((meant, MakerObserved(at, name, seen)) for (meant, *_), seen in state.makers.items()),
        *((meant, MakersListed(at, name, there)) for meant, there in state.listed.items()),
    ]
    for meant, observation in known:
        if meant == name or (meant.endswith(ANY) and name.startswith(meant[:-1])):
            state, more = _plan_of_one(policy, state, observation)
            effects += more
    return state, effects


def _plan_of_one(policy: Policy, state: State, observation: PlanObservation) -> Step:
    name, at = observation.cluster_id, observation.at
    if cluster := state.clusters.get(name):
        return _take(policy, state, name, cluster_step.facts_observed(policy, name, cluster, observation), at)
    if isinstance(observation, MakersListed | RightRefused):
        return state, []
    if not policy.finds or not isinstance(observation, DeploymentObserved):
        return replace(state, unclaimed=without_items(state.unclaimed, [name])), []
    operated = plans.observed(state.unclaimed.get(name), observation.deployment, at)
    if operated is None or operated.deployment is None or len(state.unclaimed) >= MOST_UNCLAIMED:
        return replace(state, unclaimed=without_items(state.unclaimed, [name])), []
    return replace(state, unclaimed={**state.unclaimed, name: operated}), []


def _inform(policy: Policy, state: State, observation: _Informing) -> Step:
    """The state after an observation from outside of the leaders: of how a JobManager ended, of what Flink's REST server, other observers
    or people say, or of what the checks of high availability found.
    """
    effects: list[Effect] = []
    for name in _meant(policy, state, observation.cluster_id):
        if before := state.clusters.get(name):
            if isinstance(observation, PictureTaken):
                observation = rest_server.bounded(state.clusters, observation)
            state, more = _act(policy, state, name, before, cluster_step.facts_observed, observation, observation.at)
            effects += more
    return state, effects


def _begin(policy: Policy, state: State, observation: Started | PolicyLoaded | HandoverRead) -> Step:
    """The state under another policy, or going on from what another process left, perhaps under another policy. Who shows an incident is
    told what the policy has dropped of it.
    """
    at, groups = observation.at, state.alerts.groups
    effects: list[Effect] = []
    match observation:
        case Started():
            state, effects = _start(policy, state, at)
        case PolicyLoaded(policy=policy):
            state, left_out = alerting_step.continued(policy, replace(state, stated={}), at)
            effects = [*left_out]
        case HandoverRead(cluster_id=name):
            document = handover.read(observation.content, name, at)
            state, groups = handover.adopt(policy, state, name, document, at) if document else (state, {})
    state, told = alerting_step.without_dropped(policy, state, groups, at)
    return state, [*effects, *effects_of(told)]


def _load(policy: Policy, state: State, observation: PodNamed | SilencesRead) -> State:
    if isinstance(observation, SilencesRead):
        return alerting_step.silences_read(policy, state, observation)
    cluster = state.clusters.get(observation.cluster_id)
    if cluster is None or (pods := with_pod(cluster.pods, observation.host, observation.pod)) is cluster.pods:
        return state
    return replace(state, clusters=with_items(state.clusters, {observation.cluster_id: replace(cluster, pods=pods)}))


def _start(policy: Policy, state: State, now: Moment) -> Step:
    """Take over the state of an earlier process: drop clusters that are no longer watched, release its deliveries in progress."""
    alive = state.alive or now
    clusters: dict[str, ClusterState] = {name: fresh_cluster(now) for name in policy.stores}
    clusters |= {name: cluster for name, cluster in state.clusters.items() if policy.watches(name)}
    started, left_out = alerting_step.restarted(policy, state, now)
    started = replace(started, clusters=clusters, finder=None, unclaimed={}, makers={}, listed={}, alive=now)
    started, effects = _each_cluster(
        policy, started, now, lambda p, name, c, at: cluster_step.restart(p, name, c, alive, at)
    )
    started, lost = capturing.give_up(policy, started, state.captures.values(), "the sidecar ended meanwhile", now)
    return started, [*left_out, *effects, *lost]


def _tick(policy: Policy, state: State, now: Moment) -> Step:
    groups, quarantine = state.alerts.groups, Quarantine()
    effects: list[Effect] = []
    for part in (_drills, capturing.tick, _recoveries, _pictures, _clusters, _removals):
        state, more = part(policy, state, quarantine, now)
        effects += more
    statuses = status_of.Statuses(policy, now)
    state, more = _stated(policy, state, quarantine, statuses, now)
    effects += more
    state, told = alerting_step.tick(policy, state, state.clusters, state.finder, groups, statuses, quarantine, now)
    if state.alive is None or now.steady - state.alive.steady >= ALIVE_INTERVAL:
        state = replace(state, alive=now)
    return state, [*effects, *effects_of(told), *quarantine.left_out]


def _drills(policy: Policy, state: State, quarantine: Quarantine, now: Moment) -> Step:
    with quarantine.guard("drills"):
        return drilling.tick(policy, state, now)
    return state, []


def _recoveries(policy: Policy, state: State, _: Quarantine, now: Moment) -> Step:
    return _each_cluster(policy, state, now, assessment.tick)


def _pictures(policy: Policy, state: State, quarantine: Quarantine, now: Moment) -> Step:
    if Source.FLINK_REST not in policy.evidence:
        return state, []
    requests: list[PictureRequest] = []
    asked: dict[str, ClusterState] = {}
    for name, cluster in state.clusters.items():
        with quarantine.guard("the picture of cluster", name):
            after, request = rest_server.due(
                policy, name, cluster, assessment.asked_first(cluster), now, len(state.clusters)
            )
            if request:
                asked[name] = after
                requests.append(request)
    effects: list[Effect] = [TakePicture(request) for request in rest_server.limited(state.clusters, requests)]
    return replace(state, clusters=with_items(state.clusters, asked)) if asked else state, effects


def _clusters(policy: Policy, state: State, _: Quarantine, now: Moment) -> Step:
    return _each_cluster(policy, state, now, cluster_step.tick)


def _removals(policy: Policy, state: State, _: Quarantine, now: Moment) -> Step:
    """Forget clusters that were found, and of which nothing has existed for long."""
    if not policy.finds:
        return state, []
    return _remove(
        policy,
        state,
        [name for name, cluster in state.clusters.items() if cluster_step.is_forgotten(cluster, now)],
        now,
    )


def _stated(policy: Policy, state: State, quarantine: Quarantine, statuses: status_of.Statuses, now: Moment) -> Step:
    """Decide the status of the clusters that have changed, or whose time has come."""
    _, clusters = differing(state.stated, state.clusters)
    if state.status_due is not None and now.steady >= state.status_due:
        clusters |= {name: c for name, c in state.clusters.items() if c.stated and c.stated.is_due(now)}
    if not clusters:
        return state, []
    effects: list[Effect] = []
    undecided: list[str] = []
    for name, cluster in clusters.items():
        with quarantine.guard("the status of cluster", name) as guard:
            current = statuses.status_of(name, cluster)
            state, more = _take(policy, state, name, status_of.restated(policy, name, cluster, current, now), now)
            effects += more
        if guard.raised:
            undecided.append(name)
    dues = (c.stated.due for c in state.clusters.values() if c.stated and c.stated.due is not None)
    return replace(state, stated=without_items(state.clusters, undecided), status_due=min(dues, default=None)), effects


def _each_cluster(policy: Policy, state: State, now: Moment, act: _Act[Moment]) -> Step:
    effects: list[Effect] = []
    for name, before in state.clusters.items():
        try:
            state, more = _act(policy, state, name, before, act, now, now)
        except Exception as error:  # noqa: BLE001  whatever it is, the other clusters go on
            more = [Quarantined(f"cluster {name}", error)]
        effects += more
    return state, effects


def _act(policy: Policy, state: State, name: str, before: ClusterState, act: _Act[_T], what: _T, at: Moment) -> Step:
    """The state after one cluster acted on `what`. If its memory of earlier failovers and plans makes it raise, it goes on without."""
    try:
        return _take(policy, state, name, act(policy, name, before, what), at)
    except Exception as error:
        with suppress(Exception):
            outcome = act(policy, name, without_memory(before, at), what)
            state, effects = _take(policy, state, name, outcome, at)
            return state, [Quarantined(f"what was remembered of cluster {name}", error), *effects]
        raise


def _take(policy: Policy, state: State, cluster_id: str, outcome: ClusterStep, at: Moment) -> Step:
    """The state with one cluster's next state, after the rules have reacted to what happened to it."""
    after, happened = outcome
    before = state.clusters.get(cluster_id)
    if after is before:
        return state, []  # the same object: the journal has nothing to write
    after = accounted(before, after, state.alive, at)
    drills = drilling.failovers_of(state, cluster_id)
    alerts, left_out = alerting_step.react(policy, state.alerts, after, happened, drills, at)
    clusters = with_items(state.clusters, {cluster_id: after})
    effects: list[Effect] = [
        Append(transition_record(policy, event) if isinstance(event, Transition) else event)
        for event in happened
        if not isinstance(event, BadRestore)
    ]
    effects += left_out
    if cluster_id in policy.events:
        effects += (Publish(event) for event in events(cluster_id, before, after, happened))
    if cluster_id in policy.pod_names:
        own = (event for event in happened if isinstance(event, Transition) and not event.component.job_id)
        addresses = (transition.leader.address for transition in own if transition.leader)
        effects += (NamePod(cluster_id, host) for host in ip_addresses(addresses))
    return replace(state, clusters=clusters, alerts=alerts), effects


def step_all(policy: Policy, state: State, observations: Iterable[Observation]) -> Step:
    """The state after several observations in order. After a PolicyLoaded its policy applies."""
    effects: list[Effect] = []
    for observation in observations:
        state, more = step(policy, state, observation)
        effects += more
        if isinstance(observation, PolicyLoaded):
            policy = observation.policy
    return state, effects
