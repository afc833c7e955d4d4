"""THE table of the checks over Kubernetes' facts, by name, in the order in which they are shown."""

from collections.abc import Callable, Mapping
from typing import Final

from sidecar.core.ha import config_map_checks, pod_checks
from sidecar.core.ha.finding import Finding
from sidecar.core.ha.kubernetes_facts import KubernetesFacts

KUBERNETES_CHECKS: Final[Mapping[str, Callable[[KubernetesFacts], Finding]]] = {
    "standby": pod_checks.standby,
    "node_spread": pod_checks.node_spread,
    "disruption_budget": pod_checks.disruption_budget,
    "liveness_probe": pod_checks.liveness_probe,
    "restart_policy": pod_checks.restart_policy,
    "memory_limit": pod_checks.memory_limit,
    "flink_versions": pod_checks.flink_versions,
    "lease_margin": config_map_checks.lease_margin,
    "erased_leaders": config_map_checks.erased_leaders,
    "config_map_size": config_map_checks.config_map_size,
    "sidecar_rights": config_map_checks.sidecar_rights,
    "flink_rights": config_map_checks.flink_rights,
    "leftover_clusters": config_map_checks.leftover_clusters,
    "leftover_jobs": config_map_checks.leftover_jobs,
}
"""Each judges the facts of one moment."""
