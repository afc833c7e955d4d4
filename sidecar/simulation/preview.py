"""`alert preview`: a failover as each destination would get it, under this configuration. The failover is simulated; nothing is sent."""

from collections.abc import Iterator, Mapping
from typing import Final

from msgspec import Struct
from msgspec.structs import replace

from sidecar.core.alerting.outbox import Delivery
from sidecar.core.flink.leadership import CLUSTER_COMPONENTS
from sidecar.core.moment import SECOND, Timestamp, timestamp
from sidecar.core.policy.policy import Policy, Source, Store
from sidecar.net.endpoints import Alertmanager, AppriseUrl, Endpoint, Slack
from sidecar.settings.rule_tests import JobAct, ScenarioEvent, Who
from sidecar.simulation.rule_test import simulated

_STARTS: Final = 1_767_614_400 * SECOND
"""Wall time of the simulated start: that of tests of rules, too."""
_JOBS: Final = ("orders", "payments")
_ALL: Final[tuple[Who, ...]] = (*CLUSTER_COMPONENTS, *_JOBS)
_UNTIL: Final = 300 * SECOND


class PreviewedAlert(Struct, frozen=True):
    """One alert of a message to a service that gets alerts one by one."""

    labels: Mapping[str, str]
    annotations: Mapping[str, str]
    resolved: bool


class Preview(Struct, frozen=True):
    """One message to one destination."""

    at: Timestamp
    destination: str
    payload: str
    """The kind of payload that the service gets."""
    reason: str
    key: str
    """The key of the incident."""
    title: str
    body: str
    facts: tuple[tuple[str, str], ...]
    link: str | None
    alerts: tuple[PreviewedAlert, ...]
    """The alerts of a message to an Alertmanager."""


def previews(policy: Policy, endpoints: Mapping[str, Endpoint]) -> Iterator[Preview]:
    """The messages about a failover of the first configured cluster, in the order of time."""
    name = next(iter(policy.stores), "default")
    evidence = policy.evidence & {Source.FLINK_REST}
    policy = replace(policy, stores={name: Store.ZOOKEEPER}, finds=None, evidence=evidence, heartbeats=())
    for delivery in simulated(policy, _failover(name), _STARTS, _UNTIL):
        yield _preview(delivery, endpoints[delivery.destination])


def _failover(cluster: str) -> list[ScenarioEvent]:
    """A leader is lost. The next one leads after 40 s, and the jobs run again 15 s later."""
    running, restarting = dict.fromkeys(_JOBS, JobAct.RUNNING), dict.fromkeys(_JOBS, JobAct.RESTARTING)
    return [
        ScenarioEvent(0, cluster, _JOBS, dict.fromkeys(_ALL, "jm-a"), jobs=running, contenders=2),
        ScenarioEvent(60 * SECOND, cluster, gone=_ALL, contenders=1),
        ScenarioEvent(100 * SECOND, cluster, leader=dict.fromkeys(_ALL, "jm-b"), jobs=restarting),
        ScenarioEvent(115 * SECOND, cluster, jobs=running, contenders=2),
    ]


def preview_lines(preview: Preview) -> Iterator[str]:
    yield f"{preview.destination}: {preview.payload}"
    yield f"  at      {preview.at}"
    yield f"  reason  {preview.reason}"
    if preview.alerts:
        for alert in preview.alerts:
            labels = ", ".join(f'{name}="{value}"' for name, value in sorted(alert.labels.items()))
            yield f"  alert   {'resolved' if alert.resolved else 'firing'} {{{labels}}}"
            for name, text in alert.annotations.items():
                yield from _indented(f"{name}: {text}", " " * 10)
        return
    yield f"  key     {preview.key}"
    yield f"  title   {preview.title}"
    yield from _indented(preview.body, "    ")
    yield from (f"    {name}: {value}" for name, value in preview.facts)
    if preview.link:
        yield f"    {preview.link}"


def _indented(text: str, by: str) -> Iterator[str]:
    return (f"{by}{line}" for line in text.splitlines() if line)


def _preview(delivery: Delivery, endpoint: Endpoint) -> Preview:
    return Preview(
        timestamp(delivery.queued_at.wall),
        delivery.destination,
        _payload(endpoint),
        delivery.reason.value,
        delivery.incident,
        delivery.title,
        delivery.body,
        delivery.facts,
        delivery.link,
        tuple(PreviewedAlert(alert.labels, alert.annotations, alert.ended > 0) for alert in delivery.feed),
    )


def _payload(endpoint: Endpoint) -> str:
    """The kind of payload, without any part of a URL but its scheme."""
    match endpoint:
        case AppriseUrl(service=service):
            return f"{service}:// through Apprise" if service else "not an Apprise URL"
        case Slack():
            return "a message of Slack's Web API"
        case Alertmanager():
            return "alerts for an Alertmanager's API, version 2"
    return "Alertmanager's webhook payload, version 4"
