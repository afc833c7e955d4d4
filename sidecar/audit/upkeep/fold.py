"""Computes the materialised rows of a few dates from what happened on them, and from what was carried over from the time before.

Rows are staged as Parquet where no reader looks. Nothing here is visible to readers.
"""

from collections.abc import Collection, Mapping, Sequence
from datetime import date, datetime, timedelta
from typing import Final
from uuid import uuid4

from msgspec import Struct
from msgspec.structs import replace
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812  Spark's own convention

from sidecar.audit.log.closed_tables import CARRY, CLOSED_TABLES, ORDER, STAGED, read_carry, read_closed, read_files
from sidecar.audit.log.manifest import Manifest, days, start_of
from sidecar.audit.log.schema import BASE_VIEWS, EVENT_DATE
from sidecar.audit.log.storage import PARQUET, Storage
from sidecar.audit.views.definition import define

LOOK_AHEAD: Final = timedelta(hours=2)
"""How much of the next date decides about a date: a stretch is fully known after an hour, and so is the next one (R2 to R4)."""
_DAY: Final = timedelta(days=1)


class Folded(Struct, frozen=True):
    """The staged rows of some dates."""

    first: date
    last: date
    files: Mapping[date, Mapping[str, str]]
    """The staged file of each table, by date."""
    carry: str
    """The staged folder with what matters after the end of `last`."""


class Fold:
    """Folds dates of one audit log, of all clusters or of some. The caller holds the lock."""

    def __init__(
        self,
        session: SparkSession,
        audit: Storage,
        listed: Mapping[str, Mapping[date, Sequence[str]]],
        *,
        clusters: Collection[str] | None = None,
        manifest: Manifest | None = None,
    ) -> None:
        """`listed`: the files of each source table, by date. Of some `clusters`, the rows of the others are those of `manifest`."""
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
        self._stage_carry(f"{folder}/carry", begin, end)
        since = max(first, since or first)
        files = dict[date, dict[str, str]]()
        if since <= last:
            ended = stretches.where((F.col("ended_at") >= F.lit(begin)) & (F.col("ended_at") < F.lit(end)))
            self._stage(ended.withColumn(EVENT_DATE, F.to_date("ended_at")), "leadership", folder, since, last)
            for table, view in (("leader_changes", "_leader_changes"), ("availability_days", "_days")):
                define(self._session, view, begin, end)
                self._stage(self._session.table(view), table, folder, since, last)
            for path in self._staging.files(folder, PARQUET):
                table, day, _ = path.split("/") if path.count("/") == 2 else ("", "", "")
                if table in CLOSED_TABLES:
                    event_date = date.fromisoformat(day.removeprefix(f"{EVENT_DATE}="))
                    files.setdefault(event_date, {})[table] = f"{folder}/{path}"
        return Folded(first=since, last=last, files=files, carry=f"{folder}/carry")

    def carry_of(self, folded: Folded) -> DataFrame:
        """What matters after the end of the staged dates."""
        return self._session.read.schema(CARRY).parquet(self._staging.to_read(folded.carry))

    def merged_carry(self, folded: Folded) -> str:
        """The staged file with what matters after the end of the staged dates, of all clusters."""
        if self._clusters is not None and self._manifest is not None:
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
        define(self._session, "_periods", begin, end)
        define(self._session, "_sight", begin, end)
        define(self._session, "_stretches", begin, end)

    def _stage_stretches(self, folder: str, end: datetime) -> DataFrame:
        """What follows reads the result instead of computing it again."""
        path = f"{folder}/stretches"
        self._session.table("_stretches").write.parquet(self._staging.full_url(path))
        stretches = self._session.read.parquet(self._staging.to_read(path))
        stretches.createOrReplaceTempView("_stretches")
        limits = stretches.select("cluster_id").distinct().withColumn("until", F.lit(end))
        limits.createOrReplaceTempView("_limits")
        return stretches

    def _stage_carry(self, folder: str, begin: datetime, end: datetime) -> None:
        define(self._session, "_carry_on", begin, end)
        self._write_carry(self._session.table("_carry_on"), folder)

    def _write_carry(self, rows: DataFrame, folder: str) -> None:
        typed = rows.select([F.col(field.name).cast(field.dataType) for field in CARRY])
        ordered = typed.coalesce(1).sortWithinPartitions("cluster_id", "role", "component", "job_id", "at")
        ordered.write.parquet(self._staging.full_url(folder))

    def _source(self, table: str, first: date, last: date) -> DataFrame:
        paths = [path for day in days(first, last) for path in self._listed[table].get(day, ())]
        return self._only(read_files(self._session, self._audit, table, BASE_VIEWS[table], paths))

    def _only(self, rows: DataFrame) -> DataFrame:
        return rows if self._clusters is None else rows.where(F.col("cluster_id").isin([*self._clusters]))

    def _stage(self, rows: DataFrame, table: str, folder: str, since: date, last: date) -> None:
        """One file for each date, sorted, with the rows of the other clusters."""
        rows = rows.select(*CLOSED_TABLES[table].names, EVENT_DATE).where(F.col(EVENT_DATE) >= F.lit(since))
        if self._clusters is not None and self._manifest is not None:
            stored = read_closed(self._session, self._audit, self._manifest, table, since, last)
            rows = rows.unionByName(stored.where(~F.col("cluster_id").isin([*self._clusters])))
        dated = rows.repartition(EVENT_DATE).sortWithinPartitions(EVENT_DATE, *ORDER[table])
        dated.write.partitionBy(EVENT_DATE).parquet(self._staging.full_url(f"{folder}/{table}"))
