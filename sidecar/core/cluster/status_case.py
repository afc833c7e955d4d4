"""The facts that decide the status of a cluster: leaders, running jobs, the last failover. Computed when they are asked for."""

from collections.abc import Iterator, Mapping
from functools import cached_property
from typing import Final

from sidecar.core.cluster import advice
from sidecar.core.cluster.cluster_state import ClusterState, ComponentState, Unanswered, contending, parts_of
from sidecar.core.failover import assessment, plans, rest_server
from sidecar.core.failover.causes import Confidence
from sidecar.core.failover.deaths import cause_of, death_of, ended_since, name_of
from sidecar.core.failover.episodes import Episode
from sidecar.core.failover.plans import Plan
from sidecar.core.failover.recovery_judge import REGISTERED_WITHIN
from sidecar.core.failover.recovery_state import KEPT, Assessed, Fault, JobFault, is_left_out
from sidecar.core.flink.leadership import Component, ComponentId, Held, Vacant
from sidecar.core.leadership.unobserved import Downtime, longest
from sidecar.core.moment import SECOND, Moment, age, bounds, micros
from sidecar.core.pictures import ENDED, Job, Picture
from sidecar.core.pods import process
from sidecar.core.policy.policy import PLANNED_BUDGET, Policy, Source, Store
from sidecar.core.policy.triggers import PLANNABLE, Trigger
from sidecar.core.sanitize import clean

LONGEST_REASON: Final = 500
"""Characters of what others say about a refusal."""
_LONGEST_PROBLEM: Final = 60
"""Characters of why Flink's REST server does not describe the cluster."""
_REST_PATIENCE: Final = 10 * SECOND
"""How long it may take until the REST server of a leader that has just been seen answers or refuses."""
_DISPATCHER: Final = ComponentId(Component.DISPATCHER)
_REST_SERVER: Final = ComponentId(Component.REST_SERVER)
_HOLDS: Final = {Trigger.VACANT: 30 * SECOND, Trigger.NOT_RECOVERED: 300 * SECOND, Trigger.LEADER_SILENT: 8 * SECOND}
"""How long a condition must hold where no rule says so: as the shipped rules have it."""
_READ_WITHIN: Final = 10 * SECOND
"""How long after all jobs run to wait until it is known from what they were restored."""
_RECENT: Final = 600 * SECOND
"""How long after a recovery the status shows its duration."""
_SETTLED: Final = 120 * SECOND
"""How long after an election a job that has just started may be a restored one."""
_STARTS_WITHIN: Final = 60 * SECOND
"""How long a newly submitted job may take to start."""
_GOES_ON: Final = frozenset({Plan.SUSPENSION, Plan.DELETION})


class Case:
    """One cluster at one moment. `due` becomes earlier with each future time that is asked for."""

    def __init__(self, policy: Policy, name: str, cluster: ClusterState, now: Moment) -> None:
        self.policy, self.name, self.cluster, self.now = policy, name, cluster, now
        self.due: int | None = None
        self.own = cluster.own

    def passed(self, at: int) -> bool:
        """Whether this moment (steady) has passed; if not, the status is due to be decided again then."""
        if self.now.steady >= at:
            return True
        self.due = at if self.due is None else min(self.due, at)
        return False

    def hold(self, trigger: Trigger) -> int:
        """How long the condition of this trigger must hold, by the rules."""
        return min((rule.hold_for for rule in self.policy.rules if rule.on is trigger), default=_HOLDS[trigger])

    @property
    def store(self) -> str:
        store = self.policy.stores.get(self.name) or self.policy.finds
        return {Store.ZOOKEEPER: "ZooKeeper", Store.KUBERNETES: "the API server", None: "the store"}[store]

    # -- who leads -----------------------------------------------------------------------------------------------------

    @cached_property
    def vacant(self) -> Mapping[ComponentId, ComponentState]:
        """The cluster's own components without a leader. Those of which two act as leader are none of them."""
        return {
            component: state
            for component, state in self.own.items()
            if isinstance(state.leadership, Vacant) and component not in self.cluster.contested
        }

    @property
    def leaderless(self) -> str:
        """`no leader for 43 s`."""
        began = min((state.vacated_at or state.since for state in self.vacant.values()), key=lambda at: at.steady)
        at_least = "at least " if any(state.discovered for state in self.vacant.values()) else ""
        of_which = "" if len(self.vacant) == len(self.own) else f" of {', '.join(sorted(map(str, self.vacant)))}"
        lasts = self.now.steady - began.steady
        return f"no leader{of_which}" + (f" for {at_least}{age(lasts)}" if lasts >= SECOND else "")

    @cached_property
    def unled_jobs(self) -> Mapping[ComponentId, int]:
        """Jobs that have had no leader for as long as a rule waits: since when (steady). They get theirs after the dispatcher."""
        hold = self.hold(Trigger.VACANT)
        jobs = {
            component: (state.vacated_at or state.since).steady
            for component, state in self.jobs.items()
            if isinstance(state.leadership, Vacant) and state.registered is not False
        }
        return {job: since for job, since in jobs.items() if self.jobs[job].discovered or self.passed(since + hold)}

    @cached_property
    def jobs(self) -> Mapping[ComponentId, ComponentState]:
        return {component: state for component, state in self.cluster.components.items() if component.job_id}

    @property
    def jobs_of_failover(self) -> int:
        """How many jobs stand still. 0: not known, or a component of the cluster still has a leader."""
        if len(self.vacant) < len(self.own):
            return 0
        return self.cluster.episode.jobs_total if self.cluster.episode else len(self.jobs)

    @cached_property
    def leader(self) -> str:
        """The dispatcher's leader, or that of another component."""
        led = [state for state in self.own.values() if isinstance(state.leadership, Held)]
        dispatcher = self.own.get(_DISPATCHER)
        state = dispatcher if dispatcher in led else next(iter(led), None)
        return self._process(state.leadership.leader.address) if state and isinstance(state.leadership, Held) else "?"

    @property
    def ended(self) -> str:
        """How the process of the leader that is still published ended, if that was observed: `ended with exit code 239`."""
        state = self.own.get(_DISPATCHER)
        if state is None or not isinstance(state.leadership, Held) or self.is_planned:
            return ""
        end = ended_since(self.cluster.ends, state.leadership.leader.address, state.published_at or 0)
        if end is None:
            return ""
        return "ended" if end.end.exit_code is None else f"ended with exit code {end.end.exit_code}"

    @property
    def last_known(self) -> tuple[str, ...]:
        last = [self.own[component].last_known for component in sorted(self.own)]
        return tuple(f"last known leader {self._process(leader.address)}" for leader in last if leader)[:1]

    @property
    def leads(self) -> str:
        """`jm-a leads after 50 s`."""
        recovery = self.cluster.recovery
        if recovery and recovery.led_at and (took := recovery.led_at.steady - recovery.opened_at.steady) >= SECOND:
            return f"{self.leader} leads after {age(took)}"
        return f"{self.leader} leads"

    @property
    def standby(self) -> tuple[str, ...]:
        """The problems with the standby."""
        standby = self.cluster.standby
        if standby.loops and standby.lacking_since:
            return (f"the standby stops again and again ({standby.left} times)",)
        alone = standby.alone_since is not None and contending(self.cluster.contenders) == 1
        return ("no standby is left",) if alone else ()

    def _process(self, address: str) -> str:
        return process(address, name_of(self.cluster, address))

    # -- the failover --------------------------------------------------------------------------------------------------

    @property
    def is_planned(self) -> bool:
        """Whether the failover in progress is planned, or may be, and has not taken too long yet."""
        cluster, episode = self.cluster, self.cluster.episode
        if episode is None:
            return self._starts_again
        if plans.stuck(cluster.operated):
            return False
        opened, operated, intent = episode.opened_at, cluster.operated, episode.facts.intent
        if is_left_out(episode.facts):
            since = opened.steady
            if intent and intent.plan in _GOES_ON and operated and operated.wanted_since:
                since = max(since, operated.wanted_since.steady)
            budgets = (rule.planned_budget for rule in self.policy.rules if rule.on in PLANNABLE)
            return not self.passed(since + max(budgets, default=PLANNED_BUDGET))
        expected = None if intent else plans.expected_until(operated, opened)
        return expected is not None and not self.passed(expected)

    @property
    def stuck(self) -> tuple[str, ...]:
        """Why the pod that should come cannot: `the next pod cannot start: ErrImagePull`."""
        why = plans.stuck(self.cluster.operated)
        return (f"the next pod cannot start: {clean(why, _LONGEST_PROBLEM)}",) if why else ()

    @property
    def _starts_again(self) -> bool:
        """Whether a leader is wanted again that was not when this observer saw the cluster first, and not for too long yet."""
        operated, own = self.cluster.operated, self.own.values()
        if operated is None or operated.wanted_since is None or plans.stuck(operated) or not self.vacant:
            return False
        since = max((state.vacated_at or state.since for state in own), key=lambda at: at.steady)
        budgets = (rule.planned_budget for rule in self.policy.rules if rule.on in PLANNABLE)
        until = operated.wanted_since.steady + max(budgets, default=PLANNED_BUDGET)
        return plans.starts_again(operated, since) and not self.passed(until)

    @property
    def why(self) -> tuple[str, ...]:
        """Why the leader was lost: `probably jm-b was killed`."""
        episode = self.cluster.episode
        if episode is None:
            return ()
        verdict, death = cause_of(self.cluster, episode), death_of(self.cluster, episode)
        reason = death.reason if death else None
        clause = advice.because(verdict.cause, self._process(episode.before.address), reason)
        is_sure = (death if death and advice.explains(reason, verdict.cause) else verdict).confidence is Confidence.HIGH
        clause = clause.removeprefix("JobManager ")
        return (clause if is_sure else f"probably {clause}",) if clause else ()

    # -- what Flink's REST server says ---------------------------------------------------------------------------------

    @cached_property
    def picture(self) -> Picture | None:
        """The answer of the present leader's REST server, since this observer sees it lead. None: there is none, or it is too old."""
        cluster, leader, server = self.cluster, self.cluster.rest_leader, self.cluster.rest_server
        picture, request = (cluster.picture_now if cluster.recovery else cluster.picture), cluster.picture_request
        if Source.FLINK_REST not in self.policy.evidence or picture is None or picture.left_out:
            return None
        if leader is None or server is None or server.leader != leader or picture.leader != leader.address:
            return None
        if picture.at < max(cluster.components[_REST_SERVER].since.wall, cluster.view.turned_at.wall):
            return None
        taken = self.now.steady - (self.now.wall - picture.at)
        answered = max(taken, request.good_at if request else taken)
        is_old = self.passed(answered + rest_server.SHOWN_AFTER + 2 * self.policy.picture_interval)
        return None if is_old else picture

    @property
    def unchecked(self) -> str | None:
        """Why it is not known whether the jobs run."""
        picture, request = self.picture, self.cluster.picture_request
        if Source.FLINK_REST not in self.policy.evidence:
            return "no REST"
        if picture:
            return f"{picture.jobs_beyond} of them are not listed" if picture.jobs_beyond else None
        if self.cluster.picture and self.cluster.picture.left_out:
            return "too many to remember"
        return clean(request.problem, _LONGEST_PROBLEM) if request and request.problem else "REST has not answered yet"

    @property
    def awaits_rest(self) -> bool:
        """Whether the leader has been seen only now, and its REST server has neither answered nor refused since."""
        if self.unchecked is None or self.cluster.rest_leader is None or Source.FLINK_REST not in self.policy.evidence:
            return False
        seen = max(self.cluster.view.turned_at.steady, self.cluster.components[_REST_SERVER].since.steady)
        request = self.cluster.picture_request
        is_asked = request is None or request.waiting or request.at < seen
        return is_asked and not self.passed(seen + _REST_PATIENCE)

    @cached_property
    def silence(self) -> Unanswered | None:
        """The silence of the published leader, if it is proven to have lasted as long as the rules have it."""
        silence, until = rest_server.unanswered(self.cluster), rest_server.proven_until(self.cluster)
        if silence is None or until is None or until - silence.since.steady < self.hold(Trigger.LEADER_SILENT):
            return None
        return silence

    # -- the jobs ------------------------------------------------------------------------------------------------------

    @cached_property
    def counts(self) -> tuple[int, int] | None:
        """How many jobs run, and how many there are. None: not known."""
        cluster, recovery, before = self.cluster, self.cluster.recovery, self.cluster.picture
        if recovery and recovery.led_at and not recovery.left_out and before and not before.left_out:
            ended = {job_id for job_id, after in cluster.recovering.items() if after.state in ENDED}
            accepted = self._gone - self.faults.keys()
            expected = {job.id for job in before.jobs if job.state not in ENDED} - ended - accepted
            return len(expected - self.waiting.keys() - self._gone), len(expected)
        picture = self.picture
        if picture is None:
            return None
        running = {job.id for job in picture.jobs if job.is_running}
        there = {job.id for job in picture.jobs if job.state not in ENDED and not self._starts(picture, job)}
        absent = self.waiting.keys() | self._gone | self._unlisted(picture)
        return len(running - absent), len(there | absent | running)

    def _unlisted(self, picture: Picture) -> set[str]:
        """The jobs that have a leader in the store, and not just since, and that Flink does not list."""
        led = (
            component.job_id
            for component, state in self.jobs.items()
            if isinstance(state.leadership, Held) and picture.at - state.since.wall >= _STARTS_WITHIN
        )
        return {job_id for job_id in led if job_id} - {job.id for job in picture.jobs}

    def _starts(self, picture: Picture, job: Job) -> bool:
        """Whether somebody has just submitted the job: it did not run before."""
        settled = picture.at - self.cluster.components[_REST_SERVER].since.wall >= _SETTLED
        return settled and not job.is_running and picture.at - job.started_at < _STARTS_WITHIN

    @cached_property
    def waiting(self) -> Mapping[str, str]:
        """Jobs from before the failover that were not seen running since."""
        return assessment.waiting(self.cluster)

    @cached_property
    def _is_accepted(self) -> bool:
        """Whether somebody knows what was lost so far in the failover whose recovery is assessed."""
        recovery = self.cluster.recovery
        return recovery is not None and assessment.is_accepted(self.cluster, recovery)

    @property
    def faults(self) -> Mapping[str, JobFault]:
        """The jobs that are missing or resurrected, and whose loss nobody has accepted."""
        accepted = self.cluster.recovery.episode_id if self.cluster.recovery and self._is_accepted else None
        return {job: fault for job, fault in self.cluster.job_faults.items() if fault.episode_id != accepted}

    @property
    def _gone(self) -> set[str]:
        return {job for job, fault in self.cluster.job_faults.items() if fault.fault is not Fault.RESURRECTED}

    @property
    def running(self) -> tuple[str, ...]:
        """`2 of 3 jobs run`. Empty: not known, or there are no jobs."""
        if self.counts is None or not self.counts[1]:
            return ()
        ran, total = self.counts
        again = " again" if ran == total and self.recovered else ""
        return (f"{ran} of {total} jobs run{again}",)

    @property
    def is_patience_over(self) -> bool:
        """Whether jobs have not come back for as long as the rules wait."""
        led = assessment.led_since(self.cluster)
        return bool(self.waiting) and led is not None and self.passed(led[0].steady + self.hold(Trigger.NOT_RECOVERED))

    @property
    def has_no_workers(self) -> bool:
        """Whether jobs are there, and no TaskManager is registered."""
        picture = self.picture
        return picture is not None and picture.task_managers == () and bool(self.counts and self.counts[1])

    @property
    def lacks_workers(self) -> bool:
        """Whether jobs are there, and no TaskManager has registered for so long that none is to be expected."""
        picture, recovery = self.picture, self.cluster.recovery
        if picture is None or not self.has_no_workers:
            return False
        if recovery and recovery.led_at:
            return self.passed(recovery.led_at.steady + REGISTERED_WITHIN)
        return any(picture.at - job.started_at >= REGISTERED_WITHIN for job in picture.jobs if job.state not in ENDED)

    @property
    def is_recovering(self) -> bool:
        """Whether it is led, and jobs do not run yet, or it is about to be known from what they were restored."""
        cluster, recovery = self.cluster, self.cluster.recovery
        if cluster.episode and cluster.episode.jobs_away:
            return True
        if recovery:
            if recovery.led_at is None:
                return True  # it is led: that is noted with the next tick
            if recovery.first_at is None:
                return not self.passed(recovery.led_at.steady + self.hold(Trigger.NOT_RECOVERED))
            if not recovery.left_out:
                return bool(self.waiting) or self._is_unread
        return self.counts is not None and self.counts[0] < self.counts[1]

    @property
    def _is_unread(self) -> bool:
        """Whether the checkpoints of jobs that run were not read yet, for a short time."""
        jobs = [after for after in self.cluster.recovering.values() if after.is_running]
        left = max((after.running_at or 0 for after in jobs), default=0) + _READ_WITHIN - self.now.wall
        return any(after.read_at is None for after in jobs) and not self.passed(self.now.steady + left)

    # -- what came of it -----------------------------------------------------------------------------------------------

    @cached_property
    def assessed(self) -> Assessed | None:
        """The last recovery that was judged, for a day, or until it is annotated, or the next failover."""
        last, episode = self.cluster.assessed, self.cluster.episode or self.cluster.last_episode
        if last is None or last.accepted or self.cluster.recovery:
            return None
        if episode and episode.id != last.episode_id and episode.opened_at.steady >= last.at.steady:
            return None
        return None if self.passed(last.at.steady + KEPT) else last

    def restored(self, origin: str) -> list[str]:
        """The names of the jobs that were restored from `nothing`, or from an `older` checkpoint."""
        if self.assessed:
            return [row.name or "" for row in self.assessed.rows if row.restored_from == origin]
        recovery, before = self.cluster.recovery, self.cluster.picture
        if recovery is None or before is None or self._is_accepted:
            return []
        reported = {
            job_id
            for job_id, after in self.cluster.recovering.items()
            if after.reported and (after.restored is None) is (origin == "nothing")
        }
        return [job.name for job in before.jobs if job.id in reported] if reported else []

    @property
    def shortcomings(self) -> Iterator[tuple[list[str], str]]:
        """The jobs that run worse than before, or not any more, and how."""
        yield self.restored("older"), "restored from an older checkpoint"
        rows = self.assessed.rows if self.assessed else ()
        yield [row.name or "" for row in rows if (row.outcome, row.state) == ("ended", "FAILED")], "failed since"

    @cached_property
    def recovered(self) -> tuple[str, ...]:
        """`58 s after jm-b was killed`, or `0.5 to 15 s` where its end was not observed, for a while after all jobs ran again."""
        last, took = self.cluster.recovery or self.cluster.assessed, self._took()
        episode = self.cluster.failover(last.episode_id) if last else None
        if episode is None or took is None:
            return ()
        death, who = death_of(self.cluster, episode), self._process(episode.before.address)
        ending = advice.ending(cause_of(self.cluster, episode).cause, death.reason if death else None)
        before = Downtime() if death and death.ended_at else self._lost_before(episode)
        at_most = None if before.at_most is None else took + before.at_most
        return (f"{bounds(took + before.at_least, at_most)} after {who} {ending}",)

    def _lost_before(self, episode: Episode) -> Downtime:
        """For how long the previous leader had not worked when its loss was observed."""
        absences = [state.absence for state in parts_of(self.own.items(), episode).values()]
        unseen = [absence.not_working_before for absence in absences if absence]
        return longest(unseen) or Downtime()

    def _took(self) -> int | None:
        """How long it took until all jobs ran, since the loss was observed, or since the process ended."""
        cluster, recovery, assessed = self.cluster, self.cluster.recovery, self.cluster.assessed
        if recovery is None:
            row = assessed.rows[0] if assessed and assessed.rows else None
            if assessed is None or row is None or row.running_after_seconds is None:
                return None
            return None if self.passed(assessed.at.steady + _RECENT) else micros(row.running_after_seconds)
        led_at = recovery.led_at.wall if recovery.led_at else None
        ran = [at for after in cluster.recovering.values() if after.is_running and (at := after.ran_at(led_at))]
        died = assessment.dead_at(cluster, recovery)
        began = recovery.opened_at.wall if died is None else min(died, recovery.opened_at.wall)
        return max(0, max(ran) - began) if ran else None
