"""The fields that the template of a rule's summary may use."""

from collections.abc import Mapping, Sequence
from typing import Final

from sidecar.core.alerting import phrases
from sidecar.core.alerting.alerts import Alert
from sidecar.core.alerting.subject import Failover, Subject
from sidecar.core.cluster.record_lines import death_line
from sidecar.core.failover.death_verdict import DeathVerdict
from sidecar.core.pods import Pods, name_at
from sidecar.core.sanitize import clean

EXAMPLE: Final[Mapping[str, object]] = {
    "alert": "FlinkLeaderChanged",
    "severity": "warning",
    "reason": "FIRST",
    "status": "RECOVERING",
    "sentence": "jm-1 leads after 4 s, 3 of 4 jobs run",
    "cluster_id": "orders",
    "store": "zookeeper",
    "observer": "jobmanager-0",
    "external_labels": {"env": "prod"},
    "component": "dispatcher",
    "components": ["dispatcher", "resource_manager", "rest_server"],
    "job_id": "",
    "before": {"host": "jm-0", "address": "jm-0:6123", "pod": "jm-0"},
    "after": {"host": "jm-1", "address": "jm-1:6123", "pod": "jm-1"},
    "vacant_seconds": 4.25,
    "downtime_seconds_at_least": 4.25,
    "downtime_seconds_at_most": 17.5,
    "count": 3,
    "episode_id": "0c9a4f8e-8f0b-5e0a-9d2c-3f1f5c1c6a11",
    "cause": "jobmanager_lost",
    "confidence": "medium",
    "planned": "true",
    "death": {
        "reason": "oom_killed",
        "confidence": "high",
        "exit_code": 137,
        "limit_bytes": 1677721600,
        "fault": "",
        "line": "JobManager jm-0 was OOM-killed (exit 137, limit 1600 MiB)",
    },
    "jobs_moved": 4,
    "jobs_away": 1,
    "jobs_total": 5,
    "recovery": {"verdict": "recovered"},
}
"""The fields of a template, with example values: see docs/reference/rules.md."""


def fields(subject: Subject) -> dict[str, object]:
    """The fields for a message, as in EXAMPLE."""
    alerts, policy, failover = subject.headline.alerts, subject.policy, subject.failover
    first = alerts[0]
    pods = subject.pods.get(first.cluster_id, {})
    return {
        "alert": subject.headline.rule.alert,
        "severity": subject.headline.severity.value,
        "reason": subject.notice.reason.value,
        "status": subject.status.status.value if subject.status else "",
        "sentence": subject.status.sentence if subject.status else "",
        "cluster_id": clean(first.cluster_id),
        "store": policy.store_of(first.cluster_id).value,
        "observer": policy.observer,
        "external_labels": policy.external_labels,
        "component": first.component.component.value if first.component else "",
        "components": sorted({alert.component.component.value for alert in alerts if alert.component}),
        "job_id": (first.component.job_id if first.component else None) or "",
        "before": _leader(first.before, pods),
        "after": _leader(first.after, pods),
        "vacant_seconds": max((a.vacant_seconds for a in alerts if a.vacant_seconds is not None), default=0.0),
        **_downtime(alerts),
        "count": first.count or 0,
        **_failover(failover),
    }


def _failover(failover: Failover | None) -> dict[str, object]:
    """The fields of a failover, empty if the alerts belong to none."""
    recovery = failover.recovery if failover else None
    return {
        "episode_id": failover.episode.id if failover else "",
        "cause": failover.verdict.cause.value if failover else "unknown",
        "confidence": failover.verdict.confidence.value if failover else "none",
        "planned": (failover.planned if failover else None) or "",
        "death": _death(failover.death if failover else None),
        "jobs_moved": failover.jobs.moved if failover else 0,
        "jobs_away": failover.jobs.away if failover else 0,
        "jobs_total": failover.jobs.total if failover else 0,
        "recovery": {"verdict": recovery.verdict if recovery else ""},
    }


def _death(death: DeathVerdict | None) -> dict[str, object]:
    """The fields of a death, empty if it is not known."""
    return {
        "reason": death.reason.value if death else "",
        "confidence": death.confidence.value if death else "",
        "exit_code": (death.exit_code if death else None) or 0,
        "limit_bytes": (death.limit_bytes if death else None) or 0,
        "fault": clean((death.fault if death else None) or ""),
        "line": death_line(death) if death else "",
    }


def _downtime(alerts: Sequence[Alert]) -> dict[str, float]:
    """For how long no leader worked, the longest of all alerts; 0 if not known."""
    at_least = [alert.downtime_seconds_at_least or 0.0 for alert in alerts]
    at_most = [alert.downtime_seconds_at_most for alert in alerts if alert.downtime_seconds_at_most is not None]
    return {
        "downtime_seconds_at_least": max(at_least),
        "downtime_seconds_at_most": max(at_most) if len(at_most) == len(alerts) else 0.0,
    }


def _leader(host_port: str | None, pods: Pods) -> dict[str, str]:
    """The fields of a leader empty if it is not known."""
    names = {"host": phrases.host(host_port), "address": host_port, "pod": name_at(pods, host_port)}
    return {name: clean(text or "") for name, text in names.items()}
