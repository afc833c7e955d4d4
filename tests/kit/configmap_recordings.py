"""Recorded watch streams of real Flink clusters in Kubernetes: what a driver would have reported of them."""

import json
from collections.abc import Iterator
from datetime import UTC, datetime
from functools import cache
from typing import Any, Final

from msgspec.structs import replace

from sidecar.core.flink import configmaps
from sidecar.core.moment import SECOND, Moment
from sidecar.core.observations import (
    ClusterObservation,
    ConfigMapObserved,
    ConnectionState,
    SnapshotCompleted,
    ViewObserved,
)
from tests import ROOT
from tests.kit.config_maps import LEASE

FOLDER = ROOT / "tests" / "fixtures" / "kubernetes"
CLUSTER: Final = "demo"
SILENCE: Final = 7 * SECOND
"""After so long without a word of a ConfigMap, a driver looks itself, …"""
NEXT_LOOK: Final = 1_500_000
"""… then again and again, …"""
URGENT: Final = 20 * SECOND
"""… for so long."""

PHASES: Final = {
    "1.14.6": (
        ("08:26:40.000", "start"),
        ("08:26:52.649", "standby"),
        ("08:27:06.728", "kill -9"),
        ("08:27:30.113", "standby again"),
        ("08:27:44.141", "SIGTERM"),
        ("08:28:10.405", "standby again"),
        ("08:28:24.422", "SIGSTOP"),
        ("08:28:49.161", "SIGCONT"),
        ("08:29:01.490", "API server away for 15 s"),
        ("08:29:30.879", "API server away for 28 s"),
        ("08:30:25.052", "SIGTERM to all"),
    ),
    "1.20.5": (
        ("08:12:00.000", "start"),
        ("08:12:11.152", "standby"),
        ("08:12:25.331", "kill -9"),
        ("08:12:50.434", "standby again"),
        ("08:13:04.458", "SIGTERM"),
        ("08:13:34.896", "standby again"),
        ("08:13:49.038", "SIGSTOP"),
        ("08:14:19.924", "SIGCONT"),
        ("08:14:32.368", "API server away for 15 s"),
        ("08:14:59.959", "API server away for 28 s"),
        ("08:15:54.272", "SIGTERM to all"),
    ),
    "2.3.0": (("08:32:00.000", "start"), ("08:32:24.483", "kill -9"), ("08:32:46.442", "kubectl delete")),
}
"""What was done to each cluster, and when."""
ENDS: Final = {"1.14.6": "08:30:31", "1.20.5": "08:16:00", "2.3.0": "08:33:09"}
"""Until when each stream was watched: silence is recorded too."""


@cache
def entries(version: str) -> tuple[dict[str, Any], ...]:
    """The recorded stream, line by line."""
    lines = (FOLDER / version / "watch.jsonl").read_text().splitlines()
    return tuple(json.loads(line) for line in lines)


def observed(at: int, resource: dict[str, Any]) -> ConfigMapObserved:
    """One ConfigMap as a driver reports it."""
    metadata = resource["metadata"]
    return ConfigMapObserved(
        Moment(at, at),
        CLUSTER,
        metadata["name"],
        metadata["uid"],
        metadata["resourceVersion"],
        configmaps.relevant(resource.get("data") or {}),
        metadata.get("annotations", {}).get(LEASE),
    )


def observations(version: str, *, looking: bool = True) -> Iterator[tuple[str, ClusterObservation]]:
    """What a driver would have reported, each with its phase. `looking`: it also looks itself when a ConfigMap was silent."""
    driver = _Driver()
    for entry in entries(version):
        at = round(entry["t"] * SECOND)
        for look in driver.looks(at) if looking else ():
            yield _phase(version, look.at.steady), look
        for observation in driver.hears(at, entry):
            yield _phase(version, at), observation
    end = datetime.fromisoformat(f"2026-11-20T{ENDS[version]}Z")
    for look in driver.looks(round(end.timestamp() * SECOND)) if looking else ():
        yield _phase(version, look.at.steady), look


def _phase(version: str, at: int) -> str:
    clock = datetime.fromtimestamp(at / SECOND, UTC).strftime("%H:%M:%S.%f")
    return [phase for began, phase in PHASES[version] if began <= clock][-1]


class _Driver:
    """A driver's side of a watch: what stands, when it was last heard of, when to look next."""

    def __init__(self) -> None:
        self._standing: dict[str, ConfigMapObserved] = {}
        self._connected = False
        self._heard: dict[str, int] = {}
        self._next: dict[str, int] = {}

    def hears(self, at: int, entry: dict[str, Any]) -> Iterator[ClusterObservation]:
        note = entry.get("note", "")
        if "CONNECTED" in note:
            self._connected = True
            yield ViewObserved(Moment(at, at), CLUSTER, ConnectionState.CONNECTED)
            yield from (self._reports(at, name) for name in self._standing)
            yield SnapshotCompleted(Moment(at, at), CLUSTER)
        elif ("EOF" in note or " EXC " in note) and self._connected:
            self._connected = False
            yield ViewObserved(Moment(at, at), CLUSTER, ConnectionState.SUSPENDED)
        elif "ev" in entry and configmaps.is_leaders(CLUSTER, entry["ev"]["object"]["metadata"].get("name", "")):
            config_map = observed(at, entry["ev"]["object"])
            gone = ConfigMapObserved(config_map.at, CLUSTER, config_map.name)
            self._standing[config_map.name] = gone if entry["ev"]["type"] == "DELETED" else config_map
            yield self._reports(at, config_map.name)

    def looks(self, until: int) -> Iterator[ConfigMapObserved]:
        """The looks that are due before `until`, at whatever has not been heard of for too long."""
        while self._connected and (due := min(self._next.items(), key=lambda look: look[1], default=None)):
            name, at = due
            if at >= until:
                return
            self._next[name] = at + (NEXT_LOOK if at - self._heard[name] < SILENCE + URGENT else SILENCE)
            yield replace(self._standing[name], at=Moment(at, at))

    def _reports(self, at: int, name: str) -> ConfigMapObserved:
        self._heard[name], self._next[name] = at, at + SILENCE
        return replace(self._standing[name], at=Moment(at, at))
