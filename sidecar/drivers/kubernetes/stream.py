"""The lines of one open watch."""

import time
from contextlib import suppress
from typing import Any, Final

from urllib3.exceptions import HTTPError, ReadTimeoutError

CHUNK_BYTES: Final = 64 << 10
_LONGEST_LINE = 8 << 20
"""Bytes. A ConfigMap holds 1 MiB, which JSON escapes may make six times as long."""
_SHORTEST_WAIT = 0.001


class Stream:
    """Reads the lines of an open watch. Used by one thread; any thread may call `cut`."""

    def __init__(self, response: Any) -> None:
        """`response`: an unread `urllib3.HTTPResponse`."""
        self._response = response
        self._lines: list[bytes] = []
        self._rest = bytearray()
        self.silent = False
        """Whether the stream ended because no line arrived by the deadline."""
        self.oversized = False
        """Whether the stream ended because a line was too long."""

    def read(self, deadline: float) -> bytes | None:
        """The next line. None: the stream has ended, broke, or had no complete line by `deadline` (monotonic)."""
        while not self._lines:
            try:
                connection = self._response.connection
                if connection and connection.sock:  # otherwise it closes after this answer: the usual timeout
                    connection.sock.settimeout(max(deadline - time.monotonic(), _SHORTEST_WAIT))
                chunk = self._response.read1(CHUNK_BYTES, decode_content=False)
            except ReadTimeoutError:
                self.silent = True
                return None
            except (HTTPError, OSError, ValueError):
                return None  # the next request reports the reason
            if not chunk:
                return None
            self._split(chunk)
            if not self._lines and time.monotonic() > deadline:
                self.silent = True  # bytes arrive, but no line: each byte would extend the wait
                return None
            if len(self._rest) > _LONGEST_LINE:
                self.oversized = True
                return None
        return self._lines.pop()

    def cut(self) -> None:
        """Abort the reading thread's wait. May be called at any time."""
        with suppress(OSError, RuntimeError, ValueError):  # already ended
            self._response.shutdown()

    def close(self) -> None:
        with suppress(OSError):
            self._response.close()

    def _split(self, chunk: bytes) -> None:
        *lines, rest = chunk.split(b"\n")
        if lines:
            lines[0] = bytes(self._rest) + lines[0]
            self._rest.clear()
            self._lines = [line for line in reversed(lines) if line]
        self._rest += rest
