"""The journal: one SQLite file. Each transaction holds new state, records and outbox rows.

The owner's thread writes through `Journal`; `append` adds a record from another process; `JournalReader` reads records.
"""

from sidecar.journal.file import FILE, DamagedError, JournalError
from sidecar.journal.journal_records import JournalReader, append, continue_behind
from sidecar.journal.journal_writer import Journal

__all__ = ["FILE", "DamagedError", "Journal", "JournalError", "JournalReader", "append", "continue_behind"]
