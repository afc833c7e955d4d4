"""The objective for leadership, and for how long a cluster was led, as metrics."""

import pytest
from msgspec.structs import replace

from sidecar.core.moment import SECOND
from sidecar.core.observations import ViewConfirmed
from sidecar.core.policy.policy import Objective
from sidecar.core.views.snapshot import Snapshot
from sidecar.sinks.metrics import SnapshotCollector
from tests.kit.cluster import CLUSTER
from tests.kit.core_sidecar import POLICY, Sidecar, fail_over, watching
from tests.kit.metric_families import WELL

OBJECTIVE = Objective(99.9, 30 * 24 * 3600 * SECOND)


def spending(seconds: float, objective: Objective | None = OBJECTIVE) -> Sidecar:
    """A sidecar that has seen a cluster without a leader for so long."""
    flink, sidecar = watching(policy=replace(POLICY, objective=objective))
    fail_over(flink, sidecar, seconds).waits(60)
    return sidecar


def metrics(sidecar: Sidecar) -> dict[str, dict[tuple[str, ...], float]]:
    """The series of leadership and its objective, by the values of their labels."""
    snapshot = Snapshot(sidecar.moment, sidecar.state, policy=sidecar.policy)
    families = SnapshotCollector(lambda: snapshot, lambda _: "zookeeper", lambda: WELL).collect()
    return {
        family.name: {tuple(sample.labels.values()): sample.value for sample in family.samples}
        for family in families
        if family.name.startswith(("flink_ha_leadership_seconds", "flink_ha_slo"))
    }


@pytest.mark.covers("metric:flink_ha_leadership_seconds", "metric:flink_ha_slo_objective_ratio")
def test_the_figures_are_metrics() -> None:
    """The seconds of every cluster; an objective only of those that have one."""
    sidecar = spending(70)
    sidecar.observe(ViewConfirmed(sidecar.moment, CLUSTER, 600 * SECOND))
    series = metrics(sidecar.waits(60))
    seconds = series["flink_ha_leadership_seconds"]
    assert {state for _, state in seconds} == {"led", "vacant", "suspended", "unobserved"}
    assert seconds[CLUSTER, "vacant"] == pytest.approx(70, abs=0.1)
    assert series["flink_ha_slo_objective_ratio"] == {(CLUSTER,): 0.999}
    without = metrics(spending(70, None))
    assert without["flink_ha_leadership_seconds"]
    assert not without["flink_ha_slo_objective_ratio"]
