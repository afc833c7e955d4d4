"""Keeps the handover of each cluster in its store, and reads the one that a previous sidecar left there."""

import logging
import threading
import time
from collections.abc import Callable, Collection, Mapping
from functools import partial
from typing import Final

from sidecar.core import handover
from sidecar.core.handover import ForeignHandoverError, Handover, HandoverError
from sidecar.core.moment import SECOND, Moment, seconds
from sidecar.core.observations import HandoverRead, PodNamed
from sidecar.core.pods import Pods, merged
from sidecar.core.policy.policy import Policy
from sidecar.core.state import State
from sidecar.ports import LedgerError, LedgerRefusedError, LedgerStore, StoredDocument, only_ledger_errors
from sidecar.runtime.clock import Clock
from sidecar.runtime.threads import ServiceThread, jittered, join_all

READ_SECONDS: Final = 60.0
"""The time for which an unreachable store is tried before its cluster is watched without a handover."""
CONFIRM_SECONDS: Final = 600.0
"""The interval of writes without a change, so that a sidecar that is killed is known to have watched until then."""
BURST: Final = 3
"""Writes for one cluster in quick succession. The leaders of one election do not appear at once, and a pod may end right after it."""
PAUSE_SECONDS: Final = 1.0
"""Between two of them."""
REFILL_SECONDS: Final = 10.0
"""The time after which one more write is allowed, up to BURST: six a minute while changes do not end, and at most eight in any minute."""
FOLLOW_SECONDS: Final = 30.0
"""The time for which the document of a previous sidecar that has not ended is read again: in a rolling update both run for a while."""
STOP_SECONDS: Final = 3.0
_LONGEST_PAUSE: Final = 600.0
_POLL_SECONDS: Final = 1.0

_log = logging.getLogger("sidecar.handover")


class Handovers:
    """`start` reads handovers and has clusters watched, then writes in the background; `stop` writes a last time."""

    def __init__(
        self,
        stores: Mapping[str, LedgerStore],
        policy: Policy,
        state: Callable[[], State],
        observe: Callable[[HandoverRead | PodNamed], None],
        clock: Clock,
    ) -> None:
        """`stores`: the document of each cluster that is handed over. `state`: the current one. `observe` gets what others left."""
        self._documents = {
            name: _ClusterDocument(name, store, policy.observer, clock) for name, store in stores.items()
        }
        self._policy = policy
        self._state = state
        self._clock = clock
        self._stopping = threading.Event()
        self._observe = observe
        self._keepers: dict[str, ServiceThread] = {}
        """A thread for each cluster: none waits for another's store."""
        self._watched: set[str] = set()
        """Clusters whose handover was read, once, whatever came of it."""

    @property
    def up(self) -> dict[str, bool]:
        """True if the handover could be written when it was last due, by cluster."""
        return {name: document.is_up for name, document in self._documents.items() if document.is_up is not None}

    def start(self, new: Collection[str], watch: Callable[[str], None]) -> None:
        """Call `watch` for each cluster. The handovers of `new` clusters, which the journal does not know, are observed first."""
        for name in self._policy.stores:
            if name not in new or name not in self._documents:
                watch(name)
        for name, document in self._documents.items():
            unread = name in new and name in self._policy.stores
            keep = partial(self._keep, document, watch if unread else None)
            self._keepers[name] = ServiceThread(keep, f"handover-{name}")
        for keeper in self._keepers.values():
            keeper.start()

    def stop(self) -> None:
        """End in bounded time. May be called twice, or before `start`."""
        if self._stopping.is_set():
            return
        self._stopping.set()
        state = self._state()
        last = [
            keeper for name, keeper in self._keepers.items() if _is_in_sight(state, name)
        ]  # these are written a last time
        join_all(last, STOP_SECONDS)

    def _keep(self, document: "_ClusterDocument", watch: Callable[[str], None] | None) -> None:
        """Read what a previous sidecar left and have the cluster watched, if `watch` is given; then write until the end."""
        if watch and document.name not in self._watched:
            self._watched.add(document.name)
            try:
                if content := document.read(self._stopping):
                    self._observe(HandoverRead(self._clock(), document.name, content))
            finally:
                watch(document.name)
        while not self._stopping.wait(_POLL_SECONDS):
            if news := document.follow():
                self._observe(HandoverRead(self._clock(), document.name, news))
            if document.is_due(self._state()):
                self._write(document)
        self._write(document, ended=True)

    def _write(self, document: "_ClusterDocument", *, ended: bool = False) -> None:
        state = self._state()
        # While the store cannot be read, the previous document says what was last known.
        if _is_in_sight(state, document.name):
            try:
                document.write(
                    handover.cluster_handover(self._policy, state, document.name, self._clock(), ended=ended)
                )
            except Exception as error:  # noqa: BLE001  whatever it is, the other clusters' handovers are written
                document.fail(error)
                return
            cluster = state.clusters[document.name]
            for host, pod in document.pods.items() if merged(cluster.pods, document.pods) is not cluster.pods else ():
                self._observe(PodNamed(self._clock(), document.name, host, pod))


def _is_in_sight(state: State, name: str) -> bool:
    cluster = state.clusters.get(name)
    return cluster is not None and cluster.is_in_sight and cluster.ever_led


class _ClusterDocument:
    """The document of one cluster."""

    def __init__(self, name: str, store: LedgerStore, observer: str, clock: Clock) -> None:
        self.name = name
        self._store = store
        self._observer = observer
        self._clock = clock
        self._lock = threading.Lock()
        self.pods: Pods = {}
        """The pods in the document of another sidecar, as last read."""
        self._document: StoredDocument | None = None
        """The document as last read or written. None: not known."""
        self._gist: object = None
        self._parts: tuple[object, ...] = ()
        """The parts of the state when it was last written."""
        self._next_at = 0.0
        self._full_at = 0.0
        """The time at which BURST writes are allowed again."""
        self._confirm_at = 0.0
        self._pause = REFILL_SECONDS
        self._follow_until = 0.0
        self._followed: Moment | None = None
        self._problem: str | None = None
        self.is_up: bool | None = None
        """True if it could be written when it was last due. None: it was not due yet."""

    def follow(self) -> bytes | None:
        """The document that the previous sidecar has written since, as long as it may be running. None: nothing new."""
        if time.monotonic() >= self._follow_until:
            return None
        try:
            content, previous = self._read()
        except (LedgerError, HandoverError):
            return None  # it is read again soon; a write reports what lasts
        if previous is None or previous.observer == self._observer or previous.alive == self._followed:
            return None
        self._followed = previous.alive
        self._follow_until = 0.0 if previous.ended else self._follow_until
        return content

    def is_due(self, state: State) -> bool:
        """True if it may be written again, and something may have changed or is to be confirmed."""
        now = time.monotonic()
        if now < self._next_at or self.name not in state.clusters:
            return False
        cluster, alerts = state.clusters[self.name], state.alerts
        of_cluster = (
            cluster.components,
            cluster.episode,
            cluster.last_episode,
            cluster.standby,
            cluster.is_in_sight,
            cluster.pods,
            cluster.ends,
        )
        parts = (*of_cluster, alerts.groups, alerts.failovers, state.outbox)
        same = len(parts) == len(self._parts) and all(a is b for a, b in zip(parts, self._parts, strict=True))
        self._parts = parts
        return not same or now >= self._confirm_at

    def read(self, stopping: threading.Event) -> bytes | None:
        """The document that a previous sidecar left; None: there is none that can be used."""
        deadline, pause, waiting = time.monotonic() + READ_SECONDS, 0.5, False
        while not stopping.is_set():
            try:
                content, previous = self._read()
            except LedgerError as error:
                if isinstance(error, LedgerRefusedError) or time.monotonic() + pause >= deadline:
                    self.fail(error)
                    return None
                if not waiting:
                    waiting = True
                    _log.warning("cluster %s: waiting for the store, to read the handover: %s", self.name, error)
                stopping.wait(jittered(pause, 0.5))
                pause = min(pause * 2, 10.0)
            except HandoverError as error:
                _log.warning("cluster %s: the handover in the store is not used: %s", self.name, error)
                return None
            else:
                if previous:
                    self._log_accepted(previous)
                    self._follow_until = 0.0 if previous.ended else time.monotonic() + FOLLOW_SECONDS
                return content
        return None

    def write(self, current: Handover) -> None:
        """Replace the document, unless nothing changed since it was confirmed or another sidecar has just written the same."""
        gist = current.gist()
        if gist == self._gist and not current.ended and time.monotonic() < self._confirm_at:
            return
        try:
            with self._lock, only_ledger_errors(_log):
                is_written = self._try_write(current, gist)
                self._store.rest()
        except (LedgerError, HandoverError) as error:
            self.fail(error)
            return
        if not is_written:  # lost to another sidecar twice: tried again soon
            self._parts = ()
            return
        if self._problem is not None:
            _log.info("cluster %s: the handover is written again", self.name)
        self.is_up = True
        self._gist, self._problem, self._pause = gist, None, REFILL_SECONDS
        now = time.monotonic()
        self._full_at = max(self._full_at, now) + REFILL_SECONDS
        self._next_at = max(now + PAUSE_SECONDS, self._full_at - (BURST - 1) * REFILL_SECONDS)
        self._confirm_at = now + jittered(CONFIRM_SECONDS, 0.9)

    def _read(self) -> tuple[bytes, Handover | None]:
        """The document as it is now. Raises LedgerError, HandoverError."""
        with self._lock, only_ledger_errors(_log):
            self._document = document = self._store.read()
            self._store.rest()
        return document.content, handover.read(document.content, self.name, self._clock())

    def _try_write(self, current: Handover, gist: object) -> bool:
        # While another sidecar is followed, what it wrote is observed before it is replaced.
        for _ in range(1 if time.monotonic() < self._follow_until else 2):
            previous = self._document or self._store.read()
            if self._is_current(previous, current, gist):
                self._document = previous
                return True
            self._document = self._store.write(handover.written(self.name, current), previous)
            if self._document is not None:
                return True
        return False

    def _is_current(self, document: StoredDocument, current: Handover, gist: object) -> bool:
        """True if another sidecar, still running, has written the same not long ago."""
        try:
            previous = handover.read(document.content, self.name, self._clock())
        except ForeignHandoverError:
            raise  # it is not replaced: who wrote it may still run, or come back
        except HandoverError:
            return False
        if previous is None or previous.observer == self._observer:
            return False
        self.pods = previous.cluster.pods
        if previous.ended:
            return False
        return current.alive.wall - previous.alive.wall < CONFIRM_SECONDS * SECOND and previous.gist() == gist

    def _log_accepted(self, previous: Handover) -> None:
        _log.info(
            "cluster %s: continuing from the handover of sidecar %s, written %s ago: %d leaders%s%s",
            self.name,
            previous.observer,
            seconds(max(0, self._clock().wall - previous.alive.wall)),
            previous.leaders,
            ", a failover in progress" if previous.cluster.episode else "",
            f", {previous.jobs_left_out} jobs left out" if previous.jobs_left_out else "",
        )

    def fail(self, error: Exception) -> None:
        """Log a new problem, and try again later."""
        self.is_up = False
        if self._problem != str(error):
            self._problem = str(error)
            _log.warning(
                "cluster %s: no handover: a sidecar that replaces this one starts without what this one knows: %s",
                self.name,
                error,
            )
        self._document, self._parts = None, ()
        refused = isinstance(error, LedgerRefusedError)
        self._pause = _LONGEST_PAUSE if refused else min(self._pause * 2, _LONGEST_PAUSE)
        self._next_at = time.monotonic() + jittered(self._pause, 0.8)
