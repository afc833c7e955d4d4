"""The owner: the one thread that owns the state.

Turn by turn it drains the inbox, steps, makes the outcome durable, publishes it, and only then lets it be told.
"""

import logging
import threading
from collections.abc import Callable
from queue import Empty, Full, Queue
from typing import Final

from msgspec.structs import replace

from sidecar.clock import Clock
from sidecar.core.deliveries import Delivery
from sidecar.core.evidence import Capture
from sidecar.core.messages import record_line
from sidecar.core.moment import timestamp
from sidecar.core.observations import Observation, PolicyLoaded, Started, Stopped, Ticked
from sidecar.core.policy import Policy
from sidecar.core.records import AnyRecord, Coverage
from sidecar.core.snapshot import Health, Snapshot
from sidecar.core.state import State
from sidecar.core.step import Append, Gather, Send, step_all
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
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="owner", daemon=True)
        self.snapshot = Snapshot(clock(), state)
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
        self._state, effects = step_all(self._policy, self._state, observations)
        for observation in observations:
            if isinstance(observation, PolicyLoaded):
                self._policy = observation.policy
        now = self._clock()
        recorded_at = timestamp(now.wall)
        records = [replace(effect.record, recorded_at=recorded_at) for effect in effects if isinstance(effect, Append)]
        # Recorded before told. While the disk refuses we tell all the same: an alert that nobody gets is worse than one without a record.
        self._journal.commit(self._state, records, self._sealed())
        _log(records)
        health = Health(
            self._journal.problem,
            self._journal.unsaved,
            self._journal.lost,
            self._journal.unsealed,
            self.rules_problem,
        )
        tally = self.snapshot.tally.with_records(records) if records else self.snapshot.tally
        self.snapshot = Snapshot(now, self._state, tally, health)
        for effect in effects:
            match effect:
                case Send(delivery):
                    self._send(delivery)
                case Gather(capture):
                    self._gather(capture)


def _log(records: list[AnyRecord]) -> None:
    """One line for each thing that happened; in a storm, the first of them and how many there were."""
    for record in records[:MOST_LOGGED]:
        if not isinstance(record, Coverage):
            log.info("%s", record_line(record))
    if len(records) > MOST_LOGGED:
        log.info("… and %d more records", len(records) - MOST_LOGGED)
