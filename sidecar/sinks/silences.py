"""Reads the documents of silences, when the owner asks for one."""

import logging
import threading
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from queue import SimpleQueue
from typing import Final

from sidecar.core.alerting.silence_document import SilencesError, StoredSilence, read
from sidecar.core.moment import timestamp
from sidecar.core.observations import SilencesRead
from sidecar.core.sanitize import clean
from sidecar.ports import LedgerError, LedgerStore, only_ledger_errors
from sidecar.runtime.clock import Clock
from sidecar.runtime.threads import ServiceThread, join_all

MOST_OPEN: Final = 10
"""The most documents whose connections are kept from one read to the next."""
_STOP_SECONDS: Final = 1.0

_log = logging.getLogger("sidecar.silences")


class SilenceReader:
    """Reads in the background, and logs once what is not used, and why."""

    def __init__(self, stores: Mapping[str, LedgerStore], clock: Clock, longest: int) -> None:
        """`stores`: each document. `longest`: the longest duration of a silence, in microseconds."""
        self._stores = stores
        self._observer: Callable[[SilencesRead], None] | None = None
        self._clock = clock
        self._longest = longest
        self._wanted: dict[str, SimpleQueue[bool]] = {name: SimpleQueue() for name in stores}
        """The queue of each document: True asks to read it, False to end."""
        self._locks = {name: threading.Lock() for name in stores}
        self._silences: dict[str, Mapping[str, StoredSilence]] = {}
        self._problems: dict[str, tuple[str, ...]] = {}
        """The problems that are logged, by document."""
        self._readers = [ServiceThread(partial(self._work, name), f"silences-{name}") for name in stores]

    def start(self, observer: Callable[[SilencesRead], None]) -> None:
        """Start the threads, if there is anything to read."""
        self._observer = observer
        for reader in self._readers:
            reader.start()

    def stop(self) -> None:
        """End soon. May be called twice, or before `start`."""
        for wanted in self._wanted.values():
            wanted.put(False)
        join_all(self._readers, _STOP_SECONDS)
        for name, store in self._stores.items():
            if self._locks[name].acquire(blocking=False):  # else a hanging store is being read
                store.stop()
                self._locks[name].release()

    def read(self, document: str) -> None:
        """Read a document; never blocks. The answer is observed."""
        if wanted := self._wanted.get(document):
            wanted.put(True)

    def _work(self, document: str) -> None:
        """Read one document in a thread of its own, so that none waits for another's store."""
        while self._wanted[document].get():
            if self._observer:
                with self._locks[document]:
                    observation = self._read(document)
                self._observer(observation)

    def _read(self, document: str) -> SilencesRead:
        at, store = self._clock(), self._stores[document]
        try:
            with only_ledger_errors(_log):
                content = store.read().content
                if len(self._stores) > MOST_OPEN:
                    store.rest()
        except LedgerError as error:
            self._log_problems(document, (f"{error}; known silences hold",))
            return SilencesRead(at, document, None, str(error))
        try:
            silences, problems = read(content, self._longest)
        except SilencesError as error:
            silences, problems = {}, [f"the document of silences is not used: {error}"]
        self._log_problems(document, problems)
        self._log_changes(document, silences)
        return SilencesRead(at, document, content)

    def _log_problems(self, document: str, problems: Iterable[str]) -> None:
        before, now = self._problems.get(document, ()), tuple(problems)
        self._problems[document] = now
        for problem in now:
            if problem not in before:
                _log.warning("cluster %s: %s", document, problem)
        if before and not now:
            _log.info("cluster %s: silences are read again", document)

    def _log_changes(self, document: str, silences: Mapping[str, StoredSilence]) -> None:
        before, wall = self._silences.get(document, {}), self._clock().wall
        self._silences[document] = silences
        active = {key: silence for key, silence in silences.items() if not silence.is_over(wall)}
        for key in active.keys() - before.keys():
            silence = active[key]
            text = "cluster %s: silence %s of %s until %s: %s (%s)"
            until, matchers = timestamp(silence.ends_at), ", ".join(map(str, silence.matchers))
            _log.info(text, document, key, clean(silence.author), until, clean(silence.comment), clean(matchers))
        for key in sorted(key for key, silence in before.items() if not silence.is_over(wall) and key not in active):
            _log.info("cluster %s: silence %s was ended", document, key)
