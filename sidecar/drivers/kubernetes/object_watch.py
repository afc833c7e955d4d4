"""Lists and watches objects of one kind, for what is optional: when it fails, only that is not known."""

import logging
import random
import threading
import time
from collections.abc import Mapping
from functools import partial
from http import HTTPStatus
from typing import Final, Generic, Protocol, TypeVar

from sidecar.drivers.kubernetes.api import Api, Selector
from sidecar.drivers.kubernetes.api_error import ApiError
from sidecar.drivers.kubernetes.plan_objects import OF_OBJECTS, Read, read_change, read_page
from sidecar.drivers.kubernetes.retries import Retries
from sidecar.drivers.kubernetes.stream import Stream
from sidecar.drivers.log_throttle import LogThrottle
from sidecar.threads import ServiceThread

MOST_OBJECTS: Final = 5_000
"""Objects that are read; the rest is left out, and the log says so."""
_WATCH_SECONDS: Final = (240, 290)
_SILENCE_SECONDS: Final = 90.0
"""A watch without an event, and without the bookmark of each minute, is not trusted."""
_REFUSED_SECONDS: Final = 30.0
"""Pause after a refusal: somebody may grant the permission, or install the CRD."""
_STEADY_SECONDS: Final = 5.0

_log = logging.getLogger("sidecar.plans")
_T = TypeVar("_T")
_T_contra = TypeVar("_T_contra", contravariant=True)


class Reports(Protocol[_T_contra]):
    """What is made of the objects. Called by one thread."""

    def listed(self, items: Mapping[str, _T_contra], *, complete: bool) -> None:
        """The objects that there are now, by name. `complete`: there are no others."""

    def changed(self, name: str, value: _T_contra, *, deleted: bool = False) -> None:
        """One object; `deleted`: as it was last."""

    def lost(self) -> None:
        """They cannot be read any more."""


class ObjectWatch(Generic[_T]):
    """One thread, one open watch. A watch that ends in order continues where it ended; after anything else all is listed again."""

    def __init__(
        self, api: Api, selector: Selector, read: Read[_T], reports: Reports[_T], role: str, without: str
    ) -> None:
        """`role`: the rule that the Role needs; `without`: what is not known without it, for the log."""
        self._api = api
        self._selector = selector
        self._read = partial(read_page, read=read, qualified=api.qualified)
        self._read_change = partial(read_change, read=read, qualified=api.qualified)
        self._reports = reports
        self._role = role
        self._without = without
        self._until: str | None = None
        """The resource version up to which everything was reported; None: it has to be listed."""
        self._connected = False
        self._retries = Retries()
        self._throttle = LogThrottle()
        self._stopping = threading.Event()
        self.thread = ServiceThread(self._run, "kubernetes-plans")

    def cut(self) -> None:
        """Ask the thread to end. May be called repeatedly."""
        self._stopping.set()
        self._api.cut()

    def _run(self) -> None:
        while not self._stopping.is_set():
            pause = 0.0
            try:
                self._follow()
            except ApiError as error:
                pause = self._failed(error)
            except Exception:  # noqa: BLE001  it starts over after any error
                _log.exception("reading %s failed", self._selector)
                self._lost()
            self._stopping.wait(max(pause, self._retries.pause()))
        self._api.reopen()

    def _follow(self) -> None:
        """Watch until the watch ends, after a list if there is any doubt."""
        listed = None if self._until else self._list()
        began = time.monotonic()
        since = self._until or ""
        stream = self._api.watch(self._selector, since, random.randint(*_WATCH_SECONDS))  # noqa: S311  spreads load
        try:
            if listed:  # only now: a list that cannot be followed by a watch is out of date at once
                self._connect(*listed)
            self._watch(stream)
        finally:
            stream.close()
        if stream.silent or stream.oversized:
            self._until = None
        self._retries.ended(well=time.monotonic() - began > _STEADY_SECONDS)
        self._api.reopen()  # the token may be replaced before the old one expires

    def _connect(self, found: Mapping[str, _T], left_out: int) -> None:
        if not self._connected:
            _log.info("watching %s", self._selector)
            self._throttle.reset()
        self._connected = True
        if left_out:
            self._warn(
                f"{left_out} {self._selector} are left out: they cannot be decoded, or are more than {MOST_OBJECTS}"
            )
        self._reports.listed(found, complete=not left_out)

    def _list(self) -> tuple[Mapping[str, _T], int]:
        """The objects, and how many others are left out."""
        found: dict[str, _T] = {}
        version, left_out = "", 0
        for page in self._api.pages(self._selector, self._read):
            version = version or page.resource_version
            room = MOST_OBJECTS - len(found)
            found |= {item.name: item.value for item in page.items[:room]}
            left_out += page.left_out + len(page.items[room:])
            if len(found) >= MOST_OBJECTS:
                break
        self._until = version
        return found, left_out

    def _watch(self, stream: Stream) -> None:
        while not self._stopping.is_set():
            line = stream.read(time.monotonic() + _SILENCE_SECONDS)
            if line is None:
                return
            try:
                change = self._read_change(line)
            except ValueError as error:
                self._warn(f"cannot read the watch of {self._selector}: {error}")
                self._until = None
                return
            match change.kind:
                case kind if kind in OF_OBJECTS:
                    if item := change.item:
                        self._reports.changed(item.name, item.value, deleted=kind == "DELETED")
                    else:
                        self._warn(f"one of {self._selector} cannot be decoded")
                case "BOOKMARK":
                    pass
                case _:
                    self._until = None
                    if change.status != HTTPStatus.GONE:
                        self._warn(f"the watch of {self._selector} ended: {change.kind} {change.status}")
                    return
            self._until = change.resource_version or self._until

    def _failed(self, error: ApiError) -> float:
        """Seconds until the next attempt."""
        if error.status == HTTPStatus.GONE:
            self._until = None
            self._retries.ended(well=False)
            return 0.0
        refused = error.status in {HTTPStatus.FORBIDDEN, HTTPStatus.NOT_FOUND}
        needs = f"; the Role needs {self._role}" if error.status == HTTPStatus.FORBIDDEN else ""
        self._warn(f"{self._without}: {error}{needs}")
        self._lost()
        return _REFUSED_SECONDS * random.uniform(0.5, 1.0) if refused else 0.0  # noqa: S311  jitter

    def _warn(self, problem: str) -> None:
        if self._throttle.is_due(problem):
            _log.warning("%s; retrying", problem)

    def _lost(self) -> None:
        self._until = None
        self._retries.ended(well=False)
        self._api.reopen()
        if self._connected:
            self._connected = False
            self._reports.lost()
