"""IPv4 and IPv6 on one port."""

import http.client
from contextlib import closing
from pathlib import Path

from sidecar.core.moment import Moment
from sidecar.core.views.snapshot import Snapshot
from sidecar.journal import JournalReader
from sidecar.web.application import Application
from sidecar.web.server import WebServer


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
