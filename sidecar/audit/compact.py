"""Many small files of a date become one, under readers who must never see a wrong count.

A reader lists a folder, looks at each name, and opens them; Hadoop and Arrow pass over names that are gone meanwhile. So swapping a folder
for another at once is not enough: `Storage.replace` says what else it takes (docs/adr/0009-compaction.md).
"""

import logging
import os
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Any, Final
from uuid import uuid4

from msgspec import Struct
from pyspark.sql import Column, DataFrame, Observation, SparkSession
from pyspark.sql import functions as F  # noqa: N812  Spark's own convention

from sidecar.audit.audit_error import FILE_UNREADABLE, AuditError, CannotSwapError, failing_to, reason
from sidecar.audit.audit_log import dates, open_audit_log, tables
from sidecar.audit.storage import PARQUET, STAGING, Storage

_log = logging.getLogger("sidecar.audit")

_SWAPPED_TOGETHER: Final = 50
"""So many dates: reads of them fail together for two seconds, and this is what has to be done again after a death."""
_ORDERS: Final = {"quarantine": ("file",)}
_ORDER: Final = ("cluster_id", "observed_at")
_ROW_BYTES: Final = 100
"""Of a row in a file, by which the ids of a date are estimated."""
_BLOOM_IDS: Final = 1_000_000
"""For so many ids in a row group the filter is right 99 times of 100; more of them make it a megabyte, and no more."""


class CompactResult(Struct, frozen=True):
    """What one compaction did to the audit log."""

    dates: int
    """How many dates of a table were rewritten."""
    files: int
    """How many files they had; now each has one."""
    bytes_before: int
    bytes_after: int
    left: Mapping[str, str]
    """Dates of a table that were left as they are, because something in them is not as it must be: what."""


class _UnfitError(AuditError):
    """A date is not as it must be."""


class _Rewritten(Struct, frozen=True):
    file: str
    files: int
    bytes_before: int
    bytes_after: int


def compact(spark: SparkSession, audit: str, *, before: date | None = None) -> CompactResult:
    """Make one sorted file, with a bloom filter on `id`, of the files of each UTC date before today, or before `before` if that is earlier.

    A reader sees the old files or the new one, never both and never a part; one that has listed the old ones before and opens them
    afterwards, or looks at a date in the moment of its swap, fails. It may be ended at any moment by force, and run again at any time.
    Raises AuditError; CannotSwapError where the file system cannot swap folders.
    """
    today = datetime.now(UTC).date()
    with open_audit_log(spark, audit, "compact") as (session, folder):
        if folder.local is None:
            raise CannotSwapError(
                f"cannot compact {audit}: only on a local file system can files be swapped without a reader seeing a wrong count"
            )
        session.conf.set("spark.sql.legacy.allowHashOnMapType", True)  # to compare whole rows
        with folder.locked():
            _clear_staging(folder)
            folder.delete_replaced()
            folder.check_replace()
        done, left = dict[str, _Rewritten](), dict[str, str]()
        closed = min(before or today, today)
        paths = [path for table in tables(folder) for path, day in dates(folder, table).items() if day < closed]
        for first in range(0, len(paths), _SWAPPED_TOGETHER):
            with folder.locked():  # in between, an ingest may write
                done |= _compact_together(session, folder, paths[first : first + _SWAPPED_TOGETHER], left)
    return CompactResult(
        dates=len(done),
        files=sum(rewritten.files for rewritten in done.values()),
        bytes_before=sum(rewritten.bytes_before for rewritten in done.values()),
        bytes_after=sum(rewritten.bytes_after for rewritten in done.values()),
        left=left,
    )


def _compact_together(
    session: SparkSession, folder: Storage, paths: list[str], left: dict[str, str]
) -> dict[str, _Rewritten]:
    """Rewrite these dates and swap them in. Those that cannot be rewritten go to `left`, with the reason."""
    rewritten = dict[str, _Rewritten]()
    for path in filter(folder.is_folder, paths):
        try:
            if (new := _rewrite(session, folder, path)) is not None:
                rewritten[path] = new
        except _UnfitError as unfit:
            left[path] = str(unfit)
    if rewritten:
        folder.replace({path: new.file for path, new in rewritten.items()})
    _clear_staging(folder)
    return rewritten


def _clear_staging(folder: Storage) -> None:
    folder.delete(STAGING)
    folder.make_folder(STAGING)


def _rewrite(session: SparkSession, audit: Storage, path: str) -> _Rewritten | None:
    """Stage one file of those of a date; None when it has no more than one. Raises _UnfitError when the date must be left as it is."""
    files = _listing(audit.path(path))
    if len(files) <= 1:
        return None
    _log.debug("compacting %d files of %s", len(files), path)
    size = sum(file.st_size for file in files.values())
    try:
        rows = session.read.option("mergeSchema", True).parquet(audit.full_url(path))
    except Exception as error:
        raise _UnfitError(_torn(audit, path, files) or reason(error)) from error
    staged = f"{STAGING}/{uuid4()}"
    with failing_to(f"compact {audit.full_url(path)}"):
        read = _write(rows, audit.full_url(staged), _ORDERS.get(path.partition("/")[0], _ORDER), ids=size // _ROW_BYTES)
        (file,) = audit.files(staged, PARQUET)
        written = session.read.parquet(audit.full_url(staged)).agg(*_digest(rows.columns)).collect()[0].asDict()
        if written != read:
            raise AuditError(
                f"cannot compact {audit.full_url(path)}: what was written ({written}) is not what was read ({read}); nothing was changed"
            )
        size_after = audit.path(f"{staged}/{file}").stat().st_size
    return _Rewritten(file=f"{staged}/{file}", files=len(files), bytes_before=size, bytes_after=size_after)


def _listing(folder: Path) -> dict[str, os.stat_result]:
    """The files of a date. Raises _UnfitError when not all of them are ours."""
    files = {}
    with os.scandir(folder) as entries:
        for entry in entries:
            if not entry.name.endswith(PARQUET) or not entry.is_file():
                raise _UnfitError(f"{entry.name} in it is not of an audit log")
            files[entry.name] = entry.stat()
    return files


def _torn(audit: Storage, path: str, files: Iterable[str]) -> str | None:
    """Which of the files has no sound footer, and why: Spark does not always say."""
    for file in files:
        try:
            audit.parquet_metadata(f"{path}/{file}")
        except Exception as error:  # noqa: BLE001  whatever it is, it is why
            return f"{file}: {reason(error)}"
    return None


def _digest(columns: Sequence[str]) -> list[Column]:
    """What two sets of the same rows have in common, whatever their order, and others almost certainly have not."""
    whole = F.xxhash64(*(F.col(f"`{name}`") for name in sorted(columns)))
    low, high = whole.bitwiseAND(F.lit(0xFFFFFFFF)), F.shiftrightunsigned(whole, 32)
    return [
        F.count("*").alias("rows"),
        F.count("id").alias("ids"),
        F.sum(low).alias("low"),
        F.sum(high).alias("high"),
    ]


def _write(rows: DataFrame, target: str, order: Sequence[str], *, ids: int) -> dict[str, Any]:
    """Write one file; the digest of what went into it. Raises _UnfitError when the rows cannot be read."""
    options = {
        "parquet.bloom.filter.enabled#id": "true",
        "parquet.bloom.filter.expected.ndv#id": str(max(1, min(ids, _BLOOM_IDS))),
        "parquet.enable.dictionary#id": "false",  # no id is there twice; and with a dictionary, no filter would be written
    }
    if missing := {"id", *order}.difference(rows.columns):
        raise _UnfitError(f"its files have no {min(missing)}")
    read = Observation()
    try:
        one = rows.observe(read, *_digest(rows.columns)).coalesce(1).sortWithinPartitions(*order)
        one.write.options(**options).parquet(target)
    except Exception as error:
        if FILE_UNREADABLE in str(error):
            raise _UnfitError(reason(error)) from error
        raise
    if read.get["rows"] != read.get["ids"]:
        raise _UnfitError("it holds rows without an id")
    return read.get
