"""Writes the configuration of the lab's Flink clusters, in the format of their Flink version."""

from datetime import timedelta
from pathlib import Path
from typing import Any

from ruamel.yaml import YAML

CLUSTER_ID = "lab"
PATH_ROOT = "/flink"
NAMESPACE = "default"

TASK_MANAGER_HEAP_MEGABYTES = 256
"""The sum of the two heap sizes below."""

LOOPBACK = "127.0.0.1"

_ADDRESSES = ("jobmanager.rpc.address", "jobmanager.bind-host", "rest.address", "rest.bind-address")
_LOCAL = dict.fromkeys((*_ADDRESSES, "taskmanager.host", "taskmanager.bind-host"), LOOPBACK)

# Flink's start scripts compute these for the TaskManager. Without the scripts, every one is required.
_TASK_MANAGER = {
    "taskmanager.numberOfTaskSlots": 2,
    "taskmanager.cpu.cores": 1.0,
    "taskmanager.memory.framework.heap.size": "128m",
    "taskmanager.memory.task.heap.size": "128m",
    "taskmanager.memory.framework.off-heap.size": "64m",
    "taskmanager.memory.task.off-heap.size": "0m",
    "taskmanager.memory.managed.size": "0m",
    "taskmanager.memory.network.min": "32m",
    "taskmanager.memory.network.max": "32m",
    "taskmanager.memory.jvm-metaspace.size": "128m",
    "taskmanager.memory.jvm-overhead.min": "64m",
    "taskmanager.memory.jvm-overhead.max": "64m",
}


def write_conf_dir(
    conf_dir: Path, version: tuple[int, int], quorum: str, data: Path, session_timeout: timedelta
) -> None:
    """Write a Flink configuration folder with HA in the ZooKeeper at `quorum`: nested `config.yaml` (Flink 2), flat `flink-conf.yaml` (1).

    Checkpoints and recovery data are in `data`; jobs are restarted without limit.
    """
    milliseconds = session_timeout // timedelta(milliseconds=1)
    options = {
        "high-availability.cluster-id": f"/{CLUSTER_ID}",
        "high-availability.zookeeper.quorum": quorum,
        "high-availability.zookeeper.path.root": PATH_ROOT,
        "high-availability.zookeeper.client.session-timeout": f"{milliseconds} ms"
        if version >= (2, 0)
        else milliseconds,
    }
    _write(conf_dir, version, data, "zookeeper", options)


def write_kubernetes_conf_dir(
    conf_dir: Path, version: tuple[int, int], kubeconfig: Path, data: Path, lease_duration: timedelta
) -> None:
    """As `write_conf_dir`, with HA in ConfigMaps. A lease is renewed three times in its duration, as with Flink's defaults."""
    lease, retry = (f"{time // timedelta(milliseconds=1)} ms" for time in (lease_duration, lease_duration / 3))
    options = {
        "kubernetes.cluster-id": CLUSTER_ID,
        "kubernetes.namespace": NAMESPACE,
        "kubernetes.config.file": str(kubeconfig),
        "high-availability.kubernetes.leader-election.lease-duration": lease,
        "high-availability.kubernetes.leader-election.renew-deadline": lease,
        "high-availability.kubernetes.leader-election.retry-period": retry,
    }
    factory = "org.apache.flink.kubernetes.highavailability.KubernetesHaServicesFactory"
    _write(conf_dir, version, data, "kubernetes" if version >= (1, 15) else factory, options)


def _write(conf_dir: Path, version: tuple[int, int], data: Path, mode: str, options: dict[str, Any]) -> None:
    flink_2 = version >= (2, 0)
    settings: dict[str, Any] = {
        **_LOCAL,
        **_TASK_MANAGER,
        **options,
        "high-availability.type" if version >= (1, 17) else "high-availability": mode,
        "high-availability.storageDir": f"file://{data / 'ha'}",
        "execution.checkpointing.dir" if flink_2 else "state.checkpoints.dir": f"file://{data / 'checkpoints'}",
        "web.refresh-interval": 500,  # the maximum age of a REST API response, in milliseconds
        "restart-strategy.type" if version >= (1, 19) else "restart-strategy": "fixed-delay",
        "restart-strategy.fixed-delay.attempts": 2_147_483_647,
        "restart-strategy.fixed-delay.delay": "200 ms",
    }
    conf_dir.mkdir(parents=True, exist_ok=True)
    if flink_2:
        yaml = YAML()
        yaml.default_flow_style = False
        with (conf_dir / "config.yaml").open("w") as file:
            yaml.dump(_nested(settings), file)
    else:
        lines = (f"{key}: {value}\n" for key, value in settings.items())
        (conf_dir / "flink-conf.yaml").write_text("".join(lines))


def _nested(settings: dict[str, Any]) -> dict[str, Any]:
    """Turn `{"a.b": 1}` into `{"a": {"b": 1}}`."""
    tree: dict[str, Any] = {}
    for key, value in settings.items():
        *parents, leaf = key.split(".")
        node = tree
        for parent in parents:
            node = node.setdefault(parent, {})
        node[leaf] = value
    return tree
