"""Connections with TLS that end before they begin."""

import gc
import os
import select
import socket
import ssl
import struct
import warnings
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import certifi
import pytest

from sidecar.drivers.kubernetes.access import Credentials
from sidecar.net.tls import trust_authorities
from sidecar.settings import TlsSettings

_RESET_ON_CLOSE = struct.pack("ii", 1, 0)


@pytest.mark.parametrize(
    "context_of", [Credentials("https://127.0.0.1").context, TlsSettings().context], ids=["Kubernetes", "ZooKeeper"]
)
def test_a_connection_that_is_reset_before_the_handshake_is_closed(context_of: Callable[[], ssl.SSLContext]) -> None:
    """A server that dies at that moment leaves no open socket to the garbage collector."""
    context = context_of()
    with socket.create_server(("127.0.0.1", 0)) as listener:
        client = socket.create_connection(listener.getsockname())
        server, _ = listener.accept()
        server.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET_ON_CLOSE)
        server.close()
        assert select.select([client], [], [], 60)[0] == [client]
        with warnings.catch_warnings(record=True) as warned:
            warnings.simplefilter("always")
            with pytest.raises(ConnectionResetError):
                context.wrap_socket(client, server_hostname="127.0.0.1")
            gc.collect()
    assert [warning for warning in warned if warning.category is ResourceWarning] == []


def paths_of(cafile: Path | None, capath: Path | None) -> SimpleNamespace:
    """What OpenSSL would say of a system; it names only what exists."""
    return SimpleNamespace(cafile=cafile and str(cafile), capath=capath and str(capath))


@pytest.mark.parametrize(
    ("file", "folder", "named", "trusted"),
    [
        (False, False, {}, certifi.where()),
        (False, True, {}, certifi.where()),
        (True, True, {}, None),
        (False, True, {"SSL_CERT_FILE": "/own.pem"}, "/own.pem"),
        (False, True, {"SSL_CERT_DIR": "/own"}, None),
    ],
    ids=["nothing", "an empty folder", "a file", "own file", "own folder"],
)
def test_where_the_system_has_no_authorities_those_of_certifi_are_trusted(
    file: bool,
    folder: bool,
    named: dict[str, str],
    trusted: str | None,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A slim image has none; what the system or the environment has stays as it is."""
    (tmp_path / "empty").mkdir()
    (tmp_path / "ca.pem").touch()
    paths = paths_of(tmp_path / "ca.pem" if file else None, tmp_path / "empty" if folder else None)
    monkeypatch.setattr(ssl, "get_default_verify_paths", lambda: paths)
    for name in ("SSL_CERT_FILE", "SSL_CERT_DIR"):
        monkeypatch.delenv(name, raising=False)
    for name, value in named.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(os, "environ", dict(os.environ))
    trust_authorities()
    assert os.environ.get("SSL_CERT_FILE") == trusted


def test_authorities_in_a_folder_are_enough(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As in Debian, where OpenSSL looks them up one by one."""
    (tmp_path / "5ad8a5d6.0").touch()
    monkeypatch.setattr(ssl, "get_default_verify_paths", lambda: paths_of(None, tmp_path))
    monkeypatch.setattr(os, "environ", {})
    trust_authorities()
    assert os.environ == {}
