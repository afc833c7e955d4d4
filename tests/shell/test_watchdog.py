"""Where each thread is, is logged when the owner's thread hangs."""

import inspect
import logging
import threading
import time

import pytest

from sidecar.runtime import threads
from sidecar.runtime.threads import Watchdog, stack
from tests.shell.test_loop import House, house, wait_until

__all__ = ["house"]


def stalls(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [line for line in caplog.messages if line.startswith("the thread owner has not turned for ")]


def test_a_blocked_owner_shows_where_it_hangs(
    house: House, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Once for each time that it hangs; the owner comes first."""
    monkeypatch.setattr(threads, "STALLED_SECONDS", 0.2)
    monkeypatch.setattr(threads, "_LOOK_SECONDS", 0.05)
    blocked, released = threading.Event(), threading.Event()

    def hang(*_: object) -> None:
        blocked.set()
        released.wait()

    with caplog.at_level(logging.WARNING, "sidecar.watchdog"):
        monkeypatch.setattr(house.journal, "commit", hang)
        house.loop.start()
        assert blocked.wait(10)
        wait_until(lambda: any(line.startswith("thread watchdog: ") for line in caplog.messages))
        time.sleep(0.5)
        assert len(stalls(caplog)) == 1
        released.set()
    house.close()
    after = caplog.messages[caplog.messages.index(stalls(caplog)[0]) + 1]
    assert after.startswith("thread owner: ")
    assert " hang < loop.py:" in after
    assert " _turn < loop.py:" in after


def test_a_process_that_was_stopped_as_a_whole_has_not_hung(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """As by SIGSTOP, or with its machine: the watchdog was late itself."""
    looks = threading.Semaphore(0)
    monkeypatch.setattr(threads, "STALLED_SECONDS", 0.0)
    monkeypatch.setattr(threads, "_LOOK_SECONDS", 0.01)

    def turned_at() -> float:
        looks.release()
        return 0.0

    dog = Watchdog("owner", turned_at)
    dog.start()
    for _ in range(3):
        assert looks.acquire(timeout=10)
    dog.stop()
    assert stalls(caplog) == []


def test_a_deep_stack_is_cut() -> None:
    """Its innermost frames are shown."""

    def deep(more: int) -> str:
        return deep(more - 1) if more else stack(inspect.currentframe())

    assert deep(50).count("deep") == 12
    assert deep(50).endswith(" < …")
