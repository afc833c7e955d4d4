"""Computes the most memory that a JobManager's process uses, as Flink's memory model has it (FLIP-116)."""

import re
from collections.abc import Mapping
from typing import Final, NamedTuple

MiB: Final = 1 << 20
_PREFIX: Final = "jobmanager.memory."
_SIZE: Final = re.compile(r"(\d{1,15})\s*([a-z]*)")
_SHIFTS: Final = {
    **dict.fromkeys(("", "b", "bytes"), 0),
    **dict.fromkeys(("k", "kb", "kibibytes"), 10),
    **dict.fromkeys(("m", "mb", "mebibytes"), 20),
    **dict.fromkeys(("g", "gb", "gibibytes"), 30),
    **dict.fromkeys(("t", "tb", "tebibytes"), 40),
}
_DEFAULTS: Final = {"off-heap.size": 128 * MiB, "jvm-metaspace.size": 256 * MiB, "jvm-overhead.min": 192 * MiB}


class Need(NamedTuple):
    """Bytes of a whole JVM, and what they follow from."""

    total: int
    reason: str


def memory_size(text: str) -> int | None:
    """Bytes of a size as Flink's `MemorySize` reads it: `1600m`, `1 gb`, `1073741824`. None: no size."""
    match = _SIZE.fullmatch(text.strip().lower())
    shift = _SHIFTS.get(match[2]) if match else None
    return int(match[1]) << shift if match and shift is not None else None


def needed_bytes(heap: int | None, options: Mapping[str, str]) -> Need | None:
    """The memory that a JobManager may use. `heap`: its -Xmx, which wins over `options`, those of `jobmanager.memory`. None: not known."""
    sizes = {name: size for name in _NAMES if (size := memory_size(options.get(f"{_PREFIX}{name}", ""))) is not None}
    beside = {name: sizes.get(name, default) for name, default in _DEFAULTS.items()}
    parts = "with metaspace, direct memory and overhead"
    if heap is not None:
        return Need(heap + sum(beside.values()), f"-Xmx is {heap // MiB} MiB: {parts} the JVM needs")
    if (process := sizes.get("process.size")) is not None:
        return Need(process, f"{_PREFIX}process.size is")
    if (flink := sizes.get("flink.size")) is not None:
        total = flink + beside["jvm-metaspace.size"] + beside["jvm-overhead.min"]
        return Need(total, f"{_PREFIX}flink.size is {flink // MiB} MiB: with metaspace and overhead the JVM needs")
    if (size := sizes.get("heap.size")) is not None:
        return Need(size + sum(beside.values()), f"{_PREFIX}heap.size is {size // MiB} MiB: {parts} the JVM needs")
    return None


_NAMES: Final = ("process.size", "flink.size", "heap.size", *_DEFAULTS)
