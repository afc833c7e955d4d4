"""A ConfigMap that is deleted takes its jobs with it: that is said first, and is critical, whatever the rule of the alert says."""

from typing import Final

from msgspec.structs import replace

from sidecar.core.flink.leadership import CLUSTER_COMPONENTS
from sidecar.core.policy.policy import Destination, Severity, Store
from sidecar.core.policy.routing import Matcher, Operator, Route
from tests.kit.cluster import CLUSTER, JOB, B
from tests.kit.core_sidecar import POLICY, leased

OWN: Final = tuple(CLUSTER_COMPONENTS)
PAGER: Final = Route("oncall", "{}/0", (Matcher("severity", Operator.EQUAL, "critical"),))
PAGING: Final = replace(
    POLICY,
    stores={CLUSTER: Store.KUBERNETES},
    route=Route("ops", routes=(PAGER,)),
    receivers={"ops": (Destination("ops", 0),), "oncall": (Destination("oncall", 0),)},
)


def test_jobs_that_are_lost_with_their_config_map_are_paged_and_said_first() -> None:
    """Deleted, 40 s later made anew without the job: that there is no leader, that the job is lost, and both in the all-clear."""
    flink, sidecar = leased(policy=PAGING)
    flink.config_maps.delete()
    sidecar.sees_changes().waits(40).sees(flink.elect(B, *OWN)).watches(100)
    assert [(delivery.destination, delivery.severity, delivery.body.split("\n")[0]) for delivery in sidecar.sent] == [
        ("oncall#0", Severity.CRITICAL, "no leader for JobManager and 1 job, jm-a led before"),
        ("oncall#0", Severity.CRITICAL, "1 of 1 jobs lost, leader back for JobManager after 40 s"),
    ]
    assert [delivery.title for delivery in sidecar.sent][1:] == ["[LOST] default: 1 job missing: ff595cc2"]
    lost = (
        "jobs: 1 of 1 lost their leader, 1 lost with the ConfigMap that was deleted (Flink does not know it any more)"
    )
    for delivery in sidecar.sent[1:]:
        assert lost in delivery.body.split("\n")


def test_a_config_map_that_is_made_anew_unseen_has_lost_its_jobs_too() -> None:
    """Deleted and created between two observations, with another leader in it or none yet."""
    for whom in ((), None):
        flink, sidecar = leased(policy=PAGING)
        flink.config_maps.delete()
        if whom is None:
            sidecar.sees(flink.grant(B))
        sidecar.sees(flink.elect(B, *OWN)).watches(30)
        assert [delivery.title for delivery in sidecar.sent] == ["[LOST] default: 1 job missing: ff595cc2"], whom
        assert sidecar.sent[0].body.startswith("1 of 1 jobs lost, JobManager failed over: jm-a → jm-b")


def test_a_job_that_ends_in_a_failover_is_not_lost() -> None:
    """Flink has removed it itself."""
    flink, sidecar = leased(policy=PAGING)
    sidecar.sees(flink.vacate()).watches(2).sees(flink.forget(JOB).elect(B, *OWN)).watches(30)
    (sent,) = sidecar.sent
    assert sent.severity is Severity.WARNING
    assert "lost with" not in sent.body
    assert "jobs: 1 of 1 lost their leader, 1 ended" in sent.body
