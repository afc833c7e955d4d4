"""Whatever a spool contains, its good records are ingested, and the quarantine lists the rest."""

import errno
import gzip
import os
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Never

import pytest
from pyspark.sql import SparkSession

from sidecar.audit import AuditError
from sidecar.audit.ingest import inspection
from sidecar.audit.ingest.ingest import IngestResult, ingest
from sidecar.audit.ingest.inspection import Inspection, inspect
from sidecar.audit.ingest.spool_listing import SUFFIX
from sidecar.audit.upkeep.retention import expire
from sidecar.audit.upkeep.verify import verify
from tests.audit.conftest import Log
from tests.audit.spooling import ids, ids_seen, line, seal, transition
from tests.audit.test_retention import age

pytestmark = pytest.mark.spark

NAME = "0000000000000001-0000000000000001.jsonl.gz"
LONG = 50_000_000
BOMB = 1_000_000_000

Found = list[tuple[str, str | None, str]]
Pill = Callable[[Path], Found]
"""Puts something into a spool, and returns what the quarantine shows of it: file, the first characters of the line, reason."""


def dangling_link(spool: Path) -> Found:
    """To a disk that is not mounted."""
    (spool / "link").mkdir()
    (spool / "link" / NAME).symlink_to("nowhere")
    return [(f"link/{NAME}", None, "unreadable segment: No such file or directory")]


def link_to_itself(spool: Path) -> Found:
    """What cannot be opened, not even by root."""
    (spool / "loop").mkdir()
    (spool / "loop" / NAME).symlink_to(NAME)
    return [(f"loop/{NAME}", None, "unreadable segment: Too many levels of symbolic links")]


def folder_in_a_circle(spool: Path) -> Found:
    """A link to the folder above, beside a good segment."""
    seal(spool, "circle", 1, [transition(1)])
    (spool / "circle" / "up").symlink_to("..")
    return [("circle/up", None, "unreadable folder: it is a link to a folder above itself")]


def folder_instead_of_a_segment(spool: Path) -> Found:
    """Named like one."""
    (spool / "folder" / NAME).mkdir(parents=True)
    return [(f"folder/{NAME}", None, "unreadable segment: it is a folder")]


def pipe_instead_of_a_segment(spool: Path) -> Found:
    """Whoever opens it waits for ever."""
    (spool / "pipe").mkdir()
    os.mkfifo(spool / "pipe" / NAME)
    return [(f"pipe/{NAME}", None, "unreadable segment: it is no file")]


def colons(spool: Path) -> Found:
    """Hadoop takes what stands before one for the scheme of a URL."""
    seal(spool, "a:b", 1, [transition(2)])
    seal(spool, "colon", 1, [transition(2)]).rename(spool / "colon" / f"a:{NAME}")
    reason = "there is a colon in its name, which Hadoop cannot read: rename it"
    return [("a:b", None, f"unreadable folder: {reason}"), (f"colon/a:{NAME}", None, f"unreadable segment: {reason}")]


def name_that_is_no_text(spool: Path) -> Found:
    """Bytes that are not UTF-8."""
    (spool / os.fsdecode(b"\xff")).mkdir()
    return [("\\xff", None, "unreadable folder: its name is not UTF-8: rename it")]


def long_line(spool: Path) -> Found:
    """Fifty megabytes without an end, between two good lines."""
    seal(spool, "long", 1, [transition(3)], lines=[b"x" * LONG, line(transition(4))])
    return [
        (f"long/{1:016d}-{3:016d}.jsonl.gz", "x" * 10, f"the line has {LONG:,} bytes, which is more than 4,194,304")
    ]


def bomb(spool: Path) -> Found:
    """A gigabyte of short lines in three megabytes."""
    (spool / "bomb").mkdir()
    (spool / "bomb" / NAME).write_bytes(gzip.compress(b"{}\n" * (BOMB // 3 // 64)) * 64)
    return [(f"bomb/{NAME}", None, "oversized segment: more than 64 MiB, and more than 100 times its own size")]


def two_members(spool: Path) -> Found:
    """A good segment that is made of two packed files; and one with something else behind its end."""
    whole = gzip.compress(line(transition(5)) + b"\n") + gzip.compress(line(transition(6)) + b"\n")
    (spool / "members").mkdir()
    (spool / "members" / NAME).write_bytes(whole)
    (spool / "members" / f"9{NAME}").write_bytes(whole + b"something else")
    return [(f"members/9{NAME}", None, "damaged segment: ")]


def from_the_future(spool: Path) -> Found:
    """A clock that is years ahead would otherwise be the end of what is known."""
    now = datetime.now(UTC)
    ahead = line(transition(8, now + timedelta(days=2)))
    seal(spool, "future", 1, [transition(7, now + timedelta(hours=20))], lines=[ahead])
    return [(f"future/{1:016d}-{2:016d}.jsonl.gz", ahead.decode()[:10], "dated more than a day ahead")]


def nested(spool: Path) -> Found:
    """An unknown field, with lists in lists in lists."""
    fields = line(transition(9))
    seal(spool, "nested", 1, lines=[fields[:-1] + b',"deep":' + b"[" * 5000 + b"]" * 5000 + b"}"])
    return [(f"nested/{1:016d}-{1:016d}.jsonl.gz", fields.decode()[:10], "not one JSON object")]


PILLS: list[Pill] = [
    dangling_link,
    link_to_itself,
    folder_in_a_circle,
    folder_instead_of_a_segment,
    pipe_instead_of_a_segment,
    colons,
    name_that_is_no_text,
    long_line,
    bomb,
    two_members,
    from_the_future,
    nested,
]
TAKEN = [1, 3, 4, 5, 6, 7]
"""The records beside the pills."""


def test_no_file_and_no_line_stops_an_ingest(spark: SparkSession, spool: Path, audit: Path) -> None:
    """All of them at once: every good record is in the log, every pill in the quarantine, each once, however often it is ingested."""
    good = [transition(n) for n in range(100, 500)]
    seal(spool, "jm-0", 1, good)
    expected = [row for pill in PILLS for row in pill(spool)]
    result = ingest(spark, str(spool), str(audit))
    assert ids_seen(spark, audit, "transitions") == ids([*good, *(transition(n) for n in TAKEN)])
    assert result.quarantined == len(expected)
    assert_quarantined(spark, audit, expected)
    assert ingest(spark, str(spool), str(audit)) == IngestResult(
        rows=dict.fromkeys(result.rows, 0), quarantined=0, files=0
    )


def test_a_segment_may_vanish_at_any_moment(
    spark: SparkSession, spool: Path, audit: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After it was listed, or, if it is large, after it was looked through: the others of its batch are taken in, and the quarantine names
    it. Of a small one everything is known once it was looked through.
    """
    seal(spool, "jm-0", 1, [transition(1)])
    small = seal(spool, "jm-1", 4, [transition(4)])
    vanishing = [
        seal(spool, "jm-1", 3, [transition(3, reason="x" * (2 << 20))]),
        seal(spool, "jm-1", 2, [transition(2)]),
    ]
    waiting = [small, *vanishing]

    def inspected(*arguments: Any, **options: Any) -> dict[str, Inspection]:
        if waiting:
            waiting.pop().unlink()
        inspection = inspect(*arguments, **options)
        while waiting:
            waiting.pop().unlink()
        return inspection

    monkeypatch.setattr("sidecar.audit.ingest.inspection.inspect", inspected)
    ingest(spark, str(spool), str(audit))
    assert ids_seen(spark, audit, "transitions") == ids([transition(1), transition(4)])
    gone = "unreadable segment: No such file or directory"
    assert_quarantined(spark, audit, [(str(segment.relative_to(spool)), None, gone) for segment in vanishing])


def test_a_segment_of_which_nothing_was_taken_in_is_not_deleted(spark: SparkSession, log: Log) -> None:
    """However old it is; one with a line that is too long may go, since the quarantine has that line."""
    bomb(log.spool)
    colons(log.spool)
    seal(log.spool, "jm-1", 1, lines=[b"x" * (5 << 20)])
    ingest(spark, str(log.spool), str(log.audit))
    for segment in log.spool.rglob(f"*{SUFFIX}"):
        age(segment)
    expired = expire(spark, str(log.audit), 2, spool=str(log.spool))
    assert (expired.segments, expired.not_ingested) == (5, 3)
    assert {segment.parent.name for segment in log.spool.rglob(f"*{SUFFIX}")} == {"a:b", "bomb", "colon"}


def test_verify_names_what_stands_in_a_table(spark: SparkSession, log: Log) -> None:
    """A link to nowhere, one in a circle, a pipe, a folder with a colon: each is a line, and all that is ours is read."""
    table = log.audit / "transitions"
    date = min(table.iterdir())
    (date / "x.parquet").symlink_to("nowhere")
    (date / "y.parquet").symlink_to("y.parquet")
    os.mkfifo(date / "z.parquet")
    (table / "up").symlink_to("..")
    (table / "a:b").mkdir()
    (table / "a:b" / "x.parquet").write_bytes(b"")
    (log.audit / "c:d").mkdir()
    findings = [
        "c:d: not of an audit log",
        "transitions/a:b/x.parquet: not of an audit log",
        *(f"transitions/{date.name}/{name}.parquet: not of an audit log: it is a link" for name in "xy"),
        f"transitions/{date.name}/z.parquet: not of an audit log: it is not a file",
        "transitions/up: not of an audit log: it is a link",
    ]
    result = verify(spark, str(log.audit))
    assert (sorted(result.findings), result.files, result.rows) == (findings, 16, 80)


def assert_quarantined(spark: SparkSession, audit: Path, expected: Found) -> None:
    """The quarantine holds this and nothing else."""
    rows = spark.read.parquet(str(audit / "quarantine")).collect()
    quarantined = sorted((row.file, row.line and row.line[:10], row.reason) for row in rows)
    assert len(quarantined) == len(expected)
    for (file, text, reason), (its_file, its_text, its_reason) in zip(quarantined, sorted(expected), strict=True):
        assert (file, text, reason[: len(its_reason)]) == (its_file, its_text, its_reason)


def test_a_segment_is_not_blamed_for_a_lack_of_file_descriptors(
    spark: SparkSession, spool: Path, audit: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The ingest fails, and the next one finds the segment sound."""
    records = [transition(1)]
    seal(spool, "jm-0", 1, records)

    def exhausted(*_: object) -> Never:
        raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))

    monkeypatch.setattr(inspection, "_unpack", exhausted)
    with pytest.raises(AuditError, match="Too many open files"):
        ingest(spark, str(spool), str(audit))
    monkeypatch.undo()
    assert ingest(spark, str(spool), str(audit)).quarantined == 0
    assert ids_seen(spark, audit, "transitions") == ids(records)
