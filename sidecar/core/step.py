"""The one way a change takes: `step(policy, state, observation) → (state, effects)`."""

from collections.abc import Iterable
from typing import Final

from msgspec import Struct
from msgspec.structs import replace

from sidecar.core import alerts, cluster, deliveries, episodes, messages
from sidecar.core.alerts import Notice, Reason
from sidecar.core.change import Outcome
from sidecar.core.deliveries import Delivery, Settled
from sidecar.core.leadership import Component, ComponentId
from sidecar.core.moment import SECOND, Moment, timestamp
from sidecar.core.observations import DeliverySettled, Observation, Started, Stopped, Ticked
from sidecar.core.policy import Destination, Policy
from sidecar.core.records import AnyRecord, Notification, Transition, record_id
from sidecar.core.state import State, fresh_cluster

ALIVE_INTERVAL = 30 * SECOND
"""How much of our own time a crash may leave uncertain."""


_ALL_CLEAR: Final = {Reason.RESOLVED, Reason.SHRANK}


class Append(Struct, frozen=True):
    """Write this record."""

    record: AnyRecord


class Send(Struct, frozen=True):
    """Deliver this, now that its claim is recorded."""

    delivery: Delivery


Effect = Append | Send
Step = tuple[State, list[Effect]]


def step(policy: Policy, state: State, observation: Observation) -> Step:
    """The state after `observation`, and what the shell must do: append records, then send."""
    match observation:
        case Ticked():
            return _tick(policy, state, observation.at)
        case DeliverySettled():
            outbox, settled = deliveries.settle(state.outbox, observation)
            return replace(state, outbox=outbox), _settled(policy, [settled] if settled else [], observation.at)
        case Started():
            return _start(policy, state, observation.at)
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
    outbox = {key: deliveries.release(delivery, now) for key, delivery in state.outbox.items()}
    told = alerts.restart(state.alerts, policy.stores)
    began = replace(state, clusters=known, alerts=told, outbox=outbox, alive=now)
    return _each_cluster(policy, began, now, lambda p, name, c, at: cluster.restart(p, name, c, alive, at))


def _tick(policy: Policy, state: State, now: Moment) -> Step:
    state, effects = _each_cluster(policy, state, now, cluster.tick)
    blind = {name for name, seen in state.clusters.items() if not seen.view.complete}
    contested = {(name, component) for name, seen in state.clusters.items() for component in seen.contested}
    told, notices = alerts.tick(state.alerts, policy.rules, policy.grouping, blind, contested, now)
    queued = [delivery for notice in notices for delivery in _deliveries(policy, state, notice, now)]
    outbox, given_up = deliveries.queue(state.outbox, queued) if queued else (state.outbox, [])
    outbox, claimed = deliveries.claim(outbox, now)
    alive = now if state.alive is None or now.steady - state.alive.steady >= ALIVE_INTERVAL else state.alive
    if (told, outbox, alive) != (state.alerts, state.outbox, state.alive):
        state = replace(state, alerts=told, outbox=outbox, alive=alive)
    effects += _settled(policy, [*(Settled(delivery, "queued", None) for delivery in queued), *given_up], now)
    effects += (Send(delivery) for delivery in claimed)
    return state, effects


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
        if isinstance(record, Transition):
            component = ComponentId(Component(record.component), record.job_id)
            reacted = alerts.react(reacted, policy.rules, policy.grouping, record, component, at)
    clusters = {**state.clusters, cluster_id: after}
    return replace(state, clusters=clusters, alerts=reacted), [Append(record) for record in records]


def _deliveries(policy: Policy, state: State, notice: Notice, now: Moment) -> Iterable[Delivery]:
    cluster = state.clusters.get(notice.cluster_id)
    episode = (cluster.episode or cluster.last_episode) if cluster else None
    if episode and not episodes.concerns(episode, (alert.began for alert in notice.alerts)):
        episode = None
    title, body = messages.title(notice), messages.body(notice, policy, episode)
    for destination in policy.destinations:
        if notice.reason not in _ALL_CLEAR or destination.send_resolved:
            yield _delivery(notice, destination, title, body, now)


def _delivery(notice: Notice, destination: Destination, title: str, body: str, now: Moment) -> Delivery:
    return Delivery(
        id=record_id("delivery", notice.fingerprint, notice.reason, now.wall, now.steady, destination.name),
        destination=destination.name,
        receiver=destination.receiver,
        cluster_id=notice.cluster_id,
        alert=notice.rule.alert,
        fingerprint=notice.fingerprint,
        reason=notice.reason,
        severity=notice.rule.severity,
        title=title,
        body=body,
        queued_at=now,
        next_at=now.steady,
    )


def _settled(policy: Policy, outcomes: Iterable[Settled], at: Moment) -> list[Effect]:
    return [Append(_notification(policy, settled, at)) for settled in outcomes]


def _notification(policy: Policy, settled: Settled, at: Moment) -> Notification:
    delivery = settled.delivery
    store = policy.stores.get(delivery.cluster_id)
    return Notification(
        id=record_id("notification", delivery.id, delivery.attempt, settled.outcome),
        cluster_id=delivery.cluster_id,
        external_labels=policy.external_labels,
        store=store.value if store else "",
        observer=policy.observer,
        observed_at=timestamp(at.wall),
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
    )


def step_all(policy: Policy, state: State, observations: Iterable[Observation]) -> Step:
    """Several observations in order: what one drain of the inbox does to the state."""
    effects: list[Effect] = []
    for observation in observations:
        state, more = step(policy, state, observation)
        effects += more
    return state, effects
