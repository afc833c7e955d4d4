"""How long things are kept: one number of days for segments, rows and checkpoints."""

from collections.abc import Mapping, Sequence
from datetime import UTC, date, datetime, timedelta
from functools import reduce

from msgspec import Struct
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812  Spark's own convention

from sidecar.audit.audit_error import AuditError, is_of_a_file
from sidecar.audit.audit_log import dates, open_audit_log, tables
from sidecar.audit.inspection import Inspection, inspect
from sidecar.audit.segments import Segment, bad_lines, bad_segments, read_segments
from sidecar.audit.spool import SUFFIX, name_problem
from sidecar.audit.storage import INGESTING, Storage
from sidecar.audit.tables import CHECKPOINTS

_CHECKPOINT_BORN = "metadata"
"""The file of a checkpoint that Spark writes once, when it begins."""


class ExpireResult(Struct, frozen=True):
    """What was deleted because it was too old."""

    segments: int
    dates: int
    """How many dates of a table."""
    not_ingested: int
    """Segments old enough that were left, because something in them is not in the audit log."""


def expire(spark: SparkSession, audit: str, keep: int, *, spool: str | None = None) -> ExpireResult:
    """Delete what is more than `keep` whole UTC days older than today: segments of `spool`, dates of every table, checkpoints.

    Segments go first, and only those of which every record is in the audit log (or would expire with it) and every bad line in its
    quarantine: their content decides, not a checkpoint. So a date that went cannot come back from them. A checkpoint goes when it was
    begun so long ago and no ingest is running; the next one looks at all segments again. Raises AuditError.
    """
    oldest = datetime.now(UTC).date() - timedelta(days=keep)
    with open_audit_log(spark, audit, "expire what is old in") as (session, folder), folder.locked():
        removable, kept = _segments(session, folder, spool, oldest) if spool else ((), 0)
        expired = [path for table in tables(folder) for path, day in dates(folder, table).items() if day < oldest]
        for path in expired:
            folder.drop(path)
        # An ingest begins with a look at what may be written, for which it waits here: none can begin meanwhile.
        checkpoints = {} if folder.is_locked(INGESTING) else _checkpoints(folder)
        for file, born in checkpoints.items():
            if born.date() < oldest:
                folder.delete(f"{CHECKPOINTS}/{file.removesuffix(f'/{_CHECKPOINT_BORN}')}")
    return ExpireResult(segments=len(removable), dates=len(expired), not_ingested=kept)


def _segments(session: SparkSession, audit: Storage, spool_url: str, oldest: date) -> tuple[Sequence[str], int]:
    """Delete the segments that may go; which went, and how many old ones may not."""
    spool = Storage(session, spool_url)
    if not spool.is_folder():
        raise AuditError(f"cannot expire segments of {spool_url}: there is no such folder")
    old = [file for file, sealed in spool.modified("", SUFFIX).items() if sealed.date() < oldest]
    missing = {file for file in old if name_problem(file)}
    if named := [file for file in old if file not in missing]:
        missing |= _not_ingested(session, audit, spool, named, oldest)
    removable = [file for file in old if file not in missing]
    for file in removable:
        spool.delete(file)
    return removable, len(missing)


def _not_ingested(
    session: SparkSession, audit: Storage, spool: Storage, files: Sequence[str], oldest: date
) -> set[str]:
    """Those of the segments that hold something which is neither in a table nor too old for it."""
    urls = [f"{spool.url}/{file}" for file in files]
    found = inspect(spool, urls)
    readable = [url for url in urls if url not in found or found[url].readable]
    segments = [Segment(url=url, length=spool.size(spool.relative(url))) for url in readable]
    try:
        return _missing(session, audit, spool, segments, found, oldest)
    except Exception as error:
        if not is_of_a_file(error) or (again := inspect(spool, urls, with_hadoop=True)) == found:
            raise
        return _missing(session, audit, spool, segments, again, oldest)


def _missing(
    session: SparkSession,
    audit: Storage,
    spool: Storage,
    segments: Sequence[Segment],
    inspections: Mapping[str, Inspection],
    oldest: date,
) -> set[str]:
    # What nobody could read, or would, is nowhere else.
    closed = {url for url, found in inspections.items() if not found.readable}
    damaged = [url for url, found in inspections.items() if found.problem]
    rows = read_segments(session, spool, [segment for segment in segments if segment.url not in closed], damaged)
    good = rows.where(F.col("reason").isNull() & (F.to_date("record.observed_at") >= F.lit(oldest)))
    wanted = good.select("file", "record.id").unionAll(bad_lines(rows).select("file", "id"))
    if inspections:
        wanted = wanted.unionAll(bad_segments(session, spool, inspections).select("file", "id"))
    present = _present(session, audit, wanted)
    missing = wanted.join(present, "id", "left_anti").select("file").distinct().collect()
    return {row.file for row in missing} | {spool.relative(url) for url in closed}


def _present(session: SparkSession, audit: Storage, wanted: DataFrame) -> DataFrame:
    """Those of the wanted ids that any table holds."""
    read = session.read.schema("id string")
    nothing = session.createDataFrame([], "id string")
    ids = reduce(
        DataFrame.unionAll, (read.parquet(audit.full_url(table)).select("id") for table in tables(audit)), nothing
    )
    return ids.join(F.broadcast(wanted.select("id")), "id", "left_semi")


def _checkpoints(audit: Storage) -> dict[str, datetime]:
    files = audit.modified(CHECKPOINTS, f"/{_CHECKPOINT_BORN}") if audit.is_folder(CHECKPOINTS) else {}
    # The checkpoint itself, not what Spark keeps deeper in it under the same name.
    return {file: born for file, born in files.items() if file.count("/") == 2}
