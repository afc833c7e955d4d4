"""What somebody might write who means harm, or nothing at all: strategies for the test_hostile_*.py of each room."""

import json
from collections.abc import Iterable
from typing import Any, Final

from hypothesis import strategies as st

DEEP: Final = 1200
"""Levels: more than Python's own limit of recursion, and few bytes."""

_HUGE: Final = (2**31, 2**53 + 1, 2**63, 2**64, -(2**63) - 1, 10**30)
_TEXTS: Final = (
    "",
    "\0",
    "\x1b[2J",
    "\u202e",
    "<!channel>",
    "[x](https://evil.example.com)",
    "=1+1",
    "x" * 5000,
    "null",
    "\u2028",
)


def texts() -> st.SearchStrategy[str]:
    """Text, also such as no terminal, chat or spreadsheet should get; without halves of characters."""
    return st.sampled_from(_TEXTS) | st.text(max_size=40)


def numbers() -> st.SearchStrategy[float | int]:
    """Numbers, also such as no clock or counter has."""
    return st.sampled_from(_HUGE) | st.integers() | st.floats(allow_nan=False, allow_infinity=False)


def values() -> st.SearchStrategy[Any]:
    """Anything that JSON can say, not deep."""
    plain = st.none() | st.booleans() | numbers() | texts()
    return st.recursive(
        plain, lambda inner: st.lists(inner, max_size=4) | st.dictionaries(texts(), inner, max_size=4), max_leaves=8
    )


def objects(shape: dict[str, st.SearchStrategy[Any]]) -> st.SearchStrategy[dict[str, Any]]:
    """Objects of this shape in which any field may be missing, or be anything, and others may be."""
    fields = {key: st.one_of(strategy, strategy, values()) for key, strategy in shape.items()}
    return st.builds(
        lambda own, more: {**more, **own},
        st.fixed_dictionaries({}, optional=fields),
        st.dictionaries(texts(), values(), max_size=2),
    )


def documents(of: st.SearchStrategy[Any]) -> st.SearchStrategy[bytes]:
    """JSON of these values; sometimes cut short, with bytes that are none of its, or no JSON at all."""
    whole = of.map(lambda value: json.dumps(value).encode())
    return st.one_of(whole, whole, _damaged(whole), st.binary(max_size=100))


@st.composite
def _damaged(draw: st.DrawFn, whole: st.SearchStrategy[bytes]) -> bytes:
    document = bytearray(draw(whole))
    for _ in range(draw(st.integers(1, 3))):
        if document:
            position = draw(st.integers(0, len(document) - 1))
            if draw(st.booleans()):
                del document[position:]
            else:
                document[position] = draw(st.integers(0, 255))
    return bytes(document)


def nested(document: dict[str, Any]) -> list[bytes]:
    """Documents in which a field, known or not, holds lists or objects a thousand levels deep.

    Not a strategy: hypothesis raises the limit of recursion, and everything would pass.
    """
    documents = []
    for begin, end in (("[", "]"), ('{"a":', "}")):
        deep = begin * DEEP + "0" + end * DEEP
        documents.append(deep)
        for key in (*document, "unknown"):
            fields = {name: json.dumps(content) for name, content in document.items()} | {key: deep}
            documents.append(
                "{" + ", ".join(f"{json.dumps(name)}: {content}" for name, content in fields.items()) + "}"
            )
    return [content.encode() for content in documents]


def lines(of: Iterable[bytes]) -> bytes:
    """A file of these lines."""
    return b"".join(line.replace(b"\n", b" ") + b"\n" for line in of)
