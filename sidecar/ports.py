"""The seams of the house: what a driver and a sink promise to the owner's loop."""

from collections.abc import Callable
from typing import Final, Protocol

from msgspec import Struct

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


LONGEST_DOCUMENT: Final = 512 << 10
"""Bytes. Neither ZooKeeper nor Kubernetes takes twice as many."""


class LedgerError(Exception):
    """The ledger is out of reach: nothing was decided. One line for people, free of secrets."""


class LedgerRefusedError(LedgerError):
    """The store does not let us keep a ledger: until somebody changes that there, trying again changes nothing."""


class Document(Struct, frozen=True):
    """What stood in a ledger at one moment."""

    content: bytes = b""
    """UTF-8, no more than `LONGEST_DOCUMENT` bytes; empty where there is none yet."""
    version: str | int | None = None
    """The store's own, to be handed back to it; None: there is no document yet."""


class LedgerStore(Protocol):
    """One document that all sidecars of a cluster share, which changes by compare-and-swap.

    Used by one thread at a time. Every call ends within the seconds that the store was made with, reaching the store included; what it
    has no answer to by then, it gives up. Nobody has to open it: it connects when it is used, and anew when the connection was lost.
    """

    def read(self) -> Document:
        """What stands there now, no older than this call. Raises LedgerError."""

    def write(self, content: bytes, over: Document) -> Document | None:
        """Have `content` stand there where `over`, as it was read or written last, still does.

        None: somebody was faster, and nothing was written: read again. Raises LedgerError, and where that is no LedgerRefusedError, it
        is not known whether it was written, or will be in a moment: the next document that is read tells.
        """

    def rest(self) -> None:
        """Give back the connection until the next use: alerts are rare, and an idle sidecar holds no second session."""

    def stop(self) -> None:
        """End in bounded time. May be called twice."""
