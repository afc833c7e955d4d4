"""What an object store refuses, or what Spark lacks to read it, is one line; and a sound file is never called damaged for it."""

import os
import shutil
import subprocess
import sys
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pyspark
import pytest
from pyspark.sql import SparkSession

from sidecar.audit import AuditError
from sidecar.audit.ask.sql import run_sql
from sidecar.audit.ingest.ingest import ingest
from sidecar.audit.spark.spark_session import connector_jars
from sidecar.audit.upkeep.compact import compact
from sidecar.audit.upkeep.verify import VerifyResult, verify
from tests.audit.conftest import Log, reach_anew
from tests.audit.spooling import seal, transition
from tests.kit.s3_server import BUSY, Line, S3Server

pytestmark = pytest.mark.spark

SPOOL, AUDIT = "s3://bucket/spool", "s3://bucket/audit"
COUNT = "SELECT count(DISTINCT id) FROM transitions"
REFUSED = (403, "AccessDenied")
NO_ACCESS = "the credentials are refused, or do not allow to list, get and put objects (AccessDenied)"
TO_SPARK = "the object store refuses the credentials, or they do not allow to get objects"
SKEWED = "the clock of this machine differs too much from that of the store (RequestTimeTooSkewed)"
GONE = "a file was replaced by a compaction, or expired, while it was read; run it again"

HADOOP = next(Path(pyspark.__file__).parent.glob("jars/hadoop-client-api-*.jar")).stem.rpartition("-")[2]

Command = Callable[[SparkSession], object]
COMMANDS: dict[str, Command] = {
    "ingest": lambda spark: ingest(spark, SPOOL, AUDIT),
    "sql": lambda spark: [*run_sql(spark, AUDIT, COUNT).rows],
    "compact": lambda spark: compact(spark, AUDIT),
    "verify": lambda spark: verify(spark, AUDIT),
}
FAILS_TO = {
    "ingest": f"cannot ingest {SPOOL} into {AUDIT}",
    "sql": f"cannot open the audit log {AUDIT}",
    "compact": f"cannot compact {AUDIT}",
    "verify": f"cannot verify {AUDIT}",
}


def is_listing(request: str) -> bool:
    """Of a bucket."""
    return request.startswith("GET ") and "list-type=" in request


def is_read_of_rows(request: str) -> bool:
    """Of a Parquet file."""
    return request.startswith(("GET ", "HEAD ")) and ".parquet" in request


@pytest.fixture
def line(
    spark: SparkSession, s3_server: S3Server, bucket: Path, log: Log, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Line]:
    """Between all clients and the server; the log has files to compact, and the spool a segment that is not ingested."""
    shutil.copytree(log.audit, bucket / "audit", ignore=shutil.ignore_patterns("_*"))
    seal(bucket / "spool", "jm-0", 101, [transition(n) for n in range(101, 111)])
    with Line(s3_server) as line:
        monkeypatch.setenv("AWS_ENDPOINT_URL", line.url)
        reach_anew(spark)
        yield line
    reach_anew(spark)


@pytest.mark.parametrize("command", COMMANDS)
@pytest.mark.parametrize(
    ("refused", "answer", "reason"),
    [
        (is_listing, REFUSED, NO_ACCESS),
        (lambda _: True, (403, "RequestTimeTooSkewed"), SKEWED),
        (
            lambda _: True,
            (400, "AuthorizationHeaderMalformed"),
            "it is in another region: set AWS_REGION (AuthorizationHeaderMalformed)",
        ),
        (lambda _: True, BUSY, "the answer was 503 (SlowDown)"),
    ],
    ids=["no permission to list", "a wrong clock", "another region", "too busy"],
)
def test_a_store_that_refuses_all_is_one_line(
    spark: SparkSession, line: Line, command: str, refused: Callable[[str], bool], answer: tuple[int, str], reason: str
) -> None:
    """Whatever is asked of it."""
    line.refusal = lambda request: answer if refused(request) else None
    with pytest.raises(AuditError) as error:
        COMMANDS[command](spark)
    assert str(error.value) == f"{FAILS_TO[command]}: {reason}"


@pytest.mark.parametrize(
    ("verb", "command", "reason"),
    [
        ("PUT", "ingest", f"{FAILS_TO['ingest']}: {NO_ACCESS}"),
        ("PUT", "compact", f"{FAILS_TO['compact']}: {NO_ACCESS}"),
        ("DELETE", "compact", f"{FAILS_TO['compact']}: {NO_ACCESS}"),
    ],
)
def test_without_a_permission_a_writer_is_one_line(
    spark: SparkSession, line: Line, verb: str, command: str, reason: str
) -> None:
    """And nothing is wrong in the log: with the permission, the command completes what it began."""
    line.refusal = lambda request: REFUSED if request.startswith(f"{verb} ") else None
    with pytest.raises(AuditError) as error:
        COMMANDS[command](spark)
    assert str(error.value) == reason
    line.refusal = lambda _: None
    ingest(spark, SPOOL, AUDIT)
    compact(spark, AUDIT)
    assert [*run_sql(spark, AUDIT, COUNT).rows] == [[90]]
    assert verify(spark, AUDIT).findings == []


def test_an_ingest_needs_no_permission_to_delete(spark: SparkSession, line: Line) -> None:
    """Least privilege: the CronJob's first step adds only."""
    line.refusal = lambda request: REFUSED if request.startswith("DELETE ") else None
    assert ingest(spark, SPOOL, AUDIT).rows["transitions"] == 10


@pytest.mark.parametrize(
    ("answer", "reason"),
    [(REFUSED, TO_SPARK), ((404, "NoSuchKey"), GONE)],
    ids=["no permission to get", "an object that vanishes"],
)
def test_rows_that_spark_does_not_get_are_one_line(
    spark: SparkSession, line: Line, answer: tuple[int, str], reason: str
) -> None:
    """They are asked for by Hadoop's connector."""
    line.refusal = lambda request: answer if is_read_of_rows(request) else None
    for command in ("sql", "ingest"):
        with pytest.raises(AuditError) as error:
            COMMANDS[command](spark)
        assert str(error.value).endswith(f": {reason}")


def test_what_the_store_does_not_give_is_no_damage(spark: SparkSession, line: Line) -> None:
    """`verify` ends with an error, not with a finding against a sound file."""
    line.refusal = lambda request: REFUSED if is_read_of_rows(request) else None
    with pytest.raises(AuditError) as error:
        verify(spark, AUDIT)
    assert str(error.value) == f"{FAILS_TO['verify']}: {TO_SPARK}"


def test_a_segment_that_the_store_does_not_give_is_not_quarantined(spark: SparkSession, line: Line) -> None:
    """It is ingested later."""
    line.refusal = lambda request: REFUSED if request.startswith("GET ") and ".jsonl.gz" in request else None
    with pytest.raises(AuditError, match=r"AccessDenied\)$"):
        ingest(spark, SPOOL, AUDIT)
    line.refusal = lambda _: None
    assert ingest(spark, SPOOL, AUDIT).quarantined == 0
    assert [*run_sql(spark, AUDIT, COUNT).rows] == [[90]]


def test_both_names_of_a_bucket_are_one_log(spark: SparkSession, line: Line) -> None:
    """`s3a://` is another name of `s3://`: for what was ingested, for the lock, and in messages."""
    again = ingest(spark, "s3a://bucket/spool", "s3a://bucket/audit")
    assert (again.files, again.rows["transitions"]) == (1, 10)
    assert ingest(spark, SPOOL, AUDIT).files == 0
    assert verify(spark, "s3a://bucket/audit") == VerifyResult(files=17, rows=90, findings=[])


def audit_sql(audit: str, jars: Path, *options: str) -> str:
    """What `audit sql` says of that log with these jars, on standard error."""
    done = subprocess.run(
        [sys.executable, "-m", "sidecar", "audit", "sql", "--audit", audit, COUNT, *options],
        env=os.environ | {"FLINK_HA_SIDECAR_AUDIT_JARS": str(jars)},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        timeout=200,
        check=False,
    )
    assert done.returncode == 1
    return done.stderr.removeprefix("flink-ha-sidecar: ").removesuffix("\n")


def test_jars_that_are_missing_wrong_or_incomplete_are_one_line(bucket: Path, tmp_path: Path) -> None:
    """With what to do about it."""
    (connector,) = (jar for jar in connector_jars() if jar.name.startswith("hadoop-aws-"))
    none, alone, other = (tmp_path / name for name in ("none", "alone", "other"))
    for folder in (none, alone, other):
        folder.mkdir()
    shutil.copy(connector, alone)
    with zipfile.ZipFile(connector) as jar, zipfile.ZipFile(other / "hadoop-aws.jar", "w") as copy:
        for name in jar.namelist():
            copy.writestr(name, jar.read(name) if not name.endswith("pom.properties") else "version=3.3.6\n")
    assert (
        audit_sql(AUDIT, none)
        == f"cannot start Spark: FLINK_HA_SIDECAR_AUDIT_JARS names {none}, where there are no jars"
    )
    assert audit_sql(AUDIT, other).startswith(
        f"cannot read {AUDIT}: Spark has Hadoop {HADOOP}, and its connector for S3 is hadoop-aws 3.3.6; the audit image has it; "
    )
    assert audit_sql(AUDIT, alone).startswith(
        f"cannot read {AUDIT}: the jars with which Spark reads such URLs are not there, or not "
    )


@pytest.mark.parametrize("scheme", ["gs", "abfss"])
def test_a_store_that_spark_cannot_read_is_one_line(spark: SparkSession, scheme: str) -> None:
    """PySpark has no connector for it, and the user has given none."""
    url = f"{scheme}://container@account/audit" if scheme != "gs" else "gs://bucket/audit"
    with pytest.raises(AuditError) as error:
        [*run_sql(spark, url, COUNT).rows]
    assert str(error.value).startswith(
        f"cannot read {url}: the jars with which Spark reads such URLs are not there, or not complete (Cl"
    )
