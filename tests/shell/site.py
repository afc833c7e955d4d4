"""The web server over real HTTP, with a snapshot, a clock and a journal that the test sets."""

import json
import urllib.error
import urllib.request
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from sidecar.core.moment import Moment
from sidecar.core.records import Evidence, record_id
from sidecar.core.views.snapshot import Snapshot
from sidecar.journal import JournalReader
from sidecar.web.application import Application
from sidecar.web.server import WebServer
from tests.kit.core_sidecar import Sidecar
from tests.kit.observed_failovers import at


def captured(sidecar: Sidecar, number: int = 0, **other: Any) -> Evidence:
    """A piece of evidence of the first failover, with this number."""
    episode = sidecar.episodes()[0]
    fields: dict[str, Any] = {
        "id": record_id("evidence", number),
        "cluster_id": episode.cluster_id,
        "external_labels": {},
        "store": episode.store,
        "observer": episode.observer,
        "observed_at": episode.opened_at,
        "episode_id": episode.id,
        "occasion": "opened",
        "kind": "thread_dump",
        "subject": "pid 17 (java)",
        "outcome": "captured",
        "detail": "31 threads, 2 of them blocked",
        "file": f"{episode.id}/opened-thread_dump-{number}.txt",
        "size_bytes": 4711,
        "sha256": "0" * 64,
        "attributes": {"threads": "31"},
        "asked_at": episode.opened_at,
    }
    return Evidence(**fields | other)


class Site:
    """A server that runs until `stop`."""

    def __init__(self, state_dir: Path, port: int = 0, metrics: Callable[[], bytes] = lambda: b"metrics\n") -> None:
        self.snapshot = Snapshot(at(0))
        self.now: Moment = at(0)
        self.journal: Callable[[], JournalReader] = lambda: JournalReader(state_dir)
        application = Application(
            lambda: self.snapshot,
            metrics,
            lambda: self.now,
            lambda: self.journal(),  # noqa: PLW0108  a test may set another
        )
        self.server = WebServer(application, "127.0.0.1", port)
        self.server.start()

    def url(self, path: str) -> str:
        return f"http://127.0.0.1:{self.server.port}{path}"

    def stop(self) -> None:
        self.server.stop()

    def ask(
        self, path: str, method: str = "GET", headers: Mapping[str, str] | None = None
    ) -> tuple[int, dict[str, str], str]:
        """Status, headers and body."""
        request = urllib.request.Request(self.url(path), method=method, headers=dict(headers or {}))
        try:
            with urllib.request.urlopen(request, timeout=30) as answer:
                return answer.status, dict(answer.headers), answer.read().decode()
        except urllib.error.HTTPError as error:
            with error:
                return error.code, dict(error.headers), error.read().decode()

    def get(self, path: str, method: str = "GET", headers: Mapping[str, str] | None = None) -> tuple[int, str]:
        """Status and body."""
        status, _, body = self.ask(path, method, headers)
        return status, body

    def data(self, path: str) -> Any:
        """What a path that is there gives as JSON."""
        status, body = self.get(path)
        assert status == 200, body
        return json.loads(body)
