"""A network of its own, in which packets can vanish."""

import ctypes
import os
import subprocess
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

_CLONE_NEWNET = 0x40000000
_COMMAND_SECONDS = 10.0
T = TypeVar("T")


class PrivateNetwork:
    """A network namespace that holds a loopback and nothing else. Needs root, and Debian's `iproute2`.

    It lasts until it was closed and the threads and sockets made in it are gone.
    """

    def __init__(self) -> None:
        self._inside = ThreadPoolExecutor(1, thread_name_prefix="private-network")
        self.run(_leave_for_a_new_network)
        self._command("ip", "link", "set", "lo", "up")

    def run(self, act: Callable[[], T]) -> T:
        """Call `act` in the network: sockets that it opens, and threads that it starts, are of this network."""
        return self._inside.submit(act).result()

    def drop_packets(self) -> None:
        """From now on every packet vanishes, and nobody is notified."""
        self._command("tc", "qdisc", "replace", "dev", "lo", "root", "pfifo", "limit", "0")

    def pass_packets(self) -> None:
        self._command("tc", "qdisc", "delete", "dev", "lo", "root")

    def close(self) -> None:
        self._inside.shutdown()

    def _command(self, *command: str) -> None:
        def call() -> subprocess.CompletedProcess[str]:
            return subprocess.run(command, capture_output=True, text=True, timeout=_COMMAND_SECONDS, check=False)

        done = self.run(call)
        assert done.returncode == 0, f"{' '.join(command)}: {done.stderr}"


def _leave_for_a_new_network() -> None:
    """Of this thread alone; `os.unshare` is Python 3.12's."""
    if ctypes.CDLL(None, use_errno=True).unshare(_CLONE_NEWNET):
        number = ctypes.get_errno()
        raise OSError(number, f"no network namespace: {os.strerror(number)}")
