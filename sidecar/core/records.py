"""The audit log's records: one definition, from which the JSON lines, the journal and the Parquet tables follow (CONTRACTS: Records).

A field may be added (then SCHEMA rises); none is renamed, retyped or removed.
"""

from typing import Final
from uuid import UUID, uuid5

from msgspec import Struct

from sidecar.core.moment import Timestamp

SCHEMA: Final = 6

_NAMESPACE: Final = UUID("5b5f6f0e-8f0b-5e0a-9d2c-3f1f5c1c6a11")


def record_id(*what_happened: object) -> str:
    """The UUIDv5 of what happened: the same for every observer that saw the same, and for the same observer a second time."""
    return str(uuid5(_NAMESPACE, "\x1f".join(str(fact) for fact in what_happened)))


class PositionRecord(Struct, frozen=True, kw_only=True):
    """The store's own coordinates of what was seen: `path` in both (name and key of a ConfigMap), then ZooKeeper's four, then
    Kubernetes'.
    """

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
    """The envelope of every record. `recorded_at` is stamped by the owner's loop when the record goes to the journal."""

    schema: int = SCHEMA
    id: str
    cluster_id: str
    external_labels: dict[str, str]
    store: str
    observer: str
    observed_at: Timestamp
    recorded_at: Timestamp = Timestamp("")


class TransitionRecord(Record, frozen=True, kw_only=True, tag="transition"):
    """One row of the leadership table happened to one component."""

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
    """The leader after is the one last known before."""
    same_process: bool | None
    unobserved: int | None
    """Unobserved writes (in Kubernetes: elections) between before and after; null: not known, and then there were
    `unobserved_at_least` so many.
    """
    vacant_seconds: float | None
    """For how long no leader was published before this one; null: there was no vacancy, or its beginning was not seen."""
    downtime_seconds_at_least: float | None = None
    """For how long no leader worked before this one: so long at least. A leader that dies stays published until the store finds out.
    Null: not known.
    """
    downtime_seconds_at_most: float | None = None
    """The same: so long at most, counted from when the store last heard of the leader before."""
    view: str
    reason: str | None
    """OBSCURED: why we cannot see. Without a leader, in Kubernetes: the fact from which that was derived."""
    written_at: Timestamp | None
    position: PositionRecord | None
    episode_id: str | None = None
    unobserved_at_least: int | None = None
    elections: int | None = None
    """How many leader nodes there have been at this path, also before anybody looked, since its parent was made, or how often the lease
    in the ConfigMap went to another; null: not counted.
    """
    contenders: int | None = None
    """How many JobManagers contended when this was seen: 1, and there is no standby left. Null: no latch was seen."""
    store_reelected: bool | None = None
    """Whether ZooKeeper itself elected a leader between the last known leader's write and this one's; null: not two writes."""
    returned: bool = False
    """The leader after had been replaced before, and is back with its old session id: no election."""
    split: bool = False
    """One of the changes of a split leadership."""


class Coverage(Record, frozen=True, kw_only=True, tag="coverage", rename={"from_": "from"}):
    """A stretch of time in which this observer could see (`seeing`) or not (`blind`). Availability counts covered time only."""

    from_: Timestamp
    to: Timestamp
    state: str


class Contention(Record, frozen=True, kw_only=True, tag="contention"):
    """JobManagers joined or left the contest for one leadership (up to Flink 1.14), or for that of all components."""

    component: str | None
    """Whose leadership; null: every component's."""
    contenders: int
    """How many there are now. 1 is a leader without a standby."""
    contenders_before: int | None
    """Null: not counted before."""


class Notification(Record, frozen=True, kw_only=True, tag="notification"):
    """One thing that happened to one alert on its way to one destination: queued, then the outcome of each attempt."""

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
    """When the delivery was queued."""
    episode_id: str | None = None
    """The failover that it is about; null: none, several, or none known when it was queued."""


class EpisodeRecord(Record, frozen=True, kw_only=True, tag="episode"):
    """One failover, from the first component that left a leader until all were led again for a moment. Written when it is over; `id` is
    the `episode_id` of its transitions, the same for every observer.
    """

    opened_at: Timestamp
    closed_at: Timestamp
    """When the last component was led again (or its job had ended)."""
    cause: str
    confidence: str
    facts: list[str]
    """What the cause rests on, a sentence each."""
    components: list[str]
    """Which moved: `dispatcher`, …; `job` stands for all jobs."""
    jobs_affected: int
    jobs_ended: int
    """Of those affected: how many ended instead of being led again."""
    jobs_missing: int
    """Of those affected: how many had no leader when the episode stopped waiting for them."""
    jobs_total: int
    vacant_seconds: float | None
    """The longest time for which no leader of one of the cluster's own components was published; null: none was seen to be vacant."""
    vacant_seconds_by_component: dict[str, float]
    """The same by component; `job`: the longest of all jobs."""
    downtime_seconds_at_least: float | None = None
    """For how long no leader of one of these components worked: so long at least, of the one for which it was longest. Null: not known."""
    downtime_seconds_at_most: float | None = None
    """The same: so long at most. Null: not known of all of them."""
    before_session_id: str | None
    before_address: str | None
    after_session_id: str | None
    after_address: str | None
    failovers: int
    """How many leaders followed each other in it: 1, and more when the next failover came before the first one was over."""


class Annotation(Record, frozen=True, kw_only=True, tag="annotation"):
    """What an operator noted about one episode. The envelope is that of the episode, but for the times: when it was noted."""

    episode_id: str
    reason: str
    author: str | None


class Evidence(Record, frozen=True, kw_only=True, tag="evidence"):
    """One piece of evidence of one failover, captured by this observer while it still existed, or why there is none."""

    episode_id: str
    occasion: str
    """What it was captured at: `opened`, `led_again`."""
    kind: str
    """`process`, `thread_dump`, `py_spy`, `job`."""
    subject: str
    """Whose: a process, an address, a job id."""
    outcome: str
    """`captured`, `absent`, `refused`, `failed`, `lost`."""
    detail: str | None
    file: str | None
    """Its name below the observer's folder for evidence, where it is kept for a while."""
    size_bytes: int | None
    sha256: str | None
    attributes: dict[str, str]
    """What it says in short, by name."""
    asked_at: Timestamp


AnyRecord = TransitionRecord | Coverage | Contention | Notification | EpisodeRecord | Annotation | Evidence
"""Every record type."""
