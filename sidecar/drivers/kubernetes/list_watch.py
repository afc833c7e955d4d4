"""Lists, then watches, for ever: the one place that decides what each answer of the API server means."""

import logging
import random
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Iterable
from http import HTTPStatus
from typing import Final, Generic, Protocol, TypeVar

from sidecar.drivers.kubernetes.access import ApiError
from sidecar.drivers.kubernetes.api import Api, Selector, Stream
from sidecar.drivers.kubernetes.objects import OF_OBJECTS, WatchEvent
from sidecar.drivers.log_throttle import LogThrottle
from sidecar.runtime.threads import ServiceThread, jittered

_WATCH_SECONDS: Final = (240, 290)
_STEADY_SECONDS: Final = 5.0
_FIRST_PAUSE: Final = 0.1
_LONGEST_PAUSE: Final = 5.0
_GROWTH: Final = 1.3
"""A pause is a quarter of the outage so far: an outage of two seconds stays below the trust window."""
_MESSAGE_LENGTH: Final = 200
_CUT_AGAIN_SECONDS: Final = 0.1

_List = TypeVar("_List")
_Item = TypeVar("_Item")


class ListWatch(ABC, Generic[_List, _Item]):
    """One thread, one open watch. A watch that ends in order continues where it ended; where there is doubt, everything is listed.

    410: what followed the last report is forgotten, and the next list is reported as it is. An error in a watch, or a watch that is silent
    or cannot be decoded: a list, then the watch again. Any other refusal and a broken connection: disconnected, until an attempt succeeds;
    the pauses grow to 5 s. The API server may ask for longer ones (429, API Priority and Fairness).
    """

    def __init__(
        self, api: Api, selector: Selector, subject: str, thread_name: str, log: logging.Logger, role: str = ""
    ) -> None:
        """`subject`: what is watched, or is not known without it, for the log. `role`: the rule that the Role needs, if it is optional."""
        self._api = api
        self._selector = selector
        self._subject = subject
        self._log = log
        self._role = role
        self._until: str | None = None
        """The resource version up to which everything was reported; None: changes since then are lost."""
        self._doubtful = True
        """True if everything is listed before the next watch."""
        self._pause = 0.0
        """The pause before the next attempt, with jitter: it grows with each attempt that fails or ends early."""
        self._throttle = LogThrottle()
        self._stopping = threading.Event()
        self.thread = ServiceThread(self._run, thread_name)

    def cut(self) -> None:
        """Ask the thread to end. May be called repeatedly: a watch may be about to open."""
        self._stopping.set()
        self._api.cut()

    # -- what is listed and watched ------------------------------------------------------------------------------------

    @abstractmethod
    def _list(self) -> tuple[str, _List]:
        """Read everything. Returns the resource version from which the watch delivers what is not reported. Raises ApiError."""

    @abstractmethod
    def _begin(self, listing: _List) -> None:
        """Report `listing`: the watch that follows it is open."""

    @abstractmethod
    def _deadline(self) -> float | None:
        """The time to list if the watch stays silent until then (monotonic); None: at once. Raises ApiError."""

    @abstractmethod
    def _decode(self, line: bytes) -> WatchEvent[_Item]:
        """Raises ValueError."""

    @abstractmethod
    def _changed(self, event: WatchEvent[_Item]) -> bool:
        """Report an object that was added, modified or deleted. Returns whether the watch continues."""

    @abstractmethod
    def _disconnected(self, error: ApiError | None) -> None:
        """Nothing can be observed from now on. None: because of an error of our own."""

    def _reached(self) -> None:
        """The watch has delivered everything up to `_until`."""

    def _shortest_pause(self, error: ApiError) -> float:
        """The shortest time to wait after this error."""
        return error.retry_after

    # -- the thread ----------------------------------------------------------------------------------------------------

    def _run(self) -> None:
        while not self._stopping.is_set():
            wait = 0.0
            try:
                self._follow()
            except ApiError as error:
                if not self._stopping.is_set():  # else `cut` has aborted the request
                    wait = self._failed(error)
            except Exception:  # noqa: BLE001  it must not go blind: it starts over after any error
                self._log.exception("reading %s failed", self._selector)
                self._until = None
                self._disconnect(None)
            self._stopping.wait(max(wait, jittered(self._pause, 0.5)))
        self._api.reopen()

    def _follow(self) -> None:
        since, listing = self._until, None
        if since is None or self._doubtful:
            since, listing = self._list()
        began = time.monotonic()
        stream = self._api.watch(self._selector, since, random.randint(*_WATCH_SECONDS))  # noqa: S311  spreads sidecars over time
        try:
            if listing is not None:  # only now: a list that cannot be followed by a watch is out of date at once
                self._until, self._doubtful = since, False
                self._begin(listing)
            self._watch(stream)
        finally:
            stream.close()
        self._ended(well=stream.silent or time.monotonic() - began > _STEADY_SECONDS)
        if not stream.silent:
            self._api.reopen()  # every few minutes: a token may be replaced long before the old one expires

    def _watch(self, stream: Stream) -> bool:
        """Report what the watch delivers until it ends or a list is due. Returns whether it delivered anything."""
        delivered = False
        while not self._stopping.is_set() and (deadline := self._deadline()) is not None:
            line = stream.read(deadline)
            if line is None:
                break
            try:
                event = self._decode(line)
            except ValueError as error:
                self._warn(f"cannot read {self._watch_label}: {error}")
                self._until = None
                break
            if not self._process(event):
                self._doubtful = True
                break
            delivered = True
        if stream.oversized:
            self._warn(f"{self._watch_label} sent an event that is too long")
            self._until = None
        self._doubtful = self._doubtful or stream.silent
        return delivered

    def _process(self, event: WatchEvent[_Item]) -> bool:
        """True if the watch continues."""
        if event.kind in OF_OBJECTS:
            if not self._changed(event):
                return False
        elif event.kind != "BOOKMARK":
            if not self._is_forgotten(event.status):
                message = " ".join(event.message.split())[:_MESSAGE_LENGTH]
                self._warn(f"{self._watch_label} ended: {event.kind} {event.status} {message}".rstrip())
            return False
        self._until = event.resource_version or self._until
        self._reached()
        return True

    # -- failures ------------------------------------------------------------------------------------------------------

    def _is_forgotten(self, status: int | None) -> bool:
        """True if the API server has forgotten the changes after `_until` (410)."""
        if status == HTTPStatus.GONE:
            self._until = None
        return status == HTTPStatus.GONE

    def _failed(self, error: ApiError) -> float:
        """Seconds to wait at least."""
        if self._is_forgotten(error.status):
            self._ended(well=False)
            return 0.0
        needs = f"; the Role needs {self._role}" if self._role and error.status == HTTPStatus.FORBIDDEN else ""
        self._warn(f"{error}{needs}")
        self._disconnect(error)
        return self._shortest_pause(error) * random.uniform(1.0, 1.25)  # noqa: S311  spreads sidecars over time

    def _disconnect(self, error: ApiError | None) -> None:
        self._doubtful = True
        self._ended(well=False)
        self._api.reopen()
        self._disconnected(error)

    def _ended(self, *, well: bool) -> None:
        """An attempt ended: in order, or not."""
        self._pause = 0.0 if well else min(max(self._pause * _GROWTH, _FIRST_PAUSE), _LONGEST_PAUSE)

    @property
    def _watch_label(self) -> str:
        return f"the watch of {self._selector} in {self._api.where}"

    def _warn(self, problem: str) -> None:
        if self._throttle.is_due(problem):
            self._log.warning("%s: %s; retrying", self._subject, problem)


class Cuttable(Protocol):
    """A thread that reads from the API server."""

    @property
    def thread(self) -> threading.Thread: ...

    def cut(self) -> None:
        """Ask the thread to end."""


def end(readers: Iterable[Cuttable], seconds: float) -> int:
    """End their threads within so many seconds. Returns how many are abandoned."""
    running = [reader for reader in readers if reader.thread.ident is not None]
    deadline = time.monotonic() + seconds
    while running and time.monotonic() < deadline:
        for reader in running:
            reader.cut()
        running[0].thread.join(_CUT_AGAIN_SECONDS)
        running = [reader for reader in running if reader.thread.is_alive()]
    return len(running)
