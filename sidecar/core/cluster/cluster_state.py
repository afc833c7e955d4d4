"""The state of one cluster. Values are never changed in place: a step makes new ones and shares unchanged parts."""

from collections.abc import Iterable, Mapping
from enum import StrEnum
from typing import Final

from msgspec import Struct
from msgspec.structs import replace

from sidecar.core.agreement import Peers
from sidecar.core.cluster.status import Stated
from sidecar.core.counted import Count, counted
from sidecar.core.failover import plans
from sidecar.core.failover.ends import Ends
from sidecar.core.failover.episodes import Absence, Episode, is_away
from sidecar.core.failover.plans import Disruption, Operated
from sidecar.core.failover.recovery_state import Assessed, Assessment, JobAfter, JobFault
from sidecar.core.finder import PARTLY
from sidecar.core.flink import znode_paths
from sidecar.core.flink.leadership import (
    CLUSTER_COMPONENTS,
    Component,
    ComponentId,
    Held,
    LeaderInformation,
    Leadership,
    Position,
    Unknown,
)
from sidecar.core.ha.results import Checked
from sidecar.core.leadership.leadership_account import Account, Standby, opened
from sidecar.core.leadership.leases import Lease
from sidecar.core.leadership.transitions import Contest, Transition
from sidecar.core.leadership.unobserved import Elections, LastLed, Look, Loss
from sidecar.core.moment import Moment, Steady, Wall
from sidecar.core.observations import ConnectionState
from sidecar.core.pictures import Picture
from sidecar.core.pods import Pods
from sidecar.core.reach import Reach
from sidecar.core.records import RecordIdOrNone
from sidecar.core.sanitize import clean

_MOST_SHOWN: Final = 20
"""The most clusters that are listed beside a cluster that does not exist."""
_TRANSACTIONS_OF_AN_EPOCH: Final = (1 << 32) - 1
_REST_SERVER: Final = ComponentId(Component.REST_SERVER)


class ComponentState(Struct, frozen=True, gc=False):
    """One leadership and its recent past."""

    leadership: Leadership
    since: Moment
    """When this state was first observed."""
    last_known: LeaderInformation | None = None
    """The last observed leader, kept through vacancies, lost connections and restarts."""
    last_position: Position | None = None
    """The position of `last_known`."""
    seen_at: Steady = 0
    """When the component was last read (steady)."""
    look: Look | None = None
    """The last read, and what was missed since the last transition."""
    elections: Elections | None = None
    """The lease's counter at the last read, and what was missed since the last transition."""
    contest: Contest = Contest()
    vacated_at: Moment | None = None
    """When the current vacancy was observed to begin."""
    last_led: LastLed | None = None
    """When the leader before the current vacancy may have worked last."""
    published_at: Steady | None = None
    """When the current leader was observed to publish itself (steady); None: it led already at the first observation."""
    absence: Absence | None = None
    """The component's part in the latest episode in which it lost its leader."""
    discovered: bool = False
    """Whether it was already in this state at the first observation."""
    registered: bool | None = None
    """Jobs: whether it is in a job store. False: no longer, so it has ended. None: it was never observed there."""
    unregistered_at: Steady | None = None
    """When the job was first observed to be in no job store any more (steady)."""

    @property
    def is_away(self) -> bool:
        """Whether the component has had no leader since it lost one."""
        return is_away(self.absence)


def parts_of(
    states: Iterable[tuple[ComponentId, ComponentState]], episode: Episode
) -> dict[ComponentId, ComponentState]:
    """Those that failed over in this episode."""
    return {key: state for key, state in states if state.absence and state.absence.episode_id == episode.id}


def last_known_state(state: ComponentState, at: Moment) -> ComponentState:
    """The component as another process begins with it at `at`: nothing has been read yet, the leader is the last known one."""
    return replace(state, leadership=Unknown(), since=at, vacated_at=None, last_led=None, published_at=None)


class Sighting(StrEnum):
    """Whether this observer can see who leads a cluster: it can read the store, and the cluster exists."""

    SEEING = "seeing"
    BLIND = "blind"


class View(Struct, frozen=True):
    """Our view of one cluster's store."""

    connection: ConnectionState | None = None
    """None until the first connection."""
    connected_at: int = 0
    """When it last connected (steady): everything read before has to be read again."""
    complete: bool = False
    """Everything has been read since the last CONNECTED."""
    obscure_at: int | None = None
    """While disconnected: when leaders become unknown (steady)."""
    sighting: Sighting = Sighting.BLIND
    since: Moment = Moment(0, 0)
    """Start of the current `sighting`, or of its part that is not yet recorded."""
    turned_at: Moment = Moment(0, 0)
    """Start of the current `sighting`."""
    loss: Loss | None = None
    """The last time without a connection, since the sidecar started."""
    suspended: bool = False
    """No leader is wanted: its FlinkDeployment is suspended or deleted."""


class Confirmed(Struct, frozen=True):
    """How old our view is: everything up to `at` has been observed, and `until` (steady) that counts as fresh."""

    at: Moment
    until: Steady


class Missing(Struct, frozen=True):
    """Nothing of the cluster exists, or ever did as far as is known: a wrong id, or a cluster that was never started."""

    place: str
    beside: tuple[str, ...] | None
    """The ids of the clusters beside it; None: which there are is not known."""

    def __str__(self) -> str:
        if self.beside is None:
            there = "which clusters are beside it cannot be read"
        elif self.beside:
            names = ", ".join(clean(name) for name in self.beside[:_MOST_SHOWN])
            there = f"clusters found beside it: {names}" + (", …" if len(self.beside) > _MOST_SHOWN else "")
        else:
            there = "no other cluster is beside it either"
        return f"no such cluster: nothing was ever found under {clean(self.place)}; {there}"


class Fewer(Struct, frozen=True):
    """JobManagers stopped to contend: how many there were before, and when (steady)."""

    contended: int
    at: Steady


class Beyond(Struct, frozen=True):
    """The part of the cluster that is not observed, because it exceeds a bound."""

    jobs: int
    """The least number of jobs that are not observed."""
    lists: tuple[str, ...]
    """Paths whose children are too many to be read."""
    since: Moment

    @property
    def hides_leaders(self) -> bool:
        """Whether a job whose leader was not read may have one."""
        return not {*self.lists}.isdisjoint({znode_paths.LEADER, znode_paths.JOBS})

    def __str__(self) -> str:
        parts = [f"at least {counted(self.jobs, 'job', thousands=True)}, more than can be watched"] if self.jobs else []
        parts += [f"the jobs in {clean(path)}, which has too many children to be read" for path in self.lists]
        return f"{PARTLY}: left out {' and '.join(parts)}"


class TooOld(Struct, frozen=True):
    """All that exists is the leader of a JobManager that has neither dispatcher nor resource manager."""

    def __str__(self) -> str:
        return "this looks like Flink older than 1.5, or the legacy mode of 1.5 to 1.8, which are not supported"


class Drilled(Struct, frozen=True):
    """The drills of a cluster. Times are microseconds since the epoch, so that they outlast any process."""

    since: Wall = 0
    """Since when the cluster is watched, as far as is known. 0: not known."""
    passed_at: Wall = 0
    """When the last drill that has passed was over. 0: none is known."""
    passed: RecordIdOrNone = ""
    """Identifies that drill."""


class PictureRequested(Struct, frozen=True):
    """The last request for a picture. `cluster.rest_server` decides when the next one is due."""

    leader: LeaderInformation
    """The leading REST server that was asked."""
    at: int
    """When the request was made (steady)."""
    good_at: int
    """When a picture last came, whoever led (steady); before the first one: when it was first asked for."""
    waiting: bool = True
    """Whether the request is not answered yet."""
    failures: int = 0
    """How many requests to this leader failed in a row."""
    problem: str | None = None
    """Why the last one that was answered did not come."""


class Unanswered(Struct, frozen=True):
    """Requests to a REST server that were not answered, without an answer in between."""

    since: Moment
    """When the first one was sent."""
    until: Steady
    """When the last one was given up (steady)."""
    reach: Reach
    """How far the last request got."""
    requests: Count = 0
    """How many requests in a row were this sidecar's own, as far as they are counted: see `cluster.rest_server`."""


class RestServer(Struct, frozen=True):
    """A leading REST server that has answered this sidecar, at its address or in its term."""

    leader: LeaderInformation
    unanswered: Unanswered | None = None
    """None: it has answered the last request."""


class ClusterState(Struct, frozen=True):
    """One Flink cluster."""

    view: View
    components: Mapping[ComponentId, ComponentState]
    jobs: Mapping[str, frozenset[str]] = {}
    """The jobs in each job store, by its path or the name of its ConfigMap."""
    contenders: Mapping[str, tuple[str, ...]] = {}
    """Contenders by latch path."""
    contested: frozenset[ComponentId] = frozenset()
    """Components with split leadership."""
    zxid: int | None = None
    """The store's last known zxid."""
    leases: Mapping[str, Lease] = {}
    """The leases by ConfigMap name. Only expired ones survive a restart."""
    episode: Episode | None = None
    """The open failover."""
    fewer: Fewer | None = None
    """When JobManagers last left the contest."""
    last_episode: Episode | None = None
    """The last closed failover."""
    standby: Standby = Standby()
    confirmed: Confirmed | None = None
    """None: the current view is not confirmed; its age is not known."""
    stale: bool = False
    """The view is complete, and older than it may be: a confirmation is overdue."""

    missing: Missing | TooOld | None = None
    """Why there is no cluster to watch in the store."""
    beyond: Beyond | None = None
    """The part of the cluster that is not observed, although the store can be read. None: all of it is."""
    refused: str | None = None
    """Why the leaders cannot be found in the store, which can be reached; None once everything was read."""
    gone: Moment | None = None
    """Since when nothing of a found cluster exists in the store, although it had a leader then."""
    handed_over_by: str | None = None
    """The observer from whose handover the last known leaders are; None once everything has been read."""
    pods: Pods = {}
    """The pods of this cluster's JobManagers, as far as they are known."""
    operated: Operated | None = None
    """The cluster's FlinkDeployment, or another maker. None: there was none, or none could be read."""
    refused_rights: frozenset[str] = frozenset()
    """The resources that the API server refuses to list and that decide whether a leader is wanted: `deployments.apps`. Not kept when the
    sidecar ends."""
    disruptions: Mapping[str, Disruption] = {}
    """The disruptions of its JobManagers' pods, by pod uid."""
    ends: Ends = Ends()
    """The recent ends of its JobManagers."""
    departed: Mapping[ComponentId, Transition] = {}
    """REVOKED of jobs that just lost their leader, not yet recorded: the failover they belong to is decided shortly after."""
    picture: Picture | None = None
    """The last good one. While a recovery is assessed: the last one before the failover."""
    picture_kept: Picture | None = None
    """`picture` as the journal has it: not newer, and with the same jobs."""
    picture_now: Picture | None = None
    """The last picture since the failover, while a recovery is assessed."""
    recovery: Assessment | None = None
    """The recovery that is assessed. None: none is."""
    recovering: Mapping[str, JobAfter] = {}
    """The jobs from before the failover as Flink lists them now, by their previous ids."""
    assessed: Assessed | None = None
    """The last recovery that was judged."""
    job_faults: Mapping[str, JobFault] = {}
    """The jobs that are missing or resurrected, by their ids."""
    picture_request: PictureRequested | None = None
    """None: no picture was requested since the sidecar started."""
    rest_server: RestServer | None = None
    """The last one that has answered, also if another leads. None: none has."""
    readiness: Checked | None = None
    """The last checks of high availability. None: none since the sidecar started."""
    drilled: Drilled = Drilled()
    peers: Peers = Peers()
    """The other observers, as far as they were asked."""
    account: Account | None = None
    """How long the cluster was led. None: not known yet."""
    stated: Stated | None = None
    """The cluster's status. None: not decided yet."""

    def failover(self, episode_id: str | None) -> Episode | None:
        """The failover with this id, if it is the current or the last one."""
        for episode in (self.episode, self.last_episode):
            if episode and episode.id == episode_id:
                return episode
        return None

    @property
    def own(self) -> dict[ComponentId, ComponentState]:
        """The cluster's own components, in the order of CLUSTER_COMPONENTS: not its jobs, which may be thousands."""
        return {key: state for key in CLUSTER_COMPONENTS if (state := self.components.get(key))}

    def parts(self, episode: Episode) -> dict[ComponentId, ComponentState]:
        """The components and jobs that failed over in this episode."""
        return parts_of(self.components.items(), episode)

    @property
    def stored_jobs(self) -> frozenset[str]:
        """The jobs in Flink's job stores."""
        return frozenset[str]().union(*self.jobs.values())

    def may_be_beyond(self, component: ComponentId) -> bool:
        """Whether a job of which nothing was read may have a leader that is not observed."""
        if component.job_id is None or self.beyond is None:
            return False
        return self.beyond.hides_leaders or not any(component.job_id in job_ids for job_ids in self.jobs.values())

    @property
    def wants_no_leader(self) -> bool:
        """Whether the cluster is meant to have no leader, and that can be read."""
        return plans.is_unwanted(self.operated)

    @property
    def ever_led(self) -> bool:
        """Whether the cluster has ever had a leader, as far as is known."""
        return any(state.last_known for state in self.components.values())

    def is_overdue(self, now: Moment) -> bool:
        """Whether the view has not been confirmed for longer than it may be."""
        return self.confirmed is not None and now.steady > self.confirmed.until

    @property
    def leaders_in_sight(self) -> bool:
        """Whether the store can be read and the cluster exists: otherwise no rule is evaluated on its leaders."""
        return self.is_in_sight and self.missing is None

    @property
    def rest_leader(self) -> LeaderInformation | None:
        """The leading REST server. None: there is none, or the leaders are not in sight."""
        state = self.components.get(_REST_SERVER) if self.leaders_in_sight else None  # a handover may lack it
        return state.leadership.leader if state and isinstance(state.leadership, Held) else None

    @property
    def is_in_sight(self) -> bool:
        """Whether the store has been read completely and the view is fresh: only then "no leader" is a vacancy."""
        return self.view.complete and not self.stale


_READ: Final = ("jobs", "contenders", "zxid", "leases", "confirmed", "stale", "missing", "beyond", "drilled")
"""What is read of the store, beside who leads."""


def without_memory(cluster: ClusterState, at: Moment) -> ClusterState:
    """The cluster with what was read of it in this view alone: who leads, since `at`. Of earlier failovers and plans nothing is known."""
    components = {
        component: ComponentState(
            state.leadership, at, state.last_known, state.last_position, state.seen_at, registered=state.registered
        )
        for component, state in cluster.components.items()
    }
    return ClusterState(
        replace(cluster.view, since=at, turned_at=at, loss=None),
        components,
        **{name: getattr(cluster, name) for name in _READ},
    )


def contending(contenders: Mapping[str, tuple[str, ...]]) -> int | None:
    """How many JobManagers contend; None: no latch was observed. Up to Flink 1.14 there is a latch per component."""
    return max(map(len, contenders.values()), default=None)


def zxid_headroom(cluster: ClusterState) -> int | None:
    """Transactions that ZooKeeper can number before it has to elect a new leader of its own; None: not known."""
    return None if cluster.zxid is None else _TRANSACTIONS_OF_AN_EPOCH - (cluster.zxid & _TRANSACTIONS_OF_AN_EPOCH)


def fresh_cluster(at: Moment) -> ClusterState:
    """A cluster that has not been observed yet."""
    components = {component: ComponentState(Unknown(), at) for component in CLUSTER_COMPONENTS}
    return ClusterState(
        View(since=at, turned_at=at), components, drilled=Drilled(since=at.wall), account=opened(at.steady)
    )
