"""What one session observes: the place of one cluster, or all clusters below a root."""

from collections.abc import Callable, Iterable
from typing import NamedTuple, Protocol

from sidecar.core.moment import Moment
from sidecar.core.observations import ConnectionState
from sidecar.drivers.log_throttle import LogThrottle
from sidecar.drivers.zookeeper.persistent import ZNodeEvent
from sidecar.drivers.zookeeper.session import Answer, Question


class Inquiry(NamedTuple):
    """A question to be asked, and who gets the answer. Paths are below the session's root."""

    question: Question
    path: str
    watch: bool
    """Whether it sets a one-shot watch."""
    answered: Callable[[Moment, Answer], None]


class Place(Protocol):
    """Used by the connection's thread. Times are of the clock; `zxid` is the newest transaction that the server has reported."""

    throttle: LogThrottle

    @property
    def view(self) -> ConnectionState | None:
        """The last reported connection state."""

    @property
    def waiting(self) -> int:
        """The number of questions not yet asked."""

    @property
    def throttled(self) -> bool:
        """Whether there are contested paths, for `read_throttled`."""

    @property
    def found(self) -> bool:
        """Whether anything that was looked for has ever been found, or its absence is reported by the place itself."""

    def connected(self, at: Moment, *, persistent: bool) -> None:
        """A connection begins: everything is read. `persistent`: whether watches are."""

    def disconnected(self, at: Moment, state: ConnectionState) -> None:
        """There is no connection now."""

    def changed_roots(self) -> Iterable[tuple[str, bool]]:
        """The paths that are to be watched recursively from now on (True), or no longer; after `connected`, all."""

    def next(self) -> Inquiry | None:
        """The next question, if any."""

    def happened(self, at: Moment, event: ZNodeEvent, path: str) -> None:
        """A watch event."""

    def completed(self, at: Moment, since: Moment, zxid: int) -> bool:
        """Called after each answer. Whether everything has been read since the connection began (`since`); true once."""

    def nothing_found(self, at: Moment, siblings: Answer) -> None:
        """Nothing was found. `siblings`: the children of the root's parent."""

    def confirmed(self, at: Moment) -> None:
        """Everything that existed at `at` has been answered or notified."""

    def read_again(self, at: Moment, zxid: int) -> None:
        """Called every few seconds: read a few paths, in case a watch is lost."""

    def read_refused(self) -> None:
        """Read again what the server has refused."""

    def read_throttled(self) -> None:
        """Read the contested paths."""

    def lost_watch(self) -> str | None:
        """A path that changed without a watch event, once."""
