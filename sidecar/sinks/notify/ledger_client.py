"""The ledger that several sidecars share: a notification is claimed before it is sent, and marked after. The claim is renewed meanwhile.

Each cluster has a ledger of its own, in its own store. Where the store does not permit one, this sidecar sends every notification itself
and logs that.
"""

import logging
import math
import threading
import time
from collections import deque
from collections.abc import Callable
from functools import partial
from typing import Final

from sidecar.core.alerting import claims, ledger_document
from sidecar.core.alerting.claims import ClaimStanding
from sidecar.core.alerting.ledger_document import LEASE, LEASE_UNRENEWED, Claim, Ledger, Observers, Presence, Senders
from sidecar.core.alerting.outbox import LEDGER_PAUSE, Delivery
from sidecar.core.moment import SECOND
from sidecar.core.observations import DeliveryOutcome
from sidecar.core.sanitize import clean
from sidecar.ports import LedgerError, LedgerRefusedError, LedgerStore
from sidecar.runtime.clock import Clock
from sidecar.sinks.notify.ledger_access import FREE, LedgerAccess, Permit, RenewedClaim

ALONE_AFTER: Final = 150 * SECOND
"""The age of a ledger in which every observer has announced itself: each does once a minute."""
MARK_ATTEMPTS: Final = 3
MOST_UNMARKED: Final = 1000
"""Notifications that wait to be marked. Beyond, the oldest is never marked."""
_HOLD: Final = 0.8
"""Part of a lease after which its holder must have ended sending."""
_RENEW: Final = 0.2
"""Part of a lease after which it is renewed."""
_MOST_WATCHED: Final = 10_000

_log = logging.getLogger("sidecar.ledger")


class SharedLedger:
    """The ledger of one cluster. Thread-safe: calls are serialized."""

    def __init__(
        self,
        store: LedgerStore,
        observer: str,
        clock: Clock,
        sees: Callable[[], bool] = lambda: True,
        *,
        alone_if_refused: bool,
        lease: int = LEASE,
    ) -> None:
        """`sees`: whether this observer can read the store now. `alone_if_refused`: send without a ledger if the store has never permitted
        one; else wait for it.
        """
        self._access = LedgerAccess(store, clock, alone_if_refused=alone_if_refused)
        self._observer = observer
        self._clock = clock
        self._sees = sees
        self._lease = lease / SECOND
        self._lock = threading.Lock()
        self._held: dict[str, tuple[Claim, float]] = {}
        """Claims of others, and since when (monotonic) each is unchanged. Other sidecars' clocks do not matter."""
        self._unmarked: deque[tuple[Delivery, Claim | None, DeliveryOutcome]] = deque(maxlen=MOST_UNMARKED)
        self._senders: Senders = {}
        self.observers = 0
        """The number of observers that had lately announced themselves when this one last did. 0: it has not yet."""
        self._is_only = False
        """True if it was the only one then, in a ledger that others would have found. One that has come since then has read that this one
        is there, or cannot read it either: it waits for the ledger, and says that what it sends may be a duplicate.
        """

    @property
    def is_up(self) -> bool | None:
        """True if it could be used when it was last needed. None: it was not needed yet."""
        return self._access.is_up

    def begin(self) -> None:
        """Create the ledger if there is none, before the first notification: one that is missing later has been lost."""
        with self._lock:
            try:
                self._access.begin()
            except LedgerRefusedError as error:
                self._failed(error)
            except LedgerError as error:
                self._access.is_up = False
                _log.info(
                    "the ledger could not be read at start and is read again before the first notification: %s", error
                )

    def claim(self, delivery: Delivery) -> Permit:
        """The permit to send. A notification that has waited too long for its claim needs none, unless it is known to have been sent."""
        called_at = time.monotonic()
        with self._lock:
            if not delivery.is_shared:
                return self._unclaimed(delivery)
            if self._access.is_alone or self._is_out_of_reach:
                return FREE
            if called_at < self._access.failed_at:  # the ledger failed for another caller while this one waited
                return Permit(outcome=DeliveryOutcome.NO_LEDGER, detail=self._access.failure)
            try:
                return self._claim(delivery)
            except LedgerError as error:
                return self._failed(error)

    def renewing(self, delivery: Delivery, permit: Permit) -> RenewedClaim:
        """A context in which the notification may be sent: its claim is renewed meanwhile."""
        return RenewedClaim(permit.until, partial(self._renewed, delivery, permit.claim), self._lease * _RENEW)

    def settle(self, delivery: Delivery, claim: Claim | None, outcome: DeliveryOutcome) -> None:
        """Mark what was sent, or release its claim. While the ledger is unreachable, `retry_marks` tries again: an unmarked notification
        may be sent by another sidecar.
        """
        for attempt in range(MARK_ATTEMPTS):
            with self._lock:  # released between attempts, so that other threads can claim
                if self._access.is_alone:
                    return
                if self._is_out_of_reach:
                    self._unmarked.append((delivery, claim, outcome))
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

    def voting(self, observers: Observers) -> Observers:
        """Those of the observers whose answers count: lately, a notification that this observer had to send was found sent by them."""
        return ledger_document.voting(observers, self._senders, self._clock().wall)

    def announce(self, its: Presence) -> Observers | None:
        """Publish that this observer watches the cluster. The others that do; None: the ledger cannot be used now."""
        with self._lock:
            if self._access.is_alone:
                return None
            try:
                return self._announce(its)
            except LedgerError as error:
                self._failed(error)
            return None

    @property
    def has_unmarked(self) -> bool:
        """True if `retry_marks` has something to mark."""
        return bool(self._unmarked)

    def retry_marks(self) -> None:
        """Mark what `settle` could not. May be called often: it does nothing for a moment after a failure."""
        with self._lock:
            if self._is_out_of_reach or time.monotonic() - self._access.failed_at < LEDGER_PAUSE / SECOND:
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
                self._access.stop()
            finally:
                self._lock.release()

    def _claim(self, delivery: Delivery) -> Permit:
        def change(ledger: Ledger) -> tuple[Ledger, Permit]:
            permit = self._permit(ledger, delivery)
            if permit.claim is None:
                return ledger, permit
            return claims.claimed(ledger, delivery, permit.claim, self._clock().wall), permit

        permit = self._access.update(change)
        if permit.claim:
            self._held.pop(claims.name_of(delivery), None)
        elif permit.outcome is DeliveryOutcome.ALREADY_TOLD:
            self._access.rest()
        return permit

    def _unclaimed(self, delivery: Delivery) -> Permit:
        try:
            ledger = self._access.read()
        except LedgerError:
            return Permit(possible_duplicate=True)
        if claims.standing(ledger, delivery, self._observer) is ClaimStanding.TOLD:
            return self._already_sent(ledger, delivery)
        return Permit(possible_duplicate=True, ends=claims.ends(ledger, delivery, self._clock().wall))

    def _permit(self, ledger: Ledger, delivery: Delivery) -> Permit:
        until = time.monotonic() + self._lease * _HOLD
        standing = claims.standing(ledger, delivery, self._observer)
        if standing is ClaimStanding.TOLD:
            self._held.pop(claims.name_of(delivery), None)
            return self._already_sent(ledger, delivery)
        if standing is ClaimStanding.HELD and (held := self._held_by_another(ledger, delivery)):
            return held
        doubtful = claims.may_have_arrived(ledger, delivery) or claims.repeats(ledger, delivery)
        since = claims.oldest_news(ledger, delivery)
        unread = since <= self._access.doubtful_until and not self._is_only
        forgotten = since < ledger.began or unread  # the ledger was lost, or unreachable
        return Permit(
            Claim(self._observer, f"{delivery.id}/{delivery.attempt}", renewed=0),
            possible_duplicate=doubtful or forgotten,
            ends=claims.ends(ledger, delivery, self._clock().wall),
            until=until,
        )

    def _already_sent(self, ledger: Ledger, delivery: Delivery) -> Permit:
        entry = claims.entry_of(ledger, delivery)
        self._senders = ledger_document.with_sender(
            self._senders, ledger.observers, entry.by, entry.at, self._clock().wall
        )
        return Permit(outcome=DeliveryOutcome.ALREADY_TOLD, detail=f"by {clean(entry.by)}" if entry.by else "")

    def _held_by_another(self, ledger: Ledger, delivery: Delivery) -> Permit | None:
        """To wait for the holder of the claim. None: it is dead."""
        claim = claims.entry_of(ledger, delivery).claim
        assert claim  # noqa: S101  it is held
        unchanged = self._unchanged(claims.name_of(delivery), claim)
        if unchanged < (self._lease if claim.renewed is not None else LEASE_UNRENEWED / SECOND):
            return Permit(outcome=DeliveryOutcome.HELD, detail=f"{clean(claim.by)} is about to send it")
        _log.warning(
            "cluster %s: taking over a notification that %s claimed and has not sent for %.0f s",
            delivery.cluster_id,
            clean(claim.by),
            unchanged,
        )
        return None

    def _unchanged(self, name: str, claim: Claim) -> float:
        """For how many seconds the claim has been the same each time it was read."""
        now = time.monotonic()
        before, since = self._held.get(name, (claim, now))
        if before != claim:
            since = now
        while name not in self._held and len(self._held) >= _MOST_WATCHED:
            self._held.pop(next(iter(self._held)))
        self._held[name] = (claim, since)
        return now - since

    def _renewed(self, delivery: Delivery, claim: Claim | None, until: float) -> float:
        """Until when it may be sent now (monotonic), if it could be until `until`; -inf: the claim is gone."""
        if claim is None:
            return until

        def change(ledger: Ledger) -> tuple[Ledger, float]:
            renewed_until = time.monotonic() + self._lease * _HOLD
            changed = claims.renewed(ledger, delivery, claim, self._clock().wall)
            return changed, -math.inf if changed is ledger else renewed_until

        with self._lock:
            try:
                until = self._access.update(change)
                if until == -math.inf:
                    self._access.rest()
            except LedgerError as error:
                self._unreachable(error)
            return until

    def _settle(self, delivery: Delivery, claim: Claim | None, outcome: DeliveryOutcome) -> None:
        def change(ledger: Ledger) -> tuple[Ledger, None]:
            wall = self._clock().wall
            # NOT_SENT: no sidecar with the same configuration could send it.
            if outcome in {DeliveryOutcome.DELIVERED, DeliveryOutcome.NOT_SENT}:
                return claims.marked(ledger, delivery, self._observer, wall), None
            if claim is None:
                return ledger, None
            return claims.released(ledger, delivery, claim, wall, unsure=outcome is DeliveryOutcome.TIMED_OUT), None

        self._access.update(change)
        self._access.rest()

    def _announce(self, its: Presence) -> Observers:
        def change(ledger: Ledger) -> tuple[Ledger, tuple[Observers, int]]:
            changed = ledger_document.announced(ledger, self._observer, its)
            return changed, (changed.observers, changed.began)

        observers, began = self._access.update(change)
        self._access.rest()
        self.observers = len(observers)
        self._is_only = self.observers == 1 and its.at - began >= ALONE_AFTER
        return {name: presence for name, presence in observers.items() if name != self._observer}

    def _failed(self, error: LedgerError) -> Permit:
        """The permit after it could not be used: without a ledger, all; else nothing for now."""
        if isinstance(error, LedgerRefusedError) and self._access.refused(error):
            return FREE
        return self._unreachable(error)

    def _unreachable(self, error: LedgerError) -> Permit:
        self._access.unreachable(error)
        self._held.clear()  # their holders may not reach it either
        return Permit(outcome=DeliveryOutcome.NO_LEDGER, detail=self._access.failure)

    @property
    def _is_out_of_reach(self) -> bool:
        """True if nobody else uses the ledger, and the store is away: to ask it would take seconds, in vain."""
        return self._is_only and not self._sees()
