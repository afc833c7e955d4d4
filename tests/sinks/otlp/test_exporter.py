"""Failovers reach an OpenTelemetry collector; what it did not take is tried again, or counted."""

import logging
import ssl
from collections.abc import Iterator
from contextlib import closing, contextmanager
from functools import partial
from pathlib import Path

import pytest
from msgspec.structs import replace
from opentelemetry.proto.logs.v1.logs_pb2 import LogRecord, SeverityNumber

from sidecar.core.moment import Timestamp, parsed, timestamp
from sidecar.core.records import AnyRecord, Contention, EpisodeRecord, Record, TransitionRecord
from sidecar.core.state import State
from sidecar.journal import Journal, JournalReader
from sidecar.journal.writer import KEPT_RECORDS
from sidecar.net.secret import Secret
from sidecar.runtime import threads
from sidecar.settings.model import OtlpSettings, TlsSettings
from sidecar.sinks.otlp.exporter import POSITION, Exporter
from tests.kit.otel_collector import ACCEPTED, OtelCollector, Reply, attributes, otel_collector, partly
from tests.kit.spools import journal_with, records
from tests.kit.waiting import PATIENCE_SECONDS, until

FAILOVERS = [replace(record, recorded_at=timestamp(parsed(record.observed_at) + 7)) for record in records()]
ENVELOPE = {name: getattr(FAILOVERS[0], name) for name in Record.__struct_fields__}
STANDBY_LOST = Contention(**{**ENVELOPE, "id": "c"}, component=None, contenders=1, contenders_before=2)
RECORDS: list[AnyRecord] = [*FAILOVERS[:5], STANDBY_LOST, *FAILOVERS[5:]]
soon = partial(until, seconds=PATIENCE_SECONDS)
EVENTS = [record for record in RECORDS if isinstance(record, TransitionRecord | EpisodeRecord)]
IDS = [record.id for record in EVENTS]


@pytest.fixture(autouse=True)
def _often(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(threads, "_POLL_SECONDS", 0.02)


@pytest.fixture
def collector() -> Iterator[OtelCollector]:
    with otel_collector() as running:
        yield running


@contextmanager
def exporting(folder: Path, settings: OtlpSettings) -> Iterator[Exporter]:
    """Exports from the journal in `folder`."""
    with closing(JournalReader(folder)) as journal:
        exporter = Exporter(settings, journal, observer="jm-0", external_labels={"env": "prod"})
        exporter.start()
        try:
            yield exporter
        finally:
            exporter.stop()


def begun(folder: Path) -> None:
    """An empty journal, from which everything was exported."""
    journal_with(folder, [])
    (folder / POSITION).write_text("0\n")


def journaled(folder: Path) -> list[str]:
    """The ids of the records in the journal that are exported."""
    with closing(JournalReader(folder)) as journal:
        return [record.id for record in journal.remembered() if record.id in IDS]


def newest_number(folder: Path) -> int:
    """Of the last record in the journal."""
    with closing(JournalReader(folder)) as journal:
        return journal.newest()


def test_every_transition_and_failover_arrives_once_and_in_order(tmp_path: Path, collector: OtelCollector) -> None:
    """Also across a restart, and records of other kinds are left to the audit log."""
    begun(tmp_path)
    half = len(RECORDS) // 2
    for some in (RECORDS[:half], RECORDS[half:]):
        journal_with(tmp_path, some)
        with exporting(tmp_path, collector.settings):
            assert soon(lambda: collector.ids() == journaled(tmp_path))
    assert collector.ids() == IDS
    assert len(RECORDS) > len(EVENTS)


def test_an_event_has_the_fields_of_its_record(tmp_path: Path, collector: OtelCollector) -> None:
    """Names, values and times are those of the audit log."""
    begun(tmp_path)
    journal_with(tmp_path, RECORDS)
    with exporting(tmp_path, collector.settings):
        assert soon(lambda: collector.ids() == IDS)
    for event, record in zip(collector.events, EVENTS, strict=True):
        fields = attributes(event.attributes)
        assert event.event_name == f"flink.ha.{record.__struct_config__.tag}"
        assert event.time_unix_nano == parsed(record.observed_at) * 1000
        assert event.observed_time_unix_nano == parsed(record.recorded_at) * 1000
        assert {name: fields[name] for name in ("cluster_id", "observer", "store")} == {
            name: getattr(record, name) for name in ("cluster_id", "observer", "store")
        }
        assert None not in fields.values()
    revoked = next(
        (event, record)
        for event, record in zip(collector.events, EVENTS, strict=True)
        if isinstance(record, TransitionRecord) and record.kind == "REVOKED"
    )
    fields = attributes(revoked[0].attributes)
    assert revoked[0].severity_number == SeverityNumber.SEVERITY_NUMBER_WARN
    assert fields["before_address"] == revoked[1].before_address
    assert fields["position.path"] == getattr(revoked[1].position, "path", None)
    assert "REVOKED" in revoked[0].body.string_value


@pytest.mark.parametrize("odd", ["", "yesterday", "1969-12-31T23:59:59.000000Z", "9999-12-31T23:59:59.000000Z"])
def test_a_record_with_an_odd_time_silences_nothing(tmp_path: Path, collector: OtelCollector, odd: str) -> None:
    """OTLP's times end in 2554: such a time is not known, and 0."""
    begun(tmp_path)
    journal_with(tmp_path, [replace(EVENTS[0], observed_at=Timestamp(odd)), *EVENTS[1:]])
    with exporting(tmp_path, collector.settings):
        assert soon(lambda: collector.ids() == IDS)
    assert collector.events[0].time_unix_nano == 0


def test_a_number_that_is_too_large_silences_nothing(tmp_path: Path, collector: OtelCollector) -> None:
    """It is exported as text."""
    begun(tmp_path)
    record = next(event for event in EVENTS if isinstance(event, TransitionRecord))
    journal_with(tmp_path, [replace(record, elections=1 << 63)])
    with exporting(tmp_path, collector.settings):
        assert soon(lambda: bool(collector.events))
    assert attributes(collector.events[0].attributes)["elections"] == str(1 << 63)


def test_the_resource_is_this_sidecar_with_its_external_labels(tmp_path: Path, collector: OtelCollector) -> None:
    """As in OpenTelemetry's conventions for services."""
    begun(tmp_path)
    journal_with(tmp_path, RECORDS)
    with exporting(tmp_path, collector.settings):
        assert soon(lambda: collector.ids() == IDS)
    found = attributes(collector.resources[0].attributes)
    assert (found["service.name"], found["service.instance.id"], found["env"]) == ("flink-ha-sidecar", "jm-0", "prod")


def test_the_past_of_a_sidecar_is_not_exported(tmp_path: Path, collector: OtelCollector) -> None:
    """A collector that is configured today gets what happens from today on."""
    journal_with(tmp_path, RECORDS[:-1])
    with exporting(tmp_path, collector.settings):
        assert soon((tmp_path / POSITION).exists)
        journal_with(tmp_path, RECORDS[-1:])
        assert soon(lambda: collector.ids() == [record.id for record in RECORDS[-1:] if record.id in IDS])


@pytest.mark.parametrize(
    "reply",
    [
        Reply(503),
        Reply(503, headers={"Retry-After": "Fri, 20 Nov 99999999999 08:00:42 GMT"}),
        Reply(401, b"unknown token hush-hush"),
        Reply(404),
        Reply(302),
    ],
)
def test_a_collector_that_is_away_misses_nothing(
    tmp_path: Path, collector: OtelCollector, reply: Reply, caplog: pytest.LogCaptureFixture
) -> None:
    """Nor does one whose credentials or path are wrong at first. The log says it once, without the secret."""
    begun(tmp_path)
    journal_with(tmp_path, RECORDS)
    collector.judge = lambda _events: reply
    settings = replace(collector.settings, headers={"X-Token": Secret("hush-hush")})
    with exporting(tmp_path, settings) as exporter:
        assert soon(lambda: collector.requests >= 3)
        assert not exporter.is_up
        collector.judge = lambda _events: ACCEPTED
        assert soon(lambda: collector.ids() == IDS)
        assert soon(lambda: exporter.is_up)
    assert exporter.counts == {"exported": len(IDS), "refused": 0, "missed": 0}
    assert collector.headers[0]["X-Token"] == "hush-hush"
    failures = [line.getMessage() for line in caplog.records if line.levelno == logging.ERROR]
    assert len(failures) == 1
    assert f"answered {reply.status}" in failures[0]
    assert "hush" not in caplog.text


def test_one_record_that_is_refused_keeps_no_other_from_the_collector(tmp_path: Path, collector: OtelCollector) -> None:
    """The request is halved until it is found; it is counted."""
    begun(tmp_path)
    journal_with(tmp_path, RECORDS)
    poison = IDS[len(IDS) // 2]

    def judge(events: list[LogRecord]) -> Reply:
        return Reply(400, b"bad") if any(attributes(event.attributes)["id"] == poison for event in events) else ACCEPTED

    collector.judge = judge
    with exporting(tmp_path, collector.settings) as exporter:
        assert soon(lambda: exporter.counts["refused"] == 1)
        assert soon(lambda: len(collector.events) == len(IDS) - 1)
    assert collector.ids() == [event_id for event_id in IDS if event_id != poison]


def test_what_a_collector_rejects_of_a_request_is_counted(
    tmp_path: Path, collector: OtelCollector, caplog: pytest.LogCaptureFixture
) -> None:
    """Its reason is in the log, on one line; a number that cannot be is bounded."""
    begun(tmp_path)
    journal_with(tmp_path, RECORDS[:-1])
    collector.judge = lambda _events: partly(2, "too\nold")
    with exporting(tmp_path, collector.settings) as exporter:
        assert soon(lambda: exporter.counts["refused"] == 2)
        collector.judge = lambda _events: partly(10**12, "all of them")
        journal_with(tmp_path, RECORDS[-1:])
        assert soon(lambda: sum(exporter.counts.values()) == len(IDS))
    assert "refused 2 records, they are only in the audit log: too" in caplog.text
    assert all("\n" not in line.getMessage() for line in caplog.records)


def test_records_that_left_the_journal_first_are_counted(tmp_path: Path, collector: OtelCollector) -> None:
    """The journal keeps so many; the audit log has all of them."""
    begun(tmp_path)
    journal = Journal(tmp_path)
    state = journal.open()
    many: list[AnyRecord] = [replace(EVENTS[0], id=f"{n:036d}") for n in range(KEPT_RECORDS + 100)]
    assert journal.commit(state, many)
    newest = newest_number(tmp_path)
    (tmp_path / POSITION).write_text(str(newest - len(many) + 10))
    assert journal.commit(State(), [], sealed=newest)
    journal.close()
    with exporting(tmp_path, collector.settings) as exporter:
        assert soon(lambda: len(collector.events) == KEPT_RECORDS)
    assert exporter.counts == {"exported": KEPT_RECORDS, "refused": 0, "missed": 90}


@pytest.mark.parametrize(("content", "expected"), [("99999\n", len(IDS)), ("?!", 0), ("", 0)])
def test_a_position_that_cannot_be_is_no_end(
    tmp_path: Path, collector: OtelCollector, content: str, expected: int
) -> None:
    """Of a journal that went back in time all is exported again; where the file is damaged, what follows."""
    journal_with(tmp_path, RECORDS)
    (tmp_path / POSITION).write_text(content)
    with exporting(tmp_path, collector.settings):
        assert soon(lambda: (tmp_path / POSITION).read_text() == f"{newest_number(tmp_path)}\n")
    assert len(collector.events) == expected


def test_a_collector_that_hangs_does_not_hold_up_the_end(tmp_path: Path, collector: OtelCollector) -> None:
    """The sidecar has ten seconds to stop: the exporter takes two of them at most."""
    begun(tmp_path)
    journal_with(tmp_path, RECORDS)
    collector.hangs.set()
    with exporting(tmp_path, collector.settings):
        assert soon((tmp_path / POSITION).exists)
    assert (tmp_path / POSITION).read_text() == "0\n"


def test_a_server_that_is_not_trusted_gets_nothing(tmp_path: Path, collector: OtelCollector) -> None:
    """Neither records nor headers: its certificate is verified."""
    begun(tmp_path)
    journal_with(tmp_path, RECORDS)
    assert ssl.get_default_verify_paths()
    settings = OtlpSettings(f"https://127.0.0.1:{collector.port}", tls=TlsSettings())
    with exporting(tmp_path, settings) as exporter:
        assert soon(lambda: not exporter.is_up)
    assert not collector.requests
