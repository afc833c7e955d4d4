"""Evidence of failovers as time passes: requests are due, are answered, or will not be. `cluster.evidence_requests` decides."""

from collections.abc import Iterable, Sequence

from msgspec.structs import replace

from sidecar.core.cluster import evidence_requests
from sidecar.core.effects import Append, Effect, Gather
from sidecar.core.evidence import Capture, EvidenceItem
from sidecar.core.moment import Moment
from sidecar.core.observations import EvidenceGathered
from sidecar.core.overlay import with_items
from sidecar.core.policy.policy import Policy
from sidecar.core.quarantine import Quarantine
from sidecar.core.state import State


def tick(policy: Policy, state: State, quarantine: Quarantine, now: Moment) -> tuple[State, list[Effect]]:
    """Request the evidence that is due, before a failover may be over, and record requests that were not answered in time."""
    state, effects = give_up(policy, state, evidence_requests.overdue(state.captures, now), "no result in time", now)
    for name, cluster in state.clusters.items():
        with quarantine.guard("evidence of cluster", name):
            after, captures = evidence_requests.ask(policy, name, cluster, now)
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
        state, more = _complete(policy, state, capture, evidence_requests.missing_evidence(capture, why), at)
        effects += more
    return state, effects


def _complete(
    policy: Policy, state: State, capture: Capture, pieces: Sequence[EvidenceItem], at: Moment
) -> tuple[State, list[Effect]]:
    """Complete a request with `pieces`. Without any, the evidence is lost."""
    pieces = pieces or evidence_requests.missing_evidence(capture, "no result")
    captures = {key: other for key, other in state.captures.items() if key != capture.id}
    clusters = state.clusters
    if cluster := clusters.get(capture.cluster_id):
        gathered = evidence_requests.with_evidence(cluster, capture, pieces)
        clusters = with_items(clusters, {capture.cluster_id: gathered})
    all_of_it = [*pieces[: evidence_requests.MOST_PIECES], *evidence_requests.unrequested(capture)]
    records = evidence_requests.records(policy, capture, all_of_it, at)
    return replace(state, clusters=clusters, captures=captures), [Append(record) for record in records]
