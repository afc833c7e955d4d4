"""What is said to have come back after failovers: `python -m tests.bench.recoveries [ROUNDS] [--version VERSION] [--store STORE]`.

Real Flink on a real ZooKeeper or a real Kubernetes API server. What has come back in truth is what Flink's REST server says, and what was
stored when nobody led. A round takes about ten minutes for each version. Exit status 1: something was said that is not so.
"""

import argparse
import sys
import tempfile
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path

from tests.bench.stage import Table
from tests.kit.recovery_scene import LABS, SCENARIOS, RecoveryScene, Run, Verdict

VERSIONS = ("2.3.0", "1.20.5")


def main(rounds: int, versions: Sequence[str], store: str, scenarios: Sequence[str]) -> bool:
    """A table for each version. Whether nothing was wrong."""
    right = [_play(rounds, version, store, scenarios) for version in versions]
    return all(right)


def _play(rounds: int, version: str, store: str, scenarios: Sequence[str]) -> bool:
    runs: dict[str, list[Run]] = {name: [] for name in scenarios}
    try:
        with tempfile.TemporaryDirectory() as name:
            folder = Path(name)
            with LABS[store](folder, version) as (lab, stored), RecoveryScene(lab, stored, folder) as scene:
                for _ in range(rounds):
                    for scenario in scenarios:
                        run = scene.play(SCENARIOS[scenario])
                        runs[scenario].append(run)
                        print(f"{scenario}: {run}", file=sys.stderr, flush=True)
    finally:  # also what there is before a cluster did not come to rest any more
        right = _report(version, store, runs)
    return right


def _report(version: str, store: str, runs_of: Mapping[str, Sequence[Run]]) -> bool:
    table = Table(
        f"Flink {version}, {store}",
        *("in truth", "said (runs)", "counted right", "unproven", "wrong", "recorded, after s at most"),
    )
    wrong = 0
    for scenario, runs in runs_of.items():
        if not runs:
            continue
        counted = sum(
            (run.said.jobs, run.said.task_managers) == (run.truth.jobs, run.truth.task_managers) for run in runs
        )
        bad = [run for run in runs if run.wrong]
        wrong += len(bad)
        table.row(
            scenario,
            ", ".join(sorted({_short(run.truth) for run in runs})),
            ", ".join(f"{said} ({count})" for said, count in Counter(_short(run.said) for run in runs).items()),
            f"{counted} of {len(runs)}",
            sum(run.said.verdict == "unproven" for run in runs),
            len(bad),
            f"{max(run.after for run in runs):.1f}",
        )
    table.target("failovers of which something wrong was said", wrong, 0)
    table.end()
    for scenario, runs in runs_of.items():
        for run in runs:
            if run.wrong:
                print(f"WRONG: {scenario}: {'; '.join(run.wrong)}: {' '.join(run.reasons)}")
    return not wrong


def _short(of: Verdict) -> str:
    return "/".join(filter(None, (of.verdict, of.outcome, of.restored_from)))


if __name__ == "__main__":
    parser = argparse.ArgumentParser(prog="python -m tests.bench.recoveries")
    parser.add_argument("rounds", nargs="?", type=int, default=5)
    parser.add_argument("--version", action="append", choices=VERSIONS)
    parser.add_argument("--store", choices=LABS, default="zookeeper")
    parser.add_argument("--only", action="append", choices=SCENARIOS, help="this scenario")
    arguments = parser.parse_args()
    chosen = arguments.only or [*SCENARIOS]
    sys.exit(not main(arguments.rounds, arguments.version or VERSIONS, arguments.store, chosen))
