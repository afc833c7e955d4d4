"""The other readers of docs/how-to/audit-cookbook.md: its examples run and print what it says; in a bucket, readers count right or fail."""

import json
import re
import shutil
from datetime import date
from pathlib import Path

import pyarrow as pa
import pyarrow.dataset
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession
from pyspark.sql.types import StringType, StructField, StructType

from sidecar.audit.ingest.ingest import ingest
from sidecar.audit.log.closed_tables import CLOSED_TABLES
from sidecar.audit.log.replacement import BARRIER
from sidecar.audit.log.tables import BASE_VIEWS, EVENT_DATE, EVENT_MONTH, partition_column, with_event_date
from sidecar.audit.upkeep.materialize import materialize
from tests import ROOT
from tests.audit.conftest import reach_anew
from tests.audit.recorded import records
from tests.audit.spooling import seal
from tests.kit.audit_schema import TABLES, tables

pytestmark = pytest.mark.spark

TEXT = (ROOT / "docs" / "how-to" / "audit-cookbook.md").read_text(encoding="utf-8")
EXAMPLES = re.findall(r"```python\n(.*?)```\n```\n(.*?)```", TEXT, re.DOTALL)
NAMES = [
    *("duckdb", "nested", "bucket of duckdb", "materialized", "pyarrow", "versions", "bucket of pyarrow", "spark"),
    "bucket of spark",
]
LOGGED = {**BASE_VIEWS, **CLOSED_TABLES}
BUCKET = "s3://bucket/audit/transitions"


@pytest.fixture(scope="module")
def log(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The audit log of a sidecar that watched the recording of the cookbook."""
    folder = tmp_path_factory.mktemp("readers")
    seal(folder / "spool", "jm-0", 1, records("2.3.0"))
    ingest(spark, str(folder / "spool"), str(folder / "audit"))
    materialize(spark, str(folder / "audit"))
    return folder / "audit"


@pytest.fixture(scope="module")
def older(log: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The same log with a folder before, which a version wrote that had fewer columns."""
    folder = tmp_path_factory.mktemp("older") / "audit"
    shutil.copytree(log, folder)
    for table, old in (("transitions", "event_date=2026-10-31"), ("episodes", "event_month=2026-10")):
        (file,) = (folder / table).rglob("*.parquet")
        before = folder / table / old / "older.parquet"
        before.parent.mkdir()
        rows = pq.ParquetFile(file).read().drop_columns(["contenders" if table == "transitions" else "planned"])
        if "event_date" in rows.column_names:
            dates = pa.array([date(2026, 10, 31)] * len(rows))
            rows = rows.set_column(rows.schema.get_field_index("event_date"), "event_date", dates)
        pq.write_table(rows, before)
    return folder


@pytest.fixture
def in_bucket(log: Path, bucket: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The log in a bucket."""
    monkeypatch.setenv("AWS_REGION", "us-east-1")
    shutil.copytree(log, bucket / "audit")
    return bucket / "audit"


def test_every_example_has_its_output() -> None:
    """None is shown that is not run."""
    assert len(EXAMPLES) == TEXT.count("```python") == len(NAMES)


@pytest.mark.parametrize(("example", "output"), EXAMPLES, ids=NAMES)
def test_an_example_prints_what_it_says(
    log: Path, example: str, output: str, request: pytest.FixtureRequest, capsys: pytest.CaptureFixture[str]
) -> None:
    """As it is written, with the audit log's path in its place."""
    if "s3://" in example:
        request.getfixturevalue("in_bucket")
        reach_anew(request.getfixturevalue("spark"))
    exec(compile(example.replace("<audit>", str(log)), "example", "exec"), {})  # noqa: S102  our own document
    assert capsys.readouterr().out == output


@pytest.mark.parametrize(
    ("example", "output"),
    [both for both in EXAMPLES if "s3://" not in both[0]],
    ids=[name for name in NAMES if "bucket" not in name],
)
def test_an_example_prints_the_same_over_two_versions(
    older: Path, example: str, output: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """Newer columns are there: the older file is not what decides."""
    exec(compile(example.replace("<audit>", str(older)), "example", "exec"), {})  # noqa: S102  our own document
    assert capsys.readouterr().out == output


def test_no_example_is_indented() -> None:
    """Only commands are: what is Python or SQL stands in a block that is run."""
    assert (
        re.findall(
            r"^    (?=\S)(?!audit|flink-ha-sidecar|spark-s|beeline|pip )(.*)$",
            re.sub(r"```.*?```", "", TEXT, flags=re.DOTALL),
            re.MULTILINE,
        )
        == []
    )


def test_the_tables_of_athena_are_those_of_the_log(spark: SparkSession) -> None:
    """Made from the code, and Spark's parser, which knows Hive's DDL, makes of each statement the table with these columns."""
    statements = [*tables()]
    assert TABLES.read_text(encoding="utf-8") == "".join(f"{statement};\n\n" for statement in statements)
    parser = spark._jsparkSession.sessionState().sqlParser()  # plans have no Python API
    plans = {name: parser.parsePlan(text) for name, text in zip(["", *LOGGED], statements, strict=True)}
    assert plans.pop("").nodeName() == "CreateNamespace"
    for name, plan in plans.items():
        assert (plan.nodeName(), plan.tableSpec().external()) == ("CreateTable", True)
        made = StructType.fromJson(json.loads(plan.tableSchema().json()))
        month = [] if partition_column(name) == EVENT_DATE else [StructField(EVENT_MONTH, StringType())]
        assert made.simpleString() == StructType([*with_event_date(LOGGED[name]), *month]).simpleString()


def test_a_reader_of_a_bucket_fails_at_what_is_not_there(in_bucket: Path) -> None:
    """At a barrier, and at a file that was deleted after it was listed: what the order of a replacement rests on."""
    before = pyarrow.dataset.dataset(BUCKET, partitioning="hive")
    file = next((in_bucket / "transitions").rglob("*.parquet"))
    barrier = file.with_name(f"{BARRIER}1.parquet")
    barrier.write_bytes(b'{"old": [], "new": {}}')
    with pytest.raises(pa.ArrowInvalid):
        pyarrow.dataset.dataset(BUCKET, partitioning="hive").count_rows()
    barrier.unlink()
    file.unlink()
    with pytest.raises(OSError, match=r"AWS Error (RESOURCE_NOT_FOUND|NO_SUCH_KEY)"):
        before.count_rows()
