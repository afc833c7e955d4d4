"""A reload and a restart lose nothing, notify nothing twice, and notify new receivers."""

from collections.abc import Callable

import pytest
from msgspec.structs import replace

from sidecar.core.alerting.alerts import Alerts
from sidecar.core.moment import SECOND
from sidecar.core.policy.routing import Route
from tests.core.groups import (
    ALL,
    D_EVENT,
    D_HIGH,
    D_LOW,
    EVENT,
    HIGH,
    HIGH_SILENCES_LOW,
    LOW,
    R_EVENT,
    R_LOW,
    TWO,
    Groups,
    only,
)


def _reloads(groups: Groups) -> Groups:
    return groups.loads(groups.policy)


@pytest.mark.parametrize("takes_up", [_reloads, Groups.is_killed])
@pytest.mark.parametrize("at", [2, 20, 130, 3640])
def test_the_same_tree_changes_nothing(takes_up: Callable[[Groups], Groups], at: int) -> None:
    """Reloaded or restarted at any point: notified the same, at the same times, as without."""

    def history(groups: Groups, until: int) -> Groups:
        acts: dict[int, Callable[[], Groups]] = {
            0: lambda: groups.fires(D_LOW, D_EVENT),
            30: lambda: groups.fires(D_HIGH),
            100: lambda: groups.ends(D_LOW),
            3900: lambda: groups.ends(D_HIGH),
            4100: lambda: groups.fires(R_EVENT),
        }
        for second in range(groups.second, until):
            if second in acts:
                acts[second]()
            groups.waits(1)
        return groups

    once = history(Groups(ALL, HIGH_SILENCES_LOW), 5000)
    again = history(Groups(ALL, HIGH_SILENCES_LOW), at)
    before = again.alerts.groups
    takes_up(again)
    assert again.alerts.groups == before
    history(again, 5000)
    assert (again.notices, again.suppressed) == (once.notices, once.suppressed)
    assert [reason for _, _, reason, _ in once.notices] == [
        *("FIRST", "GREW", "SHRANK", "REPEAT_INTERVAL_ELAPSED", "RESOLVED", "FIRST")
    ]


def test_a_new_receiver_hears_of_what_lasts_as_first() -> None:
    """The old one hears nothing twice; what is over is not notified to the new one."""
    ops = replace(ALL, key="{}/ops")
    groups = Groups(replace(ALL, routes=(ops,))).fires(D_LOW, R_LOW).waits(10).ends(R_LOW)
    child = Route("oncall", "{}/oncall", only(LOW), group_wait=1 * SECOND, continues=True)
    groups.loads(replace(groups.policy, route=replace(ALL, routes=(child, ops))))
    groups.waits(5)
    assert groups.notices[1:] == [(11, "oncall", "FIRST", ["Low dispatcher"])]


def test_a_new_receiver_does_not_hear_of_an_event_that_was_notified_and_is_over() -> None:
    """It lasted, was notified, and its end is still to be notified: to whoever heard of it alone."""
    event = replace(D_EVENT, ended=None)
    ops = replace(ALL, key="{}/ops")
    groups = Groups(replace(ALL, routes=(ops,))).fires(event).waits(10).ends(event)
    child = Route("oncall", "{}/oncall", group_wait=1 * SECOND, continues=True)
    groups.loads(replace(groups.policy, route=replace(ALL, routes=(child, ops)))).waits(100)
    assert [(receiver, reason) for _, receiver, reason, _ in groups.notices] == [("ops", "FIRST"), ("ops", "RESOLVED")]
    groups = Groups().fires(event).waits(10).ends(event)
    groups.loads(replace(groups.policy, route=replace(ALL, receiver="oncall"))).waits(100)
    assert [(receiver, reason) for _, receiver, reason, _ in groups.notices] == [("ops", "FIRST")]


@pytest.mark.parametrize("takes_up", [_reloads, Groups.is_killed])
@pytest.mark.parametrize("at", [1, 12])
def test_an_event_is_notified_once_to_whoever_waits_shorter(takes_up: Callable[[Groups], Groups], at: int) -> None:
    """A reload or a restart when one receiver was notified and the other was not yet; the first one's group may be forgotten by then."""
    first, second = TWO.routes
    event = only(EVENT)
    slow = replace(second, matchers=event, group_wait=30 * SECOND)
    groups = Groups(replace(ALL, routes=(replace(first, matchers=event), slow))).fires(D_EVENT).waits(at)
    takes_up(groups).waits(60)
    assert [(second, receiver, reason) for second, receiver, reason, _ in groups.notices] == [
        (1, "oncall", "FIRST"),
        (30, "team", "FIRST"),
    ]


def test_an_alert_that_moves_to_a_group_that_is_there_is_notified_in_its_interval() -> None:
    """Not with the next repetition, hours later."""
    split = replace(ALL, routes=(Route("oncall", "{}/0", only(HIGH)),))
    groups = Groups(split).fires(D_LOW, D_HIGH).waits(100)
    groups.loads(replace(groups.policy, route=ALL)).waits(70)
    assert groups.notices[2:] == [(105, "ops", "GREW", ["High dispatcher", "Low dispatcher"])]


def test_a_rule_that_is_gone_takes_its_alerts_with_it() -> None:
    """The others in the group go on, and are repeated and resolved in their time."""
    groups = Groups().fires(D_LOW, D_HIGH).waits(10)
    groups.loads(replace(groups.policy, rules=(LOW,))).waits(3600).ends(D_LOW).waits(70)
    assert [(reason, names) for _, _, reason, names in groups.notices[1:]] == [
        ("REPEAT_INTERVAL_ELAPSED", ["Low dispatcher"]),
        ("RESOLVED", ["Low dispatcher is over"]),
    ]


def test_new_external_labels_make_new_groups_only_where_groups_are_by_them() -> None:
    """By cluster: nothing is notified again. By `env`: another group, notified as first."""
    for group_by, expected in ((("cluster_id",), 1), (("cluster_id", "env"), 2)):
        groups = Groups(replace(ALL, group_by=group_by)).fires(D_LOW).waits(10)
        groups.loads(replace(groups.policy, external_labels={"env": "prod"})).waits(100)
        assert [reason for _, _, reason, _ in groups.notices] == ["FIRST"] * expected
        ((member,),) = [[*group.members.values()] for group in groups.alerts.groups.values()]
        assert member.alert.labels["env"] == "prod"


def test_a_group_that_was_notified_of_events_is_still_known_after_a_reload() -> None:
    """Nothing is left in it: what comes next within the interval is GREW, not FIRST, and not before its time."""
    groups = Groups().fires(D_EVENT).waits(10)
    groups.loads(groups.policy).fires(R_EVENT).waits(60)
    assert [(second, reason) for second, _, reason, _ in groups.notices] == [(5, "FIRST"), (65, "GREW")]
    groups.waits(60)
    assert groups.alerts == Alerts()


def test_a_group_of_another_receiver_is_another_group() -> None:
    """The receiver of the route changed: the new one is notified of what lasts, of events that were notified it is not."""
    groups = Groups().fires(D_LOW, D_EVENT).waits(10)
    groups.loads(replace(groups.policy, route=replace(ALL, receiver="oncall"))).waits(10)
    assert groups.notices[1:] == [(15, "oncall", "FIRST", ["Low dispatcher"])]


def test_what_nobody_was_notified_of_is_not_lost_in_a_reload() -> None:
    """An event waits, the receiver changes: the new one is notified."""
    groups = Groups().fires(D_EVENT).waits(2)
    groups.loads(replace(groups.policy, route=replace(ALL, receiver="oncall"))).waits(10)
    assert [(receiver, names) for _, receiver, _, names in groups.notices] == [("oncall", ["Event dispatcher is over"])]


def test_an_event_that_one_receiver_still_waits_for_is_notified_to_who_takes_its_place() -> None:
    """One was notified and the other was not yet, and another policy has other routes: what was not notified is still to be notified."""
    event = replace(D_EVENT, ended=None)
    first, second = TWO.routes
    both = (replace(first, matchers=only(EVENT)), replace(second, matchers=only(EVENT), group_wait=30 * SECOND))
    groups = Groups(replace(ALL, routes=both)).fires(event).waits(5).ends(event)
    groups.loads(replace(groups.policy, route=ALL)).waits(100)
    assert [(receiver, reason) for _, receiver, reason, _ in groups.notices] == [("oncall", "FIRST"), ("ops", "FIRST")]


def test_an_event_that_one_receiver_still_waits_for_is_notified_to_it_by_another_route() -> None:
    """The other one's group is there as before, and waits to notify that it is resolved."""
    event = replace(D_EVENT, ended=None)
    first, second = TWO.routes
    fast = replace(first, matchers=only(EVENT), group_interval=60 * SECOND)
    slow = replace(second, matchers=only(EVENT), group_wait=30 * SECOND)
    groups = Groups(replace(ALL, routes=(fast, slow))).fires(event).waits(5).ends(event)
    groups.loads(replace(groups.policy, route=replace(ALL, routes=(fast, replace(slow, key="{}/2"))))).waits(100)
    assert [(receiver, reason) for _, receiver, reason, _ in groups.notices] == [
        ("oncall", "FIRST"),
        ("team", "FIRST"),
        ("oncall", "RESOLVED"),
    ]


def test_a_shorter_repeat_interval_counts_at_once() -> None:
    """What was notified lasts: it is not repeated only after the interval of the policy before."""
    groups = Groups().fires(D_LOW).waits(100)
    groups.loads(replace(groups.policy, route=replace(ALL, repeat_interval=300 * SECOND))).waits(900)
    assert [(second, reason) for second, _, reason, _ in groups.notices] == [
        (5, "FIRST"),
        (305, "REPEAT_INTERVAL_ELAPSED"),
        (605, "REPEAT_INTERVAL_ELAPSED"),
        (905, "REPEAT_INTERVAL_ELAPSED"),
    ]


def test_a_shorter_wait_counts_at_once() -> None:
    """News that wait for the end of a long wait or interval are notified in those of the new policy."""
    slow = replace(ALL, group_wait=600 * SECOND, group_interval=1800 * SECOND)
    groups = Groups(slow).fires(D_LOW).waits(10)
    groups.loads(replace(groups.policy, route=ALL)).waits(60)
    assert [reason for _, _, reason, _ in groups.notices] == ["FIRST"]
    groups = Groups(slow).fires(D_LOW).waits(700).ends(D_LOW).waits(10)
    groups.loads(replace(groups.policy, route=ALL)).waits(60)
    assert [reason for _, _, reason, _ in groups.notices] == ["FIRST", "RESOLVED"]
