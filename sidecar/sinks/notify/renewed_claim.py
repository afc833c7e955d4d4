"""A claim that its holder renews while it sends: one that stays unchanged is that of a dead sidecar."""

import math
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import Self

from sidecar.runtime.threads import ServiceThread


class RenewedClaim:
    """Renews a claim in the background until the context ends."""

    def __init__(self, until: float, renew: Callable[[float], float], every: float) -> None:
        """`renew` is called every `every` seconds. It gets `until`, and returns the next one; -inf: others have the claim."""
        self.until = until
        """When sending must have ended (monotonic): from then on others may send."""
        self._renew = renew
        self._every = every
        self._stopping = threading.Event()

    def __enter__(self) -> Self:
        if self.until < math.inf:
            with suppress(RuntimeError):  # no more threads: it is not renewed, and `until` stays
                ServiceThread(self._work, "claim").start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stopping.set()

    def _work(self) -> None:
        while not self._stopping.wait(self._every) and self.until > -math.inf:
            self.until = self._renew(self.until)
