"""What the operator decided, as the core needs it. Durations are microseconds."""

from collections.abc import Mapping
from enum import StrEnum

from msgspec import Struct

from sidecar.core.moment import SECOND


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
    """Another leader than the last known one leads: A->B or null->B, also when it changed out of our sight. Never a first election."""
    VACANT = "vacant"
    """Nobody has been leading for as long as the rule says."""
    SPLIT = "split"
    """Leaders that were replaced keep coming back: two contenders both believe that they lead."""


class Rule(Struct, frozen=True):
    """One alert. `hold_for` is how long a `vacant` must last."""

    alert: str
    on: Trigger
    severity: Severity = Severity.WARNING
    hold_for: int = 0


class Destination(Struct, frozen=True):
    """One URL of one receiver, by its place in the configuration: the URL itself is a secret and stays in the shell."""

    receiver: str
    index: int
    send_resolved: bool = True

    @property
    def name(self) -> str:
        """`ops#0`: stable while the receiver's list of URLs is."""
        return f"{self.receiver}#{self.index}"


class Grouping(Struct, frozen=True):
    """Alertmanager's three waits: before the first notification of a group, before telling that it grew, and before saying it again."""

    wait: int = 5 * SECOND
    interval: int = 60 * SECOND
    repeat: int = 4 * 3600 * SECOND


class Policy(Struct, frozen=True):
    """Everything `step` needs to know beside state and observation."""

    observer: str
    stores: Mapping[str, Store]
    """The watched clusters, by cluster id."""
    external_labels: dict[str, str] = {}
    trust_window: int = 3 * SECOND
    rules: tuple[Rule, ...] = ()
    destinations: tuple[Destination, ...] = ()
    grouping: Grouping = Grouping()
