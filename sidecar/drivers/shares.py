"""Shares of a total among owners: a folder or the root in ZooKeeper, a namespace in Kubernetes, a configured cluster."""

import threading
from collections.abc import Hashable
from typing import Final


def folder_of(path: str) -> str:
    """The folder below the root, or the namespace, of a cluster's id or path; its own id, if it is in none. "": of the root."""
    return path.strip("/").partition("/")[0]


def owner_below_root(cluster: str) -> str:
    """Whose share a cluster in ZooKeeper is of: its folder's. "": the root's, of which all clusters are that are directly below it."""
    return folder_of(cluster) if "/" in cluster.strip("/") else ""


class Shares:
    """A total that nobody can use up alone: an owner gets at most half of what the others leave. Thread-safe.

    The parts of an owner share in the same way what it gets. What was given is never taken back, so what is watched stays watched.
    """

    def __init__(self, total: int) -> None:
        self.total: Final = total
        self._taken: dict[Hashable, int] = {}
        self._of_part: dict[tuple[Hashable, str], int] = {}
        self._sum = 0
        self._lock = threading.Lock()

    def take(self, owner: Hashable, wanted: int, part: str = "") -> int:
        """Take up to `wanted` more for `owner`. Returns how many it gets. `part`: the part of the owner that takes them; empty: it has
        none."""
        with self._lock:
            own = self._taken.get(owner, 0)
            most = (self.total - self._sum + own + 1) // 2
            given = max(0, min(wanted, most - own))
            if part:
                of_part = self._of_part.get((owner, part), 0)
                given = max(0, min(given, (most - own + of_part + 1) // 2 - of_part))
                self._of_part[owner, part] = of_part + given
            self._set(owner, own + given)
        return given

    def take_first(self, owner: Hashable, wanted: int) -> int:
        """Take up to `wanted` more for `owner`, as many as are left, for what existed before the other owners. Returns how many it gets."""
        with self._lock:
            given = max(0, min(wanted, self.total - self._sum))
            self._set(owner, self._taken.get(owner, 0) + given)
        return given

    def give_back(self, owner: Hashable, count: int, part: str = "") -> None:
        """`owner` has so many less, of this part."""
        with self._lock:
            if left := max(0, self._of_part.pop((owner, part), 0) - count):
                self._of_part[owner, part] = left
            self._set(owner, max(0, self._taken.get(owner, 0) - count))

    def _set(self, owner: Hashable, count: int) -> None:
        self._sum += count - self._taken.get(owner, 0)
        if count:
            self._taken[owner] = count
        else:
            self._taken.pop(owner, None)
