"""Changes of an audit log in an object store become visible so that no reader, however slow, counts wrong, and no death loses a row."""

import math
import os
import re
import shutil
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import date, timedelta
from functools import partial
from itertools import combinations_with_replacement
from pathlib import Path

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

from sidecar.audit import AuditError
from sidecar.audit.audit_error import ChangedError
from sidecar.audit.log import writer_lock as lock_module
from sidecar.audit.log.bucket_storage import ObjectStorage
from sidecar.audit.log.closed_tables import commit, read_manifest
from sidecar.audit.log.manifest import Manifest
from sidecar.audit.log.replacement import BARRIER, Replacement
from sidecar.audit.log.storage import PARQUET
from sidecar.net.object_store import Content, ObjectStore

pytestmark = pytest.mark.spark

AUDIT = "s3://bucket/audit"
DATE = "transitions/event_date=2025-11-21"
OTHER = "transitions/event_date=2025-11-22"
MONTH = date(2025, 11, 1)

State = dict[str, list[str] | None]
"""The ids in each object of a log; None in what is no Parquet file."""


def write(audit: Path, path: str, *ids: str) -> None:
    """A file of the log, with these ids."""
    (audit / path).parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(pa.table({"id": pa.array(ids, pa.string())}), audit / path)


def state_of(audit: Path) -> State:
    """What the tables contain now."""
    state: State = {}
    for file in sorted((audit / "transitions").rglob("*.parquet")):
        try:
            state[file.relative_to(audit).as_posix()] = pq.read_table(file, columns=["id"])["id"].to_pylist()
        except pa.ArrowInvalid:
            state[file.relative_to(audit).as_posix()] = None
    return state


class DyingError(Exception):
    """The process ends here."""


class WatchedStore(ObjectStore):
    """An audit log, and its state before and after each change to its tables. The process that changes it dies after `changes`."""

    def __init__(self, audit: Path, changes: float = math.inf) -> None:
        super().__init__(AUDIT, retries=0, retry_for=timedelta(0))
        self._audit = audit
        self._changes = changes
        self.states = [state_of(audit)]

    def create(self, path: str, content: Content) -> str:
        return self._change(path, partial(ObjectStore.create, self, path, content))

    def delete(self, path: str) -> None:
        self._change(path, partial(ObjectStore.delete, self, path))

    def _change(self, path: str, change: Callable[[], str | None]) -> str:
        if path.startswith("_lock"):
            return change() or ""
        if len(self.states) > self._changes:
            raise DyingError
        done = change()
        self.states.append(state_of(self._audit))
        return done or ""


@pytest.fixture
def log(bucket: Path) -> Path:
    """An audit log of two dates. One has three files."""
    audit = bucket / "audit"
    for name in "abc":
        write(audit, f"{DATE}/part-{name}.parquet", name)
    write(audit, f"{OTHER}/part-d.parquet", "d")
    return audit


def staged(log: ObjectStorage, *ids: str) -> str:
    """A file with these ids that is not visible yet."""
    assert log.staging.local is not None
    name = f"{'-'.join(ids)}.parquet"
    write(log.staging.local, name, *ids)
    return name


def compact(log: ObjectStorage) -> None:
    """The three files become one."""
    log.replace({DATE: staged(log, "a", "b", "c")})


def expire(log: ObjectStorage) -> None:
    """The date goes."""
    log.drop(DATE)


def add(log: ObjectStorage) -> None:
    """A late record of an old date, and one of a new date."""
    new = {staged(log, "e"): f"{DATE}/part-e.parquet"}
    log.publish({**new, staged(log, "f"): "transitions/event_date=2025-11-23/part-f.parquet"})


def nothing(_log: ObjectStorage) -> None:
    """No change."""


def opened(spark: SparkSession, store: ObjectStore | None = None) -> ObjectStorage:
    """The log, reached in that way."""
    log = ObjectStorage(spark, AUDIT)
    if store is not None:
        log._store = store  # white-box: where each change is seen, or is the last
    return log


def run(spark: SparkSession, change: Callable[[ObjectStorage], None], store: ObjectStore | None = None) -> None:
    """A writer."""
    log = opened(spark, store)
    with log.locked():
        change(log)


def ours(spark: SparkSession, audit: Path) -> str:
    """The ids in the files that our own readers read."""
    with opened(spark).reading() as now:
        return "".join(
            sorted(one for path in now.files("", PARQUET) for one in pq.read_table(audit / path)["id"].to_pylist())
        )


def readings(states: list[State]) -> set[str]:
    """All that readers can find who list in two pages, and then open the files, each at any pace; without those who fail.

    A reader that lists a file may be so fast that it opens it at that moment, or so slow that it does after all changes.
    """
    content = {name: ids for state in states for name, ids in state.items() if ids is not None}
    contents = set()
    for first, second in combinations_with_replacement(range(len(states)), 2):
        for split in ["", *sorted(content)]:
            listed = [name for name in states[first] if name < split] + [
                name for name in states[second] if name >= split
            ]
            if all(any(state.get(name) is not None for state in states[second:]) for name in listed):
                contents.add("".join(sorted(one for name in listed for one in content[name])))
    return contents


def rows_of(folder: Path) -> str:
    """The ids in a bucket, for a reader who fails at nothing."""
    return "".join(sorted(one for ids in state_of(folder).values() for one in ids or []))


@pytest.mark.parametrize(("change", "before", "after"), [(compact, "abcd", "abcd"), (expire, "abcd", "d")])
def test_a_reader_finds_the_old_rows_or_the_new_ones_or_fails(
    spark: SparkSession, log: Path, change: Callable[[ObjectStorage], None], before: str, after: str
) -> None:
    """Whenever it lists, however slowly it opens what it listed, wherever the pages of its listing end."""
    store = WatchedStore(log)
    run(spark, change, store)
    assert len(store.states) > 4
    assert readings(store.states) == {before, after}
    assert rows_of(log) == after


def test_threads_that_write_have_one_place_for_what_is_not_visible_yet(spark: SparkSession, bucket: Path) -> None:
    """A compaction writes several dates at once: each finds what it has staged."""
    log = opened(spark)
    with log.locked(), ThreadPoolExecutor(8) as pool:
        assert len({*pool.map(lambda _: log.staging.url, range(8))}) == 1


def test_new_files_appear_one_by_one(spark: SparkSession, log: Path) -> None:
    """Each with all of its rows; what exists stays readable."""
    store = WatchedStore(log)
    run(spark, add, store)
    assert {"abcd", "abcdef"} <= readings(store.states) <= {"abcd", "abcde", "abcdf", "abcdef"}


@pytest.mark.parametrize(
    ("change", "right"), [(compact, {"abcd"}), (expire, {"abcd", "d"}), (add, {"abcd", "abcde", "abcdf", "abcdef"})]
)
def test_whenever_a_writer_dies_our_readers_are_right_and_the_next_writer_completes_it(
    spark: SparkSession, log: Path, tmp_path: Path, change: Callable[[ObjectStorage], None], right: set[str]
) -> None:
    """After each number of changes. Others may fail until then, and never afterwards."""
    original = tmp_path / "original"
    shutil.copytree(log, original)
    for died_after in range(20):
        shutil.rmtree(log)
        shutil.copytree(original, log)
        ended = False
        try:
            run(spark, change, WatchedStore(log, died_after))
            ended = True
        except DyingError:
            pass
        assert ours(spark, log) in right
        next_writer = WatchedStore(log)
        run(spark, nothing, next_writer)
        assert readings(next_writer.states) <= right
        assert rows_of(log) in right
        assert None not in state_of(log).values()
        if ended:
            return
    raise AssertionError("it never ended")


def test_who_stalled_adds_nothing_when_it_continues(
    spark: SparkSession, log: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It stalls just before it puts a file; its successor cannot know whether it ever will, and adds the same rows itself."""
    monkeypatch.setattr(lock_module.Process, "has_ended", lambda _: True)

    class StallingStore(WatchedStore):
        def create(self, path: str, content: Content) -> str:
            if "/q-" in path:
                run(spark, compact)
            return super().create(path, content)

    with pytest.raises(
        AuditError, match=rf"^another process has taken over the lock of {AUDIT}, because this one stalled"
    ):
        run(spark, compact, StallingStore(log))
    run(spark, nothing)
    assert rows_of(log) == "abcd"
    assert None not in state_of(log).values()
    [occupied] = [path for path, ids in state_of(log).items() if ids == []]  # the successor's compaction left it
    old = time.time() - 25 * 3600
    os.utime(log / occupied, (old, old))
    run(spark, nothing)
    assert not (log / occupied).exists()


def test_who_stalled_deletes_nothing_of_its_successor(
    spark: SparkSession, log: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What it deletes after its manifest is what it found before: a successor may have added more in between."""
    monkeypatch.setattr(lock_module.Process, "has_ended", lambda _: True)

    def close(number: int) -> Callable[[ObjectStorage], None]:
        def change(audit: ObjectStorage) -> None:
            file = f"leader_changes/event_month=2025-11/{number}.parquet"
            audit.publish({staged(audit, str(number)): file})
            commit(audit, msgspec.structs.replace(read_manifest(audit), files={MONTH: {"leader_changes": [file]}}))

        return change

    class StallingStore(ObjectStore):
        def create(self, path: str, content: Content) -> str:
            done = super().create(path, content)
            if path.startswith("_closed/manifest"):
                run(spark, close(3))
            return done

    run(spark, close(1))
    run(spark, close(2), StallingStore(AUDIT, retries=0, retry_for=timedelta(0)))
    manifest = read_manifest(opened(spark))
    assert manifest.number == 3
    assert [(log / file).exists() for file in manifest.paths()] == [True]


def test_who_changes_the_log_meanwhile_is_noticed(spark: SparkSession, log: Path) -> None:
    """A replacement that ends while queries are planned: Spark may have listed the folder after it, and the new file was hidden."""

    class Dying(WatchedStore):
        def delete(self, path: str) -> None:
            if not path.startswith("_lock"):
                raise DyingError
            super().delete(path)

    with pytest.raises(DyingError):
        run(spark, compact, Dying(log))
    reading = opened(spark).reading()
    assert len(reading.__enter__().unfinished()) == 1
    run(spark, nothing)
    with pytest.raises(ChangedError):
        reading.__exit__(None, None, None)
    with opened(spark).reading() as now:
        assert now.unfinished() == []
        run(spark, add)  # new files hide nothing


def test_a_manifest_names_what_is_there(spark: SparkSession, log: Path) -> None:
    """At every moment: it comes after the files that it names, and before the deletion of those that it replaces."""

    def close(number: int) -> Callable[[ObjectStorage], None]:
        def change(audit: ObjectStorage) -> None:
            file = f"leader_changes/event_month=2025-11/{number}.parquet"
            audit.publish({staged(audit, str(number)): file})
            commit(audit, Manifest(number=number, files={MONTH: {"leader_changes": [file]}}))

        return change

    class CheckingStore(WatchedStore):
        def _change(self, path: str, change: Callable[[], str | None]) -> str:
            done = super()._change(path, change)
            manifest = msgspec.json.decode(max(log.glob("_closed/*")).read_bytes(), type=Manifest)
            assert all((log / file).exists() for file in manifest.paths())
            return done

    run(spark, close(1))
    run(spark, close(2), CheckingStore(log))
    assert [path.name for path in log.glob("_closed/*")] == ["manifest-000000000003.json"]
    assert [path.name for path in log.glob("leader_changes/*/*")] == ["2.parquet"]


@pytest.mark.parametrize("content", [b"", b"PAR1", b"{}", b'{"old": [], "new": {"a/b": 1}}'])
def test_a_barrier_of_others_is_named(spark: SparkSession, log: Path, content: bytes) -> None:
    """Nothing is read or deleted that it names."""
    (log / DATE / f"{BARRIER}1.parquet").write_bytes(content)
    foreign = re.escape(f"{AUDIT}/{DATE}/{BARRIER}1.parquet is not of an audit log: remove it")
    with pytest.raises(AuditError, match=foreign), opened(spark).reading() as now:
        now.files("", PARQUET)
    with pytest.raises(AuditError, match=foreign):
        run(spark, nothing)


def test_a_barrier_that_came_too_late_hides_nothing(spark: SparkSession, log: Path) -> None:
    """Of a writer that stalled: its new file was never added, and its name may be occupied by an empty one."""
    barrier = msgspec.json.encode(Replacement(("part-a.parquet",), {"q-1.parquet": 12345}))
    (log / DATE / f"{BARRIER}1.parquet").write_bytes(barrier)
    write(log, f"{DATE}/q-1.parquet")
    assert ours(spark, log) == "abcd"
    run(spark, nothing)
    assert rows_of(log) == "abcd"
    assert [*log.rglob(f"{BARRIER}*")] == []


def test_what_a_dead_writer_has_staged_goes_and_what_its_successor_stages_stays(spark: SparkSession, log: Path) -> None:
    """Each stages below the number of its lock, which only grows."""
    for number in (0, 10**12):
        write(log, f"_staging/{number:016d}/x/part-0.parquet", "x")
    run(spark, nothing)
    assert [path.name for path in (log / "_staging").iterdir() if any(path.rglob("*.parquet"))] == [f"{10**12:016d}"]
