"""The ledger: a notification that one observer has claimed or sent is not sent by the others, and none is left unsent."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from sidecar.core.alerting import claims, ledger_document
from sidecar.core.alerting.alerts import Reason
from sidecar.core.alerting.claims import ClaimStanding, claimed, ends, marked, released, renewed, standing
from sidecar.core.alerting.ledger_document import Claim, Ledger, LedgerEntry
from sidecar.core.alerting.outbox import Delivery, Part
from sidecar.core.moment import SECOND, Moment
from sidecar.core.policy.policy import Severity

NOW = 1_795_161_600 * SECOND
HOUR = 3600 * SECOND
A, B = Claim("sidecar-a", "1"), Claim("sidecar-b", "1")
VACANCY = Part("vacancy", began=NOW)
OVER = Part("vacancy", began=NOW, ended=NOW + 60 * SECOND)
CHANGE = Part("change", NOW, is_event=True)


def delivery_of(*parts: Part, reason: Reason = Reason.FIRST, after: int = 0) -> Delivery:
    """A notification of these alerts, queued so long after NOW."""
    return Delivery(
        title="title",
        body="body",
        severity=Severity.CRITICAL,
        reason=reason,
        id="id",
        destination="ops#0",
        receiver="ops",
        cluster_id="default",
        alert="FlinkNoLeader",
        fingerprint="group",
        queued_at=Moment(NOW + after, NOW + after),
        next_at=0,
        parts=parts,
        repeat_interval=4 * HOUR,
    )


def test_a_claim_keeps_others_from_sending_and_a_mark_says_that_it_is_sent() -> None:
    """Free, held by one, sent: as each observer sees it."""
    first = delivery_of(VACANCY)
    assert standing(Ledger(), first, "sidecar-a") is ClaimStanding.FREE
    held = claimed(Ledger(), first, A, NOW)
    assert (standing(held, first, "sidecar-a"), standing(held, first, "sidecar-b")) == (
        ClaimStanding.OURS,
        ClaimStanding.HELD,
    )
    ledger = marked(held, first, "sidecar-a", NOW)
    assert {standing(ledger, first, name) for name in ("sidecar-a", "sidecar-b")} == {ClaimStanding.TOLD}


def test_what_was_sent_is_sent_once_and_its_end_once() -> None:
    """Firing, over, and a late observer that still has both in its outbox: all of it is sent."""
    ledger = marked(Ledger(), delivery_of(VACANCY), "sidecar-a", NOW)
    over = delivery_of(OVER, reason=Reason.RESOLVED)
    assert standing(ledger, over, "sidecar-b") is ClaimStanding.FREE
    ledger = marked(ledger, over, "sidecar-b", NOW)
    late = (delivery_of(VACANCY), over, delivery_of(replace(VACANCY, began=NOW + 2 * SECOND)))
    assert {standing(ledger, delivery, "sidecar-c") for delivery in late} == {ClaimStanding.TOLD}


def test_what_begins_anew_is_sent_anew() -> None:
    """The same vacancy of the same term, after it was over: another one. An event happens once, whoever saw it when."""
    ledger = marked(Ledger(), delivery_of(OVER, replace(CHANGE, ended=NOW)), "sidecar-a", NOW)
    assert standing(ledger, delivery_of(replace(VACANCY, began=NOW + 90 * SECOND)), "sidecar-a") is ClaimStanding.FREE
    assert standing(ledger, delivery_of(replace(CHANGE, ended=NOW + 5 * SECOND)), "sidecar-b") is ClaimStanding.TOLD


def test_one_alert_that_was_not_sent_is_enough() -> None:
    """A group that another observer sent without it: sent, with it."""
    ledger = marked(Ledger(), delivery_of(CHANGE), "sidecar-a", NOW)
    assert standing(ledger, delivery_of(CHANGE, VACANCY), "sidecar-b") is ClaimStanding.FREE


def test_it_is_said_again_once_in_each_interval() -> None:
    """Whoever is first after four hours; the others find it said, though their clocks differ by a minute."""
    ledger = marked(Ledger(), delivery_of(VACANCY), "sidecar-a", NOW)
    again = delivery_of(VACANCY, reason=Reason.REPEAT_INTERVAL_ELAPSED, after=4 * HOUR)
    assert standing(ledger, again, "sidecar-b") is ClaimStanding.FREE
    ledger = marked(ledger, again, "sidecar-b", NOW + 4 * HOUR)
    for skew in (-60 * SECOND, 0, 60 * SECOND):
        late = replace(again, queued_at=Moment(0, NOW + 4 * HOUR + skew))
        assert standing(ledger, late, "sidecar-a") is ClaimStanding.TOLD
    later = delivery_of(VACANCY, reason=Reason.REPEAT_INTERVAL_ELAPSED, after=8 * HOUR)
    assert standing(ledger, later, "sidecar-a") is ClaimStanding.FREE


@pytest.mark.parametrize("unsure", [False, True])
def test_a_claim_that_is_given_back_may_be_taken(unsure: bool) -> None:
    """After a failure; and where it may have arrived, whoever takes it knows. Somebody else's claim is not given back."""
    first = delivery_of(VACANCY)
    back = released(claimed(Ledger(), first, A, NOW), first, A, NOW, unsure=unsure)
    assert standing(back, first, "sidecar-b") is ClaimStanding.FREE
    assert claims.may_have_arrived(back, first) is unsure
    taken = claimed(claimed(Ledger(), first, A, NOW), first, B, NOW)
    theirs = replace(B, about=("vacancy",))
    assert taken.entries["ops#0 group"] == LedgerEntry(claim=theirs, unsure=("vacancy",), changed_at=NOW)
    assert released(taken, first, A, NOW, unsure=False) is taken


def test_a_claim_is_renewed_by_the_attempt_that_made_it() -> None:
    """Each time it is another claim for who waits for it. What is not there cannot be renewed, and others keep theirs."""
    first, ours = delivery_of(VACANCY), replace(A, renewed=0)
    held = claimed(Ledger(), first, ours, NOW)
    again = renewed(renewed(held, first, ours, NOW + 1), first, ours, NOW + 2)
    assert again.entries["ops#0 group"] == LedgerEntry(
        claim=replace(ours, about=("vacancy",), renewed=2), changed_at=NOW + 2
    )
    assert (standing(again, first, "sidecar-a"), standing(again, first, "sidecar-b")) == (
        ClaimStanding.OURS,
        ClaimStanding.HELD,
    )
    ledger = marked(again, first, "sidecar-a", NOW)
    for other in (Ledger(), ledger, claimed(held, first, B, NOW), claimed(held, first, Claim(A.by, "2"), NOW)):
        assert renewed(other, first, ours, NOW) is other
    assert renewed(claimed(Ledger(), first, A, NOW), first, ours, NOW).entries["ops#0 group"].claim == replace(
        ours, about=("vacancy",), renewed=1
    )


def test_a_mark_never_takes_back_that_something_is_over() -> None:
    """An observer that could not ask says late what another has long sent the end of: nobody sends the end again."""
    over = delivery_of(OVER, reason=Reason.RESOLVED)
    late = marked(marked(Ledger(), over, "sidecar-a", NOW), delivery_of(VACANCY), "sidecar-b", NOW + HOUR)
    assert standing(late, over, "sidecar-c") is ClaimStanding.TOLD
    anew = delivery_of(replace(VACANCY, began=NOW + HOUR))
    assert standing(
        marked(late, anew, "sidecar-b", NOW + HOUR), delivery_of(replace(OVER, ended=NOW + 2 * HOUR)), "c"
    ) is (ClaimStanding.FREE)


def test_a_mark_leaves_what_another_has_claimed() -> None:
    """With its doubts. Our own claim is done."""
    held = claimed(claimed(Ledger(), delivery_of(VACANCY), A, NOW), delivery_of(VACANCY), B, NOW)
    by_us = marked(held, delivery_of(CHANGE), "sidecar-b", NOW).entries["ops#0 group"]
    assert (by_us.claim, by_us.unsure) == (None, ("vacancy",))
    by_another = marked(held, delivery_of(CHANGE), "sidecar-a", NOW).entries["ops#0 group"]
    assert (by_another.claim, by_another.unsure) == (replace(B, about=("vacancy",)), ("vacancy",))


def test_a_doubt_lasts_until_what_is_doubted_is_sent() -> None:
    """The service took two alerts and hung up; another one of the group is sent meanwhile, by somebody who knows only that: the two are
    still in doubt, and a third is not.
    """
    both, other, third = delivery_of(VACANCY, CHANGE), delivery_of(Part("other", NOW)), delivery_of(Part("third", NOW))
    ledger = released(claimed(Ledger(), both, A, NOW), both, A, NOW, unsure=True)
    ledger = marked(claimed(ledger, other, B, NOW), other, "sidecar-b", NOW)
    assert [claims.may_have_arrived(ledger, delivery) for delivery in (both, delivery_of(CHANGE), third)] == [
        True,
        True,
        False,
    ]
    ledger = marked(ledger, delivery_of(CHANGE), "sidecar-b", NOW)
    assert [claims.may_have_arrived(ledger, delivery) for delivery in (both, delivery_of(VACANCY))] == [True, True]
    ledger = marked(ledger, delivery_of(VACANCY), "sidecar-b", NOW)
    assert not claims.may_have_arrived(ledger, delivery_of(OVER, reason=Reason.RESOLVED))


@pytest.mark.parametrize(
    ("reason", "parts", "expected"),
    [
        (Reason.FIRST, (CHANGE, VACANCY), True),
        (Reason.FIRST, (VACANCY,), False),
        (Reason.FIRST, (replace(CHANGE, ended=NOW),), True),
        (Reason.GREW, (CHANGE, VACANCY), False),
        (Reason.GREW, (replace(CHANGE, ended=NOW),), True),
        (Reason.RESOLVED, (replace(CHANGE, ended=NOW),), False),
        (Reason.REPEAT_INTERVAL_ELAPSED, (CHANGE,), False),
    ],
)
def test_what_others_sent_in_part_is_known(reason: Reason, parts: tuple[Part, ...], expected: bool) -> None:
    """A failover that one saw going on and another one saw over: the second message says that it may be a duplicate."""
    ledger = marked(Ledger(), delivery_of(CHANGE), "sidecar-a", NOW)
    assert claims.repeats(ledger, delivery_of(*parts, reason=reason)) is expected


@pytest.mark.parametrize("skew", [-3600, -5, 0, 5, 3600])
def test_clocks_that_differ_by_an_hour_notify_an_event_once(skew: int) -> None:
    """What is sent of an event does not depend on when it was, by anybody's clock; nor that it is over, nor saying it again."""
    ours, theirs = delivery_of(CHANGE), delivery_of(replace(CHANGE, ended=NOW + skew * SECOND), reason=Reason.RESOLVED)
    ledger = marked(Ledger(), ours, "sidecar-a", NOW)
    assert standing(ledger, theirs, "sidecar-b") is ClaimStanding.FREE
    ledger = marked(ledger, theirs, "sidecar-b", NOW + skew * SECOND)
    late = delivery_of(replace(CHANGE, ended=NOW + SECOND), reason=Reason.RESOLVED)
    assert {standing(ledger, delivery, "sidecar-a") for delivery in (ours, late)} == {ClaimStanding.TOLD}
    again = delivery_of(CHANGE, reason=Reason.REPEAT_INTERVAL_ELAPSED, after=skew * SECOND)
    assert standing(ledger, again, "sidecar-a") is ClaimStanding.TOLD


@pytest.mark.parametrize(
    ("skew", "expected"), [(-90, ClaimStanding.TOLD), (0, ClaimStanding.FREE), (90, ClaimStanding.FREE)]
)
def test_what_begins_anew_sooner_than_clocks_differ_waits(skew: int, expected: ClaimStanding) -> None:
    """Resolved by one whose clock is ahead, vacant again 30 s later: who is behind takes it for the old one. Others notify it."""
    ledger = marked(Ledger(), delivery_of(OVER), "sidecar-a", NOW)
    anew = replace(VACANCY, began=OVER.ended + (30 + skew) * SECOND)
    assert standing(ledger, delivery_of(anew), "sidecar-b") is expected


@pytest.mark.parametrize(
    ("part", "expected"),
    [
        (Part("change", NOW - SECOND, NOW - SECOND, is_event=True), True),
        (Part("a failover that is not over", NOW - SECOND, is_event=True), True),
        (Part("vacancy", NOW - SECOND), True),
        (Part("change", NOW + SECOND, NOW + SECOND, is_event=True), False),
        (Part("vacancy", NOW + SECOND), False),
        (Part("sent", NOW - SECOND, NOW - SECOND, is_event=True), False),
    ],
)
def test_what_happened_before_the_ledger_began_may_be_marked_in_a_lost_one(part: Part, expected: bool) -> None:
    """Also where it is queued later, by a sidecar that was away: others have sent it. What this ledger knows is not in doubt."""
    ledger = marked(
        ledger_document.begun(Ledger(), NOW), delivery_of(Part("sent", NOW, NOW, is_event=True)), "sidecar-a", NOW
    )
    assert (claims.oldest_news(ledger, delivery_of(part, after=10 * SECOND)) < ledger.began) is expected
    assert claims.oldest_news(ledger, delivery_of(part, after=-10 * SECOND)) < ledger.began


def test_destinations_and_groups_do_not_mix() -> None:
    """What was sent to one destination was not sent to another."""
    ledger = marked(Ledger(), delivery_of(VACANCY), "sidecar-a", NOW)
    for other in (
        replace(delivery_of(VACANCY), destination="ops#1"),
        replace(delivery_of(VACANCY), fingerprint="other"),
    ):
        assert standing(ledger, other, "sidecar-a") is ClaimStanding.FREE


def test_the_document_is_bounded() -> None:
    """Old entries go, claims last; of a storm the latest alerts are remembered; the whole has a limit."""
    old = marked(Ledger(), delivery_of(VACANCY), "sidecar-a", NOW)
    held = claimed(old, replace(delivery_of(VACANCY), fingerprint="held"), A, NOW + 1000)
    later = ledger_document.read(ledger_document.written(held, NOW + ledger_document.KEPT))
    assert list(later.entries) == ["ops#0 held"]
    storm = delivery_of(*(Part(f"{number:036}", NOW) for number in range(2 * ledger_document.MOST_ALERTS)))
    full = Ledger()
    for number in range(100):
        full = marked(full, replace(storm, fingerprint=f"{number}"), "sidecar-a", NOW + number)
        assert len(full.entries[f"ops#0 {number}"].sent) == ledger_document.MOST_ALERTS
    content = ledger_document.written(claimed(full, replace(storm, fingerprint="held"), A, NOW + 1000), NOW)
    assert ledger_document.MOST_BYTES // 2 < len(content) <= ledger_document.MOST_BYTES
    left = ledger_document.read(content).entries
    assert "ops#0 held" in left
    assert "ops#0 99" in left
    assert "ops#0 0" not in left


@given(
    st.binary(max_size=200) | st.just(b'{"format":1,"entries":[]}') | st.just(b'{"entries":{"x":{"told":{"y":"z"}}}}')
)
def test_an_unreadable_document_is_an_empty_ledger(content: bytes) -> None:
    """A duplicate is better than a loss."""
    ledger = ledger_document.read(content)
    assert standing(ledger, delivery_of(VACANCY), "sidecar-a") is ClaimStanding.FREE


def test_a_document_is_read_as_it_was_written() -> None:
    """Claims, times and doubts."""
    ledger = marked(claimed(Ledger(), delivery_of(CHANGE, OVER), B, NOW), delivery_of(CHANGE, OVER), "sidecar-b", NOW)
    ledger = claimed(ledger, replace(delivery_of(VACANCY), destination="ops#1"), replace(A, renewed=3), NOW)
    assert ledger_document.read(ledger_document.written(ledger, NOW)) == ledger


def test_a_resolve_of_one_who_knows_of_less_does_not_end_the_incident() -> None:
    """What fires according to others goes on; a repetition names all that fires, and of what nobody has repeated nothing is left."""
    other = replace(VACANCY, alert_id="other", subjects=("its subject",))
    over = replace(VACANCY, ended=VACANCY.began + SECOND)
    both, resolve = delivery_of(VACANCY, other), replace(delivery_of(over), reason=Reason.RESOLVED)
    ledger = marked(Ledger(), both, "a", NOW)
    assert not ends(ledger, resolve, NOW)
    assert ends(ledger, replace(resolve, parts=(over, replace(other, alert_id="unlike", ended=NOW))), NOW)
    assert ends(ledger, replace(resolve, repeat_interval=SECOND), NOW + 3 * SECOND)
    again = replace(delivery_of(VACANCY), reason=Reason.REPEAT_INTERVAL_ELAPSED)
    assert ends(marked(ledger, again, "a", NOW), resolve, NOW)


def test_an_incident_of_events_is_not_closed_while_something_goes_on() -> None:
    """What closes it says itself when it is over."""
    closing = replace(delivery_of(replace(OVER, alert_id="closing")), is_closing=True)
    assert standing(Ledger(), closing, "b") is ClaimStanding.FREE
    assert standing(marked(Ledger(), delivery_of(VACANCY), "a", NOW), closing, "b") is ClaimStanding.TOLD


def test_that_an_alert_is_dropped_is_sent_once() -> None:
    """By the first sidecar that loads the configuration. It ends the incident, if nothing else is left in it."""
    other = replace(VACANCY, alert_id="other")
    gone = delivery_of(replace(VACANCY, ended=ledger_document.DROPPED), reason=Reason.CONFIGURATION_CHANGED)
    ledger = marked(Ledger(), delivery_of(VACANCY, other), "a", NOW)
    assert standing(ledger, gone, "b") is ClaimStanding.FREE
    assert not ends(ledger, gone, NOW)
    ledger = marked(ledger, gone, "a", NOW)
    over = delivery_of(OVER, reason=Reason.RESOLVED)  # of one that has not loaded it yet
    assert {standing(ledger, delivery, "b") for delivery in (gone, over)} == {ClaimStanding.TOLD}
    assert ends(ledger, replace(gone, parts=(replace(other, ended=ledger_document.DROPPED),)), NOW)


def test_a_dropped_alert_that_is_notified_again_is_news() -> None:
    """The rule is back: the incident is opened anew, and closed as any other."""
    gone = delivery_of(replace(VACANCY, ended=ledger_document.DROPPED), reason=Reason.CONFIGURATION_CHANGED)
    ledger = marked(marked(Ledger(), delivery_of(VACANCY), "a", NOW), gone, "a", NOW)
    assert standing(ledger, delivery_of(VACANCY), "b") is ClaimStanding.FREE
    ledger = marked(ledger, delivery_of(VACANCY), "b", NOW)
    assert standing(ledger, delivery_of(VACANCY), "a") is ClaimStanding.TOLD
    assert {standing(ledger, delivery, "a") for delivery in (gone, delivery_of(OVER))} == {ClaimStanding.FREE}
