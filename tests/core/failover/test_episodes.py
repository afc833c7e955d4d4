"""A failover is one episode, with one id for everybody who saw it, from the first component that left until all were led again."""

import pytest
from msgspec.structs import replace

from sidecar.core.failover.episodes import JOB_PATIENCE, SETTLED, Phase
from sidecar.core.flink.leadership import CLUSTER_COMPONENTS, Component, ComponentId
from sidecar.core.moment import SECOND, timestamp
from sidecar.core.observations import ConnectionState, PlaceRemoved
from tests.kit.cluster import (
    ALL_FOUR,
    CLUSTER,
    DISPATCHER,
    JOB,
    RESOURCE_MANAGER,
    REST_SERVER,
    THE_JOB,
    A,
    B,
    job_manager,
)
from tests.kit.core_sidecar import POLICY, Sidecar, fail_over, the_episode, watching
from tests.kit.fake_flink import Flink

C = job_manager("jm-c")
OTHER_JOB = "00000000000000000000000000000001"
AWHILE = SETTLED / SECOND + 1


def phase(sidecar: Sidecar) -> Phase | None:
    episode = sidecar.state.clusters[CLUSTER].episode
    return episode.phase if episode else None


def test_a_failover_is_one_episode() -> None:
    """Four components away from A and to B: who, why, for how long, how many jobs. Its transitions name it."""
    flink, sidecar = watching()
    began = sidecar.now
    fail_over(flink, sidecar)
    assert phase(sidecar) is Phase.LEADER_BACK
    sidecar.waits(AWHILE)
    episode = the_episode(sidecar)
    assert {transition.episode_id for transition in sidecar.transitions()} == {episode.id}
    assert len(sidecar.transitions()) == 8
    assert episode.opened_at == timestamp(began)
    assert episode.closed_at == sidecar.transitions()[-1].observed_at
    assert (episode.cause, episode.confidence) == ("jobmanager_lost", "medium")
    assert episode.components == ["dispatcher", "job", "resource_manager", "rest_server"]
    assert (episode.jobs_affected, episode.jobs_ended, episode.jobs_missing, episode.jobs_total) == (1, 0, 0, 1)
    assert episode.vacant_seconds == max(
        seconds for name, seconds in episode.vacant_seconds_by_component.items() if name != "job"
    )
    assert 2.0 <= episode.vacant_seconds <= 2.1
    assert (episode.before_session_id, episode.after_session_id) == (str(A.session_id), str(B.session_id))
    assert episode.failovers == 1
    assert phase(sidecar) is None


def test_whoever_looks_derives_the_same_episode() -> None:
    """Whichever component was seen to leave first, by whom, and when: one id. Another term is another episode."""
    ids = set()
    for observer, first in (("sidecar-0", DISPATCHER), ("sidecar-1", REST_SERVER), ("sidecar-2", THE_JOB)):
        flink, sidecar = watching(policy=replace(POLICY, observer=observer))
        sidecar.sees(flink.vacate(first)).waits(0.5).sees(flink.vacate())
        sidecar.sees(flink.elect(B)).waits(AWHILE)
        ids.add(the_episode(sidecar).id)
    assert len(ids) == 1
    fail_over(flink, sidecar)
    sidecar.sees(flink.vacate()).sees(flink.elect(C)).waits(AWHILE)
    assert sidecar.episodes()[-1].id not in ids


def test_it_is_open_while_a_component_has_no_leader() -> None:
    """However long that takes; and distinguished from waiting for jobs."""
    flink, sidecar = watching()
    sidecar.sees(flink.vacate()).waits(3600, tick=60)
    assert phase(sidecar) is Phase.OPEN
    sidecar.sees(flink.elect(B, RESOURCE_MANAGER, REST_SERVER)).waits(60)
    assert phase(sidecar) is Phase.OPEN
    sidecar.sees(flink.elect(B, DISPATCHER)).waits(60)
    assert phase(sidecar) is Phase.LEADER_BACK
    assert sidecar.episodes() == []
    sidecar.sees(flink.elect(B, THE_JOB)).waits(AWHILE)
    assert the_episode(sidecar).vacant_seconds_by_component["dispatcher"] > 3600


def test_a_failover_in_a_failover_belongs_to_it() -> None:
    """B is lost as well before everything was led for a moment: one episode from A to C, of two failovers."""
    flink, sidecar = watching()
    fail_over(flink, sidecar).waits(2)
    fail_over(flink, sidecar, 1, C).waits(AWHILE)
    episode = the_episode(sidecar)
    assert (episode.before_session_id, episode.after_session_id) == (str(A.session_id), str(C.session_id))
    assert episode.failovers == 2


def test_a_moment_later_it_is_another() -> None:
    """Two failovers with calm between them are two, and each ends where the next one begins."""
    flink, sidecar = watching()
    fail_over(flink, sidecar).waits(AWHILE)
    sidecar.sees(flink.vacate()).sees(flink.elect(C)).waits(AWHILE)
    first, second = sidecar.episodes()
    assert first.id != second.id
    assert first.after_session_id == second.before_session_id == str(B.session_id)


def test_a_first_election_is_none() -> None:
    """Nor is a leader that moved its address, nor blindness that is over before anything became unknown."""
    flink = Flink().submit()
    sidecar = Sidecar(flink).connects()
    sidecar.sees(flink.elect(A)).waits(10)
    sidecar.sees(
        flink.publish(DISPATCHER, replace(A.leads(DISPATCHER), address="pekko.tcp://flink@jm-a:7000/user/rpc/d_0"))
    ).waits(10)
    sidecar.is_cut_off().waits(1).connects().waits(120)
    assert {transition.kind for transition in sidecar.transitions()} == {"DISCOVERED", "GRANTED", "READDRESSED"}
    assert sidecar.episodes() == []


def test_a_job_that_moves_by_itself_opens_none() -> None:
    """Nor does one that ends."""
    flink, sidecar = watching()
    fail_over(flink, sidecar, 1, A, THE_JOB).waits(60)
    sidecar.sees(flink.vacate(THE_JOB).forget()).waits(60)
    assert [transition.episode_id for transition in sidecar.transitions()] == [None] * len(sidecar.transitions())
    assert sidecar.episodes() == []


def test_jobs_that_left_just_before_are_part_of_it() -> None:
    """The order in which one process's leaderships are seen to end says nothing."""
    flink, sidecar = watching()
    sidecar.sees(flink.vacate(THE_JOB)).waits(1)
    fail_over(flink, sidecar).waits(AWHILE)
    assert the_episode(sidecar).jobs_affected == 1
    assert "job" in the_episode(sidecar).vacant_seconds_by_component


def test_jobs_that_end_in_it_are_counted() -> None:
    """A job that is not led again because Flink has forgotten it is not waited for."""
    flink = Flink().submit().submit(OTHER_JOB).elect(A, *ALL_FOUR, ComponentId(Component.JOB, OTHER_JOB))
    sidecar = Sidecar(flink).connects().waits(60)
    sidecar.sees(flink.vacate(*ALL_FOUR, ComponentId(Component.JOB, OTHER_JOB))).waits(1)
    sidecar.sees(flink.forget(OTHER_JOB)).sees(flink.elect(B)).waits(AWHILE)
    episode = the_episode(sidecar)
    assert (episode.jobs_affected, episode.jobs_ended, episode.jobs_missing, episode.jobs_total) == (2, 1, 0, 2)


def test_a_job_that_never_starts_again_is_not_waited_for_for_ever() -> None:
    """After ten minutes the episode is over, and says how many jobs nobody leads; when the job comes back at last, that is no episode."""
    flink, sidecar = watching()
    sidecar.sees(flink.vacate()).waits(1)
    sidecar.sees(flink.elect(B, RESOURCE_MANAGER, DISPATCHER, REST_SERVER)).waits(JOB_PATIENCE / SECOND - 10, tick=5)
    assert sidecar.episodes() == []
    sidecar.waits(20)
    assert (the_episode(sidecar).jobs_affected, the_episode(sidecar).jobs_missing) == (1, 1)
    sidecar.sees(flink.elect(B, THE_JOB)).waits(60)
    assert len(sidecar.episodes()) == 1


def test_it_survives_a_kill() -> None:
    """The sidecar dies with the leader and is back before the next one leads: the same episode, with its beginning."""
    flink, sidecar = watching()
    began = sidecar.now
    sidecar.sees(flink.vacate()).is_killed(down_for=2).connects().waits(60)
    sidecar.sees(flink.elect(B)).waits(AWHILE)
    episode = the_episode(sidecar)
    assert episode.opened_at == timestamp(began)
    assert {t.episode_id for t in sidecar.transitions() if t.kind in {"REVOKED", "GRANTED"}} == {episode.id}


def test_what_happened_while_nobody_looked_is_an_episode_too() -> None:
    """The sidecar was down while A was replaced: found when it is back, keyed as others have it, its cause not known."""
    flink, sidecar = watching()
    sidecar.is_killed(down_for=30)
    flink.elect(B)
    sidecar.connects().waits(AWHILE)
    unseen = the_episode(sidecar)
    flink, witness = watching()
    fail_over(flink, witness).waits(AWHILE)
    assert unseen.id == the_episode(witness).id
    assert (unseen.cause, unseen.facts) == ("unknown", ["The observed facts do not identify one cause."])


def test_it_is_not_over_while_nobody_can_see() -> None:
    """What cannot be seen has not settled."""
    flink, sidecar = watching()
    fail_over(flink, sidecar).is_cut_off().waits(60)
    assert sidecar.episodes() == []
    sidecar.connects().waits(AWHILE)
    assert the_episode(sidecar).cause == "jobmanager_lost"


@pytest.mark.covers("cause:observer_blind")
def test_only_we_could_not_see() -> None:
    """Cut off long enough that every leader became unknown, and each was the one of before: an episode of ours, in which nothing moved."""
    _, sidecar = watching()
    began = sidecar.now
    sidecar.is_cut_off(ConnectionState.LOST).waits(20).connects().waits(59)
    assert sidecar.episodes() == []
    sidecar.waits(10)
    episode = the_episode(sidecar)
    assert (episode.cause, episode.opened_at, episode.components, episode.failovers) == (
        *("observer_blind", timestamp(began), []),
        0,
    )
    assert episode.facts == [
        "This observer could not read the store for 20 s; afterwards every leader was the same as before."
    ]
    assert sidecar.sent_reasons() == []
    assert len(sidecar.waits(3600, tick=60).episodes()) == 1


def test_a_leader_that_takes_its_address_away_hands_over() -> None:
    """Its session's end would have left the address's parent there."""
    flink, sidecar = watching()
    sidecar.sees(flink.vacate(DISPATCHER))
    sidecar.observe(PlaceRemoved(sidecar.moment, CLUSTER, flink.znodes.path(DISPATCHER)))
    fail_over(flink, sidecar).waits(AWHILE)
    assert the_episode(sidecar).cause == "graceful_handover"


def test_who_contends_distinguishes_an_outage_from_a_loss() -> None:
    """The store was away, and another process leads afterwards: as many contend as before, so nobody was lost; or one fewer does."""
    for lost, cause in ((None, "store_outage"), ("one", "unknown")):
        flink, sidecar = watching()
        flink.znodes.write("/leader/latch/one", None, 1)
        flink.znodes.write("/leader/latch/two", None, 2)
        sidecar.connects().is_cut_off().waits(1)
        flink.znodes.delete(f"/leader/latch/{lost}")
        sidecar.connects()
        fail_over(flink, sidecar, after=0.25).waits(AWHILE)
        assert the_episode(sidecar).cause == cause


def test_a_storm_of_jobs_is_one_episode() -> None:
    """A hundred jobs go with their leader and come back with the next: counted, not listed."""
    jobs = [ComponentId(Component.JOB, f"{number:032x}") for number in range(100)]
    flink = Flink()
    for job in jobs:
        flink.submit(job.job_id or JOB)
    flink.elect(A, RESOURCE_MANAGER, DISPATCHER, REST_SERVER, *jobs)
    sidecar = Sidecar(flink).connects().waits(60)
    sidecar.sees(flink.vacate(*jobs, RESOURCE_MANAGER, DISPATCHER, REST_SERVER)).waits(1)
    sidecar.sees(flink.elect(B, RESOURCE_MANAGER, DISPATCHER, REST_SERVER, *jobs)).waits(AWHILE)
    episode = the_episode(sidecar)
    assert (episode.jobs_affected, episode.jobs_total) == (100, 100)
    assert episode.components == ["dispatcher", "job", "resource_manager", "rest_server"]


def test_a_leader_that_came_back_in_its_term_may_leave_it_again() -> None:
    """Its address is gone, and there again; later it is lost: two episodes, each with its own id and record."""
    flink, sidecar = watching()
    for leader in (A, B):
        fail_over(flink, sidecar, 1, leader).waits(20)
    first, second = sidecar.episodes()
    assert first.id != second.id
    assert [episode.cause for episode in (first, second)] == ["rewritten_by_flink", "jobmanager_lost"]
    assert second.vacant_seconds is not None
    assert second.vacant_seconds < 2


@pytest.mark.parametrize("vacant", [0.0, 0.5])
def test_one_component_after_the_other_is_one_failover(vacant: float) -> None:
    """Each is handed over 8 s after the one before, with or without a vacancy: one episode, one failover."""
    flink, sidecar = watching()
    for component in CLUSTER_COMPONENTS:
        if vacant:
            sidecar.sees(flink.vacate(component)).waits(vacant)
        sidecar.sees(flink.elect(B, component)).waits(8)
    sidecar.waits(30)
    (episode,) = sidecar.episodes()
    assert episode.failovers == 1
    assert episode.components == ["dispatcher", "resource_manager", "rest_server"]
    assert sidecar.state.clusters[CLUSTER].last_episode.failovers == 1  # type: ignore[union-attr]


def test_leaders_that_stay_divided_end_the_failover_after_a_minute() -> None:
    """The rest may never follow: what moved is recorded."""
    flink, sidecar = watching()
    sidecar.sees(flink.elect(B, DISPATCHER)).waits(59)
    assert sidecar.episodes() == []
    sidecar.waits(2)
    (episode,) = sidecar.episodes()
    assert episode.components == ["dispatcher"]
