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
        """Start in the background. Returns at once, even if the store is unreachable; the driver keeps trying."""

    def stop(self) -> None:
        """End in bounded time. May be called twice, or before `start`. Nothing is observed afterwards."""


LONGEST_DOCUMENT: Final = 512 << 10
"""Bytes. Neither ZooKeeper nor Kubernetes takes twice as many."""


class LedgerError(Exception):
    """The ledger is unreachable, nothing was decided. One line for people, free of secrets."""


class LedgerRefusedError(LedgerError):
    """The store does not allow a ledger. Retrying is useless until somebody changes that."""


class Document(Struct, frozen=True):
    """The content of a ledger at one moment."""

    content: bytes = b""
    """UTF-8, no more than `LONGEST_DOCUMENT` bytes; empty if there is no document yet."""
    version: str | int | None = None
    """The store's version, passed back on write; None: there is no document yet."""


class LedgerStore(Protocol):
    """One document that all sidecars of a cluster share, which changes by compare-and-swap.

    Used by one thread at a time. Every call ends within the seconds that the store was made with, connecting included. It connects when
    it is used, and again after the connection was lost.
    """

    def read(self) -> Document:
        """The current document, not older than this call. Raises LedgerError."""

    def write(self, content: bytes, over: Document) -> Document | None:
        """Compare-and-swap: replace `over`, as it was last read or written, by `content`.

        None: the document had changed and nothing was written; read again. Raises LedgerError; unless it is a LedgerRefusedError, it is
        not known whether the document was written or still will be: read it to find out.
        """

    def rest(self) -> None:
        """Close the connection until the next use: alerts are rare, and an idle sidecar holds no second session."""

    def stop(self) -> None:
        """End in bounded time. May be called twice."""
