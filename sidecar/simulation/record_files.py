"""Records from files, as the spool seals them: `.jsonl`, or `.jsonl.gz`. Read twice, line by line, whatever their size."""

import gzip
import zlib
from collections import OrderedDict, deque
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Final

from msgspec import MsgspecError, Struct, field, json

from sidecar.core.cluster.episodes import LOOK_BACK
from sidecar.core.cluster.leadership_table import Kind
from sidecar.core.cluster.record_reader import transition_of
from sidecar.core.errors import OperatorError
from sidecar.core.flink.leadership import Component
from sidecar.core.moment import SECOND, Moment, parsed
from sidecar.core.policy.policy import Store
from sidecar.core.records import AnyRecord, Contention, TransitionRecord
from sidecar.simulation.coverage import BlindTimes

_LONGEST_LINE: Final = 1 << 20
_FAR: Final = 366 * 24 * 3600 * SECOND
"""A record so long after the one before it has a wrong time."""
_LATE: Final = LOOK_BACK + 5 * SECOND
"""The REVOKED of a job is recorded so long after it was observed: LOOK_BACK, and what a busy sidecar needs."""
NO_RECORD: Final = (MsgspecError, ValueError, RecursionError)
"""What a line raises that is no record. RecursionError: it is nested a thousand levels deep."""
_REMEMBERED: Final = 100_000
"""So many ids: a segment that is there twice is told once."""


class ReplayError(OperatorError):
    """What was recorded cannot be replayed."""


class RecordHead(Struct):
    """What is asked of every record before they are replayed."""

    type: str
    observer: str
    cluster_id: str
    store: Store
    observed_at: str
    external_labels: dict[str, str] = {}
    from_: str = field(name="from", default="")
    to: str = ""
    state: str = ""
    kind: str = ""


class Found(Struct):
    """What one sidecar recorded, before it is replayed."""

    stores: dict[str, Store] = {}
    external_labels: dict[str, str] = {}
    sights: dict[str, BlindTimes] = {}


class Spooled:
    """The records in `files`, one after the other in the order of time."""

    def __init__(self, files: Sequence[Path]) -> None:
        self._files = files
        self.unreadable = 0
        """Lines that are no records, counted when they are read."""

    def observers(self) -> dict[str, Found]:
        """What there is of each sidecar. Raises ReplayError."""
        found: dict[str, Found] = {}
        decoder = json.Decoder(RecordHead)
        for line in lines(self._files):
            try:
                record = decoder.decode(line)
                at = parsed(record.observed_at)
                of = found.setdefault(record.observer, Found({}, {}, {}))
                of.stores[record.cluster_id] = record.store
                of.external_labels = record.external_labels
                sight = of.sights.setdefault(record.cluster_id, BlindTimes())
                if record.type == "coverage":
                    sight.covered(parsed(record.from_), parsed(record.to), record.state)
                elif record.kind == Kind.OBSCURED:
                    sight.noticed(at)
            except NO_RECORD:
                continue  # counted when it is read for its content
        return found

    def records(self, observer: str, found: Found) -> Iterator[tuple[int, AnyRecord]]:
        """What `observer` recorded, each with its time (microseconds since the epoch), which never goes back. Raises ReplayError."""
        return _in_order(self._recorded(observer, found))

    def _recorded(self, observer: str, found: Found) -> Iterator[tuple[int, AnyRecord]]:
        """What `observer` recorded, each with the time at which it was observed, as the files hold it. Raises ReplayError."""
        decoder = json.Decoder(AnyRecord)
        known: OrderedDict[str, None] = OrderedDict()
        latest = 0
        self.unreadable = 0
        for line in lines(self._files):
            try:
                record = decoder.decode(line)
                at = parsed(record.observed_at)
                _check(record)
                if latest and at - latest > _FAR:
                    raise ValueError("out of time")
            except NO_RECORD:
                self.unreadable += 1
                continue
            own = record.observer == observer and record.cluster_id in found.stores
            if own and record.id not in known:
                known[record.id] = None
                if len(known) > _REMEMBERED:
                    known.popitem(last=False)
                latest = max(latest, at)
                yield at, record


def _in_order(records: Iterable[tuple[int, AnyRecord]]) -> Iterator[tuple[int, AnyRecord]]:
    """`records`, each with a time that never goes back. The REVOKED of a job comes where it was observed: it is recorded later."""
    waiting: deque[tuple[int, AnyRecord]] = deque()
    yielded = latest = 0
    for at, record in records:
        place = len(waiting)
        if latest - _LATE <= at < latest and _is_departure(record):
            while place and waiting[place - 1][0] > at:
                place -= 1
            waiting.insert(place, (max(at, yielded), record))
        else:
            latest = max(latest, at)
            waiting.append((latest, record))
        while latest - waiting[0][0] > _LATE:
            yielded, _ = waiting[0]
            yield waiting.popleft()
    yield from waiting


def _is_departure(record: AnyRecord) -> bool:
    return isinstance(record, TransitionRecord) and record.kind == Kind.REVOKED and record.job_id is not None


def lines(files: Sequence[Path]) -> Iterator[bytes]:
    """The lines of all files, those of `.gz` unpacked. A line that is longer than any record comes in pieces. Raises ReplayError."""
    for path in files:
        opened = gzip.open if path.suffix == ".gz" else open
        try:
            with opened(path, "rb") as file:
                while line := file.readline(_LONGEST_LINE):
                    if line.strip():
                        yield line
        except (OSError, EOFError, zlib.error) as error:
            reason = error.strerror if isinstance(error, OSError) and error.strerror else error
            raise ReplayError(f"{path} cannot be read: {reason}") from error


def _check(record: AnyRecord) -> None:
    """Raises ValueError where a record holds what no sidecar writes."""
    Store(record.store)
    match record:
        case TransitionRecord():
            transition_of(record, Moment(0, 0))
        case Contention() if record.component:
            Component(record.component)
