"""The third machine: from what happened to clusters, and what holds in them, to notifications. `step` calls this file of the folder only.

In come transitions and records of one cluster (`react`), the state of all clusters with each tick (`tick`), and what became of deliveries
and of reads of silences. Out go alerts (`Alerting.alerts`), deliveries to send, records of notifications, requests to read silences.

The order of a notification:
 1. A rule: what happened fires an event (`reactions`); what holds is a condition (`conditions`), which waits for `for` (`rules`).
 2. The alert joins its group on each of its routes (`grouping`), which is due `group_wait` or `group_interval` later.
 3. A group that is due may wait a little: for its silences to be read, for the cause of its failover, for its end (`flushing`).
 4. What keeps an alert of it from being notified: silence, mute, other observers, inhibition. `suppression.ORDER` is the list, which the
    page asks too.
 5. What is left is one notice for the group (`flushing`), in words (`compose`), a delivery for each destination (`new_deliveries`).
 6. The outbox takes the deliveries and claims those that are due (`outbox`); the journal has them before they are sent.
 7. The sender claims a delivery in the ledger that sidecars share (`claims`). The answer settles it, or it is tried again (`outbox`).

Odd cases:
 1. A leader changes, and a plan may explain it: the event waits until that is known, and is dropped if it was planned (`waiting_alerts`).
 2. A condition ends before it was notified: it leaves without a word; if it was suppressed, a record says why nobody heard of it.
 3. The store cannot be read: nothing about leaders fires or resolves, nothing is repeated as current, no heartbeat is sent.
 4. All alerts of an incident are over, and the status of the cluster is not good yet: the incident stays open until it is, and the
    members that `close` it are kept for that.
 5. An incident of events alone, which nothing resolves: a second delivery closes it where the service keeps incidents open.
 6. A drill hides what its failover causes, but neither what was notified before nor lost jobs. When it is over its groups are due at once.
 7. Another policy or a removed rule drops an alert of an open incident: the services that show it are told (`new_deliveries`).
 8. A rule, an alert or a group raises an error: it alone is left out of this step, and named (`Quarantined`).
 9. The ledger is out of reach, or another sidecar holds a claim for too long: the message is sent without one, as a possible duplicate.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, TypeVar

from msgspec import Struct
from msgspec.structs import replace

from sidecar.core.agreement import Agreement
from sidecar.core.alerting import grouping, new_deliveries, reactions, rules, suppression
from sidecar.core.alerting.alerts import Alerts, Group, Suppressed
from sidecar.core.alerting.outbox import Delivery, Settled, claim, queue, released, settle, with_heartbeats
from sidecar.core.alerting.reactions import Drills
from sidecar.core.cluster.cluster_state import ClusterState
from sidecar.core.cluster.draft import Happened, envelope
from sidecar.core.cluster.status_of import Statuses
from sidecar.core.finder import Finder
from sidecar.core.moment import Moment, timestamp
from sidecar.core.observations import DeliverySettled, SilencesRead
from sidecar.core.policy.policy import Policy
from sidecar.core.quarantine import Quarantine, Quarantined
from sidecar.core.records import AnyRecord, Notification, record_id


class AlertingState(Struct, frozen=True, kw_only=True):
    """The state of this machine."""

    alerts: Alerts = Alerts()
    outbox: Mapping[str, Delivery] = {}
    """Deliveries in progress, oldest first."""
    silences: Mapping[str, suppression.Silences] = {}
    """The silences by document."""


class Send(Struct, frozen=True):
    """Send a delivery, after the journal has recorded that it is being sent."""

    delivery: Delivery


class ReadSilences(Struct, frozen=True):
    """Read a document of silences. The answer is a `SilencesRead`."""

    document: str


Output = Notification | Send | ReadSilences | Quarantined
_S = TypeVar("_S", bound=AlertingState)


def react(
    policy: Policy,
    alerts: Alerts,
    cluster: ClusterState,
    happened: Iterable[AnyRecord | Happened],
    drills: Drills,
    at: Moment,
) -> tuple[Alerts, list[Quarantined]]:
    """The alerts after this happened in `cluster`, of which `drills` are no failovers to count."""
    quarantine, around = Quarantine(), reactions.Circumstances(policy, cluster, drills, at)
    for event in happened:
        alerts = reactions.react(alerts, event, around, quarantine)
    return alerts, quarantine.left_out


def tick(
    policy: Policy,
    state: _S,
    clusters: Mapping[str, ClusterState],
    finder: Finder | None,
    groups: Mapping[str, Group],
    statuses: Statuses,
    quarantine: Quarantine,
    now: Moment,
) -> tuple[_S, list[Output]]:
    """The state after what is due was notified. `groups`: as the journal has them."""
    blind = {name for name, cluster in clusters.items() if not cluster.leaders_in_sight}
    alerts = rules.evaluate(state.alerts, policy, clusters, now, quarantine)
    if finder:
        with quarantine.guard("the search for clusters"):
            alerts = rules.evaluate_search(alerts, policy, finder, now)
    documents, asked = suppression.request_reads(policy, state.silences, alerts.groups.values(), now)
    alerts, deliveries, suppressed = new_deliveries.due(
        policy, alerts, clusters, blind, documents, statuses, quarantine, now
    )
    documents = suppression.with_hits(policy, documents, suppressed)
    alerts = grouping.with_unchanged_groups(groups, alerts)
    if any(part is not before for part, before in ((alerts, state.alerts), (documents, state.silences))):
        state = replace(state, alerts=alerts, silences=documents)
    state, queued_now = queued(policy, state, deliveries, now)
    is_searching = policy.finds is not None and not (finder and finder.connected)
    state, sent = _sent(policy, state, clusters, quarantine, now, is_blind=bool(blind) or is_searching)
    records = [_suppression_record(policy, alert, now) for alert in suppressed]
    return state, [*records, *queued_now, *sent, *map(ReadSilences, asked)]


def queued(
    policy: Policy, state: _S, deliveries: list[Delivery], at: Moment, others: Iterable[Settled] = ()
) -> tuple[_S, list[Notification]]:
    """The state with these deliveries in the outbox, and the records of that, and of `others`."""
    outbox, given_up = queue(state.outbox, deliveries) if deliveries else (state.outbox, [])
    outcomes = [*others, *(Settled(delivery, "queued", None) for delivery in deliveries), *given_up]
    records = [_outcome_record(policy, outcome, at) for outcome in outcomes]
    return state if outbox is state.outbox else replace(state, outbox=outbox), records


def settled(policy: Policy, state: _S, done: DeliverySettled) -> tuple[_S, list[Notification]]:
    """The state after an attempt to send a delivery."""
    outbox, outcome = settle(state.outbox, done)
    return queued(policy, replace(state, outbox=outbox), [], done.at, [outcome] if outcome else [])


def silences_read(policy: Policy, state: _S, read: SilencesRead) -> _S:
    """The state after a document of silences was read."""
    name = read.document
    if name not in policy.silence_documents:
        return state
    before = state.silences.get(name, suppression.Silences())
    learned = suppression.learned(before, read.content, read.problem, policy.longest_silence, read.at)
    return replace(state, silences={**state.silences, name: learned})


def continued(policy: Policy, state: _S, at: Moment) -> tuple[_S, Sequence[Quarantined]]:
    """The state under another policy."""
    alerts, left_out = grouping.continued(state.alerts, policy, at)
    return replace(state, alerts=alerts), left_out


def restarted(policy: Policy, state: _S, at: Moment) -> tuple[_S, Sequence[Quarantined]]:
    """The state that an earlier process left. Nothing was observed yet, so no condition has begun to hold; what happened has happened."""
    state, left_out = continued(policy, state, at)
    pending = {key: pending for key, pending in state.alerts.pending.items() if pending.alert.is_event}
    silences = {name: document for name, document in state.silences.items() if name in policy.silence_documents}
    outbox = released(state.outbox, state.outbox.keys(), at)
    return replace(state, alerts=replace(state.alerts, pending=pending), outbox=outbox, silences=silences), left_out


def without_dropped(
    policy: Policy, state: _S, groups: Mapping[str, Group], at: Moment
) -> tuple[_S, list[Notification]]:
    """The state in which the services that show an incident of `groups` are told what `policy` has dropped of it."""
    deliveries, lost = new_deliveries.policy_change_deliveries(policy, groups, state.alerts.groups, at)
    return queued(policy, state, deliveries, at, lost)


def without_cluster(policy: Policy, alerts: Alerts, name: str, at: Moment) -> Alerts:
    """The alerts after a cluster was removed: all of its own are resolved."""
    return rules.forget(alerts, policy, name, at)


def _sent(
    policy: Policy,
    state: _S,
    clusters: Mapping[str, ClusterState],
    quarantine: Quarantine,
    now: Moment,
    *,
    is_blind: bool,
) -> tuple[_S, list[Send]]:
    """The state after deliveries that are due were claimed: notifications, heartbeats, and what feeds are sent again."""
    alerts, beats = new_deliveries.heartbeats(policy, state.alerts, clusters, is_blind, now)
    alerts, again = new_deliveries.resends(policy, alerts, now)
    outbox, claimed = claim(with_heartbeats(state.outbox, [*beats, *again], blind=is_blind), now)
    if alerts is not state.alerts or outbox is not state.outbox:
        state = replace(state, alerts=alerts, outbox=outbox)
    sent: list[Send] = []
    for delivery in claimed:
        with quarantine.guard("what is sent to", delivery.destination):
            sent += map(Send, new_deliveries.complete(policy, alerts, clusters, [delivery]))
    return state, sent


def _suppression_record(policy: Policy, suppressed: Suppressed, at: Moment) -> Notification:
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


def _outcome_record(policy: Policy, settled: Settled, at: Moment) -> Notification:
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
