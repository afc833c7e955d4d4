"""Watches the ConfigMaps of many clusters in one namespace, or in all: one thread, one open watch."""

import logging
import random
import time
from collections.abc import Callable
from http import HTTPStatus
from typing import Final

from sidecar.core.moment import Moment
from sidecar.core.observations import ConnectionState, FinderObservation
from sidecar.core.sanitize import clean
from sidecar.drivers.kubernetes.api import Api, Selector
from sidecar.drivers.kubernetes.found_clusters import FoundClusters, cluster_of
from sidecar.drivers.kubernetes.responses import ConfigMapList, read_watch_event
from sidecar.drivers.kubernetes.scope_reports import ScopeReports
from sidecar.drivers.kubernetes.stream import Stream
from sidecar.drivers.kubernetes.watch_loop import WatchLoop
from sidecar.threads import ServiceThread

FEW: Final = 10
"""So many clusters are listed to confirm the view. Of more, and where the list is long, one is read, and the watch has to reach its
resource version."""
_LONG: Final = 4 << 20
"""Bytes of a list in which others have large ConfigMaps if it has few clusters: from then on, their values are not listed."""
_CONFIRM_SECONDS: Final = 7.0
_CATCH_UP_SECONDS: Final = 1.5
"""How long the watch may be silent although it has to deliver something."""
_LONGEST_CATCH_UP: Final = 10.0
_WATCH_SECONDS: Final = (240, 290)
_STEADY_SECONDS: Final = 5.0
_LARGE: Final = 256 << 10
"""Characters of a ConfigMap that is named if it holds no leaders."""
_MOST_NAMED: Final = 5

_log = logging.getLogger("sidecar.kubernetes")


class Scope(WatchLoop):
    """The clusters of one namespace, or of all. Reports each as `sidecar.ports.LeaderRetrievalDriver` does, between ClusterFound and
    ClusterRemoved.

    It lists once, then watches; a watch that ends in order continues where it ended. Every 7 s the view is confirmed: a list, or the read
    of one ConfigMap, says how far the watch has to be. A lease that was not renewed is confirmed by reading its ConfigMap. After an outage
    it lists again, and reports missed changes in order as far back as the API server remembers them.
    """

    def __init__(
        self,
        api: Api,
        selector: Selector,
        where: str,
        found: FoundClusters,
        clock: Callable[[], Moment],
        report: Callable[[FinderObservation], None],
        changed: Callable[[], None],
    ) -> None:
        """`where`: for the log. `changed` is called when the scope was read completely, was lost, or has clusters that are left out."""
        super().__init__(api, f"clusters in {where}", clock)
        self._selector = selector
        self._where = where
        self._found = found
        self._changed = changed
        self._reports = ScopeReports(found, report)
        self._asked: tuple[Moment, str | None] | None = None
        """A confirmation that is due: as of when, and the resource version that the watch has to reach."""
        self._asked_at = 0.0
        self._heard_at = 0.0
        self._doubtful = True
        """Whether everything is listed before the next watch."""
        self._left_out = 0
        self._long = False
        """Whether the last list with values was."""
        self._large: list[str] = []
        """The large ConfigMaps that were logged last."""
        self.refused = ""
        """Why the API server does not let the clusters be found."""
        self.thread = ServiceThread(self._run, "kubernetes-finder")

    @property
    def complete(self) -> bool:
        """Whether everything has been read since it connected."""
        return self._reports.complete

    def cut(self) -> None:
        """Ask the thread to end. May be called repeatedly: a watch may be about to open."""
        self._stopping.set()
        self._api.cut()

    # -- the thread ----------------------------------------------------------------------------------------------------

    def _follow(self) -> None:
        """Watch until the watch ends, after a list if there is any doubt."""
        since = self._until
        if self._doubtful or since is None:
            since = self._list()
        began = time.monotonic()
        seconds = random.randint(*_WATCH_SECONDS)  # noqa: S311  spreads sidecars over time, hides nothing
        stream = self._api.watch(self._selector, since, seconds)
        try:
            delivered = self._watch(stream)
        finally:
            stream.close()
        self._doubtful = stream.silent or stream.oversized or bool(self._reports.undelivered) or self._asked is not None
        if stream.oversized or (self._reports.undelivered and (stream.silent or not delivered)):
            self._until = None  # the watch does not deliver
        self._retries.ended(well=stream.silent or time.monotonic() - began > _STEADY_SECONDS)
        if not stream.silent:
            self._api.reopen()  # every few minutes: a token may be replaced long before the old one expires

    def _disconnected(self) -> None:
        self._doubtful, self._asked = True, None
        super()._disconnected()

    # -- lists ---------------------------------------------------------------------------------------------------------

    def _list(self) -> str:
        """List everything, and report what the watch will not deliver. Returns where the watch has to begin."""
        while self._reports.lapses.pop(time.monotonic()):
            pass  # the list says whether they were renewed
        at = self._clock()  # before the request: a late answer must not expire a lease that was renewed meanwhile
        listed = self._read_list()
        found = {name: each for name, each in listed.found.items() if self._reports.is_wanted(each)}
        changed, until = self._reports.changes(found), self._until
        settled = not changed or until is None or not is_reached(listed.resource_version, until)
        self._until = since = listed.resource_version if settled or until is None else until
        anew = not self._reports.connected
        self._set_view(at, ConnectionState.CONNECTED)
        if settled:
            self._reports.removed(at, *sorted(self._reports.clusters.keys() - found.keys()))
        for name, config_map in found.items():
            if settled or name not in changed:
                self._reports.observed(at, config_map, anew=anew)
        self._reports.undelivered = {} if settled else changed
        self._ask(at, None)
        self._check_left_out()
        return since

    def _read_list(self) -> ConfigMapList:
        """Everything, where the list is long only the values of clusters."""
        if self._long:
            listed = self._api.read_pages(self._selector, names_only=True)
            clusters = self._reports.clusters
            names = [name for name, each in listed.found.items() if name in clusters or cluster_of(each)]
            if len(names) <= FEW:
                read = [self._api.read_one(name, at=listed.resource_version) for name in names]
                return ConfigMapList(
                    listed.resource_version, {name: x for each in read for name, x in each.found.items()}
                )
        listed = self._api.read_pages(self._selector)
        self._long = listed.size > _LONG
        large = (each.name for each in listed.found.values() if each.size > _LARGE and not cluster_of(each))
        self._log_large(sorted(large))
        return listed

    def _log_large(self, names: list[str]) -> None:
        """Which ConfigMaps make lists long, and are no cluster's; once, until there are others."""
        if names and names != self._large:
            _log.warning(
                "%d ConfigMaps in %s have Flink's label, hold no leaders, and are larger than %d KiB (%s%s): lists take longer; "
                "take the label off, or narrow kubernetes.selector or kubernetes.namespaces",
                len(names),
                self._where,
                _LARGE >> 10,
                ", ".join(map(clean, names[:_MOST_NAMED])),
                ", …" if len(names) > _MOST_NAMED else "",
            )
        self._large = names

    def _confirm(self) -> bool:
        """Find out how far the watch has to be. False: the watch can no longer deliver what a list has found."""
        clusters = self._reports.clusters
        if not clusters or (len(clusters) <= FEW and not self._long):
            since = self._until
            return is_reached(self._list(), since or "")
        lapsed = self._reports.lapses.pop(time.monotonic())
        name = lapsed or random.choice(list(clusters))  # noqa: S311  any of them
        at = self._clock()
        read = self._api.read_one(name)
        config_map = read.found.get(name)
        if not self._reports.is_reported(name, config_map):
            self._reports.undelivered[name] = config_map.version if config_map else None
        elif lapsed and config_map:
            self._reports.observed(at, config_map)
        self._ask(at, read.resource_version)
        return True

    def _ask(self, at: Moment, resource_version: str | None) -> None:
        """`resource_version`: what the watch has to reach; None: the changes that it has yet to deliver are known."""
        self._asked = at, resource_version
        self._asked_at = time.monotonic()
        self._check_caught_up()

    # -- the watch -----------------------------------------------------------------------------------------------------

    def _watch(self, stream: Stream) -> bool:
        """Report what the watch delivers until it ends or is in doubt. Returns whether it delivered anything."""
        delivered = False
        self._heard_at = time.monotonic()
        while not self._stopping.is_set():
            now = time.monotonic()
            if self._asked:
                if now > self._asked_at + _LONGEST_CATCH_UP:
                    break
            elif self._is_due(now) and not self._confirm():
                break
            line = stream.read(self._deadline())
            if line is None:
                break
            self._heard_at = time.monotonic()
            try:
                if not self._process(line):
                    break
            except ValueError as error:
                self._warn(f"cannot read the watch of {self._selector}: {error}")
                self._until = None
                break
            delivered = True
        if stream.oversized:
            self._warn(f"the watch of {self._selector} sent an event that is too long")
        return delivered

    def _is_due(self, now: float) -> bool:
        lapse = self._reports.lapses.next()
        return now > self._asked_at + _CONFIRM_SECONDS or (lapse is not None and lapse <= now)

    def _deadline(self) -> float:
        """How long to wait for the next event."""
        if self._asked:
            return max(self._heard_at, self._asked_at) + _CATCH_UP_SECONDS
        silent_at = max(self._heard_at, self._asked_at) + _CONFIRM_SECONDS
        lapse = self._reports.lapses.next()
        return silent_at if lapse is None else min(silent_at, lapse)

    def _process(self, line: bytes) -> bool:
        """Report one event. Returns whether the watch continues."""
        event = read_watch_event(line, qualified=self._api.qualified)
        config_map = event.config_map
        match event.kind:
            case "ADDED" | "MODIFIED" if self._reports.is_wanted(config_map):
                self._reports.observed(self._clock(), config_map)
            case "DELETED":
                self._reports.deleted(self._clock(), config_map)
            case "ADDED" | "MODIFIED" | "BOOKMARK":
                pass
            case _:
                if event.status == HTTPStatus.GONE:
                    self._until = None
                else:
                    self._warn(f"the watch of {self._selector} ended: {event.kind} {event.status}")
                return False
        self._until = config_map.resource_version or self._until
        self._check_caught_up()
        self._check_left_out()
        return True

    # -- what changed --------------------------------------------------------------------------------------------------

    def _check_caught_up(self) -> None:
        """Report that the view is complete and how old it is, if the watch has delivered what was asked for."""
        if self._reports.undelivered or not self._asked:
            return
        at, wanted = self._asked
        if wanted is None or is_reached(self._until or "", wanted):
            self._asked = None
            if self._reports.confirmed(at, self._clock()):
                self._changed()

    def _check_left_out(self) -> None:
        if self._found.left_out != self._left_out:
            self._left_out = self._found.left_out
            self._changed()

    def _refused(self, reason: str) -> None:
        if reason != self.refused:
            self.refused = reason
            self._changed()

    def _set_view(self, at: Moment, connection: ConnectionState) -> None:
        if connection is ConnectionState.CONNECTED:
            self.refused = ""
        if not self._reports.view(at, connection):
            return
        if connection is ConnectionState.CONNECTED:
            self._throttle.reset()
            _log.info("watching %s in %s of Kubernetes", self._selector, self._where)
        self._changed()


def is_reached(resource_version: str, wanted: str) -> bool:
    """Whether a watch that is at `resource_version` has delivered everything up to `wanted`.

    They are numbers in every API server so far. If they are not, only the same one is known to be reached.
    """
    if resource_version.isdecimal() and wanted.isdecimal() and len(resource_version) < 20 and len(wanted) < 20:
        return int(resource_version) >= int(wanted)
    return resource_version == wanted
