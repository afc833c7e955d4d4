"""One campaign: faults in random order on each store, both at the same time, and what the judge says of them."""

import json
import threading
import time
import traceback
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from random import Random
from typing import Final

from kazoo.exceptions import NoNodeError
from msgspec import Struct

from tests.campaign.faults import KINDS, Kind
from tests.campaign.judge import Verdict, judge
from tests.campaign.scene import KubernetesScene, Scene, ZooKeeperScene
from tests.kit.kubernetes_server import assets
from tests.lab.distribution import flink_home
from tests.lab.java import find_java

STORES: Final = ("zookeeper", "kubernetes")
_FLINK: Final = "2.3.0"
_RESTART_SECONDS: Final = 60.0
_QUIET_SECONDS: Final = 3.0
"""After recovery: in which something superfluous would come."""


class Plan(Struct, frozen=True, kw_only=True):
    """What is to happen. Everything random follows from `seed`, but not the moments at which the processes do what they do."""

    seed: int
    faults: int
    stores: Sequence[str] = STORES
    kinds: Sequence[str] = tuple(KINDS)
    minutes: float = 24 * 60.0
    """No fault is begun after that."""
    sidecars: int = 2
    """For each store."""

    def order(self, store: str) -> list[str]:
        """The kinds for one store: each once before any comes again."""
        moments = Random(f"{self.seed} order {store}")
        possible = [kind for kind in self.kinds if store in KINDS[kind].stores]
        share = len(range(self.stores.index(store), self.faults, len(self.stores)))
        order: list[str] = []
        while possible and len(order) < share:
            order += moments.sample(possible, len(possible))
        return order[:share]


def play(
    plan: Plan, folder: Path, report: Callable[[str], None], stopping: threading.Event | None = None
) -> Mapping[str, Verdict]:
    """Play it in `folder`, where all evidence stays. The verdicts by store. No fault is begun once `stopping` is set."""
    stopping = stopping or threading.Event()
    deadline = time.monotonic() + plan.minutes * 60

    def on(store: str) -> Verdict:
        with _scene(store, folder / store, plan) as scene:
            for number, name in enumerate(plan.order(store), start=1):
                if stopping.is_set() or time.monotonic() > deadline:
                    report(f"{store}: it ends here, after {number - 1} faults")
                    break
                report(f"{store} {number:4} {name}: {_round(scene, number, name, KINDS[name])}")
            _finish(scene)
        return judge(folder / store)

    with ThreadPoolExecutor(len(plan.stores)) as stores:
        futures = {store: stores.submit(on, store) for store in plan.stores}
        verdicts = {store: future.result() for store, future in futures.items()}
    (folder / "verdict.json").write_text(json.dumps({store: verdict._asdict() for store, verdict in verdicts.items()}))
    return verdicts


def _scene(store: str, folder: Path, plan: Plan) -> Scene:
    if store == "kubernetes":
        return KubernetesScene(folder, plan.seed, plan.sidecars, binaries=assets())
    home = flink_home(_FLINK, lambda _line: None)
    return ZooKeeperScene(folder, plan.seed, plan.sidecars, home=home, java=find_java())


def _round(scene: Scene, number: int, name: str, kind: Kind) -> str:
    """One fault, and how it went in a word."""
    if kind.needs_small_disk and not scene.limited:
        scene.diary.note("skipped", number=number, kind=name, why="not root")
        return "skipped: a small disk takes root"
    scene.diary.note("began", number=number, kind=name, blinds=kind.blinds, loses_journal=kind.loses_journal)
    wrong = ""
    try:
        kind.act(scene)
    except Exception as error:  # noqa: BLE001  whatever a fault stumbles over is evidence, and the campaign goes on
        wrong = why(error)
        (scene.folder / f"fault-{number}.txt").write_text(traceback.format_exc())
    scene.diary.note("over", number=number)
    began = time.monotonic()
    wrong = wrong or scene.wait_well()
    seconds = time.monotonic() - began
    if wrong:
        scene.diary.note("not_recovered", number=number, why=wrong)
        _restart(scene)
    time.sleep(_QUIET_SECONDS)
    scene.diary.note("settled", number=number, host=scene.flink.host, seconds=seconds)
    _measure(scene)
    scene.keep_messages()
    return f"NOT RECOVERED: {wrong}" if wrong else f"recovered after {seconds:.1f} s"


def why(error: Exception) -> str:
    """One line: of a process that ended, the last one of its log says why."""
    kind, lines = type(error).__name__, str(error).rstrip().splitlines()
    return f"{kind}: {lines[-1]}" if lines else kind


def _restart(scene: Scene) -> None:
    """So that the next fault finds everything well. The ledger begins anew, and so does a journal with which no sidecar gets well."""
    for watcher in scene.watchers:
        if watcher.running:
            watcher.kill()
        watcher.start()
    scene.flink.confirm()
    with suppress(NoNodeError):
        scene.write_document("ledger", None)
    if not scene.flink.leads:
        scene.flink.publish()
    if wrong := scene.wait_well(_RESTART_SECONDS):
        scene.diary.note("lasting", why=wrong)
        for watcher in scene.watchers:
            if watcher.what_is_wrong(scene.flink.host):
                watcher.begin_anew()
        scene.wait_well(_RESTART_SECONDS)


def _measure(scene: Scene) -> None:
    for watcher in scene.watchers:
        if watcher.running:
            scene.diary.note(
                "size", sidecar=watcher.name, rss_mib=round(watcher.memory_mib(), 1), threads=watcher.threads()
            )


def _finish(scene: Scene) -> None:
    """End everything in order, so that everything is in segments."""
    scene.wait_well(_RESTART_SECONDS)  # a process that has just begun may not know SIGTERM yet
    for watcher in scene.watchers:
        if watcher.running:
            scene.diary.note("ended", sidecar=watcher.name, status=watcher.stop())
