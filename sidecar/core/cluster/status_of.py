"""Which status a cluster has: the only place that decides. A table, whose first row that applies says the status and its sentence.

What cannot be seen is BLIND before anything else is considered: a cluster that cannot be seen is neither DOWN nor OK.
"""

from collections.abc import Callable, Mapping
from typing import Final

from msgspec.structs import replace

from sidecar.core.cluster.cluster_state import ClusterState, contending
from sidecar.core.cluster.draft import ClusterStep, envelope
from sidecar.core.cluster.status import ClusterStatus, Stated, Status
from sidecar.core.cluster.status_case import LONGEST_REASON, Case
from sidecar.core.counted import counted, listed
from sidecar.core.failover import planned, plans
from sidecar.core.failover.recovery_state import Fault
from sidecar.core.flink.leadership import Unknown
from sidecar.core.moment import SECOND, Moment, age, timestamp
from sidecar.core.policy.policy import Policy
from sidecar.core.reach import Reach
from sidecar.core.records import StatusRecord, record_id
from sidecar.core.sanitize import clean

Parts = tuple[str, ...]
_MOST_NAMED: Final = 3
_FAULTS: Final[Mapping[Fault, str]] = {
    Fault.MISSING: "missing",
    Fault.DELETED: "missing",
    Fault.RESURRECTED: "running although ended",
}


def status_of(policy: Policy, name: str, cluster: ClusterState, now: Moment) -> ClusterStatus:
    """The status of the cluster `name` now. It began when `cluster.stated` says, if that is the same."""
    case = Case(policy, name, cluster, now)
    status, parts = next((status, parts) for status, applies in ROWS if (parts := applies(case)))
    before = cluster.stated
    is_passing = status is Status.UNCHECKED and case.awaits_rest
    since = before.since if before and before.status is status else now
    return ClusterStatus(status, since, parts, case.due, is_passing)


class Statuses:
    """The statuses of clusters at one moment, each decided once for all that speak of it."""

    def __init__(self, policy: Policy, now: Moment) -> None:
        self._policy, self._now = policy, now
        self._decided: dict[str, ClusterStatus] = {}

    def status_of(self, name: str, cluster: ClusterState) -> ClusterStatus:
        if name not in self._decided:
            self._decided[name] = status_of(self._policy, name, cluster, self._now)
        return self._decided[name]


def restated(policy: Policy, name: str, cluster: ClusterState, current: ClusterStatus, now: Moment) -> ClusterStep:
    """The cluster with its status `current`, and a record if that has changed. The same object if nothing has."""
    before = cluster.stated
    stated = Stated(current.status, current.since, current.sentence, current.due, current.is_passing)
    if stated == before:
        return cluster, []
    after = replace(cluster, stated=stated)
    if before and before.status is stated.status:
        return after, []
    episode = cluster.episode or cluster.last_episode
    record = StatusRecord(
        id=record_id("status", policy.observer, name, stated.status, timestamp(now.wall)),
        **envelope(policy, name, now),
        status=stated.status.value,
        previous=before.status.value if before else None,
        since=timestamp(stated.since.wall),
        sentence=stated.sentence,
        episode_id=episode.id if episode else None,
    )
    return after, [record]


def _blind(case: Case) -> Parts:
    cluster, view = case.cluster, case.cluster.view
    if cluster.missing:
        return (clean(str(cluster.missing), LONGEST_REASON),)
    if cluster.refused:
        return (f"{case.store} does not let it be read: {clean(cluster.refused, LONGEST_REASON)}", *case.last_known)
    is_new = view.loss is None and not view.complete and (view.connection is None or not cluster.ever_led)
    if is_new and not cluster.is_in_sight:
        return (f"{case.store} has not been read yet: leaders are unknown", *case.last_known)
    if not cluster.is_in_sight:
        began = view.loss.began if view.loss and view.loss.ended is None else view.turned_at
        lasts = case.now.steady - began.steady
        for_long = f" for {age(lasts)}" if began.steady and lasts >= SECOND else ""
        why = "does not answer in time" if cluster.stale else "cannot be reached"
        return (f"cannot see it{for_long}: {case.store} {why}", *case.last_known)
    unreadable = sorted(
        str(component) for component, state in case.own.items() if isinstance(state.leadership, Unknown)
    )
    return (f"the leader data of {', '.join(unreadable)} cannot be read",) if unreadable else ()


def _stopped(case: Case) -> Parts:
    operated = case.cluster.operated
    if not case.vacant or operated is None or not plans.is_unwanted(operated):
        return ()
    jobs = 0 if plans.keeps_jobs(operated) else len(case.cluster.stored_jobs)
    wait = (f"{counted(jobs, 'job')} in the store wait{'s' if jobs == 1 else ''}",) if jobs else ()
    return (plans.what_was_done(operated), *wait, plans.when_unwanted(operated))


def _down(case: Case) -> Parts:
    if case.is_planned:
        return ()
    if case.vacant:
        # Without these rights a stop cannot be told from a loss.
        lacks = planned.rights(case.cluster)
        unknown = (f"whether it was meant is not known without {lacks}",) if lacks else ()
        if not case.cluster.ever_led:
            return ("no leader yet", *_contenders(case), *unknown)
        stand = case.jobs_of_failover
        still = f"{counted(stand, 'job')} stand{'s' if stand == 1 else ''} still"
        return (case.leaderless, *case.stuck, *case.why, *([still] if stand else []), *_contenders(case), *unknown)
    if unled := case.unled_jobs:
        longest = age(max(case.now.steady - since for since in unled.values()))
        return (f"{len(unled)} of {len(case.jobs)} jobs without a leader for {longest}",)
    return ()


def _contenders(case: Case) -> Parts:
    """Whether another JobManager can take over."""
    number = contending(case.cluster.contenders)
    if number is None:
        return ()
    return ("no standby",) if number == 0 else (f"{number} JobManager{'s contend' if number > 1 else ' contends'}",)


def _split(case: Case) -> Parts:
    contested = case.cluster.contested
    if not contested:
        return ()
    # A title has no room for the ids of jobs: the message's text names them.
    what = f"{len(contested)} components" if len(contested) > 1 else str(next(iter(contested)))
    return (f"two JobManagers act as leader of {what}",)


def _lost(case: Case) -> Parts:
    parts = []
    for words in dict.fromkeys(_FAULTS.values()):
        names = [fault.name or job_id[:8] for job_id, fault in case.faults.items() if _FAULTS[fault.fault] == words]
        if names:
            parts.append(f"{counted(len(names), 'job')} {words}: {_names(names)}")
    if names := case.restored("nothing"):
        parts.append(f"{counted(len(names), 'job')} restored from nothing: {_names(names)}")
    return (*parts, *case.running) if parts else ()


def _names(names: list[str]) -> str:
    return listed(sorted(clean(name, 40) for name in names), _MOST_NAMED)


def _not_running(case: Case) -> Parts:
    if case.picture is None:
        return ()
    workers = ("no TaskManager is registered",) if case.lacks_workers else ()
    if case.is_patience_over or workers:
        return (*(case.running or (case.leads,)), *workers, *case.standby)
    return ()


def _silent(case: Case) -> Parts:
    silence, published = case.silence, "it is still published as leader"
    if plans.is_unwanted(case.cluster.operated):
        return ()
    if ended := case.ended:
        return (f"{case.leader} {ended}", published)
    if silence is None:
        return ()
    how = "does not answer" if silence.reach is Reach.SILENT else "cannot be reached"
    return (f"{case.leader} {how} for {age(case.now.steady - silence.since.steady)}", published)


def _recovering(case: Case) -> Parts:
    if case.is_planned and (case.vacant or case.unled_jobs):
        planned = "a planned failover goes on"
        return (f"{planned}: {case.leaderless}" if case.vacant else f"{planned}: {len(case.unled_jobs)} jobs wait",)
    if not case.is_recovering:
        return ()
    workers = ("no TaskManager is registered",) if case.has_no_workers else ()
    return (case.leads, *case.running, *workers, *case.standby)


def _degraded(case: Case) -> Parts:
    parts = [f"{counted(len(names), 'job')} {words}" for names, words in case.shortcomings if names]
    parts += case.standby
    unknown = (f"whether jobs run is not known ({case.unchecked})",) if case.unchecked else ()
    return (*(case.running or (case.leads,)), *parts, *unknown) if parts else ()


def _partly_blind(case: Case) -> Parts:
    return (f"led, but {case.cluster.beyond}",) if case.cluster.beyond else ()


def _unchecked(case: Case) -> Parts:
    why = case.unchecked
    return (f"{case.leader} leads; whether jobs run is not known ({why})",) if why else ()


def _ok(case: Case) -> Parts:
    return (*(case.running or (f"{case.leader} leads, no jobs",)), *case.recovered)


ROWS: Final[tuple[tuple[Status, Callable[[Case], Parts]], ...]] = (
    (Status.BLIND, _blind),
    (Status.STOPPED, _stopped),
    (Status.DOWN, _down),
    (Status.SPLIT, _split),
    (Status.LOST, _lost),
    (Status.NOT_RUNNING, _not_running),
    (Status.SILENT, _silent),
    (Status.RECOVERING, _recovering),
    (Status.DEGRADED, _degraded),
    (Status.BLIND, _partly_blind),
    (Status.UNCHECKED, _unchecked),
    (Status.OK, _ok),
)
"""The statuses in the order in which they are considered. The last one applies where no other does."""
