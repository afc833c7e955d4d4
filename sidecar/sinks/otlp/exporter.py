"""Exports failovers to an OpenTelemetry collector, in a thread of its own: nothing waits for it.

Records are read from the journal, so they are recorded before they are exported, and a collector that is away for a while misses none:
up to the journal's `KEPT_RECORDS`, across restarts. Those that it did miss are counted.
"""

import logging
import threading
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

from msgspec import DecodeError, json

from sidecar.core.records import AnyRecord
from sidecar.core.sanitize import clean
from sidecar.journal import JournalError, JournalReader
from sidecar.runtime.threads import ServiceThread, poll_pause
from sidecar.settings.model import OtlpSettings
from sidecar.sinks import durable_file
from sidecar.sinks.otlp import messages
from sidecar.sinks.otlp.collector import Collector, CollectorError, RefusedError

POSITION: Final = "otlp-position"
"""In the state folder: the number of the last record that was exported."""
MOST_EVENTS: Final = 500
"""In one request: some 500 kB before compression."""
OUTCOMES: Final = ("exported", "refused", "missed")
_STOP_SECONDS: Final = 2.0
_READABLE: Final = 0o600
_DECODER: Final = json.Decoder(AnyRecord)

_log = logging.getLogger("sidecar.otlp")


class Exporter:
    """Exports to one collector until it is stopped. What is not exported by then is exported after the next start."""

    def __init__(
        self,
        settings: OtlpSettings,
        journal: JournalReader,
        *,
        observer: str,
        external_labels: Mapping[str, str],
    ) -> None:
        self._collector = Collector(settings)
        self._journal = journal
        self._resource = messages.resource(observer, external_labels)
        self._position = Position(journal.folder / POSITION)
        self._problem = ""
        self._counts = Counter(dict.fromkeys(OUTCOMES, 0))
        self._stopping = threading.Event()
        self._thread = ServiceThread(self._run, "otlp")

    @property
    def is_up(self) -> bool:
        """Whether the last attempt to export succeeded."""
        return not self._problem

    @property
    def counts(self) -> Mapping[str, int]:
        """Records by outcome."""
        return dict(self._counts)

    def start(self) -> None:
        """Start in the background."""
        self._thread.start()

    def stop(self) -> None:
        """End soon. May be called twice, and before `start`."""
        self._stopping.set()
        if self._thread.ident is not None:
            self._thread.join(_STOP_SECONDS)

    def _run(self) -> None:
        failures, asked = 0, 0.0
        while not self._stopping.wait(max(asked, poll_pause(failures))):
            asked = 0.0
            try:
                self._export_records()
            except (CollectorError, JournalError, OSError) as error:
                failures += 1
                asked = error.pause if isinstance(error, CollectorError) else 0.0
                self._fail(str(error))
            else:
                failures = 0
                self._recover()
        self._journal.close()

    def _fail(self, problem: str) -> None:
        if not self._problem:
            _log.error("cannot export to %s: %s; retrying, the audit log has everything", self._collector.name, problem)
        self._problem = problem

    def _recover(self) -> None:
        if self._problem:
            _log.warning("exporting to %s again", self._collector.name)
        self._problem = ""

    def _export_records(self) -> None:
        """All records that exist. Raises CollectorError, JournalError, OSError."""
        after = self._position.load(self._journal.newest())
        while not self._stopping.is_set() and (records := self._journal.records(after, MOST_EVENTS)):
            first, last = records[0][0], records[-1][0]
            if after and first > after + 1:
                self._miss(first - after - 1)
            if events := [event for _, line in records if (event := _event(line))]:
                self._export_events(events)
            after = last
            self._position.save(last)

    def _miss(self, count: int) -> None:
        self._counts["missed"] += count
        _log.warning(
            "up to %d records had left the journal before %s took them: they are only in the audit log",
            count,
            self._collector.name,
        )

    def _export_events(self, events: Sequence[messages.Event]) -> None:
        """A record that the collector refuses keeps none of the others from it. Raises CollectorError."""
        try:
            answer = self._collector.export(messages.logs(self._resource, events))
        except RefusedError as error:
            if len(events) == 1:
                self._refuse(1, str(error))
                return
            half = len(events) // 2
            self._export_events(events[:half])
            self._export_events(events[half:])
            return
        rejected = min(max(0, answer.partial_success.rejected_log_records), len(events))
        self._counts["exported"] += len(events) - rejected
        if rejected:
            self._refuse(rejected, clean(answer.partial_success.error_message))

    def _refuse(self, count: int, reason: str) -> None:
        self._counts["refused"] += count
        _log.error("%s refused %d records, they are only in the audit log: %s", self._collector.name, count, reason)


class Position:
    """Up to which record the collector has everything; durable."""

    def __init__(self, file: Path) -> None:
        self._file = file
        self._number: int | None = None

    def load(self, newest: int) -> int:
        """The number of the last record that was exported. At first `newest`: records of earlier are in the audit log alone.

        A journal that went back in time is exported from its beginning: records have ids.
        """
        if self._number is None:
            self._number = self._read()
        if self._number is None:
            self.save(newest)
            return newest
        return self._number if self._number <= newest else 0

    def save(self, number: int) -> None:
        """Raises OSError."""
        durable_file.write(self._file, b"%d\n" % number, _READABLE, ".tmp")
        self._number = number

    def _read(self) -> int | None:
        try:
            return int(self._file.read_bytes()[:20])
        except FileNotFoundError:
            return None
        except ValueError:
            _log.error("%s is damaged: exporting from now on", self._file)
            return None


def _event(line: bytes) -> messages.Event | None:
    """The record, if it is to be exported and of this version."""
    try:
        record = _DECODER.decode(line)
    except DecodeError:
        return None
    return record if isinstance(record, messages.Event) else None
