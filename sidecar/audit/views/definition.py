"""The definitions of the views."""

from datetime import UTC, datetime
from typing import Final

from pyspark.sql import DataFrame, SparkSession

from sidecar.audit.log.manifest import EPOCH
from sidecar.audit.views.catalog import answer, with_comments

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
    query = answer("sight" if name == "_sight" else name)
    return query.replace(":begin", _literal(begin)).replace(":end", _literal(end))


def _literal(moment: datetime) -> str:
    return f"TIMESTAMP '{moment:%Y-%m-%d %H:%M:%S}Z'"
