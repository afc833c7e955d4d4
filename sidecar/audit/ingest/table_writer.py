"""The writer that adds each id to the tables of the audit log exactly once.

Rows are staged where no reader looks. Then their ids are compared: files with a repeated or already visible id are rewritten without it.
The remaining files are synced to disk, and become visible one by one. A writer that dies leaves complete files, whose rows the next
attempt skips: no state has to survive (docs/project/adr/0004-audit-exactly-once.md).
"""

import logging
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import datetime
from threading import Event
from typing import Final
from uuid import uuid4

import msgspec
from msgspec import Struct
from pyspark.sql import Column, DataFrame, Observation, Row, SparkSession, Window
from pyspark.sql import functions as F  # noqa: N812  Spark's own convention
from pyspark.sql.types import StringType, StructField, StructType

from sidecar.audit.audit_error import is_unreadable_file, reason
from sidecar.audit.ingest.inspection import Packing
from sidecar.audit.log.closed_tables import read_files
from sidecar.audit.log.manifest import IDS
from sidecar.audit.log.storage import PARQUET, Storage
from sidecar.audit.log.tables import EVENT_DATE, TABLES, Table, partition_value, with_event_date
from sidecar.audit.spark.spark_session import collected

_log = logging.getLogger("sidecar.audit")

HASH: Final = "xxhash64(id) AS hash"
"""Eight bytes instead of 36. Two ids may share a hash, so a match has to be verified."""
_COVERED: Final = "_covered.json"
"""The file that completes a part. Spark does not read names with an underscore."""
_SCHEMA: Final = f"hash long, {EVENT_DATE} date"
_IDS: Final = StructType([StructField("id", StringType())])
_MOST_PARTS: Final = 8
"""This number of parts of about one size become one, so that a row is written again once for each power of eight."""
_FEW: Final = 1_000
"""Hashes that are named in a condition. More of them are a table."""
_SMALL_PART: Final = 1 << 14
"""Rows. Smaller parts count as being of one size."""


class Hashes:
    """The hashes of rows that may be added."""

    def __init__(self, hashes: DataFrame) -> None:
        """`hashes`: one column, `hash`."""
        self._hashes = hashes
        few = [row.hash for row in collected(hashes.coalesce(1).limit(_FEW + 1))]
        self._few = few if len(few) <= _FEW else None
        self.count, self.different = len(few), len({*few})
        if self._few is None:
            [(self.count, self.different)] = collected(hashes.agg(F.count("*"), F.count_distinct("hash")))

    @property
    def repeated(self) -> DataFrame:
        """The hashes that occur more than once."""
        return self._hashes.groupBy("hash").count().where("count > 1").select("hash")

    def among(self, rows: DataFrame) -> DataFrame:
        """The rows whose `hash` is one of these."""
        if self._few is None:
            return rows.join(F.broadcast(self._hashes), "hash", "left_semi")
        # A condition costs no job of Spark, as a broadcast does.
        return rows.where(f"hash IN ({', '.join(map(str, self._few))})")

    def places_of(self, rows: DataFrame, *place: str | Column) -> set[Row]:
        """The different values of `place` in the rows whose `hash` is one of these."""
        places = self.among(rows).select(*place)
        return {*collected(places if self._few is not None else places.distinct())}


class _Part(Struct, frozen=True):
    """A part of the index: a folder with the hashes and dates of the ids in some files."""

    covered: Mapping[str, datetime]
    """The files, relative to the table, and when each was last modified."""
    rows: int
    files: Mapping[str, int]
    """Names and sizes of its own files."""


class VisibleIds:
    """The hashes and dates of all ids in one table: an index on disk, so that an ingest reads the ids of new files only.

    Correctness does not depend on it. Before each look-up it is compared with the visible files: what it does not cover is read, what was
    deleted or written again is no longer covered, and a part that is missing or damaged is thrown away. Its matches are verified in the
    visible files. It may be deleted at any time: the next ingest reads all ids once.
    """

    def __init__(self, session: SparkSession, audit: Storage, table: str) -> None:
        self._session = session
        self._audit = audit
        self._table = table
        self._folder = f"{IDS}/{table}"
        self._visible: Mapping[str, datetime] = {}
        self._parts: dict[str, _Part] = self._load()

    @property
    def size(self) -> int:
        """The size of the index, in bytes."""
        return sum(size for part in self._parts.values() for size in part.files.values())

    def files_with(self, hashes: Hashes) -> list[str]:
        """The visible files, relative to the table, that may contain ids with any of the `hashes`; at least all that do."""
        self._refresh()
        try:
            return self._look_up(hashes)
        except Exception as error:
            if not is_unreadable_file(error):
                raise
            _log.warning("the index %s is built again: %s", self._audit.full_url(self._folder), reason(error))
            for name in [*self._parts]:
                self._drop(name)
            self._refresh()
            return self._look_up(hashes)

    def among(self, hashes: Hashes, files: Sequence[str]) -> DataFrame:
        """The ids that these `files` contain and whose hash is among `hashes`: one column, `id`."""
        if not files:
            return self._session.createDataFrame([], "id string")
        visible = self._read(files).select("id", F.expr(HASH))
        return hashes.among(visible).select("id")

    def _look_up(self, hashes: Hashes) -> list[str]:
        if not self._parts:
            return []
        visible = self._read_parts(self._parts).select("hash", EVENT_DATE, F.col("_metadata.file_path").alias("path"))
        places = hashes.places_of(visible, "path", self._partition())
        files = {(row.path.split("/")[-2], row.partition) for row in places}
        return sorted(
            file
            for name, part in self._parts.items()
            for file in self._still_visible(part)
            if (name, _partition_of(file)) in files
        )

    def _refresh(self) -> None:
        """Update the index to the visible files."""
        self._visible = self._audit.modified(self._table, PARQUET)
        covered = set[str]()
        for name, part in [*self._parts.items()]:
            if still := self._still_visible(part):
                covered.update(still)
            else:
                self._drop(name)
        if new := sorted(self._visible.keys() - covered):
            self._add(self._read(new).selectExpr(HASH, EVENT_DATE), new)
        while merged := self._mergeable():
            self._merge(merged)

    def _still_visible(self, part: _Part) -> list[str]:
        return [file for file, modified in part.covered.items() if self._visible.get(file) == modified]

    def _read(self, files: Sequence[str]) -> DataFrame:
        """The ids of visible files, and their dates."""
        # Listing the folder is faster than naming each of many files.
        paths = None if len(files) == len(self._visible) else [f"{self._table}/{file}" for file in files]
        return read_files(self._session, self._audit, self._table, _IDS, paths)

    def _read_parts(self, names: Sequence[str] | Mapping[str, _Part]) -> DataFrame:
        reader = self._session.read.schema(_SCHEMA).option("parquet.page.verify-checksum.enabled", True)
        return reader.parquet(*(self._audit.to_read(f"{self._folder}/{name}") for name in names))

    def _partition(self) -> Column:
        return partition_value(self._table, F.col(EVENT_DATE)).alias("partition")

    def _mergeable(self) -> list[str]:
        sizes = defaultdict[int, list[str]](list)
        for name, part in self._parts.items():
            sizes[max(part.rows, _SMALL_PART).bit_length() // 3].append(name)
        return next((names for names in sizes.values() if len(names) >= _MOST_PARTS), [])

    def _merge(self, names: Sequence[str]) -> None:
        visible = {*map(_partition_of, self._visible)}  # others have expired
        rows = self._read_parts(names).where(self._partition().isin(visible))
        covered = [file for name in names for file in self._still_visible(self._parts[name])]
        self._add(rows.distinct(), covered)  # compacted dates are in it twice
        for name in names:
            self._drop(name)

    def _add(self, hashes: DataFrame, covered: Sequence[str]) -> None:
        """Add a part. It counts as soon as its last file is on disk."""
        staging = self._audit.staging
        name, staged, count = str(uuid4()), str(uuid4()), Observation()
        rows = hashes.observe(count, F.count("*").alias("rows"))
        # Hashes neither repeat nor compress.
        options = {"parquet.enable.dictionary#hash": "false", "compression": "none"}
        rows.coalesce(self._session.sparkContext.defaultParallelism).write.options(**options).parquet(
            staging.full_url(staged)
        )
        files = {file: staging.size(f"{staged}/{file}") for file in staging.files(staged, PARQUET)}
        part = _Part({file: self._visible[file] for file in covered}, count.get["rows"], files)
        staging.write(f"{staged}/{_COVERED}", msgspec.json.encode(part))
        for some in ([*files], [_COVERED]):
            self._audit.publish({f"{staged}/{file}": f"{self._folder}/{name}/{file}" for file in some})
        staging.delete(staged)
        self._parts[name] = part

    def _drop(self, name: str) -> None:
        self._parts.pop(name, None)
        self._audit.delete(f"{self._folder}/{name}")

    def _load(self) -> dict[str, _Part]:
        """The complete parts; deletes the others."""
        parts = dict[str, _Part]()
        for name in self._audit.names(self._folder):
            try:
                parts[name] = self._loaded(f"{self._folder}/{name}")
            except Exception as error:  # noqa: BLE001  whatever is wrong with a part, it can be built again
                _log.warning("a part of the index %s is built again: %s", self._folder, reason(error))
                self._audit.delete(f"{self._folder}/{name}")
        return parts

    def _loaded(self, folder: str) -> _Part:
        part = msgspec.json.decode(self._audit.read(f"{folder}/{_COVERED}"), type=_Part)
        if any(self._audit.size(f"{folder}/{file}") != size for file, size in part.files.items()):
            raise ValueError(f"a file of {folder} has another size")
        return part


def _partition_of(file: str) -> str:
    """The value in the name of the folder of a file, which is relative to the table."""
    return file.partition("/")[0].partition("=")[2]


class Writer:
    """Appends to the tables of one audit log, inside of `working`."""

    def __init__(self, session: SparkSession, audit: Storage) -> None:
        self._session = session
        self._audit = audit
        self._staging = audit
        """The audit log's storage, while it is locked."""
        self._visible: dict[str, VisibleIds] = {}

    @contextmanager
    def working(self, stop: Event) -> Iterator[None]:
        """Hold the lock of the audit log. Raises AuditError when another process holds it, StoppedError when `stop` is set first."""
        with self._audit.locked(stop=stop):
            self._staging = self._audit.staging
            self._staging.clear()  # left by a writer that died: its rows will be staged again
            yield

    @contextmanager
    def packing(self) -> Iterator[Packing | None]:
        """Where lines are packed in the block; None: Spark's executors are on other machines."""
        if self._staging.local is None:
            yield None
            return
        folder = str(uuid4())
        try:
            yield Packing(self._staging.local / folder)
        finally:
            self._staging.delete(folder)

    def index_sizes(self) -> Iterator[int]:
        """The sizes of the indexes of ids, one of which each `append` reads, in bytes."""
        return (self._ids(table).size for table in TABLES)

    def append(self, rows: DataFrame, table: Table, *, few: bool = False) -> int:
        """Add the rows whose ids the table does not contain yet; returns their number.

        Each partition of `rows` becomes one file for each date or month. `few`: one task is enough for all of them.
        """
        folder = str(uuid4())
        try:
            # In one partition the first row of each id is known without a shuffle.
            self._stage(_first_of_each_id(rows.coalesce(1), table) if few else rows, table, f"{folder}/0")
            count = self._remove_repeated_ids(folder, table)
            files = self._staging.files(folder, PARQUET)
            self._audit.publish({f"{folder}/{file}": f"{table.name}/{file.partition('/')[2]}" for file in files})
        finally:
            self._staging.delete(folder)
        return count

    def _stage(self, rows: DataFrame, table: Table, folder: str) -> None:
        rows = rows.withColumn(EVENT_DATE, F.to_date(table.time))
        if table.partition != EVENT_DATE:
            rows = rows.withColumn(table.partition, partition_value(table.name, F.col(EVENT_DATE)))
        ordered = rows.sortWithinPartitions(table.partition, *table.order)
        # Ids are unique: Parquet would begin a dictionary of them and discard it.
        writer = ordered.write.option("parquet.enable.dictionary#id", "false")
        writer.partitionBy(table.partition).parquet(self._staging.full_url(folder))

    def _remove_repeated_ids(self, folder: str, table: Table) -> int:
        """Rewrite the files below `0` that contain a repeated or visible id, without it, below `1`; returns how many rows remain."""
        staged = f"{folder}/0"
        rows = self._session.read.schema(f"id string, {EVENT_DATE} date").parquet(self._staging.to_read(staged))
        hashes = Hashes(rows.selectExpr(HASH))
        visible_ids = self._ids(table.name)
        matching = visible_ids.files_with(hashes) if hashes.count else []
        if hashes.different == hashes.count and not matching:
            return hashes.count
        visible = visible_ids.among(hashes, matching)
        repeated = hashes.repeated.unionAll(visible.selectExpr(HASH))
        in_file = rows.selectExpr(HASH, "substring_index(_metadata.file_path, '/', -2) AS file")
        files = [row.file for row in collected(in_file.join(repeated, "hash", "left_semi").select("file").distinct())]
        if not files:
            return hashes.count  # two different ids with one hash
        reader = self._session.read.schema(with_event_date(table.schema))
        reader = reader.option("basePath", self._staging.full_url(staged))
        invisible = reader.parquet(*(self._staging.to_read(f"{staged}/{file}") for file in files))
        invisible = invisible.join(visible, "id", "left_anti")
        # At least one file for each folder and not more than needed.
        first = _first_of_each_id(invisible, table).hint("rebalance", table.partition)
        self._stage(first, table, f"{folder}/1")
        for file in files:
            self._staging.delete(f"{staged}/{file}")
        remaining = self._session.read.schema(table.schema).option("recursiveFileLookup", True)
        return remaining.parquet(self._staging.to_read(folder)).count()

    def _ids(self, table: str) -> VisibleIds:
        if table not in self._visible:
            self._visible[table] = VisibleIds(self._session, self._audit, table)
        return self._visible[table]


def _first_of_each_id(rows: DataFrame, table: Table) -> DataFrame:
    same_id = Window.partitionBy("id").orderBy(*table.first)
    return rows.withColumn("nth", F.row_number().over(same_id)).where("nth = 1").drop("nth")
