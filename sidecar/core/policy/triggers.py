"""Triggers: the reasons for which rules fire. One row for each has all that is said of it, and what it needs and is.

When it fires is a function: of `CONDITIONS` in `sidecar.core.alerting.conditions` if it is something that holds, in
`sidecar.core.alerting.reactions` if it is something that happened.
"""

from enum import Flag, StrEnum, auto
from typing import Final, NamedTuple


class Trigger(StrEnum):
    """The reason for which a rule fires."""

    LEADER_CHANGED = "leader_changed"
    """A cluster component has another leader than the last known one: A->B or null->B, observed or not. Never a first election. It fires
    until every component of the failover has a leader again."""
    VACANT = "vacant"
    """There has been no leader for `for`."""
    EPISODES = "episodes"
    """At least `count` failovers `within` a period."""
    BLIND = "blind"
    """This observer has not been able to read the store for `for`."""
    UNOBSERVED = "unobserved"
    """Leaders changed without being observed."""
    SPLIT = "split"
    """Replaced leaders keep returning: two contenders both act as leader."""
    NO_STANDBY = "no_standby"
    """JobManagers have left, and only one contends."""
    JOB_LEADER_CHANGED = "job_leader_changed"
    """A job has another leader, outside of a failover."""
    SAME_PROCESS_REELECTION = "same_process_reelection"
    """A leader lost its leadership, and was elected again."""
    PLANNED_FAILOVER = "planned_failover"
    """A failover is over that was meant to happen, and was no rollback."""
    STOPPED = "stopped"
    """There is no leader, and nobody wants one: scaled to 0, deleted, suspended, finished."""
    JOBS_WAIT = "jobs_wait"
    """There is no leader, and nobody has wanted one for `for`, but jobs are still in the store. Never for a suspended FlinkDeployment,
    which keeps its jobs there."""
    ZXID_HEADROOM = "zxid_headroom"
    """ZooKeeper will soon have to elect a leader of its own, because it runs out of transaction numbers."""
    JOB_MISSING = "job_missing"
    """A job that ran before a failover is not known to Flink any more."""
    JOB_RESURRECTED = "job_resurrected"
    """A job that had ended before a failover runs again."""
    RESTORED_FROM_NOTHING = "restored_from_nothing"
    """A job that had completed checkpoints began without state after a failover."""
    RESTORED_FROM_OLDER = "restored_from_older"
    """A job was restored from an older checkpoint than its last completed one, or from an older savepoint."""
    NOT_RECOVERED = "not_recovered"
    """The cluster is led again, and for `for` not every job is known to run."""
    RECOVERED = "recovered"
    """A failover is over, and it is proven that everything came back."""
    LEADER_SILENT = "leader_silent"
    """The REST server of the published leader, which answered this sidecar before, has not answered for `for`."""
    HA_RISK = "ha_risk"
    """A check of high availability found what makes a failover fail."""
    DRILL_OVERDUE = "drill_overdue"
    """No drill of the cluster's failover has passed for longer than the rule's `age`."""


class Need(StrEnum):
    """A source that some triggers need besides the leaders of a cluster, as a configuration names it."""

    ZOOKEEPER = "a cluster in ZooKeeper"
    KUBERNETES = "a cluster in Kubernetes"
    FLINK_REST = "evidence: {flink_rest: auto}"
    PLANS = "kubernetes: {plans: true}"
    HA_CHECK = "ha_check"
    SHARED_STORE = "ledger: {mode: auto}"


class Phrases(NamedTuple):
    """Texts with the fields that `sidecar.core.alerting.phrases` has, while the alert fires and when it is over."""

    title: str
    title_over: str
    line: str
    line_over: str


class Trait(Flag):
    """What some triggers have in common."""

    HAS_FOR = auto()
    """Rules have `for`: how long the condition must have held."""
    EVENT = auto()
    """It happens. The others are conditions, which fire while they hold."""
    DRILLED = auto()
    """A failover that works may cause it: a drill hides it while it lasts. Lost jobs, lost state, a split and what this sidecar cannot see
    are no part of one."""
    PLANNABLE = auto()
    """Rules have `planned_budget`: a planned failover that takes no longer fires nothing."""
    NO_INCIDENT = auto()
    """It is not about how the cluster is now: its messages keep the severity as label."""
    ABOUT_OBSERVER = auto()
    """It is about this observer, not about Flink."""
    ABOUT_LEADERS = auto()
    """Leaders went or came: components that moved alike are one line of a message."""


class TriggerRow(NamedTuple):
    """What is to be known of one trigger besides when it fires."""

    phrases: Phrases
    next: str
    """The next step, in a sentence: in messages and on the page."""
    shipped: str = ""
    """The alert of rules/default.yaml: its heading in docs/how-to/troubleshooting.md. Empty: the trigger's own name is the heading."""
    needs: Need | None = None
    """The source without which a rule with this trigger never fires. None: leaders are enough."""
    traits: Trait = Trait(0)


ALL_OWN: Final = "JobManager"
"""Its process has all of a cluster's own components: together they are called after it."""
_MOVE: Final = "{move} at {began}{down}"
_MOVED: Final = f"{{what}}: {_MOVE}"

TRIGGERS: Final[dict[Trigger, TriggerRow]] = {
    Trigger.LEADER_CHANGED: TriggerRow(
        Phrases(
            "{who}failed over{again}{moves}{longest}", "failover of {what} is over{moves}{longest}", _MOVED, _MOVED
        ),
        "Open the failover and read its cause.",
        shipped="FlinkLeaderChanged",
        traits=Trait.EVENT | Trait.DRILLED | Trait.PLANNABLE | Trait.ABOUT_LEADERS,
    ),
    Trigger.VACANT: TriggerRow(
        Phrases(
            "no leader for {what}{left}",
            "leader back for {what}{longest}",
            "{what}: no leader since {began}{formerly}",
            "{what}: {led} at {ended}{down}",
        ),
        "Check whether a JobManager runs and can reach the store.",
        shipped="FlinkNoLeader",
        traits=Trait.HAS_FOR | Trait.DRILLED | Trait.PLANNABLE | Trait.ABOUT_LEADERS,
    ),
    Trigger.EPISODES: TriggerRow(
        Phrases(
            "{count} failovers within {within}",
            "failover rate is back to normal",
            "{count} failovers within {within}, the last one by {latest}",
            "fewer failovers within {within} since {ended}",
        ),
        "Compare the causes of the last failovers: repeated failovers have a common cause.",
        shipped="FlinkLeaderFlapping",
        traits=Trait.DRILLED | Trait.NO_INCIDENT,
    ),
    Trigger.BLIND: TriggerRow(
        Phrases(
            "the store cannot be read",
            "the store can be read again",
            "the store cannot be read since {began}: leaders are unknown, and changes are not observed",
            "the store could not be read for {lasted}, until {ended}: changes in that time are reported separately",
        ),
        "Check the store and this sidecar's connection to it; this says nothing about Flink.",
        shipped="FlinkLeadersOutOfSight",
        traits=Trait.HAS_FOR | Trait.ABOUT_OBSERVER,
    ),
    Trigger.UNOBSERVED: TriggerRow(
        Phrases(
            "at least {total} unobserved changes of {what}",
            "unobserved changes of {what}",
            "{what}: at least {count} unobserved changes before {began}",
            "{what}: at least {count} unobserved changes before {began}",
        ),
        "Check the load of the store and of this sidecar; the audit log has the number of unobserved changes.",
        traits=Trait.EVENT | Trait.ABOUT_OBSERVER | Trait.NO_INCIDENT,
    ),
    Trigger.SPLIT: TriggerRow(
        Phrases(
            "split leadership of {what}{sides}",
            "{what}: split leadership is over",
            "{what}: {before} and {after} replace each other since {began}, each deleting the other's address",
            "{what}: over, no replaced leader has returned for {calm}",
        ),
        "Stop one of the two JobManagers: it does not settle by itself.",
        shipped="FlinkSplitLeadership",
        traits=Trait.ABOUT_LEADERS,
    ),
    Trigger.NO_STANDBY: TriggerRow(
        Phrases(
            "no standby JobManager",
            "standby JobManager available again",
            "only one JobManager contends since {began}: if it fails, none can take over",
            "a standby contends again since {ended}, after {lasted}",
        ),
        "Start another JobManager: the next failure has none to take over.",
        needs=Need.ZOOKEEPER,
        shipped="FlinkNoStandby",
        traits=Trait.HAS_FOR | Trait.DRILLED,
    ),
    Trigger.JOB_LEADER_CHANGED: TriggerRow(
        Phrases("leader of {what} changed{moves}", "leader of {what} changed", _MOVED, _MOVED),
        "Look for the job's restart in the JobManager's log.",
        shipped="FlinkJobLeaderChanged",
        traits=Trait.EVENT | Trait.DRILLED | Trait.ABOUT_LEADERS,
    ),
    Trigger.SAME_PROCESS_REELECTION: TriggerRow(
        Phrases(
            "a leader lost its leadership and was elected again{moves}", "a leader was elected again", _MOVED, _MOVED
        ),
        "Check the leader for long garbage collections, and its network to the store.",
        traits=Trait.EVENT | Trait.DRILLED | Trait.ABOUT_LEADERS,
    ),
    Trigger.PLANNED_FAILOVER: TriggerRow(
        Phrases(*("planned failover{moves}{longest}",) * 2, *(f"{ALL_OWN}: {_MOVE}",) * 2),
        "Nothing: a planned failover is over.",
        needs=Need.PLANS,
        shipped="FlinkPlannedFailover",
        traits=Trait.EVENT | Trait.DRILLED | Trait.ABOUT_LEADERS,
    ),
    Trigger.STOPPED: TriggerRow(
        Phrases(
            "stopped: {detail}",
            "wanted again",
            "stopped at {began}: {detail}. No leader is wanted",
            "stopped until {ended}",
        ),
        "Nothing, if it was meant to stop.",
        needs=Need.KUBERNETES,
        shipped="FlinkStopped",
    ),
    Trigger.JOBS_WAIT: TriggerRow(
        Phrases(
            "stopped, and {jobs} in the store wait",
            "wanted again, or no job waits",
            "stopped at {began}: {detail}. {jobs} in the store wait for a JobManager",
            "wanted again since {ended}, or the jobs are gone",
        ),
        "Start the cluster again, or delete its data in the store if its jobs are not needed any more.",
        needs=Need.PLANS,
        shipped="FlinkStoppedWithJobs",
        traits=Trait.HAS_FOR,
    ),
    Trigger.ZXID_HEADROOM: TriggerRow(
        Phrases(
            "ZooKeeper will soon elect a new leader of its own",
            "ZooKeeper has elected a new leader of its own",
            "{count} transactions left until ZooKeeper has to: restart its leader at a quiet time before that",
            "ZooKeeper's transaction numbers started over at {ended}",
        ),
        "Restart ZooKeeper's leader at a quiet time.",
        needs=Need.ZOOKEEPER,
        shipped="FlinkZooKeeperZxidHeadroom",
        traits=Trait.NO_INCIDENT,
    ),
    Trigger.JOB_MISSING: TriggerRow(
        Phrases(
            "{what} missing after a failover",
            "{what} no longer missing",
            "{what}: missing since {began}, Flink does not know it any more",
            "{what}: not reported as missing any more since {ended}: it runs again, or a day has passed",
        ),
        "Submit the job again, from its latest checkpoint or a savepoint.",
        shipped="FlinkJobMissing",
    ),
    Trigger.JOB_RESURRECTED: TriggerRow(
        Phrases(
            "{what} had ended and runs again after a failover",
            "{what} does not run again any more",
            "{what}: had ended, and was started again by {began}: cancel it if it is not to run (FLINK-39704)",
            "{what}: not reported any more since {ended}: it ended, or a day has passed",
        ),
        "Cancel the job if it is not to run: it may write a second time.",
        needs=Need.FLINK_REST,
        shipped="FlinkJobResurrected",
    ),
    Trigger.RESTORED_FROM_NOTHING: TriggerRow(
        Phrases(*("{what} restored from nothing",) * 2, *("{what}: {detail}",) * 2),
        "Stop the job, and start it from its latest checkpoint.",
        needs=Need.FLINK_REST,
        shipped="FlinkStateLost",
        traits=Trait.EVENT,
    ),
    Trigger.RESTORED_FROM_OLDER: TriggerRow(
        Phrases(*("{what} restored from an older checkpoint",) * 2, *("{what}: {detail}",) * 2),
        "See what the job writes twice.",
        needs=Need.FLINK_REST,
        shipped="FlinkStateOlder",
        traits=Trait.EVENT,
    ),
    Trigger.NOT_RECOVERED: TriggerRow(
        Phrases(
            "{jobs} not running after a failover",
            "all jobs run, or are not waited for",
            "{jobs} not seen running since all components were led again at {began}: {about}",
            "since {ended} all jobs run, have ended, or are reported as missing; it took {lasted}",
        ),
        "Look at the jobs' exceptions, and whether there are enough slots.",
        needs=Need.FLINK_REST,
        shipped="FlinkNotRecovered",
        traits=Trait.HAS_FOR | Trait.DRILLED,
    ),
    Trigger.RECOVERED: TriggerRow(
        Phrases(*("recovered after a failover",) * 2, *("everything came back, proven by {ended}",) * 2),
        "Nothing: everything came back.",
        needs=Need.FLINK_REST,
        traits=Trait.EVENT | Trait.DRILLED,
    ),
    Trigger.LEADER_SILENT: TriggerRow(
        Phrases(
            "the leader does not answer{at}",
            "the leader is not asked any more",
            "{before} leads, and its REST server accepts connections but has answered nothing since {began}",
            "the REST server of {before} is not asked any more since {ended}, after {lasted}",
        ),
        "Find out whether the leader's process hangs (thread dump, garbage collection) or has ended.",
        needs=Need.FLINK_REST,
        shipped="FlinkLeaderSilent",
        traits=Trait.HAS_FOR | Trait.DRILLED,
    ),
    Trigger.HA_RISK: TriggerRow(
        Phrases(
            "{risks} for high availability",
            "a risk for high availability is gone",
            "{about}: {detail}",
            "{about}: passed by {ended}, or does not apply any more",
        ),
        "Do what the check says before the next failover, or silence it by its label check.",
        needs=Need.HA_CHECK,
        traits=Trait.NO_INCIDENT,
    ),
    Trigger.DRILL_OVERDUE: TriggerRow(
        Phrases(
            "no failover drill has passed for {age}",
            "a failover drill has passed",
            "no drill has passed since {passed} (the last one, or since when this cluster is watched): `drill start` begins one",
            "a drill has passed by {ended}",
        ),
        "Drill the failover: `drill start` (docs/how-to/drills.md).",
        needs=Need.SHARED_STORE,
        traits=Trait.NO_INCIDENT,
    ),
}


def _having(trait: Trait) -> frozenset[Trigger]:
    return frozenset(trigger for trigger, row in TRIGGERS.items() if trait in row.traits)


EVENTS: Final = _having(Trait.EVENT)
LASTING: Final = _having(Trait.HAS_FOR)
DRILLED: Final = _having(Trait.DRILLED)
PLANNABLE: Final = _having(Trait.PLANNABLE)
NO_INCIDENT: Final = _having(Trait.NO_INCIDENT)
ABOUT_OBSERVER: Final = _having(Trait.ABOUT_OBSERVER)
ABOUT_LEADERS: Final = _having(Trait.ABOUT_LEADERS)
