"""A leader that is published, and whose REST server does not answer any more: it hangs, it has ended, or the network to it is gone.

Only a server that has answered this sidecar can fall silent: where a network policy keeps requests from it, nothing is known.
"""

from typing import Final

from msgspec.structs import replace

from sidecar.core.cluster.leadership_table import Kind
from sidecar.core.cluster.state import ClusterState, RestServer, Unanswered
from sidecar.core.cluster.transitions import Transition
from sidecar.core.observations import PictureTaken
from sidecar.core.policy.policy import Policy, Source
from sidecar.core.reach import Reach

LEAST_REQUESTS: Final = 3
"""So many in a row prove a silence. A single one may have failed because this sidecar itself was paused."""


def observed(policy: Policy, cluster: ClusterState, taken: PictureTaken) -> ClusterState:
    """The cluster after a request to its leading REST server is done."""
    leader, server = cluster.rest_leader, cluster.rest_server
    reach = Reach.ANSWERS if taken.picture else taken.reach
    if leader is None or reach is None or Source.FLINK_REST not in policy.evidence:
        return cluster
    if reach is Reach.ANSWERS:
        after = RestServer(leader)
    elif server and (server.leader.session_id == leader.session_id or server.leader.address == leader.address):
        last = server.unanswered if server.leader == leader else None
        if last and last.requests < LEAST_REQUESTS and last.until < cluster.view.turned_at.steady:
            last = None  # not proven before this sidecar was blind, or started again
        if last is None or not last.requests:
            last = Unanswered(taken.asked_at or taken.at, 0, reach)
        requests = min(last.requests + 1, LEAST_REQUESTS)
        after = RestServer(leader, Unanswered(last.since, taken.at.steady, reach, requests))
    else:
        return cluster
    return cluster if after == server else replace(cluster, rest_server=after)


def after_transition(server: RestServer | None, transition: Transition) -> RestServer | None:
    """The server when its leadership changes, or is seen again: the silence of the same leader goes on, and has to be proven anew."""
    if server is None or server.unanswered is None or transition.kind is Kind.OBSCURED:
        return server
    at = transition.at
    return replace(server, unanswered=replace(server.unanswered, since=at, until=at.steady, requests=0))


def unanswered(cluster: ClusterState) -> Unanswered | None:
    """The requests to the published leader since it last answered. None: it has answered the last one, or never answered."""
    server = cluster.rest_server
    last = server.unanswered if server else None
    return last if last and server and server.leader == cluster.rest_leader else None


def proven_until(cluster: ClusterState) -> int | None:
    """Until when (steady) the silence of the leader is proven. None: it is not."""
    known = unanswered(cluster)
    return known.until if known and known.requests >= LEAST_REQUESTS else None


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
