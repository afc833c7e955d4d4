"""Moves the steady times of a state to another process's clock. Wall times stay as they are."""

from collections.abc import Iterator
from functools import cache
from typing import Any, TypeVar, cast, get_args, get_type_hints

from msgspec import Struct
from msgspec.structs import replace

from sidecar.core.moment import Steady

_T = TypeVar("_T")


@cache
def steady_fields(kind: type[Struct]) -> frozenset[str]:
    """The fields of a type that are steady times: numbers, or tuples of them."""
    hints = get_type_hints(kind, include_extras=True)
    return frozenset(name for name, hint in hints.items() if Steady in (hint, *get_args(hint)))


def rebased(value: _T, by: int) -> _T:
    """`value` with all steady times in it `by` microseconds later; the same object where there are none."""
    moved: Any = value
    match value:
        case Struct():
            steady = steady_fields(type(value))
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
    match value:
        case Struct():
            steady = steady_fields(type(value))
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
