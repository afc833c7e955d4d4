"""Random histories of leaderships: what several observers recorded of clusters whose leaders come and go, over some days.

Nothing in them is tidy: clocks differ, observers are blind, forget, start late and record twice, leaders return, jobs end unseen, and
some of it happens around midnight.
"""

import random
from collections.abc import Iterator
from typing import Any

from msgspec.structs import replace

from sidecar.core.records import AnyRecord, PositionRecord
from tests.audit.histories import History, at
from tests.audit.spooling import episode, instant, session_id

DAY = 86400.0
MIDNIGHT = -43200.0
"""The midnight before the noon from which histories count."""
_LEADERSHIPS: list[dict[str, Any]] = [{}, {"component": "rest_server"}] + [
    {"component": "job", "job_id": f"{number:032x}"} for number in range(3)
]


def random_history(chance: random.Random, name: str, days: int) -> list[AnyRecord]:
    """What was recorded of the cluster `name`, in the order of its happening; its coverage last."""
    history = History(name)
    observers = {f"jm-{number}": chance.choice([0.0, 0.0, 0.4, -7.0, 500.0]) for number in range(chance.randint(1, 3))}
    for fields in chance.sample(_LEADERSHIPS, chance.randint(1, len(_LEADERSHIPS))):
        _leadership(chance, history, fields, observers, days)
    for observer in observers:
        _coverage(chance, history, observer, days)
    return _with_twins(chance, history)


def _leadership(
    chance: random.Random, history: History, fields: dict[str, Any], observers: dict[str, float], days: int
) -> None:
    """A leadership that changes now and then; each change is recorded by some of the observers, by their clocks."""
    leader: str | None = None
    before: str | None = None
    writing = 0
    for seconds in _moments(chance, days):
        happening = chance.choices(
            ["revoked", "granted", "changed", "found", "forgot", "obscured", "retired", "returned", "moved"],
            [20, 30, 15, 20, 6, 4, 5 if fields.get("job_id") else 0, 6, 4],
        )[0]
        writing += chance.random() < 0.8
        written: dict[str, Any] = {"position": PositionRecord(mzxid=writing, czxid=writing)}
        if happening in {"granted", "changed", "returned"}:
            last_known = leader or before
            leader = session_id(chance.choice("abcdef")) if happening != "returned" else (before or session_id("a"))
            kind = "GRANTED" if happening == "granted" else "CHANGED"
            vacant = chance.choice([None, 0.5, 30.0])
            change = {
                "kind": kind,
                "after": leader,
                "before": last_known,
                "vacant_seconds": vacant,
                "returned": happening == "returned",
            }
        elif happening in {"revoked", "retired"}:
            change = {"kind": happening.upper(), "after": None, "before": leader}
            before, leader = leader or before, None
        elif happening == "obscured":
            change = {
                "kind": "OBSCURED",
                "after": None,
                "before": leader,
                "connection": chance.choice(["CONNECTED", "SUSPENDED"]),
            }
        else:
            seen = leader if happening != "found" or chance.random() < 0.8 else before
            kind = "READDRESSED" if happening == "moved" and leader else "DISCOVERED"
            change = {"kind": kind, "after": seen, "before": None if happening == "forgot" else leader}
        for observer, skew in observers.items():
            if chance.random() < 0.7:
                late = chance.choice([0.0, 0.0, 0.2, 30.0])
                _record(history, seconds + skew + late, change | written | fields, observer, chance)


def _record(history: History, seconds: float, change: dict[str, Any], observer: str, chance: random.Random) -> None:
    change = dict(change)
    kind, after, before = change.pop("kind"), change.pop("after"), change.pop("before")
    if kind != "DISCOVERED" and chance.random() < 0.15:
        kind = "DISCOVERED"  # this observer missed it, and found it afterwards
        change["vacant_seconds"] = None
    history.happened(
        seconds, kind, after, before, observer=observer, episode_id=episode(int(seconds) % 50).id, **change
    )


def _coverage(chance: random.Random, history: History, observer: str, days: int) -> None:
    """Sight and blindness in turn, with gaps; and what an observer without state finds at its first look."""
    now, end = MIDNIGHT + chance.uniform(0, DAY), MIDNIGHT + chance.uniform(0.3, 1) * days * DAY
    while now < end:
        until = now + chance.choice([60.0, 3600.0, 20000.0, DAY])
        state = chance.choices(["seeing", "blind"], [3, 1])[0]
        if chance.random() < 0.85:
            history.covered(now, until, state, observer)
            if state == "blind" and chance.random() < 0.6:
                history.discovered(until - chance.uniform(0, 50), session_id("a"), observer=observer)
        now = until


def _moments(chance: random.Random, days: int) -> Iterator[float]:
    """Moments of changes: bursts, quiet days, and midnights."""
    seconds = MIDNIGHT + chance.uniform(0, DAY)
    while seconds < MIDNIGHT + days * DAY:
        yield round(seconds, 1)
        if chance.random() < 0.2:
            seconds += DAY - (seconds - MIDNIGHT) % DAY + chance.choice([-1.0, 0.0, 0.1, 1.0, 3599.0, 3600.1, 7000.0])
        seconds += chance.choice([0.1, 1.0, 40.0, 1800.0, 3700.0, 20000.0, 70000.0, 2.5 * DAY])


def _with_twins(chance: random.Random, history: History) -> list[AnyRecord]:
    """Some records have a twin of another observer, with the same id; those of one time are ordered by when they were recorded."""
    records = [
        replace(
            record,
            recorded_at=chance.choice([record.observed_at, instant(at(chance.uniform(MIDNIGHT, MIDNIGHT + DAY)))]),
        )
        for record in history.records
    ]
    return records + [replace(record, observer="twin") for record in records if chance.random() < 0.05]
