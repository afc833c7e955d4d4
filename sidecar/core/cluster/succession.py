"""One cluster passes from one sidecar to the next: what the first one leaves behind, and what the second one begins with."""

from typing import Final

from msgspec.structs import replace

from sidecar.core.cluster.cluster_state import ClusterState, ComponentState, View, fresh_cluster, last_known_state
from sidecar.core.failover import assessment, plans
from sidecar.core.failover.episodes import Episode
from sidecar.core.flink.leadership import Held, Vacant
from sidecar.core.leadership import downtime
from sidecar.core.leadership.downtime import Downtime, Gone, LastLed
from sidecar.core.leadership.leadership_account import Standing, changed, opened
from sidecar.core.moment import Moment
from sidecar.core.policy.policy import Policy

_DEPARTURE: Final = (
    *("orderly", "left", "withdrawn", "released", "not_renewed_for", "deleted"),
    *("unseen", "opened", "loss", "contended", "quiet_end"),
)
"""The facts about how a failover began."""


def hand_over(policy: Policy, cluster_id: str, cluster: ClusterState, now: Moment) -> ClusterState:
    """The state that the next sidecar needs: the last leaders, until when at the earliest they led, and the failover in progress. The view
    is left out: each sidecar has its own.
    """
    last = cluster.last_episode
    if last and last.death:  # it is recorded
        last = replace(last, closed_at=None)
    return replace(
        fresh_cluster(now),
        components={
            component: _handed_over(policy, cluster_id, cluster, state, now)
            for component, state in cluster.components.items()
        },
        leases={name: lease for name, lease in cluster.leases.items() if lease.lapsed},
        episode=cluster.episode,
        last_episode=last,
        standby=cluster.standby,
        contested=cluster.contested,
        pods=cluster.pods,
        operated=plans.unread(cluster.operated, now),
        disruptions=cluster.disruptions,
        ends=cluster.ends,
        picture=assessment.expected(cluster),
        assessed=assessment.handed_over(cluster, now),
        job_faults=cluster.job_faults,
        rest_server=cluster.rest_server,
        drilled=cluster.drilled,
        account=changed(cluster.account or opened(now.steady), Standing.UNOBSERVED, now.steady, now.steady),
    )


def _handed_over(
    policy: Policy, cluster_id: str, cluster: ClusterState, state: ComponentState, now: Moment
) -> ComponentState:
    last_led, absence = state.last_led, state.absence
    match state.leadership:
        case Held(_, position):
            gone = Gone(position, now.steady, state.published_at, None, in_sight=cluster.in_sight)
            timeout = policy.session_timeouts.get(cluster_id)
            last_led = LastLed(downtime.last_led(gone, timeout, cluster.view.loss, cluster.leases).earliest, None)
        case Vacant() if absence and last_led and last_led.latest is not None:
            # What was observed of the vacancy counts; another leader may follow before the next sidecar looks.
            observed = Downtime(now.steady - last_led.latest, 0)
            absence = replace(absence, downtime=absence.downtime + observed)
            last_led = LastLed(last_led.earliest, None)
    return replace(last_known_state(state, now), last_led=last_led, absence=absence, seen_at=0)


def take_over(cluster: ClusterState, observer: str, now: Moment) -> ClusterState:
    """The cluster as `observer` handed it over: nothing has been read yet."""
    episode = cluster.episode
    if episode:
        episode = replace(episode, facts=replace(episode.facts, handed_over_by=observer))
    return replace(cluster, view=View(since=now, turned_at=now), episode=episode, handed_over_by=observer)


def informed(cluster: ClusterState, theirs: Episode | None, observer: str) -> ClusterState:
    """The cluster with what `observer` knows of the failover in progress, whose beginning was not observed here."""
    ours = cluster.episode
    if ours is None or theirs is None or ours.id != theirs.id or not ours.facts.unseen or theirs.facts.unseen:
        return cluster
    how_it_began = {name: getattr(theirs.facts, name) for name in _DEPARTURE}
    facts = replace(ours.facts, **how_it_began, handed_over_by=observer)
    return replace(cluster, episode=replace(ours, facts=facts))
