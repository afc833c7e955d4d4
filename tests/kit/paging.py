"""Paging services and Slack that behave as their published APIs say, at their own addresses: no sender knows that they are local.

The services themselves cannot be had. Their host names are reached through a proxy here (`HTTPS_PROXY`), which ends TLS with certificates
of an authority made for the test (`REQUESTS_CA_BUNDLE`): real senders, real plugins, real requests.
"""

import json
import re
import ssl
import threading
from collections.abc import Callable, Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from itertools import count
from pathlib import Path
from typing import Any, Final, NamedTuple
from urllib.parse import parse_qs, unquote, urlsplit

from tests.kit.certificates import Authority

KEY: Final = "0123456789abcdef0123456789abcdef"
TOKEN: Final = "xoxb-1234567890-abcdef"
CHANNEL: Final = "C0123456789"


_OTHERS: Final = (
    *("api.squadcast.com", "api.incident.io", "alert.victorops.com", "signals.firehydrant.com"),
    *("api.pagertree.com", "connect.signl4.com", "goalert.example", "opsimate.example", "bridge.example"),
)
"""Hosts of services that a test adds."""


class Reply(NamedTuple):
    """An answer of a service."""

    status: int
    body: Mapping[str, Any] | str
    """A text is sent as it is."""
    headers: Mapping[str, str] = {}


class Incident:
    """One incident of a service: opened, perhaps updated, perhaps closed."""

    def __init__(self, key: str, title: str) -> None:
        self.key = key
        self.title = title
        self.is_open = True
        self.updates: list[str] = []


class Desk:
    """Incidents by key, as all of these services keep them: what opens an open one updates it, what closes a closed one does nothing."""

    host = ""
    url = ""

    def __init__(self) -> None:
        self.incidents: list[Incident] = []
        self.requests: list[tuple[str, Mapping[str, Any]]] = []
        """Those that were accepted: what was asked for, and the payload."""

    def open(self, key: str, title: str) -> None:
        current = self.current(key)
        if current is None:
            self.incidents.append(Incident(key, title))
        else:
            current.updates.append(title)

    def close(self, key: str) -> None:
        if current := self.current(key):
            current.is_open = False

    def current(self, key: str) -> Incident | None:
        return next((incident for incident in self.incidents if incident.is_open and incident.key == key), None)

    def answer(self, path: str, _headers: Mapping[str, str], body: bytes, /) -> Reply:
        """What becomes of a POST."""
        raise NotImplementedError


class PagerDuty(Desk):
    """Events API v2."""

    host = "events.pagerduty.com"
    url = f"pagerduty://{KEY}@{KEY}"

    def answer(self, path: str, _headers: Mapping[str, str], body: bytes, /) -> Reply:
        event = json.loads(body)
        errors = list(self._errors(event)) if path == "/v2/enqueue" else ["no such path"]
        if errors:
            return Reply(400, {"status": "invalid event", "message": "Event object is invalid", "errors": errors})
        self.requests.append((event["event_action"], event))
        if event["event_action"] == "trigger":
            self.open(event["dedup_key"], event["payload"]["summary"])
        else:
            self.close(event["dedup_key"])
        return Reply(202, {"status": "success", "message": "Event processed", "dedup_key": event["dedup_key"]})

    def _errors(self, event: Mapping[str, Any]) -> Any:
        if event.get("routing_key") != KEY:
            yield "'routing_key' is invalid"
        if event.get("event_action") not in {"trigger", "acknowledge", "resolve"}:
            yield "'event_action' is invalid"
        if not 0 < len(event.get("dedup_key", "")) <= 255:
            yield "'dedup_key' is missing here: every incident has one"
        payload = event.get("payload", {})
        if event.get("event_action") == "trigger":
            if not 0 < len(payload.get("summary", "")) <= 1024 or not payload.get("source"):
                yield "'payload.summary' or 'payload.source' is missing or too long"
            if payload.get("severity") not in {"info", "warning", "error", "critical"}:
                yield "'payload.severity' is invalid"


class Opsgenie(Desk):
    """Alert API v2. Requests are accepted, and processed afterwards: one for an alert that is not there comes to nothing."""

    host = "api.opsgenie.com"
    base = "/v2/alerts"
    url = f"opsgenie://{KEY}"

    def answer(self, path: str, headers: Mapping[str, str], body: bytes, /) -> Reply:
        if headers.get("Authorization") != f"GenieKey {KEY}":
            return Reply(422, {"message": "Key format is not valid!", "took": 0.0, "requestId": "r"})
        url, payload = urlsplit(path), json.loads(body)
        action = re.fullmatch(rf"{self.base}(?:/([^/]+)/(close|notes))?", url.path)
        if action is None or (action[1] and parse_qs(url.query).get("identifierType") != ["alias"]):
            return Reply(404, {"message": "Not found", "requestId": "r"})
        alias = unquote(action[1]) if action[1] else payload.get("alias", "")
        if not 0 < len(alias) <= 512 or (not action[2] and not 0 < len(payload["message"]) <= 130):
            return Reply(422, {"message": "Request body is not processable.", "requestId": "r"})
        self.requests.append((action[2] or "create", payload))
        self._process(action[2], alias, payload)
        return Reply(202, {"result": "Request will be processed", "took": 0.1, "requestId": "43a29c5c"})

    def _process(self, action: str | None, alias: str, payload: Mapping[str, Any]) -> None:
        if action is None:
            self.open(alias, payload["message"])
        elif action == "close":
            self.close(alias)
        elif current := self.current(alias):
            current.updates.append(payload["note"])


class Jira(Opsgenie):
    """Jira Service Management's integration events."""

    host = "api.atlassian.com"
    base = "/jsm/ops/integration/v2/alerts"
    url = f"jira://{KEY}"


class ILert(Desk):
    """Events API."""

    host = "api.ilert.com"
    url = f"ilert://{KEY}"

    def answer(self, path: str, _headers: Mapping[str, str], body: bytes, /) -> Reply:
        event = json.loads(body)
        if path != "/api/events" or event.get("integrationKey") != KEY:
            return Reply(404, {"status": 404, "code": "INTEGRATION_KEY_NOT_FOUND", "message": "no such key"})
        if event.get("eventType") not in {"ALERT", "ACCEPT", "RESOLVE"} or not event.get("alertKey"):
            return Reply(400, {"status": 400, "code": "INVALID", "message": "eventType or alertKey"})
        self.requests.append((event["eventType"], event))
        if event["eventType"] == "ALERT":
            self.open(event["alertKey"], event["summary"])
        else:
            self.close(event["alertKey"])
        return Reply(202, {"responseCode": "NEW_ALERT_CREATED"})


class Slack(Desk):
    """Web API: the methods that are called. An incident is a message with its thread."""

    host = "slack.com"

    def __init__(self) -> None:
        super().__init__()
        self.messages: list[Any] = []
        """Of the channel, the oldest first."""
        self.threads: dict[str, list[dict[str, Any]]] = {}
        self.error = ""
        """What every method answers."""
        self.missing_scopes: set[str] = set()
        """Methods."""
        self._numbers = count(1)

    def answer(self, path: str, headers: Mapping[str, str], body: bytes, /) -> Reply:
        fields = {name: values[0] for name, values in parse_qs(body.decode()).items()}
        method = path.removeprefix("/api/")
        error = self.error
        if headers.get("Authorization") != f"Bearer {TOKEN}":
            error = "invalid_auth"
        elif method in self.missing_scopes:
            error = "missing_scope"
        elif fields.get("channel") != CHANNEL:
            error = "channel_not_found"
        methods: dict[str, Callable[[dict[str, str]], dict[str, Any]]] = {
            "chat.postMessage": self._post,
            "chat.update": self._update,
            "conversations.history": self._history,
        }
        answered = {"ok": False, "error": error or "unknown_method"}
        if not error and method in methods:
            answered = methods[method](fields)
            self.requests.append((method, fields))
        return Reply(200, answered)

    def _post(self, fields: dict[str, str]) -> dict[str, Any]:
        message = {**self._content(fields), "ts": f"1700000000.{next(self._numbers):06d}"}
        if thread := fields.get("thread_ts"):
            self.threads[thread].append(message)
        else:
            self.messages.append(message)
            self.threads[message["ts"]] = []
        self._note()
        return {"ok": True, "channel": CHANNEL, "ts": message["ts"]}

    def _update(self, fields: dict[str, str]) -> dict[str, Any]:
        for message in self.messages:
            if message["ts"] == fields["ts"]:
                message.update(self._content(fields))
                self._note()
                return {"ok": True, "channel": CHANNEL, "ts": message["ts"]}
        return {"ok": False, "error": "message_not_found"}

    def _history(self, fields: dict[str, str]) -> dict[str, Any]:
        newest, start = self.messages[::-1], int(fields.get("cursor", "0"))
        until = start + min(int(fields["limit"]), 3)  # fewer than asked for, as Slack may
        more = {"response_metadata": {"next_cursor": str(until)}} if until < len(newest) else {}
        return {"ok": True, "messages": newest[start:until], **more}

    def _content(self, fields: dict[str, str]) -> dict[str, Any]:
        rich: dict[str, Any] = {
            name: json.loads(fields[name]) for name in ("attachments", "blocks", "metadata") if name in fields
        }
        return {"text": fields["text"], **rich}

    def _note(self) -> None:
        """The incidents as the channel shows them."""
        self.incidents = []
        for message in (sent for sent in self.messages if "attachments" in sent):
            if about := message.get("metadata", {}).get("event_payload"):
                incident = Incident(about["incident"], message["text"])
                incident.is_open = about["state"] == "open"
                self.incidents.append(incident)


class Internet:
    """The proxy, and behind it the services."""

    def __init__(self, folder: Path, *services: Desk) -> None:
        authority = Authority(folder / "internet")
        names = [f"DNS:{service.host}" for service in services] + [f"DNS:{host}" for host in _OTHERS]
        certificate, key = authority.issue("services", *names)
        self.ca = authority.ca
        self.services = {service.host: service for service in services}
        self.fault: Callable[[], int] = lambda: 0
        """Called before each request: the status of a service that is down; 0: it works. 599: it takes the request, and fails then."""
        self.took: Callable[[], None] = lambda: None
        """Called after each request that a service took, before it answers."""
        self.context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self.context.load_cert_chain(certificate, key)
        self._server = _Proxy(self)

    @property
    def environment(self) -> dict[str, str]:
        """What leads a process here."""
        proxy = f"http://127.0.0.1:{self._server.server_port}"
        return {"HTTPS_PROXY": proxy, "REQUESTS_CA_BUNDLE": str(self.ca)}

    def start(self) -> None:
        threading.Thread(target=self._server.serve_forever, args=(0.05,), name="internet", daemon=True).start()

    def kill(self) -> None:
        self._server.shutdown()
        self._server.server_close()


class _Proxy(ThreadingHTTPServer):
    daemon_threads = True

    def __init__(self, internet: Internet) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.internet = internet

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A sender that was killed is none of our errors."""


class _Handler(BaseHTTPRequestHandler):
    server: _Proxy
    protocol_version = "HTTP/1.1"
    timeout = 30.0
    host = ""

    def do_CONNECT(self) -> None:
        """From now on the connection is one to the service."""
        self.host = self.path.partition(":")[0]
        if self.host not in self.server.internet.services:
            self.send_error(502)
            return
        self.send_response(200)
        self.end_headers()
        self.connection = self.server.internet.context.wrap_socket(self.connection, server_side=True)
        self.rfile = self.connection.makefile("rb")
        self.wfile = self.connection.makefile("wb", buffering=0)
        self.close_connection = False

    def do_POST(self) -> None:
        """A request to the service."""
        internet = self.server.internet
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        fault = internet.fault()
        reply = Reply(fault, {"message": "out of order"})
        if fault in {0, 599}:
            host = self.host or str(urlsplit(self.path).hostname)
            reply = internet.services[host].answer(self.path, dict(self.headers), body)
            internet.took()
        if fault == 599:
            reply = Reply(502, {"message": "the gateway lost the answer"})
        content = (reply.body if isinstance(reply.body, str) else json.dumps(reply.body)).encode()
        self.send_response(reply.status)
        for name, value in {"Content-Length": str(len(content)), "Connection": "close", **reply.headers}.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(content)
        self.close_connection = True

    do_GET = do_POST  # noqa: N815  as http.server calls it

    def finish(self) -> None:
        """Close the connection, which after CONNECT is another object than the server knows."""
        super().finish()
        self.connection.close()

    def log_message(self, *_: Any) -> None:
        """Says nothing: the services note what they took."""
