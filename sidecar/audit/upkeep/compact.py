"""Compacts the many small files of a date or month into one, while readers read: they must never see a wrong count.

A reader lists a folder and then opens the listed files; Hadoop and Arrow skip files that were deleted meanwhile. So swapping folders
atomically is not enough: see `Storage.replace` (docs/project/adr/0009-compaction.md).
"""

import logging
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Any, Final
from uuid import uuid4

from msgspec import Struct
from pyspark.sql import Column, DataFrame, Observation, SparkSession
from pyspark.sql import functions as F  # noqa: N812  Spark's own convention
from pyspark.sql.types import StructType

from sidecar.audit.audit_error import FILE_UNREADABLE, AuditError, defect, failing_to
from sidecar.audit.log.audit_log import all_periods, open_audit_log
from sidecar.audit.log.storage import ONLY_PARQUET, PARQUET, Storage
from sidecar.audit.log.tables import TABLES
from sidecar.audit.spark.spark_session import collected

_log = logging.getLogger("sidecar.audit")

_SWAPPED_TOGETHER: Final = 50
"""Folders per swap: reads of them fail together for two seconds, and a killed compaction has to repeat them."""
_MOST_CORES: Final = 8
"""Folders that are written at the same time: on a cluster, of which there may be hundreds, each also costs memory of the driver."""
_FILE: Final = "_file"
_NO_ROWS: Final[Mapping[str, int | None]] = {"rows": 0, "ids": 0, "low": None, "high": None}
_ROW_BYTES: Final = 100
"""The size of a row in a file, to estimate the number of ids in a folder."""
_BLOOM_IDS: Final = 1_000_000
"""Up to this number of ids in a row group the filter has 1 % false positives; it is a megabyte then, which is its maximum."""


class CompactResult(Struct, frozen=True):
    """The result of one compaction."""

    folders: int
    """The dates and months of all tables that were rewritten."""
    files: int
    """The number of files they had; now each has one."""
    bytes_before: int
    bytes_after: int
    unchanged: Mapping[str, str]
    """Folders that were left unchanged, and the reason."""


class _UnfitError(AuditError):
    """A folder cannot be compacted."""


class _Rewritten(Struct, frozen=True):
    """A folder whose rows are staged in one file."""

    file: str
    files: int
    bytes_before: int
    bytes_after: int
    schema: StructType
    digest: Mapping[str, int | None]
    """The digest of the rows that were read."""


def compact(spark: SparkSession, audit: str, *, before: date | None = None) -> CompactResult:
    """Replace the files of each UTC date or month that began before today (before `before`, if earlier) by one sorted file with a bloom
    filter on `id`.

    A reader sees the old files or the new one, never both and never a part. A reader that listed the old files before the swap and opens
    them afterwards fails, and so does one that reads a folder during its swap. A compaction may be killed at any moment and repeated at any
    time. Raises AuditError; CannotSwapError if the file system cannot swap folders.
    """
    today = datetime.now(UTC).date()
    with open_audit_log(spark, audit, "compact") as (session, folder):
        session.conf.set("spark.sql.legacy.allowHashOnMapType", True)  # to compare whole rows
        with folder.locked():
            folder.staging.clear()
            folder.delete_replaced()
            folder.check_replace()
        rewritten, unchanged = list[_Rewritten](), dict[str, str]()
        limit = min(before or today, today)
        paths = [path for path, dates in all_periods(folder).items() if dates.first < limit]
        for first in range(0, len(paths), _SWAPPED_TOGETHER):
            with folder.locked():  # between batches, an ingest may write
                rewritten += _compact_together(session, folder, paths[first : first + _SWAPPED_TOGETHER], unchanged)
    return CompactResult(
        folders=len(rewritten),
        files=sum(new.files for new in rewritten),
        bytes_before=sum(new.bytes_before for new in rewritten),
        bytes_after=sum(new.bytes_after for new in rewritten),
        unchanged=unchanged,
    )


def _compact_together(
    session: SparkSession, folder: Storage, paths: list[str], unchanged: dict[str, str]
) -> Iterable[_Rewritten]:
    """Rewrite these folders and swap them in. Those that cannot be rewritten are added to `unchanged`, with the reason."""

    def attempt(path: str) -> _Rewritten | _UnfitError | None:
        try:
            return _rewrite(session, folder, path)
        except _UnfitError as unfit:
            return unfit

    rewritten = dict[str, _Rewritten]()
    # A folder is written by one task. With one more than cores, a core need not wait for the driver.
    with ThreadPoolExecutor(min(session.sparkContext.defaultParallelism, _MOST_CORES) + 1) as pool:
        for path, outcome in zip(paths, pool.map(attempt, paths), strict=True):
            if isinstance(outcome, _Rewritten):
                rewritten[path] = outcome
            elif outcome is not None:
                unchanged[path] = str(outcome)
    if rewritten:
        _read_back(session, folder, rewritten)
        folder.replace({path: new.file for path, new in rewritten.items()})
    folder.staging.clear()
    return rewritten.values()


def _rewrite(session: SparkSession, audit: Storage, path: str) -> _Rewritten | None:
    """Stage one file with the rows of a folder; None when it has a single one. Raises _UnfitError when it cannot be compacted."""
    files = _files(audit, path)
    if len(files) <= 1:
        return None
    _log.debug("compacting %d files of %s", len(files), path)
    size = sum(files.values())
    try:
        rows = session.read.options(mergeSchema=True, **ONLY_PARQUET).parquet(audit.to_read(path))
    except Exception as error:
        raise _UnfitError(_damaged_footer(audit, path, files) or defect(error)) from error
    staged, table = str(uuid4()), TABLES[path.partition("/")[0]]
    known = {*rows.columns, "id", *table.order}
    newer = [field for field in table.file_schema if field.name not in known]
    rows = rows.withColumns({field.name: F.lit(None).cast(field.dataType) for field in newer})
    with failing_to(f"compact {audit.full_url(path)}"):
        digest = _write(rows, audit.staging.full_url(staged), table.order, ids=size // _ROW_BYTES)
        (file,) = audit.staging.files(staged, PARQUET)
        size_after = audit.staging.size(f"{staged}/{file}")
    return _Rewritten(f"{staged}/{file}", len(files), size, size_after, rows.schema, digest)


def _read_back(session: SparkSession, audit: Storage, rewritten: Mapping[str, _Rewritten]) -> None:
    """Read the staged files, those with the same columns together. Raises AuditError if one has not the rows that were read before."""
    digests = dict[str, Mapping[str, int | None]]()
    for schema in {new.schema.json(): new.schema for new in rewritten.values()}.values():
        urls = [audit.staging.to_read(new.file) for new in rewritten.values() if new.schema == schema]
        rows = session.read.schema(schema).parquet(*urls).select("*", F.col("_metadata.file_name").alias(_FILE))
        for row in collected(rows.groupBy(_FILE).agg(*_digest(schema.names))):
            digests[row[_FILE]] = {name: value for name, value in row.asDict().items() if name != _FILE}
    for path, new in rewritten.items():
        written = digests.get(Path(new.file).name, _NO_ROWS)
        if written != new.digest:
            problem = f"the rows written ({written}) are not the rows read ({new.digest}); nothing was changed"
            raise AuditError(f"cannot compact {audit.full_url(path)}: {problem}")


def _files(audit: Storage, path: str) -> dict[str, int]:
    """The files of a folder, and their sizes. Raises _UnfitError when one is not of an audit log."""
    names = audit.names(path)
    sizes = audit.sizes(path) if names else {}  # it may have expired
    for name in names:
        if not name.endswith(PARQUET) or name not in sizes:
            raise _UnfitError(f"{name} in it is not of an audit log")
    return sizes


def _damaged_footer(audit: Storage, path: str, files: Iterable[str]) -> str | None:
    """The first file with a damaged footer, and the reason: Spark's error does not always name the file."""
    for file in files:
        try:
            audit.parquet_schema(f"{path}/{file}")
        except Exception as error:  # noqa: BLE001  every error of the reader is damage
            return f"{file}: {defect(error)}"
    return None


def _digest(columns: Sequence[str]) -> list[Column]:
    """Aggregates that are equal for the same rows in any order, and almost certainly different for others."""
    whole = F.xxhash64(*(F.col(f"`{name}`") for name in sorted(columns)))
    low, high = whole.bitwiseAND(F.lit(0xFFFFFFFF)), F.shiftrightunsigned(whole, 32)
    return [F.count("*").alias("rows"), F.count("id").alias("ids"), F.sum(low).alias("low"), F.sum(high).alias("high")]


def _write(rows: DataFrame, target: str, order: Sequence[str], *, ids: int) -> dict[str, Any]:
    """Write one file; returns the digest of its rows. Raises _UnfitError when the rows cannot be read."""
    options = {
        "parquet.bloom.filter.enabled#id": "true",
        "parquet.bloom.filter.expected.ndv#id": str(max(1, min(ids, _BLOOM_IDS))),
        "parquet.enable.dictionary#id": "false",  # ids are unique; and with a dictionary, Parquet writes no filter
    }
    if missing := {"id", *order}.difference(rows.columns):
        raise _UnfitError(f"its files have no {min(missing)}")
    digest = Observation()
    try:
        sorted_rows = rows.observe(digest, *_digest(rows.columns)).coalesce(1).sortWithinPartitions(*order)
        sorted_rows.write.options(**options).parquet(target)
    except Exception as error:
        if FILE_UNREADABLE in str(error):
            raise _UnfitError(defect(error, with_file=True)) from error
        raise
    if digest.get["rows"] != digest.get["ids"]:
        raise _UnfitError("it contains rows without an id")
    return digest.get
