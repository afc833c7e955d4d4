"""The materialised answers: tables about the closed dates, and the manifest that names their files.

A date is closed when the next one is over too. Readers read exactly the files that the newest manifest names; a manifest is a new file
each time, and becomes visible by a rename (docs/project/adr/0029-materialised-leadership.md).
"""

from collections.abc import Mapping, Sequence
from datetime import date
from typing import Final
from uuid import uuid4

import msgspec
from msgspec.structs import replace
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812  Spark's own convention
from pyspark.sql import types as T  # noqa: N812  the same

from sidecar.audit.audit_error import AuditError, retried
from sidecar.audit.log.manifest import CLOSED, FORMAT, MANIFEST, Manifest
from sidecar.audit.log.storage import ONLY_PARQUET, Storage, listing_here
from sidecar.audit.log.tables import EVENT_DATE, partition_column, with_event_date

STAGED: Final = "closing-"
"""The beginning of the names of what is staged."""

_TYPES: Final[dict[str, T.DataType]] = {
    "string": T.StringType(),
    "boolean": T.BooleanType(),
    "bigint": T.LongType(),
    "double": T.DoubleType(),
    "timestamp": T.TimestampType(),
    "leader": T.StructType([T.StructField("session_id", T.StringType()), T.StructField("address", T.StringType())]),
}


def _schema(columns: str) -> T.StructType:
    """Spark's own parser of such a text needs a JVM."""
    pairs = (column.split() for column in columns.split(","))
    return T.StructType([T.StructField(name, _TYPES[kind]) for name, kind in pairs])


_TIMES: Final = "vacant_seconds double, downtime_seconds_at_least double, downtime_seconds_at_most double"
_LEADERSHIP: Final = "cluster_id string, component string, job_id string"
CLOSED_TABLES: Final[dict[str, T.StructType]] = {
    "leadership": _schema(
        f"{_LEADERSHIP}, state string, began_at timestamp, ended_at timestamp, how_it_began string, how_it_ended string, address string,"
        f" session_id string, before_address string, before_session_id string, {_TIMES}, returned boolean, split boolean,"
        " episode_id string"
    ),
    "leader_changes": _schema(
        f"{_LEADERSHIP}, changed_at timestamp, before_address string, after_address string, before_session_id string,"
        f" after_session_id string, {_TIMES}, kind string, episode_id string"
    ),
    "availability_days": _schema(
        "cluster_id string, component string, led bigint, vacant bigint, lasted bigint, known bigint"
    ),
}
"""The schema of each materialised table, without `event_date`: the date of `ended_at`, of `changed_at`, and the day."""
ORDER: Final[Mapping[str, tuple[str, ...]]] = {
    "leadership": ("cluster_id", "component", "job_id", "began_at"),
    "leader_changes": ("cluster_id", "changed_at", "component", "job_id"),
    "availability_days": ("cluster_id", "component"),
}
"""The columns by which the rows of one file are sorted."""
CARRY: Final = _schema(
    f"role string, {_LEADERSHIP}, observer string, at timestamp, recorded_at timestamp, id string, kind string, session_id string,"
    f" address string, last_known_session_id string, last_known_address string, {_TIMES}, returned boolean, split boolean,"
    " episode_id string, state string, writing string, best_at timestamp, confirmed_at timestamp, ended_at timestamp,"
    " before leader, new_term boolean"
)
"""What of the time until the end of a date matters afterwards (`_carry_on` in `views/fold.sql`)."""


def read_manifest(audit: Storage) -> Manifest:
    """The newest manifest; an empty one if there is none. Raises AuditError if a newer version wrote it."""
    content = retried(lambda: _newest(audit), pause=0)  # a newer one may have replaced it
    if content is None:
        return Manifest()
    manifest = msgspec.json.decode(content, type=Manifest)
    if manifest.format != FORMAT:
        raise AuditError(f"cannot read {audit.full_url(CLOSED)}: a newer version wrote it")
    return manifest


def _newest(audit: Storage) -> bytes | None:
    names = [name for name in audit.names(CLOSED) if MANIFEST.fullmatch(name)]
    return audit.read(f"{CLOSED}/{names[-1]}") if names else None


def unclosed(manifest: Manifest) -> Manifest:
    """The manifest of a log with nothing materialised but what has expired."""
    return replace(manifest, last=manifest.base, files={})


def commit(audit: Storage, manifest: Manifest) -> Manifest:
    """Make a manifest visible, then delete every file that it does not name. The caller holds the lock."""
    numbered = replace(manifest, number=manifest.number + 1)
    # Listed before: whoever stalls deletes nothing that its successor adds.
    superseded = unnamed(audit, numbered)
    staged = f"{STAGED}{uuid4()}"
    audit.staging.make_folder()
    audit.staging.write(staged, msgspec.json.encode(numbered))
    audit.publish({staged: f"{CLOSED}/manifest-{numbered.number:012}.json"})
    for file in superseded:
        audit.delete(file)
    return numbered


def delete_unnamed(audit: Storage, manifest: Manifest) -> None:
    """Delete the files of older manifests, and what a writer that died has published without naming it."""
    for file in unnamed(audit, manifest):
        audit.delete(file)


def unnamed(audit: Storage, manifest: Manifest) -> list[str]:
    """The files of the materialised tables that the manifest does not name, and older manifests."""
    paths = manifest.paths() | {f"{CLOSED}/manifest-{manifest.number:012}.json"}
    folders = (*CLOSED_TABLES, CLOSED)
    return [path for folder in folders for file in audit.files(folder, "") if (path := f"{folder}/{file}") not in paths]


def read_closed(session: SparkSession, audit: Storage, manifest: Manifest, table: str) -> DataFrame:
    """The rows of a materialised table. Those of an expired date are not shown, though the file of their month is still there."""
    files = [file for month in sorted(manifest.files) for file in manifest.files[month].get(table, ())]
    rows = read_files(session, audit, table, CLOSED_TABLES[table], files)
    return rows.where(F.col(EVENT_DATE) > F.lit(manifest.base)) if manifest.base else rows


def read_carry(session: SparkSession, audit: Storage, manifest: Manifest, day: date | None) -> DataFrame:
    """What matters after the end of `day`; nothing if there is no carry of it."""
    file = manifest.carries.get(day) if day else None
    if file is None:
        return no_rows(session, CARRY)
    return session.read.schema(CARRY).parquet(audit.to_read(file))


def no_rows(session: SparkSession, schema: T.StructType) -> DataFrame:
    """A table without rows. `false` lets Spark's optimizer remove it from every plan: otherwise its unknown size counts as large."""
    return session.createDataFrame([], schema).where("false")


def read_files(
    session: SparkSession, audit: Storage, table: str, schema: T.StructType, paths: Sequence[str] | None = None
) -> DataFrame:
    """The rows of a table, with `event_date`: of its files or folders `paths`, relative to the audit log; None: of all.

    Columns that an older file lacks are null, columns of a newer schema are not shown.
    """
    schema = with_event_date(schema)
    if not (audit.is_folder(table) if paths is None else paths):
        return no_rows(session, schema)
    reader = session.read.schema(schema).options(basePath=audit.full_url(table), **ONLY_PARQUET)
    with listing_here(session, audit):
        files = audit.selected(table, paths)
        rows = reader.parquet(*map(audit.to_read, files.paths))
        if audit.is_replacing(table, rows):
            files = audit.selected(table, paths)
            rows = reader.parquet(*map(audit.to_read, files.paths))
    if files.partitions is not None:
        rows = rows.where(F.col(partition_column(table)).cast("string").isin([*files.partitions]))
    if files.hidden:
        rows = rows.where(~F.substring_index("_metadata.file_path", "/", -2).isin([*files.hidden]))
    # INSERT INTO could write to a view of the files, but not to a query over them.
    return rows.select(*schema.names)
