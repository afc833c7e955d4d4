"""Numbers of things: their bounds, and in words."""

from collections.abc import Sequence
from typing import Annotated, Final

from msgspec import Meta

Count = Annotated[int, Meta(ge=0, le=1_000_000)]
Number = Annotated[int, Meta(ge=-(2**63), le=2**63 - 1)]
"""A number of ZooKeeper, Kubernetes or Flink: a Java `long`."""
_UNITS: Final = ("B", "KiB", "MiB", "GiB", "TiB", "PiB")


def counted(number: int, noun: str, *, thousands: bool = False) -> str:
    """`1 job`, `2000 jobs`; with `thousands` separated: `2,000 jobs`. `noun` is one of them, with a regular plural."""
    return f"{number:{',' if thousands else ''}} {noun}{'' if number == 1 else 's'}"


def listed(names: Sequence[str], most: int) -> str:
    """`a, b and 3 more`: the first `most` of the names."""
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return f"{', '.join(names[:most])}{more}"


def shortened(lines: Sequence[str], most: int, total: int | None = None, noun: str = "") -> list[str]:
    """The first `most` of the lines, and how many more there are: `… and 3 more jobs`. `total`: of what `lines` are the first."""
    more = (len(lines) if total is None else total) - min(len(lines), most)
    how_many = counted(more, f"more {noun}") if noun else f"{more} more"
    return [*lines[:most], *([f"… and {how_many}"] if more > 0 else [])]


def data_size(count: int) -> str:
    """`1.5 GiB`: bytes in the largest unit of which there is one."""
    power = min(max(count.bit_length() - 1, 0) // 10, len(_UNITS) - 1)
    return f"{count / (1 << 10 * power):.3g} {_UNITS[power]}"
