"""Typed, strict settings with one loader. Every mistake is one line (SettingsError) without a secret."""

from sidecar.net.secret import Secret
from sidecar.settings.file.settings_error import SettingsError
from sidecar.settings.loader import load, load_cluster
from sidecar.settings.model import (
    AnyFinderSettings,
    ClusterSettings,
    FinderSettings,
    KubernetesSettings,
    LedgerMode,
    LogFormat,
    SaslSettings,
    Settings,
    TlsSettings,
    ZooKeeperFinderSettings,
    ZooKeeperSettings,
    session_timeouts,
)

__all__ = [
    "AnyFinderSettings",
    "ClusterSettings",
    "FinderSettings",
    "KubernetesSettings",
    "LedgerMode",
    "LogFormat",
    "SaslSettings",
    "Secret",
    "Settings",
    "SettingsError",
    "TlsSettings",
    "ZooKeeperFinderSettings",
    "ZooKeeperSettings",
    "load",
    "load_cluster",
    "session_timeouts",
]
