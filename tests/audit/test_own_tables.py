"""`audit sql --with NAME=FILE.csv`: a question joins a file of the operator's own, and still reads no other one."""

import io
from pathlib import Path

import pytest
from click.testing import CliRunner
from pyspark.sql import SparkSession

from sidecar.audit import AuditError
from sidecar.audit.ask.shell import Shell
from sidecar.audit.ask.sql import Output, read_own_tables, render, run_sql
from sidecar.audit.ingest.ingest import ingest
from sidecar.cli.audit import audit
from tests.audit.spooling import NOON, seal, transition

pytestmark = pytest.mark.spark

INCIDENTS = (
    "\ufeffnumber,began,cluster,what\r\n"
    '7,2025-11-21 11:59:00,cluster-1,"two lines,\r\nand ""quotes"""\r\n'
    "\r\n"
    "8,2025-11-21 11:58:00,cluster-2,\r\n"
)
"""As a spreadsheet saves it."""


@pytest.fixture(scope="module")
def log(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> str:
    """An audit log with three changes, each of another cluster."""
    folder = tmp_path_factory.mktemp("own")
    seal(folder / "spool", "jm-0", 1, [transition(n, NOON) for n in range(3)])
    ingest(spark, str(folder / "spool"), str(folder / "audit"))
    return str(folder / "audit")


@pytest.fixture
def incidents(tmp_path: Path) -> Path:
    """A file of the operator's own."""
    file = tmp_path / "incidents.csv"
    file.write_text(INCIDENTS, encoding="utf-8", newline="")
    return file


def asked(spark: SparkSession, log: str, file: Path, query: str, output: Output = "json") -> list[str]:
    """What the command would print, line by line."""
    stream = io.StringIO()
    render(run_sql(spark, log, query, own_tables=read_own_tables(spark, {"incidents": file})), output, stream)
    return stream.getvalue().splitlines()


def test_a_file_is_joined_with_the_log(spark: SparkSession, log: str, incidents: Path) -> None:
    """Its first line names the columns, whose types are those of the values; an empty value is null."""
    query = """
        SELECT number + 1 AS next, cluster_id, observed_at - began = INTERVAL 1 MINUTE AS `minute`, what
        FROM transitions JOIN Incidents ON cluster = cluster_id ORDER BY number
    """
    assert asked(spark, log, incidents, query) == [
        r'{"next":8,"cluster_id":"cluster-1","minute":true,"what":"two lines,\r\nand \"quotes\""}',
        '{"next":9,"cluster_id":"cluster-2","minute":false,"what":null}',
    ]


def test_a_file_is_a_table_like_the_others(spark: SparkSession, log: str, incidents: Path) -> None:
    """It is listed and described."""
    assert any('"incidents"' in line for line in asked(spark, log, incidents, "SHOW TABLES"))
    described = [line.split()[:2] for line in asked(spark, log, incidents, "DESCRIBE incidents", "table")[2:-1]]
    assert described == [["number", "int"], ["began", "timestamp"], ["cluster", "string"], ["what", "string"]]


def test_the_shell_has_it_in_every_question(spark: SparkSession, log: str, incidents: Path) -> None:
    """And in its lists."""
    answers, messages = io.StringIO(), io.StringIO()
    own_tables = read_own_tables(spark, {"incidents": incidents})
    shell = Shell(spark, log, "csv", answers, messages, own_tables)
    shell.run(["\\d\n", "\\d Incidents;\n", "SELECT sum(number) FROM incidents; SELECT max(number) FROM incidents;\n"])
    assert f"\nincidents,file,{incidents}\n" in answers.getvalue()
    assert "\nnumber,int,\n" in answers.getvalue()
    assert answers.getvalue().endswith("\nsum(number)\n15\nmax(number)\n8\n")
    assert (messages.getvalue(), shell.failed) == ("", False)


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        (None, "No such file or directory"),
        (b"", "its first line has to name every column, each once"),
        (b"a,A\n1,2\n", "its first line has to name every column, each once"),
        (b"a,\n1,2\n", "its first line has to name every column, each once"),
        (b"a,b\n", "it has no rows below its header"),
        (b"a,b\n1,2\n3\n", "row 2 has 1 values, the header 2 names"),
        (b'a,b\n1,"2\n', "unexpected end of data"),
        (b"PAR1\x00\x00", "it is not a text"),
        (b"a\n\xff\n", "'utf-8' codec can't decode byte 0xff"),
    ],
)
def test_a_file_that_is_no_table_is_one_line(
    spark: SparkSession, tmp_path: Path, content: bytes | None, problem: str
) -> None:
    """That names the file and what is wrong with it."""
    file = tmp_path / "mine.csv"
    if content is not None:
        file.write_bytes(content)
    with pytest.raises(AuditError) as failure:
        read_own_tables(spark, {"mine": file})
    assert str(failure.value).startswith(f"cannot read {file} as mine: {problem}")
    assert "\n" not in str(failure.value)


def test_a_name_of_the_log_is_refused(spark: SparkSession, incidents: Path) -> None:
    """Else a question would be answered from another table than it names."""
    with pytest.raises(AuditError, match="as failovers: the audit log has a table or view of that name; choose anoth"):
        read_own_tables(spark, {"failovers": incidents})


@pytest.mark.parametrize(
    ("given", "problem"),
    [
        (["--with", "incidents"], "'incidents' is not like incidents=incidents.csv"),
        (["--with", "my-own=mine.csv"], "'my-own=mine.csv' is not like incidents=incidents.csv"),
        (["--with", "_days=mine.csv"], "'_days=mine.csv' is not like incidents=incidents.csv"),
        (["--with", "mine="], "'mine=' is not like incidents=incidents.csv"),
        (["--with", "mine=a.csv", "--with", "Mine=b.csv"], "two files are named Mine"),
    ],
)
def test_a_name_is_one_that_a_query_can_have(given: list[str], problem: str) -> None:
    """Before Spark is started."""
    result = CliRunner().invoke(audit, ["sql", "--audit", "nowhere", *given, "SELECT 1"])
    assert result.exit_code == 2
    assert problem in result.output


@pytest.mark.parametrize(
    "query", ["SELECT * FROM csv.`{0}`", "SELECT * FROM `{0}`", "SELECT * FROM incidents", "TABLE parquet.`{0}`"]
)
def test_a_query_still_reads_no_file(spark: SparkSession, log: str, incidents: Path, query: str) -> None:
    """One line says that this is so on purpose, and what to do instead."""
    with pytest.raises(AuditError, match=r"a query reads no files \(--with NAME=FILE\.csv makes a table of one\)$"):
        run_sql(spark, log, query.format(incidents))
