"""TLS contexts for the connections that we open."""

import errno
import ssl
from typing import Final

_NOT_CONNECTED: Final = frozenset({errno.ENOTCONN, errno.EINVAL})


class _Socket(ssl.SSLSocket):
    """A socket that closes itself when its server resets the connection before the handshake.

    CPython looks for an early reset with `recv`, raises the error, and leaves the socket open until it is collected as garbage.
    """

    def recv(self, buflen: int = 1024, flags: int = 0) -> bytes:
        try:
            return super().recv(buflen, flags)
        except OSError as error:
            if (
                self.version() is None and error.errno not in _NOT_CONNECTED
            ):  # there was no handshake, and there will be none
                self.close()
            raise


def client_context() -> ssl.SSLContext:
    """A context that verifies servers and trusts no authority yet."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.sslsocket_class = _Socket
    return context
