"""A result is complete, or there is none: decisions rest on it, such as which segments are deleted."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from sidecar.audit.audit_error import JVM_ENDED, reason
from sidecar.audit.spark.spark_session import collected

AUDIT = Path(__file__).parents[2] / "sidecar/audit"

KILLED = """
import os, pathlib, signal
from sidecar.audit.audit_error import AuditError, failing_to
from sidecar.audit.spark.spark_session import collected
from sidecar.audit.spark.spark_session import spark_session

class Killing:
    def __init__(self, rows):
        self.rows = rows

    def toLocalIterator(self):
        for number, row in enumerate(self.rows.toLocalIterator()):
            if number == 1000:
                (jvm,) = pathlib.Path(f"/proc/self/task/{os.getpid()}/children").read_text().split()
                os.kill(int(jvm), signal.SIGKILL)
            yield row

with spark_session("local[1]") as spark:
    try:
        with failing_to("count"):
            print(len(collected(Killing(spark.range(3_000_000)))))
    except AuditError as error:
        print(error)
"""
"""Of three million rows a thousand have been read when the JVM is killed."""


@pytest.mark.spark
def test_of_a_jvm_that_is_killed_meanwhile_no_part_is_taken_for_the_whole() -> None:
    """PySpark's own `collect` returns some thousand of the rows, without an error."""
    done = subprocess.run([sys.executable, "-c", KILLED], capture_output=True, text=True, timeout=120, check=True)
    assert (done.stdout, done.stderr) == (f"cannot count: {JVM_ENDED}\n", "")


@pytest.mark.spark
def test_all_rows_are_read_in_their_order(spark: SparkSession) -> None:
    """Of several partitions, and of none."""
    assert [row.id for row in collected(spark.range(0, 5000, 1, 7).orderBy("id"))] == [*range(5000)]
    assert collected(spark.range(0)) == []


def test_an_answer_that_ends_too_early_is_no_defect_of_a_file() -> None:
    """Rows come from the JVM alone."""
    assert reason(EOFError()) == JVM_ENDED


def test_nothing_in_the_audit_reads_rows_in_another_way() -> None:
    """Methods of a DataFrame that read until the connection ends."""
    incomplete = {"collect", "first", "head", "take", "tail", "toPandas"}
    calls = [
        f"{file.relative_to(AUDIT)}:{node.lineno}"
        for file in sorted(AUDIT.rglob("*.py"))
        for node in ast.walk(ast.parse(file.read_text()))
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in incomplete
    ]
    assert calls == []
