"""Rows that earlier versions wrote to the journal, migrated to the current format: one step per format, in order."""

import re
from collections.abc import Callable, Iterable, Iterator
from typing import Any, Final

import msgspec
from msgspec import json
from msgspec.structs import replace

from sidecar.core.cluster.records.record_reader import transition_of
from sidecar.core.journal_rows import Row
from sidecar.core.moment import Moment, micros, parsed
from sidecar.core.records import TransitionRecord

_TRANSITION: Final = json.Decoder(TransitionRecord)
_FOR_SECONDS: Final = re.compile(r" for (\d+\.\d) s$")


def _typed_transitions(row: Row) -> Row:
    """Format 1 kept a departed job's record instead of its transition, and as text for how long a lease was not renewed."""
    if row.value is None:
        return row
    match row.kind:
        case "departed":
            record = _TRANSITION.decode(row.value)
            at = parsed(record.observed_at)
            return replace(row, value=json.encode(transition_of(record, Moment(at, at))))
        case "episode" | "last_episode":
            episode: dict[str, Any] = json.decode(row.value)
            if lapsed := _FOR_SECONDS.search(episode["facts"].pop("lapsed", None) or ""):
                episode["facts"]["not_renewed_for"] = micros(float(lapsed[1]))
            return replace(row, value=json.encode(episode))
    return row


_MIGRATIONS: Final[tuple[Callable[[Row], Row], ...]] = (_typed_transitions,)
"""The first one is from format 1 to 2."""
FORMAT: Final = 1 + len(_MIGRATIONS)
"""The current format of rows."""


def migrated(rows: Iterable[Row], old_format: int) -> Iterator[Row]:
    """Rows of format `old_format` in the current format. An invalid row stays as it is: its reader reports it."""
    for row in rows:
        try:
            now = row
            for migrate in _MIGRATIONS[old_format - 1 :]:
                now = migrate(now)
            yield now
        except (msgspec.MsgspecError, ValueError, KeyError, AttributeError, TypeError, RecursionError):
            yield row
