"""The ids that a table contains: a narrow copy, so that a batch does not have to read all of them.

The copy lives as long as one ingest, and correctness does not depend on it: it is updated to the visible files before each batch, its
matches are verified in those files, and it is rebuilt if a part of it was deleted.
"""

from collections.abc import Mapping, Sequence
from datetime import date, datetime
from typing import Final
from uuid import uuid4

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812  Spark's own convention

from sidecar.audit.schema import EVENT_DATE
from sidecar.audit.storage import PARQUET, STAGING, Storage

HASH: Final = "xxhash64(id) AS hash"
"""Eight bytes instead of 36. Two ids may share a hash, so a match has to be verified."""
_MOST_PARTS: Final = 16


class VisibleIds:
    """The hashes and dates of all ids in one table."""

    def __init__(self, session: SparkSession, audit: Storage, table: str) -> None:
        self._session = session
        self._audit = audit
        self._table = table
        self._files: Mapping[str, datetime] = {}
        self.parts: list[str] = []
        """The folders of the copy, relative to the audit log."""

    def dates_of(self, hashes: DataFrame) -> list[date]:
        """The dates on which the table now contains ids with any of the `hashes`."""
        self._refresh()
        if not self.parts:
            return []
        known = self._session.read.schema(f"hash long, {EVENT_DATE} date").parquet(
            *map(self._audit.full_url, self.parts)
        )
        found = known.join(F.broadcast(hashes), "hash", "left_semi").select(EVENT_DATE).distinct()
        return [row[EVENT_DATE] for row in found.collect()]

    def among(self, hashes: DataFrame, dates: Sequence[date]) -> DataFrame:
        """The ids that the table contains on `dates` and whose hash is among `hashes`: one column, `id`."""
        if not dates:
            return self._session.createDataFrame([], "id string")
        visible = self._session.read.schema(f"id string, {EVENT_DATE} date").parquet(self._audit.full_url(self._table))
        hashed = visible.where(F.col(EVENT_DATE).isin(list(dates))).select("id", F.expr(HASH))
        return hashed.join(F.broadcast(hashes), "hash", "left_semi").select("id")

    def forget(self) -> None:
        """Delete the copy. The next call of `dates_of` builds a new one."""
        for part in self.parts:
            self._audit.delete(part)
        self.parts, self._files = [], {}

    def _refresh(self) -> None:
        files = self._audit.modified(self._table, PARQUET) if self._audit.is_folder(self._table) else {}
        complete = all(self._audit.is_folder(part) for part in self.parts)
        if not complete or not self._files.items() <= files.items():  # another process has written meanwhile
            self.forget()
        if new := sorted(files.keys() - self._files.keys()):
            folder = self._audit.full_url(self._table)
            reader = self._session.read.schema(f"id string, {EVENT_DATE} date").option("basePath", folder)
            rows = reader.parquet(*(f"{folder}/{file}" for file in new) if self._files else [folder])
            self._write(rows.selectExpr(HASH, EVENT_DATE))
            if len(self.parts) > _MOST_PARTS:
                self._merge()
        self._files = files

    def _write(self, hashes: DataFrame) -> None:
        part = f"{STAGING}/seen-{uuid4()}"
        # Hashes neither repeat nor compress.
        writer = hashes.write.options(**{"parquet.enable.dictionary#hash": "false", "compression": "none"})
        writer.parquet(self._audit.full_url(part))
        self.parts.append(part)

    def _merge(self) -> None:
        old, self.parts = self.parts, []
        self._write(self._session.read.parquet(*map(self._audit.full_url, old)).repartition(4))
        for part in old:
            self._audit.delete(part)
