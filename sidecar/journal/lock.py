"""One process at a time uses a state folder. The kernel frees the lock when its holder ends, however it ends."""

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
    """The lock of one state folder: `take` it, then `release` it. Also two in one process exclude each other."""

    def __init__(self, folder: Path) -> None:
        self._path = folder / FILE
        self._descriptor: int | None = None
        self._warned = False

    def take(self) -> bool:
        """Whether this process holds the lock now. False: another one does.

        Where the file system has no locks, that is logged, and it is True. Raises OSError where the folder cannot be written.
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
            if not self._warned:
                log.warning(
                    "cannot lock %s (%s): a second sidecar on this folder would not be refused",
                    self._path,
                    error.strerror,
                )
            self._warned = True
        self._descriptor = descriptor
        with suppress(OSError):  # for people alone
            os.fchmod(descriptor, 0o600)
            os.ftruncate(descriptor, 0)
            os.pwrite(descriptor, f"process {os.getpid()} on {socket.gethostname()}\n".encode(), 0)
        return True

    def holder(self) -> str:
        """Who holds it, as far as that is known: for people."""
        try:
            descriptor = os.open(self._path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
            with os.fdopen(descriptor, errors="replace") as file:
                words = file.read(_MOST_CHARACTERS).split()
        except OSError:
            words = []
        text = " ".join(words)
        return text if text.isprintable() and text else "another process"

    def release(self) -> None:
        """May be called twice, and without `take`."""
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None
