"""The answers of Flink's REST server about a cluster at one moment: jobs, checkpoints, TaskManagers. Bounded and untrusted.

`cluster.recovery.assessment` compares the last picture before a failover with those after it.
"""

from typing import Final

from msgspec import Struct
from msgspec.structs import replace

from sidecar.core.counted import Number
from sidecar.core.moment import SECOND

MOST_JOBS: Final = 5_000
"""The most jobs of one picture. The others are counted."""
MOST_TASK_MANAGERS: Final = 2_000
MOST_APPLICATIONS: Final = 1_000
MOST_CHECKPOINTS: Final = 5
"""Completed ones remembered of a job, the latest."""
MOST_HELD: Final = 50_000
"""Jobs, TaskManagers and applications in the pictures of all clusters together. A picture that does not fit any more is left out."""
NOT_HELD: Final = f"those of all clusters may hold {MOST_HELD:,} jobs, TaskManagers and applications"

OLDEST: Final = 300 * SECOND
"""A request older than this is not answered any more: a picture that is older than the last one by more is of a clock that was set back."""

ENDED: Final = frozenset({"FINISHED", "CANCELED", "FAILED"})
"""Flink's globally terminal job states."""


class Checkpoint(Struct, frozen=True):
    """A completed checkpoint. Times are wall microseconds, by the JobManager's clock."""

    id: int
    triggered_at: int
    ended_at: int
    size: int | None = None
    path: str | None = None
    """The path, of the latest checkpoints only."""
    is_savepoint: bool = False


class Restored(Struct, frozen=True):
    """The checkpoint or savepoint from which the running JobMaster restored a job."""

    id: Number
    is_savepoint: bool = False


class Checkpoints(Struct, frozen=True):
    """The checkpoints of a job as the running JobMaster reports them. It counts from its own start."""

    read_at: int
    """When the checkpoints were read (wall microseconds)."""
    completed: tuple[Checkpoint, ...] = ()
    """The latest, oldest first."""
    restored: Restored | None = None
    """The origin with which the JobMaster began, whatever it restored after failures of tasks since. None: without state, if
    `restored_known`."""
    first_id: int | None = None
    """The lowest id that this JobMaster triggered, completed or not. None: none yet, or no longer known."""
    interval: int | None = None
    """Microseconds. None: not known, or checkpointing is off."""
    shortest: int | None = None
    """The shortest time that a checkpoint took (microseconds). None: none completed."""
    enabled: bool = True
    restored_known: bool = True
    """False: the JobMaster restored the job more than once, and the first time was not read."""

    @property
    def latest(self) -> Checkpoint | None:
        return self.completed[-1] if self.completed else None


class Job(Struct, frozen=True):
    """A job. Times are wall microseconds, by the JobManager's clock."""

    id: str
    name: str
    state: str
    """Flink's `JobStatus`."""
    started_at: int
    changed_at: int
    """When its state last changed, as far as Flink says."""
    running_tasks: int = 0
    """The number of running tasks, including finished ones: a bounded source beside an unbounded one."""
    total_tasks: int = 0
    checkpoints: Checkpoints | None = None
    """None: not read."""
    restarts: int | None = None
    """How often the JobMaster restarted the job. None: not read."""

    @property
    def is_running(self) -> bool:
        """Whether all of its tasks run."""
        return self.state == "RUNNING" and self.running_tasks >= self.total_tasks > 0


class TaskManager(Struct, frozen=True):
    """A registered TaskManager."""

    id: str
    """The resource id: the pod's name in Flink's native integration, else host, port and a random part."""


class Picture(Struct, frozen=True):
    """A cluster, as the leading REST server described it. Jobs are always read: without them there is no picture."""

    at: int
    """When the picture was taken (wall microseconds, by our clock)."""
    leader: str
    """The address of the REST server that was asked, as it was published."""
    jobs: tuple[Job, ...] = ()
    jobs_beyond: int = 0
    task_managers: tuple[TaskManager, ...] | None = None
    """None: not read."""
    task_managers_beyond: int = 0
    slots_total: int | None = None
    slots_free: int | None = None
    applications: tuple[tuple[str, str], ...] | None = None
    """Names and states (Flink 2.3 and newer). None: this Flink has none, or they could not be read."""
    left_out: bool = False
    """Whether the picture did not fit into MOST_HELD, and has only the number of its jobs."""

    @property
    def size(self) -> int:
        """The size of the picture, as MOST_HELD counts it."""
        return len(self.jobs) + len(self.task_managers or ()) + len(self.applications or ())

    def bounded(self, most: int) -> "Picture":
        """The picture; left out if it holds more than this."""
        if self.size <= most:
            return self
        beyond = len(self.jobs) + self.jobs_beyond
        return replace(self, jobs=(), jobs_beyond=beyond, task_managers=None, applications=None, left_out=True)


class PictureRequest(Struct, frozen=True):
    """A request for a picture of one cluster. One at a time of each cluster; each is answered."""

    cluster_id: str
    address: str
    """The leading REST server's address as it published it, untrusted."""
    first: tuple[str, ...] = ()
    """The jobs whose checkpoints are asked for first."""
    thorough: bool = False
    """A failover is assessed: more requests than usual are allowed."""
    most: int = MOST_HELD
    """The most that the picture may hold, as MOST_HELD counts it."""
    at_once: bool = False
    """The last request was not answered: this one does not wait for others."""
