"""Evidence of a failover: what may be captured while it still exists, and what became of it. Values alone: `gathering` says when."""

from enum import StrEnum

from msgspec import Struct

from sidecar.core.moment import Moment
from sidecar.core.policy.policy import Source


class Occasion(StrEnum):
    """When something is captured."""

    OPENED = "opened"
    """A component has left its leader: whoever led may still run, and not for long."""
    LED_AGAIN = "led_again"
    """All are led again."""


class EvidenceKind(StrEnum):
    """What a piece of evidence is."""

    PROCESS = "process"
    """What the kernel says of a process of Flink."""
    THREAD_DUMP = "thread_dump"
    """Of a JVM."""
    PY_SPY = "py_spy"
    """The stacks of a Python process."""
    JOB = "job"
    """What Flink says of a job: from which checkpoint it was restored."""


class CaptureOutcome(StrEnum):
    """What became of it."""

    CAPTURED = "captured"
    ABSENT = "absent"
    """There is nothing of this kind to be captured."""
    REFUSED = "refused"
    """We are not permitted to."""
    FAILED = "failed"
    LOST = "lost"
    """It is not known: the sidecar ended, or did not answer."""


class Capture(Struct, frozen=True):
    """A request to capture from `source`. `rest_address`: where Flink's REST server leads, as it says itself: untrusted."""

    id: str
    cluster_id: str
    episode_id: str
    occasion: Occasion
    asked_at: Moment
    source: Source
    rest_address: str | None = None
    jobs: tuple[str, ...] = ()
    """Of whom Flink is asked."""
    jobs_beyond: int = 0
    """How many more moved, of whom it is not."""
    thread_dump: bool = False
    """Whether Flink is asked for one of its JobManager."""
    round: int = 1
    """Which failover of its episode this is."""


class EvidenceItem(Struct, frozen=True):
    """One piece of evidence, or why there is none. Texts may hold whatever a process or Flink says: untrusted."""

    kind: EvidenceKind
    subject: str
    """Whose: `pid 17 (java)`, an address, a job id."""
    outcome: CaptureOutcome
    detail: str | None = None
    """One line for people."""
    file: str | None = None
    """Its name below the folder for evidence."""
    size_bytes: int | None = None
    sha256: str | None = None
    attributes: dict[str, str] = {}
    """What is in short to be known of it, by name."""


class Gathered(Struct, frozen=True):
    """What is known of the evidence of one failover."""

    asked: tuple[Occasion, ...] = ()
    """What has been requested, once a round."""
    round: int = 1
    """Which failover of its episode this is: the next one may come before it is over."""
    files: int = 0
    jobs: tuple[str, ...] = ()
    """What is known of jobs, a line each: the first of `jobs_total`."""
    jobs_total: int = 0
