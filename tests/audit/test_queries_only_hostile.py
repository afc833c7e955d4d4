"""Queries that try to run code, to read what is not the audit log, or to change something."""

import os
from pathlib import Path

import pytest
from pyspark.errors import AnalysisException, ParseException
from pyspark.sql import SparkSession

from sidecar.audit import AuditError
from sidecar.audit.ask.query_check import answer, check_query, query_session
from sidecar.audit.ask.registration import register_views
from sidecar.audit.ask.sql import run_sql
from sidecar.audit.ingest.ingest import ingest
from tests.audit.spooling import seal, transition

pytestmark = pytest.mark.spark

CODE = [
    "reflect('org.apache.hadoop.fs.FileUtil', 'symLink', '/etc', '{made}')",
    "system.builtin.JAVA_METHOD('org.apache.hadoop.fs.FileUtil', 'symLink', '/etc', '{made}')",
    "`try_reflect`('org.apache.hadoop.fs.FileUtil', 'symLink', '/etc', '{made}')",
    "from_xml('<a>1</a>', 'a INT', map('rowValidationXSDPath', '/etc/passwd')).a",
]
PLACES = """
SELECT {x}
SELECT 1 AS a WHERE {x} = '0'
SELECT count(*) OVER w FROM transitions WINDOW w AS (PARTITION BY {x})
SELECT count(*) OVER w FROM transitions WINDOW v AS (ORDER BY id), w AS (ORDER BY {x})
SELECT count(*) OVER w FROM transitions WINDOW v AS (PARTITION BY {x}), w AS (ORDER BY id)
SELECT (SELECT count(*) OVER w FROM transitions WINDOW w AS (PARTITION BY {x}) LIMIT 1)
WITH a AS (SELECT count(*) OVER w FROM transitions WINDOW w AS (PARTITION BY {x})) SELECT * FROM a
EXPLAIN SELECT count(*) OVER w FROM transitions WINDOW w AS (PARTITION BY {x})
DESCRIBE QUERY SELECT count(*) OVER w FROM transitions WINDOW w AS (PARTITION BY {x})
SELECT row_number() OVER (PARTITION BY {x} ORDER BY id) FROM transitions
SELECT row_number() OVER (ORDER BY {x}) FROM transitions
SELECT id FROM transitions QUALIFY row_number() OVER (ORDER BY {x}) = 1
SELECT sum(1) FILTER (WHERE {x} = '0') FROM transitions
SELECT listagg(id) WITHIN GROUP (ORDER BY {x}) FROM transitions
SELECT id FROM transitions GROUP BY id, {x}
SELECT 1 FROM transitions GROUP BY CUBE ({x})
SELECT 1 FROM transitions GROUP BY GROUPING SETS (({x}), ())
SELECT id FROM transitions GROUP BY id HAVING {x} = ''
SELECT id FROM transitions ORDER BY {x}
SELECT id FROM transitions SORT BY {x}
SELECT id FROM transitions DISTRIBUTE BY {x}
SELECT id FROM transitions LIMIT length({x})
SELECT id FROM transitions OFFSET length({x})
SELECT transform(array(1), v -> {x})
SELECT aggregate(array(1), '', (a, v) -> {x})
SELECT map('a', {x})['a']
SELECT named_struct('a', {x}).a
SELECT array({x})[0]
SELECT array(1)[length({x})]
SELECT CASE WHEN true THEN {x} END
SELECT CAST({x} AS STRING)
SELECT {x} :: STRING
SELECT {x} IN ('a')
SELECT 'a' LIKE {x}
SELECT 'a' LIKE ANY ({x})
SELECT 'a' BETWEEN {x} AND 'b'
SELECT TRIM(BOTH {x} FROM 'a')
SELECT overlay('a' PLACING {x} FROM 1)
SELECT {x} COLLATE UTF8_LCASE
SELECT date_add(DATE'2026-01-01', length({x}))
SELECT from_json('{{}}', 'a INT', map('mode', {x}))
SELECT from_json('{{}}', {x})
SELECT * FROM transitions a JOIN transitions b ON a.id = {x}
SELECT * FROM transitions a, LATERAL (SELECT {x})
SELECT * FROM transitions LATERAL VIEW explode(array({x})) t AS v
SELECT * FROM transitions, LATERAL explode(array({x}))
SELECT * FROM explode(array({x}))
SELECT * FROM range(length({x}))
SELECT * FROM VALUES ({x})
VALUES ({x})
SELECT * FROM (SELECT id, kind FROM transitions) PIVOT (max({x}) FOR kind IN ('a'))
SELECT * FROM (SELECT id, kind FROM transitions) PIVOT (max(id) FOR kind IN ({x}))
SELECT * FROM (SELECT {x} AS a, {x} AS b) UNPIVOT (v FOR n IN (a, b))
SELECT 1 UNION ALL SELECT {x}
SELECT 'a' EXCEPT SELECT {x}
SELECT 1 WHERE EXISTS (SELECT {x})
SELECT 1 WHERE 'a' IN (SELECT {x})
WITH RECURSIVE r(n) AS (SELECT '' UNION ALL SELECT {x} FROM r WHERE n = '') SELECT * FROM r
FROM transitions |> WHERE {x} = '0'
FROM transitions |> EXTEND {x} AS v
FROM transitions |> SET id = {x}
FROM transitions |> AGGREGATE max({x}) GROUP BY id
FROM transitions SELECT {x}
SELECT /*+ REPARTITION({x}) */ 1
EXPLAIN EXTENDED SELECT {x}
EXPLAIN CODEGEN SELECT {x}
DESCRIBE SELECT {x}
"""
OTHERS = """
SELECT * FROM transitions LATERAL VIEW reflect('a', 'b') t
SELECT * FROM reflect('java.lang.System', 'exit', 1)
SELECT IDENTIFIER('re' || 'flect')('java.lang.System', 'exit', 1)
SELECT IDENTIFIER('system.builtin.reflect')('java.lang.System', 'exit', 1)
SELECT * FROM IDENTIFIER('python_worker_logs')()
SELECT * FROM python_worker_logs()
SELECT from_protobuf(X'00', 'A', '/etc/passwd')
SELECT from_avro(X'00', '{{}}')
SELECT schema_of_xml('<a/>', map('rowValidationXSDPath', '/etc/passwd'))
SELECT xpath('<!DOCTYPE a [<!ENTITY b SYSTEM "file:///etc/passwd">]><a>&b;</a>', 'a/text()')
SELECT xpath_string('<!DOCTYPE a [<!ENTITY b SYSTEM "file:///etc/passwd">]><a>&b;</a>', 'a')
SELECT hll_sketch_estimate(X'00')
SELECT kll_sketch_to_string_bigint(X'00')
SELECT theta_sketch_estimate(X'00')
SELECT st_asbinary(st_geomfromwkb(X'00'))
SELECT a_function_of_nobody(1)
SELECT spark_catalog.default.a_function_of_nobody(1)
SELECT TRANSFORM(id) USING 'touch {made}' AS (x) FROM transitions
SELECT * FROM (SELECT TRANSFORM(id) USING 'touch {made}' AS (x) FROM transitions)
WITH a AS (SELECT TRANSFORM(id) USING 'touch {made}' AS (x) FROM transitions) SELECT * FROM a
FROM transitions MAP id USING 'touch {made}' AS x
FROM transitions REDUCE id USING 'touch {made}' AS x
EXPLAIN SELECT TRANSFORM(id) USING 'touch {made}' AS (x) FROM transitions
TABLE parquet.`{audit}/transitions`
SELECT * FROM text.`/etc/passwd`
SELECT * FROM json.`/etc/passwd`
SELECT * FROM csv.`file:///etc/passwd`
SELECT * FROM binaryFile.`/etc/passwd`
SELECT * FROM jdbc.`jdbc:derby:{made};create=true`
SELECT (SELECT max(value) FROM text.`/etc/passwd`)
EXPLAIN SELECT * FROM text.`/etc/passwd`
DESCRIBE text.`/etc/passwd`
SHOW COLUMNS IN text.`/etc/passwd`
SELECT * FROM foreign_session
SELECT * FROM global_temp.foreign_view
EXPLAIN SELECT * FROM global_temp.foreign_view
SELECT count(*) OVER w FROM transitions WINDOW w AS (PARTITION BY (SELECT max(a) FROM global_temp.foreign_view))
SELECT * FROM spark_catalog.default.foreign_table
SELECT * FROM STREAM transitions
SELECT * FROM stream(transitions)
SELECT * FROM transitions VERSION AS OF 1
SELECT * FROM transitions TIMESTAMP AS OF '2026-01-01'
INSERT INTO transitions SELECT * FROM transitions
INSERT OVERWRITE DIRECTORY '{made}' USING parquet SELECT 1
INSERT OVERWRITE LOCAL DIRECTORY '{made}' STORED AS TEXTFILE SELECT 1
EXPLAIN INSERT OVERWRITE DIRECTORY '{made}' USING parquet SELECT 1
EXPLAIN EXPLAIN INSERT OVERWRITE DIRECTORY '{made}' USING parquet SELECT 1
CREATE TABLE t USING parquet LOCATION '{made}' AS SELECT 1
CREATE TEMPORARY VIEW t USING text OPTIONS (path '/etc/passwd')
CREATE TEMPORARY FUNCTION f AS 'java.lang.System'
CREATE TEMPORARY FUNCTION f(x STRING) RETURNS STRING RETURN x
CREATE FUNCTION f AS 'a.B' USING JAR '{made}'
DECLARE VARIABLE v = 1
SET VARIABLE v = 1
SET spark.sql.variable.substitute = true
SET
RESET
ADD JAR '{made}'
ADD FILE '/etc/passwd'
ADD ARCHIVE '{made}'
LIST JARS
LIST FILES
CACHE TABLE transitions
UNCACHE TABLE transitions
CLEAR CACHE
REFRESH '{audit}'
REFRESH TABLE transitions
ANALYZE TABLE transitions COMPUTE STATISTICS
DROP VIEW transitions
DROP TEMPORARY FUNCTION abs
ALTER VIEW transitions RENAME TO t
USE default
SET CATALOG spark_catalog
CALL something()
EXECUTE IMMEDIATE 'DROP VIEW transitions'
BEGIN DROP VIEW transitions; END
BEGIN SELECT 1; END
COMMENT ON TABLE transitions IS 'x'
TRUNCATE TABLE transitions
LOAD DATA INPATH '{made}' INTO TABLE t
MSCK REPAIR TABLE transitions
CREATE DATABASE d LOCATION '{made}'
"""
SUBSTITUTED = [
    "${env:A_SECRET}",
    "${system:user.dir}",
    "${spark:spark.driver.host}",
    "${hiveconf:x}",
    "${spark.app.name}",
]


def hostile(made: Path, audit: str) -> list[str]:
    """All of them."""
    code = [text.format(made=made) for text in CODE]
    places = PLACES.strip().splitlines()
    return [
        *(place.format(x=text) for text in code for place in places),
        *(line.format(made=made, audit=audit) for line in OTHERS.strip().splitlines()),
    ]


@pytest.fixture(scope="module")
def log(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> str:
    """An audit log with one change."""
    folder = tmp_path_factory.mktemp("hostile")
    seal(folder / "spool", "jm-0", 1, [transition(1)])
    ingest(spark, str(folder / "spool"), str(folder / "audit"))
    return str(folder / "audit")


def test_hostile_queries_are_refused_before_anything_is_done(spark: SparkSession, log: str, tmp_path: Path) -> None:
    """In one line; nothing is made, also where Spark evaluates a constant while it analyses the query."""
    made = tmp_path / "made"
    foreign = spark.newSession()
    foreign.createDataFrame([(1,)], "a int").createGlobalTempView("foreign_view")
    asking = query_session(spark)
    register_views(asking, log)
    accepted, refused = list[str](), 0
    for query in hostile(made, log):
        try:
            check_query(asking, query)
            answer(asking, query)
            accepted.append(query)
        except (AuditError, AnalysisException, ParseException) as error:
            refused += 1
            if os.path.lexists(made) or "root:" in str(error):
                accepted.append(query)
    foreign.catalog.dropGlobalTempView("foreign_view")
    assert accepted == []
    assert refused >= 200


@pytest.mark.parametrize(
    "query",
    [
        "SELECT count(*) OVER w FROM transitions WINDOW w AS (PARTITION BY {x})",
        "SELECT count(*) OVER w FROM transitions WINDOW w AS (PARTITION BY (SELECT max(a) FROM global_temp.foreign_view))",
        "SELECT from_xml('<a>1</a>', 'a INT', map('rowValidationXSDPath', '/etc/passwd')).a",
        "SELECT * FROM global_temp.foreign_view",
        "DESCRIBE global_temp.foreign_view",
        "SHOW TABLES IN global_temp",
    ],
)
def test_audit_sql_refuses_them_in_one_line(spark: SparkSession, log: str, tmp_path: Path, query: str) -> None:
    """As the command asks: a function of Java in a map inside a node, a view of another session, a parser that reads files."""
    made = tmp_path / "made"
    foreign = spark.newSession()
    foreign.createDataFrame([(1,)], "a int").createOrReplaceGlobalTempView("foreign_view")
    with pytest.raises(AuditError, match=r"^cannot run the query: [^\n]+$"):
        list(run_sql(spark, log, query.format(x=CODE[0].format(made=made))).rows)
    foreign.catalog.dropGlobalTempView("foreign_view")
    assert not os.path.lexists(made)


@pytest.mark.parametrize("text", SUBSTITUTED)
def test_nothing_of_the_environment_is_put_into_a_query(spark: SparkSession, log: str, text: str) -> None:
    """Spark replaces such variables before anybody can look at the query, also by its own configuration."""
    active = spark.newSession()
    active.conf.set("spark.sql.variable.substitute", "true")
    active.sql("SELECT 1")
    jvm = spark.sparkContext._jvm
    jvm.org.apache.spark.sql.classic.SparkSession.setActiveSession(active._jsparkSession)  # type: ignore[union-attr]
    assert [*run_sql(spark, log, f"SELECT '{text}'").rows] == [[text]]


@pytest.mark.parametrize(
    "query",
    [
        "SELECT max(v.observed_at) - min(v.observed_at) FROM transitions v LEFT JOIN episodes e ON v.episode_id = e.id",
        "SELECT kind, count(*) FILTER (WHERE component = 'job') AS jobs FROM transitions GROUP BY ROLLUP (kind) HAVING count(*) > 0",
        "SELECT *, row_number() OVER w, lag(id) OVER w FROM transitions WINDOW w AS (PARTITION BY kind ORDER BY observed_at)",
        "WITH RECURSIVE r(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM r WHERE n < 3) SELECT sum(n) FROM r, transitions",
        "FROM transitions |> EXTEND external_labels['env'] AS env |> AGGREGATE count(*) AS n GROUP BY env |> ORDER BY n DESC",
        "SELECT * FROM (SELECT kind, component FROM transitions) PIVOT (count(*) FOR component IN ('job', 'dispatcher'))",
        "SELECT window.start, count(*) FROM transitions GROUP BY window(observed_at, '1 hour')",
        "SELECT position.*, t.v FROM transitions LATERAL VIEW explode(map_keys(external_labels)) t AS v",
        "SELECT id FROM transitions TABLESAMPLE (100 PERCENT) WHERE observed_at > current_timestamp() - INTERVAL 900 DAYS LIMIT 3",
        "EXPLAIN SELECT * FROM weekly_report",
        "SELECT element, n FROM (SELECT 'a' AS element) CROSS JOIN (SELECT count(*) AS n FROM failovers) UNION SELECT '', 1",
    ],
)
def test_ordinary_queries_are_answered(spark: SparkSession, log: str, query: str) -> None:
    """The list of classes that are allowed is long enough for everything that SELECT offers."""
    assert list(run_sql(spark, log, query).rows) is not None
