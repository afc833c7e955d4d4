"""Spool segments in, tables out: Structured Streaming knows which segments are new, `tables` sees to it that each record is there once."""

import logging
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing, suppress
from functools import partial
from hashlib import sha256
from threading import Event, Lock
from typing import Any, Final

from msgspec import Struct
from pyspark import StorageLevel
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812  Spark's own convention
from pyspark.sql.streaming.query import StreamingQuery

from sidecar.audit.audit_error import AuditError, StoppedError, failing_to, is_of_a_file, reason
from sidecar.audit.inspection import Inspection, inspect
from sidecar.audit.schema import QUARANTINE, RECORDS, table_of
from sidecar.audit.segments import COMMON, Segment, bad_lines, bad_segments, common_records, read_segments
from sidecar.audit.session import own_session
from sidecar.audit.spool import LOOK_SECONDS, SUFFIX, Changes, listing, pattern
from sidecar.audit.storage import INGESTING, Storage
from sidecar.audit.tables import CHECKPOINTS, OURS, Table, Writer

_log = logging.getLogger("sidecar.audit")

_BATCH_BYTES: Final = 64 << 20
"""Compressed; about a million records."""
_SETTINGS: Final = {
    # Folders are listed by a few tasks: by default each of them would be a task of its own, and take longer to start than to list.
    "spark.sql.sources.parallelPartitionDiscovery.parallelism": "8",
    # Chunks of segments are read at the same time: Spark would make one partition of a union of single partitions.
    "spark.sql.unionOutputPartitioning": "false",
}
_FOLLOW_INTERVAL: Final = f"{LOOK_SECONDS:.0f} seconds"
_POLL_SECONDS: Final = 0.1
_FOREVER: Final = "365000d"
_SEGMENT_FILE: Final = "path string, modificationTime timestamp, length bigint, content binary"

_TABLES: Final = {
    record_type: Table(
        name=table_of(record_type),
        schema=schema,
        time="observed_at",
        order=("cluster_id", "observed_at"),
        first=("observed_at", "recorded_at", "observer"),
    )
    for record_type, schema in RECORDS.items()
}
_QUARANTINE: Final = Table(name="quarantine", schema=QUARANTINE, time="at", order=("file",), first=("at",))


class IngestResult(Struct, frozen=True):
    """What one ingest added to the audit log."""

    rows: Mapping[str, int]
    """How many rows each table (`transitions`, …) gained."""
    quarantined: int
    """How many lines, segments and folders went to the quarantine."""
    files: int
    """How many segments were read."""


def ingest(
    spark: SparkSession, spool: str, audit: str, *, follow: bool = False, stop: Event | None = None
) -> IngestResult:
    """Bring every record of the spool that is not in the audit log yet into it, and all that is no record into its quarantine.

    `spool` and `audit` are paths or URLs that Spark takes; the audit log is made where there is none. With `follow` it goes on, looking for
    new segments every ten seconds, until `stop` is set. It may be ended at any moment, by `stop` or by force: a record is never in the log
    twice, and what is missing comes with the next ingest. Raises AuditError.
    """
    with failing_to(f"ingest {spool} into {audit}"):
        session = own_session(spark)
        for key, value in _SETTINGS.items():
            session.conf.set(key, value)
        source, target = Storage(session, spool), _audit_folder(session, audit)
        if not source.is_folder():
            raise AuditError(f"cannot ingest {spool}: there is no such folder")
        stop = stop or Event()
        batches = _Batches(session, source, writer := Writer(session, target))
        with target.locked(INGESTING), closing(writer), suppress(StoppedError):
            # A checkpoint belongs to one spool.
            checkpoint = f"{CHECKPOINTS}/ingest/{sha256(source.url.encode()).hexdigest()[:16]}"
            going_on = True
            while going_on:
                found = listing(source)
                with writer.working(stop):
                    batches.quarantine({path: Inspection(problem) for path, problem in found.problems.items()})
                changed = Changes(source, found)
                start = partial(
                    _start, session, source, found.roots, target.full_url(checkpoint), batches, follow=follow
                )
                again = bool(found.roots) and _run(batches, start, target, checkpoint, stop, changed, follow=follow)
                while follow and not stop.wait(_POLL_SECONDS) and not changed():
                    pass
                going_on = (follow or again) and not stop.is_set()
        return batches.result()


def _run(
    batches: "_Batches",
    start: Callable[[], StreamingQuery],
    target: Storage,
    checkpoint: str,
    stop: Event,
    changed: Changes,
    *,
    follow: bool,
) -> bool:
    """Run the stream; once more without its checkpoint, if it failed with that. Whether it must begin anew: the spool changed under it."""
    until = changed if follow else lambda: False  # what is listed already is taken in to the end
    try:
        batches.run(start, stop, until)
    except Exception as error:
        # Of a batch that failed, its own error is told; this one is of the stream, and that is its checkpoint in all but odd cases.
        of_stream = isinstance(error, StreamingQueryException)
        if batches.failure is None and changed.now():
            return True  # what Spark was to list is not what there is any more
        if not of_stream and not any(sign in str(error) for sign in (target.full_url(checkpoint), "StreamMetadata")):
            raise
        # A death at the wrong moment may leave a checkpoint that Spark cannot read. It carries no promise: without it, every
        # segment is looked at again, and what is in the log already is left out.
        _log.warning("starting without the checkpoint %s: the stream failed with it: %s", checkpoint, reason(error))
        target.delete(checkpoint)
        batches.run(start, stop, until)
    return False


def _audit_folder(session: SparkSession, url: str) -> Storage:
    audit = Storage(session, url)
    if not audit.is_folder():
        audit.make_folder()
    elif (names := audit.names()) and not OURS.intersection(names):
        raise AuditError(f"{url} holds something else than an audit log ({names[0]}, …): name an empty or a new folder")
    audit.make_folder(CHECKPOINTS)
    return audit


def _start(
    session: SparkSession, spool: Storage, roots: Sequence[str], checkpoint: str, batches: "_Batches", *, follow: bool
) -> StreamingQuery:
    """A stream of the names of new segments: what is in them is read batch by batch, so that one damaged segment holds nothing up."""
    segments = (
        session.readStream.format("binaryFile")
        .schema(_SEGMENT_FILE)
        .option("recursiveFileLookup", True)
        .option("pathGlobFilter", f"*{SUFFIX}")
        .option("maxFileAge", _FOREVER)  # by default a segment that arrives a week late would be ignored
        .option("maxBytesPerTrigger", _BATCH_BYTES)
        .load(pattern(spool, roots))
        .select("path")
    )
    writer = segments.writeStream.foreachBatch(batches).option("checkpointLocation", checkpoint)
    writer = writer.trigger(processingTime=_FOLLOW_INTERVAL) if follow else writer.trigger(availableNow=True)
    return writer.start()


def _in_order(batch: DataFrame) -> list[Segment]:
    """The segments of a batch as they were written, so that records of one date are close together.

    They are taken from the plan: asked for its rows, Spark would look for each file, and fail where one has gone.
    """
    partitions: Any = batch._jdf.queryExecution().toRdd().partitions()  # noqa: SLF001  plans have no Python API
    files = {file.toPath().toString(): file for partition in partitions for file in partition.files()}
    written = sorted((file.modificationTime(), path, file.fileSize()) for path, file in files.items())
    return [Segment(url=path, length=length) for _, path, length in written]


class _Batches:
    """What becomes of each batch of the stream. Called by Spark on a thread of its own."""

    def __init__(self, session: SparkSession, spool: Storage, writer: Writer) -> None:
        self._session = session
        self._spool = spool
        self._writer = writer
        self._working = Lock()
        self._ended = Event()
        self._failure: Exception | None = None
        self._rows: Counter[str] = Counter()
        self._files = 0

    def run(self, start: Callable[[], StreamingQuery], stop: Event, changed: Callable[[], bool]) -> None:
        """Start the query, and wait until it has ended, `stop` is set, or the spool has `changed` and no batch is at work.

        When this returns or raises, no batch is at work any more.
        """
        self._ended.clear()
        self._failure = None
        query = start()
        try:
            while query.isActive and not stop.wait(_POLL_SECONDS):
                if changed() and self._working.acquire(blocking=False):
                    self._ended.set()
                    self._working.release()
                    return
            if (failure := query.exception()) is not None:
                raise self.failure or failure
        finally:
            self._ended.set()
            query.stop()  # interrupts the batch at work, if any
            with self._working:
                pass

    def __call__(self, batch: DataFrame, _batch_id: int) -> None:
        with self._working:
            try:
                if self._ended.is_set():
                    raise StoppedError("stopped")  # so that the checkpoint does not take the batch as done
                with self._writer.working(self._ended):
                    self._take(_in_order(batch))
            except Exception as error:
                self._failure = error
                raise

    @property
    def failure(self) -> Exception | None:
        """Why a batch failed; None: if anything did, it was the stream of names."""
        return self._failure

    def quarantine(self, inspections: Mapping[str, Inspection]) -> None:
        """Record what is wrong with segments or folders (below the spool, or URLs)."""
        if inspections:
            rows = bad_segments(self._session, self._spool, inspections)
            self._rows[_QUARANTINE.name] += self._writer.append(rows, _QUARANTINE)

    def result(self) -> IngestResult:
        """What was done so far."""
        rows = {table.name: self._rows[table.name] for table in _TABLES.values()}
        return IngestResult(rows=rows, quarantined=self._rows[_QUARANTINE.name], files=self._files)

    def _take(self, segments: Sequence[Segment]) -> None:
        urls = [segment.url for segment in segments]
        found = inspect(self._spool, urls)
        self._files += len(
            segments
        )  # before their rows can be seen: an end in between must not make rows of no segment
        try:
            self._write(segments, found)
        except Exception as error:
            if not is_of_a_file(error):
                raise
            again = inspect(self._spool, urls, with_hadoop=True)
            if again == found:
                raise
            self._write(segments, found := again)
        self.quarantine(found)

    def _write(self, segments: Sequence[Segment], inspections: Mapping[str, Inspection]) -> None:
        sound = [segment for segment in segments if segment.url not in inspections]
        others = [segment for segment in segments if segment.url in inspections and inspections[segment.url].readable]
        if sound:
            self._write_sound(sound)
        if others:
            damaged = [segment.url for segment in others if inspections[segment.url].problem]
            self._write_any(read_segments(self._session, self._spool, others, damaged))

    def _write_sound(self, segments: Sequence[Segment]) -> None:
        rows, left = common_records(self._session, segments)
        self._append(rows, COMMON)
        if left.get["others"] or left.get["rejected"]:
            # What was rejected is decided upon by a second look at all; what is in the table by then is left out.
            only_others = not left.get["rejected"]
            self._write_any(read_segments(self._session, self._spool, segments, without_common=only_others))

    def _write_any(self, rows: DataFrame) -> None:
        rows = rows.persist(StorageLevel.MEMORY_AND_DISK)  # parsed once, for all tables
        try:
            good = F.when(F.col("reason").isNull(), F.col("record.type"))
            for row in rows.groupBy(good.alias("type")).count().collect():
                if row.type is None:
                    self._rows[_QUARANTINE.name] += self._writer.append(bad_lines(rows), _QUARANTINE)
                else:
                    records = rows.where(good == row.type).select("record.*")
                    self._append(records.hint("rebalance"), row.type)
        finally:
            rows.unpersist()

    def _append(self, records: DataFrame, record_type: str) -> None:
        table = _TABLES[record_type]
        self._rows[table.name] += self._writer.append(records.select(*table.schema.names), table)
