"""One Spark for all tests of the audit."""

import shutil
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import NamedTuple

import pytest
from pyspark.sql import SparkSession

from sidecar.audit.ask.registration import register_views
from sidecar.audit.ingest.ingest import ingest
from sidecar.audit.log.audit_log import audit_folder
from sidecar.audit.report.report_data import ReportFigures, find
from sidecar.audit.report.report_period import ReportRequest, find_period
from sidecar.audit.spark.spark_session import own_session, spark_session, tune
from tests.audit import quarter
from tests.audit.spooling import ids, seal, transition
from tests.kit.s3_server import S3Server, reach

YESTERDAY = datetime.now(UTC).replace(hour=12, minute=0, second=0, microsecond=0) - timedelta(days=1)


QuarterRead = Callable[[ReportRequest], ReportFigures]


class Log(NamedTuple):
    """An audit log, its spool, and the ids of its records."""

    spool: Path
    audit: Path
    ids: list[str]


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    """A session as the commands start it, with the connector for S3 if it was fetched."""
    with pytest.MonkeyPatch.context() as patch:
        for variable, value in reach("").items():
            if value:
                patch.setenv(variable, value)
        with spark_session("local[2]", {"spark.sql.shuffle.partitions": "2"}, object_store=True) as session:
            yield session


@pytest.fixture
def spool(tmp_path: Path) -> Path:
    """A spool that no observer has written to yet."""
    folder = tmp_path / "spool"
    folder.mkdir()
    return folder


@pytest.fixture
def audit(tmp_path: Path) -> Path:
    """Where an audit log will be."""
    return tmp_path / "audit"


@pytest.fixture(params=["few", "many"])
def batch(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Which of its two ways an ingest takes: that of few rows, or that of as many as there may be."""
    if request.param == "many":
        monkeypatch.setattr("sidecar.audit.ingest.ingest._FEW_BYTES", -1)
        monkeypatch.setattr("sidecar.audit.ingest.table_writer._FEW", -1)
    return str(request.param)


@pytest.fixture(scope="session")
def ingested(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Log:
    """Yesterday and the three days before, each with five records from each of four ingests."""
    folder = tmp_path_factory.mktemp("log")
    records = [transition(n, YESTERDAY - timedelta(days=n % 4, seconds=n)) for n in range(80)]
    for first in range(0, 80, 20):
        seal(folder / "spool", "jm-0", first + 1, records[first : first + 20])
        ingest(spark, str(folder / "spool"), str(folder / "audit"))
    return Log(folder / "spool", folder / "audit", ids(records))


@pytest.fixture
def log(ingested: Log, tmp_path: Path) -> Log:
    """A copy of that, for one test. Its checkpoint is that of another spool."""
    shutil.copytree(ingested.audit.parent, tmp_path, dirs_exist_ok=True)
    return Log(tmp_path / "spool", tmp_path / "audit", ingested.ids)


@pytest.fixture(scope="session")
def s3_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[S3Server]:
    """One for all tests of object stores."""
    server = S3Server(tmp_path_factory.mktemp("s3"))
    server.start()
    yield server
    server.kill()


@pytest.fixture
def bucket(s3_server: S3Server, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The objects of `s3://bucket`, none yet, as files; the environment says how to reach it."""
    shutil.rmtree(s3_server.bucket)
    s3_server.bucket.mkdir()
    for variable, value in reach(s3_server.url).items():
        monkeypatch.setenv(variable, value)
    return s3_server.bucket


def reach_anew(spark: SparkSession) -> None:
    """Have Hadoop forget how it reached an object store: another server may have its name now."""
    spark.sparkContext._jvm.org.apache.hadoop.fs.FileSystem.closeAll()  # type: ignore[union-attr]  # Hadoop's has no Python API


@pytest.fixture(scope="session")
def quarter_log(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The audit log of `quarter`."""
    folder = tmp_path_factory.mktemp("quarter")
    seal(folder / "spool", "jm-0", 1, quarter.records())
    ingest(spark, str(folder / "spool"), str(folder / "audit"))
    return folder / "audit"


@pytest.fixture(scope="session")
def quarter_session(spark: SparkSession, quarter_log: Path) -> SparkSession:
    """A session in which it is open, and leadership is computed only once."""
    session = own_session(spark)
    tune(session, ())
    # Its plans are read, and conditions are cut off after 100 characters.
    session.conf.set("spark.sql.maxMetadataStringLength", "1000")
    register_views(session, str(quarter_log))
    for view in ("leadership", "sight"):
        session.catalog.cacheTable(view)
    return session


@pytest.fixture(scope="session")
def quarter_read(quarter_session: SparkSession, quarter_log: Path) -> QuarterRead:
    """The report's figures of a period of it."""
    folder = audit_folder(quarter_session, str(quarter_log), "read")
    return lambda wanted: find(quarter_session, find_period(quarter_session, folder, wanted))


@pytest.fixture(scope="session")
def quarter_found(quarter_read: QuarterRead) -> ReportFigures:
    """The report's figures of all of it."""
    return quarter_read(ReportRequest())
