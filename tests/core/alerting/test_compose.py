"""What messages say is true, short, and text: whatever stands in the store."""

from collections.abc import Callable
from uuid import UUID

import pytest
from msgspec.structs import replace

from sidecar.core.alerting.alerts import Alert, Notice, Reason, labels_of
from sidecar.core.alerting.compose import EXAMPLE, MOST_BODY, MOST_BYTES, MOST_LINES, compose
from sidecar.core.alerting.conditions import JOBS
from sidecar.core.cluster.status_of import Statuses
from sidecar.core.failover.episodes import Episode
from sidecar.core.flink.leadership import Component, ComponentId, LeaderInformation
from sidecar.core.message import Content
from sidecar.core.moment import SECOND, Moment
from sidecar.core.policy.policy import Policy, Rule, Severity
from sidecar.core.policy.triggers import Trigger
from tests.kit.cluster import CLUSTER, DISPATCHER, JOB, RESOURCE_MANAGER, REST_SERVER, START, THE_JOB, B
from tests.kit.core_sidecar import LEADER_CHANGED, NO_LEADER, POLICY, fail_over, watching, with_destinations

AT = Moment(START, START)
LATER = Moment(START + 90 * SECOND, START + 90 * SECOND)
EVENTS = {*(Trigger.LEADER_CHANGED, Trigger.JOB_LEADER_CHANGED, Trigger.SAME_PROCESS_REELECTION, Trigger.UNOBSERVED)}


def alert(rule: Rule, component: ComponentId | None, before: str | None = None, after: str | None = None) -> Alert:
    labels = labels_of(POLICY, rule, CLUSTER, component, ours=False)
    happened = rule.on in EVENTS
    return Alert(
        f"{rule.alert} {component}", rule.alert, CLUSTER, labels, AT, component, before, after, is_event=happened
    )


def content(*alerts: Alert, reason: Reason = Reason.FIRST, policy: Policy = POLICY) -> Content:
    return compose(Notice("fingerprint", policy.route, reason, alerts, len(alerts)), policy, {})


def test_a_failover_reads_as_who_from_whom_to_whom_when_and_how_long() -> None:
    """The whole message, as it arrives."""
    policy = replace(POLICY, external_labels={"env": "prod"})
    message = content(
        replace(
            alert(LEADER_CHANGED, RESOURCE_MANAGER, "jm-a:6123", "jm-b:6123"),
            vacant_seconds=4.25,
            downtime_seconds_at_least=12.94,
            downtime_seconds_at_most=19.25,
        ),
        replace(alert(LEADER_CHANGED, REST_SERVER, "jm-a:8081", "jm-b:8081"), vacant_seconds=12.0),
        alert(LEADER_CHANGED, DISPATCHER, "jm-a:6123", "jm-b:6123"),
        policy=policy,
    )
    assert [part.summary for part in message.alerts] == [
        "resource_manager: jm-a:6123 → jm-b:6123 at 2026-11-20 08:00:00 UTC, no working leader for 12 to 20 s",
        "rest_server: jm-a:8081 → jm-b:8081 at 2026-11-20 08:00:00 UTC, no published leader for 12 s",
        "dispatcher: jm-a:6123 → jm-b:6123 at 2026-11-20 08:00:00 UTC",
    ]
    assert message.summary == "default: JobManager failed over: jm-a → jm-b after at least 12 s"
    assert replace(message, alerts=()) == Content(
        "[WARNING] default: JobManager failed over: jm-a → jm-b after at least 12 s",
        "JobManager: jm-a:6123 → jm-b:6123 at 2026-11-20 08:00:00 UTC, no working leader for 12 to 20 s",
        Severity.WARNING,
        (
            ("alert", "FlinkLeaderChanged (FIRST)"),
            ("cluster", "default"),
            ("store", "zookeeper"),
            ("observer", "sidecar-0"),
            ("env", "prod"),
        ),
    )


def test_a_vacancy_reads_as_who_had_led_and_since_when() -> None:
    """And its end as who leads, when and after how long."""
    vacancy = alert(NO_LEADER, DISPATCHER, "jm-a:6123")
    firing = content(vacancy)
    assert firing.title == "[CRITICAL] default: no leader for dispatcher, jm-a led before"
    assert firing.body == "dispatcher: no leader since 2026-11-20 08:00:00 UTC (previous leader: jm-a:6123)"
    over = content(replace(vacancy, ended=LATER, after="jm-b:6123", vacant_seconds=90.0), reason=Reason.RESOLVED)
    assert over.title == "[INFO] default: leader back for dispatcher after at least 90 s"
    assert over.body == "dispatcher: elected jm-b:6123 at 2026-11-20 08:01:30 UTC, no published leader for 90 s"


def test_a_leader_that_moved_nowhere_has_a_new_session() -> None:
    """Same place before and after: said in words, not as an arrow from a place to itself."""
    message = content(alert(LEADER_CHANGED, DISPATCHER, "jm-a:6123", "jm-a:6123"))
    assert message.body.startswith("dispatcher: jm-a:6123, with a new session id at ")


@pytest.mark.parametrize("trigger", Trigger)
@pytest.mark.parametrize("over", [False, True])
def test_everything_that_a_rule_looks_at_has_its_words(trigger: Trigger, over: bool) -> None:
    """Title and line of each trigger, while it lasts and when it is over: printable, and nothing is left open in them."""
    rule = Rule("TheRule", trigger, within=3600 * SECOND)
    policy = replace(POLICY, rules=(rule,))
    one = replace(alert(rule, DISPATCHER, "jm-a:6123", "jm-b:6123"), count=3, vacant_seconds=1.5)
    if over:
        one = replace(one, ended=LATER)
    notice = Notice("fingerprint", policy.route, Reason.RESOLVED if over else Reason.FIRST, (one,), int(not over))
    message = compose(notice, policy, {})
    assert message.title.startswith("[INFO]" if over else "[WARNING]")
    for text in (message.title, message.body):
        assert text.isprintable()
        assert not {"{", "}", "None", "?"} & {*text.split(), *text}


def test_alerts_of_several_rules_are_worded_by_the_worst_of_them() -> None:
    """Its title and severity, and how many others there are; a line for each."""
    changed, vacancy = alert(LEADER_CHANGED, RESOURCE_MANAGER, "a:1", "b:1"), alert(NO_LEADER, DISPATCHER, "a:1")
    message = content(changed, vacancy)
    assert message.title == "[CRITICAL] default: no leader for dispatcher, a led before, and 1 more alert"
    assert message.severity is Severity.CRITICAL
    assert len(message.body.splitlines()) == 2
    assert ("alert", "FlinkLeaderChanged, FlinkNoLeader (FIRST)") in message.facts


def test_a_storm_of_jobs_is_one_bounded_message() -> None:
    """Ten thousand jobs with the longest addresses: those that moved alike in one line, else a few of them and how many more lines."""
    jobs = [ComponentId(Component.JOB, f"{n:032x}") for n in range(10_000)]
    rule = Rule("JobChanged", Trigger.JOB_LEADER_CHANGED)
    policy = replace(POLICY, rules=(rule,), external_labels={f"label{n}": "x" * 60 for n in range(10)})
    longest = "ß" * 400
    message = content(*(alert(rule, job, longest, f"{job}{longest}") for job in jobs), policy=policy)
    lines = message.body.splitlines()
    assert lines[-1] == f"… and {10_000 - len(lines) + 1} more lines"
    assert len("\n".join([message.title, message.body, *map(str, message.facts)]).encode()) < 4096
    short = content(*(alert(rule, job, "a:1", f"{n}:1") for n, job in enumerate(jobs)), policy=policy)
    assert len(short.body.splitlines()) == MOST_LINES + 1
    alike = content(*(alert(rule, job, "a:1", "b:1") for job in jobs), policy=policy)
    assert alike.body == "10000 jobs: a:1 → b:1 at 2026-11-20 08:00:00 UTC"


def test_the_jobs_of_a_failover_are_counted_and_the_first_are_named() -> None:
    """How many of how many lost their leader, how many have none now, and which."""
    flink, sidecar = watching()
    more = [f"{n:032x}" for n in range(1, 31)]
    for job in more:
        flink.submit(job).publish(ComponentId(Component.JOB, job), LeaderInformation("a", UUID(int=1)))
    sidecar.sees_changes().waits(1)
    flink.vacate(*(ComponentId(Component.JOB, job) for job in more), *sorted({RESOURCE_MANAGER, DISPATCHER}))
    flink.elect(B, RESOURCE_MANAGER, DISPATCHER)
    for job in more[:12]:
        flink.publish(ComponentId(Component.JOB, job), LeaderInformation("b", UUID(int=2)))
    flink.znodes.changed.sort(key=lambda path: "job" not in path)
    sidecar.sees_changes().waits(8)
    (sent,) = sidecar.sent
    (line,) = [line for line in sent.body.splitlines() if line.startswith("jobs: ")]
    assert line.startswith(
        "jobs: 30 of 31 lost their leader, 12 led again (which does not say that they run), 18 without one now: "
    )
    assert line.endswith("00000000…, 00000000…, 00000000… and 15 more")


def test_the_operator_chooses_the_words_of_the_title() -> None:
    """A summary is the title behind the severity; one that fails is said to, and our own words stand in for it."""
    rule = replace(
        LEADER_CHANGED, summary=lambda fields: f"{fields['cluster_id']}: {fields['before']}\n{fields['cause']}"
    )
    message = content(alert(LEADER_CHANGED, DISPATCHER, "jm-a:6123", "b:1"), policy=replace(POLICY, rules=(rule,)))
    assert message.title == "[WARNING] default: {'host': 'jm-a', 'address': 'jm-a:6123', 'pod': ''} unknown"

    def fails(_fields: object) -> str:
        raise ValueError("no such\nthing")

    policy = replace(POLICY, rules=(replace(LEADER_CHANGED, summary=fails),))
    message = content(alert(LEADER_CHANGED, DISPATCHER, "a:1", "b:1"), policy=policy)
    assert message.title == "[WARNING] default: dispatcher failed over: a → b"
    assert (
        "(the summary of FlinkLeaderChanged could not be made: no such\N{REPLACEMENT CHARACTER}thing)" in message.body
    )


def test_the_documented_fields_are_those_that_there_are() -> None:
    """The example that templates are tried on has every field, of the same type."""
    actual = {}

    def look(fields: object) -> str:
        assert isinstance(fields, dict)
        actual.update(fields)
        return "title"

    rule = replace(LEADER_CHANGED, summary=look)
    content(alert(LEADER_CHANGED, DISPATCHER, "a:1", "b:1"), policy=replace(POLICY, rules=(rule,)))
    assert {name: type(value) for name, value in actual.items()} == {
        name: type(value) for name, value in EXAMPLE.items()
    }


def test_an_alert_says_why_as_far_as_that_is_known() -> None:
    """While nobody leads, what is known then; once another leads, all; and the name to ask for more. What has no episode has no cause."""
    flink, sidecar = watching(
        policy=replace(with_destinations(*POLICY.receivers["ops"]), link="https://sidecar.example")
    )
    fail_over(flink, sidecar, 40).waits(120)
    vacant, again = sidecar.sent
    episode = sidecar.episodes()[0]
    assert vacant.facts[0] == ("cause", "jobmanager_lost (medium confidence)")
    assert [line for line in vacant.body.split("\n") if line in {*episode.facts, "There is no new leader yet."}] == [
        "The JobManager's ZooKeeper session expired: it did not shut down cleanly.",
        "There is no new leader yet.",
    ]
    assert again.facts[0] == ("cause", "jobmanager_lost (medium confidence)")
    *why, alike = episode.facts
    assert [line for line in again.body.split("\n") if line in episode.facts] == why
    assert "leaves the same facts" in alike
    for delivery in (vacant, again):
        assert ("episode", episode.id) in delivery.facts
        assert delivery.episode_id == episode.id
        assert delivery.link == f"https://sidecar.example/episodes/{episode.id}"
    sidecar.sees(flink.vacate(THE_JOB)).waits(300)
    assert [name for name, _ in sidecar.sent[-1].facts if name in {"cause", "episode"}] == []
    assert sidecar.sent[-1].link == "https://sidecar.example/"


def lines_about(change: Callable[[Episode], Episode], *alerts: Alert) -> list[str]:
    """The text of a message about these alerts of one failover, of which more is known after `change`."""
    flink, sidecar = watching()
    sidecar.sees(flink.vacate().elect(B)).waits(1)
    ((key, cluster),) = sidecar.state.clusters.items()
    episode = cluster.episode or cluster.last_episode
    assert episode
    of_it = tuple(replace(alert, episode_id=episode.id) for alert in alerts)
    notice = Notice("fingerprint", POLICY.route, Reason.FIRST, of_it, len(of_it))
    clusters = {key: replace(cluster, episode=None, last_episode=change(episode))}
    return compose(notice, POLICY, clusters, Statuses(POLICY, sidecar.moment)).body.split("\n")


def test_details_are_left_out_of_a_message_that_would_be_too_long() -> None:
    """Who leads, and what to do, never: the first of nine long facts about the jobs have room, and it says how many have none."""
    jobs = tuple(f"job {number}: {'x' * 90}" for number in range(9))
    changed = alert(LEADER_CHANGED, DISPATCHER, "jm-a:6123", "jm-b:6123")
    *lines, last = lines_about(
        lambda episode: replace(episode, gathered=replace(episode.gathered, jobs=jobs, jobs_total=9)), changed
    )
    assert 400 < len("\n".join([*lines, last])) <= MOST_BODY
    named = [line for line in lines if line in jobs]
    assert named == list(jobs[: len(named)])
    assert last == f"… and {9 - len(named)} more lines in `explain`"
    assert any(line.startswith("dispatcher: jm-a:6123 → jm-b:6123 at ") for line in lines)


def test_a_long_error_is_cut_before_anything_else_is_too_long() -> None:
    """That of a JobManager that took over and ended: what changed, what to do and who leads are whole."""
    failed = (f"JobManager jm-c ended: {'x' * 160}",)
    changed = [
        alert(LEADER_CHANGED, component, f"jm-a.{number}{'y' * 60}:6123", "jm-b:6123")
        for number, component in enumerate((DISPATCHER, REST_SERVER, RESOURCE_MANAGER))
    ]
    lines = lines_about(lambda episode: replace(episode, facts=replace(episode.facts, failed=failed)), *changed)
    assert MOST_BODY - 20 <= len("\n".join(lines)) <= MOST_BODY
    [cut] = [line for line in lines if line.endswith("x…")]
    assert cut.startswith("JobManager jm-c ended: x")
    assert sum("y:6123 → jm-b:6123 at " in line for line in lines) == 3


def test_a_hostile_leader_address_cannot_write_lines_of_its_own() -> None:
    """Tampered leader information in a message: no line of its own, and no escape sequence."""
    flink, sidecar = watching()
    hostile = "http://x\n[CRITICAL] all is lost\r\x1b[2J\u202e\u2028@evil" + "y" * 900
    sidecar.sees(flink.publish(DISPATCHER, LeaderInformation(hostile, UUID(int=66)))).waits(10)
    (sent,) = sidecar.sent
    assert sent.title.isprintable()
    assert all(line.isprintable() for line in sent.body.split("\n"))
    assert len(sent.body.split("\n")) == 4
    assert len(sent.body.encode()) <= MOST_BYTES


def test_the_jobs_of_a_failover_that_nobody_leads_are_one_alert() -> None:
    """In title and line: how many."""
    vacancy = replace(alert(NO_LEADER, JOBS), count=9_999)
    assert content(vacancy).title == "[CRITICAL] default: no leader for 9999 jobs"
    assert content(vacancy).body == "9999 jobs: no leader since 2026-11-20 08:00:00 UTC"
    assert JOB not in content(vacancy).body
