"""The status of a cluster: one word, one sentence, since when. `status_of` decides it, and everything that speaks says it."""

from collections.abc import Mapping
from enum import StrEnum
from typing import Final, NamedTuple

from msgspec import Struct

from sidecar.core.moment import SECOND, Moment, Steady


class Status(StrEnum):
    """How a cluster is, the worst first."""

    DOWN = "DOWN"
    """A component that was led has no leader, and one is wanted."""
    SPLIT = "SPLIT"
    """Two JobManagers take turns as leader."""
    LOST = "LOST"
    """Led, and jobs are missing, run although they had ended, or were restored from nothing."""
    NOT_RUNNING = "NOT_RUNNING"
    """Led, and jobs that ran before do not run, or no TaskManager is registered."""
    SILENT = "SILENT"
    """The published leader does not answer."""
    RECOVERING = "RECOVERING"
    """Led again, and not all jobs run yet; or a planned failover goes on."""
    DEGRADED = "DEGRADED"
    """Led, and a job was restored from an older checkpoint or failed, or no standby is left."""
    BLIND = "BLIND"
    """This observer cannot see the cluster."""
    UNCHECKED = "UNCHECKED"
    """Led. Whether jobs run is not known."""
    STOPPED = "STOPPED"
    """No leader is wanted."""
    OK = "OK"
    """Led, and every job that ran before runs again or has ended."""


class Shown(NamedTuple):
    """How a status is shown."""

    colour: str
    """`red`, `amber`, `grey`, `blue` or `green`."""
    kind: str
    """Apprise's type of its messages: `failure`, `warning`, `info` or `success`."""


SHOWN: Final[Mapping[Status, Shown]] = {
    Status.DOWN: Shown("red", "failure"),
    Status.SPLIT: Shown("red", "failure"),
    Status.LOST: Shown("red", "failure"),
    Status.NOT_RUNNING: Shown("red", "failure"),
    Status.SILENT: Shown("amber", "warning"),
    Status.RECOVERING: Shown("amber", "warning"),
    Status.DEGRADED: Shown("amber", "warning"),
    Status.BLIND: Shown("grey", "warning"),
    Status.UNCHECKED: Shown("blue", "info"),
    Status.STOPPED: Shown("grey", "info"),
    Status.OK: Shown("green", "success"),
}
WORST_FIRST: Final = tuple(Status)
LED: Final = frozenset(Status) - {Status.DOWN, Status.SPLIT, Status.BLIND, Status.STOPPED}
"""The statuses of a cluster that has a leader."""
OVER: Final = frozenset({Status.OK, Status.STOPPED, Status.UNCHECKED})
"""The statuses that end an incident."""
_LASTS: Final = 60 * SECOND
"""A cluster that is degraded for so long stays so for a while: nothing more is waited for."""


class Stated(Struct, frozen=True):
    """The last status that was decided, as it is remembered."""

    status: Status
    since: Moment
    sentence: str
    due: Steady | None = None
    """When time alone may change it (steady). None: never."""
    is_passing: bool = False
    """Whether more is known in a moment: the leader has just been seen, and its REST server is being asked."""

    def is_due(self, now: Moment) -> bool:
        return self.due is not None and now.steady >= self.due


def ends_incident(stated: Stated, now: Moment) -> bool:
    """Whether an incident ends with this status: nothing more is waited for, or not soon."""
    lasts = stated.status is Status.DEGRADED and now.steady - stated.since.steady >= _LASTS
    return lasts or (stated.status in OVER and not stated.is_passing)


class ClusterStatus(NamedTuple):
    """How one cluster is now. Its texts are printable and bounded, without the cluster's name."""

    status: Status
    since: Moment
    """When the status began, as far as this observer knows."""
    parts: tuple[str, ...]
    """The sentence in parts: without the last ones it says less, and is still true."""
    due: int | None = None
    """See `Stated`. Likewise `is_passing`."""
    is_passing: bool = False

    @property
    def sentence(self) -> str:
        return ", ".join(self.parts)

    def sentence_within(self, room: int) -> str:
        """As many parts of the sentence as fit into `room` characters; the first one is cut if it is too long."""
        text, *others = self.parts
        for part in others:
            if len(text) + len(part) + 2 > room:
                break
            text = f"{text}, {part}"
        return text if len(text) <= room else f"{text[: max(room - 1, 0)]}…"
