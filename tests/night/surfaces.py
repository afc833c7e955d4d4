"""What page, API, command and audit say of the cluster, asked again and again from outside."""

import json
import re
import threading
import time
from collections.abc import Sequence
from typing import Final

from msgspec import Struct

from sidecar.lab.settings import CLUSTER_ID
from tests.kit.sidecar_process import Sidecar, command

ASK_SECONDS: Final = 5.0
_COMMAND_EVERY: Final = 6
"""The command starts a Python each time: it is asked each 30 s."""
_ON_PAGE: Final = re.compile(r'data-status="([A-Z_]+)"')


class Surface(Struct, frozen=True):
    """One moment, in seconds since the epoch. None: it did not answer, or was not asked."""

    at: float
    status: str | None
    """By `/api/v1/leaders`."""
    page: str | None
    metric: str | None
    command: str | None
    causes: tuple[str, ...] = ()
    """Of the last failover: by the list of episodes, and by the episode itself."""

    @property
    def is_one(self) -> bool:
        """Whether all that answered say the same."""
        statuses = {self.status, self.page, self.metric, self.command} - {None}
        return len(statuses) <= 1 and len(set(self.causes)) <= 1


class Surfaces:
    """Asks each ASK_SECONDS, by a thread of its own, from `start` to `stop`."""

    def __init__(self, sidecar: Sidecar) -> None:
        self._sidecar = sidecar
        self._surfaces: list[Surface] = []
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._ask_again, name="surfaces", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """End the thread. May be called twice."""
        self._stopping.set()
        self._thread.join(60)

    def between(self, begin: float, end: float) -> Sequence[Surface]:
        return [surface for surface in self._surfaces if begin <= surface.at <= end]

    @property
    def latest(self) -> Surface | None:
        return self._surfaces[-1] if self._surfaces else None

    def _ask_again(self) -> None:
        number = 0
        while not self._stopping.wait(ASK_SECONDS):
            self._surfaces.append(self._ask(with_command=number % _COMMAND_EVERY == 0))
            number += 1

    def _ask(self, *, with_command: bool) -> Surface:
        """Twice the API, around the others: where it has changed meanwhile, nothing can be compared."""
        at, before = time.time(), self._status()
        page = _ON_PAGE.search(self._sidecar.get("/")[1])
        metric = re.search(
            rf'flink_ha_status\{{cluster_id="{CLUSTER_ID}",status="([A-Z_]+)"\}} 1\.0', self._sidecar.get("/metrics")[1]
        )
        printed = self._printed() if with_command else None
        causes = self._causes()
        if self._status() != before:
            return Surface(at, before, None, None, None)
        return Surface(at, before, page and page[1], metric and metric[1], printed, causes)

    def _status(self) -> str | None:
        code, answer = self._sidecar.get("/api/v1/status")
        if code != 200:
            return None
        statuses = {cluster["cluster_id"]: str(cluster["status"]) for cluster in json.loads(answer)["clusters"]}
        return statuses.get(CLUSTER_ID)

    def _printed(self) -> str | None:
        ended = command("status", "--config", str(self._sidecar.config), "-o", "json")
        try:
            return str(json.loads(ended.stdout)["clusters"][0]["status"])
        except (ValueError, IndexError):
            return None

    def _causes(self) -> tuple[str, ...]:
        code, answer = self._sidecar.get("/api/v1/episodes")
        episodes = json.loads(answer)["episodes"] if code == 200 else []
        if not episodes:
            return ()
        last = episodes[0]
        code, answer = self._sidecar.get(f"/api/v1/episodes/{last['id']}")
        return (last["cause"], json.loads(answer)["cause"]) if code == 200 else ()
