"""How much of a total each owner may have: a folder below a root in ZooKeeper, a namespace in Kubernetes, a configured cluster."""

import threading
from collections.abc import Hashable
from typing import Final


def folder_of(path: str) -> str:
    """The folder below the root, or the namespace, of a cluster's id or path; its own id, if it is in none. "": of the root."""
    return path.strip("/").partition("/")[0]


class Shares:
    """A total that nobody can use up alone: an owner gets at most half of what the others leave. Thread-safe.

    What was given is never taken back, so what is watched stays watched.
    """

    def __init__(self, total: int) -> None:
        self.total: Final = total
        self._taken: dict[Hashable, int] = {}
        self._sum = 0
        self._lock = threading.Lock()

    def take(self, owner: Hashable, wanted: int) -> int:
        """How many of so many more `owner` gets, from now on."""
        with self._lock:
            own = self._taken.get(owner, 0)
            given = max(0, min(wanted, (self.total - self._sum + own + 1) // 2 - own))
            self._set(owner, own + given)
        return given

    def take_first(self, owner: Hashable, wanted: int) -> int:
        """The same of what was there before everybody else: as much as is left."""
        with self._lock:
            given = max(0, min(wanted, self.total - self._sum))
            self._set(owner, self._taken.get(owner, 0) + given)
        return given

    def give_back(self, owner: Hashable, count: int) -> None:
        """`owner` has so many less."""
        with self._lock:
            self._set(owner, max(0, self._taken.get(owner, 0) - count))

    def _set(self, owner: Hashable, count: int) -> None:
        self._sum += count - self._taken.get(owner, 0)
        if count:
            self._taken[owner] = count
        else:
            self._taken.pop(owner, None)
