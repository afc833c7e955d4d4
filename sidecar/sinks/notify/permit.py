"""What the ledger allows, and the claim that is renewed meanwhile: one that stays unchanged is that of a dead sidecar."""

import math
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import Final, Self

from msgspec import Struct
from msgspec.structs import replace

from sidecar.core.alerting.alerts import Reason
from sidecar.core.delivery.ledger_document import Claim
from sidecar.core.delivery.outbox import Delivery
from sidecar.core.observations import DeliveryOutcome
from sidecar.runtime.threads import ServiceThread

_ENDING: Final = (Reason.RESOLVED, Reason.CONFIGURATION_CHANGED)


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
        """When sending must have ended (monotonic): from then on others may send."""
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
