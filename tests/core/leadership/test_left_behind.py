"""Jobs that ended before anybody observed them, and of which something is left in the store."""

from msgspec.structs import replace

from sidecar.core import handover
from sidecar.core.cluster.cluster_state import ClusterState
from sidecar.core.flink.configmaps import ConfigMapLayout
from sidecar.core.flink.leadership import Component, ComponentId
from sidecar.core.observations import (
    ChildrenObserved,
    ClusterFound,
    ConnectionState,
    SnapshotCompleted,
    ViewObserved,
)
from sidecar.core.policy.policy import Store
from sidecar.core.state import State
from tests.kit.cluster import ALL_FOUR, CLUSTER, A
from tests.kit.config_maps import ConfigMaps
from tests.kit.core_sidecar import POLICY, LeaseSidecar, Sidecar
from tests.kit.fake_flink import Flink
from tests.kit.znodes import ZNodes

ENDED = [ComponentId(Component.JOB, f"{number:032x}") for number in range(1, 41)]


def with_left_behind(*, job_store: bool) -> LeaseSidecar:
    """A cluster of Flink 1.14 with one job, and the ConfigMaps of forty that ended, as a new sidecar finds it."""
    flink = Flink(ConfigMaps(ConfigMapLayout.K1)).grant(A).submit().publish_all(A)
    flink.grant(A, *ENDED).publish_all(A, *ENDED)
    if not job_store:
        flink.config_maps.delete(flink.config_maps.job_store)
    sidecar = LeaseSidecar(flink)
    sidecar.connects()
    return sidecar


def passes(sidecar: LeaseSidecar, seconds: float) -> None:
    """Time, in which the leases of what runs are renewed, and the driver reads all others now and then."""
    for _ in range(round(seconds / 5)):
        sidecar.waits(5)
        config_maps = sidecar.flink.config_maps
        config_maps.renew(*(component for component in ALL_FOUR if config_maps.name(component) in config_maps))
        sidecar.looks()


def cluster(sidecar: LeaseSidecar) -> ClusterState:
    return sidecar.state.clusters[CLUSTER]


def test_jobs_that_ended_before_are_no_jobs_without_a_leader() -> None:
    """Up to Flink 1.14 each leaves a ConfigMap. No job store has them, and nobody renews their leases: nothing is notified."""
    sidecar = with_left_behind(job_store=True)
    passes(sidecar, 120)
    assert not set(ENDED) & cluster(sidecar).components.keys()
    assert sidecar.sent == []
    assert cluster(sidecar).episode is cluster(sidecar).last_episode is None


def test_a_job_in_a_job_store_that_nobody_leads_is_one_without_a_leader() -> None:
    """It is to be recovered."""
    sidecar = with_left_behind(job_store=True)
    job_id = ENDED[0].job_id
    assert job_id
    sidecar.flink.submit(job_id)
    passes(sidecar, 120)
    assert set(ENDED) & cluster(sidecar).components.keys() == {ENDED[0]}
    assert sidecar.sent != []


def test_where_no_job_store_shows_it_there_is_one_alert_for_all_of_them() -> None:
    """With the number, in place of forty."""
    sidecar = with_left_behind(job_store=False)
    passes(sidecar, 120)
    assert [(delivery.body.split("\n")[0], len(delivery.parts)) for delivery in sidecar.sent] == [
        ("no leader for dispatcher", 1),
        ("no leader for 40 jobs, 1 more fires", 2),
    ]


def test_clusters_that_were_left_behind_are_one_message() -> None:
    """Thirty below a root, as ended YARN applications leave them. One that led and then loses its leader is a message of its own."""
    flink, sidecar = (
        Flink(ZNodes()).elect(A),
        Sidecar(Flink(ZNodes()), replace(POLICY, stores={}, finds=Store.ZOOKEEPER)),
    )
    names = [f"application_{number}" for number in range(30)]
    for name in names:
        sidecar.observe(ClusterFound(sidecar.moment, name))
        sidecar.observe(ViewObserved(sidecar.moment, name, ConnectionState.CONNECTED))
        sidecar.observe(ChildrenObserved(sidecar.moment, name, "/jobgraphs", ("a" * 32,)))
        sidecar.observe(SnapshotCompleted(sidecar.moment, name))
    sidecar.flink = flink
    sidecar.observe(ClusterFound(sidecar.moment, CLUSTER))
    sidecar.connects().waits(120)
    (message,) = sidecar.sent
    assert message.title == "[CRITICAL] 30 clusters: no leader for JobManager and 1 job"
    [(fingerprint, group)] = sidecar.state.alerts.groups.items()
    left = handover.written(
        names[0], handover.cluster_handover(sidecar.policy, sidecar.state, names[0], sidecar.moment)
    )
    document = handover.read(left, names[0], sidecar.moment)
    assert document
    taken, _ = handover.adopt(sidecar.policy, State(), names[0], document, sidecar.moment)
    assert taken.alerts.groups.keys() == {fingerprint}, "the next sidecar would notify of them once more"
    assert set(taken.alerts.groups[fingerprint].members) <= set(group.members)
    sidecar.sees(flink.vacate()).waits(120)
    assert [delivery.title for delivery in sidecar.sent[1:]] == [
        "[DOWN] default: no leader for 35 s, probably jm-a was lost, 1 job stands still"
    ]
