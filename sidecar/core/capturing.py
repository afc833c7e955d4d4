"""Evidence of failovers: when it is captured, of what, and what is recorded of it.

The shell captures, and answers every request once. What was not captured is recorded as well, with the reason.
"""

from collections.abc import Iterable, Iterator, Sequence
from typing import Final

from msgspec.structs import replace

from sidecar.core.captures import Capture, CaptureOutcome, EvidenceItem, EvidenceKind, Occasion
from sidecar.core.cluster.cluster_state import ClusterState
from sidecar.core.cluster.draft import envelope
from sidecar.core.failover.episodes import Episode
from sidecar.core.flink.leadership import Component, ComponentId, Held
from sidecar.core.moment import SECOND, Moment, timestamp
from sidecar.core.observations import EvidenceGathered
from sidecar.core.overlay import with_items
from sidecar.core.policy.policy import Policy, Source
from sidecar.core.quarantine import Quarantine
from sidecar.core.records import Evidence, record_id
from sidecar.core.sanitize import clean
from sidecar.core.state import Append, Effect, Gather, State

SOON: Final = SECOND // 4
"""How long all components and jobs must have had their new leaders before Flink is asked: the message, which waits a few seconds, shall
include the answer."""
CALM: Final = 3 * SECOND
"""How long to wait instead of SOON where some jobs have not changed: in Kubernetes a job's old address stays, and the job may be about to
fail over. Shorter than `episodes.SETTLED`, after which the failover is over."""
PATIENCE: Final = 30 * SECOND
"""How long to wait for jobs without a leader before Flink is asked without them."""
LIMIT: Final = 300 * SECOND
"""A request older than this is not answered any more. Above what the shell lets one wait (120 s) and take (60 s)."""
MOST_ROUNDS: Final = 10
"""The most failovers of one episode whose evidence is captured."""
MOST_JOBS: Final = 20
"""The most jobs requested in a failover of many jobs."""
MOST_PIECES: Final = 100
"""The most pieces of evidence accepted for one request."""
MOST_TOLD: Final = 3
"""The most facts about jobs in one message."""


def ask(policy: Policy, cluster_id: str, cluster: ClusterState, now: Moment) -> tuple[ClusterState, list[Capture]]:
    """The cluster after the evidence of its failover that is due now was requested, and these requests."""
    episode = cluster.episode
    if episode is None or not policy.evidence:
        return cluster, []
    evidence = episode.gathered
    if (latest := min(episode.failovers, MOST_ROUNDS)) > evidence.round:
        evidence = replace(evidence, asked=(), round=latest)  # the next failover has come before this one was over
    due = [Occasion.OPENED, *([Occasion.LED_AGAIN] if _is_led_again(episode, cluster, now) else [])]
    occasions = [occasion for occasion in due if occasion not in evidence.asked]
    if not occasions:
        return cluster, []
    evidence = replace(evidence, asked=(*evidence.asked, *occasions))
    episode = replace(episode, gathered=evidence)
    captures = [_capture(policy, cluster_id, cluster, episode, occasion, now) for occasion in occasions]
    return replace(cluster, episode=episode), [capture for capture in captures if capture]


def with_evidence(cluster: ClusterState, capture: Capture, pieces: Sequence[EvidenceItem]) -> ClusterState:
    """The cluster with these pieces of evidence added to its failover."""
    files = sum(1 for piece in pieces if piece.file)
    details = [
        p.detail for p in pieces if p.detail and (p.kind, p.outcome) == (EvidenceKind.JOB, CaptureOutcome.CAPTURED)
    ]
    for name in ("episode", "last_episode"):
        episode: Episode | None = getattr(cluster, name)
        if episode and episode.id == capture.episode_id:
            evidence = replace(episode.gathered, files=episode.gathered.files + files)
            if details:  # newer than what the failover before this one came to
                evidence = replace(
                    evidence, jobs=tuple(map(clean, details[:MOST_TOLD])), jobs_total=len(details) + capture.jobs_beyond
                )
            cluster = replace(cluster, **{name: replace(episode, gathered=evidence)})
    return cluster


def missing_evidence(capture: Capture, why: str, outcome: CaptureOutcome = CaptureOutcome.LOST) -> list[EvidenceItem]:
    """Stands in for evidence that was not captured, or will not be delivered."""
    if capture.source is Source.PROCESSES:
        return [EvidenceItem(EvidenceKind.PROCESS, "", outcome, why)]
    dump = (
        [EvidenceItem(EvidenceKind.THREAD_DUMP, capture.rest_address or "", outcome, why)]
        if capture.thread_dump
        else []
    )
    return [*(EvidenceItem(EvidenceKind.JOB, job, outcome, why) for job in capture.jobs), *dump]


def evidence_records(
    policy: Policy, capture: Capture, pieces: Iterable[EvidenceItem], at: Moment
) -> Iterator[Evidence]:
    """The records of a request's evidence, one for each piece."""
    for number, piece in enumerate(pieces):
        yield Evidence(
            id=record_id("evidence", capture.id, number, at.wall, at.steady),
            episode_id=capture.episode_id,
            occasion=capture.occasion.value,
            kind=piece.kind.value,
            subject=piece.subject,
            outcome=piece.outcome.value,
            detail=piece.detail,
            file=piece.file,
            size_bytes=piece.size_bytes,
            sha256=piece.sha256,
            attributes=piece.attributes,
            asked_at=timestamp(capture.asked_at.wall),
            **envelope(policy, capture.cluster_id, at),
        )


def _is_led_again(episode: Episode, cluster: ClusterState, now: Moment) -> bool:
    """Whether all have had a leader for long enough. Only readable components count: an unknown leader is not a missing one."""
    if episode.away or not cluster.view.complete:
        return False
    calm = PATIENCE
    if not episode.jobs_away:
        moved = cluster.parts(episode)
        calm = SOON if all(component in moved for component in cluster.components if component.job_id) else CALM
    return now.steady - episode.moved_at.steady >= calm


def _capture(
    policy: Policy, cluster_id: str, cluster: ClusterState, episode: Episode, occasion: Occasion, now: Moment
) -> Capture | None:
    """What to capture on this occasion. None: the operator wants nothing captured then."""
    number, began = episode.gathered.round, episode.opened_at
    key = record_id("capture", policy.observer, episode.id, began.wall, began.steady, occasion, number)
    asked = Capture(key, cluster_id, episode.id, occasion, now, Source.PROCESSES, round=number)
    if occasion is Occasion.OPENED:
        return asked if Source.PROCESSES in policy.evidence else None
    moved = cluster.parts(episode) if Source.FLINK_REST in policy.evidence else {}
    jobs = sorted(component.job_id for component in moved if component.job_id)
    dump = Source.LEADER_THREAD_DUMP in policy.evidence
    if not jobs and not dump:
        return None
    rest = cluster.components[ComponentId(Component.REST_SERVER)].leadership
    address = rest.leader.address if isinstance(rest, Held) else None
    return replace(
        asked,
        source=Source.FLINK_REST,
        rest_address=address,
        jobs=tuple(jobs[:MOST_JOBS]),
        jobs_beyond=len(jobs[MOST_JOBS:]),
        thread_dump=dump,
    )


def tick(policy: Policy, state: State, quarantine: Quarantine, now: Moment) -> tuple[State, list[Effect]]:
    """Request the evidence that is due, before a failover may be over, and record requests that were not answered in time."""
    overdue = [capture for capture in state.captures.values() if now.steady - capture.asked_at.steady >= LIMIT]
    state, effects = give_up(policy, state, overdue, "no result in time", now)
    for name, cluster in state.clusters.items():
        with quarantine.guard("evidence of cluster", name):
            after, captures = ask(policy, name, cluster, now)
            if after is not cluster:
                asked = (
                    {**state.captures, **{capture.id: capture for capture in captures}} if captures else state.captures
                )
                state = replace(state, clusters=with_items(state.clusters, {name: after}), captures=asked)
                effects += map(Gather, captures)
    return state, effects


def take_result(policy: Policy, state: State, answer: EvidenceGathered) -> tuple[State, list[Effect]]:
    """Record the result of a request, unless it was given up before."""
    capture = state.captures.get(answer.capture_id)
    return _complete(policy, state, capture, answer.pieces, answer.at) if capture else (state, [])


def give_up(
    policy: Policy, state: State, captures: Iterable[Capture], why: str, at: Moment
) -> tuple[State, list[Effect]]:
    """Record that these requests will not be answered."""
    effects: list[Effect] = []
    for capture in captures:
        state, more = _complete(policy, state, capture, missing_evidence(capture, why), at)
        effects += more
    return state, effects


def _complete(
    policy: Policy, state: State, capture: Capture, pieces: Sequence[EvidenceItem], at: Moment
) -> tuple[State, list[Effect]]:
    """Complete a request with `pieces`. Without any, the evidence is lost."""
    pieces = pieces or missing_evidence(capture, "no result")
    captures = {key: other for key, other in state.captures.items() if key != capture.id}
    clusters = state.clusters
    if cluster := clusters.get(capture.cluster_id):
        gathered = with_evidence(cluster, capture, pieces)
        clusters = with_items(clusters, {capture.cluster_id: gathered})
    pieces = pieces[:MOST_PIECES]
    if capture.jobs_beyond:
        why = f"{capture.jobs_beyond} more jobs moved, and Flink was not asked for them: {MOST_JOBS} are asked for"
        pieces = [*pieces, EvidenceItem(EvidenceKind.JOB, "others", CaptureOutcome.FAILED, why)]
    records = evidence_records(policy, capture, pieces, at)
    return replace(state, clusters=clusters, captures=captures), [Append(record) for record in records]
