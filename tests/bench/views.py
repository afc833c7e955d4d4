"""How long each view of the audit log takes: `python -m tests.bench.views [rows of transitions, 10000000]`.

The log is made by Spark: 100 clusters with three components and 497 jobs each, watched by two observers for a year, whose leaders are
revoked and granted in turn; coverage by the hour, one outage of sight a day. Every row of every view is computed and thrown away.
"""

import sys
import tempfile
import time
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession

from sidecar.audit import open_audit
from sidecar.audit.schema import RECORDS
from sidecar.audit.session import spark_session
from sidecar.audit.views import ANSWERS

CLUSTERS = 100
LEADERSHIPS = 500
YEAR = 365 * 86400
BEGIN = 1_763_596_800
_ENVELOPE = """
  2 AS schema, uuid() AS id, concat('cluster-', c) AS cluster_id, map('env', 'bench') AS external_labels, 'zookeeper' AS store
"""


def write(spark: SparkSession, audit: Path, rows: int) -> None:
    """An audit log with so many transitions."""
    turns = rows // (CLUSTERS * LEADERSHIPS)
    spark.range(CLUSTERS * LEADERSHIPS * turns).createOrReplaceTempView("numbers")
    spark.sql(
        f"SELECT id DIV {LEADERSHIPS * turns} AS c, id DIV {turns} % {LEADERSHIPS} AS l, id % {turns} AS n FROM numbers"  # noqa: S608  our own text
    ).selectExpr(
        "*",
        f"{BEGIN} + n DIV 2 * {2 * YEAR // turns} + c + if(n % 2 = 0, 0, 1.5 + l / 100) AS s",
        "concat(lpad(hex(n DIV 2), 8, '0'), '-0000-4000-8000-', lpad(hex(c * 1000 + l), 12, '0')) AS before",
        "concat(lpad(hex(n DIV 2 + 1), 8, '0'), '-0000-4000-8000-', lpad(hex(c * 1000 + l), 12, '0')) AS after",
        "concat('pekko.tcp://flink@10.0.', c % 256, '.', n DIV 2 % 3, ':6123/user/rpc/dispatcher_0') AS address",
    ).createOrReplaceTempView("made")
    transitions = spark.sql(f"""
        SELECT {_ENVELOPE}, 'transition' AS type, 'jm-0' AS observer, timestamp_micros(CAST(s * 1e6 AS BIGINT)) AS observed_at,
          if(l < 3, element_at(array('dispatcher', 'resource_manager', 'rest_server'), CAST(l AS INT) + 1), 'job') AS component,
          if(l < 3, NULL, lpad(hex(c * 1000 + l), 32, '0')) AS job_id,
          if(n % 2 = 0, 'REVOKED', 'GRANTED') AS kind, if(n % 2 = 0, NULL, after) AS after_session_id,
          if(n % 2 = 0, NULL, address) AS after_address, before AS last_known_session_id, address AS last_known_address,
          false AS same_leader, 0L AS unobserved, 0L AS unobserved_at_least, if(n % 2 = 0, NULL, 1.5D + l / 100) AS vacant_seconds,
          'CONNECTED' AS view, false AS returned, false AS split, struct(n + (n % 2) AS mzxid) AS position
        FROM made""")  # noqa: S608  our own text
    hours = spark.range(CLUSTERS * 2 * YEAR // 3600).selectExpr(
        f"id DIV {2 * YEAR // 3600} AS c", f"id DIV {YEAR // 3600} % 2 AS o", f"id % {YEAR // 3600} AS h"
    )
    hours.createOrReplaceTempView("hours")
    coverage = spark.sql(f"""
        SELECT {_ENVELOPE}, 'coverage' AS type, concat('jm-', o) AS observer, timestamp_seconds({BEGIN} + (h + 1) * 3600) AS observed_at,
          timestamp_seconds({BEGIN} + h * 3600) AS `from`, timestamp_seconds({BEGIN} + (h + 1) * 3600) AS `to`,
          if(h % 24 = 7, 'blind', 'seeing') AS state
        FROM hours""")  # noqa: S608  our own text
    notifications = spark.sql(f"""
        SELECT {_ENVELOPE}, 'notification' AS type, 'jm-0' AS observer, timestamp_seconds({BEGIN} + h * 3600 + o * 3) AS observed_at,
          'FlinkLeaderChanged' AS alert, hex(c) AS fingerprint, 'ops' AS receiver, 'ops#0' AS destination, 'FIRST' AS reason,
          if(o = 0, 'queued', 'delivered') AS outcome, CAST(o AS BIGINT) AS attempt, false AS possible_duplicate
        FROM hours WHERE h % 24 = 3""")  # noqa: S608  our own text
    for table, made, record in (
        ("transitions", transitions, "transition"),
        ("coverage", coverage, "coverage"),
        ("notifications", notifications, "notification"),
    ):
        _as_written(made, record).write.partitionBy("event_date").parquet(f"{audit}/{table}")


def _as_written(made: DataFrame, record: str) -> DataFrame:
    names = [name for name in RECORDS[record].names if name in made.columns]
    quoted = [f"`{name}`" for name in names]
    dated = made.selectExpr(*quoted, "to_date(observed_at) AS event_date")
    return dated.repartition(16, "event_date").sortWithinPartitions("event_date", "cluster_id", "observed_at")


def main() -> None:
    rows = int(sys.argv[1]) if len(sys.argv) > 1 else 10_000_000
    with tempfile.TemporaryDirectory() as folder, spark_session(conf={"spark.driver.memory": "3g"}) as spark:
        audit = Path(folder)
        write(spark, audit, rows)
        open_audit(spark, str(audit))
        for name in ANSWERS:
            begin = time.monotonic()
            spark.table(name).write.format("noop").mode("overwrite").save()
            print(f"{name:18} {time.monotonic() - begin:6.1f} s", flush=True)


if __name__ == "__main__":
    main()
