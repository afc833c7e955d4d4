"""What happens a few times a day has a folder for each month, with `event_date` in its files."""

from datetime import UTC, date, datetime, timedelta
from pathlib import Path

import duckdb
import pyarrow.dataset
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

from sidecar.audit import open_audit
from sidecar.audit.ingest.ingest import ingest
from sidecar.audit.log.tables import BASE_VIEWS, TABLES, Period, folder_of, period_of
from sidecar.audit.upkeep.compact import compact
from sidecar.audit.upkeep.retention import ExpireResult, expire
from sidecar.audit.upkeep.verify import verify
from tests.audit.spooling import episode, ids, ids_seen, seal, transition

pytestmark = pytest.mark.spark

TODAY = datetime.now(UTC).replace(hour=0, minute=0, second=1, microsecond=0)
DAYS = [TODAY - timedelta(days=days) for days in (0, 1, 35, 70)]
"""Dates of three months, or four."""


@pytest.fixture
def log(spark: SparkSession, spool: Path, audit: Path) -> Path:
    """An audit log with episodes of some months, as two ingests left it."""
    for half in (0, 10):
        seal(spool, "jm-0", 1 + half, [episode(half + n, day) for n, day in enumerate(DAYS)])
        ingest(spark, str(spool), str(audit))
    return audit


def months(audit: Path) -> dict[str, int]:
    """How many files of episodes each folder has."""
    return {folder.name: len([*folder.iterdir()]) for folder in sorted((audit / "episodes").iterdir())}


def numbers() -> list[str]:
    """The ids of all episodes in the log."""
    return ids([episode(half + n) for half in (0, 10) for n in range(len(DAYS))])


@pytest.mark.parametrize(
    ("table", "folder", "period"),
    [
        ("transitions", "event_date=2026-02-28", Period(date(2026, 2, 28), date(2026, 2, 28))),
        ("leadership", "event_month=2026-12", Period(date(2026, 12, 1), date(2026, 12, 31))),
        ("episodes", "event_month=2026-12", Period(date(2026, 12, 1), date(2026, 12, 31))),
        ("episodes", "event_month=2028-02", Period(date(2028, 2, 1), date(2028, 2, 29))),
        ("deaths", "event_month=9999-12", Period(date(9999, 12, 1), date(9999, 12, 31))),
        ("quarantine", "event_month=2026-11", Period(date(2026, 11, 1), date(2026, 11, 30))),
        ("episodes", "event_date=2026-11-20", None),
        ("transitions", "event_month=2026-11", None),
        ("episodes", "event_month=2026-13", None),
        ("episodes", "event_month=2026-11-20", None),
        ("episodes", "event_month=20261120", None),
        ("episodes", "event_month=__HIVE_DEFAULT_PARTITION__", None),
        ("episodes", "2026-11", None),
    ],
)
def test_a_folder_has_the_dates_in_its_name(table: str, folder: str, period: Period | None) -> None:
    """And no other name is one of a folder of that table."""
    assert period_of(table, folder) == period
    if period:
        assert folder_of(table, period.first) == folder_of(table, period.last) == f"{table}/{folder}"


def test_only_transitions_have_a_folder_for_each_date() -> None:
    """Which table has which folders is fixed: plain readers know it."""
    assert {name for name in BASE_VIEWS if TABLES[name].partition == "event_date"} == {"transitions"}


def test_every_reader_finds_the_date_in_the_files(spark: SparkSession, log: Path) -> None:
    """DuckDB, pyarrow and Spark; the views show no month."""
    wanted = sorted([day.date() for day in DAYS] * 2)
    table = log / "episodes"
    assert [row.event_date for row in spark.read.parquet(str(table)).orderBy("event_date").collect()] == wanted
    duck = duckdb.read_parquet(f"{table}/**/*.parquet", hive_partitioning=True)
    assert sorted(day for (day,) in duck.select("event_date").fetchall()) == wanted
    arrow = pyarrow.dataset.dataset(table, partitioning="hive").to_table()
    assert sorted(arrow["event_date"].to_pylist()) == wanted
    open_audit(spark, str(log))
    shown = spark.table("episodes")
    assert shown.columns[-1] == "event_date"
    assert "event_month" not in shown.columns
    assert shown.where(f"event_date = '{DAYS[2].date()}'").count() == 2


def test_compact_leaves_one_file_a_month(spark: SparkSession, spool: Path, log: Path) -> None:
    """Also of the month that has begun, unless it began today; a late record is added beside it, and joins it the next time."""
    before = months(log)
    compact(spark, str(log))
    began_today = f"event_month={TODAY:%Y-%m}" if TODAY.day == 1 else None
    assert months(log) == {month: files if month == began_today else 1 for month, files in before.items()}
    assert ids_seen(spark, log, "episodes") == numbers()
    late = episode(99, DAYS[2])
    seal(spool, "jm-0", 50, [late, episode(0, DAYS[0])])
    assert ingest(spark, str(spool), str(log)).rows["episodes"] == 1
    assert months(log)[f"event_month={DAYS[2]:%Y-%m}"] == 2
    compact(spark, str(log))
    assert months(log)[f"event_month={DAYS[2]:%Y-%m}"] == 1
    assert ids_seen(spark, log, "episodes") == sorted([*numbers(), *ids([late])])
    assert verify(spark, str(log)).findings == []


def test_an_id_is_found_in_any_month(spark: SparkSession, spool: Path, log: Path) -> None:
    """An episode that another observer dates two months later is there already; so is one that comes twice in a batch."""
    other = [episode(3, DAYS[0]), episode(77, DAYS[2]), episode(77, DAYS[3])]
    seal(spool, "jm-1", 1, other)
    assert ingest(spark, str(spool), str(log)).rows["episodes"] == 1
    assert ids_seen(spark, log, "episodes") == sorted([*numbers(), *ids(other[1:2])])
    assert verify(spark, str(log)).findings == []


def test_a_month_goes_with_its_last_date(spark: SparkSession, spool: Path, log: Path) -> None:
    """Not before: rows of it stay up to 30 days longer than those of tables by date."""
    seal(spool, "jm-0", 90, [transition(n, day) for n, day in enumerate(DAYS)])
    ingest(spark, str(spool), str(log))
    last = (DAYS[3].replace(day=1) + timedelta(days=31)).replace(day=1) - timedelta(days=1)
    until = (TODAY.date() - last.date()).days
    assert expire(spark, str(log), until) == ExpireResult(segments=0, folders=1, not_ingested=0)
    assert ids_seen(spark, log, "transitions") == ids([transition(n) for n in range(3)])
    assert ids_seen(spark, log, "episodes") == numbers()
    assert expire(spark, str(log), until - 1).folders == 1
    kept = [episode(half + n) for half in (0, 10) for n in range(3)]
    assert ids_seen(spark, log, "episodes") == ids(kept)


def test_verify_finds_rows_of_another_month_and_date(spark: SparkSession, log: Path) -> None:
    """A file in the wrong folder, a wrong `event_date`, and a folder of another kind."""
    folders = sorted((log / "episodes").iterdir())
    first, last = (min(folder.iterdir()) for folder in (folders[0], folders[-1]))
    first.rename(folders[-1] / "moved.parquet")
    table = pq.read_table(last, partitioning=None)
    wrong = table.set_column(
        table.schema.get_field_index("event_date"), "event_date", [[date(2020, 1, 1)] * len(table)]
    )
    pq.write_table(wrong, last)
    stray = log / "episodes" / "event_date=2026-11-20" / "a.parquet"
    stray.parent.mkdir()
    stray.write_bytes(b"")
    rows = f"{len(table)} row{'s' * (len(table) > 1)}"
    assert sorted(verify(spark, str(log)).findings) == sorted(
        [
            f"episodes/{folders[-1].name}/moved.parquet: 1 row of another date",
            f"episodes/{folders[-1].name}/{last.name}: {rows} of another date",
            "episodes/event_date=2026-11-20/a.parquet: not of an audit log",
        ]
    )
