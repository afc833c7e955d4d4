"""The handover: what a sidecar leaves in the store for the one that takes its place, whose folder may be empty.

A sidecar in a Flink pod ends with the pod, and its journal may end with it. What the next one needs is kept outside: who led, the failover
in progress, what was notified and what was not. It is the journal's rows of one cluster, so it is read, migrated and checked as they are.

Others can write it. It is bounded, its times may not lie in the future, its alerts get their labels from the reader's own rules, and no
text of a message is in it: messages are composed anew.
"""

import re
import zlib
from base64 import b64decode, b64encode
from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import islice
from typing import Final

from msgspec import DecodeError, Raw, Struct, json
from msgspec.structs import replace

from sidecar.core.alerting import grouping
from sidecar.core.alerting.alerts import Alerts, Group, Member, Reason
from sidecar.core.cluster import episodes, plans, succession
from sidecar.core.cluster.episodes import Absence, Episode
from sidecar.core.cluster.state import ClusterState, ComponentState, View
from sidecar.core.delivery.outbox import Delivery
from sidecar.core.errors import OperatorError
from sidecar.core.flink.leadership import ComponentId, ConfigMapPosition, Position
from sidecar.core.journal_migrations import FORMAT, migrated
from sidecar.core.journal_rows import Row, assemble, changes
from sidecar.core.moment import SECOND, Moment
from sidecar.core.pods import merged
from sidecar.core.policy.policy import Policy
from sidecar.core.rebase import rebased
from sidecar.core.sanitize import clean
from sidecar.core.state import State

MOST_BYTES: Final = 192 << 10
"""Of the document."""
_SIZES: Final = (50_000, 5_000, 1_000, 200, 50, 0)
"""So many jobs are tried to fit, those of the failover in progress first, and so many alerts of each group."""
MOST_UNPACKED: Final = 8 << 20
KEPT: Final = 7 * 24 * 3600 * SECOND
"""One that is older is not taken over."""
CLOCK_SKEW: Final = 2 * 3600 * SECOND
"""By so much the clocks of two nodes may differ."""
LONGEST_NAME: Final = 1000
_ID: Final = re.compile(r"[0-9a-f-]{36}")
_NAME: Final = re.compile(r"[A-Za-z0-9_.-]{1,64}")
_DESTINATION: Final = re.compile(r"[A-Za-z0-9_.-]{1,64}#[0-9]{1,4}")

_KINDS: Final = frozenset(
    {
        *("episode", "last_episode", "standby", "component", "lapsed", "pod", "operated", "disruption"),
        *("group", "failovers"),
    }
)
"""Of rows. The view, coverage and evidence are each observer's own; a delivery holds text."""


class HandoverError(OperatorError):
    """The document cannot be used: one line that says why."""


class Handover(Struct, frozen=True):
    """What one sidecar knew of one cluster when it wrote it."""

    observer: str
    alive: Moment
    """When it was written: until then its writer is known to have watched."""
    ended: bool
    """Whether its writer ended in order after it."""
    cluster: ClusterState
    alerts: Alerts
    jobs_left_out: int = 0

    def gist(self) -> object:
        """What two sidecars that observe the same have in common, to be compared: without times, and without alerts about themselves."""
        components = {
            component: (known.last_known, _term(known.last_position), _part(known.absence), known.registered)
            for component, known in self.cluster.components.items()
        }
        alerts = {
            (fingerprint, key, member.notified, member.alert.ended is None)
            for fingerprint, group in self.alerts.groups.items()
            for key, member in group.members.items()
            if "observer" not in member.alert.labels
        }
        failovers = _progress(self.cluster.episode), _progress(self.cluster.last_episode)
        return components, failovers, alerts, {host: pod.name for host, pod in self.cluster.pods.items()}

    @property
    def leaders(self) -> int:
        """How many leaders it knows."""
        return sum(1 for known in self.cluster.components.values() if known.last_known)


class _Document(Struct, frozen=True):
    """Its JSON. `rows`: kind, key, value."""

    format: int
    observer: str
    alive: Moment
    ended: bool
    rows: list[tuple[str, Raw, Raw]]
    jobs_left_out: int = 0


_DOCUMENT: Final = json.Decoder(_Document)


def of(policy: Policy, state: State, cluster_id: str, at: Moment, *, ended: bool = False) -> Handover:
    """What is to be handed over of one cluster now."""
    cluster = succession.hand_over(policy, cluster_id, state.clusters[cluster_id], at)
    undelivered = _with_undelivered(state.alerts.groups, state.outbox.values())
    groups = _with_members(undelivered, lambda member: member.alert.cluster_id == cluster_id)
    failovers = state.alerts.failovers.get(cluster_id)
    alerts = Alerts(groups=groups, failovers={cluster_id: failovers} if failovers else {})
    return Handover(policy.observer, at, ended, cluster, alerts)


def written(cluster_id: str, handover: Handover) -> bytes:
    """The document: JSON, compressed (gzip), as base64. As much of a storm as fits: MOST_BYTES."""
    jobs = sorted(
        (item for item in handover.cluster.components.items() if item[0].job_id),
        key=lambda item: not _has_part(item[1], handover.cluster.episode),
    )
    for most in _SIZES:
        content = _packed(cluster_id, _cut(handover, dict(jobs[:most]), most))
        if len(content) <= MOST_BYTES:
            return content
    raise HandoverError(f"{len(content)} bytes are more than the {MOST_BYTES >> 10} KiB that it may have")


def read(content: bytes, cluster_id: str, now: Moment) -> Handover | None:
    """The handover in a document; None if there is none. Raises HandoverError: not ours, from a newer version, or not of this time."""
    if not content:
        return None
    document = _unpacked(content)
    if document.format > FORMAT:
        raise HandoverError(
            f"it was written by a newer version (format {document.format}, this version reads up to {FORMAT})"
        )
    alive = document.alive
    if alive.wall > now.wall + CLOCK_SKEW:
        raise HandoverError("it says that it was written in the future: check the clocks of the nodes")
    if alive.wall < now.wall - KEPT:
        raise HandoverError(f"it is older than {KEPT // (24 * 3600 * SECOND)} days")
    found = (Row(kind, bytes(key), bytes(value)) for kind, key, value in document.rows if kind in _KINDS)
    view = Row("view", json.encode(cluster_id), json.encode(View()))
    state, problems = assemble(migrated([view, *found], document.format))
    cluster = state.clusters[cluster_id]
    cluster = replace(cluster, pods=merged({}, cluster.pods), disruptions=plans.latest(cluster.disruptions))
    if problems or any(moment.steady > alive.steady for moment in _moments(cluster, state.alerts)):
        raise HandoverError(problems[0] if problems else "it has times that are later than itself")
    observer = clean(document.observer, LONGEST_NAME)
    alerts = replace(state.alerts, groups={key: _plausible(group) for key, group in state.alerts.groups.items()})
    return Handover(observer, alive, document.ended, cluster, alerts, document.jobs_left_out)


def _plausible(group: Group) -> Group:
    """The group; unless it has only names of ours, without an incident: of what a reader's rules do not have, its names are told."""
    names = _ID.fullmatch(group.incident), *map(_DESTINATION.fullmatch, group.opened_at)
    rules = (_NAME.fullmatch(member.alert.rule) for member in group.members.values())
    return group if all(names) and all(rules) else replace(group, incident="", opened_at=())


def is_watched(known: ClusterState | None) -> bool:
    """Whether a cluster has been watched: what a handover says of it is out of date then. A sidecar that was killed before it had read the
    handover leaves a journal with a cluster that was not.
    """
    return known is not None and (known.ever_led or known.view.connection is not None)


def adopt(
    policy: Policy, state: State, cluster_id: str, handover: Handover, now: Moment
) -> tuple[State, Mapping[str, Group]]:
    """The state that goes on from the handover, and the groups that it was left. If this sidecar watches the cluster already, it only
    learns how the failover in progress began.
    """
    known = state.clusters.get(cluster_id)
    if not policy.watches(cluster_id):
        return state, {}
    # The other process's steady clock began elsewhere: between the two, the wall clock says how much time passed.
    by = now.steady - handover.alive.steady - max(0, now.wall - handover.alive.wall)
    if known and is_watched(known):
        cluster = succession.informed(known, rebased(handover.cluster.episode, by), handover.observer)
        if (pods := merged(known.pods, handover.cluster.pods)) is not known.pods:
            cluster = replace(cluster, pods=pods)
        return state if cluster is known else replace(state, clusters={**state.clusters, cluster_id: cluster}), {}
    cluster = succession.take_over(rebased(handover.cluster, by), handover.observer, now)
    cluster = replace(cluster, pods=merged(cluster.pods, known.pods if known else {}))
    if known and (operated := known.operated):  # read before the handover was
        cluster = replace(cluster, operated=plans.observed(cluster.operated, operated.deployment, now))
    own = handover.observer == policy.observer
    groups = _with_members(handover.alerts.groups, lambda member: _is_taken(member, cluster_id, own=own))
    taken = grouping.rerouted(rebased(replace(handover.alerts, groups=groups), by), policy, now)
    alerts = replace(
        state.alerts,
        groups=_merged(state.alerts.groups, taken.groups),
        failovers={**taken.failovers, **state.alerts.failovers},
    )
    return replace(state, clusters={**state.clusters, cluster_id: cluster}, alerts=alerts), groups


def _term(position: Position | None) -> object:
    if isinstance(position, ConfigMapPosition):
        return position.path, position.uid, position.holder_identity, position.acquire_time
    return position


def _part(absence: Absence | None) -> object:
    return absence and (absence.episode_id, episodes.is_away(absence), absence.leaders)


def _progress(episode: Episode | None) -> object:
    """How far an episode is, and whether it is known how it began."""
    return episode and (episode.id, episode.away, episode.jobs_away, episode.facts.unseen, episode.facts.orderly)


def _has_part(known: ComponentState, episode: Episode | None) -> bool:
    return episode is not None and episodes.has_part(known.absence, episode)


def _cut(handover: Handover, jobs: Mapping[ComponentId, ComponentState], most: int) -> Handover:
    """The handover with these `jobs` alone, and with at most so many alerts in a group."""
    own = {component: known for component, known in handover.cluster.components.items() if not component.job_id}
    kept = {**own, **jobs}
    groups = {
        fingerprint: replace(group, members=dict(islice(group.members.items(), max(most, 1))))
        for fingerprint, group in handover.alerts.groups.items()
    }
    return replace(
        handover,
        cluster=replace(handover.cluster, components=kept),
        alerts=replace(handover.alerts, groups=groups),
        jobs_left_out=len(handover.cluster.components) - len(kept),
    )


def _with_undelivered(groups: Mapping[str, Group], deliveries: Iterable[Delivery]) -> dict[str, Group]:
    """`groups` as if nothing in the outbox had been notified. Destinations that did get it are known by the ledger.

    An incident that has not been opened yet is not closed: what opens it comes last. One that its group has no more is closed for itself.
    """
    found = dict(groups)
    for delivery in sorted(deliveries, key=lambda each: not each.is_closing):
        if delivery.owed:
            closes = delivery.is_closing or delivery.reason is Reason.CONFIGURATION_CHANGED
            known = found.get(delivery.fingerprint)
            is_another = closes and known is not None and known.incident not in {"", delivery.incident}
            key = delivery.incident if is_another else delivery.fingerprint
            known = found.get(key) or Group("", delivery.group_labels, incident=delivery.incident)
            if closes:
                shown = tuple(dict.fromkeys((*known.opened_at, delivery.destination)))
                known = replace(known, incident=delivery.incident, opened_at=shown)
            members = {}
            for owed in delivery.owed:
                member = known.members.get(owed.alert.id, owed)  # it may have ended meanwhile
                members[owed.alert.id] = replace(member, notified=owed.notified, closes=owed.closes)
            due = delivery.next_at if delivery.is_closing else delivery.queued_at.steady
            found[key] = replace(
                known,
                members={**known.members, **members},
                flush_at=due if known.flush_at is None else min(due, known.flush_at),
                notified_at=_notified_at(known, delivery),
            )
    return found


def _notified_at(group: Group, delivery: Delivery) -> int | None:
    """When the group was notified, so that the next sidecar gives `delivery` the same reason."""
    if delivery.is_closing:
        return group.notified_at
    return None if delivery.reason is Reason.FIRST else group.notified_at or delivery.queued_at.steady


def _with_members(groups: Mapping[str, Group], wanted: Callable[[Member], bool]) -> dict[str, Group]:
    """The groups with these alerts alone. One that has none left is dropped; one that had none stays: it says when it was notified."""
    found = {}
    for fingerprint, group in groups.items():
        members = {key: member for key, member in group.members.items() if wanted(member)}
        if members or not group.members:
            found[fingerprint] = replace(group, members=members)
    return found


def _is_taken(member: Member, cluster_id: str, *, own: bool) -> bool:
    """Whether the alert is this cluster's, and not about another observer."""
    return member.alert.cluster_id == cluster_id and (own or "observer" not in member.alert.labels)


def _merged(groups: Mapping[str, Group], taken: Mapping[str, Group]) -> dict[str, Group]:
    """A group may hold alerts of several clusters, each of which is handed over by itself."""
    merged = {**groups, **taken}
    for fingerprint in groups.keys() & taken.keys():
        group = taken[fingerprint]
        merged[fingerprint] = replace(group, members={**group.members, **groups[fingerprint].members})
    return merged


def _moments(cluster: ClusterState, alerts: Alerts) -> Iterator[Moment]:
    """The times that durations are counted from."""
    for known in cluster.components.values():
        yield known.since
    for episode in (cluster.episode, cluster.last_episode):
        if episode:
            yield from (episode.opened_at, episode.moved_at)
    yield from (disruption.at for disruption in cluster.disruptions.values())
    if operated := cluster.operated:
        times = operated.changed_at, operated.asked_at, operated.began, operated.ended
        yield from filter(None, (*times, operated.unread_since, operated.unwanted_since, operated.wanted_since))
    for group in alerts.groups.values():
        yield from (member.alert.began for member in group.members.values())


def _packed(cluster_id: str, handover: Handover) -> bytes:
    state = State({cluster_id: handover.cluster}, handover.alerts)
    rows = [
        (row.kind, Raw(row.key), Raw(row.value)) for row in changes(State(), state) if row.kind in _KINDS and row.value
    ]
    document = _Document(FORMAT, handover.observer, handover.alive, handover.ended, rows, handover.jobs_left_out)
    packer = zlib.compressobj(wbits=31)  # gzip: `base64 -d | gunzip` shows it
    return b64encode(packer.compress(json.encode(document)) + packer.flush())


def _unpacked(content: bytes) -> _Document:
    unpacker = zlib.decompressobj(wbits=31)
    try:
        text = unpacker.decompress(b64decode(content, validate=True), MOST_UNPACKED)
        if not unpacker.eof:
            raise HandoverError(f"it is cut off, or holds more than {MOST_UNPACKED >> 20} MiB")
        return _DOCUMENT.decode(text)
    except (ValueError, zlib.error, DecodeError, RecursionError):
        raise HandoverError("it is no handover of a sidecar: delete it") from None
