"""How a process ended, as its pidfd says (PIDFD_GET_INFO in linux/pidfd.h)."""

import errno
import fcntl
import struct
from typing import Final

_INFO: Final = struct.Struct("=QQ11Ii")
"""The first version of `struct pidfd_info`: the mask, the id of the cgroup, ids of process and users, and the wait status."""
_GET_INFO: Final = 3 << 30 | _INFO.size << 16 | 0xFF << 8 | 11  # _IOWR(0xFF, 11, struct pidfd_info)
_EXIT: Final = 1 << 3


def wait_status(pidfd: int) -> int | None:
    """How a process ended that its parent has waited for, as os.wait() has it. None: it has not, or the kernel is older than 6.15."""
    info = bytearray(_INFO.size)
    struct.pack_into("=Q", info, 0, _EXIT)
    try:
        fcntl.ioctl(pidfd, _GET_INFO, info)
    except OSError:
        return None
    mask, *_, status = _INFO.unpack(info)
    return int(status) if mask & _EXIT else None


def says_status(pidfd: int) -> bool:
    """Whether the kernel knows the question at all."""
    try:
        fcntl.ioctl(pidfd, _GET_INFO, bytearray(_INFO.size))
    except OSError as error:
        return error.errno == errno.ESRCH
    return True
