"""Mails of one incident are one thread. Used only in the sender's child process."""

from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from typing import Any, Final

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
