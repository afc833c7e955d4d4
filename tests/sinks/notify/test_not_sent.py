"""A message is delivered only when something was sent: what a plugin calls a success without a request is an outcome of its own."""

from queue import Queue

import pytest
from msgspec.structs import replace

from sidecar.core.alerting.alerts import Reason
from sidecar.core.observations import DeliveryOutcome
from sidecar.core.policy.policy import Severity
from sidecar.sinks.notify.notifier import Notifier
from sidecar.sinks.notify.sender_protocol import Answer
from tests.kit.receivers import RawServer, apprise, send_by_url
from tests.lab.receivers import MailReceiver
from tests.sinks.notify.test_ledger_client import FIRST, LATER, Observers

# Apprise's mail plugin imports it before Python 3.13.
pytestmark = pytest.mark.filterwarnings("ignore:'imghdr' is deprecated:DeprecationWarning")

SILENT = "json://127.0.0.1:1/"
BETTER_STACK = "betterstack://T0kenT0kenT0kenT0kenT0ken"


def send(url: str, notify_type: str) -> Answer:
    """One attempt."""
    return send_by_url(url, "title", "body", notify_type, 10.0)


@pytest.fixture
def silent(monkeypatch: pytest.MonkeyPatch) -> str:
    """The URL of a service whose plugin, replaced here, calls it a success to do nothing."""
    from apprise.plugins.custom_json import NotifyJSON

    monkeypatch.setattr(NotifyJSON, "send", lambda *_, **__: True)
    return SILENT


@pytest.mark.parametrize("notify_type", ["success", "info"])
def test_a_message_without_a_request_is_not_delivered(silent: str, notify_type: str) -> None:
    """Whatever the plugin says."""
    why = f"json:// sends nothing for a message of the type {notify_type}"
    assert send(silent, notify_type) == Answer("not_sent", why)


def test_a_service_that_cannot_close_gets_no_resolve() -> None:
    """It would open an incident that says that all is well."""
    why = "betterstack:// opens an incident for each message and closes none: RESOLVED is not sent"
    assert send(BETTER_STACK, "success") == Answer("not_sent", why)


@pytest.mark.parametrize(
    "body",
    [
        '{"ok": false, "error": "token_revoked"}',
        '{"result": "failure", "message": "bad key"}',
        '{"success": false}',
        '{"status": "error", "errors": ["no"]}',
    ],
)
def test_an_answer_that_refuses_is_not_a_delivery(body: str) -> None:
    """Some services answer 200 to everything; what the body says counts."""
    with RawServer(lambda: [f"HTTP/1.1 200 x\r\nContent-Length: {len(body)}\r\n\r\n{body}".encode()]) as server:
        answer = send(server.url, "failure")
    assert answer.outcome == "rejected"
    assert answer.detail.startswith("json:// answered with 200, but refused: ")


@pytest.mark.parametrize("body", ["ok", "[false]", '{"ok": true}', '{"status": "success"}', "{", '{"result": {}}'])
def test_any_other_answer_of_200_is_a_delivery(body: str) -> None:
    """Nothing in it refuses."""
    with RawServer(lambda: [f"HTTP/1.1 200 x\r\nContent-Length: {len(body)}\r\n\r\n{body}".encode()]) as server:
        assert send(server.url, "failure").outcome == "delivered"


def test_a_failure_without_a_request_is_a_failure(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing was sent, and the plugin reports it: the attempt is retried."""
    from apprise import NotifyBase

    monkeypatch.setattr(NotifyBase, "notify", lambda *_, **__: False)
    assert send(SILENT, "success").outcome == "failed"


def test_a_mail_is_sent_without_http(mail: MailReceiver) -> None:
    """SMTP is a connection of its own."""
    assert send(mail.url, "success").outcome == "delivered"
    assert len(mail.received) == 1


def test_a_datagram_is_sent_without_a_connection() -> None:
    """A remote syslog has neither HTTP nor an answer."""
    import socket

    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as server:
        server.bind(("127.0.0.1", 0))
        server.settimeout(10)
        url = f"rsyslog://127.0.0.1:{server.getsockname()[1]}/"
        assert send(url, "success").outcome == "delivered"
        assert b"title" in server.recv(65536)


def test_each_attempt_counts_for_itself(mail: MailReceiver, silent: str) -> None:
    """Requests of an earlier attempt do not count."""
    assert send(mail.url, "info").outcome == "delivered"
    assert send(silent, "success").outcome == "not_sent"


def test_others_do_not_try_what_cannot_be_sent() -> None:
    """With the same configuration nothing would come of it; and the ledger knows that the alert is over, should it begin again."""
    observers = Observers()
    a, b = observers.make("a"), observers.make("b")
    a.settle(FIRST, a.claim(FIRST).claim, DeliveryOutcome.DELIVERED)
    a.settle(LATER, a.claim(LATER).claim, DeliveryOutcome.NOT_SENT)
    assert b.claim(LATER).outcome is DeliveryOutcome.ALREADY_TOLD


def test_a_heartbeat_that_cannot_be_sent_is_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    """It leaves no record, and its receiver would wait for it for ever."""
    settled: Queue[DeliveryOutcome] = Queue()
    urls = {"ops#0": apprise("opsgenie://T0kenT0kenT0kenT0kenT0kenT0ken12/")}
    notifier = Notifier(urls, lambda _, attempt: settled.put(attempt.outcome), time_limit=120.0, workers=1)
    notifier.start()
    try:
        for number in range(2):
            beat = replace(FIRST, id=f"{number}", parts=(), reason=Reason.HEARTBEAT, severity=Severity.INFO)
            notifier.send(beat)
            assert settled.get(timeout=150) is DeliveryOutcome.NOT_SENT
    finally:
        notifier.stop()
    assert [record.getMessage() for record in caplog.records] == [
        "heartbeat to ops#0 failed: opsgenie:// takes incidents, no heartbeats: give heartbeats a receiver of another service"
    ]
