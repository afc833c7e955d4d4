"""A transition is the domain event; records are made from it at the very end."""

from msgspec import Struct

from sidecar.core.cluster.downtime import Downtime, LastLed
from sidecar.core.cluster.leadership_table import Kind
from sidecar.core.cluster.unobserved import Gap
from sidecar.core.cluster.vacancy import Vacancy
from sidecar.core.flink.leadership import (
    ComponentId,
    ConfigMapPosition,
    Held,
    LeaderInformation,
    Leadership,
    Position,
    ZNodePosition,
    host_port,
)
from sidecar.core.moment import Moment
from sidecar.core.observations import ConnectionState
from sidecar.core.policy.policy import Store


class Transition(Struct, frozen=True, kw_only=True):
    """A transition of one component: a row of the leadership table. Times are microseconds."""

    id: str
    """The same for every observer, except for transitions of the observer's own view."""
    at: Moment
    """When it was observed."""
    cluster_id: str
    store: Store
    component: ComponentId
    kind: Kind
    before: Leadership
    after: Leadership
    """RETIRED: vacant."""
    position: Position | None = None
    """The position of what was observed, or of the previous leader."""
    written_at: int | None = None
    """When the observed value was written, by the store's clock (milliseconds since the epoch)."""
    last_known: LeaderInformation | None = None
    """The last observed leader before this."""
    last_position: Position | None = None
    last_led: LastLed | None = None
    """When the lost leader may have worked last."""
    vacancy: Vacancy | None = None
    """Why there is no leader, in Kubernetes."""
    obscured_by: str | None = None
    """Why the leader is unknown, in words."""
    gap: Gap | None = None
    """Unobserved changes between before and after."""
    elections: int | None = None
    contenders: int | None = None
    vacant_for: int | None = None
    """How long no leader was published before this one. None: there was no vacancy, or its beginning was not observed."""
    downtime: Downtime | None = None
    """How long no leader worked before this one. None: not known."""
    returned: bool = False
    """The leader had been replaced, and is back."""
    split: bool = False
    """Leadership is split."""
    plan_vanished: bool = False
    """RETIRED: its plan vanished from the store while nobody led. So it did not end by itself, and Flink does not know it any more."""
    connection: ConnectionState | None = None
    """Our connection to the store."""
    episode_id: str | None = None

    @property
    def leader(self) -> LeaderInformation | None:
        """The current leader."""
        return self.after.leader if isinstance(self.after, Held) else None

    @property
    def same_leader(self) -> bool:
        """Whether the leader is the last known one."""
        leader, last = self.leader, self.last_known
        return leader is not None and last is not None and leader.session_id == last.session_id

    @property
    def is_succession(self) -> bool:
        """Whether the leader is another than the last known one."""
        return self.leader is not None and self.last_known is not None and not self.same_leader

    @property
    def same_process(self) -> bool | None:
        """Whether the leader after is the process of the last one, where the facts decide: one ZooKeeper session, and one holder of leases,
        is one process; another holder, or another host, is another.
        """
        if self.last_known is None or self.leader is None:
            return None
        match self.last_position, self.position:
            case ConfigMapPosition(holder_identity=earlier), ConfigMapPosition(holder_identity=later):
                return earlier == later
            case ZNodePosition(ephemeral_owner=earlier), ZNodePosition(ephemeral_owner=later) if (
                earlier and earlier == later
            ):
                return True
            case ZNodePosition(), ZNodePosition():
                return None if host_port(self.last_known.address) == host_port(self.leader.address) else False
        return None

    @property
    def store_reelected(self) -> bool | None:
        """Whether ZooKeeper itself elected a leader between the writes of the last leader and of this one; None: not two writes."""
        match self.last_position, self.position:
            case ZNodePosition() as earlier, ZNodePosition() as later if self.leader:
                return later.epoch != earlier.epoch
        return None
