"""The owner: the one thread that owns the state.

Turn by turn it drains the inbox, steps, makes the outcome durable, publishes it, and only then lets it be told.
"""

import logging
import threading
import time
from collections.abc import Callable
from queue import Empty, Full, Queue
from typing import Final

from msgspec.structs import replace

from sidecar.clock import Clock
from sidecar.core.cluster.record_lines import record_line
from sidecar.core.delivery.outbox import Delivery
from sidecar.core.evidence import Capture
from sidecar.core.moment import timestamp
from sidecar.core.observations import (
    ConfigMapObserved,
    NodeObserved,
    NotProcessed,
    Observation,
    PolicyLoaded,
    SeenInCluster,
    Started,
    Stopped,
    Ticked,
)
from sidecar.core.policy.policy import Policy
from sidecar.core.records import AnyRecord, Coverage
from sidecar.core.sanitize import clean
from sidecar.core.state import State
from sidecar.core.step import Append, Effect, Gather, Send, step
from sidecar.core.views.snapshot import Health, Snapshot, Tally
from sidecar.journal import Journal

log = logging.getLogger("sidecar.loop")

TICK: Final = 0.5
"""Seconds: how late a deadline may be noticed."""
INBOX: Final = 10_000
"""Observations that may wait. A driver that brings more waits itself: it coalesces states meanwhile and loses no transition."""
MOST_A_TURN: Final = 1_000
"""Observations that go into one transaction."""
MOST_LOGGED: Final = 100
"""Lines of log that one turn may make."""
FAILURE_SECONDS: Final = 60.0
"""How long what could not be processed is not logged again."""
JOIN_SECONDS: Final = 10.0


class Loop:
    """Give it observations from any thread with `observe`; look at `snapshot` from any thread."""

    def __init__(
        self,
        policy: Policy,
        journal: Journal,
        state: State,
        clock: Clock,
        *,
        send: Callable[[Delivery], None],
        gather: Callable[[Capture], None],
        sealed: Callable[[], int],
        died: Callable[[], None],
    ) -> None:
        """`send` takes over a claimed delivery, `gather` a request to capture; `sealed` tells up to which record the segments reach; `died`
        is told that the thread ended by itself. None of them may block."""
        self._policy = policy
        self._journal = journal
        self._state = state
        self._clock = clock
        self._send = send
        self._gather = gather
        self._sealed = sealed
        self._died = died
        self._inbox: Queue[Observation] = Queue(INBOX)
        self._unprocessed = 0
        self._failures: dict[str, float] = {}
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="owner", daemon=True)
        # Remembered, and not in sight: the web server answers before the first turn.
        now = clock()
        self.snapshot = Snapshot(now, step(policy, state, Started(now))[0], Tally().begun(policy))
        """The newest published picture. Immutable: take it once and look at that."""
        self.rules_problem: str | None = None
        """Why the rules on disk are not those that count. Whoever loads them says so."""

    def observe(self, observation: Observation) -> None:
        """Hand over one observation. Waits while the inbox is full; does nothing once the loop has ended."""
        while not self._stopping.is_set():
            try:
                self._inbox.put(observation, timeout=1.0)
            except Full:
                continue
            return

    def start(self) -> None:
        """Begin. The first turn takes up the state of an earlier process."""
        self._inbox.put(Started(self._clock()))
        self._thread.start()

    def stop(self) -> None:
        """End: what is in the inbox is still stepped and recorded. May be called twice, and before `start`."""
        self._stopping.set()
        if self._thread.ident is not None:
            self._thread.join(JOIN_SECONDS)

    def _run(self) -> None:
        try:
            while not self._stopping.is_set():
                drained = self._drain(TICK)
                self._turn([*drained, Ticked(self._clock())])
            # Time stands still from here on: what would fall due now could not be sent any more, and is told after the next start.
            while waiting := self._drain(0):
                self._turn(waiting)
            self._turn([Stopped(self._clock())])
        except BaseException as error:  # the owner must not end in silence: whoever started it decides
            log.critical(
                "the owner's thread ended: %s: %s",
                type(error).__name__,
                error,
                exc_info=log.isEnabledFor(logging.DEBUG),
            )
            self._stopping.set()
            self._died()

    def _step(self, observation: Observation) -> tuple[bool, list[Effect]]:
        """Take one observation in; whether that was possible, and what is to be done."""
        try:
            self._state, effects = step(self._policy, self._state, observation)
        except Exception as error:
            if isinstance(observation, Started):
                raise  # without its beginning nothing that follows would be right
            return False, self._not_processed(observation, error)
        if isinstance(observation, PolicyLoaded):
            self._policy = observation.policy
        return True, effects

    def _not_processed(self, observation: Observation, error: Exception) -> list[Effect]:
        """The state is as before. What it was about is not known any more, which is recorded; all else goes on."""
        self._unprocessed += 1
        line = f"{_about(observation)}: {type(error).__name__}: {clean(str(error))}"
        now = time.monotonic()
        if now - self._failures.get(line, -FAILURE_SECONDS) >= FAILURE_SECONDS:
            if len(self._failures) >= MOST_LOGGED:
                self._failures.clear()
            self._failures[line] = now
            log.error(
                "skipped an observation that raised an error: %s",
                line,
                exc_info=log.isEnabledFor(logging.DEBUG),
            )
        if (
            not isinstance(observation, SeenInCluster)
            or not _path(observation)
            or isinstance(observation, NotProcessed)
        ):
            return []
        reason = f"an observation of it could not be processed ({type(error).__name__})"
        return self._step(NotProcessed(observation.at, observation.cluster_id, _path(observation), reason))[1]

    def _drain(self, patience: float) -> list[Observation]:
        """What waits in the inbox, up to one turn's worth; when nothing does, whatever comes within `patience` seconds."""
        drained: list[Observation] = []
        try:
            drained.append(self._inbox.get(timeout=patience) if patience else self._inbox.get_nowait())
            while len(drained) < MOST_A_TURN:
                drained.append(self._inbox.get_nowait())
        except Empty:
            pass
        return drained

    def _turn(self, observations: list[Observation]) -> None:
        effects: list[Effect] = []
        moved = True
        for observation in observations:
            processed, more = self._step(observation)
            effects += more
            moved = moved and (processed or not isinstance(observation, Ticked))
        now = self._clock()
        recorded_at = timestamp(now.wall)
        records = [replace(effect.record, recorded_at=recorded_at) for effect in effects if isinstance(effect, Append)]
        # Recorded before told. While the disk refuses we tell all the same: an alert that nobody gets is worse than one without a record.
        self._journal.commit(self._state, records, self._sealed())
        _log(records, named=len(self._policy.stores) > 1)
        health = Health(
            self._journal.problem,
            self._journal.unsaved,
            self._journal.lost,
            self._journal.unsealed,
            self.rules_problem,
            self._unprocessed,
        )
        tally = self.snapshot.tally
        if any(isinstance(observation, PolicyLoaded) for observation in observations):
            tally = tally.begun(self._policy)
        if records:
            tally = tally.with_records(records)
        # While time itself cannot be processed the snapshot is as old as when it last could be: then `/livez` fails.
        self.snapshot = Snapshot(now if moved else self.snapshot.at, self._state, tally, health)
        for effect in effects:
            match effect:
                case Send(delivery):
                    self._send(delivery)
                case Gather(capture):
                    self._gather(capture)


def _about(observation: Observation) -> str:
    """What was observed, and of what, in a few words."""
    cluster = f" of {observation.cluster_id}" if isinstance(observation, SeenInCluster) else ""
    path = f", {clean(_path(observation))}" if _path(observation) else ""
    return f"{type(observation).__name__}{cluster}{path}"


def _path(observation: Observation) -> str:
    """The path of a znode, the name of a ConfigMap, or nothing."""
    match observation:
        case NodeObserved(path=path) | ConfigMapObserved(name=path) | NotProcessed(path=path):
            return path
        case _:
            return ""


def _log(records: list[AnyRecord], *, named: bool) -> None:
    """One line for each thing that happened, `named` with its cluster; in a storm, the first of them and how many there were."""
    for record in records[:MOST_LOGGED]:
        if not isinstance(record, Coverage):
            log.info("%s", record_line(record, named=named))
    if len(records) > MOST_LOGGED:
        log.info("… and %d more records", len(records) - MOST_LOGGED)
