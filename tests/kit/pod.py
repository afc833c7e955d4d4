"""What the kubelet does for a pod of one container before it is started: its environment, and its volumes as folders.

Read from the API server, as the kubelet reads it. What is missing: probes, resources, and the network of a pod.
"""

import base64
from collections.abc import Mapping
from pathlib import Path
from typing import Final, NamedTuple
from urllib.parse import urlsplit

from tests.kit.kubernetes_server import Json, Kubernetes

_ACCOUNT: Final = "/run/secrets/kubernetes.io/serviceaccount"
"""/var/run is a link to /run in the image, and in an image that is not a root yet, it leads out of it."""


class Prepared(NamedTuple):
    """What a container is started with."""

    arguments: list[str]
    environment: dict[str, str]
    volumes: dict[str, tuple[Path, str]]
    """By path in the container: the folder, and `rw` or `ro`."""


def prepare(kubernetes: Kubernetes, namespace: str, name: str, spec: Json, folder: Path) -> Prepared:
    """The only container of a pod of this name; its volumes are made below `folder`."""
    (container,) = spec["containers"]
    pod = _Pod(kubernetes, namespace, name)
    volumes = {volume["name"]: pod.volume(volume, folder / volume["name"]) for volume in spec["volumes"]}
    mounted = {
        mount["mountPath"]: (volumes[mount["name"]], "ro" if mount.get("readOnly") else "rw")
        for mount in container["volumeMounts"]
    }
    account = pod.account(spec["serviceAccountName"], folder / "serviceaccount")
    return Prepared(container["args"], pod.environment(container), {**mounted, _ACCOUNT: (account, "ro")})


class _Pod:
    def __init__(self, kubernetes: Kubernetes, namespace: str, name: str) -> None:
        self._kubernetes = kubernetes
        self._namespace = namespace
        self._name = name

    def environment(self, container: Json) -> dict[str, str]:
        server = urlsplit(self._kubernetes.server.url)
        variables = {"KUBERNETES_SERVICE_HOST": str(server.hostname), "KUBERNETES_SERVICE_PORT": str(server.port)}
        for source in container.get("envFrom", []):
            variables |= self._texts("secrets", source["secretRef"]["name"])
        fields = {"metadata.name": self._name, "metadata.namespace": self._namespace}
        for variable in container.get("env", []):
            field = variable.get("valueFrom", {}).get("fieldRef", {}).get("fieldPath")
            variables[variable["name"]] = fields[field] if field else variable["value"]
        return variables

    def volume(self, volume: Json, folder: Path) -> Path:
        if "configMap" in volume:
            return _written(folder, self._texts("configmaps", volume["configMap"]["name"]))
        if "secret" in volume:
            return _written(folder, self._texts("secrets", volume["secret"]["secretName"]))
        assert "emptyDir" in volume, volume
        folder.mkdir(parents=True)
        folder.chmod(0o777)
        return folder

    def account(self, name: str, folder: Path) -> Path:
        token = self._kubernetes.token(self._namespace, name)
        authority = self._kubernetes.authority.ca.read_text()
        return _written(folder, {"token": token, "ca.crt": authority, "namespace": self._namespace})

    def _texts(self, kind: str, name: str) -> dict[str, str]:
        data = self._kubernetes.server.ask("GET", f"/api/v1/namespaces/{self._namespace}/{kind}/{name}").get("data", {})
        return {key: base64.b64decode(text).decode() if kind == "secrets" else text for key, text in data.items()}


def _written(folder: Path, texts: Mapping[str, str]) -> Path:
    folder.mkdir(parents=True)
    folder.chmod(0o755)
    for name, text in texts.items():
        (folder / name).write_text(text)
    return folder
