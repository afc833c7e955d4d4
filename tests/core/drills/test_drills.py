"""Drills: what is hidden and what is not, whom their message reaches, what is recorded, and what the result is."""

from collections.abc import Mapping
from typing import Final
from uuid import UUID

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec import json
from msgspec.structs import replace

from sidecar.core.alerting import suppression
from sidecar.core.alerting.alerts import Alert, Member, Reason
from sidecar.core.alerting.silence_document import (
    LONGEST_DRILL,
    MOST,
    Expectation,
    SilencesError,
    StoredSilence,
    drill_of,
    read,
    written,
)
from sidecar.core.alerting.suppression import Silences
from sidecar.core.cluster.cluster_state import Drilled
from sidecar.core.drilling import SHORTEST
from sidecar.core.drills.findings import SETTLING
from sidecar.core.drills.messages import critical_receivers
from sidecar.core.moment import SECOND, Moment
from sidecar.core.observations import DeliveryOutcome, Observation, PictureTaken
from sidecar.core.pictures import Picture
from sidecar.core.policy.policy import ALL_FOUND, Destination, Policy, Rule, Severity, Source, Store
from sidecar.core.policy.routing import Matcher, Operator, Route, TimeInterval, TimeRange
from sidecar.core.policy.triggers import DRILLED, Trigger
from sidecar.core.records import Drill
from tests.kit.cluster import CLUSTER, START, A, B, job_manager
from tests.kit.config_maps import ConfigMaps
from tests.kit.core_sidecar import LEADER_CHANGED, NO_LEADER, POLICY, LeaseSidecar, Sidecar, fail_over, watching
from tests.kit.fake_flink import Flink

LONGEST: Final = 30 * 24 * 3600 * SECOND
ONCALL: Final = Destination("oncall", 0)
CRITICAL: Final = (Matcher("severity", Operator.EQUAL, "critical"),)
DRILLING: Final = replace(
    POLICY,
    silence_documents=frozenset({CLUSTER}),
    session_timeouts={CLUSTER: 4 * SECOND},
    route=Route("ops", routes=(Route("oncall", "{}/0", CRITICAL),)),
    receivers={**POLICY.receivers, "oncall": (ONCALL,)},
)


def drill(*, number: int = 1, starts: float = 60, lasts: float = 900, cluster: str = CLUSTER) -> StoredSilence:
    """Seconds after the beginning of the scene."""
    begins = START + round(starts * SECOND)
    ends = begins + round(lasts * SECOND)
    return drill_of(str(UUID(int=number)), cluster, begins, ends, Expectation.FAILOVER, "ann", "spring drill")


def drills(sidecar: Sidecar) -> list[Drill]:
    return [record for record in sidecar.records if isinstance(record, Drill)]


def result(sidecar: Sidecar) -> Drill:
    [ended] = [record for record in drills(sidecar) if record.phase == "ended"]
    return ended


def in_drill(made: StoredSilence | None = None, policy: Policy = DRILLING) -> tuple[Flink, Sidecar]:
    """A drill that the sidecar knows."""
    flink, sidecar = watching(policy=policy)
    sidecar.silenced_by(made or drill())
    sidecar.waits(15)
    return flink, sidecar


# -- what is hidden ----------------------------------------------------------------------------------------------------


def test_a_drill_is_recorded_sent_to_who_is_on_call_and_hides_its_failover() -> None:
    """One message, marked as a drill, to the receiver of critical alerts; no alert; started and ended with what was measured."""
    flink, sidecar = in_drill()
    fail_over(flink, sidecar, after=40).waits(1000)
    assert sidecar.sent_reasons() == [("Drill", "DRILL")]
    [message] = sidecar.sent
    assert (message.receiver, message.severity) == ("oncall", Severity.CRITICAL)
    assert message.title == "[DRILL] default: failover drill, nothing is wrong"
    assert message.body.startswith("This is a drill, started by ann.")
    started, ended = drills(sidecar)
    assert (started.phase, started.receivers, started.result) == ("started", ["oncall#0"], None)
    [episode] = sidecar.episodes()
    assert (ended.result, ended.reasons, ended.episode_id) == ("passed", [], episode.id)
    assert (ended.delivered, ended.undelivered) == (["oncall#0"], [])
    assert ended.leaderless_seconds == episode.vacant_seconds
    assert ended.led_after_seconds is not None
    assert 40 <= ended.led_after_seconds < 41
    hidden = [record for record in sidecar.notifications() if record.silence_id == drill().id]
    assert {(record.alert, record.receiver) for record in hidden} == {
        ("FlinkLeaderChanged", "ops"),
        ("FlinkNoLeader", "oncall"),
    }
    assert ended.hidden == len(hidden)
    assert sidecar.state.drills == {}


def test_what_still_fires_when_the_window_ends_is_notified_at_once() -> None:
    """Nobody leads: the page is late by no more than the answer of the store, and the drill has failed."""
    flink, sidecar = in_drill(drill(lasts=300))
    sidecar.sees(flink.vacate()).waits(300 - 15 - 1)
    assert sidecar.sent_reasons() == [("Drill", "DRILL")]
    sidecar.waits(5)
    assert ("FlinkNoLeader", "FIRST") in sidecar.sent_reasons()
    sidecar.waits(SETTLING / SECOND + 1)
    assert result(sidecar).result == "failed"
    assert result(sidecar).reasons == ["Not every component had a leader again when the window ended."]


def test_a_drill_that_is_stopped_hides_nothing_any_more() -> None:
    """Ten seconds later at most: when the document is read."""
    flink, sidecar = in_drill()
    sidecar.sees(flink.vacate()).waits(60)
    sidecar.silenced_by(replace(drill(), expired_at=sidecar.now))
    sidecar.waits(15)
    assert ("FlinkNoLeader", "FIRST") in sidecar.sent_reasons()


def test_a_failover_outside_of_the_window_is_notified_as_ever() -> None:
    """After the end, and the drill without a failover has failed."""
    flink, sidecar = in_drill(drill(lasts=100))
    sidecar.waits(100)
    assert result(sidecar).result == "failed"
    assert result(sidecar).reasons == ["No failover was observed in the window."]
    fail_over(flink, sidecar).waits(30)
    assert sidecar.sent_reasons() == [("Drill", "DRILL"), ("FlinkLeaderChanged", "FIRST")]


@given(st.integers(0, 400), st.integers(1, 120))
def test_an_alert_is_hidden_or_notified_never_lost(at: int, lasts: int) -> None:
    """Whenever a cluster has no leader, for however long, around a window of 200 s: a vacancy of more than 30 s is notified if a part of
    it that is long enough lies outside.
    """
    flink, sidecar = watching(policy=DRILLING)
    sidecar.silenced_by(drill(starts=60, lasts=200))
    sidecar.waits(at)
    fail_over(flink, sidecar, lasts).waits(400)
    paged = ("FlinkNoLeader", "FIRST") in sidecar.sent_reasons()
    fires, ends = at + 30, at + lasts
    hidden = any(record.alert == "FlinkNoLeader" for record in sidecar.notifications() if record.silence_id)
    if ends < fires - 1:
        assert not paged
        assert not hidden
    elif fires + 5 < ends - 5:
        assert paged or hidden
        is_open_at_the_end = fires < 200 and ends > 200 + 5
        is_outside = fires > 200 + 1
        if is_open_at_the_end or is_outside:
            assert paged
        elif at > 10 and ends < 195:
            assert not paged


@given(st.integers(-3600, 60), st.integers(0, 40), st.integers(0, 60), st.integers(1, 120))
def test_a_drill_hides_nothing_that_had_begun_before_it_was_read(starts: int, at: int, read: int, lasts: int) -> None:
    """Whatever start is written in it, and whenever the leader is back: who writes a drill after a crash keeps nobody from being notified,
    and it does not pass by a failover that it cannot have caused.
    """
    flink, sidecar = watching(policy=DRILLING)
    sidecar.waits(at).sees(flink.vacate()).waits(read)
    sidecar.silenced_by(drill(starts=at + starts, lasts=read + lasts + 60 - starts))
    sidecar.waits(lasts).sees(flink.elect(B)).waits(200)
    assert ("FlinkLeaderChanged", "FIRST") in sidecar.sent_reasons()
    if read + lasts > 35:
        assert ("FlinkNoLeader", "FIRST") in sidecar.sent_reasons()
    assert {record.result for record in drills(sidecar) if record.phase == "ended"} <= {"failed", "unknown"}


class Answered(Sidecar):
    """A sidecar whose leading REST server answers as long as its process lives."""

    lives = True

    def _step(self, observation: Observation) -> None:
        if isinstance(observation, PictureTaken) and self.lives:
            picture = Picture(self.now, observation.address)
            observation = replace(observation, picture=picture, problem=None, asked_at=self.moment)
        super()._step(observation)


def asking(timeout: float | None) -> tuple[Flink, Answered]:
    """A cluster whose REST server is asked, and Flink's session timeout in ZooKeeper, if it is known."""
    timeouts = {} if timeout is None else {CLUSTER: round(timeout * SECOND)}
    policy = replace(DRILLING, session_timeouts=timeouts, evidence=frozenset({Source.FLINK_REST}))
    flink = Flink().submit().elect(A)
    sidecar = Answered(flink, policy)
    sidecar.connects()
    return flink, sidecar


@settings(max_examples=15)
@given(st.sampled_from([4, 8, 30, None]), st.floats(0, 1), st.floats(0, 1), st.integers(0, 60), st.booleans())
def test_a_crash_before_the_drill_was_read_is_notified(
    timeout: float | None, ends: float, written: float, starts: int, has_answered: bool
) -> None:
    """Wherever the drill is read between the crash and the end of the session, which the store notices up to a tick after the timeout; the
    next leader's answers prove nothing of the last one, and the drill is not judged by that failover.
    """
    flink, sidecar = asking(timeout)
    sidecar.lives = has_answered
    sidecar.waits(starts)
    sidecar.lives = False
    session = (max(timeout or 60, 4) + 2) * ends
    sidecar.waits(session * written, tick=1)
    sidecar.silenced_by(drill(starts=(sidecar.now - START) / SECOND, lasts=300))
    sidecar.waits(session * (1 - written), tick=1).sees(flink.vacate()).waits(1)
    flink.elect(B)
    sidecar.lives = True
    sidecar.sees_changes().waits(1300, tick=5)
    assert ("FlinkLeaderChanged", "FIRST") in sidecar.sent_reasons()
    [ended] = [record for record in drills(sidecar) if record.phase == "ended"]
    assert (ended.result == "passed", ended.episode_id) == (False, None)


@pytest.mark.parametrize("timeout", [8, None])
def test_a_leader_that_answers_after_the_drill_was_read_can_be_ended_at_once(timeout: float | None) -> None:
    """Its REST server is asked as soon as the drill is read. However late the store notices, the alert is the drill's."""
    flink, sidecar = asking(timeout)
    sidecar.waits(3)
    sidecar.silenced_by(drill(starts=3))
    sidecar.waits(11)
    sidecar.lives = False
    sidecar.waits(timeout or 60, tick=1)
    fail_over(flink, sidecar).waits(1300, tick=5)
    assert sidecar.sent_reasons() == [("Drill", "DRILL")]
    assert result(sidecar).episode_id == sidecar.episodes()[0].id


def test_what_is_not_known_to_be_the_drills_is_sent_and_the_report_says_why() -> None:
    """Nobody answers, and the session may have lasted longer than the drill is known."""
    flink, sidecar = in_drill(policy=replace(DRILLING, session_timeouts={}))
    fail_over(flink, sidecar).waits(1000)
    assert ("FlinkLeaderChanged", "FIRST") in sidecar.sent_reasons()
    assert (result(sidecar).result, result(sidecar).episode_id) == ("unknown", None)
    assert result(sidecar).reasons == [
        "The failover may have begun before this sidecar had read the drill: its alerts were sent."
    ]


def test_a_lease_that_is_renewed_after_the_drill_was_read_is_a_leader_that_lived() -> None:
    """In Kubernetes, where the leader is ended later and noticed when its lease runs out."""
    policy = replace(DRILLING, stores={CLUSTER: Store.KUBERNETES}, session_timeouts={})
    for renews in (True, False):
        flink = Flink(ConfigMaps()).elect(A)
        sidecar = LeaseSidecar(flink, policy).connects()
        sidecar.silenced_by(drill(starts=0))
        sidecar.waits(11)
        if renews:
            sidecar.sees(flink.config_maps.renew())
        sidecar.waits(1)
        assert [one.causal for one in sidecar.state.silences[CLUSTER].known.values()] == [renews]


def only(rule: Rule, cluster_id: str = CLUSTER, **fields: object) -> Alert:
    labels = {"alert": rule.alert, "cluster_id": cluster_id, "severity": rule.severity.value}
    began = START + 80 * SECOND
    return replace(Alert(rule.alert, rule.alert, cluster_id, labels, Moment(began, began)), **fields)


def hidden(policy: Policy, member: Member, documents: Mapping[str, StoredSilence]) -> bool:
    """Whether the alert is hidden by these drills, by document, which were read before it began."""
    at = Moment(START + 70 * SECOND, START + 70 * SECOND)
    later = Moment(START + 90 * SECOND, START + 90 * SECOND)
    silences_by_document = {
        name: suppression.learned(Silences(), written({entry.id: entry}), None, LONGEST, at)
        for name, entry in documents.items()
    }
    silences_by_document = {
        name: replace(document, known={key: replace(one, causal=True) for key, one in document.known.items()})
        for name, document in silences_by_document.items()
    }
    return bool(suppression.hiding(policy, silences_by_document, {"1": member}, later))


@pytest.mark.parametrize("trigger", Trigger)
def test_only_what_a_failover_that_works_causes_is_hidden(trigger: Trigger) -> None:
    """Lost jobs, lost state, a split and blindness page in the window, too."""
    rule = Rule("Any", trigger, Severity.CRITICAL)
    policy = replace(DRILLING, rules=(rule,))
    assert hidden(policy, Member(only(rule)), {CLUSTER: drill()}) == (trigger in DRILLED)
    pages = {*Trigger} - DRILLED
    assert {Trigger.BLIND, Trigger.UNOBSERVED, Trigger.JOB_MISSING, Trigger.RESTORED_FROM_NOTHING} <= pages


def test_what_the_drill_cannot_have_caused_is_notified() -> None:
    """Another cluster, also one that shares the document; what was notified before; a failover that loses jobs; another document."""
    policy = replace(
        DRILLING,
        stores={CLUSTER: Store.ZOOKEEPER, "other": Store.ZOOKEEPER},
        silence_documents=frozenset({CLUSTER, "other"}),
    )
    assert hidden(policy, Member(only(NO_LEADER)), {CLUSTER: drill()})
    assert not hidden(policy, Member(only(NO_LEADER, "other")), {CLUSTER: drill(), "other": drill()})
    assert not hidden(policy, Member(only(NO_LEADER), notified=True), {CLUSTER: drill()})
    assert not hidden(policy, Member(only(LEADER_CHANGED, jobs_lost=1)), {CLUSTER: drill()})
    finding = replace(policy, stores={}, finds=Store.ZOOKEEPER, silence_documents=frozenset({ALL_FOUND}))
    assert hidden(finding, Member(only(NO_LEADER)), {ALL_FOUND: drill()})
    assert not hidden(finding, Member(only(NO_LEADER, "other")), {ALL_FOUND: drill()})


def test_blindness_in_the_window_is_notified_and_no_failover_is_unknown_then() -> None:
    """A sidecar that could not see does not say that there was no failover; its row speaks for itself alone."""
    blind = Rule("FlinkLeadersOutOfSight", Trigger.BLIND, Severity.WARNING, hold_for=60 * SECOND)
    _, sidecar = in_drill(drill(lasts=300), replace(DRILLING, rules=(LEADER_CHANGED, NO_LEADER, blind)))
    sidecar.is_cut_off().waits(120)
    assert (blind.alert, "FIRST") in sidecar.sent_reasons()
    sidecar.connects().waits(300)
    ended = result(sidecar)
    assert ended.result == "unknown"
    assert ended.reasons == ["No failover was observed to begin, and this sidecar could not see all of the window."]


# -- the message -------------------------------------------------------------------------------------------------------


def test_the_receivers_of_critical_alerts() -> None:
    """Of any component, of a failover that loses jobs, through `continue`; not of routes that are muted now."""
    night = TimeInterval("night", (TimeRange(times=((8 * 60, 8 * 60 + 10),)),))
    of_rest = (*CRITICAL, Matcher("component", Operator.EQUAL, "rest_server"))
    route = Route(
        "ops",
        routes=(
            Route("rest", "{}/0", of_rest, continues=True),
            Route("muted", "{}/1", CRITICAL, mute=(night,), continues=True),
            Route("oncall", "{}/2", CRITICAL),
            Route("never", "{}/3", CRITICAL),
        ),
    )
    names = ("ops", "rest", "muted", "oncall", "never")
    policy = replace(POLICY, route=route, receivers={name: (Destination(name, 0),) for name in names})
    at, later = Moment(START, START), Moment(START, START + 3600 * SECOND)
    assert [destination.name for destination in critical_receivers(policy, CLUSTER, at)] == ["oncall#0", "rest#0"]
    assert [destination.name for destination in critical_receivers(policy, CLUSTER, later)] == [
        "muted#0",
        "oncall#0",
        "rest#0",
    ]
    warnings = replace(policy, rules=(LEADER_CHANGED,))
    assert ONCALL in critical_receivers(warnings, CLUSTER, at), "a failover that loses jobs is critical"


def test_a_message_that_does_not_arrive_fails_the_drill() -> None:
    """Its failover works, and nobody would have been notified of one that does not."""
    flink, sidecar = watching(policy=DRILLING)
    sidecar.answers["oncall#0"] = DeliveryOutcome.UNDELIVERABLE
    sidecar.silenced_by(drill())
    sidecar.waits(15)
    fail_over(flink, sidecar).waits(1000)
    assert (result(sidecar).result, result(sidecar).undelivered) == ("failed", ["oncall#0"])
    assert result(sidecar).reasons == ["The message did not reach oncall#0."]


def test_an_incident_that_the_message_opens_is_closed() -> None:
    """Where the service keeps it open until it is."""
    paged = replace(ONCALL, keeps_incidents=True)
    _, sidecar = in_drill(policy=replace(DRILLING, receivers={**DRILLING.receivers, "oncall": (paged,)}))
    sidecar.waits(320)
    assert [(delivery.reason, delivery.is_closing) for delivery in sidecar.sent] == [
        (Reason.DRILL, False),
        (Reason.RESOLVED, True),
    ]


# -- the process -------------------------------------------------------------------------------------------------------


def test_every_sidecar_writes_the_same_records() -> None:
    """Also one that was killed. One that begins with an empty folder during the failover cannot tell, and has a row of its own."""
    ids, results = [], []
    for replaced in (None, Sidecar.is_killed, Sidecar.is_replaced):
        flink, sidecar = in_drill()
        sidecar.sees(flink.vacate()).waits(5)
        if replaced:
            replaced(sidecar, 3).connects()
        sidecar.sees(flink.elect(B)).waits(1000)
        ids.append({record.id for record in drills(sidecar)})
        results.append(result(sidecar).result)
        messages = {delivery.id for delivery in sidecar.sent if delivery.reason is Reason.DRILL}
        assert len(messages) == 1
    assert results == ["passed", "passed", "unknown"]
    assert ids[0] == ids[1]
    assert len(ids[0] & ids[2]) == 1


def test_the_first_drill_of_a_cluster_counts_and_messages_have_a_distance() -> None:
    """Whoever may write in the store cannot make the sidecar send more than one message a minute for each receiver."""
    _, sidecar = in_drill(drill(lasts=20))
    for number in range(2, 20):
        now = (sidecar.now - START) / SECOND
        sidecar.silenced_by(drill(number=number, starts=now, lasts=20))
        sidecar.waits(10)
    messages = [delivery for delivery in sidecar.sent if delivery.reason is Reason.DRILL]
    assert 2 <= len(messages) <= 1 + 18 * 10 * SECOND // SHORTEST + 1


def test_a_passed_drill_is_remembered_and_handed_over() -> None:
    """It is the one that counts for the rule about drills that are overdue."""
    flink, sidecar = in_drill()
    fail_over(flink, sidecar).waits(1000)
    outcome = sidecar.state.clusters[CLUSTER].drilled
    assert (outcome.since > 0, outcome.passed_at) == (True, START + 960 * SECOND + (outcome.passed_at - START) % SECOND)
    assert sidecar.is_replaced().state.clusters[CLUSTER].drilled == outcome
    assert sidecar.is_killed().state.clusters[CLUSTER].drilled == outcome


# -- the document ------------------------------------------------------------------------------------------------------


def test_a_drill_in_the_document() -> None:
    """As it was written, beside silences, no longer than a drill may last."""
    made = drill(lasts=LONGEST_DRILL / SECOND + 1)
    silence = StoredSilence(str(UUID(int=9)), (Matcher("alert", Operator.EQUAL, "X"),), START, START + 1, "bob", "")
    content = written({made.id: made, silence.id: silence})
    entries, problems = read(content, LONGEST)
    assert problems == []
    assert entries == {made.id: replace(made, ends_at=made.starts_at + LONGEST_DRILL), silence.id: silence}
    [of_drill] = json.decode(content)["drills"]
    assert of_drill["expects"] == "failover"
    assert "matchers" not in of_drill


def test_what_no_drill_says_is_not_used() -> None:
    """An expectation of a newer version, a drill without a cluster; the rest of the document holds, and its size is bounded."""
    good = json.decode(written({drill().id: drill()}))["drills"][0]
    bad = [{**good, "expects": "chaos"}, {**good, "cluster_id": ""}, {**good, "ends_at": 1}, {**good, "id": "x"}, 7]
    entries, problems = read(json.encode({"format": 1, "silences": [], "drills": [*bad, good]}), LONGEST)
    assert ([*entries], len(problems)) == ([drill().id], len(bad))
    assert all(line.startswith(f"drill {place} of the document is not used") for place, line in enumerate(problems, 1))
    with pytest.raises(SilencesError, match="of at most 100"):
        read(json.encode({"format": 1, "silences": [], "drills": [good] * (MOST + 1)}), LONGEST)


def test_matchers_in_a_drill_are_not_read() -> None:
    """Who writes one cannot hide more with it."""
    wide = [{"label": "alert", "operator": "!=", "value": ""}]
    good = {**json.decode(written({drill().id: drill()}))["drills"][0], "matchers": wide}
    entries, _ = read(json.encode({"format": 1, "drills": [good]}), LONGEST)
    assert entries[drill().id].matchers == drill().matchers


# -- overdue -----------------------------------------------------------------------------------------------------------


def test_a_drill_is_overdue_since_the_last_one_that_has_passed() -> None:
    """Without one from when the cluster was first watched, which a sidecar that takes over knows. The alert ends when one has passed."""
    day = 24 * 3600
    overdue = Rule("FlinkDrillOverdue", Trigger.DRILL_OVERDUE, Severity.INFO, age=2 * day * SECOND)
    policy = replace(DRILLING, rules=(LEADER_CHANGED, NO_LEADER, overdue))
    flink, sidecar = watching(policy=policy)
    sidecar.waits(1.5 * day, tick=300).is_replaced().connects().waits(0.4 * day, tick=300)
    assert sidecar.sent_reasons() == []
    sidecar.waits(0.2 * day, tick=300)
    assert sidecar.sent_reasons()[0] == ("FlinkDrillOverdue", "FIRST")
    assert "no failover drill has passed for 2 d" in sidecar.sent[0].title
    assert "no drill has passed since 2026-11-20 08:00:00 UTC" in sidecar.sent[0].body
    sidecar.silenced_by(drill(starts=(sidecar.now - START) / SECOND, lasts=120))
    sidecar.waits(20)
    fail_over(flink, sidecar).waits(300)
    assert sidecar.sent_reasons()[-1] == ("FlinkDrillOverdue", "RESOLVED")


def test_what_is_not_known_is_not_overdue() -> None:
    """A sidecar that does not know since when the cluster is watched counts from its start."""
    overdue = Rule("FlinkDrillOverdue", Trigger.DRILL_OVERDUE, Severity.INFO, age=3600 * SECOND)
    _, sidecar = watching(policy=replace(DRILLING, rules=(overdue,)))
    cluster = sidecar.state.clusters[CLUSTER]
    sidecar.state = replace(sidecar.state, clusters={CLUSTER: replace(cluster, drilled=Drilled())})
    sidecar.waits(7200, tick=60)
    assert sidecar.sent_reasons() == []
    sidecar.is_killed().connects().waits(1800, tick=60)
    assert sidecar.sent_reasons() == []
    assert sidecar.state.clusters[CLUSTER].drilled.since >= START + 7200 * SECOND


def test_a_handover_cannot_put_off_a_drill() -> None:
    """Whoever may write it cannot say that a drill has passed in the future."""
    _, sidecar = watching(policy=DRILLING)
    cluster = sidecar.state.clusters[CLUSTER]
    later = Drilled(cluster.drilled.since, sidecar.now + 3600 * SECOND, str(UUID(int=7)))
    sidecar.state = replace(sidecar.state, clusters={CLUSTER: replace(cluster, drilled=later)})
    assert sidecar.is_replaced().state.clusters[CLUSTER].drilled.passed_at == 0


def test_a_message_that_stands_until_it_is_updated_says_that_the_drill_is_over() -> None:
    """As in Slack: it is that of a critical alert as long as the window lasts, and not for good."""
    shown = replace(ONCALL, in_order=True)
    _, sidecar = in_drill(policy=replace(DRILLING, receivers={**DRILLING.receivers, "oncall": (shown,)}))
    sidecar.waits(800)
    assert [delivery.reason for delivery in sidecar.sent] == [Reason.DRILL]
    sidecar.waits(120)
    opened, closed = sidecar.sent
    assert (closed.reason, closed.is_closing, closed.incident) == (Reason.RESOLVED, True, opened.incident)
    assert closed.title == "[DRILL] default: the failover drill is over"


@pytest.mark.parametrize("drilled", [True, False])
def test_the_failover_of_a_drill_is_counted_by_no_rule_and_no_message(drilled: bool) -> None:
    """The next failover is the first one of the hour."""
    flapping = Rule("FlinkLeaderFlapping", Trigger.EPISODES, Severity.CRITICAL, count=2, within=3600 * SECOND)
    policy = replace(DRILLING, rules=(*DRILLING.rules, flapping))
    flink, sidecar = in_drill(None if drilled else drill(starts=86_400), policy)
    fail_over(flink, sidecar).waits(1000)
    fail_over(flink, sidecar, 2, job_manager("jm-c")).waits(60)
    assert ("FlinkLeaderFlapping" in {delivery.alert for delivery in sidecar.sent}) is not drilled
    body = [delivery.body for delivery in sidecar.sent if delivery.alert == "FlinkLeaderChanged"][-1]
    assert ("again (2nd in 1 h)" in body) is not drilled
