"""The journal: one SQLite file. Each transaction holds new state, records and outbox rows.

The owner's thread writes through `Journal`; `append` adds a record from another process; `JournalReader` reads records.
"""

from sidecar.journal.adding import append, continue_behind
from sidecar.journal.file import FILE, DamagedError, JournalError
from sidecar.journal.reader import JournalReader
from sidecar.journal.writer import Journal

__all__ = ["FILE", "DamagedError", "Journal", "JournalError", "JournalReader", "append", "continue_behind"]
