"""The objective for leadership and its error budget on the page, in the API and as metrics."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from msgspec.structs import replace

from sidecar.core.moment import SECOND
from sidecar.core.observations import ViewConfirmed
from sidecar.core.policy.policy import Objective
from sidecar.core.views.snapshot import Snapshot
from sidecar.sinks.metrics import SnapshotCollector
from tests.kit.cluster import CLUSTER, B
from tests.kit.core_sidecar import POLICY, Sidecar, watching
from tests.kit.metric_families import WELL
from tests.shell.reading import read, show
from tests.shell.site import Site

OBJECTIVE = Objective(99.9, 30 * 24 * 3600 * SECOND)


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Site]:
    running = Site(tmp_path)
    yield running
    running.stop()


def spending(seconds: float, objective: Objective | None = OBJECTIVE) -> Sidecar:
    """A sidecar that has seen a cluster without a leader for so long."""
    flink, sidecar = watching(policy=replace(POLICY, objective=objective))
    flink.vacate()
    sidecar.sees_changes().waits(seconds)
    flink.elect(B)
    sidecar.sees_changes().waits(60)
    return sidecar


def metrics(sidecar: Sidecar) -> dict[str, dict[tuple[str, ...], float]]:
    """The series of leadership and its budget, by the values of their labels."""
    snapshot = Snapshot(sidecar.moment, sidecar.state, policy=sidecar.policy)
    families = SnapshotCollector(lambda: snapshot, lambda _: "zookeeper", lambda: WELL).collect()
    return {
        family.name: {tuple(sample.labels.values()): sample.value for sample in family.samples}
        for family in families
        if family.name.startswith(("flink_ha_leadership_seconds", "flink_ha_slo", "flink_ha_error_budget"))
    }


def test_the_page_says_what_is_left_and_what_was_not_observed(site: Site) -> None:
    """And that it burns; without an objective it says nothing of it."""
    show(site, spending(70))
    text = "Error budget : 97.2 % left of 43 min 11 s, and it burns. Objective: led 99.9 % of 30 d. Unobserved:"
    assert text in read(site)
    show(site, spending(5))
    assert "Error budget : 99.8 % left of 43 min 11 s. Objective" in read(site)
    show(site, spending(3000))
    assert "Error budget : overspent, 50 min of 43 min 11 s" in read(site)
    show(site, spending(70, None))
    assert "Error budget" not in read(site)


def test_the_api_has_the_figures_of_each_cluster_with_an_objective(site: Site) -> None:
    """The parts of the window, the budget, and how fast it was spent."""
    show(site, spending(70))
    [figures] = site.data("/api/v1/slo")
    parts = [figures[f"{name}_seconds"] for name in ("led", "vacant", "suspended", "unobserved")]
    assert figures["vacant_seconds"] == pytest.approx(70, abs=0.1)
    assert sum(parts) == pytest.approx(figures["led_seconds"] + 70, abs=0.2)
    assert (figures["cluster_id"], figures["objective"], figures["window_seconds"]) == (CLUSTER, 99.9, 2_592_000)
    assert figures["budget_seconds"] == pytest.approx(2592, abs=0.1)
    assert figures["remaining"] == pytest.approx(1 - 70 / 2592, abs=1e-4)
    assert figures["burn_rates"]["1h"] == pytest.approx(70 / 3.6, abs=0.1)
    assert figures["burns"] is True
    show(site, spending(70, None))
    assert site.data("/api/v1/slo") == []


@pytest.mark.covers(
    "metric:flink_ha_leadership_seconds",
    "metric:flink_ha_slo_objective_ratio",
    "metric:flink_ha_error_budget_remaining_ratio",
)
def test_the_figures_are_metrics() -> None:
    """The seconds of every cluster; a budget only of those with an objective."""
    sidecar = spending(70)
    sidecar.observe(ViewConfirmed(sidecar.moment, CLUSTER, 600 * SECOND))
    series = metrics(sidecar.waits(60))
    seconds = series["flink_ha_leadership_seconds"]
    assert {state for _, state in seconds} == {"led", "vacant", "suspended", "unobserved"}
    assert seconds[CLUSTER, "vacant"] == pytest.approx(70, abs=0.1)
    assert series["flink_ha_slo_objective_ratio"] == {(CLUSTER,): 0.999}
    assert series["flink_ha_error_budget_remaining_ratio"][CLUSTER,] == pytest.approx(1 - 70 / 2592, abs=1e-4)
    without = metrics(spending(70, None))
    assert without["flink_ha_leadership_seconds"]
    assert not without["flink_ha_slo_objective_ratio"]
    assert not without["flink_ha_error_budget_remaining_ratio"]
