"""The observed facts of the end of one JobManager, and what follows from their order."""

from typing import Final

from msgspec import Struct

from sidecar.core.failover.ends import (
    STARTS,
    UNKNOWN_END,
    ContainerEnded,
    KnownPod,
    KnownProcessEnd,
    LogFault,
    PodSign,
    Rebooted,
    Sign,
)
from sidecar.core.moment import LATEST, SECOND, Moment
from sidecar.core.process_end import PodStatus

SIGNALLED, SIGKILL, SIGTERM = 128, 9, 15
STOPPED: Final = frozenset({SIGNALLED + SIGKILL, SIGNALLED + SIGTERM})
"""Exit codes of a process that was asked to end, or made to."""
NO_STATE: Final = frozenset({UNKNOWN_END, "Unknown"})
"""Reasons of containers of whose end the kubelet knows nothing; their exit codes are made up."""
ROUNDED: Final = 2 * SECOND
"""Kubernetes' times are of several clocks, and in whole seconds."""
_LATE: Final = 3 * SECOND
"""How long before its cause the loss of the leader may be observed."""
_REPORTED: Final = 5 * SECOND
"""How much later than its containers end a pod may be reported as failed."""
_SHUTDOWN: Final = 120 * SECOND
"""How long a process may take to end after it was asked to."""
_TWO_EVENTS: Final = 200 * SECOND


class DeathFacts(Struct, frozen=True):
    """The observed facts of the end of one JobManager. None: not known."""

    opened: Moment
    """When the loss of its leadership was observed."""
    address: str = ""
    name: str | None = None
    """The name of its pod."""
    in_pod: bool = False
    """Whether it runs in a pod, where Kubernetes sends signals too, not only people."""
    is_own_place: bool = True
    """Whether only one machine or pod can have its host name: true unless that is localhost."""
    lives: bool = False
    """Whether its process still runs."""
    pod: KnownPod | None = None
    container: ContainerEnded | None = None
    """The end of its main container."""
    process: KnownProcessEnd | None = None
    """The end of its process, by the kernel."""
    signs: tuple[PodSign, ...] = ()
    """The Events about its pod."""
    newcomers: tuple[PodStatus, ...] = ()
    """Pods of the cluster that were created when it was deleted."""
    fault: LogFault | None = None
    """The first error at the end of its log."""
    is_started_again: bool = False
    """Whether another run follows in its log."""
    reboot: Rebooted | None = None

    @property
    def exit_code(self) -> int | None:
        if self.container and self.container.reason not in NO_STATE:
            return self.container.exit_code
        return self.process.end.exit_code if self.process else None

    @property
    def ended(self) -> Moment | None:
        """The kernel's time is exact, the kubelet's is in whole seconds."""
        end = self.process or self.container
        return end.at if end else None

    @property
    def seen_at(self) -> int | None:
        """When the end of the process was first observed (wall microseconds)."""
        times = self.process.at.wall if self.process else None, self.container.seen_at if self.container else None
        return min((at for at in times if at is not None), default=None)

    @property
    def says_ended(self) -> bool:
        return not self.lives and bool(
            self.container
            or self.process
            or self.reboot
            or self.is_started_again
            or self.is_failed
            or self.deleted_at
            or self.has_vanished
        )

    def sign(self, *signs: Sign, until: int = LATEST) -> PodSign | None:
        """The latest of these Events up to then (steady microseconds)."""
        events = (event for event in self.signs if event.sign in signs and event.at.steady <= until)
        return max(events, key=lambda event: event.at, default=None)

    @property
    def deleted_at(self) -> Moment | None:
        """When the deletion of the pod was requested, if that was before the process ended and before the leader was lost."""
        requested = self.pod.deleted_at if self.pod else None
        if requested is None or requested.steady > self.opened.steady + _LATE:
            return None
        return None if self.ended and requested.steady > self.ended.steady + SECOND else requested

    @property
    def has_vanished(self) -> bool:
        """Whether its pod was gone before its end was known, and about when the leader was lost."""
        pod = self.pod
        if pod is None or pod.gone_at is None or pod.ends or self.process:
            return False
        return pod.gone_at.steady <= self.opened.steady + _LATE

    @property
    def is_failed(self) -> bool:
        """Whether its pod failed as a whole."""
        return (self.pod is not None and self.pod.status.phase == "Failed") or self.sign(Sign.EVICTED) is not None

    @property
    def failed_with_it(self) -> bool:
        """Whether its pod failed when it ended, rather than later."""
        failed_at = self.pod.failed_at if self.pod else None
        return not self.ended or not failed_at or failed_at.steady <= self.ended.steady + _REPORTED

    @property
    def ended_by_itself(self) -> bool:
        """Whether its end has a reason of its own, or its container was started again afterwards: nobody ended its pod then."""
        container = self.container
        if self.exit_code not in {None, *STOPPED} or (container and container.reason == "OOMKilled"):
            return True
        if self.process and self.process.end.oom_kills:
            return True
        later = self.pod.ends if self.pod else ()
        return any(container and end.at.steady > container.at.steady + _REPORTED for end in later)

    def sign_before(self, *signs: Sign) -> PodSign | None:
        """The latest of these Events that came before its end: what follows its end is no reason of it."""
        until = self.ended.steady + ROUNDED if self.ended else self.opened.steady + _LATE
        return self.sign(*signs, until=until)

    @property
    def probe(self) -> PodSign | None:
        """The Event that the kubelet ends the container because of a probe, before its end."""
        probe = self.sign_before(Sign.LIVENESS_PROBE, Sign.STARTUP_PROBE)
        ended = self.ended or self.opened
        return probe if probe and ended.steady - probe.at.steady <= _SHUTDOWN else None

    @property
    def events_are_read(self) -> bool:
        """Whether an Event about its end would have been observed. The kubelet drops Events of a pod that has had many, but for one in five
        minutes: two that follow within less show that it dropped none.
        """
        if self.ended is None:
            return False
        since = self.ended.steady - SECOND
        later = {
            sign.sign for sign in self.signs if sign.sign in STARTS and since <= sign.at.steady <= since + _TWO_EVENTS
        }
        return len(later) > 1

    @property
    def signal(self) -> int | None:
        """The signal that ended the process, derived from its exit code."""
        code = self.exit_code
        return code - SIGNALLED if code is not None and SIGNALLED < code < SIGNALLED + 32 else None

    @property
    def disruption(self) -> str | None:
        return self.pod.status.disruption if self.pod else None

    @property
    def grace(self) -> int:
        """The pod's grace period in microseconds."""
        return (self.pod.status.grace_seconds or 0) * SECOND if self.pod else 0

    @property
    def limit_bytes(self) -> int | None:
        """The memory limit of the process when it ended."""
        limits = (
            self.container.limit_bytes if self.container else None,
            self.process.end.limit_bytes if self.process else None,
            self.pod.status.limit_bytes if self.pod else None,
        )
        return next((limit for limit in limits if limit is not None), None)
