"""What is posted to a real Alertmanager, and what becomes of an attempt. The sender runs in this process."""

import socket
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread

import pytest
from msgspec.structs import replace

from sidecar.core.message import FeedAlert, Message
from sidecar.net.endpoints import Alertmanager as Endpoint
from sidecar.net.endpoints import Secret
from sidecar.sinks.notify import alertmanager as sender
from sidecar.sinks.notify.sender_protocol import Answer
from tests.kit.alertmanager import Alertmanager
from tests.kit.certificates import Authority
from tests.kit.receivers import webhook
from tests.kit.sidecar_process import command
from tests.kit.waiting import wait_for
from tests.lab.processes import free_port

MINUTE = 60_000_000
HOUR = 60 * MINUTE
PASSWORD = "s3cret"
PASSWORD_HASH = "$2b$04$L3gkS1X1umV0qxsSHF.x1eEeal9A2AL78RV0Si/uK.BKj4qK7H3HG"


@pytest.fixture(scope="module")
def alertmanager(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Alertmanager]:
    """One for all tests: each has alerts of its own."""
    server = Alertmanager(tmp_path_factory.mktemp("alertmanager"))
    server.start()
    yield server
    server.stop()


def alert(name: str, *, fires_for: int = 4 * MINUTE, ended: int = 0, seen: bool = True, **labels: str) -> FeedAlert:
    """One that began a minute ago."""
    began = sender._now() - MINUTE
    identity = {"alertname": name, "cluster_id": "default", "store": "zookeeper", **labels}
    return FeedAlert(identity, {"summary": "s", "observer": "jm-0"}, began, ended, 0 if ended else fires_for, seen=seen)


def send(url: str, *alerts: FeedAlert, seconds: float = 10, endpoint: Endpoint | None = None) -> Answer:
    """One attempt."""
    message = Message("", "", "warning", reason="FIRST", receiver="ops", feed=alerts)
    return sender.deliver(message, endpoint or Endpoint(Secret(url)), seconds)


def names(server: Alertmanager, *matchers: str) -> list[str]:
    return sorted(found["labels"]["alertname"] for found in server.alerts(*matchers))


@pytest.mark.covers("receiver:alertmanager")
def test_an_alert_fires_until_it_is_ended(alertmanager: Alertmanager) -> None:
    """With its labels, its annotations and its link."""
    firing = replace(alert("Ended", severity="critical", empty=""), link="http://localhost/episodes/1")
    assert send(alertmanager.url, firing) == Answer("delivered")
    [found] = alertmanager.alerts("alertname=Ended")
    assert found["labels"] == {k: v for k, v in firing.labels.items() if v}
    assert found["annotations"] == firing.annotations
    assert found["generatorURL"] == "http://localhost/episodes/1"
    assert send(alertmanager.url, alert("Ended", ended=sender._now(), severity="critical")) == Answer("delivered")
    assert names(alertmanager, "alertname=Ended") == []


def test_the_alert_of_a_dead_sidecar_ends_by_itself(alertmanager: Alertmanager) -> None:
    """It fires for as long as it was said, and nobody says it again."""
    assert send(alertmanager.url, alert("Dead", fires_for=3_000_000)) == Answer("delivered")
    assert names(alertmanager, "alertname=Dead") == ["Dead"]
    wait_for("the alert to end", lambda: not names(alertmanager, "alertname=Dead"))


def test_out_of_sight_an_alert_is_kept_and_never_begun(alertmanager: Alertmanager) -> None:
    """What another observer has ended is not brought back by one that cannot see."""
    kept, ended, unknown = (alert(name, fires_for=20_000_000) for name in ("Kept", "Over", "Unknown"))
    assert send(alertmanager.url, kept, ended) == Answer("delivered")
    assert send(alertmanager.url, replace(ended, fires_for=0, ended=sender._now())) == Answer("delivered")
    [before] = alertmanager.alerts("alertname=Kept")
    unseen = [replace(each, seen=False, fires_for=MINUTE) for each in (kept, ended, unknown)]
    assert send(alertmanager.url, *unseen) == Answer("delivered")
    [after] = alertmanager.alerts("alertname=Kept")
    assert after["endsAt"] > before["endsAt"]
    assert names(alertmanager, "alertname=~Over|Unknown") == []
    assert send(alertmanager.url, unseen[2]).outcome == "not_sent"


@pytest.mark.parametrize("ahead", [-2 * HOUR, -5 * MINUTE, 5 * MINUTE, 2 * HOUR])
def test_its_own_clock_counts(alertmanager: Alertmanager, ahead: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """By ours, the alert may have ended before it began to fire there: it would never be notified."""
    right = sender._now
    monkeypatch.setattr(sender, "_now", lambda: right() - ahead)
    name = f"Clock{ahead}".replace("-", "_")
    assert send(alertmanager.url, alert(name)) == Answer("delivered")
    assert names(alertmanager, f"alertname={name}") == [name]
    assert send(alertmanager.url, alert(name, ended=sender._now())) == Answer("delivered")
    assert names(alertmanager, f"alertname={name}") == []


def test_an_alert_that_began_after_it_ended_is_taken(alertmanager: Alertmanager) -> None:
    """A clock that was put back is no reason to lose an end."""
    assert send(alertmanager.url, alert("Jumped")) == Answer("delivered")
    assert send(alertmanager.url, alert("Jumped", ended=sender._now() - HOUR)) == Answer("delivered")
    assert names(alertmanager, "alertname=Jumped") == []


def test_what_it_refuses_is_one_line(alertmanager: Alertmanager) -> None:
    """And the rest of the request is taken."""
    bad = replace(alert("Bad"), labels={"no-name": "x\n"})
    assert send(alertmanager.url, alert("Good"), bad) == Answer(
        "rejected", r'127.0.0.1 answered 400 "invalid label set: invalid name \"no-name\""'
    )
    assert names(alertmanager, "alertname=~Good|Bad") == ["Good"]


def test_a_storm_is_several_requests(alertmanager: Alertmanager) -> None:
    """All of it arrives."""
    count = sender.MOST_IN_A_REQUEST + 1
    assert send(alertmanager.url, *(alert("Storm", job_id=f"{n:032x}") for n in range(count))) == Answer("delivered")
    assert len(names(alertmanager, "alertname=Storm")) == count


def test_whatever_characters_a_label_has(alertmanager: Alertmanager) -> None:
    """They arrive as they are."""
    value = 'ü\u202e"\\\n\x00 😀 ' + "x" * 1000
    assert send(alertmanager.url, alert("Text", text=value)) == Answer("delivered")
    assert [each["labels"]["text"] for each in alertmanager.alerts("alertname=Text")] == [value]


@pytest.mark.parametrize(
    ("status", "outcome"),
    [(302, "rejected"), (401, "rejected"), (404, "rejected"), (408, "failed"), (500, "timed_out"), (503, "failed")],
)
def test_every_other_answer_has_its_outcome(status: int, outcome: str) -> None:
    """What is not 200 was not taken; a redirect is not followed."""
    with webhook() as receiver:
        receiver.status, receiver.headers = status, {"Location": f"http://{receiver.address}/elsewhere"}
        answer = send(f"http://{receiver.address}", alert("A"))
    assert answer.outcome == outcome
    assert answer.detail.startswith(f"127.0.0.1 answered {status}")
    assert len(receiver.received) == 1


def test_one_that_asks_to_wait() -> None:
    """It is not asked again before."""
    with webhook() as receiver:
        receiver.status, receiver.headers = 429, {"Retry-After": "7"}
        assert send(f"http://{receiver.address}", alert("A")) == Answer("rate_limited", "127.0.0.1 answered 429 ok", 7)


def test_one_that_cannot_be_reached_or_does_not_answer() -> None:
    """The detail has no part of the URL, whose path may be a secret."""
    refused = send(f"http://127.0.0.1:{free_port()}/s3cret", alert("A"))
    assert refused == Answer("failed", "127.0.0.1 did not answer: Connection refused")
    assert send("http://no.such.host.invalid/s3cret", alert("A")).outcome == "failed"
    with socket.create_server(("127.0.0.1", 0)) as silent:
        url = f"http://127.0.0.1:{silent.getsockname()[1]}/s3cret"
        assert send(url, alert("A"), seconds=0.2) == Answer("timed_out", "127.0.0.1 did not answer: timed out")


@pytest.mark.parametrize("body", [b"ok", b"{}", b"[1]", b'[{"labels": {"a": []}}]', b"[" * 100_000, b"\xff"])
def test_an_answer_that_is_no_list_of_alerts(body: bytes) -> None:
    """Of what cannot be read nothing is concluded."""
    with stub(body) as (url, _):
        assert send(url, alert("A", seen=False)) == Answer("failed", "its list of alerts cannot be read")


def test_with_tls_a_certificate_of_ours_and_a_password(tmp_path: Path) -> None:
    """All are checked by a real Alertmanager; each that is missing is an outcome of its own."""
    authority = Authority(tmp_path / "ca")
    certificate, key = authority.issue("alertmanager", "IP:127.0.0.1")
    ours, our_key = authority.issue("sidecar")
    tls = {"cert_file": str(certificate), "key_file": str(key), "client_ca_file": str(authority.ca)}
    security = {
        "tls_server_config": {**tls, "client_auth_type": "RequireAndVerifyClientCert"},
        "basic_auth_users": {"flink": PASSWORD_HASH},
    }
    server = Alertmanager(tmp_path / "alertmanager", security=security)
    server.start()
    try:
        url, password, ca_file = Secret(server.url), Secret(PASSWORD), str(authority.ca)
        right = Endpoint(url, str(ours), str(our_key), username="flink", password=password, ca_file=ca_file)
        assert send("", alert("A"), endpoint=right) == Answer("delivered")
        wrong = send("", alert("A"), endpoint=replace(right, password=Secret("other")))
        assert (wrong.outcome, wrong.detail) == ("rejected", "127.0.0.1 answered 401 Unauthorized")
        assert send("", alert("A"), endpoint=replace(right, certificate_file=None)).outcome in {"failed", "timed_out"}
        unknown = send("", alert("A"), endpoint=replace(right, ca_file=None))
        assert unknown.outcome == "failed"
        assert "certificate verify failed" in unknown.detail
    finally:
        server.stop()


def test_a_token_is_sent_and_a_netrc_is_not(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Credentials that were not given for it do not go there."""
    netrc = tmp_path / "netrc"
    netrc.write_text("machine 127.0.0.1 login a password b\n")
    monkeypatch.setenv("NETRC", str(netrc))
    with stub(b"") as (url, received):
        for endpoint in (Endpoint(Secret(url)), Endpoint(Secret(url), bearer_token=Secret("t0ken"))):
            assert send("", alert("A"), endpoint=endpoint) == Answer("delivered")
    assert received == [None, "Bearer t0ken"]


def test_a_test_is_an_alert_that_ends_by_itself(alertmanager: Alertmanager, tmp_path: Path) -> None:
    """`alert send-test`, in a child process as every alert."""
    config = tmp_path / "sidecar.yaml"
    config.write_text(
        "zookeeper: {quorum: 'zk:2181'}\nobserver: pod-1\nexternal_labels: {env: lab}\n"
        f"receivers: [{{name: am, alertmanager: {{url: '{alertmanager.url}'}}}}]\n"
    )
    ended = command("alert", "send-test", "--config", str(config))
    assert (ended.returncode, ended.stdout) == (0, "am#0  delivered\n")
    [found] = alertmanager.alerts("alertname=Test")
    assert found["labels"] == {"alertname": "Test", "env": "lab", "observer": "pod-1", "severity": "info"}


@contextmanager
def stub(body: bytes) -> Iterator[tuple[str, list[str | None]]]:
    """A server that answers everything with 200 and `body`: its URL, and the credentials that it got."""
    received: list[str | None] = []

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            received.append(self.headers.get("Authorization"))
            self.rfile.read(int(self.headers.get("Content-Length", 0)))
            self.send_response(200)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        do_POST = do_GET  # noqa: N815  the name that the server calls

        def log_message(self, *_: object) -> None:
            """Says nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = Thread(target=server.serve_forever, args=(0.05,))
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}", received
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
