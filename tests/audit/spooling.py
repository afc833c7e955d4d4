"""Spools for tests, written as the sidecar writes them, and the audit log read as its three kinds of readers read it."""

import gzip
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import duckdb
import msgspec
import pyarrow.dataset
from pyspark.sql import SparkSession

from sidecar.core.moment import Timestamp
from sidecar.core.records import (
    Annotation,
    AnyRecord,
    Contention,
    Coverage,
    Death,
    Drill,
    EpisodeRecord,
    Evidence,
    HaCheck,
    Notification,
    PositionRecord,
    Recovery,
    StatusRecord,
    TransitionRecord,
    record_id,
)

NOON = datetime(2025, 11, 21, 12, tzinfo=UTC)


def instant(moment: datetime) -> Timestamp:
    """As the core writes it."""
    return Timestamp(moment.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ"))


def session_id(letter: str) -> str:
    """A leader session id of its own for each letter."""
    return f"{letter * 8}-0000-4000-8000-000000000000"


def transition(number: int, at: datetime = NOON, **other: Any) -> TransitionRecord:
    """B took over from A: the change with this number, the same for every observer."""
    fields: dict[str, Any] = {
        "id": record_id("test", number),
        "cluster_id": f"cluster-{number % 3}",
        "external_labels": {"env": "test"},
        "store": "zookeeper",
        "observer": "jm-0",
        "observed_at": instant(at),
        "recorded_at": instant(at + timedelta(milliseconds=1)),
        "component": "dispatcher",
        "job_id": None,
        "kind": "GRANTED",
        "pattern": "null->B",
        "before_session_id": None,
        "before_address": None,
        "after_session_id": session_id("b"),
        "after_address": "pekko.tcp://flink@jm-1:6123/user/rpc/dispatcher_1",
        "last_known_session_id": session_id("a"),
        "last_known_address": "pekko.tcp://flink@jm-0:6123/user/rpc/dispatcher_0",
        "same_leader": False,
        "same_process": None,
        "unobserved": 0,
        "vacant_seconds": 1.5,
        "connection": "CONNECTED",
        "reason": None,
        "written_at": instant(at),
        "position": PositionRecord(
            path="/flink/default/leader/dispatcher/connection_info", czxid=2**40 + number, version=0
        ),
    }
    return TransitionRecord(**fields | other)


def coverage(number: int, at: datetime = NOON) -> Coverage:
    """An hour of sight."""
    return Coverage(
        **_envelope("coverage", number, at),
        began_at=instant(at - timedelta(hours=1)),
        ended_at=instant(at),
        state="seeing",
    )


def contention(number: int, at: datetime = NOON) -> Contention:
    """A standby that left."""
    return Contention(**_envelope("contention", number, at), component=None, contenders=1, contenders_before=2)


def notification(number: int, at: datetime = NOON) -> Notification:
    """An alert that arrived."""
    return Notification(
        **_envelope("notification", number, at),
        alert="FlinkLeaderChanged",
        fingerprint=f"{number:016x}",
        receiver="ops",
        destination="ops/1",
        reason="FIRST",
        outcome="delivered",
        attempt=1,
        possible_duplicate=False,
        detail=None,
        delivery_id=record_id("test", "delivery", number),
        queued_at=instant(at),
    )


def episode(number: int, at: datetime = NOON) -> EpisodeRecord:
    """A failover of four components that is over."""
    envelope = _envelope("episode", number, at)
    return EpisodeRecord(
        **envelope,
        episode_id=envelope["id"],
        opened_at=instant(at - timedelta(seconds=8)),
        closed_at=instant(at - timedelta(seconds=5)),
        cause="jobmanager_lost",
        confidence="high",
        facts=[
            "The JobManager's ZooKeeper session expired: it did not shut down cleanly.",
            "Another JobManager took over.",
        ],
        components=["dispatcher", "job", "resource_manager", "rest_server"],
        jobs_affected=1,
        jobs_ended=0,
        jobs_missing=0,
        jobs_total=1,
        vacant_seconds=2.5,
        vacant_seconds_by_component={"dispatcher": 2.5, "job": 3.0},
        before_session_id=session_id("a"),
        before_address="pekko.tcp://flink@jm-0:6123/user/rpc/dispatcher_0",
        after_session_id=session_id("b"),
        after_address="pekko.tcp://flink@jm-1:6123/user/rpc/dispatcher_1",
        failovers=1,
    )


def annotation(number: int, at: datetime = NOON) -> Annotation:
    """A note on the episode of that number."""
    return Annotation(
        **_envelope("annotation", number, at),
        episode_id=record_id("test", "episode", number),
        reason="The node was drained.",
        author="Ada",
    )


def evidence(number: int, at: datetime = NOON) -> Evidence:
    """A thread dump of who led before the episode of that number."""
    return Evidence(
        **_envelope("evidence", number, at),
        episode_id=record_id("test", "episode", number),
        occasion="opened",
        kind="thread_dump",
        subject="pid 17 (java)",
        outcome="captured",
        detail=None,
        file=f"{record_id('test', 'episode', number)}/opened-thread_dump-17.txt",
        size_bytes=4711,
        sha256="0" * 64,
        attributes={"threads": "31", "deadlock": "no"},
        asked_at=instant(at - timedelta(seconds=1)),
    )


def death(number: int, at: datetime = NOON, **other: Any) -> Death:
    """Why the JobManager of the episode of that number ended: an observer in its pod knows."""
    fields: dict[str, Any] = {
        "episode_id": record_id("test", "episode", number),
        "reason": "oom_killed",
        "confidence": "high",
        "facts": ["The kernel's OOM killer ended a process of its container."],
        "exit_code": 137,
        "limit_bytes": 1600 << 20,
        "ended_at": instant(at - timedelta(seconds=9)),
        "address": "pekko.tcp://flink@jm-0:6123/user/rpc/dispatcher_0",
        "pod": "jm-0",
    }
    return Death(**_envelope("death", number, at) | fields | other)


def status(number: int, at: datetime = NOON) -> StatusRecord:
    """A cluster that was well has no leader any more."""
    return StatusRecord(
        **_envelope("status", number, at),
        status="DOWN",
        previous="OK",
        since=instant(at),
        sentence="no leader, probably jm-a was lost",
    )


def ha_check(number: int, at: datetime = NOON) -> HaCheck:
    """A check that found a risk for the first time."""
    return HaCheck(
        **_envelope("ha_check", number, at),
        check_name="standby",
        verdict="RISK",
        verdict_before="PASS",
        since=instant(at),
        finding="one JobManager contends for leadership",
        advice="start a second JobManager",
    )


def recovery(number: int, at: datetime = NOON, **other: Any) -> Recovery:
    """The row of the cluster about the episode of that number: everything came back."""
    fields: dict[str, Any] = {
        "episode_id": record_id("test", "episode", number),
        "verdict": "recovered",
        "reasons": [],
        "job_id": None,
        "name": None,
        "state": None,
        "outcome": None,
        "task_managers_before": 2,
        "task_managers_after": 2,
        "dead_at": instant(at - timedelta(seconds=9)),
        "opened_at": instant(at - timedelta(seconds=8)),
        "dispatcher_led_at": instant(at - timedelta(seconds=6)),
        "led_at": instant(at - timedelta(seconds=5)),
        "running_at": instant(at - timedelta(seconds=2)),
        "checkpointed_at": instant(at),
        "running_after_seconds": 7.0,
    }
    return Recovery(**_envelope("recovery", number, at) | fields | other)


def drill(number: int, at: datetime = NOON, **other: Any) -> Drill:
    """The end of a drill that has passed, with the failover of the episode of that number."""
    fields: dict[str, Any] = {
        "drill_id": record_id("test", "drill", number),
        "phase": "ended",
        "expects": "failover",
        "starts_at": instant(at - timedelta(minutes=15)),
        "ends_at": instant(at),
        "author": "ann",
        "comment": "",
        "receivers": ["oncall#0"],
        "assessed": True,
        "over_at": instant(at),
        "result": "passed",
        "episode_id": record_id("test", "episode", number),
        "detected_after_seconds": 0.1,
        "leaderless_seconds": 3.0,
        "led_after_seconds": 3.1,
        "running_after_seconds": 7.0,
        "recovery_verdict": "recovered",
        "delivered": ["oncall#0"],
        "hidden": 2,
    }
    return Drill(**_envelope("drill", number, at) | fields | other)


def _envelope(kind: str, number: int, at: datetime) -> dict[str, Any]:
    return {
        "id": record_id("test", kind, number),
        "cluster_id": "default",
        "external_labels": {},
        "store": "zookeeper",
        "observer": "jm-0",
        "observed_at": instant(at),
        "recorded_at": instant(at),
    }


def line(record: AnyRecord) -> bytes:
    """A record as it stands in a segment."""
    return msgspec.json.encode(record)


def seal(
    spool: Path, observer: str, first: int, records: Iterable[AnyRecord] = (), *, lines: Iterable[bytes] = ()
) -> Path:
    """Write a segment aside and make it visible, as the sidecar does."""
    content = [*(line(record) for record in records), *lines]
    folder = spool / observer
    folder.mkdir(parents=True, exist_ok=True)
    segment = folder / f"{first:016d}-{first + len(content) - 1:016d}.jsonl.gz"
    aside = folder / f".{segment.name}.tmp"
    aside.write_bytes(gzip.compress(b"".join(text + b"\n" for text in content)))
    return aside.rename(segment)


def ids_seen(spark: SparkSession, audit: Path, table: str) -> list[str]:
    """The ids in a table, sorted, as Spark, DuckDB and pyarrow all see them without knowing anything of us."""
    by_spark = sorted(row.id for row in spark.read.parquet(f"{audit}/{table}").select("id").collect())
    assert by_spark == ids_seen_without_spark(audit, table)
    return by_spark


def ids_seen_without_spark(audit: Path, table: str) -> list[str]:
    """As DuckDB and pyarrow see them, where nothing else needs a JVM."""
    folder = f"{audit}/{table}"
    with duckdb.connect() as database:
        found = database.execute(f"SELECT id FROM read_parquet('{folder}/**/*.parquet')").fetchall()  # noqa: S608  our own path
    by_duckdb = sorted(row[0] for row in found)
    by_arrow = sorted(pyarrow.dataset.dataset(folder, partitioning="hive").to_table(columns=["id"])["id"].to_pylist())
    assert by_duckdb == by_arrow
    return by_arrow


def ids(records: Sequence[AnyRecord]) -> list[str]:
    """The ids of records, sorted, each once."""
    return sorted({record.id for record in records})
