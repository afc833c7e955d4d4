"""Which observers the ledger names: everybody may write it, and each sidecar goes through versions that do not know of them."""

import pytest
from msgspec import json
from msgspec.structs import replace

from sidecar.core.alerting import ledger_document
from sidecar.core.alerting.claims import claimed
from sidecar.core.alerting.ledger_document import (
    CLOCK_SKEW,
    LONGEST_ADDRESS,
    LONGEST_NAME,
    MOST_OBSERVERS,
    OBSERVER_KEPT,
    RENEWED,
    SENDER_KEPT,
    Ledger,
    Presence,
    announced,
    believed,
    others,
    voting,
    with_sender,
    written,
)
from sidecar.core.moment import SECOND
from tests.core.alerting.test_ledger_document import NOW, VACANCY, A, delivery_of

HERE = Presence(NOW, "http://10.0.0.1:9250", NOW, NOW)


def observers(ledger: Ledger) -> dict[str, Presence]:
    """Those that another sidecar takes from the document."""
    return dict(believed(ledger_document.read(written(ledger, NOW)), NOW).observers)


def test_who_has_announced_itself_is_there_beside_what_is_sent() -> None:
    """A claim of another one changes nothing in it, nor it in the claim."""
    ledger = claimed(announced(Ledger(began=1), "a", HERE), delivery_of(VACANCY), A, NOW)
    later = replace(HERE, at=NOW + RENEWED)
    both = announced(announced(ledger, "b", HERE), "a", later)
    assert observers(both) == {"a": later, "b": HERE}
    assert both.entries == ledger.entries
    assert others(both.observers, "a") == {"b": HERE}


def test_the_ledger_is_at_rest_while_nothing_happens() -> None:
    """An observer that looks each minute for an hour writes seven times; nobody who reads meanwhile takes it for ended."""
    ledger, writes = Ledger(began=1), 0
    for minute in range(60):
        wall = NOW + minute * 60 * SECOND
        before = believed(ledger, wall)
        assert minute == 0 or before.observers.keys() == {"a"}
        ledger = announced(before, "a", replace(HERE, at=wall, store_seen_at=wall, leader_seen_at=wall))
        writes += ledger is not before
    assert writes == 7


@pytest.mark.parametrize("its", [replace(HERE, address="http://10.0.0.2:9250"), replace(HERE, at=NOW - 1)])
def test_what_has_changed_is_published_at_once(its: Presence) -> None:
    """Another address, and a clock that was set back: the others must not take it for one of the future."""
    assert announced(Ledger(began=1, observers={"a": HERE}), "a", its).observers == {"a": its}


@pytest.mark.parametrize(
    ("name", "presence"),
    [
        ("a", replace(HERE, at=NOW - OBSERVER_KEPT - 1)),
        ("a", replace(HERE, at=NOW + CLOCK_SKEW + 1)),
        ("a", replace(HERE, at=-1)),
        ("a", replace(HERE, address="x" * (LONGEST_ADDRESS + 1))),
        ("a" * (LONGEST_NAME + 1), HERE),
    ],
)
def test_who_has_ended_or_cannot_be_is_not_there(name: str, presence: Presence) -> None:
    """It is neither asked nor counted."""
    assert observers(Ledger(began=1, observers={name: presence})) == {}


def test_of_very_many_the_latest_are_known() -> None:
    """A round of questions ends in bounded time."""
    crowd = {f"{number}": replace(HERE, at=NOW - number) for number in range(3 * MOST_OBSERVERS)}
    assert observers(Ledger(began=1, observers=crowd)) == {
        name: presence for name, presence in crowd.items() if NOW - presence.at < MOST_OBSERVERS
    }


def test_a_ledger_of_a_version_without_observers_is_read() -> None:
    """Of the others nothing is known."""
    content = json.decode(written(claimed(Ledger(began=1), delivery_of(VACANCY), A, NOW), NOW))
    del content["observers"]
    ledger = believed(ledger_document.read(json.encode(content)), NOW)
    assert (dict(ledger.observers), len(ledger.entries)) == ({}, 1)


def test_an_observer_has_a_vote_when_it_has_sent_lately_from_where_it_is() -> None:
    """A week from when it sent, whatever time it says; at another address it is another one, and unknown names have none."""
    senders = with_sender(with_sender({}, {"a": HERE}, "a", NOW + CLOCK_SKEW, NOW), {"a": HERE}, "b", NOW, NOW)
    both = {"a": HERE, "b": HERE}
    assert voting(both, senders, NOW + SENDER_KEPT - 1) == {"a": HERE}
    assert voting(both, senders, NOW + SENDER_KEPT) == {}
    assert voting({"a": replace(HERE, address="http://10.0.0.2:9250")}, senders, NOW) == {}


def test_of_very_many_senders_the_last_have_a_vote() -> None:
    """As many as observers are known."""
    crowd, senders = {f"{number}": HERE for number in range(3 * MOST_OBSERVERS)}, with_sender({}, {}, "", NOW, NOW)
    for name in crowd:
        senders = with_sender(senders, crowd, name, NOW, NOW)
    assert list(senders) == list(crowd)[-MOST_OBSERVERS:]
