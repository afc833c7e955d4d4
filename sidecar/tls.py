"""TLS contexts for outgoing connections."""

import errno
import ssl
from typing import Final

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
