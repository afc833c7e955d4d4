"""Mail: those of one incident are one thread, and the replies of mail servers are bounded. Used only in the sender's child process."""

from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from smtplib import SMTP
from typing import Any, Final

from sidecar.core.bounds import MAIL_SERVER
from sidecar.core.message import Message

_SCHEMES: Final = ("mailto", "mailtos")
_DOMAIN: Final = "flink-ha-sidecar"


@contextmanager
def threaded(scheme: str, service: Any, message: Message) -> Iterator[None]:
    """The first mail of a thread has a Message-ID that is derived from it, so that a second copy is known; the others refer to it."""
    if scheme not in _SCHEMES or not message.thread:
        yield
        return
    first = f"<{message.thread}@{_DOMAIN}>"
    if message.reason != "FIRST":
        service.headers |= {"In-Reply-To": first, "References": first}
        yield
        return
    module: Any = import_module("apprise.plugins.email.base")
    make = module.make_msgid
    module.make_msgid = lambda **_: first  # there is no option for it, and a header would be a second one
    try:
        yield
    finally:
        module.make_msgid = make


@contextmanager
def bounded_replies() -> Iterator[None]:
    """Within, a longer reply ends its connection: smtplib reads one for as long as the server continues it, and raises
    SMTPServerDisconnected.
    """
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
