"""The folders of spool and audit log are whatever an operator has: fresh volumes, odd names."""

from collections.abc import Callable
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from sidecar.audit import AuditError
from sidecar.audit.ask.registration import views_script
from sidecar.audit.ask.sql import run_sql
from sidecar.audit.ingest.ingest import ingest
from sidecar.audit.log.storage import INGESTING, LOCK
from sidecar.audit.upkeep.compact import compact
from sidecar.audit.upkeep.materialize import materialize
from sidecar.audit.upkeep.retention import ExpireResult, expire
from sidecar.audit.upkeep.verify import verify
from tests.audit.conftest import YESTERDAY, Log
from tests.audit.spooling import ids, ids_seen, seal, transition

pytestmark = pytest.mark.spark

NAME = "0000000000000001-0000000000000001.jsonl.gz"


def appliance(folder: Path) -> None:
    """What ext4, a NetApp and a Synology make in a folder; of the last one also files named like those beside it."""
    (folder / "lost+found").mkdir(mode=0o700, parents=True)
    (folder / ".snapshot" / "hourly").mkdir(parents=True)
    (folder / "@eaDir" / NAME).mkdir(parents=True)
    (folder / "@eaDir" / f"{NAME}@SynoEAStream").write_bytes(b"not gzip")
    (folder / "@eaDir" / "broken.jsonl.gz").write_bytes(b"not gzip")


def test_a_fresh_volume_is_not_empty(spark: SparkSession, spool: Path, audit: Path) -> None:
    """Its own entries are no data: neither a foreign log, nor segments, nor findings."""
    records = [transition(n, YESTERDAY) for n in range(4)]
    seal(spool, "jm-0", 1, records[:2])
    seal(spool, "lost+found", 1, [transition(9)])
    for folder in (spool / "volume", spool / "jm-0", audit):
        appliance(folder)
    result = ingest(spark, str(spool), str(audit))
    assert (result.files, result.rows["transitions"], result.quarantined) == (1, 2, 0)
    seal(spool, "jm-1", 1, records)
    appliance(spool / "jm-1")
    assert ingest(spark, str(spool), str(audit)).rows["transitions"] == 2
    (day,) = (audit / "transitions").iterdir()
    (day.parent / "@eaDir").mkdir()
    (day / "@eaDir").mkdir()
    (day / "@eaDir" / "part-00000.parquet@SynoEAStream").write_bytes(b"not Parquet")
    assert [*run_sql(spark, str(audit), "SELECT count(*) FROM transitions").rows] == [[4]]
    assert verify(spark, str(audit)).findings == []
    assert compact(spark, str(audit)).unchanged == {}
    assert ids_seen(spark, audit, "transitions") == ids(records)


def test_a_folder_of_other_data_is_no_audit_log(spark: SparkSession, spool: Path, audit: Path) -> None:
    """Also on a volume; the error names what is not the volume's own."""
    appliance(audit)
    (audit / "photos").mkdir()
    with pytest.raises(AuditError, match=r"is not an audit log \(it contains photos, …\)"):
        ingest(spark, str(spool), str(audit))


def test_names_that_mean_something_in_a_pattern_work(spark: SparkSession, tmp_path: Path) -> None:
    """Everything from the ingest to the expiry of a log whose path is full of them: Spark takes what it reads for a pattern."""
    place = tmp_path / "a [prod]" / r"q{x,y} *?\ 50% #1, it's"
    spool, audit = place / "spool", place / "audit"
    records = [transition(n, YESTERDAY) for n in range(4)]
    seal(spool, "jm-0", 1, records[:3])
    assert ingest(spark, str(spool), str(audit)).rows["transitions"] == 3
    seal(spool, "jm-1", 1, records)
    assert ingest(spark, str(spool), str(audit)).rows["transitions"] == 1
    assert compact(spark, str(audit)).folders == 1
    materialize(spark, str(audit))
    answered = run_sql(
        spark, str(audit), "SELECT count(DISTINCT id), (SELECT count(*) FROM leader_changes) FROM transitions"
    )
    assert [row[0] for row in answered.rows] == [4]
    session = spark.newSession()
    for statement in views_script(spark, str(audit)).split(";\n")[:-1]:
        session.sql(statement)
    assert session.table("transitions").count() == 4
    assert verify(spark, str(audit)).findings == []
    assert expire(spark, str(audit), 400, spool=str(spool)) == ExpireResult(segments=0, folders=0, not_ingested=0)


@pytest.mark.parametrize(
    ("write", "do_what"),
    [
        (lambda spark, log: ingest(spark, str(log.spool), str(log.audit)), "ingest {spool} into {audit}"),
        (lambda spark, log: compact(spark, str(log.audit)), "compact {audit}"),
        (lambda spark, log: materialize(spark, str(log.audit)), "materialize the answers of {audit}"),
        (lambda spark, log: expire(spark, str(log.audit), 3), "expire old data in {audit}"),
    ],
)
def test_a_log_that_cannot_be_written_is_one_line(
    spark: SparkSession, log: Log, write: Callable[[SparkSession, Log], object], do_what: str
) -> None:
    """Whatever the command; nobody can make a file in /sys, root neither."""
    for lock in (LOCK, INGESTING):
        (log.audit / lock).unlink()
        (log.audit / lock).symlink_to("/sys/lock")
    with pytest.raises(AuditError) as failure:
        write(spark, log)
    lock = INGESTING if do_what.startswith("ingest") else LOCK
    said = f"cannot {do_what.format(spool=log.spool, audit=log.audit)}: Permission denied: {log.audit}/{lock}"
    assert str(failure.value) == said


@pytest.mark.parametrize(("spool", "audit"), [("m:1", "audit"), ("spool", "m:1"), ("spool", "logs/m:1/audit")])
def test_a_colon_is_refused_and_nothing_is_left_behind(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, spool: str, audit: str
) -> None:
    """Hadoop cannot read such paths, and would notice half-way. A spool that is missing leaves no audit log either."""
    monkeypatch.chdir(tmp_path)
    with pytest.raises(
        AuditError, match=r"^cannot use \S*m:1\S*: there is a colon in its path|there is no such folder$"
    ):
        ingest(spark, spool, audit)
    with pytest.raises(AuditError, match="there is a colon in its path"):
        ingest(spark, str(tmp_path), str(tmp_path / "m:1"))
    assert list(tmp_path.iterdir()) == []
