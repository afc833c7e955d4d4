"""The audit log's records: one definition, from which the JSON lines, the journal and the Parquet tables follow (CONTRACTS: Records).

A field may be added (then SCHEMA rises); none is renamed, retyped or removed. Words of the core's enumerations are `str` here: a record
with a word of a newer version is still read. The docstrings of types and fields are the comments of the audit log's tables and columns
(docs/reference/audit-schema.md): they are written for whoever queries it.
"""

from typing import Annotated, Final
from uuid import UUID, uuid5

from msgspec import Meta, Struct

from sidecar.core.moment import Timestamp

SCHEMA: Final = 15

RecordId = Annotated[str, Meta(pattern=r"^[0-9a-f-]{36}\Z")]
"""A UUID, as `record_id` makes it."""
RecordIdOrNone = Annotated[str, Meta(pattern=r"^([0-9a-f-]{36})?\Z")]
"""Empty: none."""

_NAMESPACE: Final = UUID("5b5f6f0e-8f0b-5e0a-9d2c-3f1f5c1c6a11")


def record_id(*what_happened: object) -> str:
    """The UUIDv5 of what happened: the same for every observer of it, and for the same observer a second time."""
    return str(uuid5(_NAMESPACE, "\x1f".join(map(str, what_happened))))


class PositionRecord(Struct, frozen=True, kw_only=True):
    """The store's own coordinates of an observation."""

    path: str | None = None
    """The path of the leader node, or name and key of the ConfigMap. Null: not known."""
    czxid: int | None = None
    """ZooKeeper: the transaction that created the node. Null in Kubernetes."""
    mzxid: int | None = None
    """ZooKeeper: the transaction that last wrote the node. Null in Kubernetes."""
    version: int | None = None
    """ZooKeeper: how often the node was written since it was created. Null in Kubernetes."""
    ephemeral_owner: int | None = None
    """ZooKeeper: the session that owns the node. Null in Kubernetes."""
    uid: str | None = None
    """Kubernetes: the identity of the ConfigMap, another one after it was deleted and created again. Null in ZooKeeper."""
    resource_version: str | None = None
    """Kubernetes: the version of the ConfigMap. Null in ZooKeeper."""
    holder_identity: str | None = None
    """Kubernetes: the holder of the lease. Null in ZooKeeper, and if nobody held it."""
    acquire_time: str | None = None
    """Kubernetes: when the holder acquired the lease, as the holder wrote it. Null in ZooKeeper, and if nobody held it."""


class Record(Struct, frozen=True, kw_only=True, tag_field="type"):
    """The envelope of every record. The owner's loop sets `recorded_at` when it writes the record to the journal."""

    schema_version: int = SCHEMA
    """The version of the record's fields."""
    id: str
    """A UUIDv5 of what happened, once in the table: every observer of the same event derives the same id."""
    cluster_id: str
    """Flink's cluster id, without slashes at its ends."""
    external_labels: dict[str, str]
    """`external_labels` of the sidecar's configuration."""
    store: str
    """`zookeeper` or `kubernetes`. Empty: the cluster is no longer in the configuration."""
    observer: str
    """The sidecar that wrote the record."""
    observed_at: Timestamp
    """When the recorded fact was observed, by the observer's clock."""
    recorded_at: Timestamp = Timestamp("")
    """When the record was written to the observer's journal."""


class TransitionRecord(Record, frozen=True, kw_only=True, tag="transition"):
    """A transition of one component: a row of the leadership table."""

    component: str
    """`resource_manager`, `dispatcher`, `rest_server` or `job`."""
    job_id: str | None
    """The job, 32 hex digits. Null: another component."""
    kind: str
    """`DISCOVERED`, `GRANTED`, `CHANGED`, `READDRESSED`, `REVOKED`, `RETIRED` or `OBSCURED`: docs/explanation/episodes.md."""
    pattern: str
    """`kind` in symbols: `A->null`, `null->B`, `A->B`, `A->A'`, `?->A`, `A->?`, …"""
    before_session_id: str | None
    """The leader session id before. Null: no leader, or not known."""
    before_address: str | None
    """The leader's address before. Null: no leader, or not known."""
    after_session_id: str | None
    """The leader session id afterwards. Null: no leader, or not known."""
    after_address: str | None
    """The leader's address afterwards. Null: no leader, or not known."""
    last_known_session_id: str | None
    """The last leader session id that this observer knew, also from before a blind period. Null: none."""
    last_known_address: str | None
    """The address of the last leader that this observer knew. Null: none."""
    same_leader: bool
    """The leader is the last known one."""
    same_process: bool | None
    """Whether the last known leader's process leads again. True: the same ZooKeeper session. False: another host. Null: neither decides."""
    unobserved: int | None
    """Unobserved writes (in Kubernetes: elections) between before and after. Null: not known, but at least `unobserved_at_least`."""
    vacant_seconds: float | None
    """Seconds without a published leader before this one. Null: there was no vacancy, or its beginning was not observed."""
    downtime_seconds_at_least: float | None = None
    """Lower bound of the seconds without a working leader before this one: a dead leader stays published for a while. Null: not known."""
    downtime_seconds_at_most: float | None = None
    """Upper bound of the seconds without a working leader, from when the store last heard of the previous leader. Null: not known."""
    connection: str
    """The connection to the store at that time: `CONNECTED`, `SUSPENDED`, `LOST` or, before the first one, `NOT_CONNECTED`."""
    reason: str | None
    """OBSCURED: why the leader is unknown. Without a leader, in Kubernetes: the fact from which that was derived. Null: all others."""
    written_at: Timestamp | None
    """When the leader wrote the observed value, by the store's clock. Null: not known."""
    position: PositionRecord | None
    """The store's own coordinates of what was observed, or of the previous leader. Null: not known."""
    episode_id: str | None = None
    """The failover (`episodes.episode_id`) that it is part of. Null: none."""
    unobserved_at_least: int | None = None
    """Lower bound of `unobserved`. Null: not known."""
    elections: int | None = None
    """Leader nodes created at this path since its parent was created, or changes of the lease's holder. Null: not counted."""
    contenders: int | None = None
    """How many JobManagers contended at that time. 1: no standby is left. Null: no latch was observed."""
    store_reelected: bool | None = None
    """Whether ZooKeeper itself elected a leader between the last known leader's write and this one's. Null: not two writes."""
    returned: bool = False
    """The leader had been replaced, and is back with its old session id: no election."""
    split: bool = False
    """The transition is part of a split leadership."""
    plan_vanished: bool = False
    """RETIRED: the job's plan vanished from the store while nobody led. It did not end by itself, and Flink does not know it any more."""


class Coverage(Record, frozen=True, kw_only=True, tag="coverage"):
    """A period in which this observer could see who leads (`seeing`) or not (`blind`): the store could not be read, or there was no such
    cluster. Availability counts covered time only."""

    began_at: Timestamp
    """When the period began."""
    ended_at: Timestamp
    """When the period ended, or the time of the record if it lasts."""
    state: str
    """`seeing` or `blind`."""
    suspended: bool = False
    """The cluster's FlinkDeployment was suspended or deleted, so no leader was wanted."""
    slo_leadership: float | None = None
    """The cluster's objective for leadership, in percent. Null: none is configured."""
    slo_window_seconds: float | None = None
    """The window of the objective. Null: none is configured."""


class Contention(Record, frozen=True, kw_only=True, tag="contention"):
    """JobManagers started or stopped to contend for one leadership (up to Flink 1.14), or for that of all components."""

    component: str | None
    """The component (up to Flink 1.14). Null: all components."""
    contenders: int
    """How many contend now. 1: a leader without a standby."""
    contenders_before: int | None
    """How many contended before. Null: not counted."""


class Notification(Record, frozen=True, kw_only=True, tag="notification"):
    """A notification for one destination was queued, or an attempt to deliver it ended."""

    alert: str
    """The names of the rules, with commas."""
    fingerprint: str
    """The group of alerts that are notified together."""
    receiver: str
    """The receiver of the configuration."""
    destination: str
    """One URL of the receiver, by its number: `ops#0`. Empty: suppressed, so nothing was queued."""
    reason: str
    """Why now, or why not: `FIRST`, `GREW`, `RESOLVED`, …: docs/reference/notifications.md."""
    outcome: str
    """`queued`, `delivered`, `failed`, `suppressed`, …: docs/reference/notifications.md."""
    attempt: int
    """The number of the attempt, from 1. 0: none was made."""
    possible_duplicate: bool
    """Whether an earlier attempt may have arrived."""
    detail: str | None
    """Why it was not delivered, in a line. Null: nothing to say."""
    delivery_id: str
    """The id of the delivery, equal for all its attempts."""
    queued_at: Timestamp
    """When the notification was queued."""
    episode_id: str | None = None
    """The failover that it is about. Null: none, several, or none known when it was queued."""
    silence_id: str | None = None
    """SUPPRESSED_BY_SILENCE: the silence, or the drill. Null: all others."""
    service: str | None = None
    """The service of the destination, as its URL names it: `slack`, `mailtos`, `webhook`, … Null: suppressed, or not known any more."""
    component: str | None = None
    """Suppressed: the component that the alert is about. Null: the cluster as a whole, and all others."""
    job_id: str | None = None
    """Suppressed: the job that the alert is about. Null: another component, or all jobs of a failover."""
    observers_sharing: int | None = None
    """How many observers share what the alert says, the recording one among them. Null: no other observer is known, or none was asked."""
    observers_connected: int | None = None
    """How many observers could judge what the alert says. Null: as `observers_sharing`."""
    observers_known: int | None = None
    """How many observers watch the cluster. Null: as `observers_sharing`."""


class EpisodeRecord(Record, frozen=True, kw_only=True, tag="episode"):
    """One failover, from the first component that lost its leader until all have one again. Written when it is closed. `id` is the
    `episode_id` of its transitions, the same for every observer.
    """

    episode_id: str
    """The record's `id`, under the name that all other tables use."""
    opened_at: Timestamp
    """When the first component was observed to have lost its leader."""
    closed_at: Timestamp
    """When the last component had a leader again (or its job had ended)."""
    cause: str
    """`jobmanager_lost`, `graceful_handover`, `store_outage`, …: docs/explanation/episodes.md."""
    confidence: str
    """`high`: no other known cause leaves these facts. `medium`: another one may."""
    facts: list[str]
    """The facts for the cause, a sentence each."""
    components: list[str]
    """The components that failed over: `dispatcher`, … `job` stands for all jobs."""
    jobs_affected: int
    """Jobs that lost their leader."""
    jobs_ended: int
    """Affected jobs that ended without another leader."""
    jobs_lost: int | None = None
    """How many of `jobs_ended` were lost: the leaders' ConfigMap was deleted, or their plans vanished while there was no leader. Flink does
    not know them any more. Null: not known."""
    jobs_missing: int
    """Affected jobs that had no leader when the episode was closed."""
    jobs_total: int
    """Jobs that the cluster had."""
    vacant_seconds: float | None
    """The most seconds that a cluster component had no published leader. Null: no vacancy was observed."""
    vacant_seconds_by_component: dict[str, float]
    """The seconds without a published leader, by component. `job`: of the job with the longest time."""
    downtime_seconds_at_least: float | None = None
    """Lower bound of the most seconds that a cluster component had no working leader. Null: not known."""
    downtime_seconds_at_most: float | None = None
    """Upper bound of the most seconds that a cluster component had no working leader. Null: not known of all components."""
    before_session_id: str | None
    """The previous leader session id: of the dispatcher, or of the first component that lost its leader. Null: not known."""
    before_address: str | None
    """The previous leader's address. Null: not known."""
    before_pod: str | None = None
    """The name of the pod of the previous leader. Null: not known."""
    after_session_id: str | None
    """The new leader session id of the component of `before_session_id`. Null: none."""
    after_address: str | None
    """The new leader's address. Null: none."""
    after_pod: str | None = None
    """The name of the pod of the new leader. Null: not known."""
    planned: bool | None = None
    """Whether it was meant to happen: `facts` say by what. Null: nothing says so, and no FlinkDeployment of the cluster could be read."""
    failovers: int
    """How many leaders followed each other: more than 1 if the next failover began before the episode was closed."""


class Annotation(Record, frozen=True, kw_only=True, tag="annotation"):
    """An operator's note about one episode, with the envelope of the episode. Its times are those of the note."""

    episode_id: str
    """The failover (`episodes.episode_id`)."""
    reason: str
    """The note."""
    author: str | None
    """The name of the person who wrote it. Null: not given."""
    planned: bool | None = None
    """True: the author says that the failover was planned. Null: the note does not say."""


class Evidence(Record, frozen=True, kw_only=True, tag="evidence"):
    """One piece of evidence of one failover, captured by this observer while it still existed, or why there is none."""

    episode_id: str
    """The failover (`episodes.episode_id`)."""
    occasion: str
    """When it was captured: `opened`, `led_again`."""
    kind: str
    """`process`, `thread_dump`, `py_spy`, `job`."""
    subject: str
    """A process, an address, or a job id."""
    outcome: str
    """`captured`, `absent`, `refused`, `failed`, `lost`."""
    detail: str | None
    """A summary, or why there is nothing, in a line. Null: nothing to say."""
    file: str | None
    """The file in the observer's evidence folder, where it is kept for a limited time. Null: nothing was captured."""
    size_bytes: int | None
    """The size of the file, in bytes. Null: no file."""
    sha256: str | None
    """The SHA-256 of the file, in hex. Null: no file."""
    attributes: dict[str, str]
    """A summary, by name."""
    asked_at: Timestamp
    """When the capture was requested."""


class Death(Record, frozen=True, kw_only=True, tag="death"):
    """Why the process of the JobManager that lost its leadership ended, as far as this observer knows: one row for each failover of each
    observer. `episodes.cause` says what the store shows; this says what else shows it.
    """

    episode_id: str
    """The failover (`episodes.episode_id`)."""
    reason: str
    """`oom_killed`, `heap_exhausted`, `killed`, `stopped`, `exited`, `evicted`, `liveness_probe`, `drained`, `preempted`, `node_lost`,
    `replaced`, `deleted`, `disk_full`, `rebooted` or `unknown`: docs/explanation/deaths.md."""
    confidence: str
    """`high`: no other known reason leaves these facts. `medium`: another one may. `none`: `unknown`."""
    facts: list[str]
    """The facts it rests on, a sentence each."""
    exit_code: int | None
    """The exit code of the process: 128 and the number of the signal, if one killed it. Null: not known."""
    limit_bytes: int | None
    """The memory limit in force when it ended, in bytes. Null: none, or not known."""
    ended_at: Timestamp | None
    """When the process ended, by the kernel of its machine or by the kubelet (in whole seconds). Null: not known."""
    seen_at: Timestamp | None = None
    """When the end was first observed: by the kernel at once, by the pod's status when it says so. Null: not known."""
    address: str | None
    """The address of the leader that ended. Null: not known."""
    pod: str | None
    """The name of its pod. Null: not known."""
    fault: str | None = None
    """The first error at the end of its log: later ones are consequences. Null: none, or no log was read."""


class Recovery(Record, frozen=True, kw_only=True, tag="recovery"):
    """Whether a job came back after a failover, or (`job_id` null) the cluster as a whole: a row for each job of each failover of each
    observer, written when the assessment ends. Not with `flink_rest: never`.
    """

    episode_id: str
    """The failover (`episodes.episode_id`)."""
    verdict: str
    """The verdict about the whole failover: `recovered`, `degraded` (some of it is back), `lost` (a job is missing or lost its state) or
    `unproven`."""
    reasons: list[str]
    """Why it is not `recovered`, a sentence each: in the row of the cluster of the failover, in that of a job of that job."""
    job_id: str | None
    """The job, 32 hex digits, as it was before. Null: the row of the cluster."""
    name: str | None
    """The job's name. Null: the row of the cluster."""
    state: str | None
    """The job's state (Flink's `JobStatus`) when the assessment ended. Null: the row of the cluster, or Flink does not know the job."""
    outcome: str | None
    """`running`, `missing`, `resurrected` (it had ended, and runs again), `ended` or `unproven`. Null: the row of the cluster."""
    restored_from: str | None = None
    """`latest` (the last completed checkpoint), `older`, `savepoint` or `nothing`. Null: not known, or the row of the cluster."""
    checkpoint_id: int | None = None
    """The checkpoint or savepoint it was restored from. Null: none, or not known."""
    checkpoints_behind: int | None = None
    """How many completed checkpoints are newer than `checkpoint_id`. Null: not known."""
    reprocessed_seconds: float | None = None
    """Seconds of work before the failure that are done again: from the trigger of that checkpoint. Null: not known."""
    restarts: int | None = None
    """How often the job was restarted during the assessment. Null: not known."""
    task_managers_before: int | None = None
    """Registered TaskManagers before. Null: not known, or the row of a job."""
    task_managers_after: int | None = None
    """How many of the previous TaskManagers registered with the new leader. Null: not known, or the row of a job."""
    task_managers_missing: list[str] = []
    """The resource ids of TaskManagers that did not register with the new leader: the first hundred. Empty in rows of jobs."""
    dead_at: Timestamp | None = None
    """When the previous leader's process ended. Null: not known."""
    opened_at: Timestamp
    """When the first component was observed to have lost its leader."""
    led_at: Timestamp | None = None
    """When every component of the cluster had a leader again. Null: not while it was assessed."""
    dispatcher_led_at: Timestamp | None = None
    """When the dispatcher had a leader again. Null: not known."""
    running_at: Timestamp | None = None
    """When all tasks of the job (or of all jobs) ran at the latest. Null: not while it was assessed."""
    checkpointed_at: Timestamp | None = None
    """When the job (or the last one of all) completed its first checkpoint after `running_at`. Null: not while it was assessed."""
    running_after_seconds: float | None = None
    """Seconds from `dead_at` or `opened_at`, whichever is earlier, to `running_at`. Null: not known."""


class StatusRecord(Record, frozen=True, kw_only=True, tag="status"):
    """The status of a cluster has changed, as this observer sees it."""

    status: str
    """`DOWN`, `SPLIT`, `LOST`, `NOT_RUNNING`, `SILENT`, `RECOVERING`, `DEGRADED`, `BLIND`, `UNCHECKED`, `STOPPED` or `OK`:
    docs/reference/status-page.md."""
    previous: str | None
    """The status before. Null: none was decided yet."""
    since: Timestamp
    """When the status began, by the observer's clock."""
    sentence: str
    """The status in a sentence, as titles and the page had it then."""
    episode_id: str | None = None
    """The failover (`episodes.episode_id`) in progress, or the last one. Null: none is known."""


class HaCheck(Record, frozen=True, kw_only=True, tag="ha_check"):
    """What one check of high availability found, by this observer: a row when its verdict changed, and at least once a day."""

    check_name: str
    """The check: `standby`, `session_timeout`, …: docs/reference/ha-checks.md."""
    verdict: str
    """`PASS`, `RISK`, or `UNKNOWN`: the facts could not be read, or do not decide."""
    verdict_before: str | None
    """The verdict of the check before. Null: the first one since the sidecar was started."""
    since: Timestamp
    """Since when it has had this verdict, as far as this sidecar knows."""
    finding: str
    """The facts it rests on, or what is missing, in a line."""
    advice: str | None
    """RISK: what to do. Null: all others."""


class Drill(Record, frozen=True, kw_only=True, tag="drill"):
    """A drill of a failover began (`started`), or is over (`ended`), with what was measured. All sidecars write the same `id`: the row is
    that of one of them.
    """

    drill_id: str
    """The drill: `silence_id` of the alerts that it hid, and `fingerprint` of its own messages in `notifications`."""
    phase: str
    """`started` or `ended`."""
    expects: str
    """The event that the drill expects: `failover`."""
    starts_at: Timestamp
    """When the drill was started, by the clock of the machine where it was started."""
    ends_at: Timestamp
    """When the drill's window ends, by the same clock as `starts_at`, unless it is stopped earlier."""
    author: str
    """The person who started the drill."""
    comment: str
    """Why. Empty: not said."""
    receivers: list[str]
    """The destinations that a critical alert of the cluster would reach: each is sent a message that says that it is a drill."""
    assessed: bool
    """Whether the sidecar assesses recoveries: not with `flink_rest: never`."""
    over_at: Timestamp | None = None
    """When the drill's window was over, by the observer's clock. Null: it has just begun."""
    result: str | None = None
    """`passed`, `failed`, or `unknown`: not what is expected was observed, nor its opposite. Null: it has just begun."""
    reasons: list[str] = []
    """Why it has not passed, a sentence each."""
    episode_id: str | None = None
    """The failover (`episodes.episode_id`) in its window. Null: none was observed."""
    detected_after_seconds: float | None = None
    """Seconds from the end of the leader's process until its loss was observed. Null: when it ended is not known."""
    detected_after_seconds_at_most: float | None = None
    """Upper bound of `detected_after_seconds`, from when the store last heard of the leader. Null: not known."""
    leaderless_seconds: float | None = None
    """The most seconds that a cluster component had no published leader. Null: no vacancy was observed."""
    led_after_seconds: float | None = None
    """Seconds from the end of the leader's process, or else from its observed loss, until every component had a leader. Null: not known."""
    running_after_seconds: float | None = None
    """Seconds from the end of the leader's process, or else from its observed loss, until all jobs ran. Null: not known."""
    recovery_verdict: str | None = None
    """The verdict of the recovery: `recovered`, `degraded`, `lost` or `unproven`. Null: there is none."""
    delivered: list[str] = []
    """The receivers of `receivers` that got the message."""
    undelivered: list[str] = []
    """The receivers of `receivers` that did not get the message."""
    hidden: int = 0
    """How many alerts the drill kept from all receivers together."""


AnyRecord = (
    TransitionRecord
    | Coverage
    | Contention
    | Notification
    | EpisodeRecord
    | Annotation
    | Evidence
    | Death
    | Recovery
    | StatusRecord
    | HaCheck
    | Drill
)
"""Every record type."""
