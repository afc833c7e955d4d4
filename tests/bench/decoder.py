"""How the decoder of leader information fares: `python -m tests.bench.decoder [MUTATIONS]`.

A million random mutations of recorded values, counted by outcome, and the time of one parse. The same seed gives the same mutations.
"""

import sys
from collections import Counter
from collections.abc import Iterator
from random import Random
from statistics import median
from time import perf_counter
from timeit import repeat
from uuid import UUID

from sidecar.core.flink.connection_info import Unreadable, decode_connection_info
from sidecar.core.flink.leadership import LeaderInformation
from tests.kit import zookeeper_recordings as recordings
from tests.kit.java_serialization import connection_info

SEED = 20261120
MUTATIONS = 1_000_000
_PARSES, _ROUNDS = 20_000, 15


def originals() -> list[bytes]:
    """Every different leader value in the recorded trees, and two addresses that need long blocks."""
    recorded = {
        node.data
        for version in recordings.VERSIONS
        for moment in recordings.MOMENTS
        for node in recordings.tree(version, moment).leaders().values()
        if node.data
    }
    return [*sorted(recorded), *(connection_info("a" * length, UUID(int=7)) for length in (300, 2000))]


def mutations(originals: list[bytes], count: int, seed: int = SEED) -> Iterator[bytes]:
    """`count` values, each with one to four random edits: a bit flipped, bytes put in, taken out or copied, the end cut off."""
    random = Random(seed)
    for _ in range(count):
        data = bytearray(random.choice(originals))
        for _ in range(random.randint(1, 4)):
            at = random.randrange(len(data) + 1)
            size = random.randint(1, 8)
            match random.randrange(5):
                case 0 if data:
                    data[at % len(data)] ^= 1 << random.randrange(8)
                case 1:
                    data[at:at] = random.randbytes(size)
                case 2:
                    del data[at : at + size]
                case 3:
                    other = random.choice(originals)
                    start = random.randrange(len(other))
                    data[at : at + size] = other[start : start + size]
                case _:
                    del data[at:]
        yield bytes(data)


def outcomes(values: Iterator[bytes]) -> Counter[str]:
    """How often each outcome came about. Anything that is neither a leader nor unreadable, and any exception, ends the run."""
    counted: Counter[str] = Counter()
    for value in values:
        outcome = decode_connection_info(value)
        match outcome:
            case LeaderInformation():
                counted["leader information"] += 1
            case Unreadable(reason):
                counted["unreadable: " + ("too long" if reason[0].isdigit() else reason)] += 1
    return counted


def microseconds(value: bytes) -> tuple[float, float]:
    """Fastest and median time of one parse."""
    rounds = [
        seconds / _PARSES * 1e6
        for seconds in repeat(lambda: decode_connection_info(value), number=_PARSES, repeat=_ROUNDS)
    ]
    return min(rounds), median(rounds)


def main(count: int = MUTATIONS) -> None:
    """Print one table."""
    values = originals()
    began = perf_counter()
    counted = outcomes(mutations(values, count))
    took = perf_counter() - began
    print(f"{count:,} mutations of {len(values)} values (seed {SEED}) in {took:.1f} s: no exception")
    for outcome, times in counted.most_common():
        print(f"  {outcome:<50} {times:>9,} {times / count:>7.2%}")
    print(f"time of one parse ({_ROUNDS} rounds of {_PARSES:,})             min     median")
    usual = next(value for value in values if b"resourcemanager" in value)
    for name, value in {
        f"leader, {len(usual)} bytes": usual,
        "leader, address of 2,000 characters": values[-1],
        "unreadable, no Java stream": b"x" * len(usual),
        "unreadable, cut short": usual[:-1],
    }.items():
        fastest, middle = microseconds(value)
        print(f"  {name:<42} {fastest:>7.2f} µs {middle:>7.2f} µs")


if __name__ == "__main__":
    main(*(int(argument) for argument in sys.argv[1:]))
