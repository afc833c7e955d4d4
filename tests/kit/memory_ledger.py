"""A ledger's store in memory, with faults on demand. The real ones have tests of their own: tests/integration/test_ledgers.py."""

import time
from threading import Event, Lock

from sidecar.ports import LedgerError, StoredDocument


class Shared:
    """One document in memory."""

    def __init__(self) -> None:
        self.document = StoredDocument()
        self.lock = Lock()


class Memory:
    """A way to the shared document. `fault` is raised by each call while it is there."""

    def __init__(self, shared: Shared) -> None:
        self.shared = shared
        self.fault: LedgerError | None = None
        self.races = 0
        """Writes that lose a conflict."""
        self.rests = 0
        self.reads = 0
        self.slow = 0.0
        """Seconds that a call takes."""
        self.hangs: Event | None = None
        """Until it is set, no call is answered; then each fails."""

    def read(self) -> StoredDocument:
        self.reads += 1
        time.sleep(self.slow)
        if self.hangs:
            self.hangs.wait()
            raise LedgerError("no answer")
        if self.fault:
            raise self.fault
        return self.shared.document

    def write(self, content: bytes, over: StoredDocument) -> StoredDocument | None:
        if self.fault:
            raise self.fault
        with self.shared.lock:
            if self.races:
                self.races -= 1
                document = self.shared.document
                self.shared.document = StoredDocument(document.content, int(document.version or 0) + 1)
            if over.version != self.shared.document.version:
                return None
            self.shared.document = StoredDocument(content, int(over.version or 0) + 1)
            return self.shared.document

    def rest(self) -> None:
        self.rests += 1

    def stop(self) -> None:
        """Nothing to give back."""
