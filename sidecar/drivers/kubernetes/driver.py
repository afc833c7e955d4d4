"""The Kubernetes driver: one thread that lists, watches, and reports observations."""

import logging
import random
import time
from collections.abc import Callable
from http import HTTPStatus

from msgspec import Struct

from sidecar.core.moment import Moment
from sidecar.core.observations import (
    ClusterObservation,
    ConfigMapObserved,
    ConnectionState,
    NothingFound,
    SnapshotCompleted,
    StoreRefused,
    ViewConfirmed,
    ViewObserved,
)
from sidecar.drivers.kubernetes.access import Access
from sidecar.drivers.kubernetes.api import Api, Selector
from sidecar.drivers.kubernetes.configmap_names import LeaderConfigMaps
from sidecar.drivers.kubernetes.expectations import CONFIRMED_WITHIN, Expectations
from sidecar.drivers.kubernetes.responses import ConfigMap, Version, WatchEvent, read_watch_event
from sidecar.drivers.kubernetes.stream import Stream
from sidecar.drivers.kubernetes.watch_loop import WatchLoop
from sidecar.ports import Observer
from sidecar.threads import ServiceThread

_log = logging.getLogger("sidecar.kubernetes")

_WATCH_SECONDS = (240, 290)
_STEADY_SECONDS = 5.0
_CUT_AGAIN_SECONDS = 0.2
_STOP_SECONDS = 4.5
_MESSAGE_LENGTH = 200


class _Listed(Struct, frozen=True):
    """The result of one list. `settled`: report it as it is; otherwise the watch delivers the changes up to it, in order."""

    at: Moment
    selector: Selector
    resource_version: str
    found: dict[str, ConfigMap]
    changed: dict[str, Version | None]
    settled: bool


class KubernetesDriver(WatchLoop):
    """Observes one Flink cluster's leaders in ConfigMaps. Mirrors Flink's `KubernetesLeaderRetrievalDriver`.

    The driver lists, then watches. When the watch is silent for longer than a living leader, it lists again and reports unchanged
    ConfigMaps again. It also lists every 7 to 14 s while the watch delivers: the events of a slow watch may be old. A watch that does
    not deliver what a list has found is opened again. After an outage the driver reports missed changes in order, as far back as the API
    server remembers them, otherwise only the result.

    A cluster has one ConfigMap, selected by its name; before Flink 1.15 one for each component and job, selected by their labels.
    """

    def __init__(self, access: Access, namespace: str, cluster_id: str, clock: Callable[[], Moment]) -> None:
        """`cluster_id` is Flink's `kubernetes.cluster-id`."""
        super().__init__(Api(access, namespace), f"cluster {cluster_id}", clock)
        self._cluster_id = cluster_id
        self._namespace = namespace
        self._config_maps = LeaderConfigMaps(self._api, namespace, cluster_id)
        self._selector = self._config_maps.cluster
        self._reported: dict[str, Version] = {}  # the last reported version, by name
        self._expectations = Expectations()
        self._view: ConnectionState | None = None
        self._complete = False
        self._listed_at: Moment | None = None  # a list whose changes the watch has not all delivered
        self._observer: Observer | None = None
        self._thread: ServiceThread | None = None

    def start(self, observer: Observer) -> None:
        if self._thread is None and not self._stopping.is_set():
            self._observer = observer
            self._thread = ServiceThread(self._run, "kubernetes-driver")
            self._thread.start()

    def stop(self) -> None:
        self._stopping.set()
        if self._thread is None:
            return
        deadline = time.monotonic() + _STOP_SECONDS
        while self._thread.is_alive() and time.monotonic() < deadline:
            self._api.cut()  # repeatedly: a watch may be about to open
            self._thread.join(_CUT_AGAIN_SECONDS)
        if self._thread.is_alive():
            _log.warning("abandoned a request for the ConfigMaps of %s: it did not end in time", self._cluster_id)

    # -- the thread ----------------------------------------------------------------------------------------------------

    def _follow(self) -> None:
        listed = self._list()
        began = time.monotonic()
        seconds = random.randint(*_WATCH_SECONDS)  # noqa: S311  spreads sidecars over time, hides nothing
        stream = self._api.watch(listed.selector, listed.resource_version, seconds)
        try:
            self._selector = listed.selector
            self._until = listed.resource_version
            self._set_view(listed.at, ConnectionState.CONNECTED)
            self._report_list(listed)
            delivered = self._watch(stream)
        finally:
            stream.close()
        if not self._expectations.caught_up and (stream.silent or not delivered):
            self._until = None  # the watch does not deliver
        self._retries.ended(well=stream.silent or time.monotonic() - began > _STEADY_SECONDS)
        if not stream.silent:
            self._api.reopen()  # every few minutes: a token may be replaced long before the old one expires

    # -- lists ---------------------------------------------------------------------------------------------------------

    def _list(self) -> _Listed:
        # The time before the request: a late answer must not expire a lease that was renewed meanwhile.
        at = self._clock()
        selector, listed = self._config_maps.find(self._selector)
        found = {name: each for name, each in listed.found.items() if self._config_maps.includes(selector, name)}
        changed: dict[str, Version | None] = {name: None for name in self._reported if name not in found}
        changed |= {name: each.version for name, each in found.items() if each.version != self._reported.get(name)}
        until = self._until
        if not changed or until is None or selector != self._selector or _is_older(listed.resource_version, until):
            return _Listed(at, selector, listed.resource_version, found, changed, settled=True)
        return _Listed(at, selector, until, found, changed, settled=False)

    def _report_list(self, listed: _Listed) -> None:
        if listed.settled:
            for name in sorted(self._reported.keys() - listed.found.keys()):
                self._report_deleted(listed.at, name)
        for name, config_map in listed.found.items():
            if listed.settled or name not in listed.changed:
                self._report_config_map(listed.at, config_map)
        self._expectations.listed(time.monotonic(), {} if listed.settled else listed.changed)
        self._listed_at = listed.at
        self._report_complete()

    def _confirm(self) -> bool:
        """List beside the watch. False: the watch can no longer deliver what the list has found."""
        listed = self._list()
        if listed.selector != self._selector or (listed.settled and listed.changed):
            return False
        self._report_list(listed)
        return True

    # -- the watch -----------------------------------------------------------------------------------------------------

    def _watch(self, stream: Stream) -> bool:
        """Report what the watch delivers until a list is due. Returns whether it delivered anything."""
        delivered = False
        while not self._expectations.list_overdue(time.monotonic()):
            if self._expectations.confirmation_due(time.monotonic()) and not self._confirm():
                break
            line = stream.read(self._expectations.next_list())
            if line is None or self._stopping.is_set():
                break
            try:
                if not self._process(read_watch_event(line)):
                    break
            except ValueError as error:
                self._warn(f"cannot read the watch of {self._selector} in namespace {self._namespace}: {error}")
                self._until = None
                break
            delivered = True
        if stream.oversized:
            self._warn(f"the watch of {self._selector} in namespace {self._namespace} sent an event that is too long")
            self._until = None
        return delivered

    def _process(self, event: WatchEvent) -> bool:
        """Report one event. Returns whether the watch continues."""
        config_map = event.config_map
        name = config_map.name
        match event.kind:
            case "BOOKMARK":
                self._until = config_map.resource_version or self._until
                return True
            case "ADDED" | "MODIFIED" if self._config_maps.includes(self._selector, name):
                self._report_config_map(self._clock(), config_map)
            case "DELETED" if name in self._reported:
                self._report_deleted(self._clock(), name)
            case "ADDED" | "MODIFIED" if name == self._config_maps.cluster.name:
                return False  # the cluster was upgraded to Flink 1.15 or newer
            case "ADDED" | "MODIFIED" | "DELETED":
                pass
            case _:
                if event.status == HTTPStatus.GONE:
                    self._until = None
                else:
                    message = " ".join(event.message.split())[:_MESSAGE_LENGTH]
                    self._warn(f"the watch of {self._selector} ended: {event.kind} {event.status} {message}".rstrip())
                return False
        self._until = config_map.resource_version
        self._report_complete()
        return True

    # -- observations --------------------------------------------------------------------------------------------------

    def _report_config_map(self, at: Moment, config_map: ConfigMap) -> None:
        name, leader = config_map.name, config_map.leader
        if config_map.version != self._reported.get(name):
            self._reported[name] = config_map.version
            self._expectations.changed(time.monotonic(), name, config_map.version, leader)
        self._report(ConfigMapObserved(at, self._cluster_id, name, *config_map.version, config_map.data, leader))

    def _report_deleted(self, at: Moment, name: str) -> None:
        del self._reported[name]
        self._expectations.changed(time.monotonic(), name, None)
        self._report(ConfigMapObserved(at, self._cluster_id, name))

    def _report_complete(self) -> None:
        if not self._expectations.caught_up:
            return
        if not self._complete:
            self._complete = True
            self._report(SnapshotCompleted(self._clock(), self._cluster_id))
            if not self._config_maps.found:
                place = f"{self._config_maps.cluster} in namespace {self._namespace} of Kubernetes"
                self._report(NothingFound(self._clock(), self._cluster_id, place, self._config_maps.beside))
        if self._listed_at:
            self._report(ViewConfirmed(self._listed_at, self._cluster_id, CONFIRMED_WITHIN))
            self._listed_at = None

    def _set_view(self, at: Moment, connection: ConnectionState) -> None:
        if connection is self._view:
            return
        self._view = connection
        self._complete = False
        self._listed_at = None
        if connection is ConnectionState.CONNECTED:
            self._throttle.reset()
            self._expectations.reconnected(time.monotonic())
            _log.info("watching %s in namespace %s of Kubernetes", self._selector, self._namespace)
        self._report(ViewObserved(at, self._cluster_id, connection))

    def _refused(self, reason: str) -> None:
        self._report(StoreRefused(self._clock(), self._cluster_id, reason))

    def _report(self, observation: ClusterObservation) -> None:
        if self._observer and not self._stopping.is_set():
            self._observer(observation)


def _is_older(resource_version: str, than: str) -> bool:
    """Whether the store was restored from a backup: a watch that starts in its future would stay silent."""
    numbers = [version for version in (resource_version, than) if version.isdecimal() and len(version) < 20]
    return len(numbers) == 2 and int(resource_version) < int(than)
