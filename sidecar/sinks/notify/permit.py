"""What the ledger allows."""

import math
from typing import Final

from msgspec import Struct
from msgspec.structs import replace

from sidecar.core.alerting.alerts import Reason
from sidecar.core.delivery.ledger_document import Claim
from sidecar.core.delivery.outbox import Delivery
from sidecar.core.observations import DeliveryOutcome

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
