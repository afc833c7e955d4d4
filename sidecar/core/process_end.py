"""The observed facts of the end of a JobManager's process: from the kernel, its pod, Events and its log.

These are facts, bounded and untrusted where others can write them. `cluster.death.deaths` concludes from them why the process ended.
"""

from msgspec import Struct


class ContainerEnd(Struct, frozen=True):
    """How the main container of a pod ended last: its `terminated` state. Times are wall microseconds. None: not in the status."""

    exit_code: int
    reason: str
    """`OOMKilled`, `Error`, `Completed`, …"""
    message: str = ""
    """The termination message: with `FallbackToLogsOnError` the end of the log."""
    finished_at: int | None = None


class PodStatus(Struct, frozen=True):
    """One JobManager's pod at one moment. Times are wall microseconds."""

    uid: str
    name: str
    address: str
    """The pod's IP address. Empty: it has none yet, or none any more."""
    node: str = ""
    delete_at: int | None = None
    """When the pod's grace period ends: `deletionTimestamp`. None: it is not being deleted."""
    grace_seconds: int | None = None
    phase: str = ""
    reason: str = ""
    """The reason of a failed pod: `Evicted`, `Preempting`, `NodeShutdown`, …"""
    message: str = ""
    disruption: str | None = None
    """The reason of its condition `DisruptionTarget`: `EvictionByEvictionAPI`, `PreemptionByScheduler`, `DeletionByTaintManager`, …"""
    cordoned: bool | None = None
    """Whether its node is unschedulable. None: not known."""
    created_at: int | None = None
    last_end: ContainerEnd | None = None
    limit_bytes: int | None = None
    """The memory limit of the main container: the one in force if the status has it (a pod can be resized), else that of its spec."""
    image: str = ""
    revision: str = ""
    """The label `pod-template-hash` or `controller-revision-hash`: differs after a change of the pod's template."""


class SeenEvent(Struct, frozen=True):
    """An Event of Kubernetes about a JobManager's pod, its node or the cluster's FlinkDeployment."""

    about: str
    """The kind of the object: `Pod`, `Node`, `FlinkDeployment`."""
    name: str
    uid: str
    reason: str
    message: str
    at: int
    """When the Event last happened (wall microseconds)."""


class Pressure(Struct, frozen=True):
    """The share of the last minute (percent) in which some task waited for a resource. None: the kernel does not say."""

    cpu: float | None = None
    memory: float | None = None
    io: float | None = None


class RunningProcess(Struct, frozen=True):
    """A JobManager's process that runs beside the sidecar."""

    pid: int
    started_at: int
    """Wall microseconds, to some hundredths of a second."""
    ports: tuple[int, ...] = ()
    """The TCP ports on which it listens. Empty: none yet, or they cannot be read."""
    is_stopped: bool = False
    """Whether SIGSTOP or a debugger has stopped the process (state T): it does nothing, and has not ended."""


class ProcessEnd(Struct, frozen=True):
    """The end of a process that was watched: exact to the millisecond. Times are wall microseconds. None: not known."""

    pid: int
    ended_at: int
    exit_code: int | None = None
    """The exit code as a shell has it: 128 and the number of the signal, if one killed the process."""
    oom_kills: int | None = None
    """How many processes of its cgroup the kernel killed for memory at that moment."""
    limit_bytes: int | None = None
    """The memory limit of its cgroup at that moment. None: none, or not known."""
    pressure: Pressure = Pressure()
    full_disk: str | None = None
    """The folder without space: of its log, its working or its temporary folder."""
    crash_file: str | None = None
    """The name of the `hs_err_pid*.log` that the JVM wrote."""
    crash_problem: str | None = None
    """The line of it that names the problem."""
    exhausted: str | None = None
    """The error for which the JVM ended itself (`ExitOnOutOfMemoryError`, `CrashOnOutOfMemoryError`): `java.lang.OutOfMemoryError: …`."""
    last_pause: float | None = None
    """Seconds of the longest pause in the last minute of the GC log."""
    ports: tuple[int, ...] = ()
    """The TCP ports on which it listened, as far as they could be read."""


class LogEnd(Struct, frozen=True):
    """The end of a JobManager's log."""

    source: str
    """The file, or the pod."""
    first_fault: str | None
    """The first line of an error in it: later ones are consequences. None: there is none."""
    fault_age: int | None = None
    """How much later than the fault the last line of the log is (microseconds). None: not known."""
    exception: str | None = None
    """The class of its exception: `java.lang.OutOfMemoryError`."""
    last_line: str = ""
    followed: bool = False
    """Whether another run follows in the log: its process has ended."""
    pid: int | None = None
    """Whose log it is. None: not known."""
