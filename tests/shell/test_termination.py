"""A signal that reaches a thread other than the main one: Linux may choose any, and often takes one that is starting a child process."""

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from sidecar.runtime.stopping import Termination

_TAKEN_BY_ANOTHER_THREAD = """
import os, signal, sys, threading, time
numbers = {signal.SIGTERM, signal.SIGHUP}
asked = threading.Event()
def ask():
    asked.wait()
    time.sleep(0.5)  # the main thread has begun to wait
    for number in signals:
        os.kill(os.getpid(), number)
    time.sleep(60)
threading.Thread(target=ask, daemon=True).start()
signal.pthread_sigmask(signal.SIG_BLOCK, numbers)  # here, in the main thread: the other one gets them
"""

_WAIT = """
from sidecar.runtime.stopping import Termination
ended = Termination()
signal.signal(signal.SIGHUP, lambda *_: print("reload", flush=True))
asked.set()
print(ended.wait(30))
"""

_RUN = """
from collections.abc import Iterator
from pathlib import Path
from sidecar.app import reloading, running
from sidecar.settings import load

class Reloader(reloading.Reloader):
    def start(self):
        super().start()
        asked.set()
running.Reloader = Reloader
print(running.run(lambda: load(Path("sidecar.yaml"), {})))
"""


def _ended(script: str, signals: str, folder: Path) -> tuple[int, str]:
    """Exit status and output of a script that is sent these signals, in a thread of its own."""
    command = [sys.executable, "-c", f"{_TAKEN_BY_ANOTHER_THREAD}signals = [{signals}]\n{script}"]
    ended = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=120, check=False)
    return ended.returncode, ended.stdout


def test_a_sigterm_that_another_thread_gets_ends_the_wait(tmp_path: Path) -> None:
    """At once, not when the main thread happens to run."""
    assert _ended(_WAIT, "signal.SIGTERM", tmp_path) == (0, "True\n")


def test_a_sighup_that_another_thread_gets_is_handled_during_the_wait(tmp_path: Path) -> None:
    """And the wait goes on."""
    assert _ended(_WAIT, "signal.SIGHUP, signal.SIGTERM", tmp_path) == (0, "reload\nTrue\n")


def test_a_sidecar_ends_when_another_thread_gets_the_sigterm(tmp_path: Path) -> None:
    """Clean, with status 0."""
    (tmp_path / "sidecar.yaml").write_text(
        "zookeeper: {quorum: '127.0.0.1:1'}\nhttp: {host: 127.0.0.1, port: 0}\nstate_dir: state\nspool: {url: spool}\n"
    )
    assert _ended(_RUN, "signal.SIGTERM", tmp_path) == (0, "0\n")


@pytest.fixture
def termination() -> Iterator[Termination]:
    """As a command makes it; what pytest does on a signal comes back."""
    before = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)}
    yield Termination()
    signal.set_wakeup_fd(-1)
    for number, handler in before.items():
        signal.signal(number, handler)


def test_a_wait_with_a_time_limit_ends_with_it(termination: Termination) -> None:
    """And says that nobody asked."""
    assert not termination.wait(0.01)


def test_one_that_is_set_is_not_waited_for(termination: Termination) -> None:
    """However often it is asked."""
    termination.set()
    assert termination.wait()
    assert termination.wait(0)


def test_a_thread_may_ask(termination: Termination) -> None:
    """As the owner's thread does when it cannot go on."""
    threading.Timer(0.05, termination.set).start()
    assert termination.wait(60)


def test_it_wakes_for_the_signal_itself(termination: Termination) -> None:
    """Sent to this very process."""
    os.kill(os.getpid(), signal.SIGINT)
    assert termination.wait(60)
