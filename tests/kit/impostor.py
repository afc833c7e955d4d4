"""What answers like an API server, and says what none would, or what a real one says only when it has too much to do."""

import json
import threading
import time
from contextlib import suppress
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path


class Impostor(ThreadingHTTPServer):
    """Answers every list with one ConfigMap of its own, whose version counts the lists, and every watch with `said`, which it then ends."""

    daemon_threads = True

    def __init__(self, said: bytes, name: str) -> None:
        super().__init__(("127.0.0.1", 0), _Answer)
        self.said = said
        self.name = name
        self.version: int | None = None
        """Of the ConfigMap, instead of that count."""
        self.lists = 0
        self.watches = 0
        self.token: str | None = None
        """Who else asks is not known."""
        self.retry_after: str | None = None
        """How long who asks for a list is to wait (429); None: the list is answered."""
        self.throttled_at: list[float] = []
        self.pause: float | None = None
        """After so many seconds a watch is answered again; None: it ends."""
        self._thread = threading.Thread(target=self.serve_forever, args=(0.05,))

    def start(self) -> None:
        self._thread.start()

    def kill(self) -> None:
        self.shutdown()
        self._thread.join()
        self.server_close()

    def kubeconfig(self, folder: Path) -> Path:
        """A kubeconfig in this folder that leads here."""
        file = folder / "kubeconfig"
        context = {"name": "x", "context": {"cluster": "x", "user": "x"}}
        clusters = [{"name": "x", "cluster": {"server": f"http://127.0.0.1:{self.server_port}"}}]
        file.write_text(json.dumps({"clusters": clusters, "contexts": [context], "current-context": "x"}))
        return file


class _Answer(BaseHTTPRequestHandler):
    server: Impostor

    def do_GET(self) -> None:
        if self.server.token and self.headers["Authorization"] != f"Bearer {self.server.token}":
            self.send_error(HTTPStatus.UNAUTHORIZED)
        elif "watch=true" in self.path:
            self._watch()
        elif self.server.retry_after is not None:
            self.server.throttled_at.append(time.monotonic())
            self.send_response(HTTPStatus.TOO_MANY_REQUESTS)
            self.send_header("Retry-After", self.server.retry_after)
            self.end_headers()
        else:
            self.server.lists += 1
            version = self.server.lists if self.server.version is None else self.server.version
            metadata = {"name": self.server.name, "uid": "1", "resourceVersion": str(version)}
            body = {"metadata": {"resourceVersion": "9"}, "items": [{"metadata": metadata}]}
            self._say(json.dumps(body).encode())

    def _watch(self) -> None:
        self.server.watches += 1
        self._say(self.server.said)
        while self.server.pause is not None:
            time.sleep(self.server.pause)
            try:
                self.wfile.write(self.server.said)
            except OSError:  # who has heard enough hangs up
                return

    def _say(self, body: bytes) -> None:
        self.send_response(HTTPStatus.OK)
        self.end_headers()
        with suppress(OSError):
            self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002  the name of the base class
        pass
