"""What a query can name, and what it is about, without Spark."""

import re
from collections.abc import Mapping, Sequence
from functools import cache
from importlib.resources import files
from typing import Final, NamedTuple, get_args

from msgspec.structs import replace
from pyspark.sql.types import StructField, StructType

from sidecar.audit.log.schema import BASE_VIEWS, EVENT_DATE, QuarantinedLine, table_of
from sidecar.audit.log.tables import TABLES
from sidecar.audit.views.comments import Comments, of_query, of_struct
from sidecar.core.records import AnyRecord

ANSWERS: Final = (
    "leadership",
    "known_until",
    "sight",
    "leader_timeline",
    "leader_changes",
    "failovers",
    "recovery_time",
    "reprocessed",
    "causes_of_death",
    "unreviewed",
    "mttr",
    "availability",
    "cluster_availability",
    "cluster_months",
    "leadership_slo",
    "flapping",
    "unobserved",
    "alert_deliveries",
    "weekly_report",
)
"""In this order: a view may query those before it."""
_QUERIES: Final = {"availability_days": "_days"}
"""The query that defines a materialised table, if it has another name."""
_STRUCTS: Final = {table_of(str(record.__struct_config__.tag)): record for record in get_args(AnyRecord)}


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
    folder = files("sidecar.audit.views")
    return (folder / "terms" if name.startswith("_") else folder).joinpath(f"{name}.sql").read_text(encoding="utf-8")


@cache
def comments(name: str) -> Comments:
    """What a table or view, or a materialised table, is about, and its columns."""
    if name in BASE_VIEWS:
        return _of_table(name)
    base = of_query(answer(_QUERIES.get(name, name)))
    elsewhere = {column: comments(other).columns[column] for column, other in _explained_elsewhere(base).items()}
    return replace(base, columns={**base.columns, **elsewhere})


def explained_elsewhere(view: str) -> Mapping[str, str]:
    """The columns of a view whose comments are those of another table or view, and which one."""
    return _explained_elsewhere(of_query(answer(view)))


def with_comments(schema: StructType, name: str) -> StructType:
    """The columns of a table or view, with their comments, which DESCRIBE shows."""
    columns = comments(name).columns
    return StructType(
        [StructField(field.name, field.dataType, metadata={"comment": columns[field.name]}) for field in schema]
    )


def _of_table(name: str) -> Comments:
    base = of_struct(_STRUCTS.get(name, QuarantinedLine))
    table = TABLES[name]
    is_dated = table.partition == EVENT_DATE
    how = "reads only the folders of those dates" if is_dated else "skips the files of other months by their statistics"
    last = {EVENT_DATE: f"The UTC date of `{table.time}`. A condition on it {how}."}
    return replace(base, columns=dict(base.columns) | last)


def _explained_elsewhere(written: Comments) -> Mapping[str, str]:
    found = {column: re.fullmatch(r"as in (\w+)", text) for column, text in written.columns.items()}
    return {column: match[1] for column, match in found.items() if match}
