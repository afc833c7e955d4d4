"""IPv4 and IPv6 on one port."""

import http.client
from contextlib import closing
from pathlib import Path

import pytest

from sidecar.core.moment import Moment
from sidecar.core.views.snapshot import Snapshot
from sidecar.journal import JournalReader
from sidecar.settings import load
from sidecar.web.application import Application
from sidecar.web.server import WebServer


@pytest.mark.parametrize("host", ["::", "[::]", "::1", "[::1]"])
def test_brackets_around_an_address_are_left_out(tmp_path: Path, host: str) -> None:
    """As they stand in a URL."""
    (tmp_path / "c.yaml").write_text(f"zookeeper: {{quorum: '127.0.0.1:1'}}\nhttp: {{host: '{host}'}}\n")
    assert load(tmp_path / "c.yaml", {}).http.host == host.strip("[]")


def test_the_unspecified_address_of_ipv6_answers_both_families(tmp_path: Path) -> None:
    """The kubelet of a dual-stack node may ask by IPv4, that of an IPv6-only one asks by IPv6."""
    now = Moment(0, 0)
    application = Application(lambda: Snapshot(now), lambda: b"", lambda: now, lambda: JournalReader(tmp_path))
    server = WebServer(application, "::", 0)
    server.start()
    try:
        for host in ("127.0.0.1", "::1"):
            with closing(http.client.HTTPConnection(host, server.port, timeout=30)) as connection:
                connection.request("GET", "/livez")
                assert connection.getresponse().status in {200, 503}
    finally:
        server.stop()
