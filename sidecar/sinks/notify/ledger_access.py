"""Reads and changes the document of one ledger, and knows whether it can be used, what it allows, and the claim that is renewed meanwhile.

A claim that stays unchanged is that of a dead sidecar.
"""

import logging
import math
import random
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Final, Self, TypeVar

from msgspec import Struct
from msgspec.structs import replace

from sidecar.core.alerting import ledger_document
from sidecar.core.alerting.alerts import Reason
from sidecar.core.alerting.ledger_document import Claim, Ledger
from sidecar.core.alerting.outbox import Delivery
from sidecar.core.observations import DeliveryOutcome
from sidecar.ports import LedgerError, LedgerRefusedError, LedgerStore, StoredDocument, only_ledger_errors
from sidecar.runtime.clock import Clock
from sidecar.runtime.threads import ServiceThread

_ENDING: Final = (Reason.RESOLVED, Reason.CONFIGURATION_CHANGED)


class Permit(Struct, frozen=True):
    """The ledger's answer about a notification. `outcome` None: send it, under `claim`."""

    claim: Claim | None = None
    possible_duplicate: bool = False
    outcome: DeliveryOutcome | None = None
    detail: str = ""
    ends: bool = True
    """True if nothing of its group fires any more once it is sent, if it is a resolve: other observers may know of more."""
    until: float = math.inf
    """The time at which sending must have ended (monotonic) if the claim is not renewed: others may take it over soon after."""

    def permitted(self, delivery: Delivery) -> Delivery:
        """The delivery as it is to be sent. A resolve closes no incident of which another observer knows an alert that fires."""
        permitted = replace(delivery, possible_duplicate=delivery.possible_duplicate or self.possible_duplicate)
        if delivery.reason in _ENDING and delivery.in_order and not self.ends:
            return replace(permitted, reason=Reason.SHRANK, goes_on=True)
        return permitted


FREE: Final = Permit()
"""Send it, without a claim."""


class RenewedClaim:
    """Renews a claim in the background until the context ends."""

    def __init__(self, until: float, renew: Callable[[float], float], every: float) -> None:
        """`renew` is called every `every` seconds. It gets `until`, and returns the next one; -inf: others have the claim."""
        self.until = until
        """The time at which sending must have ended (monotonic): from then on others may send."""
        self._renew = renew
        self._every = every
        self._stopping = threading.Event()

    def __enter__(self) -> Self:
        if self.until < math.inf:
            with suppress(RuntimeError):  # no more threads: it is not renewed, and `until` stays
                ServiceThread(self._work, "claim").start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stopping.set()

    def _work(self) -> None:
        while not self._stopping.wait(self._every) and self.until > -math.inf:
            self.until = self._renew(self.until)


MOST_CONFLICTS: Final = 20
"""Writes that may be lost to other sidecars. Each conflict lets one of them finish, and there are few."""
DOUBT_AFTER: Final = 10.0
"""Seconds. When the ledger was unreachable for so long, other sidecars may have sent without it."""
REFUSED_SECONDS: Final = 600.0
"""For how long a store that has refused is not tried again."""
_PAUSE: Final = 0.05

_log = logging.getLogger("sidecar.ledger")

_T = TypeVar("_T")


class LedgerAccess:
    """Used by one thread at a time."""

    def __init__(self, store: LedgerStore, clock: Clock, *, alone_if_refused: bool) -> None:
        """`alone_if_refused`: do without a ledger if the store has never permitted one; else it is unreachable."""
        self._store = store
        self._clock = clock
        self._alone_if_refused = alone_if_refused
        self._alone_until = 0.0
        self._has_existed = False
        self._unreachable_since: float | None = None
        """Monotonic."""
        self.is_up: bool | None = None
        """True if it could be used when it was last needed. None: it was not needed yet."""
        self.failed_at = -math.inf
        """The time at which it was last unreachable (monotonic), and `failure` why."""
        self.failure = ""
        self.doubtful_until = 0
        """Until then (microseconds since the epoch) others may have sent notifications that they could not mark."""

    @property
    def is_alone(self) -> bool:
        """True if the store permits no ledger."""
        return time.monotonic() < self._alone_until

    @only_ledger_errors(_log)
    def begin(self) -> None:
        """Create the ledger if there is none. Raises LedgerError."""
        document = self._store.read()
        ledger = self._decoded(document)
        if not self._has_existed:
            self._write(ledger, document)
        self._store.rest()

    def read(self) -> Ledger:
        """The ledger as it is now. Raises LedgerError."""
        return self._decoded(self._store.read())

    @only_ledger_errors(_log)
    def update(self, change: Callable[[Ledger], tuple[Ledger, _T]]) -> _T:
        """Write what `change` makes of the ledger as it is now, if that is another one. Returns what else it makes. Raises LedgerError."""
        for conflict in range(MOST_CONFLICTS):
            document = self._store.read()
            ledger = self._decoded(document)
            changed, result = change(ledger)
            if changed is ledger or self._write(changed, document):
                return result
            time.sleep(random.uniform(0, _PAUSE * (conflict + 1)))  # noqa: S311  avoids the same conflict again
        raise LedgerError("the ledger is written by others all the time")

    @only_ledger_errors(_log)
    def rest(self) -> None:
        """Nothing is read or written soon. Raises LedgerError."""
        self._store.rest()

    def stop(self) -> None:
        """End the store in bounded time. May be called twice."""
        self._store.stop()

    def _decoded(self, document: StoredDocument) -> Ledger:
        """The ledger in the document. A deleted or damaged one starts anew, without knowing what was sent before; one of a newer version
        counts as unreachable.
        """
        wall = self._clock().wall
        try:
            ledger = ledger_document.believed(ledger_document.read(document.content), wall)
        except ledger_document.ForeignLedgerError as error:
            raise LedgerError(str(error)) from error
        self._unreachable_since = None
        self.is_up = True
        self._has_existed = self._has_existed or ledger.began > 0
        return ledger_document.begun(ledger, wall)

    def _write(self, changed: Ledger, over: StoredDocument) -> bool:
        return self._store.write(ledger_document.written(changed, self._clock().wall), over) is not None

    def refused(self, error: LedgerRefusedError) -> bool:
        """Note that the store refused. Returns whether to do without a ledger from now on; else it counts as unreachable."""
        if self._has_existed or not self._alone_if_refused:  # other sidecars may use the ledger
            return False
        self.is_up = False
        _log.warning(
            "no ledger: this sidecar sends every notification itself, and other sidecars may send the same: %s", error
        )
        self._alone_until = time.monotonic() + REFUSED_SECONDS
        return True

    def unreachable(self, error: LedgerError) -> None:
        """Note that it could not be used."""
        self.is_up = False
        self.failed_at, self.failure = time.monotonic(), str(error)
        self._unreachable_since = self.failed_at if self._unreachable_since is None else self._unreachable_since
        if self.failed_at - self._unreachable_since >= DOUBT_AFTER:
            self.doubtful_until = self._clock().wall
