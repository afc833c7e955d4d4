"""Checks the materialised answers: that the named files are there and sound, and, in depth, that they are what the records say."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812  Spark's own convention

from sidecar.audit.ask.registration import RecentLeadership, register_views
from sidecar.audit.audit_error import AuditError, defect
from sidecar.audit.log.closed_tables import CARRY, CLOSED_TABLES, read_closed, read_manifest, unnamed
from sidecar.audit.log.file_systems import open_storage
from sidecar.audit.log.manifest import CLOSED, SOURCES, Manifest
from sidecar.audit.log.schema import EVENT_DATE
from sidecar.audit.log.storage import Storage
from sidecar.audit.spark.collected import collected
from sidecar.audit.spark.session import sizes_to_read, tune

_DATE: Final = {"leadership": "ended_at", "leader_changes": "changed_at"}
"""The column with the date of the folder."""
_DAYS: Final = {"leadership": EVENT_DATE, "leader_changes": EVENT_DATE, "availability": "day"}
"""The views that are made of the tables, and their dates."""
_ATTEMPTS: Final = 3
_MOST_DIFFERENCES: Final = 100


def check_closed(session: SparkSession, audit: Storage) -> tuple[int, int, list[str]]:
    """The numbers of files and rows of the materialised tables, and the problems found, one line each.

    Repeated if there are problems that a concurrent materialization may have caused.
    """
    for _ in range(_ATTEMPTS):
        try:
            manifest = read_manifest(audit)
        except Exception as error:  # noqa: BLE001  every error is reported, and the tables of records are checked
            return 0, 0, [f"{CLOSED}: {error if isinstance(error, AuditError) else defect(error)}"]
        rows, findings = _checked(session, audit, manifest)
        if not findings or read_manifest(audit).number == manifest.number:
            break
    return len(manifest.paths()), rows, findings


def _checked(session: SparkSession, audit: Storage, manifest: Manifest) -> tuple[int, list[str]]:
    findings = list[str]()
    if not audit.is_locked():  # then the files may be about to be named
        findings += (
            f"{file}: leftover of a command that died; the next compaction removes it"
            for file in unnamed(audit, manifest)
        )
    rows = 0
    for table in (*CLOSED_TABLES, CLOSED):
        files = [file for file in sorted(manifest.paths()) if file.startswith(f"{table}/")]
        rows += _read(session, audit, table, files, findings)
    if not findings:
        findings += _of_another_date(session, audit, manifest)
    return rows, findings


def _read(session: SparkSession, audit: Storage, table: str, files: Sequence[str], findings: list[str]) -> int:
    """The number of rows of files, of which every byte is read: bisects to find each file that is unreadable."""
    if not files:
        return 0
    schema = CLOSED_TABLES.get(table, CARRY)
    every = F.sum(F.xxhash64(*schema.names).bitwiseAND(F.lit(1)))
    try:
        rows = session.read.schema(schema).parquet(*(audit.to_read(file) for file in files))
        [(count, _)] = collected(rows.agg(F.count("*"), every))
        return int(count)
    except Exception as error:  # noqa: BLE001  every error is reported, and the other files are checked
        if len(files) == 1:
            findings.append(f"{files[0]}: unreadable: {defect(error)}; delete {CLOSED} and materialize again")
            return 0
    half = len(files) // 2
    return sum(_read(session, audit, table, part, findings) for part in (files[:half], files[half:]))


def _of_another_date(session: SparkSession, audit: Storage, manifest: Manifest) -> Iterator[str]:
    for table, column in _DATE.items():
        rows = read_closed(session, audit, manifest, table)
        other = rows.where(F.col(column).isNull() | (F.to_date(column) != F.col(EVENT_DATE)))
        for row in collected(other.groupBy(EVENT_DATE).count().orderBy(EVENT_DATE)):
            yield f"{table}/{EVENT_DATE}={row[EVENT_DATE]}: {row['count']:,} rows of another date"


def differences(session: SparkSession, audit: str) -> Iterator[str]:
    """One line for each view, date and cluster that is not what the records of closed dates say; at most 100 a view.

    Late records that are not materialised yet are differences, too.
    """
    last = read_manifest(open_storage(session, audit)).last
    stored, expected = (_views(session, audit, from_scratch=from_scratch) for from_scratch in (False, True))
    tune(session, (size for table in SOURCES for size in sizes_to_read(session.table(table))))
    for view, day in _DAYS.items():
        rows = stored[view].withColumn("_n", F.lit(1)).unionByName(expected[view].withColumn("_n", F.lit(-1)))
        rows = rows.where(F.col(day) <= F.lit(last))  # not those without a date
        different = rows.groupBy(*stored[view].columns).agg(F.sum("_n").alias("_n")).where("_n <> 0")
        examples = different.select(day, "cluster_id").distinct().orderBy(day, "cluster_id").limit(_MOST_DIFFERENCES)
        for row in collected(examples):
            yield f"{view}: {row[day]}: {row.cluster_id}: not what the records say; run audit materialize, or delete {CLOSED} first"


def _views(session: SparkSession, audit: str, *, from_scratch: bool) -> Mapping[str, DataFrame]:
    register_views(session, audit, {*_DAYS, *SOURCES}, from_scratch=from_scratch, recent=RecentLeadership())
    return {view: session.table(view) for view in _DAYS}
