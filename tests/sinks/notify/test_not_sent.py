"""A message is delivered only when something was sent: what a plugin calls a success without a request is an outcome of its own."""

from queue import Queue

import pytest
from msgspec.structs import replace

from sidecar.core.alerting.alerts import Reason
from sidecar.core.observations import DeliveryOutcome
from sidecar.core.policy.policy import Severity
from sidecar.lab.receivers import HttpReceiver, MailReceiver
from sidecar.sinks.notify import apprise_sender as sender
from sidecar.sinks.notify.message import Answer
from sidecar.sinks.notify.notifier import Notifier
from tests.kit.receivers import RawServer, apprise
from tests.sinks.notify.test_ledger_client import FIRST, LATER, Observers

# Apprise's mail plugin imports it before Python 3.13.
pytestmark = pytest.mark.filterwarnings("ignore:'imghdr' is deprecated:DeprecationWarning")

KEY = "T0kenT0kenT0kenT0kenT0kenT0ken12"
SERVICES = {"opsgenie": f"opsgenie://{KEY}/", "jira": f"jira://{KEY}/"}


def send(url: str, notify_type: str) -> Answer:
    """One attempt."""
    return sender.send(url, "title", "body", notify_type, 10.0)


def at_home(monkeypatch: pytest.MonkeyPatch, address: str) -> None:
    """The plugins are real; the address of their service is that of a server here."""
    from apprise.plugins import jira, opsgenie

    for table in (opsgenie.OPSGENIE_API_LOOKUP, jira.JIRA_API_LOOKUP):
        for region in table:
            monkeypatch.setitem(table, region, f"http://{address}/")


@pytest.fixture(params=SERVICES)
def service(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch, web: HttpReceiver) -> str:
    """The URL of a service that is served here."""
    at_home(monkeypatch, web.address)
    return SERVICES[str(request.param)]


@pytest.mark.parametrize("notify_type", ["success", "info"])
def test_a_message_without_a_request_is_not_delivered(service: str, web: HttpReceiver, notify_type: str) -> None:
    """These plugins close or comment on what the same process opened; otherwise they do nothing and report success."""
    scheme = service.partition(":")[0]
    why = f"{scheme}:// sends nothing for a message of the type {notify_type}"
    assert send(service, notify_type) == Answer("not_sent", why)
    assert web.received == []


def test_a_message_with_a_request_is_delivered(monkeypatch: pytest.MonkeyPatch, service: str) -> None:
    """The same services, for an alert."""
    answer = b'HTTP/1.1 202 x\r\nContent-Length: 18\r\n\r\n{"requestId": "1"}'
    with RawServer(lambda: [answer]) as server:
        at_home(monkeypatch, server.url.removeprefix("json://").rstrip("/"))
        assert send(service, "failure").outcome == "delivered"
        assert server.requests == 1


def test_a_failure_without_a_request_is_a_failure(monkeypatch: pytest.MonkeyPatch, service: str) -> None:
    """Nothing was sent, and the plugin reports it: the attempt is retried."""
    from apprise import NotifyBase

    monkeypatch.setattr(NotifyBase, "notify", lambda *_, **__: False)
    assert send(service, "success").outcome == "failed"


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


def test_each_attempt_counts_for_itself(service: str, web: HttpReceiver) -> None:
    """Requests of an earlier attempt do not count."""
    with RawServer(lambda: [b"HTTP/1.1 200 x\r\nContent-Length: 0\r\n\r\n"]) as server:
        assert send(server.url, "info").outcome == "delivered"
    assert send(service, "success").outcome == "not_sent"
    assert web.received == []


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
    urls = {"ops#0": apprise(SERVICES["opsgenie"])}
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
        "heartbeat to ops#0 failed: opsgenie:// sends nothing for a message of the type info"
    ]
