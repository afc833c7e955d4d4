"""The schema of a handover document, with the bounds of each value.

Others can write it. So it is no state of ours but a schema of its own: each text has an alphabet and a length, each number a range, each
list a size, and what is not named here is not read. Names, defaults and meaning are those of the core's types of the same names.
"""

from typing import Annotated, Final
from uuid import UUID

from msgspec import Meta, Struct

from sidecar.core.alerting.alerts import Reason
from sidecar.core.bounds import HANDOVER, MOST_PORTS
from sidecar.core.failover import recovery_state
from sidecar.core.failover.ends import MOST_ENDS, MOST_HOSTS, MOST_SIGNS, OperatorReason, Sign
from sidecar.core.failover.ends import MOST_PODS as MOST_ENDED_PODS
from sidecar.core.failover.plans import MOST_DISRUPTIONS, Plan
from sidecar.core.flink.configmaps import LONGEST_LEASE
from sidecar.core.flink.deployments import Maker, Reconciliation
from sidecar.core.flink.leadership import Component
from sidecar.core.leadership.contenders import MOST_LACKED, MOST_LEFT
from sidecar.core.moment import LATEST, Moment
from sidecar.core.pictures import MOST_CHECKPOINTS
from sidecar.core.pods import MOST_PODS
from sidecar.core.policy.policy import Severity
from sidecar.core.reach import Reach

FORMAT: Final = 1
MOST_JOBS: Final = HANDOVER.most_items
MOST_PICTURED: Final = 200
"""Jobs and TaskManagers of the last picture of Flink's REST server."""
MOST_ALERTS: Final = 500
"""The most alerts in all groups together: each firing alert is compared with each other one."""
MOST_FAILOVERS: Final = 1_000
_MOST_LEASES: Final = 5_000

_Steady = Annotated[int, Meta(ge=-LATEST, le=LATEST)]
_Duration = Annotated[int, Meta(ge=0, le=LATEST)]
_Wall = Annotated[int, Meta(ge=0, le=LATEST)]
_Seconds = Annotated[float, Meta(ge=0, le=1e9)]
_Number = Annotated[int, Meta(ge=-(2**63), le=2**63 - 1)]
"""A number from the store."""
_Count = Annotated[int, Meta(ge=0, le=1_000_000)]
_Times = Annotated[int, Meta(ge=0, le=1_000)]
_Text = Annotated[str, Meta(pattern=r"^[ -~]{0,1000}\Z")]
"""A text from the store: printable ASCII."""
_Address = Annotated[str, Meta(pattern=r"^[!-~]{0,1000}\Z")]
"""The only text that a message may have from a handover, beside names: without blanks, it says little else."""
_Name = Annotated[str, Meta(pattern=r"^[A-Za-z0-9_.-]{1,253}\Z")]
_NameOrNone = Annotated[str, Meta(pattern=r"^[A-Za-z0-9_.-]{0,253}\Z")]
_Hosts = Annotated[tuple[_Address, ...], Meta(max_length=MOST_HOSTS)]
_Bytes = Annotated[int, Meta(ge=0, le=2**63 - 1)]
_Code = Annotated[int, Meta(ge=-(2**31), le=2**31)]
_Port = Annotated[int, Meta(ge=0, le=65_535)]
_Share = Annotated[float, Meta(ge=0, le=100)]
_Id = Annotated[str, Meta(pattern=r"^[0-9a-f-]{36}\Z")]
_IdOrNone = Annotated[str, Meta(pattern=r"^([0-9a-f-]{36})?\Z")]
_JobId = Annotated[str, Meta(pattern=r"^[0-9a-f]{32}\Z")]
_JobName = Annotated[str, Meta(pattern=r"^[^\x00-\x1f\x7f-\x9f]{0,201}\Z")]
"""Cleaned where it is written, and where it is shown."""
_Labels = Annotated[
    dict[Annotated[str, Meta(max_length=128)], Annotated[str, Meta(max_length=1000)]], Meta(max_length=64)
]
"""Compared with ours, and never shown."""
_Version = Annotated[str, Meta(pattern=r"^1\.\d{1,2}( - 1\.\d{1,2}| or (older|newer))?\Z")]


class _Bounded(Struct, frozen=True, omit_defaults=True):
    """A value of the document."""


class LeaderInformation(_Bounded, frozen=True):
    address: _Address
    session_id: UUID


class ZNodePosition(_Bounded, frozen=True, tag="znode"):
    path: _Text
    czxid: _Number
    mzxid: _Number
    version: _Number
    ephemeral_owner: _Number
    mtime: _Number
    returned: _Text | None = None


class ConfigMapPosition(_Bounded, frozen=True, tag="config_map"):
    name: _Text
    key: _Text
    uid: _Text
    resource_version: _Text
    holder_identity: _Text
    acquire_time: _Text
    returned: _Text | None = None


class Births(_Bounded, frozen=True):
    parent_czxid: _Number
    count: _Number


class Gap(_Bounded, frozen=True):
    exact: _Count | None = 0
    at_least: _Count = 0


class Look(_Bounded, frozen=True):
    path: _Text
    czxid: _Number | None
    version: _Number
    births: Births | None
    gap: Gap = Gap()


class Elections(_Bounded, frozen=True):
    uid: _Text
    count: _Number | None
    sure: bool
    gap: Gap = Gap(None)


class LastLed(_Bounded, frozen=True):
    earliest: _Steady | None
    latest: _Steady | None


class Downtime(_Bounded, frozen=True):
    at_least: _Duration = 0
    at_most: _Duration | None = 0


class Absence(_Bounded, frozen=True):
    episode_id: _Id | None
    since: _Steady | None = None
    left_at: _Steady = 0
    vacant: _Duration | None = None
    downtime: Downtime = Downtime()
    leaders: _Times = 0
    withdrew: bool = False


class Contest(_Bounded, frozen=True):
    earlier: Annotated[tuple[UUID, ...], Meta(max_length=4)] = ()
    returns: Annotated[tuple[_Steady, ...], Meta(max_length=3)] = ()
    since: Moment | None = None


class ComponentState(_Bounded, frozen=True):
    last_known: LeaderInformation | None = None
    last_position: ZNodePosition | ConfigMapPosition | None = None
    look: Look | None = None
    elections: Elections | None = None
    contest: Contest = Contest()
    last_led: LastLed | None = None
    absence: Absence | None = None
    registered: bool | None = None


class ComponentId(_Bounded, frozen=True):
    component: Component
    job_id: _JobId | None = None


class Loss(_Bounded, frozen=True):
    began: Moment
    ended: Moment | None = None
    obscured: bool = False


class Intent(_Bounded, frozen=True):
    plan: Plan
    after: _Steady
    of: Annotated[str, Meta(pattern=r"^(node )?[A-Za-z0-9_.-]{1,253}\Z")] | None = None
    subject: Annotated[str, Meta(pattern=r"^[A-Za-z0-9_. -]{0,300}\Z")] = ""


class Restart(_Bounded, frozen=True):
    """The operator's report of a restart, without its text."""

    reason: OperatorReason
    after: _Steady


class Facts(_Bounded, frozen=True):
    orderly: bool = False
    left: _Count = 0
    withdrawn: _Count = 0
    released: bool = False
    not_renewed_for: _Duration | None = None
    deleted: bool = False
    foreign: bool = False
    returned: bool = False
    split: bool = False
    unseen: bool = False
    loss: Loss | None = None
    opened: _Steady = 0
    contended: _Count | None = None
    contend: _Count | None = None
    store_reelected: bool = False
    same_process: bool | None = None
    same_place: bool | None = None
    counted_on: bool | None = None
    upgraded: tuple[_Version, _Version] | None = None
    quiet_end: bool = False
    succeeded: bool = False
    removed: bool = False
    intent: Intent | None = None
    restart: Restart | None = None
    operated: bool = False
    is_own_place: bool = True
    exit_code: _Code | None = None
    exited_at: _Steady | None = None
    lives: bool = False
    is_stopped: bool = False
    stood_still: _Duration | None = None


class Episode(_Bounded, frozen=True):
    id: _Id
    opened_at: Moment
    moved_at: Moment
    facts: Facts
    before: LeaderInformation
    jobs_total: _Count
    failovers: _Times = 0
    jobs_ended: _Count = 0
    jobs_lost: _Count = 0
    jobs_vanished: _Count = 0
    longest_ended: _Duration | None = None
    after: LeaderInformation | None = None
    closed_at: Moment | None = None


class Standby(_Bounded, frozen=True):
    several_since: Moment | None = None
    alone_since: Moment | None = None
    lacking_since: Moment | None = None
    left: Annotated[int, Meta(ge=0, le=MOST_LEFT)] = 0
    lacked: Annotated[int, Meta(ge=0, le=MOST_LACKED)] = 0
    counted_at: Moment | None = None


class LeaderElectionRecord(_Bounded, frozen=True):
    holder_identity: _Text = ""
    lease_duration: Annotated[int, Meta(ge=0, le=LONGEST_LEASE)] = 15_000_000
    acquire_time: _Text = ""
    renew_time: _Text = ""
    leader_transitions: _Number | None = None


class Pod(_Bounded, frozen=True):
    name: _Name
    uid: _Name | None = None
    named_at: Annotated[int, Meta(ge=0, le=LATEST)] = 0


class Disruption(_Bounded, frozen=True):
    at: Moment
    pod: _Name
    address: _Address
    node: _Name | None = None


class FlinkDeployment(_Bounded, frozen=True):
    uid: _Name
    generation: _Number
    observed_generation: _Number | None = None
    reconciliation: Reconciliation | None = None
    reconciled_at: _Duration | None = None
    suspended: bool = False
    deleting: bool = False
    owner: _Name | None = None
    kind: Maker = Maker.FLINK_DEPLOYMENT
    name: _NameOrNone = ""
    finished: bool = False
    stuck: _NameOrNone = ""


class Operated(_Bounded, frozen=True):
    """The maker of a cluster's JobManagers, without `unread_since`: the reader has not read it yet."""

    deployment: FlinkDeployment | None
    changed_at: Moment | None = None
    plan: Plan | None = None
    asked_at: Moment | None = None
    began: Moment | None = None
    ended: Moment | None = None
    unwanted_since: Moment | None = None
    wanted_since: Moment | None = None
    kind: Maker = Maker.FLINK_DEPLOYMENT
    name: _NameOrNone = ""
    unseen: bool = False
    namespace: _NameOrNone = ""


class PodStatus(_Bounded, frozen=True):
    """The status of a pod, without its message."""

    uid: _Name
    name: _Name
    address: _Address
    node: _NameOrNone = ""
    delete_at: _Wall | None = None
    grace_seconds: _Count | None = None
    phase: _NameOrNone = ""
    reason: _NameOrNone = ""
    disruption: _Name | None = None
    cordoned: bool | None = None
    created_at: _Wall | None = None
    limit_bytes: _Bytes | None = None
    image: _Address = ""
    revision: _NameOrNone = ""


class LogFault(_Bounded, frozen=True):
    """The fault at the end of a log, without its text."""

    age: _Duration | None = None
    heap: bool = False
    no_space: bool = False


class ContainerEnded(_Bounded, frozen=True):
    at: Moment
    exit_code: _Code
    reason: _NameOrNone
    limit_bytes: _Bytes | None = None
    fault: LogFault | None = None
    seen_at: _Wall | None = None


class KnownPod(_Bounded, frozen=True):
    at: Moment
    status: PodStatus
    ends: Annotated[tuple[ContainerEnded, ...], Meta(max_length=MOST_ENDS)] = ()
    deleted_at: Moment | None = None
    gone_at: Moment | None = None
    failed_at: Moment | None = None


class PodSign(_Bounded, frozen=True):
    """An Event about a pod, without its text."""

    at: Moment
    uid: _Name
    sign: Sign


class OperatorEvent(_Bounded, frozen=True):
    """An Event of the operator, without its text."""

    at: Moment
    reason: OperatorReason


class Pressure(_Bounded, frozen=True):
    cpu: _Share | None = None
    memory: _Share | None = None
    io: _Share | None = None


class ProcessEnd(_Bounded, frozen=True):
    """The end of a process, without file names and file contents."""

    pid: _Count
    ended_at: _Wall
    exit_code: _Code | None = None
    oom_kills: _Count | None = None
    limit_bytes: _Bytes | None = None
    pressure: Pressure = Pressure()
    last_pause: _Seconds | None = None
    ports: Annotated[tuple[_Port, ...], Meta(max_length=MOST_PORTS)] = ()


class KnownProcessEnd(_Bounded, frozen=True):
    at: Moment
    hosts: _Hosts
    end: ProcessEnd
    fault: LogFault | None = None


class LogRead(_Bounded, frozen=True):
    at: Moment
    hosts: _Hosts
    fault: LogFault
    pod_uid: _Name | None = None
    followed: bool = False


class Rebooted(_Bounded, frozen=True):
    at: Moment
    hosts: _Hosts


class Ends(_Bounded, frozen=True):
    pods: Annotated[dict[_Name, KnownPod], Meta(max_length=MOST_ENDED_PODS)] = {}
    signs: Annotated[tuple[PodSign, ...], Meta(max_length=MOST_SIGNS)] = ()
    operator: Annotated[tuple[OperatorEvent, ...], Meta(max_length=MOST_ENDS)] = ()
    processes: Annotated[tuple[KnownProcessEnd, ...], Meta(max_length=MOST_ENDS)] = ()
    logs: Annotated[tuple[LogRead, ...], Meta(max_length=MOST_ENDS)] = ()
    reboots: Annotated[tuple[Rebooted, ...], Meta(max_length=MOST_ENDS)] = ()


class Checkpoint(_Bounded, frozen=True):
    id: _Number
    triggered_at: _Wall
    ended_at: _Wall
    is_savepoint: bool = False


class Restored(_Bounded, frozen=True):
    id: _Number
    is_savepoint: bool = False


class Checkpoints(_Bounded, frozen=True):
    read_at: _Wall
    completed: Annotated[tuple[Checkpoint, ...], Meta(max_length=MOST_CHECKPOINTS)] = ()
    restored: Restored | None = None
    first_id: _Number | None = None
    interval: _Duration | None = None
    shortest: _Duration | None = None
    enabled: bool = True
    restored_known: bool = True


class Job(_Bounded, frozen=True):
    id: _JobId
    name: _JobName
    state: Annotated[str, Meta(pattern=r"^[A-Z_]{1,32}\Z")]
    started_at: _Wall
    changed_at: _Wall
    running_tasks: _Count = 0
    total_tasks: _Count = 0
    checkpoints: Checkpoints | None = None


class TaskManager(_Bounded, frozen=True):
    id: Annotated[str, Meta(pattern=r"^[!-~]{1,300}\Z")]


class Picture(_Bounded, frozen=True):
    """The picture from before a failover, without paths and addresses."""

    at: _Wall
    leader: _Address
    jobs: Annotated[tuple[Job, ...], Meta(max_length=MOST_PICTURED)] = ()
    jobs_beyond: _Count = 0
    task_managers: Annotated[tuple[TaskManager, ...], Meta(max_length=MOST_PICTURED)] | None = None
    task_managers_beyond: _Count = 0
    left_out: bool = False


class Unanswered(_Bounded, frozen=True):
    """The silence of a leader, without the number of requests: the reader proves a silence by its own requests."""

    since: Moment
    until: _Steady
    reach: Reach


class RestServer(_Bounded, frozen=True):
    leader: LeaderInformation
    unanswered: Unanswered | None = None


class JobFault(_Bounded, frozen=True):
    fault: recovery_state.Fault
    since: Moment
    episode_id: _Id
    name: _JobName | None = None


class Assessed(_Bounded, frozen=True):
    """The jobs of the last failover that are waited for."""

    episode_id: _Id
    at: Moment
    waiting: Annotated[dict[_JobId, _JobName], Meta(max_length=MOST_PICTURED)] = {}
    led_at: Moment | None = None
    namesakes: Annotated[tuple[_JobId, ...], Meta(max_length=MOST_PICTURED)] = ()


class Drilled(_Bounded, frozen=True):
    since: _Wall = 0
    passed_at: _Wall = 0
    passed: _IdOrNone = ""


class AlertLabels(_Bounded, frozen=True):
    """The labels that a reader cannot make itself."""

    observer: _Name | None = None
    planned: _Name | None = None
    severity: Severity | None = None


class Agreement(_Bounded, frozen=True):
    sharing: _Count
    connected: _Count
    known: _Count


class Alert(_Bounded, frozen=True):
    """An alert, without its text: see `missing`."""

    id: _Id
    rule: Annotated[str, Meta(pattern=r"^[A-Za-z0-9_.-]{1,64}\Z")]
    cluster_id: Annotated[str, Meta(max_length=1000)]
    labels: AlertLabels
    began: Moment
    component: ComponentId | None = None
    before: _Address | None = None
    after: _Address | None = None
    vacant_seconds: _Seconds | None = None
    downtime_seconds_at_least: _Seconds | None = None
    downtime_seconds_at_most: _Seconds | None = None
    count: Annotated[int, Meta(ge=0, le=2**32)] | None = None
    latest: Moment | None = None
    episode_id: _Id | None = None
    jobs_lost: _Count = 0
    vacancy_notified: bool = False
    ended: Moment | None = None
    unwanted: bool = False
    left_behind: bool = False
    is_event: bool = False
    subjects: Annotated[tuple[_Id, ...], Meta(max_length=4)] = ()
    certain: bool = True
    reach: Reach | None = None
    agreement: Agreement | None = None


class Member(_Bounded, frozen=True, rename={"notified": "told", "suppressed_by": "held_back"}):
    alert: Alert
    notified: bool = False
    suppressed_by: Reason | None = None
    silence: Annotated[str, Meta(pattern=r"^[!-~]{1,36}\Z")] | None = None
    closes: bool = False


class Group(_Bounded, frozen=True, rename={"notified_at": "told_at"}):
    route: Annotated[str, Meta(max_length=10_000)]
    labels: _Labels
    members: Annotated[dict[_Id, Member], Meta(max_length=MOST_ALERTS)] = {}
    flush_at: _Steady | None = None
    notified_at: _Steady | None = None
    thread: _IdOrNone = ""
    incident: _IdOrNone = ""
    worst: Annotated[int, Meta(ge=-1, le=2)] = -1
    hastened_at: _Steady | None = None
    opened_at: Annotated[
        tuple[Annotated[str, Meta(pattern=r"^[A-Za-z0-9_.-]{1,64}#[0-9]{1,4}\Z")], ...], Meta(max_length=100)
    ] = ()


class CountedFailover(_Bounded, frozen=True):
    episode_id: _Id
    at: _Steady
    times: _Times


class Document(_Bounded, frozen=True):
    """The handover document of one cluster."""

    format: int
    observer: _Name
    alive: Moment
    ended: bool
    jobs_left_out: _Count = 0
    components: Annotated[list[tuple[ComponentId, ComponentState]], Meta(max_length=MOST_JOBS + 10)] = []
    episode: Episode | None = None
    last_episode: Episode | None = None
    standby: Standby | None = None
    lapsed: Annotated[dict[_Text, LeaderElectionRecord], Meta(max_length=_MOST_LEASES)] = {}
    pods: Annotated[dict[_Text, Pod], Meta(max_length=MOST_PODS)] = {}
    operated: Operated | None = None
    disruptions: Annotated[dict[_Name, Disruption], Meta(max_length=MOST_DISRUPTIONS)] = {}
    ends: Ends | None = None
    picture: Picture | None = None
    assessed: Assessed | None = None
    job_faults: Annotated[dict[_JobId, JobFault], Meta(max_length=MOST_PICTURED)] = {}
    rest_server: RestServer | None = None
    groups: Annotated[dict[_Id, Group], Meta(max_length=MOST_ALERTS)] = {}
    failovers: Annotated[tuple[CountedFailover, ...], Meta(max_length=MOST_FAILOVERS)] = ()
    drilled: Drilled | None = None
