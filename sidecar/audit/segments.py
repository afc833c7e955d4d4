"""From sealed segments to rows: every line becomes a record, or a reason why it is none."""

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812  Spark's own convention
from pyspark.sql.types import BooleanType, StringType, StructField, StructType

from sidecar.audit.schema import QUARANTINE, RECORDS, any_record
from sidecar.audit.storage import Storage

SUFFIX: Final = ".jsonl.gz"
_LINE_LIMIT: Final = 8192
_NAME_LIMIT: Final = 100
_GLOB: Final = re.compile(r"([{}\[\]*?\\])")

# A line is parsed inside `{"record": …, "end": true}`: by itself, Spark would take the first value of a line and ignore what follows it.
_WRAPPED: Final = StructType([
    StructField("record", any_record()),
    StructField("end", BooleanType()),
    StructField("misfit", StringType()),
])  # fmt: skip


def read_segments(
    session: SparkSession, spool: Storage, segments: Sequence[str], damaged: Iterable[str] = ()
) -> DataFrame:
    """One row per line of `segments` (URLs): `record`; `file`, below the spool; `line`; `reason`, null for a good record.

    Of a segment in `damaged` there is what can be had. Asking for the rows of any other damaged one fails.
    """
    lines = _lines(session, spool, [segment for segment in segments if segment not in set(damaged)], salvage=False)
    if damaged:
        lines = lines.unionAll(_lines(session, spool, [*damaged], salvage=True))
    wrapped = F.concat(F.lit('{"record":'), F.col("line"), F.lit(',"end":true}'))
    parsed = F.from_json(wrapped, _WRAPPED, {"columnNameOfCorruptRecord": "misfit"})
    rows = lines.where(F.trim("line") != "").withColumn("parsed", parsed)
    return rows.select("parsed.record", "file", "line", _reason(F.col("parsed")).alias("reason"))


def _lines(session: SparkSession, spool: Storage, segments: Sequence[str], *, salvage: bool) -> DataFrame:
    reader = session.read.options(lineSep="\n", ignoreCorruptFiles=salvage, recursiveFileLookup=True)
    lines = reader.text([literally(segment) for segment in segments])
    # A plus in an encoded name is a plus.
    url = F.url_decode(F.replace(F.col("_metadata.file_path"), F.lit("+"), F.lit("%2B")))
    return lines.select(F.col("value").alias("line"), F.substring(url, len(spool.url) + 2, 4096).alias("file"))


def literally(path: str) -> str:
    """A path whose name is a name, where Spark would see a pattern."""
    return _GLOB.sub(r"\\\1", path)


def _reason(parsed: Column) -> Column:
    """Why a line is no record, or null."""
    record = parsed["record"]
    known = record["type"].isin(list(RECORDS))
    said = F.left(record["type"], F.lit(_NAME_LIMIT))
    years = F.year(record["observed_at"]).between(1970, 9999)  # what every reader of Parquet can show
    return (
        F.when(record.isNull() | parsed["end"].isNull(), "not one JSON object")
        .when(record["type"].isNull(), "no type")
        .when(~known, F.concat(F.lit("unknown type: "), said))
        .when(parsed["misfit"].isNotNull(), F.concat(F.lit("a field is not what it is in a "), said))
        .when(F.coalesce(record["id"], F.lit("")) == "", "no id")
        .when(record["observed_at"].isNull(), "no observed_at")
        .when(~years, "observed_at is out of range")
    )


def bad_lines(rows: DataFrame) -> DataFrame:
    """The lines of `read_segments` that are no records, as the quarantine keeps them."""
    bad = rows.where(F.col("reason").isNotNull()).groupBy("file", "line", "reason").agg(F.count("*").alias("times"))
    readable = F.make_valid_utf8(F.left(F.col("line"), F.lit(_LINE_LIMIT)))
    identity = F.sha2(F.concat_ws("\n", "file", "line"), 256)
    return bad.select(
        identity.alias("id"), "file", readable.alias("line"), "times", "reason", F.current_timestamp().alias("at")
    )


def bad_segments(session: SparkSession, spool: Storage, damages: Mapping[str, str]) -> DataFrame:
    """Damaged segments (URLs) and what is wrong with each, as the quarantine keeps them."""
    files = [(spool.below(segment), f"damaged segment: {damage}") for segment, damage in damages.items()]
    rows = session.createDataFrame(files, "file string, reason string")
    columns = {"id": F.sha2("file", 256), "line": F.lit(None), "times": F.lit(1), "at": F.current_timestamp()}
    return rows.withColumns(columns).select([F.col(field.name).cast(field.dataType) for field in QUARANTINE.fields])


def empty_segments(spool: Storage) -> dict[str, str]:
    """Segments without a single byte, which Spark does not even look at: a disk that lost them. Known of a local spool only."""
    if spool.local is None:
        return {}
    files = (file for file in spool.local.rglob(f"*{SUFFIX}") if not file.name.startswith("."))
    empty = [file.relative_to(spool.local).as_posix() for file in files if file.stat().st_size == 0]
    return {spool.at(file): "the file is empty" for file in empty}


def damages(spool: Storage, segments: Sequence[str]) -> dict[str, str]:
    """Which of the segments (URLs) are damaged, and what is wrong with each."""
    return {segment: damage for segment in segments if (damage := spool.damage(segment)) is not None}
