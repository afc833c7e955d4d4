"""Settings: typed, strict, one loader. Every mistake is one clear line (SettingsError), and no line holds a secret."""

from sidecar.settings.file.errors import SettingsError
from sidecar.settings.loader import load, load_cluster
from sidecar.settings.model import (
    ClusterSettings,
    EvidenceSettings,
    HttpSettings,
    KubernetesSettings,
    LedgerMode,
    Receiver,
    SaslSettings,
    Secret,
    Settings,
    SpoolSettings,
    TlsSettings,
    ZooKeeperSettings,
    session_timeouts,
)

__all__ = [
    "ClusterSettings",
    "EvidenceSettings",
    "HttpSettings",
    "KubernetesSettings",
    "LedgerMode",
    "Receiver",
    "SaslSettings",
    "Secret",
    "Settings",
    "SettingsError",
    "SpoolSettings",
    "TlsSettings",
    "ZooKeeperSettings",
    "load",
    "load_cluster",
    "session_timeouts",
]
