"""A recovery from the last picture before the failover to what is recorded of it."""

from typing import Any

import pytest
from msgspec.structs import replace

from sidecar.core.cluster.cluster_state import ClusterState
from sidecar.core.failover import assessment
from sidecar.core.failover.compared_pictures import matched
from sidecar.core.flink.deployments import FlinkDeployment, Reconciliation
from sidecar.core.flink.leadership import CLUSTER_COMPONENTS, Component, ComponentId
from sidecar.core.journal_rows import changes
from sidecar.core.moment import SECOND
from sidecar.core.observations import DeploymentObserved, PictureTaken
from sidecar.core.pictures import NOT_HELD, Checkpoints, Job, Picture
from sidecar.core.records import Recovery
from tests.core.cluster.pictures import ASSESSING, TASK_MANAGERS, after, before, job, rest_address, shows
from tests.kit.cluster import CLUSTER, JOB, THE_JOB, A, B, job_manager
from tests.kit.core_sidecar import POLICY, Sidecar, fail_over, leased, watching
from tests.kit.fake_flink import Flink

OTHER = "b" * 32


def failed_over(*jobs: Job, last: int = 41, waits: float = 2) -> tuple[Flink, Sidecar]:
    """A led, and the REST server showed the job (or these); now B leads."""
    flink, sidecar = watching(policy=ASSESSING)
    shows(sidecar, *(jobs or (before(sidecar, last),)))
    sidecar.waits(1)
    fail_over(flink, sidecar, waits).waits(0.5)
    return flink, sidecar


def lost_job(beside: str | None = None) -> tuple[Flink, Sidecar]:
    """The same, and the job's plan had vanished before its address did. `beside`: a job of the same name that runs."""
    flink, sidecar = watching(policy=ASSESSING)
    if beside:
        flink.submit(beside)
    others = [replace(before(sidecar), id=beside)] if beside else []
    shows(sidecar.sees_changes(), before(sidecar), *others)
    sidecar.waits(1).sees(flink.forget(JOB)).waits(8).sees(flink.vacate()).waits(2)
    beside_it = [ComponentId(Component.JOB, beside)] if beside else []
    flink.elect(B, *CLUSTER_COMPONENTS, *beside_it)
    return flink, sidecar.sees_changes().waits(0.5)


def looks(sidecar: Sidecar, *jobs: Job | None, seconds: int = 8, **more: Any) -> Sidecar:
    """The REST server shows these jobs, second by second. None: the job, restored from its latest checkpoint."""
    for _ in range(seconds):
        shows(sidecar, *(one or after(sidecar, 41, 42) for one in jobs), **more)
        sidecar.waits(1)
    return sidecar


def rows(sidecar: Sidecar) -> list[Recovery]:
    return [record for record in sidecar.records if isinstance(record, Recovery)]


def cluster(sidecar: Sidecar) -> ClusterState:
    return sidecar.state.clusters[CLUSTER]


def test_a_failover_after_which_all_is_back() -> None:
    """A row of the cluster and one of the job, once, with the stages."""
    _, sidecar = failed_over()
    of_cluster, of_job = rows(looks(sidecar, None, seconds=30))
    assert (of_cluster.verdict, of_cluster.reasons, of_cluster.job_id) == ("recovered", [], None)
    assert (of_cluster.task_managers_before, of_cluster.task_managers_after) == (2, 2)
    assert (of_job.job_id, of_job.name, of_job.outcome, of_job.state) == (JOB, "orders", "running", "RUNNING")
    assert (of_job.restored_from, of_job.checkpoint_id, of_job.checkpoints_behind) == ("latest", 41, None)
    stages = [of_job.opened_at, of_job.dispatcher_led_at, of_job.led_at, of_job.running_at]
    assert [*filter(None, stages)] == sorted(filter(None, stages))
    assert None not in [*stages, of_job.checkpointed_at]
    assert of_job.running_after_seconds == of_cluster.running_after_seconds
    assert {row.episode_id for row in rows(sidecar)} == {sidecar.episodes()[0].id}


def test_without_the_source_nothing_is_assessed() -> None:
    """And nothing is recorded: older recordings stay as they are."""
    flink, sidecar = watching(policy=POLICY)
    shows(sidecar, before(sidecar))
    flink.vacate().elect(B)
    looks(sidecar.sees_changes(), None)
    assert (rows(sidecar), cluster(sidecar).picture, cluster(sidecar).recovery) == ([], None, None)


def test_without_a_picture_of_before_nothing_is_assessed() -> None:
    """There is nothing to compare with. Of the next failover there is."""
    flink, sidecar = watching(policy=ASSESSING)
    flink.vacate().elect(B)
    looks(sidecar.sees_changes(), None, seconds=3)
    assert rows(sidecar) == []
    assert cluster(sidecar).picture is None
    looks(sidecar.waits(5), None, seconds=1)
    assert cluster(sidecar).picture is not None


def test_an_assessment_survives_a_kill() -> None:
    """The picture of before is in the journal, and so is what was seen since."""
    _, sidecar = failed_over()
    looks(sidecar, None, seconds=1)
    sidecar.is_killed(down_for=3).connects()
    assert [row.verdict for row in rows(looks(sidecar, None))] == ["recovered"] * 2


def replaced_in_failover() -> Sidecar:
    """The next sidecar, if the first one ended when the leader was lost; now B leads."""
    flink, sidecar = watching(policy=ASSESSING)
    shows(sidecar, before(sidecar))
    sidecar.waits(1).sees(flink.vacate()).waits(1).is_replaced(down_for=3)
    flink.elect(B)
    sidecar.connects().waits(0.5)
    return sidecar


@pytest.mark.parametrize(("restored", "origin"), [(41, "latest"), (40, "older"), (None, "nothing")])
def test_a_failover_in_which_the_sidecar_ends_with_its_pod_is_assessed_by_the_next_one(
    restored: int | None, origin: str
) -> None:
    """The jobs of the last picture are handed over, each with its last checkpoint: without it no state would be known to be lost."""
    sidecar = replaced_in_failover()
    for _ in range(8):
        looks(sidecar, after(sidecar, restored, 42), seconds=1)
    of_cluster, of_job = rows(sidecar)
    assert (of_cluster.verdict == "recovered", of_job.restored_from, of_job.name) == (restored == 41, origin, "orders")


def test_a_task_manager_that_is_missing_is_missed_by_the_next_sidecar() -> None:
    """Without those of the last picture, everything would have come back."""
    sidecar = replaced_in_failover()
    of_cluster, _ = rows(looks(sidecar, None, seconds=200, task_managers=TASK_MANAGERS[:1]))
    assert (of_cluster.verdict, of_cluster.task_managers_after) == ("degraded", 1)


def test_jobs_that_do_not_run_yet_are_waited_for_by_the_next_sidecar() -> None:
    """Otherwise its first look would be an all-clear."""
    _, sidecar = failed_over()
    looks(sidecar, job(started=2, state="RESTARTING"))
    sidecar.is_replaced(down_for=3).connects().waits(1)
    assert assessment.waiting(cluster(sidecar)) == {JOB: "orders"}
    looks(sidecar, None, seconds=1)
    assert assessment.waiting(cluster(sidecar)) == {}


def test_the_rest_server_is_asked_often_only_until_jobs_run() -> None:
    """Their next checkpoints may be minutes away."""
    _, sidecar = failed_over()
    asked = []
    for state in ("RESTARTING", "RUNNING", "RUNNING"):
        looks(sidecar, replace(after(sidecar, 41), state=state), seconds=2)
        asked.append(assessment.asked_first(cluster(sidecar)))
    assert asked == [(JOB,), None, None]
    assert cluster(sidecar).recovery is not None


def test_a_slow_main_is_not_yet() -> None:
    """An application that runs and has submitted nothing: unproven after the patience, never missing."""
    flink, sidecar = failed_over()
    sidecar.sees(flink.forget())
    for _ in range(620):
        picture = Picture(
            sidecar.now, rest_address(sidecar), (), task_managers=TASK_MANAGERS, applications=(("orders", "RUNNING"),)
        )
        sidecar.observe(PictureTaken(sidecar.moment, CLUSTER, picture.leader, picture))
        sidecar.waits(1, tick=0.5)
    of_cluster, of_job = rows(sidecar)
    assert (of_cluster.verdict, of_job.outcome) == ("unproven", "unproven")
    assert not cluster(sidecar).job_faults


@pytest.mark.parametrize(("name", "outcome"), [("orders", "running"), ("orders v2", "unproven")])
def test_a_job_with_another_id_is_known_by_its_name(name: str, outcome: str) -> None:
    """Where `main()` ran anew. One that was renamed is not missing."""
    flink, sidecar = failed_over()
    sidecar.sees(flink.submit(OTHER).forget())
    sidecar.policy = replace(sidecar.policy, recovery_patience=60 * SECOND)
    for _ in range(70):
        again = replace(after(sidecar, 41, 42), id=OTHER, name=name)
        looks(sidecar, again, seconds=1, applications=(("Orders", "RUNNING"),))
    assert [row.outcome for row in rows(sidecar)] == [None, outcome]


@pytest.mark.parametrize("applications", [None, (("SingleJobApplication(orders)", "RUNNING"),)])
def test_a_job_that_somebody_submits_under_the_same_name_is_another_job(
    applications: tuple[tuple[str, str], ...] | None,
) -> None:
    """That it has no state says nothing of the one that is missing."""
    flink, sidecar = lost_job()
    sidecar.sees(flink.submit(OTHER))
    for _ in range(40):
        looks(sidecar, replace(after(sidecar, None, 1), id=OTHER), seconds=1, applications=applications)
    assert [(row.outcome, row.restored_from) for row in rows(sidecar)] == [(None, None), ("missing", None)]
    assert rows(sidecar)[0].reasons == ["Job orders: Flink does not know it any more. Its last known checkpoint is 41."]


@pytest.mark.parametrize("is_replaced", [False, True], ids=["the same sidecar", "the next one"])
def test_a_missing_job_is_back_once_somebody_has_submitted_it_again(is_replaced: bool) -> None:
    """Not by another one of that name that ran all the time, and each new one is one of the missing. Without the namesakes the next sidecar
    would take it for back.
    """
    third, fourth = "c" * 32, "d" * 32
    flink, sidecar = lost_job(beside=OTHER)
    flink.submit(third)
    beside = replace(job(job_id=OTHER), started_at=2)
    looks(sidecar, replace(after(sidecar, 41, 42), id=OTHER), seconds=40)
    assert list(cluster(sidecar).job_faults) == [JOB]
    if is_replaced:
        sidecar.is_replaced(down_for=3).connects()
    looks(sidecar, beside)
    assert list(cluster(sidecar).job_faults) == [JOB]
    for new in (third, fourth):
        looks(sidecar, beside, job(job_id=new))
        assert not cluster(sidecar).job_faults


def test_jobs_of_one_name_are_known_by_their_order() -> None:
    """The first one submitted is the first one of before; a job of before that is still there is none of the new ones."""
    was = [job("a", job_id="1" * 32, started=1), job("a", job_id="2" * 32, started=2), job("a", job_id="3" * 32)]
    now = [job("a", job_id="5" * 32, started=9), job("a", job_id="4" * 32, started=8), job("a", job_id="3" * 32)]
    pairs = matched(was, now, by_name=True)
    assert {old[0]: new.id[0] for old, new in pairs.items()} == {"1": "4", "2": "5", "3": "3"}


def test_a_second_failover_ends_the_assessment_of_the_first() -> None:
    """What did not come back by then is unproven, and is still expected after the second one."""
    flink, sidecar = failed_over(last=41)
    shows(sidecar)
    sidecar.waits(8).sees(flink.vacate()).waits(2)
    assert [row.verdict for row in rows(sidecar)] == ["unproven"] * 2
    flink.elect(job_manager("jm-c"))
    looks(sidecar.sees_changes().waits(0.5), None)
    assert [row.verdict for row in rows(sidecar)][2:] == ["recovered"] * 2


def test_a_leader_that_is_lost_again_at_once_is_one_failover_and_one_assessment() -> None:
    """What was seen under the first successor does not count."""
    flink, sidecar = failed_over()
    looks(sidecar, None, seconds=2)
    fail_over(flink, sidecar, 1, job_manager("jm-c")).waits(0.5)
    shows(sidecar, job(started=3, state="INITIALIZING"))
    assert [recovering.is_running for recovering in cluster(sidecar).recovering.values()] == [False]
    for _ in range(8):
        looks(sidecar, replace(after(sidecar, 42, 43), started_at=3), seconds=1)
    assert [row.checkpoint_id for row in rows(sidecar)] == [None, 42]


def test_the_same_leader_again_restarts_nothing() -> None:
    """Its address was rewritten: the job went on, and its first JobMaster never restored anything."""
    flink, sidecar = watching(policy=ASSESSING)
    was = before(sidecar)
    shows(sidecar, was)
    fail_over(flink, sidecar, 1, A).waits(0.5)
    of_cluster, of_job = rows(looks(sidecar, was))
    assert (of_cluster.verdict, of_job.outcome, of_job.restored_from) == ("recovered", "running", None)


def test_an_answer_about_the_time_before_proves_nothing() -> None:
    """Another leader, and a job that has not been restarted."""
    _, sidecar = failed_over()
    looks(sidecar, before(sidecar), seconds=20)
    assert rows(sidecar) == []
    assert assessment.waiting(cluster(sidecar)) == {JOB: "orders"}


def test_another_cluster_at_the_same_address_loses_no_job() -> None:
    """None of its jobs was known, and none is in the store."""
    flink, sidecar = failed_over()
    flink.forget()
    sidecar.policy = replace(sidecar.policy, recovery_patience=60 * SECOND)
    looks(sidecar.sees_changes(), job("others", job_id=OTHER), seconds=70)
    assert [row.outcome for row in rows(sidecar)] == [None, "unproven"]


def test_a_job_that_ended_while_nobody_looked_is_not_expected() -> None:
    """Flink says so."""
    _, sidecar = failed_over()
    finished = job(started=2, state="FINISHED")
    assert [row.outcome for row in rows(looks(sidecar, finished))] == [None, "ended"]


def test_task_managers_that_did_not_follow_are_named() -> None:
    """A minute after the election; those that register later do not change it."""
    _, sidecar = failed_over()
    looks(sidecar, None, seconds=70, task_managers=TASK_MANAGERS[:1])
    (of_cluster, _) = rows(sidecar)
    assert (of_cluster.verdict, of_cluster.task_managers_missing) == ("degraded", ["tm-2"])
    assert of_cluster.reasons == ["1 of 2 TaskManagers registered with the new leader, missing: tm-2."]


def test_a_rest_server_that_does_not_answer_proves_nothing() -> None:
    """The record says so when the patience is over."""
    _, sidecar = failed_over()
    sidecar.waits(620, tick=1)
    of_cluster, of_job = rows(sidecar)
    assert (of_cluster.verdict, of_job.outcome) == ("unproven", "unproven")
    assert of_cluster.reasons[0] == "The new leader's REST server has not described the cluster."


def test_an_assessment_ends_though_a_component_cannot_be_read() -> None:
    """Its failover is over, and since when all components are led will never be known."""
    flink, sidecar = watching(policy=ASSESSING)
    shows(sidecar, before(sidecar))
    manager = ComponentId(Component.RESOURCE_MANAGER)
    others = [component for component in (*CLUSTER_COMPONENTS, THE_JOB) if component != manager]
    sidecar.sees(flink.vacate(*others))
    sidecar.is_refused("/leader/resource_manager/connection_info")
    sidecar.waits(2)
    flink.elect(B, *others)
    looks(sidecar.sees_changes(), None, seconds=10)
    assert cluster(sidecar).episode is None
    assert cluster(sidecar).recovery
    sidecar.waits(600, tick=1)
    assert (rows(sidecar)[0].verdict, cluster(sidecar).recovery) == ("unproven", None)


def test_a_clock_that_is_set_back_keeps_no_old_picture() -> None:
    """A picture that comes a little late does not replace a newer one."""
    _, sidecar = watching(policy=ASSESSING)
    shows(sidecar, before(sidecar))
    first = cluster(sidecar).picture
    assert first
    for earlier, is_kept in ((10, False), (3600, True)):
        picture = replace(first, at=first.at - earlier * SECOND)
        sidecar.observe(PictureTaken(sidecar.moment, CLUSTER, picture.leader, picture))
        assert (cluster(sidecar).picture == picture) is is_kept


def test_what_the_rest_server_said_is_forgotten_when_it_is_no_longer_asked() -> None:
    """Nothing would end it: alerts, the age of the picture, and the problem on the page."""
    _, sidecar = failed_over(job(state="FAILED"))
    looks(sidecar, after(sidecar, 41, 42), seconds=4)
    assert [fault.fault.value for fault in cluster(sidecar).job_faults.values()] == ["resurrected"]
    sidecar.policy = replace(sidecar.policy, evidence=frozenset())
    sidecar.waits(1)
    now = cluster(sidecar)
    assert (now.job_faults, now.recovery, now.picture, now.picture_request) == ({}, None, None, None)
    assert not assessment.waiting(now)


def test_without_the_picture_of_before_an_assessment_ends() -> None:
    """Its row of the journal was damaged."""
    _, sidecar = failed_over()
    shows(sidecar, after(sidecar, 41))
    name, earlier = CLUSTER, cluster(sidecar)
    sidecar.state = replace(sidecar.state, clusters={name: replace(earlier, picture=None)})
    sidecar.waits(2)
    assert cluster(sidecar).recovery is None
    assert cluster(sidecar).last_episode == earlier.last_episode


def test_a_suspended_cluster_is_not_assessed() -> None:
    """Nothing is expected of it."""
    flink, sidecar = watching(policy=ASSESSING)
    shows(sidecar, before(sidecar))
    for generation, suspended in ((1, False), (2, True)):
        deployment = FlinkDeployment("u", generation, 1, Reconciliation.DEPLOYED, suspended=suspended)
        sidecar.observe(DeploymentObserved(sidecar.moment, CLUSTER, deployment))
    sidecar.sees(flink.vacate()).waits(700, tick=1)
    assert (rows(sidecar), cluster(sidecar).recovery, cluster(sidecar).job_faults) == ([], None, {})


def test_a_picture_that_lacks_a_job_which_is_stored_is_not_believed_at_once() -> None:
    """It may be of a leader that has just been elected, and whose election is not observed yet."""
    _, sidecar = watching(policy=ASSESSING)
    shows(sidecar, before(sidecar))
    shows(sidecar.waits(10))
    assert [job.id for job in cluster(sidecar).picture.jobs] == [JOB]  # type: ignore[union-attr]  # there is one
    shows(sidecar.waits(60))
    assert cluster(sidecar).picture.jobs == ()  # type: ignore[union-attr]


def test_a_checkpoint_id_that_goes_back_is_not_known() -> None:
    """Neither what was before nor what is now is believed; the next picture begins anew."""
    _, sidecar = watching(policy=ASSESSING)
    histories = []
    for last in (41, 7, 8):
        shows(sidecar, before(sidecar, last))
        histories.append(cluster(sidecar).picture.jobs[0].checkpoints)  # type: ignore[union-attr]
        sidecar.waits(1)
    assert [history and history.latest and history.latest.id for history in histories] == [41, None, 8]


def test_a_jobmaster_that_has_just_begun_does_not_forget_the_last_checkpoint() -> None:
    """It counts from its own start."""
    _, sidecar = watching(policy=ASSESSING)
    shows(sidecar, before(sidecar))
    sidecar.waits(1)
    shows(sidecar, job(checkpoints=Checkpoints(sidecar.now, first_id=None)))
    assert cluster(sidecar).picture.jobs[0].checkpoints.latest.id == 41  # type: ignore[union-attr]


def test_the_picture_is_written_once_a_minute() -> None:
    """Or when a job comes, goes or changes its state: 500 jobs every ten seconds are too much."""
    _, sidecar = watching(policy=ASSESSING)
    written = 0
    for second in range(0, 300, 10):
        earlier = sidecar.state
        shows(sidecar, before(sidecar), job("late", job_id=OTHER, state="RUNNING" if second < 150 else "FAILED"))
        written += sum(row.kind == "picture" for row in changes(earlier, sidecar.state))
        sidecar.waits(10, tick=1)
    assert written == 6


@pytest.mark.parametrize("seconds", [9, 20])
def test_a_plan_that_vanishes_while_nobody_leads_is_a_missing_job(seconds: float) -> None:
    """In Kubernetes a dead leader's lease is valid for a while: after it should have been renewed, nobody led."""
    flink, sidecar = leased()
    sidecar.hears_nothing(seconds).sees(flink.forget(JOB)).hears_nothing(4.5)
    sidecar.sees(flink.elect(B, *CLUSTER_COMPONENTS)).watches(10)
    assert {fault.fault.value for fault in cluster(sidecar).job_faults.values()} == {"missing"}
    assert cluster(sidecar).last_episode.jobs_vanished == 1  # type: ignore[union-attr]  # there is one


def test_a_plan_that_goes_before_its_leader_is_a_job_that_has_ended() -> None:
    """A JobManager that finishes its application removes the plan, and withdraws."""
    flink, sidecar = leased()
    sidecar.sees(flink.forget(JOB)).sees(flink.vacate()).waits(2)
    sidecar.sees(flink.elect(B, *CLUSTER_COMPONENTS)).watches(10)
    assert not cluster(sidecar).job_faults


def test_a_job_that_ended_just_before_the_failure_is_not_missing() -> None:
    """The new leader does not know it, and the last picture has it running; its plan had gone while its leader led."""
    flink, sidecar = watching(policy=replace(ASSESSING, recovery_patience=60 * SECOND))
    shows(sidecar, before(sidecar))
    flink.vacate(THE_JOB)
    sidecar.sees(flink.forget(JOB)).waits(1).sees(flink.vacate(*CLUSTER_COMPONENTS)).waits(2)
    flink.elect(B, *CLUSTER_COMPONENTS)
    looks(sidecar.sees_changes(), seconds=70)
    assert [row.outcome for row in rows(sidecar)] == [None, "unproven"]
    assert not cluster(sidecar).job_faults


def test_a_job_whose_plan_went_before_its_leader_did_not_end() -> None:
    """In ZooKeeper the address of a dead leader stays until its session expires; a job that ends removes it before its plan."""
    flink, sidecar = watching(policy=ASSESSING)
    shows(sidecar, before(sidecar))
    sidecar.sees(flink.forget(JOB)).waits(8).sees(flink.vacate()).waits(2)
    flink.elect(B, *CLUSTER_COMPONENTS)
    looks(sidecar.sees_changes(), seconds=40)
    assert [row.outcome for row in rows(sidecar)] == [None, "missing"]
    assert rows(sidecar)[0].verdict == "lost"


def test_a_failover_whose_picture_of_before_was_left_out_is_unproven() -> None:
    """Its reason says so. Nothing is waited for, and no rule says that a job is missing."""
    flink, sidecar = watching(policy=ASSESSING)
    left_out = Picture(sidecar.now, rest_address(sidecar), (before(sidecar),)).bounded(0)
    sidecar.observe(PictureTaken(sidecar.moment, CLUSTER, left_out.leader, left_out))
    sidecar.waits(1)
    fail_over(flink, sidecar).waits(30)
    (of_cluster,) = rows(sidecar)
    assert of_cluster.verdict == "unproven"
    assert of_cluster.reasons == [f"What ran before (1 job) was left out of the pictures: {NOT_HELD}."]
    assert not cluster(sidecar).job_faults


def test_a_later_picture_that_fits_again_is_remembered() -> None:
    """At once: the one that was left out knows less."""
    _, sidecar = watching(policy=ASSESSING)
    left_out = Picture(sidecar.now, rest_address(sidecar), (before(sidecar),)).bounded(0)
    shows(sidecar, before(sidecar))
    sidecar.waits(1)
    sidecar.observe(PictureTaken(sidecar.moment, CLUSTER, left_out.leader, replace(left_out, at=sidecar.now)))
    forgotten = cluster(sidecar).picture
    assert forgotten
    assert forgotten.left_out
    sidecar.waits(1)
    shows(sidecar, before(sidecar))
    remembered = cluster(sidecar).picture
    assert remembered
    assert len(remembered.jobs) == 1


def test_while_a_failover_is_assessed_a_picture_that_does_not_fit_says_nothing() -> None:
    """The jobs are not missing: they were not listed."""
    _, sidecar = failed_over()
    for _ in range(60):
        picture = Picture(sidecar.now, rest_address(sidecar), (job(started=2),)).bounded(0)
        sidecar.observe(PictureTaken(sidecar.moment, CLUSTER, picture.leader, picture))
        sidecar.waits(1)
    ruling = assessment.judged(ASSESSING, cluster(sidecar), sidecar.moment)
    assert ruling
    assert (ruling.grade, ruling.jobs[0].outcome) == ("unproven", None)
