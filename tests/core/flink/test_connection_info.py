"""Flink's bytes are read as Java wrote them, or not at all."""

from hashlib import sha256
from uuid import UUID

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sidecar.core.flink.leadership import (
    LONGEST_ADDRESS,
    MAX_BYTES,
    TOO_LONG,
    LeaderInformation,
    Unreadable,
    decode_connection_info,
)
from tests.kit import zookeeper_recordings as recordings
from tests.kit.groups import examples
from tests.kit.java_serialization import STREAM_HEADER, UUID_CLASS, connection_info, modified_utf8

SESSION = UUID("00112233-4455-6677-8899-aabbccddeeff")
UUID_HEX = UUID_CLASS.hex()

GOLDENS = {
    "resource manager, Flink 1.17": (
        f"aced0005773a0038616b6b612e7463703a2f2f666c696e6b406a6d2d302e6a6d3a363132332f757365722f7270632f7265736f757263656d616e616765725f30{UUID_HEX}a456426614174000123e4567e89b12d3",
        LeaderInformation(
            "akka.tcp://flink@jm-0.jm:6123/user/rpc/resourcemanager_0", UUID("123e4567-e89b-12d3-a456-426614174000")
        ),
    ),
    "dispatcher, Flink 1.18": (
        f"aced00057737003570656b6b6f2e7463703a2f2f666c696e6b4031302e312e322e333a363132332f757365722f7270632f646973706174636865725f31{UUID_HEX}8899aabbccddeeff0011223344556677",
        LeaderInformation("pekko.tcp://flink@10.1.2.3:6123/user/rpc/dispatcher_1", SESSION),
    ),
    "REST server, IPv6": (
        f"aced0005771b0019687474703a2f2f5b323030313a6462383a3a315d3a38303831{UUID_HEX}8000000000000001fffefdfcfbfa4000",
        LeaderInformation("http://[2001:db8::1]:8081", UUID("fffefdfc-fbfa-4000-8000-000000000001")),
    ),
    "REST server, recorded on 1.14.6": (
        f"aced000577180016687474703a2f2f3132372e302e302e313a3234313131{UUID_HEX}b3850f2c8204e919514b1b50d672421d",
        LeaderInformation("http://127.0.0.1:24111", UUID("514b1b50-d672-421d-b385-0f2c8204e919")),
    ),
    "empty address": (f"aced000577020000{UUID_HEX}8899aabbccddeeff0011223344556677", LeaderInformation("", SESSION)),
    "NUL is two bytes": (
        f"aced00057706000461c08062{UUID_HEX}8899aabbccddeeff0011223344556677",
        LeaderInformation("a\0b", SESSION),
    ),
    "two- and three-byte characters": (
        f"aced000577080006e4b8bbe69cba{UUID_HEX}8899aabbccddeeff0011223344556677",
        LeaderInformation("主机", SESSION),
    ),
    "beyond the BMP: two surrogates": (
        f"aced0005770f000deda0bdedba8020726f636b6574{UUID_HEX}8899aabbccddeeff0011223344556677",
        LeaderInformation("🚀 rocket", SESSION),
    ),
}
"""Written by real JVMs."""

JAVA_DIGESTS = {
    253: (337, "c2b6277293c5fd891e1bb7c4aeb1d8ddf871a18acfa03bb60d8c076ec918e603"),
    254: (341, "e22bb906820461e8f4239c4ce0f7ef6e194a5d67b142e28ccf58c5b28db91f05"),
    300: (387, "587e92808417a8a0f97817bcb42bf5b0f890729e1fbdcfa2ba802ece6c3cbb08"),
    1022: (1109, "a31a1e54f60e17f45b77eff921bb915d9b3d3c8de6f6b552fd9bfde500423314"),
    1023: (1112, "c99b2ccf02baeaaee506bf1e194c9d426a53337e0c59d0a600742a69c0016708"),
    1277: (1366, "062585dd26ddd7ffee122ef80c00e4ad3b90ce4ddfbf24623be1d37a79713acb"),
    1278: (1370, "4389b8d237639b840a120eab870b65827435ce6e459ae92fe2a0345adb0530f2"),
    2000: (2092, "347a90c686035c94ea4e983ea0d2f33b9f5eafa76d50cf3278390e06b1c685b2"),
    65533: (65935, "f3a1b2ffee3a3ec5923f613cb8e84ed449a7098f7abf9df460108c2f0dad09e9"),
}
"""Of addresses of so many `a`: how many bytes Java 17 wrote, and their SHA-256. Where a block ends, the header changes."""


@pytest.mark.parametrize(("written", "leader"), GOLDENS.values(), ids=GOLDENS.keys())
def test_what_java_wrote_is_read(written: str, leader: LeaderInformation) -> None:
    """Each golden is the leader it was written for, and this file's encoder writes the same bytes."""
    assert decode_connection_info(bytes.fromhex(written)) == leader
    assert connection_info(leader.address, leader.session_id).hex() == written


@pytest.mark.parametrize("length", JAVA_DIGESTS)
def test_addresses_of_any_length_are_read_across_blocks(length: int) -> None:
    """Java starts a new block each 1,024 bytes and writes a longer header from 256 on: all are one address, up to the longest."""
    written = connection_info("a" * length, SESSION)
    assert (len(written), sha256(written).hexdigest()) == JAVA_DIGESTS[length]
    assert decode_connection_info(written) == (
        LeaderInformation("a" * length, SESSION) if length <= LONGEST_ADDRESS else TOO_LONG
    )


@pytest.mark.parametrize("version", recordings.VERSIONS)
def test_every_recorded_leader_is_read(version: str) -> None:
    """All leader znodes that real Flink left in a tree decode, to an address of that tree's cluster."""
    for moment in recordings.MOMENTS:
        leaders = recordings.tree(version, moment).leaders()
        assert len(leaders) == 4
        for path, node in leaders.items():
            leader = decode_connection_info(node.data or b"")
            assert isinstance(leader, LeaderInformation), (path, leader)
            assert "127.0.0.1:24" in leader.address


@pytest.mark.parametrize(
    "written", [*(golden for golden, _ in GOLDENS.values()), connection_info("a" * 2000, SESSION).hex()]
)
def test_a_value_that_is_cut_short_is_unreadable(written: str) -> None:
    """No prefix of a leader information is one, whatever the byte it ends at."""
    data = bytes.fromhex(written)
    assert [end for end in range(len(data)) if not isinstance(decode_connection_info(data[:end]), Unreadable)] == []


def test_trailing_bytes_are_ignored() -> None:
    """As Flink's own listener ignores them."""
    assert decode_connection_info(connection_info("http://h:1", SESSION) + b"\x00more") == LeaderInformation(
        "http://h:1", SESSION
    )


_HOST = "aced0005770c000a687474703a2f2f683a31"
_SESSION_HEX = "8899aabbccddeeff0011223344556677"


@pytest.mark.parametrize(
    "written",
    {
        "no bytes": "",
        "session id is null": f"{_HOST}70",
        "session id is a string": f"{_HOST}74000178",
        "another class": f"{_HOST}{UUID_HEX.replace('55554944', '55554945')}{_SESSION_HEX}",
        "another serialVersionUID": f"{_HOST}{UUID_HEX.replace('bc99', 'bc98')}{_SESSION_HEX}",
        "no Java stream": f"cafebabe{_HOST[8:]}{UUID_HEX}{_SESSION_HEX}",
        "text": b"http://h:1".hex(),
        "address longer than its block": f"aced0005770c000b687474703a2f2f683a31{UUID_HEX}{_SESSION_HEX}",
        "address shorter than its block": f"aced0005770c0009687474703a2f2f683a31{UUID_HEX}{_SESSION_HEX}",
        "block header of one byte": "aced000577",
        "block of 4 GB": f"aced00057affffffff000a687474703a2f2f683a31{UUID_HEX}{_SESSION_HEX}",
        "no address at all": f"aced0005{UUID_HEX}{_SESSION_HEX}",
        "lone surrogate": f"aced000577050003eda0bd{UUID_HEX}{_SESSION_HEX}",
        "four-byte UTF-8, which Java never writes": f"aced000577060004f09f9a80{UUID_HEX}{_SESSION_HEX}",
        "continuation byte alone": f"aced00057703000180{UUID_HEX}{_SESSION_HEX}",
    }.items(),
    ids=lambda case: case[0],
)
def test_anything_else_is_unreadable(written: tuple[str, str]) -> None:
    """What Java would not have written for a leader is no leader: it is never guessed at."""
    assert isinstance(decode_connection_info(bytes.fromhex(written[1])), Unreadable)


def test_a_reason_never_shows_the_bytes() -> None:
    """Whatever stands in the store, its bytes do not travel into logs and messages by way of the reason."""
    unreadable = decode_connection_info(b"secret" * 3)
    assert isinstance(unreadable, Unreadable)
    assert "secret" not in unreadable.reason


def test_an_address_has_at_most_1_024_bytes() -> None:
    """The longest is read, with any trailing bytes; one byte more is not believed, and beyond the cap nothing is read."""
    longest = connection_info("a" * LONGEST_ADDRESS, SESSION)
    leader = LeaderInformation("a" * LONGEST_ADDRESS, SESSION)
    assert decode_connection_info(longest) == leader
    assert decode_connection_info(longest.ljust(MAX_BYTES, b"\0")) == leader
    assert decode_connection_info(connection_info("a" * (LONGEST_ADDRESS + 1), SESSION)) == TOO_LONG
    assert decode_connection_info(connection_info("ä" * (LONGEST_ADDRESS // 2 + 1), SESSION)) == TOO_LONG
    too_much = decode_connection_info(longest.ljust(MAX_BYTES + 1, b"\0"))
    assert too_much == Unreadable("more than 70000 bytes: longer than any leader information")


_TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=1500).filter(
    lambda text: len(modified_utf8(text)) <= LONGEST_ADDRESS
)


@given(_TEXT, st.uuids())
def test_round_trip(address: str, session_id: UUID) -> None:
    """Whatever Java writes is read as what it was."""
    assert decode_connection_info(connection_info(address, session_id)) == LeaderInformation(address, session_id)


_VALID = st.sampled_from([bytes.fromhex(written) for written, _ in GOLDENS.values()])


@st.composite
def _mutations(draw: st.DrawFn) -> bytes:
    data = bytearray(draw(_VALID))
    for _ in range(draw(st.integers(1, 4))):
        at = draw(st.integers(0, len(data)))
        end = draw(st.integers(at, min(len(data), at + 8)))
        data[at:end] = draw(st.binary(max_size=8))
    return bytes(data)


@settings(max_examples=examples(2000))
@given(st.one_of(_mutations(), st.binary(max_size=200), st.binary(max_size=200).map(STREAM_HEADER.__add__)))
def test_no_bytes_raise(data: bytes) -> None:
    """Any bytes are a leader or unreadable, and what is read as a leader did stand there."""
    outcome = decode_connection_info(data)
    if isinstance(outcome, LeaderInformation):
        halves = outcome.session_id.bytes
        assert UUID_CLASS + halves[8:] + halves[:8] in data
        assert len(outcome.address.encode()) <= len(data)
    else:
        assert isinstance(outcome, Unreadable)
        assert outcome.reason
