"""A program on a terminal of its own, and somebody who types."""

import fcntl
import os
import pty
import select
import struct
import subprocess
import termios
import time
from collections.abc import Mapping, Sequence
from types import TracebackType
from typing import Final, Self

from tests.kit.waiting import PATIENCE_SECONDS

CTRL_C: Final = "\x03"
CTRL_D: Final = "\x04"
ENTER: Final = "\r"
TAB: Final = "\t"
UP: Final = "\x1b[A"
_ROWS, _COLUMNS = 50, 200


class Terminal:
    """A pseudo-terminal and the program in it, which is killed with the block if it has not ended."""

    def __init__(self, command: Sequence[str], environment: Mapping[str, str]) -> None:
        self._master, slave = pty.openpty()
        fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", _ROWS, _COLUMNS, 0, 0))
        self.process = subprocess.Popen(
            # Ctrl-C interrupts who has the terminal, also where the tests themselves were started to ignore it, as in the background.
            ["setsid", "--ctty", "env", "--default-signal=INT", *command],  # noqa: S607  the system's
            stdin=slave,
            stdout=slave,
            stderr=slave,
            env={**os.environ, "TERM": "xterm", "PROMPT_TOOLKIT_NO_CPR": "1", **environment},
        )
        os.close(slave)
        self._shown = ""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.process.kill()
        self.process.wait()
        os.close(self._master)

    def type(self, keys: str) -> None:
        """Press keys."""
        os.write(self._master, keys.encode())

    def enter(self, line: str) -> None:
        """Type a line."""
        self.type(line + ENTER)

    def shows(self, text: str, seconds: float = PATIENCE_SECONDS) -> str:
        """Wait until the program writes `text`; returns what it wrote up to there since the last call."""
        deadline = time.monotonic() + seconds
        while text not in self._shown:
            left = deadline - time.monotonic()
            assert left > 0, f"waited for {text!r}: {self._shown!r}"
            if select.select([self._master], [], [], left)[0]:
                self._shown += os.read(self._master, 65536).decode(errors="replace")
        before, part, self._shown = self._shown.partition(text)
        return before + part

    def ends(self, seconds: float = PATIENCE_SECONDS) -> int:
        """Wait until the program ends; returns its exit status."""
        return self.process.wait(seconds)
