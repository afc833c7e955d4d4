"""A handover as its document: as much of a storm as fits."""

from collections.abc import Mapping
from typing import Final

from msgspec.structs import asdict, replace

from sidecar.core.alerting.alerts import CountedFailover, Failovers, Group
from sidecar.core.bounds import HANDOVER
from sidecar.core.cluster.cluster_state import ComponentState, Drilled
from sidecar.core.failover.plans import Disruption, Operated
from sidecar.core.failover.recovery_state import JobFault
from sidecar.core.failover.recovery_tables import known_checkpoints
from sidecar.core.flink.leadership import ComponentId
from sidecar.core.handover import document, schema
from sidecar.core.handover.contents import Handover
from sidecar.core.handover.document import HandoverError, bounded, bounded_values
from sidecar.core.leadership.leadership_account import Standby
from sidecar.core.pictures import ENDED, Job, Picture
from sidecar.core.pods import Pod
from sidecar.core.sanitize import clean

MOST_BYTES: Final = HANDOVER.most_bytes
"""The most bytes of the document."""
_SIZES: Final = (schema.MOST_JOBS, 4_000, 3_000, 2_000, 1_000, 200, 50, 0)
"""The numbers of jobs, and of alerts, that are tried until the document fits. Jobs of the failover in progress come first."""


def written(cluster_id: str, handover: Handover) -> bytes:
    """The document. As much of a storm as fits: MOST_BYTES."""
    episode = handover.cluster.episode
    moving = handover.cluster.parts(episode) if episode else {}
    jobs = sorted(
        (item for item in handover.cluster.components.items() if item[0].job_id), key=lambda item: item[0] not in moving
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
    components = [*document.components({**cluster.own, **jobs}.items())]
    faults = dict([*cluster.job_faults.items()][: schema.MOST_PICTURED])
    counted = alerts.failovers.get(cluster_id, Failovers()).known
    failovers = (bounded(CountedFailover, failover) for failover in counted)
    return schema.Document(
        schema.FORMAT,
        handover.observer,
        handover.alive,
        handover.ended,
        len(cluster.components) - len(components),
        components,
        bounded(schema.HandedEpisode, cluster.episode),
        bounded(schema.HandedEpisode, cluster.last_episode),
        bounded(Standby, cluster.standby),
        bounded_values(
            schema.HandedLeaderElectionRecord, {name: lease.record for name, lease in cluster.leases.items()}
        ),
        bounded_values(Pod, cluster.pods),
        _operated(cluster.operated),
        bounded_values(Disruption, cluster.disruptions),
        _pictured(cluster.picture, most),
        bounded(schema.HandedAssessed, cluster.assessed),
        bounded_values(JobFault, faults),
        bounded(schema.HandedRestServer, cluster.rest_server),
        _groups(alerts.groups, max(min(most, schema.MOST_ALERTS), 1)),
        tuple(failover for failover in failovers if failover),
        bounded(Drilled, cluster.drilled),
    )


def _pictured(picture: Picture | None, most: int) -> schema.HandedPicture | None:
    """The picture with its largest jobs that have not ended. What its schema does not allow is counted."""
    if picture is None:
        return None
    most = min(most, schema.MOST_PICTURED)
    largest = sorted(picture.jobs, key=lambda job: (job.state in ENDED, -job.total_tasks))
    shown = map(_shown, largest[:most])
    jobs = tuple(job for job in shown if bounded(schema.HandedJob, job))
    registered = picture.task_managers or ()
    ids = tuple(one.id for one in registered[:most] if bounded(schema.TaskManagerId, one.id))
    fields = {
        **asdict(picture),
        "jobs": jobs,
        "jobs_beyond": picture.jobs_beyond + len(picture.jobs) - len(jobs),
        "task_managers": None if picture.task_managers is None else ids,
        "task_managers_beyond": picture.task_managers_beyond + len(registered) - len(ids),
    }
    return bounded(schema.HandedPicture, fields)


def _shown(job: Job) -> Job:
    """The job with a name that can be shown, and its last checkpoint alone."""
    checkpoints = job.checkpoints
    last = known_checkpoints(checkpoints)[-1:]
    return replace(job, name=clean(job.name), checkpoints=checkpoints and replace(checkpoints, completed=last))


def _operated(operated: Operated | None) -> schema.HandedOperated | None:
    """What makes the JobManagers. One that is being deleted counts as deleted."""
    made = operated.deployment if operated else None
    known = asdict(made) if made and not made.deleting else {}
    return bounded(schema.HandedOperated, {**known, **asdict(operated)}) if operated else None


def _groups(groups: Mapping[str, Group], most: int) -> dict[str, schema.HandedGroup]:
    """The groups with at most so many alerts in all."""
    kept = {}
    for fingerprint, group in [*groups.items()][: schema.MOST_ALERTS]:
        bounded_members = (
            (key, bounded(schema.HandedMember, member)) for key, member in [*group.members.items()][:most]
        )
        members = {key: member for key, member in bounded_members if member}
        most -= len(members)
        alone = bounded(schema.HandedGroup, replace(group, members={}))
        if alone and (members or not group.members):
            kept[fingerprint] = replace(alone, members=members)
    return kept
