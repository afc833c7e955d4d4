"""Several clusters in one process."""

import json
import threading
from pathlib import Path
from uuid import uuid4

from kazoo.client import KazooClient

from sidecar.core.observations import ClusterObservation, SnapshotCompleted
from sidecar.drivers import Drivers
from sidecar.settings import KubernetesSettings, load_cluster
from tests.kit.driver_recorder import now
from tests.kit.kubernetes_server import USERS, Kubernetes, exec_credential, program
from tests.kit.waiting import wait_for
from tests.lab.zookeeper import ZooKeeper


def test_clusters_of_both_stores_are_watched_side_by_side(
    shared_zookeeper: ZooKeeper, kubernetes: Kubernetes, flink: KazooClient, namespace: str, tmp_path: Path
) -> None:
    """Each is seen whole and reported by its own name; whoever is asked for a token is asked once for all; all threads end."""
    somewhere = kubernetes.namespace(f"test-{uuid4()}")
    names = [f"cluster-{number}" for number in range(20)]
    for name in names:
        somewhere.create(f"{name}-cluster-config-map", {}, '{"holderIdentity": "a", "leaseDuration": 15.0}')
    kubeconfig = asking_a_program(kubernetes, tmp_path)
    somewhere.allow("somebody", "list", "watch")
    before = set(threading.enumerate())
    observations: list[ClusterObservation] = []
    drivers = Drivers(
        [
            *(KubernetesSettings(name, somewhere.name, kubeconfig, "tests") for name in names),
            load_cluster(
                {
                    "zookeeper": shared_zookeeper.address,
                    "root": "/flink",
                    "cluster_id": namespace.removeprefix("/flink"),
                }
            ),
        ],
        now,
    )
    drivers.start(observations.append)
    wait_for(
        "all to be seen",
        lambda: {view.cluster_id for view in list(observations) if isinstance(view, SnapshotCompleted)} >= {*names},
        20,
    )
    wait_for(
        "all to be seen",
        lambda: sum(isinstance(view, SnapshotCompleted) for view in list(observations)) == len(names) + 1,
        20,
    )
    drivers.stop()
    assert (tmp_path / "asked").read_text() == "once\n"
    assert set(threading.enumerate()) - before == set()


def asking_a_program(kubernetes: Kubernetes, folder: Path) -> Path:
    """A kubeconfig that names a program, which keeps a line for each time that it was asked."""
    file = kubernetes.kubeconfig()
    config = json.loads(file.read_text())
    script = f"echo once >> '{folder / 'asked'}'; echo '{exec_credential(USERS['somebody'])}'"
    config["users"][0]["user"] = program(script)
    file.write_text(json.dumps(config))
    return file
