"""A sidecar that gets observations from a test or a recording, and whose deliveries all succeed."""

from collections.abc import Iterable, Iterator
from typing import Final

from sidecar.core.alerting.alerts import Reason
from sidecar.core.delivery.outbox import Delivery
from sidecar.core.effects import Send
from sidecar.core.journal_rows import assemble, changes
from sidecar.core.moment import SECOND
from sidecar.core.observations import DeliveryOutcome, DeliverySettled, Observation
from sidecar.core.policy.policy import Policy
from sidecar.core.state import State
from sidecar.core.step import step

TICK: Final = SECOND // 2


class Simulator:
    """Runs `step` with a policy over observations."""

    def __init__(self, policy: Policy) -> None:
        self._policy = policy
        self._state = State()

    def observe(self, observations: Iterable[Observation]) -> Iterator[Delivery]:
        """The deliveries that these observations cause, in order, without resends."""
        for observation in observations:
            self._state, effects = step(self._policy, self._state, observation)
            sent = [effect.delivery for effect in effects if isinstance(effect, Send)]
            yield from (delivery for delivery in sent if delivery.reason is not Reason.RESEND)
            yield from self.observe(
                DeliverySettled(observation.at, delivery.id, DeliveryOutcome.DELIVERED) for delivery in sent
            )

    def restart(self) -> None:
        """End the process: only the state in the journal is left."""
        self._state, _ = assemble(changes(State(), self._state))
