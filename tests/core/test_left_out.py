"""What is beyond a bound of the store is unknown, is reported, and is never taken for a vacancy or an end."""

from typing import Final

from msgspec.structs import replace

from sidecar.core.flink.leadership import Component, ComponentId, Unknown, Vacant
from sidecar.core.flink.znode_paths import JOBS, LEADER
from sidecar.core.moment import SECOND
from sidecar.core.observations import (
    ChildrenObserved,
    ClusterFound,
    ClustersListed,
    LeftOut,
    SnapshotCompleted,
)
from sidecar.core.policy.policy import Policy, Rule, Store
from sidecar.core.policy.triggers import Trigger
from sidecar.core.views.snapshot import Snapshot
from sidecar.core.views.status_view import ShownStatus, status, verdicts
from tests.kit.cluster import CLUSTER, JOB, THE_JOB, A
from tests.kit.config_maps import ONE, ConfigMaps
from tests.kit.core_sidecar import KUBERNETES, NO_LEADER, POLICY, LeaseSidecar, Sidecar, watching
from tests.kit.fake_flink import Flink

PLANS: Final = "/execution-plans"
OTHER: Final = ComponentId(Component.JOB, "b" * 32)
BLIND: Final = Rule("FlinkLeadersOutOfSight", Trigger.BLIND, hold_for=60 * SECOND)
TELLING: Final = replace(POLICY, rules=(NO_LEADER, BLIND))
PLACE: Final = "zk:2181/flink"


def answer(sidecar: Sidecar) -> ShownStatus:
    return status(Snapshot(sidecar.moment, sidecar.state, policy=sidecar.policy), None)


def restarted(policy: Policy = TELLING) -> Sidecar:
    """A sidecar that has been restarted beside a cluster with one job, and has not read its lists."""
    _, sidecar = watching(policy=policy)
    sidecar.records.clear()
    sidecar.is_killed()
    sidecar.reconnects()
    return sidecar


def test_a_job_that_is_not_watched_has_not_ended() -> None:
    """A new process watches other jobs of very many: what the previous one knew of this one stays, and nobody is notified."""
    sidecar = restarted()
    sidecar.observe(LeftOut(sidecar.moment, CLUSTER, jobs=12))
    sidecar.observe(ChildrenObserved(sidecar.moment, CLUSTER, PLANS, (OTHER.job_id or "",)))
    sidecar.observe(SnapshotCompleted(sidecar.moment, CLUSTER))
    assert sidecar.kinds(THE_JOB) == []
    assert sidecar.component_state(THE_JOB).leadership == Unknown()
    assert isinstance(sidecar.component_state(OTHER).leadership, Vacant)  # it is watched, and has none


def test_a_job_whose_leader_cannot_be_listed_is_not_vacant() -> None:
    """The list of leaders is too long to be read: neither a job of a store nor a known one counts as vacant. Then it is read."""
    sidecar = restarted()
    sidecar.observe(LeftOut(sidecar.moment, CLUSTER, lists=(LEADER,)))
    sidecar.observe(ChildrenObserved(sidecar.moment, CLUSTER, PLANS, (JOB, OTHER.job_id or "")))
    sidecar.observe(SnapshotCompleted(sidecar.moment, CLUSTER))
    sidecar.waits(120)
    assert {sidecar.component_state(job).leadership for job in (THE_JOB, OTHER)} == {Unknown()}
    sidecar.observe(LeftOut(sidecar.moment, CLUSTER))
    sidecar.observe(SnapshotCompleted(sidecar.moment, CLUSTER))
    assert {type(sidecar.component_state(job).leadership) for job in (THE_JOB, OTHER)} == {Vacant}


def test_a_job_that_was_watched_and_is_in_no_list_any_more_has_ended() -> None:
    """Also while others are left out."""
    flink, sidecar = watching()
    sidecar.observe(LeftOut(sidecar.moment, CLUSTER, jobs=12))
    sidecar.sees(flink.vacate(THE_JOB))
    sidecar.observe(ChildrenObserved(sidecar.moment, CLUSTER, PLANS))
    sidecar.observe(ChildrenObserved(sidecar.moment, CLUSTER, "/jobgraphs"))
    assert sidecar.kinds(THE_JOB)[-1] == "RETIRED"


def test_a_leader_taken_out_of_its_config_map_is_not_a_vacancy() -> None:
    """In Kubernetes all jobs are in one ConfigMap, which is observed without those that are too many."""
    flink = Flink(ConfigMaps()).grant(A).submit().publish_all(A)
    sidecar = LeaseSidecar(flink, replace(KUBERNETES, rules=TELLING.rules))
    sidecar.connects().is_killed()
    sidecar.reconnects()
    sidecar.observe(LeftOut(sidecar.moment, CLUSTER, jobs=1))
    whole = sidecar.shown(ONE)
    sidecar.observe(replace(whole, data={key: text for key, text in whole.data.items() if JOB not in key}))
    sidecar.observe(SnapshotCompleted(sidecar.moment, CLUSTER))
    assert sidecar.component_state(THE_JOB).leadership == Unknown()


def test_the_cluster_is_blind_for_what_is_left_out() -> None:
    """In its status, and as a message of the rule on `blind`, until everything is observed. Its own outage is worse."""
    flink, sidecar = watching(policy=TELLING)
    sidecar.observe(LeftOut(sidecar.moment, CLUSTER, jobs=1200, lists=(JOBS,)))
    blind = answer(sidecar)
    assert (blind.status, blind.clusters[0].status) == ("BLIND", "BLIND")
    assert blind.clusters[0].sentence == (
        "led, but not everything is observed: left out at least 1,200 jobs, more than can be watched and the jobs in /jobs, which has too "
        "many children to be read"
    )
    sidecar.waits(70)
    (sent,) = sidecar.sent
    assert sent.alert == "FlinkLeadersOutOfSight"
    sidecar.observe(LeftOut(sidecar.moment, CLUSTER))
    sidecar.waits(70)
    assert sidecar.sent_reasons() == [("FlinkLeadersOutOfSight", "FIRST"), ("FlinkLeadersOutOfSight", "RESOLVED")]
    assert answer(sidecar).status == "UNCHECKED"
    sidecar.observe(LeftOut(sidecar.moment, CLUSTER, jobs=1))
    sidecar.sees(flink.vacate())
    assert answer(sidecar).clusters[0].status == "DOWN"


def test_clusters_that_are_not_watched_are_notified() -> None:
    """They cannot have an alert of their own: one about the search names where they are, until none is left out."""
    policy = replace(TELLING, stores={}, finds=Store.ZOOKEEPER)
    _, sidecar = watching(policy=policy)
    sidecar.observe(ClusterFound(sidecar.moment, CLUSTER))
    sidecar.connects()
    found = ClustersListed(sidecar.moment, PLACE, frozenset({CLUSTER}))
    sidecar.observe(replace(found, left_out=2, unlisted=9_000, beyond=("tenant",)))
    left_out = "2 clusters and 9,000 znodes that may lead to clusters of tenant"
    text = f"not everything is observed in {PLACE}: left out {left_out}, beyond the bounds"
    [search] = [verdict for verdict in verdicts(Snapshot(sidecar.moment, sidecar.state)) if verdict.cluster_id is None]
    assert (search.status, search.sentence) == ("BLIND", f"{text}; 1 cluster watched")
    sidecar.waits(70)
    assert [(sent.alert, sent.reason.value) for sent in sidecar.sent] == [("FlinkLeadersOutOfSight", "FIRST")]
    sidecar.is_killed().connects()
    sidecar.waits(10)  # nothing is known of the search yet
    sidecar.observe(replace(found, at=sidecar.moment))
    sidecar.waits(70)
    assert sidecar.sent_reasons()[-1] == ("FlinkLeadersOutOfSight", "RESOLVED")
