"""Everything is stopped before one deadline, whatever hangs."""

import threading
from functools import partial

import pytest

from sidecar.runtime.stopping import Stopping


def test_the_last_that_was_started_is_stopped_first() -> None:
    """And each step has ended before the next one is taken."""
    stopped: list[str] = []
    with Stopping() as stopping:
        for name in ("first", "second", "third"):
            stopping.add(name, partial(stopped.append, name))
    assert stopped == ["third", "second", "first"]


def test_what_hangs_is_left_to_itself(caplog: pytest.LogCaptureFixture) -> None:
    """Most of all that is stopped hangs: the rest is still stopped, with time left for it, and the log names what hung."""
    never = threading.Event()
    stopped: list[str] = []
    with Stopping(1.0) as stopping:
        stopping.add("the journal", lambda: stopped.append("the journal"))
        stopping.add("the owner", lambda: stopped.append("the owner"))
        stopping.add("the ledger", never.wait)
        stopping.add("senders", never.wait, lambda: stopped.append("collector"))
        stopping.add("drivers", never.wait)
    never.set()
    assert stopped == ["collector", "the owner", "the journal"]
    assert [line.split(" did not end")[0] for line in caplog.messages] == [
        f"stopping: {name}" for name in ("drivers", "senders", "the ledger")
    ]


def test_what_fails_does_not_keep_the_rest_from_being_stopped(caplog: pytest.LogCaptureFixture) -> None:
    """One line says what went wrong; also when the start itself had failed."""
    stopped: list[str] = []

    def fails() -> None:
        raise OSError("no such port")

    def start() -> None:
        with Stopping() as stopping:
            stopping.add("the journal", lambda: stopped.append("the journal"))
            stopping.add("the web server", fails)
            raise ValueError("the start failed")

    with pytest.raises(ValueError, match="the start failed"):
        start()
    assert stopped == ["the journal"]
    assert "stopping: the web server failed: OSError: no such port" in caplog.text
