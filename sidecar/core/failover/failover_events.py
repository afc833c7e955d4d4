"""Kubernetes Events about failovers: what `kubectl describe` shows at the ConfigMap of the leaders, and at a JobManager's pod.

They are a courtesy to people with a terminal: the notification and the audit record are the message.
"""

from collections.abc import Iterator, Sequence
from enum import StrEnum
from typing import Final

from msgspec import Struct

from sidecar.core.cluster.cluster_state import ClusterState
from sidecar.core.cluster.draft import Happened
from sidecar.core.cluster.record_lines import episode_line, move
from sidecar.core.failover.causes import Cause
from sidecar.core.flink.leadership import CLUSTER_COMPONENTS, Component, ComponentId, ConfigMapPosition
from sidecar.core.leadership.transitions import Transition
from sidecar.core.moment import Timestamp, timestamp
from sidecar.core.pods import name_at, pod_at, spelled
from sidecar.core.records import EpisodeRecord
from sidecar.core.sanitize import clean

MOST_BYTES: Final = 1024
"""UTF-8 bytes of a message: more is refused by `events.k8s.io`."""


class EventReason(StrEnum):
    """The reason of an Event: what happened, in one word."""

    LEADER_LOST = "FlinkLeaderLost"
    FAILED_OVER = "FlinkFailedOver"
    LEADER_BACK = "FlinkLeaderBack"
    """A leader leads again that led before: no failover."""


class EventSubject(Struct, frozen=True):
    """The object that an Event is about. Without its uid, `kubectl describe` does not show the Event."""

    kind: str
    name: str
    uid: str


class KubernetesEvent(Struct, frozen=True):
    """One Event about one failover. Every observer of the failover makes the same one, but for its words."""

    cluster_id: str
    subject: EventSubject
    reason: EventReason
    message: str
    at: Timestamp
    episode_id: str


def events(
    cluster_id: str, before: ClusterState | None, after: ClusterState, happened: Sequence[Happened]
) -> Iterator[KubernetesEvent]:
    """The Events about the failovers that this step opened and closed."""
    if first := _opening(before, after, happened):
        former = first.last_known.address if first.last_known else None
        opened = EventReason.LEADER_LOST, _loss(first, after), timestamp(first.at.wall), first.episode_id or ""
        yield from _event_about(cluster_id, after, former, *opened)
    for record in happened:
        if isinstance(record, EpisodeRecord) and record.cause != Cause.OBSERVER_BLIND:
            message = ". ".join([episode_line(record), *(fact.removesuffix(".") for fact in record.facts)])
            reason = EventReason.FAILED_OVER if record.failovers else EventReason.LEADER_BACK
            yield from _event_about(
                cluster_id, after, record.after_address, reason, message, record.closed_at, record.id
            )


def _opening(before: ClusterState | None, after: ClusterState, happened: Sequence[Happened]) -> Transition | None:
    """The transition with which this step opened an episode."""
    opened, last = after.episode, before.episode if before else None
    if opened is None or (last and last.id == opened.id):
        return None
    own = (
        transition for transition in happened if isinstance(transition, Transition) and not transition.component.job_id
    )
    return next((transition for transition in own if transition.episode_id == opened.id), None)


def _loss(transition: Transition, cluster: ClusterState) -> str:
    """The text of how the failover began."""
    leaders = transition.last_known, transition.leader
    addresses = [leader.address if leader else None for leader in leaders]
    before, after = (address and spelled(address, name_at(cluster.pods, address)) for address in addresses)
    if after:
        text = f"{transition.component} has another leader: {move(before, after)}"
    else:
        why = f": {transition.vacancy}" if transition.vacancy else ""
        text = f"{transition.component} lost its leader {clean(before)}{why}"
    return f"{text} [{transition.episode_id}]"


def _event_about(
    cluster_id: str,
    cluster: ClusterState,
    address: str | None,
    reason: EventReason,
    message: str,
    at: Timestamp,
    episode_id: str,
) -> Iterator[KubernetesEvent]:
    """One Event at the ConfigMap of the leaders, and one at the pod of `address`, if that is known."""
    text = clean(message, MOST_BYTES).encode()[:MOST_BYTES].decode(errors="ignore")
    pod = pod_at(cluster.pods, address)
    for subject in (_config_map(cluster), EventSubject("Pod", pod.name, pod.uid) if pod and pod.uid else None):
        if subject:
            yield KubernetesEvent(cluster_id, subject, reason, text, at, episode_id)


def _config_map(cluster: ClusterState) -> EventSubject | None:
    """The ConfigMap in which the dispatcher's leader was last observed, else that of another component."""
    for component in (ComponentId(Component.DISPATCHER), *CLUSTER_COMPONENTS):
        state = cluster.components.get(component)
        if state and isinstance(position := state.last_position, ConfigMapPosition):
            return EventSubject("ConfigMap", position.name, position.uid)
    return None
