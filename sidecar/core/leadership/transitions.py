"""A transition is the domain event; records are made from it at the very end. Its id is the same for every observer that saw it."""

from msgspec import Struct

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
from sidecar.core.leadership.downtime import Downtime, LastLed
from sidecar.core.leadership.leadership_table import Kind
from sidecar.core.leadership.leases import Vacancy
from sidecar.core.leadership.unobserved import Gap
from sidecar.core.moment import Moment
from sidecar.core.observations import ConnectionState
from sidecar.core.policy.policy import Store
from sidecar.core.records import record_id


class Transition(Struct, frozen=True, kw_only=True):
    """A transition of one component: a row of the leadership table. Times are microseconds."""

    id: str
    """The id, equal for all observers, except for transitions of the observer's own view."""
    at: Moment
    """When the change was observed."""
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


def transition_id(transition: Transition, observer: str) -> str:
    """A UUIDv5 of what happened in the store. What is about our view, and not about Flink, is `observer`'s alone."""
    component = transition.component
    identity = (
        "transition",
        transition.cluster_id,
        transition.store,
        component.component,
        component.job_id,
        transition.kind,
    )
    match transition.kind, transition.before, transition.after:
        case ((Kind.GRANTED | Kind.CHANGED | Kind.READDRESSED), before, Held(leader, position)):
            session = before.leader.session_id if isinstance(before, Held) else None
            return record_id(*identity, session, *_write_key(leader, position))
        case Kind.REVOKED, Held(leader, position), _:
            return record_id(*identity, leader.session_id, *_write_key(leader, position))
        case Kind.RETIRED, _, _ if transition.last_known and transition.last_position:
            # Whether its leader or its graph went first: the job ended once.
            begun = _run_key(transition.last_known, transition.last_position)
            return record_id(*identity, transition.last_known.session_id, *begun)
    return record_id(*identity, observer, transition.at.wall, transition.at.steady)


def _write_key(leader: LeaderInformation, position: Position) -> tuple[object, ...]:
    """Identifies one write of a leader. A store that was wiped counts from the beginning again, so its numbers alone
    do not.
    """
    match position:
        case ZNodePosition():
            stat = (position.czxid, position.mzxid, position.mtime, position.returned)
            return leader.session_id, leader.address, *stat
        case ConfigMapPosition():
            term = (position.uid, position.holder_identity, position.acquire_time)
            return leader.session_id, leader.address, *term, position.returned


def _run_key(leader: LeaderInformation, position: Position) -> tuple[object, ...]:
    """Identifies one run of a job among others of the same id."""
    match position:
        case ZNodePosition():
            return position.czxid, position.returned
        case ConfigMapPosition():
            return leader.address, position.uid, position.returned
