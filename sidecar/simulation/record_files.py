"""Records from segment files (`.jsonl`, `.jsonl.gz`). They are read twice, line by line, and never held in memory."""

import gzip
import zlib
from collections import OrderedDict, deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Final

from msgspec import MsgspecError, Struct, field, json

from sidecar.core.cluster.failover.episodes import LOOK_BACK
from sidecar.core.cluster.leadership_table import Kind
from sidecar.core.cluster.records.record_reader import death_of, transition_of
from sidecar.core.errors import OperatorError
from sidecar.core.flink.leadership import Component
from sidecar.core.moment import SECOND, Moment, parsed
from sidecar.core.policy.policy import Store
from sidecar.core.records import AnyRecord, Contention, Death, Recovery, TransitionRecord
from sidecar.simulation.coverage import BlindPeriods

_LONGEST_LINE: Final = 1 << 20
_FAR: Final = 366 * 24 * 3600 * SECOND
"""A record this long after the previous one has a wrong time."""
_LATE: Final = LOOK_BACK + 5 * SECOND
"""The longest time from observing the REVOKED of a job to recording it: LOOK_BACK and a margin for a busy sidecar."""
NO_RECORD: Final = (MsgspecError, ValueError, RecursionError)
"""Raised by a line that is not a record. RecursionError: nested a thousand levels deep."""
_REMEMBERED: Final = 100_000
"""Ids that are remembered, so that a segment given twice is replayed once."""


Read = Callable[[], Iterable[bytes]]
"""Reads all lines, from the first one."""


class ReplayError(OperatorError):
    """The files cannot be replayed."""


class RecordHead(Struct):
    """The fields that the first pass reads."""

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
    id: str = ""
    cause: str = ""
    planned: bool | None = None


class RecordedSidecar(Struct):
    """The clusters, labels, blind periods and planned failovers of one sidecar, from the first pass."""

    stores: dict[str, Store] = {}
    external_labels: dict[str, str] = {}
    blind_periods: dict[str, BlindPeriods] = {}
    planned: dict[str, str] = {}
    """Causes by the ids of episodes."""


class RecordFiles:
    """The records in the lines that `read` yields, which are in the order of time; it is called for each pass."""

    def __init__(self, read: Read) -> None:
        self._read = read
        self.unreadable = 0
        """Lines that are not records, counted in the second pass."""

    def observers(self) -> dict[str, RecordedSidecar]:
        """The sidecars that wrote the records, by name. Raises ReplayError."""
        sidecars: dict[str, RecordedSidecar] = {}
        decoder = json.Decoder(RecordHead)
        for line in self._read():
            try:
                record = decoder.decode(line)
                at = parsed(record.observed_at)
                sidecar = sidecars.setdefault(record.observer, RecordedSidecar())
                sidecar.stores[record.cluster_id] = record.store
                sidecar.external_labels = record.external_labels
                blind = sidecar.blind_periods.setdefault(record.cluster_id, BlindPeriods())
                if record.type == "coverage":
                    blind.covered(parsed(record.from_), parsed(record.to), record.state)
                elif record.planned and record.type == "episode":
                    sidecar.planned[record.id] = record.cause
                elif record.kind == Kind.OBSCURED:
                    blind.noticed(at)
            except NO_RECORD:
                continue  # counted in the second pass
        return sidecars

    def records(self, observer: str, sidecar: RecordedSidecar) -> Iterator[tuple[int, AnyRecord]]:
        """The records of `observer`, with times (microseconds since the epoch) that never go back. Raises ReplayError."""
        return _in_order(self._in_file_order(observer, sidecar))

    def _in_file_order(self, observer: str, sidecar: RecordedSidecar) -> Iterator[tuple[int, AnyRecord]]:
        decoder = json.Decoder(AnyRecord)
        ids: OrderedDict[str, None] = OrderedDict()
        latest = 0
        self.unreadable = 0
        for line in self._read():
            try:
                record = decoder.decode(line)
                at = parsed(record.observed_at)
                _check(record)
                if latest and at - latest > _FAR:
                    raise ValueError("out of time")
            except NO_RECORD:
                self.unreadable += 1
                continue
            own = record.observer == observer and record.cluster_id in sidecar.stores
            if own and record.id not in ids:
                ids[record.id] = None
                if len(ids) > _REMEMBERED:
                    ids.popitem(last=False)
                latest = max(latest, at)
                yield at, record


def choose(sidecars: dict[str, RecordedSidecar], name: str | None) -> tuple[str, RecordedSidecar]:
    """The sidecar `name`; None: the only one. Raises ReplayError."""
    if not sidecars:
        raise ReplayError("there are no records in these files: give segments of the spool")
    if name is None and len(sidecars) > 1:
        raise ReplayError(f"these are records of {', '.join(sorted(sidecars))}: choose one with --observer")
    name = name or next(iter(sidecars))
    if name not in sidecars:
        raise ReplayError(f"there are no records of {name}, but of {', '.join(sorted(sidecars))}")
    return name, sidecars[name]


def _in_order(records: Iterable[tuple[int, AnyRecord]]) -> Iterator[tuple[int, AnyRecord]]:
    """`records` with times that never go back. The REVOKED of a job, which is recorded late, moves to the time of its observation."""
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
    """The lines of all files, `.gz` unpacked. A line longer than any record is split. Raises ReplayError."""
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
    """Raises ValueError if a record has values that no sidecar writes."""
    Store(record.store)
    match record:
        case TransitionRecord():
            transition_of(record, Moment(0, 0))
        case Death():
            death_of(record)
        case Recovery() if record.led_at:
            parsed(record.led_at)
        case Contention() if record.component:
            Component(record.component)
