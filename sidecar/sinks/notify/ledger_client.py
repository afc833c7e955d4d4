"""One voice: what is to be told is claimed in the ledger before it is sent, and marked as told after.

Each cluster has a ledger of its own, in its own store. Where a store does not let us keep one, this sidecar speaks for itself, and the
log says so.
"""

import logging
import math
import random
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final

from msgspec import Struct

from sidecar.clock import Clock
from sidecar.core.delivery import ledger_document as ledgers
from sidecar.core.delivery.ledger_document import TAKE_OVER, Claim, Ledger, Standing
from sidecar.core.delivery.outbox import Delivery
from sidecar.core.delivery.settle import LEDGER_PAUSE
from sidecar.core.moment import SECOND
from sidecar.core.observations import DeliveryOutcome
from sidecar.core.sanitize import clean
from sidecar.ports import Document, LedgerError, LedgerRefusedError, LedgerStore

MOST_RACES: Final = 20
"""So often somebody else may be faster. Each time one of them gets what it wants, and there are a handful."""
MARK_ATTEMPTS: Final = 3
MOST_DEBTS: Final = 1000
"""Marks that could not be made. Of more, the oldest are never made."""
DOUBT_AFTER: Final = 10.0
"""Seconds. When the ledger was out of reach for us for so long, it may have been for others long enough to send without it."""
REFUSED_SECONDS: Final = 600.0
"""So long a store that has refused is not asked again."""
_PAUSE: Final = 0.05
_MOST_WATCHED: Final = 10_000

_log = logging.getLogger("sidecar.ledger")


class Permit(Struct, frozen=True):
    """What the ledger allows. `outcome` None: send it, under `claim`."""

    claim: Claim | None = None
    possible_duplicate: bool = False
    outcome: DeliveryOutcome | None = None
    detail: str = ""
    until: float = math.inf
    """When (monotonic) it is too late to begin: others may take the claim over before the end."""


FREE: Final = Permit()
"""Send it: nobody needs to be asked."""


@contextmanager
def _expecting_ledger_errors() -> Iterator[None]:
    """Whatever else goes wrong is a LedgerError too: then the ledger is out of reach, and messages go out without it after a while."""
    try:
        yield
    except LedgerError:
        raise
    except Exception as error:
        _log.error(
            "using the ledger failed: %s: %s", type(error).__name__, error, exc_info=_log.isEnabledFor(logging.DEBUG)
        )
        raise LedgerError(f"the ledger: unexpected {type(error).__name__}: {error}") from error


class SharedLedger:
    """The ledger of one cluster. Safe to use from several threads: they take turns."""

    def __init__(
        self, store: LedgerStore, observer: str, clock: Clock, *, alone_if_refused: bool, take_over: int = TAKE_OVER
    ) -> None:
        """`alone_if_refused`: speak for ourselves alone where the store has never let us keep a ledger; else wait for it."""
        self._store = store
        self._observer = observer
        self._clock = clock
        self._alone_if_refused = alone_if_refused
        self._take_over = take_over / SECOND
        self._lock = threading.Lock()
        self._held: dict[str, tuple[Claim, float]] = {}
        """Claims of others, and since when (monotonic) they have stood unchanged: our own clock alone decides."""
        self._alone_until = 0.0
        self._knows_one = False
        """Whether there has been a ledger."""
        self._failed_at = -math.inf
        self._failure = ""
        self._away_since: float | None = None
        """Since when (monotonic) it is out of reach."""
        self._doubtful_until = 0
        """Whatever happened until then (microseconds since the epoch) may have been told by somebody who could not say so."""
        self._debts: deque[tuple[Delivery, Claim | None, DeliveryOutcome]] = deque(maxlen=MOST_DEBTS)

    def begin(self) -> None:
        """Make the ledger where there is none, before there is anything to tell: who finds none later, knows that one was lost."""
        with self._lock:
            try:
                with _expecting_ledger_errors():
                    self._begin()
            except LedgerRefusedError as error:
                self._refused(error)
            except LedgerError as error:
                _log.info(
                    "the ledger could not be read at start and is read again before the first notification: %s", error
                )

    def claim(self, delivery: Delivery) -> Permit:
        """Whether to send it."""
        asked_at = time.monotonic()
        with self._lock:
            if time.monotonic() < self._alone_until:
                return FREE
            if asked_at < self._failed_at:  # who waited for another's answer has it
                return Permit(outcome=DeliveryOutcome.NO_LEDGER, detail=self._failure)
            try:
                with _expecting_ledger_errors():
                    return self._claim(delivery)
            except LedgerRefusedError as error:
                return self._refused(error)
            except LedgerError as error:
                return self._out_of_reach(error)

    def settle(self, delivery: Delivery, claim: Claim | None, outcome: DeliveryOutcome) -> None:
        """What became of what we had claimed, or had sent without. Tried again, while the ledger is out of reach by `pay`: else others
        would tell it once more.
        """
        for attempt in range(MARK_ATTEMPTS):
            with self._lock:  # in between, others may ask
                if time.monotonic() < self._alone_until:
                    return
                try:
                    with _expecting_ledger_errors():
                        self._settle(delivery, claim, outcome)
                except LedgerError as error:
                    self._out_of_reach(error)
                    if attempt == MARK_ATTEMPTS - 1:
                        self._debts.append((delivery, claim, outcome))
                        _log.warning(
                            "a delivered notification could not be marked in the ledger and may be sent again: %s",
                            error,
                        )
                else:
                    return

    @property
    def owes(self) -> bool:
        """Whether there is something for `pay`."""
        return bool(self._debts)

    def pay(self) -> None:
        """Mark what could not be marked when it was told. May be called often: a ledger out of reach is left alone for a moment."""
        with self._lock:
            if time.monotonic() - self._failed_at < LEDGER_PAUSE / SECOND:
                return
            try:
                while self._debts:
                    with _expecting_ledger_errors():
                        self._settle(*self._debts[0])
                    self._debts.popleft()
            except LedgerError as error:
                self._out_of_reach(error)

    def stop(self) -> None:
        """End in bounded time. May be called twice."""
        if self._lock.acquire(timeout=10):
            try:
                self._store.stop()
            finally:
                self._lock.release()

    def _begin(self) -> None:
        document = self._store.read()
        found = self._found(document)
        if not self._knows_one:
            self._write(found, document)
        self._store.rest()

    def _claim(self, delivery: Delivery) -> Permit:
        for race in range(MOST_RACES):
            document = self._store.read()
            found = self._found(document)
            permit = self._permit(found, delivery)
            if permit.outcome is not None:
                if permit.outcome is DeliveryOutcome.ALREADY_TOLD:
                    self._store.rest()
                return permit
            assert permit.claim  # noqa: S101  what may be sent is claimed
            if self._write(ledgers.claimed(found, delivery, permit.claim, self._clock().wall), document):
                self._held.pop(ledgers.name_of(delivery), None)
                return permit
            time.sleep(random.uniform(0, _PAUSE * (race + 1)))  # noqa: S311  so that those who race do not meet again
        raise LedgerError("the ledger is written by others all the time")

    def _found(self, document: Document) -> Ledger:
        """The ledger in it. One that was deleted or garbled begins anew: what was told before is not known any more."""
        wall = self._clock().wall
        found = ledgers.believed(ledgers.read(document.content), wall)
        self._away_since = None
        self._knows_one = self._knows_one or found.began > 0
        return ledgers.begun(found, wall)

    def _permit(self, found: Ledger, delivery: Delivery) -> Permit:
        until = time.monotonic() + self._take_over / 2
        name = ledgers.name_of(delivery)
        entry = found.entries.get(name)
        standing = ledgers.standing(found, delivery, self._observer)
        if standing is Standing.TOLD:
            self._held.pop(name, None)
            return Permit(outcome=DeliveryOutcome.ALREADY_TOLD, detail=f"by {clean(entry.by)}" if entry else "")
        if standing is Standing.HELD:
            assert entry  # noqa: S101  a claim stands in an entry
            assert entry.claim  # noqa: S101  it is held
            if not self._is_abandoned(name, entry.claim):
                return Permit(outcome=DeliveryOutcome.HELD, detail=f"{clean(entry.claim.by)} is about to tell it")
            _log.warning(
                "cluster %s: taking over a notification that %s claimed and has not sent for %.0f s",
                delivery.cluster_id,
                clean(entry.claim.by),
                self._take_over,
            )
        doubtful = ledgers.may_have_arrived(found, delivery) or ledgers.repeats(found, delivery)
        since = ledgers.oldest_news(found, delivery)
        forgotten = (
            since < found.began or since <= self._doubtful_until
        )  # in a ledger that is lost, or could not be reached
        return Permit(
            Claim(self._observer, f"{delivery.id}/{delivery.attempt}"),
            possible_duplicate=doubtful or forgotten,
            until=until,
        )

    def _is_abandoned(self, name: str, claim: Claim) -> bool:
        now = time.monotonic()
        seen, since = self._held.get(name, (claim, now))
        if seen != claim:
            since = now
        while name not in self._held and len(self._held) >= _MOST_WATCHED:
            self._held.pop(next(iter(self._held)))
        self._held[name] = (claim, since)
        return now - since >= self._take_over

    def _settle(self, delivery: Delivery, claim: Claim | None, outcome: DeliveryOutcome) -> None:
        self._change(lambda found: self._settled(found, delivery, claim, outcome))
        self._store.rest()

    def _settled(self, found: Ledger, delivery: Delivery, claim: Claim | None, outcome: DeliveryOutcome) -> Ledger:
        wall = self._clock().wall
        if outcome in {
            DeliveryOutcome.DELIVERED,
            DeliveryOutcome.NOT_SENT,
        }:  # nobody with the same configuration could send it either
            return ledgers.marked(found, delivery, self._observer, wall)
        if claim is None:
            return found
        return ledgers.released(found, delivery, claim, wall, unsure=outcome is DeliveryOutcome.TIMED_OUT)

    def _change(self, change: Callable[[Ledger], Ledger]) -> None:
        for race in range(MOST_RACES):
            document = self._store.read()
            found = self._found(document)
            changed = change(found)
            if changed is found or self._write(changed, document):
                return
            time.sleep(random.uniform(0, _PAUSE * (race + 1)))  # noqa: S311  so that those who race do not meet again
        raise LedgerError("the ledger is written by others all the time")

    def _write(self, changed: Ledger, over: Document) -> bool:
        return self._store.write(ledgers.written(changed, self._clock().wall), over) is not None

    def _refused(self, error: LedgerRefusedError) -> Permit:
        if self._knows_one or not self._alone_if_refused:  # who has had a ledger is not alone
            return self._out_of_reach(error)
        _log.warning(
            "no ledger: this sidecar sends every notification itself, and other sidecars may send the same: %s", error
        )
        self._alone_until = time.monotonic() + REFUSED_SECONDS
        return FREE

    def _out_of_reach(self, error: LedgerError) -> Permit:
        self._failed_at, self._failure = time.monotonic(), str(error)
        self._away_since = self._failed_at if self._away_since is None else self._away_since
        if self._failed_at - self._away_since >= DOUBT_AFTER:
            self._doubtful_until = self._clock().wall
        return Permit(outcome=DeliveryOutcome.NO_LEDGER, detail=self._failure)
