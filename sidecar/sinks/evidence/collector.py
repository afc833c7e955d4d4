"""Captures evidence of a failover: a child process for each request captures, writes the files and ends (docs/project/adr/0002).

A process that fails over can make the capture hang: a child can be killed.
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

from msgspec import json

from sidecar.core.bounds import CAPTURER
from sidecar.core.captures import Capture, CaptureOutcome, EvidenceItem, EvidenceKind, Occasion
from sidecar.core.capturing import missing_evidence
from sidecar.core.policy.policy import Source
from sidecar.host import ownership
from sidecar.runtime.child import Child, NoAnswerError
from sidecar.runtime.threads import ServiceThread, join_all
from sidecar.settings import ClusterSettings, TlsSettings
from sidecar.sinks.evidence.evidence_files import UNFINISHED_SUFFIX

CAPACITY: Final = 64
"""Requests that may wait for each source. A failover makes one for each; several clusters may fail over at once."""

_KEEP: Final = 7 * 24 * 3600.0
_MOST_BYTES: Final = 200 << 20
_SPARE: Final = 5.0
"""A child returns what it has this many seconds before it would be killed."""
_REAP: Final = 3.0
_UNFINISHED_SECONDS: Final = 600.0
"""An unfinished file of this age is removed: its writer was killed."""
_LATE: Final = 120.0
"""Seconds after which a waiting request is dropped: what it was to capture is gone."""
_PRUNE_EVERY: Final = 3600.0
_STOPPING: Final = "the sidecar is stopping"

# What a child may need to run and to verify servers. Nothing else: the environment often holds secrets.
_PASSED_ON: Final = ("LD_LIBRARY_PATH", "TZ", "SSL_CERT_FILE", "SSL_CERT_DIR")

_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")
_FILE: Final = re.compile(rf"({'|'.join(Occasion)})(-[0-9]{{1,9}})?-({'|'.join(EvidenceKind)})-[0-9]{{1,19}}\.txt")
_UNFINISHED: Final = re.compile(rf"\.{_FILE.pattern}(\.[0-9a-f]{{16}})?{re.escape(UNFINISHED_SUFFIX)}")

_log = logging.getLogger(__name__)

Items = tuple[EvidenceItem, ...]
_ITEMS: Final = json.Decoder(Items)


class Collector:
    """Carries out requests, one after the other for each source, and writes files below `folder`.

    The files are EPISODE/OCCASION-KIND-NUMBER.txt, or EPISODE/OCCASION-2-KIND-NUMBER.txt for the second failover of an episode.
    `report` is called once for every `gather`, with the request's id and its items, from threads of the collector (or by `stop`); it may
    block. Processes of other clusters than the request's, one of `clusters`, are not captured. `tls` is for Flink's REST servers. After
    each request, files older than `keep` seconds are removed, then the oldest until the rest take at most `most_bytes`. A request takes
    at most `time_limit` seconds.
    """

    def __init__(
        self,
        folder: Path,
        report: Callable[[str, Items], None],
        *,
        clusters: Iterable[ClusterSettings] = (),
        tls: TlsSettings | None = None,
        keep: float = _KEEP,
        most_bytes: int = _MOST_BYTES,
        time_limit: float = 60.0,
    ) -> None:
        self._folder = folder
        self._on_items = report
        self._identities = {cluster.cluster_id: ownership.identity(cluster) for cluster in clusters}
        self._tls = tls
        self._keep = keep
        self._most_bytes = most_bytes
        self._time_limit = time_limit
        self._changed = threading.Condition()
        self._pruning = threading.Lock()
        # One queue for each source: a REST server that hangs must not delay the capture of processes, which end.
        self._waiting: dict[Source, deque[_Request]] = {
            source: deque() for source in (Source.PROCESSES, Source.FLINK_REST)
        }
        self._refused: deque[tuple[Capture, str]] = deque()
        self._children: dict[Child, str] = {}
        """Running children, and how the names of their files begin."""
        self._workers: list[ServiceThread] = []
        self._refuser: threading.Thread | None = None
        self._stopping = False

    def start(self) -> None:
        """Start the workers. They also carry out earlier requests."""
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
        """Stop within seconds. Running requests are killed (LOST), waiting ones are reported from here (FAILED).

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
        join_all(self._workers, _REAP)
        for capture in unstarted:
            self._report_failed(capture, _STOPPING)

    def gather(self, capture: Capture) -> None:
        """Capture soon; never blocks. After `stop`, or while CAPACITY others wait, FAILED is reported from another thread."""
        with self._changed:
            waiting = self._waiting[capture.source]
            if not self._stopping and len(waiting) < CAPACITY:
                waiting.append(_Request(capture, time.monotonic()))
                self._changed.notify_all()
                return
            # Not from this thread: it empties the inbox into which `report` puts the items.
            self._refused.append((capture, _STOPPING if self._stopping else f"{CAPACITY} others wait"))
            if self._refuser is None:
                refuser = threading.Thread(target=self._report_refused, name="evidence-refused", daemon=True)
                try:
                    refuser.start()
                except RuntimeError as error:  # must not end the caller; an unanswered request counts as lost
                    self._refused.clear()
                    _log.error("evidence request failed: %s", error)
                    return
                self._refuser = refuser

    def _report_refused(self) -> None:
        while True:
            with self._changed:
                if not self._refused:
                    self._refuser = None
                    return
                capture, why = self._refused.popleft()
            self._report_failed(capture, why)

    def _report_failed(self, capture: Capture, why: str) -> None:
        self._report(capture, _not_captured(capture, CaptureOutcome.FAILED, why))

    def _report(self, capture: Capture, items: Items) -> None:
        try:
            self._on_items(capture.id, items)
        except Exception:  # noqa: BLE001  the worker survives errors of others
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
            capture, name = request.capture, _file_prefix(request.capture)
            if time.monotonic() - request.since > _LATE:
                self._report_failed(capture, f"the request waited longer than {_LATE:.0f} s")
            else:
                self._report(capture, self._capture(capture, name))
                self._prune(name)

    def _capture(self, capture: Capture, name: str) -> Items:
        environment = {key: os.environ[key] for key in _PASSED_ON if key in os.environ}
        try:
            child = Child(
                "sidecar.sinks.evidence.evidence_child", "the capturing process", environment, CAPTURER.most_bytes
            )
        except Exception as error:  # noqa: BLE001  every request gets an answer
            why = getattr(error, "strerror", None) or error
            return _not_captured(capture, CaptureOutcome.FAILED, f"could not start the capturing process: {why}")
        with self._changed:
            self._children[child] = name
            if self._stopping:
                child.kill()
        try:
            return child.ask(self._request(capture, name), _ITEMS, self._time_limit)
        except Exception as error:  # noqa: BLE001  every request gets an answer
            if self._stopping:
                return _not_captured(capture, CaptureOutcome.LOST, _STOPPING)
            why = str(error) if isinstance(error, NoAnswerError) else f"unexpected {type(error).__name__}"
            return _not_captured(capture, CaptureOutcome.FAILED, why)
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
        """Remove files beyond the limits, except those that begin with `name` (just written) or belong to a running child."""
        with self._changed:
            spared = {*self._children.values(), *([name] if name else [])}
        try:
            with self._pruning:
                count, size = _prune(self._folder, spared, time.time() - self._keep, self._most_bytes)
        except OSError as error:
            _log.warning("could not remove old evidence from %s: %s", self._folder, error.strerror or error)
            return
        if count:
            _log.info("removed %d old evidence files (%.1f MB) from %s", count, size / 1e6, self._folder)


def _file_prefix(capture: Capture) -> str:
    """The first part of the names of the request's files. An episode id that is not a safe folder name is replaced."""
    folder = capture.episode_id if _NAME.fullmatch(capture.episode_id) else "unnamed"
    again = f"-{capture.round}" if capture.round > 1 else ""
    return f"{folder}/{capture.occasion.value}{again}"


def _not_captured(capture: Capture, outcome: CaptureOutcome, why: str) -> Items:
    return tuple(missing_evidence(capture, f"not captured: {why}", outcome))


def _plain(tls: TlsSettings) -> dict[str, str | None]:
    """The TLS settings with the password in clear, for the child only."""
    files = {name: getattr(tls, name) for name in ("ca_file", "certificate_file", "key_file")}
    password = tls.key_password.reveal() if tls.key_password else None
    return {name: str(file) if file else None for name, file in files.items()} | {"key_password": password}


class _Request(NamedTuple):
    capture: Capture
    since: float


class _File(NamedTuple):
    written_at: float
    size: int
    path: Path


def _prune(folder: Path, spared: Collection[str], oldest: float, most_bytes: int) -> tuple[int, int]:
    """Number and bytes of the removed files. Raises OSError."""
    files = sorted(_files(folder))
    total = sum(file.size for file in files)
    count = size = 0
    for file in files:
        if file.written_at >= oldest and total <= most_bytes:
            break
        if file.path.relative_to(folder).as_posix().startswith(tuple(f"{name}-" for name in spared)):
            continue
        file.path.unlink(missing_ok=True)
        with suppress(OSError):  # not empty
            file.path.parent.rmdir()
        total, size, count = total - file.size, size + file.size, count + 1
    return count, size


def _files(folder: Path) -> Iterator[_File]:
    """Evidence files below the folder; links are not followed. Removes abandoned unfinished files. Raises OSError."""
    for episode in _entries(folder):
        if not (_NAME.fullmatch(episode.name) and episode.is_dir(follow_symlinks=False)):
            continue
        for entry in _entries(Path(episode.path)):
            if not entry.is_file(follow_symlinks=False):
                continue
            status = entry.stat(follow_symlinks=False)
            if _FILE.fullmatch(entry.name):
                yield _File(status.st_mtime, status.st_size, Path(entry.path))
            elif _UNFINISHED.fullmatch(entry.name) and time.time() - status.st_mtime > _UNFINISHED_SECONDS:
                Path(entry.path).unlink(missing_ok=True)


def _entries(folder: Path) -> list["os.DirEntry[str]"]:
    try:
        with os.scandir(folder) as entries:
            return list(entries)
    except FileNotFoundError:
        return []
