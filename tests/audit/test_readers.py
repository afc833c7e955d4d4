"""docs/audit-readers.md: its examples run, and print what it says; in a bucket, other readers count right or fail."""

import re
import shutil
from pathlib import Path

import pyarrow as pa
import pyarrow.dataset
import pytest
from pyspark.sql import SparkSession

from sidecar.audit.ingest.ingest import ingest
from sidecar.audit.log.bucket.replacement import BARRIER
from tests import ROOT
from tests.audit.recorded import records
from tests.audit.spooling import seal

pytestmark = pytest.mark.spark

TEXT = (ROOT / "docs" / "audit-readers.md").read_text(encoding="utf-8")
EXAMPLES = re.findall(r"```python\n(.*?)```\n```\n(.*?)```", TEXT, re.DOTALL)
BUCKET = "s3://bucket/audit/transitions"


@pytest.fixture(scope="module")
def log(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The audit log of a sidecar that watched the recording of the cookbook."""
    folder = tmp_path_factory.mktemp("readers")
    seal(folder / "spool", "jm-0", 1, records("2.3.0"))
    ingest(spark, str(folder / "spool"), str(folder / "audit"))
    return folder / "audit"


@pytest.fixture
def in_bucket(log: Path, bucket: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The log in a bucket."""
    monkeypatch.setenv("AWS_REGION", "us-east-1")
    shutil.copytree(log, bucket / "audit")
    return bucket / "audit"


def test_every_example_has_its_output() -> None:
    """None is shown that is not run."""
    assert len(EXAMPLES) == TEXT.count("```python") == 4


@pytest.mark.parametrize(("example", "output"), EXAMPLES, ids=["duckdb", "nested", "pyarrow", "bucket"])
def test_an_example_prints_what_it_says(
    log: Path, in_bucket: Path, example: str, output: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """As it is written, with the audit log's path in its place."""
    exec(compile(example.replace("<audit>", str(log)), "example", "exec"), {})  # noqa: S102  our own document
    assert capsys.readouterr().out == output


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
