"""Who writes ConfigMaps as Flink 2 does: a leader of three components and a job, and its lease."""

from datetime import UTC, datetime
from pathlib import Path
from typing import Self
from uuid import UUID

import urllib3
from msgspec import json

_JOB = "ab" * 16
_LEASE = "control-plane.alpha.kubernetes.io/leader"
_LEADER = "org.apache.flink.k8s.leader."
_RPC = "pekko.tcp://flink@10.244.13.27:6123/user/rpc/"
_ADDRESSES = {
    "restserver": "http://10.244.13.27:8081",
    "resourcemanager": f"{_RPC}resourcemanager_1",
    f"job-{_JOB}": f"{_RPC}jobmanager_2",
}
_HOLDER = "69a41116-072d-496c-ac78-141a572d17db"
_SESSION_ID = "9c500829-948d-4512-9719-33d6a98b41ff"
_BEGAN = "2026-11-20T08:32:05.554538Z"
_ANSWER_SECONDS = 10.0


def cluster_config_map(cluster: str) -> str:
    """The name of the one that a cluster has."""
    return f"{cluster}-cluster-config-map"


class Flink:
    """One connection to the API server, and one term of one lease in each cluster. Sent to another process, it connects anew there."""

    def __init__(self, url: str, authority: Path, token: str) -> None:
        self._place = (url, authority, token)
        self._folder = f"{url}/api/v1/namespaces/default/configmaps"
        self._headers = {"Authorization": f"Bearer {token}", "Content-Type": "application/json"}
        self._pool = urllib3.PoolManager(ca_certs=str(authority), timeout=_ANSWER_SECONDS, retries=False)

    def __reduce__(self) -> tuple[type[Self], tuple[str, Path, str]]:
        return type(self), self._place

    def create(self, cluster: str, session_id: UUID) -> None:
        self._send("POST", self._folder, cluster, session_id)

    def replace(self, cluster: str, session_id: UUID) -> None:
        """The dispatcher's leader, and the lease renewed: Flink writes one component after the other, too."""
        self._send("PUT", f"{self._folder}/{cluster_config_map(cluster)}", cluster, session_id)

    def _send(self, method: str, url: str, cluster: str, session_id: UUID) -> None:
        answer = self._pool.request(method, url, body=_body(cluster, session_id), headers=self._headers)
        assert answer.status in {200, 201}, answer.data


def _body(cluster: str, session_id: UUID) -> bytes:
    now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
    lease = {
        "holderIdentity": _HOLDER,
        "leaseDuration": "PT15S",
        "acquireTime": _BEGAN,
        "renewTime": now,
        "leaderTransitions": 0,
    }
    metadata = {
        "name": cluster_config_map(cluster),
        "labels": {"app": cluster, "type": "flink-native-kubernetes"},
        "annotations": {_LEASE: json.encode(lease).decode()},
    }
    data = {f"{_LEADER}{name}": f"{_SESSION_ID},{address}" for name, address in _ADDRESSES.items()}
    data[f"{_LEADER}dispatcher"] = f"{session_id},{_RPC}dispatcher_0"
    data[f"executionPlan-{_JOB}"] = "a" * 200
    return json.encode({"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": data})
