"""A child process that answers one request: for work that is heavy, may hang, or handles secrets (docs/project/adr/0002).

The request goes to stdin, never into the command line or the environment: it may hold secrets.
"""

import json
import math
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any, Final, TypeVar

import msgspec

from sidecar.core.bounds import CHILD, OUT_OF_MEMORY

_REAP_SECONDS: Final = 2.0
_LOOK_SECONDS: Final = 0.5
"""The time until a change of `until` takes effect."""

_T = TypeVar("_T")


class NoAnswerError(Exception):
    """The child gave no valid answer."""


class Child:
    """One run of a module, in its own process group. Answers one JSON line with one JSON line; exits when we do."""

    def __init__(self, module: str, name: str, environment: Mapping[str, str], most_memory: int) -> None:
        """`name` is for error messages. The child gets only this `environment`, and so many bytes of memory. Raises OSError."""
        self._name = name
        self._ours, theirs = socket.socketpair()
        self._lock = threading.Lock()
        self._ended = False
        try:
            self._process = subprocess.Popen(
                [sys.executable, "-I", "-m", module, str(most_memory)],
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

    def ask(
        self,
        request: Mapping[str, Any],
        decoder: msgspec.json.Decoder[_T],
        seconds: float,
        until: Callable[[], float] = lambda: math.inf,
    ) -> _T:
        """The answer, decoded. Raises NoAnswerError if there is none within `seconds`, or `until` (monotonic), which may change."""
        deadline = time.monotonic() + seconds
        answer = bytearray()
        try:
            self._ours.settimeout(seconds)
            self._ours.sendall(json.dumps(request).encode() + b"\n")
            while not answer.endswith(b"\n"):
                part = self._part(deadline, until)
                if not part:
                    raise NoAnswerError(self._no_answer_text(self.end()))
                answer += part
                if len(answer) > CHILD.most_bytes:
                    raise NoAnswerError(f"{self._name} answered with more than {CHILD.most_bytes >> 20} MiB")
            return decoder.decode(answer)
        except TimeoutError:
            raise NoAnswerError(f"no answer within {seconds:g} s") from None
        except (OSError, msgspec.DecodeError) as error:
            raise NoAnswerError(f"{self._name} did not answer: {type(error).__name__}") from error

    def _no_answer_text(self, exit_code: int | None) -> str:
        if exit_code == OUT_OF_MEMORY:
            return f"{self._name} ran out of memory: what it was answered is too large"
        return f"{self._name} ended without an answer (exit code {exit_code})"

    def _part(self, deadline: float, until: Callable[[], float]) -> bytes:
        """The next bytes that the child writes; empty: no more. Raises TimeoutError."""
        while (seconds := min(deadline, until()) - time.monotonic()) > 0:
            self._ours.settimeout(min(seconds, _LOOK_SECONDS))
            with suppress(TimeoutError):
                return self._ours.recv(65536)
        raise TimeoutError

    def kill(self) -> None:
        """Kill the child; `ask` in another thread then raises NoAnswerError. May be called in any thread."""
        with self._lock:
            if not self._ended:
                self._signal()

    def end(self) -> int | None:
        """Kill the child and release its resources. Returns the exit code; None if the kernel does not end the process."""
        with self._lock:
            if not self._ended:
                self._ended = True  # from now on the process id may be reused
                self._signal()
                self._ours.close()
        try:
            self._process.wait(_REAP_SECONDS)
        except subprocess.TimeoutExpired:
            # Reap it later: it must not stay a zombie.
            threading.Thread(target=self._process.wait, name="reaper", daemon=True).start()
        return self._process.returncode

    def _signal(self) -> None:
        with suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
