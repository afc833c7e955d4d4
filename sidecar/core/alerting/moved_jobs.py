"""The jobs of a failover, in the words of a message: which have a leader, which have ended, which are lost."""

from typing import Final

from msgspec import Struct

from sidecar.core.cluster.failover import episodes
from sidecar.core.cluster.failover.episodes import Episode
from sidecar.core.cluster.state import ClusterState

MOST_JOBS: Final = 3
"""Jobs of a failover that are named."""
_DELETED: Final = "with the ConfigMap that was deleted"
_VANISHED: Final = "when the plan was removed while nobody led"


class MovedJobs(Struct, frozen=True):
    """The jobs of a failover."""

    moved: int
    """How many of `total` lost their leader."""
    away: int
    """How many have no leader now."""
    ended: int
    """How many have ended since. So many of them are `lost`: Flink does not know them any more."""
    lost: int
    total: int
    vanished: int
    """How many of those lost only their plans."""
    ids: tuple[str, ...]
    """The first few jobs that have no leader now; if all have one, of those that lost it."""


def moved_jobs(episode: Episode, cluster: ClusterState) -> MovedJobs:
    parts = [
        (component.job_id, state)
        for component, state in cluster.components.items()
        if component.job_id and episodes.has_part(state.absence, episode)
    ]
    away = [job_id for job_id, state in parts if episodes.is_away(state.absence)]
    moved = len(parts) + episode.jobs_ended
    ids = away or [job_id for job_id, _ in parts]
    return MovedJobs(
        *(moved, len(away), episode.jobs_ended, episode.jobs_lost),
        *(max(episode.jobs_total, moved), episode.jobs_vanished),
        tuple(sorted(ids)[:MOST_JOBS]),
    )


def jobs_now(jobs: MovedJobs) -> str:
    """For the title of a failover: how its jobs are now."""
    if not jobs.moved:
        return ""
    if jobs.away:
        return f", {jobs.away} of {jobs.moved} jobs without leader"
    return f", {jobs.moved - jobs.ended} of {jobs.moved} jobs led"


def jobs_line(jobs: MovedJobs) -> str:
    led, ended = jobs.moved - jobs.away - jobs.ended, jobs.ended - jobs.lost
    how = _VANISHED if jobs.vanished == jobs.lost else _DELETED
    them, they_run = "it" if jobs.lost == 1 else "them", "it runs" if led == 1 else "they run"
    parts = {
        f"{jobs.lost} lost {how} (Flink does not know {them} any more)": jobs.lost,
        f"{ended} ended": ended,
        f"{led} led again (which does not say that {they_run})": led,
        f"{jobs.away} without one now": jobs.away,
    }
    now = ", ".join(text for text, number in parts.items() if number)
    more = (jobs.away or jobs.moved) - len(jobs.ids)
    ids = ", ".join(f"{job_id[:8]}…" for job_id in jobs.ids)
    which = f": {ids}{f' and {more} more' if more else ''}" if jobs.ids else ""
    return f"jobs: {jobs.moved} of {jobs.total} lost their leader, {now}{which}"
