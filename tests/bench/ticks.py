"""The tick of a thousand clusters, with and without an objective for leadership. `python -m tests.bench.ticks [CLUSTERS]`."""

import sys
import time
from statistics import median

from msgspec.structs import replace

from sidecar.core.cluster.cluster_state import ClusterState
from sidecar.core.moment import SECOND, Moment
from sidecar.core.observations import Ticked
from sidecar.core.policy.policy import Objective, Store
from sidecar.core.state import State
from sidecar.core.step import step
from tests.kit.cluster import CLUSTER
from tests.kit.core_sidecar import POLICY, watching

TICKS = 200
OBJECTIVE = Objective(99.9, 30 * 24 * 3600 * SECOND)


def main() -> None:
    """One line for clusters that are led, and one for as many without a leader."""
    number = int(sys.argv[1]) if sys.argv[1:] else 1_000
    print("| clusters | without an objective: min, median ms | with one: min, median ms |")
    print("|---|---|---|")
    for name, cluster in (("led", led()), ("without a leader", vacant())):
        figures = (ticks(cluster, number, objective) for objective in (None, OBJECTIVE))
        print(f"| {number:,} {name} | " + " | ".join(f"{low:.1f}, {middle:.1f}" for low, middle in figures) + " |")


def led() -> ClusterState:
    _, sidecar = watching()
    return sidecar.state.clusters[CLUSTER]


def vacant() -> ClusterState:
    flink, sidecar = watching()
    flink.vacate()
    sidecar.sees_changes().waits(3)
    return sidecar.state.clusters[CLUSTER]


def ticks(cluster: ClusterState, number: int, objective: Objective | None) -> tuple[float, float]:
    """Milliseconds of one tick, without any rules: the shortest, and the median."""
    names = [f"cluster-{each}" for each in range(number)]
    stores = dict.fromkeys(names, Store.ZOOKEEPER)
    nothing = frozenset[str]()
    policy = replace(POLICY, stores=stores, plans=nothing, rules=(), objective=objective)
    now = cluster.view.since.steady + 60 * SECOND
    state = State({name: replace(cluster) for name in names}, alive=Moment(now, now))
    took = []
    for _ in range(TICKS):
        now += SECOND // 2
        began = time.perf_counter()
        state, _effects = step(policy, state, Ticked(Moment(now, now)))
        took.append((time.perf_counter() - began) * 1e3)
    return min(took), median(took)


if __name__ == "__main__":
    main()
