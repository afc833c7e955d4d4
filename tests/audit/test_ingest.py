"""Every record of the spool is in the audit log once, and every line that is none is in its quarantine."""

import gzip
import os
import secrets
import shutil
import threading
import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path

import duckdb
import msgspec
import pyarrow as pa
import pyarrow.dataset
import pyarrow.parquet as pq
import pytest
from msgspec.structs import replace
from pyspark.sql import DataFrame, SparkSession

from sidecar.audit import AuditError
from sidecar.audit.ask.sql import run_sql
from sidecar.audit.ingest.ingest import IngestResult, ingest
from sidecar.audit.ingest.table_writer import Writer
from sidecar.audit.log.tables import Table
from sidecar.audit.upkeep.compact import compact
from sidecar.core.records import SCHEMA
from tests.audit.spooling import (
    NOON,
    annotation,
    contention,
    coverage,
    death,
    drill,
    episode,
    evidence,
    ha_check,
    ids,
    ids_seen,
    instant,
    line,
    notification,
    recovery,
    seal,
    status,
    transition,
)

pytestmark = pytest.mark.spark

NOTHING = dict.fromkeys(
    (
        *("transitions", "coverage", "contentions", "notifications", "episodes", "annotations", "evidence"),
        *("deaths", "recoveries", "statuses", "ha_checks", "drills"),
    ),
    0,
)
Ingest = Callable[[], IngestResult]


@pytest.fixture
def ingested(spark: SparkSession, spool: Path, audit: Path) -> Ingest:
    """Ingests what is in the spool now."""
    return lambda: ingest(spark, str(spool), str(audit))


def dates(audit: Path, table: str) -> dict[str, int]:
    """How many rows each date has."""
    rows: dict[str, int] = {}
    for file in sorted((audit / table).rglob("*.parquet")):
        rows[file.parent.name] = rows.get(file.parent.name, 0) + pq.read_metadata(file).num_rows
    return rows


def quarantine(spark: SparkSession, audit: Path) -> list[tuple[str, str | None, int, str]]:
    """File, line, times and reason of what is in the quarantine."""
    rows = spark.read.parquet(str(audit / "quarantine")).orderBy("file", "line").collect()
    return [(row.file, row.line, row.times, row.reason) for row in rows]


@pytest.mark.covers(
    "table:transitions",
    "table:episodes",
    "table:notifications",
    "table:evidence",
    "table:coverage",
    "table:annotations",
    "table:contentions",
    "table:deaths",
    "table:recoveries",
    "table:statuses",
    "table:ha_checks",
    "table:drills",
)
def test_each_type_of_record_goes_to_its_table(spark: SparkSession, spool: Path, audit: Path, ingested: Ingest) -> None:
    """Twelve types, two observers of which one is older, one ingest; a second one finds nothing new."""
    seal(spool, "jm-0", 1, [replace(transition(1), schema_version=10), coverage(1), transition(2)])
    seal(
        spool,
        "jm-1",
        1,
        [
            notification(1),
            contention(1),
            episode(1),
            annotation(1),
            evidence(1),
            death(1),
            recovery(1),
            status(1),
            ha_check(1),
            drill(1),
        ],
    )
    rows = dict.fromkeys(NOTHING, 1) | {"transitions": 2}
    assert ingested() == IngestResult(rows=rows, quarantined=0, files=2)
    assert ingested() == IngestResult(rows=NOTHING, quarantined=0, files=0)
    assert ids_seen(spark, audit, "transitions") == ids([transition(1), transition(2)])
    assert ids_seen(spark, audit, "coverage") == ids([coverage(1)])
    assert ids_seen(spark, audit, "contentions") == ids([contention(1)])
    assert ids_seen(spark, audit, "annotations") == ids([annotation(1)])
    assert ids_seen(spark, audit, "episodes") == ids([episode(1)])
    assert ids_seen(spark, audit, "evidence") == ids([evidence(1)])
    assert ids_seen(spark, audit, "deaths") == ids([death(1)])
    assert ids_seen(spark, audit, "recoveries") == ids([recovery(1)])
    assert ids_seen(spark, audit, "statuses") == ids([status(1)])
    assert ids_seen(spark, audit, "ha_checks") == ids([ha_check(1)])
    assert ids_seen(spark, audit, "drills") == ids([drill(1)])
    assert ids_seen(spark, audit, "notifications") == ids([notification(1)])


def test_a_row_equals_its_record(spark: SparkSession, spool: Path, audit: Path, ingested: Ingest) -> None:
    """To the microsecond, with maps, structs and nulls."""
    record = transition(1, datetime(2025, 11, 21, 23, 59, 59, 999999, tzinfo=UTC))
    seal(spool, "jm-0", 1, [record])
    ingested()
    (file,) = (audit / "transitions").rglob("*.parquet")
    (row,) = pq.ParquetFile(file).read().to_pylist()
    for name in ("observed_at", "recorded_at", "written_at"):
        row[name] = instant(row[name])
    row["external_labels"] = dict(row["external_labels"])
    assert {"type": "transition", **row} == msgspec.json.decode(line(record))
    assert file.parent.name == "event_date=2025-11-21"


def test_files_are_what_every_reader_can_read(spool: Path, audit: Path, ingested: Ingest) -> None:
    """Zstandard, microseconds in UTC (no INT96), sorted by cluster and time."""
    seal(spool, "jm-0", 1, [transition(n, NOON - timedelta(seconds=n)) for n in range(50)])
    ingested()
    (file,) = (audit / "transitions").rglob("*.parquet")
    parquet = pq.ParquetFile(file)
    times = [field for field in parquet.schema_arrow if field.name in {"observed_at", "recorded_at", "written_at"}]
    assert [str(field.type) for field in times] == ["timestamp[us, tz=UTC]"] * 3
    assert "INT96" not in str(parquet.schema)
    group = parquet.metadata.row_group(0)
    assert {group.column(n).compression for n in range(group.num_columns)} == {"ZSTD"}
    order = parquet.read(columns=["cluster_id", "observed_at"]).to_pylist()
    assert order == sorted(order, key=lambda row: (row["cluster_id"], row["observed_at"]))


@pytest.mark.usefixtures("batch")
def test_what_is_seen_twice_is_there_once(spark: SparkSession, spool: Path, audit: Path, ingested: Ingest) -> None:
    """The same segment under another name, the same change from two observers, in one ingest or in the next; the first one stays."""
    before_midnight = datetime(2025, 11, 21, 23, 59, 59, 900000, tzinfo=UTC)
    after_midnight = before_midnight + timedelta(seconds=1)
    segment = seal(spool, "jm-0", 1, [transition(n, before_midnight) for n in range(20)])
    shutil.copy(segment, segment.with_name("0000000000000101-0000000000000120.jsonl.gz"))
    seal(spool, "jm-1", 1, [transition(n, after_midnight, observer="jm-1") for n in range(20)])
    assert ingested().rows == NOTHING | {"transitions": 20}
    shutil.copytree(spool / "jm-0", spool / "jm-0-restored")
    years_off = datetime(2015, 11, 20, tzinfo=UTC)
    seal(spool, "jm-2", 1, [transition(n, years_off, observer="jm-2") for n in range(21)])
    assert ingested() == IngestResult(rows=NOTHING | {"transitions": 1}, quarantined=0, files=3)
    assert ids_seen(spark, audit, "transitions") == ids([transition(n) for n in range(21)])
    rows = spark.read.parquet(str(audit / "transitions")).groupBy("observer").count().collect()
    assert {row.observer: row["count"] for row in rows} == {"jm-0": 20, "jm-2": 1}


@pytest.mark.usefixtures("batch")
def test_a_lost_checkpoint_costs_nothing_but_time(
    spark: SparkSession, spool: Path, audit: Path, ingested: Ingest
) -> None:
    """Everything is read again, and nothing is written again, not even to the quarantine."""
    seal(spool, "jm-0", 1, [transition(1), coverage(1)], lines=[b"garbage"])
    first = ingested()
    before = sorted(audit.rglob("event_date=*/*.parquet"))
    shutil.rmtree(audit / "_checkpoints")
    assert ingested() == IngestResult(rows=NOTHING, quarantined=0, files=first.files)
    assert sorted(audit.rglob("event_date=*/*.parquet")) == before


def test_a_late_record_goes_to_its_own_date(spool: Path, audit: Path, ingested: Ingest) -> None:
    """Also a month late, and also when its segment's file is old."""
    seal(spool, "jm-0", 1, [transition(1), transition(2)])
    ingested()
    late = seal(spool, "jm-1", 1, [transition(3, NOON - timedelta(days=30))])
    os.utime(late, (0, 0))
    assert ingested().rows == NOTHING | {"transitions": 1}
    assert dates(audit, "transitions") == {"event_date=2025-10-22": 1, "event_date=2025-11-21": 2}


@pytest.mark.covers("table:quarantine")
def test_lines_that_are_no_records_go_to_the_quarantine(
    spark: SparkSession, spool: Path, audit: Path, ingested: Ingest
) -> None:
    """With file and reason, each once however often it is ingested, and the good lines around them are not lost."""
    good = line(transition(1))
    bad = {
        b"garbage": "not one JSON object",
        good[:-40]: "not one JSON object",
        good + good: "not one JSON object",
        good + b"}": "not one JSON object",
        b"[" + good + b"]": "not one JSON object",
        b"null": "not one JSON object",
        b"\xff\xfe\x00": "not one JSON object",
        b"{}": "no type",
        good.replace(b'"transition"', b'"weather"'): "unknown type: weather",
        good.replace(b'"unobserved":0', b'"unobserved":"none"'): "a field is not what it is in a transition",
        good.replace(b'"version":0', b'"version":[]'): "a field is not what it is in a transition",
        b'{"type":"transition","observed_at":"2025-11-21T12:00:00.000000Z"}': "no id",
        b'{"type":"coverage","id":"1"}': "no observed_at",
        b'{"type":"coverage","id":"1","observed_at":"+99999-11-20T12:00:00.000000Z"}': "observed_at is out of range",
    }
    seal(spool, "jm-0", 1, [transition(1)], lines=[*bad, b"garbage", b"", b"x" * 100_000, line(transition(2))])
    assert ingested() == IngestResult(rows=NOTHING | {"transitions": 2}, quarantined=len(bad) + 1, files=1)
    quarantined = {text: (file, times, reason) for file, text, times, reason in quarantine(spark, audit)}
    file = f"jm-0/{1:016d}-{len(bad) + 5:016d}.jsonl.gz"
    expected = {text.decode(errors="replace"): (file, 1, reason) for text, reason in bad.items()}
    expected |= {"garbage": (file, 2, "not one JSON object"), "x" * 8192: (file, 1, "not one JSON object")}
    assert quarantined == expected
    assert ids_seen(spark, audit, "quarantine") == sorted(set(ids_seen(spark, audit, "quarantine")))


def test_what_a_later_version_wrote_is_kept_as_far_as_it_is_known(
    spark: SparkSession, spool: Path, audit: Path, ingested: Ingest
) -> None:
    """A newer schema and an unknown field are no reason to reject a record, also if other records have another field of that name."""
    future = line(transition(1)).replace(
        b'"schema_version":%d' % SCHEMA, b'"schema_version":99,"mood":{"of":["the","day"]},"began_at":[]'
    )
    seal(spool, "jm-0", 1, lines=[future])
    assert ingested().rows == NOTHING | {"transitions": 1}
    (row,) = spark.read.parquet(str(audit / "transitions")).collect()
    assert (row.schema_version, row.id) == (99, transition(1).id)


def test_rows_of_older_and_newer_schemas_live_beside_each_other(
    spark: SparkSession, spool: Path, audit: Path, ingested: Ingest
) -> None:
    """A file without the fields of today, and one with a field of tomorrow: every reader shows all rows, and none gets in twice."""
    others: list[Callable[[pa.Table], pa.Table]] = [
        lambda today: today.drop_columns(["elections", "contenders"]),
        lambda today: today.append_column("mood", pa.array(["calm"])),
    ]
    for number, other in enumerate(others, start=1):
        seal(spool, "jm-0", number, [transition(number)])
        ingested()
        (file,) = (audit / "transitions").rglob("part-*.parquet")
        table = other(pq.ParquetFile(file).read()).replace_schema_metadata()  # without Spark's own schema
        pq.write_table(table, file.with_name(f"other-{number}.parquet"))
        file.unlink()
    shutil.rmtree(audit / "_checkpoints")
    seal(spool, "jm-0", 3, [transition(3, contenders=2)])
    assert ingested().rows == NOTHING | {"transitions": 1}
    assert ids_seen(spark, audit, "transitions") == ids([transition(n) for n in (1, 2, 3)])
    expected = sorted([(transition(1).id, None, None), (transition(2).id, None, "calm"), (transition(3).id, 2, None)])
    columns_asked, folder = ["id", "contenders", "mood"], f"{audit}/transitions"
    by_spark = spark.read.option("mergeSchema", True).parquet(folder).select(*columns_asked).collect()
    assert sorted(tuple(row) for row in by_spark) == expected
    with duckdb.connect() as database:
        query = f"SELECT {', '.join(columns_asked)} FROM read_parquet('{folder}/**/*.parquet', union_by_name = true)"  # noqa: S608  our own path
        assert sorted(database.execute(query).fetchall()) == expected
    files = sorted((audit / "transitions").rglob("*.parquet"))
    schema = pa.unify_schemas([pq.read_schema(file) for file in files])
    by_arrow = pyarrow.dataset.dataset(folder, schema=schema).to_table(columns=columns_asked)
    assert sorted(tuple(row.values()) for row in by_arrow.to_pylist()) == expected
    assert len(list(run_sql(spark, str(audit), "SELECT contenders FROM transitions").rows)) == 3


def test_large_segments_are_read_at_the_same_time(audit: Path, spool: Path, ingested: Ingest) -> None:
    """Three of more than a megabyte: each task writes a file of its own, and there is more than one."""
    for number in (1, 2, 3):
        seal(spool, "jm-0", number, [transition(number, after_address=secrets.token_hex(1 << 20))])
    assert ingested().rows["transitions"] == 3
    assert len([*(audit / "transitions").rglob("*.parquet")]) > 1


def test_transitions_as_the_sidecar_writes_them_are_parsed_once(
    spool: Path, audit: Path, ingested: Ingest, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All of a sound segment are read the fast way: the way that keeps text and line for the quarantine takes twice the time."""
    seal(spool, "jm-0", 1, [transition(number) for number in range(9)])
    seal(spool, "jm-1", 1, [transition(number, job_id="1" * 32, unobserved=2) for number in range(9, 12)])

    def read_segments(*_: object, **__: object) -> None:
        raise AssertionError("sound segments were read the slow way")

    monkeypatch.setattr("sidecar.audit.ingest.ingest.read_segments", read_segments)
    assert ingested().rows == NOTHING | {"transitions": 12}


@pytest.mark.parametrize(("index", "compiled"), [(0, "false"), (2_000_000, "true")])
def test_a_small_batch_is_interpreted(
    index: int, compiled: str, spool: Path, ingested: Ingest, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Compiling its queries would take longer than running them, unless the index of ids that they read is large."""

    def append(writer: Writer, *_: object, **__: object) -> int:
        raise OSError(f"compiled: {writer._session.conf.get('spark.sql.codegen.wholeStage')}")

    seal(spool, "jm-0", 1, [transition(1)])
    monkeypatch.setattr(Writer, "append", append)
    monkeypatch.setattr(Writer, "index_sizes", lambda _: iter([index]))
    with pytest.raises(AuditError, match=f": compiled: {compiled}$"):
        ingested()


@pytest.mark.usefixtures("batch")
def test_an_id_that_is_there_twice_among_many_is_written_once(
    spark: SparkSession, spool: Path, audit: Path, ingested: Ingest
) -> None:
    """Of a batch in which few records repeat, all others are there too, also those in the same file; the earliest one stays."""
    records = [transition(n, NOON + timedelta(days=n % 4, seconds=n)) for n in range(200)]
    late = [transition(n, NOON + timedelta(days=9), observer="jm-1") for n in (5, 6)]
    seal(spool, "jm-0", 1, records)
    seal(spool, "jm-1", 1, [*late, late[0]])
    assert ingested().rows == NOTHING | {"transitions": 200}
    assert ids_seen(spark, audit, "transitions") == ids(records)
    assert dates(audit, "transitions") == {f"event_date=2025-11-{21 + day}": 50 for day in range(4)}


def test_a_transition_that_is_spelled_otherwise_is_one(
    spark: SparkSession, spool: Path, audit: Path, ingested: Ingest
) -> None:
    """Spaces, another order of its fields: beside lines as the sidecar writes them, and again in the next segment."""
    fields = msgspec.json.decode(line(transition(1)))
    spaced = line(transition(2)).replace(b":", b": ", 1)
    turned = msgspec.json.encode(dict(reversed(fields.items())))
    seal(spool, "jm-0", 1, [transition(3)], lines=[turned, spaced])
    assert ingested().rows == NOTHING | {"transitions": 3}
    seal(spool, "jm-1", 1, [transition(1), transition(2)])
    assert ingested().rows == NOTHING
    assert ids_seen(spark, audit, "transitions") == ids([transition(n) for n in (1, 2, 3)])


def test_of_a_damaged_segment_is_kept_what_can_be_had(
    spark: SparkSession, spool: Path, audit: Path, ingested: Ingest
) -> None:
    """The quarantine lists the damaged segments, once, and the others are ingested."""
    seal(spool, "jm-0", 1, [transition(n) for n in range(10)])
    torn = seal(spool, "jm-1", 1, [transition(n) for n in range(10, 1000)])
    torn.write_bytes(torn.read_bytes()[:-200])
    text = seal(spool, "jm-2", 1, [transition(1)])
    text.write_bytes(gzip.decompress(text.read_bytes()))
    empty = seal(spool, "jm-3", 1, [transition(1)])
    empty.write_bytes(b"")
    result = ingested()
    assert 10 <= result.rows["transitions"] < 1000
    assert result.quarantined == 3
    assert [(file, text, reason[:15]) for file, text, _, reason in quarantine(spark, audit)] == [
        (str(segment.relative_to(spool)), None, "damaged segment") for segment in (torn, text, empty)
    ]
    shutil.rmtree(audit / "_checkpoints")
    assert ingested() == IngestResult(rows=NOTHING, quarantined=0, files=3)


def test_an_observer_may_be_called_anything(spark: SparkSession, spool: Path, audit: Path, ingested: Ingest) -> None:
    """Names that Spark would take for hidden, for a pattern or for an encoded name; and files that are no segments are not looked at."""
    observers = ["_host", "a b%20+c", "jm[0]*"]
    for number, observer in enumerate(observers):
        seal(spool, observer, 1, [transition(number)], lines=[b"garbage"])
    (spool / "README.txt").write_text("not ours")
    (spool / "_host" / ".0000000000000009-0000000000000009.jsonl.gz.tmp").write_bytes(b"unfinished")
    result = IngestResult(rows=NOTHING | {"transitions": 3}, quarantined=3, files=3)
    assert ingested() == result
    assert [file for file, *_ in quarantine(spark, audit)] == sorted(
        f"{observer}/{1:016d}-{2:016d}.jsonl.gz" for observer in observers
    )
    assert ingested().files == 0


def test_an_empty_spool_makes_an_empty_log(spark: SparkSession, audit: Path, ingested: Ingest) -> None:
    """No observer has written yet: nothing to do, and no error; the log can be asked, and filled, also without its checkpoint."""
    assert ingested() == IngestResult(rows=NOTHING, quarantined=0, files=0)
    assert [path.name for path in audit.iterdir() if not path.name.startswith("_")] == []
    shutil.rmtree(audit / "_checkpoints")
    assert list(run_sql(spark, str(audit), "SELECT * FROM failovers").rows) == []
    assert ingested() == IngestResult(rows=NOTHING, quarantined=0, files=0)


def test_two_spools_may_fill_one_log(spark: SparkSession, tmp_path: Path, audit: Path) -> None:
    """Each is remembered by itself; the same segment names in both are no conflict."""
    for number, region in enumerate(("eu", "us")):
        seal(tmp_path / region, "jm-0", 1, [transition(number)])
        assert ingest(spark, str(tmp_path / region), str(audit)).rows["transitions"] == 1
    assert ids_seen(spark, audit, "transitions") == ids([transition(0), transition(1)])


def test_following_takes_in_what_comes_beside_a_compaction_and_keeps_other_ingests_out(
    spark: SparkSession, spool: Path, audit: Path, ingested: Ingest
) -> None:
    """Segments that appear meanwhile are ingested, each id once; a second ingest is refused in one line; `stop` ends it with its result."""
    yesterday = datetime.now(UTC) - timedelta(days=1)
    seal(spool, "jm-0", 1, [transition(1, yesterday)])
    assert ingested().rows["transitions"] == 1
    seal(spool, "jm-0", 2, [transition(2, yesterday)])
    stop, results = threading.Event(), list[IngestResult]()
    follower = threading.Thread(
        target=lambda: results.append(ingest(spark, str(spool), str(audit), follow=True, stop=stop))
    )
    follower.start()
    try:
        _until(lambda: sum(dates(audit, "transitions").values()) == 2)
        assert compact(spark, str(audit)).files == 2
        seal(spool, "jm-0", 3, [transition(1, yesterday), transition(3, yesterday)])
        with pytest.raises(
            AuditError, match=r"^another ingest or compaction is running in file:\S+: run one at a time"
        ):
            ingested()
        _until(lambda: sum(dates(audit, "transitions").values()) == 3)
    finally:
        stop.set()
        follower.join(60)
    assert results == [IngestResult(rows=NOTHING | {"transitions": 2}, quarantined=0, files=2)]
    assert ingested().rows == NOTHING
    assert [*(audit / "_staging").iterdir()] == []


def _until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.1)


def test_wrong_folders_are_one_clear_line(spark: SparkSession, spool: Path, audit: Path, tmp_path: Path) -> None:
    """A missing spool, an impossible audit log, a foreign folder: nothing is changed."""
    (tmp_path / "file").write_text("")
    (tmp_path / "photos").mkdir()
    (tmp_path / "photos" / "holiday.jpg").write_text("")
    for where, wanted, problem in (
        (tmp_path / "nowhere", audit, "nowhere: there is no such folder"),
        (spool, tmp_path / "file" / "audit", "Parent path is not a directory"),
        (spool, tmp_path / "photos", r"photos is not an audit log \(it contains holiday.jpg, …\)"),
    ):
        with pytest.raises(AuditError, match=problem) as failure:
            ingest(spark, str(where), str(wanted))
        assert "\n" not in str(failure.value)
    assert [path.name for path in (tmp_path / "photos").iterdir()] == ["holiday.jpg"]


def test_stopped_in_the_middle_of_a_batch_nothing_of_it_is_added(
    spark: SparkSession, spool: Path, audit: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Spark's jobs are cancelled, however long they would take; the next ingest adds the batch, each id once."""
    records = [transition(n) for n in range(60)]
    seal(spool, "jm-0", 1, records)
    stop, stage = threading.Event(), Writer._stage

    def slowly(self: Writer, rows: DataFrame, table: Table, folder: str) -> None:
        threading.Timer(1, stop.set).start()
        stage(self, rows.where("reflect('java.lang.Thread', 'sleep', 1000L) IS NOT NULL"), table, folder)

    with monkeypatch.context() as patch:
        patch.setattr(Writer, "_stage", slowly)
        stopped = ingest(spark, str(spool), str(audit), stop=stop)
    assert stop.is_set()
    assert (sum(stopped.rows.values()), [*(audit / "transitions").rglob("*.parquet")]) == (0, [])
    assert ingest(spark, str(spool), str(audit)).rows["transitions"] == len(records)
    assert ids_seen(spark, audit, "transitions") == ids(records)
