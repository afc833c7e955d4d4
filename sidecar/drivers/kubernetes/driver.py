"""The driver's one thread: look, listen, look again; observations out."""

import logging
import random
import threading
import time
from collections.abc import Callable
from http import HTTPStatus

from msgspec import Struct

from sidecar.core.flink.configmaps import relevant
from sidecar.core.moment import Moment
from sidecar.core.observations import (
    ClusterObservation,
    ConfigMapObserved,
    ConnectionState,
    NothingFound,
    SnapshotCompleted,
    ViewConfirmed,
    ViewObserved,
)
from sidecar.drivers.kubernetes.access import Access
from sidecar.drivers.kubernetes.api import Api, Selector
from sidecar.drivers.kubernetes.configmap_names import Places
from sidecar.drivers.kubernetes.errors import ApiError
from sidecar.drivers.kubernetes.events import ConfigMap, Event, Version, read_event
from sidecar.drivers.kubernetes.expectations import CONFIRMED_WITHIN, Expectations
from sidecar.drivers.kubernetes.stream import Stream
from sidecar.drivers.log_throttle import Said
from sidecar.ports import Observer
from sidecar.threads import ServiceThread

_log = logging.getLogger("sidecar.kubernetes")

_WATCH_SECONDS = (240, 290)
_FIRST_PAUSE = 0.1
_LONGEST_PAUSE = 5.0
# A pause is a quarter of how long it has lasted: a blink of two seconds costs little more sight than itself, below the trust window.
_GROWTH = 1.3
_STEADY_SECONDS = 5.0
_CUT_AGAIN_SECONDS = 0.2
_STOP_SECONDS = 4.5
_MESSAGE_LENGTH = 200


class _Look(Struct, frozen=True):
    """What stood there at a moment. `settled`: it is told as it is; else the watch tells how it came to that from what was told last."""

    at: Moment
    selector: Selector
    resource_version: str
    found: dict[str, ConfigMap]
    changed: dict[str, Version | None]
    settled: bool


class KubernetesDriver:
    """Sees one Flink cluster's leaders in ConfigMaps. Mirrors Flink's `KubernetesLeaderRetrievalDriver`.

    It lists, then watches. When nothing was heard for longer than a living leader is silent, it looks again, and tells again what has not
    changed. While it hears something it looks all the same, beside the watch, every 7 to 14 s: a watch that trickles tells old news, and
    one that does not tell what stands there is opened anew. What happened while it could not see it tells in order, for as far back as the
    API server remembers, else how it ended.

    A cluster has one ConfigMap, listed and watched by its name; before Flink 1.15 one for each component and job, found by their labels.
    """

    def __init__(self, access: Access, namespace: str, cluster_id: str, clock: Callable[[], Moment]) -> None:
        """`cluster_id` is Flink's `kubernetes.cluster-id`."""
        self._cluster_id = cluster_id
        self._clock = clock
        self._namespace = namespace
        self._api = Api(access, namespace)
        self._places = Places(self._api, namespace, cluster_id)
        self._selector = self._places.cluster
        self._told: dict[str, Version] = {}  # what was told last, by name
        self._told_until: str | None = None  # the store's resource version then; None: what is between cannot be had
        self._expectations = Expectations()
        self._view: ConnectionState | None = None
        self._complete = False
        self._looked_at: Moment | None = None  # a look of which the watch has not told all yet
        self._pause = 0.0
        self._said = Said()
        self._observer: Observer | None = None
        self._thread: ServiceThread | None = None
        self._stopping = threading.Event()

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
            self._api.cut()  # again and again: a watch may be about to begin
            self._thread.join(_CUT_AGAIN_SECONDS)
        if self._thread.is_alive():
            _log.warning("abandoned a request for the ConfigMaps of %s: it did not end in time", self._cluster_id)

    # -- the thread ----------------------------------------------------------------------------------------------------

    def _run(self) -> None:
        while not self._stopping.is_set():
            try:
                self._look_and_listen()
            except ApiError as error:
                self._failed(error)
            except Exception:  # noqa: BLE001  the ear must not go deaf: from whatever surprise, it begins anew
                _log.exception("reading the ConfigMaps of %s failed", self._cluster_id)
                self._told_until = None
                self._lose()
            self._stopping.wait(self._pause * random.uniform(0.5, 1.0))  # noqa: S311  spreads sidecars over time, hides nothing
        self._api.reopen()

    def _look_and_listen(self) -> None:
        look = self._look()
        began = time.monotonic()
        seconds = random.randint(*_WATCH_SECONDS)  # noqa: S311  the same
        stream = self._api.watch(look.selector, look.resource_version, seconds)
        try:
            self._tell_look(look)
            heard = self._listen(stream)
        finally:
            stream.close()
        if not self._expectations.caught_up and (stream.silent or not heard):
            self._told_until = None  # it is deaf
        if stream.silent or time.monotonic() - began > _STEADY_SECONDS:
            self._pause = 0.0
        else:
            self._slow_down()
        if not stream.silent:
            self._api.reopen()  # every few minutes: a token may have been replaced long before the old one expires

    def _slow_down(self) -> None:
        self._pause = min(max(self._pause * _GROWTH, _FIRST_PAUSE), _LONGEST_PAUSE)

    def _failed(self, error: ApiError) -> None:
        if error.status == HTTPStatus.GONE:
            self._told_until = None
            self._slow_down()
            return
        self._say(str(error))
        self._lose()

    def _say(self, line: str) -> None:
        if self._said.is_news(line):
            _log.warning("cluster %s: %s; retrying", self._cluster_id, line)

    def _lose(self) -> None:
        self._slow_down()
        self._api.reopen()
        self._tell_view(self._clock(), ConnectionState.SUSPENDED)

    # -- looking -------------------------------------------------------------------------------------------------------

    def _look(self) -> _Look:
        # The time before it is asked: an answer that comes late must not end a lease that was renewed meanwhile.
        at = self._clock()
        selector, listing = self._places.find(self._selector)
        found = {name: config_map for name, config_map in listing.found.items() if self._places.holds(selector, name)}
        changed: dict[str, Version | None] = {name: None for name in self._told if name not in found}
        changed |= {name: found[name].version for name in found if found[name].version != self._told.get(name)}
        until = self._told_until
        settled = (
            not changed or until is None or selector != self._selector or _is_older(listing.resource_version, until)
        )
        resource_version = listing.resource_version if settled or until is None else until
        return _Look(at, selector, resource_version, found, changed, settled)

    def _tell_look(self, look: _Look) -> None:
        self._selector = look.selector
        self._told_until = look.resource_version
        self._tell_view(look.at, ConnectionState.CONNECTED)
        if look.settled:
            for name in sorted(self._told.keys() - look.found.keys()):
                self._tell_gone(look.at, name)
        for name, config_map in look.found.items():
            if look.settled or name not in look.changed:
                self._tell_config_map(look.at, config_map)
        self._expectations.looked(time.monotonic(), {} if look.settled else look.changed)
        self._looked_at = look.at
        self._tell_complete()

    def _confirm(self) -> bool:
        """Look beside the watch. False: what stands there is not what a watch could still tell."""
        look = self._look()
        if look.selector != self._selector or (look.settled and look.changed):
            return False
        for name, config_map in look.found.items():
            if name not in look.changed:
                self._tell_config_map(look.at, config_map)
        self._expectations.looked(time.monotonic(), look.changed)
        self._looked_at = look.at
        self._tell_complete()
        return True

    # -- listening -----------------------------------------------------------------------------------------------------

    def _listen(self, stream: Stream) -> bool:
        """Tell what the watch tells, until it is time to look. Whether there was anything."""
        heard = False
        while not self._expectations.overdue(time.monotonic()):
            if self._expectations.to_be_confirmed(time.monotonic()) and not self._confirm():
                break
            line = stream.read(self._expectations.next_look())
            if line is None or self._stopping.is_set():
                break
            try:
                goes_on = self._happened(read_event(line))
            except ValueError as error:
                self._say(f"cannot read the watch of {self._selector} in namespace {self._namespace}: {error}")
                goes_on = False
                self._told_until = None
            if not goes_on:
                break
            heard = True
        if stream.oversized:
            self._say(
                f"the watch of {self._selector} in namespace {self._namespace} has a line too long to be an event"
            )
            self._told_until = None
        return heard

    def _happened(self, event: Event) -> bool:
        """Whether the watch goes on."""
        config_map = event.config_map
        name = config_map.name
        match event.kind:
            case "BOOKMARK":
                self._told_until = config_map.resource_version or self._told_until
                return True
            case "ADDED" | "MODIFIED" if self._places.holds(self._selector, name):
                self._tell_config_map(self._clock(), config_map)
            case "DELETED" if name in self._told:
                self._tell_gone(self._clock(), name)
            case "ADDED" | "MODIFIED" if name == self._places.cluster.name:
                return False  # this cluster has been upgraded to Flink 1.15 or newer
            case "ADDED" | "MODIFIED" | "DELETED":
                pass
            case _:
                if event.status == HTTPStatus.GONE:
                    self._told_until = None
                else:
                    message = " ".join(event.message.split())[:_MESSAGE_LENGTH]
                    self._say(f"the watch of {self._selector} ended: {event.kind} {event.status} {message}".rstrip())
                return False
        self._told_until = config_map.resource_version
        self._tell_complete()
        return True

    # -- telling -------------------------------------------------------------------------------------------------------

    def _tell_config_map(self, at: Moment, config_map: ConfigMap) -> None:
        if config_map.version != self._told.get(config_map.name):
            self._told[config_map.name] = config_map.version
            self._expectations.heard(time.monotonic(), config_map.name, config_map.version, config_map.leader)
        self._tell(
            ConfigMapObserved(
                at,
                self._cluster_id,
                config_map.name,
                config_map.uid,
                config_map.resource_version,
                relevant(config_map.data),
                config_map.leader,
            )
        )

    def _tell_gone(self, at: Moment, name: str) -> None:
        del self._told[name]
        self._expectations.heard(time.monotonic(), name, None)
        self._tell(ConfigMapObserved(at, self._cluster_id, name))

    def _tell_complete(self) -> None:
        if not self._expectations.caught_up:
            return
        if not self._complete:
            self._complete = True
            self._tell(SnapshotCompleted(self._clock(), self._cluster_id))
            if not self._places.found:
                place = f"{self._places.cluster} in namespace {self._namespace} of Kubernetes"
                self._tell(NothingFound(self._clock(), self._cluster_id, place, self._places.beside))
        if self._looked_at:
            self._tell(ViewConfirmed(self._looked_at, self._cluster_id, CONFIRMED_WITHIN))
            self._looked_at = None

    def _tell_view(self, at: Moment, connection: ConnectionState) -> None:
        if connection is self._view:
            return
        self._view = connection
        self._complete = False
        self._looked_at = None
        if connection is ConnectionState.CONNECTED:
            self._said.forget()
            self._expectations.reconnected(time.monotonic())
            _log.info("watching %s in namespace %s of Kubernetes", self._selector, self._namespace)
        self._tell(ViewObserved(at, self._cluster_id, connection))

    def _tell(self, observation: ClusterObservation) -> None:
        if self._observer and not self._stopping.is_set():
            self._observer(observation)


def _is_older(resource_version: str, than: str) -> bool:
    """Whether the store has been set back: a watch from its future would be silent for ever."""
    numbers = [version for version in (resource_version, than) if version.isdecimal() and len(version) < 20]
    return len(numbers) == 2 and int(resource_version) < int(than)
