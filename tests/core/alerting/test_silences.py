"""Silences: what they hide, for how long, what is recorded; and documents that cannot be trusted."""

import time
from typing import Final, Self
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import json
from msgspec.structs import replace

from sidecar.core.alerting import suppression
from sidecar.core.alerting.alerts import Reason
from sidecar.core.alerting.silence_document import (
    KEPT,
    MOST,
    MOST_BYTES,
    MOST_PATTERNS,
    SilencesError,
    StoredSilence,
    added,
    is_vacuous,
    read,
    written,
)
from sidecar.core.alerting.suppression import CLOCK_SKEW, INTERVAL, PATIENCE, Silence, Silences
from sidecar.core.cluster.record_lines import notification_line
from sidecar.core.flink.leadership import Component, ComponentId
from sidecar.core.moment import SECOND, Moment
from sidecar.core.policy.policy import ALL_FOUND, Policy, Store
from sidecar.core.policy.routing import InhibitRule, Matcher, Operator
from sidecar.core.records import Notification
from tests.core.groups import ALL, D_EVENT, D_HIGH, D_LOW, HIGH, LOW, NIGHT, R_LOW, TWO, Groups, alert, only
from tests.kit.cluster import ALL_FOUR, CLUSTER, START
from tests.kit.core_sidecar import POLICY, Sidecar, fail_over, watching

LONGEST: Final = 30 * 24 * 3600 * SECOND
SILENCED: Final = replace(POLICY, silence_documents=frozenset({CLUSTER}))
HIDDEN: Final = Reason.SUPPRESSED_BY_SILENCE.value


def silence(
    *matchers: Matcher, number: int = 1, starts: float = 0, lasts: float = 7200, author: str = "ann"
) -> StoredSilence:
    """Seconds after the beginning of the scene; of all alerts without matchers."""
    begins = START + round(starts * SECOND)
    wanted = matchers or (Matcher("alert", Operator.NOT_EQUAL, ""),)
    return StoredSilence(str(UUID(int=number)), wanted, begins, begins + round(lasts * SECOND), author, "upgrade")


class Silenced(Groups):
    """Groups whose document of silences is read whenever that is asked for."""

    def has(self, *entries: StoredSilence) -> Self:
        self.policy = replace(self.policy, silence_documents=frozenset({CLUSTER}))
        content = written({entry.id: entry for entry in entries})
        before = self.documents.get(CLUSTER, Silences())
        self.documents = {CLUSTER: suppression.learned(before, content, None, LONGEST, self.now)}
        return self

    def waits(self, seconds: int) -> Self:
        for _ in range(seconds):
            self.documents = {
                name: replace(learned, answered_at=self.now.steady) for name, learned in self.documents.items()
            }
            super().waits(1)
        return self


# -- what is hidden ----------------------------------------------------------------------------------------------------


def test_a_silenced_alert_is_notified_when_the_silence_ends_if_it_still_fires() -> None:
    """Within the group interval; else never. Recorded when the silence begins to hide it, once, with the silence's id."""
    groups = Silenced().has(silence(lasts=600))
    groups.fires(D_LOW, R_LOW, D_EVENT).waits(100).ends(R_LOW).waits(600)
    assert groups.notices == [(645, "ops", "FIRST", ["Low dispatcher"])]
    assert groups.suppressed == [
        (5, "ops", HIDDEN, "Low dispatcher"),
        (5, "ops", HIDDEN, "Low rest_server"),
        (5, "ops", HIDDEN, "Event dispatcher"),
    ]


def test_other_alerts_of_the_group_are_notified() -> None:
    """And what is hidden joins them later."""
    groups = Silenced().has(silence(*only(LOW), lasts=100)).fires(D_LOW, D_HIGH).waits(170)
    assert groups.notices == [
        (5, "ops", "FIRST", ["High dispatcher"]),
        (125, "ops", "GREW", ["Low dispatcher", "High dispatcher"]),
    ]


def test_a_silence_that_is_ended_by_hand_hides_nothing_any_more() -> None:
    """At the next flush of the group."""
    made = silence()
    groups = Silenced().has(made).fires(D_LOW).waits(100).has(replace(made, expired_at=START)).waits(60)
    assert groups.notices == [(125, "ops", "FIRST", ["Low dispatcher"])]


def test_the_resolve_of_a_notified_alert_waits_for_the_end_of_the_silence() -> None:
    """While it is active nothing is sent, as in Alertmanager; then the receiver learns that it is over."""
    groups = Silenced().has().fires(D_LOW).waits(100)
    groups.has(silence(starts=100, lasts=600)).ends(D_LOW).waits(700)
    assert groups.notices == [
        (5, "ops", "FIRST", ["Low dispatcher"]),
        (705, "ops", "RESOLVED", ["Low dispatcher is over"]),
    ]
    assert groups.suppressed == [(105, "ops", HIDDEN, "Low dispatcher")]


def test_a_notified_alert_that_is_silenced_is_not_repeated() -> None:
    """And is repeated as soon as the silence is over, if it still fires."""
    groups = Silenced().has().fires(D_LOW).waits(100).has(silence(starts=100, lasts=8000)).waits(8100)
    assert [(second, reason) for second, _, reason, _ in groups.notices] == [
        (5, "FIRST"),
        (8105, "REPEAT_INTERVAL_ELAPSED"),
    ]
    assert [(reason, name) for _, _, reason, name in groups.suppressed] == [(HIDDEN, "Low dispatcher")]


def test_each_silence_is_recorded_for_what_it_hides() -> None:
    """Of several the one that ends last; when that is ended, the other."""
    first, second = silence(number=1, lasts=300), silence(number=2, lasts=1000)
    groups = Silenced().has(first, second).fires(D_LOW).waits(10)
    [group] = groups.alerts.groups.values()
    assert group.members[D_LOW.id].silence == second.id
    groups.has(first).waits(60)
    [group] = groups.alerts.groups.values()
    assert group.members[D_LOW.id].silence == first.id
    assert groups.suppressed == [(5, "ops", HIDDEN, "Low dispatcher"), (65, "ops", HIDDEN, "Low dispatcher")]


def test_every_receiver_of_an_alert_is_silenced() -> None:
    """A silence belongs to alerts, not to a route; each of the groups has a record."""
    groups = Silenced(TWO).has(silence(*only(LOW))).fires(D_LOW).waits(30)
    assert groups.notices == []
    assert [receiver for _, receiver, _, _ in groups.suppressed] == ["oncall", "team"]


def test_a_silence_in_a_mute_interval_is_the_reason() -> None:
    """Both suppress the alert; the silence is what somebody asked for. When it is ended, the mute interval is."""
    groups = Silenced(replace(ALL, mute=(NIGHT,))).has(silence(lasts=60)).fires(D_LOW).waits(100).ends(D_LOW).waits(100)
    assert [reason for _, _, reason, _ in groups.suppressed] == [HIDDEN, "SUPPRESSED_BY_TIME_INTERVAL"]


def test_a_silenced_alert_still_inhibits() -> None:
    """As in Alertmanager: who silences the cause does not want its consequences."""
    groups = Silenced(ALL, InhibitRule(only(HIGH), only(LOW))).has(silence(*only(HIGH))).fires(D_HIGH, D_LOW).waits(100)
    assert groups.notices == []


# -- the sidecar -------------------------------------------------------------------------------------------------------


def hidden(sidecar: Sidecar) -> list[tuple[str, str | None]]:
    return [(record.alert, record.silence_id) for record in suppressed(sidecar)]


def suppressed(sidecar: Sidecar) -> list[Notification]:
    return [record for record in sidecar.notifications() if record.outcome == "suppressed"]


def test_a_planned_failover_is_quiet_and_recorded() -> None:
    """The silence was added after the sidecar had started, two seconds before the message was due."""
    flink, sidecar = watching(policy=SILENCED)
    fail_over(flink, sidecar).waits(2.5)
    made = silence()
    sidecar.silenced_by(made)
    sidecar.waits(600)
    assert sidecar.sent == []
    assert set(hidden(sidecar)) == {("FlinkLeaderChanged", made.id)}
    assert sidecar.state.silences[CLUSTER].known[made.id].hid == len(hidden(sidecar)) == 3
    assert sorted(map(notification_line, suppressed(sidecar))) == [
        f"FlinkLeaderChanged {component} SUPPRESSED_BY_SILENCE {made.id} to ops: suppressed"
        for component in ("dispatcher", "resource_manager", "rest_server")
    ]


def test_a_known_silence_holds_while_the_store_cannot_be_read_also_after_a_restart() -> None:
    """Until its end, which nobody has to write there."""
    flink, sidecar = watching(policy=SILENCED)
    made = silence(lasts=1000)
    sidecar.silenced_by(made)
    sidecar.waits(30)
    sidecar.silences[CLUSTER] = None
    sidecar.is_killed(down_for=10).connects().waits(5)
    assert sidecar.state.silences[CLUSTER].problem == "out of reach"
    fail_over(flink, sidecar).waits(60)
    assert sidecar.sent == []
    assert hidden(sidecar)
    sidecar.waits(1000).sees(flink.vacate()).waits(60)
    assert sidecar.sent_reasons()


def test_without_the_store_and_without_a_journal_nothing_is_silenced() -> None:
    """A message is late by at most three seconds then."""
    flink, sidecar = watching(policy=SILENCED)
    sidecar.silences[CLUSTER] = None
    fail_over(flink, sidecar).waits(5 + 0.25)
    assert sidecar.sent_reasons() == [("FlinkLeaderChanged", "FIRST")], "the document was asked for ahead, and answered"


def test_a_document_that_does_not_answer_delays_a_message_by_the_patience() -> None:
    """A hanging store: the message is due after five seconds, and sent three seconds later."""
    flink, sidecar = watching(policy=SILENCED)
    sidecar.store_hangs = True
    fail_over(flink, sidecar).waits(5 + PATIENCE / SECOND - 0.5)
    assert sidecar.sent_reasons() == []
    sidecar.waits(1)
    assert sidecar.sent_reasons() == [("FlinkLeaderChanged", "FIRST")]


@pytest.mark.parametrize(
    "content", [b"", b"{", b"\xff", b'{"format": 2, "silences": []}', b"[" * 60_000, b" " * (MOST_BYTES + 1)]
)
def test_a_document_that_is_lost_or_garbled_silences_nothing(content: bytes) -> None:
    """What was known from it does not hold on: the document is there, and does not say so."""
    flink, sidecar = watching(policy=SILENCED)
    sidecar.silenced_by(silence())
    sidecar.waits(30)
    sidecar.silences[CLUSTER] = content
    sidecar.waits(30)
    assert sidecar.state.silences[CLUSTER].known == {}
    assert (sidecar.state.silences[CLUSTER].problem is None) == (content == b"")
    fail_over(flink, sidecar).waits(20)
    assert sidecar.sent_reasons() == [("FlinkLeaderChanged", "FIRST")]


def test_how_often_the_document_is_read() -> None:
    """Every ten seconds: 360 times an hour. Of hundreds of documents, two a second."""
    _, sidecar = watching(policy=SILENCED)
    reads: list[int] = []

    def count(policy: Policy, seconds: int) -> int:
        documents: suppression.Documents = {}
        number = 0
        for second in range(seconds):
            at = Moment(START + second * SECOND, START)
            documents, asked = suppression.request_reads(policy, documents, [], at)
            number += len(asked)
            answered = {name: replace(documents[name], answered_at=at.steady) for name in asked}
            documents = {**documents, **answered}
        return number

    reads.append(count(SILENCED, 3600))
    many = frozenset(f"cluster-{number}" for number in range(200))
    reads.append(count(replace(POLICY, silence_documents=many), 3600))
    assert reads == [360, 7200]
    assert sidecar.sent_reasons() == []


def test_the_silences_of_one_cluster_do_not_hide_alerts_of_another() -> None:
    """Who may write in one cluster's place does not silence the others. Found clusters share one."""
    group = next(iter(Groups().fires(D_LOW).alerts.groups.values()))
    silenced = Silences({"x": silenced_now(silence())})
    for documents, stores, finds, expected in (
        ({CLUSTER: silenced}, frozenset({CLUSTER}), None, True),
        ({"other": silenced}, frozenset({CLUSTER, "other"}), None, False),
        ({ALL_FOUND: silenced}, frozenset({ALL_FOUND}), Store.KUBERNETES, True),
        ({CLUSTER: silenced}, frozenset[str](), None, False),
    ):
        policy = replace(POLICY, silence_documents=stores, finds=finds)
        assert bool(suppression.hiding(policy, documents, group.members, Moment(START, START))) is expected


def hostile() -> tuple[StoredSilence, ...]:
    """As many silences as there may be; all patterns together as large as they may be, and each is matched until the last matcher fails."""
    patterns = [Matcher("job_id", Operator.MATCHES_NOT, rf".*[0-9].{{25}}{n:02}") for n in range(20)]
    nothing = Matcher("alert", Operator.EQUAL, "")
    slow = [silence(*patterns[n : n + 5], nothing, number=n + 1) for n in range(0, 20, 5)]
    true = Matcher("alert", Operator.NOT_EQUAL, "")
    return *slow, *(silence(*[true] * 9, nothing, number=n) for n in range(21, MOST + 1 + 16))


@pytest.mark.timing
@pytest.mark.parametrize("group_by", [("cluster_id",), ("job_id",)], ids=["one group", "a group for each job"])
def test_no_document_stalls_a_tick(group_by: tuple[str, ...]) -> None:
    """With 600 jobs without a leader, and a document made for it, a tick takes less than a second of CPU; all are notified soon."""
    groups = Silenced(replace(ALL, group_by=group_by)).has(*hostile())
    assert len(groups.documents[CLUSTER].known) == MOST
    jobs = [alert(LOW, ComponentId(Component.JOB, f"{n:032x}")) for n in range(600)]
    groups.fires(*jobs).waits(4)
    longest = 0.0
    for _ in range(8):
        began = time.process_time()
        groups.waits(1)
        longest = max(longest, time.process_time() - began)
    assert longest < 1
    assert sum(len(names) for *_, names in groups.notices) == 600


# -- time --------------------------------------------------------------------------------------------------------------


def silenced_now(made: StoredSilence, at: int = START) -> Silence:
    """As it is known by who reads it at `at`."""
    content = written({made.id: made})
    return suppression.learned(Silences(), content, None, LONGEST, Moment(at, at)).known[made.id]


@pytest.mark.parametrize(
    ("wall", "steady", "active"),
    [
        (0, 0, True),
        (7199, 7199, True),
        (7200, 7200, False),
        (-7200, 0, True),
        (-7201, 0, False),
        (0, 7200, False),
        (9000, 10, False),
    ],
    ids=[
        "at once",
        "until its end",
        "not afterwards",
        "the creator's clock is two hours ahead",
        "by more: it has not begun",
        "a wall clock that was set back does not prolong it",
        "a wall clock that was set ahead ends it",
    ],
)
def test_the_end_is_judged_by_the_wall_clock_and_never_prolonged(wall: int, steady: int, active: bool) -> None:
    """Two hours, of which the sidecar learned when it began."""
    silenced = silenced_now(silence())
    assert silenced.is_active(Moment(START + steady * SECOND, START + wall * SECOND)) is active


@given(st.lists(st.tuples(st.integers(1, 100), st.integers(-10_000, 10_000)), max_size=50))
def test_no_clock_prolongs_a_silence(steps: list[tuple[int, int]]) -> None:
    """Wherever the wall clock jumps, also while the document is read again."""
    made = silence(lasts=1000)
    learned = suppression.learned(Silences(), written({made.id: made}), None, LONGEST, Moment(START, START))
    steady = START
    for passes, jump in steps:
        steady += passes * SECOND
        at = Moment(steady, steady + jump * SECOND)
        learned = suppression.learned(learned, written({made.id: made}), None, LONGEST, at)
        assert not learned.known[made.id].is_active(at) or steady < START + 1000 * SECOND


def test_no_silence_is_longer_than_the_readers_setting() -> None:
    """Whatever a document says."""
    made = silence(lasts=10 * LONGEST / SECOND)
    entries, problems = read(written({made.id: made}), 3600 * SECOND)
    assert (entries[made.id].ends_at, problems) == (START + 3600 * SECOND, [])


# -- the document ------------------------------------------------------------------------------------------------------


def document(*entries: object) -> bytes:
    return json.encode({"format": 1, "silences": entries})


def fields(**other: object) -> dict[str, object]:
    return {**json.decode(json.encode(silence()), type=dict[str, object]), **other}


@pytest.mark.parametrize(
    "other",
    [
        {"id": "x"},
        {"id": "../../../../../../../etc/passwd-----"},
        {"id": 7},
        {"matchers": []},
        {"matchers": [{"label": "alert", "operator": "~", "value": ""}]},
        {"matchers": [{"label": "alert", "operator": "=~", "value": "(a*)*)"}]},
        {"matchers": [{"label": "alert", "operator": "=~", "value": "a**"}]},
        {"matchers": [{"label": "alert", "operator": "=", "value": "x" * 501}]},
        {"matchers": [{"label": "a" * 101, "operator": "=", "value": ""}]},
        {"matchers": [{"label": "alert", "operator": "=", "value": "x"}] * 11},
        {"starts_at": START, "ends_at": START - 1},
        {"starts_at": -1},
        {"ends_at": 1 << 62},
        {"ends_at": 1e300},
        {"author": "x" * 101},
        {"comment": "x" * 501},
        {"comment": None},
    ],
    ids=repr,
)
def test_one_bad_silence_is_left_out(other: dict[str, object]) -> None:
    """It silences nothing, and takes no other with it."""
    good = silence(number=2)
    entries, problems = read(document(fields(**other), good), LONGEST)
    assert [*entries] == [good.id]
    assert len(problems) == 1
    assert problems[0].startswith("silence 1 of the document is not used: ")
    assert problems[0].isprintable()
    assert len(problems[0]) < 300


def test_a_document_with_too_much_is_not_used() -> None:
    """Too many silences, or patterns that would take too long together."""
    pattern = Matcher("alert", Operator.MATCHES, "a.*")
    for content in (
        document(*(silence(number=number) for number in range(1, MOST + 2))),
        document(*(silence(*[pattern] * 10, number=number) for number in range(1, MOST_PATTERNS // 10 + 2))),
        document(*(silence(*[Matcher("alert", Operator.MATCHES, "[^a]{30}")] * 5, number=n) for n in range(1, 6))),
    ):
        with pytest.raises(SilencesError):
            read(content, LONGEST)


@given(st.binary(max_size=300) | st.text(max_size=300).map(str.encode))
def test_any_bytes_are_read_or_refused(content: bytes) -> None:
    """In one line."""
    try:
        entries, problems = read(content, LONGEST)
    except SilencesError as error:
        problems, entries = [str(error)], {}
    assert entries == {}
    assert all(problem.isprintable() for problem in problems)


def test_a_silence_is_added_beside_the_others() -> None:
    """Those that ended more than a day ago are dropped; where there are too many, those that have ended."""
    old, ended, active = silence(number=1, lasts=1), silence(number=2, lasts=3600), silence(number=3, lasts=1e6)
    now = START + KEPT + 2 * SECOND
    entries = added({entry.id: entry for entry in (old, ended, active)}, silence(number=4), now, LONGEST)
    assert [*entries] == [ended.id, active.id, silence(number=4).id]
    full = {entry.id: entry for entry in (silence(number=number, lasts=1e6) for number in range(1, MOST + 1))}
    with pytest.raises(SilencesError, match="there are 100 silences already: expire one"):
        added(full, silence(number=0), START, LONGEST)
    one_ended = {**full, silence(number=9).id: replace(silence(number=9), expired_at=START)}
    assert silence(number=9).id not in added(one_ended, silence(number=0), START + 1, LONGEST)


def test_the_document_says_what_was_written() -> None:
    """Back and forth."""
    made = silence(Matcher("cluster_id", Operator.NOT_EQUAL, 'o"\\x'), author="änn")
    assert read(written({made.id: made}), LONGEST) == ({made.id: made}, [])


@pytest.mark.parametrize(
    ("matcher", "vacuous"),
    [
        (Matcher("cluster_id", Operator.EQUAL, "default"), False),
        (Matcher("cluster_id", Operator.EQUAL, ""), True),
        (Matcher("cluster_id", Operator.NOT_EQUAL, "default"), True),
        (Matcher("cluster_id", Operator.MATCHES, ".*"), True),
        (Matcher("cluster_id", Operator.MATCHES, ".+"), True),
        (Matcher("cluster_id", Operator.MATCHES, "[^x]+"), True),
        (Matcher("cluster_id", Operator.MATCHES, "a|"), True),
        (Matcher("cluster_id", Operator.MATCHES, "orders-.*"), False),
        (Matcher("cluster_id", Operator.MATCHES_NOT, "orders-.*"), True),
        (Matcher("job_id", Operator.MATCHES_NOT, ""), True),
    ],
    ids=str,
)
def test_a_matcher_that_selects_nothing_is_known(matcher: Matcher, vacuous: bool) -> None:
    """As Alertmanager demands one that is not true of an absent label; and one that is not true of any value."""
    assert is_vacuous(matcher) is vacuous


def test_the_bounds_hold_together() -> None:
    """A full document can be written, and the reads that a group waits for are made ahead of it."""
    full = {entry.id: entry for entry in (silence(number=number) for number in range(1, MOST + 1))}
    assert len(written(full)) < MOST_BYTES
    assert suppression.AHEAD < INTERVAL < CLOCK_SKEW
    assert len(ALL_FOUR) == 4
