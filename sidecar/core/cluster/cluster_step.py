"""One cluster: raw observations in, the next state and its records out.

The results of its checks of high availability are recorded when a verdict changes, and once a day. Its account of leadership
(`leadership_account`) is kept at the end of each step.

A found cluster that was removed: its leaderships are retired, and nothing is expected of it any more. A removal on purpose: the leaders
withdraw, then the cluster's place in the store is deleted (by Flink when its application ends, by the operator when its resource is
deleted). If the place is deleted while a leader is published there, its JobManager exits and another one creates the place again: that is
a failover. Only if nothing returns for REMOVED_AFTER, the cluster counts as removed.
"""

from collections.abc import Callable
from typing import Final, NamedTuple, assert_never

from msgspec.structs import replace

from sidecar.core.cluster.cluster_state import (
    ClusterState,
    Confirmed,
    Drilled,
    Missing,
    Sighting,
    TooOld,
    View,
    last_known_state,
)
from sidecar.core.cluster.draft import ClusterStep, Draft, Happened
from sidecar.core.cluster.record_writer import envelope
from sidecar.core.failover import deaths, ends, episodes, failover_in_progress, makers_there, plans
from sidecar.core.failover.plans import Disruption
from sidecar.core.flink.leadership import CLUSTER_COMPONENTS, ComponentId, Held, Unknown, Vacant
from sidecar.core.ha.finding import Verdict
from sidecar.core.ha.results import Checked, CheckResult, KnownCheck
from sidecar.core.leadership import configmap_leaders, leadership_changes, split_leadership, store_view, znode_leaders
from sidecar.core.leadership.leadership_account import Standing, changed, opened
from sidecar.core.leadership.leadership_changes import Reading, apply
from sidecar.core.leadership.leadership_table import Sight
from sidecar.core.leadership.store_view import COVERAGE_INTERVAL
from sidecar.core.moment import SECOND, Moment, timestamp
from sidecar.core.observations import (
    ChildrenObserved,
    ClusterObservation,
    ConfigMapObserved,
    ConnectionState,
    DeploymentObserved,
    DeploymentUnreadable,
    HaChecked,
    LeftOut,
    MakerObserved,
    MakersListed,
    NodeObserved,
    NodeRefused,
    NothingFound,
    NotProcessed,
    PlaceRemoved,
    PlanObservation,
    PodDisrupted,
    RightRefused,
    SnapshotCompleted,
    StoreObserved,
    StoreRefused,
    ViewConfirmed,
    ViewObserved,
    is_trace,
)
from sidecar.core.pods import host_of
from sidecar.core.policy.policy import Policy, Store
from sidecar.core.records import HaCheck, record_id

Act = Callable[[Policy, str, ClusterState, Moment], ClusterStep]


def observe(
    policy: Policy, cluster_id: str, cluster: ClusterState, observation: ClusterObservation | NotProcessed
) -> ClusterStep:
    """The cluster after `observation`, and what is to be recorded of it."""
    of_view = isinstance(observation, ViewObserved | StoreRefused)
    if not of_view and cluster.view.connection is not ConnectionState.CONNECTED:
        return cluster, []  # a late answer of a connection that is gone: all of it is read again on the next one
    draft = Draft(policy, cluster_id, cluster, observation.at)
    if is_trace(observation) and not isinstance(cluster.missing, TooOld):
        store_view.something_found(draft)
    match observation:
        case ViewObserved() | StoreRefused() | LeftOut():
            store_view.view_changed(draft, observation)
        case SnapshotCompleted():
            if policy.store_of(cluster_id) is Store.KUBERNETES:
                configmap_leaders.snapshot_completed(draft)
            store_view.snapshot_completed(draft)
        case NodeObserved() | PlaceRemoved() | NodeRefused() | ChildrenObserved():
            znode_leaders.observed(draft, observation)
        case NotProcessed():
            _not_processed(draft, observation, policy.store_of(cluster_id))
        case ViewConfirmed():
            until = observation.at.steady + observation.again_within + policy.trust_window
            draft.update(confirmed=Confirmed(observation.at, until))
            store_view.forget(draft)
        case NothingFound() if not cluster.ever_led:
            store_view.nothing_found(draft, Missing(observation.place, observation.beside))
        case StoreObserved():
            draft.update(zxid=observation.zxid)
        case ConfigMapObserved():
            configmap_leaders.config_map_observed(draft, observation)
    store_view.judge_version(draft)
    _led(draft)
    return draft.outcome()


def _not_processed(draft: Draft, observation: NotProcessed, store: Store) -> None:
    match store:
        case Store.KUBERNETES:
            configmap_leaders.not_processed(draft, observation)
        case Store.ZOOKEEPER:
            znode_leaders.not_processed(draft, observation)
        case _:
            assert_never(store)


def plan_observed(policy: Policy, cluster_id: str, cluster: ClusterState, observation: PlanObservation) -> ClusterStep:
    """The cluster after `observation`, also while its leaders cannot be read."""
    operated, disruptions, at = cluster.operated, cluster.disruptions, observation.at
    match observation:
        case DeploymentObserved(deployment=deployment, namespace=namespace):
            operated = plans.observed(operated, deployment, at, namespace=namespace)
        case MakerObserved(seen=seen) if plans.makes(operated, cluster_id, seen, *_hosts(cluster)):
            operated = plans.observed(operated, seen.deployment, at, seen.kind, seen.name, seen.namespace)
        case MakersListed(there=there):
            operated = makers_there.listed(cluster, cluster_id, there.get(cluster_id.rpartition("/")[0], ()), at)
        case RightRefused(right=right, refused=refused):
            rights = cluster.refused_rights - {right} | ({right} if refused else set())
            return (cluster if rights == cluster.refused_rights else replace(cluster, refused_rights=rights)), []
        case DeploymentUnreadable(kind=kind) if operated and operated.kind is kind:
            operated = plans.unread(operated, at)
        case PodDisrupted():
            disruption = Disruption(at, observation.pod, observation.address, observation.node)
            disruptions = plans.disrupted(disruptions, observation.uid, disruption)
    if operated is cluster.operated and disruptions is cluster.disruptions:
        return cluster, []
    draft = Draft(policy, cluster_id, cluster, at)
    draft.update(operated=operated, disruptions=disruptions)
    if plans.is_unwanted(operated) is not cluster.view.suspended:
        store_view.cover(draft, cluster.view.sighting, at)
    failover_in_progress.consider_plans(draft)
    return draft.outcome()


def _hosts(cluster: ClusterState) -> tuple[set[str], set[str]]:
    """The hosts of the cluster's current leaders, and the hosts of its last known leaders."""
    own = [state for component, state in cluster.components.items() if not component.job_id]
    last = {host_of(state.last_known.address) for state in own if state.last_known}
    return {host_of(state.leadership.leader.address) for state in own if isinstance(state.leadership, Held)}, last


def _led(draft: Draft) -> None:
    """Once a leader is published again, an earlier stop no longer explains the next loss."""
    own = (state for component, state in draft.all_states() if not component.job_id)
    began = [state.since for state in own if isinstance(state.leadership, Held)]
    operated = plans.led(draft.state.operated, max(began, key=lambda at: at.steady)) if began else draft.state.operated
    if operated is not draft.state.operated:
        draft.update(operated=operated)


class _Due(NamedTuple):
    """What is due in a cluster because time has passed: usually nothing."""

    obscured: bool
    """Leaders that were not read again become unknown."""
    turned: bool
    """The view has become stale, or fresh again."""
    long: bool
    """The period of coverage is recorded in parts."""
    calm: list[ComponentId]
    """The components whose split leadership is over."""
    alone: list[ComponentId]
    """Jobs that left too long ago to be the first of a failover."""
    died: bool
    """Why the last leader ended is sure."""
    over: bool
    """The failover in progress is over."""
    blind: bool
    """Nothing has happened while the store could not be read."""
    unheard: bool
    """The answers of other observers no longer count."""
    reliable: bool
    """The standby has made up for the time in which there was none."""


def _due(cluster: ClusterState, now: Moment) -> _Due:
    view, episode = cluster.view, cluster.episode
    stale = _is_stale(cluster, now)
    in_sight = view.complete and not stale
    return _Due(
        obscured=view.obscure_at is not None and now.steady >= view.obscure_at,
        turned=stale is not cluster.stale,
        long=now.steady - view.since.steady >= COVERAGE_INTERVAL,
        calm=[component for component in cluster.contested if in_sight and _is_calm(cluster, component, now)],
        alone=[component for component in cluster.departed if _left_alone(cluster, component, now)],
        died=deaths.is_due(cluster, now),
        over=in_sight and episode is not None and _is_over(cluster, episode, now),
        blind=in_sight and episode is None and view.loss is not None and view.loss.is_past(now),
        unheard=cluster.peers.is_old(now),
        reliable=in_sight and cluster.standby.settled(now) is not cluster.standby,
    )


def tick(policy: Policy, cluster_id: str, cluster: ClusterState, now: Moment) -> ClusterStep:
    """The cluster when nothing but time has passed: a view that is lost, or not confirmed in time, is trusted no longer than the trust
    window.
    """
    due = _due(cluster, now)
    if not any(due):
        return cluster, []
    draft = Draft(policy, cluster_id, cluster, now)
    if due.reliable:
        draft.update(standby=cluster.standby.settled(now))
    if due.unheard:
        draft.update(peers=replace(cluster.peers, opinions=()))
    failover_in_progress.record_departed(draft, *due.alone)
    if due.turned:
        store_view.aged(draft, stale=_is_stale(cluster, now))
    if due.obscured:
        store_view.obscure(draft)
    for component in due.calm:
        leadership_changes.reconciled(draft, component)
    if due.died or due.over:  # of the last failover, before another one takes its place
        deaths.record(draft)
    if due.over:
        failover_in_progress.close_episode(draft)
    if due.blind:
        failover_in_progress.close_blindness(draft)
    store_view.cover(draft, draft.state.view.sighting, now)
    return draft.outcome()


def restart(policy: Policy, cluster_id: str, cluster: ClusterState, alive: Moment, now: Moment) -> ClusterStep:
    """The cluster as a new process finds it in the journal: nothing has been read yet, what was known is kept as last known."""
    draft = Draft(policy, cluster_id, cluster, now)
    failover_in_progress.record_departed(draft, *cluster.departed)
    store_view.cover(draft, Sighting.BLIND, max(alive, cluster.view.since))
    for component, state in cluster.components.items():
        draft.keep(component, last_known_state(state, now))
    since = draft.state.view.since
    draft.update(
        view=View(since=since, turned_at=since),
        operated=plans.unread(cluster.operated, alive),
        ends=ends.restarted(cluster.ends),
        drilled=cluster.drilled if cluster.drilled.since else Drilled(since=now.wall),
    )
    return draft.outcome()


def stop(policy: Policy, cluster_id: str, cluster: ClusterState, now: Moment) -> ClusterStep:
    """The cluster at an orderly end: what was covered until now is recorded."""
    draft = Draft(policy, cluster_id, cluster, now)
    failover_in_progress.record_departed(draft, *cluster.departed)
    store_view.cover(draft, Sighting.BLIND, now)
    return draft.outcome()


def _is_stale(cluster: ClusterState, now: Moment) -> bool:
    return cluster.view.complete and cluster.is_overdue(now)


def _is_over(cluster: ClusterState, episode: episodes.Episode, now: Moment) -> bool:
    # Who leads is asked last: in most ticks of a failover it has no say.
    return episodes.is_over(episode, now) and episodes.is_over(episode, now, divided=_is_divided(cluster))


def _is_divided(cluster: ClusterState) -> bool:
    own = (component for component in CLUSTER_COMPONENTS if component in cluster.components)
    return episodes.is_divided((component, cluster.components[component].leadership) for component in own)


def _left_alone(cluster: ClusterState, component: ComponentId, now: Moment) -> bool:
    """Whether a job left too long ago to be the first of a failover."""
    absence = cluster.components[component].absence
    return absence is None or now.steady - absence.left_at > episodes.LOOK_BACK


def _is_calm(cluster: ClusterState, component: ComponentId, now: Moment) -> bool:
    return split_leadership.is_calm(cluster.components[component].contest, cluster.view.turned_at.steady, now)


RECORD_INTERVAL: Final = 86_400 * SECOND
"""How often an unchanged result is recorded."""


def checks_observed(policy: Policy, name: str, cluster: ClusterState, observation: HaChecked) -> ClusterStep:
    """The cluster after its checks. Recorded are verdicts that changed, and each result once a day."""
    before = cluster.readiness.checks if cluster.readiness else {}
    checks: dict[str, KnownCheck] = {}
    records: list[Happened] = []
    for result in observation.results:
        check, last = result.check, before.get(result.check)
        checks[check] = _check_after(last, result, observation.at)
        if last is None or checks[check].recorded_at != last.recorded_at:
            records.append(_check_record(policy, name, checks[check], last, observation.at))
    return replace(cluster, readiness=Checked(observation.at, checks)), records


def _check_after(last: KnownCheck | None, result: CheckResult, at: Moment) -> KnownCheck:
    """The known state of a check after its result."""
    same = last is not None and last.result.verdict is result.verdict
    due = not same or last is None or at.steady - last.recorded_at.steady >= RECORD_INTERVAL
    risk_since = last.risk_since if last else None
    match result.verdict:
        case Verdict.PASS:
            risk_since = None
        case Verdict.RISK:
            risk_since = risk_since or at
    return KnownCheck(
        result,
        since=last.since if last and same else at,
        recorded_at=at if last is None or due else last.recorded_at,
        risk_since=risk_since,
    )


def _check_record(policy: Policy, name: str, check: KnownCheck, before: KnownCheck | None, at: Moment) -> HaCheck:
    result = check.result
    return HaCheck(
        id=record_id("ha_check", policy.observer, name, result.check, timestamp(at.wall)),
        **envelope(policy, name, at),
        check_name=result.check,
        verdict=result.verdict.value,
        verdict_before=before.result.verdict.value if before else None,
        since=timestamp(check.since.wall),
        finding=result.text,
        advice=result.advice or None,
    )


REMOVED_AFTER: Final = 600 * SECOND


def has_leader(cluster: ClusterState) -> bool:
    """Whether one of the cluster's own components is known to have a leader now."""
    return any(
        isinstance(state.leadership, Held) for component, state in cluster.components.items() if not component.job_id
    )


def is_forgotten(cluster: ClusterState, now: Moment) -> bool:
    """Whether nothing of the cluster has existed for so long that it counts as removed."""
    return cluster.in_sight and cluster.gone is not None and now.steady - cluster.gone.steady >= REMOVED_AFTER


def removed(policy: Policy, cluster_id: str, cluster: ClusterState, at: Moment) -> ClusterStep:
    """The records of the removal, and the cluster as it ends: without any component."""
    draft = Draft(policy, cluster_id, cluster, at)
    failover_in_progress.record_departed(draft, *cluster.departed)
    episode = cluster.episode
    parts = {
        component: state
        for component, state in cluster.components.items()
        if not component.job_id and episode and episodes.has_part(state.absence, episode)
    }
    for component, state in cluster.components.items():
        if state.last_known or not isinstance(state.leadership, Unknown):
            apply(draft, component, state, Reading(Sight.JOB_ENDED))
        else:
            draft.remove(component)
    if episode and draft.state.episode:
        facts = replace(draft.state.episode.facts, removed=episode.away > 0)
        draft.happened.append(draft.writer.episode(replace(draft.state.episode, facts=facts), parts, cluster.pods))
        draft.update(episode=None)
    store_view.cover(draft, Sighting.BLIND, at)
    return draft.outcome()


def standing(cluster: ClusterState) -> Standing:
    """How the current moment counts in the account of leadership."""
    if cluster.view.sighting is Sighting.BLIND:
        return Standing.UNOBSERVED
    own = [
        state.leadership if (state := cluster.components.get(component)) else None for component in CLUSTER_COMPONENTS
    ]
    if any(isinstance(leadership, Vacant) for leadership in own):
        return Standing.SUSPENDED if cluster.view.suspended else Standing.VACANT
    return Standing.LED if all(isinstance(leadership, Held) for leadership in own) else Standing.UNOBSERVED


def accounted(before: ClusterState | None, after: ClusterState, alive: Moment | None, at: Moment) -> ClusterState:
    """`after` with its account, when the step from `before` is done. `alive`: until then a restart takes this sidecar to have run."""
    account, now = after.account or opened(at.steady), standing(after)
    turned = before is not None and before.view.sighting is not after.view.sighting
    is_blind = after.view.sighting is Sighting.BLIND
    if now is not account.now or (turned and is_blind):
        # Blind since the end of what was covered, which may be earlier than now.
        since = after.view.since.steady if is_blind else at.steady
        account = changed(account, now, since, final_until(after, alive, at))
    return after if account is after.account else replace(after, account=account)


def final_until(cluster: ClusterState, alive: Moment | None, now: Moment) -> int:
    """Until when (steady) the account is final: a view that is not confirmed in time will have been blind since its last confirmation, and
    a sidecar that is killed will have ended when it was last known to run.
    """
    until = alive.steady if alive else now.steady
    if cluster.view.sighting is Sighting.BLIND:
        return until
    return min(until, cluster.confirmed.at.steady if cluster.confirmed else cluster.view.since.steady)
