"""The ledger that several sidecars share: a notification is claimed before it is sent, and marked after. The claim is renewed meanwhile.

Each cluster has a ledger of its own, in its own store. Where the store does not permit one, this sidecar sends every notification itself
and logs that.
"""

import logging
import math
import random
import threading
import time
from collections import deque
from collections.abc import Iterator
from typing import Final

from msgspec import Struct
from msgspec.structs import replace

from sidecar.clock import Clock
from sidecar.core.delivery import ledger_document as ledgers
from sidecar.core.delivery.ledger_document import LEASE, LEASE_UNRENEWED, Claim, Ledger, Standing
from sidecar.core.delivery.outbox import Delivery
from sidecar.core.delivery.presence import Observers, Presence, others
from sidecar.core.delivery.settle import LEDGER_PAUSE
from sidecar.core.moment import SECOND
from sidecar.core.observations import DeliveryOutcome
from sidecar.core.sanitize import clean
from sidecar.ports import Document, LedgerError, LedgerRefusedError, LedgerStore, only_ledger_errors
from sidecar.sinks.notify.renewed_claim import RenewedClaim

MOST_CONFLICTS: Final = 20
"""Writes that may be lost to other sidecars. Each conflict lets one of them finish, and there are few."""
MARK_ATTEMPTS: Final = 3
MOST_UNMARKED: Final = 1000
"""Notifications that wait to be marked. Beyond, the oldest is never marked."""
DOUBT_AFTER: Final = 10.0
"""Seconds. When the ledger was unreachable for so long, other sidecars may have sent without it."""
REFUSED_SECONDS: Final = 600.0
"""For how long a store that has refused is not tried again."""
_HOLD: Final = 0.8
"""Part of a lease after which its holder must have ended sending."""
_RENEW: Final = 0.2
"""Part of a lease after which it is renewed."""
_PAUSE: Final = 0.05
_MOST_WATCHED: Final = 10_000

_log = logging.getLogger("sidecar.ledger")


class Permit(Struct, frozen=True):
    """What the ledger allows. `outcome` None: send it, under `claim`."""

    claim: Claim | None = None
    possible_duplicate: bool = False
    outcome: DeliveryOutcome | None = None
    detail: str = ""
    ends: bool = True
    """Whether nothing of its group fires any more once it is sent, if it is a resolve: other observers may know of more."""
    until: float = math.inf
    """When sending must have ended (monotonic) if the claim is not renewed: others may take it over soon after."""


FREE: Final = Permit()
"""Send it, without a claim."""


class SharedLedger:
    """The ledger of one cluster. Thread-safe: calls are serialized."""

    def __init__(
        self, store: LedgerStore, observer: str, clock: Clock, *, alone_if_refused: bool, lease: int = LEASE
    ) -> None:
        """`alone_if_refused`: send without a ledger if the store has never permitted one; else wait for it."""
        self._store = store
        self._observer = observer
        self._clock = clock
        self._alone_if_refused = alone_if_refused
        self._lease = lease / SECOND
        self._lock = threading.Lock()
        self._held: dict[str, tuple[Claim, float]] = {}
        """Claims of others, and since when (monotonic) each is unchanged. Other sidecars' clocks do not matter."""
        self._alone_until = 0.0
        self._has_existed = False
        self._failed_at = -math.inf
        self._failure = ""
        self._unreachable_since: float | None = None
        """Monotonic."""
        self._doubtful_until = 0
        """Until then (microseconds since the epoch) others may have sent notifications that they could not mark."""
        self._unmarked: deque[tuple[Delivery, Claim | None, DeliveryOutcome]] = deque(maxlen=MOST_UNMARKED)
        self.is_up: bool | None = None
        """Whether it could be used when it was last needed. None: it was not needed yet."""
        self.observers = 0
        """How many observers had lately announced themselves when this one last did. 0: it has not yet."""

    def begin(self) -> None:
        """Create the ledger if there is none, before the first notification: one that is missing later has been lost."""
        with self._lock:
            try:
                self._begin()
            except LedgerRefusedError as error:
                self._refused(error)
            except LedgerError as error:
                self.is_up = False
                _log.info(
                    "the ledger could not be read at start and is read again before the first notification: %s", error
                )

    def claim(self, delivery: Delivery) -> Permit:
        """Whether to send the notification."""
        called_at = time.monotonic()
        with self._lock:
            if time.monotonic() < self._alone_until:
                return FREE
            if called_at < self._failed_at:  # the ledger failed for another caller while this one waited
                return Permit(outcome=DeliveryOutcome.NO_LEDGER, detail=self._failure)
            try:
                return self._claim(delivery)
            except LedgerRefusedError as error:
                return self._refused(error)
            except LedgerError as error:
                return self._unreachable(error)

    def unclaimed(self, delivery: Delivery) -> Permit:
        """The permit of a notification that has waited too long for its claim: to send it, unless it is known to have been sent."""
        without = Permit(possible_duplicate=True)
        with self._lock:
            try:
                found = self._found(self._store.read())
            except LedgerError:
                return without
            told = ledgers.standing(found, delivery, self._observer) is Standing.TOLD
            ends = ledgers.ends(found, delivery, self._clock().wall)
        return self._already(found, delivery) if told else replace(without, ends=ends)

    def renewing(self, delivery: Delivery, permit: Permit) -> RenewedClaim:
        """A context in which the notification may be sent: its claim is renewed meanwhile."""

        def renew(until: float) -> float:
            with self._lock:
                try:
                    return self._renewed(delivery, permit.claim) if permit.claim else until
                except LedgerError as error:
                    self._unreachable(error)
                    return until

        return RenewedClaim(permit.until, renew, self._lease * _RENEW)

    def settle(self, delivery: Delivery, claim: Claim | None, outcome: DeliveryOutcome) -> None:
        """Mark what was sent, or release its claim. While the ledger is unreachable, `retry_marks` tries again: an unmarked notification
        may be sent by another sidecar.
        """
        for attempt in range(MARK_ATTEMPTS):
            with self._lock:  # released between attempts, so that other threads can claim
                if time.monotonic() < self._alone_until:
                    return
                try:
                    self._settle(delivery, claim, outcome)
                except LedgerError as error:
                    self._unreachable(error)
                    if attempt == MARK_ATTEMPTS - 1:
                        self._unmarked.append((delivery, claim, outcome))
                        _log.warning(
                            "a delivered notification could not be marked in the ledger and may be sent again: %s",
                            error,
                        )
                else:
                    return

    def announce(self, presence: Presence) -> Observers | None:
        """Publish that this observer watches the cluster. The others that do; None: the ledger cannot be used now."""
        with self._lock:
            if time.monotonic() < self._alone_until:
                return None
            try:
                return self._announce(presence)
            except LedgerRefusedError as error:
                self._refused(error)
            except LedgerError as error:
                self._unreachable(error)
            return None

    @property
    def has_unmarked(self) -> bool:
        """Whether `retry_marks` has something to mark."""
        return bool(self._unmarked)

    def retry_marks(self) -> None:
        """Mark what `settle` could not. May be called often: it does nothing for a moment after a failure."""
        with self._lock:
            if time.monotonic() - self._failed_at < LEDGER_PAUSE / SECOND:
                return
            try:
                while self._unmarked:
                    self._settle(*self._unmarked[0])
                    self._unmarked.popleft()
            except LedgerError as error:
                self._unreachable(error)

    def stop(self) -> None:
        """End in bounded time. May be called twice."""
        if self._lock.acquire(timeout=10):
            try:
                self._store.stop()
            finally:
                self._lock.release()

    @only_ledger_errors(_log)
    def _begin(self) -> None:
        document = self._store.read()
        found = self._found(document)
        if not self._has_existed:
            self._write(found, document)
        self._store.rest()

    @only_ledger_errors(_log)
    def _claim(self, delivery: Delivery) -> Permit:
        for found, document in self._tries():
            permit = self._permit(found, delivery)
            if permit.outcome is not None:
                if permit.outcome is DeliveryOutcome.ALREADY_TOLD:
                    self._store.rest()
                return permit
            assert permit.claim  # noqa: S101  a permit to send has a claim
            if self._write(ledgers.claimed(found, delivery, permit.claim, self._clock().wall), document):
                self._held.pop(ledgers.name_of(delivery), None)
                return permit
        raise LedgerError("the ledger is written by others all the time")

    @only_ledger_errors(_log)
    def _renewed(self, delivery: Delivery, claim: Claim) -> float:
        """Until when it may be sent now (monotonic); -inf: the claim is gone."""
        for found, document in self._tries():
            until = time.monotonic() + self._lease * _HOLD
            changed = ledgers.renewed(found, delivery, claim, self._clock().wall)
            if changed is found:
                self._store.rest()
                return -math.inf
            if self._write(changed, document):
                return until
        raise LedgerError("the ledger is written by others all the time")

    @only_ledger_errors(_log)
    def _settle(self, delivery: Delivery, claim: Claim | None, outcome: DeliveryOutcome) -> None:
        for found, document in self._tries():
            changed = self._settled(found, delivery, claim, outcome)
            if changed is found or self._write(changed, document):
                self._store.rest()
                return
        raise LedgerError("the ledger is written by others all the time")

    @only_ledger_errors(_log)
    def _announce(self, presence: Presence) -> Observers:
        for found, document in self._tries():
            changed = ledgers.announced(found, self._observer, presence)
            if self._write(changed, document):
                self._store.rest()
                self.observers = len(changed.observers)
                return others(changed.observers, self._observer)
        raise LedgerError("the ledger is written by others all the time")

    def _tries(self) -> Iterator[tuple[Ledger, Document]]:
        """The ledger as it is now, once for each try to write it."""
        for conflict in range(MOST_CONFLICTS):
            document = self._store.read()
            yield self._found(document), document
            time.sleep(random.uniform(0, _PAUSE * (conflict + 1)))  # noqa: S311  avoids the same conflict again

    def _found(self, document: Document) -> Ledger:
        """The ledger in the document. A deleted or damaged one starts anew, without knowing what was sent before; one of a newer version
        counts as unreachable.
        """
        wall = self._clock().wall
        try:
            found = ledgers.believed(ledgers.read(document.content), wall)
        except ledgers.ForeignFormatError as error:
            raise LedgerError(str(error)) from error
        self._unreachable_since = None
        self.is_up = True
        self._has_existed = self._has_existed or found.began > 0
        return ledgers.begun(found, wall)

    def _permit(self, found: Ledger, delivery: Delivery) -> Permit:
        until = time.monotonic() + self._lease * _HOLD
        name = ledgers.name_of(delivery)
        entry = found.entries.get(name)
        standing = ledgers.standing(found, delivery, self._observer)
        if standing is Standing.TOLD:
            self._held.pop(name, None)
            return self._already(found, delivery)
        if standing is Standing.HELD:
            assert entry  # noqa: S101  a claim is part of an entry
            assert entry.claim  # noqa: S101  it is held
            unchanged = self._unchanged(name, entry.claim)
            if unchanged < (self._lease if entry.claim.renewed is not None else LEASE_UNRENEWED / SECOND):
                return Permit(outcome=DeliveryOutcome.HELD, detail=f"{clean(entry.claim.by)} is about to send it")
            _log.warning(
                "cluster %s: taking over a notification that %s claimed and has not sent for %.0f s",
                delivery.cluster_id,
                clean(entry.claim.by),
                unchanged,
            )
        doubtful = ledgers.may_have_arrived(found, delivery) or ledgers.repeats(found, delivery)
        since = ledgers.oldest_news(found, delivery)
        forgotten = since < found.began or since <= self._doubtful_until  # the ledger was lost, or unreachable
        return Permit(
            Claim(self._observer, f"{delivery.id}/{delivery.attempt}", renewed=0),
            possible_duplicate=doubtful or forgotten,
            ends=ledgers.ends(found, delivery, self._clock().wall),
            until=until,
        )

    @staticmethod
    def _already(found: Ledger, delivery: Delivery) -> Permit:
        entry = found.entries.get(ledgers.name_of(delivery))
        return Permit(outcome=DeliveryOutcome.ALREADY_TOLD, detail=f"by {clean(entry.by)}" if entry else "")

    def _unchanged(self, name: str, claim: Claim) -> float:
        """For how many seconds the claim has been the same each time it was read."""
        now = time.monotonic()
        known, since = self._held.get(name, (claim, now))
        if known != claim:
            since = now
        while name not in self._held and len(self._held) >= _MOST_WATCHED:
            self._held.pop(next(iter(self._held)))
        self._held[name] = (claim, since)
        return now - since

    def _settled(self, found: Ledger, delivery: Delivery, claim: Claim | None, outcome: DeliveryOutcome) -> Ledger:
        wall = self._clock().wall
        # NOT_SENT: no sidecar with the same configuration could send it.
        if outcome in {DeliveryOutcome.DELIVERED, DeliveryOutcome.NOT_SENT}:
            return ledgers.marked(found, delivery, self._observer, wall)
        if claim is None:
            return found
        return ledgers.released(found, delivery, claim, wall, unsure=outcome is DeliveryOutcome.TIMED_OUT)

    def _write(self, changed: Ledger, over: Document) -> bool:
        return self._store.write(ledgers.written(changed, self._clock().wall), over) is not None

    def _refused(self, error: LedgerRefusedError) -> Permit:
        if self._has_existed or not self._alone_if_refused:  # other sidecars may use the ledger
            return self._unreachable(error)
        self.is_up = False
        _log.warning(
            "no ledger: this sidecar sends every notification itself, and other sidecars may send the same: %s", error
        )
        self._alone_until = time.monotonic() + REFUSED_SECONDS
        return FREE

    def _unreachable(self, error: LedgerError) -> Permit:
        self.is_up = False
        self._held.clear()  # their holders may not reach it either
        self._failed_at, self._failure = time.monotonic(), str(error)
        self._unreachable_since = self._failed_at if self._unreachable_since is None else self._unreachable_since
        if self._failed_at - self._unreachable_since >= DOUBT_AFTER:
            self._doubtful_until = self._clock().wall
        return Permit(outcome=DeliveryOutcome.NO_LEDGER, detail=self._failure)
