"""Records read as lines: true, short, and text, whatever stands in the store."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sidecar.core.cluster import record_lines
from sidecar.core.flink.leadership import host_port
from sidecar.core.sanitize import MOST_CHARACTERS, clean
from tests.kit.cluster import B
from tests.kit.core_sidecar import watching


@pytest.mark.parametrize(
    ("address", "place"),
    [
        ("pekko.tcp://flink@jm-0.jm:6123/user/rpc/dispatcher_1", "jm-0.jm:6123"),
        ("akka.ssl.tcp://flink@10.1.2.3:6123/user/rpc/resourcemanager_0", "10.1.2.3:6123"),
        ("http://[2001:db8::1]:8081", "[2001:db8::1]:8081"),
        ("https://flink.example:443", "flink.example:443"),
        ("http://[broken", "http://[broken"),
        ("no address", "no address"),
        ("", ""),
    ],
)
def test_an_address_is_told_as_host_and_port(address: str, place: str) -> None:
    """In every scheme that Flink writes; what is no address is told as it stands."""
    assert host_port(address) == place


@given(st.text(max_size=400))
def test_no_control_character_reaches_a_message(hostile: str) -> None:
    """An address with line ends, terminal codes or direction marks stays one bounded, printable line."""
    line = clean(hostile)
    assert line.isprintable()
    assert len(line) <= MOST_CHARACTERS + 1


def test_a_failover_is_one_line_of_the_log() -> None:
    """From whom to whom, why, how sure that is, for how long, how many jobs, and under which name to ask for more."""
    flink, sidecar = watching()
    flink.vacate()
    sidecar.sees_changes().waits(1)
    flink.elect(B)
    sidecar.sees_changes().waits(10)
    (episode,) = sidecar.episodes()
    assert record_lines.episode_line(episode) == (
        f"failover jm-a:6123 → jm-b:6123: jobmanager_lost (medium), no published leader for {episode.vacant_seconds:.3f} s, "
        f"no working leader for at least 1.0 s, 1 of 1 jobs [{episode.id}]"
    )
    sidecar.is_cut_off().waits(20).connects().waits(70)
    blind = sidecar.episodes()[-1]
    assert record_lines.episode_line(blind) == f"no failover: observer_blind (high) [{blind.id}]"
