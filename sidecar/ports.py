"""Interfaces: what drivers and ledgers promise to the rest of the sidecar."""

import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final, Protocol

from msgspec import Struct

from sidecar.core.cluster.failover_events import KubernetesEvent
from sidecar.core.observations import ClusterObservation, EndObservation, FinderObservation, PlanObservation
from sidecar.core.pods import Pod

FinderObserver = Callable[[FinderObservation], None]
"""The `Observer` of a driver that finds clusters."""
Observer = Callable[[ClusterObservation], None]
"""Accepts one observation. Blocks while the inbox is full: a driver calls it only in its own thread, never in a library's callback."""


PlanObserver = Callable[[PlanObservation | EndObservation], None]
"""The `Observer` of the plans of clusters, and of how their JobManagers ended."""


class PlanSource(Protocol):
    """Observes what is meant to happen to clusters, and how their JobManagers ended, read-only.

    It is optional: where it fails, only that is not known.
    """

    def start(self, observer: PlanObserver) -> None:
        """See `LeaderRetrievalDriver.start`."""

    def stop(self) -> None:
        """See `LeaderRetrievalDriver.stop`."""


class ClusterFinder(Protocol):
    """Finds clusters in one store, read-only, and observes each as a LeaderRetrievalDriver does, between `ClusterFound` and
    `ClusterRemoved`. `ClustersListed` is observed when everything has been read, and when the connection is lost.
    """

    def start(self, observer: FinderObserver) -> None:
        """See `LeaderRetrievalDriver.start`."""

    def stop(self) -> None:
        """See `LeaderRetrievalDriver.stop`."""


class LeaderRetrievalDriver(Protocol):
    """Observes one cluster's store, read-only. Mirrors Flink's `LeaderRetrievalDriver`.

    After `start`, in this order and again after each loss of the connection: `ViewObserved(CONNECTED)`, one observation for every path
    that existed or exists, `SnapshotCompleted`; then every change. `SUSPENDED` and `LOST` are observed as they happen.
    """

    def start(self, observer: Observer) -> None:
        """Start in the background. Returns at once, even if the store is unreachable; the driver keeps trying."""

    def stop(self) -> None:
        """End in bounded time. May be called twice, or before `start`. Nothing is observed afterwards."""


class KubernetesError(Exception):
    """A request to the API server failed. One line, free of secrets."""


class KubernetesRefusedError(KubernetesError):
    """The API server does not permit it: the line has what a Role needs. Retrying is useless until an operator changes that."""


class PodDirectory(Protocol):
    """The running pods of one namespace. Used by one thread."""

    def find(self, address: str, wall: int) -> Pod | None:
        """The one pod with this IP address, as known at `wall`; None: there is none, or several. Raises KubernetesError."""


class EventStore(Protocol):
    """Writes Events about one cluster. Used by one thread."""

    def write(self, event: KubernetesEvent) -> None:
        """Write the Event, or count it on that of the same subject and reason, unless another observer has. Raises KubernetesError."""


LONGEST_DOCUMENT: Final = 512 << 10
"""Bytes. ZooKeeper and Kubernetes accept less than twice as many."""


class LedgerError(Exception):
    """The ledger is unreachable, nothing was decided. One line, free of secrets."""


class LedgerRefusedError(LedgerError):
    """The store does not allow a ledger. Retrying is useless until an operator changes that."""


@contextmanager
def only_ledger_errors(log: logging.Logger) -> Iterator[None]:
    """Turn an unexpected error into a LedgerError, and log it: the document counts as unreachable."""
    try:
        yield
    except LedgerError:
        raise
    except Exception as error:
        log.error(
            "using the ledger failed: %s: %s", type(error).__name__, error, exc_info=log.isEnabledFor(logging.DEBUG)
        )
        raise LedgerError(f"the ledger: unexpected {type(error).__name__}: {error}") from error


class StoredDocument(Struct, frozen=True):
    """The content of a ledger at one moment."""

    content: bytes = b""
    """UTF-8, no more than `LONGEST_DOCUMENT` bytes; empty if there is no document yet."""
    version: str | int | None = None
    """The store's version, passed back on write; None: there is no document yet."""


class LedgerStore(Protocol):
    """One document that all sidecars of a cluster share, changed by compare-and-swap.

    Used by one thread at a time. Connects on use, and again after the connection was lost. Every call, including connecting, ends within
    the configured seconds.
    """

    def read(self) -> StoredDocument:
        """The current document, not older than this call. Raises LedgerError."""

    def write(self, content: bytes, over: StoredDocument) -> StoredDocument | None:
        """Compare-and-swap: replace `over`, as it was last read or written, by `content`.

        None: the document had changed and nothing was written; read again. Raises LedgerError; unless it is a LedgerRefusedError, it is
        not known whether the document was written or still will be: read it to find out.
        """

    def rest(self) -> None:
        """Close the connection until the next use: alerts are rare, and an idle sidecar holds no session for them."""

    def stop(self) -> None:
        """End in bounded time. May be called twice."""
