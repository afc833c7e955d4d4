"""A notification: what it says, and the message that a service gets of it. Each type is the base of what the core keeps of the same.

The short-lived process that sends one message loads this and nothing else of the core, so that it starts fast: values of the core's enums
are strings here.
"""

from collections.abc import Mapping
from typing import Final

from msgspec import Struct

_BY_SEVERITY: Final = {"critical": ("red", "failure"), "warning": ("amber", "warning"), "info": ("blue", "info")}


class MessageAlert(Struct, frozen=True):
    """One alert of a message, for services that take alerts one by one. Times are microseconds since the epoch."""

    id: str
    labels: Mapping[str, str]
    summary: str
    """The summary, in one line."""
    began: int
    ended: int = 0
    """0: still firing."""


class FeedAlert(Struct, frozen=True):
    """One alert as a feed gets it: see `sidecar.core.alerting.new_deliveries`. Times are microseconds since the epoch."""

    labels: Mapping[str, str]
    annotations: Mapping[str, str]
    began: int
    ended: int = 0
    fires_for: int = 0
    """How long the alert fires after it is sent. 0: it has ended."""
    seen: bool = True
    """False: its cluster cannot be read now. It is only kept from ending, if the feed still has it."""
    link: str | None = None


class MessageDeath(Struct, frozen=True):
    """Why the JobManager ended that led before: docs/explanation/deaths.md."""

    reason: str
    confidence: str
    """`high` or `medium`."""
    facts: tuple[str, ...]
    exit_code: int | None = None
    limit_bytes: int | None = None
    """The memory limit in force when it ended."""
    fault: str | None = None
    """The first error at the end of its log."""
    address: str = ""
    """The address of the leader that ended."""
    pod: str | None = None


class RecoveredJob(Struct, frozen=True):
    """The recovery of a job: docs/explanation/recovery.md."""

    job_id: str
    name: str
    state: str | None
    outcome: str
    restored_from: str | None = None
    checkpoint_id: int | None = None
    checkpoints_behind: int | None = None
    reprocessed_seconds: float | None = None
    running_after_seconds: float | None = None


class MessageRecovery(Struct, frozen=True):
    """The recovery after the failover."""

    verdict: str
    """`recovered`, `degraded`, `lost`, or `unproven`: also while it is assessed, and then without jobs."""
    reasons: tuple[str, ...]
    jobs: tuple[RecoveredJob, ...]
    """The first twenty, the worst first."""


class Content(Struct, frozen=True):
    """The content of a notification. Texts may hold what others wrote: printable and bounded, not escaped."""

    title: str
    body: str
    severity: str
    facts: tuple[tuple[str, str], ...] = ()
    """Names and values, shown below the body."""
    link: str | None = None
    """The page with more about it."""
    episode_id: str | None = None
    alerts: tuple[MessageAlert, ...] = ()
    """The first alerts, one by one."""
    death: MessageDeath | None = None
    """Why the previous leader ended."""
    recovery: MessageRecovery | None = None
    """The recovery after the failover. None: it is not assessed."""
    status: str = ""
    """The status of the cluster (`sidecar.core.cluster.status`) when the message was made. Empty: the message is about no incident, or
    about several clusters of which none can be named.
    """
    sentence: str = ""
    """The status of the cluster in one sentence."""
    colour: str = ""
    """`red`, `amber`, `grey`, `blue` or `green`, by the status. Empty: by the severity. Likewise `kind`, Apprise's type."""
    kind: str = ""

    @property
    def shown(self) -> tuple[str, str]:
        """The colour of the message, and Apprise's type. Only the status OK is green and a success."""
        return (self.colour, self.kind) if self.colour else _BY_SEVERITY.get(self.severity, _BY_SEVERITY["info"])

    @property
    def summary(self) -> str:
        """The title without its label."""
        return self.title.partition("] ")[2]


class Message(Content, frozen=True, kw_only=True):
    """A notification for one service."""

    reason: str
    receiver: str
    incident: str = ""
    """The key of the incident: the same for every message of the group, from every observer."""
    thread: str = ""
    """Identifies the messages of the present incident, as far as observers began with the same alerts. Empty: a message by itself."""
    goes_on: bool = False
    """Whether the group has an alert that was notified and fires."""
    group_labels: dict[str, str] = {}
    """The labels that all alerts of the group share, by the route's `group_by`."""
    alerts_left_out: int = 0
    feed: tuple[FeedAlert, ...] = ()
    """All alerts, if the service is a feed."""
    possible_duplicate: bool = False
    """Whether an earlier attempt may have arrived."""
