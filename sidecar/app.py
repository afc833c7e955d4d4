"""Builds a running sidecar in one function, and stops it in reverse order."""

import logging
import signal
import socket
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final

from msgspec.structs import replace
from prometheus_client.core import Metric

from sidecar import __version__
from sidecar.boot import restarted_at
from sidecar.checking import checked
from sidecar.clock import Clock
from sidecar.core.errors import OperatorError
from sidecar.core.handover import is_watched
from sidecar.core.moment import Moment
from sidecar.core.observations import DeliverySettled, EvidenceGathered, HostRestarted, PodNamed, PolicyLoaded
from sidecar.core.pods import Pod
from sidecar.core.policy.policy import ALL_FOUND
from sidecar.core.views.snapshot import Snapshot
from sidecar.drivers import (
    Drivers,
    event_stores_of,
    ledger_of,
    ledger_of_found,
    pod_directories_of,
    process_ends_of,
    silence_stores_of,
)
from sidecar.drivers.pod_names import PodNames
from sidecar.ha_checking import HaChecker
from sidecar.journal import Journal, JournalReader
from sidecar.loop import Loop
from sidecar.own_hosts import own_address, own_hosts
from sidecar.ports import LedgerStore
from sidecar.reloading import Reloader
from sidecar.settings import LedgerMode, Settings
from sidecar.settings.model import OwnPod
from sidecar.sinks import metrics
from sidecar.sinks.evidence.collector import Collector
from sidecar.sinks.handover import Handovers
from sidecar.sinks.kubernetes_events import Events
from sidecar.sinks.notify.ledger_client import SharedLedger
from sidecar.sinks.notify.notifier import Notifier
from sidecar.sinks.peers import Peers
from sidecar.sinks.pictures.picture_taker import PictureTaker
from sidecar.sinks.silences import SilenceReader
from sidecar.sinks.spool.segment_store import segment_store
from sidecar.sinks.spool.spool import Spool
from sidecar.stopping import Stopping
from sidecar.termination import Termination
from sidecar.volumes import empty_dir
from sidecar.web.application import Application
from sidecar.web.server import WebServer

if TYPE_CHECKING:
    from sidecar.sinks.otlp.exporter import Exporter

log = logging.getLogger("sidecar")

CLAIM_SECONDS: Final = 20.0
"""How long to wait for the previous sidecar on this folder: longer than its stop may take."""
_CLAIM_PAUSE: Final = 0.2
_FIXED: Final = (
    *("observer", "stores", "places", "finds", "external_labels", "trust_window", "evidence", "pod_names", "events"),
    *("deployments", "drains", "deaths", "own_hosts", "picture_interval", "recovery_patience"),
    *("silence_documents", "longest_silence"),
)
"""The parts of the policy that a reload does not change."""


class StartError(OperatorError):
    """The sidecar cannot start."""


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
        reloader = _build(settings, journal, stopping, loaded, owner_died)
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


def _build(
    settings: Settings,
    journal: Journal,
    stopping: Stopping,
    loaded: Callable[[], Settings],
    owner_died: Callable[[], None],
) -> Reloader:
    policy = replace(settings.policy(), own_hosts=own_hosts(settings.own_pod))
    stopping.add("the journal", journal.close)
    state = journal.open()
    clock = Clock(state.alive)

    reader = partial(JournalReader, settings.state_dir, journal.check_soon)
    spool = Spool(
        segment_store(settings.spool.place, settings.observer),
        reader(),
        observer=settings.observer,
        roll_interval=settings.spool.roll_interval,
        roll_records=settings.spool.roll_records,
    )

    def adopt(changed: Settings) -> None:
        notifier.adopt(changed.endpoints())
        fixed = {name: getattr(policy, name) for name in _FIXED}
        loop.observe(PolicyLoaded(clock(), replace(changed.policy(), **fixed)))

    def report(problem: str | None) -> None:
        loop.rules_problem = problem

    ledgers = _ledgers(settings, clock)
    notifier = Notifier(
        settings.endpoints(),
        lambda delivery_id, attempt: loop.observe(DeliverySettled(clock(), delivery_id, *attempt)),
        ledgers,
        others=ALL_FOUND,
    )
    collector = Collector(
        settings.evidence.folder,
        lambda capture_id, pieces: loop.observe(EvidenceGathered(clock(), capture_id, pieces)),
        clusters=settings.clusters,
        tls=settings.evidence.tls,
        keep=settings.evidence.keep,
        most_bytes=settings.evidence.most_bytes,
    )
    events = Events(event_stores_of(settings.clusters))
    pods = PodNames(pod_directories_of(settings.clusters), clock)
    pictures = PictureTaker(clock, settings.evidence.tls)
    checker = HaChecker(
        settings.clusters, clock, interval=settings.ha_check, ledger=settings.ledger is not LedgerMode.LOCAL
    )
    silences = SilenceReader(
        silence_stores_of(settings) if settings.receivers else {}, clock, settings.silences.longest
    )
    reloader = Reloader(settings, loaded, adopt, report)
    loop = Loop(
        policy,
        journal,
        state,
        clock,
        send=notifier.send,
        gather=collector.gather,
        publish=events.publish,
        name_pod=pods.find,
        read_silences=silences.read,
        take_picture=pictures.take,
        sealed=lambda: spool.sealed,
        died=owner_died,
    )
    handovers = Handovers(_handover_documents(settings), policy, lambda: loop.snapshot.state, loop.observe, clock)

    collected = metrics.SnapshotCollector(
        lambda: loop.snapshot,
        lambda cluster_id: policy.store_of(cluster_id).value,
        lambda: _sink_health(spool, ledgers, handovers, events, exporter),
    )
    exporter = _exporter(settings, reader(), collected.collect)
    web = _web_server(settings, lambda: loop.snapshot, metrics.renderer(collected), clock, reader)
    peers = Peers(ledgers, own_address(settings.own_pod, settings.http.host, web.port), lambda: loop.snapshot, clock)
    drivers = Drivers(settings.clusters, clock, settings.finder, process_ends_of(settings, clock))
    # Stopped in reverse: end observing, finish deliveries in progress, record and seal everything. Parts that may wait for a hanging store
    # or receiver get little time, so that enough is left for recording.
    web.start()
    stopping.add("the web server", web.stop)
    spool.start()
    stopping.add("the spool", spool.stop)
    stopping.add("the handover", handovers.stop, at_most=4.0)
    loop.start()
    stopping.add("the owner", loop.stop)
    stopping.add("the ledgers", *(ledger.stop for ledger in ledgers.values()), at_most=0.5)
    background: list[Notifier | Collector | Events | Exporter] = [notifier, collector, events]
    background += [exporter] if exporter else []
    for worker in background:
        worker.start()
    observing = (pods, pictures, silences, checker, peers)
    for asker in observing:
        asker.start(loop.observe)
    ends = (worker.stop for worker in (*background, *observing))
    stopping.add("all that works in the background", *ends, at_most=4.0)
    booted_at = restarted_at(settings.state_dir, settings.own_pod, state.alive, clock())
    for name in policy.stores:
        _observe_own_place(settings.own_pod, booted_at, name, clock(), loop)
    new = [name for name in policy.stores if not is_watched(state.clusters.get(name))]
    handovers.start(new, lambda name: drivers.start(loop.observe, name))
    drivers.find(loop.observe)
    reloader.start()
    stopping.add("the drivers", drivers.stop, reloader.stop, at_most=3.0)
    return reloader


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


def _sink_health(
    spool: Spool, ledgers: Mapping[str, SharedLedger], handovers: Handovers, events: Events, exporter: "Exporter | None"
) -> metrics.SinkHealth:
    return metrics.SinkHealth(
        spool.is_up,
        {name: ledger.is_up for name, ledger in ledgers.items() if ledger.is_up is not None},
        handovers.up,
        events.counts,
        exporter.is_up if exporter else None,
        exporter.counts if exporter else {},
        {name: ledger.observers for name, ledger in ledgers.items() if ledger.observers},
    )


def _exporter(
    settings: Settings, journal: JournalReader, families: Callable[[], Iterable[Metric]]
) -> "Exporter | None":
    if settings.otlp is None:
        return None
    from sidecar.sinks.otlp.exporter import Exporter  # noqa: PLC0415  imports protobuf: an extra, and memory

    return Exporter(
        settings.otlp, journal, families, observer=settings.observer, external_labels=settings.external_labels
    )


def _observe_own_place(pod: OwnPod | None, booted_at: int | None, name: str, now: Moment, loop: Loop) -> None:
    if pod:
        loop.observe(PodNamed(now, name, pod.address, Pod(pod.name, pod.uid, now.wall)))
    if booted_at is not None:
        loop.observe(HostRestarted(now, name, booted_at))


def _ledgers(settings: Settings, clock: Clock) -> dict[str, SharedLedger]:
    """A ledger for each cluster, in its own store, and one for all found ones, if several sidecars are to notify once."""
    if settings.ledger is LedgerMode.LOCAL or not settings.receivers:
        return {}
    alone = settings.ledger is LedgerMode.AUTO

    def shared(store: LedgerStore) -> SharedLedger:
        return SharedLedger(store, settings.observer, clock, alone_if_refused=alone)

    if settings.finder:
        return {ALL_FOUND: shared(ledger_of_found(settings.finder))}
    return {cluster.cluster_id: shared(ledger_of(cluster)) for cluster in settings.clusters}


def _handover_documents(settings: Settings) -> dict[str, LedgerStore]:
    if settings.ledger is LedgerMode.LOCAL:
        return {}
    return {cluster.cluster_id: ledger_of(cluster, "handover") for cluster in settings.clusters}
