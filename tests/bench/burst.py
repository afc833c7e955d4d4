"""A storm: every leader of a large cluster changes at once. `python -m tests.bench.burst [JOBS]`."""

import sys
import tempfile
import time
from pathlib import Path

from sidecar.app.loop import MOST_A_TURN
from sidecar.core.effects import Append
from sidecar.core.observations import ConnectionState, Observation, SnapshotCompleted, Started, Ticked, ViewObserved
from sidecar.core.state import State
from sidecar.core.step import step_all
from sidecar.journal import Journal
from tests.kit.observed_failovers import CLUSTER, POLICY, at, held


def main() -> None:
    """One line per number of jobs: step, journal, and both per transition."""
    print("| jobs | step s | journal s | µs per transition |")
    print("|---|---|---|---|")
    for jobs in [int(argument) for argument in sys.argv[1:]] or [100, 1_000, 10_000]:
        step_seconds, journal_seconds, transitions = storm(jobs)
        each = (step_seconds + journal_seconds) / transitions * 1e6
        print(f"| {jobs} | {step_seconds:.2f} | {journal_seconds:.2f} | {each:.0f} |")


def storm(jobs: int) -> tuple[float, float, int]:
    """Seconds in `step_all`, seconds in `Journal.commit`, transitions: for `jobs` leaders that change in one go."""
    paths = [f"/leader/job-{number:032x}/connection_info" for number in range(jobs)]
    first: list[Observation] = [
        Started(at(0)),
        ViewObserved(at(0), CLUSTER, ConnectionState.CONNECTED),
        *(held(0, path, 1) for path in paths),
        SnapshotCompleted(at(0), CLUSTER),
    ]
    state, _ = step_all(POLICY, State(), first)
    second: list[Observation] = [held(10, path, 2) for path in paths]
    with tempfile.TemporaryDirectory() as folder:
        journal = Journal(Path(folder))
        journal.open()
        journal.commit(state, [])
        stepping = writing = 0.0
        recorded = 0
        for begin in range(0, jobs, MOST_A_TURN):
            began = time.perf_counter()
            state, effects = step_all(POLICY, state, [*second[begin : begin + MOST_A_TURN], Ticked(at(10))])
            stepped = time.perf_counter()
            records = [effect.record for effect in effects if isinstance(effect, Append)]
            assert journal.commit(state, records)
            stepping += stepped - began
            writing += time.perf_counter() - stepped
            recorded += len(records)
        journal.close()
    assert recorded == jobs
    return stepping, writing, recorded


if __name__ == "__main__":
    main()
