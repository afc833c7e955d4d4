"""Pictures of a cluster's REST server, in few words."""

from typing import Any, Final

from msgspec.structs import replace

from sidecar.core.flink.leadership import Component, ComponentId, Held
from sidecar.core.moment import SECOND, Moment
from sidecar.core.observations import PictureTaken
from sidecar.core.pictures import Checkpoint, Checkpoints, Job, Picture, Restored, TaskManager
from sidecar.core.policy.policy import Policy, Source
from sidecar.core.reach import Reach
from tests.kit.cluster import CLUSTER, JOB
from tests.kit.core_sidecar import POLICY, Sidecar

ASSESSING: Final[Policy] = replace(POLICY, evidence=frozenset({Source.FLINK_REST}))
TASK_MANAGERS: Final = (TaskManager("tm-1"), TaskManager("tm-2"))


def checkpoint(number: int, at: int, savepoint: bool = False) -> Checkpoint:
    """Triggered at `at`, and completed a tenth of a second later."""
    return Checkpoint(number, at, at + SECOND // 10, is_savepoint=savepoint)


def job(
    name: str = "orders",
    *,
    job_id: str = JOB,
    started: int = 1,
    state: str = "RUNNING",
    tasks: int = 2,
    checkpoints: Checkpoints | None = None,
) -> Job:
    """A job, all of whose tasks run. `known`: its checkpoints; None: they are not read."""
    return Job(job_id, name, state, started, started, tasks if state == "RUNNING" else 0, 2, checkpoints, restarts=0)


def shows(sidecar: Sidecar, *jobs: Job, **more: Any) -> None:
    """The leading REST server shows these jobs now, and both TaskManagers. `more`: other fields of the picture."""
    picture = Picture(sidecar.now, rest_address(sidecar), tuple(jobs), **{"task_managers": TASK_MANAGERS, **more})
    sidecar.observe(PictureTaken(sidecar.moment, CLUSTER, picture.leader, picture))


def reaches(sidecar: Sidecar, reach: Reach | None, seconds: float = 0) -> None:
    """A request to the leading REST server, sent so many seconds ago, got so far."""
    asked_at = Moment(*(2 * (sidecar.now - round(seconds * SECOND),)))
    address = rest_address(sidecar)
    sidecar.observe(PictureTaken(sidecar.moment, CLUSTER, address, None, "no description", reach, asked_at))


def rest_address(sidecar: Sidecar) -> str:
    """Of the leading REST server."""
    leader = sidecar.state.clusters[CLUSTER].components[ComponentId(Component.REST_SERVER)].leadership
    return leader.leader.address if isinstance(leader, Held) else ""


def before(sidecar: Sidecar, last: int = 41) -> Job:
    """A job that has completed checkpoint `last` two seconds ago, and the one before that."""
    at = sidecar.now
    done = tuple(checkpoint(last - back, at - (2 + back) * SECOND) for back in (1, 0))
    return job(checkpoints=Checkpoints(at, done, first_id=1, interval=SECOND, shortest=SECOND // 10))


def after(sidecar: Sidecar, restored: int | None, first: int | None = None, *, savepoint: bool = False) -> Job:
    """The job as it runs after a failover, restored from this checkpoint; `first`: of those that it triggers itself."""
    at = sidecar.now
    done = () if first is None else (checkpoint(first, at - SECOND // 2),)
    origin = None if restored is None else Restored(restored, is_savepoint=savepoint)
    return job(started=2, checkpoints=Checkpoints(at, done, origin, first, interval=SECOND))
