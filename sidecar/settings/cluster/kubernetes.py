"""The ConfigMaps of a cluster, and the API server that has them, found as kubectl finds it."""

import os
import re
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from sidecar.core.bounds import KUBECONFIG
from sidecar.settings.cluster.stores import KubernetesSettings
from sidecar.settings.file.key import read_settings
from sidecar.settings.file.section import ListNode, MappingNode, Node, ScalarNode, text_of
from sidecar.settings.file.setting import Setting
from sidecar.settings.file.settings_error import SettingsError, did_you_mean, quoted
from sidecar.settings.tls_and_sasl import NamedSettings

_PROXIES: Final = ("http", "https")
_AUTH_PROVIDERS: Final = ("gcp", "oidc")
"""The auth providers that the client library knows. It ignores others, and then asks without credentials."""
_IMPERSONATION: Final = ("as", "as-uid", "as-groups", "as-user-extra")

_Entries = Mapping[str, Node]


def unsupported(path: Path, entries: _Entries, context: _Entries) -> str | None:
    """The feature of the cluster or the user of `context` that is not supported, and the remedy: one line without secrets. None: there is
    none. It is a mistake when the file is read, not an API server that cannot be reached."""
    cluster, user = (
        named(entries.get(f"{kind}s"), kind).get(text_of(context.get(kind)), {}) for kind in ("cluster", "user")
    )
    for kind, problem in (("cluster", _cluster_feature(cluster)), ("user", _user_feature(user, path.parent))):
        if problem:
            return f"{path}: the {kind} {quoted(text_of(context.get(kind)))}: {problem}"
    return None


def named(listed: Node | None, kind: str) -> dict[str, dict[str, Node]]:
    """The entries of a kubeconfig's list of `kind`s, by name, without malformed ones."""
    values = {}
    for entry in listed.items if isinstance(listed, ListNode) else ():
        if isinstance(entry, MappingNode) and isinstance(name := entry.entries.get("name"), ScalarNode):
            value = entry.entries.get(kind)
            if isinstance(value, MappingNode):
                values[name.text] = value.entries
    return values


def proxy_problem(url: str) -> str | None:
    """Why a proxy with this URL cannot be used; None: it can."""
    scheme, separator, _ = url.partition("://")
    if separator and scheme.lower() in _PROXIES:
        return None
    which = f"{scheme.lower()}:// is not supported" if separator and scheme.isalnum() else "is not a URL"
    return (
        f"{which}: give a proxy with http:// or https://, or forward a port (ssh -L, kubectl proxy) and set server "
        "and tls-server-name"
    )


def _cluster_feature(cluster: _Entries) -> str | None:
    if (proxy := text_of(cluster.get("proxy-url"))) and (problem := proxy_problem(proxy)):
        return f"proxy-url: {problem}"
    server = text_of(cluster.get("server"))
    if server and not server.lower().startswith(("http://", "https://")):
        return "server: must begin with https:// or http://"
    return None


def _user_feature(user: _Entries, folder: Path) -> str | None:
    for key in _IMPERSONATION:
        if key in user:
            return f"{key}: impersonation is not supported: give a user that has the rights itself"
    match user.get("auth-provider"):
        case MappingNode(entries=provider) if (name := text_of(provider.get("name"))) not in _AUTH_PROVIDERS:
            return f"auth-provider: {quoted(name)} is not supported: use its successor, a program (exec)"
    match user.get("exec"):
        case MappingNode(entries=program):
            return _program_feature(program, folder)
    return None


def _program_feature(program: _Entries, folder: Path) -> str | None:
    if text_of(program.get("interactiveMode")) == "Always":
        return "exec: interactiveMode Always needs a terminal, which a sidecar does not have: set Never or IfAvailable"
    command = text_of(program.get("command"))
    # As kubectl: what has a slash is relative to the kubeconfig.
    found = shutil.which(folder / command if "/" in command else command) if command else None
    if command and not found:
        return f"exec: there is no program {quoted(command)} that can be run: install it, or give its path"
    return None


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
    from sidecar.settings.file.yaml_document import parse, read_text  # noqa: PLC0415  imports ruamel.yaml

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
