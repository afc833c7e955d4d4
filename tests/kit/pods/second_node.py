"""A second node, on which nothing runs: with one node alone that is not ready, Kubernetes takes itself for cut off and evicts nobody."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import Final

from tests.kit.pods.api import Api

_NAME: Final = "elsewhere"
_LEASES: Final = "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases"
_RENEW_SECONDS: Final = 2.0


@contextmanager
def second_node(api: Api) -> Iterator[None]:
    """It is ready as long as the block lasts, and takes no pods."""
    ready = {"type": "Ready", "status": "True", "reason": "KubeletReady", "lastHeartbeatTime": _now(False)}
    api.ask("POST", "/api/v1/nodes", {"metadata": {"name": _NAME}, "spec": {"unschedulable": True}})
    api.patch(f"/api/v1/nodes/{_NAME}/status", {"status": {"conditions": [ready]}})
    lease = {"holderIdentity": _NAME, "leaseDurationSeconds": 40, "renewTime": _now()}
    api.ask("POST", _LEASES, {"metadata": {"name": _NAME}, "spec": lease})
    stopping = threading.Event()

    def renew() -> None:
        while not stopping.wait(_RENEW_SECONDS):
            api.patch(f"{_LEASES}/{_NAME}", {"spec": {"renewTime": _now()}})

    renewing = threading.Thread(target=renew, name="second-node")
    renewing.start()
    try:
        yield
    finally:
        stopping.set()
        renewing.join()
        api.ask("DELETE", f"/api/v1/nodes/{_NAME}")
        api.ask("DELETE", f"{_LEASES}/{_NAME}")


def _now(micros: bool = True) -> str:
    """As Kubernetes writes a MicroTime, or a Time."""
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ" if micros else "%Y-%m-%dT%H:%M:%SZ")
