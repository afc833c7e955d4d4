"""Who gets the sidecar's messages: a webhook, a mailbox, and a Slack, each with when something arrived."""

import json
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Final

from msgspec import Struct

from tests.kit.paging import CHANNEL, TOKEN, Slack
from tests.lab.receivers import HttpReceiver, MailReceiver

_COLOURS: Final = {"#2eb886": "green"}
"""Slack's, of what matters here."""
_NOT_OVER: Final = frozenset({"DOWN", "SPLIT", "LOST", "NOT_RUNNING", "SILENT", "RECOVERING", "BLIND"})
"""Of which nothing is resolved."""


class Said(Struct, frozen=True):
    """One message, as far as it can be read from outside. `at` is in seconds since the epoch."""

    at: float
    channel: str
    """`webhook`, `mail` or `slack`."""
    title: str
    text: str = ""
    status: str = ""
    """Of the cluster. Empty: it is about no incident, or the channel has no such field."""
    sentence: str = ""
    green: bool = False
    """Whether it looks as if all is well, whatever it says."""
    alerts: tuple[str, ...] = ()
    began: float | None = None
    """When the first of its alerts began."""
    begins: Mapping[str, float] = {}
    """When the first alert of each rule began."""
    reason: str = ""
    facts: Mapping[str, str] = {}


class Arrivals:
    """All of them."""

    def __init__(self) -> None:
        self.webhook = HttpReceiver()
        self.mail = MailReceiver()
        self.slack = _SlackServer()

    @property
    def settings(self) -> str:
        """The receiver, for the sidecar's configuration."""
        return (
            f"receivers:\n  - name: ops\n    webhook: {{url: 'http://{self.webhook.address}/'}}\n"
            f"    slack: {{token: {TOKEN}, channel: {CHANNEL}, api_url: '{self.slack.url}'}}\n"
            f"    urls: ['{self.mail.url}']\n"
        )

    def between(self, begin: float, end: float) -> list[Said]:
        """What arrived, in order."""
        said = [_of_webhook(one.at, json.loads(one.raw)) for one in list(self.webhook.received)]
        said += [Said(one.at, "mail", one.title, one.body) for one in list(self.mail.received)]
        said += list(self.slack.said)
        return sorted((one for one in said if begin <= one.at <= end), key=lambda one: one.at)


@contextmanager
def arrivals() -> Iterator[Arrivals]:
    """They serve as long as the block lasts."""
    everywhere = Arrivals()
    try:
        everywhere.webhook.start()
        everywhere.mail.start()
        everywhere.slack.start()
        yield everywhere
    finally:
        everywhere.webhook.stop()
        everywhere.mail.stop()
        everywhere.slack.stop()


def _of_webhook(at: float, payload: Mapping[str, Any]) -> Said:
    alerts = payload["alerts"]
    begins: dict[str, float] = {}
    for alert in alerts:
        name, began = str(alert["labels"]["alertname"]), seconds_of(alert["startsAt"])
        begins[name] = min(began, begins.get(name, began))
    status = str(payload["clusterStatus"])
    return Said(
        *(at, "webhook", payload["title"], payload["text"], status, payload["sentence"]),
        green=status == "OK" or (payload["status"] == "resolved" and status in _NOT_OVER),
        alerts=tuple(begins),
        began=min(begins.values(), default=None),
        begins=begins,
        reason=payload["reason"],
        facts=payload["facts"],
    )


def seconds_of(timestamp: str) -> float:
    return datetime.fromisoformat(timestamp).timestamp()


class _SlackServer:
    """`tests.kit.paging.Slack` at an address of this machine."""

    def __init__(self) -> None:
        self.said: list[Said] = []
        self.slack = Slack()
        self._lock = threading.Lock()
        """Held while a request is answered."""
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), _Handler)
        self._server.daemon_threads = True
        self._server.answer = self.answer  # type: ignore[attr-defined]  # for the handler

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._server.server_port}/api"

    def start(self) -> None:
        threading.Thread(target=self._server.serve_forever, args=(0.05,), name="slack", daemon=True).start()

    def stop(self) -> None:
        self._server.shutdown()
        self._server.server_close()

    def answer(self, path: str, headers: Mapping[str, str], body: bytes) -> tuple[int, bytes]:
        with self._lock:
            before = len(self.slack.requests)
            reply = self.slack.answer(path, headers, body)
            for method, fields in self.slack.requests[before:]:
                if method != "conversations.history" and "thread_ts" not in fields:
                    colours = [one.get("color", "") for one in json.loads(fields.get("attachments", "[]"))]
                    green = "green" in map(_COLOURS.get, colours)
                    self.said.append(Said(time.time(), "slack", fields["text"], green=green))
        return reply.status, json.dumps(reply.body).encode()


class _Handler(BaseHTTPRequestHandler):
    timeout = 10.0

    def do_POST(self) -> None:
        """A method of Slack's API."""
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        status, answer = self.server.answer(self.path, dict(self.headers), body)  # type: ignore[attr-defined]  # set above
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(answer)))
        self.end_headers()
        self.wfile.write(answer)

    def log_message(self, *_: object) -> None:
        """Nothing: the messages are in `said`."""
