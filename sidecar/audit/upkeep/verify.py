"""Reads every byte of an audit log and reports every problem. Changes nothing."""

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Final, NamedTuple, TypeVar

import msgspec
from msgspec import Struct
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812  Spark's own convention
from pyspark.sql.types import StructType

from sidecar.audit.ask.registration import RecentLeadership, register_views
from sidecar.audit.audit_error import AuditError, ChangedError, defect
from sidecar.audit.log.audit_log import ENTRIES, open_audit_log, open_storage, table_names
from sidecar.audit.log.closed_tables import CARRY, CLOSED_TABLES, read_manifest, unnamed
from sidecar.audit.log.manifest import CLOSED, SOURCES, Manifest
from sidecar.audit.log.storage import INGESTING, PARQUET, STAGING, Storage, is_of_file_system, listing_here
from sidecar.audit.log.tables import EVENT_DATE, TABLES, partition_value, period_of, with_event_date
from sidecar.audit.spark.spark_session import collected, sizes_to_read, tune
from sidecar.core.counted import counted

_T = TypeVar("_T")
_ATTEMPTS: Final = 3
_FOOTERS_AT_ONCE: Final = 8
_FILE, _FOLDER = "_file", "_folder"
_MOST_REPEATED_IDS: Final = 100
"""The maximum of repeated ids that are reported for one table."""
_CLOSED: Final = {table: with_event_date(schema) for table, schema in CLOSED_TABLES.items()}
_DATE: Final = {"leadership": "ended_at", "leader_changes": "changed_at", "availability_days": EVENT_DATE}
"""The column whose UTC date is `event_date`."""
_DAYS: Final = {"leadership": EVENT_DATE, "leader_changes": EVENT_DATE, "availability": "day"}
"""The views that are made of the tables, and their dates."""
_MOST_DIFFERENCES: Final = 100


class VerifyResult(Struct, frozen=True):
    """What was read, and the problems found, one line each."""

    files: int
    rows: int
    findings: Sequence[str]


def verify(spark: SparkSession, audit: str, *, deep: bool = False) -> VerifyResult:
    """Read all of the audit log at `audit`, with every checksum. Raises AuditError when it cannot be opened.

    `deep`: also compute the materialised answers again, from the records, and compare them.
    """
    with open_audit_log(spark, audit, "verify") as (session, folder):
        session.conf.set("spark.sql.legacy.allowHashOnMapType", True)  # to decode every column
        session.conf.set("parquet.page.verify-checksum.enabled", True)
        findings, unfinished = [*_foreign_entries(folder)], _unfinished(folder)
        checks = [_checked(session, folder, table) for table in table_names(folder)]
        files, rows, closed = check_closed(session, folder)
        findings += closed
        if deep and not closed:
            findings += differences(session, audit)
        findings += (
            f"{path}: a replacement of files that has not ended; if its writer died, the next one completes it"
            for path in unfinished
            if path in _unfinished(folder)  # there was time to end
        )
    return VerifyResult(
        files=files + sum(check.files for check in checks),
        rows=rows + sum(check.rows for check in checks),
        findings=findings + [finding for check in checks for finding in check.findings],
    )


def _foreign_entries(audit: Storage) -> Iterator[str]:
    for name in audit.names():
        if name not in ENTRIES:
            yield f"{name}: not of an audit log"
    writing = audit.is_locked() or audit.is_locked(INGESTING)  # then the staged files are in use
    if audit.names(STAGING) and not writing:
        yield f"{STAGING}: leftovers of an ingest or a compaction that died; the next one removes them"


def _checked(session: SparkSession, audit: Storage, table: str) -> "_TableCheck":
    """A check of a table; repeated if there are findings and a concurrent ingest or compaction may have caused them."""
    for _ in range(_ATTEMPTS):
        with suppress(ChangedError), audit.reading() as now:
            check = _TableCheck(session, now, table)
            check.check()
        with suppress(ChangedError), audit.reading() as now:
            if not check.findings or now.files(table, "") == check.listed:
                break
    return check


def _unfinished(audit: Storage) -> list[str]:
    with suppress(ChangedError), audit.reading() as now:
        return now.unfinished()
    return []


class _Contents(NamedTuple):
    """What is in files."""

    rows: int
    different_ids: int
    """A row without an id has none."""
    of_another_date: int
    """Rows."""


class _TableCheck:
    """One table, what was read of it and the problems found."""

    def __init__(self, session: SparkSession, audit: Storage, name: str) -> None:
        self._session = session
        self._audit = audit
        self._name = name
        self._schema = TABLES[name].file_schema
        self.listed = audit.files(name, "")
        self.findings: list[str] = []
        self.files = 0
        self.rows = 0

    def check(self) -> None:
        """Read the table, once if it is sound; fills in `findings`, `files` and `rows`."""
        for path, problem in _irregular(self._audit, self._name):
            self._report(path, problem)
        files = [path for path in self.listed if self._belongs(path)]
        self.files = len(files)
        with ThreadPoolExecutor(_FOOTERS_AT_ONCE) as pool:
            fits = pool.map(self._footer_fits, files)
            files = [path for path, does in zip(files, fits, strict=True) if does]
        parts = _read_apart(files, self._contents, self._report)
        files = [path for part, _ in parts for path in part]
        contents = parts[0][1] if len(parts) == 1 else self._contents(files)
        self.rows = contents.rows
        if contents.of_another_date:
            self._report_rows(self._read(files).where(self._is_of_another_date()), "of another date")
        if contents.different_ids < contents.rows:
            self._check_ids(files)

    def _belongs(self, path: str) -> bool:
        folder, _, file = path.rpartition("/")
        belongs = (
            period_of(self._name, folder) is not None and file.endswith(PARQUET) and not file.startswith((".", "_"))
        )
        if not belongs:
            self._report(path, "not of an audit log")
        return belongs

    def _footer_fits(self, path: str) -> bool:
        """Whether a file has the columns of the table, so that its rows can be checked."""
        try:
            schema = self._audit.parquet_schema(f"{self._name}/{path}")
        except Exception as error:  # noqa: BLE001  every error is reported, and the other files are checked
            self._report(path, f"unreadable: {defect(error)}")
            return False
        if schema is None:
            self._report(path, "not of an audit log: no ingest wrote it")
            return False
        return self._columns_fit(path, StructType.fromJson(msgspec.json.decode(schema)))

    def _columns_fit(self, path: str, columns: StructType) -> bool:
        types = {field.name: field.dataType for field in self._schema}
        other = [field for field in columns if field.name in types and field.dataType != types[field.name]]
        newer = [field.name for field in columns if field.name not in types]
        if "id" not in columns.names:
            self._report(path, "not of an audit log: it has no id")
        elif other:
            field, our_type = other[0], types[other[0].name].simpleString()
            self._report(path, f"{field.name} is {field.dataType.simpleString()}, in this version it is {our_type}")
        elif newer:
            self._report(
                path, f"written by a newer version: {', '.join(newer)} is not known; this version does not show it"
            )
        return "id" in columns.names and not other

    def _contents(self, files: Sequence[str]) -> "_Contents":
        """What is in these files, of which every column is decoded. Raises what Spark raises for a file that is damaged."""
        if not files:
            return _Contents(0, 0, 0)
        counts = F.count("*"), F.count_distinct("id"), F.count_if(self._is_of_another_date())
        [row] = collected(self._read(files).agg(*counts, _every(self._schema)))
        return _Contents(*row[:3])

    def _is_of_another_date(self) -> Column:
        date = F.to_date(TABLES[self._name].time)
        other = date.isNull() | (partition_value(self._name, date) != F.col(_FOLDER))
        return other | ~date.eqNullSafe(F.col(EVENT_DATE)) if EVENT_DATE in self._schema.names else other

    def _check_ids(self, files: Sequence[str]) -> None:
        rows = self._read(files)
        self._report_rows(rows.where("id IS NULL"), "without an id")
        ids = rows.where("id IS NOT NULL").groupBy("id")
        counted = ids.agg(F.count("*").alias("n"), F.sort_array(F.collect_set(_FOLDER)).alias("dates"))
        for row in collected(counted.where("n > 1").orderBy("id").limit(_MOST_REPEATED_IDS)):
            self.findings.append(f"{self._name}: id {row.id} exists {row.n} times, on {', '.join(row.dates)}")

    def _report_rows(self, rows: DataFrame, problem: str) -> None:
        for row in collected(rows.groupBy(_FILE).agg(F.count("*").alias("n")).orderBy(_FILE)):
            self._report(row[_FILE], f"{counted(row.n, 'row', thousands=True)} {problem}")

    def _read(self, files: Sequence[str]) -> DataFrame:
        return _located(self._session, self._audit, self._schema, [f"{self._name}/{path}" for path in files])

    def _report(self, path: str, problem: str) -> None:
        self.findings.append(f"{self._name}/{path}: {problem}")


def _located(session: SparkSession, audit: Storage, schema: StructType, files: Sequence[str]) -> DataFrame:
    """The rows of files of one table, with the path of the file below the table, and the date or month of its folder."""
    with listing_here(session, audit):
        rows = session.read.schema(schema).parquet(*map(audit.to_read, files))
    path = F.substring_index("_metadata.file_path", "/", -2)
    date = F.substring_index(F.substring_index(path, "/", 1), "=", -1)
    return rows.select("*", path.alias(_FILE), date.alias(_FOLDER))


def _every(schema: StructType) -> Column:
    """An aggregate for which Spark decodes every column."""
    return F.sum(F.xxhash64(*schema.names).bitwiseAND(F.lit(1)))


def _read_apart(
    files: Sequence[str], read: Callable[[Sequence[str]], _T], report: Callable[[str, str], None]
) -> list[tuple[Sequence[str], _T]]:
    """What `read` returns of the files: of all together, if it can read them, else of parts: bisects to report each that it cannot read."""
    if not files:
        return []
    try:
        return [(files, read(files))]
    except Exception as error:  # noqa: BLE001  every error is reported, and the other files are checked
        if len(files) == 1:
            report(files[0], f"unreadable: {defect(error)}")
            return []
    half = len(files) // 2
    return [*_read_apart(files[:half], read, report), *_read_apart(files[half:], read, report)]


def _irregular(audit: Storage, table: str) -> Iterator[tuple[str, str]]:
    """Links, pipes and unreadable folders below a table, each with the problem. Only on a local file system."""
    if audit.local is None:
        return
    top, unreadable = audit.local / table, list[OSError]()
    for folder, folders, files in os.walk(top, onerror=unreadable.append):
        folders[:] = [name for name in folders if not is_of_file_system(name)]
        for entry in (Path(folder, name) for name in (*folders, *files) if not is_of_file_system(name)):
            if entry.is_symlink():
                yield entry.relative_to(top).as_posix(), "not of an audit log: it is a link"
            elif entry.name in files and entry.exists() and not entry.is_file():
                yield entry.relative_to(top).as_posix(), "not of an audit log: it is not a file"
    for error in unreadable:
        yield Path(error.filename).relative_to(top).as_posix(), f"unreadable: {error.strerror}"


def check_closed(session: SparkSession, audit: Storage) -> tuple[int, int, list[str]]:
    """The numbers of files and rows of the materialised tables, and the problems found, one line each.

    Repeated if there are problems that a concurrent materialization may have caused.
    """
    for _ in range(_ATTEMPTS):
        try:
            manifest = read_manifest(audit)
        except Exception as error:  # noqa: BLE001  every error is reported, and the tables of records are checked
            return 0, 0, [f"{CLOSED}: {error if isinstance(error, AuditError) else defect(error)}"]
        rows, findings = _checked_closed(session, audit, manifest)
        if not findings or read_manifest(audit).number == manifest.number:
            break
    return len(manifest.paths()), rows, findings


def _checked_closed(session: SparkSession, audit: Storage, manifest: Manifest) -> tuple[int, list[str]]:
    findings = list[str]()
    if not audit.is_locked():  # then the files may be about to be named
        findings += (
            f"{file}: leftover of a command that died; the next compaction removes it"
            for file in unnamed(audit, manifest)
        )
    rows = 0
    for table, schema in (*_CLOSED.items(), (CLOSED, CARRY)):

        def count(files: Sequence[str], schema: StructType = schema) -> int:
            read = session.read.schema(schema).parquet(*map(audit.to_read, files))
            [(number, _)] = collected(read.agg(F.count("*"), _every(schema)))
            return int(number)

        def report(file: str, problem: str) -> None:
            findings.append(f"{file}: {problem}; delete {CLOSED} and materialize again")

        rows += sum(number for _, number in _read_apart(_named(manifest, table), count, report))
    if not findings:
        findings += _misplaced(session, audit, manifest)
    return rows, findings


def _named(manifest: Manifest, table: str) -> Sequence[str]:
    return [file for file in sorted(manifest.paths()) if file.startswith(f"{table}/")]


def _misplaced(session: SparkSession, audit: Storage, manifest: Manifest) -> Iterator[str]:
    for table, column in _DATE.items():
        if files := _named(manifest, table):
            date = F.to_date(column)
            is_there = date.eqNullSafe(F.col(EVENT_DATE)) & partition_value(table, date).eqNullSafe(F.col(_FOLDER))
            other = _located(session, audit, _CLOSED[table], files).where(~is_there)
            for row in collected(other.groupBy(_FILE).agg(F.count("*").alias("n")).orderBy(_FILE)):
                yield f"{table}/{row[_FILE]}: {counted(row.n, 'row', thousands=True)} of another date"


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
