"""When the Kubernetes driver looks anew: often enough to notice a lease that ran out, seldom enough to be no burden."""

import json

import pytest

from sidecar.drivers.kubernetes.expectations import Expectations

ONE, TWO = ("uid", "1"), ("uid", "2")


def looks(expectations: Expectations, until: float) -> list[float]:
    """The times at which somebody looks who hears nothing."""
    times = []
    while (look := expectations.next_list()) <= until:
        times.append(look)
        expectations.listed(look, {})
    return times


def lease(duration: object, holder: str = "jm-a") -> str:
    return json.dumps({"holderIdentity": holder, "leaseDuration": duration})


def test_silence_is_looked_into_each_7_s_and_when_the_lease_has_run_out() -> None:
    """A lease of 15 s and its margin of 1.5 s: whoever looks a twentieth of a second later knows, within 2 s of its end."""
    expectations = Expectations()
    expectations.changed(100, "a", ONE, lease(15.0))
    expectations.listed(100, {})
    assert looks(expectations, 140) == [107, 114, 116.55, 123.55, 130.55, 137.55]


@pytest.mark.parametrize(("duration", "first"), [(3, 104.55), ("PT3S", 104.55), (60, 107)])
def test_the_lease_says_itself_when_it_runs_out(duration: object, first: float) -> None:
    """A short one before the first regular look."""
    expectations = Expectations()
    expectations.changed(100, "a", ONE, lease(duration))
    expectations.listed(100, {})
    assert expectations.next_list() == first


@pytest.mark.parametrize("annotation", [None, "", "{", lease("soon"), lease(3, holder="")])
def test_what_is_no_lease_does_not_run_out(annotation: str | None) -> None:
    """Released, missing, or unreadable: it is looked at each 7 s."""
    expectations = Expectations()
    expectations.changed(100, "a", ONE, annotation)
    expectations.listed(100, {})
    assert looks(expectations, 121) == [107, 114, 121]


def test_a_change_that_is_no_renewal_does_not_put_off_the_end_of_a_lease() -> None:
    """A checkpoint or a label is written by whoever, dead leaders or not."""
    expectations = Expectations()
    expectations.changed(100, "a", ONE, lease(15))
    expectations.listed(100, {})
    expectations.changed(110, "a", TWO, lease(15))
    assert expectations.next_list() == 116.55


def test_the_config_map_that_is_silent_longest_decides() -> None:
    """Others that change do not put off the look, one that is gone is not waited for."""
    expectations = Expectations()
    expectations.changed(100, "a", ONE)
    expectations.listed(100, {})
    expectations.changed(105, "b", ONE)
    assert expectations.next_list() == 107
    expectations.changed(106, "a", TWO)
    assert expectations.next_list() == 112
    expectations.changed(107, "b", None)
    assert expectations.next_list() == 113


def test_where_there_is_nothing_it_is_looked_for_each_7_s() -> None:
    """A cluster that comes, in whatever layout, is found within that."""
    expectations = Expectations()
    expectations.listed(100, {})
    assert looks(expectations, 121) == [107, 114, 121]


def test_a_regained_view_starts_the_silence_anew() -> None:
    """While nobody was there to hear, nothing was silent."""
    expectations = Expectations()
    expectations.changed(100, "a", ONE)
    expectations.listed(100, {})
    expectations.reconnected(300)
    expectations.listed(300, {})
    assert looks(expectations, 315) == [307, 314]


def test_what_a_look_showed_first_is_waited_for_and_not_for_long() -> None:
    """The watch gets 1.5 s to tell of it, each change in its order; the last one settles it."""
    expectations = Expectations()
    expectations.changed(100, "a", ONE)
    expectations.listed(110, {"a": TWO, "b": None})
    assert (expectations.caught_up, expectations.next_list(), expectations.list_overdue(111.6)) == (False, 111.5, True)
    expectations.changed(110.1, "b", ONE)
    expectations.changed(110.2, "b", None)
    assert not expectations.caught_up
    expectations.changed(110.3, "a", TWO)
    assert (expectations.caught_up, expectations.list_overdue(111.6)) == (True, False)


def test_where_there_is_always_something_to_hear_it_looks_all_the_same() -> None:
    """At least every five minutes, also when the server ends no watch."""
    expectations = Expectations()
    expectations.listed(100, {})
    for second in range(100, 401):
        expectations.changed(second, "a", ("uid", str(second)))
    assert (expectations.list_overdue(390), expectations.list_overdue(400)) == (False, True)
