"""The bytes that Flink writes for a leader, read strictly.

Flink writes `ObjectOutputStream.writeUTF(address)` and `.writeObject(UUID)`, the same from 1.11 to 2.3
(`ZooKeeperUtils.writeLeaderInformationToZooKeeper`). Nothing is deserialised: only the bytes that may vary are read, and all others must be
as Java writes them.
"""

from typing import Final
from uuid import UUID

from msgspec import Struct

from sidecar.core.flink.leadership import LONGEST_ADDRESS, LeaderInformation

MAX_BYTES: Final = 70_000
"""More than `writeUTF` can produce with its block headers; longer values are not decoded, and drivers report no more of them."""

_STREAM_HEADER: Final = bytes.fromhex("aced0005")
_BLOCK: Final = 0x77
_HEADER_BYTES: Final = {_BLOCK: 2, 0x7A: 5}
"""Length of the header of a short and of a long block: its type, then its size."""
_UUID_OBJECT: Final = (
    b"\x73\x72\x00\x0ejava.util.UUID\xbc\x99\x03\xf7\x98\x6d\x85\x2f\x02"
    b"\x00\x02J\x00\x0cleastSigBitsJ\x00\x0bmostSigBits\x78\x70"
)
_UUID_START: Final = len(_UUID_OBJECT)
_UUID_END: Final = _UUID_START + 16


class Unreadable(Struct, frozen=True):
    """A value that is not leader information. `reason` names what was expected, never the bytes."""

    reason: str


TOO_LONG: Final = Unreadable(f"the address is longer than {LONGEST_ADDRESS} bytes")
"""The result for an address that is too long to be believed: every write of it would be kept in memory, in the journal and in the audit
log."""


def decode_connection_info(data: bytes) -> LeaderInformation | Unreadable:
    """The leader in the value of a `connection_info` (≤ 1.13: `*_lock`) znode.

    Bytes after the session id are ignored, as Flink's own listener ignores them. Never raises.
    """
    if len(data) > MAX_BYTES:
        return Unreadable(f"more than {MAX_BYTES} bytes: longer than any leader information")
    if not data.startswith(_STREAM_HEADER):
        return Unreadable("not a Java object stream")
    block, rest = _join_blocks(data)
    if len(block) < 2 or int.from_bytes(block[:2]) != len(block) - 2:
        return Unreadable("the address is cut short or too long")
    if not rest.startswith(_UUID_OBJECT) or len(rest) < _UUID_END:
        return Unreadable("no session id behind the address")
    address = _modified_utf8(block[2:])
    if address is None:
        return Unreadable("the address is not text")
    least, most = rest[_UUID_START : _UUID_START + 8], rest[_UUID_START + 8 : _UUID_END]
    return TOO_LONG if len(block) - 2 > LONGEST_ADDRESS else LeaderInformation(address, UUID(bytes=most + least))


def encode_connection_info(leader: LeaderInformation) -> bytes:
    """The bytes that Flink would write for `leader`, whose address is ASCII and at most 253 characters long."""
    address = leader.address.encode("ascii")
    block = len(address).to_bytes(2) + address
    halves = leader.session_id.bytes
    return _STREAM_HEADER + bytes([_BLOCK, len(block)]) + block + _UUID_OBJECT + halves[8:] + halves[:8]


def _join_blocks(data: bytes) -> tuple[bytes, bytes]:
    """The joined block data after the stream header, and the rest. Java starts a new block each 1,024 bytes."""
    at = len(_STREAM_HEADER)
    blocks = []
    while at < len(data):
        if data[at] not in _HEADER_BYTES:
            break
        start = at + _HEADER_BYTES[data[at]]
        end = start + int.from_bytes(data[at + 1 : start])
        blocks.append(data[start:end])
        at = end
    return b"".join(blocks), data[at:]


def _modified_utf8(raw: bytes) -> str | None:
    """Java's `writeUTF` encoding: NUL as two bytes, characters beyond the BMP as two surrogates of three bytes each."""
    if raw.isascii():
        return raw.decode("ascii")
    try:
        text = raw.replace(b"\xc0\x80", b"\x00").decode("utf-8", "surrogatepass")
        if any(char > "\uffff" for char in text):
            return None  # four-byte UTF-8: Java never writes it
        return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le")
    except UnicodeDecodeError:
        return None
