"""Requests to the leading REST server: which one is due, which answers are of use, and what it means that none comes.

A leader that is published, and whose REST server does not answer any more, hangs, has ended, or the network to it is gone. Only a server
that has answered this sidecar can fall silent: where a network policy keeps requests from it, nothing is known.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final

from msgspec.structs import replace

from sidecar.core.cluster.cluster_state import ClusterState, PictureRequested, RestServer, Unanswered
from sidecar.core.leadership.transitions import Kind, Transition
from sidecar.core.moment import SECOND, Moment
from sidecar.core.observations import PictureTaken
from sidecar.core.pictures import ENDED, MOST_HELD, NOT_HELD, OLDEST, Picture, PictureRequest
from sidecar.core.policy.policy import Policy, Source
from sidecar.core.reach import Reach

ASSESSED: Final = SECOND
"""The interval while a failover is assessed."""
PATIENT: Final = 30
"""How many failures in a row count as an election or a starting job while a failover is assessed. After that the interval doubles."""
LONGEST: Final = 300 * SECOND
"""The interval doubles with each failure, up to this one."""
SUSPECTED: Final = 30 * SECOND
"""How long a leader that stops answering is asked again at once, so that a rule can tell a pause from a silence."""
LONGEST_ONCE_ANSWERED: Final = 60 * SECOND
"""The longest interval for a leader that has answered, so that its silence, and the end of it, are seen in time."""
SHOWN_AFTER: Final = 60 * SECOND
LEAST_REQUESTS: Final = 3
"""How many unanswered requests in a row prove a silence. One alone may have failed because this sidecar itself was paused."""
TOGETHER: Final = 10
"""The most clusters that are asked at the configured interval; with more clusters, each is asked less often."""
_MOST_DOUBLED: Final = 10


def held(clusters: Iterable[ClusterState]) -> int:
    """How much of MOST_HELD these clusters take: a recovery that was judged needs the place of the picture that it was compared with."""
    return sum(map(_held, clusters))


def _held(cluster: ClusterState) -> int:
    sizes = [picture.size for picture in (cluster.picture, cluster.picture_now) if picture]
    return max([*sizes, len(cluster.assessed.rows) if cluster.assessed else 0])


def _most(cluster: ClusterState, all_held: int) -> int:
    """How much the next picture of a cluster may hold if all of them hold `all_held`. Twice as much as now while a failover is assessed:
    jobs and TaskManagers may have other ids then.
    """
    return max(0, MOST_HELD - all_held) + _held(cluster) * (2 if cluster.recovery else 1)


def due(
    policy: Policy, cluster_id: str, cluster: ClusterState, first: tuple[str, ...] | None, now: Moment, watched: int
) -> tuple[ClusterState, PictureRequest | None]:
    """The cluster, and the request that is due, for a picture of any size. One at a time; none unless a leading REST server is known.
    `first`: the jobs to ask for first while a failover is assessed; `watched`: how many clusters there are.
    """
    last = cluster.picture_request
    if last and last.waiting and now.steady - last.at < OLDEST:
        return cluster, None
    leader = cluster.rest_leader
    if leader is None:
        return cluster, None
    silence = unanswered(cluster)
    suspected = silence is not None and now.steady - silence.since.steady < SUSPECTED
    if last is None or last.leader != leader:
        failures = 0
    elif now.steady - last.at >= (
        ASSESSED if suspected else _pause(policy, watched, cluster, last, assessed=first is not None)
    ):
        failures = last.failures + last.waiting
    else:
        return cluster, None
    good_at, problem = (last.good_at, last.problem) if last else (now.steady, None)
    requested = PictureRequested(leader, now.steady, good_at, failures=failures, problem=problem)
    asked = replace(cluster, picture_request=requested)
    return asked, PictureRequest(
        *(cluster_id, leader.address, first or ()), thorough=first is not None, at_once=suspected
    )


def hastened(policy: Policy, cluster: ClusterState, since: int) -> ClusterState:
    """The cluster whose next request is due at once, if the last one was sent before `since` (steady) and is done."""
    last = cluster.picture_request
    if last is None or last.waiting or last.at > since:
        return cluster
    return replace(cluster, picture_request=replace(last, at=since - max(policy.picture_interval, LONGEST)))


def limited(clusters: Mapping[str, ClusterState], requests: Sequence[PictureRequest]) -> Iterator[PictureRequest]:
    """The requests, each with what there is room for. Answers to several at once may take more, and are bounded when they come."""
    all_held = held(clusters.values()) if requests else 0
    for request in requests:
        yield replace(request, most=_most(clusters[request.cluster_id], all_held))


def bounded(clusters: Mapping[str, ClusterState], answer: PictureTaken) -> PictureTaken:
    """The answer, whose picture is left out if it does not fit beside those of the other clusters."""
    picture, cluster = answer.picture, clusters[answer.cluster_id]
    if picture and picture.size > _held(cluster):
        picture = picture.bounded(_most(cluster, held(clusters.values())))
    if picture is None or not picture.left_out:
        return answer
    return replace(answer, picture=picture, problem=f"its description was left out: {NOT_HELD}")


def answered(cluster: ClusterState, answer: PictureTaken) -> tuple[ClusterState, PictureTaken | None]:
    """The cluster, and the answer as far as it is of use: None if another leader leads now than when it was asked."""
    last, leader = cluster.picture_request, cluster.rest_leader
    if answer.picture and _is_of_another(cluster, answer.picture):
        answer = replace(
            answer,
            picture=None,
            reach=None,
            problem="the REST server describes another cluster: all of its jobs are unknown in the store",
        )
    if last is None or not last.waiting:  # nobody asked: it counts if it is an answer of the leader
        return cluster, answer if leader and leader.address == answer.address else None
    if last.leader.address != answer.address:
        return cluster, None
    if answer.picture and not answer.picture.left_out:
        settled = replace(last, waiting=False, failures=0, good_at=answer.at.steady, problem=None)
    else:
        settled = replace(last, waiting=False, failures=last.failures + 1, problem=answer.problem)
    return replace(cluster, picture_request=settled), answer if leader == last.leader else None


def observed(policy: Policy, cluster: ClusterState, answer: PictureTaken) -> ClusterState:
    """The cluster after a request to its leading REST server is done."""
    leader, server = cluster.rest_leader, cluster.rest_server
    reach = Reach.ANSWERS if answer.picture else answer.reach
    if leader is None or reach is None or Source.FLINK_REST not in policy.evidence:
        return cluster
    if reach is Reach.ANSWERS:
        after = RestServer(leader)
    elif server and (server.leader.session_id == leader.session_id or server.leader.address == leader.address):
        last = server.unanswered if server.leader == leader else None
        after = RestServer(leader, _unanswered_again(last, answer, reach, cluster.view.turned_at.steady))
    else:
        return cluster
    return cluster if after == server else replace(cluster, rest_server=after)


def _unanswered_again(last: Unanswered | None, answer: PictureTaken, reach: Reach, seeing_since: int) -> Unanswered:
    """`last` with one more unanswered request. Requests before this sidecar was blind, or was started again, count only if they proved a
    silence.
    """
    if last and last.requests < LEAST_REQUESTS and last.until < seeing_since:
        last = None
    if last is None or not last.requests:
        last = Unanswered(answer.asked_at or answer.at, 0, reach)
    return Unanswered(last.since, answer.at.steady, reach, min(last.requests + 1, LEAST_REQUESTS))


def failing(cluster: ClusterState, now: Moment) -> str | None:
    """Why no picture has come for a minute. None: one has, or nobody can be asked. An election takes less."""
    last = cluster.picture_request
    return last.problem if last and cluster.rest_leader and now.steady - last.good_at >= SHOWN_AFTER else None


def _pause(policy: Policy, watched: int, cluster: ClusterState, last: PictureRequested, *, assessed: bool) -> int:
    """The time from the last request to the next: of many clusters together not more are asked in a second than of TOGETHER."""
    interval = policy.picture_interval
    interval = ASSESSED if assessed else min(interval * max(1, -(-watched // TOGETHER)), max(interval, LONGEST))
    doubled = max(0, last.failures - PATIENT) if assessed else last.failures
    has_answered = cluster.rest_server is not None and cluster.rest_server.leader == last.leader
    longest = LONGEST_ONCE_ANSWERED if has_answered else LONGEST
    return max(interval, min(interval << min(doubled, _MOST_DOUBLED), longest))


def _is_of_another(cluster: ClusterState, picture: Picture) -> bool:
    """Whether the store knows jobs, and none of those that the picture shows: an address may now belong to another cluster."""
    job_ids = {job.id for job in picture.jobs if job.state not in ENDED}
    stored = {component.job_id for component in cluster.components if component.job_id}.union(cluster.stored_jobs)
    return bool(job_ids and stored) and job_ids.isdisjoint(stored)


def server_after(server: RestServer, transition: Transition) -> RestServer:
    """The server when its leadership changes, or is seen again: the silence of the same leader goes on, and has to be proven anew."""
    if server.unanswered is None or transition.kind is Kind.OBSCURED:
        return server
    at = transition.at
    return replace(server, unanswered=replace(server.unanswered, since=at, until=at.steady, requests=0))


def unanswered(cluster: ClusterState) -> Unanswered | None:
    """The requests to the published leader since it last answered. None: it has answered the last one, or never answered."""
    server = cluster.rest_server
    last = server.unanswered if server else None
    return last if last and server and server.leader == cluster.rest_leader else None


def proven_until(cluster: ClusterState) -> int | None:
    """The time (steady) until which the silence of the leader is proven. None: it is not."""
    silence = unanswered(cluster)
    return silence.until if silence and silence.requests >= LEAST_REQUESTS else None


def reach_after(cluster: ClusterState, reach: Reach) -> Reach | None:
    """How a silence with this `reach` ended: with an answer, or (None) the leader's term; `reach` itself: nobody asks any more."""
    server = cluster.rest_server
    if server is None and cluster.picture_request is None:
        return reach
    return Reach.ANSWERS if server and server.leader == cluster.rest_leader else None


def reach(cluster: ClusterState) -> Reach | None:
    """How far the last request to the published leader got. None: none was sent, or nothing has ever answered."""
    server = cluster.rest_server
    if server is None or server.leader != cluster.rest_leader:
        return None
    return server.unanswered.reach if server.unanswered else Reach.ANSWERS
