"""Every table, view and column says what it is: in DESCRIBE, in the shell, and on docs/reference/audit-schema.md."""

from keyword import kwlist
from types import NoneType
from typing import get_args

import duckdb
import pytest
from msgspec import Struct
from msgspec.structs import fields
from pyspark.sql import SparkSession

from sidecar.audit import open_audit
from sidecar.audit.ask.sql import run_sql
from sidecar.audit.log.closed_tables import CLOSED_TABLES
from sidecar.audit.log.tables import BASE_VIEWS, QuarantinedLine, with_event_date
from sidecar.audit.views.catalog import ANSWERS, catalog, comments, query_comments, struct_comments
from sidecar.core.records import AnyRecord, PositionRecord
from tests import ROOT
from tests.audit.conftest import Log
from tests.kit.audit_schema import PAGE, page

STRUCTS: list[type[Struct]] = [*get_args(AnyRecord), PositionRecord, QuarantinedLine]


def test_each_table_and_view_says_what_it_is_about() -> None:
    """In a sentence, for every one that there is."""
    assert [named.name for named in catalog()] == [*BASE_VIEWS, *ANSWERS]
    assert [named for named in catalog() if not named.about.endswith((".", "?"))] == []


@pytest.mark.parametrize("struct", STRUCTS, ids=lambda struct: struct.__name__)
def test_each_field_says_what_it_is_and_when_it_is_null(struct: type[Struct]) -> None:
    """Every field of every record has a docstring, which is the comment of its column."""
    about = struct_comments(struct).columns
    assert [*about] == [field.encode_name for field in fields(struct)]
    nullable = [field.encode_name for field in fields(struct) if NoneType in get_args(field.type)]
    assert [name for name in nullable if "Null" not in about[name]] == []


@pytest.mark.parametrize("name", [*BASE_VIEWS, *CLOSED_TABLES])
def test_a_table_has_a_comment_for_each_column(name: str) -> None:
    """Those that readers without Spark see, too."""
    tables = {**CLOSED_TABLES, **BASE_VIEWS}
    about = comments(name).columns
    assert [column for column in with_event_date(tables[name]).names if not about.get(column)] == []


@pytest.fixture(scope="module")
def session(spark: SparkSession, ingested: Log) -> SparkSession:
    """A session in which an audit log is open."""
    session = spark.newSession()
    open_audit(session, str(ingested.audit))
    return session


@pytest.mark.spark
def test_describe_shows_the_comments(session: SparkSession) -> None:
    """Of each column, in their order: none is missing, and none is of a column that there is not."""
    for name in (*BASE_VIEWS, *ANSWERS):
        described = [(row.col_name, row.comment) for row in session.sql(f"DESCRIBE {name}").collect()]
        assert described == [*comments(name).columns.items()]
        assert [column for column, comment in described if not comment] == []


@pytest.mark.spark
def test_audit_sql_describes(spark: SparkSession, ingested: Log) -> None:
    """A view: columns, types, comments."""
    rows = run_sql(spark, str(ingested.audit), "DESCRIBE known_until").rows
    kinds = ("string", "timestamp", "timestamp")
    about = comments("known_until").columns.items()
    assert [*rows] == [[name, kind, text] for kind, (name, text) in zip(kinds, about, strict=True)]


def test_no_column_needs_quotes() -> None:
    """None is a word that DuckDB or Python reserves, or that others do."""
    columns = {column for name in (*BASE_VIEWS, *CLOSED_TABLES, *ANSWERS) for column in comments(name).columns}
    with duckdb.connect() as database:
        words = database.sql(
            "FROM duckdb_keywords() WHERE keyword_category IN ('reserved', 'type_function')"
        ).fetchall()
    reserved = {*kwlist, "schema", "type", "view", *(word for word, _ in words)}
    assert {"from", "to", "check", "at"} <= reserved
    assert columns & reserved == set()


def test_a_comment_fits_into_a_statement() -> None:
    """The script for spark-sql contains them: a command line would take these for the end of a statement, or of a line."""
    texts = [text for named in catalog() for text in (named.about, *comments(named.name).columns.values())]
    assert [text for text in texts if ";" in text or "--" in text] == []


def test_the_head_of_a_query_is_read_as_it_is_written() -> None:
    """The question, more about it, and the columns: several with one comment, and a comment of several lines."""
    head = query_comments(
        "-- Who? In A.B too.\n--\n-- One row\n-- each.\n--\n-- * a, b: Some\n--   text: long.\n-- * c: as in d\nSELECT 1 -- * e: no\n"
    )
    assert (head.about, head.more) == ("Who?", "In A.B too. One row each.")
    assert head.columns == {"a": "Some text: long.", "b": "Some text: long.", "c": "as in d"}


@pytest.mark.spark
def test_the_page_is_made_from_the_code(session: SparkSession) -> None:
    """`python -m tests.kit.audit_schema` writes it; README and docs/explanation/audit.md lead to it."""
    assert PAGE.read_text(encoding="utf-8") == page(session)
    assert "(docs/reference/audit-schema.md)" in (ROOT / "README.md").read_text(encoding="utf-8")
    assert "(../reference/audit-schema.md)" in (ROOT / "docs" / "explanation" / "audit.md").read_text(encoding="utf-8")
