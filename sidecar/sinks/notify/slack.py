"""One message per incident in a Slack channel, updated in place, with the details in its thread. Used only in the sender's child process.

The message carries the key of its incident as metadata. It is found again by that, whoever posted it: another sidecar, or this one before a
restart. So nothing about Slack is kept anywhere else, and an attempt that may have arrived is not repeated.
"""

import re
from collections.abc import Mapping
from typing import Any, Final, NamedTuple
from urllib.parse import urlencode

from msgspec import DecodeError, json

from sidecar.core.message import Message
from sidecar.net.endpoints import Slack
from sidecar.sinks.notify.http_client import Client, UnacceptedError, accepted
from sidecar.sinks.notify.sender_protocol import Answer

_EVENT: Final = "flink_incident"
_PAGES: Final = 10
_PAGE: Final = 200
"""Messages. The incident's message is looked for among the newest 2000 of the channel."""
_MOST_TEXT: Final = 2800
_MOST_TITLE: Final = 250
_NOTIFIED_AGAIN: Final = {"GREW", "REPEAT_INTERVAL_ELAPSED"}
"""A new failure in an open thread, and a reminder, are shown in the channel too: an edit notifies nobody."""
_LINK: Final = re.compile(r"https?://[!-;=?-{}~]{1,1000}")
_CODES: Final = re.compile(r"[a-z0-9_]{1,60}")
_COLOURS: Final = {"red": "#a30200", "amber": "#daa038", "grey": "#8b8f94", "blue": "#439fe0", "green": "#2eb886"}
_UNSURE: Final = frozenset({"internal_error", "fatal_error", "request_timeout", "service_unavailable"})
_GONE: Final = frozenset({"message_not_found", "cant_update_message", "edit_window_closed", "thread_not_found"})
_HINTS: Final = {
    **dict.fromkeys(
        ("invalid_auth", "not_authed", "account_inactive", "token_revoked", "token_expired"),
        "the token is not valid (any more): install the app again and replace the token",
    ),
    "not_in_channel": "invite the bot to the channel",
    "channel_not_found": "no such channel, or a private one: invite the bot",
    "is_archived": "the channel is archived",
    "missing_scope": "the app needs the scopes chat:write, and channels:history or groups:history",
}


class _Incident(NamedTuple):
    """The newest message of the incident."""

    ts: str
    is_current: bool
    """True if its incident is open, or it is of these very messages."""


def deliver(message: Message, endpoint: Slack, seconds: float) -> Answer:
    """Post or update the message of the incident, and post the details in its thread."""
    try:
        return _Conversation(message, endpoint, seconds).deliver()
    except UnacceptedError as error:
        return error.answer


class _Conversation:
    """The requests of one attempt."""

    def __init__(self, message: Message, endpoint: Slack, seconds: float) -> None:
        self._message = message
        self._endpoint = endpoint
        token = endpoint.token.reveal()
        headers = {
            "Authorization": f"Bearer {token}",
            "Content-Type": "application/x-www-form-urlencoded; charset=utf-8",
        }
        self._client = Client(seconds, secrets=[token], headers=headers)

    def deliver(self) -> Answer:
        """Raises UnacceptedError."""
        message, doubt = self._message, ""
        if message.reason == "HEARTBEAT":
            self._call("chat.postMessage", text=_escaped(message.title))
            return Answer("delivered")
        try:
            incident = self._find()
        except UnacceptedError as error:
            if error.code != "missing_scope":
                raise
            incident, doubt = None, f"as a message of its own, because those of its incident cannot be found: {error}"
        if incident and not incident.is_current and message.reason in {"SHRANK", "RESOLVED"}:
            return Answer("delivered", "its incident is over already")
        current = incident.ts if incident and incident.is_current else None
        ts = current if current and self._update(current) else self._open()
        self._reply(ts)
        return Answer("delivered", doubt)

    def _find(self) -> _Incident | None:
        cursor = ""
        for _ in range(_PAGES):
            page = self._call("conversations.history", limit=_PAGE, include_all_metadata="true", cursor=cursor)
            for message in page.get("messages") or []:
                about = _incident_of(message)
                if about.get("incident") == self._message.incident and isinstance(message.get("ts"), str):
                    same = about.get("thread") == self._message.thread
                    return _Incident(message["ts"], same or about.get("state") == "open")
            cursor = str((page.get("response_metadata") or {}).get("next_cursor") or "")
            if not cursor:
                break
        return None

    def _open(self) -> str:
        ts = self._call("chat.postMessage", **self._content()).get("ts")
        if not isinstance(ts, str):
            raise UnacceptedError(Answer("timed_out", "Slack's answer has no ts: the message may have arrived"))
        return ts

    def _update(self, ts: str) -> bool:
        """True if the message is still there."""
        try:
            self._call("chat.update", ts=ts, **self._content())
        except UnacceptedError as error:
            if error.code not in _GONE:
                raise
            return False
        return True

    def _reply(self, ts: str) -> None:
        message = self._message
        listed = "\n".join(f"{name}: {value}" for name, value in message.facts)
        text = "\n\n".join(part for part in (message.title, message.body, listed) if part)
        again = {"reply_broadcast": "true"} if message.reason in _NOTIFIED_AGAIN else {}
        self._call("chat.postMessage", thread_ts=ts, text=_escaped(message.title), blocks=[_plain(text)], **again)

    def _content(self) -> dict[str, Any]:
        """The message of the incident."""
        message = self._message
        blocks = [_plain(message.title[:_MOST_TITLE])]
        if message.link and _LINK.fullmatch(message.link):
            blocks.append({"type": "section", "text": {"type": "mrkdwn", "text": f"<{message.link}|Open the page>"}})
        state = "open" if message.goes_on else "over"
        colour = _COLOURS[message.shown[0]]
        return {
            "text": _escaped(message.title),
            "attachments": [{"color": colour, "fallback": message.title[:_MOST_TITLE], "blocks": blocks}],
            "metadata": {
                "event_type": _EVENT,
                "event_payload": {"incident": message.incident, "thread": message.thread, "state": state},
            },
        }

    def _call(self, method: str, **arguments: Any) -> dict[str, Any]:
        """The answer of the method. Raises UnacceptedError."""
        fields = {"channel": self._endpoint.channel, "unfurl_links": "false", **arguments}
        content = urlencode({name: _text(value) for name, value in fields.items() if value != ""}).encode()
        reply = accepted(self._client.send(f"{self._endpoint.api_url}/{method}", content))
        try:
            answer = _BODY.decode(reply.body)
        except (DecodeError, UnicodeDecodeError, RecursionError):
            raise UnacceptedError(Answer("timed_out", f"{method}: the answer is not Slack's")) from None
        if answer.get("ok") is True:
            return answer
        raise _error(method, str(answer.get("error")))


def _error(method: str, code: str) -> UnacceptedError:
    name = code if _CODES.fullmatch(code) else "an unknown error"
    hint = _HINTS.get(name)
    outcome = "rate_limited" if name == "ratelimited" else "timed_out" if name in _UNSURE else "rejected"
    return UnacceptedError(Answer(outcome, f"Slack answered {name} to {method}{f': {hint}' if hint else ''}"), name)


def _incident_of(message: object) -> Mapping[str, object]:
    """The incident that a message says that it is about. Any app may have written it."""
    metadata = message.get("metadata") if isinstance(message, dict) else None
    if not isinstance(metadata, dict) or metadata.get("event_type") != _EVENT:
        return {}
    about = metadata.get("event_payload")
    return about if isinstance(about, dict) else {}


def _plain(text: str) -> dict[str, Any]:
    """A block that shows untrusted text as it is."""
    excerpt = text if len(text) <= _MOST_TEXT else f"{text[:_MOST_TEXT]}…"
    return {"type": "section", "text": {"type": "plain_text", "text": excerpt, "emoji": False}}


def _escaped(text: str) -> str:
    """For a notification, where text is markup."""
    return text[:_MOST_TITLE].replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")


def _text(value: object) -> str:
    return value if isinstance(value, str) else json.encode(value).decode()


_BODY: Final = json.Decoder(dict[str, Any])
