"""One cluster, as the owner's thread knows it. Values, never changed in place: a step makes new ones and shares what stayed the same."""

from collections.abc import Mapping
from enum import StrEnum
from typing import Final

from msgspec import Struct

from sidecar.core.cluster.causes import Loss
from sidecar.core.cluster.downtime import LastLed
from sidecar.core.cluster.episodes import Absence, Episode
from sidecar.core.cluster.leases import Lease
from sidecar.core.cluster.split_leadership import Contest
from sidecar.core.cluster.transitions import Transition
from sidecar.core.cluster.unobserved import Elections, Look
from sidecar.core.flink.leadership import (
    CLUSTER_COMPONENTS,
    ComponentId,
    LeaderInformation,
    Leadership,
    Position,
    Unknown,
)
from sidecar.core.moment import SECOND, Moment
from sidecar.core.observations import ConnectionState
from sidecar.core.sanitize import clean

_MOST_SHOWN: Final = 20
"""Of the clusters that are beside one that is not there."""
_TRANSACTIONS_OF_AN_EPOCH: Final = (1 << 32) - 1


class ComponentState(Struct, frozen=True):
    """One leadership and what is worth remembering of its past."""

    leadership: Leadership
    since: Moment
    """When it was first seen to be so."""
    last_known: LeaderInformation | None = None
    """The leader seen last, kept through vacancy, blindness and restarts."""
    last_position: Position | None = None
    """Where that leader stood."""
    seen_at: int = 0
    """When it was last read (steady)."""
    look: Look | None = None
    """What was last read in the store, and what was missed since the last transition."""
    elections: Elections | None = None
    """The lease's count when it was last read, and what was missed since the last transition."""
    contest: Contest = Contest()
    vacated_at: Moment | None = None
    """When the present vacancy was seen to begin."""
    last_led: LastLed | None = None
    """Of the present vacancy: when the leader before it may have worked last."""
    published_at: int | None = None
    """When the current leader was observed to publish itself (steady); None: it led already at the first observation."""
    absence: Absence | None = None
    """Its part in the latest episode in which it left a leader."""
    discovered: bool = False
    """It was in this state at the first observation, since an unknown time."""
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
    """When the last CONNECTED was (steady): what was read before has to be read again."""
    complete: bool = False
    """Everything has been read since the last CONNECTED."""
    obscure_at: int | None = None
    """When trust in what was seen ends (steady), while the view is gone."""
    sighting: Sighting = Sighting.BLIND
    since: Moment = Moment(0, 0)
    """Start of the current `sighting`, or of its part that is not recorded yet."""
    turned_at: Moment = Moment(0, 0)
    """Start of the current `sighting`."""
    loss: Loss | None = None
    """When the store could last not be read, since the sidecar started."""


class Confirmed(Struct, frozen=True):
    """How old our view is: the last moment of which everything is known to have been observed, and until when that is fresh (steady)."""

    at: Moment
    until: int


class Missing(Struct, frozen=True):
    """Nothing of the cluster exists, nor ever did as far as is known: its id may be wrong, or it has never been started."""

    place: str
    beside: tuple[str, ...] | None
    """The ids of the clusters beside it; None: which there are is not known."""

    def __str__(self) -> str:
        if self.beside is None:
            there = "which clusters are beside it cannot be read"
        elif self.beside:
            shown = ", ".join(clean(name) for name in self.beside[:_MOST_SHOWN])
            there = f"clusters found beside it: {shown}" + (", …" if len(self.beside) > _MOST_SHOWN else "")
        else:
            there = "no other cluster is beside it either"
        return f"no such cluster: nothing was ever found under {clean(self.place)}; {there}"


class Fewer(Struct, frozen=True):
    """JobManagers left the contest: how many there were before, and when (steady)."""

    contended: int
    at: int


STANDBY_AGE: Final = 120 * SECOND
"""So long several must have contended for one of them to be a standby: a JobManager that is started anew contends beside the latch of
the process before it, until that one's session ends."""


class Standby(Struct, frozen=True):
    """Whether a leader has had a standby, as far as is known."""

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
    confirmed: Confirmed | None = None
    """None: this driver has not confirmed the present view; its age is not known."""
    stale: bool = False
    """The view is complete, and older than it may be: a confirmation is overdue."""

    missing: Missing | None = None
    handed_over_by: str | None = None
    """The observer from whose handover the last known leaders are; None once everything has been read."""
    departed: Mapping[ComponentId, Transition] = {}
    """REVOKED of jobs that have just left, not recorded yet: in a moment it is known to which failover they belong, if to any."""

    @property
    def ever_led(self) -> bool:
        """Whether the cluster has ever had a leader, as long as anybody remembers."""
        return any(known.last_known for known in self.components.values())

    def is_overdue(self, now: Moment) -> bool:
        """Whether the view has not been confirmed for longer than it may be."""
        return self.confirmed is not None and now.steady > self.confirmed.until

    @property
    def leaders_in_sight(self) -> bool:
        """Whether the store can be read and the cluster exists: else no rule concludes anything about its leaders."""
        return self.in_sight and self.missing is None

    @property
    def in_sight(self) -> bool:
        """Whether the store is seen whole, and the view is fresh: only then does no leader mean that there is none."""
        return self.view.complete and not self.stale


def contending(contenders: Mapping[str, tuple[str, ...]]) -> int | None:
    """How many JobManagers contend, or None where no latch was seen. Up to Flink 1.14 there is a latch per component."""
    return max((len(names) for names in contenders.values()), default=None)


def zxid_headroom(cluster: ClusterState) -> int | None:
    """How many transactions ZooKeeper can number before it has to elect a leader of its own, or None if that is not known."""
    return None if cluster.zxid is None else _TRANSACTIONS_OF_AN_EPOCH - (cluster.zxid & _TRANSACTIONS_OF_AN_EPOCH)


def fresh_cluster(at: Moment) -> ClusterState:
    """A cluster of which nothing has been seen."""
    return ClusterState(
        View(since=at, turned_at=at), {component: ComponentState(Unknown(), at) for component in CLUSTER_COMPONENTS}
    )
