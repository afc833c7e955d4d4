"""The views of a cluster's leadership and the sidecar come to the same figures of one history."""

from pathlib import Path

import pytest
from msgspec.structs import replace
from pyspark.sql import SparkSession

from sidecar.audit import open_audit
from sidecar.audit.ingest.ingest import ingest
from sidecar.audit.report.report import write_report
from sidecar.core.flink.deployments import FlinkDeployment, Reconciliation
from sidecar.core.leadership.leadership_account import totals
from sidecar.core.moment import SECOND
from sidecar.core.observations import DeploymentObserved, ViewConfirmed
from sidecar.core.policy.policy import Objective
from tests.audit.spooling import seal
from tests.kit.cluster import CLUSTER, DISPATCHER, REST_SERVER, THE_JOB, A, B
from tests.kit.core_sidecar import POLICY, Sidecar, fail_over
from tests.kit.fake_flink import Flink

pytestmark = pytest.mark.spark

OBJECTIVE = Objective(99.9, 30 * 24 * 3600 * SECOND)


def suspend(sidecar: Sidecar, generation: int, *, suspended: bool) -> None:
    found = FlinkDeployment("u", generation, generation, Reconciliation.DEPLOYED, suspended=suspended)
    sidecar.observe(DeploymentObserved(sidecar.moment, CLUSTER, found))


def watched() -> Sidecar:
    """Two days with a bit of everything: failovers, blindness, a stale view, an unreadable entry, a kill, a suspension."""
    flink = Flink().submit().elect(A)
    sidecar = Sidecar(flink, replace(POLICY, objective=OBJECTIVE))
    sidecar.connects().waits(7200, tick=30)
    fail_over(flink, sidecar, 12.5).waits(600, tick=10)
    sidecar.sees(flink.vacate(REST_SERVER, THE_JOB)).waits(3)
    sidecar.sees(flink.elect(B, REST_SERVER)).waits(60).is_cut_off().waits(90).connects().waits(20)
    sidecar.observe(ViewConfirmed(sidecar.moment, CLUSTER, 5 * SECOND))
    sidecar.waits(4)
    fail_over(flink, sidecar, 30, A)
    sidecar.observe(ViewConfirmed(sidecar.moment, CLUSTER, 100 * 3600 * SECOND))
    sidecar.is_killed(47.25).connects().waits(86_400, tick=600)
    suspend(sidecar, 1, suspended=False)
    suspend(sidecar, 2, suspended=True)
    sidecar.sees(flink.vacate()).waits(3600, tick=60)
    suspend(sidecar, 3, suspended=False)
    sidecar.waits(40).sees(flink.elect(B)).waits(60)
    sidecar.is_refused(flink.znodes.path(DISPATCHER))
    sidecar.waits(33)
    sidecar.reads(flink.znodes.path(DISPATCHER))
    sidecar.waits(10)
    sidecar.stops()
    return sidecar


@pytest.mark.covers("view:leadership_slo")
def test_spark_and_the_sidecar_have_the_same_figures(spark: SparkSession, tmp_path: Path) -> None:
    """To the microsecond: led, vacant, suspended, unobserved, the budget and what is left of it; by day and month. The report too."""
    sidecar = watched()
    seal(tmp_path / "spool", "jm-0", 1, (replace(record, recorded_at=record.observed_at) for record in sidecar.records))
    ingest(spark, str(tmp_path / "spool"), str(tmp_path / "audit"))
    session = spark.newSession()
    open_audit(session, str(tmp_path / "audit"), ["leadership_slo", "cluster_availability", "cluster_months"])
    [row] = session.table("leadership_slo").collect()
    cluster = sidecar.state.clusters[CLUSTER]
    assert cluster.account
    own = totals(cluster.account, sidecar.now)
    names = ("led", "vacant", "suspended", "unobserved")
    figures = {name: round(row[f"{name}_seconds"] * SECOND) for name in names}
    assert figures == {name: getattr(own, name) for name in names}
    assert all(figures.values()), "the history has some of each"
    earned = OBJECTIVE.window - own.unobserved - own.suspended
    assert (row.objective, row.window_seconds) == (99.9, OBJECTIVE.window / SECOND)
    assert round(row.budget_seconds * SECOND) == round(earned / 1000)
    assert row.remaining == pytest.approx(1 - own.vacant / (earned / 1000))
    days = session.table("cluster_availability").collect()
    assert len({day.day for day in days}) == len(days) > 1
    for rows in (days, session.table("cluster_months").collect()):
        assert {name: round(sum(row[f"{name}_seconds"] for row in rows) * SECOND) for name in names} == figures
    write_report(spark, str(tmp_path / "audit"), tmp_path / "report.html")
    page = (tmp_path / "report.html").read_text()
    assert "Error budgets of leadership" in page
    assert "99.9 % of 30 d" in page
