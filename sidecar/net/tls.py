"""TLS contexts for outgoing connections."""

import errno
import os
import ssl
from pathlib import Path
from typing import Final

import certifi

_NAMED: Final = ("SSL_CERT_FILE", "SSL_CERT_DIR")
_NOT_CONNECTED: Final = frozenset({errno.ENOTCONN, errno.EINVAL})


class _Socket(ssl.SSLSocket):
    """Closes itself when the server resets the connection before the handshake: CPython leaves the socket to the garbage collector."""

    def recv(self, buflen: int = 1024, flags: int = 0) -> bytes:
        try:
            return super().recv(buflen, flags)
        except OSError as error:
            if self.version() is None and error.errno not in _NOT_CONNECTED:  # there will be no handshake
                self.close()
            raise


def client_context() -> ssl.SSLContext:
    """A context that verifies servers and trusts no authority yet."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.sslsocket_class = _Socket
    return context


def trust_authorities() -> None:
    """Trust certifi's authorities where the system has none, as slim images do, and the environment names none.

    By the environment, which OpenSSL, the object store's library and our child processes read. Called before any thread is started.
    """
    paths = ssl.get_default_verify_paths()
    folder = Path(paths.capath) if paths.capath else None
    if not (any(map(os.environ.get, _NAMED)) or paths.cafile or (folder and any(folder.iterdir()))):
        os.environ[_NAMED[0]] = certifi.where()
