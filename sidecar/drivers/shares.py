"""Shares of a total among owners (a folder or the root in ZooKeeper, a namespace in Kubernetes, a configured cluster), and the jobs that
are watched with them."""

import threading
from collections import Counter
from collections.abc import Hashable, Iterable
from typing import Final

from sidecar.core.bounds import JOBS_OF_CLUSTER


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


_EVENTS: Final = ""
"""The place that stands for observed jobs that are in no list."""


class WatchedJobs:
    """The jobs of one cluster, at most `most`, and no more than the share that its owner has of the jobs of all. Used by one thread.

    A job is in the lists of several places. One that is watched stays so until it is in none of them.
    """

    def __init__(self, shares: Shares, owner: str, most: int = JOBS_OF_CLUSTER.most_items, part: str = "") -> None:
        """`part`: of the owner's parts."""
        self._shares = shares
        self._part = part
        self._owner = owner
        self._most = most
        self._lists: dict[str, frozenset[str]] = {}
        """The watched jobs by the place that lists them."""
        self._watched = Counter[str]()
        """The number of lists that each watched job is in."""
        self._seen = set[str]()
        """The observed jobs that are in no list read since."""
        self._beyond: dict[str, int] = {}

    @property
    def left_out(self) -> int:
        """The least number of jobs that are not watched: a job may be in several lists."""
        return max(self._beyond.values(), default=0)

    def listed(self, place: str, job_ids: Iterable[str]) -> frozenset[str]:
        """The jobs of this list that are watched."""
        there = frozenset(job_ids)
        previous, kept = self._lists.get(place, frozenset()), there & self._watched.keys()
        self._watched.update(kept - previous)
        self._leave((previous - there) | (self._seen & there))
        self._seen -= there
        new = sorted(there - kept)
        room = min(len(new), max(0, self._most - len(self._watched)))
        given = frozenset(new[: self._shares.take(self._owner, room, self._part) if room else 0])
        self._watched.update(given)
        self._lists[place] = kept | given
        self._beyond.pop(_EVENTS, None)
        self._beyond[place] = len(new) - len(given)
        return self._lists[place]

    def came(self, job_id: str) -> bool:
        """Note that something was observed of a job. Returns whether the job is watched."""
        if job_id in self._watched:
            return True
        if len(self._watched) >= self._most or not self._shares.take(self._owner, 1, self._part):
            self._beyond[_EVENTS] = self._beyond.get(_EVENTS, 0) + 1
            return False
        self._watched.update([job_id])
        self._seen.add(job_id)
        return True

    def went(self, job_id: str) -> None:
        """Nothing is left of a job, if no list has it."""
        if job_id in self._seen:
            self._seen.discard(job_id)
            self._leave([job_id])

    def end(self) -> None:
        """None is watched any more."""
        self._shares.give_back(self._owner, len(self._watched), self._part)
        for contents in (self._lists, self._watched, self._beyond, self._seen):
            contents.clear()

    def _leave(self, job_ids: Iterable[str]) -> None:
        before = len(self._watched)
        for job_id in job_ids:
            self._watched[job_id] -= 1
            if not self._watched[job_id]:
                del self._watched[job_id]
        self._shares.give_back(self._owner, before - len(self._watched), self._part)
