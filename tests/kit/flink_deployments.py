"""FlinkDeployments on a real API server, and an operator that writes their status in its own order.

The CRD has the fields that we read, as the operator's documentation describes them; the rest of spec and status may hold anything.
"""

import time
from contextlib import suppress
from typing import Any, Final
from urllib.error import HTTPError

from tests.kit.kubernetes_server import ApiServer, Json
from tests.kit.waiting import wait_for

GROUP: Final = "flink.apache.org"
NAME: Final = f"flinkdeployments.{GROUP}"
_CRDS: Final = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
_TEXT, _NUMBER = {"type": "string"}, {"type": "integer"}


def _open(**properties: Json) -> Json:
    return {"type": "object", "x-kubernetes-preserve-unknown-fields": True, "properties": properties}


def _one_of(*values: str) -> Json:
    return {"type": "string", "enum": list(values)}


_SPEC: Final = _open(job=_open(state=_one_of("running", "suspended"), upgradeMode=_TEXT), restartNonce=_NUMBER)
_STATUS: Final = _open(
    lifecycleState=_TEXT,
    jobManagerDeploymentStatus=_TEXT,
    observedGeneration=_NUMBER,
    jobStatus=_open(state=_TEXT),
    reconciliationStatus=_open(
        state=_one_of("DEPLOYED", "UPGRADING", "ROLLING_BACK", "ROLLED_BACK"), reconciliationTimestamp=_NUMBER
    ),
)


def crd(*, strict: bool = True) -> Json:
    """`strict`: with the types of the fields."""
    schema = {"type": "object", "properties": {"spec": _SPEC, "status": _STATUS}} if strict else _open()
    version = {
        "name": "v1beta1",
        "served": True,
        "storage": True,
        "subresources": {"status": {}},
        "schema": {"openAPIV3Schema": schema},
    }
    names = {"kind": "FlinkDeployment", "plural": "flinkdeployments", "singular": "flinkdeployment"}
    spec = {"group": GROUP, "scope": "Namespaced", "names": names, "versions": [version]}
    return {"metadata": {"name": NAME}, "spec": spec}


def install(server: ApiServer, *, strict: bool = True) -> None:
    """Install the CRD, and wait until its objects can be listed."""
    with suppress(HTTPError):
        server.ask("POST", _CRDS, crd(strict=strict))

    def served() -> bool:
        with suppress(HTTPError):
            return "items" in server.ask("GET", f"/apis/{GROUP}/v1beta1/flinkdeployments")
        return False

    wait_for("the CRD", served)


def uninstall(server: ApiServer) -> None:
    """Delete the CRD, with all of its objects: nobody is there to finalize them."""
    everything = f"/apis/{GROUP}/v1beta1"
    for deployment in server.ask("GET", f"{everything}/flinkdeployments")["items"]:
        metadata = deployment["metadata"]
        if metadata.pop("finalizers", None):
            server.ask(
                "PUT",
                f"{everything}/namespaces/{metadata['namespace']}/flinkdeployments/{metadata['name']}",
                deployment,
            )
    with suppress(HTTPError):
        server.ask("DELETE", f"{_CRDS}/{NAME}")

    def gone() -> bool:
        try:
            server.ask("GET", f"{_CRDS}/{NAME}")
        except HTTPError:
            return True
        return False

    wait_for("the end of the CRD", gone)


class Deployment:
    """One FlinkDeployment: the people who write its spec, and the operator that writes its status."""

    def __init__(self, server: ApiServer, namespace: str, name: str, *, owner: str | None = None) -> None:
        self._server = server
        folder = f"/apis/{GROUP}/v1beta1/namespaces/{namespace}/flinkdeployments"
        self._path = f"{folder}/{name}"
        references = (
            [{"apiVersion": f"{GROUP}/v1beta1", "kind": "FlinkBlueGreenDeployment", "name": owner, "uid": "1"}]
            if owner
            else []
        )
        metadata = {"name": name, "finalizers": [f"flinkdeployments.{GROUP}/finalizer"], "ownerReferences": references}
        body = {"apiVersion": f"{GROUP}/v1beta1", "kind": "FlinkDeployment", "metadata": metadata}
        self._server.ask("POST", folder, body | {"spec": {"job": {"state": "running"}, "restartNonce": 0}})
        self.says("DEPLOYED")

    def change(self, **job: str) -> int:
        """Somebody applies another spec. Returns its generation."""
        deployment = self._server.ask("GET", self._path)
        deployment["spec"]["restartNonce"] += 1
        deployment["spec"]["job"] |= job
        return int(self._server.ask("PUT", self._path, deployment)["metadata"]["generation"])

    def says(self, state: str, **more: Any) -> None:
        """What the operator writes when it has processed the spec."""
        deployment = self._server.ask("GET", self._path)
        deployment["status"] = {
            "lifecycleState": "STABLE" if state == "DEPLOYED" else state,
            "jobManagerDeploymentStatus": "READY",
            "jobStatus": {"state": "RUNNING"},
            "observedGeneration": deployment["metadata"]["generation"],
            "reconciliationStatus": {"state": state, "reconciliationTimestamp": time.time_ns() // 1_000_000},
            **more,
        }
        self._server.ask("PUT", f"{self._path}/status", deployment)

    def delete(self) -> None:
        """Somebody deletes it: it stays until the operator has removed the cluster."""
        self._server.ask("DELETE", self._path)

    def release(self) -> None:
        """The operator has removed the cluster."""
        deployment = self._server.ask("GET", self._path)
        deployment["metadata"]["finalizers"] = []
        self._server.ask("PUT", self._path, deployment)
