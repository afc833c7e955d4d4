"""A real S3 server with its objects in a folder, and a line to it that loses answers."""

import socket
import sys
import threading
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from urllib.error import URLError
from urllib.request import urlopen

from tests.kit.relay import Endpoint
from tests.lab.processes import ServerProcess, free_port

_ANSWER_SECONDS = 2.0


class S3Server(ServerProcess):
    """Started again, it has the same address and the same objects. It knows conditional puts, and takes any credentials."""

    def __init__(self, folder: Path) -> None:
        super().__init__("the S3 server", folder / "s3.log")
        self.bucket = folder / "objects" / "bucket"
        """The objects, as files: of `s3://bucket`."""
        self.port = 0

    @property
    def url(self) -> str:
        """Its endpoint, once it was started."""
        return f"http://127.0.0.1:{self.port}"

    def choose_ports(self) -> None:
        self.port = free_port()

    def build_command(self) -> list[str]:
        self.bucket.mkdir(parents=True, exist_ok=True)
        program = Path(__file__).with_name("s3_program.py")
        return [sys.executable, str(program), str(self.bucket.parent), "--port", str(self.port)]

    def is_ready(self) -> bool:
        """Whether it lists its buckets."""
        try:
            with urlopen(self.url, timeout=_ANSWER_SECONDS) as answer:
                return b"<Name>bucket</Name>" in answer.read()
        except (URLError, TimeoutError):
            return False


def reach(endpoint: str) -> dict[str, str]:
    """The environment of a client of that S3 server."""
    return {
        "AWS_ENDPOINT_URL": endpoint,
        "AWS_ALLOW_HTTP": "true",
        "AWS_ACCESS_KEY_ID": "AKIDHUNTER2",
        "AWS_SECRET_ACCESS_KEY": "xoxbHUNTER2",
        "NO_PROXY": "127.0.0.1",
    }


_METHODS = (b"GET ", b"HEAD ", b"PUT ", b"POST ", b"DELETE ")
_LIST = b"list-type="
BUSY = (503, "SlowDown")


class Line(Endpoint):
    """An endpoint in front of a server, which may lose its answers to puts: it does as it is set to, and nobody hears of it."""

    def __init__(self, server: S3Server) -> None:
        super().__init__()
        self.loses_answers = False
        self.refusal: Callable[[str], tuple[int, str] | None] = lambda _: None
        """By the first line of a request: the status and the code that are answered in the server's place, if any."""
        self.sent = 0
        """Bytes that the server has answered."""
        self.lists = 0
        """Requests for a list of objects."""
        self.listed = 0
        """Bytes of their answers."""
        self._target = ("127.0.0.1", server.port)

    def serve(self, client: socket.socket) -> None:
        putting, listing = threading.Event(), threading.Event()

        def forward() -> None:
            with suppress(OSError):
                while data := client.recv(65536):
                    if data.startswith(_METHODS) and (refusal := self.refusal(data.partition(b"\r")[0].decode())):
                        client.sendall(_answer(*refusal, with_body=not data.startswith(b"HEAD ")))
                        break
                    if data.startswith(b"PUT "):
                        putting.set()
                    if data.startswith(_METHODS):
                        (listing.set if _LIST in data.partition(b"\r")[0] else listing.clear)()
                        self.lists += listing.is_set()
                    onward.sendall(data)
                onward.shutdown(socket.SHUT_WR)

        with suppress(OSError), client, socket.create_connection(self._target, _ANSWER_SECONDS) as onward:
            onward.settimeout(None)  # clients keep connections, and use them later
            forwarding = threading.Thread(target=forward, daemon=True)
            forwarding.start()
            while (data := onward.recv(65536)) and not (self.loses_answers and putting.is_set()):
                self.sent += len(data)
                self.listed += len(data) * listing.is_set()
                client.sendall(data)
            client.shutdown(socket.SHUT_RDWR)
            forwarding.join(_ANSWER_SECONDS)


def _answer(status: int, code: str, *, with_body: bool) -> bytes:
    body = f"<Error><Code>{code}</Code></Error>"
    head = f"HTTP/1.1 {status} No\r\nContent-Type: application/xml\r\nContent-Length: {len(body)}\r\nConnection: close\r\n\r\n"
    return (head + body * with_body).encode()
