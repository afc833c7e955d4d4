"""The audit log's records: one definition, from which the JSON lines, the journal and the Parquet tables follow (CONTRACTS: Records).

A field may be added (then SCHEMA rises); none is renamed, retyped or removed.
"""

from typing import Final
from uuid import UUID, uuid5

from msgspec import Struct

from sidecar.core.moment import Timestamp

SCHEMA: Final = 8

_NAMESPACE: Final = UUID("5b5f6f0e-8f0b-5e0a-9d2c-3f1f5c1c6a11")


def record_id(*what_happened: object) -> str:
    """The UUIDv5 of what happened: the same for every observer of it, and for the same observer a second time."""
    return str(uuid5(_NAMESPACE, "\x1f".join(str(fact) for fact in what_happened)))


class PositionRecord(Struct, frozen=True, kw_only=True):
    """The store's own coordinates of an observation: `path` (name and key of a ConfigMap), then ZooKeeper's four, then Kubernetes'."""

    path: str | None = None
    czxid: int | None = None
    mzxid: int | None = None
    version: int | None = None
    ephemeral_owner: int | None = None
    uid: str | None = None
    resource_version: str | None = None
    holder_identity: str | None = None
    acquire_time: str | None = None


class Record(Struct, frozen=True, kw_only=True, tag_field="type"):
    """The envelope of every record. The owner's loop sets `recorded_at` when it writes the record to the journal."""

    schema: int = SCHEMA
    id: str
    cluster_id: str
    external_labels: dict[str, str]
    store: str
    observer: str
    observed_at: Timestamp
    recorded_at: Timestamp = Timestamp("")


class TransitionRecord(Record, frozen=True, kw_only=True, tag="transition"):
    """A transition of one component: a row of the leadership table."""

    component: str
    job_id: str | None
    kind: str
    pattern: str
    before_session_id: str | None
    before_address: str | None
    after_session_id: str | None
    after_address: str | None
    last_known_session_id: str | None
    last_known_address: str | None
    same_leader: bool
    """The leader is the last known one."""
    same_process: bool | None
    unobserved: int | None
    """Unobserved writes (in Kubernetes: elections) between before and after. Null: not known, but at least `unobserved_at_least`."""
    vacant_seconds: float | None
    """For how long no leader was published before this one. Null: there was no vacancy, or its beginning was not observed."""
    downtime_seconds_at_least: float | None = None
    """Lower bound of the time without a working leader before this one: a dead leader stays published for a while. Null: not known."""
    downtime_seconds_at_most: float | None = None
    """Upper bound of the same, from when the store last heard of the previous leader."""
    view: str
    reason: str | None
    """OBSCURED: why the leader is unknown. Without a leader, in Kubernetes: the fact from which that was derived."""
    written_at: Timestamp | None
    position: PositionRecord | None
    episode_id: str | None = None
    unobserved_at_least: int | None = None
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


class Coverage(Record, frozen=True, kw_only=True, tag="coverage", rename={"from_": "from"}):
    """A period in which this observer could read the store (`seeing`) or not (`blind`). Availability counts covered time only."""

    from_: Timestamp
    to: Timestamp
    state: str


class Contention(Record, frozen=True, kw_only=True, tag="contention"):
    """JobManagers started or stopped to contend for one leadership (up to Flink 1.14), or for that of all components."""

    component: str | None
    """Null: all components."""
    contenders: int
    """How many contend now. 1 is a leader without a standby."""
    contenders_before: int | None
    """Null: not counted before."""


class Notification(Record, frozen=True, kw_only=True, tag="notification"):
    """A notification for one destination was queued, or an attempt to deliver it ended."""

    alert: str
    fingerprint: str
    receiver: str
    destination: str
    reason: str
    outcome: str
    attempt: int
    possible_duplicate: bool
    detail: str | None
    delivery_id: str
    """The same for all attempts of one delivery."""
    queued_at: Timestamp
    episode_id: str | None = None
    """The failover that it is about. Null: none, several, or none known when it was queued."""
    silence_id: str | None = None
    """SUPPRESSED_BY_SILENCE: the silence."""


class EpisodeRecord(Record, frozen=True, kw_only=True, tag="episode"):
    """One failover, from the first component that lost its leader until all have one again. Written when it is closed. `id` is the
    `episode_id` of its transitions, the same for every observer.
    """

    opened_at: Timestamp
    closed_at: Timestamp
    """When the last component had a leader again (or its job had ended)."""
    cause: str
    confidence: str
    facts: list[str]
    """The facts for the cause, a sentence each."""
    components: list[str]
    """The components that failed over: `dispatcher`, …; `job` stands for all jobs."""
    jobs_affected: int
    jobs_ended: int
    """Affected jobs that ended without another leader."""
    jobs_missing: int
    """Affected jobs that had no leader when the episode was closed."""
    jobs_total: int
    vacant_seconds: float | None
    """The longest time for which a cluster component had no published leader. Null: no vacancy was observed."""
    vacant_seconds_by_component: dict[str, float]
    """The same by component; `job`: the longest of all jobs."""
    downtime_seconds_at_least: float | None = None
    """Lower bound of the longest time for which a cluster component had no working leader. Null: not known."""
    downtime_seconds_at_most: float | None = None
    """Upper bound of the same. Null: not known of all components."""
    before_session_id: str | None
    before_address: str | None
    before_pod: str | None = None
    """The name of the pod of the previous leader. Null: not known. Likewise `after_pod`."""
    after_session_id: str | None
    after_address: str | None
    after_pod: str | None = None
    planned: bool | None = None
    """Whether it was meant to happen: `facts` say by what. Null: nothing says so, and no FlinkDeployment of the cluster could be read."""
    failovers: int
    """How many leaders followed each other: more than 1 if the next failover began before the episode was closed."""


class Annotation(Record, frozen=True, kw_only=True, tag="annotation"):
    """An operator's note about one episode, with the envelope of the episode. Its times are those of the note."""

    episode_id: str
    reason: str
    author: str | None
    planned: bool | None = None
    """True: the author says that the failover was planned. Null: the note does not say."""


class Evidence(Record, frozen=True, kw_only=True, tag="evidence"):
    """One piece of evidence of one failover, captured by this observer while it still existed, or why there is none."""

    episode_id: str
    occasion: str
    """When it was captured: `opened`, `led_again`."""
    kind: str
    """`process`, `thread_dump`, `py_spy`, `job`."""
    subject: str
    """A process, an address, or a job id."""
    outcome: str
    """`captured`, `absent`, `refused`, `failed`, `lost`."""
    detail: str | None
    file: str | None
    """Name in the observer's evidence folder, where it is kept for a limited time."""
    size_bytes: int | None
    sha256: str | None
    attributes: dict[str, str]
    """A summary, by name."""
    asked_at: Timestamp


AnyRecord = TransitionRecord | Coverage | Contention | Notification | EpisodeRecord | Annotation | Evidence
"""Every record type."""
