"""One immutable snapshot of the owner's state, published after each turn, for every other thread."""

from collections.abc import Iterable, Mapping
from datetime import datetime
from itertools import product
from typing import Final, TypeVar, cast

from msgspec import Struct
from msgspec.structs import replace

from sidecar.core import evidence
from sidecar.core.alerting.alerts import Reason
from sidecar.core.cluster.causes import Cause
from sidecar.core.cluster.leadership_table import Kind
from sidecar.core.flink.leadership import Component
from sidecar.core.moment import Moment
from sidecar.core.observations import DeliveryOutcome
from sidecar.core.policy.policy import Policy
from sidecar.core.records import AnyRecord, EpisodeRecord, Evidence, Notification, TransitionRecord
from sidecar.core.state import State

_Labels = TypeVar("_Labels", bound=tuple[str, ...])

DELAY_BUCKETS: Final = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 60.0)
"""Upper bounds in seconds of the histogram "store write → seen"."""

_SEEN_WRITES: Final = frozenset({Kind.GRANTED.value, Kind.CHANGED.value, Kind.READDRESSED.value})


_UNTOLD: Final = {DeliveryOutcome.HELD, DeliveryOutcome.UNDELIVERABLE}
"""Outcomes of an attempt that become another one, or none, in the record."""
OUTCOMES: Final = ("queued", "gave_up", *(outcome.value for outcome in DeliveryOutcome if outcome not in _UNTOLD))
_TOLD: Final = tuple(
    (reason.value, outcome)
    for reason in Reason
    if reason is not Reason.HEARTBEAT
    for outcome in (("suppressed",) if reason.value.startswith("SUPPRESSED") else OUTCOMES)
)
"""Reasons of notifications, each with what may become of them."""


class Delays(Struct, frozen=True):
    """How long it took from the store's write until it was seen: one count per bucket (the last: longer than all), and their sum."""

    counts: tuple[int, ...] = (0,) * (len(DELAY_BUCKETS) + 1)
    total: float = 0.0

    def with_one(self, delay: float) -> "Delays":
        at = next((place for place, bound in enumerate(DELAY_BUCKETS) if delay <= bound), len(DELAY_BUCKETS))
        return Delays((*self.counts[:at], self.counts[at] + 1, *self.counts[at + 1 :]), self.total + delay)


class Tally(Struct, frozen=True):
    """What has been counted since the process began."""

    transitions: Mapping[tuple[str, str, str], int] = {}
    """By cluster, component, kind."""
    unobserved: int = 0
    notifications: Mapping[tuple[str, str, str], int] = {}
    """By receiver, reason, outcome."""
    delays: Delays = Delays()
    episodes: Mapping[tuple[str, str], int] = {}
    """Those that are over, by cluster, cause."""
    evidence: Mapping[tuple[str, str, str], int] = {}
    """Pieces, by cluster, kind, outcome."""

    def begun(self, policy: Policy) -> "Tally":
        """The tally with a 0 for all that may be counted under `policy` and has not been: who counts from the first one misses it."""
        clusters = list(policy.stores)
        told = {destination.receiver for at in policy.receivers.values() for destination in at}
        told -= {beat.destination.receiver for beat in policy.heartbeats}
        pieces = product(clusters, evidence.EvidenceKind, evidence.CaptureOutcome) if policy.evidence else ()
        return replace(
            self,
            transitions=_from_0(product(clusters, Component, Kind), self.transitions),
            episodes=_from_0(product(clusters, Cause), self.episodes),
            notifications=_from_0(
                ((receiver, *known) for receiver in sorted(told) for known in _TOLD), self.notifications
            ),
            evidence=_from_0(pieces, self.evidence),
        )

    def with_records(self, records: Iterable[AnyRecord]) -> "Tally":
        """The tally after these records too."""
        transitions, notifications, episodes = dict(self.transitions), dict(self.notifications), dict(self.episodes)
        evidence = dict(self.evidence)
        unobserved, delays = self.unobserved, self.delays
        for record in records:
            match record:
                case TransitionRecord(cluster_id=cluster_id, component=component, kind=kind):
                    key = (cluster_id, component, kind)
                    transitions[key] = transitions.get(key, 0) + 1
                    unobserved += record.unobserved_at_least or 0
                    if kind in _SEEN_WRITES and record.written_at:
                        delays = delays.with_one(_seconds_between(record.written_at, record.observed_at))
                case EpisodeRecord():
                    ended = (record.cluster_id, record.cause)
                    episodes[ended] = episodes.get(ended, 0) + 1
                case Notification():
                    key = (record.receiver, record.reason, record.outcome)
                    notifications[key] = notifications.get(key, 0) + 1
                case Evidence():
                    key = (record.cluster_id, record.kind, record.outcome)
                    evidence[key] = evidence.get(key, 0) + 1
        return Tally(transitions, unobserved, notifications, delays, episodes, evidence)


class Health(Struct, frozen=True):
    """How the sidecar itself is."""

    journal_problem: str | None = None
    """Why records cannot be written to disk at present."""
    unsaved_records: int = 0
    """Records that wait in memory for the journal."""
    lost_records: int = 0
    """Records given up because too many waited."""
    spool_pending: int = 0
    """Records in the journal that are in no segment yet."""
    rules_problem: str | None = None
    """Why the rules on disk are not those that count."""
    unprocessed: int = 0
    """Observations that could not be processed, since the process began."""


class Snapshot(Struct, frozen=True):
    """The owner's state at one moment."""

    at: Moment
    state: State = State()
    tally: Tally = Tally()
    health: Health = Health()

    @property
    def ready(self) -> bool:
        """Every watched cluster has been seen whole, and can be seen now."""
        clusters = self.state.clusters.values()
        return bool(clusters) and all(cluster.in_sight for cluster in clusters)


def _from_0(known: Iterable[tuple[str, ...]], counted: Mapping[_Labels, int]) -> dict[_Labels, int]:
    """What was counted, and 0 for all that is `known` to be counted, by the plain text of their labels."""
    begun = {cast("_Labels", tuple(str(label) for label in labels)): 0 for labels in known}
    return begun | dict(counted)


def _seconds_between(earlier: str, later: str) -> float:
    """Never negative: the store's clock and ours differ."""
    return max(0.0, (datetime.fromisoformat(later) - datetime.fromisoformat(earlier)).total_seconds())
