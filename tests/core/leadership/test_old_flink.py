"""Up to Flink 1.4 there is one leader, the JobManager, at the place of a job: that is no cluster without a dispatcher."""

import pytest

from sidecar.core.cluster.cluster_state import TooOld
from sidecar.core.flink.leadership import CLUSTER_COMPONENTS, Component, ComponentId
from sidecar.core.flink.znode_paths import OLD_JOB_MANAGER, ZNodeLayout
from sidecar.core.views.leader_view import leaders
from sidecar.core.views.snapshot import Snapshot
from tests.core.leadership.test_no_such_cluster import RULES
from tests.kit.cluster import CLUSTER, DISPATCHER, JOB, A
from tests.kit.core_sidecar import Sidecar
from tests.kit.fake_flink import Flink
from tests.kit.znodes import ZNodes

JOB_MANAGER = ComponentId(Component.JOB, OLD_JOB_MANAGER)


def with_old_job_manager(era: ZNodeLayout = ZNodeLayout.Z1) -> tuple[Flink, Sidecar]:
    flink = Flink(ZNodes(era))
    flink.elect(A, JOB_MANAGER)
    return flink, Sidecar(flink, RULES)


def missing(sidecar: Sidecar) -> str:
    return str(sidecar.state.clusters[CLUSTER].missing)


def test_it_is_named_and_no_missing_leader_is_notified() -> None:
    """By message, page and status; a failover of it changes nothing."""
    flink, sidecar = with_old_job_manager()
    flink.submit(JOB)
    sidecar.connects().waits(600, tick=1)
    assert [(delivery.status, delivery.reason) for delivery in sidecar.sent] == [("BLIND", "FIRST")]
    assert sidecar.sent[0].body.startswith("this Flink is not supported\n")
    assert "this looks like Flink older than 1.5" in sidecar.sent[0].body
    assert {(leader.state, leader.reason) for leader in leaders(Snapshot(sidecar.moment, sidecar.state))} == {
        ("unknown", "not supported")
    }
    sidecar.sees(flink.vacate(JOB_MANAGER)).waits(600, tick=1)
    assert sidecar.sent_reasons() == [("FlinkLeadersOutOfSight", "FIRST")]


def test_a_new_process_knows_it_too() -> None:
    """Of the journal it has the last leader; what that means is read again."""
    _, sidecar = with_old_job_manager()
    sidecar.connects().waits(5).is_killed(10).connects().waits(100, tick=1)
    assert missing(sidecar) == str(TooOld())
    assert not [delivery for delivery in sidecar.sent if delivery.alert == "FlinkNoLeader"]


def test_after_an_upgrade_it_is_watched() -> None:
    """Its JobManager has as long as any other to elect the first leader of the rest."""
    flink, sidecar = with_old_job_manager()
    sidecar.connects().waits(300, tick=1)
    sidecar.sees(flink.vacate(JOB_MANAGER).elect(A, DISPATCHER)).waits(60, tick=1)
    assert missing(sidecar) == "None"
    assert ("FlinkLeadersOutOfSight", "SHRANK") in sidecar.sent_reasons()
    assert ("FlinkNoLeader", "FIRST") in sidecar.sent_reasons()


@pytest.mark.parametrize("component", CLUSTER_COMPONENTS)
def test_with_any_other_leader_it_is_a_newer_flink(component: ComponentId) -> None:
    """From 1.11 on, the job of an application has that id, too."""
    flink, sidecar = with_old_job_manager()
    flink.elect(A, component)
    sidecar.connects()
    assert missing(sidecar) == "None"
    sidecar.sees(flink.vacate(component)).waits(60, tick=1)
    assert ("FlinkNoLeader", "FIRST") in sidecar.sent_reasons()


@pytest.mark.parametrize("era", [era for era in ZNodeLayout if era is not ZNodeLayout.Z1])
def test_at_a_newer_place_it_is_a_job(era: ZNodeLayout) -> None:
    _, sidecar = with_old_job_manager(era)
    sidecar.connects()
    assert missing(sidecar) == "None"


def test_an_application_that_is_in_a_job_store_is_a_job() -> None:
    """Its components have no leader, and that is notified."""
    flink, sidecar = with_old_job_manager()
    flink.submit(OLD_JOB_MANAGER)
    sidecar.connects().waits(60, tick=1)
    assert missing(sidecar) == "None"
    assert ("FlinkNoLeader", "FIRST") in sidecar.sent_reasons()
