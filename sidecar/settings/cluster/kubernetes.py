"""The ConfigMaps of a cluster, and the API server that has them, found as kubectl finds it."""

import os
import re
from pathlib import Path
from typing import Final

from sidecar.core.bounds import KUBECONFIG
from sidecar.settings.cluster.kubeconfig_features import named, unsupported
from sidecar.settings.cluster.stores import KubernetesSettings
from sidecar.settings.file.did_you_mean import did_you_mean
from sidecar.settings.file.key import read_settings
from sidecar.settings.file.nodes import text_of
from sidecar.settings.file.setting import Setting
from sidecar.settings.file.settings_error import SettingsError
from sidecar.settings.security import NamedSettings

SERVICE_ACCOUNT: Final = Path("/var/run/secrets/kubernetes.io/serviceaccount")
"""The service account folder of a pod."""

PLAN_FLAGS: Final = ("plans", "deaths")
FLAGS: Final = ("pod_names", "events", *PLAN_FLAGS)

_NAME = re.compile(r"[a-z0-9]([-a-z0-9.]{0,61}[a-z0-9])?")
_NAMESPACE = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?")


def read_kubernetes(settings: NamedSettings) -> KubernetesSettings:
    """The settings of a cluster in Kubernetes, by its keys. Raises SettingsError.

    The kubeconfig: the given one, KUBECONFIG, `~/.kube/config`; without any, the service account of our pod is used.
    The namespace: the given one, that of the context or of the service account, `default`.
    """
    if "cluster_id" not in settings:
        raise settings["kubernetes"].error(
            "the cluster id is missing: give --cluster-id (Flink's kubernetes.cluster-id)"
        )
    cluster_id = settings["cluster_id"].matching(_NAME, "a Kubernetes cluster id: lower-case letters, digits, - and .")
    path, context, own = find_access(settings)
    namespace = read_namespace(settings.get("namespace") or own)
    return read_settings(
        KubernetesSettings, settings, cluster_id=cluster_id, namespace=namespace, kubeconfig=path, context=context
    )


def find_access(settings: NamedSettings) -> tuple[Path | None, str | None, Setting]:
    """The kubeconfig and its context (None: the service account of our pod), and the namespace that it names. Raises SettingsError."""
    kubeconfig = settings.get("kubeconfig") or _kubeconfig()
    if kubeconfig is None:
        if "context" in settings:
            raise settings["context"].error("is a context of a kubeconfig, and there is none: give --kubeconfig FILE")
        return None, None, _own_namespace()
    path = kubeconfig.readable()
    return path, *_find_context(path, kubeconfig, settings.get("context"))


def _kubeconfig() -> Setting | None:
    """The default kubeconfig; None in a pod without one. Raises SettingsError if there is neither."""
    if path := os.environ.get("KUBECONFIG"):
        if os.pathsep in path:
            raise SettingsError(
                "KUBECONFIG names several files, and the sidecar does not merge them: give --kubeconfig FILE"
            )
        return Setting(path, "KUBECONFIG")
    own = Path(os.environ.get("HOME") or "/") / ".kube" / "config"
    if own.exists():
        return Setting(str(own), "the kubeconfig")
    if "KUBERNETES_SERVICE_HOST" in os.environ and (SERVICE_ACCOUNT / "token").exists():
        return None
    raise SettingsError(
        "no access to the Kubernetes API server: there is neither a kubeconfig nor the service account of a pod: "
        "give --kubeconfig FILE, or give the pod its token (automountServiceAccountToken)"
    )


def _own_namespace() -> Setting:
    file = SERVICE_ACCOUNT / "namespace"
    try:
        name = file.read_text(encoding="utf-8").strip()
    except (OSError, ValueError):
        name = ""
    return Setting(name or "default", str(file), name)


def read_namespace(setting: Setting) -> str:
    """The name of a namespace. Raises SettingsError."""
    return setting.matching(_NAMESPACE, "a namespace: lower-case letters, digits and -")


def _find_context(path: Path, kubeconfig: Setting, wanted: Setting | None) -> tuple[str, Setting]:
    """The name of the wanted context (None: the current one) and its namespace."""
    from sidecar.settings.file.document import parse, read_text  # noqa: PLC0415  imports ruamel.yaml

    try:
        entries = parse(read_text(path, KUBECONFIG), str(path), KUBECONFIG).entries
    except SettingsError as error:
        raise kubeconfig.error(str(error)) from error
    contexts = named(entries.get("contexts"), "context")
    if wanted is None:
        current = text_of(entries.get("current-context"))
        if not current:
            raise kubeconfig.error(f"{path} has no current-context: give --context NAME")
        wanted = Setting(current, f"{path}: current-context")
    if wanted.text not in contexts:
        hint = did_you_mean(contexts, wanted.text) if contexts else "it has none"
        raise wanted.invalid(f"is not a context of {path}: {hint}")
    if problem := unsupported(path, entries, contexts[wanted.text]):
        raise kubeconfig.error(problem)
    namespace = text_of(contexts[wanted.text].get("namespace")) or "default"
    return wanted.text, Setting(namespace, f"{path}: the namespace of context {wanted.text}")
