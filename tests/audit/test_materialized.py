"""The materialised answers are those from scratch, whatever happened, came late, expired or was killed."""

import random
import re
import shutil
from collections import Counter
from collections.abc import Callable
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

from sidecar.audit import AuditError
from sidecar.audit.ask.registration import RecentLeadership, register_views
from sidecar.audit.ingest.ingest import ingest
from sidecar.audit.spark.spark_session import _SMALL_BYTES, own_session, tune
from sidecar.audit.upkeep import materialize as upkeep
from sidecar.audit.upkeep.materialize import Fold, is_kept, materialize
from sidecar.audit.upkeep.retention import expire
from sidecar.audit.upkeep.verify import verify
from sidecar.core.records import AnyRecord, PositionRecord
from tests.audit.histories import A, B, C, History
from tests.audit.killed_materialization import Rounds
from tests.audit.killing import lending_its_jvm
from tests.audit.random_histories import DAY, MIDNIGHT, random_history
from tests.audit.spooling import NOON, seal
from tests.audit.test_answers import HISTORIES, JOB, OTHER

pytestmark = pytest.mark.spark

FIRST = NOON.date()
VIEWS = (
    "leadership",
    "leader_changes",
    "availability",
    "known_until",
    "mttr",
    "flapping",
    "unobserved",
    "weekly_report",
)
NIGHT = MIDNIGHT + DAY
"""The midnight after the noon from which histories count."""
STOOD: dict[str, Any] = {"position": PositionRecord(uid="u", resource_version="7"), "store": "kubernetes"}


def views(spark: SparkSession, audit: Path, *, from_scratch: bool = False) -> SparkSession:
    """A session with the views."""
    session = own_session(spark)
    tune(session, ())
    register_views(session, str(audit), VIEWS, from_scratch=from_scratch, recent=RecentLeadership())
    return session


def assert_same_answers(spark: SparkSession, audit: Path) -> None:
    """Every view has the rows that it has from scratch."""
    sessions = [views(spark, audit, from_scratch=scratch) for scratch in (True, False)]
    for view in VIEWS:
        expected, actual = (Counter(tuple(map(str, row)) for row in sql.table(view).collect()) for sql in sessions)
        assert (view, expected - actual, actual - expected) == (view, Counter(), Counter())


def recorded(spark: SparkSession, spool: Path, audit: Path, records: list[AnyRecord]) -> None:
    """These records in one segment, ingested."""
    first = 1 + sum(int(segment.name[17:33]) for segment in spool.glob("jm-0/*.gz"))
    seal(spool, "jm-0", first, records)
    ingest(spark, str(spool), str(audit))


def led(spark: SparkSession, spool: Path, audit: Path, *, days: int) -> None:
    """A leads so long, and nothing happens."""
    history = History("orders")
    history.granted(0, A, None, None).covered(0, days * DAY)
    recorded(spark, spool, audit, history.records)


# -- named cases ---------------------------------------------------------------------------------------------------------


def open_for_days(history: History) -> None:
    """A leader that is confirmed, moves, and ends long after; a vacancy over two midnights."""
    history.granted(0, A, None, None).discovered(NIGHT + 5, A, **OTHER).happened(3 * DAY, "READDRESSED", A, A)
    history.revoked(4 * DAY, A).granted(6 * DAY, B, A, 2 * DAY)
    history.covered(-100, 7 * DAY)


def best_after_midnight(history: History) -> None:
    """One observer discovers the leader just before midnight; the one that saw its beginning records it just after."""
    history.granted(0, A, None, None).revoked(NIGHT - 2, A).discovered(NIGHT - 1, B, A)
    history.granted(NIGHT + 1, B, A, 1.5, **OTHER).covered(0, 2 * DAY)


def best_too_late(history: History) -> None:
    """What is recorded more than an hour after the beginning does not say how it began."""
    history.granted(0, A, None, None).discovered(NIGHT - 10, B, A).granted(NIGHT + 3700, B, A, 9.0, **OTHER)


def split_by_clocks(history: History) -> None:
    """Of one term the discovery is dated before midnight, its end and its true beginning after it: one failover."""
    history.granted(0, A, None, None).discovered(NIGHT - 30, B, A).revoked(NIGHT - 20, A, **OTHER)
    history.granted(NIGHT + 10, B, A, 30.0, **OTHER).discovered(NIGHT + 3000, B, B)


def discovered_twice(history: History) -> None:
    """A discovery that is better known only within the second hour of the next date."""
    history.granted(0, A, None, None).discovered(NIGHT - 60, B, A).revoked(NIGHT - 50, A, **OTHER)
    history.discovered(NIGHT + 3000, B, A).granted(NIGHT + 6000, B, A, 7.0, **OTHER)


def back_after_a_day(history: History) -> None:
    """The same session id within a day is the same term, later it is another one."""
    history.granted(0, A, None, None).happened(10, "CHANGED", B, A).happened(20, "CHANGED", A, B)
    history.happened(30, "CHANGED", B, A).happened(30 + 2.5 * DAY, "CHANGED", A, B)


def dead_address_for_days(history: History) -> None:
    """Dead is what was revoked last, for up to 90 days; what was written before that, for a day."""
    history.discovered(0, A, **STOOD).revoked(20, A, **STOOD).discovered(3 * DAY, A, **STOOD, **OTHER)
    written: dict[str, Any] = {"position": PositionRecord(uid="u", resource_version="8")}
    history.granted(4 * DAY, B, A, 4 * DAY, **written).discovered(4 * DAY + 5, A, B, **STOOD, **OTHER)


def dead_for_a_day(history: History) -> None:
    """A job that was retired yesterday is not back because its address is discovered; the day after, it is."""
    history.granted(0, A, None, None, **JOB, **STOOD).happened(50, "RETIRED", None, A, **JOB, **STOOD)
    history.discovered(DAY - 5, A, **JOB, **STOOD, **OTHER).discovered(2 * DAY, A, **JOB, **STOOD, **OTHER)


def missed_at_midnight(history: History) -> None:
    """A first look over midnight: one job is not found, one within the hour, one the next day."""
    jobs = [{"component": "job", "job_id": str(number) * 32} for number in range(3)]
    for job in jobs:
        history.granted(0, A, None, None, **job)
    history.covered(0, NIGHT - 100).covered(NIGHT - 50, NIGHT + 20, "blind", "jm-1").discovered(NIGHT + 10, B, **OTHER)
    history.discovered(NIGHT + 3000, A, A, **jobs[1]).discovered(NIGHT + DAY, C, A, **jobs[2])
    history.covered(NIGHT + 20, 3 * DAY)


def known_until_noon(history: History) -> None:
    """Coverage that ends on a closed date, and begins again three days later."""
    history.granted(0, A, None, None).covered(0, 3600).covered(3.2 * DAY, 3.3 * DAY, "blind", "jm-1").revoked(
        4 * DAY, A
    )


def covered_over_midnight(history: History) -> None:
    """The piece of coverage that reaches over midnight is recorded after it."""
    history.granted(0, A, None, None).covered(NIGHT - 1800, NIGHT + 5400)


def never_again(history: History) -> None:
    """Coverage that ends within a closed date for good, while the leader's record goes on."""
    history.granted(0, A, None, None).covered(0, 3600).happened(2 * DAY, "CHANGED", B, A)


CASES: list[Callable[[History], object]] = [
    open_for_days, best_after_midnight, best_too_late, split_by_clocks, discovered_twice, back_after_a_day, dead_address_for_days,
    dead_for_a_day, missed_at_midnight, known_until_noon, covered_over_midnight, never_again,
]  # fmt: skip


@pytest.fixture(scope="module")
def cases(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The audit log of all cases, and of those of the answers' tests, materialised in three steps."""
    folder = tmp_path_factory.mktemp("cases")
    records = [record for history in HISTORIES for record in history(history.__name__)]
    for case in CASES:
        history = History(case.__name__)
        case(history)
        records += history.records
    recorded(spark, folder / "spool", folder / "audit", records)
    for day in (1, 2, 6):
        materialize(spark, str(folder / "audit"), before=FIRST + timedelta(days=day + 1))
    return folder / "audit"


@pytest.fixture(scope="module")
def from_tables(spark: SparkSession, cases: Path) -> SparkSession:
    """A session with the views of that log."""
    return views(spark, cases)


def test_every_known_answer_is_the_same_from_the_tables(spark: SparkSession, cases: Path) -> None:
    """All views, over every history whose answers are known, and over each hard case around midnight."""
    assert_same_answers(spark, cases)


@pytest.mark.parametrize(
    ("case", "expected"),
    [
        ("best_after_midnight", [("GRANTED", 1.5)]),
        ("best_too_late", [("DISCOVERED", None)]),
        ("split_by_clocks", [("GRANTED", 30.0)]),
        ("back_after_a_day", [("CHANGED", None), ("CHANGED", None)]),
    ],
)
def test_a_term_is_one_failover_around_midnight(
    from_tables: SparkSession, case: str, expected: list[tuple[str, float | None]]
) -> None:
    """With what the observer recorded that saw its beginning within an hour."""
    found = from_tables.table("leader_changes").where(f"cluster_id = '{case}'").orderBy("changed_at")
    assert [(row.kind, row.vacant_seconds) for row in found.collect()] == expected


def test_a_week_reads_the_rows_of_that_week(from_tables: SparkSession, cases: Path) -> None:
    """A condition on the date of a view is one on the files of its table, which are sorted by date: in the plan."""
    day = FIRST + timedelta(days=40)
    conditions = {
        "leader_changes": f"event_date >= '{day}'",
        "leadership": f"event_date >= '{day}' OR event_date IS NULL",
        "availability": f"day >= '{day}'",
    }
    for view, condition in conditions.items():
        plan = from_tables.sql(f"EXPLAIN SELECT * FROM {view} WHERE {condition}").collect()[0][0]  # noqa: S608  our own text
        pushed = [line.partition("PushedFilters")[2] for line in plan.splitlines() if f"{cases}/" in line]
        assert any(f"event_date,{day}" in filters for filters in pushed), plan


def files_of(audit: Path) -> dict[str, int]:
    """How many files each month of `availability_days` has."""
    return Counter(file.parent.name for file in (audit / "availability_days").glob("*/*.parquet"))


def test_a_month_that_is_over_has_one_file_and_a_late_record_changes_those_of_its_months(
    spark: SparkSession, spool: Path, audit: Path
) -> None:
    """Each run adds one to the month of its dates: 21 November is the first of all."""
    led(spark, spool, audit, days=45)
    for days, files in (
        (8, {"event_month=2025-11": 1}),
        (9, {"event_month=2025-11": 2}),
        (12, {"event_month=2025-11": 3, "event_month=2025-12": 1}),
        (13, {"event_month=2025-11": 1, "event_month=2025-12": 2}),
        (43, {"event_month=2025-11": 1, "event_month=2025-12": 3, "event_month=2026-01": 1}),
        (44, {"event_month=2025-11": 1, "event_month=2025-12": 1, "event_month=2026-01": 2}),
    ):
        materialize(spark, str(audit), before=FIRST + timedelta(days=days))
        assert files_of(audit) == files
    november = {*(audit / "availability_days" / "event_month=2025-11").iterdir()}
    late = History("orders")
    late.revoked(20 * DAY, A).granted(20 * DAY + 60, B, A, 60.0)
    recorded(spark, spool, audit, late.records)
    assert materialize(spark, str(audit), before=FIRST + timedelta(days=44)).redone > 0
    assert {*(audit / "availability_days" / "event_month=2025-11").iterdir()} == november
    assert verify(spark, str(audit), deep=True).findings == []


def test_an_expired_date_has_no_answers_though_its_month_has(spark: SparkSession, spool: Path, audit: Path) -> None:
    led(spark, spool, audit, days=9)
    materialize(spark, str(audit), before=FIRST + timedelta(days=8))
    expire(spark, str(audit), (datetime.now(UTC).date() - FIRST - timedelta(days=3)).days)
    days = views(spark, audit).sql("SELECT min(day) AS first FROM availability")
    assert [row.first for row in days.collect()] == [FIRST + timedelta(days=3)]
    assert files_of(audit) == {"event_month=2025-11": 1}


# -- late records, retention, deletion -----------------------------------------------------------------------------------


@pytest.mark.parametrize("little", [0, upkeep.LITTLE], ids=["in several runs", "at once"])
def test_random_histories_have_the_same_answers(
    spark: SparkSession, spool: Path, audit: Path, monkeypatch: pytest.MonkeyPatch, little: int
) -> None:
    """Some observers, skewed clocks, blindness, lost state, returned leaders, twins; late segments, retention, and again late ones."""
    monkeypatch.setattr(upkeep, "LITTLE", little)
    seed = random.randrange(2**32)
    print(f"seed {seed}")  # noqa: T201  shown when it fails
    chance = random.Random(seed)
    records = [record for number in range(8) for record in random_history(chance, f"cluster-{number}", days=8)]
    chance.shuffle(records)
    late, first = records[: len(records) // 30], records[len(records) // 30 :]
    second = [record for record in late if record.cluster_id < "cluster-3"]
    third = [record for record in late if record.cluster_id >= "cluster-3"]
    recorded(spark, spool, audit, first)
    materialize(spark, str(audit), before=FIRST + timedelta(days=5))
    recorded(spark, spool, audit, second)
    assert materialize(spark, str(audit), before=FIRST + timedelta(days=7)).redone > 0
    expire(spark, str(audit), (datetime.now(UTC).date() - FIRST - timedelta(days=3)).days)
    recorded(spark, spool, audit, third)
    materialize(spark, str(audit), before=FIRST + timedelta(days=9))
    assert verify(spark, str(audit), deep=True).findings == []


def test_what_came_before_the_first_carry_is_not_forgotten(spark: SparkSession, spool: Path, audit: Path) -> None:
    """The first run closes all but the last dates at once. A late record among those is folded after all that came before it."""
    led(spark, spool, audit, days=9)
    materialize(spark, str(audit), before=FIRST + timedelta(days=8))
    late = History("orders")
    late.revoked(3 * DAY, A).granted(3 * DAY + 60, B, A, 60.0)
    recorded(spark, spool, audit, late.records)
    assert materialize(spark, str(audit), before=FIRST + timedelta(days=8)).redone > 0
    assert_same_answers(spark, audit)


def test_the_last_dates_of_many_records_have_carries_of_their_own(
    spark: SparkSession, spool: Path, audit: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Late records come to them. Few records are closed at once, because each run costs seconds: what there is, is soon folded again."""
    led(spark, spool, audit, days=9)
    shutil.copytree(audit, audit.with_name("many"))
    for log, little, carries in ((audit, upkeep.LITTLE, 1), (audit.with_name("many"), 0, 4)):
        monkeypatch.setattr(upkeep, "LITTLE", little)
        materialize(spark, str(log), before=FIRST + timedelta(days=8))
        assert len([*(log / "_closed").glob("carry-*")]) == carries


def test_a_damaged_or_forgotten_file_is_found(spark: SparkSession, cases: Path, tmp_path: Path) -> None:
    """Of each file that counts every byte is read; what does not count was left by a command that died."""
    audit = tmp_path / "audit"
    shutil.copytree(cases, audit)
    (torn, *_, wrong) = sorted((audit / "leader_changes").glob("*/*.parquet"))
    left = torn.with_name("left.parquet")
    shutil.copy(wrong, left)
    torn.write_bytes(torn.read_bytes()[:-20])
    first, second = verify(spark, str(audit)).findings
    assert first == f"{left.relative_to(audit)}: leftover of a command that died; the next compaction removes it"
    assert second.startswith(f"{torn.relative_to(audit)}: unreadable: ")
    rows = pq.read_table(left, partitioning=None)
    other_date = pa.array([date(2025, 11, 30)] * len(rows))
    pq.write_table(rows.set_column(rows.column_names.index("event_date"), "event_date", other_date), torn)
    left.unlink()
    (other,) = verify(spark, str(audit)).findings
    assert re.fullmatch(rf"{torn.relative_to(audit)}: \d+ rows? of another date", other)


def test_a_small_date_of_a_long_log_is_interpreted(
    spark: SparkSession, cases: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Compiling it would take longer than running it, however much the other dates hold."""
    audit = tmp_path / "audit"
    shutil.copytree(cases, audit, ignore=shutil.ignore_patterns("_closed"))
    last = max((audit / "transitions").glob("*/*.parquet"))
    for number in range(_SMALL_BYTES // last.stat().st_size + 1):
        shutil.copy(last, last.with_name(f"{number}.parquet"))

    def ending(fold: Fold, *_: object) -> None:
        raise OSError(f"compiled: {fold._session.conf.get('spark.sql.codegen.wholeStage')}")

    monkeypatch.setattr(Fold, "dates", ending)
    with pytest.raises(AuditError, match=r": compiled: false$"):
        materialize(spark, str(audit), before=FIRST + timedelta(days=2))


def test_carries_are_few_and_close_enough() -> None:
    """Of ten years: the older, the sparser; a late record has one before it at most as far away as the record is old."""
    newest = FIRST
    kept = [age for age in range(3650) if is_kept(newest - timedelta(days=age), newest)]
    assert len(kept) < 90
    for age in range(3500):
        assert min(older for older in kept if older >= age) - age <= max(1, min(age, 64))


def test_killed_at_any_moment_no_answer_is_wrong(spark: SparkSession, tmp_path: Path) -> None:
    """New and late records, kill -9, and answers in between."""
    seed = random.randrange(2**32)
    print(f"seed {seed}")  # noqa: T201  shown when it fails
    rounds = Rounds(tmp_path, random.Random(seed))
    with lending_its_jvm(spark):
        rounds.play(spark, kills=0)
        rounds.play(spark, kills=2)
