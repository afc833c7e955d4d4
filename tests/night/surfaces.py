"""What page, API, metrics, `status` and `explain` say of the cluster, asked again and again from outside."""

import json
import re
import threading
import time
from collections.abc import Sequence
from typing import Any, Final

from msgspec import Struct

from tests.kit.sidecar_process import Sidecar, command
from tests.lab.settings import CLUSTER_ID

ASK_SECONDS: Final = 5.0
_COMMANDS_EVERY: Final = 6
"""Each command starts a Python: they are asked each 30 s."""
_ON_PAGE: Final = re.compile(rf'<strong>([A-Z_]+)</strong> <a href="#cluster-[^"]*"><bdi>{CLUSTER_ID}</bdi></a>')
_METRIC: Final = re.compile(rf'flink_ha_status\{{cluster_id="{CLUSTER_ID}",status="([A-Z_]+)"\}} 1\.0')
_EXIT: Final = {"OK": 0, "STOPPED": 0, "UNCHECKED": 0, "BLIND": 3}
"""The exit status of `status`; 1: anything else."""


class Surface(Struct, frozen=True):
    """One moment, in seconds since the epoch. None: it did not answer, or was not asked."""

    at: float
    status: str | None
    """By `/api/v1/clusters`, with its sentence."""
    sentence: str = ""
    page: str | None = None
    metric: str | None = None
    command: str | None = None
    explained: str | None = None
    """By the page and the command about the last failover, if they say how the cluster is now."""
    exit_status: int | None = None
    causes: tuple[str, ...] = ()
    """Of the last failover: by the list of episodes, by the episode itself, and by `explain last`."""
    deaths: tuple[str, ...] = ()
    """Likewise why its leader ended, where something is recorded."""

    @property
    def differs(self) -> str:
        """What differs; empty: all that answered say the same."""
        said = {
            "API": self.status,
            "page": self.page,
            "metric": self.metric,
            # The command looks for itself, once: it may see what the sidecar does not see again yet, and not that two take turns.
            "status": None if self.status in {"BLIND", "SPLIT"} else self.command,
            "explain": self.explained,
        }
        words = []
        if len({*said.values()} - {None}) > 1:
            words.append(", ".join(f"{name} {status}" for name, status in said.items() if status))
        if self.exit_status is not None and self.command and self.exit_status != _EXIT.get(self.command, 1):
            words.append(f"status prints {self.command} and exits with {self.exit_status}")
        words += [
            f"{name} {' / '.join(each)}"
            for name, each in (("causes", self.causes), ("deaths", self.deaths))
            if len({*each}) > 1
        ]
        return "; ".join(words)


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

    def ask(self, *, with_commands: bool) -> Surface:
        """Twice the API, around the others: where it has changed meanwhile, nothing can be compared."""
        at, before = time.time(), self._verdict()
        if before is None:
            return Surface(at, None)
        status, sentence, _ = before
        page, metric = _ON_PAGE.search(self._sidecar.get("/")[1]), _METRIC.search(self._sidecar.get("/metrics")[1])
        printed, code = self._printed() if with_commands else (None, None)
        explained, causes, deaths = self._failover(with_commands=with_commands)
        after = self._verdict()
        if after is None or (after[0], after[2]) != (status, before[2]):
            return Surface(at, status, sentence)
        return Surface(
            *(at, status, sentence, page and page[1], metric and metric[1], printed, explained, code, causes, deaths)
        )

    def _ask_again(self) -> None:
        number = 1
        while not self._stopping.wait(ASK_SECONDS):
            self._surfaces.append(self.ask(with_commands=number % _COMMANDS_EVERY == 0))
            number += 1

    def _json(self, path: str) -> Any:
        code, answer = self._sidecar.get(path)
        return json.loads(answer) if code == 200 else None

    def _verdict(self) -> tuple[str, str, str] | None:
        """Status, sentence, and since when it has that status."""
        for cluster in self._json("/api/v1/clusters") or []:
            if cluster["cluster_id"] == CLUSTER_ID:
                return cluster["status"], cluster["sentence"], cluster["status_since"]
        return None

    def _printed(self) -> tuple[str | None, int | None]:
        ended = command("status", "--config", str(self._sidecar.config), "-o", "json")
        try:
            return str(json.loads(ended.stdout)["clusters"][0]["status"]), ended.returncode
        except (ValueError, IndexError, KeyError):
            return None, None

    def _failover(self, *, with_commands: bool) -> tuple[str | None, tuple[str, ...], tuple[str, ...]]:
        """Status, causes and deaths of the last one. Around each other, as statuses are: nothing where it has changed meanwhile."""
        before = self._json("/api/v1/episodes") or []
        if not before:
            return None, (), ()
        details = [self._json(f"/api/v1/episodes/{before[0]['id']}")]
        if with_commands:
            ended = command("explain", before[0]["id"], "--config", str(self._sidecar.config), "-o", "json")
            details.append(json.loads(ended.stdout) if ended.returncode == 0 else None)
        after = self._json("/api/v1/episodes") or []
        told = ("id", "cause", "confidence", "death_reason")
        if not after or [before[0][name] for name in told] != [after[0][name] for name in told]:
            return None, (), ()
        known = [one for one in details if one]
        episodes = [one.get("episode") or {} for one in known]
        causes = [str(before[0]["cause"]), *(str(one["cause"]) for one in episodes if "cause" in one)]
        ends = [one["death"]["reason"] for one in known if one.get("death")]
        explained = next((str(one["status"]["status"]) for one in known if one.get("status")), None)
        return (
            explained,
            tuple(causes),
            tuple([before[0]["death_reason"], *ends] if before[0]["death_reason"] and ends else []),
        )
