"""Which observers the ledger names: everybody may write it, and each sidecar goes through versions that do not know of them."""

import pytest
from msgspec import json
from msgspec.structs import replace

from sidecar.core.delivery import ledger_document
from sidecar.core.delivery.claims import claimed
from sidecar.core.delivery.ledger_document import CLOCK_SKEW, LONGEST_NAME, Ledger, announced, believed, written
from sidecar.core.delivery.presence import KEPT, LONGEST_ADDRESS, MOST_OBSERVERS, Presence, others
from tests.core.delivery.test_ledger_document import NOW, VACANCY, A, delivery_of

HERE = Presence(NOW, "http://10.0.0.1:9250", NOW, NOW)


def observers(ledger: Ledger) -> dict[str, Presence]:
    """Those that another sidecar takes from the document."""
    return dict(believed(ledger_document.read(written(ledger, NOW)), NOW).observers)


def test_who_has_announced_itself_is_there_beside_what_is_sent() -> None:
    """A claim of another one changes nothing in it, nor it in the claim."""
    ledger = claimed(announced(Ledger(began=1), "a", HERE), delivery_of(VACANCY), A, NOW)
    later = replace(HERE, at=NOW + 1)
    both = announced(announced(ledger, "b", HERE), "a", later)
    assert observers(both) == {"a": later, "b": HERE}
    assert both.entries == ledger.entries
    assert others(both.observers, "a") == {"b": HERE}


@pytest.mark.parametrize(
    ("name", "presence"),
    [
        ("a", replace(HERE, at=NOW - KEPT - 1)),
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
