"""A handover as its document: as much of a storm as fits."""

from collections.abc import Iterable, Mapping
from typing import Final, TypeVar

from msgspec import Struct
from msgspec.structs import replace

from sidecar.core.alerting.alerts import Failovers, Group
from sidecar.core.bounds import HANDOVER
from sidecar.core.cluster.cluster_state import ComponentState
from sidecar.core.failover import episodes
from sidecar.core.failover.ends import NOTHING, Ends
from sidecar.core.failover.episodes import Episode
from sidecar.core.flink.leadership import ComponentId
from sidecar.core.handover import document, schema
from sidecar.core.handover.contents import Handover
from sidecar.core.handover.document import HandoverError, bounded, bounded_values
from sidecar.core.pictures import ENDED, Picture
from sidecar.core.sanitize import clean

MOST_BYTES: Final = HANDOVER.most_bytes
"""The most bytes of the document."""
_SIZES: Final = (schema.MOST_JOBS, 4_000, 3_000, 2_000, 1_000, 200, 50, 0)
"""The numbers of jobs, and of alerts, that are tried until the document fits. Jobs of the failover in progress come first."""
_S = TypeVar("_S", bound=Struct)


def written(cluster_id: str, handover: Handover) -> bytes:
    """The document. As much of a storm as fits: MOST_BYTES."""
    jobs = sorted(
        (item for item in handover.cluster.components.items() if item[0].job_id),
        key=lambda item: not _has_part(item[1], handover.cluster.episode),
    )
    for most in _SIZES:
        content = document.packed(_document(cluster_id, handover, dict(jobs[:most]), most))
        if len(content) <= MOST_BYTES:
            return content
    raise HandoverError(f"{len(content)} bytes are more than the {MOST_BYTES >> 10} KiB that it may have")


def _document(
    cluster_id: str, handover: Handover, jobs: Mapping[ComponentId, ComponentState], most: int
) -> schema.Document:
    """The document with these `jobs` alone, and with at most so many alerts. What its schema does not allow is left out."""
    cluster, alerts = handover.cluster, handover.alerts
    own = {component: state for component, state in cluster.components.items() if not component.job_id}
    components = [*document.components({**own, **jobs}.items())]
    faults = dict([*cluster.job_faults.items()][: schema.MOST_PICTURED])
    counted = alerts.failovers.get(cluster_id, Failovers()).known
    failovers = (bounded(schema.CountedFailover, failover) for failover in counted)
    return schema.Document(
        schema.FORMAT,
        handover.observer,
        handover.alive,
        handover.ended,
        len(cluster.components) - len(components),
        components,
        bounded(schema.Episode, cluster.episode),
        bounded(schema.Episode, cluster.last_episode),
        bounded(schema.Standby, cluster.standby),
        bounded_values(schema.LeaderElectionRecord, {name: lease.record for name, lease in cluster.leases.items()}),
        bounded_values(schema.Pod, cluster.pods),
        bounded(schema.Operated, cluster.operated),
        bounded_values(schema.Disruption, cluster.disruptions),
        _ends(cluster.ends),
        bounded(schema.Picture, _pictured(cluster.picture, most)),
        bounded(schema.Assessed, cluster.assessed),
        bounded_values(schema.JobFault, faults),
        bounded(schema.RestServer, cluster.rest_server),
        _groups(alerts.groups, max(min(most, schema.MOST_ALERTS), 1)),
        tuple(failover for failover in failovers if failover),
        bounded(schema.Drilled, cluster.drilled),
    )


def _ends(cluster_ends: Ends) -> schema.Ends | None:
    """The ends of JobManagers, reduced to what the schema of a handover allows."""
    if cluster_ends == NOTHING:
        return None

    def bounded_items(kind: type[_S], values: Iterable[object]) -> tuple[_S, ...]:
        return tuple(item for value in values if (item := bounded(kind, value)))

    return schema.Ends(
        bounded_values(schema.KnownPod, cluster_ends.pods),
        bounded_items(schema.PodSign, cluster_ends.signs),
        bounded_items(schema.OperatorEvent, cluster_ends.operator),
        bounded_items(schema.KnownProcessEnd, cluster_ends.processes),
        bounded_items(schema.LogRead, cluster_ends.logs),
        bounded_items(schema.Rebooted, cluster_ends.reboots),
    )


def _pictured(picture: Picture | None, most: int) -> Picture | None:
    """The picture with its largest jobs that have not ended, and names that can be shown. What its schema does not allow is counted."""
    if picture is None:
        return None
    most = min(most, schema.MOST_PICTURED)
    largest = sorted(picture.jobs, key=lambda job: (job.state in ENDED, -job.total_tasks))
    with_clean_names = (replace(job, name=clean(job.name)) for job in largest[:most])
    jobs = tuple(job for job in with_clean_names if bounded(schema.Job, job))
    registered = picture.task_managers or ()
    managers = tuple(manager for manager in registered[:most] if bounded(schema.TaskManager, manager))
    return replace(
        picture,
        jobs=jobs,
        jobs_beyond=picture.jobs_beyond + len(picture.jobs) - len(jobs),
        task_managers=None if picture.task_managers is None else managers,
        task_managers_beyond=picture.task_managers_beyond + len(registered) - len(managers),
    )


def _groups(groups: Mapping[str, Group], most: int) -> dict[str, schema.Group]:
    """The groups with at most so many alerts in all."""
    kept = {}
    for fingerprint, group in [*groups.items()][: schema.MOST_ALERTS]:
        bounded_members = ((key, bounded(schema.Member, member)) for key, member in [*group.members.items()][:most])
        members = {key: member for key, member in bounded_members if member}
        most -= len(members)
        alone = bounded(schema.Group, replace(group, members={}))
        if alone and (members or not group.members):
            kept[fingerprint] = replace(alone, members=members)
    return kept


def _has_part(state: ComponentState, episode: Episode | None) -> bool:
    return episode is not None and episodes.has_part(state.absence, episode)
