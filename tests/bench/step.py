"""The step by the number of jobs: `python -m tests.bench.step [JOBS …]`.

CPU time of the thread: of each transition, in turns of up to 1,000, in `step` and for the rows that the journal writes of the state; and of
the tick behind each turn, which looks at every job.
"""

import sys
import time
from collections.abc import Callable, Sequence
from typing import Final, NamedTuple

from sidecar.app.loop import MOST_A_TURN
from sidecar.core.journal_rows import changes
from sidecar.core.observations import Observation, Ticked
from sidecar.core.state import State
from sidecar.core.step import step, step_all
from tests.bench.storm import POLICY
from tests.kit import observed_failovers as scenes

JOBS: Final = (100, 1_000, 10_000, 20_000)
TRANSITIONS: Final = 5_000
"""At least so many of each kind: fewer jobs change more often. The fastest time counts."""
_LATER: Final = (3, 6, 20)
"""Ticks behind the changes, in seconds: jobs left alone, groups are notified, a failover is over."""
_PAUSE: Final = 600
"""Seconds between two scenes."""

Scene = Callable[[int, Sequence[str], int], list[Observation]]


def main() -> None:
    """A row for each number of jobs, and how many times more than the fewest the most take."""
    print("| µs of a transition: step + rows of the journal; ms of a tick | " + " | ".join(SCENES) + " |")
    print("|---" * (len(SCENES) + 1) + "|")
    rows = []
    for jobs in [int(argument) for argument in sys.argv[1:]] or JOBS:
        rows.append(measure(jobs))
        print(f"| {jobs:,} jobs | " + " | ".join(map(str, rows[-1])) + " |")
    ratios = [most.transition / fewest.transition for fewest, most in zip(rows[0], rows[-1], strict=True)]
    print("| the last beside the first | " + " | ".join(f"{ratio:.2f} x" for ratio in ratios) + " |")


class Cost(NamedTuple):
    """Of one scene."""

    step: float
    """Microseconds of a transition. Likewise `rows`."""
    rows: float
    tick: float
    """Milliseconds."""

    @property
    def transition(self) -> float:
        return self.step + self.rows

    def __str__(self) -> str:
        return f"{self.step:.0f} + {self.rows:.0f}; {self.tick:.0f}"


def measure(jobs: int) -> list[Cost]:
    """The least cost of each scene."""
    paths = [f"/leader/job-{number:032x}/connection_info" for number in range(jobs)]
    first = [*scenes.first_sight()[:-1], *(scenes.held(0, path, 1) for path in paths), scenes.first_sight()[-1]]
    state, _ = step_all(POLICY, State(), first)
    costs: dict[str, list[Cost]] = {name: [] for name in SCENES}
    second, term = 0, 1
    for _ in range(max(2, TRANSITIONS // jobs)):
        for name, scene in SCENES.items():
            second, term = second + _PAUSE, term + 1
            state, cost = play(state, scene(second, paths, term), second)
            costs[name].append(cost)
    return [min(each, key=lambda cost: cost.transition) for each in costs.values()]


def play(state: State, observations: Sequence[Observation], second: int) -> tuple[State, Cost]:
    """The state afterwards, and what it cost to get there."""
    turns = [observations[begin : begin + MOST_A_TURN] for begin in range(0, len(observations), MOST_A_TURN)]
    stepping = ticking = writing = 0.0
    for turn in turns:
        began, before = time.thread_time(), state
        state, _ = step_all(POLICY, state, turn)
        stepped = time.thread_time()
        state, _ = step(POLICY, state, Ticked(scenes.at(second)))
        ticked = time.thread_time()
        for _ in changes(before, state):
            pass
        stepping += stepped - began
        ticking += ticked - stepped
        writing += time.thread_time() - ticked
    for later in _LATER:
        state, _ = step(POLICY, state, Ticked(scenes.at(second + later)))
    most = len(observations)
    return state, Cost(stepping / most * 1e6, writing / most * 1e6, ticking / len(turns) * 1e3)


def _changed(second: int, paths: Sequence[str], term: int) -> list[Observation]:
    return [scenes.held(second, path, term) for path in paths]


def _lost(second: int, paths: Sequence[str], _: int) -> list[Observation]:
    return [scenes.gone(second, path) for path in paths]


def _failed_over(second: int, paths: Sequence[str], term: int) -> list[Observation]:
    everybody = [*scenes.PATHS, *paths]
    return [*_lost(second, everybody, term), *_changed(second, everybody, term)]


SCENES: Final[dict[str, Scene]] = {
    "each job has another leader": _changed,
    "each job loses its leader": _lost,
    "… and gets one": _changed,
    "everybody fails over": _failed_over,
}

if __name__ == "__main__":
    main()
