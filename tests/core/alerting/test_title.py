"""A title says what has just changed: a lock screen shows nothing else."""

from typing import Final

import pytest
from msgspec.structs import replace

from sidecar.core.alerting.alerts import Alert, Notice, Reason, labels_of
from sidecar.core.alerting.compose import MOST_TITLE, compose
from sidecar.core.flink.leadership import CLUSTER_COMPONENTS, ComponentId
from sidecar.core.moment import SECOND, Moment
from sidecar.core.policy.policy import Policy, Rule, Severity, Store
from sidecar.core.policy.triggers import Trigger
from tests.core.auditor import PAGER
from tests.kit.cluster import CLUSTER, DISPATCHER, START, A, B
from tests.kit.core_sidecar import LEADER_CHANGED, NO_LEADER, POLICY, fail_over, watching, with_destinations

AT: Final = Moment(START, START)
LATER: Final = Moment(START + 63 * SECOND, START + 63 * SECOND)
FLAPPING: Final = Rule("FlinkLeaderFlapping", Trigger.EPISODES, Severity.CRITICAL, count=3, within=3600 * SECOND)
RULES: Final = (LEADER_CHANGED, NO_LEADER, FLAPPING)
ONE_GROUP: Final = replace(with_destinations(PAGER), rules=RULES)
"""All alerts of a cluster are one incident."""


def alert(rule: Rule, component: ComponentId | None = None, cluster_id: str = CLUSTER) -> Alert:
    labels = {**labels_of(POLICY, rule, CLUSTER, component, ours=False), "cluster_id": cluster_id}
    return Alert(f"{rule.alert} {component}", rule.alert, cluster_id, labels, AT, component, "jm-a:6123", count=5)


def over(rule: Rule, component: ComponentId) -> Alert:
    return replace(
        alert(rule, component),
        ended=LATER,
        after="jm-b:6123",
        vacant_seconds=63.0,
        downtime_seconds_at_least=64.0,
        downtime_seconds_at_most=71.5,
        is_event=rule is LEADER_CHANGED,
        count=1,
    )


def titled(reason: Reason, news: int, *alerts: Alert, goes_on: bool = True, policy: Policy = ONE_GROUP) -> str:
    notice = Notice("fingerprint", policy.route, reason, alerts, news, goes_on=goes_on)
    return compose(notice, policy, {}).title


BACK: Final = tuple(over(NO_LEADER, component) for component in sorted(CLUSTER_COMPONENTS))
CHANGES: Final = tuple(over(LEADER_CHANGED, component) for component in sorted(CLUSTER_COMPONENTS))


def test_that_a_leader_is_back_is_the_title_while_something_else_fires() -> None:
    """The all-clear of an outage in a group that is flapping: not the number of failovers once more."""
    still = ", 1 more fires"
    led = f"[INFO] default: leader back for JobManager after 64 to 72 s{still}"
    assert titled(Reason.SHRANK, 0, *BACK, alert(FLAPPING)) == led
    assert titled(Reason.GREW, 3, *CHANGES, *BACK, alert(FLAPPING)) == led


def test_what_begins_is_the_title_also_if_something_worse_goes_on() -> None:
    """And how much else fires."""
    title = titled(Reason.GREW, 1, replace(alert(NO_LEADER, DISPATCHER)), alert(FLAPPING))
    assert title == "[CRITICAL] default: no leader for dispatcher, jm-a led before, 1 more fires"
    fresh = titled(Reason.GREW, 3, *CHANGES, alert(FLAPPING))
    assert fresh == "[WARNING] default: JobManager failed over after 64 to 72 s, 1 more fires"


def test_what_fires_now_is_never_titled_as_resolved() -> None:
    """A condition that begins comes before the end of a worse one."""
    mild = Rule("Mild", Trigger.NO_STANDBY, Severity.INFO)
    policy = replace(ONE_GROUP, rules=(*RULES, mild))
    assert titled(Reason.GREW, 1, replace(alert(mild), count=None), *BACK, policy=policy).startswith(
        "[INFO] default: no standby JobManager"
    )


def test_a_failover_is_the_title_of_its_only_message_though_a_rate_is_normal_again() -> None:
    """After a restart with another `count`: both in one message, which closes the incident."""
    title = titled(Reason.RESOLVED, 3, *CHANGES, replace(alert(FLAPPING), ended=LATER), goes_on=False)
    assert title == "[WARNING] default: JobManager failed over after 64 to 72 s"
    alone = titled(Reason.RESOLVED, 0, replace(alert(FLAPPING), ended=LATER), goes_on=False)
    assert alone == "[INFO] default: failover rate is back to normal"


def test_a_repetition_says_that_it_is_one() -> None:
    """Nothing has changed: what fires, and that it still does."""
    title = titled(Reason.REPEAT_INTERVAL_ELAPSED, 0, alert(NO_LEADER, DISPATCHER))
    assert title == "[CRITICAL] default: still: no leader for dispatcher, jm-a led before"


def test_each_failover_while_they_are_too_many_is_titled_as_itself_with_its_number() -> None:
    """The third one has the status as title, as all others, and then their number. The fourth is not worded as the third: who failed over,
    and the how-manieth it is; the count's time is that of the last."""
    flink, sidecar = watching(policy=ONE_GROUP)
    for leader in (B, A, B, A):
        sidecar.sees(flink.elect(leader)).waits(120)
    sent = [delivery for delivery in sidecar.sent if not delivery.is_closing]
    changed = [delivery.body.split("\n")[0] for delivery in sent]
    assert changed[0] == "JobManager failed over: jm-a → jm-b, 1 of 1 jobs led"
    assert changed[1] == "JobManager failed over again (2nd in 1 h): jm-b → jm-a, 1 of 1 jobs led"
    assert sent[2].title == "[UNCHECKED] default: jm-b leads; whether jobs run is not known (no REST)"
    assert changed[2] == "3 failovers within 1 h, and 3 more alerts"
    assert changed[3] == "JobManager failed over again (4th in 1 h): jm-b → jm-a, 1 of 1 jobs led, 1 more fires"
    (line,) = [line for line in sidecar.sent[-1].body.split("\n") if "failovers within" in line]
    assert line == "4 failovers within 1 h, the last one by 2026-11-20 08:07:05 UTC"


@pytest.mark.parametrize("cluster_id", ["orders", "a-cluster-with-a-long-name-in-production", "ß" * 200])
@pytest.mark.parametrize("number", [1, 3, 111])
def test_a_title_has_at_most_eighty_characters(cluster_id: str, number: int) -> None:
    """With its label, whatever the names of cluster, pods and hosts: cluster and subject are always in it."""
    rules = [Rule("TheRule", trigger, Severity.CRITICAL, within=3600 * SECOND) for trigger in Trigger]
    long = "orders-jobmanager-7d9f4bbc6-2xk8p.orders.svc.cluster.local:6123"
    for rule in (*rules, FLAPPING):
        policy = replace(ONE_GROUP, rules=(rule, FLAPPING), stores={cluster_id: Store.ZOOKEEPER})
        for reason in (Reason.FIRST, Reason.SHRANK, Reason.REPEAT_INTERVAL_ELAPSED, Reason.RESOLVED):
            one = replace(over(rule, DISPATCHER), cluster_id=cluster_id, before=long, after=long[1:], count=number)
            one = replace(one, ended=None if reason in {Reason.FIRST, Reason.REPEAT_INTERVAL_ELAPSED} else LATER)
            news = int(reason is Reason.FIRST)
            title = titled(reason, news, one, policy=policy)
            assert len(title) <= MOST_TITLE
            assert f"] {cluster_id[:11]}"[:8] in title


def test_the_figure_of_a_title_has_both_bounds_or_says_that_it_has_one() -> None:
    """0.3 s without a published leader may be 9 s without a working one: the smaller figure never stands alone."""
    change = replace(CHANGES[0], vacant_seconds=0.3, downtime_seconds_at_least=0.3)
    between = titled(Reason.FIRST, 1, replace(change, downtime_seconds_at_most=8.6))
    assert between.endswith("jm-a → jm-b after 0.3 to 8.6 s")
    at_least = titled(Reason.FIRST, 1, replace(change, downtime_seconds_at_most=None))
    assert at_least.endswith("jm-a → jm-b after at least 0.3 s")
    alone = replace(change, downtime_seconds_at_least=None, downtime_seconds_at_most=None)
    assert titled(Reason.FIRST, 1, alone).endswith("jm-a → jm-b after at least 0.3 s")


def test_the_end_of_a_vacancy_has_the_bounds_of_the_time_without_a_working_leader() -> None:
    """A leader that dies stays published until its session expires: title and text of the all-clear say so."""
    policy = replace(ONE_GROUP, session_timeouts={CLUSTER: 10 * SECOND})
    flink, sidecar = watching(policy=policy)
    fail_over(flink, sidecar, 40).waits(120)
    resolved = next(delivery for delivery in sidecar.sent if delivery.body.startswith("leader back"))
    assert resolved.title == "[UNCHECKED] default: jm-b leads; whether jobs run is not known (no REST)"
    assert resolved.body.startswith("leader back for JobManager and 1 job after 40 to 53 s\n")
    assert "no working leader for 40 to 53 s" in resolved.body
    lines = [line for line in resolved.body.split("\n") if line.startswith("JobManager: ")]
    assert len(lines) == 1
