"""`audit sql` answers in three formats, and reports in one line what is wrong with a query."""

import csv
import io
import json
import shutil
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

from sidecar.audit import AuditError
from sidecar.audit.ask.registration import register_views
from sidecar.audit.ask.sql import OUTPUTS, Output, render, run_sql
from sidecar.audit.ingest.ingest import ingest
from sidecar.audit.spark import spark_session as session
from tests.audit.spooling import NOON, coverage, seal, transition

pytestmark = pytest.mark.spark


@pytest.fixture(scope="module")
def log(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> str:
    """An audit log with three changes and an hour of sight."""
    folder = tmp_path_factory.mktemp("sql")
    seal(folder / "spool", "jm-0", 1, [transition(n, NOON, vacant_seconds=n / 2) for n in range(3)] + [coverage(1)])
    ingest(spark, str(folder / "spool"), str(folder / "audit"))
    return str(folder / "audit")


def asked(spark: SparkSession, log: str, query: str, output: Output) -> str:
    """What the command would print."""
    stream = io.StringIO()
    render(run_sql(spark, log, query), output, stream)
    return stream.getvalue()


def test_a_table_is_for_people(spark: SparkSession, log: str) -> None:
    """Columns are aligned, numbers to the right, and the rows are counted."""
    query = "SELECT cluster_id, vacant_seconds AS vacant, job_id, observed_at FROM transitions ORDER BY 1"
    assert asked(spark, log, query, "table") == (
        "cluster_id  vacant  job_id  observed_at\n"
        "----------  ------  ------  ---------------------------\n"
        "cluster-0      0.0  null    2025-11-21T12:00:00.000000Z\n"
        "cluster-1      0.5  null    2025-11-21T12:00:00.000000Z\n"
        "cluster-2      1.0  null    2025-11-21T12:00:00.000000Z\n"
        "(3 rows)\n"
    )
    assert asked(spark, log, "SELECT id FROM evidence", "table") == "id\n--\n(0 rows)\n"
    assert asked(spark, log, "SELECT 1 AS one;", "table") == "one\n---\n  1\n(1 row)\n"


def test_a_wide_row_is_a_line_for_each_value(spark: SparkSession, log: str) -> None:
    """Numbered, and counted as in a table; what would command the terminal is shown."""
    query = r"SELECT cluster_id, job_id, '\u001b[2J\n' AS text, '' AS empty FROM transitions ORDER BY 1 LIMIT 2"
    assert asked(spark, log, query, "vertical") == (
        "-[ RECORD 1 ]-\ncluster_id  cluster-0\njob_id      null\ntext        \\u001b[2J\\n\nempty\n"
        "-[ RECORD 2 ]-\ncluster_id  cluster-1\njob_id      null\ntext        \\u001b[2J\\n\nempty\n"
        "(2 rows)\n"
    )
    assert asked(spark, log, "SELECT id FROM evidence", "vertical") == "(0 rows)\n"


@pytest.mark.parametrize("output", ["table", "vertical"])
def test_a_plan_is_lines(spark: SparkSession, log: str, output: Output) -> None:
    """As Spark made them; what would command the terminal is shown. Programs get it as one text."""
    query = r"EXPLAIN SELECT id FROM transitions WHERE id = '\u001b[2J'"
    lines = asked(spark, log, query, output).splitlines()
    assert lines[0] == "== Physical Plan =="
    assert any(r"\u001b[2J" in line and "Filter" in line for line in lines[1:])
    assert json.loads(asked(spark, log, query, "json"))["plan"].startswith("== Physical Plan ==\n")


def test_json_is_one_object_a_line(spark: SparkSession, log: str) -> None:
    """Structs and maps are objects, instants RFC 3339 to the microsecond, and no column is left out for being null."""
    query = """
        SELECT observed_at, external_labels, position.czxid, struct(version, uid) AS p, job_id, same_leader, event_date FROM
        (SELECT *, position.version, position.uid FROM transitions) ORDER BY cluster_id LIMIT 2
    """
    lines = [json.loads(line) for line in asked(spark, log, query, "json").splitlines()]
    assert lines == [
        {
            "observed_at": "2025-11-21T12:00:00.000000Z",
            "external_labels": {"env": "test"},
            "czxid": 2**40 + number,
            "p": {"version": 0, "uid": None},
            "job_id": None,
            "same_leader": False,
            "event_date": "2025-11-21",
        }
        for number in range(2)
    ]


def test_csv_has_a_header_and_quotes_what_needs_it(spark: SparkSession, log: str) -> None:
    """A null is empty, a map is JSON."""
    query = "SELECT component, 'a, \"b\"' AS text, job_id, external_labels FROM transitions LIMIT 1"
    assert list(csv.reader(io.StringIO(asked(spark, log, query, "csv")))) == [
        ["component", "text", "job_id", "external_labels"],
        ["dispatcher", 'a, "b"', "", '{"env":"test"}'],
    ]


@pytest.mark.parametrize(
    ("expression", "expected"),
    [
        ("CAST(1.10 AS DECIMAL(4, 2))", "1.10"),
        ("DATE'2025-11-21'", "2025-11-21"),
        ("TIMESTAMP_NTZ'2025-11-21 12:00:00.5'", "2025-11-21T12:00:00.500000"),
        ("TIMESTAMP'2026-10-25 00:30:00Z'", "2026-10-25T00:30:00.000000Z"),
        ("array(1, NULL)", [1, None]),
        ("map('k', TIMESTAMP'2026-10-25 00:30:00Z')", {"k": "2026-10-25T00:30:00.000000Z"}),
        ("map(1, true)", {"1": True}),
        ("X'0AFF'", "0aff"),
        ("double('NaN')", None),
        ("parse_json('{\"a\": 1}')", '{"a":1}'),
    ],
)
def test_every_type_of_value_can_be_written(spark: SparkSession, log: str, expression: str, expected: object) -> None:
    """Whatever Spark answers with becomes JSON."""
    assert json.loads(asked(spark, log, f"SELECT {expression} AS it", "json")) == {"it": expected}


def test_what_a_cluster_wrote_cannot_command_the_terminal(spark: SparkSession, log: str) -> None:
    """Control characters are shown, not obeyed, and a row stays one line."""
    answer = asked(spark, log, r"SELECT '\u001b[2J\n' AS text", "table")
    assert answer.splitlines()[2] == r"\u001b[2J\n"


def test_a_spreadsheet_does_not_calculate_what_a_cluster_wrote(spark: SparkSession, log: str) -> None:
    """A text that it would take for a formula begins with an apostrophe, as OWASP advises; a number stays a number, also as a text."""
    texts = ["=1+1", "+x", "-x", "@SUM(1)", "\tx", "\rx", "\nx", "-", "-1.5", "+2e-3", "x=1", "", "-1+1"]
    columns = ", ".join(f"'{text}' AS `{text}_`" for text in texts)
    answer = asked(spark, log, f"SELECT {columns}, -1.5D AS number, -2 AS whole, array('=1') AS list", "csv")
    shown = ["'=1+1", "'+x", "'-x", "'@SUM(1)", "'\tx", "'\rx", "'\nx", "'-", "-1.5", "+2e-3", "x=1", "", "'-1+1"]
    header, row = csv.reader(io.StringIO(answer, newline=""))
    assert row == [*shown, "-1.5", "-2", '["=1"]']
    assert header[:4] == ["'=1+1_", "'+x_", "'-x_", "'@SUM(1)_"]


class Terminal(io.StringIO):
    """What a person looks at."""

    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize("output", OUTPUTS)
def test_a_terminal_shows_a_text_and_does_not_obey_it(spark: SparkSession, log: str, output: Output) -> None:
    """Escape sequences, also those of one character, and marks that turn the direction of what follows: in each format."""
    terminal = Terminal()
    query = r"SELECT '\u001b[2J\u009b31m\u202egnp.exe\u2066' AS `\u202e`, array('\u009b') AS list"
    render(run_sql(spark, log, query.encode().decode("unicode_escape")), output, terminal)
    assert [line for line in terminal.getvalue().splitlines() if not line.isprintable()] == []
    if output == "json":
        (line,) = terminal.getvalue().splitlines()
        assert json.loads(line) == {"\u202e": "\u001b[2J\u009b31m\u202egnp.exe\u2066", "list": ["\u009b"]}


@pytest.mark.parametrize(
    ("query", "problem"),
    [
        ("SELEC 1", "Syntax error at or near 'SELEC'"),
        ("SELECT", "Syntax error at or near end of input"),
        ("SELECT nonsense FROM transitions", "with name `nonsense` cannot be resolved"),
        ("SELECT * FROM nonsense", "`nonsense` cannot be found"),
        ("SELECT 1 / (vacant_seconds - vacant_seconds) FROM transitions", "Division by zero"),
        ("SELECT raise_error('one\ntwo') FROM transitions", "one"),
    ],
)
def test_a_question_that_cannot_be_answered_is_one_line(
    spark: SparkSession, log: str, query: str, problem: str, capfd: pytest.CaptureFixture[str]
) -> None:
    """Whether Spark notices at once or while it counts; nothing else is printed."""
    with pytest.raises(AuditError, match=r"^cannot run the query: \S.*") as failure:
        asked(spark, log, query, "table")
    assert problem in str(failure.value)
    assert "\n" not in str(failure.value)
    assert capfd.readouterr() == ("", "")


def test_two_columns_with_one_name_are_no_json_object(spark: SparkSession, log: str) -> None:
    """Rather than one of them, silently."""
    with pytest.raises(AuditError, match="two of its columns have one name; give one another with AS"):
        asked(spark, log, "SELECT 1 AS a, 2 AS a", "json")


def test_a_file_that_is_no_table_is_named(spark: SparkSession, log: str, tmp_path: Path) -> None:
    """Foreign files in the audit folder: the query fails in one line that names the file."""
    date = tmp_path / "transitions" / "event_date=2025-11-21"
    date.mkdir(parents=True)
    (date / "holiday.parquet").write_bytes(b"not Parquet")
    with pytest.raises(AuditError, match=r"cannot run the query: .*holiday\.parquet") as failure:
        asked(spark, str(tmp_path), "SELECT * FROM transitions", "json")
    assert "\n" not in str(failure.value)


@pytest.mark.parametrize("query", ["SELECT unobserved FROM transitions", "SELECT max(unobserved) FROM transitions"])
def test_a_file_with_a_column_of_another_type_is_named(
    spark: SparkSession, log: str, tmp_path: Path, query: str
) -> None:
    """Spark's own reason names the column, and the exception around it the file."""
    shutil.copytree(f"{log}/transitions", tmp_path / "transitions")
    file = min((tmp_path / "transitions").rglob("*.parquet"))
    rows = pq.read_table(file, partitioning=None)
    other = pa.array(["many"] * len(rows))
    pq.write_table(rows.set_column(rows.schema.get_field_index("unobserved"), "unobserved", other), file)
    with pytest.raises(AuditError, match=rf"^cannot run the query: .*\[unobserved\].*{file.name}\)$"):
        asked(spark, str(tmp_path), query, "json")


def test_what_is_interpreted_has_the_answer_of_what_is_compiled(
    spark: SparkSession, log: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As a small question and as a large one; these two use the other views."""

    def answers() -> list[str]:
        named = ("unobserved", "weekly_report")
        return [line for view in named for line in sorted(asked(spark, log, f"TABLE {view}", "json").splitlines())]

    interpreted = answers()
    monkeypatch.setattr(session, "_SMALL_BYTES", -1)
    assert interpreted == answers()
    assert len(interpreted) > 2


@pytest.mark.parametrize(
    ("query", "small"),
    [
        ("SELECT 1", True),
        ("SELECT * FROM failovers JOIN leadership USING (cluster_id)", True),
        ("SHOW TABLES", True),
        ("SELECT count(*) FROM range(10000000)", False),
        ("SELECT id FROM transitions UNION SELECT uuid() FROM range(10000000)", False),
    ],
)
def test_a_question_is_small_by_what_it_reads(spark: SparkSession, log: str, query: str, small: bool) -> None:
    """Not by what Spark supposes of its joins."""
    asking = spark.newSession()
    register_views(asking, log)
    before = asking.conf.get("spark.sql.shuffle.partitions")
    session.tune(asking, session.sizes_to_read(asking.sql(query)))
    assert asking.conf.get("spark.sql.shuffle.partitions") == ("1" if small else before)


def test_after_a_small_query_a_large_one_is_compiled_as_configured(spark: SparkSession) -> None:
    """One session serves both: `audit materialize` closes small and large dates."""
    asking = spark.newSession()
    names = ("spark.sql.adaptive.enabled", "spark.sql.shuffle.partitions", "spark.sql.codegen.wholeStage")
    configured = [asking.conf.get(name) for name in names]
    session.tune(asking, [1000, 2000])
    assert [asking.conf.get(name) for name in names] == ["false", "1", "false"]
    session.tune(asking, [600_000, 600_000])
    assert [asking.conf.get(name) for name in names] == configured
