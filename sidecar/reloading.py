"""Rules, routes and receivers anew, without a restart: on SIGHUP, and when a file has changed.

What cannot be read changes nothing: the rules of before stay, and it is said until it is mended.
"""

import logging
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

from sidecar.settings import Settings, SettingsError
from sidecar.threads import ServiceThread

LOOK_SECONDS: Final = 5.0
"""How often files are looked at."""
_JOIN_SECONDS: Final = 5.0
_FIXED: Final = ("clusters", "observer", "external_labels", "state_dir", "spool", "ledger", "trust_window", "evidence")
"""What takes a restart."""

_log = logging.getLogger("sidecar.reloading")

_Seen = tuple[tuple[int, int, int] | None, ...]


class Reloader:
    """Loads settings again when they may have changed, and has them adopted where they are right."""

    def __init__(
        self,
        settings: Settings,
        load: Callable[[], Settings],
        adopt: Callable[[Settings], None],
        said: Callable[[str | None], None],
    ) -> None:
        """`load` raises SettingsError. `said` is told why what is on disk does not count; None: it does."""
        self._settings = settings
        self._load = load
        self._adopt = adopt
        self._said = said
        self._seen = _look(settings.files)
        self._asked = threading.Event()
        self._stopping = threading.Event()
        self._thread = ServiceThread(self._run, "reloader")

    def start(self) -> None:
        """Begin to look."""
        self._thread.start()

    def ask(self) -> None:
        """Load again, whether or not a file has changed. May be called by a signal handler."""
        self._asked.set()

    def stop(self) -> None:
        """End in bounded time. May be called twice, and before `start`."""
        self._stopping.set()
        self._asked.set()
        if self._thread.ident is not None:
            self._thread.join(_JOIN_SECONDS)

    def _run(self) -> None:
        while not self._stopping.is_set():
            asked = self._asked.wait(LOOK_SECONDS)
            self._asked.clear()
            seen = _look(self._settings.files)
            if not self._stopping.is_set() and (asked or seen != self._seen):
                self._seen = seen
                self._reload()

    def _reload(self) -> None:
        try:
            settings = self._load()
        except SettingsError as error:
            _log.error("the rules of before stay: %s", error)
            self._said(str(error))
            return
        except Exception as error:  # noqa: BLE001  whatever a file makes us stumble over, the rules of before stay
            _log.error("the rules of before stay: %s: %s", type(error).__name__, error)
            self._said(f"the configuration cannot be loaded: {type(error).__name__}")
            return
        for name in (name for name in _FIXED if getattr(settings, name) != getattr(self._settings, name)):
            _log.warning("%s has changed, which takes a restart", name)
        self._adopt(settings)
        if settings.files != self._settings.files:
            self._settings, self._seen = settings, _look(settings.files)
        self._said(None)
        _log.info("loaded again: %d rules, %d receivers", len(settings.rules), len(settings.receivers))


def _look(files: Sequence[Path]) -> _Seen:
    """What tells whether files have changed."""
    return tuple(_stat(file) for file in files)


def _stat(file: Path) -> tuple[int, int, int] | None:
    try:
        found = file.stat()
    except OSError:
        return None
    return found.st_mtime_ns, found.st_size, found.st_ino
