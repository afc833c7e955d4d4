"""The owner: the one thread that changes the state.

In each turn the thread drains the inbox, steps, commits, publishes the snapshot, and only then sends.
"""

import logging
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from queue import Empty, Full, Queue
from typing import Final

from msgspec.structs import replace

from sidecar.core.alerting.alerting_step import ReadSilences, Send
from sidecar.core.alerting.outbox import NOT_DELIVERED, Delivery
from sidecar.core.captures import Capture
from sidecar.core.cluster.record_lines import record_line
from sidecar.core.failover.failover_events import KubernetesEvent
from sidecar.core.moment import parsed, timestamp
from sidecar.core.observations import (
    ConfigMapObserved,
    FailoverAnnotated,
    NodeObserved,
    NotProcessed,
    Observation,
    PolicyLoaded,
    SeenInCluster,
    Started,
    Stopped,
    Ticked,
)
from sidecar.core.pictures import PictureRequest
from sidecar.core.policy.policy import Policy
from sidecar.core.quarantine import Quarantined
from sidecar.core.records import AnyRecord, Coverage, Notification
from sidecar.core.sanitize import clean
from sidecar.core.state import Append, Effect, Gather, NamePod, Publish, State, TakePicture
from sidecar.core.step import step
from sidecar.core.views.snapshot import Health, Snapshot, Tally
from sidecar.journal import Journal
from sidecar.runtime.clock import Clock
from sidecar.runtime.threads import Watchdog

log = logging.getLogger("sidecar.loop")

TICK: Final = 0.5
"""Seconds: the largest delay of a deadline."""
TICK_SHARE: Final = 20
"""Ticks take at most this part of the time, but for one each TICK: of thousands of clusters each is asked whether anything is due."""
INBOX: Final = 10_000
"""Observations that may wait. Beyond that drivers wait: they coalesce states meanwhile, and lose no transition."""
MOST_A_TURN: Final = 1_000
"""Observations in one transaction."""
MOST_SECONDS: Final = 0.4
"""The longest time that the steps of one turn may take. Observations left after that are processed in the next turn."""
MOST_LOGGED: Final = 100
"""Log lines of one turn."""
FAILURE_SECONDS: Final = 60.0
"""An error is logged again only after this time."""
QUARANTINE_SECONDS: Final = 600.0
"""The time for which the source of an error stays listed as quarantined after its last error."""
MOST_QUARANTINED: Final = 20
"""Shown, the latest ones."""
JOIN_SECONDS: Final = 10.0


class Loop:
    """Any thread may call `observe` and read `snapshot`."""

    def __init__(
        self,
        policy: Policy,
        journal: Journal,
        state: State,
        clock: Clock,
        *,
        send: Callable[[Delivery], None],
        gather: Callable[[Capture], None],
        publish: Callable[[KubernetesEvent], None],
        name_pod: Callable[[str, str], None],
        read_silences: Callable[[str], None],
        take_picture: Callable[[PictureRequest], None],
        sealed: Callable[[], int],
        died: Callable[[], None],
    ) -> None:
        """`send` accepts a claimed delivery, `gather` a request to capture, `publish` an Event, `name_pod` a cluster and an IP address,
        `read_silences` the name of a document, `take_picture` a request to Flink's REST server; `sealed` returns the last record that is
        in a segment; `died` is called when the thread fails. None of them may block.
        """
        self._policy = policy
        self._journal = journal
        self._state = state
        self._clock = clock
        self._send = send
        self._gather = gather
        self._publish = publish
        self._name_pod = name_pod
        self._read_silences = read_silences
        self._take_picture = take_picture
        self._sealed = sealed
        self._died = died
        self._inbox: Queue[Observation] = Queue(INBOX)
        self._rest: list[Observation] = []
        """Taken out of the inbox, and not processed in the last turn."""
        self._unprocessed = 0
        self._failures: dict[str, float] = {}
        self._quarantined: dict[str, float] = {}
        """The time of the last error of each quarantined source, the latest last."""
        self._quarantines = 0
        self._tick_took = 0.0
        self._time_passes = True
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="owner", daemon=True)
        self._turned_at = 0.0
        """The start of the last turn, or of the wait for it (monotonic)."""
        self._watchdog = Watchdog("owner", lambda: self._turned_at)
        # The state of the previous process, not connected: the web server answers before the first turn.
        now = clock()
        started, _ = step(policy, state, Started(now))
        self.snapshot = Snapshot(now, started, Tally().begun(policy, started.clusters), policy=policy)
        """The latest published snapshot. Immutable."""
        self.rules_problem: str | None = None
        """Why the rules on disk are not in use; set by the reloader."""

    def observe(self, observation: Observation) -> None:
        """Put one observation into the inbox. Waits while it is full; does nothing after the end."""
        while not self._stopping.is_set():
            try:
                self._inbox.put(observation, timeout=1.0)
            except Full:
                continue
            return

    def start(self) -> None:
        """Start the thread. The first turn continues the state of the previous process."""
        self._inbox.put(Started(self._clock()))
        self._turned_at = time.monotonic()
        self._thread.start()
        self._watchdog.start()

    def stop(self) -> None:
        """Process and record what is in the inbox, then end. May be called twice, and before `start`."""
        self._stopping.set()
        if self._thread.ident is not None:
            self._thread.join(JOIN_SECONDS)
        self._watchdog.stop()

    def _run(self) -> None:
        try:
            patience, tick_at = TICK, 0.0
            while not self._stopping.is_set():
                self._turned_at = time.monotonic()
                drained = self._drain(patience)
                if drained and time.monotonic() < tick_at:
                    self._turn(drained)
                    patience = max(0.0, tick_at - time.monotonic())
                    continue
                self._turn(drained, ticks=True)
                patience, tick_at = TICK, time.monotonic() + min(self._tick_took * TICK_SHARE, TICK)
            # No more ticks: what becomes due now could not be sent any more, and is sent after the next start.
            while waiting := self._drain(0):
                self._turn(waiting)
            self._turn([Stopped(self._clock())])
        except BaseException as error:  # the owner must not end silently
            debug = log.isEnabledFor(logging.DEBUG)
            log.critical("the owner's thread ended: %s: %s", type(error).__name__, error, exc_info=debug)
            self._stopping.set()
            self._watchdog.stop()
            self._died()

    def _step(self, observation: Observation) -> list[Effect]:
        """Process one observation."""
        began = time.monotonic()
        try:
            self._state, effects = step(self._policy, self._state, observation)
        except Exception as error:
            if isinstance(observation, Started):
                raise  # everything else depends on it
            self._time_passes = self._time_passes and not isinstance(observation, Ticked)
            return self._not_processed(observation, error)
        if isinstance(observation, PolicyLoaded):
            self._policy = observation.policy
        if isinstance(observation, Ticked):
            self._tick_took = time.monotonic() - began
            self._time_passes = True
        return effects

    def _not_processed(self, observation: Observation, error: Exception) -> list[Effect]:
        """Log the error, and record that the state of its path is unknown. The state is unchanged."""
        self._unprocessed += 1
        self._log_error("skipped an observation that raised an error", _description(observation), error)
        if not isinstance(observation, NodeObserved | ConfigMapObserved):
            return []
        reason = f"an observation of it could not be processed ({type(error).__name__})"
        return self._step(NotProcessed(observation.at, observation.cluster_id, _path(observation), reason))

    def _quarantine(self, culprit: Quarantined) -> None:
        """Log what raised an error and was left out, count it, and show it for a while."""
        self._quarantines += 1
        line = self._log_error("left out what raised an error, all else goes on", clean(culprit.name), culprit.error)
        self._quarantined.pop(line, None)
        self._quarantined[line] = time.monotonic()

    def _latest_quarantined(self) -> tuple[str, ...]:
        oldest = time.monotonic() - QUARANTINE_SECONDS
        latest = [*self._quarantined.items()][-MOST_QUARANTINED:]
        self._quarantined = {line: at for line, at in latest if at >= oldest}
        return tuple(self._quarantined)

    def _log_error(self, problem: str, about: str, error: Exception) -> str:
        """Log the error, the same one once a minute. Returns the line about it."""
        line = f"{about}: {type(error).__name__}: {clean(str(error))}"
        now = time.monotonic()
        if now - self._failures.get(line, -FAILURE_SECONDS) >= FAILURE_SECONDS:
            if len(self._failures) >= MOST_LOGGED:
                self._failures.clear()
            self._failures[line] = now
            log.error("%s: %s", problem, line, exc_info=error if log.isEnabledFor(logging.DEBUG) else None)
        return line

    def _drain(self, patience: float) -> list[Observation]:
        """The observations of one turn; if the inbox is empty, wait at most `patience` seconds for the first."""
        drained, self._rest = self._rest, []
        if drained:
            return drained
        with suppress(Empty):
            drained.append(self._inbox.get(timeout=patience) if patience else self._inbox.get_nowait())
            while len(drained) < MOST_A_TURN:
                drained.append(self._inbox.get_nowait())
        return drained

    def _turn(self, observations: list[Observation], *, ticks: bool = False) -> None:
        """`ticks`: time passes after them."""
        effects, until = list[Effect](), time.monotonic() + MOST_SECONDS
        for note in self._journal.annotations():
            noted_at = parsed(note.observed_at)
            effects += self._step(FailoverAnnotated(self._clock(), note.cluster_id, note.episode_id, noted_at))
        for number, observation in enumerate(observations, 1):
            effects += self._step(observation)
            if time.monotonic() >= until:
                self._rest = observations[number:]
                break
        if ticks:
            effects += self._step(Ticked(self._clock()))
        now = self._clock()
        recorded_at = timestamp(now.wall)
        for effect in effects:
            if isinstance(effect, Quarantined):
                self._quarantine(effect)
        records = [replace(effect.record, recorded_at=recorded_at) for effect in effects if isinstance(effect, Append)]
        # Record before sending. Send even if recording fails: a missing alert is worse than one without a record.
        self._journal.commit(self._state, records, self._sealed())
        _log(records, with_cluster=self._policy.finds is not None or len(self._policy.stores) > 1)
        saved = self._journal.problem, self._journal.unsaved, self._journal.lost, self._journal.unsealed
        health = Health(*saved, self.rules_problem, self._unprocessed, self._latest_quarantined(), self._quarantines)
        tally, clusters, before = self.snapshot.tally, self._state.clusters.keys(), self.snapshot.state.clusters.keys()
        if clusters != before or any(isinstance(observation, PolicyLoaded) for observation in observations):
            tally = tally.begun(self._policy, clusters)
        if records:
            tally = tally.with_records(records)
        if removed := (before | {record.cluster_id for record in records}) - clusters:
            tally = tally.without(removed)
        # From a tick that could not be processed until one that could the snapshot keeps its age: `/livez` fails then.
        at = now if self._time_passes else self.snapshot.at
        self.snapshot = Snapshot(at, self._state, tally, health, self._policy)
        self._carry_out(effects)

    def _carry_out(self, effects: list[Effect]) -> None:
        """Hand the effects that leave this thread to those who do them."""
        for effect in effects:
            match effect:
                case Send(delivery):
                    self._send(delivery)
                case Gather(capture):
                    self._gather(capture)
                case Publish(event):
                    self._publish(event)
                case NamePod(cluster_id, host):
                    self._name_pod(cluster_id, host)
                case ReadSilences(document):
                    self._read_silences(document)
                case TakePicture(request):
                    self._take_picture(request)


def _description(observation: Observation) -> str:
    """The observation's type, cluster and path."""
    cluster = f" of {observation.cluster_id}" if isinstance(observation, SeenInCluster) else ""
    path = f", {clean(_path(observation))}" if _path(observation) else ""
    return f"{type(observation).__name__}{cluster}{path}"


def _path(observation: Observation) -> str:
    """The path of a znode, the name of a ConfigMap, or ""."""
    match observation:
        case NodeObserved(path=path) | ConfigMapObserved(name=path) | NotProcessed(path=path):
            return path
        case _:
            return ""


def _log(records: list[AnyRecord], *, with_cluster: bool) -> None:
    """Log one line for each record, of very many the first ones and the number. `with_cluster`: with its id. What did not arrive is a
    warning.
    """
    for record in records[:MOST_LOGGED]:
        if not isinstance(record, Coverage):
            failed = isinstance(record, Notification) and record.outcome in NOT_DELIVERED
            log.log(logging.WARNING if failed else logging.INFO, "%s", record_line(record, with_cluster=with_cluster))
    if len(records) > MOST_LOGGED:
        log.info("… and %d more records", len(records) - MOST_LOGGED)
