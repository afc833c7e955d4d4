"""The state of the search for clusters."""

from typing import Final

from msgspec import Struct
from msgspec.structs import replace

from sidecar.core.counted import counted
from sidecar.core.moment import Moment
from sidecar.core.observations import ClustersListed
from sidecar.core.sanitize import clean

PARTLY: Final = "not everything is observed"
"""The beginning of each text about what is left out."""


class Finder(Struct, frozen=True):
    """Where clusters are looked for, and whether that can be read."""

    place: str
    connected: bool = False
    """Everything has been read since it connected."""
    left_out: int = 0
    """Clusters that exist and are not watched: there are too many."""
    refused: str = ""
    """Why they cannot be found, although the store can be reached."""
    unlisted: int = 0
    """Paths that were not searched for clusters: there are too many."""
    beyond: tuple[str, ...] = ()
    """The folders or namespaces in which those are, the first ones."""

    since: Moment | None = None
    """Since when there is anything left out. None: nothing is."""

    @classmethod
    def from_listed(cls, listed: ClustersListed, before: "Finder | None" = None) -> "Finder":
        """The finder after what it has listed."""
        connected = listed.cluster_ids is not None
        finder = cls(listed.place, connected, listed.left_out, listed.refused, listed.unlisted, listed.beyond)
        if not finder.leaves_out:
            return finder
        return replace(finder, since=before.since if before and before.since else listed.at)

    @property
    def leaves_out(self) -> bool:
        """Whether there are clusters that are not watched, or may be."""
        return bool(self.left_out or self.unlisted)

    def problem(self, watched: int) -> str | None:
        """The problem that an operator may want to solve. `watched`: how many clusters are watched."""
        if text := self.excess:
            return f"{text}; {counted(watched, 'cluster', thousands=True)} watched"
        return None if watched else f"no Flink cluster was found in {self.place}"

    @property
    def excess(self) -> str | None:
        """What is left out because it exceeds a bound. None: nothing."""
        if not self.leaves_out:
            return None
        parts = [counted(self.left_out, "cluster", thousands=True)] if self.left_out else []
        if self.unlisted:
            parts.append(f"{counted(self.unlisted, 'znode', thousands=True)} that may lead to clusters")
        where = f" of {', '.join(map(clean, self.beyond))}" if self.beyond else ""
        return f"{PARTLY} in {self.place}: left out {' and '.join(parts)}{where}, beyond the bounds"
