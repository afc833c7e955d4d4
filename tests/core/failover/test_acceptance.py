"""A note on a failover ends what is LOST and DEGRADED in it: what was known by then, and nothing else."""

from collections.abc import Callable

import pytest
from msgspec.structs import replace

from sidecar.core.cluster.status import Status
from sidecar.core.cluster.status_of import status_of
from sidecar.core.moment import SECOND
from sidecar.core.observations import FailoverAnnotated
from tests.core.cluster.pictures import after, job, shows
from tests.core.failover.test_assessment import OTHER, cluster, failed_over, looks, lost_job
from tests.kit.cluster import CLUSTER, JOB
from tests.kit.core_sidecar import Sidecar


def annotate(sidecar: Sidecar, *, ago: float = 0, episode_id: str | None = None) -> Sidecar:
    """Somebody annotates the last failover (or this one)."""
    last = cluster(sidecar).episode or cluster(sidecar).last_episode
    assert last
    noted_at = sidecar.moment.wall - round(ago * SECOND)
    sidecar.observe(FailoverAnnotated(sidecar.moment, CLUSTER, episode_id or last.id, noted_at))
    return sidecar.waits(1)


def said(sidecar: Sidecar) -> tuple[Status, str]:
    """What is decided and what is remembered of the status are the same."""
    current = status_of(sidecar.policy, CLUSTER, cluster(sidecar), sidecar.moment)
    stated = cluster(sidecar).stated
    assert stated
    assert stated.status is current.status
    return current.status, current.parts[0]


def restored(checkpoint: int | None) -> Callable[[], Sidecar]:
    """A job runs again, and not from its latest checkpoint; and its failover was judged."""

    def scene() -> Sidecar:
        _, sidecar = failed_over()
        for _ in range(10):
            shows(sidecar, after(sidecar, checkpoint, 43))
            sidecar.waits(1)
        assert cluster(sidecar).recovery is None
        return sidecar

    return scene


def planless() -> Sidecar:
    """The plan of the only job was deleted while nobody led."""
    return looks(lost_job()[1], seconds=320)


@pytest.mark.parametrize(
    ("scene", "lost", "sentence"),
    [
        (restored(None), Status.LOST, "1 job restored from nothing: orders"),
        (restored(30), Status.DEGRADED, "1 of 1 jobs run again"),
        (planless, Status.LOST, "1 job missing: orders"),
    ],
)
def test_what_was_lost_is_said_until_the_failover_is_annotated(
    scene: Callable[[], Sidecar], lost: Status, sentence: str
) -> None:
    """Not by a note on another failover, or by one that was written before it was known. It stays so in the next process."""
    sidecar = scene()
    assert said(sidecar) == (lost, sentence)
    assert said(annotate(sidecar, episode_id="0" * 36)) == (lost, sentence)
    assert said(annotate(sidecar, ago=3600)) == (lost, sentence)
    assert said(annotate(sidecar))[0] is Status.OK
    assert not cluster(sidecar).job_faults
    sidecar.is_killed().connects()
    accepted = cluster(sidecar).assessed
    assert accepted
    assert (accepted.accepted, cluster(sidecar).job_faults) == (True, {})


def test_a_note_while_the_recovery_is_assessed_counts() -> None:
    """From then on, and when it is judged; what is reported after it does not count."""
    _, sidecar = lost_job(beside=OTHER)
    starting = job(job_id=OTHER, started=2, state="RESTARTING")
    looks(sidecar, starting, seconds=2)
    assert said(sidecar) == (Status.LOST, "1 job missing: orders")
    assert said(annotate(sidecar))[0] is Status.RECOVERING
    assert said(annotate(sidecar, ago=3600))[0] is Status.RECOVERING
    for _ in range(30):
        shows(sidecar, replace(after(sidecar, None, 1), id=OTHER))
        sidecar.waits(1)
    assert said(sidecar) == (Status.LOST, "1 job restored from nothing: orders")
    assert said(annotate(sidecar)) == (Status.OK, "1 of 1 jobs run")


def test_a_note_on_a_failover_that_lost_nothing_so_far_accepts_nothing() -> None:
    """Somebody writes what has happened while it is not known yet what was lost."""
    _, sidecar = failed_over()
    annotate(sidecar)
    for _ in range(10):
        shows(sidecar, after(sidecar, None, 1))
        sidecar.waits(1)
    assert said(sidecar) == (Status.LOST, "1 job restored from nothing: orders")


def test_a_note_does_not_end_what_lasts() -> None:
    """Jobs that do not run do not run."""
    _, sidecar = failed_over()
    for _ in range(320):
        shows(sidecar, job(started=2, state="RESTARTING"))
        sidecar.waits(1)
    assert said(sidecar)[0] is Status.NOT_RUNNING
    assert said(annotate(sidecar))[0] is Status.NOT_RUNNING
    assert JOB in {job.id for job in (cluster(sidecar).picture or pytest.fail("no picture")).jobs}
