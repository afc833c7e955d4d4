"""One number of days for segments and rows; and nothing goes that is nowhere else."""

import os
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from sidecar.audit import AuditError
from sidecar.audit.ingest.ingest import ingest
from sidecar.audit.upkeep.retention import ExpireResult, expire
from tests.audit.conftest import YESTERDAY, Log
from tests.audit.spooling import ids, ids_seen, seal, transition

pytestmark = pytest.mark.spark

OLD = (datetime.now(UTC) - timedelta(days=3)).timestamp()


def age(path: Path) -> Path:
    """Make a file three days old."""
    os.utime(path, (OLD, OLD))
    return path


def test_what_is_too_old_goes(spark: SparkSession, log: Log) -> None:
    """Dates before today minus the days, of every table; segments that were sealed then."""
    segments = sorted((log.spool / "jm-0").iterdir())
    for segment in segments[:3]:
        age(segment)
    assert expire(spark, str(log.audit), 400, spool=str(log.spool)) == ExpireResult(
        segments=0, folders=0, not_ingested=0
    )
    assert expire(spark, str(log.audit), 2, spool=str(log.spool)) == ExpireResult(segments=3, folders=2, not_ingested=0)
    assert sorted((log.spool / "jm-0").iterdir()) == segments[3:]
    kept = [transition(n) for n in range(80) if n % 4 < 2]
    assert ids_seen(spark, log.audit, "transitions") == ids(kept)
    assert [*(log.audit / "_replaced").iterdir()] == []


def test_a_segment_that_was_not_ingested_stays(spark: SparkSession, log: Log) -> None:
    """Whatever the checkpoint: each record and each bad line of a segment must be in the log, or the segment stays."""
    for segment in (log.spool / "jm-0").iterdir():
        age(segment)
    half = age(seal(log.spool, "jm-1", 1, [transition(1), transition(1000, YESTERDAY)]))
    garbage = age(seal(log.spool, "jm-1", 3, [transition(2)], lines=[b"garbage"]))
    torn = age(seal(log.spool, "jm-1", 5, [transition(n) for n in range(80)]))
    torn.write_bytes(torn.read_bytes()[:-20])
    age(torn)
    too_old = age(seal(log.spool, "jm-1", 100, [transition(2000, YESTERDAY - timedelta(days=9))]))
    unfinished = log.spool / "jm-1" / ".0000000000000101-0000000000000101.jsonl.gz.tmp"
    unfinished.write_bytes(b"")
    age(unfinished)
    assert expire(spark, str(log.audit), 2, spool=str(log.spool)) == ExpireResult(segments=5, folders=2, not_ingested=3)
    assert sorted((log.spool / "jm-1").iterdir()) == sorted([half, garbage, torn, unfinished])
    assert not too_old.exists()


def test_what_went_does_not_come_back(spark: SparkSession, log: Log) -> None:
    """Its segments are deleted; a late record of such a date is ingested, and deleted by the next retention."""
    for segment in (log.spool / "jm-0").iterdir():
        age(segment)
    expire(spark, str(log.audit), 1, spool=str(log.spool))
    late = transition(2, YESTERDAY - timedelta(days=2))
    seal(log.spool, "jm-1", 1, [late])
    assert ingest(spark, str(log.spool), str(log.audit)).rows["transitions"] == 1
    yesterdays = [transition(n) for n in range(0, 80, 4)]
    assert ids_seen(spark, log.audit, "transitions") == ids([*yesterdays, late])
    assert expire(spark, str(log.audit), 1, spool=str(log.spool)).folders == 1
    assert ids_seen(spark, log.audit, "transitions") == ids(yesterdays)


def test_wrong_folders_are_one_clear_line(spark: SparkSession, log: Log, tmp_path: Path) -> None:
    """A log or a spool that is not there: nothing is deleted."""
    for arguments, spool in ((str(tmp_path / "nowhere"), None), (str(log.audit), str(tmp_path / "nowhere"))):
        with pytest.raises(AuditError, match=r"^cannot expire [^\n]*/nowhere: there is no such folder$"):
            expire(spark, arguments, 1, spool=spool)
    assert ids_seen(spark, log.audit, "transitions") == log.ids
