"""Whoever may write the ledger can write anything: what it says is bounded, and silences nobody for long."""

import time
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import json
from msgspec.structs import replace

from sidecar.core.alerting import claims, ledger_document
from sidecar.core.alerting.alerts import Reason
from sidecar.core.alerting.claims import ClaimStanding, claimed, marked, standing
from sidecar.core.alerting.ledger_document import CLOCK_SKEW, Claim, Ledger, LedgerEntry, believed
from tests.core.alerting.test_ledger_document import HOUR, NOW, VACANCY, A, delivery_of

NAME = "ops#0 group"
FUTURE = NOW + CLOCK_SKEW + 1
ENDLESS = 2**62


def ledger_with(entry: LedgerEntry, wall: int = NOW) -> Ledger:
    """What an observer takes from a document with this entry."""
    return believed(ledger_document.read(json.encode(Ledger(entries={NAME: entry}, began=1))), wall)


@pytest.mark.parametrize(
    "entry",
    [
        LedgerEntry({"vacancy": 0}, at=NOW, changed_at=ENDLESS),
        LedgerEntry({"vacancy": 0}, at=ENDLESS, changed_at=NOW),
        LedgerEntry({"vacancy": 0}, at=NOW, changed_at=FUTURE),
        LedgerEntry({"vacancy": ENDLESS}, at=NOW, changed_at=NOW),
        LedgerEntry({"vacancy": FUTURE}, at=NOW, changed_at=NOW),
        LedgerEntry({"vacancy": -1}, at=NOW, changed_at=NOW),
        LedgerEntry({"vacancy": 0}, at=-ENDLESS, changed_at=NOW),
    ],
)
def test_what_was_sent_in_the_future_was_not_sent(entry: LedgerEntry) -> None:
    """A clock may be wrong, or somebody wants silence: the alert is sent, and says that it may be a duplicate."""
    vacant = delivery_of(replace(VACANCY, began=NOW + 5))
    assert standing(ledger_with(entry), vacant, "sidecar-a") is ClaimStanding.FREE
    assert claims.may_have_arrived(ledger_with(entry), vacant)


def test_clocks_may_differ_by_two_hours() -> None:
    """What another observer has sent is sent."""
    entry = LedgerEntry({"vacancy": 0}, at=NOW + CLOCK_SKEW, by="sidecar-b", changed_at=NOW + CLOCK_SKEW)
    assert standing(ledger_with(entry), delivery_of(VACANCY), "sidecar-a") is ClaimStanding.TOLD


def test_a_doubt_about_the_future_lasts_until_it_is_sent() -> None:
    """It is kept in the document that is written over it."""
    doubted = ledger_with(LedgerEntry({"vacancy": 0}, at=ENDLESS, changed_at=ENDLESS))
    kept = believed(ledger_document.read(ledger_document.written(doubted, NOW)), NOW)
    assert claims.may_have_arrived(kept, delivery_of(VACANCY))
    ledger = marked(claimed(kept, delivery_of(VACANCY), A, NOW), delivery_of(VACANCY), "sidecar-a", NOW)
    assert standing(believed(ledger, NOW), delivery_of(VACANCY), "sidecar-b") is ClaimStanding.TOLD


def test_a_condition_that_was_sent_long_before_it_began_is_sent_again() -> None:
    """While it lasts somebody says it again in each repeat interval: what nobody has said for two of them is over, or was never so."""
    ledger = LedgerEntry({"vacancy": 0}, at=NOW, changed_at=NOW)
    for later, expected in ((7 * HOUR, ClaimStanding.TOLD), (8 * HOUR + 1, ClaimStanding.FREE)):
        vacant = delivery_of(replace(VACANCY, began=NOW + later), after=later)
        assert standing(ledger_with(ledger, NOW + later), vacant, "sidecar-a") is expected
        assert claims.repeats(ledger_with(ledger, NOW + later), vacant)


def test_a_claim_with_endless_names_is_none() -> None:
    """It is no claim of a sidecar: what it is about may have arrived."""
    claim = Claim("x" * 5000, "token", ("vacancy",))
    left = ledger_with(LedgerEntry(claim=claim, changed_at=NOW))
    assert standing(left, delivery_of(VACANCY), "sidecar-a") is ClaimStanding.FREE
    assert claims.may_have_arrived(left, delivery_of(VACANCY))


@pytest.mark.parametrize("renewed", [-1, 10**25, 1000])
def test_a_claim_that_was_renewed_endlessly_counts_as_one_that_is_not_renewed(renewed: int) -> None:
    """It is held for longer then, and not for ever."""
    claim = (
        ledger_with(LedgerEntry(claim=Claim("x", "token", ("vacancy",), renewed), changed_at=NOW)).entries[NAME].claim
    )
    assert claim == Claim("x", "token", ("vacancy",), None)


def test_a_beginning_in_the_future_is_none() -> None:
    """The ledger begins anew: what happened before is sent as a possible duplicate, not for ever."""
    assert believed(Ledger(began=ENDLESS), NOW).began == 0
    assert believed(Ledger(began=-1), NOW).began == 0
    assert believed(Ledger(began=NOW), NOW).began == NOW


def test_counts_and_lengths_are_bounded() -> None:
    """Of entries, of alerts in each list, and of each id."""
    many = [f"{number}" for number in range(3 * ledger_document.MOST_ALERTS)]
    entry = LedgerEntry(
        dict.fromkeys([*many, "x" * 5000], 0), unsure=(*many, "x" * 5000), claim=Claim("b", "1", (*many, "x" * 5000))
    )
    kept = ledger_with(entry).entries[NAME]
    assert kept.claim
    assert {len(kept.sent), len(kept.unsure), len(kept.claim.about)} == {ledger_document.MOST_ALERTS}
    assert max(map(len, [*kept.sent, *kept.unsure, *kept.claim.about])) < 10
    crowd = {f"{number}": LedgerEntry(changed_at=NOW - number) for number in range(2 * ledger_document.MOST_ENTRIES)}
    kept_names = list(believed(Ledger(entries={**crowd, "y" * 5000: LedgerEntry()}), NOW).entries)
    assert set(kept_names) == {f"{number}" for number in range(ledger_document.MOST_ENTRIES)}


@pytest.mark.parametrize(
    "content", [b'{"x": %s}' % (b"[" * 1200 + b"]" * 1200), b'{"entries": %s}' % (b'{"a":' * 5000 + b"1" + b"}" * 5000)]
)
def test_what_is_nested_too_deeply_is_no_ledger(content: bytes) -> None:
    """It counts as unreadable, as any other garbage does."""
    assert ledger_document.read(content) == Ledger()


NUMBERS = st.integers() | st.sampled_from([0, NOW, ENDLESS, -ENDLESS, 10**400])
TEXTS = st.text(max_size=5) | st.sampled_from(["vacancy", "sidecar-a", NAME, "z" * 5000])
CLAIMS = st.fixed_dictionaries({"by": TEXTS, "token": TEXTS}, optional={"about": st.lists(TEXTS, max_size=3)})
ENTRIES = st.fixed_dictionaries(
    {},
    optional={
        "told": st.dictionaries(TEXTS, NUMBERS, max_size=3),
        "at": NUMBERS,
        "by": TEXTS,
        "claim": st.none() | CLAIMS,
        "unsure": st.lists(TEXTS, max_size=3),
        "changed_at": NUMBERS,
    },
)
DOCUMENTS = st.fixed_dictionaries(
    {},
    optional={"entries": st.dictionaries(TEXTS, ENTRIES, max_size=3), "began": NUMBERS, "format": st.integers(-3, 1)},
)


def test_a_ledger_much_larger_than_it_may_be_is_written_at_once() -> None:
    """What changed longest ago is dropped, and the rest is written: not once more for each entry."""
    about = tuple(f"{number:036}" for number in range(15))
    entries = {f"ops#0 {n:036}": LedgerEntry(unsure=about, changed_at=NOW - n) for n in range(2000)}
    began = time.process_time()
    content = ledger_document.written(Ledger(entries=entries, began=1), NOW)
    assert time.process_time() - began < 1
    assert ledger_document.MOST_BYTES - 1000 < len(content) <= ledger_document.MOST_BYTES
    kept = ledger_document.read(content).entries
    assert [*kept] == [*entries][: len(kept)]


@given(DOCUMENTS, st.sampled_from(Reason))
def test_no_document_breaks_anything(document: dict[str, Any], reason: Reason) -> None:
    """Whatever stands there can be read, asked, claimed, marked and written, and is read again as it was written."""
    read = believed(ledger_document.read(json.encode(document)), NOW)
    delivery = delivery_of(VACANCY, reason=reason)
    assert standing(read, delivery, "sidecar-a")
    assert claims.repeats(read, delivery) in {True, False}
    assert claims.oldest_news(read, delivery) <= NOW
    held = claimed(read, delivery, A, NOW)
    assert standing(held, delivery, A.by) in {ClaimStanding.OURS, ClaimStanding.TOLD}
    ledger = believed(ledger_document.read(ledger_document.written(marked(held, delivery, A.by, NOW), NOW)), NOW)
    assert standing(ledger, delivery, "sidecar-b") in {ClaimStanding.TOLD, ClaimStanding.HELD, ClaimStanding.FREE}
    assert (
        not claims.may_have_arrived(ledger, delivery)
        or standing(ledger, delivery, "sidecar-b") is not ClaimStanding.TOLD
    )
