"""`status` and `alerts`: what a configuration's stores say now, joined with what its sidecar's journal knows."""

from collections.abc import Collection, Generator
from contextlib import closing, suppress

from sidecar.app import history, viewer
from sidecar.core.cluster.cluster_state import Sighting
from sidecar.core.moment import Moment, timestamp
from sidecar.core.rebase import rebased
from sidecar.core.state import State
from sidecar.core.views.snapshot import Snapshot
from sidecar.core.views.status_view import JournalStatus, ShownStatus, joined, status, with_beginnings
from sidecar.core.views.verdict import is_running
from sidecar.journal import JournalError
from sidecar.runtime.clock import Clock
from sidecar.settings import Settings


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

    with closing(viewer.looks(settings, patience, blind, own_state().clusters.keys())) as looks:
        for at, live in looks:
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
