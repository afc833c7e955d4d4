"""Drills as time passes: one that is written in the store begins, its window ends, and what it measured is recorded.

A drill hides alerts as the silence that it is (see `suppression`). Here its message is queued, records are collected, and alerts that
still fire when the window ends are notified at once.
"""

from collections.abc import Iterable, Mapping
from typing import Final

from msgspec.structs import replace

from sidecar.core.alerting import alerting_step, grouping
from sidecar.core.alerting.alerts import Reason
from sidecar.core.alerting.reactions import NO_DRILLS, Drills
from sidecar.core.alerting.suppression import Silence
from sidecar.core.cluster.cluster_state import ClusterState, Drilled
from sidecar.core.drills.drill import RunningDrill, began, ended
from sidecar.core.drills.findings import SETTLING, Findings, Result, with_record
from sidecar.core.drills.messages import closing_messages, messages
from sidecar.core.failover import rest_server
from sidecar.core.failover.deaths import death_of
from sidecar.core.failover.episodes import Episode
from sidecar.core.leadership.unobserved import TICK
from sidecar.core.moment import SECOND, Moment
from sidecar.core.overlay import with_items
from sidecar.core.policy.policy import Policy, Store
from sidecar.core.records import record_id
from sidecar.core.state import Append, Effect, State, effects_of

SHORTEST: Final = 60 * SECOND
"""The shortest time between the messages of two drills of one cluster, whatever its store contains."""


def tick(policy: Policy, state: State, now: Moment) -> tuple[State, list[Effect]]:
    """The state after drills began or ended, and their records."""
    active = {
        silence.id: silence
        for name, document in state.silences.items()
        for silence in document.known.values()
        if silence.drilled_cluster in state.clusters and policy.silences_of(silence.drilled_cluster) == name
        if silence.is_active(now)
    }
    effects: list[Effect] = []
    for drill_id, running in state.drills.items():
        if running.over is None and drill_id not in active:
            over = replace(running, over=now)
            alerts = grouping.due_after_silence(state.alerts, drill_id, now)
            state = replace(state, drills={**state.drills, drill_id: over}, alerts=alerts)
            state, records = alerting_step.queued(policy, state, [*closing_messages(policy, running.began, now)], now)
            effects += effects_of(records)
    for running in state.drills.values():
        if running.over and not _awaits(state, running, running.over, now):
            state, record = _end(policy, state, running, running.over, now)
            effects.append(record)
    drilled = {running.began.cluster_id for running in state.drills.values()}
    for drill in active.values():
        if drill.id not in state.drills and drill.drilled_cluster not in drilled:
            drilled.add(drill.drilled_cluster)
            state, more = _begin(policy, state, drill, now)
            effects += more
    return _proven(policy, state, active), effects


def failovers_of(state: State, cluster_id: str) -> Drills:
    """The cluster's failovers that belong to its drills: the first one in each drill's window."""
    if not state.drills:
        return NO_DRILLS
    of_cluster = [running for running in state.drills.values() if running.began.cluster_id == cluster_id]
    proven = (running.findings for running in of_cluster if not running.findings.unproven)
    episodes = frozenset(findings.episode_id for findings in proven if findings.episode_id)
    return Drills(episodes, any(running.over is None and not running.findings.episode_id for running in of_cluster))


def with_records(state: State, effects: Iterable[Effect]) -> State:
    """The state in which drills have what was recorded of their clusters."""
    records = [effect.record for effect in effects if isinstance(effect, Append)] if state.drills else []
    if not records:
        return state
    drills = dict(state.drills)
    for drill_id, running in drills.items():
        findings = running.findings
        for record in records:
            findings = with_record(findings, running.began, record, running.over.wall if running.over else None)
        if findings is not running.findings:
            drills[drill_id] = replace(running, findings=findings)
    return replace(state, drills=drills)


def _proven(policy: Policy, state: State, active: Mapping[str, Silence]) -> State:
    """The state in which drills are causal as soon as that is known, and the leader is asked for what proves it."""
    for drill_id, running in state.drills.items():
        drill, name = active.get(drill_id), running.began.cluster_id
        if drill is None or drill.causal or (cluster := state.clusters.get(name)) is None:
            continue
        episode_id = running.findings.episode_id
        if episode_id is None:
            # Blind: a failover was in progress when the drill began, and this leader may be the next one.
            causal = not running.findings.blind and _lived(cluster, running.since)
            asked = cluster if causal else rest_server.hastened(policy, cluster, running.since.steady)
            if asked is not cluster:
                state = replace(state, clusters=with_items(state.clusters, {name: asked}))
        else:
            own = cluster.failover(episode_id)
            causal = own is not None and _began_after(policy, name, cluster, own, running.since)
        if causal:
            state = _with_causal(policy, state, drill)
        unproven = episode_id is not None and not causal
        if unproven is not running.findings.unproven:
            running = replace(running, findings=replace(running.findings, unproven=unproven))  # noqa: PLW2901
            state = replace(state, drills={**state.drills, drill_id: running})
    return state


def _with_causal(policy: Policy, state: State, drill: Silence) -> State:
    name = policy.silences_of(drill.drilled_cluster)
    assert name is not None  # noqa: S101  an active drill has a document
    document = state.silences[name]
    known = {**document.known, drill.id: replace(drill, causal=True)}
    return replace(state, silences={**state.silences, name: replace(document, known=known)})


def _begin(policy: Policy, state: State, drill: Silence, now: Moment) -> tuple[State, list[Effect]]:
    deliveries = [*messages(policy, drill, now)]
    receivers = tuple(delivery.destination for delivery in deliveries if delivery.reason is Reason.DRILL)
    record = began(policy, drill, receivers, now)
    # A failover in progress is none of this drill's, as far as this sidecar can know: one that was there before has the answer.
    running = RunningDrill(
        record, now, findings=Findings(blind=state.clusters[drill.drilled_cluster].episode is not None)
    )
    state, records = alerting_step.queued(policy, state, deliveries, now)
    return replace(state, drills={**state.drills, drill.id: running}), effects_of([record, *records])


def _awaits(state: State, running: RunningDrill, over: Moment, now: Moment) -> bool:
    """Whether more may become known of a drill whose window is over: the end of its failover, the verdict, who got its message."""
    if now.steady < running.since.steady + SHORTEST:
        return True
    cluster = state.clusters.get(running.began.cluster_id)
    if cluster is None or now.steady >= over.steady + SETTLING:
        return False
    waiting = any(
        delivery.fingerprint == running.began.drill_id and delivery.reason is Reason.DRILL
        for delivery in state.outbox.values()
    )
    return waiting or _awaits_failover(cluster, running)


def _awaits_failover(cluster: ClusterState, running: RunningDrill) -> bool:
    episode_id, last = running.findings.episode_id, cluster.last_episode
    if episode_id is None:
        return False
    if cluster.episode or cluster.recovery:
        return True
    return bool(last and last.id == episode_id and last.death is None and death_of(cluster, last))


def _end(policy: Policy, state: State, running: RunningDrill, over: Moment, now: Moment) -> tuple[State, Append]:
    record = ended(policy, running, over, now)
    drills = {key: other for key, other in state.drills.items() if key != record.drill_id}
    state = replace(state, drills=drills)
    cluster = state.clusters.get(record.cluster_id)
    if cluster and record.result == Result.PASSED:
        passed = Drilled(cluster.drilled.since, over.wall, record_id("passed", record.drill_id))
        clusters = {**state.clusters, record.cluster_id: replace(cluster, drilled=passed)}
        state = replace(state, clusters=clusters)
    return state, Append(record)


# -- whether the failover began after the drill was read ---------------------------------------------------------------
#
# A store notices late that a leader has died: ZooKeeper when its session ends, Kubernetes when its lease is not renewed any more. So a
# drill that is written after a crash, and read before the store notices, must hide nothing.

FLINKS_TIMEOUT: Final = 60 * SECOND
"""`high-availability.zookeeper.client.session-timeout`, if it is not configured."""


def _lived(cluster: ClusterState, since: Moment) -> bool:
    """Whether the present leader has lived after `since`, where no loss was observed since then: its REST server has answered a later
    request, or it has renewed its lease. What is read after a reconnection may have happened before it.
    """
    if cluster.episode is not None or not cluster.leaders_in_sight or cluster.view.connected_at > since.steady:
        return False
    asked = cluster.picture_request
    answered = asked and asked.leader == cluster.rest_leader and asked.at > since.steady
    if asked and answered and not asked.waiting and not asked.failures:
        return True
    return any(lease.renewed_at is not None and lease.renewed_at > since.steady for lease in cluster.leases.values())


def _began_after(policy: Policy, cluster_id: str, cluster: ClusterState, episode: Episode, since: Moment) -> bool:
    """Whether the failover began after `since`: the leader withdrew in order, its process ended later, or the store cannot be so late."""
    parts = [state.absence for state in cluster.components.values() if state.absence]
    if any(part.withdrew and part.left_at > since.steady for part in parts if part.episode_id == episode.id):
        return True
    death = death_of(cluster, episode)
    if death and death.ended_at is not None and death.ended_at > since.wall:
        return True
    if policy.store_of(cluster_id) is not Store.ZOOKEEPER:
        return False
    loss = cluster.view.loss
    if loss and loss.ended is None:
        return False
    # After an outage ZooKeeper restarts the timeout of all sessions.
    counted_from = max(since.steady, loss.ended.steady) if loss and loss.ended else since.steady
    timeout = policy.session_timeouts.get(cluster_id, FLINKS_TIMEOUT)
    return episode.opened_at.steady - counted_from > max(timeout, 2 * TICK) + TICK
