"""Every key there is, with its default as one would write it. docs/configuration.md is held to this by a test."""

from collections.abc import Mapping
from typing import Final, NamedTuple


class Keys(NamedTuple):
    """The keys of one section."""

    defaults: Mapping[str, str | None]
    """None where a key has no default."""
    not_yet: frozenset[str] = frozenset()
    """What is to come: told apart from a mistake."""


CONFIG: Final = Keys(
    {
        "flink_conf_dir": None,
        "zookeeper": None,
        "kubernetes": None,
        "clusters": None,
        "observer": None,
        "external_labels": None,
        "state_dir": "/var/lib/flink-ha-sidecar",
        "spool": None,
        "ledger": None,
        "trust_window": "3s",
        "http": None,
        "rule_files": None,
        "rules": None,
        "route": None,
        "receivers": None,
    },
    not_yet=frozenset({"inhibit_rules", "time_intervals"}),
)
CLUSTER: Final = Keys({"flink_conf_dir": None, "zookeeper": None, "kubernetes": None})
"""Of one of several clusters: what stands at the top where there is one."""
RULE_FILE: Final = Keys(
    {"rules": None, "route": None, "receivers": None}, not_yet=frozenset({"inhibit_rules", "time_intervals"})
)
ZOOKEEPER: Final = Keys(
    {
        "quorum": None,
        "root": "/flink",
        "cluster_id": "/default",
        "session_timeout": "1m",
        "connection_timeout": "15s",
        "tolerate_suspended_connections": "false",
        "tls": None,
        "sasl": None,
        "authorization": None,
    }
)
TLS: Final = Keys({"ca_file": None, "certificate_file": None, "key_file": None, "key_password": None})
SASL: Final = Keys({"username": None, "password": None})
AUTHORIZATION: Final = Keys({"digest": None})
ZOOKEEPER_SECURITY: Final[Mapping[str, Keys]] = {"tls": TLS, "sasl": SASL, "authorization": AUTHORIZATION}
"""The sections of `zookeeper`; their keys are called `tls.ca_file`, … where a cluster is put together."""
ZOOKEEPER_SECRETS: Final = frozenset({"tls.key_password", "sasl.password", "authorization.digest"})
KUBERNETES: Final = Keys({"cluster_id": None, "namespace": None, "kubeconfig": None, "context": None})
SPOOL: Final = Keys(
    {"url": "file:///var/spool/flink-ha-sidecar", "roll_interval": "10s", "roll_records": "1000"},
)
LEDGER: Final = Keys({"mode": "auto"})
HTTP: Final = Keys({"host": "0.0.0.0", "port": "9250"})  # noqa: S104  probes and Prometheus come from outside the pod
RULE: Final = Keys(
    {"alert": None, "on": None, "for": "0", "severity": "warning"},
    not_yet=frozenset({"summary", "count", "within"}),
)
ROUTE: Final = Keys(
    {"receiver": None, "group_by": "[cluster_id]", "group_wait": "5s", "group_interval": "1m", "repeat_interval": "4h"},
    not_yet=frozenset({"matchers", "routes", "continue", "active_time_intervals", "mute_time_intervals"}),
)
RECEIVER: Final = Keys({"name": None, "urls": None, "send_resolved": "true"})

TRIGGERS_NOT_YET: Final = frozenset({"episodes"})

CLUSTER_OVERRIDES: Final = (
    *("flink_conf", "zookeeper", "root", "cluster_id"),
    *("kubernetes", "namespace", "kubeconfig", "context"),
)
OVERRIDES: Final = (*CLUSTER_OVERRIDES, "observer", "state_dir", "spool")
"""What the command line and the environment can say: `--flink-conf`, FLINK_HA_SIDECAR_FLINK_CONF, …"""
ENVIRONMENT_PREFIX: Final = "FLINK_HA_SIDECAR_"
