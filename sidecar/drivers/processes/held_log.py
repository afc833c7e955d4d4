"""The log of one JobManager. It is held open: when the next JobManager starts, it may be another file."""

import os
import re
from contextlib import suppress
from itertools import islice
from pathlib import Path
from typing import Final

from msgspec.structs import replace

from sidecar.core.first_fault import MOST_CHARACTERS, begins_run, earlier_runs, log_end
from sidecar.core.process_end import LogEnd
from sidecar.host import processes

_MOST_FILES: Final = 1_000
"""Looked at in a folder."""
_NAMES: Final = re.compile(
    r".*(jobmanager|standalonesession|standalonejob|kubernetes-session|kubernetes-application).*\.log"
)
"""The names that Flink's scripts give to the logs of JobManagers."""


class OpenLog:
    """A file that stays open until the next one is. Used by one thread. To be closed."""

    def __init__(self, place: Path) -> None:
        """`place`: the file, or the folder."""
        self._place = place
        self._descriptor: int | None = None

    def close(self) -> None:
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None

    def _hold(self, path: Path) -> int:
        """Open this file, instead of the one before. Raises OSError; then that one stays open."""
        descriptor = processes.open_regular(path)
        self.close()
        self._descriptor = descriptor
        return descriptor


class HeldLog(OpenLog):
    """The log of a JobManager that is visible."""

    def __init__(self, place: Path, name: str | None) -> None:
        """`name`: of the file, as the JobManager's own options say; None: they do not."""
        super().__init__(place)
        self._name = name
        self._size = 0
        self._until: int | None = None
        """The size of the log when its JobManager ended: the next one may append to it."""
        self.path = place
        """The path of the log file."""

    def look(self, *, alone: bool) -> int:
        """Open the file, again if it was rotated. `alone`: it is the only JobManager here, so that any log is its own. Raises OSError."""
        path = self._file(alone=alone)
        descriptor, self.path = self._hold(path), path
        self._size = os.fstat(descriptor).st_size
        return descriptor

    def mark_end(self) -> None:
        """Note that its JobManager has ended just now."""
        if self._descriptor is not None:
            with suppress(OSError):
                self._until = os.fstat(self._descriptor).st_size

    def end(self, *, alone: bool) -> LogEnd | None:
        """The end of the log after its JobManager has ended. None: the log says nothing. Raises OSError."""
        descriptor = self.look(alone=alone) if self._descriptor is None else self._descriptor
        held, content = os.fstat(descriptor), tail(descriptor, self._until)
        content = content.lstrip(b"\0")  # a truncated file may begin with a hole
        if held.st_size < self._size:  # copied and truncated
            content = self._other(f"{self.path}.1") + content
        if not same_file(self.path, held):  # renamed, and continued by this process, or begun by the next one
            newer = self._other(self.path)
            content += b"" if begins_run(newer.decode(errors="replace")) else newer
        content = content[-MOST_CHARACTERS:].strip()
        if b"\0" in content:
            raise OSError(None, "it is not a text")
        if not content:
            return None
        return log_end(self.path.name, content.decode(errors="replace"))

    def _file(self, *, alone: bool) -> Path:
        if not self._place.is_dir():
            if not (alone or self._name == self._place.name):
                raise OSError(None, "several JobManagers run here, and it is not known whose log it is")
            return self._place
        if self._name and (self._place / self._name).is_file():
            return self._place / self._name
        if not alone:
            raise OSError(None, "several JobManagers run here, and it is not known which log is whose")
        return newest_log(self._place)

    def _other(self, path: str | Path) -> bytes:
        """The end of another file. Empty if there is none."""
        try:
            descriptor = processes.open_regular(path)
        except OSError:
            return b""
        try:
            return tail(descriptor)
        finally:
            os.close(descriptor)


def newest_log(place: Path) -> Path:
    """The log of the JobManager that started last, if `place` is a folder. Raises OSError."""
    if not place.is_dir():
        return place
    logs = []
    with os.scandir(place) as files:
        for file in islice(files, _MOST_FILES):
            with suppress(OSError):
                if _NAMES.fullmatch(file.name) and file.is_file():
                    logs.append((file.stat().st_mtime, file.name))
    if not logs:
        raise FileNotFoundError(None, "no log of a JobManager is in it")
    return place / max(logs)[1]


def tail(descriptor: int, until: int | None = None) -> bytes:
    """The end of the file, or of its first `until` bytes."""
    size = os.fstat(descriptor).st_size
    end = size if until is None else min(size, until)
    start = max(end - MOST_CHARACTERS, 0)
    return os.pread(descriptor, end - start, start)


def same_file(path: Path, held: os.stat_result) -> bool:
    """True if the path still leads to this file, or to none."""
    try:
        return os.path.samestat(path.stat(), held)
    except OSError:
        return True


class FollowedLog(OpenLog):
    """The log of a JobManager whose process is not visible: that it ended shows when the next run begins in its log."""

    def __init__(self, place: Path) -> None:
        super().__init__(place)
        self._offset = 0
        """Up to where its lines were looked at."""
        self._earlier = ""
        """The end of the file before this one."""

    def ended_run(self) -> LogEnd | None:
        """The end of the run that is over since the last look, because another one has begun. None: none is. Raises OSError."""
        path, held = newest_log(self._place), self._descriptor
        if held is None:
            held = self._hold(path)
            self._offset = os.fstat(held).st_size
        elif not same_file(path, os.fstat(held)):
            # It was renamed: this run goes on in another file, or the next one has begun there.
            self._earlier, self._offset = _text(tail(held)), 0
            held = self._hold(path)
        if not self._has_begun(held):
            return None
        text, self._earlier = earlier_runs(_text(tail(held))) or self._earlier, ""
        return replace(log_end(path.name, text), followed=True) if text.strip() else None

    def _has_begun(self, descriptor: int) -> bool:
        """True if a run has begun in the lines that were added. A file that has become shorter was copied and truncated."""
        size = os.fstat(descriptor).st_size
        start = max(min(self._offset, size), size - MOST_CHARACTERS)
        lines, end, _ = os.pread(descriptor, size - start, start).rpartition(b"\n")
        self._offset = start + len(lines) + len(end)
        return begins_run(_text(lines))


def _text(content: bytes) -> str:
    return content.decode(errors="replace")
