"""What happened to a cluster's ConfigMaps as etcd holds it: also while no API server is there, and not by our own reading of it."""

import base64
import json
import threading
import time
import urllib.request
from collections.abc import Iterator, Mapping
from contextlib import suppress
from itertools import pairwise
from typing import Any, NamedTuple

Who = tuple[str, str | None]
"""Component and job id, as `watch` spells them."""

_FOLDER = "/registry/configmaps/default/"
_LEASE = "control-plane.alpha.kubernetes.io/leader"
_LEADER = "org.apache.flink.k8s.leader."
_NAMES = {"restserver": "rest_server", "resourcemanager": "resource_manager", "dispatcher": "dispatcher"}
_JOBS = ("jobGraph-", "executionPlan-")
_SILENCE_SECONDS = 600.0


class Value(NamedTuple):
    """A leader's address as it was written, by the holder of which lease, and when (monotonic)."""

    session: str
    address: str
    term: tuple[str, str]
    at: float


class Stood(NamedTuple):
    """One ConfigMap from `at` (monotonic) on; without a uid it is gone."""

    at: float
    name: str
    uid: str = ""
    term: tuple[str, str] = ("", "")
    """Holder and acquire time."""
    values: Mapping[Who, Value] = {}
    jobs: frozenset[str] = frozenset()
    """Of which Flink keeps a graph or a plan."""


class Truth:
    """Everything that was written since it began to listen."""

    def __init__(self, etcd_url: str, cluster_id: str) -> None:
        self.history: list[Stood] = []
        """Without the renewals."""
        self._writes: dict[str, list[float]] = {}
        """When each ConfigMap was written (monotonic): renewals too."""
        self._cluster_id = cluster_id
        self._url = etcd_url
        self._listening = threading.Thread(target=self._listen, daemon=True)
        self._listening.start()

    @property
    def news_at(self) -> float:
        """When anything but a renewal was written last."""
        return self.history[-1].at if self.history else 0.0

    def standing(self, at: float) -> dict[str, Stood]:
        """The ConfigMaps at a moment, by name."""
        return {stood.name: stood for stood in list(self.history) if stood.at <= at}

    def value(self, who: Who, at: float) -> Value | None:
        """What stood there, were it a living leader's or not."""
        found = [stood.values[who] for stood in self.standing(at).values() if who in stood.values]
        return found[-1] if found else None

    def led(self, who: Who, at: float) -> Value | None:
        """What stood there, if the lease was held by whoever wrote it, and still in the same term."""
        for stood in self.standing(at).values():
            value = stood.values.get(who)
            if value and value.term == stood.term and stood.term[0]:
                return value
        return None

    def keeps_job(self, job_id: str, at: float) -> bool:
        return any(job_id in stood.jobs for stood in self.standing(at).values())

    def written(self, since: float) -> dict[tuple[Who, str], float]:
        """When each leader's session id was first written, of those that were since then."""
        first_written: dict[tuple[Who, str], float] = {}
        for stood in list(self.history):
            for who, value in stood.values.items():
                first_written.setdefault((who, value.session), value.at)
        return {key: at for key, at in first_written.items() if at >= since}

    def silence(self, name: str, since: float) -> float:
        """For how many seconds the ConfigMap was not written, at most: renewals are writes."""
        writes = list(self._writes.get(name, ()))
        first = next((number for number, at in enumerate(writes) if at >= since), len(writes))
        times = [*writes[max(0, first - 1) :], time.monotonic()]
        return max((after - before for before, after in pairwise(times)), default=0.0)

    def _listen(self) -> None:
        with suppress(OSError):  # it ends with etcd
            for at, event in self._events():
                self._happened(at, event)

    def _events(self) -> Iterator[tuple[float, dict[str, Any]]]:
        begin, end = (base64.b64encode(key.encode()).decode() for key in (_FOLDER, _FOLDER[:-1] + "0"))
        wanted = {"create_request": {"key": begin, "range_end": end}}
        request = urllib.request.Request(f"{self._url}/v3/watch", json.dumps(wanted).encode())
        with urllib.request.urlopen(request, timeout=_SILENCE_SECONDS) as answer:
            for line in answer:
                at = time.monotonic()
                for event in json.loads(line)["result"].get("events", ()):
                    yield at, event

    def _happened(self, at: float, event: dict[str, Any]) -> None:
        name = base64.b64decode(event["kv"]["key"]).decode().removeprefix(_FOLDER)
        if not name.startswith(f"{self._cluster_id}-"):
            return
        self._writes.setdefault(name, []).append(at)
        before = self.standing(at).get(name, Stood(at, name))
        stood = Stood(at, name)
        if event.get("type") != "DELETE":
            stood = _read(at, name.removeprefix(f"{self._cluster_id}-"), event["kv"]["value"], before)
        if stood._replace(at=before.at) != before:
            self.history.append(stood)


def _read(at: float, short: str, encoded: str, before: Stood) -> Stood:
    config_map = json.loads(base64.b64decode(encoded))
    metadata, data = config_map["metadata"], config_map.get("data") or {}
    lease = json.loads((metadata.get("annotations") or {}).get(_LEASE, "{}"))
    term = (lease.get("holderIdentity") or "", lease.get("acquireTime") or "")
    values = {}
    for who, session, address in _leaders(short, data):
        old = before.values.get(who)
        same = old and before.uid == metadata["uid"] and (old.session, old.address) == (session, address)
        values[who] = old if old and same else Value(session, address, term, at)
    jobs = frozenset(key.partition("-")[2] for key in data if key.startswith(_JOBS))
    return Stood(at, before.name, metadata["uid"], term, values, jobs)


def _leaders(short: str, data: Mapping[str, str]) -> Iterator[tuple[Who, str, str]]:
    """Up to Flink 1.14 the name of the ConfigMap, without the cluster's, says whose leader it is; since then the key does."""
    if short.endswith("-leader"):
        if "address" in data:
            component, _, rest = short.removesuffix("-leader").partition("-")
            who = ("job", component) if rest == "jobmanager" else (_NAMES[component], None)
            yield who, data["sessionId"], data["address"]
        return
    for key, value in data.items():
        if key.startswith(_LEADER):
            component = key.removeprefix(_LEADER)
            session, _, address = value.partition(",")
            yield (
                (_NAMES[component], None) if component in _NAMES else ("job", component.removeprefix("job-")),
                session,
                address,
            )
