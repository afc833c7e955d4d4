"""Large mappings as values: one with other items costs as much as what is other, not as much as what it holds.

Mappings of thousands of jobs or clusters change one item at a time, thousands of times in a row, and every state in between is a value that
a step may go back to. A persistent tree of a library would forget the order of insertion, by which records are written.
"""

from collections.abc import ItemsView, Iterable, Iterator, KeysView, Mapping, ValuesView
from typing import Any, Final, TypeVar

_K = TypeVar("_K")
_V = TypeVar("_V")

_SMALL: Final = 256
"""Up to so many items are copied."""
_GONE: Final[Any] = object()
"""Marks a removed item in place of its value."""


class Overlay(Mapping[_K, _V]):
    """A few changed items over a dict that is shared with other mappings. Items are in the order of a dict's.

    To read it as a whole makes a dict of it, once: it is still the same value, so any thread may.
    """

    __slots__ = ("_layers",)

    def __init__(self, base: dict[_K, _V], changes: dict[_K, _V]) -> None:
        """Take over both mappings. The caller must not change them from now on."""
        self._layers = base, changes

    @property
    def layers(self) -> tuple[dict[_K, _V], dict[_K, _V]]:
        return self._layers

    def whole(self) -> dict[_K, _V]:
        """All items; not to be changed."""
        base = _whole(*self._layers)
        self._layers = base, {}
        return base

    def __getitem__(self, key: _K) -> _V:
        base, changes = self._layers
        value = changes[key] if key in changes else base[key]
        if value is _GONE:
            raise KeyError(key)
        return value

    def get(self, key: Any, default: Any = None) -> Any:
        base, changes = self._layers
        value = changes[key] if key in changes else base.get(key, default)
        return default if value is _GONE else value

    def __contains__(self, key: object) -> bool:
        return self.get(key, _GONE) is not _GONE

    def __iter__(self) -> Iterator[_K]:
        return iter(self.whole())

    def __len__(self) -> int:
        base, changes = self._layers
        return len(base) + sum((value is not _GONE) - (key in base) for key, value in changes.items())

    def keys(self) -> KeysView[_K]:
        return self.whole().keys()

    def items(self) -> ItemsView[_K, _V]:
        return self.whole().items()

    def values(self) -> ValuesView[_V]:
        return self.whole().values()

    def __repr__(self) -> str:
        return repr(self.whole())


def with_items(mapping: Mapping[_K, _V], items: Mapping[_K, _V]) -> Mapping[_K, _V]:
    """The mapping `{**mapping, **items}`."""
    if isinstance(mapping, dict) and len(mapping) <= _SMALL:
        return {**mapping, **items} if items else mapping
    base, changes = _layers(mapping)
    if any(changes.get(key) is _GONE for key in items):  # it does not return to the place that it had
        base, changes = _whole(base, changes), {}
    return _joined(base, {**changes, **items})


def without_items(mapping: Mapping[_K, _V], keys: Iterable[_K]) -> Mapping[_K, _V]:
    """The mapping without these keys; the same object if it has none of them."""
    gone = [key for key in keys if key in mapping]
    if not gone:
        return mapping
    base, changes = _layers(mapping)
    return _joined(base, changes | dict.fromkeys(gone, _GONE))


def differing(before: Mapping[_K, _V], after: Mapping[_K, _V]) -> tuple[list[_K], dict[_K, _V]]:
    """The keys that only `before` has, and the items of `after` whose values are other objects."""
    (base, old_changes), (other, new_changes) = _layers(before), _layers(after)
    if base is other:
        keys = {**old_changes, **new_changes}
        old, new = ({key: each[key] for key in keys if key in each} for each in (before, after))
    else:
        old, new = _whole(base, old_changes), _whole(other, new_changes)
    removed = [key for key in old if key not in new]
    return removed, {key: value for key, value in new.items() if old.get(key) is not value}


def _layers(mapping: Mapping[_K, _V]) -> tuple[dict[_K, _V], dict[_K, _V]]:
    if isinstance(mapping, Overlay):
        return mapping.layers
    return mapping if isinstance(mapping, dict) else dict(mapping), {}


def _joined(base: dict[_K, _V], changes: dict[_K, _V]) -> Mapping[_K, _V]:
    """A whole dict if one is copied as fast: then n changes of n items cost n times the root of n."""
    if len(base) <= _SMALL or len(changes) ** 2 > len(base):
        return _whole(base, changes)
    return Overlay(base, changes)


def _whole(base: dict[_K, _V], changes: dict[_K, _V]) -> dict[_K, _V]:
    if not changes:
        return base
    whole = {**base, **changes}
    for key, value in changes.items():
        if value is _GONE:
            del whole[key]
    return whole
