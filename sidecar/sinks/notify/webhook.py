"""Sends Alertmanager's webhook payload, version 4 (docs/reference/webhook.schema.json). Used only in the sender's child process."""

import hashlib
import hmac
import time
from collections.abc import Mapping, Sequence
from typing import Any, Final, Literal, cast

from msgspec import Struct, field, json

from sidecar.core.message import Message, MessageAlert, MessageDeath, MessageRecovery
from sidecar.core.moment import timestamp
from sidecar.net.endpoints import Webhook
from sidecar.sinks.notify.http_client import client_of
from sidecar.sinks.notify.sender_protocol import Answer

SIGNATURE: Final = "X-Flink-HA-Signature"
_NEVER: Final = "0001-01-01T00:00:00Z"
"""Alertmanager's `endsAt` of an alert that fires."""


def deliver(message: Message, endpoint: Webhook, seconds: float) -> Answer:
    """Send one message once."""
    content, headers = json.encode(payload(message)), {}
    if endpoint.hmac_secret:
        headers[SIGNATURE] = signature(endpoint.hmac_secret.reveal(), content, int(time.time()))
    client = client_of(endpoint, seconds, endpoint.hmac_secret)
    reply = client.post_json(endpoint.url.reveal(), content, headers)
    return reply if isinstance(reply, Answer) else Answer("delivered")


class PayloadAlert(Struct, frozen=True, kw_only=True, rename="camel"):
    """One alert."""

    status: Literal["firing", "resolved"]
    labels: dict[str, str]
    """With `alertname`."""
    annotations: dict[str, str]
    starts_at: str
    """RFC 3339, UTC."""
    ends_at: str
    """0001-01-01T00:00:00Z while it fires."""
    generator_url: str = field(name="generatorURL")
    fingerprint: str
    """Equal for every observer of an event."""


class Payload(Struct, frozen=True, kw_only=True):
    """What is posted. The fields from `reason` on are not Alertmanager's."""

    version: Literal["4"] = "4"
    group_key: str = field(name="groupKey")
    """The key of the incident: the same in all messages about it, from every observer."""
    truncated_alerts: int = field(name="truncatedAlerts")
    """Alerts of the message that are left out of `alerts`."""
    status: Literal["firing", "resolved"]
    receiver: str
    group_labels: dict[str, str] = field(name="groupLabels")
    common_labels: dict[str, str] = field(name="commonLabels")
    common_annotations: dict[str, str] = field(name="commonAnnotations")
    external_url: str = field(name="externalURL")
    """The page about it; empty without `http.external_url`."""
    alerts: list[PayloadAlert]
    reason: Literal["FIRST", "GREW", "SHRANK", "REPEAT_INTERVAL_ELAPSED", "RESOLVED", "HEARTBEAT"]
    severity: Literal["info", "warning", "critical"]
    cluster_status: str = field(name="clusterStatus")
    """That of the cluster: `DOWN`, `UNCHECKED`, `OK`, … Empty: the message is about no incident."""
    sentence: str
    """That status in a sentence."""
    title: str
    text: str
    facts: dict[str, str]
    death: MessageDeath | None = None
    """Null: not known, or no alert is about that."""
    recovery: MessageRecovery | None = None
    """Null: not assessed."""
    possible_duplicate: bool
    """True if an earlier attempt may have arrived."""


def payload(message: Message) -> Payload:
    alerts = [_alert(message, alert) for alert in message.alerts]
    return Payload(
        group_key=message.incident,
        truncated_alerts=message.alerts_left_out,
        status="resolved" if message.reason == "RESOLVED" else "firing",
        receiver=message.receiver,
        group_labels=dict(message.group_labels),
        common_labels=_common([alert.labels for alert in alerts]),
        common_annotations=_common([alert.annotations for alert in alerts]),
        external_url=message.link or "",
        alerts=alerts,
        reason=cast("Any", message.reason),
        severity=cast("Any", message.severity),
        cluster_status=message.status,
        sentence=message.sentence,
        title=message.title,
        text=message.body,
        facts=dict(message.facts),
        death=message.death,
        recovery=message.recovery,
        possible_duplicate=message.possible_duplicate,
    )


def _alert(message: Message, alert: MessageAlert) -> PayloadAlert:
    # An event of an incident that is not closed yet fires: what is resolved from the start would open nothing.
    ended = alert.ended if message.goes_on or message.reason == "RESOLVED" else 0
    return PayloadAlert(
        status="resolved" if ended else "firing",
        labels={"alertname": alert.labels.get("alert", ""), **alert.labels},
        annotations={"summary": alert.summary},
        starts_at=timestamp(alert.began),
        ends_at=timestamp(ended) if ended else _NEVER,
        generator_url=message.link or "",
        fingerprint=alert.id,
    )


def _common(maps: Sequence[Mapping[str, str]]) -> dict[str, str]:
    """The labels or annotations that all have in common."""
    first = maps[0] if maps else {}
    return {name: value for name, value in first.items() if all(other.get(name) == value for other in maps)}


def signature(secret: str, content: bytes, at: int) -> str:
    """The value of the header: the time (seconds since the epoch), and an HMAC-SHA256 over the time, a dot and the body."""
    signed = hmac.new(secret.encode(), f"{at}.".encode() + content, hashlib.sha256).hexdigest()
    return f"t={at},v1={signed}"
