"""`watch`, `who`, `status` and `alerts`: run drivers and the core without stored state, alerts or files; `status` joins that with what the
sidecar's journal knows."""

import logging
import socket
import time
from collections.abc import Callable, Collection, Generator, Mapping, Sequence
from contextlib import closing, suppress
from queue import Empty, SimpleQueue
from typing import ClassVar, Final, NamedTuple

from sidecar.app import history
from sidecar.core.cluster.cluster_state import ClusterState, Missing, Sighting
from sidecar.core.errors import OperatorError
from sidecar.core.flink.leadership import ConfigMapPosition, Held
from sidecar.core.moment import SECOND, Moment, timestamp
from sidecar.core.observations import (
    ClusterObservation,
    ClustersListed,
    EndObservation,
    FinderObservation,
    NothingFound,
    PlanObservation,
    SnapshotCompleted,
    Started,
    StoreRefused,
    Ticked,
    is_trace,
)
from sidecar.core.policy.policy import Policy
from sidecar.core.rebase import rebased
from sidecar.core.records import TransitionRecord
from sidecar.core.state import Append, State
from sidecar.core.step import step_all
from sidecar.core.views.leader_view import FlinkView, Leader, LeaderAddress, leaders
from sidecar.core.views.snapshot import Snapshot
from sidecar.core.views.status_view import (
    ClusterVerdict,
    JournalStatus,
    ShownStatus,
    is_running,
    joined,
    status,
    verdicts,
    with_beginnings,
)
from sidecar.drivers import Drivers
from sidecar.journal import JournalError
from sidecar.runtime.clock import Clock
from sidecar.settings import AnyFinderSettings, ClusterSettings, Settings, session_timeouts

_INBOX: Final = 10_000
_FULL_PAUSE: Final = 0.01
_TICK: Final = 0.25
_LOOK_INTERVAL: Final = round(0.25 * SECOND)

_DECISIVE: Final = SnapshotCompleted | NothingFound | ClustersListed | StoreRefused
"""The observations that may complete the first view of all clusters."""
ALONE_SECONDS: Final = 5.0
"""The time for trying a store that a running sidecar cannot read either."""
_UNPROVEN: Final = "not every lease was renewed or expired within %.0f s: a leader may be dead"
_NOT_FOUND: Final = "Check the id, and that a JobManager runs"

_log = logging.getLogger(__name__)


class ClusterNotSeenError(OperatorError):
    """Not all leader nodes could be read in time, or nothing of the cluster exists."""

    exit_status: ClassVar[int] = 3
    """The exit status of an unknown answer. 1 would mean that there is no leader."""


def transitions(cluster: ClusterSettings) -> Generator[TransitionRecord, None, None]:
    """The transitions from now on, until the caller closes the iterator."""
    clock = Clock()
    stores = {cluster.cluster_id: cluster.store}
    policy = Policy(socket.gethostname(), stores, session_timeouts=session_timeouts(cluster))
    state, _ = step_all(policy, State(), [Started(clock())])
    with closing(_observations([cluster], clock)) as observations:
        for observation in observations:
            state, effects = step_all(policy, state, [observation] if observation else [Ticked(clock())])
            for effect in effects:
                if isinstance(effect, Append) and isinstance(effect.record, TransitionRecord):
                    yield effect.record


def flink_calls(cluster: ClusterSettings) -> Generator[LeaderAddress, None, None]:
    """The calls that Flink's own listeners get from now on, until the caller closes the iterator."""
    view = FlinkView(tolerate_suspended=cluster.tolerate_suspended)
    with closing(_observations([cluster], Clock())) as observations:
        for observation in observations:
            if isinstance(observation, ClusterObservation):
                yield from view.observe(observation)


def who(cluster: ClusterSettings, patience: float) -> tuple[ClusterVerdict, list[Leader]]:
    """The verdict on the cluster, and the current leader of each component. Raises ClusterNotSeenError if they cannot all be read
    within `patience` seconds, or if nothing of the cluster exists.

    In Kubernetes the address of a dead leader remains: waits until each lease is renewed or expires, at most `patience` seconds.
    """
    clock = Clock()
    policy = Policy(socket.gethostname(), {cluster.cluster_id: cluster.store})
    state, _ = step_all(policy, State(), [Started(clock())])
    deadline = clock().steady + int(patience * 1_000_000)
    seen_at: int | None = None
    exists = False
    with closing(_observations([cluster], clock)) as observations:
        for observation in observations:
            if isinstance(observation, ClusterObservation):
                state, _ = step_all(policy, state, [observation])
                exists = exists or is_trace(observation)
            if isinstance(observation, SnapshotCompleted):
                seen_at = observation.at.steady
            if isinstance(observation, StoreRefused):
                raise ClusterNotSeenError(f"cannot read {cluster.place}: {observation.reason}")
            if missing := state.clusters[cluster.cluster_id].missing:
                advice = f". {_NOT_FOUND}" if isinstance(missing, Missing) else ""
                raise ClusterNotSeenError(f"{missing}{advice}")
            if seen_at is not None and exists and _all_proven(state.clusters[cluster.cluster_id], seen_at):
                break
            if clock().steady >= deadline:
                if seen_at is None:
                    advice = "check the address, and that the store is up"
                    raise ClusterNotSeenError(f"cannot read {cluster.place} within {patience:.0f} s: {advice}")
                if not exists:
                    raise ClusterNotSeenError(f"no such cluster: nothing was found under {cluster.place}. {_NOT_FOUND}")
                _log.warning(_UNPROVEN, patience)
                break
    snapshot = Snapshot(clock(), state, policy=policy)
    return verdicts(snapshot, asks_rest=False)[0], leaders(snapshot)


class ReadState(NamedTuple):
    """The clusters of a configuration as they were read until `at`."""

    at: Moment
    state: State


def read_states(
    settings: Settings,
    patience: float,
    blind: Callable[[Moment], Collection[str]] = lambda _: (),
    known: Collection[str] = (),
) -> Generator[ReadState, None, None]:
    """The contents of all clusters' stores: once everything is read and each lease is renewed or has expired, at most after `patience`
    seconds; then again, four times a second.

    `blind`: the clusters that a running sidecar cannot see at that moment: they are not waited for longer than ALONE_SECONDS. `known`: the
    clusters that were watched before.
    """
    clock = Clock()
    alone_until = clock().steady + round(ALONE_SECONDS * SECOND)
    policy = _policy(settings)
    state, _ = step_all(policy, State(), [Started(clock())])
    read_at: dict[str, int] = {}
    traced: set[str] = set()
    ready, due = False, clock().steady + round(patience * SECOND)
    with closing(_observations(settings.clusters, clock, settings.finder, known)) as observations:
        for observation in observations:
            state, _ = step_all(policy, state, [observation or Ticked(clock())])
            if isinstance(observation, SnapshotCompleted):
                read_at[observation.cluster_id] = observation.at.steady
            elif isinstance(observation, ClusterObservation) and is_trace(observation):
                traced.add(observation.cluster_id)
            now = clock()
            if not ready and isinstance(observation, _DECISIVE | None):
                others = blind(now) if now.steady >= alone_until else ()
                ready = _are_listed(settings, state) and _all_read(state, read_at, traced, others)
                due = now.steady if ready else due
            if now.steady >= due:
                if not ready and _are_listed(settings, state) and _all_read(state, read_at, traced, (), proven=False):
                    _log.warning(_UNPROVEN, patience)
                ready = True
                due = now.steady + _LOOK_INTERVAL
                yield ReadState(now, state)


def _are_listed(settings: Settings, state: State) -> bool:
    """True if it is known which clusters there are, or why that cannot be read."""
    return settings.finder is None or (
        state.finder is not None and bool(state.finder.connected or state.finder.refused)
    )


def _policy(settings: Settings) -> Policy:
    """The policy for reading the stores: no rules, no receivers."""
    return Policy(
        settings.observer,
        {cluster.cluster_id: cluster.store for cluster in settings.clusters},
        trust_window=round(settings.trust_window * SECOND),
        session_timeouts=session_timeouts(*settings.clusters),
        finds=settings.finder.store if settings.finder else None,
    )


def _all_read(
    state: State, read_at: Mapping[str, int], traced: Collection[str], blind: Collection[str], *, proven: bool = True
) -> bool:
    """True if it is known of each cluster that it does not exist or cannot be read, or who leads it; `proven`: and was alive since that
    was read.
    """
    return all(
        cluster.missing
        or cluster.refused
        or name in blind
        or (name in traced and name in read_at and (not proven or _all_proven(cluster, read_at[name])))
        for name, cluster in state.clusters.items()
    )


def _all_proven(cluster: ClusterState, since: int) -> bool:
    """True if every leader with a lease has changed its ConfigMap after `since` (steady)."""
    held = (state.leadership.position for state in cluster.components.values() if isinstance(state.leadership, Held))
    names = [position.name for position in held if isinstance(position, ConfigMapPosition)]
    return all(cluster.leases[name].changed_at > since for name in names)


def _observations(
    clusters: Sequence[ClusterSettings],
    clock: Clock,
    finder: AnyFinderSettings | None = None,
    known: Collection[str] = (),
) -> Generator[FinderObservation | PlanObservation | EndObservation | None, None, None]:
    """The observations of the drivers, and None now and then if there are none."""
    inbox: SimpleQueue[FinderObservation | PlanObservation | EndObservation] = (
        SimpleQueue()
    )  # wakes us sooner than a Queue

    def put(observation: FinderObservation | PlanObservation | EndObservation) -> None:
        while inbox.qsize() >= _INBOX:  # the terminal is slow: make the driver wait
            time.sleep(_FULL_PAUSE)
        inbox.put(observation)

    drivers = Drivers(clusters, clock, finder, known=known)
    drivers.start(put)
    drivers.find(put)
    try:
        while True:
            try:
                yield inbox.get(timeout=_TICK)
            except Empty:
                yield None
    finally:
        drivers.stop()


def statuses(settings: Settings, patience: float) -> Generator[ShownStatus, None, None]:
    """The status of all clusters as soon as they are read, at most after `patience` seconds; then again, four times a second, until the
    caller closes the iterator.
    """
    policy = settings.policy()

    def own_state() -> State:
        with suppress(JournalError):
            return history.state(settings.state_dir)
        return State()

    def blind(now: Moment) -> Collection[str]:
        own = own_state()
        running = is_running(own.alive, now)
        return {name for name, cluster in own.clusters.items() if running and cluster.view.sighting is Sighting.BLIND}

    with closing(read_states(settings, patience, blind, own_state().clusters.keys())) as states:
        for at, live in states:
            state, journal, problem = with_beginnings(live), None, None
            try:
                own = history.state(settings.state_dir)
            except JournalError as error:
                problem = str(error)
            else:
                journal = _journal(own, at)
                state = joined(state, _rebased(own, at), running=journal.running)
            yield status(Snapshot(at, state, policy=policy), journal, problem)


def remembered(settings: Settings) -> tuple[Snapshot, JournalStatus]:
    """The snapshot that the sidecar of this configuration last wrote to its journal, as of now. Raises JournalError."""
    at, state = Clock()(), history.state(settings.state_dir)
    return Snapshot(at, _rebased(state, at), policy=settings.policy()), _journal(state, at)


def _rebased(state: State, now: Moment) -> State:
    """The state on the clock of this process, as far as wall clocks can be trusted."""
    alive = state.alive or now
    return rebased(state, now.steady - now.wall - (alive.steady - alive.wall))


def _journal(state: State, now: Moment) -> JournalStatus:
    return JournalStatus(is_running(state.alive, now), timestamp(state.alive.wall) if state.alive else None)
