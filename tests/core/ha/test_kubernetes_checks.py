"""Each check over Kubernetes' facts: PASS on a good deployment, RISK with the fault, UNKNOWN where the fact cannot be read."""

from typing import Any, Final

import pytest
from msgspec.structs import replace

from sidecar.core.flink.leadership import Component
from sidecar.core.ha.finding import CheckVerdict, UnknownFact
from sidecar.core.ha.kubernetes_facts import COMPONENTS, ElectionTimes, FlinkRights, LivenessProbe, ProbeKind, Workload
from sidecar.core.ha.results import KUBERNETES_CHECKS
from sidecar.core.moment import SECOND, parsed
from tests.kit.deployed_flink import (
    CLUSTER,
    JOB,
    LABELS,
    LEASE,
    budget,
    config_map,
    facts,
    job_manager,
    leaders,
    right,
    task_manager,
)

PASS, RISK, UNKNOWN = CheckVerdict.PASS, CheckVerdict.RISK, CheckVerdict.UNKNOWN
HIDDEN: Final = UnknownFact("not permitted: the Role needs a line")
OLD: Final = parsed("2026-11-01T00:00:00Z")
DEAD: Final = replace(LEASE, acquire_time="2026-11-01T00:00:00Z", renew_time="2026-11-02T12:00:00Z")
NO_DISPATCHER: Final = leaders(components=COMPONENTS - {Component.DISPATCHER})
RECENT, LATER = "2026-11-26T11:58:00Z", "2026-11-26T12:00:03Z"
RENEWED: Final = replace(NO_DISPATCHER, lease=replace(LEASE, renew_time=LATER))
HTTP: Final = LivenessProbe(ProbeKind.HTTP, "8081", initial_delay=60, period=15, failures=3)


def pods(**changes: Any) -> tuple[Any, ...]:
    return job_manager("jm-0", **changes), job_manager("jm-1", **changes)


CASES: Final = [
    # check, what is changed, verdict, words
    ("standby", {}, PASS, "2 JobManagers run: jm-0, jm-1"),
    ("standby", {"pods": (job_manager("jm-0"),)}, RISK, "running JobManagers: 1 of 2 (jm-0)"),
    (
        "standby",
        {"pods": (job_manager("jm-0"), job_manager("jm-1", running=False))},
        RISK,
        "running JobManagers: 1 of 2 (jm-0)",
    ),
    ("standby", {"pods": (job_manager("jm-0"), job_manager("jm-1", deleting=True))}, RISK, "1 of 2"),
    ("standby", {"pods": (job_manager("jm-0"),), "workloads": HIDDEN}, RISK, "running JobManagers: 1 (jm-0)"),
    (
        "standby",
        {"pods": HIDDEN, "workloads": (Workload("Deployment", CLUSTER, LABELS, 1),)},
        RISK,
        "Deployment orders has replicas: 1",
    ),
    ("standby", {"pods": HIDDEN, "flink_deployments": {CLUSTER: None}}, RISK, "FlinkDeployment orders has replicas: 1"),
    ("standby", {"pods": HIDDEN}, UNKNOWN, "replicas: 2; whether they run is not known: not permitted"),
    ("standby", {"pods": HIDDEN, "workloads": HIDDEN}, UNKNOWN, "not permitted"),
    ("standby", {"pods": (), "workloads": ()}, UNKNOWN, "no JobManager's pod was found"),
    ("disruption_budget", {}, PASS, "PodDisruptionBudget orders lets 1 of 2 JobManagers be evicted at once"),
    ("disruption_budget", {"budgets": ()}, RISK, "no PodDisruptionBudget selects jm-0, jm-1"),
    ("disruption_budget", {"budgets": (), "pods": (job_manager("jm-0"),)}, RISK, "no PodDisruptionBudget selects jm-0"),
    (
        "disruption_budget",
        {"budgets": (budget(match_labels={"app": "others"}),)},
        RISK,
        "no PodDisruptionBudget selects",
    ),
    (
        "disruption_budget",
        {"budgets": (budget(match_labels={}, min_available=None, max_unavailable=1),)},
        PASS,
        "lets 1 of 2",
    ),
    (
        "disruption_budget",
        {"budgets": (budget(match_labels={}, selects_all=False),)},
        RISK,
        "no PodDisruptionBudget selects",
    ),
    ("disruption_budget", {"budgets": (budget(min_available=None, max_unavailable=1),)}, PASS, "lets 1 of 2"),
    ("disruption_budget", {"budgets": (budget(min_available=None, max_unavailable="51%"),)}, RISK, "lets all 2"),
    ("disruption_budget", {"budgets": (budget(min_available=None, max_unavailable="50%"),)}, PASS, "lets 1 of 2"),
    ("disruption_budget", {"budgets": (budget(min_available="1%"),)}, PASS, "lets 1 of 2"),
    ("disruption_budget", {"budgets": (budget(min_available=0),)}, RISK, "lets all 2"),
    ("disruption_budget", {"pods": (job_manager("jm-0"),)}, PASS, "lets 0 of 1"),
    (
        "disruption_budget",
        {"pods": (job_manager("jm-0"),), "budgets": (budget(min_available=None, max_unavailable=1),)},
        *(RISK, "lets all 1"),
    ),
    ("disruption_budget", {"budgets": (budget(match_labels={"app": CLUSTER}),)}, RISK, "lets all 2"),
    ("disruption_budget", {"budgets": HIDDEN}, UNKNOWN, "not permitted"),
    ("disruption_budget", {"pods": HIDDEN}, UNKNOWN, "not permitted"),
    ("node_spread", {}, PASS, "2 JobManagers on 2 nodes, by no rule"),
    ("node_spread", {"pods": pods(apart="required pod anti-affinity")}, PASS, "by required pod anti-affinity"),
    ("node_spread", {"pods": pods(node="n-1")}, RISK, "are on one node, n-1: no pod anti-affinity"),
    ("node_spread", {"pods": pods(node="n-1", apart="a preferred topology spread")}, RISK, "in spite of a preferred"),
    ("node_spread", {"pods": (job_manager("jm-0"),)}, PASS, "nothing to spread"),
    ("node_spread", {"pods": (job_manager("jm-0"), replace(job_manager("jm-1"), node=""))}, UNKNOWN, "1 of 2"),
    ("node_spread", {"pods": HIDDEN}, UNKNOWN, "not permitted"),
    ("liveness_probe", {}, PASS, "tcpSocket probe on port 6123 fails for 120 s before the kubelet acts"),
    ("liveness_probe", {"pods": pods(liveness=None)}, PASS, "no liveness probe"),
    ("liveness_probe", {"pods": pods(liveness=HTTP)}, PASS, "fails for 30 s before"),
    (
        "liveness_probe",
        {"pods": pods(liveness=replace(HTTP, period=5))},
        RISK,
        "10 s of failures, and while nobody leads, up to 25 s, a standby answers 503",
    ),
    (
        "liveness_probe",
        {"pods": pods(liveness=HTTP), "leaders": leaders(lease=replace(LEASE, lease_duration=60 * SECOND))},
        RISK,
        "up to 70 s",
    ),
    (
        "liveness_probe",
        {"pods": pods(liveness=LivenessProbe(ProbeKind.TCP, "6123", period=5))},
        RISK,
        "not up 10 s after its start",
    ),
    (
        "liveness_probe",
        {"pods": pods(liveness=LivenessProbe(ProbeKind.TCP, "6123", period=5), has_startup_probe=True)},
        PASS,
        "10 s",
    ),
    (
        "liveness_probe",
        {"pods": pods(liveness=LivenessProbe(ProbeKind.EXEC, "", initial_delay=60))},
        UNKNOWN,
        "what the exec probe of jm-0 asks",
    ),
    ("liveness_probe", {"pods": HIDDEN}, UNKNOWN, "not permitted"),
    ("restart_policy", {}, PASS, "restartPolicy: Always"),
    (
        "restart_policy",
        {"pods": pods(restart_policy="OnFailure", owner="Job")},
        RISK,
        "of a Job: restartPolicy: OnFailure; it gives up",
    ),
    (
        "restart_policy",
        {"pods": pods(restart_policy="Never", owner="")},
        RISK,
        "without a controller: restartPolicy: Never; it stays down",
    ),
    ("restart_policy", {"pods": HIDDEN}, UNKNOWN, "not permitted"),
    ("memory_limit", {}, PASS, "a limit of 1600 MiB holds the JVM"),
    (
        "memory_limit",
        {"pods": pods(limit_bytes=1024 << 20)},
        RISK,
        "has a limit of 1024 MiB, and jobmanager.memory.process.size is 1600 MiB",
    ),
    (
        "memory_limit",
        {"pods": pods(limit_bytes=1 << 30, heap_bytes=1 << 30)},
        RISK,
        "-Xmx is 1024 MiB: with metaspace, direct memory and overhead the JVM needs 1600 MiB",
    ),
    ("memory_limit", {"pods": pods(heap_bytes=1 << 30)}, PASS, "1600 MiB"),
    ("memory_limit", {"memory": {"jobmanager.memory.heap.size": "1100m"}}, RISK, "heap.size is 1100 MiB"),
    ("memory_limit", {"memory": {"jobmanager.memory.flink.size": "1152m"}}, PASS, "1600 MiB"),
    ("memory_limit", {"memory": {"jobmanager.memory.flink.size": "1153m"}}, RISK, "flink.size is 1153 MiB"),
    (
        "memory_limit",
        {"memory": HIDDEN, "pods": pods(properties={"jobmanager.memory.process.size": "2g"})},
        RISK,
        "2048 MiB",
    ),
    ("memory_limit", {"pods": pods(limit_bytes=None)}, PASS, "no memory limit"),
    ("memory_limit", {"memory": HIDDEN}, UNKNOWN, "not permitted"),
    ("memory_limit", {"memory": {}}, UNKNOWN, "neither -Xmx nor jobmanager.memory.* of jm-1 is visible"),
    ("memory_limit", {"pods": HIDDEN}, UNKNOWN, "not permitted"),
    ("flink_versions", {}, PASS, "3 pods of flink:2.3.0"),
    (
        "flink_versions",
        {"pods": (job_manager("jm-0"), task_manager("tm-0", image="flink:1.20.5-java17"))},
        RISK,
        "different versions: flink:1.20.5-java17, flink:2.3.0",
    ),
    (
        "flink_versions",
        {"pods": (job_manager("jm-0"), task_manager("tm-0", image="r:5000/flink:2.3.0-java21"))},
        PASS,
        "of Flink 2.3.0",
    ),
    (
        "flink_versions",
        {"pods": (job_manager("jm-0"), task_manager("tm-0", image="r:5000/orders:latest"))},
        UNKNOWN,
        "which Flink is in them is not known",
    ),
    (
        "flink_versions",
        {"pods": (job_manager("jm-0"), task_manager("tm-0", image="flink:1.20.5", deleting=True))},
        PASS,
        "1 pod of flink:2.3.0",
    ),
    ("flink_versions", {"pods": HIDDEN}, UNKNOWN, "not permitted"),
    ("flink_versions", {"pods": ()}, UNKNOWN, "no pod of this cluster"),
    ("lease_margin", {}, PASS, "lease-duration 15 s, renew-deadline 10 s"),
    ("lease_margin", {"election": ElectionTimes()}, RISK, "lease-duration 15 s, renew-deadline 15 s: no margin"),
    ("lease_margin", {"election": ElectionTimes(10 * SECOND)}, RISK, "no margin"),
    (
        "lease_margin",
        {"election": HIDDEN},
        UNKNOWN,
        "the lease lasts 15 s, and Flink's default of renew-deadline is 15 s; which",
    ),
    ("lease_margin", {"election": HIDDEN, "leaders": HIDDEN}, UNKNOWN, "no lease is held; which"),
    ("sidecar_rights", {}, PASS, "2 rights: all"),
    (
        "sidecar_rights",
        {"own_rights": (right("list"), right("watch", allowed=False))},
        RISK,
        "may not watch configmaps orders-cluster-config-map: needed for the leaders",
    ),
    ("sidecar_rights", {"own_rights": HIDDEN}, UNKNOWN, "not permitted"),
    ("flink_rights", {}, PASS, "service account flink has all verbs"),
    (
        "flink_rights",
        {"flink_rights": FlinkRights("flink", (right("patch", allowed=False),))},
        RISK,
        "may not patch configmaps orders-cluster-config-map (Flink 1.18",
    ),
    ("flink_rights", {"flink_rights": HIDDEN}, UNKNOWN, "not permitted"),
    ("config_map_size", {}, PASS, "the largest of 2, "),
    (
        "config_map_size",
        {"config_maps": (config_map("orders-x", size=800_000),)},
        RISK,
        "near the limit of 1 MiB: orders-x 781 KiB",
    ),
    (
        "config_map_size",
        {"config_maps": (config_map("others-x", "others", size=800_000),)},
        PASS,
        "the largest of 1, orders-cluster-config-map",
    ),
    (
        "config_map_size",
        {"config_maps": HIDDEN, "leaders": leaders(size=786_432)},
        RISK,
        "orders-cluster-config-map 768 KiB",
    ),
    (
        "config_map_size",
        {"config_maps": HIDDEN},
        UNKNOWN,
        "orders-cluster-config-map has 2 KiB; the ConfigMaps of jobs are not known: not permitted",
    ),
    ("config_map_size", {"config_maps": (), "leaders": None}, UNKNOWN, "no ConfigMap of this cluster"),
    ("erased_leaders", {}, PASS, "all components have a published leader"),
    (
        "erased_leaders",
        {"leaders": NO_DISPATCHER, "leaders_later": RENEWED},
        RISK,
        "without a published leader: dispatcher; the JobManager that holds the lease has renewed it for 4 h",
    ),
    (
        "erased_leaders",
        {"leaders": NO_DISPATCHER, "leaders_later": NO_DISPATCHER},
        UNKNOWN,
        "a failover may be in progress",
    ),
    ("erased_leaders", {"leaders": NO_DISPATCHER}, UNKNOWN, "a failover may be in progress"),
    ("erased_leaders", {"leaders": NO_DISPATCHER, "leaders_later": leaders()}, PASS, "all components"),
    (
        "erased_leaders",
        {
            "leaders": replace(NO_DISPATCHER, lease=replace(LEASE, acquire_time=RECENT)),
            "leaders_later": replace(NO_DISPATCHER, lease=replace(LEASE, acquire_time=RECENT, renew_time=LATER)),
        },
        *(UNKNOWN, "may still recover its jobs"),
    ),
    (
        "erased_leaders",
        {"leaders": replace(NO_DISPATCHER, lease=replace(LEASE, holder_identity=""))},
        UNKNOWN,
        "nobody holds the lease",
    ),
    ("erased_leaders", {"leaders": None}, UNKNOWN, "nobody holds the lease"),
    ("erased_leaders", {"leaders": HIDDEN}, UNKNOWN, "not permitted"),
    ("leftover_clusters", {}, PASS, "0 other clusters"),
    (
        "leftover_clusters",
        {"config_maps": (leaders("others"),)},
        PASS,
        "1 other cluster in namespace flink, none of them left behind",
    ),
    (
        "leftover_clusters",
        {"config_maps": (leaders("others", lease=DEAD, created_at=OLD),)},
        RISK,
        "HA ConfigMaps of 1 cluster without a leader: others (24 d)",
    ),
    (
        "leftover_clusters",
        {"config_maps": (leaders("others", lease=DEAD, created_at=OLD),), "flink_deployments": {"others": 1}},
        PASS,
        "none of them left behind",
    ),
    (
        "leftover_clusters",
        {
            "config_maps": (leaders("others", lease=DEAD, created_at=OLD),),
            "workloads": (Workload("Deployment", "others", {}, 0),),
        },
        *(PASS, "none of them left behind"),
    ),
    (
        "leftover_clusters",
        {"config_maps": (leaders("others", lease=DEAD, created_at=OLD),), "flink_deployments": HIDDEN},
        *(RISK, "Whether they are only suspended is not known: FlinkDeployments cannot be read"),
    ),
    ("leftover_clusters", {"config_maps": (leaders(lease=DEAD, created_at=OLD),)}, PASS, "0 other clusters"),
    ("leftover_clusters", {"config_maps": (leaders("others", lease=None, created_at=None),)}, PASS, "1 other cluster"),
    ("leftover_clusters", {"config_maps": HIDDEN}, UNKNOWN, "not permitted"),
    ("leftover_jobs", {}, PASS, "1 ConfigMap of checkpoints, of jobs in"),
    (
        "leftover_jobs",
        {"leaders": leaders(jobs=frozenset())},
        RISK,
        f"1 ConfigMap of checkpoints of jobs that Flink would not recover, the oldest made 6 d ago: orders-{JOB}",
    ),
    (
        "leftover_jobs",
        {"leaders": leaders(jobs=frozenset()), "read_at": parsed("2026-11-20T13:00:00Z")},
        PASS,
        "1 ConfigMap",
    ),
    ("leftover_jobs", {"leaders": None}, UNKNOWN, "there is no ConfigMap orders-cluster-config-map"),
    ("leftover_jobs", {"leaders": HIDDEN}, UNKNOWN, "not permitted"),
    ("leftover_jobs", {"config_maps": HIDDEN}, UNKNOWN, "not permitted"),
]


@pytest.mark.parametrize(("check", "changes", "verdict", "words"), CASES)
def test_a_check_over_facts(check: str, changes: dict[str, Any], verdict: CheckVerdict, words: str) -> None:
    """The verdict, and what it rests on."""
    finding = KUBERNETES_CHECKS[check](facts(**changes))
    assert (finding.verdict, words in finding.text) == (verdict, True), finding.text
    assert bool(finding.advice) == (verdict is RISK)


def test_each_check_has_all_verdicts() -> None:
    """None of them can only pass, and none passes where the fact is hidden."""
    assert {(check, verdict) for check, _, verdict, _ in CASES} == {
        (check, verdict) for check in KUBERNETES_CHECKS for verdict in CheckVerdict
    }


@pytest.mark.parametrize(
    ("labels", "addresses", "expected"),
    [
        pytest.param([{"app": "flink"}, {"app": "flink"}], [], PASS, id="one application"),
        pytest.param([{"app": "flink"}, {"app": "other"}], [], UNKNOWN, id="two applications"),
        pytest.param([{"app": "flink"}, {"app": "other"}], ["10.0.0.1"], RISK, id="the leader's application"),
        pytest.param([{"app": "other"}, {"app": CLUSTER}], [], RISK, id="the cluster's id"),
        pytest.param([{"app": "other", "type": "flink-native-kubernetes"}], [], UNKNOWN, id="another cluster's alone"),
    ],
)
def test_pods_that_people_describe_themselves(
    labels: list[dict[str, str]], addresses: list[str], expected: CheckVerdict
) -> None:
    """They have no cluster id: one's own application, or the leader's, is the cluster; of several that could be it nothing is said."""
    described = tuple(
        job_manager(f"jm-{n}", labels=pod_labels | {"component": "jobmanager"}, address=f"10.0.0.{n + 1}")
        for n, pod_labels in enumerate(labels)
    )
    result = KUBERNETES_CHECKS["standby"](
        facts(pods=described, workloads=(), leaders=leaders(hosts=frozenset(addresses)))
    )
    assert result.verdict is expected, result.text
