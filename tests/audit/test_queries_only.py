"""`audit sql` answers and changes nothing: neither the audit log nor anything else."""

from datetime import timedelta
from pathlib import Path

import pytest
from pyspark.errors import AnalysisException
from pyspark.sql import SparkSession

from sidecar.audit import AuditError, open_audit
from sidecar.audit.ask import sql
from sidecar.audit.ask.query_check import Asked, check_query
from sidecar.audit.ask.registration import register_views
from sidecar.audit.ask.sql import run_sql
from sidecar.audit.ingest.ingest import ingest
from sidecar.audit.log.tables import BASE_VIEWS
from sidecar.audit.spark.spark_session import own_session
from sidecar.audit.views.catalog import ANSWERS
from tests.audit.spooling import NOON, seal, transition

pytestmark = pytest.mark.spark

QUERIES = [
    "SELECT 1;",
    "WITH a AS (SELECT 1 AS x) SELECT * FROM a",
    "VALUES (1), (2)",
    "TABLE transitions",
    "FROM transitions SELECT id",
    "FROM transitions |> WHERE id = 'x'",
    "SELECT transform(array(1), x -> x + 1)",
    "EXPLAIN SELECT 1",
    "SHOW TABLES",
    "SHOW COLUMNS IN transitions",
    "DESCRIBE transitions",
    "DESCRIBE FUNCTION sum",
    "DESCRIBE QUERY SELECT 1",
]
COMMANDS = [
    "INSERT INTO transitions SELECT * FROM transitions",
    "INSERT OVERWRITE TABLE transitions SELECT * FROM transitions",
    "INSERT OVERWRITE DIRECTORY '{0}' USING parquet SELECT 1",
    "WITH a AS (SELECT 1) INSERT INTO transitions SELECT * FROM a",
    "FROM transitions INSERT INTO transitions SELECT * INSERT INTO transitions SELECT *",
    "EXPLAIN INSERT INTO transitions SELECT * FROM transitions",
    "CREATE TABLE t USING parquet LOCATION '{0}' AS SELECT 1",
    "CREATE TEMPORARY VIEW transitions AS SELECT 1",
    "DROP VIEW transitions",
    "CACHE TABLE t AS SELECT 1",
    "DELETE FROM transitions",
    "MERGE INTO transitions USING transitions b ON true WHEN MATCHED THEN DELETE",
    "TRUNCATE TABLE transitions",
    "LOAD DATA INPATH '{0}' INTO TABLE t",
    "SET spark.sql.runSQLOnFiles=true",
    "ADD JAR '{0}/x.jar'",
    "USE default",
    "CALL something()",
    "EXECUTE IMMEDIATE 'DROP VIEW transitions'",
    "BEGIN DROP VIEW transitions; END",
]
PROGRAMS = [
    "SELECT TRANSFORM(id) USING 'touch {0}' AS (x) FROM transitions",
    "SELECT * FROM (SELECT TRANSFORM(id) USING 'touch {0}' AS (x) FROM transitions)",
    "SELECT reflect('java.lang.System', 'exit', 1)",
    "SELECT system.builtin.JAVA_METHOD('java.lang.System', 'exit', 1)",
    "VALUES (try_reflect('java.lang.System', 'exit', 1))",
    "WITH a AS (SELECT reflect('java.lang.System', 'exit', 1)) SELECT * FROM a",
    "SELECT 1 WHERE EXISTS (SELECT reflect('java.lang.System', 'exit', 1))",
    "SELECT * FROM transitions, LATERAL (SELECT reflect('java.lang.System', 'exit', 1))",
    "SELECT transform(array(1), x -> reflect('java.lang.System', 'exit', 1))",
    "SELECT id FROM transitions GROUP BY id HAVING reflect('java.lang.System', 'exit', 1) = ''",
    "EXPLAIN SELECT reflect('java.lang.System', 'exit', 1)",
    "SELECT IDENTIFIER('reflect')('java.lang.System', 'exit', 1)",
    "INSERT INTO IDENTIFIER('transitions') SELECT 1",
]


@pytest.fixture(scope="module")
def log(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> str:
    """An audit log with one change."""
    folder = tmp_path_factory.mktemp("queries")
    seal(folder / "spool", "jm-0", 1, [transition(1)])
    ingest(spark, str(folder / "spool"), str(folder / "audit"))
    return str(folder / "audit")


@pytest.mark.parametrize("query", QUERIES)
def test_whatever_only_asks_is_taken(spark: SparkSession, query: str) -> None:
    """Also commands of Spark that only return metadata."""
    check_query(spark, query)


@pytest.mark.parametrize("view", [*BASE_VIEWS, *ANSWERS])
def test_a_query_finds_the_views_it_names(spark: SparkSession, log: str, view: str) -> None:
    """Only those are made, with those that they ask."""
    assert len([*run_sql(spark, log, f"TABLE {view}").rows]) < 3


def test_a_column_is_not_taken_for_the_view_of_its_name(spark: SparkSession, log: str) -> None:
    """`weekly_report` has columns `unobserved` and `unreviewed`, and does not ask those views."""
    session = own_session(spark)
    register_views(session, log, {"weekly_report"})
    made = {table.name for table in session.catalog.listTables()}
    asked = {"availability", "known_until", "failovers", "leader_changes", "alert_deliveries"}
    assert made == {
        "weekly_report",
        *asked,
        "episodes",
        "notifications",
        "annotations",
        "deaths",
        "recoveries",
        "drills",
    }


def test_folders_are_listed_without_jobs(spark: SparkSession, spool: Path, audit: Path) -> None:
    """Spark starts one, with a task for each folder, if there are more than 32."""
    seal(spool, "jm-0", 1, [transition(n, NOON + timedelta(days=n)) for n in range(33)])
    ingest(spark, str(spool), str(audit))
    jobs = spark.sparkContext.statusTracker().getJobIdsForGroup
    before = jobs(None)
    register_views(own_session(spark), str(audit))
    assert jobs(None) == before


@pytest.mark.parametrize(
    "query",
    [
        "SELECT count(*) = 1 FROM `TRANSITIONS`",
        "WITH a AS (SELECT * FROM Transitions) SELECT count(*) = 1 FROM a",
        "SELECT (SELECT count(*) FROM transitions) = 1",
        "SELECT exists(SELECT 1 FROM transitions WHERE id IN (TABLE transitions |> SELECT id))",
        "SELECT count(*) = 2 FROM (TABLE transitions UNION ALL FROM transitions)",
    ],
)
def test_a_view_is_found_wherever_it_is_named(spark: SparkSession, log: str, query: str) -> None:
    """In any case, and however deep."""
    assert [*run_sql(spark, log, query).rows] == [[True]]


@pytest.mark.parametrize(
    ("query", "asked"),
    [
        ("DESCRIBE Failovers", Asked(frozenset({"failovers"}), described=True)),
        ("DESC TABLE EXTENDED mttr", Asked(frozenset({"mttr"}), described=True)),
        ("DESCRIBE transitions kind", Asked(frozenset({"transitions"}), described=True)),
        ("SHOW COLUMNS IN mttr", Asked(frozenset({"mttr"}), described=True)),
        ("DESCRIBE SELECT * FROM mttr", Asked(frozenset({"mttr"}), described=False)),
        ("EXPLAIN SELECT * FROM mttr", Asked(frozenset({"mttr"}), described=False, explained=True)),
        ("SELECT 1", Asked(frozenset(), described=False)),
        ("SHOW TABLES", Asked(None, described=True)),
        ("SHOW VIEWS LIKE 'm*'", Asked(None, described=True)),
    ],
)
def test_a_query_needs_what_it_names(spark: SparkSession, query: str, asked: Asked) -> None:
    """Only what lists everything needs all views."""
    assert check_query(spark, query) == asked


@pytest.mark.parametrize(
    ("query", "made"), [("DESCRIBE coverage", {"coverage"}), ("SHOW VIEWS", {*BASE_VIEWS, *ANSWERS})]
)
def test_only_what_is_described_is_made(
    spark: SparkSession, log: str, query: str, made: set[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """With its comments; DESCRIBE of one table takes no time for the others."""
    session = own_session(spark)
    monkeypatch.setattr(sql, "query_session", lambda _: session)
    assert [*run_sql(spark, log, query).rows]
    assert {row.viewName for row in session.sql("SHOW VIEWS").collect()} == made


def test_spark_answers_it(spark: SparkSession, log: str) -> None:
    """A command that only returns metadata has rows like a query."""
    assert "transitions" in {name for row in run_sql(spark, log, "SHOW TABLES").rows for name in row}


@pytest.mark.parametrize("query", [*COMMANDS, *PROGRAMS])
def test_whatever_does_something_is_refused(spark: SparkSession, log: str, tmp_path: Path, query: str) -> None:
    """In one line, and nothing has been done."""
    made = tmp_path / "made"
    with pytest.raises(AuditError, match=r"^cannot run the query: [^\n]*(?:accepted|write the name itself)[^\n]*$"):
        run_sql(spark, log, query.format(made))
    assert not made.exists()


def test_a_path_is_no_table(spark: SparkSession, log: str) -> None:
    """A query sees the audit log, and no other file."""
    with pytest.raises(AuditError, match=r"^cannot run the query: .*parquet"):
        run_sql(spark, log, f"TABLE parquet.`{log}/transitions`")


def test_nothing_can_be_written_through_a_view(spark: SparkSession, log: str) -> None:
    """Also in a session that takes any command. (Nor through those of the script for spark-sql: see test_cookbook.)"""
    session = spark.newSession()
    open_audit(session, log)
    with pytest.raises(AnalysisException, match=r"UNSUPPORTED_INSERT|EXPECT_TABLE_NOT_VIEW"):
        session.sql("INSERT INTO transitions SELECT * FROM transitions")
    assert session.table("transitions").count() == 1


def test_a_query_is_looked_at_before_spark_acts_on_it(spark: SparkSession) -> None:
    """By its plan: what stands in a text or a comment is no command."""
    check_query(spark, "SELECT 'INSERT INTO t SELECT reflect(1)' /* DROP TABLE t */ -- TRUNCATE TABLE t")
