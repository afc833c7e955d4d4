"""Notifications as time passes, and what is recorded of them: rules are evaluated, groups that are due become deliveries, and deliveries
that are due are sent.
"""

from collections.abc import Iterable, Mapping
from typing import Any

from msgspec.structs import replace

from sidecar.core.agreement import Agreement
from sidecar.core.alerting import active_silences, grouping, rules
from sidecar.core.alerting.alerts import Group, Suppressed
from sidecar.core.cluster.draft import envelope
from sidecar.core.delivery import new_deliveries
from sidecar.core.delivery.outbox import Delivery, Settled, claim, queue, with_heartbeats
from sidecar.core.effects import Append, Effect, ReadSilences, Send
from sidecar.core.moment import Moment, timestamp
from sidecar.core.policy.policy import Policy
from sidecar.core.quarantine import Quarantine
from sidecar.core.records import Notification, record_id
from sidecar.core.state import State


def tick(
    policy: Policy, state: State, groups: Mapping[str, Group], quarantine: Quarantine, now: Moment
) -> tuple[State, list[Effect]]:
    """The state after what is due was notified. `groups`: as the journal has them."""
    blind = {name for name, cluster in state.clusters.items() if not cluster.leaders_in_sight}
    alerts = rules.evaluate(state.alerts, policy, state.clusters, now, quarantine)
    with quarantine.guard("the search for clusters"):
        alerts = rules.evaluate_search(alerts, policy, state.finder, now)
    documents, asked = active_silences.request_reads(policy, state.silences, alerts.groups.values(), now)
    alerts, deliveries, suppressed = new_deliveries.due(
        policy, alerts, state.clusters, blind, documents, quarantine, now
    )
    effects: list[Effect] = [Append(suppression_record(policy, alert, now)) for alert in suppressed]
    documents = active_silences.with_hits(policy, documents, suppressed)
    alerts = grouping.with_unchanged_groups(groups, alerts)
    if any(part is not before for part, before in ((alerts, state.alerts), (documents, state.silences))):
        state = replace(state, alerts=alerts, silences=documents)
    state, more = queued(policy, state, deliveries, now)
    effects += more
    state, more = _sent(policy, state, quarantine, now, is_blind=bool(blind) or _has_lost_clusters(policy, state))
    return state, [*effects, *more, *map(ReadSilences, asked)]


def queued(
    policy: Policy, state: State, deliveries: list[Delivery], at: Moment, others: Iterable[Settled] = ()
) -> tuple[State, list[Effect]]:
    """The state with these deliveries in the outbox, and the records of that, and of `others`."""
    outbox, given_up = queue(state.outbox, deliveries) if deliveries else (state.outbox, [])
    outcomes = [*others, *(Settled(delivery, "queued", None) for delivery in deliveries), *given_up]
    effects: list[Effect] = [Append(outcome_record(policy, outcome, at)) for outcome in outcomes]
    return state if outbox is state.outbox else replace(state, outbox=outbox), effects


def _sent(
    policy: Policy, state: State, quarantine: Quarantine, now: Moment, *, is_blind: bool
) -> tuple[State, list[Effect]]:
    """The state after deliveries that are due were claimed: notifications, heartbeats, and what feeds are sent again."""
    alerts, beats = new_deliveries.heartbeats(policy, state.alerts, state.clusters, is_blind, now)
    alerts, again = new_deliveries.resends(policy, alerts, now)
    outbox, claimed = claim(with_heartbeats(state.outbox, [*beats, *again], blind=is_blind), now)
    if alerts is not state.alerts or outbox is not state.outbox:
        state = replace(state, alerts=alerts, outbox=outbox)
    effects: list[Effect] = []
    for delivery in claimed:
        with quarantine.guard("what is sent to", delivery.destination):
            effects += map(Send, new_deliveries.complete(policy, alerts, state.clusters, [delivery]))
    return state, effects


def _has_lost_clusters(policy: Policy, state: State) -> bool:
    """Whether clusters are to be found, and the place where they are cannot be read."""
    return policy.finds is not None and not (state.finder and state.finder.connected)


def suppression_record(policy: Policy, suppressed: Suppressed, at: Moment) -> Notification:
    """An alert that was resolved before it could be notified, or that is silenced."""
    alert, silence = suppressed.alert, suppressed.silence
    return Notification(
        id=record_id(
            "suppressed", policy.observer, suppressed.fingerprint, alert.id, alert.began.wall, *filter(None, [silence])
        ),
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
        silence_id=silence,
        component=alert.component.component.value if alert.component else None,
        job_id=alert.component.job_id if alert.component else None,
        **_observers(alert.agreement),
        **envelope(policy, alert.cluster_id, at),
    )


def outcome_record(policy: Policy, settled: Settled, at: Moment) -> Notification:
    """A delivery that was queued, attempted or given up."""
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
        service=policy.services().get(delivery.destination) or None,
        **_observers(delivery.agreement),
        **envelope(policy, delivery.cluster_id, at),
    )


def _observers(agreement: Agreement | None) -> dict[str, Any]:
    sharing, connected, known = (agreement.sharing, agreement.connected, agreement.known) if agreement else (None,) * 3
    return {"observers_sharing": sharing, "observers_connected": connected, "observers_known": known}
