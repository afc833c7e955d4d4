"""Typed, strict settings with one loader. Every mistake is one line (SettingsError) without a secret."""

from sidecar.net.endpoints import Secret
from sidecar.settings.cluster.stores import (
    AnyFinderSettings,
    ClusterSettings,
    FinderSettings,
    KubernetesSettings,
    ZooKeeperFinderSettings,
    ZooKeeperSettings,
    session_timeouts,
)
from sidecar.settings.file.settings_error import SettingsError
from sidecar.settings.loader import load, load_cluster
from sidecar.settings.model import LedgerMode, LogFormat, Settings
from sidecar.settings.tls_and_sasl import SaslSettings, TlsSettings

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
