"""Reads the leading dispatcher from Flink's HA ConfigMaps."""

import json
from datetime import datetime
from http import HTTPStatus
from pathlib import Path

from kubernetes.client import ApiException, CoreV1Api
from kubernetes.config import ConfigException, new_client_from_config
from urllib3.exceptions import HTTPError

from tests.lab.lab_error import LabError

_ANSWER_SECONDS = 2.0
_LEASE = "control-plane.alpha.kubernetes.io/leader"


def read_dispatcher(
    kubeconfig: Path, namespace: str, cluster_id: str, version: tuple[int, int]
) -> tuple[str, float] | None:
    """The value that contains the leading dispatcher's address, and when its holder acquired the lease (seconds since the epoch).

    None when no dispatcher leads. Raises LabError when the API server does not answer.
    """
    name, key = (
        (f"{cluster_id}-cluster-config-map", "org.apache.flink.k8s.leader.dispatcher")
        if version >= (1, 15)
        else (f"{cluster_id}-dispatcher-leader", "address")
    )
    try:
        with new_client_from_config(str(kubeconfig)) as client:  # type: ignore[no-untyped-call]  # the library's
            config_map = CoreV1Api(client).read_namespaced_config_map(name, namespace, _request_timeout=_ANSWER_SECONDS)
    except ApiException as error:
        if error.status == HTTPStatus.NOT_FOUND:
            return None
        raise LabError(f"could not read ConfigMap {name}: {error.status} {error.reason}") from error
    except (HTTPError, ConfigException, OSError) as error:
        raise LabError(f"could not read ConfigMap {name}: {error}") from error
    annotations = (config_map.metadata and config_map.metadata.annotations) or {}
    value, lease = (config_map.data or {}).get(key), annotations.get(_LEASE)
    if not value or not lease:
        return None
    return value, datetime.fromisoformat(json.loads(lease)["acquireTime"]).timestamp()
