"""What the owner's thread knows. Values, never changed in place: a step makes new ones and shares what stayed the same."""

from collections.abc import Mapping
from enum import StrEnum
from typing import Final

from msgspec import Struct

from sidecar.core.accounting import Elections, Look
from sidecar.core.alerts import Alerts
from sidecar.core.causes import Loss
from sidecar.core.contest import Contest
from sidecar.core.deliveries import Delivery
from sidecar.core.episodes import Absence, Episode
from sidecar.core.evidence import Capture
from sidecar.core.leadership import (
    CLUSTER_COMPONENTS,
    ComponentId,
    LeaderInformation,
    Leadership,
    Position,
    Unknown,
)
from sidecar.core.leases import Lease
from sidecar.core.moment import SECOND, Moment
from sidecar.core.observations import ConnectionState

_TRANSACTIONS_OF_AN_EPOCH: Final = (1 << 32) - 1


class ComponentState(Struct, frozen=True):
    """One leadership and what is worth remembering of its past."""

    leadership: Leadership
    since: Moment
    last_known: LeaderInformation | None = None
    """The leader seen last, kept through vacancy, blindness and restarts."""
    last_position: Position | None = None
    """Where that leader stood."""
    seen_at: int = 0
    """When it was last looked at (steady)."""
    look: Look | None = None
    """What the last look found in the store, and what was missed since the last transition."""
    elections: Elections | None = None
    """What the lease had counted when it was last looked at, and what was missed since the last transition."""
    contest: Contest = Contest()
    vacated_at: Moment | None = None
    """When the present vacancy was seen to begin."""
    absence: Absence | None = None
    """Its part in the latest episode in which it left a leader."""
    registered: bool | None = None
    """Jobs: whether Flink would recover the job. False: it would have, and has forgotten it. None: it was never seen in a job store."""


class Sighting(StrEnum):
    """Whether this observer can see a cluster's store."""

    SEEING = "seeing"
    BLIND = "blind"


class View(Struct, frozen=True):
    """Our view of one cluster's store."""

    connection: ConnectionState | None = None
    """None until the first connection."""
    connected_at: int = 0
    """When the last CONNECTED was (steady): what was looked at before it has to be looked at again."""
    complete: bool = False
    """Everything has been read since the last CONNECTED."""
    obscure_at: int | None = None
    """When trust in what was seen ends (steady), while the view is gone."""
    sighting: Sighting = Sighting.BLIND
    since: Moment = Moment(0, 0)
    """Since when `sighting` is so, or up to where it has been recorded."""
    turned_at: Moment = Moment(0, 0)
    """Since when `sighting` is so."""
    loss: Loss | None = None
    """When the store was last out of sight, since the sidecar began."""


class Fewer(Struct, frozen=True):
    """JobManagers left the contest: how many there were before, and when (steady)."""

    contended: int
    at: int


STANDBY_AGE: Final = 120 * SECOND
"""So long several must have contended for one of them to be a standby: a JobManager that is started anew contends beside the latch of
the process before it, until that one's session ends."""


class Standby(Struct, frozen=True):
    """Whether a leader has had a standby, as long as somebody remembers."""

    several_since: Moment | None = None
    """Since when several contend, or have until one was left."""
    alone_since: Moment | None = None
    """Since when one contends where there had been a standby."""

    def with_contenders(self, number: int, at: Moment) -> "Standby":
        """What is remembered when so many contend."""
        if number > 1:
            return self if self.several_since and not self.alone_since else Standby(several_since=at)
        if number == 0 or self.alone_since:
            return self
        aged = self.several_since is not None and at.steady - self.several_since.steady >= STANDBY_AGE
        return Standby(self.several_since, at) if aged else Standby()


class ClusterState(Struct, frozen=True):
    """One Flink cluster."""

    view: View
    components: Mapping[ComponentId, ComponentState]
    jobs: Mapping[str, frozenset[str]] = {}
    """The jobs in each job store, by its path or the name of its ConfigMap."""
    contenders: Mapping[str, tuple[str, ...]] = {}
    """Who contends, by latch path."""
    contested: frozenset[ComponentId] = frozenset()
    """Whose leadership is split."""
    zxid: int | None = None
    """How far the store was when it last said so."""
    leases: Mapping[str, Lease] = {}
    """By the name of the ConfigMap. Of these only those that have run out survive a restart."""
    episode: Episode | None = None
    """The failover that is not over yet."""
    fewer: Fewer | None = None
    """When JobManagers last left the contest."""
    last_episode: Episode | None = None
    """The failover that was over last, since the sidecar began."""
    standby: Standby = Standby()


def contending(contenders: Mapping[str, tuple[str, ...]]) -> int | None:
    """How many JobManagers contend, or None where no latch was seen. Up to Flink 1.14 there is a latch per component."""
    return max((len(names) for names in contenders.values()), default=None)


def zxid_headroom(cluster: ClusterState) -> int | None:
    """How many transactions ZooKeeper can number before it has to elect a leader of its own, or None where it has not told of any."""
    return None if cluster.zxid is None else _TRANSACTIONS_OF_AN_EPOCH - (cluster.zxid & _TRANSACTIONS_OF_AN_EPOCH)


class State(Struct, frozen=True):
    """All that survives a restart, and nothing else does."""

    clusters: Mapping[str, ClusterState] = {}
    alerts: Alerts = Alerts()
    outbox: Mapping[str, Delivery] = {}
    """What is still to be delivered, oldest first."""
    captures: Mapping[str, Capture] = {}
    """What was requested to be captured, and is not answered yet."""
    alive: Moment | None = None
    """Until when the sidecar is known to have run."""


def fresh_cluster(at: Moment) -> ClusterState:
    """A cluster of which nothing has been seen."""
    return ClusterState(
        View(since=at, turned_at=at), {component: ComponentState(Unknown(), at) for component in CLUSTER_COMPONENTS}
    )
