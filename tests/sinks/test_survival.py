"""Worker threads survive every failing attempt, capture or document, and settle their deliveries."""

import logging
from collections.abc import Callable, Iterator
from pathlib import Path
from queue import Queue

import pytest
from msgspec.structs import replace

import sidecar.sinks.evidence.collector
import sidecar.sinks.notify.notifier
from sidecar.core.captures import Capture, EvidenceItem, Occasion
from sidecar.core.moment import Moment
from sidecar.core.observations import DeliveryOutcome
from sidecar.core.policy.policy import Source
from sidecar.ports import StoredDocument
from sidecar.sinks.evidence.collector import Collector
from sidecar.sinks.notify.ledger_client import SharedLedger
from sidecar.sinks.notify.notifier import Attempt, Notifier
from tests.kit.receivers import apprise
from tests.lab.receivers import HttpReceiver
from tests.sinks.notify.test_ledger_client import FIRST, Observers

POISON = b'{"began": 1, "x": ' + b"[" * 1200 + b"]" * 1200 + b"}"
NO_THREAD = RuntimeError("can't start new thread")
"""Python's error at the limit of process ids."""

Settled = tuple[str, DeliveryOutcome]
Start = Callable[[SharedLedger | None], Notifier]


@pytest.fixture
def observers() -> Observers:
    """An unused ledger."""
    return Observers()


@pytest.fixture
def settled() -> Queue[Settled]:
    """What became of each attempt."""
    return Queue()


@pytest.fixture
def notifier(web: HttpReceiver, settled: Queue[Settled]) -> Iterator[Start]:
    """Starts a notifier of one worker, which is stopped in the end."""
    started: list[Notifier] = []

    def settle(delivery_id: str, attempt: Attempt) -> None:
        settled.put((delivery_id, attempt.outcome))

    def start(ledger: SharedLedger | None) -> Notifier:
        ledgers = {"default": ledger} if ledger else None
        made = Notifier({"ops#0": apprise(web.url)}, settle, ledgers, time_limit=100.0, workers=1)
        started.append(made)
        made.start()
        return made

    yield start
    for each in started:
        each.stop()


def send(notifier: Notifier, *ids: str) -> None:
    """Hand over one message for each of these, about different alerts."""
    for number in ids:
        part = replace(FIRST.parts[0], alert_id=number)
        notifier.send(replace(FIRST, id=number, fingerprint=number, parts=(part,)))


def test_a_poisoned_ledger_document_stops_no_message(
    observers: Observers, notifier: Start, settled: Queue[Settled]
) -> None:
    """Nested lists exhaust the stack. The document counts as unreadable, and the first claim replaces it."""
    observers.shared.document = StoredDocument(POISON, 1)
    send(notifier(observers.make("a")), "1", "2")
    assert sorted(settled.get(timeout=120) for _ in range(2)) == [
        ("1", DeliveryOutcome.DELIVERED),
        ("2", DeliveryOutcome.DELIVERED),
    ]
    assert observers.shared.document.content.startswith(b'{"format":1')


class Broken:
    """A store whose calls raise an unexpected `error`."""

    def __init__(self, observers: Observers) -> None:
        self.ledger = observers.make("a")
        self.store = observers.stores["a"]

    def fails(self, monkeypatch: pytest.MonkeyPatch, *names: str, error: Exception = NO_THREAD) -> None:
        def fail(*_: object) -> None:
            raise error

        for name in names:
            monkeypatch.setattr(self.store, name, fail)


@pytest.mark.parametrize("error", [NO_THREAD, ValueError("surprise"), MemoryError(), RecursionError()])
def test_a_ledger_that_fails_in_an_unforeseen_way_is_out_of_reach(
    observers: Observers, notifier: Start, settled: Queue[Settled], monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    """So messages wait for a bounded time and are then sent without it; the worker goes on, and so does the ledger after the repair."""
    broken = Broken(observers)
    with monkeypatch.context() as patched:
        broken.fails(patched, "read", error=error)
        sending = notifier(broken.ledger)
        send(sending, "1")
        assert settled.get(timeout=120) == ("1", DeliveryOutcome.NO_LEDGER)
    send(sending, "2")
    assert settled.get(timeout=120) == ("2", DeliveryOutcome.DELIVERED)


def test_what_was_sent_is_delivered_although_the_mark_fails(
    observers: Observers,
    notifier: Start,
    settled: Queue[Settled],
    web: HttpReceiver,
    monkeypatch: pytest.MonkeyPatch,
    eventually: Callable[[Callable[[], bool]], bool],
) -> None:
    """The mark is made later: no sidecar sends it again."""
    broken = Broken(observers)
    ask, asked = broken.store.read, 0

    def read() -> StoredDocument:
        nonlocal asked
        asked += 1
        if 3 <= asked <= 6:  # the first two make it at the start, and claim
            raise NO_THREAD
        return ask()

    monkeypatch.setattr(broken.store, "read", read)
    send(notifier(broken.ledger), "1")
    assert settled.get(timeout=120) == ("1", DeliveryOutcome.DELIVERED)
    assert eventually(lambda: not broken.ledger.has_unmarked)
    other = observers.make("b").claim(replace(FIRST, fingerprint="1", parts=(replace(FIRST.parts[0], alert_id="1"),)))
    assert (len(web.received), other.outcome) == (1, DeliveryOutcome.ALREADY_TOLD)


def test_a_sender_that_cannot_be_started_is_a_failure(
    notifier: Start, settled: Queue[Settled], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing was sent, and the same worker sends the next one."""

    def refuse(*_: object) -> None:
        raise NO_THREAD

    sending = notifier(None)
    with monkeypatch.context() as patched:
        patched.setattr(sidecar.sinks.notify.notifier, "Child", refuse)
        send(sending, "1")
        assert settled.get(timeout=120) == ("1", DeliveryOutcome.FAILED)
    send(sending, "2")
    assert settled.get(timeout=120) == ("2", DeliveryOutcome.DELIVERED)


def test_a_sender_that_fails_while_it_sends_may_have_sent(
    notifier: Start, settled: Queue[Settled], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The next attempt of that message is labelled."""

    def ask(*_: object) -> None:
        raise MemoryError

    sending = notifier(None)
    with monkeypatch.context() as patched:
        patched.setattr("sidecar.runtime.child.Child.ask", ask)
        send(sending, "1")
        assert settled.get(timeout=120) == ("1", DeliveryOutcome.TIMED_OUT)
    send(sending, "2")
    assert settled.get(timeout=120) == ("2", DeliveryOutcome.DELIVERED)


def test_a_capture_that_fails_in_an_unforeseen_way_is_recorded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As failed, at once, and the next one is captured by the same worker."""
    results: Queue[tuple[str, tuple[EvidenceItem, ...]]] = Queue()

    def refuse(*_: object) -> None:
        raise NO_THREAD

    monkeypatch.setattr(sidecar.sinks.evidence.collector, "Child", refuse)
    collector = Collector(tmp_path, lambda name, items: results.put((name, items)))
    collector.start()
    try:
        for name in ("1", "2"):
            collector.gather(_capture(name))
            answered, items = results.get(timeout=120)
            assert (answered, {item.outcome.value for item in items}) == (name, {"failed"})
    finally:
        collector.stop()


def test_a_refusal_that_no_thread_can_report_does_not_end_the_owner(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The owner requests evidence from its own thread: an unanswered request counts as lost, and the owner continues."""
    collector = Collector(tmp_path, lambda *_: None)
    collector.stop()

    def start(_: object) -> None:
        raise NO_THREAD

    monkeypatch.setattr("threading.Thread.start", start)
    collector.gather(_capture("0"))


def _capture(name: str) -> Capture:
    return Capture(name, "default", "e", Occasion.OPENED, Moment(0, 0), Source.PROCESSES)


def test_a_ledger_that_fails_at_the_start_is_logged_and_asked_again(
    observers: Observers, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """When there is something to send."""
    caplog.set_level(logging.INFO)
    broken = Broken(observers)
    with monkeypatch.context() as patched:
        broken.fails(patched, "read")
        broken.ledger.begin()
    assert "can't start new thread" in caplog.text
    assert broken.ledger.claim(FIRST).outcome is None
