"""Mails of one incident are one thread. Used only in the sender's child process."""

from importlib import import_module
from typing import Any, Final

from sidecar.sinks.notify.message import Message

_SCHEMES: Final = ("mailto", "mailtos")
_DOMAIN: Final = "flink-ha-sidecar"


def prepare(scheme: str, service: Any, message: Message) -> None:
    """The first mail of a thread has a Message-ID that is derived from it, so that a repeated one is known; the others refer to it."""
    if scheme not in _SCHEMES or not message.thread:
        return
    first = f"<{message.thread}@{_DOMAIN}>"
    if message.reason == "FIRST":
        import_module("apprise.plugins.email.base").make_msgid = lambda **_: first  # type: ignore[attr-defined]  # no header can replace it
    else:
        service.headers |= {"In-Reply-To": first, "References": first}
