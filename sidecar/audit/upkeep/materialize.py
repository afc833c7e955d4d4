"""Keeps the materialised answers: closes dates, redoes those with late records, and lets them expire.

Whoever is killed leaves files that no manifest names; the next run deletes them (docs/project/adr/0029-materialised-leadership.md).
"""

import logging
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from datetime import UTC, date, datetime, timedelta
from functools import cache
from hashlib import sha256
from itertools import chain
from typing import Final
from uuid import uuid4

from msgspec import Struct
from msgspec.structs import replace
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812  Spark's own convention

from sidecar.audit.log.audit_log import open_audit_log, periods_of
from sidecar.audit.log.closed_tables import (
    CARRY,
    CLOSED_TABLES,
    ORDER,
    STAGED,
    commit,
    delete_unnamed,
    read_carry,
    read_closed,
    read_files,
    read_manifest,
)
from sidecar.audit.log.manifest import CLOSED, SOURCES, DateSource, Manifest, days, start_of
from sidecar.audit.log.storage import PARQUET, Storage
from sidecar.audit.log.tables import BASE_VIEWS, EVENT_DATE, EVENT_MONTH, folder_of, partition_value, period_of
from sidecar.audit.spark.spark_session import collected, sizes_to_read, tune
from sidecar.audit.views.catalog import define

LOOK_AHEAD: Final = timedelta(hours=2)
"""How much of the next date decides about a date: a stretch is fully known after an hour, and so is the next one (R2 to R4)."""
_DAY: Final = timedelta(days=1)
_log = logging.getLogger("sidecar.audit")
_DENSE: Final = 4
"""Carries of the last dates are all kept; of dates `_DENSE` times 2 to the n days old, one in 2 to the n."""
_SPARSEST: Final = 64
"""Days between the oldest carries."""
LITTLE: Final = 32 * 2**20
"""Bytes of records that are read at once, of however many dates: each run takes three seconds however little there is to read."""
_LARGE: Final = 8 * LITTLE
"""Bytes from which on a month's answers are several files, each with other dates: one task sorts what one file has."""
Files = Mapping[date, Mapping[str, Sequence[str]]]
"""The files of each table, by the first date of their month."""


class Folded(Struct, frozen=True):
    """The staged rows of some dates."""

    first: date
    last: date
    files: Files
    carry: str
    """The staged folder with what matters after the end of `last`."""


class Fold:
    """Computes the rows of dates from what happened on them, and from what was carried over from the time before.

    Of all clusters or of some. Rows are staged where no reader looks. The caller holds the lock.
    """

    def __init__(
        self,
        session: SparkSession,
        audit: Storage,
        listed: Mapping[str, Mapping[str, Sequence[str]]],
        manifest: Manifest,
        *,
        clusters: Collection[str] | None = None,
    ) -> None:
        """`listed`: the files of each source table, by folder. `manifest`: names the rows of other dates, and of others than `clusters`."""
        self._session = session
        self._audit = audit
        self._staging = audit.staging
        self._listed = listed
        self._clusters = clusters
        self._manifest = manifest

    def dates(self, first: date, last: date, carry: DataFrame, *, since: date | None = None) -> Folded:
        """Stage the rows of the dates from `first` (from `since`, if later) to `last`. `carry`: what of the time before `first` matters."""
        folder = f"{STAGED}{uuid4()}"
        begin, end = start_of(first), start_of(last + _DAY)
        self._register(first, last, self._only(carry), begin, end)
        stretches = self._stage_stretches(folder, end)
        define(self._session, "_carry_on", begin, end)
        self._write_carry(self._session.table("_carry_on"), f"{folder}/carry")
        since = max(first, since or first)
        if since <= last:
            large = sum(sizes_to_read(self._session.table("_transitions"))) > _LARGE
            is_new = F.col(EVENT_DATE) >= F.lit(since)
            ended = stretches.where((F.col("ended_at") >= F.lit(begin)) & (F.col("ended_at") < F.lit(end)))
            self._stage(
                ended.withColumn(EVENT_DATE, F.to_date("ended_at")).where(is_new), "leadership", folder, apart=large
            )
            for table, view in (("leader_changes", "_leader_changes"), ("availability_days", "_days")):
                define(self._session, view, begin, end)
                self._stage(self._session.table(view).where(is_new), table, folder, apart=large)
        return Folded(first=since, last=last, files=self._staged(folder), carry=f"{folder}/carry")

    def kept(self, months: Collection[date], first: date, last: date) -> Files:
        """Stage what the manifest has of these months, but what is folded from `first` to `last`."""
        folder = f"{STAGED}{uuid4()}"
        manifest = replace(self._manifest, files={month: self._manifest.files.get(month, {}) for month in months})
        for table in CLOSED_TABLES:
            stored = read_closed(self._session, self._audit, manifest, table)
            folded = F.col(EVENT_DATE).between(F.lit(first), F.lit(last))
            if self._clusters is not None:
                folded &= F.col("cluster_id").isin([*self._clusters])
            self._stage(stored.where(~folded), table, folder, apart=sum(sizes_to_read(stored)) > _LARGE)
        return self._staged(folder)

    def carry_of(self, folded: Folded) -> DataFrame:
        """What matters after the end of the staged dates."""
        return self._session.read.schema(CARRY).parquet(self._staging.to_read(folded.carry))

    def merged_carry(self, folded: Folded) -> str:
        """The staged file with what matters after the end of the staged dates, of all clusters."""
        if self._clusters is not None:
            stored = read_carry(self._session, self._audit, self._manifest, folded.last)
            others = stored.where(~F.col("cluster_id").isin([*self._clusters]))
            merged = replace(folded, carry=f"{folded.carry}-merged")
            self._write_carry(others.unionByName(self.carry_of(folded)), merged.carry)
            folded = merged
        (file,) = self._staging.files(folded.carry, PARQUET)
        return f"{folded.carry}/{file}"

    def _register(self, first: date, last: date, carry: DataFrame, begin: datetime, end: datetime) -> None:
        transitions = self._source("transitions", first, last + _DAY)
        transitions.where(F.col("observed_at") < F.lit(end + LOOK_AHEAD)).createOrReplaceTempView("_transitions")
        self._source("coverage", first - _DAY, last + _DAY).createOrReplaceTempView("_coverage")
        carry.createOrReplaceTempView("_carry")
        for view in ("_periods", "_sight", "_stretches"):
            define(self._session, view, begin, end)

    def _stage_stretches(self, folder: str, end: datetime) -> DataFrame:
        """What follows reads the result instead of computing it again."""
        path = f"{folder}/stretches"
        self._session.table("_stretches").write.parquet(self._staging.full_url(path))
        stretches = self._session.read.parquet(self._staging.to_read(path))
        stretches.createOrReplaceTempView("_stretches")
        limits = stretches.select("cluster_id").distinct().withColumn("until", F.lit(end))
        limits.createOrReplaceTempView("_limits")
        return stretches

    def _write_carry(self, rows: DataFrame, folder: str) -> None:
        typed = rows.select([F.col(field.name).cast(field.dataType) for field in CARRY])
        ordered = typed.coalesce(1).sortWithinPartitions("cluster_id", "role", "component", "job_id", "at")
        ordered.write.parquet(self._staging.full_url(folder))

    def _source(self, table: str, first: date, last: date) -> DataFrame:
        folders = dict.fromkeys(folder_of(table, day) for day in days(first, last))
        paths = [path for folder in folders for path in self._listed[table].get(folder, ())]
        rows = read_files(self._session, self._audit, table, BASE_VIEWS[table], paths)
        return self._only(rows.where(F.col(EVENT_DATE).between(F.lit(first), F.lit(last))))

    def _only(self, rows: DataFrame) -> DataFrame:
        return rows if self._clusters is None else rows.where(F.col("cluster_id").isin([*self._clusters]))

    def _stage(self, rows: DataFrame, table: str, folder: str, *, apart: bool) -> None:
        """One file for each month, sorted by date; `apart`: several, each with other dates."""
        rows = rows.select(*CLOSED_TABLES[table].names, EVENT_DATE)
        rows = rows.withColumn(EVENT_MONTH, partition_value(table, F.col(EVENT_DATE)))
        parts = rows.repartition(EVENT_DATE if apart else EVENT_MONTH)
        parts.sortWithinPartitions(EVENT_MONTH, EVENT_DATE, *ORDER[table]).write.partitionBy(EVENT_MONTH).parquet(
            self._staging.full_url(f"{folder}/{table}")
        )

    def _staged(self, folder: str) -> Files:
        """The files of the tables that are staged in `folder`."""
        files = dict[date, dict[str, list[str]]]()
        for path in self._staging.files(folder, PARQUET):
            table, _, below = path.partition("/")
            if table in CLOSED_TABLES and (period := period_of(table, below.rpartition("/")[0])):
                files.setdefault(period.first, {}).setdefault(table, []).append(f"{folder}/{path}")
        return files


class MaterializeResult(Struct, frozen=True):
    """What one run has done."""

    closed: int
    """Dates."""
    redone: int
    """Dates, because of late records."""
    clusters: int
    """Clusters of which dates were redone."""


def materialize(spark: SparkSession, audit: str, *, before: date | None = None) -> MaterializeResult:
    """Close the UTC dates before yesterday (before `before`, if earlier), and redo closed dates of clusters with late records.

    Readers see the answers as they were, or as they are afterwards. It may be killed at any moment and repeated at any time. Raises
    AuditError.
    """
    yesterday = datetime.now(UTC).date() - _DAY
    total = MaterializeResult(closed=0, redone=0, clusters=0)
    with open_audit_log(spark, audit, "materialize the answers of") as (session, folder):
        while True:
            with folder.locked():  # between two runs of dates, an ingest may write
                closing = Closing(session, folder)
                redone, clusters = closing.redo()
                closed = closing.close(min(before or yesterday, yesterday) - _DAY)
            total = MaterializeResult(
                closed=total.closed + closed, redone=total.redone + redone, clusters=total.clusters + clusters
            )
            if not closed:
                return total


def is_kept(day: date, newest: date) -> bool:
    """Whether the carry of `day` is kept when `newest` is the last closed date: the older, the fewer."""
    number = day.toordinal()
    return (newest - day).days < _DENSE * (number & -number) or number % _SPARSEST == 0


class Closing:
    """The materialised answers of one audit log, whose lock the caller holds."""

    def __init__(self, session: SparkSession, audit: Storage) -> None:
        """Deletes what a run that died has left."""
        self._session = session
        self._audit = audit
        self.manifest = read_manifest(audit)
        delete_unnamed(audit, self.manifest)
        audit.staging.clear(STAGED)
        self._listed = {table: _listed(audit, table, self.manifest.base) for table in SOURCES}
        self._size = cache(audit.size)  # a request each, in a bucket

    def close(self, target: date) -> int:
        """Close the next dates until `target`, as many as are closed at once; returns how many."""
        last = self.manifest.last or self._first_date(target + _DAY) - _DAY
        if last >= target:
            return 0
        stop = self._stop(last, target)
        fold = Fold(self._session, self._audit, self._listed, self.manifest)
        carry = read_carry(self._session, self._audit, self.manifest, self.manifest.last)
        self._tune(days(last, stop + _DAY), carry)
        folded = fold.dates(last + _DAY, stop, carry)
        parted = self._parted_month(last + _DAY)
        manifest = replace(
            self.manifest, last=stop, sources={**self.manifest.sources, **self._sources(days(last + _DAY, stop + _DAY))}
        )
        files = [folded.files, *([fold.kept(parted, last + _DAY, stop)] if parted else [])]
        self._publish(manifest, files, {stop: fold.merged_carry(folded)}, replaced=parted)
        _log.debug("closed %s to %s", last + _DAY, stop)
        return (stop - last).days

    def _stop(self, last: date, target: date) -> date:
        """The date until which those after `last` are closed at once: all, or those up to one whose carry is worth its cost.

        Where there is much to read, late records of the last dates are redone from a carry not far before them.
        """
        read, files = 0, set[str]()
        for day in days(last + _DAY, target - _DAY):
            new = {*self._files([day])} - files  # of a month only once
            files |= new
            read += sum(map(self._size, new))
            if read > LITTLE and ((target - day).days < _DENSE or day.toordinal() % _SPARSEST == 0):
                return day
        return target

    def _parted_month(self, day: date) -> set[date]:
        """The last month that is over before `day`, if it has several files with little in them: each run has added one."""
        month = max((month for month in self.manifest.files if month < day.replace(day=1)), default=None)
        tables = self.manifest.files[month].values() if month else ()
        is_parted = any(len(files) > 1 and sum(map(self._size, files)) <= LITTLE for files in tables)
        return {month} if month and is_parted else set()

    def redo(self) -> tuple[int, int]:
        """Redo the dates that late records touch, of their clusters; returns how many dates and clusters."""
        last = self.manifest.last
        if last is None:
            return 0, 0
        known = {*self.manifest.sources, *self._dates(last + _DAY)}
        changed = [day for day in sorted(known) if day <= last + _DAY and self._digests(day) != self._source(day).files]
        if not changed:
            return 0, 0
        sources = {day: source for day, source in self.manifest.sources.items() if day not in changed}
        self._tune(changed)
        new_sources = self._sources(changed)
        manifest = replace(self.manifest, sources=sources | new_sources)
        late = {day: _different(self._source(day).rows, new_sources.get(day, DateSource()).rows) for day in changed}
        clusters = {cluster for names in late.values() for cluster in names}
        if not clusters:
            self.manifest = commit(self._audit, manifest)
            return 0, 0
        return self._redo(manifest, [day for day, names in late.items() if names], clusters), len(clusters)

    def _redo(self, manifest: Manifest, late: list[date], clusters: set[str]) -> int:
        since = max(late[0] - _DAY, (manifest.base or date.min) + _DAY)
        before, start = self._carried(manifest, since)
        fold = Fold(self._session, self._audit, self._listed, manifest, clusters=clusters)
        carry = read_carry(self._session, self._audit, manifest, before)
        folds, carries = list[Folded](), dict[date, str]()
        for stop in sorted(day for day in manifest.carries if day >= start):
            self._tune(days(start - _DAY, stop + _DAY), carry)
            folds.append(fold.dates(start, stop, carry, since=since))
            carry = fold.carry_of(folds[-1])
            if stop > late[-1] and self._is_stored(carry, stop, clusters):
                break
            carries[stop] = fold.merged_carry(folds[-1])
            start = stop + _DAY
        months = {day.replace(day=1) for day in days(since, folds[-1].last)}
        kept = fold.kept(months, since, folds[-1].last)
        self._publish(manifest, [kept, *(folded.files for folded in folds)], carries, replaced=months)
        _log.debug("redone %s to %s of %d clusters", since, folds[-1].last, len(clusters))
        return (folds[-1].last - since).days + 1

    def expire(self, oldest: date) -> None:
        """Forget the dates before `oldest`, but not what of them matters later. Their records still exist."""
        base, last = oldest - _DAY, self.manifest.last
        if last is None or last < base or (self.manifest.base or date.min) >= base:
            return
        carries = {} if base in self.manifest.carries else {base: self._staged_carry(base)}
        manifest = replace(
            self.manifest,
            base=base,
            files={month: files for month, files in self.manifest.files.items() if month >= oldest.replace(day=1)},
            carries={day: file for day, file in self.manifest.carries.items() if day >= base},
            sources={day: source for day, source in self.manifest.sources.items() if day > base},
        )
        self._publish(manifest, [], carries)
        for table in CLOSED_TABLES:
            for folder, dates in periods_of(self._audit, table).items():
                if dates.last < oldest:
                    self._audit.drop(folder)

    def _staged_carry(self, base: date) -> str:
        """A staged file with what of the dates up to `base` matters later."""
        before, start = self._carried(self.manifest, base)
        fold = Fold(self._session, self._audit, self._listed, self.manifest)
        carry = read_carry(self._session, self._audit, self.manifest, before)
        self._tune(days(start - _DAY, base + _DAY), carry)
        return fold.merged_carry(fold.dates(start, base, carry, since=base + _DAY))

    def _carried(self, manifest: Manifest, day: date) -> tuple[date | None, date]:
        """The last carry before `day`, and the date from which on records are folded: the next one, or the first of all."""
        before = max((carried for carried in manifest.carries if carried < day), default=None)
        return before, before + _DAY if before else min(self._first_date(day), day)

    def _publish(
        self,
        manifest: Manifest,
        staged: Iterable[Files],
        carries: Mapping[date, str],
        *,
        replaced: Collection[date] = (),
    ) -> None:
        """Make staged files visible, then the manifest that names them; it names no earlier ones of the months that are `replaced`."""
        files = {month: {**tables} for month, tables in manifest.files.items() if month not in replaced}
        visible = dict[str, str]()
        for month, tables in chain.from_iterable(parts.items() for parts in staged):
            for table, paths in tables.items():
                targets = [f"{folder_of(table, month)}/{uuid4()}{PARQUET}" for _ in paths]
                visible.update(zip(paths, targets, strict=True))
                of_month = files.setdefault(month, {})
                of_month[table] = [*of_month.get(table, ()), *targets]
        all_carries = {day: file for day, file in manifest.carries.items() if self._is_needed(day, manifest)}
        for day, carry in carries.items():
            all_carries[day] = visible[carry] = f"{CLOSED}/carry-{day}-{uuid4()}{PARQUET}"
        self._audit.publish(visible)
        self.manifest = commit(self._audit, replace(manifest, files=files, carries=all_carries))
        self._audit.staging.clear(STAGED)

    def _tune(self, dates: Iterable[date], *carried: DataFrame) -> None:
        """For queries that read the records of these dates, and what was carried over from the time before."""
        tune(self._session, chain(map(self._size, self._files(dates)), *map(sizes_to_read, carried)))

    def _files(self, dates: Iterable[date]) -> Iterator[str]:
        """The files with records of these dates, each once."""
        folders = dict.fromkeys((table, folder_of(table, day)) for day in dates for table in self._listed)
        return chain.from_iterable(self._listed[table].get(folder, ()) for table, folder in folders)

    def _dates(self, last: date) -> Iterator[date]:
        """The dates up to `last` of which there may be records, without those that have expired."""
        first = self.manifest.base + _DAY if self.manifest.base else date.min
        for table, listed in self._listed.items():
            for folder in listed:
                if period := period_of(table, folder.partition("/")[2]):
                    yield from days(max(period.first, first), min(period.last, last))

    def _first_date(self, otherwise: date) -> date:
        """The first date with records."""
        oldest = ((table, listed[min(listed)]) for table, listed in self._listed.items() if listed)
        rows = (read_files(self._session, self._audit, table, BASE_VIEWS[table], files) for table, files in oldest)
        dates = [row.day for part in rows for row in collected(part.agg(F.min(EVENT_DATE).alias("day"))) if row.day]
        return min(dates, default=otherwise)

    @staticmethod
    def _is_needed(day: date, manifest: Manifest) -> bool:
        return day == manifest.base or manifest.last is None or is_kept(day, manifest.last)

    def _is_stored(self, carry: DataFrame, day: date, clusters: set[str]) -> bool:
        stored = read_carry(self._session, self._audit, self.manifest, day)
        stored = stored.where(F.col("cluster_id").isin([*clusters]))
        return stored.exceptAll(carry).isEmpty() and carry.exceptAll(stored).isEmpty()

    def _source(self, day: date) -> DateSource:
        return self.manifest.sources.get(day, DateSource())

    def _digests(self, day: date) -> dict[str, str]:
        return {
            table: sha256("\n".join(files).encode()).hexdigest()[:32]
            for table, listed in self._listed.items()
            if (files := listed.get(folder_of(table, day)))
        }

    def _sources(self, dates: Iterable[date]) -> dict[date, DateSource]:
        """What there is to read of these dates."""
        counts: dict[date, dict[str, list[int]]] = {
            day: {} for day in dates if any(folder_of(table, day) in listed for table, listed in self._listed.items())
        }
        digests = {day: self._digests(day) for day in counts}
        for number, (table, listed) in enumerate(self._listed.items()):
            changed = dict[str, set[date]]()
            for day, clusters in counts.items():
                source, folder = self._source(day), folder_of(table, day)
                if digests[day].get(table) != source.files.get(table):
                    changed.setdefault(folder, set()).add(day)
                    continue
                for cluster, numbers in source.rows.items():
                    clusters.setdefault(cluster, [0, 0])[number] = numbers[number]
            paths = [path for folder in changed for path in listed.get(folder, ())]
            rows = read_files(self._session, self._audit, table, BASE_VIEWS[table], paths)
            for row in collected(rows.groupBy(EVENT_DATE, "cluster_id").count()):
                if row[EVENT_DATE] in changed.get(folder_of(table, row[EVENT_DATE]), ()):
                    counts[row[EVENT_DATE]].setdefault(row.cluster_id or "", [0, 0])[number] = row["count"]
        return {day: DateSource(files=digests[day], rows=rows) for day, rows in counts.items()}


def _listed(audit: Storage, table: str, base: date | None) -> dict[str, list[str]]:
    """The files of a table that have not expired, by folder, relative to the audit log."""
    listed = dict[str, list[str]]()
    for file in audit.files(table, PARQUET):
        folder = file.rpartition("/")[0]
        period = period_of(table, folder)
        if period is not None and (base is None or period.last > base):
            listed.setdefault(f"{table}/{folder}", []).append(f"{table}/{file}")
    return listed


def _different(old: Mapping[str, object], new: Mapping[str, object]) -> set[str]:
    return {cluster for cluster in {*old, *new} if old.get(cluster) != new.get(cluster)}
