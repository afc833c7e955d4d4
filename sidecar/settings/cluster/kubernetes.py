"""Which ConfigMaps are meant, and how the API server that has them is reached: as kubectl finds it."""

import os
import re
from pathlib import Path
from typing import Final

from sidecar.settings.file.errors import SettingsError, expected
from sidecar.settings.file.nodes import Items, Node, Scalar, Table
from sidecar.settings.file.value import Given
from sidecar.settings.model import KubernetesSettings
from sidecar.settings.security import Place, readable

SERVICE_ACCOUNT: Final = Path("/var/run/secrets/kubernetes.io/serviceaccount")
"""Where a pod has its service account."""

_KUBECONFIG_BYTES: Final = 4 << 20
_NAME = re.compile(r"[a-z0-9]([-a-z0-9.]{0,61}[a-z0-9])?")
_NAMESPACE = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?")


def read_kubernetes(given: Place) -> KubernetesSettings:
    """What `cluster_id`, `namespace`, `kubeconfig` and `context` say. Raises SettingsError.

    The kubeconfig: the one given, that of KUBECONFIG, `~/.kube/config`; where there is none, the service account of our pod. The
    namespace: the one given, that of the context or of the service account, `default`.
    """
    if "cluster_id" not in given:
        raise given["kubernetes"].error("the cluster id is missing: give --cluster-id (Flink's kubernetes.cluster-id)")
    cluster_id = given["cluster_id"].matching(_NAME, "a cluster id of Kubernetes: small letters, digits, - and .")
    kubeconfig = given.get("kubeconfig") or _kubeconfig()
    if kubeconfig is None:
        if "context" in given:
            raise given["context"].error("is one of a kubeconfig, and there is none: give --kubeconfig FILE")
        return KubernetesSettings(cluster_id, _namespace(given.get("namespace") or _own_namespace()))
    path = readable(kubeconfig)
    context, namespace = _find_context(path, kubeconfig, given.get("context"))
    return KubernetesSettings(cluster_id, _namespace(given.get("namespace") or namespace), path, context)


def _kubeconfig() -> Given | None:
    """The kubeconfig that nobody had to give. Raises SettingsError where there is none and we are in no pod either."""
    if named := os.environ.get("KUBECONFIG"):
        if os.pathsep in named:
            raise SettingsError("KUBECONFIG names several files, which are not merged here: give --kubeconfig FILE")
        return Given(named, named, "KUBECONFIG")
    own = Path(os.environ.get("HOME") or "/") / ".kube" / "config"
    if own.exists():
        return Given(str(own), str(own), "the kubeconfig")
    if "KUBERNETES_SERVICE_HOST" in os.environ and (SERVICE_ACCOUNT / "token").exists():
        return None
    raise SettingsError(
        "how is the Kubernetes API server reached? here is neither a kubeconfig nor the service account of a pod: "
        "give --kubeconfig FILE, or let the pod have its token (automountServiceAccountToken)"
    )


def _own_namespace() -> Given:
    file = SERVICE_ACCOUNT / "namespace"
    try:
        name = file.read_text(encoding="utf-8").strip()
    except (OSError, ValueError):
        name = ""
    return Given(name or "default", name, str(file))


def _namespace(given: Given) -> str:
    return given.matching(_NAMESPACE, "a namespace: small letters, digits and -")


def _find_context(path: Path, kubeconfig: Given, wanted: Given | None) -> tuple[str, Given]:
    """The name of the wanted context, else of the current one, and its namespace."""
    from sidecar.settings.file.document import parse, read_text  # noqa: PLC0415  imports ruamel.yaml

    try:
        entries = parse(read_text(path, _KUBECONFIG_BYTES), str(path)).entries
    except SettingsError as error:
        raise kubeconfig.error(str(error)) from error
    contexts = _contexts(entries.get("contexts"))
    if wanted is None:
        current = _text(entries.get("current-context"))
        if not current:
            raise kubeconfig.error(f"{path} has no current-context: give --context NAME")
        wanted = Given(current, current, f"{path}: current-context")
    if wanted.text not in contexts:
        known = expected(contexts, wanted.text) if contexts else "it has none"
        raise wanted.wrong(f"is no context of {path}: {known}")
    namespace = _text(contexts[wanted.text].get("namespace")) or "default"
    return wanted.text, Given(namespace, namespace, f"{path}: the namespace of context {wanted.text}")


def _contexts(listed: Node | None) -> dict[str, dict[str, Node]]:
    """The contexts by name; what is none is left out."""
    contexts = {}
    for entry in listed.items if isinstance(listed, Items) else ():
        match entry:
            case Table(entries={"name": Scalar(text=name), "context": Table(entries=context)}):
                contexts[name] = context
    return contexts


def _text(node: Node | None) -> str:
    return node.text if isinstance(node, Scalar) and not node.empty else ""
