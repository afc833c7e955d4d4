"""A spool of any size for the benchmarks of the audit: transitions as the sidecar writes them, without the fields that are null."""

import gzip
from concurrent.futures import ProcessPoolExecutor
from datetime import UTC, date, datetime, time, timedelta
from pathlib import Path
from uuid import NAMESPACE_OID, uuid5

import msgspec

from sidecar.core.moment import Timestamp
from sidecar.core.records import PositionRecord, TransitionRecord

SEGMENT_RECORDS = 1_000
"""What the sidecar's `roll_records` is by default."""
_OBSERVERS = 20
_COMPONENTS = ("resource_manager", "dispatcher", "rest_server", "job")
_PROCESSES = 2


def fill(spool: Path, rows: int, first: date, dates: int, *, whole: bool = False, start: int = 0) -> None:
    """Segments with `rows` transitions over `dates` days from `first` on, of 20 clusters in turn, each with an observer of its own.

    The ids are those of the numbers from `start` on. With `whole`, fields that are null stand there too.
    """
    segments = [
        (spool, number, min(SEGMENT_RECORDS, rows - number * SEGMENT_RECORDS), rows, first, dates, whole, start)
        for number in range(-(-rows // SEGMENT_RECORDS))
    ]
    for observer in range(_OBSERVERS):
        (spool / f"jm-{observer}").mkdir(parents=True, exist_ok=True)
    with ProcessPoolExecutor(_PROCESSES) as processes:
        for _ in processes.map(_seal, *zip(*segments, strict=True), chunksize=50):
            pass


def _seal(spool: Path, number: int, size: int, rows: int, first: date, dates: int, whole: bool, start: int) -> None:
    observer, begin = number % _OBSERVERS, number * SEGMENT_RECORDS
    midnight, step = datetime.combine(first, time(), UTC), timedelta(days=dates) / rows
    lines = [_line(start + n, observer, midnight + n * step, whole) for n in range(begin, begin + size)]
    name = f"{begin + 1:016d}-{begin + size:016d}.jsonl.gz"
    (spool / f"jm-{observer}" / name).write_bytes(gzip.compress(b"\n".join(lines) + b"\n", compresslevel=6))


def _line(number: int, observer: int, at: datetime, whole: bool) -> bytes:
    moment = Timestamp(at.strftime("%Y-%m-%dT%H:%M:%S.%fZ"))
    component = _COMPONENTS[number % 4]
    term = number // 4  # one failover moves all components to one leader
    host = f"10.{observer}.{term % 3}.{term % 7}"
    record = TransitionRecord(
        id=str(uuid5(NAMESPACE_OID, f"id {number}")),
        cluster_id=f"orders-{observer}",
        external_labels={"env": "prod"},
        store="zookeeper",
        observer=f"jm-{observer}",
        observed_at=moment,
        recorded_at=moment,
        component=component,
        job_id=None if component != "job" else f"{term % 50:032x}",
        kind="GRANTED",
        pattern="null->B",
        before_session_id=None,
        before_address=None,
        after_session_id=str(uuid5(NAMESPACE_OID, f"term {term}")),
        after_address=f"pekko.tcp://flink@{host}:6123/user/rpc/{component}_{term % 10}",
        last_known_session_id=None,
        last_known_address=None,
        same_leader=False,
        same_process=None,
        unobserved=0,
        vacant_seconds=round(number % 9973 / 1000, 3),
        connection="CONNECTED",
        reason=None,
        written_at=None,
        position=PositionRecord(mzxid=2**40 + number) if whole else None,
    )
    if whole:
        return msgspec.json.encode(record)
    fields = msgspec.to_builtins(record)
    return msgspec.json.encode({key: value for key, value in fields.items() if value is not None and value != 0})
