"""Ingests spool segments: what is new is listed, inspected, packed and read by Spark; `Writer` adds each record once."""

import logging
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from itertools import chain
from threading import Event, Thread
from typing import Final
from uuid import uuid4

from msgspec import Struct
from pyspark import StorageLevel
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812  Spark's own convention

from sidecar.audit.audit_error import AuditError, StoppedError, failing_to
from sidecar.audit.ingest.inspection import Inspection, Packing, read_inspected
from sidecar.audit.ingest.segments import COMMON, Segment, bad_lines, bad_segments, common_records, read_segments
from sidecar.audit.ingest.spool_listing import LOOK_SECONDS, SegmentLog, batches_of, listing
from sidecar.audit.ingest.table_writer import Writer
from sidecar.audit.log.audit_log import ENTRIES, open_storage
from sidecar.audit.log.manifest import CHECKPOINTS, SEGMENTS, checkpoint_of
from sidecar.audit.log.storage import INGESTING, Storage
from sidecar.audit.log.tables import QUARANTINE_TABLE, RECORD_TABLES
from sidecar.audit.spark.spark_session import collected, own_session, tune

_log = logging.getLogger("sidecar.audit")

_BATCH_BYTES: Final = 64 << 20
"""Compressed; about a million records."""
_UNPACKED: Final = 5
"""How much larger lines are than their segment: small ones hardly, large ones up to 30 times."""
_FEW_BYTES: Final = 4 << 20
"""Lines that one task writes: about ten thousand."""
_POLL_SECONDS: Final = 0.1
_SETTINGS: Final = {
    # By default each folder is listed by a task of its own, which takes longer to start than to list.
    "spark.sql.sources.parallelPartitionDiscovery.parallelism": "8",
    # Chunks of segments are read in parallel: by default a union of single partitions is one partition.
    "spark.sql.unionOutputPartitioning": "false",
}


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
            with suppress(StoppedError), _interrupted_by(stop, session):
                batches.run(stop, follow=follow)
            return batches.result()


@contextmanager
def _interrupted_by(stop: Event, session: SparkSession) -> Iterator[None]:
    """Spark's jobs of the block are cancelled when `stop` is set. Raises StoppedError then."""
    context, tag, ended = session.sparkContext, f"ingest-{uuid4()}", Event()

    def watch() -> None:
        while not ended.wait(_POLL_SECONDS):
            if stop.is_set():
                context.cancelJobsWithTag(tag)

    watcher = Thread(target=watch, name="stop of the ingest", daemon=True)
    context.addJobTag(tag)
    watcher.start()
    try:
        yield
    except Exception as error:
        if stop.is_set():
            raise StoppedError("stopped") from error
        raise
    finally:
        ended.set()
        watcher.join()
        context.removeJobTag(tag)


def _audit_folder(session: SparkSession, url: str) -> Storage:
    audit = open_storage(session, url)
    if (names := audit.names()) and ENTRIES.isdisjoint(names):
        raise AuditError(f"{url} is not an audit log (it contains {names[0]}, …): name an empty or a new folder")
    audit.make_folder()
    audit.make_folder(CHECKPOINTS)
    return audit


class _Batches:
    """Ingests the segments of a spool, batch by batch."""

    def __init__(self, session: SparkSession, spool: Storage, audit: Storage) -> None:
        self._session = session
        self._spool = spool
        self._audit = audit
        self._writer = Writer(session, audit)
        self._ingested = SegmentLog(audit, f"{checkpoint_of(spool.url)}/{SEGMENTS}")
        self._rows: Counter[str] = Counter()
        self._files = 0
        self._few = False
        """Whether one task is enough for a table's rows of the current batch."""

    def run(self, stop: Event, *, follow: bool) -> None:
        """Ingest what is new, and with `follow` what becomes new, until `stop` is set."""
        known_problems: Mapping[str, str] | None = None
        while not stop.is_set():
            new = listing(self._spool, self._ingested.paths)
            if self._ingested.is_outdated(new.ingested):
                with self._writer.working(stop):
                    self._ingested.keep(new.ingested)
            if new.problems != known_problems:
                with self._writer.working(stop):  # also removes what a writer that died has left
                    self._quarantine(self._spool, {path: Inspection(text) for path, text in new.problems.items()})
                known_problems = new.problems
            for batch in batches_of(new.segments, _BATCH_BYTES):
                if stop.is_set():
                    return
                with self._spool.fetched([segment.path for segment in batch]) as spool, self._writer.working(stop):
                    self._ingest(spool, [Segment(spool.full_url(segment.path), segment.size) for segment in batch])
                    self._ingested.add([segment.key for segment in batch])
            if not follow:
                break
            stop.wait(LOOK_SECONDS)

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
        sizes = [segment.length * _UNPACKED for segment in segments]
        self._few = sum(sizes) <= _FEW_BYTES
        tune(self._session, chain(sizes, self._writer.index_sizes()))
        # Counted before the rows are visible: a stop in between must not report rows of no segment.
        self._files += len(segments)
        with self._writer.packing() as packing:
            read_inspected(spool, urls, lambda found: self._write(spool, segments, found, packing), packing)

    def _write(
        self,
        spool: Storage,
        segments: Sequence[Segment],
        inspections: Mapping[str, Inspection],
        packing: Packing | None,
    ) -> None:
        sound = [segment for segment in segments if segment.url not in inspections]
        others = [segment for segment in segments if segment.url in inspections and inspections[segment.url].readable]
        if sound:
            files = [segment for segment in sound if not packing or segment.url not in packing.packed]
            packed = packing.finish() if packing else ()
            files += (Segment(f"file:{file}", file.stat().st_size) for file in packed)
            self._write_sound(spool, sound, files)
        if others:
            damaged = [segment.url for segment in others if inspections[segment.url].problem]
            self._write_any(read_segments(self._session, spool, others, damaged))
        self._quarantine(spool, inspections)

    def _write_sound(self, spool: Storage, segments: Sequence[Segment], files: Sequence[Segment]) -> None:
        """`files`: what has their lines."""
        rows, counts = common_records(self._session, spool, files)
        self._append(rows, COMMON)
        if counts.get["rejected"]:
            # All lines are read again, and the writer skips those that it has added.
            self._write_any(read_segments(self._session, spool, segments))
        elif counts.get["others"]:
            others = partial(read_segments, self._session, spool, without_common=True)
            self._write_any(others(files), lambda: others(segments))

    def _write_any(self, rows: DataFrame, with_files: Callable[[], DataFrame] | None = None) -> None:
        """`with_files`: the same rows from the segments themselves, if these are of packed files. The quarantine names a line's segment."""
        rows = rows.persist(StorageLevel.MEMORY_AND_DISK)  # parsed once, for all tables
        try:
            good = F.when(F.col("reason").isNull(), F.col("record.type"))
            for row in collected(rows.groupBy(good.alias("type")).count()):
                if row.type is None:
                    bad = bad_lines(with_files() if with_files else rows)
                    self._rows[QUARANTINE_TABLE.name] += self._writer.append(bad, QUARANTINE_TABLE)
                else:
                    records = rows.where(good == row.type).select("record.*")
                    self._append(records if self._few else records.hint("rebalance"), row.type)
        finally:
            rows.unpersist()

    def _append(self, records: DataFrame, record_type: str) -> None:
        table = RECORD_TABLES[record_type]
        rows = records.select(*table.schema.names)
        self._rows[table.name] += self._writer.append(rows, table, few=self._few)
