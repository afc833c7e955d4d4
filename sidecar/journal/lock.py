"""Locks a state folder for one process. The kernel releases the lock when the process ends."""

import errno
import fcntl
import logging
import os
import socket
from contextlib import suppress
from pathlib import Path
from typing import Final

log = logging.getLogger("sidecar.journal")

FILE: Final = "lock"
_NO_LOCKS_HERE: Final = {errno.ENOLCK, errno.EOPNOTSUPP, errno.ENOSYS}
_MOST_CHARACTERS: Final = 200


class StateLock:
    """The lock of one state folder. Two locks in one process exclude each other, too."""

    def __init__(self, folder: Path) -> None:
        self._path = folder / FILE
        self._descriptor: int | None = None

    def take(self) -> bool:
        """Take the lock. False: another process holds it. True, with a warning, if the file system has no locks.

        Raises OSError if the folder is not writable.
        """
        if self._descriptor is not None:
            return True
        self._path.parent.mkdir(mode=0o755, parents=True, exist_ok=True)  # the spool may be in it
        descriptor = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o600)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(descriptor)
            return False
        except OSError as error:
            if error.errno not in _NO_LOCKS_HERE:
                os.close(descriptor)
                raise
            consequence = "a second sidecar on this folder would not be refused"
            log.warning("cannot lock %s (%s): %s", self._path, error.strerror, consequence)
        self._descriptor = descriptor
        with suppress(OSError):  # information only
            os.fchmod(descriptor, 0o600)
            os.ftruncate(descriptor, 0)
            os.pwrite(descriptor, f"process {os.getpid()} on {socket.gethostname()}\n".encode(), 0)
        return True

    def holder(self) -> str:
        """The holder of the lock, as far as known: for messages."""
        try:
            descriptor = os.open(self._path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
            with os.fdopen(descriptor, errors="replace") as file:
                text = " ".join(file.read(_MOST_CHARACTERS).split())
        except OSError:
            text = ""
        return text if text.isprintable() and text else "another process"

    def release(self) -> None:
        """May be called twice, and without `take`."""
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None
