"""Reads sealed segments as rows: each line is a record, or has a reason why it is not."""

from collections.abc import Container, Mapping, Sequence
from functools import reduce
from hashlib import sha256
from typing import Final

from msgspec import Struct
from pyspark.sql import Column, DataFrame, Observation, SparkSession
from pyspark.sql import functions as F  # noqa: N812  Spark's own convention
from pyspark.sql.types import BooleanType, StringType, StructField, StructType

from sidecar.audit.ingest.inspection import MOST_LINE_BYTES, SHOWN_CHARACTERS, Inspection
from sidecar.audit.log.storage import Storage, escape_pattern, listing_here
from sidecar.audit.log.tables import RECORDS, any_record

_LEAST_CHUNK: Final = 1 << 20
_MOST_CHUNK: Final = 8 << 20
"""Compressed bytes that one task reads; it writes one file per date."""
COMMON: Final = "transition"
"""The type of record that `common_records` reads."""
_COMMON_START: Final = f'{{"type":"{COMMON}",'
"""How the sidecar begins lines of that type."""
_NAME_LIMIT: Final = 100
_TOO_LONG: Final = f"which is more than {MOST_LINE_BYTES:,}"
_FOUND: Final = "id string, file string, line string, times long, reason string"

# A line is parsed inside `{"record": …, "end": true}`: otherwise Spark parses the first value of a line and ignores the rest.
_MISFIT: Final = "misfit"
_ANY: Final = any_record()


class Segment(Struct, frozen=True):
    """A sealed file in the spool."""

    url: str
    length: int
    """Bytes, compressed."""


def common_records(session: SparkSession, spool: Storage, segments: Sequence[Segment]) -> tuple[DataFrame, Observation]:
    """The transitions whose lines begin as the sidecar writes them: most records, in half the time.

    A field that only other records have is ignored. After the rows were read, the observation counts the lines that are left for
    `read_segments`: `others`, which begin differently, and `rejected`. Reading the rows of a damaged segment fails.
    """
    lines = _lines(session, spool, segments).where(F.trim("line") != "")
    wrapped = F.when(_is_common(), _wrapped()).otherwise('{"end":false}')
    # Faster than `from_json`, but it loses the text of lines that it cannot parse.
    reader = session.read.schema(_wrapped_type(RECORDS[COMMON]))
    parsed = reader.json(lines.select(wrapped), columnNameOfCorruptRecord=_MISFIT)
    good = _reason(parsed, RECORDS[COMMON]).isNull() & (parsed["record.type"] == COMMON)
    common = F.coalesce("end", F.lit(True))
    rows, counts = parsed.select("record", good.alias("good"), common.alias("common")), Observation()
    others, rejected = F.count_if(~F.col("common")), F.count_if(F.col("common") & ~F.col("good"))
    counted = rows.observe(counts, others.alias("others"), rejected.alias("rejected"))
    return counted.where("good").select("record.*"), counts


def read_segments(
    session: SparkSession,
    spool: Storage,
    segments: Sequence[Segment],
    damaged: Container[str] = (),
    *,
    without_common: bool = False,
) -> DataFrame:
    """One row per line of `segments`: `record`; `file`, below the spool; `line`; `reason`, null for a good record.

    Segments whose URL is in `damaged` are read as far as possible. Reading the rows of any other damaged segment fails.
    """
    lines = _lines(session, spool, [segment for segment in segments if segment.url not in damaged])
    if salvaged := [segment for segment in segments if segment.url in damaged]:
        lines = lines.unionAll(_lines(session, spool, salvaged, salvage=True))
    lines = lines.where(F.trim("line") != "")
    if without_common:
        lines = lines.where(~_is_common())
    # `url_decode` would decode a plus to a space.
    url = F.url_decode(F.replace(F.col("url"), F.lit("+"), F.lit("%2B")))
    file = F.substring(url, len(spool.url) + 2, 4096).alias("file")
    parsed = F.from_json(_wrapped(), _wrapped_type(_ANY), {"columnNameOfCorruptRecord": _MISFIT})
    rows = lines.withColumn("parsed", parsed)
    return rows.select("parsed.record", file, "line", _reason(F.col("parsed"), _ANY).alias("reason"))


def _is_common() -> Column:
    return F.col("line").startswith(_COMMON_START)


def _wrapped() -> Column:
    return F.concat(F.lit('{"record":'), F.col("line"), F.lit(',"end":true}'))


def _wrapped_type(record: StructType) -> StructType:
    end, misfit = StructField("end", BooleanType()), StructField(_MISFIT, StringType())
    return StructType([StructField("record", record), end, misfit])


def _lines(session: SparkSession, spool: Storage, segments: Sequence[Segment], *, salvage: bool = False) -> DataFrame:
    """One row per line: `line`, and the encoded `url` of its segment. A partition reads adjacent segments, so it has few dates."""
    reader = session.read.options(lineSep="\n", ignoreCorruptFiles=salvage, recursiveFileLookup=True)
    # Hadoop skips longer lines instead of holding them in memory. Its limit includes the end of the line.
    reader = reader.option("mapreduce.input.linerecordreader.line.maxlength", MOST_LINE_BYTES + 1024)
    if not segments:
        return session.createDataFrame([], "line string, url string")
    with listing_here(session, spool):
        texts = [
            reader.text([escape_pattern(segment.url) for segment in chunk]).coalesce(1)
            for chunk in _chunks(session, segments)
        ]
    lines = [text.select(F.col("value").alias("line"), F.col("_metadata.file_path").alias("url")) for text in texts]
    return reduce(DataFrame.unionAll, lines).where(F.octet_length("line") <= MOST_LINE_BYTES)


def _chunks(session: SparkSession, segments: Sequence[Segment]) -> list[list[Segment]]:
    total = sum(segment.length for segment in segments)
    cores = session.sparkContext.defaultParallelism
    size = min(max(total // cores + 1, _LEAST_CHUNK), _MOST_CHUNK)
    chunks, start = dict[int, list[Segment]](), 0
    for segment in segments:
        chunks.setdefault(start // size, []).append(segment)
        start += segment.length
    return [*chunks.values()]


def _reason(parsed: Column | DataFrame, fields: StructType) -> Column:
    """Why a line is not a record; null for a record. `fields`: those that were parsed."""
    record = parsed["record"]
    is_known = record["type"].isin(list(RECORDS))
    name = F.left(record["type"], F.lit(_NAME_LIMIT))
    times = [record["observed_at"], record["recorded_at"]]
    if "ended_at" in fields.names:  # by the observer's clock only in this type
        times.append(F.when(record["type"] == "coverage", record["ended_at"]))
    latest = F.greatest(*times)
    years = F.year(record["observed_at"]).between(1970, 9999)  # the range that every reader of Parquet supports
    return (
        F.when(record.isNull() | parsed["end"].isNull(), "not one JSON object")
        .when(record["type"].isNull(), "no type")
        .when(~is_known, F.concat(F.lit("unknown type: "), name))
        .when(parsed[_MISFIT].isNotNull(), F.concat(F.lit("a field is not what it is in a "), name))
        .when(F.coalesce(record["id"], F.lit("")) == "", "no id")
        .when(record["observed_at"].isNull(), "no observed_at")
        .when(~years, "observed_at is out of range")
        .when(latest > F.current_timestamp() + F.expr("INTERVAL 1 DAY"), "dated more than a day ahead")
    )


def bad_lines(rows: DataFrame) -> DataFrame:
    """Quarantine rows for the lines of `read_segments` that are not records."""
    bad = rows.where(F.col("reason").isNotNull()).groupBy("file", "line", "reason").agg(F.count("*").alias("times"))
    readable = F.make_valid_utf8(F.left(F.col("line"), F.lit(SHOWN_CHARACTERS)))
    identity = F.sha2(F.concat_ws("\n", "file", "line"), 256)
    return bad.select(
        identity.alias("id"), "file", readable.alias("line"), "times", "reason", F.current_timestamp().alias("found_at")
    )


def bad_segments(session: SparkSession, spool: Storage, inspections: Mapping[str, Inspection]) -> DataFrame:
    """Quarantine rows for inspected segments (by URL): damage, and lines that are too long."""
    rows = dict[str, tuple[str, str, str | None, int, str]]()
    for url, inspection in inspections.items():
        file = spool.relative(url)
        if inspection.problem:
            rows[file] = (sha256(file.encode()).hexdigest(), file, None, 1, inspection.problem)
        for line in inspection.long_lines:
            times = rows[line.hash][3] + 1 if line.hash in rows else 1
            rows[line.hash] = (line.hash, file, line.text, times, f"the line has {line.size:,} bytes, {_TOO_LONG}")
    return session.createDataFrame([*rows.values()], _FOUND).withColumn("found_at", F.current_timestamp())
