"""Health, metrics and leaders over real HTTP."""

import json
import socket
import urllib.error
import urllib.request
from collections.abc import Iterator

import pytest

from sidecar.core.moment import Moment
from sidecar.core.observations import ConnectionState, ViewObserved
from sidecar.core.snapshot import Snapshot
from sidecar.web.server import Application, WebServer
from tests.shell.scenes import CLUSTER, at, first_sight, play


class Site:
    """A server whose snapshot and clock the test sets."""

    def __init__(self) -> None:
        self.snapshot = Snapshot(at(0))
        self.now: Moment = at(0)
        self.server = WebServer(
            Application(lambda: self.snapshot, lambda: b"metrics\n", lambda: self.now), "127.0.0.1", 0
        )
        self.server.start()

    def get(self, path: str, method: str = "GET") -> tuple[int, str]:
        request = urllib.request.Request(f"http://127.0.0.1:{self.server.port}{path}", method=method)
        try:
            with urllib.request.urlopen(request, timeout=5) as answer:
                return answer.status, answer.read().decode()
        except urllib.error.HTTPError as error:
            with error:
                return error.code, error.read().decode()


@pytest.fixture
def site() -> Iterator[Site]:
    running = Site()
    yield running
    running.server.stop()
    running.server.stop()


def test_ready_means_seen_whole(site: Site) -> None:
    """503 with the reason until then, and again when the view is lost."""
    assert site.get("/readyz") == (503, "starting\n")
    scene = first_sight()
    site.snapshot = Snapshot(at(0), play(scene[:-1])[0])
    assert site.get("/readyz") == (503, "the store is not seen whole: default: CONNECTED\n")
    site.snapshot = Snapshot(at(0), play(scene)[0])
    assert site.get("/readyz") == (200, "ok\n")
    lost = ViewObserved(at(5), CLUSTER, ConnectionState.SUSPENDED)
    site.snapshot = Snapshot(at(5), play([*scene, lost])[0])
    assert site.get("/readyz") == (503, "the store is not seen whole: default: SUSPENDED\n")


def test_alive_means_that_the_owner_moves(site: Site) -> None:
    """A store that is down does not kill the sidecar; an owner that stands still does."""
    assert site.get("/livez") == (200, "ok\n")
    site.now = at(31)
    assert site.get("/livez") == (503, "the owner's thread has not moved for 31 s\n")


def test_leaders_as_data(site: Site) -> None:
    """One object for each component, with who, since when."""
    site.snapshot = Snapshot(at(0), play(first_sight())[0])
    status, body = site.get("/api/v1/leaders")
    found = json.loads(body)
    assert status == 200
    assert [leader["component"] for leader in found] == ["dispatcher", "resource_manager", "rest_server"]
    assert {leader["state"] for leader in found} == {"held"}
    assert found[0]["leader_address"] == "pekko.tcp://flink@jm-1:6123/user/rpc/x_1"


def test_other_paths_and_methods_are_refused(site: Site) -> None:
    """No path answers by accident."""
    assert site.get("/metrics") == (200, "metrics\n")
    assert site.get("/metrics", "POST")[0] == 405
    assert site.get("/healthz")[0] == 404
    assert site.get("/metrics", "HEAD") == (200, "")


def test_many_idle_connections_do_not_stop_an_answer(site: Site) -> None:
    """A hundred half-open clients cost no thread each."""
    idle = [socket.create_connection(("127.0.0.1", site.server.port), timeout=5) for _ in range(40)]
    try:
        assert site.get("/livez") == (200, "ok\n")
    finally:
        for connection in idle:
            connection.close()


def test_a_port_that_is_taken_is_an_os_error(site: Site) -> None:
    """The caller says it in one line."""
    with pytest.raises(OSError, match="in use"):
        WebServer(Application(lambda: site.snapshot, bytes, lambda: at(0)), "127.0.0.1", site.server.port)
