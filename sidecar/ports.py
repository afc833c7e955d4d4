"""The seams of the house: what a driver and a sink promise to the owner's loop."""

from collections.abc import Callable
from typing import Protocol

from sidecar.core.observations import ClusterObservation

Observer = Callable[[ClusterObservation], None]
"""Takes one observation over. May block for a moment when the inbox is full: a driver calls it from its own thread only, never from a
library's callback."""


class LeaderRetrievalDriver(Protocol):
    """Brings in what one cluster's store says. Mirrors Flink's `LeaderRetrievalDriver`; read-only towards the store.

    After `start`, in this order and again after each loss of the connection: `ViewObserved(CONNECTED)`, one observation for every path
    that was or is there, `SnapshotCompleted`; then whatever changes. `SUSPENDED` and `LOST` are observed as they happen.
    """

    def start(self, observer: Observer) -> None:
        """Begin in the background: returns at once, also while the store cannot be reached; it keeps trying."""

    def stop(self) -> None:
        """End in bounded time. May be called twice, or before `start`. Nothing is observed afterwards."""
