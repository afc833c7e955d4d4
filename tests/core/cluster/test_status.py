"""The status of a cluster: one row of the table each, and what OK must never be said of."""

from collections.abc import Callable
from typing import Any, Final

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from sidecar.core.cluster.status import SHOWN, ClusterStatus, Status
from sidecar.core.cluster.status_of import ROWS, status_of
from sidecar.core.failover.plans import Operated
from sidecar.core.failover.recovery_state import KEPT, Fault, JobFault
from sidecar.core.flink.deployments import FlinkDeployment, Reconciliation
from sidecar.core.flink.leadership import Component, ComponentId
from sidecar.core.leadership.leadership_account import Standby
from sidecar.core.moment import Moment
from sidecar.core.observations import ConnectionState, DeploymentObserved, Ticked
from sidecar.core.policy.policy import Store
from sidecar.core.reach import Reach
from sidecar.core.records import StatusRecord
from sidecar.core.state import State
from sidecar.core.step import step
from tests.core.cluster.pictures import ASSESSING, after, before, job, reaches, shows
from tests.core.failover.test_assessment import failed_over, looks
from tests.kit.cluster import CLUSTER, DISPATCHER, JOB, THE_JOB, A, B
from tests.kit.core_sidecar import Sidecar, fail_over, watching
from tests.kit.groups import examples

LATCH: Final = "/leader/latch"
OTHER: Final = "b" * 32


def of(sidecar: Sidecar, **other: Any) -> ClusterStatus:
    """The status of the cluster now; `other`: of its state."""
    cluster = replace(sidecar.state.clusters[CLUSTER], **other)
    return status_of(sidecar.policy, CLUSTER, cluster, sidecar.moment)


def running() -> Sidecar:
    """A cluster that is led, and whose REST server has just shown that its two jobs run."""
    sidecar = watching(policy=ASSESSING)[1]
    shows(sidecar, job(), job("payments", job_id=OTHER))
    return sidecar.waits(1)


def vacated(seconds: float = 43) -> Sidecar:
    flink, sidecar = watching()
    flink.vacate()
    return sidecar.sees_changes().waits(seconds)


def blind() -> ClusterStatus:
    sidecar = watching()[1].is_cut_off(ConnectionState.LOST).waits(50)
    return of(sidecar)


def stopped() -> ClusterStatus:
    sidecar = vacated()
    return of(sidecar, operated=Operated(None, unwanted_since=sidecar.moment))


def down() -> ClusterStatus:
    return of(vacated(), contenders={LATCH: ("a", "b")})


def split() -> ClusterStatus:
    return of(watching()[1], contested=frozenset({DISPATCHER}))


def lost() -> ClusterStatus:
    sidecar = running()
    fault = JobFault(Fault.MISSING, sidecar.moment, "an episode", "payments")
    return of(sidecar, job_faults={OTHER: fault})


def not_running() -> ClusterStatus:
    _, sidecar = failed_over()
    for _ in range(31):
        shows(sidecar, job(started=2, state="RESTARTING"))
        sidecar.waits(10)
    return of(sidecar)


def silent() -> ClusterStatus:
    sidecar = running()
    for _ in range(12):
        reaches(sidecar, Reach.SILENT)
        sidecar.waits(1)
    return of(sidecar)


def recovering() -> ClusterStatus:
    return of(failed_over()[1])


def degraded() -> ClusterStatus:
    sidecar = running()
    return of(sidecar, contenders={LATCH: ("a",)}, standby=Standby(sidecar.moment, sidecar.moment))


def unchecked() -> ClusterStatus:
    return of(watching()[1])


def ok() -> ClusterStatus:
    _, sidecar = failed_over()
    return of(looks(sidecar, None, seconds=2))


EACH: Final[dict[Status, tuple[Callable[[], ClusterStatus], str]]] = {
    Status.BLIND: (blind, "cannot see it for 50 s: ZooKeeper cannot be reached, last known leader jm-a"),
    Status.STOPPED: (
        stopped,
        "its FlinkDeployment was deleted, 1 job in the store waits, since 2026-11-20 08:01:43 UTC",
    ),
    Status.DOWN: (down, "no leader for 43 s, probably jm-a was lost, 1 job stands still, 2 JobManagers contend"),
    Status.SPLIT: (split, "two JobManagers act as leader of dispatcher"),
    Status.LOST: (lost, "1 job missing: payments, 1 of 2 jobs run"),
    Status.NOT_RUNNING: (not_running, "0 of 1 jobs run"),
    Status.SILENT: (silent, "jm-a does not answer for 12 s, it is still published as leader"),
    Status.RECOVERING: (recovering, "jm-b leads after 2 s, 0 of 1 jobs run"),
    Status.DEGRADED: (degraded, "2 of 2 jobs run, no standby is left"),
    Status.UNCHECKED: (unchecked, "jm-a leads; whether jobs run is not known (no REST)"),
    Status.OK: (ok, "1 of 1 jobs run again, at least 2.1 s after jm-a was lost"),
}


@pytest.mark.parametrize("status", EACH)
def test_each_status_says_what_is_so(status: Status) -> None:
    """In one sentence, of what is known and no more."""
    make, sentence = EACH[status]
    made = make()
    assert (made.status, made.sentence) == (status, sentence)


def test_each_status_has_a_row_and_a_colour() -> None:
    """And nothing but OK is green, or a success."""
    assert {status for status, _ in ROWS} == set(Status) == set(SHOWN) == set(EACH)
    assert len({applies for _, applies in ROWS}) == len(ROWS)
    assert [status for status, shown in SHOWN.items() if "green" in shown or "success" in shown] == [Status.OK]


def test_what_cannot_be_seen_is_neither_down_nor_ok() -> None:
    """Also when nobody led before the connection was lost, and when all was well."""
    for sidecar in (vacated(), running()):
        assert of(sidecar.is_cut_off(ConnectionState.LOST).waits(5)).status is Status.BLIND
    assert of(watching()[1], refused="NoAuth").status is Status.BLIND


def test_a_job_gets_its_leader_after_the_dispatcher() -> None:
    """Until as long has passed as a rule waits, its cluster recovers; then the job is without a leader."""
    flink, sidecar = watching()
    sidecar.sees(flink.vacate()).waits(2)
    sidecar.sees(
        flink.elect(B, *(component for component in sidecar.state.clusters[CLUSTER].components if not component.job_id))
    ).waits(1)
    assert of(sidecar).status is Status.RECOVERING
    sidecar.waits(40)
    assert (of(sidecar).status, of(sidecar).sentence) == (Status.DOWN, "1 of 1 jobs without a leader for 43 s")


def test_a_leader_that_has_never_described_the_cluster_is_unchecked() -> None:
    """Whether its jobs run is not known then: not even after the patience of the rules is over."""
    _, sidecar = failed_over()
    assert of(sidecar.waits(60)).status is Status.RECOVERING
    made = of(sidecar.waits(300))
    assert (made.status, made.sentence) == (Status.UNCHECKED, "jm-b leads; whether jobs run is not known (not shown)")


def test_jobs_without_any_task_manager_do_not_run() -> None:
    """While it recovers that is said, and after a minute it is the status."""
    _, sidecar = failed_over()
    looks(sidecar, job(started=2, state="RESTARTING"), task_managers=())
    assert of(sidecar).status is Status.RECOVERING
    assert "no TaskManager is registered" in of(sidecar).sentence
    looks(sidecar, job(started=2, state="RESTARTING"), task_managers=(), seconds=60)
    assert (of(sidecar).status, of(sidecar).parts[:2]) == (
        Status.NOT_RUNNING,
        ("0 of 1 jobs run", "no TaskManager is registered"),
    )


def test_a_restore_from_an_older_checkpoint_lasts_for_a_day() -> None:
    """Or until the next failover: all jobs run, and that is no OK."""
    _, sidecar = failed_over()
    looks(sidecar, after(sidecar, 40, 42), seconds=3)
    assert of(sidecar).status is Status.DEGRADED
    looks(sidecar, after(sidecar, 40, 42), seconds=60)
    assert of(sidecar).sentence == "1 of 1 jobs run again, 1 job restored from an older checkpoint"
    assessed = sidecar.state.clusters[CLUSTER].assessed
    assert assessed
    a_day_ago = Moment(assessed.at.steady - KEPT, assessed.at.wall - KEPT)
    assert of(sidecar, assessed=replace(assessed, at=a_day_ago)).status is Status.OK


def test_a_job_that_lost_its_state_is_lost_though_it_runs() -> None:
    """From the moment at which that is known."""
    _, sidecar = failed_over()
    for _ in range(3):
        shows(sidecar, after(sidecar, None, 1))
        sidecar.waits(1)
    assert (of(sidecar).status, of(sidecar).parts[0]) == (Status.LOST, "1 job restored from nothing: orders")


def test_a_change_of_status_is_recorded_once() -> None:
    """With what it was before, the sentence at that moment, and the failover; each begins when the one before ends."""
    flink, sidecar = watching(policy=ASSESSING)
    shows(sidecar, before(sidecar))
    sidecar.sees(flink.vacate()).waits(10)
    flink.elect(B)
    looks(sidecar.sees_changes(), None, seconds=3)
    changes = [record for record in sidecar.records if isinstance(record, StatusRecord)]
    assert [(record.previous, record.status) for record in changes] == [
        ("UNCHECKED", "DOWN"),
        ("DOWN", "RECOVERING"),
        ("RECOVERING", "OK"),
    ]
    assert {record.episode_id for record in changes} == {changes[0].episode_id}
    stated = sidecar.state.clusters[CLUSTER].stated
    assert stated
    assert (stated.status, stated.sentence) == (Status.OK, changes[-1].sentence)
    sidecar.is_killed()
    assert sidecar.state.clusters[CLUSTER].stated == stated


def test_a_rollout_whose_next_pod_cannot_start_is_down_at_once() -> None:
    """A planned failover goes on until the pod says that its image is not found: nothing is excused any more, and that is why."""
    flink, sidecar = watching()
    deployed = FlinkDeployment("u", 1, 1, Reconciliation.DEPLOYED)
    rolling = replace(deployed, generation=2, observed_generation=2, reconciliation=Reconciliation.UPGRADING)
    for seen in (deployed, rolling):
        sidecar.observe(DeploymentObserved(sidecar.moment, CLUSTER, seen))
    sidecar.sees(flink.vacate()).waits(5)
    assert of(sidecar).status is Status.RECOVERING
    sidecar.observe(DeploymentObserved(sidecar.moment, CLUSTER, replace(rolling, stuck="ErrImagePull")))
    sidecar.waits(1)
    assert of(sidecar).status is Status.DOWN
    assert of(sidecar).sentence.startswith("no leader for 6 s, the next pod cannot start: ErrImagePull")


def test_a_cluster_that_nobody_wants_and_that_is_led_keeps_one_status() -> None:
    """Its FlinkDeployment is gone, its JobManagers are not, and one of them fails: what is known changes from tick to tick no more."""
    flink, sidecar = watching(policy=ASSESSING)
    deployment = FlinkDeployment("u", 1, 1, Reconciliation.DEPLOYED)
    for of_it in (deployment, None):
        sidecar.observe(DeploymentObserved(sidecar.moment, CLUSTER, of_it))
    shows(sidecar, before(sidecar))
    fail_over(flink, sidecar, 3).waits(1)
    for _ in range(20):
        shows(sidecar, after(sidecar, 41, 42))
        sidecar.waits(0.75)  # an odd number of ticks
    changes = [record.status for record in sidecar.records if isinstance(record, StatusRecord)]
    assert changes[0] == "STOPPED"
    assert changes[-1] == "OK"
    assert len(changes) <= 4, changes


def test_a_tick_decides_the_status_of_clusters_that_are_due_alone() -> None:
    """One whose job may be without a leader until a moment is decided then; another one, of which nothing has changed, is left alone."""
    (flink, sidecar), led = watching(), watching()[1].waits(1)
    sidecar.sees(flink.vacate(THE_JOB)).waits(1)
    policy = replace(sidecar.policy, stores=dict.fromkeys(("due", "led"), Store.ZOOKEEPER))
    state = State({"due": sidecar.state.clusters[CLUSTER], "led": led.state.clusters[CLUSTER]}, alive=sidecar.moment)
    state, _ = step(policy, state, Ticked(sidecar.moment))
    due = state.status_due
    assert due
    assert [name for name, c in state.clusters.items() if c.stated and c.stated.due == due] == ["due"]
    ticks = [Ticked(replace(sidecar.moment, steady=due + later)) for later in (-2, -1, 0)]
    before, early, at_last = (state := step(policy, state, tick)[0] for tick in ticks)
    assert early.stated is before.stated
    assert {name for name, c in at_last.stated.items() if c is not before.stated[name]} == {"due"}


def test_the_sentence_gets_shorter_where_there_is_little_room() -> None:
    """It drops its last parts first, and never says more than it did."""
    made = down()
    texts = [made.sentence_within(room) for room in range(10, 120)]
    assert all(len(text) <= room for room, text in zip(range(10, 120), texts, strict=True))
    assert made.sentence == texts[-1]
    assert made.sentence_within(40) == "no leader for 43 s"


@settings(max_examples=examples(60), deadline=None)
@given(
    st.lists(
        st.sampled_from(["vacate", "elect a", "elect b", "runs", "restarts", "none", "waits", "cut off", "connects"]),
        max_size=12,
    )
)
def test_ok_is_said_only_of_a_cluster_that_is_led_and_whose_jobs_run(steps: list[str]) -> None:
    """Whatever happens: led, this leader's REST server has answered, and every job that ran before runs again or has ended. What a tick
    leaves undecided would be decided alike.
    """
    flink, sidecar = watching(policy=ASSESSING)
    shows(sidecar, before(sidecar))
    shown: tuple[Any, ...] | None = None
    for what_happens in steps:
        match what_happens.split():
            case ["vacate"]:
                sidecar.sees(flink.vacate())
            case ["elect", who]:
                sidecar.sees(flink.elect({"a": A, "b": B}[who]))
            case ["cut", "off"]:
                sidecar.is_cut_off(ConnectionState.LOST)
            case ["connects"]:
                sidecar.connects()
            case ["waits"]:
                sidecar.waits(5)
            case [what]:
                jobs = {"runs": [after(sidecar, 41, 42)], "restarts": [job(started=2, state="RESTARTING")], "none": []}
                shows(sidecar, *jobs[what])
                shown = (jobs[what], sidecar.state.clusters[CLUSTER].rest_leader)
        sidecar.waits(1)
        cluster = sidecar.state.clusters[CLUSTER]
        assert cluster.stated
        assert cluster.stated.status is of(sidecar).status
        if of(sidecar).status is not Status.OK:
            continue
        assert cluster.leaders_in_sight
        assert cluster.components[ComponentId(Component.JOB, JOB)].vacated_at is None
        assert cluster.rest_leader is not None
        if shown and shown[1] == cluster.rest_leader:
            assert all(one.is_running for one in shown[0])
