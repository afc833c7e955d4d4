"""A webhook gets Alertmanager's payload, as docs/reference/webhook.schema.json says, signed if wanted; what it answers decides."""

import base64
import hashlib
import hmac
import json
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from msgspec import json as typed
from msgspec.structs import replace

from sidecar.core.message import Message, MessageAlert, MessageDeath
from sidecar.net.endpoints import Secret, Webhook
from sidecar.sinks.notify import sender
from sidecar.sinks.notify.sender_protocol import Answer
from sidecar.sinks.notify.webhook import SIGNATURE, Payload
from tests import ROOT
from tests.kit.paging import Desk, Internet, Reply
from tests.kit.serving import serving

SCHEMA = ROOT / "docs" / "reference" / "webhook.schema.json"
BEGAN = 1_795_161_600_000_000
ALERTS = (
    MessageAlert(
        "0c9a4f8e", {"alert": "FlinkNoLeader", "cluster_id": "orders", "component": "dispatcher"}, "no leader", BEGAN
    ),
    MessageAlert(
        "1d0b5a9f",
        {"alert": "FlinkNoLeader", "cluster_id": "orders", "component": "rest_server"},
        "back",
        BEGAN,
        BEGAN + 1,
    ),
)
ENDPOINT = Webhook(Secret("https://bridge.example/hook/s3cretPath"))
FIRST = Message(
    "[CRITICAL] Flink orders: no leader for dispatcher",
    "dispatcher: no leader",
    "critical",
    reason="FIRST",
    incident="incident-1",
    receiver="ops",
    goes_on=True,
    facts=(("cluster", "orders"),),
    group_labels={"cluster_id": "orders"},
    alerts=ALERTS,
    alerts_left_out=2,
    death=MessageDeath("oom_killed", "high", ("x.",), 137, 1, address="jm-a:6123", pod="jm-a"),
    link="https://pods.example/episodes/1",
    status="DOWN",
    sentence="no leader for 43 s",
)


def send(message: Message, endpoint: Webhook = ENDPOINT) -> Answer:
    """One attempt."""
    return sender.send(message, endpoint, 5.0)


class Bridge(Desk):
    """What people already run."""

    host = "bridge.example"

    def __init__(self) -> None:
        super().__init__()
        self.reply = Reply(200, {})
        self.bodies: list[bytes] = []
        self.headers: dict[str, str] = {}

    def answer(self, path: str, headers: Any, body: bytes, /) -> Reply:
        """Keep it."""
        self.bodies.append(body)
        self.headers = {"path": path, **headers}
        return self.reply


@pytest.fixture(scope="module")
def internet(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Internet]:
    """Where the bridge is."""
    with serving(Internet(tmp_path_factory.mktemp("internet"), Bridge())) as served:
        yield served


@pytest.fixture
def bridge(internet: Internet, monkeypatch: pytest.MonkeyPatch) -> Bridge:
    """The endpoint."""
    for name, value in internet.environment.items():
        monkeypatch.setenv(name, value)
    found = internet.services["bridge.example"] = Bridge()
    return found


@pytest.mark.covers("receiver:webhook")
def test_the_payload_is_alertmanagers(bridge: Bridge) -> None:
    """Field by field; those that Alertmanager does not have come last."""
    assert send(FIRST) == Answer("delivered")
    (body,) = bridge.bodies
    page = "https://pods.example/episodes/1"
    assert json.loads(body) == {
        "version": "4",
        "groupKey": "incident-1",
        "truncatedAlerts": 2,
        "status": "firing",
        "receiver": "ops",
        "groupLabels": {"cluster_id": "orders"},
        "commonLabels": {"alertname": "FlinkNoLeader", "alert": "FlinkNoLeader", "cluster_id": "orders"},
        "commonAnnotations": {},
        "externalURL": page,
        "alerts": [
            {
                "status": "firing",
                "labels": {"alertname": "FlinkNoLeader", **ALERTS[0].labels},
                "annotations": {"summary": "no leader"},
                "startsAt": "2026-11-20T08:00:00.000000Z",
                "endsAt": "0001-01-01T00:00:00Z",
                "generatorURL": page,
                "fingerprint": "0c9a4f8e",
            },
            {
                "status": "resolved",
                "labels": {"alertname": "FlinkNoLeader", **ALERTS[1].labels},
                "annotations": {"summary": "back"},
                "startsAt": "2026-11-20T08:00:00.000000Z",
                "endsAt": "2026-11-20T08:00:00.000001Z",
                "generatorURL": page,
                "fingerprint": "1d0b5a9f",
            },
        ],
        "reason": "FIRST",
        "severity": "critical",
        "clusterStatus": "DOWN",
        "sentence": "no leader for 43 s",
        "title": FIRST.title,
        "text": FIRST.body,
        "recovery": None,
        "facts": {"cluster": "orders"},
        "death": {
            "reason": "oom_killed",
            "confidence": "high",
            "facts": ["x."],
            "exit_code": 137,
            "limit_bytes": 1,
            "fault": None,
            "address": "jm-a:6123",
            "pod": "jm-a",
        },
        "possible_duplicate": False,
    }


def test_the_schema_is_the_documented_one() -> None:
    """docs/reference/webhook.schema.json is made from the types. `python -m tests.sinks.notify.test_webhook` writes it."""
    assert json.loads(SCHEMA.read_text()) == schema()


@pytest.mark.parametrize("reason", ["FIRST", "GREW", "SHRANK", "REPEAT_INTERVAL_ELAPSED", "RESOLVED", "HEARTBEAT"])
def test_every_message_fits_the_schema(bridge: Bridge, reason: str) -> None:
    """Also one with hostile text in it, and one without alerts."""
    hostile = replace(FIRST, reason=reason, title='"\\\x00\u2028', alerts=(), possible_duplicate=True, goes_on=False)
    for message in (replace(FIRST, reason=reason), hostile):
        assert send(message) == Answer("delivered")
        found = typed.decode(bridge.bodies[-1], type=Payload)
        assert (found.reason, found.possible_duplicate) == (reason, message.possible_duplicate)
        assert found.status == ("resolved" if reason == "RESOLVED" else "firing")


def test_an_event_fires_until_its_incident_is_closed(bridge: Bridge) -> None:
    """What is resolved from the start opens nothing at a bridge."""
    event = replace(FIRST, alerts=ALERTS[1:], goes_on=False)
    for message in (event, replace(event, reason="RESOLVED")):
        send(message)
    assert [json.loads(body)["alerts"][0]["status"] for body in bridge.bodies] == ["firing", "resolved"]


def test_a_signature_is_over_time_and_body(bridge: Bridge, monkeypatch: pytest.MonkeyPatch) -> None:
    """As the documents say that it is verified."""
    monkeypatch.setattr("sidecar.sinks.notify.webhook.time.time", lambda: 1_795_161_600.7)
    url = Secret("https://bridge.example/hook")
    assert send(FIRST, Webhook(url, hmac_secret=Secret("s3cret"))) == Answer("delivered")
    at, _, given = bridge.headers[SIGNATURE].partition(",")
    expected = hmac.new(b"s3cret", b"1795161600." + bridge.bodies[0], hashlib.sha256).hexdigest()
    assert (at, given) == ("t=1795161600", f"v1={expected}")


@pytest.mark.parametrize(
    ("endpoint", "authorization"),
    [
        (Webhook(Secret("https://bridge.example/"), bearer_token=Secret("s3cret")), "Bearer s3cret"),
        (Webhook(Secret("https://bridge.example/"), username="u", password=Secret("p")), "Basic dTpw"),
        (
            Webhook(Secret("https://bridge.example/"), username="jürgen", password=Secret(" correct hörse")),
            "Basic " + base64.b64encode("jürgen: correct hörse".encode()).decode(),
        ),
        (Webhook(Secret("https://bridge.example/")), None),
    ],
)
def test_it_authenticates_as_configured(bridge: Bridge, endpoint: Webhook, authorization: str | None) -> None:
    """By bearer token, by user and password, or not at all."""
    assert send(FIRST, endpoint) == Answer("delivered")
    assert bridge.headers.get("Authorization") == authorization


@pytest.mark.parametrize(
    ("reply", "outcome", "detail"),
    [
        (Reply(200, {"ok": False, "error": "no s3cretPath"}), "rejected", "the answer refuses it: no s3cretPath"),
        (Reply(302, {}, {"Location": "https://bridge.example/2"}), "rejected", "bridge.example answered 302"),
        (Reply(400, {"message": "x" * 500}), "rejected", f'bridge.example answered 400 {{"message": "{"x" * 87}'),
        (Reply(429, {}, {"Retry-After": "7"}), "rate_limited", "bridge.example answered 429 {}"),
        (Reply(503, {}), "failed", "bridge.example answered 503 {}"),
    ],
)
def test_what_is_not_accepted_is_one_line(bridge: Bridge, reply: Reply, outcome: str, detail: str) -> None:
    """Nothing is followed, and what is said is bounded."""
    bridge.reply = reply
    answer = send(FIRST)
    assert (answer.outcome, answer.detail) == (outcome, detail)
    assert len(bridge.bodies) == 1


def test_no_secret_is_in_a_reason(bridge: Bridge) -> None:
    """Whatever the answer repeats."""
    token = Secret("s3cretToken")
    bridge.reply = Reply(403, {"you sent": "s3cretToken", "to": "https://bridge.example/hook/s3cretPath"})
    endpoint = Webhook(
        Secret("https://bridge.example/hook/s3cretPath"), hmac_secret=Secret("s3cretKey"), bearer_token=token
    )
    assert "s3cret" not in send(FIRST, endpoint).detail


def test_one_that_cannot_be_reached_has_failed(bridge: Bridge) -> None:
    """And one whose certificate is not trusted."""
    assert send(FIRST, Webhook(Secret("https://nowhere.example/"))).outcome == "failed"
    untrusted = Webhook(Secret("https://bridge.example/"), ca_file="/etc/ssl/certs/ca-certificates.crt")
    answer = send(FIRST, untrusted)
    assert answer.outcome == "failed"
    assert "CERTIFICATE_VERIFY_FAILED" in answer.detail


@pytest.mark.parametrize("before", range(60, 101, 4))
def test_a_secret_is_not_shown_in_part_where_an_answer_is_cut(bridge: Bridge, before: int) -> None:
    """Wherever it is in the answer."""
    bridge.reply = Reply(403, "x" * before + " s3cret-token-0123456789")
    endpoint = Webhook(Secret("https://bridge.example/"), bearer_token=Secret("s3cret-token-0123456789"))
    assert "s3c" not in send(FIRST, endpoint).detail


def test_an_answer_that_repeats_the_credentials_does_not_show_them(bridge: Bridge) -> None:
    """Neither as they are configured, nor as the header has them."""
    header = base64.b64encode(b"flink:s3cret-password").decode()
    bridge.reply = Reply(403, {"got": f"Basic {header}", "user": "flink:s3cret-password"})
    endpoint = Webhook(Secret("https://bridge.example/"), username="flink", password=Secret("s3cret-password"))
    answer = send(FIRST, endpoint)
    assert answer.outcome == "rejected"
    assert "s3cret" not in answer.detail
    assert header not in answer.detail


def schema() -> dict[str, Any]:
    """The schema of the payload."""
    made: Callable[[Any], dict[str, Any]] = typed.schema
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", **made(Payload)}


if __name__ == "__main__":
    SCHEMA.write_text(json.dumps(schema(), indent=2) + "\n")
