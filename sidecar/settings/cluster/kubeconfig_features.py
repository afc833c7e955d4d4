"""Detects features in a kubeconfig that no sidecar supports: they are a mistake when the file is read, not an API server that cannot be
reached."""

import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from sidecar.settings.file.nodes import ListNode, MappingNode, Node, ScalarNode, text_of
from sidecar.settings.file.settings_error import quoted

_PROXIES: Final = ("http", "https")
_AUTH_PROVIDERS: Final = ("gcp", "oidc")
"""The auth providers that the client library knows. It ignores others, and then asks without credentials."""
_IMPERSONATION: Final = ("as", "as-uid", "as-groups", "as-user-extra")

_Entries = Mapping[str, Node]


def unsupported(path: Path, entries: _Entries, context: _Entries) -> str | None:
    """The feature of the cluster or the user of `context` that is not supported, and the remedy: one line without secrets. None: there is
    none."""
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
