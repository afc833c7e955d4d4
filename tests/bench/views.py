"""How long questions to the audit log take: `python -m tests.bench.views [rows, 10000000] [days, 365] [scratch] [small | huge] [folder=F]`.

The log is made by Spark: 100 clusters with three components and 497 jobs each, watched by two observers for so long, whose leaders are
revoked and granted in turn, evenly over the time; coverage by the hour, one outage of sight a day. Its dates are materialised but the
last two; then every row of each answer is computed and thrown away, three times: twice as `audit sql` would, as a JVM has to compile code
that it has never run, and once as `audit shell` does, which keeps the recent leadership. The floor is a plain scan by Spark of the columns
of the transitions of leaders, of the same dates. With `scratch`, two views are also computed from all records. With `small`, Java
compiles as in a small log; with `huge`, as where minutes are expected. With a folder, the log stays there, and
the next run makes only what is missing.
"""

import re
import sys
import tempfile
import time
from collections.abc import Callable
from datetime import UTC, date, datetime, timedelta
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession

from sidecar.audit.ask.registration import RecentLeadership, leadership_reads, register_views
from sidecar.audit.log.manifest import CLOSED
from sidecar.audit.log.tables import RECORDS
from sidecar.audit.spark.jvm import Run
from sidecar.audit.spark.spark_session import own_session, sizes_to_read, spark_session, tune
from sidecar.audit.upkeep.materialize import materialize
from sidecar.audit.views.catalog import ANSWERS
from tests.bench.stage import Table

CLUSTERS = 100
LEADERSHIPS = 500
DAY = 86400
BEGIN = 1_763_596_800
_ENVELOPE = """
  2 AS schema_version, uuid() AS id, concat('cluster-', c) AS cluster_id, map('env', 'bench') AS external_labels, 'zookeeper' AS store
"""


def write(spark: SparkSession, audit: Path, rows: int, days: int) -> None:
    """An audit log with so many transitions."""
    hours_each = days * 24
    turns = rows // (CLUSTERS * LEADERSHIPS)
    spark.range(CLUSTERS * LEADERSHIPS * turns).createOrReplaceTempView("numbers")
    spark.sql(
        f"SELECT id DIV {LEADERSHIPS * turns} AS c, id DIV {turns} % {LEADERSHIPS} AS l, id % {turns} AS n FROM numbers"  # noqa: S608  our own text
    ).selectExpr(
        "*",
        f"{BEGIN} + (n DIV 2 + (c * {LEADERSHIPS} + l) / {CLUSTERS * LEADERSHIPS}) * {2 * days * DAY / turns} AS revoked_at",
        "revoked_at + if(n % 2 = 0, 0, 1.5 + l / 100) AS s",
        "concat(lpad(hex(n DIV 2), 8, '0'), '-0000-4000-8000-', lpad(hex(c * 1000 + l), 12, '0')) AS before",
        "concat(lpad(hex(n DIV 2 + 1), 8, '0'), '-0000-4000-8000-', lpad(hex(c * 1000 + l), 12, '0')) AS after",
        "concat('pekko.tcp://flink@10.0.', c % 256, '.', n DIV 2 % 3, ':6123/user/rpc/dispatcher_0') AS address",
    ).createOrReplaceTempView("made")
    transitions = spark.sql(f"""
        SELECT {_ENVELOPE}, 'jm-0' AS observer, timestamp_micros(CAST(s * 1e6 AS BIGINT)) AS observed_at,
          if(l < 3, element_at(array('dispatcher', 'resource_manager', 'rest_server'), CAST(l AS INT) + 1), 'job') AS component,
          if(l < 3, NULL, lpad(hex(c * 1000 + l), 32, '0')) AS job_id,
          if(n % 2 = 0, 'REVOKED', 'GRANTED') AS kind, if(n % 2 = 0, NULL, after) AS after_session_id,
          if(n % 2 = 0, NULL, address) AS after_address, before AS last_known_session_id, address AS last_known_address,
          false AS same_leader, 0L AS unobserved, 0L AS unobserved_at_least, if(n % 2 = 0, NULL, 1.5D + l / 100) AS vacant_seconds,
          'CONNECTED' AS connection, false AS returned, false AS split, struct(n + (n % 2) AS mzxid) AS position
        FROM made""")  # noqa: S608  our own text
    hours = spark.range(CLUSTERS * 2 * hours_each).selectExpr(
        f"id DIV {2 * hours_each} AS c", f"id DIV {hours_each} % 2 AS o", f"id % {hours_each} AS h"
    )
    hours.createOrReplaceTempView("hours")
    coverage = spark.sql(f"""
        SELECT {_ENVELOPE}, concat('jm-', o) AS observer, timestamp_seconds({BEGIN} + (h + 1) * 3600) AS observed_at,
          timestamp_seconds({BEGIN} + h * 3600) AS began_at, timestamp_seconds({BEGIN} + (h + 1) * 3600) AS ended_at,
          if(h % 24 = 7, 'blind', 'seeing') AS state
        FROM hours""")  # noqa: S608  our own text
    notifications = spark.sql(f"""
        SELECT {_ENVELOPE}, 'jm-0' AS observer, timestamp_seconds({BEGIN} + h * 3600 + o * 3) AS observed_at,
          'FlinkLeaderChanged' AS alert, hex(c) AS fingerprint, 'ops' AS receiver, 'ops#0' AS destination, 'FIRST' AS reason,
          if(o = 0, 'queued', 'delivered') AS outcome, CAST(o AS BIGINT) AS attempt, false AS possible_duplicate
        FROM hours WHERE h % 24 = 3""")  # noqa: S608  our own text
    for table, made, record in (
        ("transitions", transitions, "transition"),
        ("coverage", coverage, "coverage"),
        ("notifications", notifications, "notification"),
    ):
        _as_written(made, record, max(16, rows // 1_000_000)).write.partitionBy("event_date").parquet(
            f"{audit}/{table}"
        )


def _as_written(made: DataFrame, record: str, tasks: int) -> DataFrame:
    names = [name for name in RECORDS[record].names if name in made.columns]
    dated = made.selectExpr(*names, "to_date(observed_at) AS event_date")
    return dated.repartition(tasks, "event_date").sortWithinPartitions("event_date", "cluster_id", "observed_at")


def timed(what: Callable[[], object]) -> float:
    """How many seconds it takes."""
    begin = time.monotonic()
    what()
    return time.monotonic() - begin


def ask(
    spark: SparkSession, audit: Path, query: str, recent: RecentLeadership | None = None, *, from_scratch: bool = False
) -> float:
    """Seconds until every row of the answer is computed, in a warm JVM: from opening the log on. Otherwise as `run_sql`."""

    def asked() -> None:
        session = own_session(spark)
        named = set(re.findall(r"\w+", query))
        once = RecentLeadership() if leadership_reads(named) > 1 else None
        register_views(session, str(audit), named, from_scratch=from_scratch, recent=recent or once)
        answer = session.sql(query)
        tune(session, sizes_to_read(answer))
        answer.write.format("noop").mode("overwrite").save()

    return timed(asked)


def add_late(spark: SparkSession, audit: Path, day: date) -> None:
    """A segment of one cluster that comes late: the leader of its dispatcher was revoked, and granted, at noon."""
    spark.read.parquet(f"{audit}/transitions").where(
        f"cluster_id = 'cluster-7' AND component = 'dispatcher' AND event_date <= '{day}'"
    ).orderBy("observed_at", ascending=False).limit(2).selectExpr(
        "* EXCEPT (id, observed_at, event_date)", "uuid() AS id", f"TIMESTAMP '{day} 12:00:00Z' AS observed_at"
    ).coalesce(1).write.mode("append").parquet(f"{audit}/transitions/event_date={day}")


SCAN = "SELECT cluster_id, component, job_id, observed_at, kind, after_session_id, after_address, last_known_session_id FROM transitions"


def close(spark: SparkSession, audit: Path, days: int, table: Table) -> None:
    """Materialise the dates of the log but two, one of them anew."""
    end = last_day(days)
    halfway = end - timedelta(days=days // 2)
    floor = ask(spark, audit, SCAN)
    built = timed(lambda: materialize(spark, str(audit), before=halfway))
    one_more(spark, audit, halfway + timedelta(days=1), table)
    built += timed(lambda: materialize(spark, str(audit), before=end - timedelta(days=3)))
    table.row(f"all {days - 4} dates, once", f"{built:.1f}", "", "", f"{floor:.1f}", f"{built / floor:.1f}")
    one_more(spark, audit, end - timedelta(days=2), table)


def one_more(spark: SparkSession, audit: Path, before: date, table: Table) -> None:
    """Materialise the dates before this one, the last of which is new."""
    seconds = timed(lambda: materialize(spark, str(audit), before=before))
    table.row(f"one more date, behind {(before - last_day(0)).days - 1}", f"{seconds:.1f}", "", "", "", "")


def redo(spark: SparkSession, audit: Path, days: int, table: Table) -> None:
    """Materialise once more, with a segment that is a quarter of the log late."""
    add_late(spark, audit, last_day(days) - timedelta(days=days // 4))
    begin = time.monotonic()
    redone = materialize(spark, str(audit), before=last_day(days) - timedelta(days=2))
    seconds = time.monotonic() - begin
    table.row(f"a late segment: {redone.redone} dates of {redone.clusters} cluster", f"{seconds:.1f}", "", "", "", "")


def last_day(days: int) -> date:
    """The day on which a log of so many days ends."""
    return datetime.fromtimestamp(BEGIN + days * DAY, UTC).date()


def question(spark: SparkSession, audit: Path, days: int, table: Table) -> None:
    """Ask each view."""
    month, quarter = (last_day(days) - timedelta(days=back) for back in (31, 92))
    of_month, of_quarter = (f"event_date >= '{since}'" for since in (month, quarter))
    questions = {
        f"leader_changes WHERE {of_month}": of_month,
        f"leader_changes WHERE changed_at >= '{month}'": of_month,
        "leader_changes": "true",
        f"availability WHERE day >= '{month}'": of_month,
        f"weekly_report WHERE week >= '{quarter}'": of_quarter,
        f"leadership WHERE {of_month} OR event_date IS NULL": of_month,
        **{name: "true" for name in ANSWERS if name not in {"leader_changes", "leadership"}},
    }
    shell = RecentLeadership()
    seconds = ask(spark, audit, "SELECT count(*) FROM leadership WHERE event_date IS NULL", shell)
    table.row("the first question of a shell", "", "", f"{seconds:.1f}", "", "")
    for view, condition in questions.items():
        floor = ask(spark, audit, f"{SCAN} WHERE {condition}")
        query = f"SELECT * FROM {view}"  # noqa: S608  our own text
        first, again, in_shell = (ask(spark, audit, query, recent) for recent in (None, None, shell))
        table.row(view, f"{first:.1f}", f"{again:.1f}", f"{in_shell:.1f}", f"{floor:.1f}", f"{again / floor:.1f}")


def main(rows: int = 10_000_000, days: int = 365, *, from_scratch: bool, run: Run, kept: Path | None) -> None:
    table = Table("what", "s", "again, s", "in a shell, s", "floor, s", "again to floor")
    with tempfile.TemporaryDirectory() as folder, spark_session(conf={"spark.driver.memory": "3g"}, run=run) as spark:
        audit = kept or Path(folder)
        if not (audit / "transitions").exists():
            write(spark, audit, rows, days)
        if not (audit / CLOSED).exists():
            close(spark, audit, days, table)
            redo(spark, audit, days, table)
        question(spark, audit, days, table)
        for name in ("leader_changes", "availability") if from_scratch else ():
            seconds = ask(spark, audit, f"SELECT * FROM {name}", from_scratch=True)  # noqa: S608  our own text
            table.row(f"{name}, from scratch", f"{seconds:.1f}", "", "", "", "")
    table.end()


if __name__ == "__main__":
    folders = [Path(given.removeprefix("folder=")) for given in sys.argv[1:] if given.startswith("folder=")]
    main(
        *map(int, filter(str.isdecimal, sys.argv[1:])),
        from_scratch="scratch" in sys.argv,
        run=next((run for run in Run if run.value in sys.argv), Run.LARGE),
        kept=folders[0] if folders else None,
    )
