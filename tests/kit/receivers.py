"""What messages are sent to: receivers that accept everything or have moods, and servers that answer with given bytes."""

import socket
import struct
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from enum import StrEnum
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from json import loads
from random import Random
from typing import Any, Final, NamedTuple, Self

from msgspec.structs import replace

from sidecar.core.message import Message
from sidecar.net.endpoints import AppriseUrl, Endpoint, Secret
from sidecar.settings import Settings
from sidecar.sinks.notify.sender_protocol import Answer
from tests.lab.receivers import HttpReceiver, MailReceiver

_SECONDS: Final = 30.0
_HANG_SECONDS: Final = 25.0  # longer than an attempt may take


def apprise(url: str) -> AppriseUrl:
    """The endpoint of an Apprise URL."""
    return AppriseUrl(Secret(url))


def send_by_url(
    url: str,
    title: str,
    body: str,
    notify_type: str,
    seconds: float,
    facts: Sequence[tuple[str, str]] = (),
    link: str | None = None,
) -> Answer:
    """Send a message through Apprise, in this process."""
    from sidecar.sinks.notify import apprise_sender

    severity = {"warning": "warning", "failure": "critical"}.get(notify_type, "info")
    reason = "RESOLVED" if notify_type == "success" else "FIRST"
    message = Message(title, body, severity, tuple(facts), link, reason=reason, receiver="ops", incident="key")
    if notify_type == "success":
        message = replace(message, status="OK", colour="green", kind="success")
    return apprise_sender.deliver(message, apprise(url), seconds)


def apprise_urls(settings: Settings) -> dict[str, str]:
    """The URL of every destination: all of them are Apprise's."""
    return {name: _url(endpoint) for name, endpoint in settings.endpoints().items()}


def _url(endpoint: Endpoint) -> str:
    assert isinstance(endpoint, AppriseUrl)
    return endpoint.url.reveal()


@contextmanager
def webhook() -> Iterator[HttpReceiver]:
    """A webhook that accepts everything."""
    receiver = HttpReceiver()
    receiver.start()
    try:
        yield receiver
    finally:
        receiver.stop()


@contextmanager
def mailbox() -> Iterator[MailReceiver]:
    """A mail server that accepts everything."""
    receiver = MailReceiver()
    receiver.start()
    try:
        yield receiver
    finally:
        receiver.stop()


class RawServer:
    """Answers each request of `json://` with these bytes, as long as anybody reads them, and closes; with a reset, if asked to."""

    def __init__(self, answer: Callable[[], Iterable[bytes]], *, reset: bool = False) -> None:
        self._answer = answer
        self._reset = reset
        self._socket = socket.create_server(("127.0.0.1", 0))
        self._thread = threading.Thread(target=self._serve, daemon=True)
        self.url = f"json://127.0.0.1:{self._socket.getsockname()[1]}/"
        self.requests = 0
        self.sent = 0
        """Bytes that the last caller took."""

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        with suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)
        self._socket.close()
        self._thread.join(_SECONDS)

    def _serve(self) -> None:
        while True:
            try:
                connection, _ = self._socket.accept()
            except OSError:
                return
            with connection, suppress(OSError):
                self._handle(connection)

    def _handle(self, connection: socket.socket) -> None:
        connection.settimeout(_SECONDS)
        received = b""
        while not received.endswith(b"}"):
            received += connection.recv(65536)
        self.requests += 1
        self.sent = 0
        for part in self._answer():
            connection.sendall(part)
            self.sent += len(part)
        if self._reset:
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))


class Mood(StrEnum):
    """How a receiver takes a message."""

    WELL = "200"
    BROKEN = "500"
    BROKEN_BUT_KEPT = "500, kept"
    TOO_MANY = "429"
    HANGS = "hangs, kept"
    RESETS = "reset, kept"


class Arrival(NamedTuple):
    """A message that was kept. `at` is in seconds since the epoch."""

    at: float
    body: str


class Receiver:
    """A webhook with moods: each with its weight. They may be changed while it runs."""

    def __init__(self, moments: Random, moods: Mapping[Mood, float]) -> None:
        self.moods = moods
        self.arrivals: list[Arrival] = []
        self.stopping = threading.Event()
        self._moments = moments
        self._lock = threading.Lock()
        self._server = _Server(self)

    @property
    def url(self) -> str:
        return f"json://127.0.0.1:{self._server.server_port}/"

    def start(self) -> None:
        threading.Thread(target=self._server.serve_forever, args=(0.05,), name="moody", daemon=True).start()

    def stop(self) -> None:
        self.stopping.set()
        self._server.shutdown()
        self._server.server_close()

    def take(self, body: str) -> Mood:
        """Decide what becomes of a message, and keep it, or not."""
        with self._lock:
            mood = self._moments.choices([*self.moods], [*self.moods.values()])[0]
            if mood not in {Mood.BROKEN, Mood.TOO_MANY}:
                self.arrivals.append(Arrival(time.time(), body))
            return mood


class _Server(ThreadingHTTPServer):
    daemon_threads = True

    def __init__(self, receiver: Receiver) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.receiver = receiver

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A sender that was killed is none of our errors."""


class _Handler(BaseHTTPRequestHandler):
    server: _Server
    timeout = 10.0

    def do_POST(self) -> None:
        """Called for each message."""
        receiver = self.server.receiver
        raw = self.rfile.read(int(self.headers["Content-Length"]))
        mood = receiver.take(loads(raw)["message"])
        if mood is Mood.HANGS:
            receiver.stopping.wait(_HANG_SECONDS)
        if mood in {Mood.HANGS, Mood.RESETS}:
            self.close_connection = True
            with suppress(OSError):
                self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                self.connection.close()
            return
        self.send_response(int(mood[:3]))
        if mood is Mood.TOO_MANY:
            self.send_header("Retry-After", "1")
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, *_: Any) -> None:
        """Says nothing: what arrived is in `arrivals`."""
