"""Connections with TLS that end before they begin."""

import gc
import select
import socket
import ssl
import struct
import warnings
from collections.abc import Callable

import pytest

from sidecar.drivers.kubernetes.access import Credentials
from sidecar.settings.model import TlsSettings

_RESET_ON_CLOSE = struct.pack("ii", 1, 0)


@pytest.mark.parametrize(
    "context_of",
    [Credentials("https://127.0.0.1").context, TlsSettings().context],
    ids=["Kubernetes", "ZooKeeper"],
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
