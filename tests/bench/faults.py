"""What is reported of each way in which a leader goes, beside what happened: `python -m tests.bench.faults [VERSION ...]`.

Real Flink on a real API server, with Flink's own leases of 15 s, two JobManagers, and a job: a version takes some five minutes. What
happened is read from etcd (tests/bench/truth.py), which also hears what is written while the API server goes; `run`, `watch` and
`watch --view flink` are beside the cluster. All times are monotonic, those of a line are of when it was in hand.
"""

import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from datetime import timedelta
from functools import partial
from pathlib import Path
from statistics import median

from tests.bench.apiserver import OpenKubernetes
from tests.bench.scene import Fault, Scene
from tests.bench.stage import Table
from tests.bench.verdict import Verdict
from tests.lab.flink import Lab

VERSIONS = ("2.3.0", "1.20.5", "1.14.6")
LEASE = timedelta(seconds=15)
_IN_TIME = LEASE.total_seconds() + 2.0
_TAKEOVER_SECONDS = 60.0
_CALM_SECONDS = 6.0
_LEASE_CALM_SECONDS = 22.0
"""In which a lease runs out, and another JobManager tries."""
_OLD = (1, 14)

Act = Callable[[Scene], Fault]


def main(versions: Sequence[str] = VERSIONS) -> None:
    """A table for each version, and the targets."""
    for version in versions:
        with tempfile.TemporaryDirectory() as name:
            folder = Path(name)
            kubernetes = OpenKubernetes(folder / "kubernetes")
            kubernetes.start()
            try:
                with (
                    Lab(folder / "lab", version, kubeconfig=kubernetes.kubeconfig(), session_timeout=LEASE) as lab,
                    Scene(lab, kubernetes, folder) as scene,
                ):
                    _play(version, scene)
            finally:
                kubernetes.kill()


def _play(version: str, scene: Scene) -> None:
    table = Table(
        f"Flink {version}",
        "what happened",
        "no leader reported, after s",
        "because",
        "next leader written, after s",
        "its line, ms behind the write",
        "OBSCURED, after s",
        "false, missed",
    )
    for title, act in FAULTS.items():
        scene.stand_by()
        fault = act(scene)
        verdict = Verdict(scene, fault)
        wrong = (verdict.false(), verdict.missed())
        _row(table, title, verdict, *map(len, wrong))
        if lost := verdict.lost():
            table.target(f"{title}: reported after the end of the process", max(lost), _IN_TIME, " s")
        for line in (*wrong[0], *wrong[1]):
            table.target(f"{title}: {line}", 1, 0)
    table.end()
    print(scene.agreement(), scene.retrieval(), "", sep="\n", flush=True)


def _row(table: Table, title: str, verdict: Verdict, false: int, missed: int) -> None:
    behind = [1000 * seconds for seconds in verdict.behind()]
    table.row(
        title,
        verdict.outcome(),
        _span(verdict.after(verdict.vacant)),
        "; ".join(dict.fromkeys(line.reason or line.kind for line in verdict.vacant)),
        _span(verdict.written_after()),
        f"{median(behind):.0f}, at most {max(behind):.0f}" if behind else "",
        _span(verdict.after(verdict.obscured)),
        f"{false}, {missed}",
    )


def _span(seconds: Sequence[float]) -> str:
    first, last = (f"{pick(seconds, default=0.0):.1f}" for pick in (min, max))
    return "" if not seconds else first if first == last else f"{first} to {last}"


# -- the faults --------------------------------------------------------------------------------------------------------


def killed(scene: Scene) -> Fault:
    fault = scene.begin()
    scene.victim.kill()
    _taken_over(scene, fault)
    return fault


def ended(scene: Scene) -> Fault:
    fault = scene.begin()
    scene.victim.terminate()
    _taken_over(scene, fault)
    return fault


def frozen(scene: Scene) -> Fault:
    """It goes on when another one leads, learns that, and stands by: which is no news."""
    fault = scene.begin()
    scene.victim.pause()
    _taken_over(scene, fault)
    scene.victim.resume()
    scene.settle(_CALM_SECONDS)
    return fault


def away(scene: Scene, seconds: float) -> Fault:
    """Its start takes a while, and begins so much earlier."""
    server = scene.kubernetes.server
    fault = scene.begin()
    server.kill()
    time.sleep(max(0.0, seconds - scene.restart_seconds))
    began = time.monotonic()
    server.start()
    fault = fault._replace(back_at=time.monotonic())
    scene.restart_seconds = time.monotonic() - began
    scene.settle(_LEASE_CALM_SECONDS)
    return fault


def deleted(scene: Scene) -> Fault:
    """Up to Flink 1.14 that of the dispatcher alone."""
    old = tuple(map(int, scene.lab.flink_version.split(".")))[:2] <= _OLD
    fault = scene.begin()
    name = f"{scene.lab.cluster_id}-{'dispatcher-leader' if old else 'cluster-config-map'}"
    scene.kubernetes.namespace("default").delete(name)
    _taken_over(scene, fault)
    scene.settle(_LEASE_CALM_SECONDS)  # the other leases of the process that ends itself run out by themselves
    return fault


def _taken_over(scene: Scene, fault: Fault) -> None:
    scene.wait(lambda: scene.another_leads(fault), _TAKEOVER_SECONDS)
    scene.settle(_CALM_SECONDS)


FAULTS: dict[str, Act] = {
    "`kill -9`": killed,
    "SIGTERM": ended,
    "SIGSTOP, SIGCONT after the takeover": frozen,
    "API server away for 15 s": partial(away, seconds=15),
    "API server away for 30 s": partial(away, seconds=30),
    "ConfigMap deleted": deleted,
}


if __name__ == "__main__":
    main(sys.argv[1:] or VERSIONS)
