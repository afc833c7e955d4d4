"""What the ledger permits an attempt to do, over a shared store with write conflicts and outages.

The store here is memory with faults on demand; the real ones have their own tests (tests/integration/test_ledgers.py), and real sidecars
speak with one voice in tests/e2e/test_one_voice.py.
"""

import math
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from threading import Event, Thread

import pytest
from msgspec.structs import replace

import sidecar.sinks.notify.ledger_access
from sidecar.core.alerting.alerts import Reason
from sidecar.core.alerting.ledger_document import Presence
from sidecar.core.alerting.outbox import Delivery, Part
from sidecar.core.moment import SECOND
from sidecar.core.observations import DeliveryOutcome
from sidecar.ports import LedgerError, LedgerRefusedError, StoredDocument
from sidecar.runtime.clock import Clock
from sidecar.sinks.notify.ledger_access import FREE, Permit
from sidecar.sinks.notify.ledger_client import SharedLedger
from sidecar.sinks.notify.notifier import Attempt, Notifier
from tests.core.alerting.test_ledger_document import OVER, VACANCY, delivery_of
from tests.kit.memory_ledger import Memory, Shared
from tests.kit.receivers import RawServer, apprise
from tests.kit.waiting import LOADED_MACHINE_SECONDS, wait_for
from tests.lab.receivers import HttpReceiver

NOW = Clock()()
SOON = NOW.wall + 3600 * SECOND
"""Later than any ledger begins here, and by minutes."""
FIRST = replace(delivery_of(replace(VACANCY, began=SOON)), queued_at=replace(NOW, wall=SOON))
LATER = replace(FIRST, id="later", parts=(replace(OVER, began=SOON, ended=SOON + SECOND),), reason=Reason.RESOLVED)


class Observers:
    """Several sidecars with one ledger."""

    def __init__(self) -> None:
        self.shared = Shared()
        self.stores: dict[str, Memory] = {}

    def make(self, name: str, *, alone: bool = True, lease: float = 3600) -> SharedLedger:
        self.stores[name] = Memory(self.shared)
        return SharedLedger(self.stores[name], name, Clock(), alone_if_refused=alone, lease=round(lease * SECOND))


@pytest.fixture
def observers() -> Observers:
    """An unused ledger."""
    return Observers()


def test_one_sends_and_the_others_find_it_sent(observers: Observers) -> None:
    """A claim holds it for the others; a mark names the sender. Then the connection is released."""
    a, b = observers.make("a"), observers.make("b")
    permit = a.claim(FIRST)
    assert (permit.outcome, permit.possible_duplicate) == (None, False)
    assert b.claim(FIRST) == Permit(outcome=DeliveryOutcome.HELD, detail="a is about to send it")
    a.settle(FIRST, permit.claim, DeliveryOutcome.DELIVERED)
    assert b.claim(FIRST) == Permit(outcome=DeliveryOutcome.ALREADY_TOLD, detail="by a")
    assert (observers.stores["a"].rests, observers.stores["b"].rests) == (1, 1)


@pytest.mark.parametrize(
    ("outcome", "doubtful"),
    [(DeliveryOutcome.FAILED, False), (DeliveryOutcome.REJECTED, False), (DeliveryOutcome.TIMED_OUT, True)],
)
def test_after_a_failure_another_sidecar_may_send(
    observers: Observers, outcome: DeliveryOutcome, doubtful: bool
) -> None:
    """At once, and as a possible duplicate if it may have arrived."""
    a, b = observers.make("a"), observers.make("b")
    a.settle(FIRST, a.claim(FIRST).claim, outcome)
    permit = b.claim(FIRST)
    assert (permit.outcome, permit.possible_duplicate) == (None, doubtful)


def test_the_claim_of_a_dead_sidecar_is_taken_over(observers: Observers) -> None:
    """When it has stood unchanged for long enough by our own clock; it may have arrived."""
    observers.make("a").claim(FIRST)
    patient, impatient = observers.make("patient"), observers.make("impatient", lease=0)
    assert patient.claim(FIRST).outcome is DeliveryOutcome.HELD
    permit = impatient.claim(FIRST)
    assert (permit.outcome, permit.possible_duplicate) == (None, True)
    impatient.settle(FIRST, permit.claim, DeliveryOutcome.DELIVERED)
    assert patient.claim(FIRST).outcome is DeliveryOutcome.ALREADY_TOLD


def test_a_claim_that_is_renewed_is_held_and_then_taken_over(observers: Observers) -> None:
    """As long as its holder lives, and one lease longer."""
    holder, other = observers.make("holder", lease=1.0), observers.make("other", lease=1.0)
    permit = holder.claim(FIRST)
    with holder.renewing(FIRST, permit) as claim:
        for _ in range(30):
            assert other.claim(FIRST).outcome is DeliveryOutcome.HELD
            time.sleep(0.1)
        assert claim.until > permit.until
    died = time.monotonic()
    taken = wait_for("the claim", lambda: found if (found := other.claim(FIRST)).outcome is None else None)
    assert 0.5 < time.monotonic() - died < 1.0 + LOADED_MACHINE_SECONDS
    assert taken.possible_duplicate
    assert holder.renewing(FIRST, permit)._renew(claim.until) == -math.inf


def test_a_claim_that_is_not_renewed_is_held_for_longer(observers: Observers) -> None:
    """By a sidecar of an earlier version, which takes longer to send."""
    holder, other = observers.make("holder"), observers.make("other", lease=0)
    holder.claim(FIRST)
    document = observers.shared.document
    observers.shared.document = replace(document, content=document.content.replace(b',"renewed":0', b""))
    assert other.claim(FIRST).outcome is DeliveryOutcome.HELD
    observers.shared.document = document
    assert other.claim(FIRST).outcome is None


def test_who_cannot_read_the_ledger_does_not_count_the_time(observers: Observers) -> None:
    """The holder of the claim may not reach it either, and has another lease to mark what it has sent."""
    observers.make("holder").claim(FIRST)
    other = observers.make("other", lease=0.5)
    assert other.claim(FIRST).outcome is DeliveryOutcome.HELD
    observers.stores["other"].fault = LedgerError("no quorum")
    assert other.claim(FIRST).outcome is DeliveryOutcome.NO_LEDGER
    time.sleep(0.6)
    observers.stores["other"].fault = None
    assert other.claim(FIRST).outcome is DeliveryOutcome.HELD


@pytest.mark.parametrize("fault", [LedgerError("no quorum"), LedgerRefusedError("no permission")])
def test_whether_the_ledger_is_in_use_is_known(observers: Observers, fault: LedgerError) -> None:
    """From the last time it was needed: at the start, and for each notification."""
    a, b = observers.make("a"), observers.make("b", alone=False)
    states = [a.is_up]
    observers.stores["a"].fault = fault
    a.begin()
    states += [a.is_up]
    b.begin()
    for problem in (None, fault, None):
        observers.stores["b"].fault = problem
        b.claim(FIRST)
        states += [b.is_up]
    assert states == [None, False, True, False, True]


def test_a_claim_that_changes_hands_is_watched_anew(observers: Observers) -> None:
    """Each holder has its full time."""
    watcher = observers.make("watcher", lease=0.2)
    others = [observers.make(f"other-{number}", lease=0) for number in range(3)]
    for other in others:
        other.claim(FIRST)
        assert watcher.claim(FIRST).outcome is DeliveryOutcome.HELD


def test_our_own_claim_from_before_a_crash_is_ours(observers: Observers) -> None:
    """Without waiting, as a possible duplicate."""
    observers.make("a").claim(FIRST)
    permit = observers.make("a").claim(replace(FIRST, attempt=2))
    assert (permit.outcome, permit.possible_duplicate) == (None, True)


def test_a_mark_that_could_not_be_made_is_made_when_the_ledger_is_back(
    observers: Observers, web: HttpReceiver, eventually: Callable[[Callable[[], bool]], bool]
) -> None:
    """Also when the sidecar has nothing else to send: the others find it sent."""
    a, b = observers.make("a"), observers.make("b")
    observers.stores["a"].fault = LedgerError("no quorum")
    settled: list[Attempt] = []
    notifier = Notifier({"ops#0": apprise(web.url)}, lambda _, each: settled.append(each), {"default": a}, workers=1)
    notifier.start()
    try:
        notifier.send(replace(FIRST, fails_open=True))
        assert eventually(lambda: bool(settled))
        assert a.has_unmarked
        observers.stores["a"].fault = None
        assert eventually(lambda: not a.has_unmarked)
    finally:
        notifier.stop()
    assert b.claim(FIRST).outcome is DeliveryOutcome.ALREADY_TOLD


def test_a_notification_waits_for_no_ledger_of_another_cluster(
    observers: Observers, eventually: Callable[[Callable[[], bool]], bool]
) -> None:
    """Twelve stores do not answer, at the start and when their own notifications are to be claimed."""
    released = Event()
    settled: list[str] = []
    ledgers = {}
    for name in [*(f"dark-{number}" for number in range(12)), "default"]:
        ledgers[name] = observers.make(name)
        observers.stores[name].hangs = None if name == "default" else released
    notifier = Notifier(
        {}, lambda name, _: settled.append(name), ledgers, workers=2
    )  # without a destination, none is sent
    notifier.start()
    try:
        for name in ledgers:
            for attempt in range(1, 6):
                notifier.send(replace(FIRST, id=f"{name}-{attempt}", cluster_id=name, attempt=attempt))
        assert eventually(lambda: len(settled) == 5)
        assert {each.rpartition("-")[0] for each in settled} == {"default"}
    finally:
        released.set()
        notifier.stop()


def test_after_a_long_outage_a_duplicate_is_possible(observers: Observers, monkeypatch: pytest.MonkeyPatch) -> None:
    """Others may have sent without the ledger and without a mark. Not so after a short outage."""
    monkeypatch.setattr(sidecar.sinks.notify.ledger_access, "DOUBT_AFTER", 0.2)
    observers.make("first").begin()
    for pause, doubtful in ((0.0, False), (0.25, True)):
        waits = _happened_now()
        a = observers.make(f"after {pause}")
        observers.stores[a._observer].fault = LedgerError("no quorum")
        assert a.claim(waits).outcome is DeliveryOutcome.NO_LEDGER
        time.sleep(pause)  # the outage is the experiment
        assert a.claim(waits).outcome is DeliveryOutcome.NO_LEDGER
        observers.stores[a._observer].fault = None
        later = _happened_now()
        for number, (delivery, expected) in enumerate(
            (
                (waits, doubtful),
                (later, False),
                (replace(later, parts=waits.parts), doubtful),  # what happened before, and is notified only now
            )
        ):
            permit = a.claim(replace(delivery, destination=f"{a._observer} {number}"))
            assert (permit.outcome, permit.possible_duplicate) == (None, expected)


def _happened_now() -> Delivery:
    at = Clock()()
    return replace(FIRST, queued_at=at, parts=(Part("change", at.wall, at.wall, is_event=True),))


def test_two_of_one_name_both_send_and_say_so(observers: Observers) -> None:
    """Each takes the other's claim for its own: the second one knows that something may have arrived, and sends at once."""
    first, second = observers.make("same"), observers.make("same")
    permit = first.claim(FIRST)
    other = second.claim(replace(FIRST, id="other"))
    assert [(each.outcome, each.possible_duplicate) for each in (permit, other)] == [(None, False), (None, True)]
    first.settle(FIRST, permit.claim, DeliveryOutcome.DELIVERED)
    second.settle(FIRST, other.claim, DeliveryOutcome.DELIVERED)
    assert observers.make("third").claim(FIRST).outcome is DeliveryOutcome.ALREADY_TOLD


def test_a_lost_race_is_run_again(observers: Observers) -> None:
    """Also several; not for ever."""
    a = observers.make("a")
    observers.stores["a"].races = 5
    assert a.claim(FIRST).outcome is None
    observers.stores["a"].races = 1000
    assert a.claim(LATER) == Permit(
        outcome=DeliveryOutcome.NO_LEDGER, detail="the ledger is written by others all the time"
    )


def test_many_at_once_and_one_of_them_sends(observers: Observers) -> None:
    """Twenty threads of five sidecars: one permit."""
    ledgers = [observers.make(f"sidecar-{number}") for number in range(5)]
    permits: list[Permit] = []
    threads = [Thread(target=lambda it=it: permits.append(it.claim(FIRST))) for it in ledgers]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(str(permit.outcome) for permit in permits) == ["None", *["held"] * 4]


def test_an_unreachable_ledger_is_reported(observers: Observers) -> None:
    """Nothing is sent by that attempt."""
    a = observers.make("a")
    observers.stores["a"].fault = LedgerError("no quorum")
    assert a.claim(FIRST) == Permit(outcome=DeliveryOutcome.NO_LEDGER, detail="no quorum")


def test_the_only_observer_does_not_ask_a_store_that_it_cannot_see(
    observers: Observers, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each question would take seconds, in which the message to the next receiver waits, and nobody else can have sent it: neither is it
    late, nor may it be a duplicate. It is marked when the store is seen again.
    """
    monkeypatch.setattr(sidecar.sinks.notify.ledger_access, "DOUBT_AFTER", 0.0)
    seen, store = [True], Memory(observers.shared)
    a = SharedLedger(store, "a", Clock(), lambda: seen[-1], alone_if_refused=False)
    a.begin()
    a.announce(Presence(SOON))
    store.fault, reads = LedgerError("no quorum"), store.reads
    seen.append(False)
    assert a.claim(FIRST) is FREE
    a.settle(FIRST, None, DeliveryOutcome.DELIVERED)
    a.retry_marks()
    assert (store.reads, a.has_unmarked) == (reads, True)
    store.fault = None
    seen.append(True)
    assert not a.claim(LATER).possible_duplicate
    a.retry_marks()
    assert observers.make("b").claim(FIRST).outcome is DeliveryOutcome.ALREADY_TOLD


@pytest.mark.parametrize("at", [NOW.wall, SOON], ids=["young", "with others"])
def test_one_of_several_observers_asks_a_store_that_it_cannot_see(observers: Observers, at: int) -> None:
    """Also one that finds itself alone in a young ledger: the others announce themselves once a minute. And one that is alone, but sees the
    store, where the ledger alone cannot be used.
    """
    first = SharedLedger(Memory(observers.shared), "first", Clock(), lambda: False, alone_if_refused=False)
    second = SharedLedger(store := Memory(observers.shared), "second", Clock(), lambda: False, alone_if_refused=False)
    second.begin()
    if at == SOON:
        first.announce(Presence(at))
    second.announce(Presence(at))
    store.fault = LedgerError("no quorum")
    assert second.claim(FIRST).outcome is DeliveryOutcome.NO_LEDGER
    alone = observers.make("alone")
    observers.shared.document = StoredDocument()
    alone.begin()
    alone.announce(Presence(SOON))
    observers.stores["alone"].fault = LedgerError("too large")
    assert alone.claim(FIRST).outcome is DeliveryOutcome.NO_LEDGER


def test_waiting_callers_share_the_failure_of_an_unreachable_ledger(observers: Observers) -> None:
    """A message to each of four destinations waits no longer than one of them; the next one asks again."""
    a = observers.make("a")
    store = observers.stores["a"]
    store.fault, store.slow = LedgerError("no quorum"), 1.0
    permits: list[Permit] = []
    threads = [Thread(target=lambda: permits.append(a.claim(FIRST))) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert permits == [Permit(outcome=DeliveryOutcome.NO_LEDGER, detail="no quorum")] * 4
    assert store.reads == 1
    store.fault = None
    assert a.claim(FIRST).outcome is None


def test_a_store_that_refuses_leaves_us_alone_or_waiting(
    observers: Observers, caplog: pytest.LogCaptureFixture
) -> None:
    """`auto`: send without it, log once, and do not try again for a while. `store`: it is unreachable."""
    auto, strict = observers.make("auto"), observers.make("strict", alone=False)
    for store in observers.stores.values():
        store.fault = LedgerRefusedError("no permission")
    assert auto.claim(FIRST) is FREE
    observers.stores["auto"].fault = None
    auto.settle(FIRST, None, DeliveryOutcome.DELIVERED)
    assert auto.claim(LATER) is FREE
    assert observers.shared.document == StoredDocument()
    assert strict.claim(FIRST).outcome is DeliveryOutcome.NO_LEDGER
    assert [record.message for record in caplog.records] == [
        "no ledger: this sidecar sends every notification itself, and other sidecars may send the same: no permission"
    ]


def test_a_store_that_refuses_after_a_ledger_existed_is_unreachable(observers: Observers) -> None:
    """Others may still use it: what is sent without it is a possible duplicate."""
    auto = observers.make("auto")
    auto.settle(FIRST, auto.claim(FIRST).claim, DeliveryOutcome.DELIVERED)
    observers.stores["auto"].fault = LedgerRefusedError("no permission")
    assert auto.claim(LATER) == Permit(outcome=DeliveryOutcome.NO_LEDGER, detail="no permission")


def test_a_ledger_of_a_newer_version_counts_as_unreachable_and_is_left_alone(observers: Observers) -> None:
    """What it says is not known: nothing is sent by that attempt, and nothing is written over it."""
    newer = StoredDocument(b'{"format":2,"entries":["another shape"]}', 7)
    observers.shared.document = newer
    permit = observers.make("a").claim(FIRST)
    assert permit.outcome is DeliveryOutcome.NO_LEDGER
    assert permit.detail == (
        "the ledger was written by a newer version (format 2, this version reads 1): update this sidecar, or delete the ledger"
    )
    assert observers.shared.document is newer


@pytest.mark.parametrize("left", [b"", b"\xff garbage", b'{"format":0,"began":1}'])
@pytest.mark.parametrize("restarted", [False, True])
def test_after_a_lost_ledger_duplicates_are_possible(observers: Observers, left: bytes, restarted: bool) -> None:
    """Waiting notifications may have been sent and are possible duplicates, later ones not."""
    waits = replace(FIRST, queued_at=NOW)
    a, b, c = (observers.make(name) for name in "abc")
    a.begin()
    observers.shared.document = StoredDocument(left, 7 if left else None)
    if restarted:
        a = observers.make("a")
        a.begin()
    permit = a.claim(waits)
    assert (permit.outcome, permit.possible_duplicate) == (None, True)
    a.settle(waits, permit.claim, DeliveryOutcome.FAILED)
    assert [b.claim(waits).possible_duplicate, c.claim(replace(FIRST, destination="new")).possible_duplicate] == [
        True,
        False,
    ]


def test_a_ledger_is_created_before_the_first_notification(observers: Observers) -> None:
    """Only once: later notifications are not possible duplicates."""
    made = []
    for name in "abc":
        observers.make(name).begin()
        made.append(observers.shared.document)
    assert made == [StoredDocument(made[0].content, 1)] * 3
    permit = observers.make("d").claim(replace(FIRST, queued_at=Clock()()))
    assert (permit.outcome, permit.possible_duplicate) == (None, False)


def test_a_refused_ledger_is_logged_at_the_start(observers: Observers, caplog: pytest.LogCaptureFixture) -> None:
    """Refused: with what it means. Out of reach: nothing is decided."""
    refused, away = observers.make("refused"), observers.make("away")
    observers.stores["refused"].fault = LedgerRefusedError("no permission")
    observers.stores["away"].fault = LedgerError("no quorum")
    refused.begin()
    away.begin()
    assert [record.message for record in caplog.records if record.levelname == "WARNING"] == [
        "no ledger: this sidecar sends every notification itself, and other sidecars may send the same: no permission"
    ]
    observers.stores["away"].fault = None
    assert away.claim(FIRST).outcome is None


def test_a_mark_leaves_the_claims_of_others(observers: Observers) -> None:
    """One sidecar sent part of a group without the ledger, another claims more of it: a third one keeps waiting."""
    blind, sender, third = (observers.make(name) for name in ("blind", "sender", "third"))
    assert sender.claim(LATER).outcome is None
    blind.settle(FIRST, None, DeliveryOutcome.DELIVERED)
    assert third.claim(LATER).outcome is DeliveryOutcome.HELD


def test_a_failed_mark_is_retried_and_logged(observers: Observers, caplog: pytest.LogCaptureFixture) -> None:
    """It was sent: others may send it again, as a possible duplicate."""
    a, b = observers.make("a"), observers.make("b", lease=0)
    permit = a.claim(FIRST)
    observers.stores["a"].fault = LedgerError("no quorum")
    a.settle(FIRST, permit.claim, DeliveryOutcome.DELIVERED)
    assert len(caplog.records) == 1
    assert b.claim(FIRST).possible_duplicate


def test_one_that_was_frozen_between_claim_and_send_does_not_send(observers: Observers, web: HttpReceiver) -> None:
    """Its claim may have been taken over: it is released and made again. Here the deadline has passed at once."""
    settled: list[Attempt] = []
    notifier = Notifier(
        {"ops#0": apprise(web.url)},
        lambda _, attempt: settled.append(attempt),
        {"default": observers.make("a", lease=0)},
    )
    notifier.start()
    try:
        notifier.send(FIRST)
        deadline = time.monotonic() + 10
        while not settled and time.monotonic() < deadline:
            time.sleep(0.02)
    finally:
        notifier.stop()
    assert [(attempt.outcome, attempt.detail) for attempt in settled] == [
        (DeliveryOutcome.FAILED, "not sent: too much time has passed since it was claimed")
    ]
    assert web.received == []
    assert observers.make("b").claim(FIRST).outcome is None


@contextmanager
def sending(observers: Observers, answer: Callable[[], Iterable[bytes]], lease: float) -> Iterator[list[Attempt]]:
    """What becomes of a notification by sidecar `a` to a receiver that answers like that."""
    settled: list[Attempt] = []
    ledgers = {"default": observers.make("a", lease=lease)}
    with RawServer(answer) as server:
        notifier = Notifier({"ops#0": apprise(server.url)}, lambda _, each: settled.append(each), ledgers, workers=1)
        notifier.start()
        try:
            notifier.send(FIRST)
            yield settled
        finally:
            notifier.stop()


def test_a_slow_receiver_has_more_time_than_a_lease(observers: Observers) -> None:
    """The claim is renewed meanwhile, so nobody else sends it."""
    other = observers.make("other", lease=2.0)

    def answer() -> Iterator[bytes]:
        for _ in range(50):
            assert other.claim(FIRST).outcome is DeliveryOutcome.HELD
            time.sleep(0.1)
        yield b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n"

    with sending(observers, answer, lease=2.0) as settled:
        [attempt] = wait_for("the answer", lambda: settled)
    assert (attempt.outcome, attempt.possible_duplicate) == (DeliveryOutcome.DELIVERED, False)
    assert other.claim(FIRST).outcome is DeliveryOutcome.ALREADY_TOLD


def test_who_cannot_renew_its_claim_ends_sending_before_another_one_may_begin(observers: Observers) -> None:
    """A partition: the receiver still hears the holder, which the ledger does not. Whoever sends next says that it may be a duplicate."""
    reached: list[float] = []
    over = Event()

    def answer() -> Iterator[bytes]:
        observers.stores["a"].fault = LedgerError("no quorum")
        reached.append(time.monotonic())
        over.wait(LOADED_MACHINE_SECONDS + 20)
        yield b""

    other = observers.make("other", lease=4.0)
    with sending(observers, answer, lease=4.0) as settled:
        wait_for("the request", lambda: reached)
        first = other.claim(FIRST)
        [attempt] = wait_for("the end of the attempt", lambda: settled)
        ended = time.monotonic()
        taken = wait_for("the claim", lambda: found if (found := other.claim(FIRST)).outcome is None else None)
        over.set()
    assert first.outcome is DeliveryOutcome.HELD
    assert (attempt.outcome, attempt.detail) == (
        DeliveryOutcome.TIMED_OUT,
        "its claim in the ledger could not be renewed; the message may have arrived",
    )
    assert ended - reached[0] < 4.0 < time.monotonic() - reached[0]
    assert taken.possible_duplicate


def test_two_notifiers_with_one_ledger_send_once(observers: Observers, web: HttpReceiver) -> None:
    """The second finds it sent. One of one observer alone needs no claim, nor does one that waited too long: that is still looked up."""
    settled: dict[str, list[tuple[str, Attempt]]] = {"a": [], "b": []}
    lone = replace(FIRST, id="lone", parts=())
    blind = replace(FIRST, id="blind", fingerprint="blind", fails_open=True)
    for name, log in settled.items():
        ledgers = {"default": observers.make(name)}
        notifier = Notifier(
            {"ops#0": apprise(web.url)}, lambda *attempt, log=log: log.append(attempt), ledgers, workers=1
        )
        notifier.start()
        try:
            for delivery in (FIRST, lone, blind):
                notifier.send(delivery)
            for thread in notifier._threads:  # all are sent before the next one looks
                while thread.is_alive() and len(log) < 3:
                    thread.join(0.05)
        finally:
            notifier.stop()
    # One without a claim waits for no ledger, so it may be the first.
    assert sorted((name, attempt.outcome, attempt.possible_duplicate) for name, attempt in settled["a"]) == [
        ("blind", DeliveryOutcome.DELIVERED, True),
        ("id", DeliveryOutcome.DELIVERED, False),
        ("lone", DeliveryOutcome.DELIVERED, False),
    ]
    assert sorted((name, attempt.outcome) for name, attempt in settled["b"]) == [
        ("blind", DeliveryOutcome.ALREADY_TOLD),
        ("id", DeliveryOutcome.ALREADY_TOLD),
        ("lone", DeliveryOutcome.DELIVERED),
    ]
    texts = [str(message) for message in web.received]
    assert len(texts) == 4
    assert sum("This may be a duplicate" in text for text in texts) == 1
