"""One immutable snapshot of the owner's state, published after each turn, for every other thread."""

from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from datetime import datetime
from itertools import product
from typing import Final, TypeVar, cast

from msgspec import Struct
from msgspec.structs import replace

from sidecar.core import captures
from sidecar.core.alerting.alerts import Reason
from sidecar.core.alerting.outbox import NOT_RESENT, SUPERSEDED
from sidecar.core.failover.causes import Cause
from sidecar.core.flink.leadership import Component
from sidecar.core.leadership.transitions import Kind
from sidecar.core.moment import Moment
from sidecar.core.observations import DeliveryOutcome
from sidecar.core.policy.policy import Policy
from sidecar.core.records import AnyRecord, EpisodeRecord, Evidence, Notification, TransitionRecord
from sidecar.core.state import State

_Labels = TypeVar("_Labels", bound=tuple[str, ...])

DELAY_BUCKETS: Final = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 60.0)
"""Upper bounds in seconds of the histogram "store write → observed"."""
_WRITTEN_BY_LEADER: Final = frozenset({Kind.GRANTED.value, Kind.CHANGED.value, Kind.READDRESSED.value})
_UNRECORDED: Final = {DeliveryOutcome.HELD, DeliveryOutcome.UNDELIVERABLE}
"""Outcomes of an attempt that are recorded as another outcome, or not at all."""
OUTCOMES: Final = (
    "queued",
    "gave_up",
    SUPERSEDED,
    *(outcome.value for outcome in DeliveryOutcome if outcome not in _UNRECORDED),
)
_NOTIFICATION_LABELS: Final = tuple(
    (reason.value, outcome)
    for reason in Reason
    if reason not in {Reason.HEARTBEAT, Reason.RESEND}
    for outcome in (("suppressed",) if reason.value.startswith("SUPPRESSED") else OUTCOMES)
)
"""Every reason and outcome that a notification may be recorded with."""
_RESEND_LABELS: Final = tuple((Reason.RESEND.value, outcome) for outcome in ("gave_up", *NOT_RESENT))


class Delays(Struct, frozen=True):
    """Seconds from a store's write until it was observed: one count per bucket (the last: longer than all), and their sum."""

    counts: tuple[int, ...] = (0,) * (len(DELAY_BUCKETS) + 1)
    total: float = 0.0

    def with_one(self, delay: float) -> "Delays":
        at = next((place for place, bound in enumerate(DELAY_BUCKETS) if delay <= bound), len(DELAY_BUCKETS))
        return Delays((*self.counts[:at], self.counts[at] + 1, *self.counts[at + 1 :]), self.total + delay)


class Tally(Struct, frozen=True):
    """Counters since the process began."""

    transitions: Mapping[tuple[str, str, str], int] = {}
    """By cluster, component, kind."""
    unobserved: int = 0
    notifications: Mapping[tuple[str, str, str], int] = {}
    """By receiver, reason, outcome."""
    delays: Delays = Delays()
    episodes: Mapping[tuple[str, str], int] = {}
    """Closed episodes, by cluster, cause."""
    evidence: Mapping[tuple[str, str, str], int] = {}
    """Pieces, by cluster, kind, outcome."""
    last_episodes: Mapping[str, EpisodeRecord] = {}
    """The last closed episode of each cluster."""

    def begun(self, policy: Policy, clusters: Collection[str]) -> "Tally":
        """The tally with a 0 for each counter of `policy` and `clusters` that has not counted yet: a counter that starts at 1 hides its
        first increase."""
        receivers = {destination.receiver for at in policy.receivers.values() for destination in at}
        receivers -= {beat.destination.receiver for beat in policy.heartbeats}
        labelled = [(receiver, *labels) for receiver in sorted(receivers) for labels in _NOTIFICATION_LABELS]
        feeds = sorted({destination.receiver for destination in policy.feeds()})
        labelled += ((receiver, *labels) for receiver in feeds for labels in _RESEND_LABELS)
        kinds = sorted({kind for source in policy.evidence for kind in captures.KINDS[source]})
        pieces = product(clusters, kinds, captures.CaptureOutcome)
        return replace(
            self,
            transitions=_counters(product(clusters, Component, Kind), self.transitions),
            episodes=_counters(product(clusters, Cause), self.episodes),
            notifications=_counters(labelled, self.notifications),
            evidence=_counters(pieces, self.evidence),
        )

    def without(self, clusters: Collection[str]) -> "Tally":
        """The tally without what was counted of clusters that were removed."""
        return replace(
            self,
            transitions={key: count for key, count in self.transitions.items() if key[0] not in clusters},
            episodes={key: count for key, count in self.episodes.items() if key[0] not in clusters},
            evidence={key: count for key, count in self.evidence.items() if key[0] not in clusters},
            last_episodes={key: last for key, last in self.last_episodes.items() if key not in clusters},
        )

    def with_records(self, records: Iterable[AnyRecord]) -> "Tally":
        """The tally after these records too."""
        transitions, notifications = Counter(self.transitions), Counter(self.notifications)
        episodes, evidence = Counter(self.episodes), Counter(self.evidence)
        unobserved, delays = self.unobserved, self.delays
        last_episodes = dict(self.last_episodes)
        for record in records:
            match record:
                case TransitionRecord():
                    transitions[record.cluster_id, record.component, record.kind] += 1
                    unobserved += record.unobserved_at_least or 0
                    if record.kind in _WRITTEN_BY_LEADER and record.written_at:
                        delays = delays.with_one(_seconds_between(record.written_at, record.observed_at))
                case EpisodeRecord():
                    episodes[record.cluster_id, record.cause] += 1
                    last_episodes[record.cluster_id] = record
                case Notification():
                    notifications[record.receiver, record.reason, record.outcome] += 1
                case Evidence():
                    evidence[record.cluster_id, record.kind, record.outcome] += 1
        return Tally(transitions, unobserved, notifications, delays, episodes, evidence, last_episodes)


class Health(Struct, frozen=True):
    """Problems and backlogs of the sidecar itself."""

    journal_problem: str | None = None
    """Why records cannot be written to disk at present."""
    unsaved_records: int = 0
    """Records that wait in memory for the journal."""
    lost_records: int = 0
    """Records dropped because too many waited."""
    spool_pending: int = 0
    """Records in the journal that are not in a segment yet."""
    rules_problem: str | None = None
    """Why the rules on disk are not the active ones."""
    unprocessed: int = 0
    """Observations that could not be processed, since the process began."""
    quarantined: tuple[str, ...] = ()
    """What lately raised an error and is left out: its name and the error, a line each."""
    quarantines: int = 0
    """How many times something was, since the process began."""


class Snapshot(Struct, frozen=True):
    """The owner's state at one moment."""

    at: Moment
    state: State = State()
    tally: Tally = Tally()
    health: Health = Health()
    policy: Policy = Policy("", {})
    """The configuration at that moment."""

    @property
    def ready(self) -> bool:
        """Every watched cluster was read completely, and can be read now."""
        clusters, finder = self.state.clusters.values(), self.state.finder
        is_connected = finder.connected if finder else bool(clusters)
        return is_connected and all(cluster.is_in_sight for cluster in clusters)


def _counters(label_sets: Iterable[tuple[str, ...]], counted: Mapping[_Labels, int]) -> dict[_Labels, int]:
    """The counters, with a 0 for those of `label_sets` that have not counted. Keys are the plain text of their labels."""
    return {cast("_Labels", tuple(map(str, labels))): 0 for labels in label_sets} | dict(counted)


def _seconds_between(earlier: str, later: str) -> float:
    """Never negative: the store's clock and ours differ."""
    return max(0.0, (datetime.fromisoformat(later) - datetime.fromisoformat(earlier)).total_seconds())
