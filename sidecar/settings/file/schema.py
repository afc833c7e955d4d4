"""All configuration keys, by section, with their defaults as an operator would write them.

A test holds docs/reference/configuration.md to this.
"""

from collections.abc import Mapping
from typing import Final

Keys = Mapping[str, str | None]
"""The keys of one section; None: no default."""


def no_default(*keys: str) -> dict[str, None]:
    return dict.fromkeys(keys)


TLS: Final[Keys] = no_default("ca_file", "certificate_file", "key_file", "key_password")
SASL: Final[Keys] = no_default("username", "password")
AUTHORIZATION: Final[Keys] = no_default("digest")
ZOOKEEPER_SECURITY: Final[Mapping[str, Keys]] = {"tls": TLS, "sasl": SASL, "authorization": AUTHORIZATION}
"""The sections of `zookeeper`."""
SECRETS: Final = frozenset({"tls.key_password", "sasl.password", "authorization.digest"})
ZOOKEEPER: Final[Keys] = {
    "quorum": None,
    "root": "/flink",
    "cluster_id": "/default",
    "session_timeout": "1m",
    "connection_timeout": "15s",
    "tolerate_suspended_connections": "false",
    **no_default(*ZOOKEEPER_SECURITY),
}
ZOOKEEPER_FINDER: Final[Keys] = {**ZOOKEEPER, "clusters": None}
"""Of `zookeeper` at the top level, where it may find clusters."""
KUBERNETES_CLUSTER: Final[Keys] = {
    **no_default("cluster_id", "namespace", "kubeconfig", "context"),
    "pod_names": "false",
    "events": "false",
    "plans": "false",
    "deaths": "false",
}
KUBERNETES: Final[Keys] = {**KUBERNETES_CLUSTER, "selector": "type=flink-native-kubernetes", "namespaces": None}
CLUSTER: Final[Keys] = no_default("flink_conf_dir", "zookeeper", "kubernetes")
"""The keys that name a cluster, in each entry of `clusters`; at the top level where there is only one."""
LISTED_CLUSTER: Final[Keys] = {**CLUSTER, "slo": None}
SLO: Final[Keys] = {"leadership": None, "window": "30d"}
SPOOL: Final[Keys] = {"url": "file:///var/spool/flink-ha-sidecar", "roll_interval": "10s", "roll_records": "1000"}
LEDGER: Final[Keys] = {"mode": "auto"}
SILENCES: Final[Keys] = {"longest": "30d"}
LOG: Final[Keys] = {"format": "text"}
HTTP: Final[Keys] = {
    "host": "0.0.0.0",  # noqa: S104  probes and Prometheus connect from outside the pod
    "port": "9250",
    **no_default("external_url", "allowed_hosts"),
}
EVIDENCE: Final[Keys] = {
    **no_default("capture", "dir", "log"),
    "keep": "7d",
    "keep_megabytes": "200",
    "tls": None,
    "flink_rest": "auto",
}
FLINK_REST: Final[Keys] = {"interval": "10s", "patience": "10m"}
HA_CHECK: Final[Keys] = {"interval": "1h"}
RULE: Final[Keys] = {
    **no_default("alert", "on"),
    "for": "0",
    "severity": "warning",
    **no_default("count", "within"),
    "planned_budget": "5m",
    "age": "90d",
    "summary": None,
}
ROUTE: Final[Keys] = {
    **no_default("receiver", "matchers"),
    "group_by": "[cluster_id]",
    "group_wait": "5s",
    "group_interval": "1m",
    "repeat_interval": "4h",
    "continue": "false",
    **no_default("routes", "mute_time_intervals", "active_time_intervals"),
}
INHIBIT_RULE: Final[Keys] = no_default("source_matchers", "target_matchers", "equal")
TIME_INTERVAL: Final[Keys] = no_default("name", "time_intervals")
TIME_RANGE: Final[Keys] = no_default("times", "weekdays", "days_of_month", "months", "years", "location")
TIMES: Final[Keys] = no_default("start_time", "end_time")
WEBHOOK: Final[Keys] = no_default("url", "hmac_secret", "bearer_token", "username", "password", "ca_file")
SLACK: Final[Keys] = {**no_default("token", "channel"), "api_url": "https://slack.com/api"}
ALERTMANAGER: Final[Keys] = {
    **no_default("url", "urls", "bearer_token", "username", "password", "ca_file", "certificate_file", "key_file"),
    "event_duration": "10m",
}
RECEIVER: Final[Keys] = {
    **no_default("name", "urls", "webhook", "slack", "alertmanager"),
    "send_resolved": "true",
    "heartbeat": None,
}
RULE_FILE: Final[Keys] = no_default("rules", "shipped_rules", "route", "inhibit_rules", "time_intervals", "receivers")
CONFIG: Final[Keys] = {
    **CLUSTER,
    **no_default("clusters", "observer", "external_labels"),
    "state_dir": "/var/lib/flink-ha-sidecar",
    **no_default("spool", "ledger", "silences"),
    "trust_window": "3s",
    **no_default("log", "http", "evidence", "ha_check", "slo", "rule_files"),
    **RULE_FILE,
}

CLUSTER_OVERRIDES: Final = (
    *("flink_conf", "zookeeper", "root", "cluster_id"),
    *("kubernetes", "namespace", "kubeconfig", "context"),
)
OVERRIDES: Final = (*CLUSTER_OVERRIDES, "observer", "state_dir", "spool")
"""What the command line and the environment can set: `--flink-conf`, FLINK_HA_SIDECAR_FLINK_CONF, …"""
ENVIRONMENT_PREFIX: Final = "FLINK_HA_SIDECAR_"
