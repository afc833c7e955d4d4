"""Changes of an audit log in an object store become visible so that no reader, however slow, counts wrong, and no death loses a row."""

import math
import re
import shutil
from collections.abc import Callable, Iterator
from datetime import timedelta
from functools import partial
from itertools import combinations_with_replacement
from pathlib import Path

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

from sidecar.audit import AuditError
from sidecar.audit.log.tables import ENTRIES
from sidecar.audit.remote import contents as contents_module
from sidecar.audit.remote import writer_lock as lock_module
from sidecar.audit.remote.contents import BARRIER, Replacement, is_safe
from sidecar.audit.remote.local_copy import LocalCopy, open_store
from sidecar.audit.remote.publication import publish, recover
from sidecar.audit.remote.writer_lock import writer_lock
from sidecar.object_store import Content, ObjectStore, StoredObject

pytestmark = pytest.mark.spark

AUDIT = "s3://bucket/audit"
DATE = "transitions/event_date=2025-11-21"
OTHER = "transitions/event_date=2025-11-22"

State = dict[str, list[str] | None]
"""The ids in each object of a log; None in what is no Parquet file."""


def write(audit: Path, path: str, *ids: str) -> None:
    """A file of the log, with these ids."""
    (audit / path).parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(pa.table({"id": pa.array(ids, pa.string())}), audit / path)


def state_of(audit: Path) -> State:
    """What the tables contain now."""
    found: State = {}
    for file in sorted((audit / "transitions").rglob("*.parquet")):
        try:
            found[file.relative_to(audit).as_posix()] = pq.read_table(file, columns=["id"])["id"].to_pylist()
        except pa.ArrowInvalid:
            found[file.relative_to(audit).as_posix()] = None
    return found


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


def compact(audit: Path) -> None:
    """The three files become one, whose name is before theirs."""
    write(audit, f"{DATE}/new.parquet", "a", "b", "c")
    for name in "abc":
        (audit / f"{DATE}/part-{name}.parquet").unlink()


def expire(audit: Path) -> None:
    """The date goes."""
    shutil.rmtree(audit / DATE)


def add(audit: Path) -> None:
    """A late record of an old date, and one of a new date."""
    write(audit, f"{DATE}/part-e.parquet", "e")
    write(audit, "transitions/event_date=2025-11-23/part-f.parquet", "f")


def run(spark: SparkSession, store: ObjectStore, folder: Path, change: Callable[[Path], None]) -> None:
    """A writer."""
    with writer_lock(store) as lock:
        copy = LocalCopy(store, folder)
        recover(spark, store, lock, copy)
        before = copy.files()
        change(copy.audit)
        publish(store, lock, copy, before)


def readings(states: list[State]) -> set[str]:
    """All that readers can find who list in two pages, and then open the files, each at any pace; without those who fail.

    A reader that lists a file may be so fast that it opens it at that moment, or so slow that it does after all changes.
    """
    content = {name: ids for state in states for name, ids in state.items() if ids is not None}
    found = set()
    for first, second in combinations_with_replacement(range(len(states)), 2):
        for split in ["", *sorted(content)]:
            listed = [name for name in states[first] if name < split] + [
                name for name in states[second] if name >= split
            ]
            if all(any(state.get(name) is not None for state in states[second:]) for name in listed):
                found.add("".join(sorted(one for name in listed for one in content[name])))
    return found


def rows_of(folder: Path) -> str:
    """The ids in a local copy or in a bucket, for a reader who fails at nothing."""
    return "".join(sorted(one for ids in state_of(folder).values() for one in ids or []))


@pytest.mark.parametrize(("change", "before", "after"), [(compact, "abcd", "abcd"), (expire, "abcd", "d")])
def test_a_reader_finds_the_old_rows_or_the_new_ones_or_fails(
    spark: SparkSession, log: Path, tmp_path: Path, change: Callable[[Path], None], before: str, after: str
) -> None:
    """Whenever it lists, however slowly it opens what it listed, wherever the pages of its listing end."""
    store = WatchedStore(log)
    run(spark, store, tmp_path, change)
    assert len(store.states) > 4
    assert readings(store.states) == {before, after}
    assert rows_of(log) == after


def test_new_files_appear_one_by_one(spark: SparkSession, log: Path, tmp_path: Path) -> None:
    """Each with all of its rows; what exists stays readable."""
    store = WatchedStore(log)
    run(spark, store, tmp_path, add)
    assert {"abcd", "abcdef"} <= readings(store.states) <= {"abcd", "abcde", "abcdf", "abcdef"}


@pytest.mark.parametrize(
    ("change", "right"), [(compact, {"abcd"}), (expire, {"abcd", "d"}), (add, {"abcd", "abcde", "abcdf", "abcdef"})]
)
def test_whenever_a_writer_dies_our_readers_are_right_and_the_next_writer_completes_it(
    spark: SparkSession, log: Path, tmp_path: Path, change: Callable[[Path], None], right: set[str]
) -> None:
    """After each number of changes. Others may fail until then, and never afterwards."""
    original = tmp_path / "original"
    shutil.copytree(log, original)
    for died_after in range(20):
        shutil.rmtree(log)
        shutil.copytree(original, log)
        ended = False
        try:
            run(spark, WatchedStore(log, died_after), tmp_path / f"writer-{died_after}", change)
            ended = True
        except DyingError:
            pass
        reader = LocalCopy(open_store(AUDIT), tmp_path / f"reader-{died_after}")
        reader.update()
        assert rows_of(reader.audit) in right
        next_writer = WatchedStore(log)
        run(spark, next_writer, tmp_path / f"next-{died_after}", lambda _: None)
        assert readings(next_writer.states) <= right
        assert rows_of(log) in right
        assert None not in state_of(log).values()
        if ended:
            return
    raise AssertionError("it never ended")


def test_who_stalled_adds_nothing_when_it_continues(
    spark: SparkSession, log: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It stalls just before it puts a file; its successor cannot know whether it ever will, and adds the same rows itself."""
    monkeypatch.setattr(lock_module.Process, "has_ended", lambda _: True)

    class StallingStore(WatchedStore):
        def create(self, path: str, content: Content) -> str:
            if "new" in path or "/q-" in path:
                run(spark, open_store(AUDIT), tmp_path / "successor", compact)
            return super().create(path, content)

    with pytest.raises(
        AuditError, match=rf"^another process has taken over the lock of {AUDIT}, because this one stalled"
    ):
        run(spark, StallingStore(log), tmp_path / "stalled", compact)
    run(spark, open_store(AUDIT), tmp_path / "next", lambda _: None)
    assert rows_of(log) == "abcd"
    assert None not in state_of(log).values()


def test_a_copy_is_of_one_moment(log: Path, tmp_path: Path) -> None:
    """A compaction between two listings is noticed, also when the old files are in the cache already."""
    reader = LocalCopy(open_store(AUDIT), tmp_path)
    reader.update()
    listings = 0

    class ChangingStore(ObjectStore):
        def list(self, folder: str = "", *, after: str = "") -> Iterator[StoredObject]:
            nonlocal listings
            for found in ObjectStore.list(self, folder, after=after):
                yield found
                if found.path.endswith("part-c.parquet") and not listings:
                    write(log, f"{DATE}/q-new.parquet", "a", "b", "c")
                    for name in "abc":
                        (log / f"{DATE}/part-{name}.parquet").unlink()
                    listings += 1

    changing = LocalCopy(ChangingStore(AUDIT, retries=0, retry_for=timedelta(0)), tmp_path)
    changing.update()
    assert rows_of(changing.audit) == "abcd"


def test_a_manifest_names_what_is_there(
    spark: SparkSession, log: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """At every moment: it comes after the files that it names, and before the deletion of those that it replaces."""
    monkeypatch.setattr(contents_module, "ENTRIES", ENTRIES | {"answers", "_answers"})

    def answer(number: int) -> Callable[[Path], None]:
        def change(audit: Path) -> None:
            for path in [*audit.glob("answers/*"), *audit.glob("_answers/*")]:
                path.unlink()
            write(audit, f"answers/{number}.parquet")
            (audit / "_answers").mkdir(exist_ok=True)
            (audit / f"_answers/{number}.json").write_text(f"{number}.parquet")

        return change

    class CheckingStore(WatchedStore):
        def _change(self, path: str, change: Callable[[], str | None]) -> str:
            done = super()._change(path, change)
            manifests = sorted(log.glob("_answers/*"))
            assert manifests
            assert (log / "answers" / manifests[-1].read_text()).exists()
            return done

    run(spark, open_store(AUDIT), tmp_path, answer(1))
    run(spark, CheckingStore(log), tmp_path, answer(2))
    assert sorted(path.name for path in log.glob("*answers/*")) == ["2.json", "2.parquet"]


@pytest.mark.parametrize(
    "path",
    [
        *("../x", "a/../x", "..", ".", "a/./x", "/x", "a//x", "", "a/", "x\x00", "x\n", "x\x1b[2J", "ü", "a b", "a:b"),
        *("x" * 201, "/".join(["x" * 100] * 7)),
    ],
)
def test_no_name_leaves_the_copy(path: str) -> None:
    """Whatever somebody puts into the bucket."""
    assert not is_safe(path)


def test_what_is_not_of_the_log_is_not_copied(log: Path, tmp_path: Path) -> None:
    """Objects with strange names, of other programs, and markers of folders."""
    for name in (
        "transitions/a b.parquet",
        "transitions/%2e%2e",
        "transitions/" + "x" * 230,
        "backup/big.bin",
        "notes.txt",
    ):
        (log / name).parent.mkdir(parents=True, exist_ok=True)
        (log / name).write_bytes(b"?")
    copy = LocalCopy(open_store(AUDIT), tmp_path)
    contents = copy.update()
    assert contents.foreign == {"backup", "notes.txt"}
    assert len(contents.refused) == 3
    assert rows_of(copy.audit) == "abcd"
    files = {path.relative_to(tmp_path).parts[:2] for path in tmp_path.rglob("*") if path.is_file()}
    assert files == {("audit", "transitions"), ("index.json",)}


@pytest.mark.parametrize(
    "content", [b"", b"PAR1", b"{}", b'{"old": ["../x"], "new": {}}', b'{"old": [], "new": {"a/b": 1}}']
)
def test_a_barrier_of_others_is_named(log: Path, tmp_path: Path, content: bytes) -> None:
    """Nothing is read or deleted that it names."""
    (log / DATE / f"{BARRIER}1.parquet").write_bytes(content)
    with pytest.raises(
        AuditError, match=re.escape(f"{AUDIT}/{DATE}/{BARRIER}1.parquet is not of an audit log: remove it")
    ):
        LocalCopy(open_store(AUDIT), tmp_path).update()


def test_a_barrier_that_came_too_late_hides_nothing(spark: SparkSession, log: Path, tmp_path: Path) -> None:
    """Of a writer that stalled: its new file was never added, and its name may be occupied by an empty one."""
    barrier = msgspec.json.encode(Replacement(("part-a.parquet",), {"q-1.parquet": 12345}))
    (log / DATE / f"{BARRIER}1.parquet").write_bytes(barrier)
    write(log, f"{DATE}/q-1.parquet")
    reader = LocalCopy(open_store(AUDIT), tmp_path / "reader")
    reader.update()
    assert rows_of(reader.audit) == "abcd"
    run(spark, open_store(AUDIT), tmp_path / "writer", lambda _: None)
    assert rows_of(log) == "abcd"
    assert [*log.rglob(f"{BARRIER}*")] == []
