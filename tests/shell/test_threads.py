"""The threads that the process cannot do without outlive every exception; one that is gone is named by /livez."""

from collections.abc import Callable
from pathlib import Path
from threading import Event
from types import SimpleNamespace
from typing import Any
from weakref import WeakSet

import pytest

from sidecar.app.reloading import Reloader
from sidecar.journal import JournalReader
from sidecar.runtime import threads
from sidecar.runtime.threads import ServiceThread, poll_pause
from sidecar.settings import load
from sidecar.sinks.spool.spool_writer import Spool
from tests.kit.spools import journal_with, records
from tests.shell.site import Site

Eventually = Callable[[Callable[[], bool]], bool]


@pytest.fixture(autouse=True)
def _at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(threads, "PAUSE_SECONDS", 0.01)
    monkeypatch.setattr(threads, "_started", WeakSet())  # other tests leave theirs behind


def test_a_thread_goes_on_after_an_exception_and_ends_when_its_work_does(
    eventually: Eventually, caplog: pytest.LogCaptureFixture
) -> None:
    """One line of log for each exception, and it is never named as gone."""
    errors = [RuntimeError("can't start new thread"), MemoryError(), RecursionError("deep")]

    def work() -> None:
        if errors:
            raise errors.pop()

    thread = ServiceThread(work, "worker")
    thread.start()
    assert eventually(lambda: not thread.is_alive())
    assert [record.levelname for record in caplog.records] == ["ERROR"] * 3
    assert "worker" in caplog.text
    assert threads.dead() == []


def test_a_thread_that_is_gone_is_named(eventually: Eventually, tmp_path: Path) -> None:
    """`/livez` answers 503 and names it, so that the process is started again."""
    done = Event()

    def work() -> None:
        done.wait()
        raise SystemExit

    thread = ServiceThread(work, "notifier-1")
    site = Site(tmp_path)
    try:
        thread.start()
        assert site.get("/livez") == (200, "ok\n")
        done.set()
        assert eventually(lambda: not thread.is_alive())
        assert site.get("/livez") == (503, "these threads have ended: notifier-1\n")
    finally:
        site.stop()


def test_a_thread_that_was_never_started_is_not_missed() -> None:
    """Building everything and starting it are two things."""
    thread = ServiceThread(lambda: None, "unstarted")
    assert threads.dead() == []
    assert not thread.is_alive()


def test_the_spool_seals_again_after_an_unforeseen_failure(tmp_path: Path, eventually: Eventually) -> None:
    """What a place raises beside OSError ends no sealing for good."""
    sealed: list[str] = []
    errors = [ValueError("surprise")]

    def put(name: str, _content: bytes) -> None:
        if errors:
            raise errors.pop()
        sealed.append(name)

    place: Any = SimpleNamespace(name="somewhere", put=put, recover=lambda _: [])
    journal_with(tmp_path, records())
    spool = Spool(place, JournalReader(tmp_path), observer="jm-0", roll_interval=0, roll_records=1)
    spool.start()
    try:
        assert eventually(lambda: bool(sealed))
    finally:
        spool.stop()


def test_settings_are_loaded_again_after_an_unforeseen_failure(tmp_path: Path, eventually: Eventually) -> None:
    """Whatever adopting them raised."""
    adopted: list[object] = []
    errors = [RuntimeError("surprise")]

    def adopt(settings: object) -> None:
        if errors:
            raise errors.pop()
        adopted.append(settings)

    file = tmp_path / "sidecar.yaml"
    file.write_text("rules: [{alert: A, on: vacant}]\n")
    settings = load(file, {"zookeeper": "zk"})
    reloader = Reloader(settings, lambda: settings, adopt, lambda _: None)
    reloader.start()
    try:
        reloader.ask()
        assert eventually(lambda: not errors)
        reloader.ask()
        assert eventually(lambda: bool(adopted))
    finally:
        reloader.stop()


def test_what_fails_for_days_is_tried_again_every_minute() -> None:
    """The pauses between attempts, by the number of failures in a row."""
    pauses = [poll_pause(failures) for failures in (0, 1, 2, 10_000)]
    assert all(longest * 0.75 <= pause <= longest for pause, longest in zip(pauses, (1, 2, 4, 64), strict=True))
