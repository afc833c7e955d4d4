"""Every key there is, with its default as one would write it. docs/configuration.md is held to this by a test."""

from collections.abc import Mapping
from typing import Final, NamedTuple


class Keys(NamedTuple):
    """The keys of one section."""

    defaults: Mapping[str, str | None]
    """None where a key has no default."""


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
        "evidence": None,
        "rule_files": None,
        "rules": None,
        "route": None,
        "inhibit_rules": None,
        "time_intervals": None,
        "receivers": None,
    }
)
CLUSTER: Final = Keys({"flink_conf_dir": None, "zookeeper": None, "kubernetes": None})
"""Of one of several clusters: what stands at the top where there is one."""
RULE_FILE: Final = Keys(dict.fromkeys(("rules", "route", "inhibit_rules", "time_intervals", "receivers")))
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
HTTP: Final = Keys({"host": "0.0.0.0", "port": "9250", "external_url": None, "allowed_hosts": None})  # noqa: S104  probes and Prometheus come from outside the pod
EVIDENCE: Final = Keys({"capture": None, "dir": None, "keep": "7d", "keep_megabytes": "200", "tls": None})
RULE: Final = Keys(
    {
        "alert": None,
        "on": None,
        "for": "0",
        "severity": "warning",
        "count": None,
        "within": None,
        "summary": None,
    }
)
ROUTE: Final = Keys(
    {
        "receiver": None,
        "matchers": None,
        "group_by": "[cluster_id]",
        "group_wait": "5s",
        "group_interval": "1m",
        "repeat_interval": "4h",
        "continue": "false",
        "routes": None,
        "mute_time_intervals": None,
        "active_time_intervals": None,
    }
)
INHIBIT_RULE: Final = Keys({"source_matchers": None, "target_matchers": None, "equal": None})
TIME_INTERVAL: Final = Keys({"name": None, "time_intervals": None})
TIME_RANGE: Final = Keys(
    dict.fromkeys(("times", "weekdays", "days_of_month", "months", "years", "location")),
)
TIMES: Final = Keys({"start_time": None, "end_time": None})
RECEIVER: Final = Keys({"name": None, "urls": None, "send_resolved": "true", "heartbeat": None})

CLUSTER_OVERRIDES: Final = (
    *("flink_conf", "zookeeper", "root", "cluster_id"),
    *("kubernetes", "namespace", "kubeconfig", "context"),
)
OVERRIDES: Final = (*CLUSTER_OVERRIDES, "observer", "state_dir", "spool")
"""What the command line and the environment can say: `--flink-conf`, FLINK_HA_SIDECAR_FLINK_CONF, …"""
ENVIRONMENT_PREFIX: Final = "FLINK_HA_SIDECAR_"
