"""Runs the sidecar: until it is asked to end, or its owner's thread has ended."""

import logging
import signal
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final

from sidecar import __version__
from sidecar.app.checking import checked
from sidecar.app.parts import Sidecar, StartError
from sidecar.journal import Journal
from sidecar.runtime.folders import empty_dir
from sidecar.runtime.stopping import Stopping, Termination
from sidecar.settings import Settings

log = logging.getLogger("sidecar")

CLAIM_SECONDS: Final = 20.0
"""How long to wait for the previous sidecar on this folder: longer than its stop may take."""
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
