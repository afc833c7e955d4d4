"""The operator's configuration, as the core needs it. Durations are microseconds."""

from collections.abc import Callable, Iterator, Mapping
from enum import StrEnum
from itertools import chain
from typing import Final

from msgspec import Struct

from sidecar.core.moment import SECOND
from sidecar.core.policy.routing import InhibitRule, Route
from sidecar.core.policy.triggers import TRIGGERS, Need, Trigger


class Store(StrEnum):
    """The store of Flink's leaders."""

    ZOOKEEPER = "zookeeper"
    KUBERNETES = "kubernetes"


class Severity(StrEnum):
    """The severity of an alert."""

    INFO = "info"
    WARNING = "warning"
    CRITICAL = "critical"


PLANNED_BUDGET: Final = 300 * SECOND
DRILL_AGE: Final = 90 * 24 * 3600 * SECOND


class Objective(Struct, frozen=True):
    """The service level objective for a cluster's leadership."""

    leadership: float
    """Percent of the time in which the cluster is to be led."""
    window: int
    """The time in which that is to hold (microseconds)."""


class Source(StrEnum):
    """The sources of evidence of a failover."""

    PROCESSES = "processes"
    """Flink's processes that are visible here: thread dumps, py-spy, and the kernel's facts."""
    FLINK_REST = "flink_rest"
    """The leading REST server: the checkpoints from which jobs were restored."""
    LEADER_THREAD_DUMP = "leader_thread_dump"
    """The leading REST server, for a thread dump of its JobManager. It examines every lock, and stops that JVM while it walks the heap."""


class Rule(Struct, frozen=True):
    """An alert rule. Durations are microseconds."""

    alert: str
    on: Trigger
    severity: Severity = Severity.WARNING
    hold_for: int = 0
    """How long the condition must have held (`for`)."""
    count: int = 1
    within: int = 0
    """`episodes`: the period in which `count` failovers fire the rule."""
    planned_budget: int = PLANNED_BUDGET
    """`leader_changed`, `vacant`: how long a planned failover may take until it fires the rule as any other does."""
    summary: "Template | None" = None
    """Makes the title; None: the default title."""
    age: int = DRILL_AGE
    """`drill_overdue`: how old the last drill that has passed may be."""


Template = Callable[[Mapping[str, object]], str]
"""Makes a text from the documented fields. Raises ValueError with one line for people."""


class Feed(Struct, frozen=True):
    """A destination that groups, repeats and deduplicates by itself: an Alertmanager. It gets single alerts, by their labels, from every
    observer, and again while they fire.
    """

    event_duration: int
    """How long an event, which ends at once, fires at the receiver."""


class Destination(Struct, frozen=True):
    """One URL of one receiver, by its index in the configuration. The URL itself is a secret: the core does not get it."""

    receiver: str
    index: int
    send_resolved: bool = True
    in_order: bool = False
    """Whether its messages of one group are sent one after the other: each changes what the service shows of the incident."""
    keeps_incidents: bool = False
    """Whether the service keeps an incident open until it is closed."""
    feed: Feed | None = None
    """None: it gets messages."""
    service: str = ""
    """`slack`, `mailtos`, `webhook`: for people. Empty: not known."""

    @property
    def name(self) -> str:
        """`ops#0`: stable as long as the receiver's list of URLs."""
        return f"{self.receiver}#{self.index}"

    @property
    def shows_incidents(self) -> bool:
        """Whether it shows an incident as open until it is notified of its end."""
        return self.in_order and self.send_resolved


class Heartbeat(Struct, frozen=True):
    """A destination that gets a message at an interval while the sidecar can read the store (a dead man's switch)."""

    destination: Destination
    interval: int


ALL_FOUND: Final = "all-clusters"
"""Used in place of a cluster id in the names of the documents that all found clusters share."""
NO_RECEIVER: Final = Route("")
"""The route without a receiver."""


class Policy(Struct, frozen=True):
    """All that `step` needs besides state and observation."""

    observer: str
    stores: Mapping[str, Store]
    """The clusters that are configured, by cluster id."""
    external_labels: dict[str, str] = {}
    trust_window: int = 3 * SECOND
    rules: tuple[Rule, ...] = ()
    route: Route = NO_RECEIVER
    inhibit_rules: tuple[InhibitRule, ...] = ()
    receivers: Mapping[str, tuple[Destination, ...]] = {}
    heartbeats: tuple[Heartbeat, ...] = ()
    session_timeouts: Mapping[str, int] = {}
    """Flink's session timeout in ZooKeeper by cluster, if it is known."""
    link: str | None = None
    """The URL of the status page."""
    places: Mapping[str, str] = {}
    """The place of each cluster in its store, so that two clusters of one id have different incidents."""
    evidence: frozenset[Source] = frozenset()
    recovery_patience: int = 600 * SECOND
    """How long after all components have a leader again a recovery is assessed."""
    picture_interval: int = 10 * SECOND
    """How often Flink's REST server is asked for a picture, if it is among the evidence."""
    pod_names: frozenset[str] = frozenset()
    """The clusters whose leaders' pods are looked up."""
    plans: frozenset[str] = frozenset()
    """The clusters of which it is read what is meant to happen."""
    deaths: frozenset[str] = frozenset()
    """The clusters of whose JobManagers pods and Events are observed."""
    own_hosts: frozenset[str] = frozenset()
    """The names and addresses of this sidecar's pod or machine."""
    events: frozenset[str] = frozenset()
    """The clusters whose failovers become Kubernetes Events."""
    finds: Store | None = None
    """The store in which clusters are found; None: only those of `stores` are watched."""
    silence_documents: frozenset[str] = frozenset()
    """The documents of silences that can be read, by the id of their cluster, or ALL_FOUND."""
    longest_silence: int = 30 * 24 * 3600 * SECOND
    objectives: Mapping[str, Objective] = {}
    """The objectives of clusters that have their own, by cluster."""
    objective: Objective | None = None
    """The objective of all other clusters."""
    lacks: frozenset[Need] = frozenset()
    """The sources that the configuration has for none of its clusters."""

    def idle_rules(self) -> Mapping[Need, list[str]]:
        """The rules that cannot fire with this configuration, by what they need."""
        idle: dict[Need, list[str]] = {}
        for rule in self.rules:
            if (need := TRIGGERS[rule.on].needs) in self.lacks:
                idle.setdefault(need, []).append(rule.alert)
        return idle

    def objective_of(self, cluster_id: str) -> Objective | None:
        """The objective of a cluster; None: it has none."""
        return self.objectives.get(cluster_id, self.objective)

    def services(self) -> Mapping[str, str]:
        """The service of each destination, by its name."""
        return {destination.name: destination.service for destination in self._destinations()}

    def failovers_counted_within(self) -> int:
        """The longest time (microseconds) in which a rule counts failovers; 0: no rule does."""
        return max((rule.within for rule in self.rules if rule.on is Trigger.EPISODES), default=0)

    def incident_destinations(self) -> Mapping[str, Destination]:
        """The destinations that show incidents, by their names."""
        return {destination.name: destination for destination in self._destinations() if destination.shows_incidents}

    def feeds(self) -> list[Destination]:
        """The destinations that get single alerts."""
        return [destination for destination in self._destinations() if destination.feed]

    def _destinations(self) -> Iterator[Destination]:
        return chain.from_iterable(self.receivers.values())

    def watches(self, cluster_id: str) -> bool:
        """Whether the cluster is configured, or may be one that was found."""
        return cluster_id in self.stores or self.finds is not None

    def store_of(self, cluster_id: str) -> Store:
        return self.stores[cluster_id] if self.finds is None else self.stores.get(cluster_id, self.finds)

    def silences_of(self, cluster_id: str) -> str | None:
        """The document with the silences of a cluster's alerts; None: there is none."""
        name = cluster_id if self.finds is None else ALL_FOUND
        return name if name in self.silence_documents else None
