"""The definitions of the views."""

import re
from datetime import UTC, datetime
from typing import Final

from pyspark.sql import DataFrame, SparkSession

from sidecar.audit.log.manifest import EPOCH
from sidecar.audit.views.catalog import answer, with_comments

_HOST: Final = r"nullif(regexp_extract({}, r'^[a-z.]+://(?:[^/@]*@)?\[?([^/@\[\]]+?)\]?:[0-9]+(?:/|$)', 1), '')"
"""The host in a leader's address, without the brackets of IPv6. Not a column of the materialized tables: old files would lack it."""
_END: Final = datetime(9999, 1, 1, tzinfo=UTC)


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
