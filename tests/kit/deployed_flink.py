"""Facts of a Flink cluster in Kubernetes that is deployed well: tests change one thing."""

from typing import Any, Final

from msgspec.structs import replace

from sidecar.core.flink.configmaps import LeaderElectionRecord
from sidecar.core.ha.kubernetes_facts import (
    COMPONENTS,
    DisruptionBudget,
    ElectionTimes,
    FlinkPod,
    FlinkRights,
    HaConfigMap,
    KubernetesFacts,
    LivenessProbe,
    ProbeKind,
    Right,
    Workload,
)
from sidecar.core.moment import SECOND, parsed

NAMESPACE: Final = "flink"
CLUSTER: Final = "orders"
JOB: Final = "a" * 32
NOW: Final = parsed("2026-11-26T12:00:00Z")
LABELS: Final = {"app": CLUSTER, "component": "jobmanager", "type": "flink-native-kubernetes"}
LEASE: Final = LeaderElectionRecord(
    "a-process", 15 * SECOND, "2026-11-26T08:00:00.000000Z", "2026-11-26T11:59:58.000000Z", 3
)
TCP: Final = LivenessProbe(ProbeKind.TCP, "6123", initial_delay=30, period=60)
FLINK_VERBS: Final = ("get", "list", "watch", "create", "update", "patch", "delete")


def job_manager(name: str, node: str = "", **changes: Any) -> FlinkPod:
    """A JobManager on a node of its own."""
    pod = FlinkPod(
        name,
        "jobmanager",
        LABELS,
        address="10.0.0.1",
        node=node or f"node-of-{name}",
        running=True,
        image="flink:2.3.0",
        restart_policy="Always",
        owner="ReplicaSet",
        service_account="flink",
        liveness=TCP,
        limit_bytes=1600 << 20,
        conf_map="flink-config-orders",
    )
    return replace(pod, **changes)


def task_manager(name: str, **changes: Any) -> FlinkPod:
    return replace(job_manager(name), component="taskmanager", labels=LABELS | {"component": "taskmanager"}, **changes)


def budget(name: str = "orders", **changes: Any) -> DisruptionBudget:
    return replace(DisruptionBudget(name, {"app": CLUSTER, "component": "jobmanager"}, min_available=1), **changes)


def config_map(name: str, app: str = CLUSTER, **changes: Any) -> HaConfigMap:
    return replace(HaConfigMap(name, app, 2048, parsed("2026-11-20T12:00:00Z")), **changes)


def leaders(app: str = CLUSTER, **changes: Any) -> HaConfigMap:
    made = config_map(f"{app}-cluster-config-map", app, lease=LEASE, components=COMPONENTS, jobs=frozenset({JOB}))
    return replace(made, **changes)


def right(verb: str, *, allowed: bool = True) -> Right:
    return Right(verb, "configmaps", "", "orders-cluster-config-map", "the leaders", allowed)


def facts(**changes: Any) -> KubernetesFacts:
    """Two JobManagers on two nodes, a budget, room in memory and ConfigMaps, all rights."""
    good = KubernetesFacts(
        cluster_id=CLUSTER,
        namespace=NAMESPACE,
        read_at=NOW,
        pods=(job_manager("jm-0"), job_manager("jm-1"), task_manager("tm-0")),
        budgets=(budget(),),
        workloads=(Workload("Deployment", CLUSTER, LABELS, 2),),
        flink_deployments={},
        leaders=leaders(),
        config_maps=(leaders(), config_map(f"{CLUSTER}-{JOB}-config-map")),
        memory={"jobmanager.memory.process.size": "1600m"},
        election=ElectionTimes(15 * SECOND, 10 * SECOND),
        own_rights=(right("list"), right("watch")),
        flink_rights=FlinkRights(
            "flink", tuple(Right(verb, "configmaps", "", "", "Flink", True) for verb in FLINK_VERBS)
        ),
    )
    return replace(good, **changes)
