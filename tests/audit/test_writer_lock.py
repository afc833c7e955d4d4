"""The lock of an audit log in an object store: one holder at a time, and one that stalled learns that it has lost it."""

import subprocess
import sys
import threading
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from threading import Event

import msgspec
import pytest

from sidecar.audit import AuditError
from sidecar.audit.audit_error import StoppedError
from sidecar.audit.log import writer_lock as module
from sidecar.audit.log.storage import LOCK
from sidecar.audit.log.writer_lock import WriterLock, writer_lock
from sidecar.net.object_store import ObjectStore
from tests.kit.s3_server import Line, S3Server, reach

AUDIT = "s3://bucket/audit"
TAKEN_OVER = rf"^another process has taken over the lock of {AUDIT}, because this one stalled: run it again$"
HOLD = f"""
from datetime import timedelta
from sidecar.audit.log.writer_lock import writer_lock
from sidecar.net.object_store import ObjectStore

with writer_lock(ObjectStore("{AUDIT}", retries=8, retry_for=timedelta(minutes=1))) as lock:
    lock.announce(["transitions/a.parquet"])
    print("held", flush=True)
    input()
"""


def opened() -> ObjectStore:
    """A client of its own."""
    return ObjectStore(AUDIT, retries=8, retry_for=timedelta(minutes=1))


@pytest.fixture
def store(bucket: Path) -> ObjectStore:
    """The audit log."""
    return opened()


def entries(bucket: Path) -> list[str]:
    """The log that the lock is."""
    return sorted(path.name for path in (bucket / "audit" / "_lock").iterdir())


@pytest.fixture
def holder(bucket: Path) -> Iterator["subprocess.Popen[str]"]:
    """Another process that holds the lock until it is killed."""
    command = [sys.executable, "-c", HOLD]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "held\n"
        yield process
        process.kill()


def test_one_holds_it_at_a_time(store: ObjectStore, bucket: Path) -> None:
    """Each of several that count with what they read in between waits for the others: none is lost, and the log does not grow."""
    count = bucket / "count"
    count.write_text("0")

    def work() -> None:
        with writer_lock(store):
            seen = int(count.read_text())
            store.read(f"_lock/{entries(bucket)[-1]}")  # takes a while
            count.write_text(str(seen + 1))

    threads = [threading.Thread(target=work) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert count.read_text() == "3"
    assert len(entries(bucket)) == 1


def test_that_of_a_dead_process_is_taken_over_at_once(
    store: ObjectStore, holder: "subprocess.Popen[str]", monkeypatch: pytest.MonkeyPatch
) -> None:
    """On its machine, without waiting until it expires; and the successor learns what the other may still add."""
    monkeypatch.setattr(module, "_EXPIRES_SECONDS", float("inf"))
    holder.kill()
    with writer_lock(store) as lock:
        assert lock.announced == ("transitions/a.parquet",)
        lock.announce(())
    with writer_lock(store) as lock:
        assert lock.announced == ()


def test_that_of_a_living_process_is_waited_for(
    store: ObjectStore, holder: "subprocess.Popen[str]", monkeypatch: pytest.MonkeyPatch
) -> None:
    """For ten minutes, or until this process is stopped."""
    monkeypatch.setattr(module, "_TIMEOUT_SECONDS", {LOCK: 0.0})
    with pytest.raises(AuditError, match=rf"^another ingest or compaction is running in {AUDIT}: run one at a time$"):
        WriterLock(store).acquire(Event())
    (stop := Event()).set()
    monkeypatch.undo()
    with pytest.raises(StoppedError):
        WriterLock(store).acquire(stop)


def test_who_stalled_learns_of_it(store: ObjectStore, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its successor has waited until nothing more came of it; whatever it does next, it fails, and changes nothing of the lock."""
    stalled, other = WriterLock(store), WriterLock(store)
    stalled.acquire(Event())
    stalled.announce(["transitions/a.parquet"])
    monkeypatch.setattr(module.Process, "has_ended", lambda _: False)
    monkeypatch.setattr(module, "_EXPIRES_SECONDS", 0.0)
    other.acquire(Event())
    assert other.announced == ("transitions/a.parquet",)
    for _ in range(2):
        with pytest.raises(AuditError, match=TAKEN_OVER):
            stalled.announce(["transitions/b.parquet"])
    stalled.release()
    other.announce(())
    other.release()


def test_who_stalled_for_very_long_learns_of_it_too(store: ObjectStore, monkeypatch: pytest.MonkeyPatch) -> None:
    """The entry that it would add was added, and deleted, long ago."""
    stalled = WriterLock(store)
    stalled.acquire(Event())
    monkeypatch.setattr(module.Process, "has_ended", lambda _: True)
    for _ in range(2):
        with writer_lock(store):
            pass
    with pytest.raises(AuditError, match=TAKEN_OVER):
        stalled.announce(["transitions/b.parquet"])
    with writer_lock(store) as lock:
        assert lock.announced == ()


def test_an_answer_that_is_lost_is_no_loss_of_the_lock(
    bucket: Path, s3_server: S3Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The entry that was added without our knowing is recognised."""
    with Line(s3_server) as line:
        for variable, value in reach(line.url).items():
            monkeypatch.setenv(variable, value)
        store = ObjectStore(AUDIT, retries=0, retry_for=timedelta(0))
        lock = WriterLock(store)
        lock.acquire(Event())
        line.loses_answers = True
        with pytest.raises(OSError, match="the connection broke"):
            lock.announce(["transitions/a.parquet"])
        line.loses_answers = False
        lock.announce(["transitions/b.parquet"])
        lock.release()
    monkeypatch.setenv("AWS_ENDPOINT_URL", s3_server.url)
    with writer_lock(opened()) as successor:
        assert successor.announced == ("transitions/b.parquet",)


@pytest.mark.parametrize("content", [b"", b"[]", b'{"holder": 5}', b"\xff"])
def test_what_is_no_lock_is_named(store: ObjectStore, content: bytes) -> None:
    """Nobody's entry is overwritten."""
    store.create("_lock/0000000000000007.json", content)
    store.create("_lock/of another kind", b"")
    with pytest.raises(AuditError, match=rf"^{AUDIT}/_lock/0000000000000007.json is not of an audit log: remove it$"):
        WriterLock(store).acquire(Event())


def test_a_process_is_known_by_more_than_its_number() -> None:
    """Another machine, another container or another process of the same number is not ours."""
    here = module.this_process()
    assert not here.has_ended()
    assert not msgspec.structs.replace(here, boot="another").has_ended()
    assert not msgspec.structs.replace(here, namespace="another").has_ended()
    assert not msgspec.structs.replace(here, boot="").has_ended()
    assert msgspec.structs.replace(here, started="1").has_ended()
    assert msgspec.structs.replace(here, pid=2**22 + 1).has_ended()
