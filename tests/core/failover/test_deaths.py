"""Which observations belong to the leader that left, when its death is recorded, and that nothing dies without a fact."""

from itertools import permutations
from typing import Any, Final

import pytest
from msgspec.structs import replace

from sidecar.core.cluster.record_lines import succession_line
from sidecar.core.failover.causes import Confidence
from sidecar.core.failover.death_verdict import DeathReason, DeathVerdict
from sidecar.core.failover.deaths import RECORDED_AFTER, death_of
from sidecar.core.failover.ends import KEPT, MOST_ENDS, MOST_PODS, MOST_SIGNS, NOTHING
from sidecar.core.moment import SECOND
from sidecar.core.observations import (
    EventObserved,
    HostRestarted,
    LogEndRead,
    Observation,
    PodObserved,
    ProcessEnded,
)
from sidecar.core.policy.policy import Policy
from sidecar.core.process_end import ContainerEnd, LogEnd, PodStatus, ProcessEnd, SeenEvent
from sidecar.core.records import Death
from tests.kit.cluster import CLUSTER, A, B, job_manager
from tests.kit.core_sidecar import KUBERNETES, LEADER_CHANGED, POLICY, Sidecar, fail_over, leased, watching
from tests.kit.fake_flink import Flink

IN_PODS: Final = replace(KUBERNETES, deaths=frozenset({CLUSTER}))
BESIDE: Final = replace(POLICY, own_hosts=frozenset({"jm-a"}))
LIMIT: Final = 1600 << 20
RUNNING: Final = PodStatus("uid-a", "jm-a", "10.0.0.1", phase="Running", limit_bytes=LIMIT, revision="r1")
STANDBY: Final = PodStatus("uid-b", "jm-b", "10.0.0.2", phase="Running", limit_bytes=LIMIT, revision="r1")


class Pods:
    """A cluster in pods, and a sidecar that has been observing both for a minute."""

    def __init__(self, policy: Policy = IN_PODS) -> None:
        self.flink, self.sidecar = leased(policy=policy)
        for pod in (RUNNING, STANDBY):
            self.shows(pod)

    def shows(self, pod: PodStatus, *, gone: bool = False) -> None:
        self.sidecar.observe(PodObserved(self.sidecar.moment, CLUSTER, pod, gone))

    def says(self, reason: str, message: str = "", about: str = "Pod", uid: str = "uid-a") -> None:
        event = SeenEvent(about, "jm-a", uid, reason, message, self.sidecar.now)
        self.sidecar.observe(EventObserved(self.sidecar.moment, CLUSTER, event))

    def ends(self, code: int = 137, reason: str = "OOMKilled", **end: Any) -> None:
        """The main container of the leader's pod has ended now."""
        finished = ContainerEnd(code, reason, finished_at=self.sidecar.now, **end)
        self.shows(replace(RUNNING, last_end=finished, limit_bytes=1 << 30))

    def fails_over(self, settles: float = 10) -> None:
        self.sidecar.sees(self.flink.vacate()).waits(0.5).sees(self.flink.grant(B).publish_all(B))
        self.sidecar.watches(settles)


def deaths(sidecar: Sidecar) -> list[Death]:
    return [record for record in sidecar.records if isinstance(record, Death)]


def the_death(sidecar: Sidecar) -> Death:
    (death,) = deaths(sidecar)
    return death


def judged(sidecar: Sidecar) -> DeathVerdict | None:
    cluster = sidecar.state.clusters[CLUSTER]
    episode = cluster.episode or cluster.last_episode
    return death_of(cluster, episode) if episode else None


# -- when it is recorded -----------------------------------------------------------------------------------------------


def test_an_oom_kill_is_recorded_when_the_failover_is_over() -> None:
    """Once, with the limit that was in force; the message of the failover says it."""
    pods = Pods()
    pods.ends()
    pods.fails_over()
    death = the_death(pods.sidecar)
    (episode,) = pods.sidecar.episodes()
    assert (death.episode_id, death.reason, death.confidence) == (episode.id, "oom_killed", "high")
    assert (death.exit_code, death.limit_bytes, death.pod) == (137, LIMIT, "jm-a")
    line = "JobManager jm-a was OOM-killed (exit 137, limit 1600 MiB); jm-b took over after 0.5 s"
    (sent,) = pods.sidecar.sent
    assert line in sent.body.split("\n")
    assert ("death", "oom_killed (high confidence)") in sent.facts
    assert sent.death == judged(pods.sidecar)
    pods.sidecar.watches(60)
    assert len(deaths(pods.sidecar)) == 1


def test_a_fact_that_comes_after_the_failover_is_part_of_it() -> None:
    """The kubelet reports seconds later."""
    pods = Pods()
    ended = pods.sidecar.now
    pods.fails_over()
    assert deaths(pods.sidecar) == []
    pods.shows(replace(RUNNING, last_end=ContainerEnd(137, "OOMKilled", finished_at=ended)))
    assert the_death(pods.sidecar).reason == "oom_killed"


def test_what_is_not_sure_is_recorded_after_a_while() -> None:
    """Events may come that decide; afterwards the record stays as it is."""
    pods = Pods()
    pods.ends(137, "Error")
    pods.fails_over()
    assert deaths(pods.sidecar) == []
    pods.sidecar.watches(RECORDED_AFTER // SECOND)
    assert (the_death(pods.sidecar).reason, the_death(pods.sidecar).confidence) == ("killed", "medium")
    for reason in ("Created", "Started"):
        pods.says(reason, f"{reason} container")
    assert len(deaths(pods.sidecar)) == 1
    assert judged(pods.sidecar) == pods.sidecar.state.clusters[CLUSTER].last_episode.death  # type: ignore[union-attr]


def test_an_event_that_comes_in_time_decides() -> None:
    """No Event says that the kubelet ended it, and Events can be read."""
    pods = Pods()
    pods.ends(137, "Error")
    pods.fails_over()
    for reason in ("Created", "Started"):
        pods.says(reason, f"{reason} container")
    assert deaths(pods.sidecar) == [], "an Event that says otherwise may still come"
    pods.sidecar.watches(RECORDED_AFTER // SECOND)
    assert (the_death(pods.sidecar).reason, the_death(pods.sidecar).confidence) == ("killed", "high")


def test_a_failover_that_follows_at_once_has_a_death_of_its_own() -> None:
    """What is not sure of the first one is recorded before the second one takes its place."""
    pods = Pods()
    pods.ends(137, "Error")
    pods.fails_over(settles=5)
    pods.shows(replace(STANDBY, last_end=ContainerEnd(1, "Error", finished_at=pods.sidecar.now)))
    pods.sidecar.sees(pods.flink.vacate()).waits(1)
    third = job_manager("jm-c")
    pods.sidecar.sees(pods.flink.grant(third).publish_all(third)).watches(30)
    assert [(death.pod, death.reason) for death in deaths(pods.sidecar)] == [("jm-a", "killed"), ("jm-b", "exited")]


# -- whose end it is ---------------------------------------------------------------------------------------------------


def test_the_end_of_another_pod_is_not_the_leaders() -> None:
    """A standby was OOM-killed; of the leader nothing is known but that its pod is there."""
    pods = Pods()
    pods.shows(replace(STANDBY, last_end=ContainerEnd(137, "OOMKilled", finished_at=pods.sidecar.now)))
    pods.fails_over()
    pods.sidecar.watches(30)
    assert deaths(pods.sidecar) == []
    assert judged(pods.sidecar) is None


def test_an_event_of_another_pod_with_the_same_name_does_not_count() -> None:
    """The pod of a StatefulSet has the name of the one before it."""
    pods = Pods()
    pods.says("Killing", "Container flink-main-container failed liveness probe, will be restarted", uid="uid-old")
    pods.ends(143, "Error")
    pods.fails_over()
    pods.sidecar.watches(30)
    assert the_death(pods.sidecar).reason == "unknown"


def test_an_end_of_an_hour_ago_is_not_this_one() -> None:
    """A status shows the last end for as long as the pod exists."""
    pods = Pods()
    pods.shows(replace(RUNNING, last_end=ContainerEnd(137, "OOMKilled", finished_at=pods.sidecar.now - 3600 * SECOND)))
    pods.fails_over()
    pods.sidecar.watches(30)
    assert deaths(pods.sidecar) == []


def test_a_pod_that_is_gone_was_deleted() -> None:
    """A deletion that was requested before the leader was lost; by whom is not said."""
    pods = Pods()
    deleted = replace(RUNNING, delete_at=pods.sidecar.now + 30 * SECOND, grace_seconds=30)
    pods.shows(deleted)
    pods.sidecar.waits(2)
    pods.shows(replace(deleted, last_end=ContainerEnd(143, "Error", finished_at=pods.sidecar.now)))
    pods.shows(deleted, gone=True)
    pods.fails_over()
    pods.sidecar.watches(30)
    death = the_death(pods.sidecar)
    assert (death.reason, death.confidence, death.exit_code) == ("deleted", "medium", 143)


def test_a_new_image_is_a_replacement() -> None:
    """The pod of the next revision is created when the old one is deleted."""
    pods = Pods()
    deleted = replace(RUNNING, delete_at=pods.sidecar.now + 30 * SECOND, grace_seconds=30, image="flink:1")
    pods.shows(deleted)
    new = PodStatus("uid-c", "jm-c", "", created_at=pods.sidecar.now, image="flink:2", revision="r2", phase="Pending")
    pods.shows(new)
    pods.sidecar.waits(2)
    pods.shows(replace(deleted, last_end=ContainerEnd(143, "Error", finished_at=pods.sidecar.now)))
    pods.fails_over()
    death = the_death(pods.sidecar)
    assert (death.reason, death.confidence) == ("replaced", "high")
    assert "Pod jm-c of another revision was created, image flink:1 → flink:2." in death.facts


def test_the_termination_message_names_the_heap() -> None:
    """`FallbackToLogsOnError`: without any other right."""
    pods = Pods()
    pods.ends(239, "Error", message="ERROR Fatal error\njava.lang.OutOfMemoryError: Java heap space\n\tat x.Y")
    pods.fails_over()
    assert (the_death(pods.sidecar).reason, the_death(pods.sidecar).exit_code) == ("heap_exhausted", 239)


def test_the_log_of_the_leaders_pod_names_the_heap() -> None:
    """And that of another pod does not."""
    for uid, reason in (("uid-a", "heap_exhausted"), ("uid-b", "exited")):
        pods = Pods()
        pods.ends(239, "Error")
        pods.fails_over()
        log = LogEnd("jm-a", "java.lang.OutOfMemoryError: Java heap space", exception="java.lang.OutOfMemoryError")
        pods.sidecar.observe(LogEndRead(pods.sidecar.moment, CLUSTER, log, uid))
        pods.sidecar.watches(30)
        assert the_death(pods.sidecar).reason == reason


def test_the_log_of_the_next_container_is_not_the_leaders() -> None:
    """It crashed for another reason, while there was still no leader."""
    pods = Pods()
    pods.ends(239, "Error")
    pods.sidecar.sees(pods.flink.vacate()).watches(30)
    pods.ends(239, "Error")
    pods.sidecar.waits(1)
    log = LogEnd("jm-a", "java.lang.OutOfMemoryError: Java heap space", exception="java.lang.OutOfMemoryError")
    pods.sidecar.observe(LogEndRead(pods.sidecar.moment, CLUSTER, log, "uid-a"))
    verdict = judged(pods.sidecar)
    assert verdict
    assert (verdict.reason, verdict.confidence, verdict.fault) == (DeathReason.EXITED, Confidence.MEDIUM, None)


def test_a_log_that_is_read_minutes_later_is_not_the_leaders() -> None:
    """Of the next container, whose end has not been observed yet."""
    pods = Pods()
    pods.ends(239, "Error")
    pods.sidecar.sees(pods.flink.vacate()).watches(200)
    log = LogEnd("jm-a", "java.lang.OutOfMemoryError: Java heap space", exception="java.lang.OutOfMemoryError")
    pods.sidecar.observe(LogEndRead(pods.sidecar.moment, CLUSTER, log, "uid-a"))
    verdict = judged(pods.sidecar)
    assert verdict
    assert (verdict.reason, verdict.fault) == (DeathReason.EXITED, None)


def test_a_pod_that_is_evicted_after_its_jobmanager_ended_did_not_end_it() -> None:
    """The node lacked memory afterwards, too."""
    pods = Pods()
    pods.ends(1, "Error")
    pods.sidecar.sees(pods.flink.vacate()).watches(15)
    pods.shows(replace(RUNNING, phase="Failed", reason="Evicted"))
    verdict = judged(pods.sidecar)
    assert verdict
    assert (verdict.reason, verdict.confidence) == (DeathReason.EXITED, Confidence.HIGH)


def test_the_process_beside_the_sidecar_is_the_leaders_only_at_its_address() -> None:
    """A sidecar beside a standby sees the standby end."""
    for policy, reasons in ((BESIDE, ["killed"]), (replace(BESIDE, own_hosts=frozenset({"jm-b"})), [])):
        flink, sidecar = watching(policy=policy)
        end = ProcessEnd(7, sidecar.now, exit_code=137, oom_kills=0)
        sidecar.observe(ProcessEnded(sidecar.moment, CLUSTER, end))
        _moves(flink, sidecar)
        sidecar.waits(30)
        assert [death.reason for death in deaths(sidecar)] == reasons


def test_a_machine_that_was_started_again_ended_its_jobmanager() -> None:
    """Its sidecar knows that when it is back."""
    flink, sidecar = watching(policy=BESIDE)
    _moves(flink, sidecar)
    sidecar.observe(HostRestarted(sidecar.moment, CLUSTER, sidecar.now - 2 * SECOND))
    sidecar.waits(30)
    assert (the_death(sidecar).reason, the_death(sidecar).confidence) == ("rebooted", "high")


def test_a_machine_that_was_started_long_before_did_not_end_it() -> None:
    """Its JobManager has led since."""
    flink, sidecar = watching(policy=BESIDE)
    sidecar.observe(HostRestarted(sidecar.moment, CLUSTER, sidecar.now - 400 * SECOND))
    _moves(flink, sidecar)
    sidecar.waits(30)
    assert deaths(sidecar) == []


def _moves(flink: Flink, sidecar: Sidecar) -> None:
    fail_over(flink, sidecar)


# -- what is no death --------------------------------------------------------------------------------------------------


def test_without_any_source_nothing_is_recorded() -> None:
    """Not even that the reason is unknown."""
    flink, sidecar = watching()
    _moves(flink, sidecar)
    sidecar.waits(60)
    assert deaths(sidecar) == []
    assert judged(sidecar) is None


def test_a_process_that_was_elected_again_did_not_end() -> None:
    """Its pod is there, and so is its session."""
    pods = Pods()
    pods.sidecar.sees(pods.flink.vacate()).waits(1).sees(pods.flink.grant(A).publish_all(A))
    pods.sidecar.watches(40)
    assert pods.sidecar.episodes()
    assert deaths(pods.sidecar) == []


def test_of_a_leader_of_whose_pod_nothing_is_known_no_death_is_recorded() -> None:
    """Pods are observed, and none of them has its address: it may hang, or be cut off."""
    pods = Pods()
    pods.shows(RUNNING, gone=True)
    pods.sidecar.watches(KEPT // SECOND + 10)
    pods.shows(replace(STANDBY, image="flink:2"))
    pods.fails_over()
    pods.sidecar.watches(30)
    assert deaths(pods.sidecar) == []
    assert not any("ended" in line for delivery in pods.sidecar.sent for line in delivery.body.split("\n")[:2])


# -- the operator ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("about", ["FlinkDeployment", "Pod"])
def test_a_restart_by_the_operator_is_a_cause(about: str) -> None:
    """Its Event of the FlinkDeployment came shortly before; one of a pod is nobody's reason."""
    pods = Pods()
    pods.says("RestartUnhealthyJob", "Restarting unhealthy job", about=about)
    pods.sidecar.waits(3)
    pods.fails_over()
    (episode,) = pods.sidecar.episodes()
    expected = "operator_restart" if about == "FlinkDeployment" else "graceful_handover"
    assert episode.cause == expected


def test_the_next_sidecar_reads_the_operators_restart_again() -> None:
    """The failover in progress is handed over without it, and is notified once."""
    pods = Pods()
    restart = SeenEvent("FlinkDeployment", "jm-a", "uid-a", "RestartUnhealthyJob", "", pods.sidecar.now)
    pods.sidecar.observe(EventObserved(pods.sidecar.moment, CLUSTER, restart))
    pods.sidecar.waits(3).sees(pods.flink.vacate()).is_replaced(3)
    pods.sidecar.observe(EventObserved(pods.sidecar.moment, CLUSTER, restart))
    pods.flink.grant(B).publish_all(B)
    pods.sidecar.connects().watches(20)
    assert pods.sidecar.episodes()[0].cause == "operator_restart"
    assert pods.sidecar.sent_reasons() == [("FlinkLeaderChanged", "FIRST")]


def test_a_secret_in_the_operators_event_is_shown_nowhere() -> None:
    """It quotes the job's exception."""
    pods = Pods()
    pods.says("JobException", "No connection to jdbc:postgresql://u:geheim@db/x", about="FlinkDeployment")
    pods.sidecar.waits(3)
    pods.fails_over()
    (episode,) = pods.sidecar.episodes()
    assert any("jdbc:postgresql://<secret>@db" in fact for fact in episode.facts)
    assert "geheim" not in repr(pods.sidecar.records) + repr(pods.sidecar.sent) + repr(pods.sidecar.state)


def test_an_event_of_the_operator_long_before_is_none() -> None:
    """It explains what follows within a minute."""
    pods = Pods()
    pods.says("RestartUnhealthyJob", about="FlinkDeployment")
    pods.sidecar.watches(70)
    pods.fails_over()
    assert pods.sidecar.episodes()[0].cause == "graceful_handover"


@pytest.mark.parametrize(
    ("error", "reason"),
    [("java.lang.OutOfMemoryError: Java heap space", "heap_exhausted"), ("java.io.IOException: x", "unknown")],
)
def test_the_next_run_in_its_log_says_that_a_jobmanager_ended(error: str, reason: str) -> None:
    """Nothing else does: its process is not visible, and no API is read."""
    flink, sidecar = watching(policy=BESIDE)
    sidecar.observe(LogEndRead(sidecar.moment, CLUSTER, LogEnd("flink.log", error, followed=True)))
    fail_over(flink, sidecar, 1).waits(30)
    death = the_death(sidecar)
    assert death.reason == reason
    assert death.confidence != Confidence.HIGH
    assert f"The first error at the end of its log: {error}" in death.facts


def test_a_jobmanager_whose_heap_is_full_may_end_long_after_its_leadership() -> None:
    """It could not renew it; Flink's error handler ended it later. Another end at that time is of something else."""
    for message, recorded in (("java.lang.OutOfMemoryError: Java heap space", ["heap_exhausted"]), ("", [])):
        pods = Pods()
        pods.fails_over(settles=100)
        assert deaths(pods.sidecar) == []
        pods.ends(239, "Error", message=message)
        pods.sidecar.watches(30)
        assert [death.reason for death in deaths(pods.sidecar)] == recorded


# -- order, bounds, and other processes --------------------------------------------------------------------------------


def test_the_order_of_observations_does_not_matter() -> None:
    """Pods, Events and logs are read by different threads."""
    reasons = set()
    for order in permutations(range(4)):
        pods = Pods()
        pods.fails_over(settles=5)
        at, now = pods.sidecar.moment, pods.sidecar.now - 6 * SECOND
        end = ContainerEnd(143, "Error", finished_at=now)
        killing = "Container flink-main-container failed liveness probe, will be restarted"
        observations: list[Observation] = [
            PodObserved(at, CLUSTER, replace(RUNNING, last_end=end)),
            EventObserved(at, CLUSTER, SeenEvent("Pod", "jm-a", "uid-a", "Killing", killing, now - SECOND)),
            EventObserved(at, CLUSTER, SeenEvent("Pod", "jm-a", "uid-a", "Started", "", now + SECOND)),
            LogEndRead(at, CLUSTER, LogEnd("jm-a", "java.io.IOException: x"), "uid-a"),
        ]
        for number in order:
            pods.sidecar.observe(observations[number])
        cluster = pods.sidecar.state.clusters[CLUSTER]
        reasons.add(judged(pods.sidecar).reason)  # type: ignore[union-attr]
        assert cluster.ends.signs[-1].sign == "started"
    assert reasons == {DeathReason.LIVENESS_PROBE}


def test_what_is_observed_again_is_remembered_once() -> None:
    """Each list of Events and pods shows them all, while the clocks drift."""
    pods = Pods()
    sidecar, ended = pods.sidecar, pods.sidecar.now
    end = replace(RUNNING, last_end=ContainerEnd(1, "Error", finished_at=ended))
    killing = SeenEvent("Pod", "jm-a", "uid-a", "Killing", "Stopping container", ended)
    restart = SeenEvent("FlinkDeployment", "x", "", "RestartUnhealthyJob", "it is unhealthy", ended)
    kinds = [SeenEvent("Pod", "jm-a", "uid-a", reason, "", ended) for reason in ("Pulled", "Created", "Started")]
    for drift in range(40):
        sidecar.now += SECOND
        at = replace(sidecar.moment, steady=sidecar.moment.steady + drift)
        sidecar.observe(PodObserved(at, CLUSTER, end, gone=False))
        for event in (killing, restart, *kinds):
            sidecar.observe(EventObserved(at, CLUSTER, event))
    ends = sidecar.state.clusters[CLUSTER].ends
    assert (len(ends.signs), len(ends.operator), len(ends.pods["uid-a"].ends)) == (4, 1, 1)


def test_what_is_remembered_is_bounded() -> None:
    """Whatever others create, and however often a container ends."""
    pods = Pods()
    for number in range(100):
        name = f"jm-{number}"
        pods.shows(replace(RUNNING, uid=name, name=name, message="x" * 10_000))
        pods.ends(number, "Error", message="y" * 10_000)
        pods.says(f"Reason{number}", "z" * 10_000, uid=name)
        pods.says("Started", "z" * 10_000, uid=name)
        pods.says("Killing", f"Stopping {'z' * 10_000}", uid=name)
        pods.sidecar.observe(ProcessEnded(pods.sidecar.moment, CLUSTER, ProcessEnd(number, pods.sidecar.now)))
        pods.sidecar.now += SECOND
    ends = pods.sidecar.state.clusters[CLUSTER].ends
    assert (len(ends.pods), len(ends.signs), len(ends.processes)) == (MOST_PODS, MOST_SIGNS, MOST_ENDS)
    assert max(len(pod.ends) for pod in ends.pods.values()) <= MOST_ENDS
    assert len(repr(ends)) < 100_000


@pytest.mark.parametrize("lost", ["process", "disk"])
def test_the_next_sidecar_knows_the_facts_of_the_end(lost: str) -> None:
    """Killed, it has its journal; with its pod, it learns them again from the API server."""
    pods = Pods()
    ended = pods.sidecar.now
    pods.ends(239, "Error", message="java.lang.OutOfMemoryError: Java heap space")
    pods.sidecar.sees(pods.flink.vacate())
    (pods.sidecar.is_killed if lost == "process" else pods.sidecar.is_replaced)(3)
    if lost == "disk":
        assert pods.sidecar.state.clusters[CLUSTER].ends == NOTHING
        end = ContainerEnd(239, "Error", "java.lang.OutOfMemoryError: Java heap space", finished_at=ended)
        pods.shows(replace(RUNNING, last_end=end))
    pods.flink.grant(B).publish_all(B)
    pods.sidecar.connects().watches(40)
    death = the_death(pods.sidecar)
    assert (death.reason, death.confidence, death.exit_code) == ("heap_exhausted", "high", 239)


def test_an_end_that_cannot_be_read_again_is_not_known() -> None:
    """The pod is gone when the next sidecar lists pods: the failover is notified once, and no reason is named."""
    pods = Pods()
    pods.ends()
    pods.sidecar.sees(pods.flink.vacate()).is_replaced(3)
    pods.shows(STANDBY)
    pods.flink.grant(B).publish_all(B)
    pods.sidecar.connects().watches(120)
    assert deaths(pods.sidecar) == []
    assert pods.sidecar.sent_reasons() == [("FlinkLeaderChanged", "FIRST")]
    assert "OOM" not in pods.sidecar.sent[0].body


@pytest.mark.parametrize("is_read_again", [True, False])
def test_what_is_recorded_is_not_recorded_by_the_next_sidecar(is_read_again: bool) -> None:
    """It knows that it is, and notifies nobody a second time, whether or not it reads the end again."""
    pods = Pods()
    ended = pods.sidecar.now
    pods.ends()
    pods.fails_over()
    assert the_death(pods.sidecar).reason == "oom_killed"
    sent = len(pods.sidecar.sent)
    pods.sidecar.is_replaced(3).connects()
    if is_read_again:
        pods.shows(replace(RUNNING, last_end=ContainerEnd(137, "OOMKilled", finished_at=ended)))
    pods.sidecar.watches(60)
    assert len(deaths(pods.sidecar)) == 1
    assert (judged(pods.sidecar) is not None) is is_read_again
    assert len(pods.sidecar.sent) == sent


def test_the_same_leader_again_is_said_so() -> None:
    """A container that is restarted in place has its pod's name."""
    death = DeathVerdict(DeathReason.EXITED, Confidence.HIGH, ("x.",), exit_code=1, pod="jm-a")
    assert succession_line(death, "jm-a", "12 s") == "JobManager jm-a exited (exit 1); it led again after 12 s"
    assert succession_line(death, "jm-b", "") == "JobManager jm-a exited (exit 1); jm-b took over"
    assert succession_line(death, None, "12 s") == "JobManager jm-a exited (exit 1)"


@pytest.mark.parametrize(("fault", "is_said"), [("java.io.IOException: x", True), (None, False)])
def test_an_end_of_unknown_reason_is_said_with_the_first_error_of_its_log(fault: str | None, is_said: bool) -> None:
    """That is what whoever is on call looks for first. Without it there is nothing to say."""
    flink, sidecar = watching(policy=replace(BESIDE, rules=(LEADER_CHANGED,)))
    sidecar.observe(LogEndRead(sidecar.moment, CLUSTER, LogEnd("flink.log", fault, followed=True)))
    fail_over(flink, sidecar, 1).waits(10)
    lines = sidecar.sent[0].body.split("\n")
    assert (
        "JobManager jm-a:6123 ended, and what ended it is not known; jm-b:6123 took over after at least 1.0 s" in lines
    ) is is_said
    assert (f"The first error at the end of its log: {fault}" in lines) is is_said
