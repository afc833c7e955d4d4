"""Deletes expired segments and dates: one number of days for both."""

from collections.abc import Mapping, Sequence
from datetime import UTC, date, datetime, timedelta
from functools import partial, reduce

from msgspec import Struct
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812  Spark's own convention

from sidecar.audit.audit_error import AuditError
from sidecar.audit.ingest.inspection import Inspection, read_inspected
from sidecar.audit.ingest.segments import Segment, bad_lines, bad_segments, read_segments
from sidecar.audit.ingest.spool_listing import SUFFIX, name_problem
from sidecar.audit.log.audit_log import all_periods, open_audit_log, open_storage, table_names
from sidecar.audit.log.storage import ONLY_PARQUET, Storage
from sidecar.audit.spark.spark_session import collected
from sidecar.audit.upkeep.materialize import Closing


class ExpireResult(Struct, frozen=True):
    """What was deleted."""

    segments: int
    folders: int
    """Dates and months, of all tables."""
    not_ingested: int
    """Expired segments that were kept, because some of their content is not in the audit log."""


def expire(spark: SparkSession, audit: str, keep: int, *, spool: str | None = None) -> ExpireResult:
    """Delete what is more than `keep` whole UTC days older than today: segments of `spool`, dates of every table.

    Segments are deleted first, and only if every record is in the audit log (or expired too) and every bad line in its quarantine: their
    content decides, not a checkpoint. So no segment can restore an expired date. Raises AuditError.
    """
    oldest = datetime.now(UTC).date() - timedelta(days=keep)
    with open_audit_log(spark, audit, "expire old data in") as (session, folder), folder.locked():
        removed, not_ingested = _expire_segments(session, folder, spool, oldest) if spool else (0, 0)
        _expire_answers(session, folder, oldest)
        expired = [path for path, dates in all_periods(folder).items() if dates.last < oldest]
        for path in expired:
            folder.drop(path)
    return ExpireResult(segments=removed, folders=len(expired), not_ingested=not_ingested)


def _expire_answers(session: SparkSession, audit: Storage, oldest: date) -> None:
    """Forget the closed dates, while their records exist: what of them matters later is computed from these."""
    closing = Closing(session, audit)
    closing.redo()
    while closing.manifest.last and closing.close(oldest - timedelta(days=1)):
        pass
    closing.expire(oldest)


def _expire_segments(session: SparkSession, audit: Storage, spool_url: str, oldest: date) -> tuple[int, int]:
    """Delete expired segments that were ingested; returns how many were deleted, and how many expired ones were kept."""
    spool = open_storage(session, spool_url)
    if not spool.is_folder():
        raise AuditError(f"cannot expire segments of {spool_url}: there is no such folder")
    old = [file for file, sealed in spool.modified("", SUFFIX).items() if sealed.date() < oldest]
    missing = {file for file in old if name_problem(file)}
    if readable := [file for file in old if file not in missing]:
        urls = [spool.full_url(file) for file in readable]
        missing |= read_inspected(spool, urls, partial(_not_ingested, session, audit, spool, urls, oldest))
    for file in old:
        if file not in missing:
            spool.delete(file)
    return len(old) - len(missing), len(missing)


def _not_ingested(
    session: SparkSession,
    audit: Storage,
    spool: Storage,
    urls: Sequence[str],
    oldest: date,
    inspections: Mapping[str, Inspection],
) -> set[str]:
    """The segments with content that is neither in a table nor expired."""
    # The content of an unreadable segment is nowhere else.
    unreadable = {url for url, inspection in inspections.items() if not inspection.readable}
    damaged = [url for url, inspection in inspections.items() if inspection.problem]
    readable = (url for url in urls if url not in unreadable)
    segments = [Segment(url=url, length=spool.size(spool.relative(url))) for url in readable]
    rows = read_segments(session, spool, segments, damaged)
    good = rows.where(F.col("reason").isNull() & (F.to_date("record.observed_at") >= F.lit(oldest)))
    wanted = good.select("file", "record.id").unionAll(bad_lines(rows).select("file", "id"))
    if inspections:
        wanted = wanted.unionAll(bad_segments(session, spool, inspections).select("file", "id"))
    reader = session.read.schema("id string").options(**ONLY_PARQUET)
    tables = [reader.parquet(audit.to_read(table)).select("id") for table in table_names(audit)]
    ids = reduce(DataFrame.unionAll, tables, session.createDataFrame([], "id string"))
    present = ids.join(F.broadcast(wanted.select("id")), "id", "left_semi")
    missing = wanted.join(present, "id", "left_anti").select("file").distinct()
    return {row.file for row in collected(missing)} | {spool.relative(url) for url in unreadable}
