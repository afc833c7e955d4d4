"""Several questions compute the recent leadership once, and each is answered from the records that are there when it is asked."""

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from sidecar.audit.ask import registration
from sidecar.audit.ask.registration import RecentLeadership, register_views
from sidecar.audit.ask.shell import Shell
from sidecar.audit.ask.sql import run_sql
from sidecar.audit.ingest.ingest import ingest
from sidecar.audit.spark.spark_session import own_session, sizes_to_read, tune
from sidecar.audit.upkeep.compact import compact
from sidecar.audit.upkeep.materialize import materialize
from sidecar.audit.upkeep.retention import expire
from sidecar.core.records import TransitionRecord
from tests.audit.spooling import NOON, coverage, seal, transition

pytestmark = pytest.mark.spark

COUNT = "SELECT count(*) FROM leader_changes"
KEPT = "Scan ExistingRDD"
"""How Spark's plans name what is kept."""


@pytest.fixture
def log(spark: SparkSession, spool: Path, audit: Path) -> str:
    """The failovers of three clusters."""
    seal(spool, "jm-0", 1, [transition(n, NOON) for n in range(3)] + [coverage(1)])
    ingest(spark, str(spool), str(audit))
    return str(audit)


def failover(number: int, days: float) -> TransitionRecord:
    """A leader that was not there before takes over, so many days after the others."""
    return transition(number, NOON + timedelta(days=days), after_session_id=f"cccccccc-0000-4000-8000-{number:012}")


def count(spark: SparkSession, log: str, kept: RecentLeadership | None) -> int:
    """The number of failovers."""
    ((number,),) = run_sql(spark, log, COUNT, kept).rows
    assert isinstance(number, int)
    return number


def plan(spark: SparkSession, log: str, query: str, kept: RecentLeadership | None = None) -> str:
    """How Spark answers the query."""
    ((text,),) = run_sql(spark, log, f"EXPLAIN {query}", kept).rows
    return str(text)


def numbers_kept(spark: SparkSession) -> set[int]:
    """The numbers of everything that Spark keeps."""
    context: Any = spark.sparkContext._jsc
    return {int(number) for number in context.getPersistentRDDs()}


def test_many_questions_compute_it_once(spark: SparkSession, log: str) -> None:
    """Also of other views, and each in a session of its own."""
    kept = RecentLeadership()
    before = numbers_kept(spark)
    answers = [[*run_sql(spark, log, f"TABLE {view}", kept).rows] for view in ("leader_changes", "leadership", "mttr")]
    assert len(numbers_kept(spark) - before) == 1
    assert answers == [
        [*run_sql(spark, log, f"TABLE {view}").rows] for view in ("leader_changes", "leadership", "mttr")
    ]
    assert KEPT in plan(spark, log, "TABLE leader_changes", kept)


def test_one_question_that_reads_it_twice_computes_it_once(spark: SparkSession, log: str) -> None:
    """The failovers of a week and its availability; but a question that reads it once computes only the columns that it needs."""
    assert KEPT in plan(spark, log, "TABLE weekly_report")
    assert KEPT not in plan(spark, log, "TABLE leader_changes")


def test_what_is_described_is_not_computed(spark: SparkSession, log: str) -> None:
    """Columns and names are known without it."""
    before = numbers_kept(spark)
    for question in ("DESCRIBE weekly_report", "SHOW VIEWS"):
        assert [*run_sql(spark, log, question, RecentLeadership()).rows]
    assert not numbers_kept(spark) - before  # what others kept may be collected meanwhile


def test_a_question_sees_what_has_happened_since_the_last_one(spark: SparkSession, spool: Path, log: str) -> None:
    """New records, late ones, dates that are closed, compacted and deleted."""
    kept = RecentLeadership()
    assert count(spark, log, kept) == 3
    seal(spool, "jm-0", 5, [failover(n, days=n - 5) for n in range(6, 9)])
    ingest(spark, str(spool), log)
    assert count(spark, log, kept) == 6
    seal(spool, "jm-0", 8, [failover(n, days=-0.2) for n in range(9, 12)])
    ingest(spark, str(spool), log)
    assert count(spark, log, kept) == count(spark, log, None) == 9
    compact(spark, log)
    assert count(spark, log, kept) == 9
    oldest = NOON.date() + timedelta(days=2)
    materialize(spark, log, before=oldest)
    assert count(spark, log, kept) == count(spark, log, None) == 9
    expire(spark, log, (datetime.now(UTC).date() - oldest).days)
    assert count(spark, log, kept) == count(spark, log, None) == 2


def test_two_logs_are_not_mixed_up(spark: SparkSession, spool: Path, log: str, tmp_path: Path) -> None:
    """Each has what is kept of it, also if they share a session of Spark."""
    seal(spool, "jm-0", 5, [failover(6, days=1)])
    other = str(tmp_path / "other")
    ingest(spark, str(spool), other)
    of_log, of_other = RecentLeadership(), RecentLeadership()
    assert [(count(spark, log, of_log), count(spark, other, of_other)) for _ in range(2)] == [(3, 4), (3, 4)]
    assert [count(spark, one, of_log) for one in (other, log)] == [4, 3]


def test_nobody_finds_it_but_the_views(spark: SparkSession, log: str) -> None:
    """Between questions it has no name."""
    kept = RecentLeadership()
    count(spark, log, kept)
    names = [row.viewName for row in spark.sql("SHOW VIEWS IN global_temp").collect() if row.namespace == "global_temp"]
    assert names == []


@pytest.mark.parametrize("master", ["local[2]", "spark://elsewhere:7077"])
def test_it_is_kept_only_if_that_is_safe(
    spark: SparkSession, log: str, monkeypatch: pytest.MonkeyPatch, master: str
) -> None:
    """Not if it may need much memory, or is on another machine."""
    kept = RecentLeadership()
    if master.startswith("local"):
        monkeypatch.setattr(registration, "_MAX_BYTES", 1000)
    else:
        monkeypatch.setattr(spark.sparkContext, "master", master)
    before = numbers_kept(spark)
    assert count(spark, log, kept) == 3
    assert not numbers_kept(spark) - before


def test_small_questions_stay_small(spark: SparkSession, log: str) -> None:
    """What is kept counts with its size, not with what Spark supposes of joins."""
    asking = own_session(spark)
    tune(asking, ())
    register_views(asking, log, {"leader_changes", "availability"}, recent=RecentLeadership())
    assert sum(sizes_to_read(asking.table("leader_changes").unionByName(asking.table("leader_changes")))) < 1_000_000


def test_what_is_lost_is_computed_anew(spark: SparkSession, log: str) -> None:
    """A disk was full: the question fails, the next one is answered."""

    def lines() -> Iterator[str]:
        before = numbers_kept(spark)
        yield f"{COUNT};"
        context: Any = spark.sparkContext._jsc
        for number in numbers_kept(spark) - before:
            context.getPersistentRDDs()[number].unpersist(True)
        yield f"{COUNT};"
        yield f"{COUNT};"

    answers, messages = StringIO(), StringIO()
    Shell(spark, log, "json", answers, messages).run(lines())
    assert answers.getvalue() == '{"count(1)":3}\n' * 2
    assert len(messages.getvalue().splitlines()) == 1
