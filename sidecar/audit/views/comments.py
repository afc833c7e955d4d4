"""Comments of tables, views and their columns, from where they are defined: the docstrings of Structs, and the heads of queries.

The head of a query is its first comment: the question, more about it, and a list with a comment for each column, in their order.
`as in NAME` stands for the comment of the same column of that table or view.
"""

import ast
import inspect
import re
import sys
from collections.abc import Iterator, Mapping
from functools import cache
from itertools import pairwise
from typing import Final

from msgspec import Struct
from msgspec.structs import fields

_FIRST_SENTENCE: Final = re.compile(r".*?[.?](?=\s|$)")
_HEAD: Final = re.compile(r"(?:--.*\n)+")
_COLUMNS: Final = "* "


class Comments(Struct, frozen=True):
    """What a table or view is about."""

    about: str
    """One sentence."""
    more: str
    """Further sentences."""
    columns: Mapping[str, str]
    """The comment of each column, in their order."""


def of_struct(struct: type[Struct]) -> Comments:
    """Those of the table with the fields of `struct`: a docstring below each one."""
    written: dict[str, str] = {}
    for base in reversed(struct.__mro__):
        if base is not Struct and issubclass(base, Struct):
            written |= _below_fields(base)
    columns = {field.encode_name: written[field.name] for field in fields(struct) if field.name in written}
    return _comments(inspect.getdoc(struct) or "", columns)


def of_query(query: str) -> Comments:
    """Those of the view that a query defines."""
    head = _HEAD.match(query)
    lines = [line.removeprefix("--").removeprefix(" ") for line in (head[0] if head else "").splitlines()]
    prose = [line for line in lines if not line.startswith((_COLUMNS, "  "))]
    listed = "\n".join(line for line in lines if line.startswith((_COLUMNS, "  ")))
    columns: dict[str, str] = {}
    for item in filter(None, re.split(r"^\* ", listed, flags=re.MULTILINE)):
        names, _, text = _one_line(item).partition(": ")
        columns |= dict.fromkeys(names.split(", "), text)
    return _comments("\n".join(prose), columns)


def _comments(text: str, columns: Mapping[str, str]) -> Comments:
    line = _one_line(text)
    first = _FIRST_SENTENCE.match(line)
    about = first[0] if first else line
    return Comments(about, line.removeprefix(about).strip(), columns)


def _below_fields(struct: type[Struct]) -> Iterator[tuple[str, str]]:
    """The docstrings of the fields that this very Struct defines: Python does not keep them."""
    body = _classes(struct.__module__)[struct.__name__].body
    for field, below in pairwise(body):
        match field, below:
            case ast.AnnAssign(target=ast.Name(id=name)), ast.Expr(value=ast.Constant(value=str(text))):
                yield name, _one_line(text)


@cache
def _classes(module: str) -> Mapping[str, ast.ClassDef]:
    tree = ast.parse(inspect.getsource(sys.modules[module]))
    return {node.name: node for node in tree.body if isinstance(node, ast.ClassDef)}


def _one_line(text: str) -> str:
    return " ".join(text.split())
