"""Why a failover happened: a verdict with the facts it rests on. Where the facts do not decide, it is `unknown`.

The number of observed changes decides nothing: a crash and a short outage of the store may cause the same. What decides is who wrote before
and after, whether the leader removed its own address, and whether this observer was disconnected as well.
"""

from collections.abc import Iterator
from enum import StrEnum
from typing import Final, assert_never

from msgspec import Struct
from msgspec.structs import replace

from sidecar.core.failover.ends import OperatorReason, Restart
from sidecar.core.failover.plans import Intent, Plan
from sidecar.core.leadership.unobserved import Loss
from sidecar.core.moment import LATEST, SECOND, Steady, seconds, spoken
from sidecar.core.policy.policy import Store


class Cause(StrEnum):
    """The reason why leadership changed."""

    JOBMANAGER_LOST = "jobmanager_lost"
    """Crash, kill, eviction, or disconnected for too long: its session or lease expired, and another process leads."""
    GRACEFUL_HANDOVER = "graceful_handover"
    """The leader removed its addresses itself."""
    RESTARTED_IN_PLACE = "restarted_in_place"
    """A new process at the same address."""
    SAME_PROCESS_REELECTION = "same_process_reelection"
    """The previous leader's process was elected again: its connection to the store was interrupted."""
    STORE_OUTAGE = "store_outage"
    """The store was unavailable for all."""
    STORE_REELECTION = "store_reelection"
    """ZooKeeper elected a leader of its own."""
    LEASE_RENEWAL_FAILED = "lease_renewal_failed"
    """The holder did not renew its lease in time, and acquired it again."""
    SPLIT_LEADERSHIP = "split_leadership"
    """Two processes both act as leader."""
    REWRITTEN_BY_FLINK = "rewritten_by_flink"
    """The leader's address was deleted or changed, and the leader wrote it again: no election."""
    TAMPERED = "tampered"
    """A process other than a JobManager wrote or deleted the leader's data."""
    CLUSTER_REMOVED = "cluster_removed"
    """A found cluster was removed: no leader follows."""
    OBSERVER_BLIND = "observer_blind"
    """Only this observer was disconnected; nothing happened to Flink."""
    ROLLING_UPGRADE = "rolling_upgrade"
    """The next leader is another version of Flink."""
    PLANNED_UPGRADE = "planned_upgrade"
    """The operator deployed another spec."""
    ROLLBACK = "rollback"
    """The operator deployed the last stable spec again."""
    NODE_DRAIN = "node_drain"
    """The leader's pod was evicted from its node, or deleted from a cordoned one."""
    OPERATOR_RESTART = "operator_restart"
    """The operator restarted the cluster: its job was unhealthy, or its JobManagers were missing."""
    UNKNOWN = "unknown"


class Confidence(StrEnum):
    """How sure a verdict is."""

    HIGH = "high"
    """No other known cause leaves these facts."""
    MEDIUM = "medium"
    """Another cause may leave the same facts: the facts name it."""
    NONE = "none"


RELATED: Final = 60 * SECOND
"""How long after an outage of the store leaders may still fail over because of it: Flink's session timeout."""
AT_ONCE: Final = 10 * SECOND
"""A failover so soon after an outage of the store is attributed to it, unless other facts contradict."""


class Facts(Struct, frozen=True):
    """The observed facts of one failover that decide its cause. None: not known."""

    store: Store
    orderly: bool = False
    """The leader removed its own address."""
    left: int = 0
    """How many leaders the cluster's own components lost."""
    withdrawn: int = 0
    """How many of the lost leaders had removed their address themselves."""
    released: bool = False
    """The holder released its lease while its addresses were still published. A clean shutdown removes them first."""
    not_renewed_for: int | None = None
    """How long the lease was not renewed (microseconds). None: no leader was lost by that."""
    deleted: bool = False
    """The ConfigMap itself was deleted."""
    foreign: bool = False
    """A leader's address was written without a session."""
    returned: bool = False
    """The new leader is the previous one, with its old session id."""
    split: bool = False
    unseen: bool = False
    """Whether it happened while the store was not observed."""
    loss: Loss | None = None
    """The period in which this observer was disconnected, shortly before or during the failover."""
    opened: Steady = 0
    """When the failover began (steady)."""
    contended: int | None = None
    """How many JobManagers contended before the failover."""
    contend: int | None = None
    """How many JobManagers contended when the failover was over."""
    store_reelected: bool = False
    same_process: bool | None = None
    same_place: bool | None = None
    """Whether both leaders have the same host and port."""
    is_own_place: bool = True
    """Whether only one machine or pod can have that host: not localhost, nor the name of a Service."""
    counted_on: bool | None = None
    """Whether the number in the leader's address rose: a process numbers its endpoints from 0."""
    upgraded: tuple[str, str] | None = None
    """The Flink versions before and after, if the paths they write to identify them."""
    quiet_end: bool = False
    """Whether this version of Flink leaves the same facts after a clean shutdown as after a kill."""
    succeeded: bool = False
    """Whether there is a leader again."""
    removed: bool = False
    """The cluster was removed while it had no leader."""
    intent: Intent | None = None
    """The evidence that the failover was planned."""
    restart: Restart | None = None
    """The operator's report of the restart."""
    operated: bool = False
    """The cluster's FlinkDeployment could be read all the time."""
    exit_code: int | None = None
    """The exit code of the leader's process or container."""
    exited_at: Steady | None = None
    """When the leader's process or container ended (steady)."""
    lives: bool = False
    """The leader's process has not ended."""
    is_stopped: bool = False
    """Whether the leader's process is stopped now (state T)."""
    stood_still: int | None = None
    """How long the leader's process was stopped around the loss (microseconds). None: it was not, or still is."""
    failed: tuple[str, ...] = ()
    """The ends of JobManagers that have taken over and ended since, a sentence each."""
    handed_over_by: str | None = None
    """The observer from whose handover it is known what was before; None: from our own observations."""


NOT_IDENTIFIED: Final = "The observed facts do not identify one cause."


class CauseVerdict(Struct, frozen=True):
    """A cause, how sure it is, and the facts it rests on, a sentence each."""

    cause: Cause
    confidence: Confidence
    facts: tuple[str, ...]
    alike: str = ""
    """The one of `facts` that says what else leaves the same, and nothing about this failover."""


def is_planned(facts: Facts) -> bool | None:
    """Whether it was planned. None: nothing says so, and the cluster's FlinkDeployment could not be read, or there is none."""
    return True if facts.intent else (False if facts.operated else None)


def verdict(facts: Facts) -> CauseVerdict:
    """The cause that the facts decide upon, the surest first."""
    for judge in (
        _judge_removal,
        _judge_intent,
        _judge_operator,
        _judge_writer,
        _judge_written,
        _judge_store,
        _judge_leader_actions,
        _judge_new_leader,
        _judge_end,
    ):
        if why := judge(facts):
            break
    else:
        why = CauseVerdict(Cause.UNKNOWN, Confidence.NONE, (NOT_IDENTIFIED,))
    beside = (
        *_process_facts(facts, why.cause),
        *([str(facts.intent)] if facts.intent and why.cause not in _BY_INTENT else []),
        *([str(facts.restart)] if facts.restart and why.cause is not Cause.OPERATOR_RESTART else []),
    )
    before = f"What was before is known from the handover of sidecar {facts.handed_over_by}."
    return replace(why, facts=(*why.facts, *beside, *([before] if facts.handed_over_by is not None else [])))


def _judge_removal(facts: Facts) -> CauseVerdict | None:
    if not facts.removed:
        return None
    how = "in order" if facts.orderly else "without removing its addresses"
    return _sure(Cause.CLUSTER_REMOVED, f"The leader ended {how}, and the cluster was removed from the store.")


_FATAL: Final = 239
"""The exit code of Flink's fatal error handler."""
_BY_SIGNAL: Final = frozenset({128 + 9, 128 + 15})
"""Exit codes of a process that was killed, or asked to end."""
_BY_INTENT: Final = {Cause.PLANNED_UPGRADE: Plan.UPGRADE, Cause.ROLLBACK: Plan.ROLLBACK, Cause.NODE_DRAIN: Plan.DRAIN}
"""A suspended or deleted FlinkDeployment explains that there is no leader, not how the last one ended."""


def _judge_intent(facts: Facts) -> CauseVerdict | None:
    if facts.intent is None or facts.split or facts.foreign:
        return None
    cause = next((cause for cause, plan in _BY_INTENT.items() if facts.intent.plan is plan), None)
    if cause is None:
        return None
    if not facts.intent.evicted:
        return _likely(cause, str(facts.intent), alike=_BY_HAND)
    if facts.orderly or facts.deleted:
        return _sure(cause, str(facts.intent))
    return _likely(cause, str(facts.intent), alike=_JUST_THEN)


_RESTARTS: Final = frozenset({OperatorReason.RESTART_UNHEALTHY_JOB, OperatorReason.ROLLBACK})
"""The operator's reports that come before it ends the JobManagers. Its other reports come when they are gone, or a job has failed."""


def _judge_operator(facts: Facts) -> CauseVerdict | None:
    ended = (facts.orderly and not facts.same_process) or facts.deleted
    if facts.restart is None or not ended or facts.split or facts.foreign:
        return None
    if facts.restart.reason in _RESTARTS:
        return _sure(Cause.OPERATOR_RESTART, str(facts.restart))
    somebody = "Somebody who ends the JobManager just then leaves the same facts."
    return _likely(Cause.OPERATOR_RESTART, str(facts.restart), alike=somebody)


def _judge_writer(facts: Facts) -> CauseVerdict | None:
    if facts.split:
        return _sure(
            Cause.SPLIT_LEADERSHIP, "Leaders that had been replaced kept coming back with their old session ids."
        )
    if facts.foreign:
        return _sure(Cause.TAMPERED, "A leader's address was written outside of any JobManager's session.")
    if facts.deleted:
        return _likely(
            Cause.TAMPERED,
            "The ConfigMap was deleted with the leader's addresses in it, by hand or with the cluster.",
            alike=(
                "A JobManager that ends for good (its application has finished) deletes it too: if it did not remove its "
                "addresses before, it leaves the same facts."
            ),
        )
    return None


def _judge_written(facts: Facts) -> CauseVerdict | None:
    if facts.returned and facts.not_renewed_for:
        return _sure(
            Cause.LEASE_RENEWAL_FAILED, _lapse_text(facts), "The same leader continued, with its old session id."
        )
    if facts.returned and not facts.loss:
        return _sure(
            Cause.REWRITTEN_BY_FLINK,
            "The leader's address disappeared, and the same leader wrote it again.",
            "The store does not record who removed it.",
        )
    if facts.upgraded:
        before, after = facts.upgraded
        return _sure(Cause.ROLLING_UPGRADE, f"The previous leader was Flink {before}, the new one is Flink {after}.")
    return None


def _judge_store(facts: Facts) -> CauseVerdict | None:
    if facts.loss is None:
        return None
    lost = _loss_text(facts.store, facts.loss, facts.opened)
    if facts.store_reelected:
        return _sure(Cause.STORE_REELECTION, lost, "ZooKeeper elected a new leader of its own in between.")
    if facts.exited_at is not None and not facts.same_process:
        return _judge_exit(facts, facts.loss, lost)
    if not facts.succeeded:
        return CauseVerdict(
            Cause.UNKNOWN,
            Confidence.NONE,
            (lost, "There is no new leader yet, so it is not known which process was lost."),
        )
    return _judge_same_process(facts, lost) or _judge_contenders(facts, lost)


def _judge_same_process(facts: Facts, lost: str) -> CauseVerdict | None:
    """The leader's process lives, and leads again."""
    again = "The same process was elected again."
    if facts.returned or facts.same_process:
        return _sure(Cause.STORE_OUTAGE, lost, again)
    if _same_process(facts):
        return _likely(Cause.STORE_OUTAGE, lost, again, _COUNTED_ON)
    return None


def _judge_exit(facts: Facts, loss: Loss, lost: str) -> CauseVerdict | None:
    """The leader's process ended: of the outage, if it ended itself then. A signal has a sender, and what ends later another reason."""
    until = loss.ended.steady + AT_ONCE if loss.ended else LATEST
    ended_by_others = facts.exit_code in {0, *_BY_SIGNAL}
    if facts.exited_at is None or ended_by_others or not loss.began.steady <= facts.exited_at <= until:
        return None
    if facts.exit_code is None:
        ended = "The JobManager ended meanwhile, with which exit code is not known."
        return _likely(Cause.STORE_OUTAGE, lost, ended, alike="One that was killed in that time leaves the same facts.")
    ended = f"The JobManager ended itself meanwhile, with exit code {facts.exit_code}"
    if facts.exit_code == _FATAL:
        return _sure(Cause.STORE_OUTAGE, lost, f"{ended}: Flink's fatal error handler.")
    alike = "Another error in that time leaves the same facts."
    return _likely(Cause.STORE_OUTAGE, lost, f"{ended}.", alike=alike)


def _judge_contenders(facts: Facts, lost: str) -> CauseVerdict | None:
    """The verdict where another process leads and the connection was `lost`: whether that was a coincidence."""
    loss = facts.loss
    at_once = loss is None or loss.ended is None or facts.opened - loss.ended.steady <= AT_ONCE
    # ZooKeeper restarts the timeout of all sessions when it is back: a leader that did not come back is noticed only then.
    is_long = loss is None or loss.ended is None or loss.ended.steady - loss.began.steady >= AT_ONCE
    explains = at_once or (is_long and facts.store is Store.ZOOKEEPER and not facts.orderly)
    if facts.contended is not None and facts.contend is not None:
        if facts.contend >= facts.contended:
            other = "Another process leads, and as many JobManagers contend as before."
            restarted = "A JobManager that failed and was restarted meanwhile leaves the same facts."
            return _likely(Cause.STORE_OUTAGE, lost, other, alike=restarted)
        fewer = f"{facts.contend} JobManagers contend, {facts.contended} did before"
        if explains and is_long:
            alike = "A JobManager that failed by itself in that time leaves the same facts."
            return _likely(Cause.STORE_OUTAGE, lost, f"Another process leads; {fewer}.", alike=alike)
        either = f"{fewer}: either the store or one of them failed."
        return CauseVerdict(Cause.UNKNOWN, Confidence.NONE, (lost, either)) if at_once else None
    other = "Another process leads. If the previous leader failed in that time, the facts are the same."
    return _likely(Cause.STORE_OUTAGE, lost, other) if explains else None


def _judge_leader_actions(facts: Facts) -> CauseVerdict | None:
    handed_over = facts.orderly and not facts.same_process  # one that lives may withdraw too, and be elected again
    if handed_over and facts.withdrawn < facts.left:
        return _likely(Cause.GRACEFUL_HANDOVER, _partial_removal_text(facts), _CUT_SHORT, alike=_ENDED)
    if handed_over:
        return _sure(Cause.GRACEFUL_HANDOVER, "The leader removed its own addresses.")
    if (facts.not_renewed_for or facts.released) and _same_process(facts):
        return _sure(Cause.LEASE_RENEWAL_FAILED, _lapse_text(facts), "The same process acquired it again.")
    return None


def _judge_new_leader(facts: Facts) -> CauseVerdict | None:
    unseen = ("It happened while this observer could not read the store.",) if facts.unseen else ()
    confidence = Confidence.MEDIUM if facts.unseen else Confidence.HIGH
    if facts.same_process:
        return CauseVerdict(
            Cause.SAME_PROCESS_REELECTION, confidence, ("The same process led before and after.", *unseen)
        )
    if _same_process(facts):
        return _likely(Cause.SAME_PROCESS_REELECTION, _COUNTED_ON, *unseen)
    if facts.same_place and facts.same_process is False:
        why = "A new process leads at the same address."
        if not facts.is_own_place:
            return _likely(Cause.RESTARTED_IN_PLACE, why, *unseen, alike=_SHARED_ADDRESS)
        return CauseVerdict(Cause.RESTARTED_IN_PLACE, confidence, (why, *unseen))
    if facts.same_place and facts.counted_on is False:
        why = "The leader has the same address, but its endpoint numbers start over: a new process."
        return _likely(Cause.RESTARTED_IN_PLACE, why, *unseen, alike=_SAME_ADDRESS)
    return None


def _judge_end(facts: Facts) -> CauseVerdict | None:
    if facts.unseen or (facts.succeeded and facts.same_process is not False):
        return None
    ended = _expiry_text(facts)
    leads = "Another JobManager took over." if facts.succeeded else "There is no new leader yet."
    if facts.lives:
        return _sure(Cause.JOBMANAGER_LOST, ended, leads)
    if facts.released and facts.succeeded:
        # A JobManager that ends itself removes its addresses before it gives its lease up.
        return _sure(Cause.JOBMANAGER_LOST, ended, leads)
    also = "This version of Flink leaves the same traces when it shuts down cleanly." if facts.quiet_end else _HALTED
    return _likely(Cause.JOBMANAGER_LOST, ended, leads, alike=also)


_HALTED: Final = (
    "A JobManager that gets SIGTERM but halts before it has removed its addresses leaves the same facts: "
    "Flink halts after 5 s, whether or not it has finished."
)
_JUST_THEN: Final = "The leader did not remove its addresses: one that failed just then leaves the same facts."
_BY_HAND: Final = "A pod that somebody deletes from such a node for another reason leaves the same facts."
_CUT_SHORT: Final = "Its shutdown was cut short: Flink halts 5 s after SIGTERM, whether or not it has finished."
_ENDED: Final = "A JobManager that ends itself, or is killed meanwhile, leaves the same facts."
_SAME_ADDRESS: Final = "Another JobManager with the same address leaves the same facts."
_SHARED_ADDRESS: Final = "Another pod or machine behind the same Service, or on localhost, leaves the same facts."
_COUNTED_ON: Final = (
    "The leader has the same address and higher endpoint numbers: the same process, "
    "unless a new process happened to start with higher numbers."
)


def _partial_removal_text(facts: Facts) -> str:
    return f"The leader removed {facts.withdrawn} of its {facts.left} addresses and left the others."


def _same_process(facts: Facts) -> bool:
    return facts.same_process if facts.same_process is not None else bool(facts.same_place and facts.counted_on)


def _expiry_text(facts: Facts) -> str:
    match facts.store:
        case Store.KUBERNETES:
            return _lapse_text(facts)
        case Store.ZOOKEEPER:
            return "The JobManager's ZooKeeper session expired: it did not shut down cleanly."
        case _:
            assert_never(facts.store)


def _lapse_text(facts: Facts) -> str:
    if facts.not_renewed_for:
        return f"The lease was not renewed for {facts.not_renewed_for / SECOND:.1f} s."
    if facts.released:
        return "The holder released the lease without removing its addresses: it had not renewed it in time."
    return "Another holder acquired the lease."


def _process_facts(facts: Facts, cause: Cause) -> Iterator[str]:
    """The facts about processes, which the store does not show."""
    if facts.lives and (facts.is_stopped or facts.stood_still or cause is Cause.JOBMANAGER_LOST):
        yield _alive_text(facts)
    yield from facts.failed


def _alive_text(facts: Facts) -> str:
    """What the leader's process did instead of ending."""
    if facts.is_stopped:
        return "The leader's process has not ended: it is stopped (state T)."
    if facts.stood_still:
        return f"The leader's process did not end: it was stopped (state T) for {seconds(facts.stood_still)}."
    return "The leader's process has not ended: it hung, or was cut off from the store."


def _loss_text(store: Store, loss: Loss, opened: int) -> str:
    name = "ZooKeeper" if store is Store.ZOOKEEPER else "The API server"
    out = f"{name} was out of reach of this observer too, from {spoken(loss.began.wall)}"
    if loss.ended is None:
        return f"{out} on."
    since = opened - loss.ended.steady
    before = f", until {seconds(since)} before" if since >= SECOND // 10 else ""
    return f"{out} for {seconds(loss.ended.steady - loss.began.steady)}{before}."


def _sure(cause: Cause, *facts: str) -> CauseVerdict:
    return CauseVerdict(cause, Confidence.HIGH, facts)


def _likely(cause: Cause, *facts: str, alike: str = "") -> CauseVerdict:
    """`alike`: a sentence of its own about what else leaves these facts; one of them may say it too."""
    return CauseVerdict(cause, Confidence.MEDIUM, (*facts, alike) if alike else facts, alike)
