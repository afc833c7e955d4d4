"""An ingest reads a segment once, however many there were before."""

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from sidecar.audit.ingest.spool_listing import SegmentLog, listing
from sidecar.audit.log.audit_log import open_storage
from sidecar.audit.log.storage import Storage
from tests.audit.spooling import seal

pytestmark = pytest.mark.spark

FOLDER = "_checkpoints/segments"


def test_what_was_added_is_known_later_in_few_files(spark: SparkSession, audit: Path) -> None:
    """One that follows for months adds a few with each batch, and starts with all of them."""
    storage = _audit_log(spark, audit)
    log = SegmentLog(storage, FOLDER)
    for number in range(120):
        log.add([f"jm-0/{number}"])
    again = SegmentLog(storage, FOLDER)
    assert again.paths == log.paths == {f"jm-0/{number}" for number in range(120)}
    assert len(storage.names(FOLDER)) < 60


def test_deleted_segments_are_forgotten(spark: SparkSession, audit: Path) -> None:
    """Once they are many: the log is as large as the spool, not as old as it."""
    log = SegmentLog(_audit_log(spark, audit), FOLDER)
    log.add([f"jm-0/{number}" for number in range(2000)])
    existing = {f"jm-0/{number}" for number in range(400)}
    assert not log.is_outdated(log.paths)
    assert log.is_outdated(existing)
    log.keep(existing)
    assert SegmentLog(_audit_log(spark, audit), FOLDER).paths == existing


def test_a_listing_names_only_what_is_new(spark: SparkSession, spool: Path) -> None:
    """In the order in which it was written; and what exists of that which is known."""
    old, new = (seal(spool, "jm-0", number, lines=[b"{}"]) for number in (1, 2))
    newest = seal(spool, "jm-1", 1, lines=[b"{}"])
    (spool / "jm-2").mkdir()
    old_path, new_path, newest_path = (segment.relative_to(spool).as_posix() for segment in (old, new, newest))
    storage = open_storage(spark, str(spool))
    found = listing(storage, frozenset({old_path, "jm-9/gone"}))
    assert ([segment.key for segment in found.segments], found.ingested) == ([new_path, newest_path], {old_path})
    everything = {path.relative_to(spool).as_posix() for path in spool.rglob("*.gz")}
    assert [*listing(storage, everything).segments] == []


def _audit_log(spark: SparkSession, audit: Path) -> Storage:
    (audit / "_staging").mkdir(parents=True, exist_ok=True)
    return open_storage(spark, str(audit))
