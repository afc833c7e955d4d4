"""The things that Apprise's plugins are made to do beyond sending one message. Used only in the sender's child process.

Incidents at services are opened, updated and closed by one key. Where the plugin can be told the key and what to do, it does all of it.
Those of Opsgenie and Jira Service Management close and comment on only what the same process has opened: this is done here. Mails of one
incident are one thread, and the replies of mail servers are bounded.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from smtplib import SMTP
from typing import Any, Final
from urllib.parse import quote

import requests

from sidecar.core.bounds import MAIL_SERVER
from sidecar.core.message import Message

KEYS: Final = {
    **dict.fromkeys(("pagerduty", "ilert", "squadcast", "incidentio", "firehydrant"), "dedup"),
    **dict.fromkeys(("goalert", "goalerts", "opsimate", "opsimates"), "dedup"),
    **dict.fromkeys(("splunk", "victorops"), "entity_id"),
    **dict.fromkeys(("opsgenie", "jira"), "alias"),
    "pagertree": "thirdparty",
    "signl4": "external_id",
}
"""By scheme: the attribute of its plugin's object that is the key of the incident."""
_NOTED: Final = ("opsgenie", "jira")
_MOST_NOTE: Final = 25_000
"""Characters of a note in Opsgenie."""
# Their plugins open one incident for each message, and cannot close it.
_OPENS_ONLY: Final = ("betterstack", "spike", "xmatters")
_OPENING: Final = ("FIRST", "GREW")


def unsent(scheme: str, message: Message) -> str | None:
    """Why such a message is not sent to the service, in one line; None: it is sent."""
    if scheme in KEYS and message.reason == "HEARTBEAT":
        return f"{scheme}:// takes incidents, no heartbeats: give heartbeats a receiver of another service"
    if scheme in _OPENS_ONLY and message.reason not in _OPENING:
        return f"{scheme}:// opens an incident for each message and closes none: {message.reason} is not sent"
    return None


def prepare(scheme: str, service: Any, message: Message) -> None:
    """Tell the plugin's object the key of the incident, and to close it if the message is a resolve. A key in the URL is left."""
    attribute = KEYS.get(scheme)
    if attribute is None:
        return
    own = getattr(service, attribute, None)
    unset = f"{service.app_id}/{service.routing_key}" if attribute == "entity_id" else None
    if not own or own == unset:
        setattr(service, attribute, message.incident)
    service.action = "new" if scheme in _NOTED else "map"


def plugin_sends(scheme: str, message: Message) -> bool:
    """True if the plugin sends a request for the message. Opening what is open already does nothing but count."""
    return scheme not in _NOTED or message.reason not in {"SHRANK", "RESOLVED"}


def follow_up(scheme: str, service: Any, message: Message, text: str) -> bool:
    """Send what the plugin cannot: a note for an open incident, or its end. Returns whether the service accepted it."""
    if scheme not in _NOTED or message.reason in {"FIRST", "REPEAT_INTERVAL_ELAPSED"}:
        return True
    module = import_module(type(service).__module__)
    alerts = getattr(module, f"{scheme.upper()}_API_LOOKUP")[service.region_name]
    action = "close" if message.reason == "RESOLVED" else "notes"
    payload = {"source": service.app_desc, "note": text[:_MOST_NOTE]}
    url = f"{alerts}/{quote(service.alias, safe='')}/{action}"
    accepted, request_id = service._fetch(requests.post, url, payload, {"identifierType": "alias"})  # noqa: SLF001  there is no other way
    if accepted and not request_id:
        service.logger.warning("The answer has no requestId.")
    return bool(accepted and request_id)


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

    def bounded_reply(connection: Any) -> tuple[int, bytes]:
        file = connection.file or connection.sock.makefile("rb")
        connection.file = _Reply(file)
        try:
            return getreply(connection)
        finally:
            if connection.file:  # else smtplib has closed it
                connection.file = file

    SMTP.getreply = bounded_reply  # type: ignore[assignment, method-assign]  # it has no option for it
    try:
        yield
    finally:
        SMTP.getreply = getreply  # type: ignore[method-assign]  # as above


class _Reply:
    """The part of a file that smtplib uses, for one reply."""

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
