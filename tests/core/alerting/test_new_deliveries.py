"""The key of an incident, and what closes one of which nothing goes on."""

from msgspec.structs import replace

from sidecar.core.alerting.alerts import Reason
from sidecar.core.alerting.new_deliveries import EVENT_OPEN
from sidecar.core.alerting.outbox import Delivery
from sidecar.core.moment import SECOND
from sidecar.core.observations import DeliveryOutcome
from sidecar.core.policy.policy import Destination, Policy
from tests.kit.core_sidecar import POLICY, Sidecar, fail_over, watching, with_destinations

PAGER = Destination("ops", 0, in_order=True, keeps_incidents=True)
PAGED = with_destinations(PAGER)


def first_of(policy: Policy) -> Delivery:
    """The first message about a failover."""
    flink, sidecar = watching(policy=policy)
    fail_over(flink, sidecar)
    return sidecar.waits(10).sent[0]


def paged(sidecar: Sidecar) -> list[tuple[str, bool]]:
    """Reasons, and whether it only closes."""
    return [(delivery.reason.value, delivery.is_closing) for delivery in sidecar.sent]


def test_every_observer_has_the_same_key() -> None:
    """And the same identity of the thread, though the message is another."""
    a, b = first_of(PAGED), first_of(replace(PAGED, observer="sidecar-1"))
    assert (a.incident, a.thread) == (b.incident, b.thread)
    assert a.id != b.id
    assert a.incident != a.fingerprint


def test_clusters_of_one_id_have_keys_of_their_own() -> None:
    """By their place, or by the external labels."""
    others = (
        replace(PAGED, places={"default": "zookeeper zk-1:2181/ /flink/default"}),
        replace(PAGED, places={"default": "zookeeper zk-2:2181/ /flink/default"}),
        replace(PAGED, external_labels={"env": "test"}),
    )
    assert len({first_of(policy).incident for policy in (PAGED, *others)}) == 4


def test_a_failover_that_is_over_is_closed_after_five_minutes() -> None:
    """Not sooner, so that people are paged; once; and only at a service that keeps it open."""
    flink, sidecar = watching(policy=with_destinations(PAGER, Destination("ops", 1)))
    fail_over(flink, sidecar).waits(EVENT_OPEN / SECOND - 10)
    assert paged(sidecar) == [("FIRST", False), ("FIRST", False)]
    sidecar.waits(600)
    assert paged(sidecar)[2:] == [("RESOLVED", True)]
    opened, _, closing = sidecar.sent
    assert (closing.destination, closing.incident) == ("ops#0", opened.incident)
    assert (closing.status, closing.reason) == ("UNCHECKED", "RESOLVED")


def test_the_next_sidecar_closes_what_its_predecessor_opened() -> None:
    """With an empty disk: from the handover. Once, only where it is kept open, and not before the message that opened it."""
    flink, sidecar = watching(policy=with_destinations(PAGER, Destination("ops", 1)))
    fail_over(flink, sidecar).waits(60)
    opened = sidecar.sent[0]
    sidecar.is_replaced(down_for=20).connects().waits(1200)
    assert paged(sidecar) == [("FIRST", False), ("FIRST", False), ("RESOLVED", True)]
    closing = sidecar.sent[-1]
    assert (closing.destination, closing.incident) == (opened.destination, opened.incident)
    assert {part.alert_id for part in closing.parts}.isdisjoint(part.alert_id for part in opened.parts)
    assert sidecar.state.alerts.groups == {}


def test_what_was_not_opened_yet_is_opened_by_the_next_sidecar_and_closed_after_five_minutes() -> None:
    """Its predecessor could not deliver."""
    flink, sidecar = watching(policy=PAGED)
    sidecar.answers["ops#0"] = DeliveryOutcome.FAILED
    fail_over(flink, sidecar).waits(60)
    del sidecar.sent[:], sidecar.answers["ops#0"]
    sidecar.is_replaced().connects().waits(EVENT_OPEN / SECOND - 10)
    assert paged(sidecar) == [("FIRST", False)]
    sidecar.waits(600)
    assert paged(sidecar)[1:] == [("RESOLVED", True)]


def test_a_newer_alert_takes_the_place_of_a_closing_that_was_handed_over() -> None:
    """Nobody is notified of the end of the event: the incident goes on."""
    flink, sidecar = watching(policy=PAGED)
    fail_over(flink, sidecar).waits(60)
    sidecar.is_replaced().connects().waits(1).sees(flink.vacate()).waits(900)
    assert sidecar.sent[1].goes_on
    assert not any(closing for _, closing in paged(sidecar))


def test_what_closes_gives_way_to_a_newer_message() -> None:
    """Which decides when the incident ends; that is on the record."""
    flink, sidecar = watching(policy=PAGED)
    fail_over(flink, sidecar).waits(100)
    sidecar.sees(flink.vacate()).waits(400)
    assert paged(sidecar) == [("FIRST", False), ("FIRST", False)]
    assert sidecar.sent[1].goes_on
    (superseded,) = [record for record in sidecar.notifications() if record.outcome == "superseded"]
    assert superseded.detail == "a newer message of its group decides when the incident ends"
    assert not any(record.outcome == "gave_up" for record in sidecar.notifications())


def test_a_scheduled_close_is_not_late() -> None:
    """Until it is due and an attempt fails."""
    flink, sidecar = watching(policy=PAGED)
    fail_over(flink, sidecar).waits(EVENT_OPEN / SECOND - 10)
    assert [delivery.is_scheduled for delivery in sidecar.state.outbox.values()] == [True]
    sidecar.answers["ops#0"] = DeliveryOutcome.FAILED
    sidecar.waits(60)
    assert [delivery.is_scheduled for delivery in sidecar.state.outbox.values()] == [False]


def test_a_vacancy_is_closed_by_its_resolve() -> None:
    """Nothing else is needed."""
    flink, sidecar = watching(policy=PAGED)
    sidecar.sees(flink.vacate()).waits(60)
    fail_over(flink, sidecar).waits(900)
    assert [reason for reason, closing in paged(sidecar) if not closing][-1] == Reason.RESOLVED
    assert not any(closing for _, closing in paged(sidecar))


def test_messages_that_change_an_incident_are_sent_in_order() -> None:
    """Though they have no alert in common: the second one waits until the first one is delivered."""
    flink, sidecar = watching(policy=PAGED)
    sidecar.answers["ops#0"] = DeliveryOutcome.FAILED
    fail_over(flink, sidecar).waits(100)
    sidecar.sees(flink.vacate()).waits(100)
    assert len({delivery.id for delivery in sidecar.sent}) == 1
    del sidecar.answers["ops#0"]
    sidecar.waits(300)
    assert len({delivery.id for delivery in sidecar.sent}) == 2


def test_without_resolves_nothing_is_closed() -> None:
    """`send_resolved: false`."""
    flink, sidecar = watching(policy=with_destinations(replace(PAGER, send_resolved=False), policy=POLICY))
    fail_over(flink, sidecar).waits(900)
    assert paged(sidecar) == [("FIRST", False)]
