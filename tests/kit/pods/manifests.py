"""What is applied to the node: Flink as its own documentation has it, and the sidecar as `deploy/base` adds it."""

import json
from pathlib import Path
from typing import Final

from ruamel.yaml import YAML

from tests import ROOT
from tests.kit.pods.api import Json
from tests.kit.pods.images import FLINK, SIDECAR
from tests.lab.java import LOG4J

CLUSTER_ID: Final = "my-flink"
CONFIG_MAP: Final = f"{CLUSTER_ID}-cluster-config-map"
JOBMANAGER: Final = "flink-jobmanager"
CONTAINER: Final = "flink-ha-sidecar"
POD_IP: Final[Json] = {"name": "POD_IP", "valueFrom": {"fieldRef": {"fieldPath": "status.podIP"}}}
_BASE: Final = ROOT / "deploy" / "base"
_FLINK: Final = {
    "jobmanager.rpc.port": 6123,
    "jobmanager.bind-host": "0.0.0.0",  # noqa: S104
    "rest.port": 8081,
    "rest.bind-address": "0.0.0.0",  # noqa: S104
    "high-availability.storageDir": "file:///flink-ha",
    "jobmanager.memory.process.size": "1g",
}
# One failover is one incident here, however many follow each other: no alert about flapping, none about a slow machine.
RULES: Final = [
    {"alert": "FlinkLeaderChanged", "on": "leader_changed", "severity": "warning"},
    {"alert": "FlinkNoLeader", "on": "vacant", "for": "5m", "severity": "critical"},
    {"alert": "FlinkLeadersOutOfSight", "on": "blind", "for": "2m", "severity": "warning"},
]


def _document(path: Path) -> Json:
    return dict(YAML(typ="safe").load(path.read_text()))


def flink_config(namespace: str, quorum: str | None) -> Json:
    """The ConfigMap with Flink's configuration. `quorum`: with ZooKeeper HA, else with Kubernetes HA."""
    store = (
        {"high-availability.type": "zookeeper", "high-availability.zookeeper.quorum": quorum}
        if quorum
        else {
            "high-availability.type": "kubernetes",
            "kubernetes.cluster-id": CLUSTER_ID,
            "kubernetes.namespace": namespace,
        }
    )
    settings = json.dumps(_FLINK | store, indent=0)  # YAML too
    return {"metadata": {"name": "flink-config"}, "data": {"config.yaml": settings, "log4j-console.properties": LOG4J}}


def sidecar_config(changes: Json) -> Json:
    """The ConfigMap with the shipped configuration of the sidecar, with `changes` to its top level."""
    config = _document(_BASE / "config.yaml") | {"rules": RULES} | changes
    return {"metadata": {"name": CONTAINER}, "data": {"config.yaml": json.dumps(config)}}


def permissions(namespace: str, more: list[Json], everywhere: list[Json]) -> list[tuple[str, Json]]:
    """Flink's service account and what it may do, each with the path where it is created. `more`: rules in its namespace beside those
    for ConfigMaps; `everywhere`: those of a ClusterRole.
    """
    group = "/apis/rbac.authorization.k8s.io/v1"
    rbac = f"{group}/namespaces/{namespace}"
    verbs = ["get", "list", "watch", "create", "update", "patch", "delete"]
    rules = [{"apiGroups": [""], "resources": ["configmaps"], "verbs": verbs}, *more]
    role = {"metadata": {"name": "flink"}, "rules": rules}
    binding = {
        "metadata": {"name": "flink"},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "flink"},
        "subjects": [{"kind": "ServiceAccount", "name": "flink"}],
    }
    account = {"metadata": {"name": "flink"}}
    whole = {"metadata": {"name": namespace}, "rules": everywhere}
    bound = {
        "metadata": {"name": namespace},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": namespace},
        "subjects": [{"kind": "ServiceAccount", "name": "flink", "namespace": namespace}],
    }
    return [
        (f"/api/v1/namespaces/{namespace}/serviceaccounts", account),
        (f"{rbac}/roles", role),
        (f"{rbac}/rolebindings", binding),
        (f"{group}/clusterroles", whole),
        (f"{group}/clusterrolebindings", bound),
    ]


def jobmanager(shared: Path, memory: str, changes: Json) -> Json:
    """The Deployment of JobManagers, with none yet. `shared`: the folder on the node for Flink's HA storage; `memory`: the limit. `changes`
    are to the container.
    """
    labels = {"app": "flink", "component": "jobmanager"}
    container = {
        "name": "jobmanager",
        "image": FLINK,
        "args": ["jobmanager", "$(POD_IP)"],
        "env": [POD_IP],
        "ports": [{"name": "rpc", "containerPort": 6123}, {"name": "rest", "containerPort": 8081}],
        "securityContext": {"runAsNonRoot": True, "runAsUser": 9999},
        "livenessProbe": {"tcpSocket": {"port": "rpc"}, "initialDelaySeconds": 30, "periodSeconds": 60},
        "resources": {"requests": {"cpu": "100m"}, "limits": {"memory": memory}},
        "volumeMounts": [
            {"name": "flink-config-volume", "mountPath": "/opt/flink/conf"},
            {"name": "flink-ha", "mountPath": "/flink-ha"},
        ],
    } | changes
    volumes = [
        {"name": "flink-config-volume", "configMap": {"name": "flink-config"}},
        {"name": "flink-ha", "hostPath": {"path": str(shared), "type": "Directory"}},
    ]
    # For how long a pod stays on a node that is not ready: five minutes where nothing is said.
    tolerations = [
        {"key": f"node.kubernetes.io/{key}", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 10}
        for key in ("not-ready", "unreachable")
    ]
    pod = {"serviceAccountName": "flink", "containers": [container], "volumes": volumes, "tolerations": tolerations}
    return {
        "metadata": {"name": JOBMANAGER, "labels": labels},
        "spec": {
            "replicas": 0,
            "selector": {"matchLabels": labels},
            "template": {"metadata": {"labels": labels}, "spec": pod},
        },
    }


def sidecar_patch(container: Json, volumes: list[Json], pod: Json) -> Json:
    """The patch of `deploy/base`, with these changes to its container (`env` is added to), to volumes of the same name, and to the pod."""
    patch = _document(_BASE / "sidecar.yaml")
    spec = patch["spec"]["template"]["spec"]
    shipped = spec["containers"][0]
    spec["containers"][0] = (
        shipped | {"image": SIDECAR} | container | {"env": shipped["env"] + container.get("env", [])}
    )
    changed = {volume["name"] for volume in volumes}
    spec["volumes"] = [*(volume for volume in spec["volumes"] if volume["name"] not in changed), *volumes]
    spec |= pod
    patch["metadata"] = {"name": JOBMANAGER}
    return dict(patch)
