"""When the Kubernetes driver looks anew: often enough to notice a lease that ran out, seldom enough to be no burden."""

import json

import pytest

from sidecar.core.moment import Moment
from sidecar.drivers.kubernetes.expectations import Expectations, is_older

ONE, TWO = ("uid", "1"), ("uid", "2")
THEN = Moment(1, 1)


def looked(now: float, *held: str | None) -> Expectations:
    """Somebody who has just looked, and found ConfigMaps with these leases."""
    expectations = Expectations()
    for name, annotation in zip("abc", held, strict=False):
        expectations.leases.observed(now, name, annotation)
    look(expectations, now)
    return expectations


def look(expectations: Expectations, now: float) -> None:
    """Everything is listed, and nothing is new."""
    while name := expectations.leases.expired(now):
        expectations.leases.confirmed(name)
    expectations.asked(now, THEN, few=True)
    assert expectations.confirmed(None) == THEN


def looks(expectations: Expectations, until: float) -> list[float]:
    """The times at which somebody looks who hears nothing."""
    times = []
    while (due := expectations.deadline()) <= until:
        times.append(due)
        look(expectations, due)
    return times


def lease(duration: object, holder: str = "jm-a") -> str:
    return json.dumps({"holderIdentity": holder, "leaseDuration": duration})


def test_silence_is_looked_into_each_7_s_and_when_the_lease_has_run_out() -> None:
    """A lease of 15 s and its margin of 1.5 s: whoever looks a twentieth of a second later knows, within 2 s of its end."""
    assert looks(looked(100, lease(15.0)), 140) == [107, 114, 116.55, 123.55, 130.55, 137.55]


@pytest.mark.parametrize(("duration", "first"), [(3, 104.55), ("PT3S", 104.55), (60, 107)])
def test_the_lease_says_itself_when_it_runs_out(duration: object, first: float) -> None:
    """A short one before the first regular look, also while others are heard all the time."""
    expectations = looked(100, lease(duration))
    assert expectations.deadline() == first
    expectations.heard(first)
    assert (expectations.is_due(first - 0.1), expectations.is_due(first + 0.1)) == (False, True)


@pytest.mark.parametrize("annotation", [None, "", "{", lease("soon"), lease(3, holder="")])
def test_what_is_no_lease_does_not_run_out(annotation: str | None) -> None:
    """Released, missing, or unreadable: it is looked at each 7 s."""
    assert looks(looked(100, annotation), 121) == [107, 114, 121]


def test_only_a_renewal_puts_off_the_end_of_a_lease() -> None:
    """A checkpoint or a label is written by whoever, dead leaders or not."""
    expectations = looked(100, lease(15))
    expectations.heard(110)
    expectations.leases.observed(110, "a", lease(15))
    assert expectations.deadline() == 116.55
    expectations.leases.observed(111, "a", lease(15, holder="jm-b"))
    assert expectations.leases.next() == 127.55


def test_the_lease_that_ends_first_decides() -> None:
    """Of those that are there: one that is gone is not waited for."""
    expectations = looked(100, lease(4), lease(3))
    assert expectations.deadline() == 104.55
    expectations.leases.removed("b")
    assert expectations.deadline() == 105.55


def test_others_that_are_heard_do_not_put_off_the_look() -> None:
    """A look each 7 s, at the next event; after an event, 7 s of silence."""
    expectations = looked(100, None)
    expectations.heard(106)
    assert (expectations.is_due(106), expectations.is_due(107.1), expectations.deadline()) == (False, True, 113)


def test_a_regained_view_starts_the_leases_anew() -> None:
    """While nobody was there to hear, nothing was silent."""
    expectations = looked(100, lease(15))
    expectations.forget()
    expectations.heard(300)
    expectations.leases.observed(300, "a", lease(15), anew=True)
    look(expectations, 300)
    assert looks(expectations, 318) == [307, 314, 316.55]


def test_what_a_look_showed_first_is_waited_for_and_not_for_long() -> None:
    """The watch gets 1.5 s to report it, each change in its order; the last one settles it."""
    expectations = looked(100, None)
    expectations.undelivered = {"a": TWO, "b": None}
    expectations.asked(110, THEN, few=True)
    assert (expectations.confirmed("9"), expectations.deadline(), expectations.given_up(111.6)) == (None, 111.5, True)
    expectations.delivered("b", ONE)
    expectations.delivered("b", None)
    assert (expectations.confirmed("9"), expectations.caught_up) == (None, False)
    expectations.delivered("a", TWO)
    assert (expectations.confirmed("9"), expectations.given_up(111.6), expectations.caught_up) == (THEN, False, True)
    assert expectations.confirmed("9") is None  # once


def test_one_that_is_read_of_many_says_how_far_the_watch_has_to_be() -> None:
    """As long as the watch delivers it has 10 s to get there, else 1.5 s."""
    expectations = looked(100, None)
    expectations.asked(110, THEN, "1000")
    assert (expectations.confirmed("999"), expectations.deadline()) == (None, 111.5)
    expectations.heard(119)
    assert (expectations.deadline(), expectations.given_up(119), expectations.given_up(120.1)) == (120, False, True)
    assert expectations.confirmed("1001") == THEN


def test_whoever_is_asked_to_wait_looks_later() -> None:
    """And not earlier because nothing is heard, or a lease has run out: that is looked into then."""
    for held in (None, lease(3)):
        expectations = looked(100, held)
        expectations.postponed(107, 20)
        assert (expectations.is_due(126), expectations.deadline(), expectations.is_due(127.1)) == (False, 127, True)
    assert expectations.leases.expired(127.1) == "a"


@pytest.mark.parametrize(
    ("one", "other", "older"),
    [("9", "10", True), ("10", "9", False), ("x", "x", False), ("x", "y", None), ("1" * 20, "9", None)],
)
def test_resource_versions_are_numbers_as_far_as_is_known(one: str, other: str, older: bool | None) -> None:
    """Nothing is concluded from others."""
    assert is_older(one, other) is older
