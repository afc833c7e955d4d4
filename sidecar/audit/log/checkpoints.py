"""Where an audit log keeps what an ingest remembers. All of it may be deleted at any time.

See docs/project/adr/0004-audit-exactly-once.md.
"""

from hashlib import sha256
from typing import Final

CHECKPOINTS: Final = "_checkpoints"
IDS: Final = f"{CHECKPOINTS}/ids"
"""The folder of the index of ids, with a folder for each table."""
SEGMENTS: Final = "segments"
"""The folder of the segment log in a checkpoint."""


def checkpoint_of(spool: str) -> str:
    """The folder of the checkpoint of the spool with this full URL: each spool has its own."""
    return f"{CHECKPOINTS}/ingest/{sha256(spool.encode()).hexdigest()[:16]}"
