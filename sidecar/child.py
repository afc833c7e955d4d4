"""A child process that answers one request and ends: what is heavy, hangs or handles secrets stays out of ours (docs/adr/0002).

A request goes to its stdin, never into its command line or its environment: it may hold secrets.
"""

import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Mapping
from contextlib import suppress
from typing import Any, Final, TypeVar

import msgspec

_REAP_SECONDS: Final = 2.0

_T = TypeVar("_T")


class NoAnswerError(Exception):
    """The child did not say how it went."""


class Child:
    """One run of a module, in a process group of its own. It answers one JSON line with one; when we are gone, it ends."""

    def __init__(self, module: str, name: str, environment: Mapping[str, str]) -> None:
        """`name` is what errors call it. It gets this `environment` and nothing else of ours. Raises OSError."""
        self._name = name
        self._ours, theirs = socket.socketpair()
        self._lock = threading.Lock()
        self._ended = False
        try:
            self._process = subprocess.Popen(
                [sys.executable, "-I", "-m", module],
                stdin=theirs.fileno(),
                stdout=theirs.fileno(),
                stderr=subprocess.DEVNULL,
                env=environment,
                process_group=0,
            )
        except OSError:
            self._ours.close()
            raise
        finally:
            theirs.close()

    def ask(self, request: Mapping[str, Any], kind: type[_T], seconds: float) -> _T:
        """The answer to the one request. Raises NoAnswerError when there is none of this kind within `seconds`."""
        deadline = time.monotonic() + seconds
        answer = bytearray()
        try:
            self._ours.settimeout(seconds)
            self._ours.sendall(json.dumps(request).encode() + b"\n")
            while not answer.endswith(b"\n"):
                self._ours.settimeout(max(deadline - time.monotonic(), 0.001))
                part = self._ours.recv(65536)
                if not part:
                    raise NoAnswerError(f"{self._name} ended without an answer (exit code {self.end()})")
                answer += part
            return msgspec.json.decode(answer, type=kind)
        except TimeoutError:
            raise NoAnswerError(f"no answer within {seconds:g} s") from None
        except (OSError, msgspec.DecodeError) as error:
            raise NoAnswerError(f"{self._name} did not answer: {type(error).__name__}") from error

    def kill(self) -> None:
        """Have it end now, from any thread: whoever waits for its answer gets none."""
        with self._lock:
            if not self._ended:
                self._signal()

    def end(self) -> int | None:
        """Have it end now, and give back what it holds. Its exit code; None when the kernel does not let go of it."""
        with self._lock:
            if not self._ended:
                self._ended = True  # from here on its process id may belong to somebody else
                self._signal()
                self._ours.close()
        try:
            self._process.wait(_REAP_SECONDS)
        except subprocess.TimeoutExpired:
            # Nobody waits longer for it, but it must not stay a zombie when it does end.
            threading.Thread(target=self._process.wait, name="reaper", daemon=True).start()
        return self._process.returncode

    def _signal(self) -> None:
        with suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
