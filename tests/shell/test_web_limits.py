"""Clients that are slow, many or hostile stop no answer to the kubelet, and take no more memory than there is."""

import http.client
import socket
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from sidecar.settings import load
from sidecar.web import application, server
from sidecar.web.server import MOST_UNREAD
from tests.shell.site import Site
from tests.sinks.running import Eventually

BODY = b"x" * (4 << 20)


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Site]:
    """Its metrics are large."""
    running = Site(tmp_path, metrics=lambda: BODY)
    yield running
    running.stop()


@pytest.fixture
def connect(site: Site) -> Iterator[Callable[[bytes], socket.socket]]:
    """Opens a connection that has sent these bytes; its buffer for what it receives is small."""
    with ExitStack() as cleanup:

        def connect(sent: bytes) -> socket.socket:
            connection = cleanup.enter_context(socket.socket())
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            connection.settimeout(30)
            connection.connect(("127.0.0.1", site.server.port))
            connection.sendall(sent)
            return connection

        yield connect


def closed(connection: socket.socket) -> bool:
    """Whether the server closes it, within the connection's limit, without an answer."""
    try:
        return connection.recv(1) == b""
    except ConnectionResetError:
        return True


def answer(connection: socket.socket) -> tuple[int, int]:
    """The status and the length of the answer that comes."""
    response = http.client.HTTPResponse(connection)
    response.begin()
    return response.status, len(response.read())


def test_slow_requests_do_not_stop_health(site: Site, connect: Callable[[bytes], socket.socket]) -> None:
    """More connections than there may be, each with half a request: the oldest goes, and the kubelet is answered."""
    slow = [connect(b"GET /metrics HTTP/1.1\r\nHost: x\r\n") for _ in range(server.CONNECTIONS + 20)]
    assert site.get("/livez") == (200, "ok\n")
    assert closed(slow[0])


def test_a_request_that_trickles_has_an_end(
    connect: Callable[[bytes], socket.socket], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A byte now and then keeps no connection open: what counts is the complete request."""
    monkeypatch.setattr(server, "REQUEST_SECONDS", 1.0)
    connection = connect(b"GET /metrics HTTP/1.1\r\nX: ")
    connection.settimeout(0.1)
    for _ in range(600):
        try:
            connection.sendall(b"x")
            assert connection.recv(1) == b""
        except TimeoutError:
            continue
        except OSError:
            pass
        break
    else:
        pytest.fail("the connection was never closed")


def test_an_answer_that_is_not_read_has_an_end(
    site: Site, connect: Callable[[bytes], socket.socket], monkeypatch: pytest.MonkeyPatch, eventually: Eventually
) -> None:
    """Its memory is given back, also where the client takes nothing at all."""
    monkeypatch.setattr(server, "ANSWER_SECONDS", 1.0)
    connect(b"GET /metrics HTTP/1.1\r\n\r\n")
    assert eventually(lambda: site.server.unread > 0)
    assert eventually(lambda: site.server.unread == 0)


def test_unread_answers_take_bounded_memory(
    site: Site, connect: Callable[[bytes], socket.socket], eventually: Eventually
) -> None:
    """Clients that ask and do not read: above the bound the others are asked to come again, and health is answered all the same."""
    greedy = [connect(b"GET /metrics HTTP/1.1\r\nConnection: close\r\n\r\n") for _ in range(24)]
    assert eventually(lambda: site.server.unread > MOST_UNREAD)
    assert site.get("/livez") == (200, "ok\n")
    assert site.get("/readyz") == (503, "starting\n")
    assert site.get("/leader") == (503, "unknown: no such cluster is watched\n")
    assert eventually(lambda: site.get("/")[0] == 503)
    assert site.server.unread <= MOST_UNREAD + 6 * len(BODY)
    found = [answer(connection) for connection in greedy]
    served = found.count((200, len(BODY)))
    assert MOST_UNREAD // len(BODY) <= served < 24
    assert {status for status, _ in found} == {200, 503}
    assert eventually(lambda: site.get("/metrics")[0] == 200)


@pytest.mark.parametrize(
    ("host", "allowed"),
    [
        *((name, True) for name in ("10.1.2.3:9250", "10.1.2.3", "[fd00::1]:9250", "localhost:9250", "pod-1", None)),
        *((name, True) for name in ("sidecar.flink.svc:9250", "sidecar.flink.svc.cluster.local", "HA.example.com.:80")),
        *(
            (name, False)
            for name in ("evil.example:9250", "10.1.2.3.evil.example", "svc.evil.example", "a:b:c", "[::1")
        ),
        ("sidecar.flink", False),
    ],
)
def test_a_name_that_anybody_may_register_is_not_answered_to(host: str | None, allowed: bool) -> None:
    """The host name of a foreign page can resolve to this address."""
    assert application.is_allowed(host, {"ha.example.com"}) is allowed


def test_the_refusal_names_the_setting(site: Site) -> None:
    """Health is answered for every name."""
    headers = {"Host": "evil.example"}
    assert site.get("/", headers=headers) == (
        421,
        "unknown Host evil.example: list the name under http.allowed_hosts\n",
    )
    assert site.get("/api/v1/leaders", headers=headers)[0] == 421
    assert site.get("/livez", headers=headers) == (200, "ok\n")


def test_allowed_hosts_are_settings(tmp_path: Path) -> None:
    """Beside those listed: the host of external_url."""
    file = tmp_path / "sidecar.yaml"
    file.write_text(
        "zookeeper: {quorum: 'zk:2181'}\n"
        "http: {external_url: 'https://ha.example.com:8443/x', allowed_hosts: [Sidecar.Flink, ha-2.example.com]}\n"
    )
    allowed = load(file, {}).http.names
    assert {"ha.example.com", "sidecar.flink", "ha-2.example.com"} <= allowed
    assert not application.is_allowed("evil.example", allowed)
