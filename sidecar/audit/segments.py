"""From sealed segments to rows: every line becomes a record, or a reason why it is none."""

import re
from collections.abc import Container, Mapping, Sequence
from functools import reduce
from typing import Final

from msgspec import Struct
from pyspark.sql import Column, DataFrame, Observation, SparkSession
from pyspark.sql import functions as F  # noqa: N812  Spark's own convention
from pyspark.sql.types import BooleanType, StringType, StructField, StructType

from sidecar.audit.schema import QUARANTINE, RECORDS, any_record
from sidecar.audit.storage import Storage

SUFFIX: Final = ".jsonl.gz"
_LEAST_CHUNK: Final = 1 << 20
_MOST_CHUNK: Final = 8 << 20
"""Compressed bytes that one task reads, and makes one file of for each of their dates."""
COMMON: Final = "transition"
"""The type of record that `common_records` takes."""
_COMMON_START: Final = f'{{"type":"{COMMON}",'
"""How the sidecar begins their lines."""
_LINE_LIMIT: Final = 8192
_NAME_LIMIT: Final = 100
_GLOB: Final = re.compile(r"([{}\[\]*?\\])")

# A line is parsed inside `{"record": …, "end": true}`: by itself, Spark would take the first value of a line and ignore what follows it.
_MISFIT: Final = "misfit"
_WRAPPED: Final = StructType([
    StructField("record", any_record()),
    StructField("end", BooleanType()),
    StructField(_MISFIT, StringType()),
])  # fmt: skip


class Segment(Struct, frozen=True):
    """A sealed file in the spool."""

    url: str
    length: int
    """Bytes, compressed."""


def common_records(session: SparkSession, segments: Sequence[Segment]) -> tuple[DataFrame, Observation]:
    """Most of the records, in half the time: transitions whose lines begin as the sidecar begins them.

    Once the rows were read, the observation tells how many lines are not among them, and are left to `read_segments`: `others`, which begin
    in another way, and `rejected`. Asking for the rows of a damaged segment fails.
    """
    lines = _lines(session, segments).where(F.trim("line") != "")
    wrapped = F.when(_is_common(), _wrapped()).otherwise('{"end":false}')
    # Faster than `from_json`, but of a line that it cannot read nothing is left.
    parsed = session.read.schema(_WRAPPED).json(lines.select(wrapped), columnNameOfCorruptRecord=_MISFIT)
    good, common = _reason(parsed).isNull() & (parsed["record.type"] == COMMON), F.coalesce("end", F.lit(True))
    rows, seen = parsed.select("record", good.alias("good"), common.alias("common")), Observation()
    others, rejected = F.count_if(~F.col("common")), F.count_if(F.col("common") & ~F.col("good"))
    counted = rows.observe(seen, others.alias("others"), rejected.alias("rejected"))
    return counted.where("good").select("record.*"), seen


def read_segments(
    session: SparkSession,
    spool: Storage,
    segments: Sequence[Segment],
    damaged: Container[str] = (),
    *,
    without_common: bool = False,
) -> DataFrame:
    """One row per line of `segments`: `record`; `file`, below the spool; `line`; `reason`, null for a good record.

    Of a segment whose URL is in `damaged` there is what can be had. Asking for the rows of any other damaged one fails.
    """
    lines = _lines(session, [segment for segment in segments if segment.url not in damaged])
    if torn := [segment for segment in segments if segment.url in damaged]:
        lines = lines.unionAll(_lines(session, torn, salvage=True))
    lines = lines.where(F.trim("line") != "")
    if without_common:
        lines = lines.where(~_is_common())
    # A plus in an encoded name is a plus.
    url = F.url_decode(F.replace(F.col("url"), F.lit("+"), F.lit("%2B")))
    file = F.substring(url, len(spool.url) + 2, 4096).alias("file")
    parsed = F.from_json(_wrapped(), _WRAPPED, {"columnNameOfCorruptRecord": _MISFIT})
    rows = lines.withColumn("parsed", parsed)
    return rows.select("parsed.record", file, "line", _reason(F.col("parsed")).alias("reason"))


def _is_common() -> Column:
    return F.col("line").startswith(_COMMON_START)


def _wrapped() -> Column:
    return F.concat(F.lit('{"record":'), F.col("line"), F.lit(',"end":true}'))


def _lines(session: SparkSession, segments: Sequence[Segment], *, salvage: bool = False) -> DataFrame:
    """One row per line: `line`, and the encoded `url` of its segment. A partition has segments that follow each other: few dates."""
    reader = session.read.options(lineSep="\n", ignoreCorruptFiles=salvage, recursiveFileLookup=True)
    if not segments:
        return session.createDataFrame([], "line string, url string")
    texts = [
        reader.text([literally(segment.url) for segment in chunk]).coalesce(1) for chunk in _chunks(session, segments)
    ]
    lines = [text.select(F.col("value").alias("line"), F.col("_metadata.file_path").alias("url")) for text in texts]
    return reduce(DataFrame.unionAll, lines)


def _chunks(session: SparkSession, segments: Sequence[Segment]) -> list[list[Segment]]:
    total = sum(segment.length for segment in segments)
    cores = session.sparkContext.defaultParallelism
    size = min(max(total // cores + 1, _LEAST_CHUNK), _MOST_CHUNK)
    chunks, begun = dict[int, list[Segment]](), 0
    for segment in segments:
        chunks.setdefault(begun // size, []).append(segment)
        begun += segment.length
    return [*chunks.values()]


def literally(path: str) -> str:
    """A path whose name is a name, where Spark would see a pattern."""
    return _GLOB.sub(r"\\\1", path)


def _reason(parsed: Column | DataFrame) -> Column:
    """Why a line is no record, or null."""
    record = parsed["record"]
    known = record["type"].isin(list(RECORDS))
    said = F.left(record["type"], F.lit(_NAME_LIMIT))
    years = F.year(record["observed_at"]).between(1970, 9999)  # what every reader of Parquet can show
    return (
        F.when(record.isNull() | parsed["end"].isNull(), "not one JSON object")
        .when(record["type"].isNull(), "no type")
        .when(~known, F.concat(F.lit("unknown type: "), said))
        .when(parsed[_MISFIT].isNotNull(), F.concat(F.lit("a field is not what it is in a "), said))
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


def damages(spool: Storage, segments: Sequence[Segment]) -> dict[str, str]:
    """Which of the segments (their URLs) are damaged, and what is wrong with each."""
    return {segment.url: damage for segment in segments if (damage := spool.damage(segment.url)) is not None}
