"""Failovers as data for people and scripts: closed ones, and those in progress."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from msgspec import convert, json
from msgspec.structs import replace

from sidecar.core.cluster.cluster_state import ClusterState
from sidecar.core.cluster.draft import RecordWriter
from sidecar.core.failover import episodes
from sidecar.core.failover.assessment import current_rows
from sidecar.core.failover.causes import Cause
from sidecar.core.failover.deaths import death_of, facts_of
from sidecar.core.failover.ends import KEPT
from sidecar.core.moment import Timestamp
from sidecar.core.records import Death, EpisodeRecord, Recovery
from sidecar.core.views.outcome import EpisodeOutcome, outcomes_of
from sidecar.core.views.snapshot import Snapshot
from sidecar.core.views.verdict import ClusterVerdict, stated


class EpisodeView(EpisodeRecord, frozen=True, kw_only=True):
    """A failover's record with its outcome. In progress `phase` is OPEN (a cluster component has no leader) or LEADER_BACK,
    `closed_at` and durations are null, and the other fields hold what is known so far.
    """

    closed_at: Timestamp | None  # type: ignore[assignment]  # a record is written at the end
    phase: str = "CLOSED"
    death_reason: str | None = None
    """Why the process of the previous leader ended. Null: nothing is recorded."""
    death_confidence: str | None = None
    recovery_verdict: str | None = None
    """`recovered`, `degraded`, `lost` or `unproven`. Null: nothing is recorded."""
    status: str | None = None
    """Its cluster's: now, or the last one before another failover. Null: nothing is recorded."""
    reviewed: bool | None = None
    """Whether somebody has annotated it. Null: there is nothing to review, only this sidecar was blind."""


_BUILT: Final = json.Decoder(EpisodeView)
"""What `convert` needs of the type, as for decoding."""


def closed(episode: EpisodeRecord) -> EpisodeView:
    """The view of a recorded episode."""
    return convert(episode, EpisodeView, from_attributes=True)


def in_progress(snapshot: Snapshot) -> list[EpisodeView]:
    """The open episodes, at most one per cluster."""
    clusters = sorted(snapshot.state.clusters.items())
    return [_in_progress(snapshot, name, cluster, cluster.episode) for name, cluster in clusters if cluster.episode]


def with_outcome(episode: EpisodeView, outcome: EpisodeOutcome, now: ClusterVerdict | None) -> EpisodeView:
    """The episode with what is recorded of its outcome. `now`: how its cluster is, if it is the last one."""
    death, status = outcome.death, now or outcome.status
    return replace(
        episode,
        death_reason=death.reason if death else None,
        death_confidence=death.confidence if death else None,
        recovery_verdict=outcome.verdict,
        status=status.status if status else None,
        reviewed=None if episode.cause == Cause.OBSERVER_BLIND else outcome.reviewed,
    )


def latest(
    recorded: Sequence[EpisodeRecord], outcomes: Mapping[str, EpisodeOutcome], snapshot: Snapshot
) -> list[EpisodeView]:
    """Those in progress, then the recorded ones in their order. One that has just been recorded may still be in the snapshot."""
    recorded_ids = {episode.id for episode in recorded}
    opened = (episode for episode in in_progress(snapshot) if episode.id not in recorded_ids)
    outcomes = {**outcomes, **outcomes_of(unrecorded(snapshot), outcomes)}
    now = stated(snapshot)
    return [
        with_outcome(episode, outcomes.get(episode.id, EpisodeOutcome()), now.get(episode.id))
        for episode in (*opened, *map(closed, recorded))
    ]


def _in_progress(snapshot: Snapshot, cluster_id: str, cluster: ClusterState, episode: episodes.Episode) -> EpisodeView:
    """What would be recorded if it were over, but for what its end decides."""
    parts = {
        component: state
        for component, state in cluster.components.items()
        if state.absence and episodes.has_part(state.absence, episode)
    }
    so_far = replace(episode, facts=facts_of(cluster, episode))
    record = RecordWriter(snapshot.policy, cluster_id, snapshot.at).episode(so_far, parts, cluster.pods)
    undecided = ("closed_at", "vacant_seconds", "downtime_seconds_at_least", "downtime_seconds_at_most")
    view = replace(closed(record), phase=episode.phase.value, vacant_seconds_by_component={})
    return replace(view, **dict.fromkeys(undecided))


def unrecorded(snapshot: Snapshot) -> Iterator[Death | Recovery]:
    """What is known of failovers and not recorded yet, as it would be recorded now. Of each cluster's current failover, and of the last one
    until that is recorded: why the previous leader ended, and what is back.
    """
    for cluster_id, cluster in snapshot.state.clusters.items():
        writer = RecordWriter(snapshot.policy, cluster_id, snapshot.at)
        for episode in filter(None, (cluster.last_episode, cluster.episode)):
            is_kept = episode.closed_at is None or snapshot.at.steady - episode.closed_at.steady < KEPT
            if is_kept and episode.death is None and (death := death_of(cluster, episode)):
                yield writer.death(episode.id, death)
        if cluster.recovery:
            yield from current_rows(snapshot.policy, cluster_id, cluster, snapshot.at)
