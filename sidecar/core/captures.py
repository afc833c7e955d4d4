"""Evidence of a failover: requests to capture it while it still exists, and their results. `capturing` decides when."""

from collections.abc import Mapping
from enum import StrEnum
from typing import Final

from msgspec import Struct

from sidecar.core.moment import Moment
from sidecar.core.policy.policy import Source


class Occasion(StrEnum):
    """When evidence is captured."""

    OPENED = "opened"
    """A component lost its leader: the old leader's process may still run for a moment."""
    LED_AGAIN = "led_again"
    """All components have a leader again."""


class EvidenceKind(StrEnum):
    """The kinds of evidence."""

    PROCESS = "process"
    """The kernel's facts about a Flink process."""
    THREAD_DUMP = "thread_dump"
    """The threads of a JVM."""
    PY_SPY = "py_spy"
    """The stacks of a Python process."""
    JOB = "job"
    """The checkpoint from which Flink restored a job."""


KINDS: Final[Mapping[Source, tuple[EvidenceKind, ...]]] = {
    Source.PROCESSES: (EvidenceKind.PROCESS, EvidenceKind.THREAD_DUMP, EvidenceKind.PY_SPY),
    Source.FLINK_REST: (EvidenceKind.JOB,),
    Source.LEADER_THREAD_DUMP: (EvidenceKind.THREAD_DUMP,),
}
"""The kinds of evidence that each source has."""


class CaptureOutcome(StrEnum):
    """The result of a capture."""

    CAPTURED = "captured"
    ABSENT = "absent"
    """Evidence of this kind does not exist."""
    REFUSED = "refused"
    """The sidecar lacks the permission."""
    FAILED = "failed"
    LOST = "lost"
    """The result is not known: the sidecar ended, or did not answer."""


class Capture(Struct, frozen=True):
    """A request to capture from `source`. `rest_address`: the leading REST server's address as it published it, untrusted."""

    id: str
    cluster_id: str
    episode_id: str
    occasion: Occasion
    asked_at: Moment
    source: Source
    rest_address: str | None = None
    jobs: tuple[str, ...] = ()
    """The jobs that Flink is asked about."""
    jobs_beyond: int = 0
    """How many more jobs failed over that are not looked up in Flink."""
    thread_dump: bool = False
    """Whether Flink is asked for a thread dump of its JobManager."""
    round: int = 1
    """The number of this failover in its episode."""


class EvidenceItem(Struct, frozen=True):
    """One piece of evidence, or why there is none. All texts are untrusted."""

    kind: EvidenceKind
    subject: str
    """A process (`pid 17 (java)`), an address, or a job id."""
    outcome: CaptureOutcome
    detail: str | None = None
    """The evidence in one line, for people."""
    file: str | None = None
    """Name in the evidence folder."""
    size_bytes: int | None = None
    sha256: str | None = None
    attributes: dict[str, str] = {}
    """A summary, by name."""


class Gathered(Struct, frozen=True):
    """The evidence of one episode so far."""

    asked: tuple[Occasion, ...] = ()
    """The requests made in this round."""
    round: int = 1
    """The number of this failover in its episode: the next one may come before the episode is over."""
    files: int = 0
    jobs: tuple[str, ...] = ()
    """A line about each job, the first ones of `jobs_total`."""
    jobs_total: int = 0
