"""The composition root of `run`: everything is built here, in one straight line, and stopped in reverse order."""

import logging
import signal
import threading
from collections.abc import Callable
from contextlib import ExitStack
from types import FrameType

from msgspec.structs import replace

from sidecar import __version__
from sidecar.clock import Clock
from sidecar.core.errors import OperatorError
from sidecar.core.evidence import Piece
from sidecar.core.observations import DeliverySettled, EvidenceGathered, PolicyLoaded
from sidecar.drivers import Drivers, ledger_of
from sidecar.journal import Journal, JournalReader
from sidecar.loop import Loop
from sidecar.reloading import Reloader
from sidecar.settings import LedgerMode, Settings, SettingsError
from sidecar.sinks import metrics
from sidecar.sinks.evidence import Collector
from sidecar.sinks.ledger import SharedLedger
from sidecar.sinks.notifier import Attempt, Notifier, check_urls
from sidecar.sinks.spool import Spool
from sidecar.sinks.spool_place import place_of
from sidecar.web.server import Application, WebServer

log = logging.getLogger("sidecar")


class StartError(OperatorError):
    """The sidecar cannot run here."""


def check(settings: Settings) -> None:
    """What can be checked without connecting to anything. Raises SettingsError."""
    for destination, problem in check_urls(settings.destination_urls()).items():
        raise SettingsError(f"receiver {destination}: {problem}")
    place_of(settings.spool.place, settings.observer)


def run(load: Callable[[], Settings]) -> int:
    """Run the sidecar until SIGTERM or SIGINT; the exit status. On SIGHUP what may change without a restart is loaded again.

    Raises SettingsError, as `load` does, and StartError.
    """

    def loaded() -> Settings:
        settings = load()
        check(settings)
        return settings

    settings = loaded()
    ended = threading.Event()
    died = threading.Event()

    def end(_signal: int, _frame: FrameType | None) -> None:
        ended.set()

    def owner_died() -> None:
        died.set()
        ended.set()

    for signal_number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(signal_number, end)

    with ExitStack() as stopping:
        reloader = _build(settings, stopping, loaded, owner_died)
        signal.signal(signal.SIGHUP, lambda _signal, _frame: reloader.ask())
        log.info(
            "flink-ha-sidecar %s watches %s as %s",
            __version__,
            ", ".join(cluster.cluster_id for cluster in settings.clusters),
            settings.observer,
        )
        ended.wait()
        log.info("stopping")
    return 1 if died.is_set() else 0


def _build(
    settings: Settings, stopping: ExitStack, loaded: Callable[[], Settings], owner_died: Callable[[], None]
) -> Reloader:
    policy = settings.policy()
    journal = Journal(settings.state_dir)
    state = journal.open()
    stopping.callback(journal.close)
    clock = Clock(state.alive)

    spool = Spool(
        place_of(settings.spool.place, settings.observer),
        JournalReader(settings.state_dir),
        roll_interval=settings.spool.roll_interval,
        roll_records=settings.spool.roll_records,
    )

    def settle(delivery_id: str, attempt: Attempt) -> None:
        loop.observe(DeliverySettled(clock(), delivery_id, *attempt))

    def gathered(capture_id: str, pieces: tuple[Piece, ...]) -> None:
        loop.observe(EvidenceGathered(clock(), capture_id, pieces))

    def adopt(changed: Settings) -> None:
        notifier.adopt(changed.destination_urls())
        names = ("observer", "stores", "external_labels", "trust_window", "evidence")
        fixed = {name: getattr(policy, name) for name in names}
        loop.observe(PolicyLoaded(clock(), replace(changed.policy(), **fixed)))

    def say(problem: str | None) -> None:
        loop.rules_problem = problem

    ledgers = _ledgers(settings, clock)
    notifier = Notifier(settings.destination_urls(), settle, ledgers)
    collector = Collector(
        settings.evidence.folder,
        gathered,
        tls=settings.evidence.tls,
        keep=settings.evidence.keep,
        most_bytes=settings.evidence.most_bytes,
    )
    reloader = Reloader(settings, loaded, adopt, say)
    loop = Loop(
        policy,
        journal,
        state,
        clock,
        send=notifier.send,
        gather=collector.gather,
        sealed=lambda: spool.sealed,
        died=owner_died,
    )
    stores = {name: store.value for name, store in policy.stores.items()}
    application = Application(
        lambda: loop.snapshot,
        metrics.renderer(lambda: loop.snapshot, stores),
        clock,
        lambda: JournalReader(settings.state_dir),
    )
    try:
        web = WebServer(application, settings.http.host, settings.http.port)
    except OSError as error:
        raise StartError(
            f"cannot listen on {settings.http.host}:{settings.http.port}: {error.strerror}; set http.port to a free one"
        ) from error
    drivers = Drivers(settings.clusters, clock)
    # Stopped in reverse: first nothing new is seen, then what is under way is told, then all of it is recorded and sealed.
    web.start()
    stopping.callback(web.stop)
    spool.start()
    stopping.callback(spool.stop)
    loop.start()
    stopping.callback(loop.stop)
    for ledger in ledgers.values():
        stopping.callback(ledger.stop)
    notifier.start()
    stopping.callback(notifier.stop)
    collector.start()
    stopping.callback(collector.stop)
    drivers.start(loop.observe)
    stopping.callback(drivers.stop)
    reloader.start()
    stopping.callback(reloader.stop)
    return reloader


def _ledgers(settings: Settings, clock: Clock) -> dict[str, SharedLedger]:
    """One for each cluster, in its own store, where several sidecars are to be one voice."""
    if settings.ledger is LedgerMode.LOCAL or not settings.receivers:
        return {}
    alone = settings.ledger is LedgerMode.AUTO
    return {
        cluster.cluster_id: SharedLedger(ledger_of(cluster), settings.observer, clock, alone_if_refused=alone)
        for cluster in settings.clusters
    }
