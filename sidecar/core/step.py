"""All state changes go through here: `step(policy, state, observation) → (state, effects)`."""

from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from typing import Final, TypeVar

from msgspec.structs import replace

from sidecar.core import drilling, handover
from sidecar.core.agreement import Peers
from sidecar.core.alerting import grouping, rerouting, rules, silences
from sidecar.core.cluster import cluster_step, error_budget, evidence_requests, readiness, removal, rest_server
from sidecar.core.cluster.death import deaths
from sidecar.core.cluster.draft import ClusterStep
from sidecar.core.cluster.failover import plans
from sidecar.core.cluster.kubernetes_events import events
from sidecar.core.cluster.records.record_writer import transition_record
from sidecar.core.cluster.recovery import assessment
from sidecar.core.cluster.recovery.recovery_state import BadRestore
from sidecar.core.cluster.state import ClusterState, fresh_cluster, without_memory
from sidecar.core.cluster.transitions import Transition
from sidecar.core.delivery import dropped_alerts, new_deliveries, notification_records
from sidecar.core.delivery.due import due
from sidecar.core.delivery.outbox import Settled, claim, queue, released, with_heartbeats
from sidecar.core.delivery.settle import settle
from sidecar.core.effects import Append, Effect, Gather, NamePod, Publish, ReadSilences, Send, TakePicture
from sidecar.core.evidence import Capture, EvidenceItem
from sidecar.core.moment import SECOND, Moment
from sidecar.core.observations import (
    ClusterFound,
    ClusterRemoved,
    ClustersListed,
    DeliverySettled,
    DeploymentObserved,
    DeploymentUnreadable,
    EndObservation,
    EvidenceGathered,
    FinderObservation,
    HaChecked,
    HandoverRead,
    NotProcessed,
    Observation,
    PeersAsked,
    PictureTaken,
    PlanObservation,
    PodDisrupted,
    PodNamed,
    PolicyLoaded,
    SilencesRead,
    Started,
    Stopped,
    Ticked,
)
from sidecar.core.overlay import with_items
from sidecar.core.pictures import PictureRequest
from sidecar.core.pods import ip_addresses, with_pod
from sidecar.core.policy.policy import Policy, Source
from sidecar.core.quarantine import Quarantine, Quarantined
from sidecar.core.state import Finder, State

ALIVE_INTERVAL = 30 * SECOND
"""How often the journal records that the sidecar runs."""


MOST_UNCLAIMED: Final = 10_000
"""FlinkDeployments without a cluster that are remembered."""

_T = TypeVar("_T")
Step = tuple[State, list[Effect]]


def step(policy: Policy, state: State, observation: Observation) -> Step:
    """The state after `observation`, and its effects in order: append records, then the others."""
    after, effects = _step(policy, state, observation)
    return drilling.with_records(after, effects), effects


def _step(policy: Policy, state: State, observation: Observation) -> Step:
    match observation:
        case Ticked():
            return _tick(policy, state, observation.at)
        case DeliverySettled() | EvidenceGathered():
            return _effect_done(policy, state, observation)
        case Started() | PolicyLoaded() | HandoverRead():
            return _begin(policy, state, observation)
        case PodNamed() | SilencesRead():
            return _loaded(policy, state, observation), []
        case Stopped():
            return _each_cluster(policy, replace(state, alive=observation.at), observation.at, cluster_step.stop)
        case _:
            return _observe(policy, state, observation)


def _observe(
    policy: Policy,
    state: State,
    observation: FinderObservation
    | PlanObservation
    | EndObservation
    | PictureTaken
    | HaChecked
    | PeersAsked
    | NotProcessed,
) -> Step:
    if isinstance(observation, EndObservation | PictureTaken | HaChecked | PeersAsked):
        return _inform(policy, state, observation)
    if isinstance(observation, DeploymentObserved | DeploymentUnreadable | PodDisrupted):
        return _plan(policy, state, observation)
    if isinstance(observation, ClusterFound | ClusterRemoved | ClustersListed):
        return _found(policy, state, observation)
    name = observation.cluster_id
    before = state.clusters.get(name)
    if before is None:
        if name not in policy.stores:
            return state, []  # a late observation of a cluster that was removed
        before = fresh_cluster(observation.at)

    def act(policy: Policy, name: str, cluster: ClusterState, _: Moment) -> ClusterStep:
        return cluster_step.observe(policy, name, cluster, observation)

    return _act(policy, state, name, before, act, observation.at)


def _found(policy: Policy, state: State, observation: ClusterFound | ClusterRemoved | ClustersListed) -> Step:
    """The state after a cluster came or went."""
    at = observation.at
    match observation:
        case ClusterFound(cluster_id=name):
            if name in state.clusters:
                return state, []
            found = replace(fresh_cluster(at), operated=state.unclaimed.get(name))
            return replace(
                state, clusters={**state.clusters, name: found}, unclaimed=_without(state.unclaimed, name)
            ), []
        case ClusterRemoved(cluster_id=name, on_purpose=on_purpose):
            known = state.clusters.get(name)
            on_purpose = on_purpose or (known is not None and plans.is_unwanted(known.operated))
            if known and removal.has_leader(known) and not on_purpose:
                return replace(state, clusters={**state.clusters, name: replace(known, gone=at)}), []
            return _remove(policy, state, [name] if known else [], at)
        case ClustersListed(place=place, cluster_ids=found):
            finder = Finder(place, found is not None, observation.left_out, observation.refused)
            state = replace(state, finder=finder)
            # Of those that are not there any more, the ones that an earlier process knew.
            ended = {n for n, known in state.clusters.items() if known.view.connection is None} - (found or set())
            return _remove(policy, state, sorted(ended - policy.stores.keys()) if found is not None else [], at)


def _remove(policy: Policy, state: State, names: Iterable[str], at: Moment) -> Step:
    """Retire clusters that were removed, resolve their alerts, and forget them."""
    effects: list[Effect] = []
    for name in names:
        state, more = _act(policy, state, name, state.clusters[name], removal.removed, at)
        effects += more
        alerts = rules.forget(state.alerts, policy, name, at)
        operated = state.clusters[name].operated
        unclaimed = {**state.unclaimed, name: operated} if operated and operated.is_read else state.unclaimed
        state = replace(state, clusters=_without(state.clusters, name), alerts=alerts, unclaimed=unclaimed)
    return state, effects


def _plan(policy: Policy, state: State, observation: PlanObservation) -> Step:
    """The state after an observation of what is meant to happen to a cluster."""
    name, at = observation.cluster_id, observation.at
    if known := state.clusters.get(name):
        return _take(policy, state, name, cluster_step.plan_observed(policy, name, known, observation), at)
    if not policy.finds or not isinstance(observation, DeploymentObserved):
        return replace(state, unclaimed=_without(state.unclaimed, name)), []
    operated = plans.observed(state.unclaimed.get(name), observation.deployment, at)
    if operated is None or operated.deployment is None or len(state.unclaimed) >= MOST_UNCLAIMED:
        return replace(state, unclaimed=_without(state.unclaimed, name)), []
    return replace(state, unclaimed={**state.unclaimed, name: operated}), []


def _inform(policy: Policy, state: State, observation: EndObservation | PictureTaken | HaChecked | PeersAsked) -> Step:
    """The state after an observation from outside of the leaders: of how a JobManager ended, of what Flink's REST server or other observers
    say, or of what the checks of high availability found.
    """
    name = observation.cluster_id
    if (before := state.clusters.get(name)) is None:
        return state, []

    def act(policy: Policy, name: str, cluster: ClusterState, _: Moment) -> ClusterStep:
        if isinstance(observation, HaChecked):
            return readiness.observe(policy, name, cluster, observation)
        if isinstance(observation, PeersAsked):
            return replace(cluster, peers=Peers(observation.known, observation.opinions, observation.at.steady)), []
        if not isinstance(observation, PictureTaken):
            return deaths.observe(policy, name, cluster, observation)
        taken = rest_server.bounded(state.clusters, observation)
        answered, useful = rest_server.answered(cluster, taken)
        if useful is None:
            return answered, []
        return assessment.observe(policy, name, rest_server.observed(policy, answered, useful), useful)

    return _act(policy, state, name, before, act, observation.at)


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
            alerts, left_out = rerouting.continued(state.alerts, policy, at)
            state, effects = replace(state, alerts=alerts), [*left_out]
        case HandoverRead(cluster_id=name):
            found = handover.read(observation.content, name, at)
            state, groups = handover.adopt(policy, state, name, found, at) if found else (state, {})
    deliveries, lost = dropped_alerts.of_change(policy, groups, state.alerts.groups, at)
    if deliveries:
        outbox, given_up = queue(state.outbox, deliveries)
        state = replace(state, outbox=outbox)
        lost += [*(Settled(delivery, "queued", None) for delivery in deliveries), *given_up]
    return state, [*effects, *_settled(policy, lost, at)]


def _loaded(policy: Policy, state: State, read: PodNamed | SilencesRead) -> State:
    """The state with the name of a pod, or with other silences."""
    if isinstance(read, SilencesRead):
        if read.document not in policy.silence_documents:
            return state
        before = state.silences.get(read.document, silences.Silences())
        learned = silences.learned(before, read.content, read.problem, policy.longest_silence, read.at)
        return replace(state, silences={**state.silences, read.document: learned})
    known = state.clusters.get(read.cluster_id)
    if known is None or (named := with_pod(known.pods, read.host, read.pod)) is known.pods:
        return state
    return replace(state, clusters={**state.clusters, read.cluster_id: replace(known, pods=named)})


def _start(policy: Policy, state: State, now: Moment) -> Step:
    """Take over the state of an earlier process: drop clusters that are no longer watched, release its deliveries in progress."""
    alive = state.alive or now
    known: dict[str, ClusterState] = {name: fresh_cluster(now) for name in policy.stores}
    known |= {name: cluster for name, cluster in state.clusters.items() if policy.watches(name)}
    outbox = released(state.outbox, state.outbox.keys(), now)
    alerts, left_out = rerouting.continued(state.alerts, policy, now)
    # Nothing has been observed yet, so no condition has begun to hold. What happened has happened.
    alerts = replace(
        alerts, pending={key: waiting for key, waiting in alerts.pending.items() if waiting.alert.is_event}
    )
    documents = {name: each for name, each in state.silences.items() if name in policy.silence_documents}
    parts = {"clusters": known, "alerts": alerts, "outbox": outbox, "silences": documents}
    started = replace(state, **parts, finder=None, unclaimed={}, alive=now)
    started, effects = _each_cluster(
        policy, started, now, lambda p, name, c, at: cluster_step.restart(p, name, c, alive, at)
    )
    started, lost = _lost(policy, started, state.captures.values(), "the sidecar ended meanwhile", now)
    return started, [*left_out, *effects, *lost]


def _tick(policy: Policy, state: State, now: Moment) -> Step:
    groups, quarantine = state.alerts.groups, Quarantine()
    state, effects = _drill(policy, state, quarantine, now)
    state, more = _gather(policy, state, quarantine, now)
    effects += more
    state, more = _each_cluster(policy, state, now, assessment.tick)
    effects += more
    state, more = _picture(policy, state, quarantine, now)
    effects += more
    state, more = _each_cluster(policy, state, now, cluster_step.tick)
    effects += more
    if policy.finds:
        ended = [name for name, known in state.clusters.items() if removal.is_forgotten(known, now)]
        state, more = _remove(policy, state, ended, now)
        effects += more
    evaluated = rules.evaluate(state.alerts, policy, state.clusters, now, quarantine)
    blind = {name for name, seen in state.clusters.items() if not seen.leaders_in_sight}
    documents, asked = silences.asked(policy, state.silences, evaluated.groups.values(), now)
    flushed, queued, suppressed = due(policy, evaluated, state.clusters, blind, documents, quarantine, now)
    documents = silences.counted(policy, documents, suppressed)
    alerts = grouping.kept(groups, flushed)
    outbox, given_up = queue(state.outbox, queued) if queued else (state.outbox, [])
    lost = bool(blind) or (policy.finds is not None and not (state.finder and state.finder.connected))
    alerts, beats = new_deliveries.heartbeats(policy, alerts, state.clusters, lost, now)
    alerts, again = new_deliveries.resends(policy, alerts, now)
    outbox = with_heartbeats(outbox, [*beats, *again], blind=lost)
    outbox, claimed = claim(outbox, now)
    alive = now if state.alive is None or now.steady - state.alive.steady >= ALIVE_INTERVAL else state.alive
    parts = {"alerts": alerts, "outbox": outbox, "alive": alive, "silences": documents}
    if any(part is not getattr(state, name) for name, part in parts.items()):
        state = replace(state, **parts)
    effects += (Append(notification_records.suppression(policy, each, now)) for each in suppressed)
    effects += _settled(policy, [*(Settled(delivery, "queued", None) for delivery in queued), *given_up], now)
    for delivery in claimed:
        with quarantine.guard("what is sent to", delivery.destination):
            effects += map(Send, new_deliveries.complete(policy, alerts, state.clusters, [delivery]))
    effects += (ReadSilences(name) for name in asked)
    effects += quarantine.found
    return state, effects


def _drill(policy: Policy, state: State, quarantine: Quarantine, now: Moment) -> Step:
    """Begin and end drills."""
    with quarantine.guard("drills"):
        return drilling.tick(policy, state, now)
    return state, []


def _effect_done(policy: Policy, state: State, done: DeliverySettled | EvidenceGathered) -> Step:
    if isinstance(done, DeliverySettled):
        outbox, settled = settle(state.outbox, done)
        return replace(state, outbox=outbox), _settled(policy, [settled] if settled else [], done.at)
    capture = state.captures.get(done.capture_id)
    return _gathered(policy, state, capture, done.pieces, done.at) if capture else (state, [])


def _gather(policy: Policy, state: State, quarantine: Quarantine, now: Moment) -> Step:
    """Request the evidence that is due, before a failover may be over, and record requests that were not answered in time."""
    state, effects = _lost(policy, state, evidence_requests.overdue(state.captures, now), "no result in time", now)
    for name, known in state.clusters.items():
        with quarantine.guard("evidence of cluster", name):
            after, asked = evidence_requests.ask(policy, name, known, now)
            if after is not known:
                captures = {**state.captures, **{capture.id: capture for capture in asked}} if asked else state.captures
                state = replace(state, clusters={**state.clusters, name: after}, captures=captures)
                effects += (Gather(capture) for capture in asked)
    return state, effects


def _picture(policy: Policy, state: State, quarantine: Quarantine, now: Moment) -> Step:
    """Request the pictures that are due."""
    if Source.FLINK_REST not in policy.evidence:
        return state, []
    effects: list[Effect] = []
    requests: list[PictureRequest] = []
    asked: dict[str, ClusterState] = {}
    for name, known in state.clusters.items():
        with quarantine.guard("the picture of cluster", name):
            after, request = rest_server.due(policy, name, known, assessment.asked_first(known), now)
            if request:
                asked[name] = after
                requests.append(request)
    effects += (TakePicture(request) for request in rest_server.limited(state.clusters, requests))
    return replace(state, clusters={**state.clusters, **asked}) if asked else state, effects


def _lost(policy: Policy, state: State, captures: Iterable[Capture], why: str, at: Moment) -> Step:
    """Requests for evidence that will not be answered."""
    effects: list[Effect] = []
    for capture in captures:
        state, more = _gathered(policy, state, capture, evidence_requests.nothing(capture, why), at)
        effects += more
    return state, effects


def _gathered(policy: Policy, state: State, capture: Capture, pieces: Sequence[EvidenceItem], at: Moment) -> Step:
    """A request for evidence was answered with `pieces`. Without any, the evidence is lost."""
    pieces = pieces or evidence_requests.nothing(capture, "no result")
    captures = {key: other for key, other in state.captures.items() if key != capture.id}
    clusters = state.clusters
    if known := clusters.get(capture.cluster_id):
        clusters = {**clusters, capture.cluster_id: evidence_requests.gathered(known, capture, pieces)}
    all_of_it = [*pieces[: evidence_requests.MOST_PIECES], *evidence_requests.beyond(capture)]
    records = evidence_requests.records(policy, capture, all_of_it, at)
    return replace(state, clusters=clusters, captures=captures), [Append(record) for record in records]


def _each_cluster(policy: Policy, state: State, now: Moment, act: cluster_step.Act) -> Step:
    effects: list[Effect] = []
    for name, before in state.clusters.items():
        try:
            state, more = _act(policy, state, name, before, act, now)
        except Exception as error:  # noqa: BLE001  whatever it is, the other clusters go on
            more = [Quarantined(f"cluster {name}", error)]
        effects += more
    return state, effects


def _act(policy: Policy, state: State, name: str, before: ClusterState, act: cluster_step.Act, at: Moment) -> Step:
    """The state after one cluster acted. If its memory of earlier failovers and plans makes it raise, it goes on without."""
    try:
        return _take(policy, state, name, act(policy, name, before, at), at)
    except Exception as error:
        with suppress(Exception):
            outcome = act(policy, name, without_memory(before, at), at)
            state, effects = _take(policy, state, name, outcome, at)
            return state, [Quarantined(f"what was remembered of cluster {name}", error), *effects]
        raise


def _take(policy: Policy, state: State, cluster_id: str, outcome: ClusterStep, at: Moment) -> Step:
    """The state with one cluster's next state, after the rules have reacted to what happened to it."""
    after, happened = outcome
    before = state.clusters.get(cluster_id)
    if after is before:
        return state, []  # the same object: the journal has nothing to write
    after = error_budget.accounted(policy, cluster_id, before, after, state.alive, at)
    alerts, quarantine = state.alerts, Quarantine()
    for each in happened:
        alerts = rules.react(alerts, policy, each, after, at, quarantine)
    recorded = (each for each in happened if not isinstance(each, BadRestore))
    records = (transition_record(policy, each) if isinstance(each, Transition) else each for each in recorded)
    clusters = with_items(state.clusters, {cluster_id: after})
    effects: list[Effect] = [Append(record) for record in records]
    effects += quarantine.found
    effects += (Publish(event) for event in events(policy, cluster_id, before, after, happened))
    if cluster_id in policy.pod_names:
        own = (each for each in happened if isinstance(each, Transition) and not each.component.job_id)
        new = (each.leader.address for each in own if each.leader)
        effects += (NamePod(cluster_id, host) for host in ip_addresses(new))
    return replace(state, clusters=clusters, alerts=alerts), effects


def _without(values: Mapping[str, _T], name: str) -> Mapping[str, _T]:
    return {key: value for key, value in values.items() if key != name} if name in values else values


def _settled(policy: Policy, outcomes: Iterable[Settled], at: Moment) -> list[Effect]:
    return [Append(notification_records.outcome(policy, settled, at)) for settled in outcomes]


def step_all(policy: Policy, state: State, observations: Iterable[Observation]) -> Step:
    """The state after several observations in order. After a PolicyLoaded its policy applies."""
    effects: list[Effect] = []
    for observation in observations:
        state, more = step(policy, state, observation)
        effects += more
        if isinstance(observation, PolicyLoaded):
            policy = observation.policy
    return state, effects
