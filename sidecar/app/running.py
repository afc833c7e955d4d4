"""Runs the sidecar until it is asked to end, or its owner's thread has ended: its parts, what each of them gets of the others, and in which
order they start and stop."""

import logging
import signal
import socket
import threading
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Final

from msgspec.structs import replace

from sidecar import __version__
from sidecar.app.checking import checked
from sidecar.app.ha_checking import HaChecker, rest_settings
from sidecar.app.loop import Loop
from sidecar.app.reloading import Reloader
from sidecar.app.this_machine import own_address, own_hosts, restarted_at
from sidecar.core.alerting.alerting_step import ReadSilences, Send
from sidecar.core.errors import OperatorError
from sidecar.core.handover import is_watched
from sidecar.core.observations import DeliverySettled, EvidenceGathered, HostRestarted, PodNamed, PolicyLoaded
from sidecar.core.pods import Pod
from sidecar.core.policy.policy import ALL_FOUND
from sidecar.core.state import Effect, Gather, NamePod, Publish, TakePicture
from sidecar.core.views.snapshot import Snapshot
from sidecar.drivers import Drivers, event_stores_of, pod_directories_of, process_ends_of, shared_documents
from sidecar.drivers.pod_names import PodNames
from sidecar.journal import Journal, JournalReader
from sidecar.runtime.clock import Clock
from sidecar.runtime.folders import empty_dir
from sidecar.runtime.stopping import Stopping, Termination
from sidecar.settings import LedgerMode, Settings
from sidecar.sinks import metrics
from sidecar.sinks.evidence.collector import Collector, Items
from sidecar.sinks.handover import Handovers
from sidecar.sinks.kubernetes_events import Events
from sidecar.sinks.notify.ledger_client import SharedLedger
from sidecar.sinks.notify.notifier import Attempt, Notifier
from sidecar.sinks.peers import PeerExchange
from sidecar.sinks.pictures.picture_taker import PictureTaker
from sidecar.sinks.silences import SilenceReader
from sidecar.sinks.spool.segment_store import segment_store
from sidecar.sinks.spool.spool_writer import Spool
from sidecar.web.application import Application
from sidecar.web.server import WebServer

_FIXED: Final = (
    *("observer", "stores", "places", "finds", "external_labels", "trust_window", "evidence", "pod_names", "events"),
    *("plans", "deaths", "own_hosts", "picture_interval", "recovery_patience"),
    *("silence_documents", "longest_silence"),
)
"""The parts of the policy that a reload does not change."""


class StartError(OperatorError):
    """The sidecar cannot start."""


class Sidecar:
    """All parts of a running sidecar."""

    def __init__(
        self, settings: Settings, journal: Journal, load: Callable[[], Settings], died: Callable[[], None]
    ) -> None:
        """Build all of them; none runs yet. `load` loads the settings again, `died` is called when the owner's thread fails.

        Raises StartError.
        """
        self._settings = settings
        self._policy = replace(settings.policy(), own_hosts=own_hosts(settings.own_pod))
        self._previous_state = journal.open()
        """The state that the previous process left."""
        clock = self._clock = Clock(self._previous_state.alive)
        reader = partial(JournalReader, settings.state_dir, journal.check_soon)
        self._spool = _spool(settings, reader())
        self._ledgers = _ledgers(settings, clock, self._sees)
        self._notifier = Notifier(settings.endpoints(), self._settled, self._ledgers, others=ALL_FOUND)
        self._collector = _collector(settings, self._gathered)
        self._events = Events(event_stores_of(settings.clusters))
        self._pods = PodNames(pod_directories_of(settings.clusters), clock)
        self._pictures = PictureTaker(clock, settings.evidence.tls)
        silence_stores = shared_documents(settings, "silences") if settings.receivers else {}
        self._silences = SilenceReader(silence_stores, clock, settings.silences.longest)
        is_shared = settings.ledger is not LedgerMode.LOCAL
        self._checker = HaChecker(
            settings.clusters, clock, interval=settings.ha_check, ledger=is_shared, rest=rest_settings(settings)
        )
        self._loop = Loop(
            self._policy,
            journal,
            self._previous_state,
            clock,
            carry_out=self._carry_out,
            sealed=lambda: self._spool.sealed,
            died=died,
        )
        handovers = {} if settings.finder else shared_documents(settings, "handover")
        self._handovers = Handovers(handovers, self._policy, lambda: self._snapshot().state, self._loop.observe, clock)
        collected = metrics.SnapshotCollector(
            self._snapshot, lambda cluster_id: self._policy.store_of(cluster_id).value, self._health
        )
        self._web = _web_server(settings, self._snapshot, metrics.renderer(collected), clock, reader)
        address = own_address(settings.own_pod, settings.http.host, self._web.port)
        self._peers = PeerExchange(self._ledgers, address, self._snapshot, clock)
        known = self._previous_state.clusters.keys()
        self._drivers = Drivers(settings.clusters, clock, settings.finder, process_ends_of(settings, clock), known)
        self.reloader = Reloader(settings, load, self._adopt, self._report)

    def start(self, stopping: Stopping) -> None:
        """Start everything. `stopping` ends it in reverse: end observing, finish deliveries in progress, record and seal everything. Parts
        that may wait for a hanging store or receiver get little time, so that enough is left for recording.
        """
        self._web.start()
        stopping.add("the web server", self._web.stop)
        self._spool.start()
        stopping.add("the spool", self._spool.stop)
        stopping.add("the handover", self._handovers.stop, at_most=4.0)
        self._loop.start()
        stopping.add("the owner", self._loop.stop)
        stopping.add("the ledgers", *(ledger.stop for ledger in self._ledgers.values()), at_most=0.5)
        sending = (self._notifier, self._collector, self._events)
        for worker in sending:
            worker.start()
        asking = (self._pods, self._pictures, self._silences, self._checker, self._peers)
        for asker in asking:
            asker.start(self._loop.observe)
        ends = (worker.stop for worker in (*sending, *asking))
        stopping.add("all that works in the background", *ends, at_most=4.0)
        self._observe_own_place()
        self._start_drivers()
        self.reloader.start()
        stopping.add("the drivers", self._drivers.stop, self.reloader.stop, at_most=3.0)

    def _observe_own_place(self) -> None:
        """The pod that this sidecar is in, and that its machine was started again."""
        pod = self._settings.own_pod
        booted_at = restarted_at(self._settings.state_dir, pod, self._previous_state.alive, self._clock())
        for name in self._policy.stores:
            now = self._clock()
            if pod:
                self._loop.observe(PodNamed(now, name, pod.address, Pod(pod.name, pod.uid, now.wall)))
            if booted_at is not None:
                self._loop.observe(HostRestarted(now, name, booted_at))

    def _start_drivers(self) -> None:
        """Start the drivers of clusters that were not watched before, after their handovers were read."""
        new = [name for name in self._policy.stores if not is_watched(self._previous_state.clusters.get(name))]
        self._handovers.start(new, lambda name: self._drivers.start(self._loop.observe, name))
        self._drivers.find(self._loop.observe)

    def _carry_out(self, effect: Effect) -> None:
        match effect:
            case Send(delivery):
                self._notifier.send(delivery)
            case Gather(capture):
                self._collector.gather(capture)
            case Publish(event):
                self._events.publish(event)
            case NamePod(cluster_id, host):
                self._pods.find(cluster_id, host)
            case ReadSilences(document):
                self._silences.read(document)
            case TakePicture(request):
                self._pictures.take(request)

    def _snapshot(self) -> Snapshot:
        return self._loop.snapshot

    def _sees(self, ledger: str) -> bool:
        """Whether the store of this ledger can be read now, by what is observed in it."""
        return any(cluster.is_in_sight for cluster in self._snapshot().state.sharing(ledger))

    def _settled(self, delivery_id: str, attempt: Attempt) -> None:
        self._loop.observe(DeliverySettled(self._clock(), delivery_id, *attempt))

    def _gathered(self, capture_id: str, items: Items) -> None:
        self._loop.observe(EvidenceGathered(self._clock(), capture_id, items))

    def _adopt(self, changed: Settings) -> None:
        self._notifier.adopt(changed.endpoints())
        fixed = {name: getattr(self._policy, name) for name in _FIXED}
        self._loop.observe(PolicyLoaded(self._clock(), replace(changed.policy(), **fixed)))

    def _report(self, problem: str | None) -> None:
        self._loop.rules_problem = problem

    def _health(self) -> metrics.SinkHealth:
        ledgers = self._ledgers
        return metrics.SinkHealth(
            self._spool.is_up,
            {name: ledger.is_up for name, ledger in ledgers.items() if ledger.is_up is not None},
            self._handovers.up,
            self._events.counts,
            {name: ledger.observers for name, ledger in ledgers.items() if ledger.observers},
        )


def _spool(settings: Settings, journal: JournalReader) -> Spool:
    spool = settings.spool
    return Spool(
        segment_store(spool.place, settings.observer),
        journal,
        observer=settings.observer,
        roll_interval=spool.roll_interval,
        roll_records=spool.roll_records,
    )


def _collector(settings: Settings, report: Callable[[str, Items], None]) -> Collector:
    evidence = settings.evidence
    return Collector(
        evidence.folder,
        report,
        clusters=settings.clusters,
        tls=evidence.tls,
        keep=evidence.keep,
        most_bytes=evidence.most_bytes,
    )


def _web_server(
    settings: Settings,
    snapshot: Callable[[], Snapshot],
    metrics: Callable[[], bytes],
    clock: Clock,
    journal: Callable[[], JournalReader],
) -> WebServer:
    """Listens, and serves nothing yet. Raises StartError."""
    http = settings.http
    names = http.names | {settings.observer.lower(), socket.gethostname().lower()}
    application = Application(snapshot, metrics, clock, journal, allowed_hosts=names)
    try:
        return WebServer(application, http.host, http.port)
    except OSError as error:
        where = f"{http.host}:{http.port}"
        raise StartError(f"cannot listen on {where}: {error.strerror}; set http.port to a free one") from error


def _ledgers(settings: Settings, clock: Clock, sees: Callable[[str], bool]) -> dict[str, SharedLedger]:
    """A ledger for each cluster, in its own store, and one for all found ones, if several sidecars are to notify once."""
    alone = settings.ledger is LedgerMode.AUTO
    return {
        name: SharedLedger(store, settings.observer, clock, partial(sees, name), alone_if_refused=alone)
        for name, store in (shared_documents(settings, "ledger") if settings.receivers else {}).items()
    }


log = logging.getLogger("sidecar")

CLAIM_SECONDS: Final = 20.0
"""The wait for the previous sidecar on this folder: longer than its stop may take."""
_CLAIM_PAUSE: Final = 0.2


def run(load: Callable[[], Settings]) -> int:
    """Run the sidecar until SIGTERM or SIGINT; reload on SIGHUP. Returns the exit status. Raises SettingsError and StartError."""
    died, asked = threading.Event(), threading.Event()
    # First: without a handler SIGHUP would end the process.
    signal.signal(signal.SIGHUP, lambda _signal, _frame: asked.set())

    def loaded() -> Settings:
        settings, mistakes = checked(load())
        for mistake in mistakes:
            raise mistake
        return settings

    settings = loaded()
    ended = Termination()

    def owner_died() -> None:
        died.set()
        ended.set()

    journal = Journal(settings.state_dir)
    if not _claim(journal, ended):
        return 0
    with Stopping() as stopping:
        stopping.add("the journal", journal.close)
        sidecar = Sidecar(settings, journal, loaded, owner_died)
        sidecar.start(stopping)
        reloader = sidecar.reloader
        signal.signal(signal.SIGHUP, lambda _signal, _frame: reloader.ask())
        if asked.is_set():  # the settings may have been loaded before that
            reloader.ask()
        clusters = ", ".join(cluster.cluster_id for cluster in settings.clusters)
        if settings.finder:
            clusters = f"the clusters that are found in {settings.finder.place}"
        log.info("flink-ha-sidecar %s watches %s as %s", __version__, clusters, settings.observer)
        _log_what_ends_with_the_pod(settings)
        ended.wait()
        log.info("stopping")
    return 1 if died.is_set() else 0


def _log_what_ends_with_the_pod(settings: Settings) -> None:
    place = settings.spool.place
    if isinstance(place, Path) and (volume := empty_dir(place)):
        log.warning(
            "the spool %s is on the emptyDir volume %s: records that are not ingested are deleted with this pod; "
            "give spool.url a persistentVolumeClaim or an object store",
            place,
            volume,
        )


def _claim(journal: Journal, ended: Termination) -> bool:
    """Wait until no other sidecar uses the state folder. False: this sidecar was asked to end meanwhile. Raises StartError."""
    if journal.claim():
        return True
    folder = journal.path.parent
    log.warning("state_dir %s is in use by %s: waiting for it to end", folder, journal.claimed_by())
    deadline = time.monotonic() + CLAIM_SECONDS
    while not journal.claim():
        if time.monotonic() >= deadline:
            used = f"cannot use state_dir {folder}: it is in use by {journal.claimed_by()}"
            raise StartError(f"{used}; stop that sidecar, or use another state_dir")
        if ended.wait(_CLAIM_PAUSE):
            return False
    return True
