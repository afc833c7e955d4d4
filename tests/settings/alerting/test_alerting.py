"""Rules, routes, inhibitions, intervals and templates as they stand in a file, and every mistake in them."""

from collections.abc import Callable
from datetime import UTC, datetime

import pytest

from sidecar.core.alerting.compose import EXAMPLE
from sidecar.core.moment import SECOND
from sidecar.core.policy.policy import Destination, Heartbeat, Rule
from sidecar.core.policy.routing import InhibitRule, Matcher, Operator, Route, TimeInterval, TimeRange, every
from sidecar.core.policy.triggers import Trigger
from sidecar.settings import Settings, SettingsError, load
from sidecar.settings.alerting.routes import matchers
from sidecar.settings.file.setting import Setting
from tests.settings.conftest import Write

Read = Callable[[str], Settings]
THREE = "receivers: [{name: ops, urls: [x]}, {name: oncall, urls: [y]}, {name: night, urls: [z]}]\n"
MINUTE = 60 * SECOND


@pytest.fixture
def read(write: Write) -> Read:
    """Loads a configuration."""
    return lambda text: load(write(text), {"zookeeper": "zk"})


def problem(read: Read, text: str) -> str:
    with pytest.raises(SettingsError) as error:
        read(text)
    return str(error.value).partition("sidecar.yaml:")[2]


def test_a_child_has_what_it_does_not_say_from_its_parent(read: Read) -> None:
    """Receiver, grouping and waits; never matchers, `continue` or times."""
    settings = read(
        THREE
        + """
route:
  receiver: ops
  group_by: [cluster_id, alert]
  group_wait: 1s
  repeat_interval: 1h
  routes:
    - matchers: [severity="critical", 'cluster_id=~"orders-.*"']
      receiver: oncall
      continue: true
      mute_time_intervals: [weekend]
      routes:
        - matchers: [alert!=FlinkNoLeader]
          group_interval: 2m
    - matchers: ['{component="job",job_id!~"0+"}']
      group_by: [...]
      active_time_intervals: [weekend]
time_intervals: [{name: weekend, time_intervals: [{weekdays: ['saturday', sunday]}]}]
"""
    )
    weekend = TimeInterval("weekend", (TimeRange(weekdays=((6, 6), (0, 0))),))
    critical = Matcher("severity", Operator.EQUAL, "critical")
    orders = Matcher("cluster_id", Operator.MATCHES, "orders-.*")
    other = Matcher("alert", Operator.NOT_EQUAL, "FlinkNoLeader")
    jobs = (Matcher("component", Operator.EQUAL, "job"), Matcher("job_id", Operator.MATCHES_NOT, "0+"))
    root = Route("ops", "{}", (), ("cluster_id", "alert"), 1 * SECOND, MINUTE, 60 * MINUTE)
    first = '{}/{severity="critical",cluster_id=~"orders-.*"}'
    below = Route(
        "oncall", f'{first}/{{alert!="FlinkNoLeader"}}', (other,), root.group_by, SECOND, 2 * MINUTE, 60 * MINUTE
    )
    expected = Route(
        *("ops", "{}", (), root.group_by, SECOND, MINUTE, 60 * MINUTE, False),
        (
            Route(
                *("oncall", first, (critical, orders), root.group_by, SECOND, MINUTE, 60 * MINUTE, True),
                (below,),
                (weekend,),
            ),
            Route(
                *("ops", '{}/{component="job",job_id!~"0+"}', jobs, ("...",), SECOND, MINUTE, 60 * MINUTE, False),
                (),
                (),
                (weekend,),
            ),
        ),
    )
    assert settings.route == expected


def test_routes_with_the_same_matchers_are_distinguished(read: Read) -> None:
    """Groups have the name of their route: no two routes share one."""
    text = "route: {receiver: ops, routes: [{receiver: oncall, continue: true}, {receiver: night}, {receiver: ops}]}\n"
    keys = [route.key for route in every(read(THREE + text).route)]
    assert keys == ["{}", "{}/{}", "{}/1{}", "{}/2{}"]


def test_all_alerts_of_a_cluster_are_one_group_by_default(read: Read) -> None:
    """Also in routes below: one incident for each cluster and receiver."""
    root = read(THREE + "route: {receiver: ops, routes: [{receiver: oncall, matchers: [severity=critical]}]}\n").route
    outage = {"cluster_id": "orders", "alert": "FlinkNoLeader", "severity": "critical"}
    assert [route.group_labels(outage) for route in every(root)] == [{"cluster_id": "orders"}] * 2


def test_the_only_receiver_is_notified_of_everything_also_beside_a_heartbeat(read: Read) -> None:
    """A dead man's switch is no receiver of alerts."""
    settings = read("receivers: [{name: ops, urls: [x]}, {name: dead, urls: [y], heartbeat: 1m}]\n")
    assert settings.route == Route("ops")
    assert settings.policy().heartbeats == (Heartbeat(Destination("dead", 0), MINUTE),)


def test_inhibition_has_both_sides_and_what_must_be_equal(read: Read) -> None:
    """Matchers as in routes; external labels are labels too."""
    settings = read(
        "external_labels: {env: prod}\n"
        "inhibit_rules: [{source_matchers: [alert=A], target_matchers: ['env=~\"p.*\"'], equal: [cluster_id, env]}]\n"
        "rules: []\n"
    )
    assert settings.inhibit_rules == (
        InhibitRule(
            (Matcher("alert", Operator.EQUAL, "A"),), (Matcher("env", Operator.MATCHES, "p.*"),), ("cluster_id", "env")
        ),
    )


def test_times_are_alertmanagers(read: Read) -> None:
    """Minutes, weekdays, days from both ends of a month, months by name or number, years, a place."""
    settings = read(
        THREE
        + """
route: {receiver: ops, routes: [{matchers: [severity=info], mute_time_intervals: [odd]}]}
time_intervals:
  - name: odd
    time_intervals:
      - times: [{start_time: '09:30', end_time: '24:00'}]
        weekdays: ['monday:friday', Sunday]
        days_of_month: ['1:5', '-3:-1', '7']
        months: ['january:march', '12']
        years: ['2026:2030', '2040']
        location: UTC
"""
    )
    (interval,) = settings.route.routes[0].mute
    assert interval.ranges == (
        TimeRange(
            times=((570, 1440),),
            weekdays=((1, 5), (0, 0)),
            days_of_month=((1, 5), (-3, -1), (7, 7)),
            months=((1, 3), (12, 12)),
            years=((2026, 2030), (2040, 2040)),
            zone=UTC,
        ),
    )


def test_a_place_has_its_own_clock(read: Read) -> None:
    """09:00 in Berlin is 08:00 UTC in winter and 07:00 in summer."""
    settings = read(
        THREE
        + "route: {receiver: ops, routes: [{active_time_intervals: [office]}]}\n"
        + "time_intervals: [{name: office, time_intervals: [{times: [{start_time: '09:00', end_time: '17:00'}], "
        + "location: Europe/Berlin}]}]\n"
    )
    (interval,) = settings.route.routes[0].active

    def at(month: int, hour: int) -> int:
        return int(datetime(2026, month, 2, hour, 30, tzinfo=UTC).timestamp()) * SECOND

    assert [interval.contains(at(month, hour)) for month in (1, 7) for hour in (7, 8, 14, 15, 16)] == [
        *(False, True, True, True, False),
        *(True, True, True, False, False),
    ]


def test_a_rule_counts_failovers(read: Read) -> None:
    """How many within how long."""
    (rule,) = read("rules: [{alert: A, on: episodes, count: 3, within: 1h}]\n").rules
    assert rule == Rule("A", Trigger.EPISODES, count=3, within=60 * MINUTE)


def test_a_summary_is_a_template_over_the_documented_fields(read: Read) -> None:
    """CONTRACTS' own example."""
    text = (
        "{{ cluster_id }}: leader moved {{ before.host }} → {{ after.host }} after {{ vacant_seconds }} s ({{ cause }})"
        "{% if jobs_away %}, {{ jobs_away }} jobs wait{% endif %} {{ components | join(', ') | upper }}"
    )
    (rule,) = read(f'rules:\n- alert: A\n  on: leader_changed\n  summary: "{text}"\n').rules
    assert rule.summary is not None
    assert rule.summary(EXAMPLE) == (
        "orders: leader moved jm-0 → jm-1 after 4.25 s (jobmanager_lost), 1 jobs wait DISPATCHER, RESOURCE_MANAGER, REST_SERVER"
    )
    with pytest.raises(ValueError, match="'cluster_id' is undefined"):
        rule.summary({})


@pytest.mark.parametrize(
    ("template", "said"),
    [
        ("{{ cluster }}", 'there is no field cluster: did you mean "cluster_id"?'),
        ("{{ before.hsot }}", "fails on an example: 'dict object' has no attribute 'hsot'"),
        ("{{ cluster_id", "is not a Jinja2 template: unexpected end of template, expected 'end of print statement'."),
        ("{{ 'x' * 10 }}", "fails on an example: * is not allowed here"),
        ("{{ '%1000000000d' % 1 }}", "fails on an example: % is not allowed here"),
        ("{{ cluster_id.center(1000000000) }}", "fails on an example: "),
        ("{{ cluster_id | center(1000000000) }}", "is not a Jinja2 template: No filter named 'center'."),
        ("{{ range(10) }}", "there is no field range: "),
        (
            "{{ cluster_id.__class__.__mro__ }}",
            "fails on an example: access to attribute '__class__' of 'str' object is unsafe.",
        ),
        ("{% include 'x' %}", "fails on an example: no loader for this environment specified"),
        ("{{ count / 0 }}", "fails on an example: division by zero"),
        ("x" * 2001, "is longer than 2000 characters"),
    ],
)
def test_a_template_can_do_no_harm(read: Read, template: str, said: str) -> None:
    """Unknown fields, calls, files, what grows without bounds: one line at start, and nothing of it ever runs."""
    found = problem(read, f'rules:\n- alert: A\n  on: vacant\n  summary: "{template}"\n')
    assert found.startswith(f"4: rules[0].summary: {said}")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("rules: [{alert: A, on: episodes, within: 1h}]\n", "1: rules[0]: count is missing"),
        ("rules: [{alert: A, on: vacant, count: 3}]\n", "1: rules[0].count: is for on: episodes only: remove it"),
        ("rules: [{alert: A, on: vacant, within: 6h}]\n", "1: rules[0].within: is for on: episodes only: remove it"),
        ("rules: [{alert: A, on: vacant, age: 3d}]\n", "1: rules[0].age: is for on: drill_overdue only: remove it"),
        ("route: {matchers: [severity=info]}\n", "1: route.matchers: the first route takes every alert, always: "),
        ("route: {continue: true}\n", "1: route.continue: the first route takes every alert, always: "),
        (
            THREE + "route: {receiver: ops, routes: [{matchers: [alertname=x]}]}\n",
            '2: route.routes[0].matchers[0]: no alert has a label "alertname": did you mean "alert"?',
        ),
        (
            THREE + "route: {receiver: ops, routes: [{matchers: ['alert']}]}\n",
            '2: route.routes[0].matchers[0]: "alert" is not a matcher: write it like severity="critical", with one of = != =~ !~',
        ),
        (
            THREE + 'route: {receiver: ops, routes: [{matchers: [\'"alert"="x"\']}]}\n',
            '2: route.routes[0].matchers[0]: \'"alert"="x"\' is not a matcher: write it like',
        ),
        (
            THREE + "route: {receiver: ops, routes: [{matchers: ['alert=a b']}]}\n",
            '2: route.routes[0].matchers[0]: "alert=a b" is not a matcher: write it like',
        ),
        (
            THREE + "route: {receiver: ops, routes: [{matchers: ['slack://T0ken/s3cret']}]}\n",
            "2: route.routes[0].matchers[0]: <not shown: it may be a secret> is not a matcher: write it like",
        ),
        (
            THREE + "route: {receiver: ops, routes: [{matchers: ['alert=~\"(\"']}]}\n",
            '2: route.routes[0].matchers[0]: the pattern of "alert" is not a regular expression: missing ), unterminated subpattern',
        ),
        (
            THREE + "route: {receiver: ops, routes: [{receiver: oncal}]}\n",
            '2: route.routes[0].receiver: "oncal" is not one of the receivers: did you mean "oncall"?',
        ),
        (
            THREE + "route: {receiver: ops, group_by: [pod]}\n",
            '2: route.group_by[0]: "pod" is a label that no alert has: expected one of alert, check, cluster_id, ',
        ),
        (THREE + "route: {receiver: ops, group_by: [alert, alert]}\n", "2: route.group_by: names a label twice"),
        (
            THREE + "route: {receiver: ops, routes: [{mute_time_intervals: [x]}]}\n",
            '2: route.routes[0].mute_time_intervals[0]: "x" is not one of the time_intervals: there are none',
        ),
        (
            "receivers: [{name: a, urls: [x], heartbeat: 1s}]\n",
            '1: receivers[0].heartbeat: "1s" is too short: give at least 10s',
        ),
        (
            "receivers: [{name: a, urls: [x], heartbeat: 1m}]\nroute: {receiver: a}\n",
            '2: route.receiver: "a" is not one of the receivers: there are none',
        ),
        ("inhibit_rules: [{target_matchers: [alert=a]}]\n", "1: inhibit_rules[0]: source_matchers is missing"),
        (
            "inhibit_rules: [{source_matchers: [alert=a], target_matchers: [alert=b], equal: [clusterid]}]\n",
            '1: inhibit_rules[0].equal[0]: "clusterid" is a label that no alert has: did you mean "cluster_id"?',
        ),
        ("time_intervals: [{name: a}]\n", " time_intervals[0].time_intervals: lists no times: give at least one"),
        (
            "time_intervals: [{name: a, time_intervals: [{times: [{start_time: '22:00', end_time: '06:00'}]}]}]\n",
            '1: time_intervals[0].time_intervals[0].times[0].end_time: "06:00" is not after start_time: ',
        ),
        (
            "time_intervals: [{name: a, time_intervals: [{weekdays: [mon]}]}]\n",
            '1: time_intervals[0].time_intervals[0].weekdays[0]: "mon" is unknown: ',
        ),
        (
            "time_intervals: [{name: a, time_intervals: [{days_of_month: ['32']}]}]\n",
            '1: time_intervals[0].time_intervals[0].days_of_month[0]: "32" is not a day of a month: ',
        ),
        (
            "time_intervals: [{name: a, time_intervals: [{months: ['march:january']}]}]\n",
            '1: time_intervals[0].time_intervals[0].months[0]: "march:january" ends before it begins',
        ),
        (
            "time_intervals: [{name: a, time_intervals: [{location: Mars}]}]\n",
            '1: time_intervals[0].time_intervals[0].location: "Mars" is not a known time zone: ',
        ),
        ("http: {external_url: 'ftp://x'}\n", "1: http.external_url: must be like https://host/path, "),
    ],
)
def test_what_does_not_fit_is_one_line(read: Read, text: str, said: str) -> None:
    """File, line, key, what is wrong, and what was meant where that can be guessed."""
    assert problem(read, text).startswith(said)


@pytest.mark.parametrize(
    ("matcher", "hint"),
    [
        ('"alert"="x"', "the name of a label is written without quotes"),
        ("alert=a b", "a value with a blank needs quotes around it"),
        ('severity="info",alert=~a b', "a value with a blank needs quotes around it"),
    ],
)
def test_a_matcher_of_another_grammar_has_a_hint(matcher: str, hint: str) -> None:
    """What newer Alertmanagers write, and what no grammar reads."""
    with pytest.raises(SettingsError, match=f"['\"]{matcher}['\"] is not a matcher: .*; {hint}$"):
        matchers(Setting(matcher, "--matcher"), None)
