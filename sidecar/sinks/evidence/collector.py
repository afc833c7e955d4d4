"""Captures evidence of a failover: each request is a child process that looks, writes the files and ends (docs/adr/0002).

What is captured hangs easily, for it is what fails over: a child can be ended for certain.
"""

import logging
import os
import re
import threading
import time
from collections import deque
from collections.abc import Callable, Collection, Iterable, Iterator
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any, Final, NamedTuple

from sidecar.child import Child, NoAnswerError
from sidecar.core.cluster.evidence_requests import nothing
from sidecar.core.evidence import Capture, CaptureOutcome, EvidenceKind, Occasion, Piece
from sidecar.core.policy.policy import Source
from sidecar.settings.model import ClusterSettings, TlsSettings
from sidecar.sinks.evidence import ownership
from sidecar.sinks.evidence.evidence_files import PART
from sidecar.threads import ServiceThread

CAPACITY: Final = 64
"""Requests that may wait, to each source. A failover has one to each; several clusters may fail over at once."""

_KEEP: Final = 7 * 24 * 3600.0
_MOST_BYTES: Final = 200 << 20
_SPARE: Final = 5.0
"""So many seconds before it is ended a child stops by itself, and tells what it has."""
_REAP: Final = 3.0
_HALF_WRITTEN: Final = 600.0
"""A file that has been half written for so many seconds stays so: whoever wrote it was ended."""
_LATE: Final = 120.0
"""A request that has waited for so many seconds is of no use: what there was to be seen is gone."""
_PRUNE_EVERY: Final = 3600.0
_STOPPING: Final = "the sidecar is stopping"

# What a child may need to run, and to know whom to trust. Nothing else: the environment often holds secrets.
_PASSED_ON: Final = ("LD_LIBRARY_PATH", "TZ", "SSL_CERT_FILE", "SSL_CERT_DIR")

_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")
_FILE: Final = re.compile(rf"({'|'.join(Occasion)})(-[0-9]{{1,9}})?-({'|'.join(EvidenceKind)})-[0-9]{{1,19}}\.txt")
_HALF: Final = re.compile(rf"\.{_FILE.pattern}(\.[0-9a-f]{{16}})?{re.escape(PART)}")

_log = logging.getLogger(__name__)

Pieces = tuple[Piece, ...]


class Collector:
    """Captures what it is asked for, from each source one request after the other, into files below `folder`.

    They are called EPISODE/OCCASION-KIND-NUMBER.txt, and EPISODE/OCCASION-2-KIND-NUMBER.txt for the second failover of an episode. `told`
    is called once for every `gather`, with the request's id and its pieces: from threads of its own, where `stop` says nothing else; it
    may block. Processes of other clusters than the request's, one of `clusters`, are left alone. `tls` is for Flink's REST servers. After
    each request, files older than `keep` seconds are removed, and then the oldest until all together have `most_bytes`. A request takes
    at most `time_limit` seconds.
    """

    def __init__(
        self,
        folder: Path,
        told: Callable[[str, Pieces], None],
        *,
        clusters: Iterable[ClusterSettings] = (),
        tls: TlsSettings | None = None,
        keep: float = _KEEP,
        most_bytes: int = _MOST_BYTES,
        time_limit: float = 60.0,
    ) -> None:
        self._folder = folder
        self._told = told
        self._identities = {cluster.cluster_id: ownership.identity(cluster) for cluster in clusters}
        self._tls = tls
        self._keep = keep
        self._most_bytes = most_bytes
        self._time_limit = time_limit
        self._changed = threading.Condition()
        self._pruning = threading.Lock()
        # A REST server that does not answer must not delay the look at processes, which end.
        self._waiting: dict[Source, deque[_Request]] = {
            source: deque() for source in (Source.PROCESSES, Source.FLINK_REST)
        }
        self._refused: deque[tuple[Capture, str]] = deque()
        self._children: dict[Child, str] = {}
        """What is being captured, and how the names of its files begin."""
        self._workers: list[ServiceThread] = []
        self._teller: threading.Thread | None = None
        self._stopping = False

    def start(self) -> None:
        """Begin to capture, also what was asked for before."""
        with self._changed:
            if self._workers or self._stopping:
                return
            self._workers = [
                ServiceThread(partial(self._work, waiting), f"evidence-{source}")
                for source, waiting in self._waiting.items()
            ]
            for worker in self._workers:
                worker.start()

    def stop(self) -> None:
        """End within seconds. What is being captured is cut off: LOST. What still waits is not captured: FAILED, told from here.

        May be called twice, or before `start`.
        """
        with self._changed:
            self._stopping = True
            for child in self._children:
                child.kill()
            unstarted = [request.capture for waiting in self._waiting.values() for request in waiting]
            for waiting in self._waiting.values():
                waiting.clear()
            self._changed.notify_all()
        deadline = time.monotonic() + _REAP
        for worker in self._workers:
            worker.join(max(deadline - time.monotonic(), 0))
        for capture in unstarted:
            self._tell(capture, _none(capture, CaptureOutcome.FAILED, _STOPPING))

    def gather(self, capture: Capture) -> None:
        """Capture soon; never blocks. After `stop`, or while CAPACITY others wait, it is told at once, from another thread: FAILED."""
        with self._changed:
            waiting = self._waiting[capture.source]
            if not self._stopping and len(waiting) < CAPACITY:
                waiting.append(_Request(capture, time.monotonic()))
                self._changed.notify_all()
                return
            # Not from this thread: it is the one that empties the inbox into which `told` puts the answer.
            self._refused.append((capture, _STOPPING if self._stopping else f"{CAPACITY} others wait"))
            if self._teller is None:
                teller = threading.Thread(target=self._tell_refused, name="evidence-refused", daemon=True)
                try:
                    teller.start()
                except (
                    RuntimeError
                ) as error:  # the owner must not end of it: without an answer the request counts as lost
                    self._refused.clear()
                    _log.error("evidence request failed: %s", error)
                    return
                self._teller = teller

    def _tell_refused(self) -> None:
        while True:
            with self._changed:
                if not self._refused:
                    self._teller = None
                    return
                capture, why = self._refused.popleft()
            self._tell(capture, _none(capture, CaptureOutcome.FAILED, why))

    def _tell(self, capture: Capture, pieces: Pieces) -> None:
        try:
            self._told(capture.id, pieces)
        except Exception:  # noqa: BLE001 the worker outlives whatever happens outside
            _log.exception("could not record the evidence of %s", capture.episode_id)

    def _work(self, waiting: deque["_Request"]) -> None:
        self._prune(None)
        while True:
            with self._changed:
                self._changed.wait_for(lambda: waiting or self._stopping, _PRUNE_EVERY)
                if self._stopping:
                    return
                request = waiting.popleft() if waiting else None
            if request is None:
                self._prune(None)
                continue
            capture, name = request.capture, _name(request.capture)
            if time.monotonic() - request.since > _LATE:
                self._tell(capture, _none(capture, CaptureOutcome.FAILED, f"it had to wait for {_LATE:.0f} s"))
            else:
                self._tell(capture, self._capture(capture, name))
                self._prune(name)

    def _capture(self, capture: Capture, name: str) -> Pieces:
        environment = {key: os.environ[key] for key in _PASSED_ON if key in os.environ}
        try:
            child = Child("sidecar.sinks.evidence.evidence_child", "the capturing process", environment)
        except Exception as error:  # noqa: BLE001  whatever it was, the request is answered
            why = getattr(error, "strerror", None) or error
            return _none(capture, CaptureOutcome.FAILED, f"could not start the capturing process: {why}")
        with self._changed:
            self._children[child] = name
            if self._stopping:
                child.kill()
        try:
            return child.ask(self._request(capture, name), Pieces, self._time_limit)
        except Exception as error:  # noqa: BLE001  whatever it was, the request is answered
            if self._stopping:
                return _none(capture, CaptureOutcome.LOST, _STOPPING)
            why = str(error) if isinstance(error, NoAnswerError) else f"unexpected {type(error).__name__}"
            return _none(capture, CaptureOutcome.FAILED, why)
        finally:
            with self._changed:
                del self._children[child]
            child.end()

    def _request(self, capture: Capture, name: str) -> dict[str, Any]:
        return {
            "source": capture.source.value,
            "folder": str(self._folder.absolute()),
            "name": name,
            "seconds": max(self._time_limit - _SPARE, self._time_limit / 2),
            "rest_address": capture.rest_address,
            "jobs": capture.jobs,
            "thread_dump": capture.thread_dump,
            "cluster": self._identities.get(capture.cluster_id),
            "tls": _plain(self._tls) if self._tls else None,
        }

    def _prune(self, name: str | None) -> None:
        """Remove what is too old or too much; what begins with `name` was just written, and stays; so does what is being captured."""
        with self._changed:
            spared = {*self._children.values(), *([name] if name else [])}
        try:
            with self._pruning:
                count, size = _prune(self._folder, spared, time.time() - self._keep, self._most_bytes)
        except OSError as error:
            _log.warning("could not remove old evidence from %s: %s", self._folder, error.strerror or error)
            return
        if count:
            _log.info("removed %d old files of evidence (%.1f MB) from %s", count, size / 1e6, self._folder)


def _name(capture: Capture) -> str:
    """How the names of its files begin. An id that could not be the name of a folder is not taken for one."""
    folder = capture.episode_id if _NAME.fullmatch(capture.episode_id) else "unnamed"
    again = f"-{capture.round}" if capture.round > 1 else ""
    return f"{folder}/{capture.occasion.value}{again}"


def _none(capture: Capture, outcome: CaptureOutcome, why: str) -> Pieces:
    """In place of what was not captured."""
    return tuple(nothing(capture, f"not captured: {why}", outcome))


def _plain(tls: TlsSettings) -> dict[str, str | None]:
    """For the child alone: with the password in clear."""
    files = {"ca_file": tls.ca_file, "certificate_file": tls.certificate_file, "key_file": tls.key_file}
    password = tls.key_password.reveal() if tls.key_password else None
    return {name: None if file is None else str(file) for name, file in files.items()} | {"key_password": password}


class _Request(NamedTuple):
    capture: Capture
    since: float


class _File(NamedTuple):
    written_at: float
    size: int
    path: Path


def _prune(folder: Path, spared: Collection[str], oldest: float, most_bytes: int) -> tuple[int, int]:
    """How many files were removed, and their bytes. Raises OSError."""
    files = sorted(_files(folder))
    total = sum(file.size for file in files)
    count = size = 0
    for file in files:
        if file.written_at >= oldest and total <= most_bytes:
            break
        if file.path.relative_to(folder).as_posix().startswith(tuple(f"{name}-" for name in spared)):
            continue
        file.path.unlink(missing_ok=True)
        with suppress(OSError):  # it holds others
            file.path.parent.rmdir()
        total, size, count = total - file.size, size + file.size, count + 1
    return count, size


def _files(folder: Path) -> Iterator[_File]:
    """Those of ours below the folder, never through a link. What was left half written is removed. Raises OSError."""
    for episode in _entries(folder):
        if not (_NAME.fullmatch(episode.name) and episode.is_dir(follow_symlinks=False)):
            continue
        for entry in _entries(Path(episode.path)):
            if not entry.is_file(follow_symlinks=False):
                continue
            known = entry.stat(follow_symlinks=False)
            if _HALF.fullmatch(entry.name):
                if time.time() - known.st_mtime > _HALF_WRITTEN:
                    Path(entry.path).unlink(missing_ok=True)
            elif _FILE.fullmatch(entry.name):
                yield _File(known.st_mtime, known.st_size, Path(entry.path))


def _entries(folder: Path) -> list["os.DirEntry[str]"]:
    try:
        with os.scandir(folder) as entries:
            return list(entries)
    except FileNotFoundError:
        return []
