"""Reads all rows of a result, or fails."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, Row


def collected(rows: "DataFrame") -> "list[Row]":
    """All rows. Raises EOFError when Spark has died meanwhile.

    `DataFrame.collect` takes the end of the connection for the end of the rows: when the JVM is killed while it sends them, those that have
    arrived are returned as if they were all. The protocol of `toLocalIterator` says when nothing follows.
    """
    return list(rows.toLocalIterator())
