"""One writer at a time in an object store, where no lock ends with its owner.

A lock is a log: objects `_lock/0000000000000001.json`, each put only where there is none, of which the last one counts. Whoever adds
the next one has changed the lock; whoever finds that it exists has lost it. That needs nothing of a store but what the spool needs too.

A holder adds one every ten seconds. One that has not for thirty, by the clock of whoever waits, may be replaced; one whose process is
known to have ended on this machine, at once. A holder that only stalled must not add files later: it announces their names in the lock
before it adds them, and its successor occupies them (`storage`).
"""

import logging
import os
import re
import threading
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from threading import Event
from typing import Final
from uuid import uuid4

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from sidecar.audit.audit_error import AuditError, StoppedError
from sidecar.audit.log.storage import INGESTING, LOCK
from sidecar.net.object_store import ObjectStore

_log = logging.getLogger("sidecar.audit")

_RENEW_SECONDS: Final = 10.0
_EXPIRES_SECONDS: Final = 30.0
_TIMEOUT_SECONDS: Final = {LOCK: 600.0, INGESTING: 60.0}
"""A batch or a few dates take minutes; another ingest ends soon only if it was killed."""
_POLL_SECONDS: Final = 1.0
_ENTRY: Final = re.compile(r"\d{16}\.json")


class Process(Struct, frozen=True):
    """A process, so that others on its machine can tell whether it has ended."""

    token: str
    """Unique."""
    boot: str = ""
    """The machine since its start; empty where it is not known."""
    namespace: str = ""
    """In which `pid` is valid."""
    pid: int = 0
    started: str = ""

    def has_ended(self) -> bool:
        """Whether it is certain that the process has ended."""
        here = this_process()
        same_machine = bool(self.boot) and (self.boot, self.namespace) == (here.boot, here.namespace)
        return same_machine and _started(self.pid) != self.started


class _State(Struct, frozen=True):
    holder: Process | None = None
    """None: the lock is free."""
    renewed: int = 0
    announced: tuple[str, ...] = ()
    """Files that the holder, or one before it, may still add."""
    occupied: tuple[str, ...] = ()
    """Files without rows, which keep an earlier holder from adding its own: see `recovered`."""


_STATE: Final = msgspec.json.Decoder(_State)


def this_process() -> Process:
    """This process; of an unknown machine where there is no /proc."""
    token = str(uuid4())
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
        return Process(token, boot, os.readlink("/proc/self/ns/pid"), os.getpid(), _started(os.getpid()))  # noqa: PTH115  not a path
    except OSError:
        return Process(token)


def _started(pid: int) -> str:
    """When a process started, in ticks since the machine did; empty if it has ended."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace").rpartition(")")[2].split()
    except OSError:
        return ""
    return "" if fields[0] in {"Z", "X"} else fields[19]  # ended, but its parent has not noticed


@contextmanager
def writer_lock(store: ObjectStore, name: str = LOCK, stop: Event | None = None) -> Iterator["WriterLock"]:
    """Hold a lock of an audit log.

    Raises AuditError if another process holds it for too long, StoppedError if `stop` is set first, OSError if the store does not answer.
    """
    lock = WriterLock(store, name)
    lock.acquire(stop or Event())
    renewing = threading.Thread(target=lock.renew_until_released, name="lock", daemon=True)
    renewing.start()
    try:
        yield lock
    finally:
        lock.release()
        renewing.join()


class WriterLock:
    """The lock of one audit log, held by this process."""

    def __init__(self, store: ObjectStore, name: str = LOCK) -> None:
        self._store = store
        self._name = name
        self.first_number = 0
        """The number of the entry with which it was acquired: greater than all of earlier holders."""
        self._guard = threading.Lock()
        self._number = 0
        self._state = _State(this_process())
        self._lost = False
        self._released = Event()

    @property
    def announced(self) -> tuple[str, ...]:
        """Files that an earlier holder may still add, until the first `announce`."""
        return self._state.announced

    @property
    def occupied(self) -> tuple[str, ...]:
        """Files without rows that must stay."""
        return self._state.occupied

    def acquire(self, stop: Event) -> None:
        """Wait for the lock. See `writer_lock`."""
        deadline = time.monotonic() + _TIMEOUT_SECONDS[self._name]
        watched, since = -1, 0.0
        while True:
            number, state = self._latest()
            if number != watched:
                watched, since = number, time.monotonic()
            expired = time.monotonic() - since >= _EXPIRES_SECONDS
            if state.holder is None or expired or state.holder.has_ended():
                self._number, self._state = (
                    number,
                    replace(self._state, announced=state.announced, occupied=state.occupied),
                )
                with suppress(_LostError):
                    self._append(self._state)
                    self.first_number = self._number
                    return
            elif time.monotonic() >= deadline:
                raise AuditError(f"another ingest or compaction is running in {self._store.url}: run one at a time")
            if stop.wait(_POLL_SECONDS):
                raise StoppedError(f"stopped while waiting for {self._store.url}")

    def is_held(self) -> bool:
        """Whether a process holds it that may be alive."""
        holder = self._latest()[1].holder
        return holder is not None and not holder.has_ended()

    def announce(self, files: Iterable[str]) -> None:
        """Record which files are about to be added; none: all were. Raises AuditError if another writer has replaced this one."""
        with self._guard:
            self._change(replace(self._state, announced=tuple(files)))

    def recovered(self, occupied: Iterable[str]) -> None:
        """Record that what earlier holders announced was added, or is `occupied`: nobody may delete these, or a late put would succeed."""
        with self._guard:
            self._change(replace(self._state, announced=(), occupied=tuple(occupied)))

    def check(self) -> None:
        """Raise AuditError if it is known that another writer has replaced this one."""
        if self._lost:
            raise taken_over(self._store.url)

    def renew_until_released(self) -> None:
        """Keep the lock."""
        failed = False
        while not self._released.wait(_RENEW_SECONDS) and not self._lost:
            with self._guard, suppress(AuditError):
                try:
                    self._change(replace(self._state, renewed=self._state.renewed + 1))
                    failed = False
                except OSError as error:
                    if not failed:
                        _log.warning("cannot renew the lock of %s: %s; retrying", self._store.url, error)
                    failed = True

    def release(self) -> None:
        """Free the lock. Announced files remain in it, for the next holder."""
        self._released.set()
        with self._guard, suppress(AuditError, OSError):
            if not self._lost:
                self._change(replace(self._state, holder=None))

    def _change(self, state: _State) -> None:
        self.check()
        try:
            self._append(state)
        except _LostError as error:
            self._lost = True
            raise taken_over(self._store.url) from error
        self._state = state

    def _append(self, state: _State) -> None:
        """Add an entry to the log. Raises _LostError if another process did."""
        number = self._number + 1
        try:
            self._store.create(self._entry(number), msgspec.json.encode(state))
        except FileExistsError as error:
            if self._latest_holder(number) != self._state.holder:
                raise _LostError from error
            self._number = number  # ours, of a put whose answer was lost
            self._append(state)
            return
        numbers = self._numbers()
        if numbers[-1:] != [number]:  # of old entries, this one may have been deleted
            raise _LostError
        self._number = number
        for old in numbers[:-1]:
            with suppress(OSError):
                self._store.delete(self._entry(old))

    def _latest_holder(self, number: int) -> Process | None:
        latest, state = self._latest()
        return state.holder if latest == number else None

    def _latest(self) -> tuple[int, _State]:
        while numbers := self._numbers():
            try:
                return numbers[-1], _STATE.decode(self._store.read(self._entry(numbers[-1])))
            except FileNotFoundError:
                continue  # there is a newer one
            except msgspec.DecodeError as error:
                path = f"{self._store.url}/{self._entry(numbers[-1])}"
                raise AuditError(f"{path} is not of an audit log: remove it") from error
        return 0, _State()

    def _numbers(self) -> list[int]:
        names = (stored.path.rpartition("/")[2] for stored in self._store.list(self._name))
        return sorted(int(name.partition(".")[0]) for name in names if _ENTRY.fullmatch(name))

    def _entry(self, number: int) -> str:
        return f"{self._name}/{number:016d}.json"


class _LostError(Exception):
    """Another process has added the entry."""


def taken_over(url: str) -> AuditError:
    """The error of a writer that was replaced by another one."""
    return AuditError(f"another process has taken over the lock of {url}, because this one stalled: run it again")
