"""Components, their leaders, also as bytes, and the three states of a leadership: unknown, vacant, held."""

from enum import StrEnum
from typing import Annotated, Final
from uuid import UUID

from msgspec import Meta, Struct

from sidecar.core.counted import Number


class Component(StrEnum):
    """The components that Flink elects leaders for. One spelling for both stores."""

    RESOURCE_MANAGER = "resource_manager"
    DISPATCHER = "dispatcher"
    REST_SERVER = "rest_server"
    JOB = "job"


JobId = Annotated[str, Meta(pattern=r"^[0-9a-f]{32}\Z")]


class ComponentId(Struct, frozen=True, order=True, cache_hash=True):
    """One leadership: a cluster component, or one job's JobMaster."""

    component: Component
    job_id: JobId | None = None

    def __str__(self) -> str:
        return f"{self.component} {self.job_id}" if self.job_id else str(self.component)


CLUSTER_COMPONENTS = (
    ComponentId(Component.RESOURCE_MANAGER),
    ComponentId(Component.DISPATCHER),
    ComponentId(Component.REST_SERVER),
)
"""The components of every Flink cluster, whether or not anything is written for them yet."""


LONGEST_ADDRESS: Final = 1024
"""Bytes of a leader's address. A host name has at most 253 characters, the rest of Flink's addresses less than 100."""


class LeaderInformation(Struct, frozen=True, gc=False):
    """A leader as it published itself. Mirrors `org.apache.flink.runtime.leaderelection.LeaderInformation`."""

    address: str
    session_id: UUID


class ZNodePosition(Struct, frozen=True, tag="znode"):
    """Where in ZooKeeper's history a value was observed (`org.apache.zookeeper.data.Stat`). `mtime` is milliseconds since the epoch."""

    path: str
    czxid: int
    mzxid: int
    version: int
    ephemeral_owner: int
    mtime: int
    returned: str | None = None
    """Set if the store went back in time (a restored snapshot) and shows this write again: differs for each return."""

    @property
    def epoch(self) -> int:
        """The number of leader elections of the ensemble before this write."""
        return self.mzxid >> 32


class ConfigMapPosition(Struct, frozen=True, tag="config_map"):
    """Where in Kubernetes a value was observed, and the lease's holder then. `key`: in the ConfigMap's data."""

    name: str
    key: str
    uid: str
    resource_version: str
    holder_identity: str
    acquire_time: str
    returned: str | None = None
    """The resource version at which a previous leader returned with its old session id."""

    @property
    def path(self) -> str:
        return f"{self.name}/{self.key}"

    def is_in(self, other: "Position") -> bool:
        """Whether both are the same key in the same term, whatever was renewed since."""
        return isinstance(other, ConfigMapPosition) and _term_and_place(self) == _term_and_place(other)


def _term_and_place(position: ConfigMapPosition) -> tuple[str, ...]:
    return position.name, position.key, position.uid, position.holder_identity, position.acquire_time


Position = ZNodePosition | ConfigMapPosition
"""Where in its store's history a value was observed."""


class Births(Struct, frozen=True):
    """How many children of a znode were created since it exists (`parent_czxid`), counted by ZooKeeper.

    Flink keeps one child there, the leader's node, which each new leader creates anew: these are elections.
    """

    parent_czxid: Number
    count: Number


class Blindness(StrEnum):
    """Why a leadership is unknown."""

    UNSEEN = "unseen"
    """The component was not read yet since the start or the last reconnect."""
    VIEW_LOST = "view_lost"
    """The store could not be read for longer than the trust window."""
    UNREADABLE = "unreadable"
    """The bytes are not Flink's, or may not be read."""


class Unknown(Struct, frozen=True, tag="unknown"):
    """The leader is not known. Never reported as "there is no leader"."""

    reason: Blindness = Blindness.UNSEEN
    path: str | None = None
    """The path of the bytes, if UNREADABLE."""


class Vacant(Struct, frozen=True, tag="vacant"):
    """The store was read, and there is no leader."""


class Held(Struct, frozen=True, gc=False, tag="held"):
    """There is a leader."""

    leader: LeaderInformation
    position: Position


Leadership = Unknown | Vacant | Held


# -- the bytes that Flink writes for a leader, read strictly -----------------------------------------------------------
#
# Flink writes `ObjectOutputStream.writeUTF(address)` and `.writeObject(UUID)`, the same from 1.11 to 2.3
# (`ZooKeeperUtils.writeLeaderInformationToZooKeeper`). Nothing is deserialised: only the bytes that may vary are read, and all others must
# be as Java writes them.

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
