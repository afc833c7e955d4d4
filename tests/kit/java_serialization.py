"""Leader information as Java writes it: `ObjectOutputStream.writeUTF(address)`, then `.writeObject(UUID)`."""

from collections.abc import Iterator
from uuid import UUID

STREAM_HEADER = bytes.fromhex("aced0005")
UUID_CLASS = bytes.fromhex(
    "7372000e6a6176612e7574696c2e55554944bc9903f7986d852f0200024a000c6c65617374536967426974734a000b6d6f73745369674269747378 70"
)
_BUFFER = 1024


def connection_info(address: str, session_id: UUID) -> bytes:
    """The value of a leader's znode."""
    encoded = modified_utf8(address)
    block = len(encoded).to_bytes(2) + encoded
    halves = session_id.bytes
    return STREAM_HEADER + b"".join(_blocks(block)) + UUID_CLASS + halves[8:] + halves[:8]


def modified_utf8(text: str) -> bytes:
    """NUL as two bytes, everything else as the UTF-8 of its UTF-16 code units."""
    encoded = bytearray()
    for unit in memoryview(text.encode("utf-16-le", "surrogatepass")).cast("H"):
        encoded += b"\xc0\x80" if unit == 0 else chr(unit).encode("utf-8", "surrogatepass")
    return bytes(encoded)


def _blocks(data: bytes) -> Iterator[bytes]:
    for at in range(0, len(data), _BUFFER):
        piece = data[at : at + _BUFFER]
        yield (b"\x77" + len(piece).to_bytes(1) if len(piece) <= 255 else b"\x7a" + len(piece).to_bytes(4)) + piece
