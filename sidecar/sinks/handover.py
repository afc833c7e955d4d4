"""Keeps a handover of each cluster in its store, for the sidecar that takes over, and reads the one that was left there."""

import logging
import random
import threading
import time
from collections.abc import Callable, Collection, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Final

from sidecar.clock import Clock
from sidecar.core import handover
from sidecar.core.handover import Handover, HandoverError
from sidecar.core.moment import SECOND, seconds
from sidecar.core.observations import HandoverRead
from sidecar.core.policy.policy import Policy
from sidecar.core.state import State
from sidecar.ports import Document, LedgerError, LedgerRefusedError, LedgerStore

READ_SECONDS: Final = 60.0
"""So long a store that is out of reach is asked for the handover, before its cluster is watched without."""
CONFIRM_SECONDS: Final = 300.0
"""So often it is written although nothing changed: a sidecar that is killed is known to have watched until then."""
PAUSE_SECONDS: Final = 10.0
"""Between two writes for one cluster: at most six a minute."""
STOP_SECONDS: Final = 3.0
_LONGEST_PAUSE: Final = 600.0
_LOOK_SECONDS: Final = 1.0
_READERS: Final = 8

_log = logging.getLogger("sidecar.handover")


class Handovers:
    """`start` reads what was left, then writes in the background; `stop` writes a last time."""

    def __init__(
        self, stores: Mapping[str, LedgerStore], policy: Policy, state: Callable[[], State], clock: Clock
    ) -> None:
        """`stores`: the document of each cluster; of a cluster without one nothing is handed over. `state`: the present one."""
        self._kept = {name: _Kept(name, store, policy.observer, clock) for name, store in stores.items()}
        self._policy = policy
        self._state = state
        self._clock = clock
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="handover", daemon=True)
        self._readers = ThreadPoolExecutor(_READERS, thread_name_prefix="handover-read")

    def start(
        self, new: Collection[str], observe: Callable[[HandoverRead], None], watch: Callable[[str], None]
    ) -> None:
        """Have each cluster watched; before it the handover of those that are `new` to this sidecar is observed."""
        for name in self._policy.stores:
            if name in new and name in self._kept:
                self._readers.submit(self._take_over, name, observe, watch)
            else:
                watch(name)
        self._thread.start()

    def stop(self) -> None:
        """End in bounded time. May be called twice, or before `start`."""
        if self._stopping.is_set():
            return
        self._stopping.set()
        self._readers.shutdown(wait=False, cancel_futures=True)
        if self._thread.ident is None:
            return
        deadline = time.monotonic() + STOP_SECONDS
        self._thread.join(STOP_SECONDS)
        for kept in self._kept.values():
            if time.monotonic() < deadline:
                self._write(kept, ended=True)

    def _take_over(self, name: str, observe: Callable[[HandoverRead], None], watch: Callable[[str], None]) -> None:
        try:
            content = self._kept[name].read_first(self._stopping)
            if content:
                observe(HandoverRead(self._clock(), name, content))
        finally:
            if not self._stopping.is_set():
                watch(name)

    def _run(self) -> None:
        while not self._stopping.wait(_LOOK_SECONDS):
            for kept in self._kept.values():
                if self._stopping.is_set():
                    return
                if kept.is_due:
                    self._write(kept)

    def _write(self, kept: "_Kept", *, ended: bool = False) -> None:
        state = self._state()
        cluster = state.clusters.get(kept.name)
        if cluster is None or not cluster.in_sight or not cluster.ever_led:
            return  # what cannot be seen is not handed over as what is so
        if not ended and not kept.may_have_changed(state):
            return
        kept.write(handover.of(self._policy, state, kept.name, self._clock(), ended=ended))


class _Kept:
    """The document of one cluster."""

    def __init__(self, name: str, store: LedgerStore, observer: str, clock: Clock) -> None:
        self.name = name
        self._store = store
        self._observer = observer
        self._clock = clock
        self._lock = threading.Lock()
        self._document: Document | None = None
        self._gist: object = None
        self._looked_at: tuple[object, ...] = ()
        self._next_at = 0.0
        self._confirm_at = 0.0
        self._pause = PAUSE_SECONDS
        self._problem: str | None = None

    @property
    def is_due(self) -> bool:
        """Whether it may be written again."""
        return time.monotonic() >= self._next_at

    def may_have_changed(self, state: State) -> bool:
        """Whether it is to be confirmed, or something changed of what is handed over."""
        cluster = state.clusters[self.name]
        parts = (
            cluster.components,
            cluster.episode,
            cluster.last_episode,
            cluster.standby,
            state.alerts.groups,
            state.alerts.failovers,
            state.outbox,
        )
        same = len(self._looked_at) == len(parts) and all(a is b for a, b in zip(self._looked_at, parts, strict=True))
        self._looked_at = parts
        return not same or time.monotonic() >= self._confirm_at

    def read_first(self, stopping: threading.Event) -> bytes | None:
        """What another sidecar left, or None."""
        deadline, pause = time.monotonic() + READ_SECONDS, 0.5
        while not stopping.is_set():
            try:
                with self._lock:
                    self._document = self._store.read()
                    self._store.rest()
                found = handover.read(self._document.content, self.name, self._clock())
            except LedgerRefusedError as error:
                self.failed(error)
                return None
            except LedgerError as error:
                if time.monotonic() + pause >= deadline:
                    self.failed(error)
                    return None
                stopping.wait(pause * random.uniform(0.5, 1.0))  # noqa: S311  jitter
                pause = min(pause * 2, 10.0)
            except HandoverError as error:
                _log.warning("cluster %s: the handover in the store is not used: %s", self.name, error)
                return None
            else:
                return self._announced(found)
        return None

    def _announced(self, found: Handover | None) -> bytes | None:
        if found is None or self._document is None:
            return None
        age = max(0, self._clock().wall - found.alive.wall)
        in_progress = ", a failover in progress" if found.cluster.episode else ""
        left_out = f", {found.jobs_left_out} jobs left out" if found.jobs_left_out else ""
        _log.info(
            "cluster %s: continuing from the handover of sidecar %s, written %s ago: %d leaders%s%s",
            self.name,
            found.observer,
            seconds(age),
            found.leaders,
            in_progress,
            left_out,
        )
        return self._document.content

    def write(self, now: Handover) -> None:
        """Unless nothing changed, or another sidecar has just written the same."""
        gist, confirming = now.gist(), time.monotonic() >= self._confirm_at
        if gist == self._gist and not confirming and not now.ended:
            return
        try:
            with self._lock:
                written = self._written(now, gist)
                self._store.rest()
        except (LedgerError, HandoverError) as error:
            self.failed(error)
            return
        if not written:
            return  # somebody else writes just now: tried again at once
        if self._problem is not None:
            _log.info("cluster %s: the handover is written again", self.name)
        self._gist, self._problem, self._pause = gist, None, PAUSE_SECONDS
        self._next_at = time.monotonic() + PAUSE_SECONDS
        self._confirm_at = time.monotonic() + CONFIRM_SECONDS * random.uniform(0.9, 1.0)  # noqa: S311  jitter

    def _written(self, now: Handover, gist: object) -> bool:
        """Whether the document says what is known `now`."""
        for _ in range(2):
            over = self._document or self._store.read()
            if self._is_said(over, now, gist):
                self._document = over
                return True
            self._document = self._store.write(handover.written(self.name, now), over)
            if self._document is not None:
                return True
        return False

    def _is_said(self, there: Document, now: Handover, gist: object) -> bool:
        """Whether another living sidecar has written the same."""
        try:
            found = handover.read(there.content, self.name, self._clock())
        except HandoverError:
            return False
        if found is None or found.observer == self._observer or found.ended:
            return False
        return now.alive.wall - found.alive.wall < CONFIRM_SECONDS * SECOND and found.gist() == gist

    def failed(self, error: Exception) -> None:
        """Log what is new, and try again later."""
        if self._problem != str(error):
            self._problem = str(error)
            _log.warning(
                "cluster %s: no handover: a sidecar that replaces this one starts without what this one knows: %s",
                self.name,
                error,
            )
        self._document = None
        refused = isinstance(error, LedgerRefusedError)
        self._pause = _LONGEST_PAUSE if refused else min(self._pause * 2, _LONGEST_PAUSE)
        self._next_at = time.monotonic() + self._pause * random.uniform(0.8, 1.0)  # noqa: S311  jitter
