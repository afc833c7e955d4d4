"""docs/audit-cookbook.md: its queries run, and its answers are those of the recording that it names."""

import io
import re
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from sidecar.audit.ingest import ingest
from sidecar.audit.sql import render, run_sql
from sidecar.audit.views import ANSWERS, views_script
from tests.audit.recorded import records
from tests.audit.spooling import seal

pytestmark = pytest.mark.spark

TEXT = (Path(__file__).parents[2] / "docs" / "audit-cookbook.md").read_text(encoding="utf-8")
QUERIES = re.findall(r"```sql\n(.*?)\n```\n```\n(.*?)\n```", TEXT, re.DOTALL)
SCRIPTS = re.findall(r"```python\n(.*?)```", TEXT, re.DOTALL)


@pytest.fixture(scope="module")
def log(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> str:
    """The audit log of a sidecar that watched the recording."""
    folder = tmp_path_factory.mktemp("cookbook")
    seal(folder / "spool", "jm-0", 1, records("2.3.0"))
    ingest(spark, str(folder / "spool"), str(folder / "audit"))
    return str(folder / "audit")


@pytest.mark.parametrize(
    ("query", "answer"), QUERIES, ids=[re.findall(r"FROM (\w+)", query)[0] for query, _ in QUERIES]
)
def test_an_answer_is_what_the_log_answers(spark: SparkSession, log: str, query: str, answer: str) -> None:
    """Row for row, as `audit sql` prints it."""
    stream = io.StringIO()
    render(run_sql(spark, log, query), "table", stream)
    assert stream.getvalue().splitlines() == answer.splitlines()


def test_every_view_has_its_question_and_an_answer() -> None:
    """Each under a heading of its own."""
    assert sorted(re.findall(r"^## (\w+): .*\?$", TEXT, re.MULTILINE)) == sorted([*ANSWERS, "episodes"])
    assert {re.findall(r"FROM (\w+)", query)[0] for query, _ in QUERIES} == {*ANSWERS, "episodes"}


def test_the_script_for_spark_sql_makes_every_view(spark: SparkSession, log: str) -> None:
    """Statement by statement, without a comment that a command line might stumble over."""
    session = spark.newSession()
    script = views_script(spark, log)
    assert "--" not in script
    statements = script.removesuffix(";\n").split(";\n")
    for statement in statements:
        assert ";" not in statement
        session.sql(statement)
    assert session.table("failovers").count() == 36
    assert session.table("episodes").count() == 8
    assert session.table("transitions").schema == _opened(spark, log).table("transitions").schema


def _opened(spark: SparkSession, log: str) -> SparkSession:
    from sidecar.audit import open_audit

    session = spark.newSession()
    open_audit(session, log)
    return session


@pytest.mark.parametrize("script", SCRIPTS, ids=["spark", "duckdb", "pyarrow"])
def test_a_recipe_in_python_runs(
    spark: SparkSession, log: str, script: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """As it is written, with the audit log's path in its place."""
    exec(compile(script.replace("<audit>", log), "recipe", "exec"), {})  # noqa: S102  our own document
    assert capsys.readouterr().out.strip()
