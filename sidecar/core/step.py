"""The one way a change takes: `step(policy, state, observation) → (state, effects)`."""

from collections.abc import Container, Iterable, Sequence

from msgspec import Struct
from msgspec.structs import replace

from sidecar.core import cluster, deliveries, gathering, grouping, rules, settling
from sidecar.core.alerts import Alerts, Notice, Reason, Suppressed
from sidecar.core.change import Outcome
from sidecar.core.deliveries import Delivery, Part, Settled
from sidecar.core.evidence import Capture, Piece
from sidecar.core.ledger import MOST_ALERTS
from sidecar.core.moment import SECOND, Moment, timestamp
from sidecar.core.notifications import compose
from sidecar.core.observations import (
    DeliverySettled,
    EvidenceGathered,
    Observation,
    PolicyLoaded,
    Started,
    Stopped,
    Ticked,
)
from sidecar.core.policy import Heartbeat, Policy, Severity
from sidecar.core.recording import envelope
from sidecar.core.records import AnyRecord, Notification, record_id
from sidecar.core.state import State, fresh_cluster

ALIVE_INTERVAL = 30 * SECOND
"""How much of our own time a crash may leave uncertain."""


class Append(Struct, frozen=True):
    """Write this record."""

    record: AnyRecord


class Send(Struct, frozen=True):
    """Deliver this, now that its claim is recorded."""

    delivery: Delivery


class Gather(Struct, frozen=True):
    """Capture this, now that the request is recorded."""

    capture: Capture


Effect = Append | Send | Gather
Step = tuple[State, list[Effect]]


def step(policy: Policy, state: State, observation: Observation) -> Step:
    """The state after `observation`, and what the shell must do: append records, then send and gather."""
    match observation:
        case Ticked():
            return _tick(policy, state, observation.at)
        case DeliverySettled() | EvidenceGathered():
            return _answered(policy, state, observation)
        case Started():
            return _start(policy, state, observation.at)
        case PolicyLoaded():
            return replace(state, alerts=grouping.rerouted(state.alerts, observation.policy, observation.at)), []
        case Stopped():
            return _each_cluster(policy, replace(state, alive=observation.at), observation.at, cluster.stop)
        case _:
            name = observation.cluster_id
            before = state.clusters.get(name) or fresh_cluster(observation.at)
            return _take(policy, state, name, cluster.observe(policy, name, before, observation), observation.at)


def _start(policy: Policy, state: State, now: Moment) -> Step:
    """Take up the state that an earlier process left: forget clusters that are not watched any more, release its claims."""
    alive = state.alive or now
    known = {name: state.clusters.get(name) or fresh_cluster(now) for name in policy.stores}
    outbox = deliveries.released(state.outbox, state.outbox.keys(), now)
    # Nothing is in sight yet, so nothing waits to have been so for long enough.
    told = replace(grouping.rerouted(state.alerts, policy, now), pending={})
    began = replace(state, clusters=known, alerts=told, outbox=outbox, alive=now)
    began, effects = _each_cluster(policy, began, now, lambda p, name, c, at: cluster.restart(p, name, c, alive, at))
    for capture in state.captures.values():
        began, more = _gathered(policy, began, capture, gathering.nothing(capture, "the sidecar ended meanwhile"), now)
        effects += more
    return began, effects


def _tick(policy: Policy, state: State, now: Moment) -> Step:
    state, effects = _gather(policy, state, now)
    state, more = _each_cluster(policy, state, now, cluster.tick)
    effects += more
    evaluated = rules.evaluate(state.alerts, policy, state.clusters, now)
    blind = {name for name, seen in state.clusters.items() if not seen.leaders_in_sight}
    told, notices, suppressed = grouping.tell(evaluated, policy, blind, now)
    queued = [delivery for notice in notices for delivery in _deliveries(policy, state, notice, now)]
    outbox, given_up = deliveries.queue(state.outbox, queued) if queued else (state.outbox, [])
    told, beats = _heartbeats(policy, told, blind, now)
    outbox = deliveries.with_heartbeats(outbox, beats, blind=bool(blind))
    outbox, claimed = deliveries.claim(outbox, now)
    alive = now if state.alive is None or now.steady - state.alive.steady >= ALIVE_INTERVAL else state.alive
    if told is not state.alerts or outbox is not state.outbox or alive is not state.alive:
        state = replace(state, alerts=told, outbox=outbox, alive=alive)
    effects += (Append(_suppression(policy, each, now)) for each in suppressed)
    effects += _settled(policy, [*(Settled(delivery, "queued", None) for delivery in queued), *given_up], now)
    effects += (Send(delivery) for delivery in claimed)
    return state, effects


def _answered(policy: Policy, state: State, answer: DeliverySettled | EvidenceGathered) -> Step:
    """The shell tells what became of an effect."""
    if isinstance(answer, DeliverySettled):
        outbox, settled = settling.settle(state.outbox, answer)
        return replace(state, outbox=outbox), _settled(policy, [settled] if settled else [], answer.at)
    capture = state.captures.get(answer.capture_id)
    return _gathered(policy, state, capture, answer.pieces, answer.at) if capture else (state, [])


def _gather(policy: Policy, state: State, now: Moment) -> Step:
    """Request what evidence is due, before a failover may be over, and record what nobody will bring any more."""
    effects: list[Effect] = []
    for capture in gathering.overdue(state.captures, now):
        state, more = _gathered(policy, state, capture, gathering.nothing(capture, "nobody told what came of it"), now)
        effects += more
    for name, known in state.clusters.items():
        after, asked = gathering.ask(policy, name, known, now)
        if after is not known:
            captures = {**state.captures, **{capture.id: capture for capture in asked}} if asked else state.captures
            state = replace(state, clusters={**state.clusters, name: after}, captures=captures)
            effects += (Gather(capture) for capture in asked)
    return state, effects


def _gathered(policy: Policy, state: State, capture: Capture, pieces: Sequence[Piece], at: Moment) -> Step:
    """A request was answered with `pieces`; with none, it is lost."""
    pieces = pieces or gathering.nothing(capture, "nothing came of it")
    captures = {key: other for key, other in state.captures.items() if key != capture.id}
    clusters = state.clusters
    if known := clusters.get(capture.cluster_id):
        clusters = {**clusters, capture.cluster_id: gathering.gathered(known, capture, pieces)}
    all_of_it = [*pieces[: gathering.MOST_PIECES], *gathering.beyond(capture)]
    records = gathering.records(policy, capture, all_of_it, at)
    return replace(state, clusters=clusters, captures=captures), [Append(record) for record in records]


def _each_cluster(policy: Policy, state: State, now: Moment, act: cluster.Act) -> Step:
    effects: list[Effect] = []
    for name, before in state.clusters.items():
        state, more = _take(policy, state, name, act(policy, name, before, now), now)
        effects += more
    return state, effects


def _take(policy: Policy, state: State, cluster_id: str, outcome: Outcome, at: Moment) -> Step:
    """Take over one cluster's next state, and let the rules see what happened to it."""
    after, records = outcome
    if after is state.clusters.get(cluster_id):
        return state, []  # nothing happened: the state stays the same object, and the journal has nothing to write
    reacted = state.alerts
    for record in records:
        reacted = rules.react(reacted, policy, record, after, at)
    clusters = {**state.clusters, cluster_id: after}
    return replace(state, clusters=clusters, alerts=reacted), [Append(record) for record in records]


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
                repeat_interval=notice.route.repeat_interval,
                send_resolved=destination.send_resolved,
                queued_at=now,
                next_at=now.steady,
            )


def _delivery_id(policy: Policy, notice: Notice, destination: str, now: Moment) -> str:
    return record_id("delivery", policy.observer, notice.fingerprint, notice.reason, now.wall, now.steady, destination)


def _parts(notice: Notice) -> tuple[Part, ...]:
    """What the ledger is asked about. Of a storm a part stands for all: every observer chooses the same."""
    if all("observer" in alert.labels for alert in notice.alerts):
        return ()
    alerts = sorted(notice.alerts, key=lambda alert: alert.id)  # also what we alone can tell: it is news to the ledger
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
    """What tells that somebody watches: due, and true. Silence is how it is told that nobody does, so none is sent later instead."""
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
        body="While this arrives, somebody watches and can see.",
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
