"""A storm of alerts: every job's leader changes at once. `python -m tests.bench.storm [JOBS …]`.

The real loop, journal and clock; whoever sends notes when and what. Each row has a process of its own, for its peak of memory.
"""

import resource
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

from msgspec.structs import replace

from sidecar.app.loop import Loop
from sidecar.core.alerting.alerting_step import Send
from sidecar.core.alerting.outbox import Delivery
from sidecar.core.captures import Capture
from sidecar.core.cluster.cluster_state import ClusterState
from sidecar.core.journal_rows import changes
from sidecar.core.moment import SECOND
from sidecar.core.observations import ChildrenObserved, DeliveryOutcome, DeliverySettled, Observation
from sidecar.core.policy.policy import Destination, Policy, Rule, Severity
from sidecar.core.policy.routing import Route
from sidecar.core.policy.triggers import Trigger
from sidecar.core.records import AnyRecord
from sidecar.core.state import Effect, Gather, State
from sidecar.journal import Journal
from sidecar.runtime.clock import Clock
from tests.kit import observed_failovers as scenes

GROUP_WAIT: Final = 5
HOLD_FOR: Final = 10
DEADLINE: Final = 300.0
POLICY: Final = Policy(
    "observer-1",
    scenes.POLICY.stores,
    rules=(
        Rule("FlinkLeaderChanged", Trigger.LEADER_CHANGED),
        Rule("FlinkJobLeaderChanged", Trigger.JOB_LEADER_CHANGED, Severity.INFO),
        Rule("FlinkNoLeader", Trigger.VACANT, Severity.CRITICAL, hold_for=HOLD_FOR * SECOND),
        Rule("FlinkLeaderFlapping", Trigger.EPISODES, Severity.CRITICAL, count=3, within=3600 * SECOND),
    ),
    route=Route("ops", group_wait=GROUP_WAIT * SECOND),
    receivers={"ops": (Destination("ops", 0),)},
)
WHAT: Final = {
    "failover": "everybody fails over",
    "alone": "each job moves by itself",
    "vacant": f"each job loses its leader by itself, notified after {HOLD_FOR} s",
}

COLUMNS: Final = (
    *("what happens", "jobs", "messages", "alerts in the group", "bytes of text", "sent so many s after group_wait"),
    *("CPU s", "rows of state", "MB of rows", "MB of groups", "peak MiB before", "peak MiB"),
)


class CountingJournal(Journal):
    """A journal that counts what it is given; `counting` are the seconds that this took."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.rows: Counter[str] = Counter()
        self.bytes: Counter[str] = Counter()
        self.counting = 0.0
        self.largest = 0
        """Alerts in the largest group that there was."""
        self._previous = State()

    def commit(self, state: State, records: Sequence[AnyRecord], sealed: int = 0) -> bool:
        began = time.thread_time()
        for row in changes(self._previous, state):
            self.rows[row.kind] += 1
            self.bytes[row.kind] += len(row.value or b"")
        self._previous = state
        self.largest = max([self.largest, *(len(group.members) for group in state.alerts.groups.values())])
        self.counting += time.thread_time() - began
        return super().commit(state, records, sealed)


def main() -> None:
    """Three tables' worth of rows: what happens, by the number of jobs."""
    if len(sys.argv) == 3 and sys.argv[1] in WHAT:
        print(storm(sys.argv[1], int(sys.argv[2])))
        return
    print("| " + " | ".join(COLUMNS) + " |")
    print("|---" * len(COLUMNS) + "|")
    for what in WHAT:
        for jobs in [int(argument) for argument in sys.argv[1:]] or [2_500, 5_000, 10_000]:
            done = subprocess.run(
                [sys.executable, "-m", "tests.bench.storm", what, str(jobs)],
                check=True,
                capture_output=True,
                timeout=900,
            )
            print(done.stdout.decode().strip(), flush=True)


def storm(what: str, jobs: int) -> str:
    """One row of the table."""
    paths = [f"/leader/job-{number:032x}/connection_info" for number in range(jobs)]
    with tempfile.TemporaryDirectory() as folder:
        journal = CountingJournal(Path(folder))
        clock = Clock()
        sent: list[tuple[float, Delivery]] = []
        first_message = threading.Event()

        def carry_out(effect: Effect) -> None:
            match effect:
                case Send(delivery):
                    sent.append((time.monotonic(), delivery))
                    loop.observe(DeliverySettled(clock(), delivery.id, DeliveryOutcome.DELIVERED))
                    first_message.set()
                case Gather(capture):
                    asked.append(capture)

        asked: list[Capture] = []
        loop = Loop(
            *(POLICY, journal, journal.open(), clock),
            carry_out=carry_out,
            sealed=lambda: 0,
            died=first_message.set,
        )

        def watched() -> list[ClusterState]:
            return [*loop.snapshot.state.clusters.values()]

        loop.start()
        bring(loop, clock, scenes.first_sight()[1:-1])
        bring(loop, clock, [scenes.held(0, path, 1) for path in paths])
        names = tuple(path.split("/")[2].removeprefix("job-") for path in paths)
        bring(
            loop,
            clock,
            [ChildrenObserved(scenes.at(0), scenes.CLUSTER, "/execution-plans", names), scenes.first_sight()[-1]],
        )
        wait(lambda: all(seen.view.complete for seen in watched()) and bool(watched()), "the first sight")
        idle = peak()
        journal.rows.clear()
        journal.bytes.clear()
        journal.counting = 0.0
        cpu, began = time.process_time(), time.monotonic()
        bring(loop, clock, happening(what, paths))
        wait(first_message.is_set, "a message")
        waited = sent[0][0] - began - GROUP_WAIT - (HOLD_FOR if what == "vacant" else 0)
        last = time.monotonic()
        wait(lambda: time.monotonic() > last + 3, "what may follow")
        spent = time.process_time() - cpu - journal.counting
        loop.stop()
        journal.close()
    delivery = sent[0][1]
    text = "\n".join([delivery.title, delivery.body, *map(str, delivery.facts)])
    columns = [
        WHAT[what],
        f"{jobs:,}",
        f"{len(sent)}",
        f"{journal.largest:,}",
        f"{len(text.encode()):,}",
        f"{waited:.2f}",
        f"{spent:.2f}",
        f"{sum(journal.rows.values()):,}",
        f"{sum(journal.bytes.values()) / 1e6:.1f}",
        f"{journal.bytes['group'] / 1e6:.1f}",
        f"{idle:.0f}",
        f"{peak():.0f}",
    ]
    return "| " + " | ".join(columns) + " |"


def happening(what: str, paths: Sequence[str]) -> list[Observation]:
    """What is seen of it, in one go."""
    match what:
        case "failover":
            everybody = [*scenes.PATHS, *paths]
            return [*(scenes.gone(1, path) for path in everybody), *(scenes.held(1, path, 2) for path in everybody)]
        case "alone":
            return [scenes.held(1, path, 2) for path in paths]
        case _:
            return [scenes.gone(1, path) for path in paths]


def bring(loop: Loop, clock: Clock, observations: Sequence[Observation]) -> None:
    """As if it happened now."""
    for observation in observations:
        loop.observe(replace(observation, at=clock()))


def wait(until: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + DEADLINE
    while not until():
        if time.monotonic() > deadline:
            raise TimeoutError(f"{what} did not come within {DEADLINE:.0f} s")
        time.sleep(0.02)


def peak() -> float:
    """MiB that this process had at most."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


if __name__ == "__main__":
    main()
