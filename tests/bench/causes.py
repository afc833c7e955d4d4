"""Which cause is reported of each fault: `python -m tests.bench.causes [VERSION ...] [--store STORE] [--runs N]`.

Real Flink on a real ZooKeeper with session timeouts of 5 s, or on a real Kubernetes API server with leases of 5 s (`--store kubernetes`);
each JobManager and the sidecar behind a way there that can be shut: a run takes ten to fifteen minutes. What is reported is what the
journal of `run` holds, what is expected may depend on what became of the leader. A fault comes when the one before is over, and a minute
after the sidecar saw the store again: what happens in that minute may have to do with it. Exit status 1: a verdict was wrong, or an alert
was.
"""

import argparse
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from sidecar.core.failover.causes import Cause
from tests.bench.cause_kinds import KINDS, Kind, Race
from tests.bench.cause_labs import LABS, SESSION
from tests.bench.cause_scene import Fault, FaultRecords, Outcome, Scene, epoch_seconds
from tests.bench.stage import Table

VERSIONS = ("2.3.0", "1.20.5")
_SPLITS = ("1.20.",)
"""Of these, two processes may both lead when ZooKeeper was away for longer than their sessions last, and comes back with them: a defect."""
_MOST_TRANSITIONS = 24


class Run(NamedTuple):
    """What was reported of one fault."""

    fault: Fault
    lasted: float
    """For how many seconds the fault really was."""
    records: FaultRecords
    outcome: Outcome | None
    """Where that is up to the cluster."""

    def causes(self) -> str:
        found = [f"{episode['cause']} ({episode['confidence']})" for episode in self.records.episodes]
        return " + ".join([*found, *("not recorded" for _ in self.records.unfinished)]) or "none"

    def is_right(self, allowed: set[Cause]) -> bool:
        """One that is allowed, and no other; a split may follow upon what it came from."""
        causes = [episode["cause"] for episode in self.records.episodes]
        alone = len(causes) <= 1 or Cause.SPLIT_LEADERSHIP in causes
        return not self.records.unfinished and alone and bool(causes) == bool(allowed) and {*causes} <= allowed

    def after(self) -> list[float]:
        """How long after the fault each episode was recorded."""
        return [epoch_seconds(episode["recorded_at"]) - self.fault.at for episode in self.records.episodes]


def main(versions: Sequence[str] = VERSIONS, store: str = "zookeeper", runs: int = 1) -> bool:
    """A table for each version, and what was wrong. Whether nothing was."""
    right = [_play(version, store, runs) for version in versions]
    return all(right)


def _play(version: str, store: str, runs: int) -> bool:
    runs_of: dict[Kind, list[Run]] = {kind: [] for kind in KINDS[store]}
    try:
        with tempfile.TemporaryDirectory() as name:
            folder = Path(name)
            with LABS[store](folder, version) as lab, Scene(lab, folder) as scene:
                for _ in range(runs):
                    for kind in sorted(KINDS[store], key=lambda kind: kind.turn):
                        runs_of[kind].append(_one(scene, kind))
    finally:  # also what was found before a cluster did not come to rest any more
        right = _report(version, {kind: runs for kind, runs in runs_of.items() if runs})
    return right


def _one(scene: Scene, kind: Kind) -> Run:
    scene.stand_by(kind.jobmanagers)
    fault = scene.begin()
    began = time.monotonic()
    kind.act(scene, fault)
    lasted = time.monotonic() - began
    records = (
        scene.wait_for_nothing(fault, kind.quiet)
        if kind.quiet
        else scene.wait_for_episode(fault, kind.calm, kind.patience)
    )
    run = Run(fault, lasted, records, scene.outcome(fault) if isinstance(kind.cause, Race) else None)
    print(f"{_what(kind, run.outcome)}: {run.causes()}", file=sys.stderr, flush=True)
    return run


def _report(version: str, runs_of: Mapping[Kind, Sequence[Run]]) -> bool:
    table = Table(
        f"Flink {version}", "expected", "lasted, s at most", "reported (runs)", "recorded, after s at most", "alerts"
    )
    wrong, alerts = [], 0
    for kind, of_kind in runs_of.items():
        for outcome in (None, *Outcome):
            if runs := [run for run in of_kind if run.outcome is outcome]:
                _row(table, version, kind, runs)
                wrong += [(kind, run) for run in runs if not run.is_right(_allowed(version, kind, run))]
                quiet = kind.quiet or outcome in {Outcome.STAYED, Outcome.LATE}
                alerts += sum(len(run.records.alerts) for run in runs) if quiet else 0
    table.target("wrong verdicts", len(wrong), 0)
    table.target("alerts where nothing happened to a leader", alerts, 0)
    table.end()
    for kind, run in wrong:
        _explain(kind, run)
    return not wrong and not alerts


def _row(table: Table, version: str, kind: Kind, runs: Sequence[Run]) -> None:
    """Of one kind of fault, and of one outcome."""
    reported = Counter(run.causes() for run in runs)
    table.row(
        _what(kind, runs[0].outcome),
        " or ".join(sorted({cause for run in runs for cause in _allowed(version, kind, run)})) or "none",
        f"{max(run.lasted for run in runs):.1f}",
        ", ".join(f"{causes} ({count} of {len(runs)})" for causes, count in reported.items()),
        f"{max(after):.1f}" if (after := [each for run in runs for each in run.after()]) else "",
        sum(len(run.records.alerts) for run in runs),
    )


def _what(kind: Kind, outcome: Outcome | None) -> str:
    return f"{kind.what}: {outcome}" if outcome else kind.what


def _allowed(version: str, kind: Kind, run: Run) -> set[Cause]:
    cause = kind.cause.cause(run.outcome) if isinstance(kind.cause, Race) and run.outcome else kind.cause
    causes = {cause} if isinstance(cause, Cause) else set()
    splits = kind.is_outage and version.startswith(_SPLITS) and run.lasted >= SESSION.total_seconds()
    return causes | {Cause.SPLIT_LEADERSHIP} if splits else causes


def _explain(kind: Kind, run: Run) -> None:
    """What a wrong verdict rests on, and what was seen."""
    print(f"WRONG: {_what(kind, run.outcome)}: {run.causes()}")
    for episode in run.records.episodes:
        print("  facts:", *episode["facts"])
    for row in run.records.transitions[:_MOST_TRANSITIONS]:
        after = epoch_seconds(row["observed_at"]) - run.fault.at
        name = f"job {row['job_id']}" if row["job_id"] else row["component"]
        same = f"same process: {row['same_process']}, contenders: {row['contenders']}"
        print(f"  {after:+.3f} s {name} {row['pattern']} {row['after_address'] or ''} {row['reason'] or ''} ({same})")
    print(f"  {len(run.records.transitions)} transitions\n", flush=True)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(prog="python -m tests.bench.causes")
    parser.add_argument("versions", nargs="*", default=VERSIONS, metavar="VERSION")
    parser.add_argument("--store", choices=LABS, default="zookeeper")
    parser.add_argument("--runs", type=int, default=1, help="of each fault")
    arguments = parser.parse_args()
    sys.exit(not main(arguments.versions, arguments.store, arguments.runs))
