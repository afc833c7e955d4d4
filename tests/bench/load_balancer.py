"""Requests in failovers, through HAProxy with /leader and without: `python -m tests.bench.load_balancer [FAILOVERS]`.

Two real JobManagers, a sidecar beside each, and two HAProxies with the configuration of docs/how-to/load-balancers.md, one of them
without its check of `/leader`. A client of each sends fifty requests a second. The leader is killed, stopped for longer than its
session lasts, or asked to end, in turn. Who led when is read from ZooKeeper. Exit status 1: with /leader, a JobManager answered that
did not lead.
"""

import sys
import tempfile
from collections.abc import Sequence
from itertools import cycle, islice, pairwise
from pathlib import Path
from statistics import median

from tests.bench.stage import Table
from tests.kit.load_balancer_scene import (
    Answer,
    Failover,
    LoadBalancerScene,
    load_balancer_scene,
    seconds_of,
    wrong_answers,
)
from tests.lab.managers import JobManager

KINDS = {"kill -9": JobManager.kill, "SIGSTOP": JobManager.pause, "SIGTERM": JobManager.terminate}


def main(failovers: int) -> bool:
    """A row for each. Whether no answer with /leader was wrong_answers."""
    table = Table(
        "the leader gets",
        "answered by one that does not lead, s",
        "the same without /leader, s",
        "from the next leader's write to its first answer, s",
        "without an answer, s",
    )
    wrong, delays = 0.0, []
    with tempfile.TemporaryDirectory() as name, load_balancer_scene(Path(name)) as flink:
        for kind in islice(cycle(KINDS), failovers):
            failover = flink.fail_over(KINDS[kind])
            following, simple = (_within(clients.answers, failover) for clients in (flink.following, flink.simple))
            seconds, without = _wrong(following, flink), _wrong(simple, flink)
            wrong += seconds
            delays.append(failover.answered_at - failover.written_at)
            table.row(
                kind, f"{seconds:.2f}", f"{without:.2f}", f"{delays[-1]:.2f}", f"{_gap(following, failover.began):.1f}"
            )
    table.target("seconds of answers by a JobManager that does not lead", wrong, 0, " s")
    table.end()
    print(f"from the write to the first answer: p50 {median(delays):.2f} s, at most {max(delays):.2f} s")
    return not wrong


def _within(answers: Sequence[Answer], failover: Failover) -> list[Answer]:
    return [answer for answer in answers if failover.began <= answer.sent <= failover.ended]


def _wrong(answers: Sequence[Answer], flink: LoadBalancerScene) -> float:
    return seconds_of(wrong_answers(answers, flink.history))


def _gap(answers: Sequence[Answer], began: float) -> float:
    """The longest time between two good answers."""
    good = [began, *(answer.received for answer in answers if answer.ok)]
    return max(later - earlier for earlier, later in pairwise(good))


if __name__ == "__main__":
    sys.exit(not main(int(sys.argv[1]) if len(sys.argv) > 1 else 10))
