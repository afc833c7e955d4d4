"""User names and passwords of a kubeconfig: its user's, and its proxy's."""

import base64
import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from sidecar.drivers.kubernetes import Access
from sidecar.drivers.kubernetes.access import ApiError
from sidecar.drivers.kubernetes.api import Api, Selector

SERVER = "http://api.example:8001"


@pytest.fixture
def proxy() -> Iterator[tuple[str, list[tuple[str, str | None, str | None]]]]:
    """The address of an HTTP proxy that refuses all, and what it was asked for with which logins: the proxy's, the server's."""
    asked: list[tuple[str, str | None, str | None]] = []

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            asked.append((self.path, self.headers["Proxy-Authorization"], self.headers["Authorization"]))
            self.send_error(403)

        def log_message(self, *_: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"127.0.0.1:{server.server_port}", asked
        server.shutdown()


def kubeconfig(folder: Path, user: dict[str, str], proxy_url: str | None) -> Path:
    cluster = {"server": SERVER, **({"proxy-url": proxy_url} if proxy_url else {})}
    file = folder / "kubeconfig"
    config = {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "c",
        "clusters": [{"name": "k", "cluster": cluster}],
        "users": [{"name": "u", "user": user}],
        "contexts": [{"name": "c", "context": {"cluster": "k", "user": "u"}}],
    }
    file.write_text(json.dumps(config))
    return file


def basic(login: str) -> str:
    return f"Basic {base64.b64encode(login.encode()).decode()}"


def test_both_are_sent_to_whom_they_belong(
    tmp_path: Path, proxy: tuple[str, list[tuple[str, str | None, str | None]]]
) -> None:
    """Basic authentication: as kubectl sends it to a proxy, and to what stands in front of an API server."""
    address, asked = proxy
    file = kubeconfig(tmp_path, {"username": "u", "password": "p w"}, f"http://gate:s%40cret@{address}")
    with pytest.raises(ApiError, match="403"):
        Api(Access(file), "flink").read(Selector("orders"))
    assert {(to_proxy, to_server) for _, to_proxy, to_server in asked} == {(basic("gate:s@cret"), basic("u:p w"))}
    assert all(path.startswith(f"{SERVER}/api/v1/namespaces/flink/configmaps") for path, _, _ in asked)


def test_a_proxy_of_the_environment_that_cannot_be_used_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing of it was in the kubeconfig."""
    monkeypatch.setenv("HTTP_PROXY", "socks5://user:s3cret@127.0.0.1:1080")
    with pytest.raises(ApiError, match="its proxy, or that of the environment: socks5:// is not supported") as error:
        Access(kubeconfig(tmp_path, {"token": "t"}, None)).credentials()
    assert "s3cret" not in str(error.value)
