"""Moves the steady times of a state to another process's clock. Wall times stay as they are."""

from collections.abc import Iterator, Mapping
from typing import Any, Final, TypeVar, cast

from msgspec import Struct
from msgspec.structs import replace

from sidecar.core.alerting.active_silences import Silence, Silences
from sidecar.core.alerting.alerts import CountedFailover, Group, Pending
from sidecar.core.cluster.cluster_state import ComponentState, Confirmed, Fewer, Unanswered
from sidecar.core.cluster.status import Stated
from sidecar.core.failover.causes import Facts
from sidecar.core.failover.episodes import Absence
from sidecar.core.leadership.contenders import Contest
from sidecar.core.leadership.leadership_account import Account, Change
from sidecar.core.leadership.unobserved import LastLed
from sidecar.core.moment import Moment

STEADY: Final[Mapping[type[Struct], frozenset[str]]] = {
    Moment: frozenset({"steady"}),
    ComponentState: frozenset({"seen_at", "published_at", "unregistered_at"}),
    Absence: frozenset({"since", "left_at"}),
    LastLed: frozenset({"earliest", "latest"}),
    Contest: frozenset({"returns"}),
    Facts: frozenset({"opened", "exited_at"}),
    Group: frozenset({"flush_at", "notified_at", "hastened_at"}),
    CountedFailover: frozenset({"at"}),
    Pending: frozenset({"due"}),
    Silence: frozenset({"until", "known_at"}),
    Silences: frozenset({"asked_at", "answered_at"}),
    Confirmed: frozenset({"until"}),
    Fewer: frozenset({"at"}),
    Unanswered: frozenset({"until"}),
    Stated: frozenset({"due"}),
    Account: frozenset({"settled"}),
    Change: frozenset({"at"}),
}
"""The fields that are steady times: numbers, or tuples of them."""

_T = TypeVar("_T")


def rebased(value: _T, by: int) -> _T:
    """`value` with all steady times in it `by` microseconds later; the same object where there are none."""
    moved: Any = value
    match value:
        case Struct():
            steady = STEADY.get(type(value), frozenset())
            fields = {
                name: _later(getattr(value, name), by) if name in steady else rebased(getattr(value, name), by)
                for name in value.__struct_fields__
            }
            if any(field is not getattr(value, name) for name, field in fields.items()):
                moved = replace(value, **fields)
        case dict():
            moved = {key: rebased(item, by) for key, item in value.items()}
        case tuple():
            moved = tuple(rebased(item, by) for item in value)
    return cast("_T", moved)


def steady_times(value: object) -> Iterator[int]:
    """All steady times in `value`."""
    match value:
        case Struct():
            steady = STEADY.get(type(value), frozenset())
            for name in value.__struct_fields__:
                field = getattr(value, name)
                if name not in steady:
                    yield from steady_times(field)
                elif field is not None:
                    yield from field if isinstance(field, tuple) else (field,)
        case dict():
            for item in value.values():
                yield from steady_times(item)
        case tuple():
            for item in value:
                yield from steady_times(item)


def _later(time: Any, by: int) -> Any:
    match time:
        case int():
            return time + by
        case tuple():
            return tuple(item + by for item in time)
    return time
