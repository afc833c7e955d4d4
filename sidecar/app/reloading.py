"""Reload rules, routes and receivers without a restart: on SIGHUP, and when a file has changed.

A configuration that cannot be loaded changes nothing: the previous rules are kept, and the problem is reported until it is solved.
"""

import logging
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from operator import attrgetter
from pathlib import Path
from typing import Final

from sidecar.core.counted import counted
from sidecar.runtime.threads import ServiceThread
from sidecar.settings import Settings, SettingsError

LOOK_SECONDS: Final = 5.0
"""The time between two checks of the files for changes."""
_JOIN_SECONDS: Final = 5.0
_ALONE: Final = (
    *("clusters", "finder", "observer", "own_pod", "external_labels"),
    *("state_dir", "spool", "ledger", "silences", "trust_window", "evidence", "ha_check"),
)
NEEDS_RESTART: Final[Mapping[str, Callable[[Settings], object]]] = {
    **{name: attrgetter(name) for name in _ALONE},
    # The links in messages follow a reload; where the server listens, and by which names it answers, does not.
    "http": lambda settings: (settings.http.host, settings.http.port, settings.http.names),
}
"""Settings that a reload does not change, and what of them."""
RELOADED: Final = ("rules", "receivers", "route", "inhibit_rules", "slo", "objectives", "log", "files")
"""Settings that a reload changes."""

_log = logging.getLogger("sidecar.reloading")

_FileStates = tuple[tuple[int, int, int] | None, ...]


class Reloader:
    """Loads the settings again when they may have changed, and adopts them if they are valid."""

    def __init__(
        self,
        settings: Settings,
        load: Callable[[], Settings],
        adopt: Callable[[Settings], None],
        report: Callable[[str | None], None],
    ) -> None:
        """`load` raises SettingsError. `report` gets the reason why the files on disk are not in use; None: they are."""
        self._settings = settings
        self._active = settings
        """The settings of the last reload."""
        self._load = load
        self._adopt = adopt
        self._report = report
        self._file_states = _look(settings.files)
        self._asked = threading.Event()
        self._stopping = threading.Event()
        self._thread = ServiceThread(self._run, "reloader")

    def start(self) -> None:
        self._thread.start()

    def ask(self) -> None:
        """Request a reload, whether or not a file has changed. May be called by a signal handler."""
        self._asked.set()

    def stop(self) -> None:
        """End in bounded time. May be called twice, and before `start`."""
        self._stopping.set()
        self._asked.set()
        self._thread.join(_JOIN_SECONDS)

    def _run(self) -> None:
        while not self._stopping.is_set():
            asked = self._asked.wait(LOOK_SECONDS)
            self._asked.clear()
            file_states = _look(self._settings.files)
            if not self._stopping.is_set() and (asked or file_states != self._file_states):
                self._file_states = file_states
                self._reload()

    def _reload(self) -> None:
        try:
            settings = self._load()
        except SettingsError as error:
            _log.error("reload failed, keeping the previous rules: %s", error)
            self._report(str(error))
            return
        except Exception as error:  # noqa: BLE001  whatever error a file causes, the previous rules are kept
            _log.error("reload failed, keeping the previous rules: %s: %s", type(error).__name__, error)
            self._report(f"the configuration cannot be loaded: {type(error).__name__}")
            return
        for name, part in NEEDS_RESTART.items():
            if part(settings) != part(self._settings):
                _log.warning("%s has changed: restart the sidecar to apply that", name)
        self._adopt(settings)
        before, self._active = self._active, settings
        if settings.files != self._settings.files:
            self._settings, self._file_states = settings, _look(settings.files)
        self._report(None)
        rules = _differences([rule.alert for rule in before.rules], [rule.alert for rule in settings.rules])
        receivers = _differences(
            [target.name for target in before.receivers], [target.name for target in settings.receivers]
        )
        counts = counted(len(settings.rules), "rule"), rules, counted(len(settings.receivers), "receiver"), receivers
        _log.info("reloaded: %s%s, %s%s", *counts)


def _differences(before: Iterable[str], after: Iterable[str]) -> str:
    """The names that came and went: ` (new: A; removed: B)`; nothing if none did."""
    changes = {"new": sorted({*after} - {*before}), "removed": sorted({*before} - {*after})}
    parts = [f"{change}: {', '.join(names)}" for change, names in changes.items() if names]
    return f" ({'; '.join(parts)})" if parts else ""


def _look(files: Sequence[Path]) -> _FileStates:
    """The state of the files: equal as long as none has changed."""
    return tuple(_stat(file) for file in files)


def _stat(file: Path) -> tuple[int, int, int] | None:
    try:
        status = file.stat()
    except OSError:
        return None
    return status.st_mtime_ns, status.st_size, status.st_ino
