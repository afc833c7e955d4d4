"""What a query can name, and what it is about, without Spark. Comments come from where tables, views and their columns are defined: the
docstrings of Structs, and the heads of queries.

The head of a query is its first comment: the question, more about it, and a list with a comment for each column, in their order.
`as in NAME` stands for the comment of the same column of that table or view.
"""

import ast
import inspect
import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from functools import cache
from importlib.resources import files
from itertools import pairwise
from typing import Final, NamedTuple, get_args

from msgspec import Struct
from msgspec.structs import fields, replace
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StructField, StructType

from sidecar.audit.log.manifest import EPOCH
from sidecar.audit.log.tables import BASE_VIEWS, EVENT_DATE, TABLES, QuarantinedLine, table_of
from sidecar.core.records import AnyRecord

_FIRST_SENTENCE: Final = re.compile(r".*?[.?](?=\s|$)")
_HEAD: Final = re.compile(r"(?:--.*\n)+")
_COLUMNS: Final = "* "
_NAMED_QUERY: Final = re.compile(r"^---- (\w+)\n(.*?)\n(?=^---- |\Z)", re.DOTALL | re.MULTILINE)
"""A query in a file of several: below a line with its name, before an empty one."""
ANSWERS: Final = (
    *("leadership", "known_until", "sight", "leader_timeline", "leader_changes", "failovers", "recovery_time"),
    *("reprocessed", "causes_of_death", "unreviewed", "mttr", "availability", "cluster_availability"),
    *("cluster_months", "leadership_slo", "flapping", "unobserved", "alert_deliveries", "weekly_report"),
)
"""In this order: a view may query those before it."""
_QUERIES: Final = {"availability_days": "_days"}
"""The query that defines a materialised table, if it has another name."""
_STRUCTS: Final = {table_of(str(record.__struct_config__.tag)): record for record in get_args(AnyRecord)}
_HOST: Final = r"nullif(regexp_extract({}, r'^[a-z.]+://(?:[^/@]*@)?\[?([^/@\[\]]+?)\]?:[0-9]+(?:/|$)', 1), '')"
"""The host in a leader's address, without the brackets of IPv6. Not a column of the materialized tables: old files would lack it."""
_END: Final = datetime(9999, 1, 1, tzinfo=UTC)


class Comments(Struct, frozen=True):
    """What a table or view is about."""

    about: str
    """One sentence."""
    more: str
    """Further sentences."""
    columns: Mapping[str, str]
    """The comment of each column, in their order."""


def struct_comments(struct: type[Struct]) -> Comments:
    """Those of the table with the fields of `struct`: a docstring below each one."""
    written: dict[str, str] = {}
    for base in reversed(struct.__mro__):
        if base is not Struct and issubclass(base, Struct):
            written |= _below_fields(base)
    columns = {field.encode_name: written[field.name] for field in fields(struct) if field.name in written}
    return _comments(inspect.getdoc(struct) or "", columns)


def query_comments(query: str) -> Comments:
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


class Relation(NamedTuple):
    """A table, or a view that answers a question."""

    name: str
    kind: str
    about: str


def catalog() -> Sequence[Relation]:
    """All tables, then all views."""
    return [
        *(Relation(name, "table", comments(name).about) for name in BASE_VIEWS),
        *(Relation(name, "view", comments(name).about) for name in ANSWERS),
    ]


def answer(name: str) -> str:
    """The query of an answer. It begins with the question, as a comment."""
    return _queries()[name]


@cache
def _queries() -> Mapping[str, str]:
    texts = (
        file.read_text(encoding="utf-8")
        for file in files("sidecar.audit.views").iterdir()
        if file.name.endswith(".sql")
    )
    return dict(_NAMED_QUERY.findall("".join(texts)))


@cache
def comments(name: str) -> Comments:
    """What a table or view, or a materialised table, is about, and its columns."""
    if name in BASE_VIEWS:
        return _table_comments(name)
    base = query_comments(answer(_QUERIES.get(name, name)))
    elsewhere = {column: comments(other).columns[column] for column, other in explained_elsewhere(name).items()}
    return replace(base, columns={**base.columns, **elsewhere})


def explained_elsewhere(view: str) -> Mapping[str, str]:
    """The columns of a view whose comments are those of another table or view, and which one."""
    columns = query_comments(answer(_QUERIES.get(view, view))).columns
    found = {column: re.fullmatch(r"as in (\w+)", text) for column, text in columns.items()}
    return {column: match[1] for column, match in found.items() if match}


def with_comments(schema: StructType, name: str) -> StructType:
    """The columns of a table or view, with their comments, which DESCRIBE shows."""
    columns = comments(name).columns
    return StructType(
        [StructField(field.name, field.dataType, metadata={"comment": columns[field.name]}) for field in schema]
    )


def _table_comments(name: str) -> Comments:
    base = struct_comments(_STRUCTS.get(name, QuarantinedLine))
    table = TABLES[name]
    is_dated = table.partition == EVENT_DATE
    how = "reads only the folders of those dates" if is_dated else "skips the files of other months by their statistics"
    last = {EVENT_DATE: f"The UTC date of `{table.time}`. A condition on it {how}."}
    return replace(base, columns=dict(base.columns) | last)


def define(
    session: SparkSession, name: str, begin: datetime = EPOCH, end: datetime = _END, *, commented: bool = False
) -> None:
    """Register the view `name` over the views that exist now; changing those later does not change it."""
    create(session.sql(definition(name, begin, end)), name, commented=commented)


def create(rows: DataFrame, name: str, *, commented: bool) -> None:
    """`commented`: with what DESCRIBE shows, which Spark takes time for and a query does without."""
    (rows.to(with_comments(rows.schema, name)) if commented else rows).createOrReplaceTempView(name)


def definition(name: str, begin: datetime = EPOCH, end: datetime = _END) -> str:
    """The query of a view, with SQL for `:begin`, `:end` and `:host(address)`."""
    query = answer("sight" if name == "_sight" else name)
    query = re.sub(r":host\(([\w.]+)\)", lambda address: _HOST.format(address[1]), query)
    return query.replace(":begin", _literal(begin)).replace(":end", _literal(end))


def _literal(moment: datetime) -> str:
    return f"TIMESTAMP '{moment:%Y-%m-%d %H:%M:%S}Z'"
