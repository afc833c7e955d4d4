"""What real Flink clusters wrote into ConfigMaps, done again on a live API server: the driver reports all of it in order, and nothing else.

Every recording is played at its own pace, with pauses cut down to 0.15 s, and as fast as it goes.
"""

import json
import math
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise
from typing import Final, NamedTuple

import pytest

from sidecar.core.flink.configmaps import cluster_config_map, dispatcher_config_map, is_leaders, relevant
from sidecar.drivers.kubernetes import Access, KubernetesDriver
from tests import ROOT
from tests.kit.config_maps import LEASE
from tests.kit.configmap_recorder import Recorder, version_of
from tests.kit.driver_recorder import CONNECTED, SUSPENDED, now
from tests.kit.kubernetes_server import Json, Kubernetes, Namespace

RECORDINGS: Final = {file.parent.name: file for file in (ROOT / "tests" / "fixtures/kubernetes").glob("*/watch.jsonl")}
PACES: Final = {"original": 0.15, "as fast as it goes": 0.0}
"""The longest pause between two events, in seconds."""

_PATIENCE_SECONDS = 60.0
"""With all recordings played at once on a busy machine."""


class Write(NamedTuple):
    """One event of a recording, and how long after the one before it it came."""

    after: float
    kind: str
    config_map: Json

    @property
    def name(self) -> str:
        return str(self.config_map["metadata"]["name"])

    def is_seen(self, cluster_id: str) -> bool:
        """Whether a driver can find it: those of Flink 1.14 get their labels with the first leader."""
        labels = self.config_map["metadata"].get("labels") or {}
        return self.name == cluster_config_map(cluster_id) or (
            is_leaders(cluster_id, self.name) and labels.get("app") == cluster_id
        )


class Applied(NamedTuple):
    """What was done on the live API server: name, uid and resource version, and what then stood there."""

    version: tuple[str, str | None, str]
    data: Mapping[str, str]
    leader: str | None


class Played(NamedTuple):
    cluster_id: str
    applied: list[Applied]
    """To ConfigMaps with leaders."""
    found_after: int
    """How many of these were there before the driver had found out which layout it is."""
    recorder: Recorder


def recording(name: str) -> list[Write]:
    lines = [json.loads(line) for line in RECORDINGS[name].read_text().splitlines()]
    events = [
        (line["t"], line["ev"]) for line in lines if line.get("ev", {}).get("type") in {"ADDED", "MODIFIED", "DELETED"}
    ]
    assert events, f"nothing is recorded in {name}"
    pauses = [0.0, *(later[0] - sooner[0] for sooner, later in pairwise(events))]
    return [Write(after, event["type"], event["object"]) for after, (_, event) in zip(pauses, events, strict=True)]


def cluster_of(writes: Sequence[Write]) -> str:
    (cluster_id,) = {write.config_map["metadata"].get("labels", {}).get("app") for write in writes} - {None}
    return str(cluster_id)


class Player:
    """Does again in `namespace` what was recorded, before a driver."""

    def __init__(self, kubernetes: Kubernetes, namespace: str, cluster_id: str) -> None:
        self._namespace: Namespace = kubernetes.namespace(namespace)
        self._cluster_id = cluster_id
        self._there: dict[str, Applied] = {}
        self._found = False
        self.applied: list[Applied] = []
        self.found_after = 0
        self.driver = KubernetesDriver(Access(kubernetes.kubeconfig()), namespace, cluster_id, now)
        self.recorder = Recorder(self.driver)
        self.driver.start(self.recorder)
        self.recorder.wait_complete(timeout=_PATIENCE_SECONDS)

    def play(self, writes: Sequence[Write], longest_pause: float = math.inf) -> None:
        for write in writes:
            time.sleep(min(write.after, longest_pause))
            applied = self._do(write)
            if applied and write.is_seen(self._cluster_id):
                self.applied.append(applied)
                self._wait_until_found(applied)

    def wait_reported(self) -> None:
        self.recorder.wait_last(self.applied[-1].version, _PATIENCE_SECONDS)

    def played(self) -> Played:
        return Played(self._cluster_id, self.applied, self.found_after, self.recorder)

    def _do(self, write: Write) -> Applied | None:
        """What the API server made of it; None where it changed nothing."""
        name, before = write.name, self._there.get(write.name)
        if write.kind == "DELETED":
            if not before:
                return None
            del self._there[name]
            self._namespace.delete(name)
            return Applied((name, None, ""), {}, None)
        metadata, data = write.config_map["metadata"], write.config_map.get("data") or {}
        leader = (metadata.get("annotations") or {}).get(LEASE)
        put = self._namespace.replace if before else self._namespace.create
        version = version_of(put(name, data, leader, metadata.get("labels")))
        if before and before.version == version:
            return None
        self._there[name] = Applied(version, relevant(data), leader)
        return self._there[name]

    def _wait_until_found(self, applied: Applied) -> None:
        """A cluster that was not there may turn out to be one of Flink 1.14: which it is, is looked for every few seconds."""
        if not self._found and applied.version[0] == dispatcher_config_map(self._cluster_id):
            self.recorder.wait(lambda: applied.version in self.recorder.versions(), _PATIENCE_SECONDS)
            self._found = True
            self.found_after = len(self.applied)


@pytest.fixture(scope="module")
def plays(kubernetes: Kubernetes) -> dict[tuple[str, str], Played]:
    """Every recording at every pace, all at once, each in a namespace of its own."""

    def play(number: int, name: str, pace: str) -> Played:
        writes = recording(name)
        player = Player(kubernetes, f"replay-{number}", cluster_of(writes))
        try:
            player.play(writes, PACES[pace])
            player.wait_reported()
        finally:
            player.driver.stop()
        return player.played()

    wanted = [(name, pace) for name in RECORDINGS for pace in PACES]
    with ThreadPoolExecutor(len(wanted)) as together:
        played = [together.submit(play, number, *which) for number, which in enumerate(wanted)]
        return {which: future.result() for which, future in zip(wanted, played, strict=True)}


@pytest.fixture(params=[(name, pace) for name in RECORDINGS for pace in PACES], ids="-".join)
def played(request: pytest.FixtureRequest, plays: dict[tuple[str, str], Played]) -> Played:
    return plays[request.param]


def assert_all_reported(played: Played) -> None:
    """What was reported is what was done, in its order; of what was there before the layout was known, what then stood there."""
    done = [applied.version for applied in played.applied]
    versions = played.recorder.versions()
    begun = len(versions) - len(done) + played.found_after
    assert versions[begun:] == done[played.found_after :]
    before = done[: played.found_after]
    assert [version for version in versions[:begun] if version not in before] == []
    contents = {applied.version: (applied.data, applied.leader) for applied in played.applied}
    for config_map in played.recorder.config_maps():
        assert (config_map.data, config_map.leader) == contents[
            config_map.name, config_map.uid, config_map.resource_version
        ]


def test_every_write_is_reported_once_in_order_with_what_was_written(played: Played) -> None:
    """Renewals, keys that go one by one, the ConfigMap that is deleted: as it was done; in a view that, once there, was never lost."""
    assert_all_reported(played)
    assert played.found_after < len(played.applied) / 2
    view = played.recorder.view()
    assert view[view.index(CONNECTED) :] == [
        CONNECTED
    ]  # an API server that has just begun may be too slow for the first request
    assert played.recorder.snapshots() == 1


def test_the_last_of_each_config_map_is_what_stands_there(played: Played) -> None:
    """In the end what was reported last of each ConfigMap is the truth."""
    truth = {applied.version[0]: applied.version for applied in played.applied}
    last_versions = {version[0]: version for version in played.recorder.versions()}
    assert last_versions == truth


def test_an_api_server_that_is_killed_in_the_middle_loses_nothing(kubernetes: Kubernetes) -> None:
    """Half of each recording is played, the API server killed and started again, then the other half: all is seen, and nothing twice."""
    recordings = [recording(name) for name in RECORDINGS]
    players = [Player(kubernetes, f"killed-{number}", cluster_of(writes)) for number, writes in enumerate(recordings)]
    try:
        with ThreadPoolExecutor(len(players)) as together:
            halves = [(writes[: len(writes) // 2], writes[len(writes) // 2 :]) for writes in recordings]
            list(together.map(lambda player, half: player.play(half[0], 0), players, halves))
            for player in players:
                player.wait_reported()
            kubernetes.server.kill()
            for player in players:
                player.recorder.wait_view(CONNECTED, SUSPENDED, timeout=_PATIENCE_SECONDS)
            kubernetes.server.start()
            for player in players:
                player.recorder.wait_complete(2, timeout=_PATIENCE_SECONDS)
            list(together.map(lambda player, half: player.play(half[1], 0), players, halves))
            for player in players:
                player.wait_reported()
    finally:
        kubernetes.server.start()  # it is shared
        for player in players:
            player.driver.stop()
    for player in players:
        assert_all_reported(player.played())
        assert player.recorder.view() == [CONNECTED, SUSPENDED, CONNECTED]
