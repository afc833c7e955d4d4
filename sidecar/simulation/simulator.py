"""A sidecar that is told what it observes, and whose messages all arrive."""

from collections.abc import Iterable, Iterator
from typing import Final

from sidecar.core.delivery.outbox import Delivery
from sidecar.core.journal_rows import assemble, changes
from sidecar.core.moment import SECOND
from sidecar.core.observations import DeliveryOutcome, DeliverySettled, Observation
from sidecar.core.policy.policy import Policy
from sidecar.core.state import State
from sidecar.core.step import Send, step

TICK: Final = SECOND // 2


class Voice:
    """What a policy makes of observations, through `step`."""

    def __init__(self, policy: Policy) -> None:
        self._policy = policy
        self._state = State()

    def hears(self, observations: Iterable[Observation]) -> Iterator[Delivery]:
        """What is told now, of these observations and all before them."""
        for observation in observations:
            self._state, effects = step(self._policy, self._state, observation)
            told = [effect.delivery for effect in effects if isinstance(effect, Send)]
            yield from told
            yield from self.hears(
                [DeliverySettled(observation.at, each.id, DeliveryOutcome.DELIVERED) for each in told]
            )

    def ends(self) -> None:
        """The process is gone; what it had written down is there when it begins again."""
        self._state, _ = assemble(changes(State(), self._state))
