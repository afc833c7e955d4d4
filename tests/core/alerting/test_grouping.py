"""When a group is notified, of what, and why: by the clock, over mute intervals and inhibition, to each receiver apart."""

from msgspec.structs import replace

from sidecar.core.alerting.alerts import Alerts, Group, Member
from sidecar.core.alerting.grouping import brought_forward
from sidecar.core.moment import Moment
from sidecar.core.policy.routing import InhibitRule, Route, TimeInterval, TimeRange
from tests.core.groups import (
    ALL,
    D_EVENT,
    D_HIGH,
    D_LOW,
    EVENT,
    HIGH,
    HIGH_SILENCES_LOW,
    LOW,
    NIGHT,
    R_EVENT,
    R_HIGH,
    R_LOW,
    TWO,
    Groups,
    only,
)
from tests.kit.cluster import CLUSTER

# -- one group ---------------------------------------------------------------------------------------------------------


def test_a_group_lives_from_first_to_resolved() -> None:
    """Each reason once: the news first, then what is over, then what still holds."""
    groups = Groups().fires(D_LOW).waits(3).fires(R_LOW).waits(17)
    groups.fires(D_HIGH).waits(60).ends(R_LOW).waits(60)
    groups.waits(3700).ends(D_LOW, D_HIGH).waits(3600)
    assert groups.notices == [
        (5, "ops", "FIRST", ["Low dispatcher", "Low rest_server"]),
        (25, "ops", "GREW", ["High dispatcher", "Low dispatcher", "Low rest_server"]),
        (85, "ops", "SHRANK", ["Low rest_server is over", "Low dispatcher", "High dispatcher"]),
        (3685, "ops", "REPEAT_INTERVAL_ELAPSED", ["Low dispatcher", "High dispatcher"]),
        (3845, "ops", "RESOLVED", ["Low dispatcher is over", "High dispatcher is over"]),
    ]
    assert groups.alerts == Alerts()


def test_news_long_after_the_last_ones_wait_for_what_comes_with_them() -> None:
    """Ten minutes after the last notice: group_wait, not at once and not group_interval."""
    groups = Groups().fires(D_LOW).waits(600).fires(R_LOW).waits(2).fires(D_HIGH).waits(60)
    assert [(second, reason) for second, _, reason, _ in groups.notices] == [(5, "FIRST"), (605, "GREW")]


def test_a_group_that_gets_worse_is_notified_at_once_once_in_each_interval() -> None:
    """A critical alert does not wait behind a warning, nor behind other critical ones; what is no worse than the last message does."""
    groups = Groups().fires(D_LOW).waits(6).fires(D_HIGH).waits(6).fires(R_HIGH).waits(60).ends(D_LOW, D_HIGH, R_HIGH)
    groups.waits(61)
    assert [(second, reason) for second, _, reason, _ in groups.notices] == [
        (5, "FIRST"),
        (11, "GREW"),
        (71, "GREW"),
        (131, "RESOLVED"),
    ]
    groups.fires(replace(D_LOW, id="anew")).waits(6)
    assert groups.notices[4][::2] == (138, "GREW")
    groups.fires(replace(D_HIGH, id="anew too")).waits(6)
    assert groups.notices[5][::2] == (144, "GREW")
    groups.fires(replace(R_HIGH, id="the third")).waits(60)
    assert groups.notices[6][::2] == (204, "GREW")


def test_what_is_muted_or_inhibited_hastens_nothing() -> None:
    """It is not notified when the mute time ends sooner than anything else would be."""
    groups = Groups(ALL, InhibitRule(only(LOW), only(HIGH)))
    groups.fires(D_LOW).waits(6).fires(D_HIGH).waits(6).fires(R_LOW).waits(100)
    assert [(second, reason) for second, _, reason, _ in groups.notices] == [(5, "FIRST"), (65, "GREW")]


def test_what_only_ended_waits_for_the_interval_though_an_inhibited_alert_made_its_group_due() -> None:
    """One component after the other gets its leader, and inhibits that it has changed: that is said together."""
    groups = Groups(ALL, InhibitRule(only(LOW), only(HIGH))).fires(D_LOW, R_LOW, replace(D_LOW, id="third")).waits(6)
    groups.ends(D_LOW).fires(D_HIGH).waits(6).ends(R_LOW).fires(R_HIGH).waits(60)
    assert groups.notices[1:] == [(65, "ops", "SHRANK", ["Low dispatcher is over", "Low rest_server is over", "third"])]


def test_another_rule_hastens_a_group_once_in_each_interval_and_again_only_if_it_is_worse() -> None:
    groups = Groups().fires(D_LOW).waits(6).fires(replace(D_EVENT, rule="Third")).waits(6)
    groups.fires(replace(R_EVENT, rule="Fourth")).waits(6).fires(D_HIGH).waits(6)
    assert [(second, reason) for second, _, reason, _ in groups.notices] == [(5, "FIRST"), (11, "GREW"), (23, "GREW")]


def test_an_event_is_notified_once_and_its_group_is_forgotten_after_the_interval() -> None:
    """Another one within the interval makes the group grow; behind it, it is a first one."""
    groups = Groups().fires(D_EVENT).waits(30).fires(R_EVENT).waits(100).fires(replace(D_EVENT, id="later")).waits(70)
    assert groups.notices == [
        (5, "ops", "FIRST", ["Event dispatcher is over"]),
        (65, "ops", "GREW", ["Event rest_server is over"]),
        (135, "ops", "FIRST", ["later is over"]),
    ]
    assert groups.alerts == Alerts()


def test_a_condition_that_resolves_before_it_was_notified_is_never_notified() -> None:
    """Nor is its end, nor is it recorded; and its group is gone at once."""
    groups = Groups().fires(D_LOW).waits(2).ends(D_LOW).waits(1)
    assert groups.alerts == Alerts()
    groups.waits(100)
    assert (groups.notices, groups.suppressed) == ([], [])


def test_an_event_that_lasts_is_notified_with_its_end_where_it_outlasts_the_wait() -> None:
    """Over by then: FIRST and nothing more. Else FIRST, and RESOLVED."""
    short, long = replace(D_EVENT, ended=None), replace(R_EVENT, ended=None)
    groups = Groups().fires(short).waits(3).ends(short).waits(200)
    groups.fires(long).waits(10).ends(long).waits(100)
    assert [(second, reason) for second, _, reason, _ in groups.notices] == [
        (5, "FIRST"),
        (208, "FIRST"),
        (268, "RESOLVED"),
    ]


def test_what_is_out_of_sight_is_not_repeated_until_it_is_seen() -> None:
    """But alerts of what was observed before are sent."""
    groups = Groups().fires(D_LOW)
    groups.blind = {CLUSTER}
    groups.waits(4000)
    assert groups.notices == [(5, "ops", "FIRST", ["Low dispatcher"])]
    idle = groups.alerts
    groups.waits(2)
    assert groups.alerts is idle
    groups.blind = set()
    groups.waits(1)
    assert groups.notices[1:] == [(4003, "ops", "REPEAT_INTERVAL_ELAPSED", ["Low dispatcher"])]


def test_nothing_changes_while_nothing_is_due() -> None:
    """The same object, from tick to tick: the journal has nothing to write."""
    groups = Groups().fires(D_LOW).waits(6)
    idle = groups.alerts
    groups.waits(3000)
    assert groups.alerts is idle


# -- held back ---------------------------------------------------------------------------------------------------------


def test_what_is_muted_is_notified_when_that_is_over_if_it_still_holds() -> None:
    """Else it is recorded: the condition when it was looked at next, the event at once."""
    groups = Groups(replace(ALL, mute=(NIGHT,)))
    groups.fires(D_LOW, R_LOW, D_EVENT).waits(100).ends(R_LOW).waits(600)
    assert groups.notices == [(645, "ops", "FIRST", ["Low dispatcher"])]
    why = "SUPPRESSED_BY_TIME_INTERVAL"
    assert groups.suppressed == [(5, "ops", why, "Event dispatcher"), (105, "ops", why, "Low rest_server")]


def test_the_end_of_what_was_notified_waits_for_the_end_of_a_mute_interval() -> None:
    """Notified before the mute time, resolved in it: RESOLVED afterwards."""
    late = TimeInterval("late", (TimeRange(times=((8 * 60 + 1, 8 * 60 + 10),)),))
    groups = Groups(replace(ALL, mute=(late,))).fires(D_LOW).waits(100).ends(D_LOW).waits(1000)
    assert [reason for _, _, reason, _ in groups.notices] == ["FIRST", "RESOLVED"]
    assert 600 <= groups.notices[1][0] <= 660
    assert groups.alerts == Alerts()


def test_what_is_inhibited_is_notified_when_its_inhibitor_is_over() -> None:
    """Within group_interval and group_wait; the inhibiting alert itself is sent at once."""
    groups = Groups(ALL, HIGH_SILENCES_LOW).fires(D_LOW, D_HIGH).waits(100).ends(D_HIGH).waits(70)
    assert groups.notices == [
        (5, "ops", "FIRST", ["High dispatcher"]),
        (105, "ops", "GREW", ["Low dispatcher", "High dispatcher is over"]),
    ]


def test_that_something_is_over_is_notified_also_when_it_is_inhibited() -> None:
    """A receiver of the alert must get its resolve."""
    groups = Groups(replace(ALL, group_by=("alert",)), HIGH_SILENCES_LOW)
    groups.fires(D_LOW).waits(10).fires(D_HIGH).waits(10).ends(D_LOW).waits(70)
    low = [(second, reason) for second, _, reason, names in groups.notices if names[0].startswith("Low")]
    assert low == [(5, "FIRST"), (65, "RESOLVED")]


def test_what_is_inhibited_is_not_repeated() -> None:
    """Notified, inhibited for hours, then not: notified again, as a repetition."""
    groups = Groups(replace(ALL, group_by=("alert",)), HIGH_SILENCES_LOW)
    groups.fires(D_LOW).waits(10).fires(D_HIGH).waits(8000).ends(D_HIGH).waits(65)
    low = [(second, reason) for second, _, reason, names in groups.notices if names[0].startswith("Low")]
    assert low[0] == (5, "FIRST")
    assert [reason for _, reason in low[1:]] == ["REPEAT_INTERVAL_ELAPSED"]
    assert 8010 < low[1][0] <= 8075


def test_a_suppressed_event_is_notified_or_recorded_never_both() -> None:
    """It lasted when it was held back, and was over when it was looked at again: recorded."""
    event = replace(D_EVENT, ended=None)
    groups = Groups(ALL, InhibitRule(only(HIGH), only(EVENT)))
    groups.fires(event, D_HIGH).waits(20).ends(event, D_HIGH).waits(200)
    assert [names for _, _, _, names in groups.notices] == [["High dispatcher"], ["High dispatcher is over"]]
    assert [(reason, name) for _, _, reason, name in groups.suppressed] == [
        ("SUPPRESSED_BY_INHIBITION", "Event dispatcher")
    ]


def test_an_alert_that_joins_a_suppressed_group_waits_no_longer_than_group_wait() -> None:
    """The group was flushed without a notification: the new alert starts its wait."""
    groups = Groups(ALL, InhibitRule(only(HIGH), only(LOW)))
    groups.policy = replace(groups.policy, route=replace(ALL, routes=(Route("nobody", "{}/1", only(HIGH)),)))
    groups.fires(D_HIGH, D_LOW).waits(6).fires(D_EVENT).waits(5)
    assert (11, "ops", "FIRST", ["Event dispatcher is over"]) in groups.notices


# -- several receivers -------------------------------------------------------------------------------------------------


def test_each_receiver_is_notified_by_its_own_clock() -> None:
    """`continue`: an alert in two groups, each notified and resolved separately."""
    groups = Groups(TWO).fires(D_LOW).waits(5).ends(D_LOW).waits(30)
    assert [(second, receiver, reason) for second, receiver, reason, _ in groups.notices] == [
        (1, "oncall", "FIRST"),
        (2, "team", "FIRST"),
        (11, "oncall", "RESOLVED"),
        (12, "team", "RESOLVED"),
    ]


def test_a_resolve_goes_only_to_receivers_that_were_notified() -> None:
    """It resolved when the first receiver had been notified and the second had not."""
    groups = Groups(TWO).fires(D_LOW).waits(1).ends(D_LOW).waits(30)
    assert [(receiver, reason) for _, receiver, reason, _ in groups.notices] == [
        ("oncall", "FIRST"),
        ("oncall", "RESOLVED"),
    ]


def test_one_receiver_is_muted_and_the_other_is_notified() -> None:
    """A mute interval belongs to a route, not to an alert."""
    first, second = TWO.routes
    groups = Groups(replace(TWO, routes=(replace(first, mute=(NIGHT,)), second))).fires(D_LOW, D_EVENT).waits(20)
    assert [(receiver, names) for _, receiver, _, names in groups.notices] == [
        ("team", ["Low dispatcher"]),
        ("ops", ["Event dispatcher is over"]),
    ]


def test_a_group_that_waits_for_its_cluster_is_not_due_under_another_policy_either() -> None:
    """A feed's route repeats nothing: its group would be due in a hundred years, and its incident stay open."""
    waits = Member(replace(D_LOW, ended=Moment(9, 9)), notified=True, closes=True)
    group = Group("{}", {}, {D_LOW.id: waits}, notified_at=5)
    assert brought_forward(group, Route("ops"), Moment(10, 10)).flush_at is None
