"""Temporary folders of the audit commands: what Spark spills, and copies of object stores. A command that is killed leaves gigabytes."""

import fcntl
import os
import shutil
import stat
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

_PREFIX: Final = "flink-ha-audit-"
_LOCK: Final = "in-use"
_FILES: Final = "files"


@contextmanager
def scratch_folder() -> Iterator[Path]:
    """A private folder below TMPDIR. It is removed in the end; if this process is killed, by the next one that makes such a folder."""
    _remove_abandoned()
    with tempfile.TemporaryDirectory(prefix=_PREFIX) as name:
        new, files = Path(name, f"{_LOCK}.new"), Path(name, _FILES)
        files.mkdir(mode=0o700)
        with new.open("wb") as lock:
            with suppress(OSError):  # a file system without locks: no other process can take it, and the folder stays
                fcntl.flock(lock, fcntl.LOCK_EX)
            new.rename(Path(name, _LOCK))  # it is locked when it appears
            yield files


def _remove_abandoned() -> None:
    for folder in Path(tempfile.gettempdir()).glob(f"{_PREFIX}*"):
        with suppress(OSError):  # in use; or something still writes to it: the next time
            status = folder.lstat()
            if not stat.S_ISDIR(status.st_mode) or status.st_uid != os.geteuid():
                continue  # whose it is may put links there
            lock = os.open(folder / _LOCK, os.O_RDONLY)
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                shutil.rmtree(folder / _FILES)
                shutil.rmtree(folder)
            finally:
                os.close(lock)
