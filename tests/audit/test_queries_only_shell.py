"""The shell refuses what tries to run code, to read what is not the audit log, or to change something."""

import os
from io import StringIO
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from sidecar.audit.ask.shell import Shell
from sidecar.audit.ingest.ingest import ingest
from tests.audit.spooling import seal, transition

pytestmark = pytest.mark.spark

STATEMENTS = Path(__file__).with_name("hostile_queries.txt").read_text().splitlines()
"""One a line: no two are of one kind. `{x}` runs Java code that makes the link `{made}`."""
CODE = "reflect('org.apache.hadoop.fs.FileUtil', 'symLink', '/etc', '{made}')"


def test_hostile_statements_are_refused_in_one_line(spark: SparkSession, tmp_path: Path) -> None:
    """Each without an answer, without a file, and without a word of what it asked for; the shell goes on."""
    seal(tmp_path / "spool", "jm-0", 1, [transition(1)])
    ingest(spark, str(tmp_path / "spool"), str(tmp_path / "audit"))
    made = tmp_path / "made"
    foreign = spark.newSession()
    foreign.createDataFrame([(1,)], "a int").createOrReplaceGlobalTempView("foreign_view")
    answers, messages = StringIO(), StringIO()
    shell = Shell(spark, str(tmp_path / "audit"), "json", answers, messages)
    wrong = []
    for statement in STATEMENTS:
        answers.truncate(answers.seek(0))
        messages.truncate(messages.seek(0))
        shell.run([statement.replace("{x}", CODE).replace("{made}", str(made)) + "\n"])
        said = messages.getvalue().splitlines()
        refused = said and all(
            line.startswith(("cannot run the query: ", "the last statement is not")) for line in said
        )
        if not refused or answers.getvalue() or "root:" in messages.getvalue() or os.path.lexists(made):
            wrong.append(f"{statement}: {said} {answers.getvalue()}")
    foreign.catalog.dropGlobalTempView("foreign_view")
    assert wrong == []
    assert len(set(STATEMENTS)) >= 200
