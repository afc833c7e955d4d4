"""Documents with every field of the handover's schema, made from the schema itself: a new field is in them by itself."""

from collections.abc import Iterator
from random import Random
from re import search
from typing import Any, Final, cast
from uuid import UUID

from msgspec import inspect, to_builtins

from sidecar.core.handover import schema
from sidecar.core.moment import LATEST, SECOND, Moment
from tests.kit.observed_failovers import at

_JOB: Final = f"{7:032x}"
_ID: Final = "0c9a4f8e-8f0b-5e0a-9d2c-3f1f5c1c6a11"
SAMPLES: Final[tuple[str, ...]] = (
    *("", "jm-1", "10.0.0.1", "10.0.0.1:6123", "RUNNING", "ops#0", "FlinkNoLeader", "a"),
    *(_ID, _JOB, "x" * 40, "orders", "1", "2026-11-20T08:00:00Z", "1.19"),
)
"""Texts, of which each pattern of the schema accepts one: a test finds a pattern that accepts none."""
_DOCUMENT: Final = cast("inspect.StructType", inspect.type_info(schema.Document))
_SECONDS: Final = (0, 1, 60, 100, 120)
"""Of the scene: none is later than the documents."""
_MOST: Final = 3
"""Items of a list."""


def document(random: Random, base: dict[str, Any], *, left_out: float = 0.0) -> dict[str, Any]:
    """A document that the schema accepts, with the head of `base`. `left_out`: the share of optional fields that are."""
    made = _struct(random, _DOCUMENT, left_out)
    head = ("format", "observer", "alive", *random.choice(((), ("components",))))
    return {**base, **made, **{name: base[name] for name in head if name in base}}


def fields(info: inspect.Type | None = None, seen: frozenset[type] = frozenset()) -> Iterator[tuple[str, str]]:
    """Each struct of the schema with each of its fields, as it is encoded."""
    info = info or _DOCUMENT
    match info:
        case inspect.StructType(cls=kind) if kind not in seen:
            for field in info.fields:
                yield kind.__name__, field.encode_name
                yield from fields(field.type, seen | {kind})
        case inspect.UnionType(types=types) | inspect.TupleType(item_types=types):
            for each in types:
                yield from fields(each, seen)
        case (
            inspect.ListType(item_type=item) | inspect.VarTupleType(item_type=item) | inspect.DictType(value_type=item)
        ):
            yield from fields(item, seen)


def filled(  # noqa: C901  one for each kind of type
    value: Any, info: inspect.Type | None = None
) -> Iterator[tuple[str, str]]:
    """Each struct and field that has a value other than null or empty in a document."""
    match info or _DOCUMENT:
        case inspect.StructType() as struct if struct.array_like and isinstance(value, list):
            yield from ((struct.cls.__name__, field.encode_name) for field in struct.fields[: len(value)])
        case inspect.StructType(cls=kind) as struct if isinstance(value, dict) and _is_of(struct, value):
            for field in struct.fields:
                if value.get(field.encode_name) not in (None, [], {}, ""):
                    yield kind.__name__, field.encode_name
                    yield from filled(value[field.encode_name], field.type)
        case inspect.UnionType(types=types):
            for each in types:
                yield from filled(value, each)
        case inspect.TupleType(item_types=types) if isinstance(value, list):
            for item, each in zip(value, types, strict=False):
                yield from filled(item, each)
        case inspect.ListType(item_type=item) | inspect.VarTupleType(item_type=item) if isinstance(value, list):
            for each in value:
                yield from filled(each, item)
        case inspect.DictType(value_type=item) if isinstance(value, dict):
            for each in value.values():
                yield from filled(each, item)


def _is_of(struct: inspect.StructType, value: dict[str, Any]) -> bool:
    return struct.tag_field is None or value.get(struct.tag_field) == struct.tag


def _struct(random: Random, info: inspect.StructType, left_out: float) -> Any:
    if info.cls is Moment:
        return to_builtins(at(random.choice(_SECONDS)))
    if info.array_like:
        return [_value(random, field.type, 0) for field in info.fields]
    tag = {info.tag_field: info.tag} if info.tag_field else {}
    return tag | {
        field.encode_name: _value(random, field.type, left_out)
        for field in info.fields
        if field.required or random.random() >= left_out
    }


def _value(random: Random, info: inspect.Type, left_out: float) -> Any:  # noqa: C901, PLR0911  one for each kind of type
    match info:
        case inspect.StructType():
            return _struct(random, info, left_out)
        case inspect.UnionType(types=types):
            some = [each for each in types if not isinstance(each, inspect.NoneType)]
            return None if random.random() < left_out / 2 else _value(random, random.choice(some), left_out)
        case inspect.IntType():
            return _integer(random, info)
        case inspect.FloatType():
            return random.choice([each for each in (0.0, 0.5, 12.25, 99.0) if each <= (info.le or LATEST)])
        case inspect.StrType():
            return random.choice([text for text in SAMPLES if _accepts(info, text)])
        case inspect.BoolType():
            return random.random() < 0.5
        case inspect.EnumType(cls=kind):
            return random.choice([member.value for member in kind])
        case inspect.LiteralType(values=values):
            return random.choice(values)
        case inspect.UUIDType():
            return str(UUID(int=random.getrandbits(128)))
        case inspect.TupleType(item_types=types):
            return [_value(random, each, left_out) for each in types]
        case inspect.ListType() | inspect.VarTupleType():
            count = random.randint(1, min(_MOST, info.max_length or _MOST))
            return [_value(random, info.item_type, left_out) for _ in range(max(count, info.min_length or 0))]
        case inspect.DictType():
            count = random.randint(1, min(_MOST, info.max_length or _MOST))
            return {_value(random, info.key_type, 0): _value(random, info.value_type, left_out) for _ in range(count)}
    raise NotImplementedError(info)


def _integer(random: Random, info: inspect.IntType) -> int:
    """A time of the scene, where it may be one: steady, or by the wall clock. Else a small number, or the largest."""
    second, small = random.choice(_SECONDS), random.randint(0, 5)
    match info.ge, info.le:
        case int(least), most if least <= -LATEST and most == LATEST:
            return second * SECOND
        case _, most if most == LATEST:
            return random.choice((at(second).wall, small, small * SECOND))
    return max(info.ge or 0, min(random.choice((small, small, small, info.le or 5)), info.le or small))


def _accepts(info: inspect.StrType, text: str) -> bool:
    length = (info.min_length or 0) <= len(text) <= (info.max_length if info.max_length is not None else len(text))
    return length and (info.pattern is None or search(info.pattern, text) is not None)
