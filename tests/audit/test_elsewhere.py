"""An audit log and a spool that are not on a local file system: what Hadoop reaches by another scheme, as HDFS and object stores are.

Hadoop's view file system is the one of them that needs no server. Behind it are files of this machine, so that other readers can be asked.
"""

import shutil
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from sidecar.audit import AuditError
from sidecar.audit.ask.sql import run_sql
from sidecar.audit.ingest.ingest import ingest
from sidecar.audit.upkeep.compact import compact
from sidecar.audit.upkeep.retention import ExpireResult, expire
from sidecar.audit.upkeep.verify import verify
from tests.audit.conftest import Log
from tests.audit.spooling import ids, ids_seen, seal, transition
from tests.audit.test_retention import age

pytestmark = pytest.mark.spark


@pytest.fixture
def elsewhere(spark: SparkSession, tmp_path: Path) -> str:
    """The URL of the test's folder, by another scheme."""
    store = tmp_path.name.replace("_", "-")
    hadoop = spark.sparkContext._jsc.hadoopConfiguration()  # white-box: Hadoop's settings have no Python API
    hadoop.set(f"fs.viewfs.mounttable.{store}.link./bucket", tmp_path.as_uri())
    return f"viewfs://{store}/bucket"


def test_each_record_is_there_once(spark: SparkSession, elsewhere: str, spool: Path, audit: Path) -> None:
    """After a lost checkpoint, a second observer and a damaged segment: as in a local folder."""
    records = [transition(n) for n in range(20)]
    seal(spool, "jm-0", 1, records[:10])
    assert ingest(spark, f"{elsewhere}/spool", f"{elsewhere}/audit").rows["transitions"] == 10
    shutil.rmtree(audit / "_checkpoints")
    seal(spool, "jm-1", 1, records[5:])
    torn = seal(spool, "jm-2", 1, records)
    torn.write_bytes(torn.read_bytes()[:40])
    again = ingest(spark, f"{elsewhere}/spool", f"{elsewhere}/audit")
    assert (again.files, again.rows["transitions"], again.quarantined) == (3, 10, 1)
    seal(spool, "jm-1", 2, records[5:])
    assert ingest(spark, f"{elsewhere}/spool", f"{elsewhere}/audit").files == 1
    assert ids_seen(spark, audit, "transitions") == ids(records)
    count = run_sql(spark, f"{elsewhere}/audit", "SELECT count(*), count(DISTINCT id) FROM transitions")
    assert [*count.rows] == [[20, 20]]
    assert verify(spark, f"{elsewhere}/audit").findings == []


def test_what_is_too_old_goes_there_too(spark: SparkSession, elsewhere: str, log: Log) -> None:
    """Segments and dates; compaction, which needs files that can be swapped, is refused and changes nothing."""
    segment = age(log.spool / "jm-0" / f"{1:016d}-{20:016d}.jsonl.gz")
    expired = expire(spark, f"{elsewhere}/audit", 2, spool=f"{elsewhere}/spool")
    assert expired == ExpireResult(segments=1, dates=2, not_ingested=0)
    assert not segment.exists()
    with pytest.raises(AuditError, match=r"^cannot compact viewfs://[^ ]*/bucket/audit: files can be replaced"):
        compact(spark, f"{elsewhere}/audit")
    assert ids_seen(spark, log.audit, "transitions") == ids([transition(n) for n in range(80) if n % 4 < 2])
    assert verify(spark, f"{elsewhere}/audit").findings == []
