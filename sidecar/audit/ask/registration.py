"""The views of the audit log: one for each table, and one for each answer (`views`).

The leadership since the last closed date is kept, so that several questions compute it once: see
docs/project/adr/0029-materialised-leadership.md.
"""

import re
from collections.abc import Callable, Collection, Iterable
from collections.abc import Set as AbstractSet
from datetime import datetime, timedelta
from functools import partial
from typing import Any, Final
from uuid import uuid4

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812  Spark's own convention
from pyspark.sql.types import StructType

from sidecar.audit.audit_error import failing_to, retried
from sidecar.audit.log.audit_log import audit_folder, periods_of
from sidecar.audit.log.closed_tables import (
    CARRY,
    CLOSED_TABLES,
    read_carry,
    read_closed,
    read_files,
    read_manifest,
    unclosed,
)
from sidecar.audit.log.manifest import SOURCES, Manifest
from sidecar.audit.log.storage import ONLY_PARQUET, Storage
from sidecar.audit.log.tables import BASE_VIEWS, EVENT_DATE, with_event_date
from sidecar.audit.spark.spark_session import sizes_to_read, tune
from sidecar.audit.views.catalog import ANSWERS, comments, create, define, definition

_MAX_BYTES: Final = 64_000_000
"""The compressed size of the files that are folded. Their rows take three times as much of Spark's memory."""


class RecentLeadership:
    """The rows of `_stretches`, of one audit log, and what they were computed from. Not thread-safe."""

    def __init__(self) -> None:
        self._rows: DataFrame | None = None
        self._made_of: tuple[datetime, frozenset[str]] | None = None

    def rows(
        self, session: SparkSession, begin: datetime, sources: Collection[str], fold: Callable[[], DataFrame]
    ) -> DataFrame:
        """What `fold` computes from `begin` and the views `sources`: computed now, unless it is kept of these very files.

        If they are large, or Spark runs on several machines, of which one may fail, `fold` itself: it computes whenever it is read. What
        the session plans from now on is tuned to these files.
        """
        tables = [session.table(name) for name in sources]
        sizes = [size for table in tables for size in sizes_to_read(table)]
        if sum(sizes) > _MAX_BYTES or not str(session.sparkContext.master).startswith("local"):
            return fold()
        made_of = begin, frozenset(file for table in tables for file in table.inputFiles())  # files never change
        if self._rows is None or made_of != self._made_of:
            tune(session, sizes)
            # Not persist(): Spark forgets persisted rows when any session drops a view with the name of one that they were made of.
            self._rows, self._made_of = fold().localCheckpoint(), made_of
        return _in_session(session, self._rows)

    def forget(self) -> None:
        """Compute anew for the next question: after a failure, parts of what is kept may be lost."""
        self._rows = None


def _in_session(session: SparkSession, rows: DataFrame) -> DataFrame:
    """Rows of another session. They need no view once they are found."""
    name = f"recent_{uuid4().hex}"
    rows.createGlobalTempView(name)
    try:
        return session.table(f"global_temp.{name}")
    finally:
        session.catalog.dropGlobalTempView(name)


_TERMS: Final = ("_periods", "_sight", "known_until", "_limits", "_stretches", "_leader_changes", "_days")
"""What the answers are made of, in order: about the dates that are not closed (`closed_tables`), or all if none is."""
_OUTCOMES: Final = ("_best_deaths", "_best_recoveries", "_drilled")
"""What became of failovers, by those of several observers that know most, and which were drills: of all dates."""
_FIRST: Final = ("leadership", "sight", "_cluster_parts")
"""The leadership of components and when they were observed, and the leadership of clusters, which is made of both."""
_QUERIES: Final = (*_TERMS, *_OUTCOMES, *_FIRST, *(name for name in ANSWERS if name not in (*_TERMS, *_FIRST)))
"""All that a query defines, in order."""
_CLOSED: Final = {
    "_closed_leadership": "leadership",
    "_closed_leader_changes": "leader_changes",
    "_closed_days": "availability_days",
}
_OPEN: Final = "open the audit log"
_CREATE: Final = "CREATE OR REPLACE TEMPORARY VIEW"


def register_views(
    spark: SparkSession,
    audit: str,
    views: Collection[str] | None = None,
    *,
    from_scratch: bool = False,
    commented: bool = False,
    recent: RecentLeadership | None = None,
) -> None:
    """Register views of the audit log at `audit` in the session: these `views`, if `commented` with comments, and their dependencies; or
    all, with comments.

    Closed dates are read from the materialised tables or, `from_scratch`, computed from all records. The leadership since then is computed
    whenever it is read or, with `recent`, kept there. Spark takes most of a second for all of them; a query needs about three. Raises
    AuditError when there is no audit log.
    """
    with failing_to(f"{_OPEN} {audit}"):
        folder = audit_folder(spark, audit, _OPEN)
        everything = {*BASE_VIEWS, *_CLOSED, *_QUERIES}
        wanted = everything if views is None else _with_dependencies(views)
        with_comments = {*BASE_VIEWS, *ANSWERS} if views is None else {*views} if commented else set[str]()

        def register() -> None:
            with folder.reading() as now:
                manifest = read_manifest(now)
                _register(spark, now, wanted, unclosed(manifest) if from_scratch else manifest, with_comments, recent)

        retried(register, pause=0)  # files that a manifest names are deleted when a newer one has replaced it


def _register(
    spark: SparkSession,
    folder: Storage,
    wanted: AbstractSet[str],
    manifest: Manifest,
    commented: AbstractSet[str],
    recent: RecentLeadership | None,
) -> None:
    def create_wanted(names: Iterable[str], rows: Callable[[str], DataFrame]) -> None:
        for name in filter(wanted.__contains__, names):
            create(rows(name), name, commented=name in commented)

    def query(name: str) -> DataFrame:
        ask = partial(spark.sql, definition(name, manifest.begin))
        if name == "_stretches" and recent is not None:
            return recent.rows(spark, manifest.begin, (*SOURCES.values(), "_carry"), ask)
        return ask()

    create_wanted(BASE_VIEWS, lambda name: read_files(spark, folder, name, BASE_VIEWS[name]))
    if "sight" in wanted:  # of all dates, so before the views of those that are not closed get their names
        spark.table("coverage").createOrReplaceTempView("_coverage")
        define(spark, "_periods")
        create_wanted(["sight"], query)
    if not wanted.isdisjoint(_TERMS):
        for table, name in SOURCES.items():
            _open_dates(spark, folder, manifest, table).createOrReplaceTempView(name)
        read_carry(spark, folder, manifest, manifest.last).createOrReplaceTempView("_carry")
    create_wanted(_CLOSED, lambda name: read_closed(spark, folder, manifest, _CLOSED[name]))
    create_wanted((name for name in _QUERIES if name != "sight"), query)
    for name in (*SOURCES.values(), "_carry", *_CLOSED, *_QUERIES):
        if name.startswith("_"):
            _drop(spark, name)


def _drop(spark: SparkSession, name: str) -> None:
    """Forget a view; those that query it stay valid. `spark.catalog` also looks for its plan in Spark's cache, for 40 ms."""
    session: Any = spark._jsparkSession  # noqa: SLF001  there is no public way
    session.sessionState().catalog().dropTempView(name)


def _open_dates(spark: SparkSession, audit: Storage, manifest: Manifest, table: str) -> DataFrame:
    """The rows of a table on the dates that are not closed, and coverage of the date before: its records may reach beyond it."""
    if manifest.last is None:
        return read_files(spark, audit, table, BASE_VIEWS[table])
    first = manifest.last + timedelta(days=table != "coverage")
    folders = [folder for folder, period in periods_of(audit, table).items() if period.last >= first]
    return read_files(spark, audit, table, BASE_VIEWS[table], folders).where(F.col(EVENT_DATE) >= F.lit(first))


def leadership_reads(views: Collection[str]) -> int:
    """How many times these views read the leadership since the last closed date."""
    return sum(_reads(name).count("_stretches") for name in _with_dependencies(views) & {*_TERMS, *ANSWERS})


def _with_dependencies(views: Collection[str]) -> set[str]:
    """These views, and those that they query."""
    wanted = {*views}
    for name in reversed(_QUERIES):
        if name == "sight" and name in wanted:
            wanted.add("coverage")  # of all dates
        elif name in wanted:
            wanted.update(_reads(name))
    return wanted


def _reads(name: str) -> list[str]:
    """The relations in the definition of a view. Columns may have the name of a view: `unobserved`."""
    return re.findall(r"\b(?:FROM|JOIN|TABLE)\s+(\w+)", _without_comments(definition(name)))


def views_script(spark: SparkSession, audit: str) -> str:
    """The statements that create every view of the audit log at `audit` in spark-sql or beeline (`-i FILE`).

    The answers are computed from all records. A table that does not exist yet becomes an empty view; create a new script after its first
    row. Raises AuditError when there is no audit log.
    """
    with failing_to(f"{_OPEN} {audit}"):
        folder = audit_folder(spark, audit, _OPEN)
        statements = [_table_statement(folder, name) for name in BASE_VIEWS]
    statements += [f"{_CREATE} {name} AS TABLE {table}" for table, name in SOURCES.items()]
    statements += [_empty_statement("_carry", CARRY)]
    statements += [_empty_statement(name, with_event_date(CLOSED_TABLES[table])) for name, table in _CLOSED.items()]
    statements += [f"{_CREATE} {_with_columns(name)} AS\n{_without_comments(definition(name))}" for name in _QUERIES]
    return "".join(f"{statement};\n" for statement in statements)


def _with_columns(name: str) -> str:
    """The name of a view, and its comments if a query may name it."""
    if name not in (*BASE_VIEWS, *ANSWERS):
        return name
    about = comments(name)
    columns = ", ".join(f"`{column}` COMMENT {_quoted(text)}" for column, text in about.columns.items())
    return f"{name} ({columns}) COMMENT {_quoted(about.about)}"


def _table_statement(audit: Storage, name: str) -> str:
    schema = with_event_date(BASE_VIEWS[name])
    if not audit.is_folder(name):
        return _empty_statement(name, schema)
    columns = ", ".join(" ".join(column) for column in _columns(schema))
    names = ", ".join(column for column, _ in _columns(schema))
    options = ", ".join(
        f"{key} {_quoted(value)}" for key, value in {"path": audit.to_read(name), **ONLY_PARQUET}.items()
    )
    definition = f"({columns}) USING parquet OPTIONS ({options})"
    rows = f"SELECT {names} FROM {name}_files"  # noqa: S608  our own names
    # INSERT INTO could write to a view of the files, but not to a query over them.
    return f"{_CREATE} {name}_files {definition};\n{_CREATE} {_with_columns(name)} AS {rows}"


def _empty_statement(name: str, schema: StructType) -> str:
    nulls = ", ".join(f"CAST(NULL AS {kind}) AS {column}" for column, kind in _columns(schema))
    return f"{_CREATE} {_with_columns(name)} AS SELECT {nulls} WHERE false"


def _columns(schema: StructType) -> list[tuple[str, str]]:
    return [(f"`{field.name}`", field.dataType.simpleString()) for field in schema]


def _quoted(text: str) -> str:
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"


def _without_comments(query: str) -> str:
    """Comments name other views, and command lines search them for the end of a statement."""
    return re.sub(r"^\s*--.*\n|\s+--.*$", "", query, flags=re.MULTILINE).strip()
