"""A sidecar that remembers: failovers in its journal, the next one under way in its state."""

from collections.abc import Sequence
from pathlib import Path

from msgspec.structs import replace

from sidecar.core.cluster.cluster_state import ComponentState
from sidecar.core.flink.leadership import Component, ComponentId, Held, LeaderInformation
from sidecar.core.records import AnyRecord, Notification, TransitionRecord, record_id
from sidecar.core.views.snapshot import Snapshot
from tests.kit.cluster import CLUSTER
from tests.kit.core_sidecar import Sidecar, fail_over, watching
from tests.kit.outcomes import OTHER_JOB, death, recovery
from tests.kit.spools import opened
from tests.shell.site import captured

HOSTILE = (
    "</style></bdi><script>document.title='hostile'</script><img src=http://127.0.0.1:9/x onerror=document.title=2>"
    "\"' onmouseover='document.title=3' {{7*7}} \N{RIGHT-TO-LEFT OVERRIDE}moc.live \x1b[2J שלום " + "x" * 10_000
)
"""Text that would be markup, a template, another direction, a terminal's, and much."""


def two_failovers() -> Sidecar:
    """One that is over, after which the sidecar was cut off for 20 s, and the next one, of which nobody is back yet."""
    flink, sidecar = watching()
    fail_over(flink, sidecar).waits(10)
    sidecar.is_cut_off().waits(20).connects().waits(70).sees(flink.vacate())
    return sidecar


def remember(folder: Path, sidecar: Sidecar, records: Sequence[AnyRecord] | None = None) -> None:
    """Leave what `sidecar` recorded, or `records`, in the journal in `folder`."""
    journal = opened(folder)
    assert journal.commit(sidecar.state, sidecar.records if records is None else records)
    journal.close()


def with_jobs(sidecar: Sidecar, number: int) -> Snapshot:
    """What is known now, and so many jobs more, each like the first."""
    cluster = sidecar.state.clusters[CLUSTER]
    like = next(known for component, known in cluster.components.items() if component.job_id)
    jobs = {ComponentId(Component.JOB, f"{n:032x}"): like for n in range(number)}
    return _with(sidecar, {**cluster.components, **jobs})


def hostile_snapshot(sidecar: Sidecar) -> Snapshot:
    """What is known now, and each component led from a hostile address."""
    cluster = sidecar.state.clusters[CLUSTER]
    components = {}
    for component, state in cluster.components.items():
        assert state.last_known
        assert state.last_position
        leader = LeaderInformation(f"pekko.tcp://flink@{HOSTILE}:6123/user", state.last_known.session_id)
        components[component] = replace(state, leadership=Held(leader, state.last_position))
    return _with(sidecar, components)


def hostile_records(sidecar: Sidecar) -> list[AnyRecord]:
    """What was recorded, with hostile text where a cluster or a receiver could put it; messages are about the first episode."""
    episode = sidecar.episodes()[0]
    made: list[AnyRecord] = []
    for record in sidecar.records:
        match record:
            case TransitionRecord(kind="GRANTED"):
                made.append(replace(record, after_address=f"pekko.tcp://flink@{HOSTILE}:6123/user"))
            case TransitionRecord():
                made.append(replace(record, reason=HOSTILE, before_address=HOSTILE))
            case Notification():
                made.append(replace(record, detail=HOSTILE, episode_id=episode.id))
            case _:
                made.append(record)
    at = made.index(episode)
    made[at] = replace(episode, before_address=HOSTILE, after_address=HOSTILE, facts=[HOSTILE, *episode.facts])
    return made


def hostile_evidence(sidecar: Sidecar) -> list[AnyRecord]:
    """Processes call themselves what they like, and Flink's answers hold what users call their jobs."""
    return [
        captured(
            sidecar, subject=HOSTILE, detail=HOSTILE, file=HOSTILE, observer=HOSTILE, attributes={HOSTILE: HOSTILE}
        )
    ]


def hostile_outcomes(sidecar: Sidecar) -> list[AnyRecord]:
    """Logs and Events hold anything; so do the names of jobs and TaskManagers."""
    episode = sidecar.episodes()[0]
    reasons = [HOSTILE.replace("x", "y")]  # these may be longer: they may have a path
    job = {"name": HOSTILE, "reasons": reasons, "state": HOSTILE, "outcome": HOSTILE}
    return [
        death(episode, facts=[HOSTILE], fault=HOSTILE, pod=HOSTILE),
        recovery(episode, reasons=reasons, task_managers_after=1, task_managers_missing=[HOSTILE, HOSTILE]),
        *(recovery(episode, job_id, **job) for job_id in (OTHER_JOB, HOSTILE)),
    ]


def storm(sidecar: Sidecar, jobs: int) -> list[AnyRecord]:
    """What was recorded, had so many jobs more moved in the first episode."""
    end = sidecar.records.index(sidecar.episodes()[0])
    job = next(record for record in sidecar.transitions() if record.job_id)
    moved = [replace(job, id=record_id("job", n), job_id=f"{n:032x}") for n in range(jobs)]
    return [*sidecar.records[:end], *moved, *sidecar.records[end:]]


def _with(sidecar: Sidecar, components: dict[ComponentId, ComponentState]) -> Snapshot:
    cluster = replace(sidecar.state.clusters[CLUSTER], components=components)
    return Snapshot(sidecar.moment, replace(sidecar.state, clusters={CLUSTER: cluster}))
