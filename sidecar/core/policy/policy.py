"""What the operator decided, as the core needs it. Durations are microseconds."""

from collections.abc import Callable, Mapping
from enum import StrEnum
from typing import Final

from msgspec import Struct

from sidecar.core.moment import SECOND
from sidecar.core.policy.routing import InhibitRule, Route


class Store(StrEnum):
    """Where Flink keeps its leaders."""

    ZOOKEEPER = "zookeeper"
    KUBERNETES = "kubernetes"


class Severity(StrEnum):
    """How much an alert matters."""

    INFO = "info"
    WARNING = "warning"
    CRITICAL = "critical"


class Trigger(StrEnum):
    """What makes a rule fire."""

    LEADER_CHANGED = "leader_changed"
    """Another leader than the last known one leads a component of the cluster itself: A->B or null->B, also when that was not
    observed. Never a first election. It lasts until every component of the failover has a leader again."""
    VACANT = "vacant"
    """There has been no leader for as long as the rule says."""
    EPISODES = "episodes"
    """So many failovers within so long a time."""
    BLIND = "blind"
    """This observer has not been able to read the store for as long as the rule says."""
    UNOBSERVED = "unobserved"
    """Leaders changed without being observed."""
    SPLIT = "split"
    """Replaced leaders keep coming back: two contenders both believe that they lead."""
    NO_STANDBY = "no_standby"
    """JobManagers have left, and only one contends."""
    JOB_LEADER_CHANGED = "job_leader_changed"
    """Another leader leads a job, and it was no part of a failover."""
    SAME_PROCESS_REELECTION = "same_process_reelection"
    """A leader lost its leadership, and was elected again."""
    ZXID_HEADROOM = "zxid_headroom"
    """ZooKeeper will soon have to elect a leader of its own, because it runs out of transaction numbers."""


LASTING: Final = frozenset({Trigger.VACANT, Trigger.BLIND, Trigger.NO_STANDBY})
"""Triggers with `for`: how long the condition must have held."""


class Source(StrEnum):
    """Where evidence of a failover is captured."""

    PROCESSES = "processes"
    """Flink's own processes, as far as we see them: thread dumps, py-spy, and what the kernel says of them."""
    FLINK_REST = "flink_rest"
    """The REST server that leads: from which checkpoints jobs were restored."""
    LEADER_THREAD_DUMP = "leader_thread_dump"
    """The same, for a thread dump of its JobManager, which looks at every lock and stops that JVM for as long as it walks its heap."""


class Rule(Struct, frozen=True):
    """One alert. Durations are microseconds."""

    alert: str
    on: Trigger
    severity: Severity = Severity.WARNING
    hold_for: int = 0
    """For how long it must have been so."""
    count: int = 1
    within: int = 0
    """`episodes`: so many within so long."""
    summary: "Template | None" = None
    """What to say in the title; None: what we say ourselves."""


Template = Callable[[Mapping[str, object]], str]
"""Makes text of the documented fields. Raises ValueError with one line for people."""


class Destination(Struct, frozen=True):
    """One URL of one receiver, by its place in the configuration: the URL itself is a secret and stays in the shell."""

    receiver: str
    index: int
    send_resolved: bool = True

    @property
    def name(self) -> str:
        """`ops#0`: stable while the receiver's list of URLs is."""
        return f"{self.receiver}#{self.index}"


class Heartbeat(Struct, frozen=True):
    """A destination that gets a message at an interval while the sidecar can read the store (a dead man's switch)."""

    destination: Destination
    interval: int


NO_RECEIVER: Final = Route("")
"""The route where there is no receiver."""


class Policy(Struct, frozen=True):
    """Everything `step` needs to know beside state and observation."""

    observer: str
    stores: Mapping[str, Store]
    """The watched clusters, by cluster id."""
    external_labels: dict[str, str] = {}
    trust_window: int = 3 * SECOND
    rules: tuple[Rule, ...] = ()
    route: Route = NO_RECEIVER
    inhibit_rules: tuple[InhibitRule, ...] = ()
    receivers: Mapping[str, tuple[Destination, ...]] = {}
    heartbeats: tuple[Heartbeat, ...] = ()
    session_timeouts: Mapping[str, int] = {}
    """After how long without a word of a JobManager ZooKeeper ends its session, by cluster: Flink's own setting, where it is known."""
    link: str | None = None
    """Where people find our pages."""
    evidence: frozenset[Source] = frozenset()
