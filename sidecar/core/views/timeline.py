"""Who led when: the recorded past of each component as spans of time, for pictures."""

from collections.abc import Iterable, Mapping, Sequence
from enum import StrEnum
from functools import lru_cache
from itertools import pairwise
from typing import Final

from msgspec import Struct
from msgspec.structs import replace

from sidecar.core.cluster.cluster_state import ClusterState
from sidecar.core.flink.leadership import Component, Held, Leadership, Unknown
from sidecar.core.moment import Moment, parsed
from sidecar.core.pods import process
from sidecar.core.records import Coverage, TransitionRecord


class SpanState(StrEnum):
    """What is known of a component in one span of time."""

    HELD = "held"
    VACANT = "vacant"
    BLIND = "blind"
    """The store could not be read, or the leader's data was unreadable."""
    UNRECORDED = "unrecorded"
    """Before the first record, or after the job ended."""


class LeaderSpan(Struct, frozen=True):
    """From `start` to `end` (wall, microseconds) nothing changed. `leader`: the host of the leader, printable; None unless HELD."""

    start: int
    end: int
    state: SpanState
    leader: str | None = None


class Switch(Struct, frozen=True):
    """One transition of a component, as a timeline needs it."""

    at: int
    before: tuple[SpanState, str | None]
    after: tuple[SpanState, str | None]


Blind = tuple[int, int]
"""From and to (wall) of a time in which this observer could not read the store."""
OWN: Final = (Component.DISPATCHER.value, Component.RESOURCE_MANAGER.value, Component.REST_SERVER.value)
"""The components of every cluster, in the order of a picture."""
_NOTHING: Final = (SpanState.UNRECORDED, None)
_AFTER: Final = {"null": SpanState.VACANT, "?": SpanState.BLIND, "gone": SpanState.UNRECORDED}
"""By the ends of a transition's pattern; everything else is a leader."""


def change(record: TransitionRecord) -> Switch:
    before, _, after = record.pattern.partition("->")
    return Switch(parsed(record.observed_at), _side(before, record.before_address), _side(after, record.after_address))


def blindness(record: Coverage) -> Blind | None:
    """The time without a view that the record is about; None: the store could be read."""
    return (parsed(record.began_at), parsed(record.ended_at)) if record.state == "blind" else None


def blind_now(cluster: ClusterState, at: Moment) -> Blind | None:
    """The current time without a view; None: the store can be read."""
    if cluster.is_in_sight:
        return None
    loss = cluster.view.loss
    began = loss.began if loss and loss.ended is None else cluster.view.since
    return began.wall, at.wall


def current(leadership: Leadership) -> tuple[SpanState, str | None]:
    if isinstance(leadership, Held):
        return SpanState.HELD, _leader(leadership.leader.address)
    return (SpanState.BLIND if isinstance(leadership, Unknown) else SpanState.VACANT), None


def spans(
    changes: Sequence[Switch],
    blind: Iterable[Blind],
    now: tuple[SpanState, str | None] | None,
    start: int,
    end: int,
    recorded_since: int,
) -> list[LeaderSpan]:
    """The spans of one component from `start` to `end`, in order and without gaps.

    `changes`: in order. `now`: its state at `end` if it never changed. `recorded_since`: what was before is not known.
    """
    first = changes[0].before if changes else (now or _NOTHING)
    recorded = max(start, min(recorded_since, end))
    edges = [
        (start, _NOTHING),
        (recorded, first),
        *((min(max(change.at, recorded), end), change.after) for change in changes),
    ]
    away = sorted((max(begin, recorded), min(until, end)) for begin, until in blind)
    cuts = sorted({start, end, *(at for at, _ in edges), *(at for part in away if part[0] < part[1] for at in part)})
    parts: list[LeaderSpan] = []
    edge = lost = 0
    for begin, until in pairwise(cuts):
        while edge + 1 < len(edges) and edges[edge + 1][0] <= begin:
            edge += 1
        while lost < len(away) and away[lost][1] <= begin:
            lost += 1
        is_blind = lost < len(away) and away[lost][0] <= begin
        state, leader = (SpanState.BLIND, None) if is_blind else edges[edge][1]
        parts.append(LeaderSpan(begin, until, state, leader))
    return _joined(parts)


def _joined(parts: Iterable[LeaderSpan]) -> list[LeaderSpan]:
    """The spans, of which those that follow each other in one state are one."""
    joined: list[LeaderSpan] = []
    for span in parts:
        if joined and (joined[-1].state, joined[-1].leader) == (span.state, span.leader):
            joined[-1] = replace(joined[-1], end=span.end)
        else:
            joined.append(span)
    return joined


def totals(timeline: Iterable[LeaderSpan]) -> Mapping[SpanState, tuple[int, int]]:
    """By state: in how many spans, and for how long in all (microseconds)."""
    sums: dict[SpanState, tuple[int, int]] = {}
    for span in timeline:
        number, total = sums.get(span.state, (0, 0))
        sums[span.state] = number + 1, total + span.end - span.start
    return sums


def _side(side: str, address: str | None) -> tuple[SpanState, str | None]:
    state = _AFTER.get(side, SpanState.HELD)
    return state, _leader(address) if state is SpanState.HELD else None


@lru_cache(maxsize=256)
def _leader(address: str | None) -> str:
    return process(address)
