"""Ingests spool segments: Structured Streaming finds the new segments, `Writer` adds each record once."""

import logging
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from threading import Event, Lock
from typing import Any, Final

from msgspec import Struct
from pyspark import StorageLevel
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812  Spark's own convention
from pyspark.sql.streaming.query import StreamingQuery

from sidecar.audit.audit_error import AuditError, StoppedError, failing_to, is_unreadable_file
from sidecar.audit.ingest.inspection import Inspection, inspect
from sidecar.audit.ingest.segment_log import SegmentLog
from sidecar.audit.ingest.segments import COMMON, Segment, bad_lines, bad_segments, common_records, read_segments
from sidecar.audit.ingest.spool import LOOK_SECONDS, SUFFIX, SpoolListing, batches_of, key_of, listing, pattern
from sidecar.audit.ingest.writer import Writer
from sidecar.audit.log.checkpoints import CHECKPOINTS, SEGMENTS, checkpoint_of
from sidecar.audit.log.file_systems import open_storage
from sidecar.audit.log.storage import INGESTING, Storage
from sidecar.audit.log.tables import ENTRIES, QUARANTINE_TABLE, RECORD_TABLES
from sidecar.audit.spark.collected import collected
from sidecar.audit.spark.session import own_session

_log = logging.getLogger("sidecar.audit")

_BATCH_BYTES: Final = 64 << 20
"""Compressed; about a million records."""
_SETTINGS: Final = {
    # By default each folder is listed by a task of its own, which takes longer to start than to list.
    "spark.sql.sources.parallelPartitionDiscovery.parallelism": "8",
    # Chunks of segments are read in parallel: by default a union of single partitions is one partition.
    "spark.sql.unionOutputPartitioning": "false",
}
_POLL_SECONDS: Final = 0.1
_FOREVER: Final = "365000d"
_SEGMENT_FILE: Final = "path string, modificationTime timestamp, length bigint, content binary"


class IngestResult(Struct, frozen=True):
    """The result of one ingest."""

    rows: Mapping[str, int]
    """The number of rows added to each table (`transitions`, …)."""
    quarantined: int
    """The number of lines, segments and folders added to the quarantine."""
    files: int
    """The number of segments read."""


def ingest(
    spark: SparkSession, spool: str, audit: str, *, follow: bool = False, stop: Event | None = None
) -> IngestResult:
    """Add every new record of the spool to the audit log, and everything that is not a record to its quarantine.

    `spool` and `audit` are paths or URLs that Spark supports; the audit log is created if it does not exist. With `follow`, looks for new
    segments every ten seconds until `stop` is set. May be stopped or killed at any moment: no record is added twice, and the next ingest
    adds what is missing. Raises AuditError.
    """
    with failing_to(f"ingest {spool} into {audit}"):
        session = own_session(spark)
        for key, value in _SETTINGS.items():
            session.conf.set(key, value)
        source = open_storage(session, spool)
        if not source.is_folder():
            raise AuditError(f"cannot ingest {spool}: there is no such folder")
        target = _audit_folder(session, audit)
        stop = stop or Event()
        with target.locked(INGESTING):
            batches = _Batches(session, source, target)
            with suppress(StoppedError):
                _play(batches, stop, follow=follow)
            return batches.result()


def _play(batches: "_Batches", stop: Event, *, follow: bool) -> None:
    """Ingest what is new, and with `follow` what becomes new, until `stop` is set."""
    known_problems: Mapping[str, str] | None = None
    while not stop.is_set():
        listing = batches.listing(stop)
        if listing.problems != known_problems:
            batches.quarantine_paths(listing.problems, stop)
            known_problems = listing.problems
        if listing.roots or listing.objects:
            try:
                batches.run(listing, stop)
            except Exception:
                # A failed batch raises its own error. An error of the stream itself may be one of a listing that is outdated.
                if batches.failure is not None or batches.listing(stop) == listing:
                    raise
                continue
        if not follow:
            break
        stop.wait(LOOK_SECONDS)


def _audit_folder(session: SparkSession, url: str) -> Storage:
    audit = open_storage(session, url)
    if not audit.is_folder():
        audit.make_folder()
    elif (names := audit.names()) and not ENTRIES.intersection(names):
        raise AuditError(f"{url} is not an audit log (it contains {names[0]}, …): name an empty or a new folder")
    audit.make_folder(CHECKPOINTS)
    return audit


def _in_order(batch: DataFrame) -> list[Segment]:
    """The segments of a batch in the order in which they were written, so that records of one date are adjacent.

    Reads Spark's plan: collecting the rows would open each file, and fail if one was deleted.
    """
    partitions: Any = batch._jdf.queryExecution().toRdd().partitions()  # noqa: SLF001  plans have no Python API
    files = {file.toPath().toString(): file for partition in partitions for file in partition.files()}
    written = sorted((file.modificationTime(), path, file.fileSize()) for path, file in files.items())
    return [Segment(url=path, length=length) for _, path, length in written]


class _Batches:
    """Ingests each batch of the stream. Spark calls it on a thread of its own."""

    def __init__(self, session: SparkSession, spool: Storage, audit: Storage) -> None:
        self._session = session
        self._spool = spool
        self._audit = audit
        self._writer = Writer(session, audit)
        self._checkpoint = checkpoint_of(spool.url)
        self._ingested = SegmentLog(audit, f"{self._checkpoint}/{SEGMENTS}")
        self._working = Lock()
        self._ended = Event()
        """Set when no further batch is to begin."""
        self.failure: Exception | None = None
        """The error of a failed batch; None if no batch failed."""
        self._rows: Counter[str] = Counter()
        self._files = 0

    def listing(self, stop: Event) -> SpoolListing:
        """The spool without the segments that were ingested."""
        spool = listing(self._spool, self._ingested.paths)
        if self._ingested.is_outdated(spool.ingested):
            with self._writer.working(stop):
                self._ingested.keep(spool.ingested)
        return spool

    def run(self, listing: SpoolListing, stop: Event) -> None:
        """Ingest what is new until `stop` is set. No batch is running when this returns or raises."""
        self._ended.clear()
        self.failure = None
        for part in batches_of(listing.objects, _BATCH_BYTES):
            if stop.is_set():
                return
            with self._spool.fetched([segment.path for segment in part]) as spool:
                segments = [Segment(spool.full_url(segment.path), segment.size) for segment in part]
                self._add(spool, segments, [*map(key_of, part)], stop)
        if listing.roots:
            self._stream(listing.roots, stop)

    def _stream(self, roots: Sequence[str], stop: Event) -> None:
        query = self._start(roots)
        try:
            while query.isActive and not stop.wait(_POLL_SECONDS):
                pass
            if (failure := query.exception()) is not None:
                raise self.failure or failure
        finally:
            self._ended.set()
            query.stop()  # interrupts a running batch
            with self._working:
                pass

    def _start(self, roots: Sequence[str]) -> StreamingQuery:
        """Start a stream of the paths of segments. A batch reads their content, so that a damaged segment does not fail the stream."""
        # What a stream has done is in the segment log. A new stream needs no checkpoint, and may be unable to read that of a killed one.
        for name in self._audit.names(self._checkpoint):
            if name != SEGMENTS:
                self._audit.delete(f"{self._checkpoint}/{name}")
        segments = (
            self._session.readStream.format("binaryFile")
            .schema(_SEGMENT_FILE)
            .option("recursiveFileLookup", True)
            .option("pathGlobFilter", f"*{SUFFIX}")
            .option("maxFileAge", _FOREVER)  # by default a segment that arrives a week late is ignored
            .option("maxBytesPerTrigger", _BATCH_BYTES)
            .load(pattern(self._spool, roots))
            .select("path")
        )
        writer = segments.writeStream.foreachBatch(self)
        if self._audit.local is not None:  # else Spark makes a folder on this machine
            writer = writer.option("checkpointLocation", self._audit.full_url(f"{self._checkpoint}/stream"))
        return writer.trigger(availableNow=True).start()

    def __call__(self, batch: DataFrame, _batch_id: int) -> None:
        with self._working:
            try:
                if self._ended.is_set():
                    raise StoppedError("stopped")
                segments = _in_order(batch)
                keys = [self._spool.relative(segment.url) for segment in segments]
                self._add(self._spool, segments, keys, self._ended)
            except Exception as error:
                self.failure = error
                raise

    def _add(self, spool: Storage, segments: Sequence[Segment], keys: Collection[str], stop: Event) -> None:
        with self._writer.working(stop):
            self._ingest(spool, segments)
            self._ingested.add(keys)

    def quarantine_paths(self, problems: Mapping[str, str], stop: Event) -> None:
        """Add what cannot be listed to the quarantine. Also removes what a writer that died has left."""
        with self._writer.working(stop):
            self._quarantine(self._spool, {path: Inspection(problem) for path, problem in problems.items()})

    def _quarantine(self, spool: Storage, inspections: Mapping[str, Inspection]) -> None:
        """Add the problems of segments or folders (by path below the spool, or URL) to the quarantine."""
        if inspections:
            rows = bad_segments(self._session, spool, inspections)
            self._rows[QUARANTINE_TABLE.name] += self._writer.append(rows, QUARANTINE_TABLE)

    def result(self) -> IngestResult:
        """The result so far."""
        rows = {table.name: self._rows[table.name] for table in RECORD_TABLES.values()}
        return IngestResult(rows=rows, quarantined=self._rows[QUARANTINE_TABLE.name], files=self._files)

    def _ingest(self, spool: Storage, segments: Sequence[Segment]) -> None:
        urls = [segment.url for segment in segments]
        inspections = inspect(spool, urls)
        # Counted before the rows are visible: a stop in between must not report rows of no segment.
        self._files += len(segments)
        try:
            self._write(spool, segments, inspections)
        except Exception as error:
            if not is_unreadable_file(error):
                raise
            again = inspect(spool, urls, with_hadoop=True)
            if again == inspections:
                raise
            self._write(spool, segments, inspections := again)
        self._quarantine(spool, inspections)

    def _write(self, spool: Storage, segments: Sequence[Segment], inspections: Mapping[str, Inspection]) -> None:
        sound = [segment for segment in segments if segment.url not in inspections]
        others = [segment for segment in segments if segment.url in inspections and inspections[segment.url].readable]
        if sound:
            self._write_sound(spool, sound)
        if others:
            damaged = [segment.url for segment in others if inspections[segment.url].problem]
            self._write_any(read_segments(self._session, spool, others, damaged))

    def _write_sound(self, spool: Storage, segments: Sequence[Segment]) -> None:
        rows, counts = common_records(self._session, spool, segments)
        self._append(rows, COMMON)
        if counts.get["others"] or counts.get["rejected"]:
            # After a rejection all lines are read again; the writer skips those that it has added.
            only_others = not counts.get["rejected"]
            self._write_any(read_segments(self._session, spool, segments, without_common=only_others))

    def _write_any(self, rows: DataFrame) -> None:
        rows = rows.persist(StorageLevel.MEMORY_AND_DISK)  # parsed once, for all tables
        try:
            good = F.when(F.col("reason").isNull(), F.col("record.type"))
            for row in collected(rows.groupBy(good.alias("type")).count()):
                if row.type is None:
                    self._rows[QUARANTINE_TABLE.name] += self._writer.append(bad_lines(rows), QUARANTINE_TABLE)
                else:
                    records = rows.where(good == row.type).select("record.*")
                    self._append(records.hint("rebalance"), row.type)
        finally:
            rows.unpersist()

    def _append(self, records: DataFrame, record_type: str) -> None:
        table = RECORD_TABLES[record_type]
        self._rows[table.name] += self._writer.append(records.select(*table.schema.names), table)
