"""The API server of the node, asked as its admin."""

import json
import ssl
import time
import urllib.request
from collections.abc import Iterator
from contextlib import suppress
from http import HTTPStatus
from pathlib import Path
from typing import Any, Final
from urllib.error import HTTPError

NODE_ADDRESS: Final = "198.18.0.1"
URL: Final = f"https://{NODE_ADDRESS}:443"
TOKEN: Final = "admin-of-the-pods"
_ANSWER_SECONDS: Final = 10.0
_AGAIN_SECONDS: Final = 0.2
_AWAY_SECONDS: Final = 60.0
STRATEGIC_MERGE: Final = "application/strategic-merge-patch+json"
Json = dict[str, Any]


class Api:
    """`ca`: the certificate of the authority that the server's certificate is from."""

    def __init__(self, ca: Path) -> None:
        self._trust = ssl.create_default_context(cafile=str(ca))

    def ask(self, method: str, path: str, body: Json | None = None, kind: str = "application/json") -> Json:
        """The answer; asked again while the server is away. Raises HTTPError."""
        deadline = time.monotonic() + _AWAY_SECONDS
        while True:
            try:
                with self._open(method, path, body, kind, _ANSWER_SECONDS) as answer:
                    return dict(json.load(answer))
            except HTTPError as error:
                if error.code < HTTPStatus.INTERNAL_SERVER_ERROR or time.monotonic() > deadline:
                    raise
            except OSError:
                if time.monotonic() > deadline:
                    raise
            time.sleep(_AGAIN_SECONDS)

    def patch(self, path: str, change: Json) -> Json:
        """Apply a strategic merge patch."""
        return self.ask("PATCH", path, change, STRATEGIC_MERGE)

    def resource(self, path: str) -> Json | None:
        """The object, or None where there is none."""
        try:
            return self.ask("GET", path)
        except HTTPError as error:
            if error.code != HTTPStatus.NOT_FOUND:
                raise
            return None

    def text(self, path: str) -> str:
        """An answer that is no JSON: a log, say."""
        with self._open("GET", path, None, "", _ANSWER_SECONDS) as answer:
            return str(answer.read().decode(errors="replace"))

    def is_ready(self) -> bool:
        """Whether it says so."""
        with suppress(OSError):
            return self.text("/readyz") == "ok"
        return False

    def watch(self, path: str, silence_seconds: float) -> Iterator[Json]:
        """The events of one watch, until it ends. Raises OSError, also where nothing comes for `silence_seconds`."""
        with self._open("GET", path, None, "", silence_seconds) as stream:
            for line in stream:
                yield json.loads(line)

    def _open(self, method: str, path: str, body: Json | None, kind: str, seconds: float) -> Any:
        request = urllib.request.Request(
            URL + path,
            None if body is None else json.dumps(body).encode(),
            {"Authorization": f"Bearer {TOKEN}", "Content-Type": kind},
            method=method,
        )
        return urllib.request.urlopen(request, timeout=seconds, context=self._trust)
