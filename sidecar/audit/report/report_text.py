"""How the report writes numbers, times and names."""

from datetime import datetime
from functools import partial
from typing import Final

from pyspark.sql import Row

from sidecar.core.cluster.record_lines import lasted, move
from sidecar.core.counted import counted as core_counted
from sidecar.core.pods import spelled
from sidecar.core.sanitize import clean

DASH = "\N{EN DASH}"
_LABEL_CHARACTERS = 40


def short(text: str, most: int = _LABEL_CHARACTERS) -> str:
    """Untrusted text as one printable line of bounded length."""
    return clean(text, most - 1)


counted: Final = partial(core_counted, thousands=True)
"""`1 cluster`, `2,000 clusters`."""


def seconds(value: float | None) -> str:
    """A readable duration: `840 ms`, `1.5 s`, `2 min 5 s`, `3 h 20 min`, `2 d 4 h`."""
    if value is None:
        return DASH
    if 0 < value < 1:
        return f"{value * 1000:.0f} ms"
    if value < 60:
        return f"{value:.1f}".removesuffix(".0") + " s"
    whole = round(value)
    for size, name, part, smaller in ((86400, "d", 3600, "h"), (3600, "h", 60, "min"), (60, "min", 1, "s")):
        if whole >= size:
            rest = whole % size // part
            return f"{whole // size} {name}" + (f" {rest} {smaller}" if rest else "")
    raise AssertionError(value)


def bounds(least: float | None, most: float | None) -> str:
    """The bounds of a duration. `most` None: not known."""
    if least is None:
        return "not known"
    if max(least, most or least) < 60:
        return lasted(least, most)
    if most is None:
        return f"at least {seconds(least)}"
    return seconds(least) if least == most else f"{seconds(least)} to {seconds(most)}"


def percent(part: float | None, whole: float) -> str:
    """Rounded down: only the whole is shown as 100 %."""
    if part is None or not whole:
        return DASH
    return f"{int(part / whole * 1_000_000) / 10_000:.4f}".rstrip("0").rstrip(".") + " %"


def minute(at: datetime) -> str:
    """A UTC time."""
    return f"{at:%Y-%m-%d %H:%M}"


def second(at: datetime) -> str:
    """A UTC time."""
    return f"{at:%Y-%m-%d %H:%M:%S}"


def moved(episode: Row) -> str:
    """From whom to whom, as on the status page."""
    before, after = (
        spelled(address, pod)
        for address, pod in ((episode.before_address, episode.before_pod), (episode.after_address, episode.after_pod))
    )
    return move(before, after) if episode.after_address else f"{clean(before or '?')} → no leader"


def parts(episode: Row) -> str:
    """What failed over."""
    own = [name for name in episode.components if name != "job"]
    texts = [f"{len(own)} components" if len(own) > 2 else " and ".join(own)]
    if episode.jobs_total:
        texts.append(f"{episode.jobs_affected:,} of {counted(episode.jobs_total, 'job')}")
    if episode.jobs_missing:
        texts.append(f"{counted(episode.jobs_missing, 'job')} without a leader at its end")
    if episode.failovers > 1:
        texts.append(f"{episode.failovers:,} leaders followed each other")
    return clean("; ".join(text for text in texts if text))


def outcome(episode: Row) -> str:
    """Why the process ended and what came back, as far as somebody recorded it."""
    parts = (("death", episode.death_reason), ("recovery", episode.recovery_verdict))
    return ", ".join(f"{name}: {short(text)}" for name, text in parts if text)


def planned(meant: bool | None, *, noted: bool = False) -> str:
    """Whether a failover was meant to happen."""
    if meant is None:
        return "not known"
    return ("planned, as noted" if noted else "planned") if meant else "not planned"
