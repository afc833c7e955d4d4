"""Reads how a process ended from its pidfd: for any visible process, without any right and whoever its parent is (Linux 6.15 and newer)."""

import fcntl
import os
import struct
from typing import Final

_INFO: Final = struct.Struct("=QQ11Ii")
"""`struct pidfd_info` in its first version: mask, cgroup id, three process ids, eight user and group ids, exit code."""
_GET_INFO: Final = 3 << 30 | _INFO.size << 16 | 0xFF << 8 | 11
"""`PIDFD_GET_INFO`, _IOWR(0xFF, 11, struct pidfd_info)."""
_EXIT: Final = 1 << 3
"""`PIDFD_INFO_EXIT`: answered once the parent has reaped the process."""


def exit_code(pidfd: int) -> int | None:
    """The exit code as a shell has it: 128 and the number of the signal, if one killed the process. None: it is not reaped yet, or this
    kernel does not say."""
    asked = bytearray(_INFO.size)
    _INFO.pack_into(asked, 0, _EXIT, *[0] * 13)
    try:
        fcntl.ioctl(pidfd, _GET_INFO, asked)
    except OSError:
        return None
    mask, *_, status = _INFO.unpack(asked)
    if not mask & _EXIT:
        return None
    if os.WIFSIGNALED(status):
        return 128 + os.WTERMSIG(status)
    return os.WEXITSTATUS(status)
