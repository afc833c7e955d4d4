"""Whenever an ingest dies, the next one completes it: each id once, none missing, for every reader."""

import os
import random
import signal
import time
from collections.abc import Callable, Mapping
from datetime import timedelta
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from sidecar.audit import AuditError
from sidecar.audit.ingest.ingest import ingest
from sidecar.audit.log.local_storage import LocalStorage
from sidecar.audit.log.storage import PARQUET
from sidecar.core.records import TransitionRecord
from tests.audit.killing import Rounds, ingesting, lending_its_jvm
from tests.audit.spooling import NOON, coverage, ids, ids_seen, seal, transition
from tests.kit.files import files_below

pytestmark = pytest.mark.spark


def _changes(spool: Path, first: int) -> list[TransitionRecord]:
    """Two observers' segments of the same 600 changes on three dates, with garbage between them."""
    records = [transition(n, NOON + timedelta(days=n % 3)) for n in range(first, first + 600)]
    for observer in ("jm-0", "jm-1"):
        for start in range(0, 600, 100):
            seal(spool, observer, first + start, records[start : start + 100], lines=[f"garbage {first}".encode()])
    return records


def test_killed_at_any_moment_it_is_completed_by_the_next(spark: SparkSession, spool: Path, audit: Path) -> None:
    """kill -9 at a random moment, when something is staged, when something is visible; of Python alone, and of its JVM with it."""
    seed = random.randrange(2**32)
    print(f"seed {seed}")  # noqa: T201  shown when it fails
    chance = random.Random(seed)

    def moment(_seen: int) -> bool:
        time.sleep(chance.uniform(0, 4))
        return True

    moments: list[tuple[Callable[[int], bool], bool]] = [
        (moment, False),
        (lambda _: any(files_below(audit / "_staging", PARQUET)), True),
        (lambda count: len(list(files_below(audit / "transitions", PARQUET))) > count, False),
        (lambda count: len(list(files_below(audit / "transitions", PARQUET))) > count, True),
    ]
    records: list[TransitionRecord] = []
    for reached, with_its_jvm in moments:
        records += _changes(spool, first=len(records) + 1)
        count = len(list(files_below(audit / "transitions", PARQUET)))
        with ingesting(spool, audit) as process:
            deadline = time.monotonic() + 120
            while not reached(count) and process.poll() is None:
                assert time.monotonic() < deadline
                time.sleep(0.02)
            if with_its_jvm:
                os.killpg(process.pid, signal.SIGKILL)
            else:
                process.kill()
    ingest(spark, str(spool), str(audit))
    assert ids_seen(spark, audit, "transitions") == ids(records)
    garbage = [
        (row.line, row["count"]) for row in spark.read.parquet(f"{audit}/quarantine").groupBy("line").count().collect()
    ]
    assert sorted(garbage) == [(f"garbage {first}", 12) for first in (1, 1201, 1801, 601)]
    assert ingest(spark, str(spool), str(audit)).files == 0


def test_killed_again_and_again_each_id_is_there_once(spark: SparkSession, tmp_path: Path) -> None:
    """Duplicate segments, a deleted checkpoint, garbage, two observers, and kill -9."""
    seed = random.randrange(2**32)
    print(f"seed {seed}")  # noqa: T201  shown when it fails
    rounds = Rounds(tmp_path, random.Random(seed))
    with lending_its_jvm(spark):
        for _ in range(4):
            rounds.play(spark)
            rounds.assert_none_twice(spark)
    ingest(spark, str(rounds.spool), str(rounds.audit))
    rounds.assert_complete(spark)


@pytest.mark.parametrize("survivors", range(4))
def test_dying_between_two_files_becoming_visible_loses_and_repeats_nothing(
    spark: SparkSession, spool: Path, audit: Path, monkeypatch: pytest.MonkeyPatch, survivors: int
) -> None:
    """After each number of files that readers can see already: the rest comes with the next ingest, and only the rest."""
    records = [transition(n, NOON + timedelta(days=n % 3)) for n in range(30)]
    seal(spool, "jm-0", 1, [*records, coverage(1)])
    published = 0
    publish = LocalStorage.publish

    def dying(self: LocalStorage, files: Mapping[str, str]) -> None:
        nonlocal published
        for file, target in files.items():
            if published == survivors:
                raise OSError("the end")
            published += 1
            publish(self, {file: target})

    with monkeypatch.context() as patch:
        patch.setattr(LocalStorage, "publish", dying)
        with pytest.raises(AuditError, match=r"^cannot ingest \S+ into \S+: the end$"):
            ingest(spark, str(spool), str(audit))
    assert len([file for file in audit.rglob("event_date=*/*.parquet") if "_staging" not in file.parts]) == survivors
    ingest(spark, str(spool), str(audit))
    assert ids_seen(spark, audit, "transitions") == ids(records)
    assert ids_seen(spark, audit, "coverage") == ids([coverage(1)])
    assert list((audit / "_staging").iterdir()) == []


def test_a_torn_checkpoint_is_done_without(
    spark: SparkSession, spool: Path, audit: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """After a power failure: nothing has to be done, and nothing is repeated."""
    seal(spool, "jm-0", 1, [transition(1)])
    ingest(spark, str(spool), str(audit))
    (checkpoint,) = (audit / "_checkpoints" / "ingest").iterdir()
    (segments,) = (checkpoint / "segments").iterdir()
    segments.write_bytes(segments.read_bytes()[:-4])
    seal(spool, "jm-0", 2, [transition(2)])
    again = ingest(spark, str(spool), str(audit))
    assert (again.files, again.rows["transitions"]) == (2, 1)
    assert (
        f"the segments in _checkpoints/ingest/{checkpoint.name}/segments/{segments.name} are read again" in caplog.text
    )
    assert ids_seen(spark, audit, "transitions") == ids([transition(1), transition(2)])
    assert ingest(spark, str(spool), str(audit)).files == 0
