"""When the ConfigMaps of a cluster were written, as etcd holds it: also while no API server is there, and not by our own reading of it."""

import base64
import json
import threading
import time
import urllib.request
from collections.abc import Iterator
from contextlib import suppress
from itertools import pairwise

_FOLDER = "/registry/configmaps/default/"
_SILENCE_SECONDS = 600.0


class Truth:
    """Everything that was written since it began to listen."""

    def __init__(self, etcd_url: str, cluster_id: str) -> None:
        self._writes: dict[str, list[float]] = {}
        """When each ConfigMap was written (monotonic): renewals too."""
        self._cluster_id = cluster_id
        self._url = etcd_url
        self._listening = threading.Thread(target=self._listen, daemon=True)
        self._listening.start()

    def silence(self, name: str, since: float) -> float:
        """For how many seconds the ConfigMap was not written, at most: renewals are writes."""
        writes = list(self._writes.get(name, ()))
        first = next((number for number, at in enumerate(writes) if at >= since), len(writes))
        times = [*writes[max(0, first - 1) :], time.monotonic()]
        return max((after - before for before, after in pairwise(times)), default=0.0)

    def _listen(self) -> None:
        with suppress(OSError):  # it ends with etcd
            for at, name in self._events():
                if name.startswith(f"{self._cluster_id}-"):
                    self._writes.setdefault(name, []).append(at)

    def _events(self) -> Iterator[tuple[float, str]]:
        """When which ConfigMap was written or deleted."""
        begin, end = (base64.b64encode(key.encode()).decode() for key in (_FOLDER, _FOLDER[:-1] + "0"))
        wanted = {"create_request": {"key": begin, "range_end": end}}
        request = urllib.request.Request(f"{self._url}/v3/watch", json.dumps(wanted).encode())
        with urllib.request.urlopen(request, timeout=_SILENCE_SECONDS) as answer:
            for line in answer:
                at = time.monotonic()
                for event in json.loads(line)["result"].get("events", ()):
                    yield at, base64.b64decode(event["kv"]["key"]).decode().removeprefix(_FOLDER)
