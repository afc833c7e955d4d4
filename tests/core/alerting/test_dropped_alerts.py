"""What another configuration does not notify any more is not left as an open incident."""

from collections.abc import Callable
from dataclasses import dataclass

import pytest
from msgspec.structs import replace

from sidecar.core import handover
from sidecar.core.alerting.alerts import Reason
from sidecar.core.alerting.outbox import Delivery
from sidecar.core.moment import SECOND
from sidecar.core.observations import DeliveryOutcome, HandoverRead, PolicyLoaded
from sidecar.core.policy.policy import Destination, Policy, Rule, Severity
from sidecar.core.policy.triggers import Trigger
from tests.kit.cluster import CLUSTER, A
from tests.kit.core_sidecar import POLICY, Sidecar, fail_over, watching, with_destinations
from tests.kit.fake_flink import Flink

CHAT, PAGER = Destination("ops", 0), Destination("ops", 1, in_order=True, keeps_incidents=True)
VACANT = Rule("FlinkNoLeader", Trigger.VACANT, Severity.CRITICAL, hold_for=30 * SECOND)
CHANGED = Rule("FlinkLeaderChanged", Trigger.LEADER_CHANGED)
SOON = Rule("FlinkNoLeaderSoon", Trigger.VACANT)
PAGED = replace(with_destinations(CHAT, PAGER), rules=(VACANT,))


def _reloads(sidecar: Sidecar, policy: Policy) -> None:
    sidecar.policy = policy
    sidecar.observe(PolicyLoaded(sidecar.moment, policy))


def _restarts(sidecar: Sidecar, policy: Policy) -> None:
    sidecar.policy = policy
    sidecar.is_killed()


def _is_replaced(sidecar: Sidecar, policy: Policy) -> None:
    """By one with an empty disk."""
    left = handover.written(
        CLUSTER, handover.cluster_handover(sidecar.policy, sidecar.state, CLUSTER, sidecar.moment, ended=True)
    )
    sidecar.state = Sidecar(sidecar.flink, policy).state
    sidecar.policy = policy
    sidecar.observe(HandoverRead(sidecar.moment, CLUSTER, left))


def vacant(policy: Policy = PAGED) -> tuple[Flink, Sidecar]:
    """A cluster without leaders, of which everybody has been notified."""
    flink, sidecar = watching(policy=policy)
    sidecar.sees(flink.vacate()).waits(150)
    assert {delivery.destination for delivery in sidecar.sent} == {
        destination.name for destination in policy.receivers["ops"]
    }
    return flink, sidecar


def dropped(sidecar: Sidecar) -> list[Delivery]:
    """What was sent because the configuration has changed."""
    return [delivery for delivery in sidecar.waits(5).sent if delivery.reason is Reason.CONFIGURATION_CHANGED]


TAKES_UP = pytest.mark.parametrize("takes_up", [_reloads, _restarts, _is_replaced])


@TAKES_UP
@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"rules": (CHANGED,)}, "its rule was removed"),
        ({"route": replace(POLICY.route, key="{severity}")}, "it is routed elsewhere"),
    ],
)
def test_the_service_that_shows_an_incident_is_sent_its_end(
    takes_up: Callable[[Sidecar, Policy], None], change: dict[str, object], why: str
) -> None:
    """Once, by the key that opened it, in words that are no all-clear, on the record first; a chat hears nothing of it."""
    _, sidecar = vacant()
    [opened] = [delivery for delivery in sidecar.sent if delivery.destination == PAGER.name]
    takes_up(sidecar, replace(PAGED, **change))
    queued = [record for record in sidecar.notifications() if record.reason == Reason.CONFIGURATION_CHANGED]
    assert [(record.destination, record.outcome) for record in queued] == [(PAGER.name, "queued")]
    [closing] = dropped(sidecar)
    assert (closing.destination, closing.incident, closing.goes_on) == (PAGER.name, opened.incident, False)
    assert closing.title == "[CONFIGURATION CHANGED] default: FlinkNoLeader is no longer notified here"
    assert closing.body.startswith("This is no all-clear: the configuration has changed.\nFlinkNoLeader of ")
    assert closing.body.count(why) == len(closing.alerts) == len(opened.alerts)
    takes_up(sidecar, replace(PAGED, **change))
    assert dropped(sidecar) == [closing]


def failed_over() -> tuple[Flink, Sidecar, Delivery]:
    """A cluster that has failed over, and what opened an incident of it; its close is scheduled."""
    flink, sidecar = watching(policy=replace(PAGED, rules=(CHANGED,)))
    fail_over(flink, sidecar).waits(15)
    [opened] = [delivery for delivery in sidecar.sent if delivery.destination == PAGER.name]
    return flink, sidecar, opened


def fails_back(flink: Flink, sidecar: Sidecar) -> None:
    """The next failover."""
    fail_over(flink, sidecar, 2, A)


ELSEWHERE = replace(POLICY.route, key="{severity}")


def test_a_scheduled_close_of_a_group_that_is_routed_elsewhere_is_handed_over() -> None:
    """The group is gone by then; the incident is known by the message that is to close it."""
    _, sidecar, opened = failed_over()
    _reloads(sidecar, replace(sidecar.policy, route=ELSEWHERE))
    assert sidecar.state.alerts.groups == {}
    sidecar.is_replaced()
    [closing] = dropped(sidecar)
    assert (closing.destination, closing.incident, closing.goes_on) == (PAGER.name, opened.incident, False)
    assert closing.group_labels == opened.group_labels


def test_a_scheduled_close_of_a_group_that_began_anew_is_handed_over() -> None:
    """The group was forgotten, and nobody has been notified of what it holds since; then it is routed elsewhere."""
    flink, sidecar, opened = failed_over()
    sidecar.waits(240)
    assert sidecar.state.alerts.groups == {}
    fails_back(flink, sidecar)
    sidecar.is_replaced()
    _reloads(sidecar, replace(sidecar.policy, route=ELSEWHERE))
    [closing] = dropped(sidecar)
    assert (closing.destination, closing.incident, closing.goes_on) == (PAGER.name, opened.incident, False)


def test_scheduled_closes_of_two_incidents_of_a_group_are_both_handed_over() -> None:
    """Other external labels gave the group another incident; the service that shows both can still be sent the end of the first."""
    flink, sidecar, first = failed_over()
    _reloads(sidecar, replace(sidecar.policy, external_labels={"env": "test"}))
    sidecar.answers[PAGER.name] = DeliveryOutcome.FAILED
    sidecar.waits(240)
    fails_back(flink, sidecar)
    sidecar.waits(15)
    sidecar.answers.clear()
    sidecar.is_replaced().connects().waits(900)
    paged = [delivery for delivery in sidecar.sent if delivery.destination == PAGER.name]
    ended = {
        delivery.incident for delivery in paged if delivery.reason in {Reason.RESOLVED, Reason.CONFIGURATION_CHANGED}
    }
    assert len(ended) == 2
    assert first.incident in ended


@TAKES_UP
def test_an_incident_goes_on_with_what_is_left_of_it(takes_up: Callable[[Sidecar, Policy], None]) -> None:
    """The service is sent what is not notified any more; the resolve of the rest closes it."""
    flink, sidecar = vacant(replace(PAGED, rules=(VACANT, SOON)))
    takes_up(sidecar, PAGED)
    [update] = dropped(sidecar)
    assert (update.alert, update.goes_on) == ("FlinkNoLeaderSoon", True)
    flink.elect(A)
    sidecar.connects().waits(120)
    assert sidecar.sent[-1].reason is Reason.RESOLVED
    assert {delivery.incident for delivery in sidecar.sent if delivery.destination == PAGER.name} == {update.incident}


@TAKES_UP
@pytest.mark.parametrize("rules", [(VACANT,), (CHANGED,)])
@pytest.mark.parametrize("left", [(CHAT,), (CHAT, replace(PAGER, send_resolved=False))])
def test_that_nobody_can_close_it_is_recorded(
    takes_up: Callable[[Sidecar, Policy], None], rules: tuple[Rule, ...], left: tuple[Destination, ...]
) -> None:
    """The destination is gone, or closes nothing: the record says which incident is left, once. Nothing is sent in its place."""
    _, sidecar = vacant()
    key = sidecar.sent[-1].incident
    takes_up(sidecar, replace(PAGED, rules=rules, receivers={"ops": left}))
    takes_up(sidecar, replace(PAGED, rules=rules, receivers={"ops": left}))
    assert dropped(sidecar) == []
    [given_up] = [record for record in sidecar.notifications() if record.reason == Reason.CONFIGURATION_CHANGED]
    assert (given_up.destination, given_up.outcome, given_up.alert) == (PAGER.name, "gave_up", "FlinkNoLeader")
    assert given_up.detail == f"this configuration can close no incident there: close {key} by hand"


def test_a_cluster_that_is_not_watched_any_more_leaves_no_incident() -> None:
    """After a restart without it."""
    _, sidecar = vacant()
    _restarts(sidecar, replace(PAGED, stores={"other": POLICY.stores[CLUSTER]}))
    assert ["its cluster is not watched any more" in delivery.body for delivery in dropped(sidecar)] == [True]


def test_other_external_labels_leave_an_incident_its_key() -> None:
    """Until it is over: the next one has another."""
    flink, sidecar = vacant()
    key = sidecar.sent[-1].incident
    _reloads(sidecar, replace(PAGED, external_labels={"env": "test"}))
    for _ in range(2):
        flink.elect(A)
        sidecar.connects().waits(300).sees(flink.vacate()).waits(60)
    reasons = [
        (delivery.reason.value, delivery.incident == key)
        for delivery in sidecar.sent
        if delivery.destination == PAGER.name
    ]
    assert reasons == [("FIRST", True), ("RESOLVED", True), ("FIRST", False), ("RESOLVED", False), ("FIRST", False)]


def test_an_incident_of_events_is_closed_before_the_next_one_with_another_key() -> None:
    """Other external labels, while what closes it waits so that people are notified: nothing else would close it."""
    flink, sidecar = watching(policy=replace(PAGED, rules=(CHANGED,)))
    for labels in ({}, {"env": "test"}):
        _reloads(sidecar, replace(sidecar.policy, external_labels=labels))
        fail_over(flink, sidecar)
        sidecar.sees(flink.elect(A)).waits(100)
    paged = [delivery for delivery in sidecar.sent if delivery.destination == PAGER.name]
    assert [delivery.reason.value for delivery in paged] == ["FIRST", "RESOLVED", "FIRST"]
    assert paged[0].incident == paged[1].incident != paged[2].incident


def test_what_is_over_is_not_closed_again() -> None:
    """Its group is only remembered for the interval."""
    flink, sidecar = vacant()
    flink.elect(A)
    sidecar.connects().waits(70)
    assert sidecar.sent[-1].reason is Reason.RESOLVED
    _reloads(sidecar, replace(PAGED, rules=(CHANGED,)))
    assert dropped(sidecar) == []


def test_what_waits_for_its_service_is_handed_over() -> None:
    """A pod is replaced before the service that is down has heard of it: the next one notifies it."""
    _, sidecar = vacant()
    sidecar.answers[PAGER.name] = None
    _reloads(sidecar, replace(PAGED, rules=(CHANGED,)))
    [unheard] = dropped(sidecar)
    del sidecar.answers[PAGER.name]
    _is_replaced(sidecar, sidecar.policy)
    again = dropped(sidecar)[1:]
    assert [(delivery.incident, delivery.alert) for delivery in again] == [(unheard.incident, unheard.alert)]


@dataclass
class Forged:
    """Something in a handover that no sidecar of ours writes."""

    incident: str = "0c9a4f8e-8f0b-5e0a-9d2c-3f1f5c1c6a11"
    opened_at: tuple[str, ...] = (PAGER.name,)
    rule: str = "Removed"
    label: str = "x"


@pytest.mark.parametrize(
    ("forged", "sent"),
    [
        (Forged(), 1),
        (Forged(label="call +1 555 0100"), 1),
        (Forged(incident="any key"), 0),
        (Forged(opened_at=("\x1b[2J#1",)), 0),
        (Forged(rule="call +1 555 0100"), 0),
    ],
)
def test_a_handover_cannot_set_a_text(forged: Forged, sent: int) -> None:
    """Others can write it. What the reader's rules do not have gets names of rules alone, and no labels but ours."""
    _, sidecar = vacant()
    [(key, group)] = sidecar.state.alerts.groups.items()
    members = {
        name: replace(
            member, alert=replace(member.alert, rule=forged.rule, labels={**member.alert.labels, "y": forged.label})
        )
        for name, member in group.members.items()
    }
    labels = {**group.labels, "y": forged.label}
    group = replace(group, members=members, labels=labels, incident=forged.incident, opened_at=forged.opened_at)
    sidecar.state = replace(sidecar.state, alerts=replace(sidecar.state.alerts, groups={key: group}))
    _is_replaced(sidecar, PAGED)
    closings = dropped(sidecar)
    assert len(closings) == sent
    for delivery in closings:
        assert "555" not in repr(delivery.alerts) + repr(delivery.group_labels) + delivery.title + delivery.body
