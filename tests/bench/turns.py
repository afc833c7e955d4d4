"""The longest single turns, by the number of jobs of a cluster: `python -m tests.bench.turns [JOBS ...]`.

Each row is one observation that is about every job at once, in a turn of the real loop with its journal, without servers: wall and CPU
seconds of the turn. The target is the worst tenant's: 1 s.
"""

import cProfile
import os
import pstats
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Final
from uuid import UUID

from msgspec.structs import replace

from sidecar.app.loop import Loop
from sidecar.core.bounds import JOBS_OF_CLUSTER
from sidecar.core.flink import configmaps
from sidecar.core.moment import Moment
from sidecar.core.observations import (
    ChildrenObserved,
    ConfigMapObserved,
    ConnectionState,
    LeftOut,
    Observation,
    SnapshotCompleted,
    Started,
    Ticked,
    ViewConfirmed,
    ViewObserved,
)
from sidecar.core.policy.policy import Policy, Store
from sidecar.journal import Journal
from sidecar.runtime.clock import Clock
from sidecar.settings.loader import load
from tests.bench.stage import Table
from tests.kit import observed_failovers as scenes
from tests.kit.config_maps import LEADER as _LEADER

MOST_SECONDS: Final = 1.0
_STORES: Final = ("/jobgraphs", "/execution-plans")
_CONFIG: Final = """
zookeeper: {quorum: "127.0.0.1:1", cluster_id: default}
receivers: [{name: people, urls: ["json://127.0.0.1:9/"]}]
"""


class _SceneClock(Clock):
    """Shows the time of the scene."""

    def __init__(self) -> None:
        self.second = 0.0

    def __call__(self) -> Moment:
        return scenes.at(self.second)


class Stage:
    """A real loop and journal, without its thread: each turn is made and timed here."""

    def __init__(self, folder: Path, policy: Policy) -> None:
        self._journal = Journal(folder)
        self.clock = _SceneClock()
        self._loop = Loop(
            *(policy, self._journal, self._journal.open(), self.clock),
            send=_ignore,
            gather=_ignore,
            publish=_ignore,
            name_pod=_ignore,
            read_silences=_ignore,
            take_picture=_ignore,
            sealed=lambda: 0,
            died=_ignore,
        )

    def turn(self, *observations: Observation) -> tuple[float, float]:
        """Seconds, and seconds of CPU."""
        began, worked = time.monotonic(), time.thread_time()
        self._loop._turn([*observations], ticks=any(isinstance(each, Ticked) for each in observations))
        return time.monotonic() - began, time.thread_time() - worked

    def close(self) -> None:
        self._journal.close()


def _ignore(*_: object) -> None:
    return None


def zookeeper_turns(stage: Stage, jobs: int) -> Iterator[tuple[str, Sequence[Observation]]]:
    """What a ZooKeeper's driver reports of a cluster with so many jobs, none of which has a leader; each item one turn."""
    names = tuple(f"{number:032x}" for number in range(jobs))
    cluster, at = scenes.CLUSTER, stage.clock

    def view(connection: ConnectionState) -> Observation:
        return ViewObserved(at(), cluster, connection)

    def leaders() -> list[Observation]:
        return [scenes.held(stage.clock.second, path, 1) for path in scenes.PATHS]

    yield "connected", (Started(at()), view(ConnectionState.CONNECTED), *leaders())
    yield "the jobs in one store", (ChildrenObserved(at(), cluster, _STORES[0], names),)
    yield "the jobs in the other", (ChildrenObserved(at(), cluster, _STORES[1], names),)
    yield "snapshot: all jobs are vacant", (SnapshotCompleted(at(), cluster),)
    yield "left out", (LeftOut(at(), cluster, 1000),)
    yield "confirmed", (ViewConfirmed(at(), cluster, 60_000_000),)
    stage.clock.second += 1
    yield "tick", (Ticked(at()),)
    stage.clock.second += 60
    yield "tick, 60 s later: no leader", (ViewConfirmed(at(), cluster, 60_000_000), Ticked(at()))
    yield "suspended", (view(ConnectionState.SUSPENDED),)
    stage.clock.second += 10
    yield "tick: all is obscured", (Ticked(at()),)
    yield "connected again", (view(ConnectionState.CONNECTED), *leaders())
    yield "one store again", (ChildrenObserved(at(), cluster, _STORES[0], names),)
    yield "snapshot again", (SnapshotCompleted(at(), cluster),)
    yield "lost", (view(ConnectionState.LOST),)
    stage.clock.second += 10
    yield "tick: all is obscured again", (Ticked(at()),)
    yield "restart", (Started(at()),)
    yield "connected after it", (view(ConnectionState.CONNECTED), *leaders())
    yield "snapshot after it", (SnapshotCompleted(at(), cluster),)
    stores = [ChildrenObserved(at(), cluster, store) for store in _STORES]
    yield "the stores are empty", stores


def kubernetes_turns(stage: Stage, jobs: int) -> Iterator[tuple[str, Sequence[Observation]]]:
    """What a Kubernetes driver reports of one ConfigMap with so many jobs."""
    name, cluster, at = configmaps.cluster_config_map(scenes.CLUSTER), scenes.CLUSTER, stage.clock
    ids = [f"{number:032x}" for number in range(jobs)]
    plans = {f"executionPlan-{job}": "" for job in ids}

    def written(term: int, *, led: bool) -> Observation:
        leader = f"{UUID(int=term)},pekko.tcp://flink@jm-{term}:6123/user/rpc/x_1"
        data = {f"{_LEADER}{component}": leader for component in ("dispatcher", "resourcemanager", "restserver")}
        data |= {f"{_LEADER}job-{job}": leader for job in ids} if led else {}
        lease = f'{{"holderIdentity": "jm-{term}", "leaseDuration": 3600.0, "renewTime": "{stage.clock.second}"}}'
        return ConfigMapObserved(at(), cluster, name, "uid", f"{term}{led:d}", data | plans, lease)

    yield "connected", (Started(at()), ViewObserved(at(), cluster, ConnectionState.CONNECTED))
    yield "the ConfigMap: no leaders", (written(1, led=False),)
    yield "snapshot: all jobs are vacant", (SnapshotCompleted(at(), cluster),)
    stage.clock.second += 60
    yield "tick, 60 s later: no leader", (ViewConfirmed(at(), cluster, 60_000_000), Ticked(at()))
    yield "all jobs have leaders", (written(1, led=True),)
    stage.clock.second += 60
    yield "all have others", (written(2, led=True),)
    yield "no job has one", (written(2, led=False),)
    yield "no job is stored", (ConfigMapObserved(at(), cluster, name, "uid", "30"),)
    yield "they come back", (written(4, led=True),)
    yield "the ConfigMap is gone", (ConfigMapObserved(at(), cluster, name),)


SCENES: Final = {Store.ZOOKEEPER: zookeeper_turns, Store.KUBERNETES: kubernetes_turns}


@contextmanager
def _stage(store: Store) -> Iterator[Stage]:
    """With the rules that are shipped, and one receiver."""
    with tempfile.TemporaryDirectory() as name, ExitStack() as ending:
        config = Path(name) / "config.yaml"
        config.write_text(_CONFIG)
        policy = replace(load(config, {}).policy(), stores={scenes.CLUSTER: store})
        stage = Stage(Path(name), policy)
        ending.callback(stage.close)
        yield stage


def main(arguments: Sequence[str]) -> None:
    """The table. `PROFILE=TURN`: the profile of that turn, too."""
    table = Table("store", "jobs", "turn", "s", "CPU s")
    for jobs in [int(argument) for argument in arguments] or [JOBS_OF_CLUSTER.most_items]:
        for store, turns in SCENES.items():
            with _stage(store) as stage:
                for what, observations in turns(stage, jobs):
                    profile = cProfile.Profile() if os.environ.get("PROFILE") == what else None
                    if profile:
                        profile.enable()
                    seconds, cpu = stage.turn(*observations)
                    if profile:
                        profile.disable()
                        pstats.Stats(profile).sort_stats("tottime").print_stats(45)
                    table.row(store.value, f"{jobs:,}", what, f"{seconds:.2f}", f"{cpu:.2f}")
                    table.target(f"{store.value}, {jobs:,} jobs, {what}", cpu, MOST_SECONDS, " s of CPU")
    table.end()


if __name__ == "__main__":
    main(sys.argv[1:])
