"""Watches ConfigMaps with leaders: of one cluster, or of many."""

import logging
import random
import time
from abc import abstractmethod
from collections.abc import Callable

from msgspec import Struct

from sidecar.core.moment import Moment
from sidecar.core.observations import ConnectionState
from sidecar.drivers.kubernetes.access import ApiError
from sidecar.drivers.kubernetes.api import Api, Selector, Stream
from sidecar.drivers.kubernetes.configmap_reports import ConfigMapReports
from sidecar.drivers.kubernetes.expectations import is_older
from sidecar.drivers.kubernetes.list_watch import ListWatch
from sidecar.drivers.kubernetes.objects import ConfigMap, ConfigMapList, Version, WatchEvent, read_watch_event

_log = logging.getLogger("sidecar.kubernetes")


class _Listing(Struct, frozen=True):
    """The result of one list. `settled`: report it as it is; otherwise the watch delivers the changes up to it, in order."""

    at: Moment
    since: str
    config_maps: dict[str, ConfigMap]
    changes: dict[str, Version | None]
    settled: bool


class ConfigMapWatch(ListWatch[_Listing, ConfigMap]):
    """Every 7 to 14 s the view is confirmed, also while the watch delivers: its events may be old. Where the list is short everything is
    listed; else one ConfigMap is read, and the watch has to reach its resource version. A lease that was not renewed is confirmed likewise.
    A watch that does not deliver what was read is opened again. After an outage missed changes are reported in order, as far back as the
    API server remembers them, otherwise only the result.
    """

    def __init__(
        self,
        api: Api,
        selector: Selector,
        subject: str,
        thread_name: str,
        reports: ConfigMapReports,
        clock: Callable[[], Moment],
    ) -> None:
        """`subject`: whose ConfigMaps, for the log."""
        super().__init__(api, selector, subject, thread_name, _log)
        self._clock = clock
        self._reports = reports
        self._expectations = reports.expectations

    # -- what is listed ------------------------------------------------------------------------------------------------

    @abstractmethod
    def _read_list(self) -> tuple[Selector, ConfigMapList]:
        """All ConfigMaps that may be wanted, and what selects them. Raises ApiError."""

    @abstractmethod
    def _is_wanted(self, config_map: ConfigMap) -> bool:
        """True if the ConfigMap holds the leaders of a cluster that is watched."""

    @property
    def _is_short(self) -> bool:
        """True if everything is listed to confirm the view."""
        return True

    def _view_changed(self, previous: ConnectionState | None) -> None:
        """The connection has changed."""

    def _completed(self) -> None:
        """Everything has been read since it connected."""

    def _refused(self, reason: str) -> None:
        """The API server does not let itself be read."""

    # -- lists ---------------------------------------------------------------------------------------------------------

    def _list(self) -> tuple[str, _Listing]:
        # Before the request: a late answer must not expire a lease that was renewed meanwhile.
        at, now = self._clock(), time.monotonic()
        selector, everything = self._read_list()
        while name := self._expectations.leases.expired(now):
            self._expectations.leases.confirmed(name)
        if selector != self._selector:
            self._selector, self._until = selector, None
        config_maps = {name: value for name, value in everything.config_maps.items() if self._is_wanted(value)}
        changes, until = self._reports.changes(config_maps), self._until
        # Older than what was reported: the store was restored from a backup. A watch that starts in its future would stay silent.
        settled = not changes or until is None or is_older(everything.resource_version, until) is True
        since = everything.resource_version if settled or until is None else until
        return since, _Listing(at, since, config_maps, changes, settled)

    def _begin(self, listing: _Listing) -> None:
        anew = self._reports.connection is not ConnectionState.CONNECTED
        self._expectations.heard(time.monotonic())
        self._set_view(listing.at, ConnectionState.CONNECTED)
        self._report_list(listing, anew=anew)

    def _report_list(self, listing: _Listing, *, anew: bool = False) -> None:
        for name in sorted({*self._reports.names} - listing.config_maps.keys()) if listing.settled else ():
            self._reports.removed(listing.at, name)
        for name, config_map in listing.config_maps.items():
            if listing.settled or name not in listing.changes:
                self._reports.observed(listing.at, config_map, anew=anew)
        self._expectations.undelivered = {} if listing.settled else listing.changes
        self._expectations.asked(time.monotonic(), listing.at, few=self._is_short)
        self._reached()

    # -- the watch -----------------------------------------------------------------------------------------------------

    def _decode(self, line: bytes) -> WatchEvent[ConfigMap]:
        self._expectations.heard(time.monotonic())
        return read_watch_event(line, qualified=self._api.qualified)

    def _changed(self, event: WatchEvent[ConfigMap]) -> bool:
        config_map = event.item
        if config_map and event.kind == "DELETED":
            self._deleted(config_map)
        elif config_map and self._is_wanted(config_map):
            self._reports.observed(self._clock(), config_map)
        return True

    def _deleted(self, config_map: ConfigMap) -> None:
        if config_map.name in self._reports.names:
            self._reports.removed(self._clock(), config_map.name)

    def _watch(self, stream: Stream) -> bool:
        delivered = super()._watch(stream)
        if self._expectations.undelivered and (stream.silent or not delivered):
            self._until = None  # the watch does not deliver
        self._doubtful = self._doubtful or self._is_short or not self._expectations.caught_up
        return delivered

    def _reached(self) -> None:
        """Report that the view is complete and how old it is, if the watch has delivered what was asked for."""
        at = self._expectations.confirmed(self._until)
        if at and self._reports.confirmed(at, self._clock()):
            self._completed()

    # -- confirmations -------------------------------------------------------------------------------------------------

    def _deadline(self) -> float | None:
        now = time.monotonic()
        if self._expectations.given_up(now) or (self._expectations.is_due(now) and not self._confirm()):
            return None
        return self._expectations.deadline()

    def _confirm(self) -> bool:
        """Find out how far the watch has to be. False: it can no longer deliver what was read."""
        try:
            return self._confirm_list() if self._is_short else self._confirm_one()
        except ApiError as error:
            if not error.throttled:
                raise
            self._warn(str(error))  # the watch goes on: the view is only not confirmed
            self._expectations.postponed(time.monotonic(), error.retry_after)
            return True

    def _confirm_list(self) -> bool:
        since, listing = self._list()
        if listing.settled and listing.changes:
            return False
        self._until = since
        self._report_list(listing)
        return True

    def _confirm_one(self) -> bool:
        leases = self._expectations.leases
        expired = leases.expired(time.monotonic())
        name = expired or random.choice([*self._reports.names])  # noqa: S311  any of them
        at = self._clock()
        answer = self._api.read_one(name)
        config_map = answer.config_maps.get(name)
        if expired:
            leases.confirmed(expired)
        if not self._reports.is_reported(name, config_map):
            self._expectations.undelivered[name] = config_map.version if config_map else None
        elif expired and config_map:
            self._reports.observed(at, config_map)
        self._expectations.asked(time.monotonic(), at, answer.resource_version)
        self._reached()
        return True

    # -- the connection ------------------------------------------------------------------------------------------------

    def _disconnected(self, error: ApiError | None) -> None:
        self._expectations.forget()
        self._set_view(self._clock(), ConnectionState.SUSPENDED)
        if error and error.refused:
            self._refused(str(error))

    def _set_view(self, at: Moment, connection: ConnectionState) -> None:
        previous = self._reports.connection
        if not self._reports.view(at, connection):
            return
        if connection is ConnectionState.CONNECTED:
            self._throttle.reset()
            _log.info("watching %s in %s of Kubernetes", self._selector, self._api.where)
        self._view_changed(previous)
