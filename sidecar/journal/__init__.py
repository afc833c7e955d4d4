"""The journal: one SQLite file, in which a single transaction holds new state, records and outbox rows.

`Journal` is written by the owner's thread, `append` adds a record from outside, and records are read back through a `JournalReader`.
"""

from sidecar.journal.adding import append, continue_behind
from sidecar.journal.file import FILE, DamagedError, JournalError
from sidecar.journal.reader import JournalReader
from sidecar.journal.writer import Journal

__all__ = ["FILE", "DamagedError", "Journal", "JournalError", "JournalReader", "append", "continue_behind"]
