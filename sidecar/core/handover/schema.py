"""The schema of a handover document, with the bounds of each value.

Others can write it. So it is no state of ours but a schema of its own: each text has an alphabet and a length, each number a range, each
list a size, and what is not named here is not read. A `HandedEpisode` has names, defaults and meaning of the core's `Episode`, and so
forth; a type of the core whose fields all have such bounds is used itself.
"""

from typing import Annotated, Final
from uuid import UUID

from msgspec import Meta, Struct

from sidecar.core.agreement import Agreement
from sidecar.core.alerting.alerts import CountedFailover, Reason
from sidecar.core.bounds import HANDOVER
from sidecar.core.cluster.cluster_state import Drilled, Unanswered
from sidecar.core.counted import Count, Number
from sidecar.core.failover.episodes import Absence
from sidecar.core.failover.plans import MOST_DISRUPTIONS, Disruption, Plan
from sidecar.core.failover.recovery_state import JobFault, JobName
from sidecar.core.flink.configmaps import LONGEST_LEASE
from sidecar.core.flink.deployments import Maker
from sidecar.core.flink.leadership import ComponentId, JobId
from sidecar.core.leadership.leadership_account import Standby
from sidecar.core.leadership.unobserved import LastLed, Loss
from sidecar.core.moment import Duration, Moment, Steady, Wall
from sidecar.core.pictures import Restored
from sidecar.core.pods import MOST_PODS, Address, KubernetesName, Pod
from sidecar.core.policy.policy import Severity
from sidecar.core.reach import Reach
from sidecar.core.records import RecordId, RecordIdOrNone

FORMAT: Final = 1
MOST_JOBS: Final = HANDOVER.most_items
MOST_PICTURED: Final = 200
"""Jobs and TaskManagers of the last picture of Flink's REST server."""
MOST_ALERTS: Final = 500
"""The most alerts in all groups together: each firing alert is compared with each other one."""
MOST_FAILOVERS: Final = 1_000
_MOST_LEASES: Final = 5_000

_Seconds = Annotated[float, Meta(ge=0, le=1e9)]
_Text = Annotated[str, Meta(pattern=r"^[ -~]{0,1000}\Z")]
"""A text from the store: printable ASCII."""
_NameOrNone = Annotated[str, Meta(pattern=r"^[A-Za-z0-9_.-]{0,253}\Z")]
_Code = Annotated[int, Meta(ge=-(2**31), le=2**31)]
_Labels = Annotated[
    dict[Annotated[str, Meta(max_length=128)], Annotated[str, Meta(max_length=1000)]], Meta(max_length=64)
]
"""Compared with ours, and never shown."""
TaskManagerId = Annotated[str, Meta(pattern=r"^[!-~]{1,300}\Z")]
_Version = Annotated[str, Meta(pattern=r"^1\.\d{1,2}( - 1\.\d{1,2}| or (older|newer))?\Z")]


class HandedLeaderInformation(Struct, frozen=True, omit_defaults=True):
    address: Address
    session_id: UUID


class HandedZNodePosition(Struct, frozen=True, omit_defaults=True, tag="znode"):
    path: _Text
    czxid: Number
    mzxid: Number
    version: Number
    ephemeral_owner: Number
    mtime: Number
    returned: _Text | None = None


class HandedConfigMapPosition(Struct, frozen=True, omit_defaults=True, tag="config_map"):
    name: _Text
    key: _Text
    uid: _Text
    resource_version: _Text
    holder_identity: _Text
    acquire_time: _Text
    returned: _Text | None = None


class HandedComponentState(Struct, frozen=True, omit_defaults=True):
    last_known: HandedLeaderInformation | None = None
    last_position: HandedZNodePosition | HandedConfigMapPosition | None = None
    split_since: Moment | None = None
    last_led: LastLed | None = None
    absence: Absence | None = None
    registered: bool | None = None


class HandedIntent(Struct, frozen=True, omit_defaults=True):
    plan: Plan
    after: Steady
    of: Annotated[str, Meta(pattern=r"^(node )?[A-Za-z0-9_.-]{1,253}\Z")] | None = None
    subject: Annotated[str, Meta(pattern=r"^[A-Za-z0-9_. -]{0,300}\Z")] = ""


class HandedFacts(Struct, frozen=True, omit_defaults=True):
    orderly: bool = False
    left: Count = 0
    withdrawn: Count = 0
    released: bool = False
    not_renewed_for: Duration | None = None
    deleted: bool = False
    foreign: bool = False
    returned: bool = False
    split: bool = False
    unseen: bool = False
    loss: Loss | None = None
    opened: Steady = 0
    contended: Count | None = None
    contend: Count | None = None
    store_reelected: bool = False
    same_process: bool | None = None
    same_place: bool | None = None
    counted_on: bool | None = None
    upgraded: tuple[_Version, _Version] | None = None
    quiet_end: bool = False
    succeeded: bool = False
    removed: bool = False
    intent: HandedIntent | None = None
    operated: bool = False
    is_own_place: bool = True
    exit_code: _Code | None = None
    exited_at: Steady | None = None
    lives: bool = False
    is_stopped: bool = False
    stood_still: Duration | None = None


class HandedEpisode(Struct, frozen=True, omit_defaults=True):
    id: RecordId
    opened_at: Moment
    moved_at: Moment
    facts: HandedFacts
    before: HandedLeaderInformation
    jobs_total: Count
    failovers: Count = 0
    jobs_ended: Count = 0
    jobs_lost: Count = 0
    jobs_vanished: Count = 0
    longest_ended: Duration | None = None
    after: HandedLeaderInformation | None = None
    closed_at: Moment | None = None


class HandedLeaderElectionRecord(Struct, frozen=True, omit_defaults=True):
    holder_identity: _Text = ""
    lease_duration: Annotated[int, Meta(ge=0, le=LONGEST_LEASE)] = 15_000_000
    acquire_time: _Text = ""
    renew_time: _Text = ""
    leader_transitions: Number | None = None


class HandedOperated(Struct, frozen=True, omit_defaults=True):
    """What makes the JobManagers, as far as a stop, or an upgrade that nobody observes, is known by it.

    The first three are those of its `deployment`; `uid` None: it is being deleted, or was.
    """

    uid: KubernetesName | None = None
    generation: Number = 0
    reconciled_at: Duration | None = None
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


class HandedCheckpoint(Struct, frozen=True, omit_defaults=True):
    id: Number
    triggered_at: Wall
    ended_at: Wall


class HandedCheckpoints(Struct, frozen=True, omit_defaults=True):
    read_at: Wall
    completed: Annotated[tuple[HandedCheckpoint, ...], Meta(max_length=1)] = ()
    restored: Restored | None = None
    enabled: bool = True


class HandedJob(Struct, frozen=True, omit_defaults=True):
    id: JobId
    name: JobName
    state: Annotated[str, Meta(pattern=r"^[A-Z_]{1,32}\Z")]
    started_at: Wall
    changed_at: Wall
    running_tasks: Count = 0
    total_tasks: Count = 0
    checkpoints: HandedCheckpoints | None = None


class HandedPicture(Struct, frozen=True, omit_defaults=True):
    """The picture from before a failover, without paths and addresses; of TaskManagers their ids."""

    at: Wall
    leader: Address
    jobs: Annotated[tuple[HandedJob, ...], Meta(max_length=MOST_PICTURED)] = ()
    jobs_beyond: Count = 0
    task_managers: Annotated[tuple[TaskManagerId, ...], Meta(max_length=MOST_PICTURED)] | None = None
    task_managers_beyond: Count = 0
    left_out: bool = False


class HandedRestServer(Struct, frozen=True, omit_defaults=True):
    leader: HandedLeaderInformation
    unanswered: Unanswered | None = None


class HandedAssessed(Struct, frozen=True, omit_defaults=True):
    """The jobs of the last failover that are waited for."""

    episode_id: RecordId
    at: Moment
    waiting: Annotated[dict[JobId, JobName], Meta(max_length=MOST_PICTURED)] = {}
    led_at: Moment | None = None
    namesakes: Annotated[tuple[JobId, ...], Meta(max_length=MOST_PICTURED)] = ()


class AlertLabels(Struct, frozen=True, omit_defaults=True):
    """The labels that a reader cannot make itself."""

    observer: KubernetesName | None = None
    planned: KubernetesName | None = None
    severity: Severity | None = None
    check: KubernetesName | None = None


class HandedAlert(Struct, frozen=True, omit_defaults=True):
    """An alert, without its text: see `missing`."""

    id: RecordId
    rule: Annotated[str, Meta(pattern=r"^[A-Za-z0-9_.-]{1,64}\Z")]
    cluster_id: Annotated[str, Meta(max_length=1000)]
    labels: AlertLabels
    began: Moment
    component: ComponentId | None = None
    before: Address | None = None
    after: Address | None = None
    vacant_seconds: _Seconds | None = None
    downtime_seconds_at_least: _Seconds | None = None
    downtime_seconds_at_most: _Seconds | None = None
    count: Annotated[int, Meta(ge=0, le=2**32)] | None = None
    latest: Moment | None = None
    episode_id: RecordId | None = None
    jobs_lost: Count = 0
    vacancy_notified: bool = False
    ended: Moment | None = None
    unwanted: bool = False
    left_behind: bool = False
    is_event: bool = False
    subjects: Annotated[tuple[RecordId, ...], Meta(max_length=4)] = ()
    certain: bool = True
    reach: Reach | None = None
    agreement: Agreement | None = None


class HandedMember(Struct, frozen=True, omit_defaults=True, rename={"notified": "told", "suppressed_by": "held_back"}):
    alert: HandedAlert
    notified: bool = False
    suppressed_by: Reason | None = None
    silence: Annotated[str, Meta(pattern=r"^[!-~]{1,36}\Z")] | None = None
    closes: bool = False


class HandedGroup(Struct, frozen=True, omit_defaults=True, rename={"notified_at": "told_at"}):
    route: Annotated[str, Meta(max_length=10_000)]
    labels: _Labels
    members: Annotated[dict[RecordId, HandedMember], Meta(max_length=MOST_ALERTS)] = {}
    flush_at: Steady | None = None
    notified_at: Steady | None = None
    thread: RecordIdOrNone = ""
    incident: RecordIdOrNone = ""
    worst: Annotated[int, Meta(ge=-1, le=2)] = -1
    hastened_at: Steady | None = None
    opened_at: Annotated[
        tuple[Annotated[str, Meta(pattern=r"^[A-Za-z0-9_.-]{1,64}#[0-9]{1,4}\Z")], ...], Meta(max_length=100)
    ] = ()


class Document(Struct, frozen=True, omit_defaults=True):
    """The handover document of one cluster."""

    format: int
    observer: KubernetesName
    alive: Moment
    ended: bool
    jobs_left_out: Count = 0
    components: Annotated[list[tuple[ComponentId, HandedComponentState]], Meta(max_length=MOST_JOBS + 10)] = []
    episode: HandedEpisode | None = None
    last_episode: HandedEpisode | None = None
    standby: Standby | None = None
    lapsed: Annotated[dict[_Text, HandedLeaderElectionRecord], Meta(max_length=_MOST_LEASES)] = {}
    pods: Annotated[dict[_Text, Pod], Meta(max_length=MOST_PODS)] = {}
    operated: HandedOperated | None = None
    disruptions: Annotated[dict[KubernetesName, Disruption], Meta(max_length=MOST_DISRUPTIONS)] = {}
    picture: HandedPicture | None = None
    assessed: HandedAssessed | None = None
    job_faults: Annotated[dict[JobId, JobFault], Meta(max_length=MOST_PICTURED)] = {}
    rest_server: HandedRestServer | None = None
    groups: Annotated[dict[RecordId, HandedGroup], Meta(max_length=MOST_ALERTS)] = {}
    failovers: Annotated[tuple[CountedFailover, ...], Meta(max_length=MOST_FAILOVERS)] = ()
    drilled: Drilled | None = None
