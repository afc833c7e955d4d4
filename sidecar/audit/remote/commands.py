"""The audit commands for any URLs: in object stores by a local copy, else directly."""

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from threading import Event

from pyspark.sql import SparkSession

from sidecar.audit.ask.query_check import check_query
from sidecar.audit.ask.registration import tables_unread
from sidecar.audit.audit_error import AuditError, StoppedError, failing_to
from sidecar.audit.ingest.ingest import IngestResult
from sidecar.audit.ingest.ingest import ingest as ingest_spool
from sidecar.audit.ingest.spool import LOOK_SECONDS, SUFFIX
from sidecar.audit.log.checkpoints import checkpoint_of
from sidecar.audit.log.storage import Storage
from sidecar.audit.log.tables import RECORD_TABLES
from sidecar.audit.remote.audit_copy import Readable, Writable, reading, writing
from sidecar.audit.remote.spool_copy import IngestedSegments, SpoolCopy
from sidecar.audit.remote.workspace import Workspace, is_remote, workspace
from sidecar.audit.spark.session import own_session
from sidecar.audit.upkeep.compact import CompactResult
from sidecar.audit.upkeep.compact import compact as compact_tables
from sidecar.audit.upkeep.materialize import MaterializeResult
from sidecar.audit.upkeep.materialize import materialize as materialize_answers
from sidecar.audit.upkeep.retention import ExpireResult
from sidecar.audit.upkeep.retention import expire as expire_data


def ingest(
    spark: SparkSession,
    spool: str,
    audit: str,
    *,
    cache: Path | None = None,
    follow: bool = False,
    stop: Event | None = None,
) -> IngestResult:
    """Add every new record of the spool to the audit log: see `sidecar.audit.ingest.ingest`. Raises AuditError."""
    if not (is_remote(spool) or is_remote(audit)):
        return ingest_spool(spark, spool, audit, follow=follow, stop=stop)
    stop = stop or Event()
    with workspace(spark, cache, spool, audit) as place:
        rounds = (_FromObjects if is_remote(spool) else _FromFolder)(spark, spool, audit, place, stop)
        with suppress(StoppedError):
            rounds.play()
            while follow and not stop.wait(LOOK_SECONDS):
                rounds.play()
        return rounds.result()


class _Rounds:
    """Ingests into a log in an object store what has become new in a spool, in rounds. Between them, others may write."""

    def __init__(self, spark: SparkSession, spool: str, audit: str, place: Workspace, stop: Event) -> None:
        self.spark = spark
        self.spool = spool
        self.audit = audit
        self.place = place
        self.stop = stop
        self._rows: Counter[str] = Counter()
        self._quarantined = self._files = 0

    def play(self) -> None:
        """Ingest what is new. Raises AuditError."""
        raise NotImplementedError

    def result(self) -> IngestResult:
        """The result of all rounds."""
        rows = {table.name: self._rows[table.name] for table in RECORD_TABLES.values()}
        return IngestResult(rows=rows, quarantined=self._quarantined, files=self._files)

    def ingest(self, spool: str, log: Writable) -> None:
        """Ingest a spool that Spark can read, and publish the rows."""
        done = ingest_spool(self.spark, spool, log.url, stop=self.stop)
        log.publish()
        self._rows.update(done.rows)
        self._quarantined += done.quarantined
        self._files += done.files


class _FromFolder(_Rounds):
    """A spool that Spark can read."""

    _seen: dict[str, datetime] | None = None

    def play(self) -> None:
        with failing_to(f"list {self.spool}"):
            segments = Storage(self.spark, self.spool).modified("", SUFFIX)
        if segments == self._seen:
            return
        with writing(self.spark, self.audit, self.place, stop=self.stop, resumed=self._seen is not None) as log:
            self._seen = None
            self.ingest(self.spool, log)
            self._seen = segments


class _FromObjects(_Rounds):
    """A spool in an object store."""

    _known: dict[str, str] | None = None

    def play(self) -> None:
        source = SpoolCopy(self.spool, self.place)
        segments = source.list()
        if not segments and self._known is None:
            raise AuditError(f"cannot ingest {self.spool}: there are no segments")
        etags = {path: found.etag for path, found in segments.items()}
        ingested = IngestedSegments(self.spool, self.audit, self._folder())
        if etags.items() <= (self._known if self._known is not None else ingested.read()).items():
            self._known = etags
            return
        with writing(self.spark, self.audit, self.place, stop=self.stop) as log:
            known = {path: etag for path, etag in ingested.read().items() if path in etags}
            new = [found for path, found in segments.items() if known.get(path) != found.etag]
            for part in source.parts(new):
                self._forget_copy(source, log)
                self.ingest(str(source.folder), log)
                if self.stop.is_set():
                    break
                known.update({path: found.etag for path, found in part.items()})
                ingested.write(known)
            self._forget_copy(source, log)
            self._known = known

    def _folder(self) -> Path | None:
        """The audit log's folder on a local file system; None if it is in an object store. Raises AuditError for any other."""
        if is_remote(self.audit):
            return None
        if (folder := Storage(self.spark, self.audit).local) is None:
            raise AuditError(
                f"cannot ingest {self.spool} into {self.audit}: beside an object store, the log has to be in a local folder or in one too"
            )
        return folder

    def _forget_copy(self, source: SpoolCopy, log: Writable) -> None:
        """Delete the checkpoint of the copied segments: the next ones may have the same names."""
        target = Storage(self.spark, log.url)
        target.delete(checkpoint_of(Storage(self.spark, str(source.folder)).url))


@contextmanager
def readable(
    spark: SparkSession, audit: str, cache: Path | None = None, *, query: str | None = None, again: bool = False
) -> Iterator[Readable]:
    """The audit log, all of it or what a query needs; `again` downloads also what the cache has. Raises AuditError."""
    with workspace(spark, cache, audit) as place:
        without = set[str]()
        if query is not None and is_remote(audit):
            with failing_to("run the query"):
                asked = check_query(own_session(spark), query)
                without = tables_unread(() if asked.described else asked.views or ())
        with reading(audit, place, without=without, again=again) as log:
            yield log


def without_copy(audit: str) -> str:
    """`audit`, if other programs of Spark's can read it. Raises AuditError."""
    if is_remote(audit):
        raise AuditError(
            f"cannot name {audit} to other programs, which have no copy of it: use s3a:// with Hadoop's packages, or a folder"
        )
    return audit


@contextmanager
def maintained(
    spark: SparkSession, audit: str, cache: Path | None = None, *, spool: str | None = None
) -> Iterator["Maintenance"]:
    """The audit log, and the spool of which old segments are deleted. Raises AuditError."""
    with workspace(spark, cache, audit, spool) as place, writing(spark, audit, place) as log:
        yield Maintenance(spark, log, place, spool)


class Maintenance:
    """What is done once a day."""

    def __init__(self, spark: SparkSession, log: Writable, place: Workspace, spool: str | None) -> None:
        self._spark = spark
        self._log = log
        self._place = place
        self._spool = spool

    def compact(self, before: date | None) -> CompactResult:
        """See `sidecar.audit.upkeep.compact.compact`."""
        done = compact_tables(self._spark, self._log.url, before=before)
        self._log.publish()
        return done

    def materialize(self, before: date | None) -> MaterializeResult:
        """See `sidecar.audit.upkeep.materialize.materialize`."""
        done = materialize_answers(self._spark, self._log.url, before=before)
        self._log.publish()
        return done

    def expire(self, days: int) -> ExpireResult:
        """See `sidecar.audit.upkeep.retention.expire`. Segments are deleted before dates, so that they cannot bring them back."""
        if self._spool is None or not is_remote(self._spool):
            done = expire_data(self._spark, self._log.url, days, spool=self._spool)
        else:
            done = self._expire_objects(SpoolCopy(self._spool, self._place), days)
        self._log.publish()
        return done

    def _expire_objects(self, source: SpoolCopy, days: int) -> ExpireResult:
        oldest = datetime.now(UTC).date() - timedelta(days=days)
        deleted = kept = dates = 0
        for part in source.parts(one for one in source.list().values() if one.modified.date() < oldest):
            done = expire_data(self._spark, self._log.url, days, spool=str(source.folder))
            source.delete(part.keys() - source.present())
            deleted, kept, dates = deleted + done.segments, kept + done.not_ingested, dates + done.dates
        dates += expire_data(self._spark, self._log.url, days).dates
        return ExpireResult(segments=deleted, dates=dates, not_ingested=kept)
