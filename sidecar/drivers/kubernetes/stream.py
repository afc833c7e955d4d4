"""One open watch: lines out of bytes."""

import time
from contextlib import suppress
from typing import Any, Final

from urllib3.exceptions import HTTPError, ReadTimeoutError

CHUNK_BYTES: Final = 64 << 10
_LONGEST_LINE = 8 << 20
"""A ConfigMap holds 1 MiB, which JSON may spell six times as long."""
_SHORTEST_WAIT = 0.001


class Stream:
    """The lines of an open watch. Used by one thread; `cut` may be called by another."""

    def __init__(self, response: Any) -> None:
        """`response` is a `urllib3.HTTPResponse` of which nothing was read."""
        self._response = response
        self._lines: list[bytes] = []
        self._rest = bytearray()
        self.silent = False
        """Whether it came to its end because nothing was heard for as long as somebody wanted to wait."""
        self.oversized = False
        """Whether it came to its end because of a line too long to be one."""

    def read(self, deadline: float) -> bytes | None:
        """The next line. None: there will be no more, because it ended, broke, or was not whole by `deadline` (monotonic)."""
        while not self._lines:
            try:
                connection = self._response.connection
                if (
                    connection and connection.sock
                ):  # else it is closed after this answer, and waits as long as for any answer
                    connection.sock.settimeout(max(deadline - time.monotonic(), _SHORTEST_WAIT))
                piece = self._response.read1(CHUNK_BYTES, decode_content=False)
            except ReadTimeoutError:
                self.silent = True
                return None
            except (HTTPError, OSError, ValueError):
                return None  # why, the next request will tell
            if not piece:
                return None
            self._split(piece)
            if not self._lines and time.monotonic() > deadline:
                self.silent = True  # bytes come, and no line: each byte would be waited for anew
                return None
            if len(self._rest) > _LONGEST_LINE:
                self.oversized = True
                return None
        return self._lines.pop()

    def cut(self) -> None:
        """Make the thread that reads come back. May be called at any time."""
        with suppress(OSError, RuntimeError, ValueError):  # it has ended meanwhile
            self._response.shutdown()

    def close(self) -> None:
        with suppress(OSError):
            self._response.close()

    def _split(self, piece: bytes) -> None:
        *lines, rest = piece.split(b"\n")
        if lines:
            lines[0] = bytes(self._rest) + lines[0]
            self._rest.clear()
            self._lines = [line for line in reversed(lines) if line]
        self._rest += rest
