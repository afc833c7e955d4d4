"""Lists and watches objects of one kind, for what is optional: when it fails, only that is not known."""

import logging
import time
from collections.abc import Mapping
from functools import partial
from http import HTTPStatus
from typing import Final, Protocol, TypeVar

from sidecar.drivers.kubernetes.api import Api, Selector
from sidecar.drivers.kubernetes.api_error import ApiError
from sidecar.drivers.kubernetes.list_watch import ListWatch
from sidecar.drivers.kubernetes.objects import Item, Read, WatchEvent, read_change, read_page

MOST_OBJECTS: Final = 5_000
"""Objects that are read; the rest is left out, and the log says so."""
_SILENCE_SECONDS: Final = 90.0
"""A watch without an event, and without the bookmark of each minute, is not trusted."""
_REFUSED_SECONDS: Final = 20.0
"""Pause after a refusal: somebody may grant the permission, or install the CRD."""

_log = logging.getLogger("sidecar.plans")
_T = TypeVar("_T")
_T_contra = TypeVar("_T_contra", contravariant=True)


class Reports(Protocol[_T_contra]):
    """Receives the objects of a watch. Called by one thread."""

    def listed(self, items: Mapping[str, _T_contra], *, complete: bool) -> None:
        """The objects that there are now, by name. `complete`: there are no others."""

    def changed(self, name: str, value: _T_contra, *, deleted: bool = False) -> None:
        """Note one object. `deleted`: `value` is its last state."""

    def lost(self) -> None:
        """Note that the objects cannot be read any more."""


def _nobody(*, refused: bool) -> None:
    """Ignore whether the API server refuses to list the objects."""


class Refusals(Protocol):
    """Told whether the API server refuses to list the objects, at each attempt."""

    def __call__(self, *, refused: bool) -> None: ...


class ObjectWatch(ListWatch[tuple[Mapping[str, _T], int], Item[_T]]):
    """A list is the objects, and how many others are left out."""

    def __init__(
        self,
        api: Api,
        selector: Selector,
        read: Read[_T],
        reports: Reports[_T],
        role: str,
        without: str,
        refusals: Refusals = _nobody,
    ) -> None:
        """`role`: the rule that the Role needs; `without`: what is not known without it, for the log."""
        super().__init__(api, selector, without, "kubernetes-plans", _log, role)
        self._read_page = partial(read_page, read=read, qualified=api.qualified)
        self._read_change = partial(read_change, read=read, qualified=api.qualified)
        self._reports = reports
        self._connected = False
        self._refusals = refusals

    def _list(self) -> tuple[str, tuple[Mapping[str, _T], int]]:
        objects: dict[str, _T] = {}
        version, left_out = "", 0
        for page in self._api.pages(self._selector, self._read_page):
            version = version or page.resource_version
            room = MOST_OBJECTS - len(objects)
            objects |= {item.name: item.value for item in page.items[:room]}
            left_out += page.left_out + len(page.items[room:])
            if len(objects) >= MOST_OBJECTS:
                break
        return version, (objects, left_out)

    def _begin(self, listing: tuple[Mapping[str, _T], int]) -> None:
        objects, left_out = listing
        if not self._connected:
            _log.info("watching %s", self._selector)
            self._throttle.reset()
        self._connected = True
        self._refusals(refused=False)
        if left_out:
            self._warn(
                f"{left_out} {self._selector} are left out: they cannot be decoded, or are more than {MOST_OBJECTS}"
            )
        self._reports.listed(objects, complete=not left_out)

    def _deadline(self) -> float:
        return time.monotonic() + _SILENCE_SECONDS

    def _decode(self, line: bytes) -> WatchEvent[Item[_T]]:
        return self._read_change(line)

    def _changed(self, event: WatchEvent[Item[_T]]) -> bool:
        if item := event.item:
            self._reports.changed(item.name, item.value, deleted=event.kind == "DELETED")
        else:
            self._warn(f"one of {self._selector} cannot be decoded")
        return True

    def _shortest_pause(self, error: ApiError) -> float:
        refused = error.status in {HTTPStatus.FORBIDDEN, HTTPStatus.NOT_FOUND}
        return _REFUSED_SECONDS if refused else super()._shortest_pause(error)

    def _disconnected(self, error: ApiError | None) -> None:
        status = error.status if error else None
        if status == HTTPStatus.FORBIDDEN:
            self._refusals(refused=True)
        if self._connected:
            self._connected = False
            self._reports.lost()
        if status == HTTPStatus.NOT_FOUND:  # no such kind is installed: there are none
            self._refusals(refused=False)
            self._reports.listed({}, complete=True)
