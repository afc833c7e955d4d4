"""The remembered state of a recovery: of the one that is assessed, and of the last one that was judged."""

from collections.abc import Mapping
from enum import StrEnum
from typing import Annotated, Final
from uuid import UUID

from msgspec import Meta, Struct, convert

from sidecar.core import message
from sidecar.core.failover.causes import Facts
from sidecar.core.failover.plans import Plan
from sidecar.core.moment import SECOND, Moment
from sidecar.core.pictures import Restored, TaskManager
from sidecar.core.records import RecordId, Recovery

KEPT: Final = 24 * 3600 * SECOND
"""How long a job counts as missing, resurrected or not running if nothing else is heard of it."""
MOST_SUMMARISED: Final = 20
JobName = Annotated[str, Meta(pattern=r"^[^\x00-\x1f\x7f-\x9f]{0,201}\Z")]
"""A name as `clean` makes it. One that others have written is cleaned again where it is shown."""
MOST_ROWS: Final = 200
"""Jobs of the last recovery that are remembered, the worst first. The records have all of them."""


class JobAfter(Struct, frozen=True):
    """A job from before the failover, as the new leader's REST server reports it. Times are wall microseconds."""

    id: str
    """The id by which Flink knows the job now: another one if `main()` ran again."""
    state: str
    started_at: int
    tasks: tuple[int, int] = (0, 0)
    """The number of running tasks, and of all tasks."""
    running_at: int | None = None
    """When all tasks of the job were first seen running."""
    checkpointed_at: int | None = None
    """When the job completed its first checkpoint."""
    read_at: int | None = None
    """When the job's checkpoints were last read. None: not since the new leader leads."""
    enabled: bool = True
    """Whether it takes checkpoints."""
    restored: Restored | None = None
    first_id: int | None = None
    """The lowest checkpoint id that was triggered since."""
    restarts: int | None = None
    reported: bool = False
    """Whether it was reported that it was not restored from its latest checkpoint."""

    @property
    def is_running(self) -> bool:
        """Whether all of its tasks run now."""
        running, total = self.tasks
        return self.running_at is not None and self.state == "RUNNING" and running >= total > 0

    def ran_at(self, led_at: int | None) -> int | None:
        """When all tasks of the job ran at the latest: a checkpoint completes only then. Not before `led_at`, since clocks may differ."""
        completed_at, seen_at = self.checkpointed_at, self.running_at
        if seen_at and completed_at and led_at and completed_at >= led_at:
            return min(seen_at, completed_at)
        return seen_at


class Assessment(Struct, frozen=True):
    """The recovery from a failover, while it is assessed. The previous picture is `ClusterState.picture`, which stays until the end."""

    episode_id: str
    opened_at: Moment
    left_session: UUID
    """The session id of the leader that was lost."""
    left_out: bool = False
    """Whether the failover is planned: it may leave jobs out, and fires nothing."""
    session_id: UUID | None = None
    """The session id of the dispatcher's leader since `led_at`. None: there is none yet."""
    led_at: Moment | None = None
    """When every component of the cluster had this leader."""
    dispatcher_led_at: Moment | None = None
    pictures: int = 0
    """How many complete pictures there were since `led_at`, as far as they are counted."""
    first_at: int | None = None
    """When the first complete picture since `led_at` was taken (wall microseconds)."""
    task_managers: tuple[TaskManager, ...] | None = None
    """The registered TaskManagers. None: not read since `led_at`."""
    task_managers_beyond: int = 0
    starting: bool = False
    """Whether an application runs that has submitted no job yet."""
    anew: bool = False
    """Whether jobs have other ids than before: `main()` ran anew."""
    foreign: bool = False
    """Whether what REST says has nothing in common with what was before."""
    reported_at: int | None = None
    """When the last job was reported that was not restored from its latest checkpoint (wall microseconds)."""
    annotated_at: int | None = None
    """When somebody annotated the failover last (wall microseconds)."""


class Fault(StrEnum):
    """A fault of a job, for as long as it lasts."""

    MISSING = "missing"
    RESURRECTED = "resurrected"
    DELETED = "deleted"
    """Missing, with the ConfigMap that was deleted: that makes the failover itself critical."""


class JobFault(Struct, frozen=True):
    """A job that is missing or resurrected."""

    fault: Fault
    since: Moment
    episode_id: RecordId
    name: JobName | None = None
    """None: not known."""


class BadRestore(Struct, frozen=True):
    """A job runs again, and not from its latest checkpoint. No record: what is recorded of the job says it too."""

    cluster_id: str
    job_id: str
    name: str
    origin: str
    """`older` or `nothing`."""
    episode_id: str
    reason: str


class Assessed(Struct, frozen=True):
    """The last recovery that was judged."""

    episode_id: str
    at: Moment
    rows: tuple[Recovery, ...]
    """The row of the cluster, then those of its jobs. Empty: only the jobs still waited for were handed over."""
    waiting: Mapping[str, str] = {}
    """Jobs that were not seen running yet, and their names by their ids. They are waited for."""
    led_at: Moment | None = None
    namesakes: tuple[str, ...] = ()
    """Other jobs with the name of one that is missing or waited for: that they run says nothing about it. The first MOST_ROWS."""
    accepted: bool = False
    """Whether somebody has annotated the failover since its losses were known."""


class RecoverySummary(message.MessageRecovery, frozen=True):
    """The recovery from a failover, as messages carry it: the first MOST_SUMMARISED jobs."""

    is_over: bool = True
    """False: it is still being assessed; the verdict is `unproven` until then."""


def summary(assessed: Assessed) -> RecoverySummary:
    of_cluster, *rows = assessed.rows
    jobs = tuple(convert(row, message.RecoveredJob, from_attributes=True) for row in rows[:MOST_SUMMARISED])
    return RecoverySummary(of_cluster.verdict, tuple(of_cluster.reasons), jobs)


def is_left_out(facts: Facts) -> bool:
    """Whether a failover was planned, and no rollback: it may leave jobs out."""
    return facts.intent is not None and facts.intent.plan is not Plan.ROLLBACK
