"""For each trigger a scene: what makes it fire, what nearly does, and what ends it."""

from collections.abc import Callable
from typing import Final, NamedTuple

from msgspec.structs import replace

from sidecar.core.flink.deployments import FlinkDeployment, Reconciliation
from sidecar.core.flink.leadership import CLUSTER_COMPONENTS, ComponentId
from sidecar.core.ha.finding import CheckVerdict
from sidecar.core.ha.results import CheckResult
from sidecar.core.moment import SECOND
from sidecar.core.observations import DeploymentObserved, HaChecked, StoreObserved
from sidecar.core.pictures import Job
from sidecar.core.policy.policy import Rule, Severity, Source
from sidecar.core.policy.routing import Route
from sidecar.core.policy.triggers import Trigger
from sidecar.core.reach import Reach
from sidecar.core.records import record_id
from tests.core.auditor import Audited
from tests.core.cluster.pictures import after, before, job, reaches, shows
from tests.kit.cluster import ALL_FOUR, CLUSTER, DISPATCHER, REST_SERVER, THE_JOB, A, B, job_manager
from tests.kit.core_sidecar import POLICY
from tests.kit.fake_flink import Flink

WITH_PICTURES: Final = frozenset(
    {
        *(Trigger.JOB_RESURRECTED, Trigger.RESTORED_FROM_NOTHING, Trigger.RESTORED_FROM_OLDER),
        *(Trigger.NOT_RECOVERED, Trigger.RECOVERED, Trigger.LEADER_SILENT),
    }
)
"""Triggers of what Flink's REST server says."""
C: Final = job_manager("jm-c")
D: Final = job_manager("jm-d")
EACH: Final = Route("ops", group_by=("...",), group_wait=1 * SECOND, group_interval=5 * SECOND)
Act = Callable[[Flink, Audited], object]
PictureOf = Callable[[Audited], Job]


def contend(number: int) -> Act:
    """So many JobManagers wait for leadership."""

    def act(flink: Flink, sidecar: Audited) -> None:
        for index in range(3):
            path = f"/leader/latch/_c_{index}-latch-{index:010d}"
            if index < number:
                flink.znodes.write(path, b"", index + 1)
            else:
                flink.znodes.delete(path)
        sidecar.reads_lists(["/leader/latch"])

    return act


def moves(*steps: tuple[str, object, tuple[ComponentId, ...]]) -> Act:
    """Leaders go ("-", None, whom) and come ("+", who, whom), each seen at once."""

    def act(flink: Flink, sidecar: Audited) -> None:
        for sign, leader, whom in steps:
            if sign == "-":
                flink.vacate(*whom)
            else:
                flink.elect(leader, *whom)  # type: ignore[arg-type]  # a JobManager wherever somebody comes
            sidecar.sees_changes().waits(0.5, tick=0.5)

    return act


def fails_over(*leaders: object) -> Act:
    """Everybody goes, and the next one comes; each time it settles."""

    def act(flink: Flink, sidecar: Audited) -> None:
        for leader in leaders:
            moves(("-", None, ALL_FOUR), ("+", leader, ALL_FOUR))(flink, sidecar)
            sidecar.waits(8)

    return act


def takes_turns(times: int) -> Act:
    return moves(*(("+", (B, A)[turn % 2], (DISPATCHER,)) for turn in range(times)))


def writes_unseen(times: int) -> Act:
    """The leader's own process writes a new term into its znode so many times before anybody looks."""

    def act(flink: Flink, sidecar: Audited) -> None:
        for term in range(1, times + 1):
            flink.elect(job_manager("jm-a", term), DISPATCHER)
        sidecar.sees_changes()

    return act


def zxid(value: int) -> Act:
    return lambda _, sidecar: sidecar.observe(StoreObserved(sidecar.moment, CLUSTER, value))


def checks(verdict: CheckVerdict) -> Act:
    """What a check of high availability found."""
    result = CheckResult(check="standby", verdict=verdict, text="so many JobManagers", advice="start another one")
    return lambda _, sidecar: sidecar.observe(HaChecked(sidecar.moment, CLUSTER, (result,)))


def passes_time(seconds: float) -> Act:
    return lambda _, sidecar: sidecar.waits(seconds, tick=1)


def passes_drill(_: Flink, sidecar: Audited) -> None:
    """A drill has passed."""
    cluster = sidecar.state.clusters[CLUSTER]
    passed = replace(cluster.drilled, passed_at=sidecar.now, passed=record_id("drill"))
    sidecar.state = replace(sidecar.state, clusters={CLUSTER: replace(cluster, drilled=passed)})


def operator_says(state: Reconciliation) -> Act:
    """What the cluster's FlinkDeployment says."""
    deployment = FlinkDeployment("u", 1, 1, state)
    return lambda _, sidecar: sidecar.observe(DeploymentObserved(sidecar.moment, CLUSTER, deployment))


def is_suspended(_: Flink, sidecar: Audited) -> None:
    """Its FlinkDeployment is."""
    deployment = FlinkDeployment("u", 2, 2, Reconciliation.DEPLOYED, suspended=True)
    sidecar.observe(DeploymentObserved(sidecar.moment, CLUSTER, deployment))


def is_deleted(_: Flink, sidecar: Audited) -> None:
    sidecar.observe(DeploymentObserved(sidecar.moment, CLUSTER, None))


def cut_off(seconds: float) -> Act:
    return lambda _, sidecar: sidecar.is_cut_off().waits(seconds)


def recovers(was: PictureOf, now: PictureOf, *, seconds: int = 10) -> Act:
    """The REST server shows one job before a failover, and another every second after it."""

    def act(flink: Flink, sidecar: Audited) -> None:
        shows(sidecar, was(sidecar))
        moves(("-", None, ALL_FOUR), ("+", B, ALL_FOUR))(flink, sidecar)
        looks(now, seconds)(flink, sidecar)

    return act


def looks(now: PictureOf, seconds: int = 10) -> Act:
    """The REST server shows this job every second."""

    def act(_: Flink, sidecar: Audited) -> None:
        for _second in range(seconds):
            shows(sidecar, now(sidecar))
            sidecar.waits(1, tick=0.5)

    return act


def is_asked(reach: Reach, seconds: int = 1) -> Act:
    """The leading REST server is asked every second, and requests get so far."""

    def act(_: Flink, sidecar: Audited) -> None:
        for _second in range(seconds):
            reaches(sidecar, reach)
            sidecar.waits(1, tick=0.5)

    return act


def loses_its_plan(after: float) -> Act:
    """The plan of the job is removed so long after the leader was lost; then B leads."""

    def act(flink: Flink, sidecar: Audited) -> None:
        moves(("-", None, ALL_FOUR))(flink, sidecar)
        sidecar.waits(after).sees(flink.forget())
        moves(("+", B, CLUSTER_COMPONENTS))(flink, sidecar)

    return act


def submits(flink: Flink, sidecar: Audited) -> None:
    """The job is there again."""
    flink.submit()
    moves(("+", B, (THE_JOB,)))(flink, sidecar)


class Scene(NamedTuple):
    """What makes a rule fire, what nearly does, and what ends it (None: it is an event)."""

    rule: Rule
    begins: Act
    nearly: Act
    ends: Act | None = None


def _all(*acts: Act) -> Act:
    def act(flink: Flink, sidecar: Audited) -> None:
        for step in acts:
            step(flink, sidecar)

    return act


def _waits(seconds: float) -> Act:
    return lambda _, sidecar: sidecar.waits(seconds, tick=1)


def _connects(_: Flink, sidecar: Audited) -> None:
    sidecar.connects()


SCENES: Final = {
    Trigger.LEADER_CHANGED: Scene(
        Rule("R", Trigger.LEADER_CHANGED),
        moves(("-", None, (DISPATCHER, REST_SERVER)), ("+", B, (DISPATCHER,))),
        moves(("-", None, ALL_FOUR), ("+", A, ALL_FOUR)),
        moves(("+", A, (REST_SERVER,))),
    ),
    Trigger.JOB_LEADER_CHANGED: Scene(
        Rule("R", Trigger.JOB_LEADER_CHANGED), moves(("+", B, (THE_JOB,))), fails_over(B, C)
    ),
    Trigger.VACANT: Scene(
        Rule("R", Trigger.VACANT, Severity.CRITICAL, hold_for=30 * SECOND),
        _all(moves(("-", None, (DISPATCHER,))), _waits(30)),
        _all(moves(("-", None, (DISPATCHER,))), _waits(28), moves(("+", B, (DISPATCHER,)))),
        moves(("+", B, (DISPATCHER,))),
    ),
    Trigger.EPISODES: Scene(
        Rule("R", Trigger.EPISODES, count=3, within=600 * SECOND),
        fails_over(B, C, D),
        _all(fails_over(B, C), _waits(600), fails_over(D)),
        _waits(600),
    ),
    Trigger.BLIND: Scene(
        Rule("R", Trigger.BLIND, hold_for=20 * SECOND),
        cut_off(21),
        _all(cut_off(19), _connects, _waits(5), cut_off(19), _connects),
        _connects,
    ),
    Trigger.UNOBSERVED: Scene(Rule("R", Trigger.UNOBSERVED), writes_unseen(3), writes_unseen(1)),
    Trigger.SPLIT: Scene(Rule("R", Trigger.SPLIT), takes_turns(5), takes_turns(3), _waits(62)),
    Trigger.NO_STANDBY: Scene(
        Rule("R", Trigger.NO_STANDBY, hold_for=10 * SECOND),
        _all(contend(3), _waits(150), contend(1), _waits(10)),
        _all(contend(1), _waits(150), contend(3), contend(2), _waits(20), contend(1), _waits(20)),
        contend(2),
    ),
    Trigger.SAME_PROCESS_REELECTION: Scene(
        Rule("R", Trigger.SAME_PROCESS_REELECTION), fails_over(job_manager("jm-a", 1)), fails_over(B)
    ),
    Trigger.PLANNED_FAILOVER: Scene(
        Rule("R", Trigger.PLANNED_FAILOVER, Severity.INFO),
        _all(operator_says(Reconciliation.UPGRADING), fails_over(B)),
        _all(
            operator_says(Reconciliation.DEPLOYED),
            fails_over(B),
            operator_says(Reconciliation.ROLLING_BACK),
            fails_over(C),
        ),
    ),
    Trigger.STOPPED: Scene(
        Rule("R", Trigger.STOPPED, Severity.INFO),
        _all(operator_says(Reconciliation.DEPLOYED), is_suspended, moves(("-", None, ALL_FOUR))),
        _all(operator_says(Reconciliation.DEPLOYED), is_suspended, moves(("-", None, (DISPATCHER,)))),
        _all(operator_says(Reconciliation.DEPLOYED), moves(("+", B, ALL_FOUR))),
    ),
    Trigger.JOBS_WAIT: Scene(
        Rule("R", Trigger.JOBS_WAIT, hold_for=30 * SECOND),
        _all(operator_says(Reconciliation.DEPLOYED), is_deleted, moves(("-", None, ALL_FOUR)), _waits(30)),
        _all(operator_says(Reconciliation.DEPLOYED), is_suspended, moves(("-", None, ALL_FOUR)), _waits(40)),
        _all(operator_says(Reconciliation.DEPLOYED), moves(("+", B, ALL_FOUR))),
    ),
    Trigger.JOB_MISSING: Scene(
        Rule("R", Trigger.JOB_MISSING, Severity.CRITICAL), loses_its_plan(8), loses_its_plan(2), submits
    ),
    Trigger.JOB_RESURRECTED: Scene(
        Rule("R", Trigger.JOB_RESURRECTED, Severity.CRITICAL),
        recovers(lambda _: job(state="FAILED"), lambda sidecar: after(sidecar, 41, 42)),
        recovers(lambda _: job(state="FAILED"), lambda sidecar: after(sidecar, 41, 42, savepoint=True)),
        looks(lambda _: job(started=2, state="CANCELED")),
    ),
    Trigger.RESTORED_FROM_NOTHING: Scene(
        Rule("R", Trigger.RESTORED_FROM_NOTHING, Severity.CRITICAL),
        recovers(before, lambda sidecar: after(sidecar, None, 42)),
        recovers(lambda _: job(), lambda sidecar: after(sidecar, None, 1)),
    ),
    Trigger.RESTORED_FROM_OLDER: Scene(
        Rule("R", Trigger.RESTORED_FROM_OLDER),
        recovers(before, lambda sidecar: after(sidecar, 40, 42)),
        recovers(before, lambda sidecar: after(sidecar, 41, 43)),
    ),
    Trigger.NOT_RECOVERED: Scene(
        Rule("R", Trigger.NOT_RECOVERED, Severity.CRITICAL, hold_for=20 * SECOND),
        recovers(before, lambda _: job(started=2, state="RESTARTING"), seconds=25),
        _all(
            recovers(before, lambda _: job(started=2, state="RESTARTING"), seconds=15),
            looks(lambda sidecar: after(sidecar, 41, 42)),
        ),
        looks(lambda sidecar: after(sidecar, 41, 42)),
    ),
    Trigger.RECOVERED: Scene(
        Rule("R", Trigger.RECOVERED, Severity.INFO),
        recovers(before, lambda sidecar: after(sidecar, 41, 42)),
        recovers(before, lambda sidecar: after(sidecar, 41, 43)),
    ),
    Trigger.LEADER_SILENT: Scene(
        Rule("R", Trigger.LEADER_SILENT, hold_for=8 * SECOND),
        _all(is_asked(Reach.ANSWERS), is_asked(Reach.SILENT, 10)),
        _all(is_asked(Reach.ANSWERS), is_asked(Reach.SILENT, 7), is_asked(Reach.ANSWERS), is_asked(Reach.SILENT, 7)),
        is_asked(Reach.ANSWERS),
    ),
    Trigger.DRILL_OVERDUE: Scene(
        Rule("R", Trigger.DRILL_OVERDUE, Severity.INFO, age=100 * SECOND),
        _all(passes_time(50), contend(2)),
        _all(passes_time(20), contend(2)),
        passes_drill,
    ),
    Trigger.ZXID_HEADROOM: Scene(
        Rule("R", Trigger.ZXID_HEADROOM), zxid((7 << 32) + (15 << 28)), zxid((7 << 32) + (15 << 28) - 1), zxid(8 << 32)
    ),
    Trigger.HA_RISK: Scene(
        Rule("R", Trigger.HA_RISK), checks(CheckVerdict.RISK), checks(CheckVerdict.UNKNOWN), checks(CheckVerdict.PASS)
    ),
}
LASTING: Final = [trigger for trigger, scene in SCENES.items() if scene.ends]
EVENTS: Final = [trigger for trigger, scene in SCENES.items() if not scene.ends]


def watching(*rules: Rule, route: Route = EACH) -> tuple[Flink, Audited]:
    """A cluster that A leads, and a sidecar that has been seeing it for a minute."""
    flink = Flink().submit().elect(A)
    pictured = any(rule.on in WITH_PICTURES for rule in rules)
    evidence = frozenset({Source.FLINK_REST}) if pictured else frozenset[Source]()
    sidecar = Audited(flink, replace(POLICY, rules=rules, route=route, evidence=evidence))
    sidecar.connects().waits(60, tick=1)
    return flink, sidecar


def reasons(sidecar: Audited) -> list[str]:
    return [notice.reason.value for notice in sidecar.notices]
