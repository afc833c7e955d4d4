"""When a picture is requested of which REST server, and which answers are of use."""

from collections.abc import Callable
from itertools import pairwise
from uuid import UUID

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from sidecar.core.cluster.cluster_state import ClusterState
from sidecar.core.failover import rest_server
from sidecar.core.failover.recovery_state import Assessment
from sidecar.core.moment import SECOND, Moment
from sidecar.core.observations import PictureTaken, Ticked
from sidecar.core.pictures import MOST_HELD, Job, Picture, PictureRequest
from sidecar.core.state import TakePicture
from sidecar.core.step import step
from tests.core.cluster.pictures import ASSESSING, before, job, shows
from tests.kit.cluster import CLUSTER, JOB, START, B
from tests.kit.core_sidecar import POLICY, fail_over, watching
from tests.kit.groups import examples

A_REST, B_REST = "http://jm-a:8081", "http://jm-b:8081"
INTERVAL = ASSESSING.picture_interval


def cluster() -> ClusterState:
    """One that A leads, of which no picture was ever requested."""
    _, sidecar = watching(policy=POLICY)
    return sidecar.state.clusters[CLUSTER]


def asks(
    state: ClusterState, seconds: float, first: tuple[str, ...] | None = None
) -> tuple[ClusterState, PictureRequest | None]:
    """What is due, so many seconds after the first request. `first`: what an assessment asks for first."""
    return rest_server.due(ASSESSING, CLUSTER, state, first, at(seconds), 1)


def at(seconds: float) -> Moment:
    moment = START + 3600 * SECOND + round(seconds * SECOND)
    return Moment(moment, moment)


def answers(state: ClusterState, *jobs: Job, problem: str | None = None, address: str = A_REST) -> ClusterState:
    """The cluster after an answer from `address`: these jobs, or a problem."""
    return answer(state, *jobs, problem=problem, address=address)[0]


def answer(
    state: ClusterState, *jobs: Job, problem: str | None = None, address: str = A_REST
) -> tuple[ClusterState, PictureTaken | None]:
    picture = None if problem else Picture(at(0).wall, address, jobs)
    return rest_server.answered(state, PictureTaken(at(0), CLUSTER, address, picture, problem))


def asked_at(
    state: ClusterState,
    seconds: int,
    answered: Callable[[ClusterState], ClusterState],
    first: tuple[str, ...] | None = None,
) -> list[int]:
    """The seconds at which a picture is requested, if every request is answered at once."""
    moments = []
    for second in range(seconds):
        state, request = asks(state, second, first)
        if request:
            moments.append(second)
            state = answered(state)
    return moments


def test_a_picture_is_requested_of_the_leading_rest_server() -> None:
    """At its published address, gently."""
    assert asks(cluster(), 0)[1] == PictureRequest(CLUSTER, A_REST)


def test_a_picture_is_requested_in_each_interval() -> None:
    assert asked_at(cluster(), 35, lambda state: answers(state, job())) == [0, 10, 20, 30]


def test_the_next_request_waits_for_the_answer() -> None:
    """One at a time, until it can no longer be expected; then it has failed."""
    state, _ = asks(cluster(), 0)
    assert asks(state, 299)[1] is None
    state, request = asks(state, 300)
    assert request
    assert state.picture_request
    assert state.picture_request.failures == 1


def test_the_interval_doubles_with_each_failure_up_to_five_minutes() -> None:
    """A picture that is taken ends that."""
    moments = asked_at(cluster(), 1300, lambda state: answers(state, problem="connection refused"))
    assert [later - earlier for earlier, later in pairwise(moments)] == [*(20, 40, 80, 160), *(300, 300, 300)]
    state, _ = asks(cluster(), 0)
    state, _ = asks(answers(state, problem="connection refused"), 20)
    assert asks(answers(state, job()), 30)[1]


def test_while_a_failover_is_assessed_each_second_is_asked_for() -> None:
    """Thoroughly, and first of the jobs that it needs. Elections and starting jobs are failures that pass: the interval stays."""
    assert asks(cluster(), 0, (JOB,))[1] == PictureRequest(CLUSTER, A_REST, (JOB,), thorough=True)
    moments = asked_at(cluster(), 40, lambda state: answers(state, problem="ongoing leader election"), (JOB,))
    assert moments == [*range(31), 32, 36]


def test_an_interval_that_is_shorter_is_not_made_longer_by_few_failures() -> None:
    """Nor is the longest exceeded by a setting: whoever wants a picture every ten minutes gets one every ten minutes."""
    state, _ = asks(cluster(), 0, (JOB,))
    assert asks(answers(state, problem="no"), 1, (JOB,))[1]
    rarely = replace(ASSESSING, picture_interval=600 * SECOND)
    state, _ = rest_server.due(rarely, CLUSTER, cluster(), None, at(0), 1)
    state = answers(state, problem="no")
    assert rest_server.due(rarely, CLUSTER, state, None, at(599), 1)[1] is None
    assert rest_server.due(rarely, CLUSTER, state, None, at(600), 1)[1]


def test_another_leader_is_asked_at_once() -> None:
    """However often the one before it failed."""
    flink, sidecar = watching(policy=POLICY)
    state, _ = asks(sidecar.state.clusters[CLUSTER], 0)
    state = answers(state, problem="connection refused")
    fail_over(flink, sidecar)
    after = replace(sidecar.state.clusters[CLUSTER], picture_request=state.picture_request)
    after, request = asks(after, 1)
    assert request
    assert request.address == B_REST
    assert after.picture_request
    assert after.picture_request.failures == 0


@pytest.mark.parametrize("vacant", [True, False], ids=["no leader", "no connection to the store"])
def test_without_a_leader_in_sight_nothing_is_requested(vacant: bool) -> None:
    """Nobody knows whom to ask."""
    flink, sidecar = watching(policy=POLICY)
    if vacant:
        sidecar.sees(flink.vacate())
    else:
        sidecar.is_cut_off()
    assert asks(sidecar.state.clusters[CLUSTER], 0)[1] is None


def test_the_answer_of_a_leader_that_is_gone_is_of_no_use() -> None:
    """It was asked, but another leads by now: what it says is not of this leader's time."""
    flink, sidecar = watching(policy=POLICY)
    state, _ = asks(sidecar.state.clusters[CLUSTER], 0)
    fail_over(flink, sidecar)
    after = replace(sidecar.state.clusters[CLUSTER], picture_request=state.picture_request)
    after, useful = answer(after, job())
    assert useful is None
    assert after.picture_request
    assert not after.picture_request.waiting


def test_an_answer_that_nobody_waits_for_counts_if_it_is_the_leader_s() -> None:
    """Not requested, or the second one: nothing is remembered of it. Not that of another address, nor of another cluster."""
    unasked = cluster()
    after, useful = answer(unasked, job())
    assert after is unasked
    assert useful
    assert useful.picture
    assert answer(unasked, job(), address=B_REST) == (unasked, None)
    foreign = answer(unasked, job(job_id="b" * 32))[1]
    assert foreign
    assert foreign.picture is None
    asked, _ = asks(unasked, 0)
    assert answer(asked, job(), address=B_REST) == (asked, None)


@pytest.mark.parametrize(
    ("jobs", "is_of_use"),
    [
        ((job(),), True),
        ((job(), job(job_id="b" * 32)), True),
        ((job(job_id="b" * 32),), False),
        ((job(job_id="b" * 32, state="FINISHED"),), True),
        ((), True),
    ],
    ids=["the same", "one more", "others", "others that have ended", "none"],
)
def test_a_picture_of_another_cluster_is_a_problem(jobs: tuple[Job, ...], is_of_use: bool) -> None:
    """If the store knows none of its jobs, the address belongs to another cluster by now. Ended jobs, and none, say nothing of that."""
    state, _ = asks(cluster(), 0)
    after, useful = answer(state, *jobs)
    assert useful
    assert (useful.picture is not None) is is_of_use
    assert is_of_use or "another cluster" in (useful.problem or "")
    assert after.picture_request
    assert after.picture_request.failures == (0 if is_of_use else 1)


def test_a_tick_requests_a_picture_only_if_the_server_is_among_the_evidence() -> None:
    """What the REST server is not asked for, it is not asked for gently either."""
    for policy, expected in ((POLICY, []), (ASSESSING, [TakePicture(PictureRequest(CLUSTER, A_REST))])):
        _, sidecar = watching(policy=POLICY)
        _, effects = step(policy, sidecar.state, Ticked(sidecar.moment))
        assert [effect for effect in effects if isinstance(effect, TakePicture)] == expected


def test_a_restart_forgets_the_request() -> None:
    """No answer to it comes any more."""
    _, sidecar = watching(policy=ASSESSING)
    assert sidecar.state.clusters[CLUSTER].picture_request
    shows(sidecar, before(sidecar))
    sidecar.is_killed()
    assert sidecar.state.clusters[CLUSTER].picture_request is None


def test_a_leader_with_the_same_address_is_another_leader() -> None:
    """A JobManager that lost leadership and won it again: its interval begins anew."""
    flink, sidecar = watching(policy=POLICY)
    state, _ = asks(sidecar.state.clusters[CLUSTER], 0)
    state = answers(state, job())
    fail_over(flink, sidecar, 1, replace(B, host="jm-a", session_id=UUID(int=7)))
    after = replace(sidecar.state.clusters[CLUSTER], picture_request=state.picture_request)
    _, request = asks(after, 1)
    assert request
    assert request.address == A_REST


def test_a_problem_is_shown_once_it_has_lasted_longer_than_an_election() -> None:
    """Until the next picture comes, also while a request waits."""
    state, shown = cluster(), []
    for second in (0, 20, 60, 140):
        state, request = asks(state, second)
        assert request
        state = answers(state, problem="connection refused")
        shown.append(rest_server.failing(state, at(second)))
    assert shown == [None, None, "connection refused", "connection refused"]
    state, _ = asks(state, 300)
    assert rest_server.failing(state, at(300)) == "connection refused"
    assert rest_server.failing(answers(state, job()), at(300)) is None


EVENTS = st.sampled_from(["picture", "problem", "foreign", "elsewhere", "no answer", "vacant", "led", "blind"])


@given(st.lists(st.tuples(EVENTS, st.integers(1, 400)), max_size=12))
@settings(deadline=None, max_examples=examples(60))
def test_whatever_happens_a_led_cluster_is_asked_again(events: list[tuple[str, int]]) -> None:
    """Within what a lost answer and the longest pause take; and never again while an answer may still come."""
    flink, sidecar = watching(policy=POLICY)
    scenes = {"led": sidecar.state.clusters[CLUSTER]}
    flink.vacate()
    scenes["vacant"] = sidecar.sees_changes().state.clusters[CLUSTER]
    scenes["blind"] = sidecar.is_cut_off().state.clusters[CLUSTER]
    state, now, waiting_since = scenes["led"], 0, None
    for event, seconds in [*events, ("led", 602)]:
        if event in scenes:
            state = replace(scenes[event], picture_request=state.picture_request)
        elif event != "no answer":
            listed = job(job_id="b" * 32) if event == "foreign" else job()
            problem = "connection refused" if event == "problem" else None
            state = answers(state, listed, problem=problem, address=B_REST if event == "elsewhere" else A_REST)
        if state.picture_request is None or not state.picture_request.waiting:
            waiting_since = None
        requests = 0
        for _ in range(seconds):
            now += 1
            state, request = asks(state, now)
            if request:
                assert waiting_since is None or now - waiting_since >= 300
                waiting_since, requests = now, requests + 1
    assert requests


def many(held: int) -> dict[str, ClusterState]:
    """A cluster of which nothing is known, and others that hold so much."""
    jobs = tuple(job(job_id=f"{number:032x}") for number in range(held))
    return {CLUSTER: cluster(), "other": replace(cluster(), picture=Picture(0, A_REST, jobs))}


def test_a_picture_that_does_not_fit_beside_those_of_others_is_left_out() -> None:
    """With the number of its jobs, and as a problem that is shown. The next request asks for no more than there is room for."""
    clusters = many(MOST_HELD - 1)
    two = Picture(at(0).wall, A_REST, (job(), job(job_id="b" * 32)))
    taken = rest_server.bounded(clusters, PictureTaken(at(0), CLUSTER, A_REST, two))
    assert taken.picture
    assert (taken.picture.left_out, taken.picture.jobs, taken.picture.jobs_beyond) == (True, (), 2)
    assert taken.problem
    state, request = asks(clusters[CLUSTER], 0)
    assert request
    assert [due.most for due in rest_server.limited(clusters, [request])] == [1]
    after, _ = rest_server.answered(state, taken)
    assert after.picture_request
    assert (after.picture_request.failures, after.picture_request.problem) == (1, taken.problem)


def test_a_picture_keeps_its_place() -> None:
    """One more of another cluster is not taken from it; while its failover is assessed there is room for twice as many."""
    clusters = many(MOST_HELD)
    assert [due.most for due in rest_server.limited(clusters, [PictureRequest("other", A_REST)])] == [MOST_HELD]
    assessing = replace(clusters["other"], recovery=Assessment("e", at(0), UUID(int=1)))
    limited = rest_server.limited({"other": assessing}, [PictureRequest("other", A_REST)])
    assert [due.most for due in limited] == [2 * MOST_HELD]


def test_a_tick_asks_for_no_more_than_there_is_room_for() -> None:
    """And an answer that is larger nevertheless is left out when it comes."""
    _, sidecar = watching(policy=POLICY)
    full = {**sidecar.state.clusters, "other": many(MOST_HELD)["other"]}
    state, effects = step(ASSESSING, replace(sidecar.state, clusters=full), Ticked(sidecar.moment))
    assert TakePicture(PictureRequest(CLUSTER, A_REST, most=0)) in effects
    shown = Picture(sidecar.now, A_REST, (job(),))
    state, _ = step(ASSESSING, state, PictureTaken(sidecar.moment, CLUSTER, A_REST, shown))
    remembered = state.clusters[CLUSTER].picture
    assert remembered
    assert remembered.left_out


def test_many_clusters_are_asked_less_often() -> None:
    """Ten at the interval of the configuration, a hundred at ten times that, thousands every five minutes."""
    state, _ = rest_server.due(ASSESSING, CLUSTER, cluster(), None, at(0), 1)
    assert state.picture_request
    state = replace(state, picture_request=replace(state.picture_request, waiting=False))
    for watched, seconds in ((10, 10), (11, 20), (100, 100), (5_000, 300)):
        assert rest_server.due(ASSESSING, CLUSTER, state, None, at(seconds - 1), watched)[1] is None
        assert rest_server.due(ASSESSING, CLUSTER, state, None, at(seconds), watched)[1]
