"""One word and one sentence for each cluster, the worst first."""

import pytest
from msgspec.structs import replace

from sidecar.core.cluster import advice
from sidecar.core.cluster.death.death_verdict import DeathReason
from sidecar.core.cluster.failover.causes import Cause
from sidecar.core.cluster.failover.plans import Operated
from sidecar.core.cluster.records.record_lines import ENDINGS
from sidecar.core.cluster.standby import Standby
from sidecar.core.finder import Finder
from sidecar.core.flink.leadership import ComponentId
from sidecar.core.moment import SECOND, age
from sidecar.core.policy.policy import Rule, Severity, Trigger
from sidecar.core.state import State
from sidecar.core.views.snapshot import Health, Snapshot
from sidecar.core.views.verdict import ClusterVerdict, verdicts
from tests.core.alerting.test_silences import SILENCED, silence
from tests.kit.cluster import CLUSTER, DISPATCHER, B
from tests.kit.core_sidecar import POLICY, Sidecar, watching
from tests.kit.fake_flink import Flink

LATCH = "/leader/latch"


def of(sidecar: Sidecar, **other: object) -> ClusterVerdict:
    """The verdict on the cluster; `other`: of its state."""
    cluster = replace(sidecar.state.clusters[CLUSTER], **other)
    state = replace(sidecar.state, clusters={CLUSTER: cluster})
    [verdict] = verdicts(Snapshot(sidecar.moment, state, policy=sidecar.policy))
    return verdict


def vacated(*components: ComponentId, seconds: float = 43) -> tuple[Flink, Sidecar]:
    flink, sidecar = watching()
    flink.vacate(*components)
    sidecar.sees_changes().waits(seconds)
    return flink, sidecar


@pytest.mark.parametrize(("number", "words"), [(0, "all led"), (1, "all led, no standby"), (2, "all led, 1 standby")])
def test_a_cluster_that_is_well(number: int, words: str) -> None:
    """With its standbys, where they are known. That there never was one is no problem."""
    verdict = of(watching()[1], contenders={LATCH: tuple("abc"[:number])} if number else {})
    assert (verdict.level, str(verdict), verdict.since) == ("ok", f"default: {words}", None)


def test_no_leader_is_the_worst() -> None:
    """For how long, why, and who can take over."""
    _, sidecar = vacated()
    verdict = of(sidecar, contenders={LATCH: ()})
    why = "probably because JobManager jm-a was lost"
    assert (verdict.level, verdict.sentence) == ("down", f"no leader for 43 s, {why}, no standby")
    assert verdict.since
    assert verdict.since.startswith("2026-11-20T08:01:00")
    assert of(sidecar, contenders={LATCH: ("a",)}).sentence.endswith(", 1 JobManager contends")
    assert of(sidecar, contenders={}).sentence.endswith("jm-a was lost")


def test_a_single_component_without_a_leader_is_named() -> None:
    """The others have one."""
    _, sidecar = vacated(DISPATCHER)
    assert of(sidecar).sentence.startswith("no leader of dispatcher for 43 s")


def test_blindness_has_a_word_of_its_own() -> None:
    """Never "no leader"; the last known leader stays in sight."""
    _, sidecar = watching()
    sidecar.is_cut_off().waits(75)
    verdict = of(sidecar)
    sentence = "cannot see it for 1 min 15 s: the store cannot be read, so leaders are unknown (last known: jm-a)"
    assert (verdict.level, verdict.sentence) == ("blind", sentence)
    fresh = of(Sidecar(Flink()))
    assert (fresh.level, fresh.sentence) == ("blind", "the store has not been read yet: leaders are unknown")


def test_two_leaders_are_as_bad_as_none() -> None:
    """With what to do: it does not settle by itself."""
    verdict = of(watching()[1], contested=frozenset({DISPATCHER}))
    assert (verdict.level, verdict.sentence) == (
        "down",
        "split leadership: two JobManagers act as leader of dispatcher",
    )
    assert (verdict.topic, verdict.next_step) == ("flinksplitleadership", advice.TRIGGERS[Trigger.SPLIT])


def test_what_to_do_follows_from_the_cause() -> None:
    """Where there is one: with its section of docs/how-to/troubleshooting.md."""
    verdict = of(vacated()[1])
    assert verdict.topic == "jobmanager_lost"
    assert verdict.next_step == (
        "No JobManager contends: start one. "
        "Then: Find out how jm-a ended: exit code, OOM kill, node, last lines of its log."
    )
    assert of(watching()[1].is_cut_off()).topic == "flinkleadersoutofsight"
    assert of(watching()[1]).next_step is None


def test_a_suspended_cluster_is_no_problem() -> None:
    """No leader is wanted."""
    sidecar = vacated()[1]
    verdict = of(sidecar, operated=Operated(None, unwanted_since=sidecar.moment))
    assert (verdict.level, verdict.sentence) == (
        "ok",
        "no leader is wanted: its FlinkDeployment is suspended, or was deleted",
    )


def test_a_cluster_without_its_standby_is_degraded() -> None:
    """One that had a standby."""
    sidecar = watching()[1]
    verdict = of(sidecar, contenders={LATCH: ("a",)}, standby=Standby(sidecar.moment, sidecar.moment))
    assert (verdict.level, verdict.sentence) == ("degraded", "all led, no standby")


def test_jobs_without_a_leader_and_alerts_are_named() -> None:
    """A silenced alert is only counted."""
    flaps = Rule("FlinkLeaderFlapping", Trigger.EPISODES, Severity.CRITICAL, count=1, within=3600 * SECOND)
    flink, sidecar = watching(policy=replace(SILENCED, rules=(*POLICY.rules, flaps)))
    flink.vacate()
    sidecar.sees_changes().waits(2)
    flink.elect(B)
    sidecar.sees_changes().waits(20)
    assert of(sidecar).level == "degraded"
    assert of(sidecar).sentence == "all led, FlinkLeaderFlapping fires"
    sidecar.silenced_by(silence())
    sidecar.waits(15)
    assert (of(sidecar).level, of(sidecar).sentence) == ("ok", "all led, 1 alert silenced, inhibited or muted")
    flink.vacate(*(component for component in sidecar.state.clusters[CLUSTER].components if component.job_id))
    sidecar.sees_changes()
    assert of(sidecar).sentence == "all led, 1 of 1 jobs without a leader, 1 alert silenced, inhibited or muted"


def test_the_worst_comes_first_and_the_sidecar_itself_is_judged() -> None:
    """Down, blind, degraded, ok; then by name."""
    well = watching()[1].state.clusters[CLUSTER]
    down = vacated()[1]
    blind = watching()[1].is_cut_off().state.clusters[CLUSTER]
    clusters = {"a": well, "b": blind, "c": down.state.clusters[CLUSTER], "d": well}
    snapshot = Snapshot(down.moment, State(clusters), health=Health(journal_problem="the disk is full"))
    assert [(verdict.cluster_id, verdict.level) for verdict in verdicts(snapshot)] == [
        *(("c", "down"), ("b", "blind"), (None, "degraded"), ("a", "ok")),
        ("d", "ok"),
    ]
    [verdict] = verdicts(Snapshot(down.moment))
    assert (verdict.level, str(verdict)) == ("blind", "this sidecar: no cluster is watched yet")
    [verdict] = verdicts(Snapshot(down.moment, State(finder=Finder("namespace flink"))))
    assert (verdict.level, verdict.sentence.partition(":")[0]) == (
        "blind",
        "cannot see which clusters are in namespace flink",
    )


def test_each_cause_and_each_trigger_has_a_next_step() -> None:
    """In one sentence."""
    assert set(advice.CAUSES) == set(Cause)
    assert set(advice.TRIGGERS) == set(Trigger)
    for cause in Cause:
        assert advice.next_step(cause, "jm-a").endswith(".")
    assert all(step.endswith(".") for step in advice.TRIGGERS.values())


def test_each_reason_of_a_death_has_a_next_step() -> None:
    """Where it is known and says more than the cause in the store."""
    assert set(advice.DEATHS) == set(ENDINGS) - {"unknown"}
    assert set(ENDINGS) == set(DeathReason)
    for reason in advice.DEATHS:
        assert advice.next_step(Cause.JOBMANAGER_LOST, "jm-a", reason).endswith(".")
    assert advice.because(Cause.JOBMANAGER_LOST, "jm-a", "oom_killed") == "JobManager jm-a was OOM-killed"
    assert advice.because(Cause.JOBMANAGER_LOST, "jm-a", "unknown") == "JobManager jm-a was lost"
    assert advice.because(Cause.PLANNED_UPGRADE, "jm-a", "replaced") == "the operator deploys another spec"


@pytest.mark.parametrize(
    ("seconds", "words"),
    [
        (-3, "0 s"),
        (0.4, "0 s"),
        (59, "59 s"),
        (60, "1 min"),
        (312, "5 min 12 s"),
        (7500, "2 h 5 min"),
        (90000, "1 d 1 h"),
    ],
)
def test_an_age_in_its_two_largest_units(seconds: float, words: str) -> None:
    """As a reader would say it."""
    assert age(round(seconds * SECOND)) == words
