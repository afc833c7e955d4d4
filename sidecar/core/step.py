"""All state changes go through here: `step(policy, state, observation) → (state, effects)`."""

from collections.abc import Container, Iterable, Sequence

from msgspec import Struct
from msgspec.structs import replace

from sidecar.core import handover
from sidecar.core.alerting import grouping, rules
from sidecar.core.alerting.alerts import Alerts, Notice, Reason, Suppressed
from sidecar.core.alerting.message import compose
from sidecar.core.cluster import cluster_step, evidence_requests
from sidecar.core.cluster.draft import ClusterStep, Happened
from sidecar.core.cluster.record_writer import envelope, transition_record
from sidecar.core.cluster.state import fresh_cluster
from sidecar.core.cluster.transitions import Transition
from sidecar.core.delivery.ledger_document import MOST_ALERTS
from sidecar.core.delivery.outbox import MOST_OWED, Delivery, Part, Settled, claim, queue, released, with_heartbeats
from sidecar.core.delivery.settle import settle
from sidecar.core.evidence import Capture, EvidenceItem
from sidecar.core.moment import SECOND, Moment, timestamp
from sidecar.core.observations import (
    DeliverySettled,
    EvidenceGathered,
    HandoverRead,
    Observation,
    PolicyLoaded,
    Started,
    Stopped,
    Ticked,
)
from sidecar.core.policy.policy import Heartbeat, Policy, Severity
from sidecar.core.records import AnyRecord, Notification, record_id
from sidecar.core.state import State

ALIVE_INTERVAL = 30 * SECOND
"""How exactly the journal knows until when the sidecar ran."""


class Append(Struct, frozen=True):
    """Write a record to the journal."""

    record: AnyRecord


class Send(Struct, frozen=True):
    """Send a delivery, after the journal has recorded that it is being sent."""

    delivery: Delivery


class Gather(Struct, frozen=True):
    """Capture evidence, after the journal has recorded the request."""

    capture: Capture


Effect = Append | Send | Gather
Step = tuple[State, list[Effect]]


def step(policy: Policy, state: State, observation: Observation) -> Step:
    """The state after `observation`, and its effects in order: append records, then send and gather."""
    match observation:
        case Ticked():
            return _tick(policy, state, observation.at)
        case DeliverySettled() | EvidenceGathered():
            return _answered(policy, state, observation)
        case Started():
            return _start(policy, state, observation.at)
        case PolicyLoaded() | HandoverRead():
            return _loaded(policy, state, observation), []
        case Stopped():
            return _each_cluster(policy, replace(state, alive=observation.at), observation.at, cluster_step.stop)
        case _:
            name = observation.cluster_id
            before = state.clusters.get(name) or fresh_cluster(observation.at)
            return _take(policy, state, name, cluster_step.observe(policy, name, before, observation), observation.at)


def _loaded(policy: Policy, state: State, read: PolicyLoaded | HandoverRead) -> State:
    """The state under another policy, or going on from what another sidecar left."""
    if isinstance(read, PolicyLoaded):
        return replace(state, alerts=grouping.rerouted(state.alerts, read.policy, read.at))
    found = handover.read(read.content, read.cluster_id, read.at)
    return handover.adopt(policy, state, read.cluster_id, found, read.at) if found else state


def _start(policy: Policy, state: State, now: Moment) -> Step:
    """Take over the state of an earlier process: drop clusters that are no longer watched, release its deliveries in progress."""
    alive = state.alive or now
    known = {name: state.clusters.get(name) or fresh_cluster(now) for name in policy.stores}
    outbox = released(state.outbox, state.outbox.keys(), now)
    # Nothing has been observed yet, so no condition has begun to hold.
    told = replace(grouping.rerouted(state.alerts, policy, now), pending={})
    began = replace(state, clusters=known, alerts=told, outbox=outbox, alive=now)
    began, effects = _each_cluster(
        policy, began, now, lambda p, name, c, at: cluster_step.restart(p, name, c, alive, at)
    )
    for capture in state.captures.values():
        began, more = _gathered(
            policy, began, capture, evidence_requests.nothing(capture, "the sidecar ended meanwhile"), now
        )
        effects += more
    return began, effects


def _tick(policy: Policy, state: State, now: Moment) -> Step:
    state, effects = _gather(policy, state, now)
    state, more = _each_cluster(policy, state, now, cluster_step.tick)
    effects += more
    evaluated = rules.evaluate(state.alerts, policy, state.clusters, now)
    blind = {name for name, seen in state.clusters.items() if not seen.leaders_in_sight}
    told, notices, suppressed = grouping.flush(evaluated, policy, blind, now)
    queued = [delivery for notice in notices for delivery in _deliveries(policy, state, notice, now)]
    outbox, given_up = queue(state.outbox, queued) if queued else (state.outbox, [])
    told, beats = _heartbeats(policy, told, blind, now)
    outbox = with_heartbeats(outbox, beats, blind=bool(blind))
    outbox, claimed = claim(outbox, now)
    alive = now if state.alive is None or now.steady - state.alive.steady >= ALIVE_INTERVAL else state.alive
    if told is not state.alerts or outbox is not state.outbox or alive is not state.alive:
        state = replace(state, alerts=told, outbox=outbox, alive=alive)
    effects += (Append(_suppression(policy, each, now)) for each in suppressed)
    effects += _settled(policy, [*(Settled(delivery, "queued", None) for delivery in queued), *given_up], now)
    effects += (Send(delivery) for delivery in claimed)
    return state, effects


def _answered(policy: Policy, state: State, answer: DeliverySettled | EvidenceGathered) -> Step:
    """The result of an effect."""
    if isinstance(answer, DeliverySettled):
        outbox, settled = settle(state.outbox, answer)
        return replace(state, outbox=outbox), _settled(policy, [settled] if settled else [], answer.at)
    capture = state.captures.get(answer.capture_id)
    return _gathered(policy, state, capture, answer.pieces, answer.at) if capture else (state, [])


def _gather(policy: Policy, state: State, now: Moment) -> Step:
    """Request the evidence that is due, before a failover may be over, and record requests that will not be answered."""
    effects: list[Effect] = []
    for capture in evidence_requests.overdue(state.captures, now):
        state, more = _gathered(
            policy, state, capture, evidence_requests.nothing(capture, "nobody told what came of it"), now
        )
        effects += more
    for name, known in state.clusters.items():
        after, asked = evidence_requests.ask(policy, name, known, now)
        if after is not known:
            captures = {**state.captures, **{capture.id: capture for capture in asked}} if asked else state.captures
            state = replace(state, clusters={**state.clusters, name: after}, captures=captures)
            effects += (Gather(capture) for capture in asked)
    return state, effects


def _gathered(policy: Policy, state: State, capture: Capture, pieces: Sequence[EvidenceItem], at: Moment) -> Step:
    """A request for evidence was answered with `pieces`; none: it is lost."""
    pieces = pieces or evidence_requests.nothing(capture, "nothing came of it")
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
        state, more = _take(policy, state, name, act(policy, name, before, now), now)
        effects += more
    return state, effects


def _take(policy: Policy, state: State, cluster_id: str, outcome: ClusterStep, at: Moment) -> Step:
    """Take over one cluster's next state, and let the rules see what happened to it."""
    after, happened = outcome
    if after is state.clusters.get(cluster_id):
        return state, []  # nothing happened: the state stays the same object, and the journal has nothing to write
    reacted = state.alerts
    for each in happened:
        reacted = rules.react(reacted, policy, each, after, at)
    clusters = {**state.clusters, cluster_id: after}
    return replace(state, clusters=clusters, alerts=reacted), [Append(_record(policy, each)) for each in happened]


def _record(policy: Policy, happened: Happened) -> AnyRecord:
    return transition_record(policy, happened) if isinstance(happened, Transition) else happened


def _deliveries(policy: Policy, state: State, notice: Notice, now: Moment) -> Iterable[Delivery]:
    message = compose(notice, policy, state.clusters)
    for destination in policy.receivers.get(notice.route.receiver, ()):
        if notice.is_for(destination):
            yield Delivery(
                id=_delivery_id(policy, notice, destination.name, now),
                destination=destination.name,
                receiver=destination.receiver,
                cluster_id=min(alert.cluster_id for alert in notice.alerts),
                alert=", ".join(dict.fromkeys(alert.rule for alert in notice.alerts)),
                fingerprint=notice.fingerprint,
                reason=notice.reason,
                severity=message.severity,
                title=message.title,
                body=message.body,
                facts=message.facts,
                link=message.link,
                episode_id=message.episode_id,
                parts=_parts(notice),
                owed=notice.owed(MOST_OWED),
                repeat_interval=notice.route.repeat_interval,
                send_resolved=destination.send_resolved,
                queued_at=now,
                next_at=now.steady,
            )


def _delivery_id(policy: Policy, notice: Notice, destination: str, now: Moment) -> str:
    return record_id("delivery", policy.observer, notice.fingerprint, notice.reason, now.wall, now.steady, destination)


def _parts(notice: Notice) -> tuple[Part, ...]:
    """The alerts that are looked up in the ledger. In a storm a sample stands for all; every observer chooses the same."""
    if all("observer" in alert.labels for alert in notice.alerts):
        return ()
    alerts = sorted(notice.alerts, key=lambda alert: alert.id)  # also those of this observer alone
    return tuple(
        Part(
            alert.id,
            alert.began.wall,
            alert.ended.wall if alert.ended else 0,
            alert.is_event,
            alert.subjects,
            alert.certain,
        )
        for alert in alerts[:MOST_ALERTS]
    )


def _heartbeats(policy: Policy, told: Alerts, blind: Container[str], now: Moment) -> tuple[Alerts, list[Delivery]]:
    """Heartbeats due now. None while blind, so that the receiver's dead man's switch fires; a missed one is not sent later."""
    due = [beat for beat in policy.heartbeats if now.steady - told.beats.get(beat.destination.name, 0) >= beat.interval]
    if not due or any(name in blind for name in policy.stores):
        return told, []
    beats = {**told.beats, **{beat.destination.name: now.steady for beat in due}}
    return replace(told, beats=beats), [_heartbeat(policy, beat, now) for beat in due]


def _heartbeat(policy: Policy, beat: Heartbeat, now: Moment) -> Delivery:
    return Delivery(
        id=record_id("heartbeat", policy.observer, beat.destination.name, now.wall, now.steady),
        destination=beat.destination.name,
        receiver=beat.destination.receiver,
        cluster_id=next(iter(policy.stores)),
        alert="Heartbeat",
        fingerprint=record_id("heartbeat", policy.observer, beat.destination.name),
        reason=Reason.HEARTBEAT,
        severity=Severity.INFO,
        title=f"[HEARTBEAT] {policy.observer} watches {', '.join(policy.stores)}",
        body="This sidecar is running and can read the store.",
        queued_at=now,
        next_at=now.steady,
    )


def _settled(policy: Policy, outcomes: Iterable[Settled], at: Moment) -> list[Effect]:
    return [Append(_notification(policy, settled, at)) for settled in outcomes]


def _suppression(policy: Policy, suppressed: Suppressed, at: Moment) -> Notification:
    alert = suppressed.alert
    return Notification(
        id=record_id("suppressed", policy.observer, suppressed.fingerprint, alert.id, alert.began.wall),
        alert=alert.rule,
        fingerprint=suppressed.fingerprint,
        receiver=suppressed.route.receiver,
        destination="",
        reason=suppressed.reason.value,
        outcome="suppressed",
        attempt=0,
        possible_duplicate=False,
        detail=None,
        delivery_id="",
        queued_at=timestamp(at.wall),
        episode_id=alert.episode_id,
        **envelope(policy, alert.cluster_id, at),
    )


def _notification(policy: Policy, settled: Settled, at: Moment) -> Notification:
    delivery = settled.delivery
    return Notification(
        id=record_id("notification", delivery.id, delivery.attempt, settled.outcome, at.wall, at.steady),
        alert=delivery.alert,
        fingerprint=delivery.fingerprint,
        receiver=delivery.receiver,
        destination=delivery.destination,
        reason=delivery.reason.value,
        outcome=str(settled.outcome),
        attempt=delivery.attempt,
        possible_duplicate=delivery.possible_duplicate,
        detail=settled.detail,
        delivery_id=delivery.id,
        queued_at=timestamp(delivery.queued_at.wall),
        episode_id=delivery.episode_id,
        **envelope(policy, delivery.cluster_id, at),
    )


def step_all(policy: Policy, state: State, observations: Iterable[Observation]) -> Step:
    """Several observations in order: what one drain of the inbox does to the state. Behind a PolicyLoaded, its policy counts."""
    effects: list[Effect] = []
    for observation in observations:
        state, more = step(policy, state, observation)
        effects += more
        if isinstance(observation, PolicyLoaded):
            policy = observation.policy
    return state, effects
