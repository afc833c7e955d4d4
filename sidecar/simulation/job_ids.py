"""The ids of simulated jobs."""

from typing import Final
from uuid import UUID

from sidecar.core.records import record_id

ID_SEED: Final = "rehearsal"
"""Part of job ids and session ids, which titles in existing test files may have."""


def job_id(name: str) -> str:
    """The id of the job with this name."""
    return UUID(record_id(ID_SEED, "job", name)).hex
