"""A published leader whose REST server does not answer any more: when that is said, when it is over, and of whom it is never said."""

import heapq
from collections.abc import Iterator
from itertools import pairwise
from random import Random
from typing import Final, NamedTuple
from uuid import UUID

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from sidecar.core import handover
from sidecar.core.alerting.alerting_step import Send
from sidecar.core.cluster.cluster_state import ClusterState, RestServer, Unanswered
from sidecar.core.failover import rest_server
from sidecar.core.failover.rest_server import LEAST_REQUESTS
from sidecar.core.flink.deployments import FlinkDeployment, Reconciliation
from sidecar.core.flink.leadership import LeaderInformation
from sidecar.core.moment import SECOND, Moment
from sidecar.core.observations import (
    DeliveryOutcome,
    DeliverySettled,
    DeploymentObserved,
    HandoverRead,
    Observation,
    PictureTaken,
    Ticked,
)
from sidecar.core.pictures import Picture
from sidecar.core.policy.policy import Rule
from sidecar.core.policy.routing import Route
from sidecar.core.policy.triggers import Trigger
from sidecar.core.reach import Reach
from sidecar.core.state import TakePicture
from sidecar.core.step import step
from tests.core.cluster.pictures import ASSESSING, job, reaches, shows
from tests.kit.cluster import CLUSTER, A, B, JobManager
from tests.kit.core_sidecar import POLICY, Sidecar, fail_over, watching
from tests.kit.fake_flink import Flink
from tests.kit.groups import examples

FOR: Final = 8 * SECOND
SILENT: Final = Rule("FlinkLeaderSilent", Trigger.LEADER_SILENT, hold_for=FOR)
WATCHING: Final = replace(ASSESSING, rules=(SILENT,), route=Route("ops", group_wait=0, group_interval=SECOND))
A_AGAIN: Final = replace(A, session_id=UUID(int=77))
"""Another term, at the same address."""
ANSWERS, HANGS, AWAY = Reach.ANSWERS, Reach.SILENT, Reach.UNREACHABLE


def scene() -> tuple[Flink, Sidecar]:
    """A leads, and nothing was asked yet."""
    flink, sidecar = watching(policy=WATCHING)
    sidecar.sent.clear()
    return flink, sidecar


def is_asked(sidecar: Sidecar, reach: Reach | None, seconds: int) -> None:
    """Each request takes a second."""
    for _ in range(seconds):
        sidecar.waits(1, tick=0.5)
        reaches(sidecar, reach, 1)
    sidecar.waits(0.5, tick=0.5)


def said(sidecar: Sidecar) -> list[tuple[str, str]]:
    """Reason of what was sent, and what had changed."""
    return [(delivery.reason.value, delivery.body.split("\n")[0]) for delivery in sidecar.sent]


def server(sidecar: Sidecar) -> RestServer | None:
    return sidecar.state.clusters[CLUSTER].rest_server


# -- one request -------------------------------------------------------------------------------------------------------

T: Final = 100 * SECOND
LEADER: Final = LeaderInformation("http://jm-a:8081", UUID(int=1))
SAME_PLACE: Final = LeaderInformation("http://jm-a:8081", UUID(int=2))
SAME_TERM: Final = LeaderInformation("http://jm-c:8081", UUID(int=1))
OTHER: Final = LeaderInformation("http://jm-b:8081", UUID(int=3))


def hung(requests: int, leader: LeaderInformation = LEADER, since: int = T - 9 * SECOND) -> RestServer:
    """So many requests were not answered, the last one until a second ago."""
    return RestServer(leader, Unanswered(Moment(since, since), T - SECOND, HANGS, requests))


class Cell(NamedTuple):
    """What is known of the server that answered last, how far the next request gets, and what is known then."""

    before: RestServer | None
    reach: Reach | None
    after: RestServer | None


def failed(requests: int, reach: Reach = HANGS, since: int = T - 2 * SECOND) -> RestServer:
    """So it is after a request that was sent two seconds ago."""
    return RestServer(LEADER, Unanswered(Moment(since, since), T, reach, requests))


CELLS: Final = {
    "the first answer": Cell(None, ANSWERS, RestServer(LEADER)),
    "another answer": Cell(RestServer(LEADER), ANSWERS, RestServer(LEADER)),
    "never answered, hangs": Cell(None, HANGS, None),
    "never answered, away": Cell(None, AWAY, None),
    "stops to answer": Cell(RestServer(LEADER), HANGS, failed(1)),
    "is gone": Cell(RestServer(LEADER), AWAY, failed(1, AWAY)),
    "goes on hanging": Cell(hung(1), HANGS, failed(2, since=T - 9 * SECOND)),
    "goes on hanging, then is gone": Cell(hung(1), AWAY, failed(2, AWAY, since=T - 9 * SECOND)),
    "is proven, and not counted on": Cell(hung(LEAST_REQUESTS), HANGS, failed(LEAST_REQUESTS, since=T - 9 * SECOND)),
    "answers again": Cell(hung(LEAST_REQUESTS), ANSWERS, RestServer(LEADER)),
    "not asked": Cell(hung(2), None, hung(2)),
    "another one had answered": Cell(RestServer(OTHER), HANGS, RestServer(OTHER)),
    "another one had hung": Cell(hung(LEAST_REQUESTS, OTHER), HANGS, hung(LEAST_REQUESTS, OTHER)),
    "another one had hung, this one answers": Cell(hung(2, OTHER), ANSWERS, RestServer(LEADER)),
    "answered in an earlier term": Cell(RestServer(SAME_PLACE), AWAY, failed(1, AWAY)),
    "hung in an earlier term": Cell(hung(LEAST_REQUESTS, SAME_PLACE), HANGS, failed(1)),
    "answered at its earlier address": Cell(RestServer(SAME_TERM), HANGS, failed(1)),
}


def led_cluster(before: RestServer | None, **more: object) -> ClusterState:
    """A cluster that A leads, since a minute ago."""
    _, sidecar = watching(policy=POLICY)
    cluster = sidecar.state.clusters[CLUSTER]
    components = {
        component: replace(state, leadership=replace(state.leadership, leader=LEADER))
        for component, state in cluster.components.items()
    }
    view = replace(cluster.view, turned_at=Moment(T - 60 * SECOND, 0))
    return replace(cluster, components=components, view=view, rest_server=before, **more)


@pytest.mark.parametrize("cell", CELLS.values(), ids=[*CELLS])
def test_each_request_changes_what_is_known_so(cell: Cell) -> None:
    """By how far it got, and what its server did before."""
    cluster, sent = led_cluster(cell.before), Moment(T - 2 * SECOND, T - 2 * SECOND)
    taken = PictureTaken(Moment(T, T), CLUSTER, LEADER.address, None, "no description", cell.reach, sent)
    after = rest_server.observed(ASSESSING, cluster, taken)
    assert after.rest_server == cell.after
    if cell.after == cell.before:
        assert after is cluster, "the journal has nothing to write"
    assert rest_server.observed(POLICY, cluster, taken) is cluster, "it is not among the evidence"


def test_a_picture_is_an_answer() -> None:
    """Whoever took it."""
    taken = PictureTaken(Moment(T, T), CLUSTER, LEADER.address, Picture(T, LEADER.address))
    assert rest_server.observed(ASSESSING, led_cluster(hung(2)), taken).rest_server == RestServer(LEADER)


@pytest.mark.parametrize(("requests", "since"), [(1, T - 2 * SECOND), (LEAST_REQUESTS, T - 9 * SECOND)])
def test_what_was_not_proven_before_a_blindness_begins_anew(requests: int, since: int) -> None:
    """Nobody looked in between. What was proven goes on until it answers."""
    cluster = led_cluster(hung(requests))
    cluster = replace(cluster, view=replace(cluster.view, turned_at=Moment(T - SECOND // 2, 0)))
    sent = Moment(T - 2 * SECOND, T - 2 * SECOND)
    taken = PictureTaken(Moment(T, T), CLUSTER, LEADER.address, None, None, HANGS, sent)
    after = rest_server.observed(ASSESSING, cluster, taken).rest_server
    assert after
    assert after.unanswered == Unanswered(Moment(since, since), T, HANGS, requests)


# -- what people are notified of ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("reach", "title", "words"),
    [
        (HANGS, "the leader does not answer: jm-a", "accepts connections but has answered nothing since"),
        (AWAY, "the leader cannot be reached: jm-a", "cannot be reached since"),
    ],
)
def test_a_hanging_leader_and_one_that_cannot_be_reached_are_distinguished(
    reach: Reach, title: str, words: str
) -> None:
    """After eight seconds, and when it answers again."""
    _, sidecar = scene()
    is_asked(sidecar, ANSWERS, 1)
    is_asked(sidecar, reach, 7)
    assert said(sidecar) == []
    is_asked(sidecar, reach, 1)
    assert said(sidecar) == [("FIRST", f"{title}")]
    assert words in sidecar.sent[0].body
    assert "jm-a:8081" in sidecar.sent[0].body
    is_asked(sidecar, ANSWERS, 1)
    sidecar.waits(2)
    assert said(sidecar)[1:] == [("RESOLVED", "the leader answers again: jm-a")]
    assert "answers again since" in sidecar.sent[1].body


def test_it_is_named_by_what_was_seen_last() -> None:
    """A connection that is kept looks as if it hung when its host is gone: the next one says so."""
    _, sidecar = scene()
    is_asked(sidecar, ANSWERS, 1)
    is_asked(sidecar, HANGS, 1)
    is_asked(sidecar, AWAY, 9)
    assert [title for _, title in said(sidecar)] == ["the leader cannot be reached: jm-a"]


@pytest.mark.parametrize("successor", [None, B, A_AGAIN], ids=["nobody", "another", "the same in another term"])
def test_another_leader_ends_it(successor: JobManager | None) -> None:
    """Also none: then other rules speak, and the incident goes on. It is not said that it answers."""
    flink, sidecar = scene()
    is_asked(sidecar, ANSWERS, 1)
    is_asked(sidecar, HANGS, 10)
    sidecar.sees(flink.vacate())
    if successor:
        sidecar.sees(flink.elect(successor))
    sidecar.waits(15)  # as long as the REST server of the next one is waited for
    reason = "RESOLVED" if successor else "SHRANK"
    assert said(sidecar)[1:] == [(reason, "the silent leader does not lead any more: jm-a")]


def test_if_it_is_not_asked_any_more_nothing_is_claimed() -> None:
    """`flink_rest` is removed from the configuration: neither that it answers, nor that another leads."""
    _, sidecar = scene()
    is_asked(sidecar, ANSWERS, 1)
    is_asked(sidecar, HANGS, 10)
    sidecar.policy = replace(WATCHING, evidence=POLICY.evidence)
    sidecar.waits(5)
    assert said(sidecar)[1:] == [("RESOLVED", "the leader is not asked any more")]


def test_a_leader_that_is_not_wanted_may_end() -> None:
    """Its FlinkDeployment is suspended: nothing fires, and what fires is over, without a word on what the leader does."""
    for seconds in (1, 10):
        _, sidecar = scene()
        is_asked(sidecar, ANSWERS, 1)
        is_asked(sidecar, HANGS, seconds)
        fired = len(said(sidecar))
        deployment = FlinkDeployment("u", 2, 2, Reconciliation.DEPLOYED, suspended=True)
        sidecar.observe(DeploymentObserved(sidecar.moment, CLUSTER, deployment))
        is_asked(sidecar, HANGS, 10)
        assert said(sidecar)[1:] == [("RESOLVED", "no leader is wanted for rest_server")] * fired


def test_one_that_never_answered_is_never_silent() -> None:
    """A network policy from the start, for an hour and over a failover; B answers, and then can."""
    flink, sidecar = scene()
    is_asked(sidecar, AWAY, 3600)
    fail_over(flink, sidecar)
    is_asked(sidecar, AWAY, 60)
    assert said(sidecar) == []
    is_asked(sidecar, ANSWERS, 1)
    is_asked(sidecar, AWAY, 9)
    assert len(said(sidecar)) == 1


def test_a_failure_that_was_long_is_no_silence_yet() -> None:
    """This sidecar was paused for a minute while it asked: nothing is said before it has asked again."""
    _, sidecar = scene()
    is_asked(sidecar, ANSWERS, 1)
    sidecar.waits(60)
    reaches(sidecar, HANGS, 60)
    sidecar.waits(5)
    assert said(sidecar) == []
    is_asked(sidecar, ANSWERS, 1)
    assert said(sidecar) == []


def test_without_further_requests_nothing_fires() -> None:
    """Eight seconds have to be seen, not only to pass: many clusters may wait."""
    _, sidecar = scene()
    is_asked(sidecar, ANSWERS, 1)
    is_asked(sidecar, HANGS, LEAST_REQUESTS)
    sidecar.waits(60)
    assert said(sidecar) == []


def test_a_blind_sidecar_says_nothing_of_it() -> None:
    """It does not fire, and one that fires goes on: it may have answered since."""
    _, sidecar = scene()
    is_asked(sidecar, ANSWERS, 1)
    is_asked(sidecar, HANGS, 6)
    sidecar.is_cut_off()
    is_asked(sidecar, HANGS, 20)
    assert said(sidecar) == []
    sidecar.connects()
    is_asked(sidecar, HANGS, 9)
    sidecar.is_cut_off().waits(60)
    assert [reason for reason, _ in said(sidecar)] == ["FIRST"]
    sidecar.connects()
    is_asked(sidecar, ANSWERS, 1)
    sidecar.waits(5)
    assert [reason for reason, _ in said(sidecar)] == ["FIRST", "RESOLVED"]


@pytest.mark.parametrize("is_replaced", [False, True], ids=["restarted", "replaced"])
def test_it_survives_the_sidecar(is_replaced: bool) -> None:
    """The next process goes on, from the journal or from the handover: it neither ends the alert nor repeats it, and knows who answered."""
    _, sidecar = scene()
    is_asked(sidecar, ANSWERS, 1)
    is_asked(sidecar, HANGS, 10)
    (sidecar.is_replaced if is_replaced else sidecar.is_killed)(down_for=3).connects()
    sidecar.waits(5)
    is_asked(sidecar, HANGS, 20)
    assert [reason for reason, _ in said(sidecar)] == ["FIRST"]
    is_asked(sidecar, ANSWERS, 1)
    sidecar.waits(5)
    assert said(sidecar)[1:] == [("RESOLVED", "the leader answers again: jm-a")]
    (sidecar.is_replaced if is_replaced else sidecar.is_killed)(down_for=3).connects()
    is_asked(sidecar, AWAY, 10)
    assert said(sidecar)[2:] == [("FIRST", "the leader cannot be reached: jm-a")]


@pytest.mark.parametrize("ends", ["an answer", "another leader"])
def test_what_another_sidecar_was_answered_is_nothing_to_this_one(ends: str) -> None:
    """It still runs, elsewhere in the network: an alert that it fires is taken over until this one knows better, and none begins."""
    flink, theirs = scene()
    is_asked(theirs, ANSWERS, 1)
    content = handover.written(CLUSTER, handover.cluster_handover(theirs.policy, theirs.state, CLUSTER, theirs.moment))
    ours = reader(flink, theirs, content)
    is_asked(ours, AWAY, 60)
    assert said(ours) == []
    is_asked(theirs, HANGS, 10)
    ours = reader(
        flink,
        theirs,
        handover.written(CLUSTER, handover.cluster_handover(theirs.policy, theirs.state, CLUSTER, theirs.moment)),
    )
    is_asked(ours, AWAY, 60)
    assert said(ours) == []
    if ends == "an answer":
        is_asked(ours, ANSWERS, 1)
    else:
        fail_over(flink, ours)
    ours.waits(5)
    title = "the leader answers again" if ends == "an answer" else "the silent leader does not lead any more"
    reasons = ["RESOLVED"] if ends == "an answer" else ["SHRANK", "RESOLVED"]
    assert said(ours) == [(reason, f"{title}: jm-a") for reason in reasons]


def reader(flink: Flink, other: Sidecar, content: bytes) -> Sidecar:
    """A sidecar with another name, which begins with what `other` left."""
    ours = Sidecar(flink, replace(other.policy, observer="sidecar-1"))
    ours.now = other.now
    ours.observe(HandoverRead(ours.moment, CLUSTER, content))
    return ours.connects()


def test_a_handover_does_not_prove_a_silence() -> None:
    """Others can write it: the reader has to see it itself."""
    _, sidecar = scene()
    is_asked(sidecar, ANSWERS, 1)
    is_asked(sidecar, HANGS, 10)
    left = handover.cluster_handover(sidecar.policy, sidecar.state, CLUSTER, sidecar.moment)
    read = handover.read(handover.written(CLUSTER, left), CLUSTER, sidecar.moment)
    assert read
    assert read.cluster.rest_server
    assert read.cluster.rest_server.unanswered
    assert read.cluster.rest_server.unanswered.requests == 0
    assert (
        rest_server.proven_until(replace(sidecar.state.clusters[CLUSTER], rest_server=read.cluster.rest_server)) is None
    )


# -- when it is asked --------------------------------------------------------------------------------------------------


class Asked(NamedTuple):
    """A request, and how it went."""

    at: float
    reach: Reach
    at_once: bool


class Busy(NamedTuple):
    """A leader's REST server: from when to when its process pauses, and how long an answer takes otherwise (seconds)."""

    pauses: list[tuple[float, float]]
    takes: float = 0.02
    errors: bool = False
    """Each seventh answer is one."""

    def answer(self, at: float) -> tuple[float, Reach]:
        """When a request of that moment is done, and how far it got. It may take two seconds."""
        end = next((end for begin, end in self.pauses if begin <= at < end), at) + self.takes
        return (end, ANSWERS) if end - at < 2 else (at + 2, HANGS)


def lives(server: Busy, seconds: float, rule: Rule = SILENT) -> tuple[list[Asked], list[tuple[float, str]]]:
    """The requests of a sidecar, and what it sends and when. As in `run`, each answer is followed by a tick."""
    _, sidecar = scene()
    policy, state, start = replace(WATCHING, rules=(rule,)), sidecar.state, sidecar.now
    requests: list[Asked] = []
    sent: list[tuple[float, str]] = []
    events: list[tuple[float, int, PictureTaken | None]] = [(0.0, 0, None)]
    number, now = 0, 0.0
    while now < seconds:
        now, _, taken = heapq.heappop(events)
        at = Moment(start + round(now * SECOND), start + round(now * SECOND))
        observations: list[Observation] = [replace(taken, at=at), Ticked(at)] if taken else [Ticked(at)]
        while observations:
            state, effects = step(policy, state, observations.pop(0))
            for effect in effects:
                if isinstance(effect, Send):
                    sent.append((now, effect.delivery.reason.value))
                    observations.append(DeliverySettled(at, effect.delivery.id, DeliveryOutcome.DELIVERED))
                elif isinstance(effect, TakePicture):
                    number += 1
                    done, reach = server.answer(now)
                    requests.append(Asked(now, reach, effect.request.at_once))
                    answer = PictureTaken(at, CLUSTER, effect.request.address, None, "status 503", reach, at)
                    if reach is ANSWERS and (number % 7 or not server.errors):
                        answer = replace(answer, picture=Picture(at.wall, effect.request.address, (job(),)))
                    heapq.heappush(events, (done, number, answer))
        if taken is None:  # nothing is due in between
            cluster = state.clusters[CLUSTER]
            is_calm = len(events) == 0 and cluster.rest_server == RestServer(cluster.rest_leader)  # type: ignore[arg-type]
            heapq.heappush(events, (now + (2.5 if is_calm else 0.5), -1, None))
    return requests, sent


def test_a_leader_that_stops_answering_is_asked_without_a_pause() -> None:
    """For 30 s, one request at a time; then each minute; and as before once it answers."""
    requests, _ = lives(Busy([(61, 400)]), 600)
    first = next(index for index, request in enumerate(requests) if request.reach is HANGS)
    since = requests[first].at
    hurried = [request for request in requests[first + 1 :] if request.at - since < 30]
    assert all(request.at_once for request in hurried)
    assert len(hurried) == 14  # two seconds each
    later = [request for request in requests if request.at - since >= 30 and request.reach is HANGS]
    gaps = [after.at - before.at for before, after in pairwise(later)]
    assert gaps
    assert all(60 <= gap < 61 for gap in gaps)
    calm = [request for request in requests if request.at > 470]
    assert {request.at_once for request in calm} == {False}
    assert all(10 <= after.at - before.at < 13 for before, after in pairwise(calm))


@pytest.mark.parametrize("begins", [float(60 + tenth / 2) for tenth in range(24)])
def test_a_pause_of_20_seconds_is_always_seen(begins: float) -> None:
    """Whenever it begins between two requests; and its end."""
    _, sent = lives(Busy([(begins, begins + 20)]), 200)
    assert [reason for _, reason in sent] == ["FIRST", "RESOLVED"]
    assert sent[0][0] < begins + 20


BURST: Final = 0.3
"""Seconds in which it works at the least between two pauses."""


def pauses(random: Random, seconds: float) -> Iterator[tuple[float, float]]:
    """A heap that is too small: pauses of up to 7.5 seconds, often several in a row."""
    now = 60.0
    while now < seconds:
        length = random.uniform(0.2, 7.5)
        yield now, now + length
        in_a_row = random.random() < 0.4
        now += length + (random.uniform(BURST, 2) if in_a_row else random.expovariate(1 / 45))


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_a_busy_day_is_no_false_alarm_and_a_real_silence_in_it_is_one(seed: int) -> None:
    """24 hours with more than a thousand pauses of up to 7.5 s, and errors: nothing. With one of 20 s: one alert; with `for: 4s`: many."""
    day, random = 24 * 3600.0, Random(seed)
    busy = Busy([*pauses(random, day)], takes=0.4, errors=True)
    requests, sent = lives(busy, day)
    unanswered = sum(request.reach is HANGS for request in requests)
    assert sent == []
    assert len(busy.pauses) > 1000
    assert unanswered > 500
    assert len(lives(busy, day, replace(SILENT, hold_for=4 * SECOND))[1]) > 20
    begins = random.uniform(3600, 7200)
    real = sorted(
        [(begins, begins + 20), *(request for request in busy.pauses if not begins - 10 < request[0] < begins + 30)]
    )
    _, sent = lives(busy._replace(pauses=real, errors=False), 10_000)
    assert [reason for _, reason in sent] == ["FIRST", "RESOLVED"]


# -- whatever happens --------------------------------------------------------------------------------------------------

ACTS: Final = (
    "answers",
    "hangs",
    "away",
    "not asked",
    "blind",
    "sees",
    "elect A",
    "elect B",
    "A again",
    "vacate",
    "kill",
)


class Judge:
    """Knows by itself who may be called silent: from what was done, second by second."""

    def __init__(self) -> None:
        self.leader: JobManager | None = A
        self.blind = False
        self.answered: set[object] = set()
        """Terms and hosts that have answered last: those of one server."""
        self.failed: list[int] = []
        """When the requests since the last answer of this leader began."""
        self.ended = 0

    def is_changed(self, leader: JobManager | None) -> None:
        if leader != self.leader:
            self.leader, self.failed = leader, []

    def hears(self, reach: Reach | None, now: int) -> None:
        if reach is None or self.leader is None or self.blind:
            return
        names = {self.leader.session_id, self.leader.host}
        if reach is ANSWERS:
            self.answered, self.failed = names, []
        elif names & self.answered:
            self.answered |= names
            self.failed.append(now - SECOND)
            self.ended = now

    def may_fire(self) -> bool:
        in_a_row = len(self.failed) >= LEAST_REQUESTS and self.ended - self.failed[0] >= FOR
        return self.leader is not None and not self.blind and in_a_row

    def is_over(self) -> bool:
        return not self.blind and not self.failed


@given(st.lists(st.tuples(st.sampled_from(ACTS), st.integers(1, 12)), max_size=14))
@settings(deadline=None, max_examples=examples(120))
def test_whatever_happens_it_is_said_only_of_a_published_leader_that_answered_and_stopped(
    acts: list[tuple[str, int]],
) -> None:
    """By an independent count; it is over as soon as it answers, or another leads; and never begins or ends while blind."""
    flink, sidecar = scene()
    judge = Judge()
    reach = {"answers": ANSWERS, "hangs": HANGS, "away": AWAY, "not asked": None}
    for act, seconds in [("answers", 1), *acts]:
        if act in reach:
            for _ in range(seconds):
                sidecar.waits(1, tick=0.5)
                reaches(sidecar, reach[act], 1)
                judge.hears(reach[act], sidecar.now - 1000)
                check(sidecar, judge)
        elif act == "blind":
            sidecar.is_cut_off().waits(4)
            judge.blind = True
        elif act == "sees":
            sidecar.connects()
            judge.blind = False
        elif act == "kill":
            sidecar.is_killed().connects()
            judge.blind = False
        elif not judge.blind:
            leader = {"elect A": A, "elect B": B, "A again": A_AGAIN}.get(act)
            if leader != judge.leader:
                flink.vacate()
                if leader:
                    flink.elect(leader)
                sidecar.sees_changes()
            judge.is_changed(leader)
        check(sidecar, judge)


def check(sidecar: Sidecar, judge: Judge) -> None:
    """What fires now, and what may."""
    before = fires(sidecar)
    sidecar.waits(0.5, tick=0.5)
    after = fires(sidecar)
    if judge.blind:
        assert after == before
    elif after and not before:
        assert judge.may_fire()
    elif judge.is_over() or judge.leader is None:
        assert not after
    elif judge.may_fire():
        assert after


def fires(sidecar: Sidecar) -> bool:
    return any(key[0] == SILENT.alert for key in sidecar.state.alerts.active())


def test_a_description_ends_the_suspicion() -> None:
    """A whole picture is an answer as well."""
    _, sidecar = scene()
    is_asked(sidecar, ANSWERS, 1)
    is_asked(sidecar, HANGS, 2)
    assert server(sidecar) != RestServer(sidecar.state.clusters[CLUSTER].rest_leader)  # type: ignore[arg-type]
    shows(sidecar, job())
    assert server(sidecar) == RestServer(sidecar.state.clusters[CLUSTER].rest_leader)  # type: ignore[arg-type]
