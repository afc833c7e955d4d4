"""Time, Spark jobs and size of a report: `python -m tests.bench.report [rows of transitions, 1000000]`.

The log is that of `tests.bench.views` (a hundred clusters, a year), with 40,000 failovers of which 10,000 are in the report's 90 days. Once
cold, right after Spark's start, and once warm.
"""

import sys
import tempfile
import time
from pathlib import Path

from pyspark.sql import SparkSession

from sidecar.audit.report.report import write_report
from sidecar.audit.spark.compilers import Run
from sidecar.audit.spark.session import spark_session
from tests.bench import views

_FAILOVERS = 40_000
_DAYS = 365
_TIME = _DAYS * views.DAY
_CAUSES = (
    "jobmanager_lost",
    "graceful_handover",
    "planned_upgrade",
    "node_drain",
    "store_outage",
    "restarted_in_place",
)


def write_episodes(spark: SparkSession, audit: Path) -> None:
    """So many failovers, evenly over the year and the clusters."""
    spark.range(_FAILOVERS).createOrReplaceTempView("failed")
    causes = ", ".join(f"'{cause}'" for cause in _CAUSES)
    episodes = spark.sql(f"""
        SELECT 8 AS schema_version, uuid() AS id, concat('cluster-', n % {views.CLUSTERS}) AS cluster_id, 'zookeeper' AS store,
          'jm-0' AS observer, timestamp_seconds(s + 10) AS observed_at, timestamp_seconds(s) AS opened_at,
          timestamp_seconds(s + 5) AS closed_at, element_at(array({causes}), CAST(n % 6 AS INT) + 1) AS cause, 'high' AS confidence,
          array('dispatcher', 'job', 'resource_manager', 'rest_server') AS components, 497L AS jobs_affected, 0L AS jobs_missing,
          497L AS jobs_total, v AS vacant_seconds, v AS downtime_seconds_at_least, v + 7 AS downtime_seconds_at_most,
          'pekko.tcp://flink@10.0.0.1:6123/user/rpc/dispatcher_0' AS before_address,
          'pekko.tcp://flink@10.0.0.2:6123/user/rpc/dispatcher_0' AS after_address, n % 3 > 0 AND n % 6 < 4 AS planned, 1L AS failovers,
          to_date(timestamp_seconds(s + 10)) AS event_date
        FROM (SELECT id AS n, CAST({views.BEGIN} + id * {_TIME} / {_FAILOVERS} AS BIGINT) AS s, 0.1D + id % 97 / 3 AS v FROM failed)
        """)  # noqa: S608  our own text
    episodes = episodes.withColumn("episode_id", episodes["id"])
    episodes.repartition(16, "event_date").write.partitionBy("event_date").parquet(f"{audit}/episodes")


def main() -> None:
    rows = int(sys.argv[1]) if len(sys.argv) > 1 else 1_000_000
    with tempfile.TemporaryDirectory() as folder:
        audit, html = Path(folder, "audit"), Path(folder, "report.html")
        with spark_session(conf={"spark.driver.memory": "3g"}, run=Run.LARGE) as spark:
            views.write(spark, audit, rows, _DAYS)
            write_episodes(spark, audit)
        with spark_session(conf={"spark.driver.memory": "2g"}, run=Run.LARGE) as spark:
            for turn in ("cold", "warm"):
                before, began = _jobs(spark), time.monotonic()
                write_report(spark, str(audit), html)
                took, jobs = time.monotonic() - began, _jobs(spark) - before
                print(f"{turn}: {took:.1f} s, {jobs} jobs, {html.stat().st_size / 1e3:.0f} kB", flush=True)


def _jobs(spark: SparkSession) -> int:
    return len(spark.sparkContext.statusTracker().getJobIdsForGroup(None))


if __name__ == "__main__":
    main()
