"""One word and one sentence for each cluster, the worst first."""

import pytest
from msgspec.structs import replace

from sidecar.core.cluster import advice
from sidecar.core.cluster.record_lines import ENDINGS
from sidecar.core.failover.causes import Cause
from sidecar.core.failover.death_verdict import DeathReason
from sidecar.core.failover.plans import Operated
from sidecar.core.finder import Finder
from sidecar.core.flink.leadership import ComponentId
from sidecar.core.leadership.leadership_account import Standby
from sidecar.core.moment import SECOND, age
from sidecar.core.policy.triggers import TRIGGERS, Trigger
from sidecar.core.state import State
from sidecar.core.views.snapshot import Health, Snapshot
from sidecar.core.views.status_view import ClusterVerdict, verdicts
from tests.kit.cluster import CLUSTER, DISPATCHER
from tests.kit.core_sidecar import Sidecar, watching
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
    sidecar.sees(flink.vacate(*components)).waits(seconds)
    return flink, sidecar


def test_a_cluster_has_its_status_and_since_when() -> None:
    """Decided where all of them are: here is only what to do about it."""
    verdict = of(vacated()[1], contenders={LATCH: ()})
    why = "probably jm-a was lost, 1 job stands still"
    assert (verdict.status, verdict.sentence) == ("DOWN", f"no leader for 43 s, {why}, no standby")
    assert verdict.status_since
    assert verdict.status_since.startswith("2026-11-20T08:01:00")
    assert (verdict.colour, str(verdict)) == ("red", f"default: {verdict.sentence}")


def test_a_single_component_without_a_leader_is_named() -> None:
    """The others have one."""
    _, sidecar = vacated(DISPATCHER)
    assert of(sidecar).sentence.startswith("no leader of dispatcher for 43 s")


def test_blindness_has_a_word_of_its_own() -> None:
    """Never "no leader"; the last known leader stays in sight. Before the first look there is nothing to do about it."""
    _, sidecar = watching()
    sidecar.is_cut_off().waits(75)
    verdict = of(sidecar)
    sentence = "cannot see it for 1 min 15 s: ZooKeeper cannot be reached, last known leader jm-a"
    assert (verdict.status, verdict.sentence, verdict.topic) == ("BLIND", sentence, "flinkleadersoutofsight")
    fresh = of(Sidecar(Flink()))
    assert (fresh.status, fresh.sentence) == ("BLIND", "ZooKeeper has not been read yet: leaders are unknown")
    assert fresh.next_step is None


def test_two_leaders_are_as_bad_as_none() -> None:
    """With what to do: it does not settle by itself."""
    verdict = of(watching()[1], contested=frozenset({DISPATCHER}))
    assert (verdict.status, verdict.colour) == ("SPLIT", "red")
    assert (verdict.topic, verdict.next_step) == ("flinksplitleadership", TRIGGERS[Trigger.SPLIT].next)


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
    assert (verdict.status, verdict.colour, verdict.next_step) == ("STOPPED", "grey", None)


def test_a_cluster_without_its_standby_is_degraded() -> None:
    """One that had a standby."""
    sidecar = watching()[1]
    verdict = of(sidecar, contenders={LATCH: ("a",)}, standby=Standby(sidecar.moment, sidecar.moment))
    assert (verdict.status, verdict.next_step) == ("DEGRADED", TRIGGERS[Trigger.NO_STANDBY].next)
    assert verdict.sentence == "jm-a leads, no standby is left, whether jobs run is not known (no REST)"


def test_the_worst_comes_first_and_the_sidecar_itself_is_judged() -> None:
    """Then by name."""
    well = watching()[1].state.clusters[CLUSTER]
    down = vacated()[1]
    blind = watching()[1].is_cut_off().state.clusters[CLUSTER]
    clusters = {"a": well, "b": blind, "c": down.state.clusters[CLUSTER], "d": well}
    snapshot = Snapshot(down.moment, State(clusters), health=Health(journal_problem="the disk is full"))
    assert [(verdict.cluster_id, verdict.status) for verdict in verdicts(snapshot)] == [
        *(("c", "DOWN"), (None, "DEGRADED"), ("b", "BLIND"), ("a", "UNCHECKED")),
        ("d", "UNCHECKED"),
    ]
    [verdict] = verdicts(Snapshot(down.moment))
    assert (verdict.status, str(verdict)) == ("BLIND", "this sidecar: no cluster is watched yet")
    [verdict] = verdicts(Snapshot(down.moment, State(finder=Finder("namespace flink"))))
    assert (verdict.status, verdict.sentence.partition(":")[0]) == (
        "BLIND",
        "cannot see which clusters are in namespace flink",
    )


def test_each_cause_and_each_trigger_has_a_next_step() -> None:
    """In one sentence."""
    assert set(advice.CAUSES) == set(Cause)
    for cause in Cause:
        assert advice.step_for_cause(cause, "jm-a").endswith(".")
    assert all(step.endswith(".") for step in (kind.next for kind in TRIGGERS.values()))


def test_each_reason_of_a_death_has_a_next_step() -> None:
    """Where it is known and says more than the cause in the store."""
    assert set(advice.DEATHS) == set(ENDINGS) - {"unknown"}
    assert set(ENDINGS) == set(DeathReason)
    for reason in advice.DEATHS:
        assert advice.step_for_cause(Cause.JOBMANAGER_LOST, "jm-a", reason).endswith(".")
    assert advice.because(Cause.JOBMANAGER_LOST, "jm-a", "oom_killed") == "JobManager jm-a was OOM-killed"
    assert advice.because(Cause.JOBMANAGER_LOST, "jm-a", "unknown") == "JobManager jm-a was lost"
    assert advice.because(Cause.PLANNED_UPGRADE, "jm-a", "replaced") == "another spec is being deployed"


def test_only_a_leader_whose_end_is_not_explained_was_lost() -> None:
    """One that leads again lost its leadership, one that was rolled out was replaced; the end of a process says more."""
    ended = {cause: advice.ending(cause) for cause in Cause}
    assert {cause for cause, how in ended.items() if how == "was lost"} == {
        *(Cause.JOBMANAGER_LOST, Cause.SPLIT_LEADERSHIP, Cause.TAMPERED),
        *(Cause.CLUSTER_REMOVED, Cause.OBSERVER_BLIND, Cause.UNKNOWN),
    }
    assert ended[Cause.SAME_PROCESS_REELECTION] == ended[Cause.STORE_OUTAGE] == "lost its leadership"
    assert advice.ending(Cause.STORE_OUTAGE, "exited") == "exited"
    assert advice.ending(Cause.PLANNED_UPGRADE, "unknown") == "was replaced"


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
