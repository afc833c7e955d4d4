"""A webhook and a mail server on 127.0.0.1 that keep every message they receive."""

import asyncio
import json
import math
import threading
import time
from collections.abc import Mapping
from concurrent.futures import Future
from contextlib import suppress
from email import message_from_bytes, policy
from functools import partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Final

from aiosmtpd.smtp import SMTP
from msgspec import Struct

_MOST_BYTES: Final = 1 << 20
_SECONDS: Final = 10.0


class ReceivedMessage(Struct, frozen=True):
    """One received message. `at` is in seconds since the epoch; `raw` is the body of the request, or the whole mail."""

    at: float
    title: str
    body: str
    raw: bytes


class HttpReceiver:
    """A webhook. It keeps what is posted, and responds with `status` and `headers` after `answer_after` seconds; `math.inf`: never.

    These three may be changed while it runs.
    """

    def __init__(self) -> None:
        self.status = 200
        self.answer_after = 0.0
        self.headers: Mapping[str, str] = {}
        self.received: list[ReceivedMessage] = []
        self.stopping = threading.Event()
        self._server: _WebServer | None = None

    @property
    def address(self) -> str:
        """`127.0.0.1:PORT`, after the start."""
        return f"127.0.0.1:{self._server.server_port}" if self._server else ""

    @property
    def url(self) -> str:
        """Its Apprise URL."""
        return f"json://{self.address}/"

    def start(self) -> None:
        """Start to receive. May be called once."""
        self._server = _WebServer(self)
        threading.Thread(target=self._server.serve_forever, args=(0.05,), name="http-receiver", daemon=True).start()

    def stop(self) -> None:
        """Stop receiving; pending requests get no response. May be called twice, or before `start`."""
        if self._server and not self.stopping.is_set():
            self.stopping.set()
            self._server.shutdown()
            self._server.server_close()


class MailReceiver:
    """A mail server without TLS or log-in. It keeps each mail, and responds with `status` after `answer_after` seconds; `math.inf`: never.

    Both may be changed while it runs.
    """

    def __init__(self) -> None:
        self.status = 250
        self.answer_after = 0.0
        self.received: list[ReceivedMessage] = []
        self._port = 0
        self._stop: asyncio.Event | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None

    @property
    def url(self) -> str:
        """Its Apprise URL."""
        return f"mailto://127.0.0.1:{self._port}?smtp=127.0.0.1&mode=insecure&from=flink@example.com&to=operator@example.com"

    def start(self) -> None:
        """Start to receive. May be called once."""
        port = Future[int]()
        self._thread = threading.Thread(
            target=asyncio.run, args=(self._serve(port),), name="mail-receiver", daemon=True
        )
        self._thread.start()
        self._port = port.result(_SECONDS)

    def stop(self) -> None:
        """Stop receiving; pending mails get no response. May be called twice, or before `start`."""
        if self._loop and self._stop and self._thread:
            with suppress(RuntimeError):  # the loop is closed: this is the second call
                self._loop.call_soon_threadsafe(self._stop.set)
            self._thread.join(_SECONDS)

    async def handle_DATA(self, _server: SMTP, _session: Any, envelope: Any) -> str:  # noqa: N802  the name that aiosmtpd calls
        """Accept one mail. Called by aiosmtpd."""
        mail = message_from_bytes(envelope.content, policy=policy.default)
        text = mail.get_body(("plain", "html"))
        body = text.get_content() if text else ""
        self.received.append(ReceivedMessage(time.time(), str(mail["Subject"] or ""), body, envelope.content))
        if self.answer_after == math.inf:
            await asyncio.Event().wait()
        await asyncio.sleep(self.answer_after)
        return f"{self.status} {'Accepted' if self.status < 300 else 'Not accepted'}"

    async def _serve(self, port: Future[int]) -> None:
        self._loop = asyncio.get_running_loop()
        self._stop = asyncio.Event()
        smtp = partial(SMTP, self, hostname="localhost", data_size_limit=_MOST_BYTES, timeout=_SECONDS, loop=self._loop)
        try:
            server = await self._loop.create_server(smtp, "127.0.0.1", 0)
        except OSError as error:
            port.set_exception(error)
            return
        port.set_result(server.sockets[0].getsockname()[1])
        await self._stop.wait()
        server.close()


class _WebServer(ThreadingHTTPServer):
    daemon_threads = True

    def __init__(self, receiver: HttpReceiver) -> None:
        super().__init__(("127.0.0.1", 0), _Webhook)
        self.receiver = receiver

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Nothing: a client that disconnects is not an error."""


class _Webhook(BaseHTTPRequestHandler):
    server: _WebServer
    timeout = _SECONDS

    def do_POST(self) -> None:
        """Keep the message, wait, respond."""
        receiver = self.server.receiver
        raw = self.rfile.read(min(int(self.headers.get("Content-Length", 0)), _MOST_BYTES))
        receiver.received.append(_posted(raw))
        if receiver.stopping.wait(None if receiver.answer_after == math.inf else receiver.answer_after):
            self.close_connection = True
            return
        self.send_response(receiver.status)
        for name, value in receiver.headers.items():
            self.send_header(name, value)
        self.send_header("Content-Length", "2")
        self.end_headers()
        self.wfile.write(b"ok")  # Slack's response, which its clients expect

    def log_message(self, *_: Any) -> None:
        """Nothing: the messages are in `received`."""


def _posted(raw: bytes) -> ReceivedMessage:
    """The message that Apprise's `json://` posted; with empty title and body if another client posted it."""
    try:
        fields = json.loads(raw)
        return ReceivedMessage(time.time(), fields["title"], fields["message"], raw)
    except (ValueError, TypeError, KeyError):
        return ReceivedMessage(time.time(), "", "", raw)
