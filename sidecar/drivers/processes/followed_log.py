"""The log of one JobManager whose process is not visible: that it ended shows when the next run begins in its log."""

import os
from pathlib import Path

from msgspec.structs import replace

from sidecar.core.first_fault import MOST_CHARACTERS, before_last_run, begins_run, log_end
from sidecar.core.process_end import LogEnd
from sidecar.drivers.processes.held_log import OpenLog, newest_log, same_file, tail


class FollowedLog(OpenLog):
    """The log of a JobManager that is not visible."""

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
        text, self._earlier = before_last_run(_text(tail(held))) or self._earlier, ""
        return replace(log_end(path.name, text), followed=True) if text.strip() else None

    def _has_begun(self, descriptor: int) -> bool:
        """Whether a run has begun in the lines that were added. A file that has become shorter was copied and truncated."""
        size = os.fstat(descriptor).st_size
        start = max(min(self._offset, size), size - MOST_CHARACTERS)
        lines, end, _ = os.pread(descriptor, size - start, start).rpartition(b"\n")
        self._offset = start + len(lines) + len(end)
        return begins_run(_text(lines))


def _text(content: bytes) -> str:
    return content.decode(errors="replace")
