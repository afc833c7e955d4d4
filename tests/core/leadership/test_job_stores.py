"""A job's leadership begins and ends with the job."""

from collections import Counter

import pytest
from msgspec.structs import replace

from sidecar.core.flink.configmaps import ConfigMapLayout
from sidecar.core.flink.leadership import CLUSTER_COMPONENTS, Component, ComponentId, Vacant
from sidecar.core.flink.znode_paths import JOB_STORES, ZNodeLayout
from sidecar.core.moment import SECOND, Moment
from sidecar.core.observations import ViewConfirmed
from tests.kit.cluster import ALL_FOUR, CLUSTER, THE_JOB, A, B
from tests.kit.core_sidecar import Sidecar, leased, watching
from tests.kit.fake_flink import Flink


def test_a_new_job_is_granted_its_first_leader() -> None:
    """In a complete view a job that appears had nobody: null->B, with no leader known before."""
    flink, sidecar = watching()
    another = ComponentId(Component.JOB, "ab" * 16)
    sidecar.sees(flink.submit("ab" * 16).elect(A, another))
    assert [(t.pattern, t.last_known_session_id, t.vacant_seconds) for t in sidecar.transitions(another)] == [
        ("null->B", None, None)
    ]


@pytest.mark.parametrize("era", ZNodeLayout)
def test_a_job_whose_graph_goes_first_is_retired(era: ZNodeLayout) -> None:
    """Flink forgot the job, then its leader went: A->gone, and the job is not known any more."""
    flink, sidecar = watching(era=era)
    sidecar.sees(flink.forget()).sees(flink.vacate(THE_JOB))
    assert [(t.kind, t.pattern) for t in sidecar.transitions()] == [("RETIRED", "A->gone")]
    assert THE_JOB not in sidecar.state.clusters[CLUSTER].components


def test_a_job_whose_leader_goes_first_is_retired_when_its_graph_goes() -> None:
    """As Flink ends a job: the leader's znode first, then the graph."""
    flink, sidecar = watching()
    sidecar.sees(flink.vacate(THE_JOB)).sees(flink.forget())
    assert [t.pattern for t in sidecar.transitions()] == ["A->null", "null->gone"]
    assert THE_JOB not in sidecar.state.clusters[CLUSTER].components


def test_a_job_without_a_leader_that_flink_would_recover_stays_vacant() -> None:
    """Its graph is still there: it waits for a leader, and says for how long it did when it has one."""
    flink, sidecar = watching()
    sidecar.sees(flink.vacate(THE_JOB)).waits(20)
    assert isinstance(sidecar.component_state(THE_JOB).leadership, Vacant)
    sidecar.sees(flink.elect(B, THE_JOB))
    assert [t.pattern for t in sidecar.transitions()] == ["A->null", "null->B"]
    assert sidecar.transitions()[-1].vacant_seconds == pytest.approx(20, abs=0.1)


@pytest.mark.parametrize("down", ["blind", "killed"])
def test_a_job_that_ended_out_of_sight_is_retired_at_the_next_complete_look(down: str) -> None:
    """While nobody looked, the job ended: ?->gone."""
    flink, sidecar = watching()
    if down == "blind":
        sidecar.is_cut_off().waits(30)
    else:
        sidecar.is_killed(down_for=30)
    flink.forget().vacate(THE_JOB)
    sidecar.connects()
    assert sidecar.transitions(THE_JOB)[-1].pattern == "?->gone"
    assert set(sidecar.state.clusters[CLUSTER].components) == set(CLUSTER_COMPONENTS)


def test_a_job_that_comes_back_begins_anew() -> None:
    """The same job id, submitted again after it ended, has no history: its first leader is a first election."""
    flink, sidecar = watching()
    for _ in range(2):
        sidecar.sees(flink.forget().vacate(THE_JOB)).sees(flink.submit().elect(A, THE_JOB))
    assert sidecar.kinds(THE_JOB) == ["RETIRED", "GRANTED"] * 2
    assert {t.last_known_session_id for t in sidecar.transitions(THE_JOB) if t.kind == "GRANTED"} == {None}
    assert len({t.id for t in sidecar.transitions(THE_JOB)}) == 4


def confirmed(sidecar: Sidecar) -> None:
    """The view is known to be fresh."""
    sidecar.observe(ViewConfirmed(sidecar.moment, CLUSTER, 15 * SECOND))


def led_and_left(flink: Flink, sidecar: Sidecar, number: int) -> None:
    """So many jobs that nobody submitted have a leader, and lose it."""
    jobs = [ComponentId(Component.JOB, f"{n:032x}") for n in range(number)]
    sidecar.sees(flink.elect(A, *jobs)).sees(flink.vacate(*jobs))


def test_a_job_that_was_never_registered_has_ended_when_the_view_is_confirmed() -> None:
    """It began and ended between two reads of the job store, or somebody published a leader of a job that there is not."""
    flink, sidecar = watching()
    led_and_left(flink, sidecar, 300)
    sidecar.sees(flink.vacate(THE_JOB))
    sidecar.observe(ViewConfirmed(Moment(sidecar.now - 60 * SECOND, sidecar.now - 60 * SECOND), CLUSTER, 15 * SECOND))
    assert len(sidecar.state.clusters[CLUSTER].components) == 3 + 1 + 300  # confirmed for a time before the loss alone
    sidecar.waits(2)
    confirmed(sidecar)
    assert {*sidecar.state.clusters[CLUSTER].components} == {*CLUSTER_COMPONENTS, THE_JOB}
    assert {t.pattern for t in sidecar.transitions() if t.kind == "RETIRED"} == {"null->gone"}


@pytest.mark.parametrize("down", ["blind", "killed", "replaced"])
def test_short_jobs_that_ended_unseen_are_discovered_no_more(down: str) -> None:
    """However often the sidecar connects again or restarts: each is retired once, and nobody is notified of a vacancy."""
    flink, sidecar = watching()
    jobs = [ComponentId(Component.JOB, f"{n:032x}") for n in range(50)]
    sidecar.sees(flink.elect(A, *jobs))  # their leaders; they were in no list that was read
    for number in range(4):
        {
            "blind": lambda: sidecar.is_cut_off().waits(30),
            "killed": lambda: sidecar.is_killed(down_for=30),
            "replaced": lambda: sidecar.is_replaced(down_for=30),
        }[down]()
        if number == 0:
            flink.vacate(*jobs)
        sidecar.connects().waits(60)
    patterns = Counter(t.pattern for t in sidecar.transitions(*jobs) if t.kind != "OBSCURED")
    assert patterns == {"null->B": 50, "?->gone": 50}
    assert "FlinkNoLeader" not in {delivery.alert for delivery in sidecar.sent}


@pytest.mark.parametrize("era", [ConfigMapLayout.K2, ConfigMapLayout.K3])
def test_a_short_job_in_a_configmap_ends_with_its_key(era: ConfigMapLayout) -> None:
    """Its leader and its plan are removed in one write: A->gone, although it was in no plan that was read."""
    flink, sidecar = leased(era=era)
    short = ComponentId(Component.JOB, "cd" * 16)
    sidecar.sees(flink.publish_all(A, short)).sees(flink.vacate(short))
    assert [t.pattern for t in sidecar.transitions(short)] == ["null->B", "A->gone"]
    assert short not in sidecar.state.clusters[CLUSTER].components


@pytest.mark.parametrize("era", ConfigMapLayout)
@pytest.mark.parametrize("down", ["blind", "killed"])
def test_a_short_job_in_a_configmap_that_ended_unseen_is_retired_once(era: ConfigMapLayout, down: str) -> None:
    """At the first complete view, in every layout."""
    flink, sidecar = leased(era=era)
    short = ComponentId(Component.JOB, "cd" * 16)
    if era is ConfigMapLayout.K1:
        flink.grant(A, short)
    sidecar.sees(flink.publish_all(A, short))
    for number in range(3):
        if down == "blind":
            sidecar.is_cut_off().waits(5)
        else:
            sidecar.is_killed(down_for=5)
        if number == 0 and era is ConfigMapLayout.K1:
            flink.config_maps.delete(flink.config_maps.name(short))
        elif number == 0:
            flink.vacate(short)
        flink.config_maps.renew()
        sidecar.connects().watches(40)
    assert [t.pattern for t in sidecar.transitions(short) if t.kind != "OBSCURED"] == ["null->B", "?->gone"]
    assert "FlinkNoLeader" not in {delivery.alert for delivery in sidecar.sent}


@pytest.mark.parametrize("store", JOB_STORES)
def test_a_job_store_that_cannot_be_read_any_more_ends_no_job(store: str) -> None:
    """Neither one that was registered there, nor one that may be: their vacancies last."""
    flink, sidecar = watching()
    other = next(path for path in JOB_STORES if path != store)
    sidecar.is_refused(store, "60000 children")
    led_and_left(flink, sidecar, 1)
    sidecar.sees(flink.vacate(THE_JOB))
    sidecar.reads_lists([other])
    confirmed(sidecar.waits(2))
    assert len(sidecar.state.clusters[CLUSTER].components) == len(ALL_FOUR) + 1
    sidecar.reads_lists([store])
    confirmed(sidecar.waits(2))
    assert {*sidecar.state.clusters[CLUSTER].components} == {*CLUSTER_COMPONENTS, THE_JOB}


@pytest.mark.parametrize("store", JOB_STORES)
def test_where_a_job_store_cannot_be_read_no_job_is_forgotten(store: str) -> None:
    """The job may be registered there."""
    flink, sidecar = watching()
    cluster = sidecar.state.clusters[CLUSTER]
    jobs = {path: job_ids for path, job_ids in cluster.jobs.items() if path != store}
    sidecar.state = replace(sidecar.state, clusters={CLUSTER: replace(cluster, jobs=jobs)})
    led_and_left(flink, sidecar, 1)
    sidecar.waits(4000, tick=60)
    confirmed(sidecar)
    assert len(sidecar.state.clusters[CLUSTER].components) == len(ALL_FOUR) + 1


def test_a_job_that_never_had_a_leader_is_retired_each_time_under_its_own_id() -> None:
    """Submitted and withdrawn twice before anybody led it: two happenings."""
    flink, sidecar = watching()
    for _ in range(2):
        sidecar.sees(flink.submit("cd" * 16)).sees(flink.forget("cd" * 16))
    retired = sidecar.transitions(ComponentId(Component.JOB, "cd" * 16))
    assert [t.pattern for t in retired] == ["null->gone"] * 2
    assert len({t.id for t in retired}) == 2
