"""Bounds the replies of mail servers: smtplib reads one for as long as the server continues it. Used only in the sender's child."""

from collections.abc import Iterator
from contextlib import contextmanager
from smtplib import SMTP
from typing import Any

from sidecar.core.bounds import MAIL_SERVER


@contextmanager
def bounded() -> Iterator[None]:
    """Within, a longer reply ends its connection: smtplib raises SMTPServerDisconnected."""
    getreply = SMTP.getreply

    def of_bounded_file(connection: Any) -> tuple[int, bytes]:
        file = connection.file or connection.sock.makefile("rb")
        connection.file = _Reply(file)
        try:
            return getreply(connection)
        finally:
            if connection.file:  # else smtplib has closed it
                connection.file = file

    SMTP.getreply = of_bounded_file  # type: ignore[assignment, method-assign]  # it has no option for it
    try:
        yield
    finally:
        SMTP.getreply = getreply  # type: ignore[method-assign]  # as above


class _Reply:
    """What smtplib uses of a file, for one reply."""

    def __init__(self, file: Any) -> None:
        self._file = file
        self._left = MAIL_SERVER.most_bytes

    def readline(self, size: int) -> bytes:
        line: bytes = self._file.readline(size)
        self._left -= len(line)
        if self._left < 0:
            raise OSError(f"the server's reply has more than {MAIL_SERVER.most_bytes >> 10} KiB")
        return line

    def close(self) -> None:
        self._file.close()
