"""The views are there whatever has been written, and their answers are right."""

from collections.abc import Callable
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace
from pyspark.sql import SparkSession

from sidecar.audit import AuditError, open_audit
from sidecar.audit.ingest.ingest import ingest
from sidecar.audit.log.tables import BASE_VIEWS, with_event_date
from sidecar.audit.spark.spark_session import tune
from sidecar.audit.views.catalog import ANSWERS, answer, with_comments
from sidecar.core.records import AnyRecord, PositionRecord, record_id
from tests.audit.histories import A, B, C, History, address, at
from tests.audit.spooling import annotation, death, drill, episode, instant, recovery, seal, session_id
from tests.kit.cluster import DISPATCHER
from tests.kit.cluster import A as FIRST
from tests.kit.cluster import B as SECOND
from tests.kit.core_sidecar import POLICY, Sidecar, watching
from tests.kit.fake_flink import Flink

pytestmark = pytest.mark.spark

JOB = {"component": "job", "job_id": "0" * 32}
OTHER = {"observer": "jm-1"}
DAY = 86400.0
HOUR = 3600.0

HISTORIES: list[Callable[[str], list[AnyRecord]]] = []
"""Each is a cluster of its name in the log that all tests of this module ask."""

Ask = Callable[..., list[tuple[Any, ...]]]


def cluster(made: Callable[[History], object]) -> Callable[[History], object]:
    """A history made by hand, which is recorded as a cluster of its own."""

    def records(name: str) -> list[AnyRecord]:
        history = History(name)
        made(history)
        return history.records

    records.__name__ = made.__name__
    HISTORIES.append(records)
    return made


def watched(made: Callable[[], list[Sidecar]]) -> Callable[[], list[Sidecar]]:
    """What sidecars recorded of a cluster, by the core itself."""

    def records(name: str) -> list[AnyRecord]:
        return [
            replace(
                record,
                id=record_id(name, record.id),
                cluster_id=name,
                observer=f"jm-{number}",
                recorded_at=record.observed_at,
            )
            for number, sidecar in enumerate(made())
            for record in sidecar.records
        ]

    records.__name__ = made.__name__
    HISTORIES.append(records)
    return made


@pytest.fixture(scope="module")
def ask(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Ask:
    """Columns of a view, of one cluster, in the order of the first of them; instants are seconds after noon."""
    folder = tmp_path_factory.mktemp("answers")
    first = 1
    for history in HISTORIES:
        records = history(history.__name__)
        for observer in sorted({record.observer for record in records}):
            own = [record for record in records if record.observer == observer]
            seal(folder / "spool", observer, first, own)
            first += len(own)
    ingest(spark, str(folder / "spool"), str(folder / "audit"))
    session = spark.newSession()
    session.conf.set("spark.sql.session.timeZone", "America/New_York")
    opened(session, folder / "audit")

    def asked(view: str, of: str, columns: str) -> list[tuple[Any, ...]]:
        rows = session.table(view).where(f"cluster_id = '{of}'").selectExpr(*columns.split(", "))
        plain = [tuple(_plain(value) for value in row) for row in rows.collect()]
        return sorted(plain, key=lambda row: tuple((value is not None, value) for value in row))

    return asked


def opened(session: SparkSession, audit: Path) -> SparkSession:
    """The audit log opened in a session that computes each of its answers only once."""
    tune(session, ())
    open_audit(session, str(audit))
    for name in ANSWERS:
        session.catalog.cacheTable(name)
    return session


def _plain(value: object) -> object:
    if isinstance(value, datetime):
        return round((value.astimezone() - at(0)).total_seconds(), 3)
    return round(value, 6) if isinstance(value, float) else value


def test_every_view_is_there_before_its_table_is(spark: SparkSession, spool: Path, audit: Path) -> None:
    """A table that nothing was written to yet is empty, not an error; an answer over it too."""
    seal(spool, "jm-0", 1, lines=[b"garbage"])
    ingest(spark, str(spool), str(audit))
    session = opened(spark.newSession(), audit)
    for name, schema in BASE_VIEWS.items():
        view = session.table(name)
        assert view.schema == with_comments(with_event_date(schema), name)
        assert view.count() == (1 if name == "quarantine" else 0)
    for name in ANSWERS:
        assert session.table(name).count() == 0


def test_rows_of_an_older_schema_lack_the_newer_columns(spark: SparkSession, tmp_path: Path) -> None:
    """A table grows with the records: what an old file does not have is null."""
    old = spark.sql("SELECT 'an id' AS id, DATE'2026-01-01' AS event_date")
    old.write.partitionBy("event_date").parquet(str(tmp_path / "transitions"))
    session = spark.newSession()
    open_audit(session, str(tmp_path))
    (row,) = session.table("transitions").collect()
    assert (row.id, row.kind, row.position) == ("an id", None, None)


def test_an_answer_begins_with_its_question() -> None:
    """Each of them can be read without its code."""
    for name in ANSWERS:
        first = answer(name).splitlines()[0]
        assert first.startswith("-- ")
        assert first.endswith("?")


# -- leader_changes, leader_timeline, mttr ------------------------------------------------------------------------------------


@cluster
def plain(history: History) -> None:
    """Two observers. jm-1 was down when B took over, and knew only A when it was back."""
    history.discovered(0, A).discovered(0.1, A, **OTHER).revoked(10, A).granted(11.5, B, A, 1.5).discovered(
        13, B, A, **OTHER
    )
    history.happened(20, "READDRESSED", B, B).discovered(30, B, B)
    history.granted(0, A, None, None, **JOB).happened(30, "CHANGED", B, A, **JOB)
    history.happened(60, "RETIRED", None, B, **JOB)
    history.granted(90, C, None, None, **JOB)
    history.covered(0, 120)


def test_a_failover_is_a_term_after_another_leaders(ask: Ask) -> None:
    """However many observers saw it; neither a first election nor a leader seen again, at another address, or of a job that began anew."""
    columns = "changed_at, component, before_session_id, after_session_id, vacant_seconds, kind, before_address, after_address"
    assert ask("leader_changes", "plain", columns) == [
        (11.5, "dispatcher", A, B, 1.5, "GRANTED", address(A), address(B)),
        (30.0, "job", A, B, None, "CHANGED", address(A), address(B)),
    ]


def test_a_timeline_has_one_row_for_each_term(ask: Ask) -> None:
    """With its leader, from when to when, and how it ended; null is what still leads."""
    columns = "component, began_at, ended_at, seconds, session_id, how_it_began, how_it_ended, before_session_id"
    assert ask("leader_timeline", "plain", columns) == [
        ("dispatcher", 0, 10, 10, A, "DISCOVERED", "REVOKED", None),
        ("dispatcher", 11.5, None, None, B, "GRANTED", None, A),
        ("job", 0, 30, 30, A, "GRANTED", "CHANGED", None),
        ("job", 30, 60, 30, B, "CHANGED", "RETIRED", A),
        ("job", 90, None, None, C, "GRANTED", None, None),
    ]


@cluster
def unseen(history: History) -> None:
    """One observer, blind from 100 to 200; meanwhile A was replaced by B, and the job went on."""
    history.discovered(0, A).granted(0, A, None, None, **JOB)
    history.happened(103, "OBSCURED", None, A, connection="SUSPENDED").happened(
        103, "OBSCURED", None, A, connection="SUSPENDED", **JOB
    )
    history.discovered(200, B, A).discovered(200, A, A, **JOB)
    history.covered(0, 100).covered(100, 200, "blind").covered(200, 300)


def test_an_unobserved_change_is_a_failover_of_unknown_duration(ask: Ask) -> None:
    """It was at some time before it was found; a leader that was only unobserved has one term."""
    assert ask("leader_changes", "unseen", "changed_at, component, after_session_id, vacant_seconds, kind") == [
        (200, "dispatcher", B, None, "DISCOVERED")
    ]
    assert ask("leader_timeline", "unseen", "component, began_at, ended_at, how_it_ended") == [
        ("dispatcher", 0, 200, "DISCOVERED"),
        ("dispatcher", 200, None, None),
        ("job", 0, None, None),
    ]


@cluster
def forgetful(history: History) -> None:
    """The only observer is lost with its JobManager and its disk; a new one starts without state. Meanwhile a job has ended."""
    history.discovered(0, A).granted(0, A, None, None, **JOB).granted(
        0, A, None, None, component="job", job_id="1" * 32
    )
    history.covered(0, 100)
    history.discovered(160, B, **OTHER).discovered(160, B, **OTHER, **JOB)
    history.covered(150, 161, "blind", "jm-1").covered(161, 200, "seeing", "jm-1")


def test_what_an_observer_forgot_the_log_remembers(ask: Ask) -> None:
    """The leader before is in the log; and a job that a first look does not find has ended."""
    assert ask(
        "leader_changes",
        "forgetful",
        "component, changed_at, before_session_id, after_session_id, kind, before_address",
    ) == [("dispatcher", 160, A, B, "DISCOVERED", address(A)), ("job", 160, A, B, "DISCOVERED", address(A))]
    assert ask("leader_timeline", "forgetful", "job_id, began_at, ended_at, how_it_ended")[2:] == [
        ("0" * 32, 0, 160, "DISCOVERED"),
        ("0" * 32, 160, None, None),
        ("1" * 32, 0, 161, "DISCOVERED"),
    ]
    assert ask("availability", "forgetful", "component, led_seconds, vacant_seconds, unobserved_seconds") == [
        ("dispatcher", 139, 0, 61),
        ("job", 239, 0, 122),
    ]


@cluster
def dead_address(history: History) -> None:
    """In Kubernetes: A died and its lease ran out; jm-1 started then, and A's address still stood there."""
    stood = PositionRecord(uid="u", resource_version="7", holder_identity="h", acquire_time="t")
    history.discovered(0, A).revoked(20, A, position=stood, store="kubernetes").discovered(
        25, A, position=stood, **OTHER
    )
    history.revoked(42, A, position=stood, **OTHER).granted(50, B, A, 30)
    history.covered(0, 100).covered(26, 100, "seeing", "jm-1")


def test_who_comes_later_does_not_make_a_dead_leader_lead(ask: Ask) -> None:
    """What one observer has seen to be over is over, until something else is written."""
    assert ask("leader_timeline", "dead_address", "began_at, ended_at, session_id, how_it_ended") == [
        (0, 20, A, "REVOKED"),
        (50, None, B, None),
    ]
    assert ask("availability", "dead_address", "led_seconds, vacant_seconds, unobserved_seconds") == [(70, 30, 0)]


@cluster
def many(history: History) -> None:
    """A hundred failovers with vacancies of 1 to 100 s, and one without a known duration."""
    before = A
    for number in range(1, 101):
        after = f"{number:08x}-0000-4000-8000-000000000000"
        history.granted(number * HOUR, after, before, float(number))
        before = after
    history.discovered(101 * HOUR, C, before)


def test_mttr_is_over_the_vacancies_that_were_measured(ask: Ask) -> None:
    """Percentiles are measured durations; failovers without one are counted."""
    columns = "component, leader_changes, without_duration, mean_seconds, p50_seconds, p95_seconds, max_seconds"
    assert ask("mttr", "many", columns) == [("dispatcher", 101, 1, 50.5, 50, 95, 100)]
    assert ask("mttr", "plain", columns) == [
        ("dispatcher", 1, 0, 1.5, 1.5, 1.5, 1.5),
        ("job", 1, 1, None, None, None, None),
    ]


@cluster
def dead_and_published(history: History) -> None:
    """Four failovers: bounds of the time without a working leader are known, wider, half known, and not known at all."""
    for number, (vacant, at_least, at_most) in enumerate(
        [(0.4, 8.9, 15.4), (0.5, 9.5, 16.0), (2.0, 2.0, None), (None, None, None)], start=1
    ):
        after, before = (f"{n:08x}-0000-4000-8000-000000000000" for n in (number, number - 1))
        known = {"downtime_seconds_at_least": at_least, "downtime_seconds_at_most": at_most}
        history.granted(number * DAY, after, before, vacant, **known)
        if number == 1:  # a second sidecar that has just started does not know since when
            history.granted(number * DAY + 0.1, after, before, vacant, **OTHER)


def test_a_failover_says_for_how_long_no_leader_worked(ask: Ask) -> None:
    """Beside the time without a published leader; of several observers, the one that knows it."""
    columns = "changed_at, vacant_seconds, downtime_seconds_at_least, downtime_seconds_at_most"
    assert ask("leader_changes", "dead_and_published", columns) == [
        (DAY, 0.4, 8.9, 15.4),
        (2 * DAY, 0.5, 9.5, 16.0),
        (3 * DAY, 2.0, 2.0, None),
        (4 * DAY, None, None, None),
    ]


def test_mttr_has_bounds_of_the_time_without_a_working_leader(ask: Ask) -> None:
    """Each bound over the failovers of which it is known."""
    columns = (
        "leader_changes, without_duration, without_downtime, downtime_mean_seconds_at_least, downtime_mean_seconds_at_most, "
        "downtime_p50_seconds_at_least, downtime_p50_seconds_at_most, downtime_p95_seconds_at_most, "
        "downtime_max_seconds_at_least, downtime_max_seconds_at_most"
    )
    assert ask("mttr", "dead_and_published", columns) == [(4, 1, 2, 6.8, 15.7, 8.9, 15.4, 16.0, 9.5, 16.0)]


@cluster
def two_months(history: History) -> None:
    """Three changes in November, one in December."""
    before = A
    for day, vacant in ((1, 1.0), (2, 2.0), (3, 3.0), (20, 10.0)):
        after = f"{day:08x}-0000-4000-8000-000000000000"
        history.granted(day * DAY, after, before, vacant)
        before = after


def test_each_month_has_its_own_mttr(ask: Ask) -> None:
    """So that a past one can be asked for."""
    assert ask("mttr", "two_months", "CAST(month AS STRING), leader_changes, p50_seconds, max_seconds") == [
        ("2025-11-01", 3, 2, 3),
        ("2025-12-01", 1, 10, 10),
    ]


# -- availability, sight, unobserved -------------------------------------------------------------------------------------


@cluster
def midnight(history: History) -> None:
    """A leads from 22:00 on; there is no leader for 20 s, over midnight UTC; jm-0 is blind for 100 s within the next term."""
    history.discovered(36000, A).revoked(43190, A).granted(43210, B, A, 20.0)
    history.discovered(50100, B, B).revoked(60000, B)
    history.covered(36000, 50000).covered(50000, 50100, "blind").covered(50100, 61000)


def test_availability_counts_covered_time_only_by_utc_day(ask: Ask) -> None:
    """A blind stretch inside a term is unobserved, and the term continues; the session's own time zone does not matter."""
    columns = "CAST(day AS STRING), led_seconds, vacant_seconds, unobserved_seconds, availability"
    assert ask("availability", "midnight", columns) == [
        ("2025-11-21", 7190, 10, 0, round(7190 / 7200, 6)),
        ("2025-11-22", 16690, 1010, 100, round(16690 / 17700, 6)),
    ]
    assert ask("leader_timeline", "midnight", "began_at, ended_at") == [(36000, 43190), (43210, 60000)]


def test_availability_of_jobs_is_their_sum_while_they_run(ask: Ask) -> None:
    """A job that ended is not down; one that was replaced without a vacancy was led all the time."""
    assert ask("availability", "plain", "component, led_seconds, vacant_seconds, unobserved_seconds") == [
        ("dispatcher", 118.5, 1.5, 0),
        ("job", 90, 0, 0),
    ]


@cluster
def shifts(history: History) -> None:
    """Two observers take turns, overlapping: together they miss 50 s. The leader changes while jm-0 is blind."""
    history.discovered(0, A).discovered(500, A, **OTHER).revoked(700, A, **OTHER).granted(710, B, A, 10.0, **OTHER)
    history.discovered(900, B, A, unobserved=2, unobserved_at_least=2)
    history.discovered(1000, C, B, unobserved=None, unobserved_at_least=3, position=PositionRecord(mzxid=99, czxid=98))
    history.discovered(
        1001, C, B, unobserved=4, unobserved_at_least=4, position=PositionRecord(mzxid=99, czxid=98), **OTHER
    )
    history.covered(0, 600).covered(600, 900, "blind").covered(900, 950).covered(950, 1000, "blind").covered(1000, 1100)
    history.covered(499, 500, "blind", "jm-1").covered(500, 940, "seeing", "jm-1").covered(940, 1002, "blind", "jm-1")


def test_what_one_observer_saw_was_observed(ask: Ask) -> None:
    """Time is covered when any of them covers it, and what only one of them missed is no unobserved change."""
    assert ask("sight", "shifts", "began_at, ended_at") == [(0, 950), (1000, 1100)]
    assert ask("availability", "shifts", "led_seconds, vacant_seconds, unobserved_seconds") == [(1040, 10, 50)]
    columns = "what, began_at, ended_at, seconds, component, changes, changes_at_least"
    assert ask("unobserved", "shifts", columns) == [
        ("BLIND", 950, 1000, 50, None, None, None),
        ("CHANGES", None, 1000, None, "dispatcher", None, 3),
    ]


@cluster
def uncovered(history: History) -> None:
    """Transitions, and no word on what could be seen: a sidecar that was killed before it had watched for an hour."""
    history.discovered(0, A).revoked(10, A)


def test_without_coverage_nothing_is_claimed(ask: Ask) -> None:
    """No coverage, no availability; the terms are what they are."""
    assert ask("availability", "uncovered", "day") == []
    assert ask("unobserved", "uncovered", "what") == []
    assert ask("leader_timeline", "uncovered", "began_at, ended_at") == [(0, 10)]


@cluster
def back_in_sight(history: History) -> None:
    """Blind from 100 to 120; what was seen since then is recorded an hour later, though the leader has changed meanwhile."""
    history.discovered(0, A).happened(300, "CHANGED", B, A)
    history.covered(0, 100).covered(100, 120, "blind")


def test_a_stretch_that_was_blind_is_unobserved_before_the_next_one_is_recorded(ask: Ask) -> None:
    """In each answer alike; the time after the last coverage record is in no answer."""
    assert ask("known_until", "back_in_sight", "since, until") == [(0, 120)]
    assert ask("unobserved", "back_in_sight", "what, began_at, ended_at, seconds") == [("BLIND", 100, 120, 20)]
    assert ask("availability", "back_in_sight", "led_seconds, vacant_seconds, unobserved_seconds") == [(100, 0, 20)]
    assert ask("weekly_report", "back_in_sight", "availability, unobserved") == [(1, round(20 / 120, 6))]


@cluster
def never_in_sight(history: History) -> None:
    """The store could not be reached, so far."""
    history.covered(0, 7200, "blind")


def test_a_cluster_that_was_never_in_sight_is_unobserved(ask: Ask) -> None:
    """Rather than nowhere."""
    assert ask("sight", "never_in_sight", "began_at") == []
    assert ask("unobserved", "never_in_sight", "what, began_at, ended_at") == [("BLIND", 0, 7200)]


@watched
def refused() -> list[Sidecar]:
    """By the core: the dispatcher's znode may not be read any more for a while, then the store is away for a minute."""
    flink, sidecar = watching()
    sidecar.records.clear()
    sidecar = Sidecar(flink).connects().waits(60)
    sidecar.is_refused(flink.znodes.path(DISPATCHER))
    sidecar.waits(30).reads_everything()
    sidecar.waits(30).is_cut_off().waits(60).connects().waits(30).stops()
    return [sidecar]


def test_what_cannot_be_read_is_unobserved_for_that_component(ask: Ask) -> None:
    """Although an observer is connected; and a lost connection is in `sight` alone, once."""
    rows = ask("unobserved", "refused", "what, component, round(seconds)")
    assert rows == [("BLIND", None, 60), ("UNREADABLE", "dispatcher", 30)]
    seconds = "component, round(led_seconds), vacant_seconds, round(unobserved_seconds)"
    assert ask("availability", "refused", seconds) == [
        ("dispatcher", 120, 0, 90),
        ("job", 150, 0, 60),
        ("resource_manager", 150, 0, 60),
        ("rest_server", 150, 0, 60),
    ]


@watched
def two_sidecars() -> list[Sidecar]:
    """By the core: both watch, one is killed and comes back, the leader fails over meanwhile."""
    flink = Flink().submit().elect(FIRST)
    sidecars = [Sidecar(flink, replace(POLICY, observer=f"jm-{number}")).connects().waits(60) for number in (0, 1)]
    flink.vacate()
    sidecars[0].sees_changes().waits(5)
    flink.elect(SECOND)
    sidecars[0].sees_changes().waits(60).stops()
    sidecars[1].is_killed(down_for=30)
    sidecars[1].connects().waits(60).stops()
    return sidecars


def test_two_sidecars_tell_one_story(ask: Ask) -> None:
    """Each failover once, with the vacancy that one of them saw."""
    assert ask("leader_changes", "two_sidecars", "component, kind, round(vacant_seconds)") == [
        ("dispatcher", "GRANTED", 5),
        ("job", "GRANTED", 5),
        ("resource_manager", "GRANTED", 5),
        ("rest_server", "GRANTED", 5),
    ]
    assert ask("unobserved", "two_sidecars", "what, component, changes") == []


# -- flapping ------------------------------------------------------------------------------------------------------------


@cluster
def flaps(history: History) -> None:
    """Changes at these minutes: three within an hour, once more within an hour of two of them; two alone; three in 61 minutes."""
    before = A
    for number, minute in enumerate((0, 10, 59, 65, 300, 310, 600, 630, 661)):
        after = session_id(str(number))
        history.granted(minute * 60, after, before, 1.0)
        before = after
    history.granted(0, A, None, None, **JOB)
    for second, (after, before) in enumerate([(B, A), (A, B)] * 3, start=1):
        history.happened(second, "CHANGED", after, before, split=second > 4, returned=second > 1, **JOB)


def test_three_changes_within_an_hour_are_flapping(ask: Ask) -> None:
    """A bout lasts as long as the changes continue; alternating leaders are split leadership, and their returns are no failovers."""
    columns = "component, began_at, ended_at, changes, seconds, size(leaders), split"
    assert ask("flapping", "flaps", columns) == [
        ("dispatcher", 0, 3900, 4, 3900, 4, False),
        ("job", 1, 6, 6, 5, 2, True),
    ]
    assert ask("leader_changes", "flaps", "component, changed_at")[-1:] == [("job", 1)]


HOSTS = {
    "pekko.tcp://flink@jm-0.jm:6123/user/rpc/dispatcher_1": "jm-0.jm",
    "akka.ssl.tcp://flink@10.1.2.3:6123/user/rpc/resourcemanager_0": "10.1.2.3",
    "http://[2001:db8::1]:8081": "2001:db8::1",
    "https://flink.example:443": "flink.example",
    "pekko://flink/user/rpc/dispatcher_1": None,
    "http://[broken": None,
    "no address": None,
    "": None,
}
"""Addresses, and the host in each."""


@cluster
def hosts(history: History) -> None:
    """Each of these addresses leads for a minute, the first one again at the end."""
    before = None
    for number, (letter, place) in enumerate(zip("abcdef012", [*HOSTS, *HOSTS], strict=False)):
        history.happened(60 * number, "CHANGED", session_id(letter), before, after_address=place)
        before = session_id(letter)


def test_the_host_of_a_leader_is_a_column(ask: Ask) -> None:
    """In every scheme that Flink writes, without the brackets of IPv6; null if there is none."""
    *befores, _ = leading = [*HOSTS.values(), "jm-0.jm"]
    assert ask("leader_timeline", "hosts", "began_at, host") == [(60 * n, host) for n, host in enumerate(leading)]
    assert ask("leader_changes", "hosts", "changed_at, before_host, after_host") == [
        (60 * n, *pair) for n, pair in enumerate(zip(befores, leading[1:], strict=True), start=1)
    ]


# -- alert_deliveries, weekly_report -------------------------------------------------------------------------------------


@cluster
def alerts(history: History) -> None:
    """One arrives at the third attempt, with a second one behind it; given up; not sent; under way; from before the log; a resend."""
    history.notified(0, "failed", 6, queued=-90, destination="old").notified(
        1, "delivered", 7, queued=-90, destination="old"
    )
    history.notified(100, "queued").notified(101, "failed", 1, queued=100).notified(103, "timed_out", 2, queued=100)
    history.notified(150, "queued").notified(160, "delivered", 3, queued=100, possible_duplicate=True)
    history.notified(161, "delivered", 1, queued=150, service="slack", episode_id="e-1").notified(
        200, "queued", reason="RESOLVED"
    )
    history.notified(201, "gave_up", 1, queued=200, reason="RESOLVED", detail="HTTP 404")
    history.notified(200, "queued", reason="RESOLVED", destination="pager")
    history.notified(202, "not_sent", 1, queued=200, reason="RESOLVED", destination="pager", detail="nothing is sent")
    history.notified(200, "queued", observer="jm-1")
    history.notified(202, "failed", 1, queued=200, observer="jm-1", detail="refused")
    history.notified(300, "failed", 1, queued=299, reason="RESEND", destination="am", detail="HTTP 503")


def test_each_alert_is_delivered_given_up_or_pending(ask: Ask) -> None:
    """With how many attempts, after how long, and whether it may have arrived twice; each sidecar's own."""
    columns = "destination, observer, queued_at, reason, outcome, attempts, seconds, possible_duplicate, detail"
    assert ask("alert_deliveries", "alerts", columns) == [
        ("am", "jm-0", 299, "RESEND", "failed", 1, 1, False, "HTTP 503"),
        ("old", "jm-0", -90, "FIRST", "delivered", 7, 91, False, None),
        ("ops#0", "jm-0", 100, "FIRST", "delivered", 3, 60, True, None),
        ("ops#0", "jm-0", 150, "FIRST", "delivered", 1, 11, False, None),
        ("ops#0", "jm-0", 200, "RESOLVED", "gave_up", 1, 1, False, "HTTP 404"),
        ("ops#0", "jm-1", 200, "FIRST", "pending", 1, None, False, "refused"),
        ("pager", "jm-0", 200, "RESOLVED", "not_sent", 1, 2, False, "nothing is sent"),
    ]


def test_a_delivery_names_its_service_its_failover_and_the_date_of_its_outcome(ask: Ask) -> None:
    """Null in records of an older sidecar, for an alert of no failover, and while there is no outcome."""
    columns = "destination, observer, queued_at, service, episode_id, CAST(event_date AS STRING)"
    assert ask("alert_deliveries", "alerts", columns)[2:] == [
        ("ops#0", "jm-0", 100, None, None, "2025-11-21"),
        ("ops#0", "jm-0", 150, "slack", "e-1", "2025-11-21"),
        ("ops#0", "jm-0", 200, None, None, "2025-11-21"),
        ("ops#0", "jm-1", 200, None, None, None),
        ("pager", "jm-0", 200, None, None, "2025-11-21"),
    ]


@cluster
def fortnight(history: History) -> None:
    """2025-11-21 is a Friday: a failover on Sunday night, another on Monday; half of Monday is unobserved. An episode has no failover."""
    history.discovered(0, A).revoked(2.4 * DAY, A).granted(2.4 * DAY + 60, B, A, 60.0)
    history.happened(3 * DAY, "CHANGED", C, B)
    history.covered(0, 2.5 * DAY).covered(2.5 * DAY, 3 * DAY, "blind").covered(3 * DAY, 3.5 * DAY)
    history.notified(2.4 * DAY + 5, "queued").notified(2.4 * DAY + 6, "delivered", 1, queued=2.4 * DAY + 5)
    history.notified(3 * DAY, "queued").notified(3.1 * DAY, "gave_up", 9, queued=3 * DAY)
    for number, (seconds, failovers) in enumerate(((2.4 * DAY + 60, 1), (3 * DAY, 1), (3.5 * DAY, 0))):
        history.records.append(replace(episode(number, at(seconds)), cluster_id="fortnight", failovers=failovers))


def test_a_week_is_one_line(ask: Ask) -> None:
    """Weeks begin on Monday, UTC."""
    columns = (
        "CAST(week AS STRING), failovers, leader_changes, mean_vacant_seconds, max_vacant_seconds, availability, unobserved, "
        "alerts_delivered, alerts_given_up"
    )
    assert ask("weekly_report", "fortnight", columns) == [
        ("2025-11-17", 1, 1, 60, 60, round(1 - 60 / (2.5 * DAY), 6), 0, 1, 0),
        ("2025-11-24", 1, 1, None, None, 1, 0.5, 0, 1),
    ]


def test_a_week_says_for_how_long_no_leader_worked(ask: Ask) -> None:
    """The bounds as in mttr; how many failovers have no upper one."""
    columns = (
        "leader_changes, max_vacant_seconds, without_downtime, downtime_mean_seconds_at_least, downtime_mean_seconds_at_most, "
        "downtime_max_seconds_at_least, downtime_max_seconds_at_most"
    )
    assert ask("weekly_report", "dead_and_published", columns) == [
        (2, 0.5, 0, 9.2, 15.7, 9.5, 16.0),
        (2, 2.0, 2, 2.0, None, 2.0, None),
    ]


# -- recovery_time, reprocessed, unreviewed ------------------------------------------------------------------------------


@cluster
def died(history: History) -> None:
    """Five episodes: two observers who know more and less, one who is not sure, none, a handover, and one that was no failover."""
    failovers = {number: episode(900 + number, at(number * DAY)) for number in range(5)}
    failovers[4] = replace(failovers[4], failovers=0, cause="observer_blind")
    first, second, _, handover, _ = failovers.values()
    unproven: dict[str, Any] = {"verdict": "unproven", "running_at": None, "checkpointed_at": None, "dead_at": None}
    job: dict[str, Any] = {"job_id": "0" * 32, "name": "orders", "state": "RUNNING", "outcome": "running"}
    older: dict[str, Any] = {"restored_from": "older", "checkpoint_id": 39, "checkpoints_behind": 2}
    history.records += [
        *(replace(record, cluster_id="died") for record in failovers.values()),
        replace(annotation(902, at(3 * DAY)), cluster_id="died"),
    ]
    for made, of, columns in (
        (death, first, {"reason": "killed", "confidence": "medium", **OTHER}),
        (death, first, {"observed_at": instant(at(60))}),
        (recovery, first, {**unproven, **OTHER}),
        (recovery, first, {"observed_at": instant(at(60))}),
        (recovery, first, {**job, **OTHER}),
        (recovery, first, {**job, **older, "reprocessed_seconds": 12.5, "observed_at": instant(at(60))}),
        (death, second, {"reason": "killed", "confidence": "medium", "observed_at": instant(at(DAY + 60)), **OTHER}),
        (
            death,
            second,
            {"reason": "exited", "confidence": "medium", "observed_at": instant(at(DAY)), "ended_at": None},
        ),
        (death, handover, {"reason": "unknown", "confidence": "none", "ended_at": instant(at(3 * DAY - 6))}),
        (recovery, handover, {"observed_at": instant(at(3 * DAY - 60)), **OTHER}),
        (recovery, handover, {"verdict": "lost", "running_at": None, "dead_at": instant(at(3 * DAY - 6))}),
        (recovery, handover, {**job, "verdict": "lost", "outcome": "missing", "state": None}),
    ):
        number = len(history.records)
        about = {"id": record_id("died", number), "cluster_id": "died", "episode_id": of.id, "opened_at": of.opened_at}
        day = next(day for day, each in failovers.items() if each is of) * DAY
        if made is death:
            del about["opened_at"]
        history.records.append(made(number, at(day), **about | columns))


def test_of_several_observers_the_one_that_knows_most_is_believed(ask: Ask) -> None:
    """High before medium; the worst of what is proven; of equals the first. Who recorded nothing changes nothing."""
    columns = "opened_at, death_reason, recovery_verdict, dead_at"
    assert ask("recovery_time", "died", columns) == [
        (-8.0, "oom_killed", "recovered", -9.0),
        (DAY - 8, "exited", None, None),
        (2 * DAY - 8, None, None, None),
        (3 * DAY - 8, "unknown", "lost", 3 * DAY - 6),
    ]


def test_each_failover_is_one_row_with_what_became_of_it(ask: Ask) -> None:
    """Not that which was none; nor one for each component, as in `leader_changes`."""
    columns = "opened_at, cause, death_reason, recovery_verdict, leaders, drill, before_host, after_host"
    assert ask("failovers", "died", columns) == [
        (-8.0, "jobmanager_lost", "oom_killed", "recovered", 1, False, "jm-0", "jm-1"),
        (DAY - 8, "jobmanager_lost", "exited", None, 1, False, "jm-0", "jm-1"),
        (2 * DAY - 8, "jobmanager_lost", None, None, 1, False, "jm-0", "jm-1"),
        (3 * DAY - 8, "jobmanager_lost", "unknown", "lost", 1, False, "jm-0", "jm-1"),
    ]


def test_the_stages_of_a_failover_begin_with_what_was_first(ask: Ask) -> None:
    """The end of the process, or the loss of its leadership if it removed its addresses before. What was not seen is null."""
    columns = (
        "opened_at, opened_after_seconds, dispatcher_led_after_seconds, led_after_seconds, running_after_seconds, "
        "checkpointed_after_seconds, total_seconds"
    )
    assert ask("recovery_time", "died", columns) == [
        (-8.0, 1.0, 3.0, 4.0, 7.0, 9.0, 9.0),
        (DAY - 8, None, None, None, None, None, None),
        (2 * DAY - 8, None, None, None, None, None, None),
        (3 * DAY - 8, 0.0, 2.0, 3.0, None, 8.0, None),
    ]


def test_of_each_restored_job_it_is_known_how_much_was_done_again(ask: Ask) -> None:
    """One row, from the observer that knows from what it was restored; none of a job of which nobody does."""
    columns = "opened_at, name, restored_from, checkpoint_id, checkpoints_behind, reprocessed_seconds"
    assert ask("reprocessed", "died", columns) == [(-8.0, "orders", "older", 39, 2, 12.5)]


def test_a_failover_is_unreviewed_until_somebody_annotates_it(ask: Ask) -> None:
    """What is no failover needs no review; and each week says how many are left."""
    assert ask("unreviewed", "died", "opened_at, death_reason, recovery_verdict") == [
        (-8.0, "oom_killed", "recovered"),
        (DAY - 8, "exited", None),
        (3 * DAY - 8, "unknown", "lost"),
    ]
    assert ask("weekly_report", "died", "CAST(week AS STRING), failovers, unreviewed") == [
        ("2025-11-17", 3, 2),
        ("2025-11-24", 1, 1),
    ]


@cluster
def drilled(history: History) -> None:
    """Three failovers within an hour, the second of a drill; another drill saw none."""
    history.discovered(0, A).covered(0, 3600)
    before = A
    for number, (second, after, vacant) in enumerate(((60, B, 2.0), (600, C, 90.0), (1200, A, 4.0)), start=950):
        failover = replace(episode(number, at(second + 1)), cluster_id="drilled", vacant_seconds=vacant)
        history.revoked(second - vacant, before, episode_id=failover.id)
        history.granted(second, after, before, vacant, episode_id=failover.id)
        history.records += [
            failover,
            death(number, at(second + 1), cluster_id="drilled", episode_id=failover.id),
            recovery(
                number, at(second + 1), cluster_id="drilled", episode_id=failover.id, opened_at=failover.opened_at
            ),
        ]
        before = after
    ends = {"cluster_id": "drilled"}
    history.records += [
        drill(951, at(700), **ends),
        drill(949, at(30), **ends, result="failed", episode_id=None),
        drill(950, at(50), **ends, phase="started", result=None, over_at=None),
    ]


def test_the_failover_of_a_drill_counts_as_a_drill_alone(ask: Ask) -> None:
    """It has its rows, which say so; no figure of failovers, no bout and no review has it. Nobody led meanwhile: availability does."""
    assert ask("leader_changes", "drilled", "changed_at, drill") == [(60, False), (600, True), (1200, False)]
    assert ask("failovers", "drilled", "opened_at, drill") == [(53, False), (593, True), (1193, False)]
    assert ask("recovery_time", "drilled", "opened_at, drill") == [(53, False), (593, True), (1193, False)]
    assert ask("mttr", "drilled", "leader_changes, mean_seconds, max_seconds") == [(2, 3.0, 4.0)]
    assert ask("flapping", "drilled", "changes") == []
    assert ask("unreviewed", "drilled", "opened_at") == [(53,), (1193,)]
    weekly = "failovers, drills, leader_changes, mean_vacant_seconds, max_vacant_seconds, unreviewed"
    assert ask("weekly_report", "drilled", weekly) == [(2, 1, 2, 3.0, 4.0, 2)]
    assert ask("availability", "drilled", "vacant_seconds") == [(96.0,)]


# -- opening -------------------------------------------------------------------------------------------------------------


def test_opening_changes_nothing_else_in_a_session(spark: SparkSession, spool: Path, audit: Path) -> None:
    """Neither its settings nor its other views; the answers are right whatever the settings are."""
    seal(spool, "jm-0", 1, plain_records())
    ingest(spark, str(spool), str(audit))
    session = spark.newSession()
    session.conf.set("spark.sql.ansi.enabled", "false")
    session.conf.set("spark.sql.session.timeZone", "Asia/Tokyo")
    session.range(3).createOrReplaceTempView("mine")
    before = settings(session)
    open_audit(session, str(audit))
    open_audit(session, str(audit))
    assert settings(session) == before
    assert {table.name for table in session.catalog.listTables()} == {"mine", *BASE_VIEWS, *ANSWERS}
    days = session.sql("SELECT DISTINCT CAST(day AS STRING) FROM availability").collect()
    assert [row[0] for row in days] == ["2025-11-21"]


def test_a_session_may_have_only_the_views_that_it_needs(spark: SparkSession, spool: Path, audit: Path) -> None:
    """And those that they read; a name that is none is one line."""
    seal(spool, "jm-0", 1, plain_records())
    ingest(spark, str(spool), str(audit))
    session = spark.newSession()
    open_audit(session, str(audit), ["failovers"])
    assert session.table("failovers").count() == 0  # no episode is recorded
    assert {table.name for table in session.catalog.listTables()} == {
        *("failovers", "episodes", "deaths", "recoveries", "drills")
    }
    with pytest.raises(AuditError, match=r"^cannot open the audit log \S+: there is no table or view nonsense$"):
        open_audit(session, str(audit), ["failovers", "nonsense"])


def plain_records() -> list[AnyRecord]:
    history = History("plain")
    plain(history)
    return history.records


def settings(session: SparkSession) -> dict[str, str]:
    return {row.key: row.value for row in session.sql("SET").collect()}


def test_what_is_no_audit_log_cannot_be_opened(spark: SparkSession, tmp_path: Path) -> None:
    """One line that names what is missing."""
    with pytest.raises(AuditError, match=r"^cannot open the audit log \S+: there is no such folder$"):
        open_audit(spark, str(tmp_path / "nowhere"))
    with pytest.raises(AuditError, match=r"^cannot open the audit log \S+: it is not an audit log$"):
        open_audit(spark, str(tmp_path))
    (tmp_path / "file").write_text("")
    with pytest.raises(AuditError, match="there is no such folder"):
        open_audit(spark, str(tmp_path / "file"))
