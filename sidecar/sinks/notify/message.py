"""What the notifier and its child process say to each other. Imports nothing of the core, so that a child starts fast."""

from collections.abc import Mapping
from typing import Any, Final

import msgspec
from msgspec import Struct

from sidecar.endpoints import Endpoint
from sidecar.secret import Secret

_TYPES: Final = {"info": "info", "warning": "warning", "critical": "failure"}


class Alert(Struct, frozen=True):
    """One alert of a message. Times are microseconds since the epoch."""

    id: str
    labels: Mapping[str, str]
    summary: str
    began: int
    ended: int = 0
    """0: still firing."""


class Death(Struct, frozen=True):
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
    pod: str | None = None


class RecoveredJob(Struct, frozen=True):
    """What became of a job: docs/explanation/recovery.md."""

    job_id: str
    name: str
    state: str | None
    outcome: str
    restored_from: str | None = None
    checkpoint_id: int | None = None
    checkpoints_behind: int | None = None
    reprocessed_seconds: float | None = None
    running_after_seconds: float | None = None


class Recovery(Struct, frozen=True):
    """What came back after the failover."""

    verdict: str
    """`recovered`, `degraded`, `lost`, or `unproven`: also while it is assessed, and then without jobs."""
    reasons: tuple[str, ...]
    jobs: tuple[RecoveredJob, ...]
    """The first twenty, the worst first."""


class FeedAlert(Struct, frozen=True):
    """One alert for an Alertmanager; see `sidecar.core.delivery.feed`."""

    labels: Mapping[str, str]
    annotations: Mapping[str, str]
    began: int
    ended: int = 0
    fires_for: int = 0
    seen: bool = True
    link: str | None = None


class Message(Struct, frozen=True):
    """One notification for one endpoint. Texts may hold what others wrote: printable and bounded, not escaped."""

    endpoint: Endpoint
    title: str
    body: str
    """With the note about a possible duplicate."""
    seconds: float
    """How long the service may take to answer."""
    reason: str
    """A value of the core's `Reason`."""
    severity: str
    incident: str = ""
    """The key of the incident: the same in all messages about it, from every observer."""
    thread: str = ""
    """Identifies the messages of the present incident, as far as observers began with the same alerts. Empty: a message by itself."""
    goes_on: bool = False
    """Whether the incident has an alert that still fires."""
    receiver: str = ""
    cluster_id: str = ""
    facts: tuple[tuple[str, str], ...] = ()
    link: str | None = None
    group_labels: Mapping[str, str] = {}
    alerts: tuple[Alert, ...] = ()
    alerts_left_out: int = 0
    death: Death | None = None
    recovery: Recovery | None = None
    feed: tuple[FeedAlert, ...] = ()
    """All alerts, if the endpoint is an Alertmanager."""
    queued_at: int = 0
    possible_duplicate: bool = False

    @property
    def notify_type(self) -> str:
        """Apprise's type."""
        return "success" if self.reason == "RESOLVED" else _TYPES[self.severity]


class Answer(Struct, frozen=True):
    """The result of one attempt."""

    outcome: str
    """A value of `DeliveryOutcome`."""
    detail: str = ""
    """One line without secrets."""
    retry_after: int | None = None
    """How long the service asks to wait, in seconds."""


class Request(Struct, frozen=True, omit_defaults=True):
    """A message to send; else endpoints to check, by destination."""

    message: Message | None = None
    endpoints: Mapping[str, Endpoint] = {}


class Checked(Struct, frozen=True):
    """What was found out about endpoints, by destination."""

    problems: dict[str, str]
    """One line without secrets for each unusable one."""
    natives: dict[str, str]
    """Apprise's scheme of each URL that a service itself gives out."""


def written(request: Request) -> dict[str, Any]:
    """The request for the child's stdin, with its secrets."""
    built: dict[str, Any] = msgspec.to_builtins(request, enc_hook=_reveal)
    return built


def read(request: Mapping[str, Any]) -> Request:
    """The request in the child."""
    return msgspec.convert(request, Request, dec_hook=_hide)


def _reveal(value: object) -> object:
    if isinstance(value, Secret):
        return value.reveal()
    raise NotImplementedError


def _hide(_kind: type, value: Any) -> Secret:
    return Secret(value)
