"""Whether the pods of a cluster in Kubernetes survive what happens to pods: drains, lost nodes, probes, the memory limit.

The most memory that a JobManager's process uses is computed as Flink's memory model has it (FLIP-116).
"""

import re
from collections.abc import Callable, Mapping
from math import ceil
from typing import Final, NamedTuple

from sidecar.core.counted import counted, listed
from sidecar.core.flink.configmaps import DEFAULT_LEASE, LeaderElectionRecord
from sidecar.core.ha.finding import Finding, UnknownFact, passes, risk, unknown
from sidecar.core.ha.kubernetes_facts import (
    DisruptionBudget,
    FlinkPod,
    HaConfigMap,
    KubernetesFacts,
    LivenessProbe,
    ProbeKind,
    Workload,
    job_managers_of,
    pods_of,
    selects,
)
from sidecar.core.moment import SECOND
from sidecar.core.sanitize import clean

MiB: Final = 1 << 20
_PREFIX: Final = "jobmanager.memory."
_SIZE: Final = re.compile(r"(\d{1,15})\s*([a-z]*)")
_SHIFTS: Final = {
    **dict.fromkeys(("", "b", "bytes"), 0),
    **dict.fromkeys(("k", "kb", "kibibytes"), 10),
    **dict.fromkeys(("m", "mb", "mebibytes"), 20),
    **dict.fromkeys(("g", "gb", "gibibytes"), 30),
    **dict.fromkeys(("t", "tb", "tebibytes"), 40),
}
_DEFAULTS: Final = {"off-heap.size": 128 * MiB, "jvm-metaspace.size": 256 * MiB, "jvm-overhead.min": 192 * MiB}


class MemoryNeed(NamedTuple):
    """Bytes of a whole JVM, and what they follow from."""

    total: int
    reason: str


def memory_size(text: str) -> int | None:
    """Bytes of a size as Flink's `MemorySize` reads it: `1600m`, `1 gb`, `1073741824`. None: no size."""
    match = _SIZE.fullmatch(text.strip().lower())
    shift = _SHIFTS.get(match[2]) if match else None
    return int(match[1]) << shift if match and shift is not None else None


def needed_bytes(heap: int | None, options: Mapping[str, str]) -> MemoryNeed | None:
    """The memory that a JobManager may use. `heap`: its -Xmx, which wins over `options`, those of `jobmanager.memory`. None: not known."""
    sizes = {name: size for name in _NAMES if (size := memory_size(options.get(f"{_PREFIX}{name}", ""))) is not None}
    beside = {name: sizes.get(name, default) for name, default in _DEFAULTS.items()}
    parts = "with metaspace, direct memory and overhead"
    if heap is not None:
        return MemoryNeed(heap + sum(beside.values()), f"-Xmx is {heap // MiB} MiB: {parts} the JVM needs")
    if (process := sizes.get("process.size")) is not None:
        return MemoryNeed(process, f"{_PREFIX}process.size is")
    if (flink := sizes.get("flink.size")) is not None:
        total = flink + beside["jvm-metaspace.size"] + beside["jvm-overhead.min"]
        return MemoryNeed(
            total, f"{_PREFIX}flink.size is {flink // MiB} MiB: with metaspace and overhead the JVM needs"
        )
    if (size := sizes.get("heap.size")) is not None:
        return MemoryNeed(
            size + sum(beside.values()), f"{_PREFIX}heap.size is {size // MiB} MiB: {parts} the JVM needs"
        )
    return None


_NAMES: Final = ("process.size", "flink.size", "heap.size", *_DEFAULTS)


_BEYOND_LEASE: Final = 10
"""Seconds beyond the lease until a standby leads, at most: with a lease of 15 s it took 19 to 23 s (docs/reference/ha-checks.md)."""
_START_SECONDS: Final = 30
"""The time that Flink's own manifests for Kubernetes give a JobManager before the first probe."""
_MOST_NAMED: Final = 5
_VERSION: Final = re.compile(r"(?:^|[-_v])(\d{1,3}\.\d{1,3}(?:\.\d{1,3})?)(?![\d.])")

_Pods = tuple[FlinkPod, ...]


def job_managers_check(check: Callable[[KubernetesFacts, _Pods], Finding]) -> Callable[[KubernetesFacts], Finding]:
    """A check over JobManagers' pods: UNKNOWN where they cannot be read, and where there are none."""

    def checked(facts: KubernetesFacts) -> Finding:
        pods = job_managers_of(facts)
        if isinstance(pods, UnknownFact):
            return unknown(pods.reason)
        if not pods:
            return unknown(
                f"namespace {facts.namespace} has no pod of this cluster with the label component=jobmanager"
            )
        return check(facts, pods)

    return checked


def standby(facts: KubernetesFacts) -> Finding:
    """Whether another JobManager waits to take over."""
    pods, wanted = job_managers_of(facts), _replicas(facts)
    if not isinstance(pods, UnknownFact) and pods:
        running = [pod for pod in pods if pod.running]
        if len(running) > 1:
            return passes(f"{len(running)} JobManagers run: {_names(running)}")
        of = f" of {wanted[1]}" if wanted and wanted[1] > 1 else ""
        names = f" ({_names(running)})" if running else ""
        return risk(f"running JobManagers: {len(running)}{of}{names}", _STANDBY)
    if wanted and wanted[1] < 2:
        return risk(f"{wanted[0]} has replicas: {wanted[1]}", _STANDBY)
    reason = pods.reason if isinstance(pods, UnknownFact) else "no JobManager's pod was found"
    return unknown(
        f"{wanted[0]} has replicas: {wanted[1]}; whether they run is not known: {reason}" if wanted else reason
    )


_STANDBY: Final = (
    "run two JobManagers (kubernetes.jobmanager.replicas, spec.jobManager.replicas of a FlinkDeployment, or replicas of the Deployment): "
    "without a standby a failover takes as long as a new pod, and where a node is lost that is more than five minutes"
)


def _replicas(facts: KubernetesFacts) -> tuple[str, int] | None:
    """The workload of the JobManagers, and how many pods it has to keep. None: not known."""
    deployments = facts.flink_deployments
    if not isinstance(deployments, UnknownFact) and facts.cluster_id in deployments:
        replicas = deployments[facts.cluster_id]
        return f"FlinkDeployment {facts.cluster_id}", 1 if replicas is None else replicas
    workload = workload_of(facts)
    return (f"{workload.kind} {workload.name}", workload.replicas) if workload else None


def workload_of(facts: KubernetesFacts) -> Workload | None:
    """The Deployment or StatefulSet of the cluster's JobManagers; None: not known, or several could be it."""
    if isinstance(facts.workloads, UnknownFact):
        return None
    pods = job_managers_of(facts)
    apps = {facts.cluster_id} if isinstance(pods, UnknownFact) or not pods else {pod.app for pod in pods}
    own = [workload for workload in facts.workloads if workload.labels.get("app") in apps]
    return own[0] if len(own) == 1 else None


@job_managers_check
def disruption_budget(facts: KubernetesFacts, pods: _Pods) -> Finding:
    """Whether a drain of nodes may evict all JobManagers at once."""
    if isinstance(facts.budgets, UnknownFact):
        return unknown(facts.budgets.reason)
    uncovered = [pod for pod in pods if not any(selects(budget, pod.labels) for budget in facts.budgets)]
    if uncovered:
        return risk(f"no PodDisruptionBudget selects {_names(uncovered)}", _BUDGET)
    for budget in facts.budgets:
        own = sum(selects(budget, pod.labels) for pod in pods)
        going = min(_may_go(budget, _selected(facts, budget)), own)
        if going < own:
            return passes(
                f"PodDisruptionBudget {clean(budget.name)} lets {going} of {own} JobManagers be evicted at once"
            )
    names = sorted(clean(budget.name) for budget in facts.budgets if any(selects(budget, pod.labels) for pod in pods))
    return risk(
        f"PodDisruptionBudget {', '.join(names[:_MOST_NAMED])} lets all {len(pods)} JobManagers be evicted at once",
        _BUDGET,
    )


def _selected(facts: KubernetesFacts, budget: DisruptionBudget) -> int:
    """How many pods count for a budget: where it selects TaskManagers too, these may be all that stays."""
    pods = () if isinstance(facts.pods, UnknownFact) else facts.pods
    return sum(selects(budget, pod.labels) for pod in pods if not pod.deleting)


_BUDGET: Final = (
    "create a PodDisruptionBudget for the JobManagers alone (component: jobmanager, minAvailable: 1): a drain then waits until another "
    "JobManager runs. With a single JobManager the drain waits for you: delete the pod when it suits"
)


def _may_go(budget: DisruptionBudget, pods: int) -> int:
    """How many of these pods may be evicted at once. Kubernetes rounds both bounds up."""
    if budget.min_available is not None:
        return pods - min(_share(budget.min_available, pods), pods)
    return min(_share(budget.max_unavailable, pods), pods) if budget.max_unavailable is not None else pods


def _share(bound: int | str, pods: int) -> int:
    if isinstance(bound, int):
        return bound
    percent = bound.removesuffix("%")
    return ceil(pods * int(percent) / 100) if percent.isdecimal() and len(percent) < 5 else 0


@job_managers_check
def node_spread(_: KubernetesFacts, pods: _Pods) -> Finding:
    """Whether one lost node takes all JobManagers."""
    placed = [pod for pod in pods if pod.node]
    if len(pods) < 2:
        return passes("one JobManager: there is nothing to spread (see standby)")
    if len(placed) < 2:
        return unknown(f"{len(placed)} of {len(pods)} JobManagers have a node yet")
    rule = next((pod.apart for pod in pods if pod.apart), "")
    nodes = {pod.node for pod in placed}
    if len(nodes) > 1:
        kept = f"by {rule}" if rule else "by no rule: the scheduler chose so this time"
        return passes(f"{len(placed)} JobManagers on {len(nodes)} nodes, {kept}")
    why = f"in spite of {rule}" if rule else "no pod anti-affinity and no topology spread keeps them apart"
    return risk(
        f"{_names(placed)} are on one node, {clean(placed[0].node)}: {why}",
        "give the JobManagers' pod template a podAntiAffinity with topologyKey kubernetes.io/hostname (or a topologySpreadConstraint), "
        "and delete the standby's pod",
    )


@job_managers_check
def liveness_probe(facts: KubernetesFacts, pods: _Pods) -> Finding:
    """Whether the kubelet restarts a JobManager that only waits, or only starts slowly."""
    probes = {pod.liveness: pod for pod in reversed(pods) if pod.liveness}
    for probe, pod in probes.items():
        if problem := _probe_problem(probe, pod, _vacancy_seconds(facts)):
            return problem
    for probe, pod in probes.items():
        if probe.kind in {ProbeKind.EXEC, ProbeKind.GRPC}:
            return unknown(f"what the {probe.kind} probe of {clean(pod.name)} asks is not known")
    if not probes:
        return passes("no liveness probe: the kubelet restarts a JobManager only when its process ends")
    return passes(
        "; ".join(f"{_spelled(probe)} fails for {probe.tolerated} s before the kubelet acts" for probe in probes)
    )


def _probe_problem(probe: LivenessProbe, pod: FlinkPod, vacancy: int) -> Finding | None:
    first_kill = probe.initial_delay + probe.tolerated
    if not pod.has_startup_probe and first_kill < _START_SECONDS:
        return risk(
            f"{_spelled(probe)} of {clean(pod.name)} restarts a JobManager that is not up {first_kill} s after its start",
            f"set initialDelaySeconds to {_START_SECONDS} or more (Flink's own manifests do), or a startupProbe: a JobManager that starts "
            "slowly on a busy node is killed, again and again",
        )
    if probe.kind is ProbeKind.HTTP and probe.tolerated < vacancy:
        return risk(
            f"{_spelled(probe)} of {clean(pod.name)} restarts a JobManager after {probe.tolerated} s of failures, and while nobody leads, "
            f"up to {vacancy} s, a standby answers 503",
            f"use a tcpSocket probe, or failureThreshold times periodSeconds well above {vacancy} s: else the standby is killed when the "
            "leader shuts down",
        )
    return None


def _vacancy_seconds(facts: KubernetesFacts) -> int:
    """How long a cluster with a standby may be without a leader: the lease has to expire, also after a SIGTERM."""
    leaders = facts.leaders
    lease = leaders.lease if isinstance(leaders, HaConfigMap) else None
    held = isinstance(lease, LeaderElectionRecord) and lease.holder_identity
    return ceil((lease.lease_duration if lease and held else DEFAULT_LEASE) / SECOND) + _BEYOND_LEASE


def _spelled(probe: LivenessProbe) -> str:
    return f"the {probe.kind} probe{f' on port {clean(probe.port)}' if probe.port else ''}"


@job_managers_check
def restart_policy(_: KubernetesFacts, pods: _Pods) -> Finding:
    """Whether a JobManager that ends is started again, however it ended and however often."""
    odd = [pod for pod in pods if pod.restart_policy not in {"Always", ""}]
    if not odd:
        return passes("restartPolicy: Always")
    owner = f" of a {clean(odd[0].owner)}" if odd[0].owner else " without a controller"
    how = "gives up after its backoffLimit (6 unless set)" if odd[0].owner == "Job" else "stays down when it ends"
    return risk(
        f"{_names(odd)}{owner}: restartPolicy: {clean(odd[0].restart_policy)}; it {how}",
        "run JobManagers in a Deployment (restartPolicy: Always); of a Job, set a large backoffLimit: each failover counts against it",
    )


@job_managers_check
def memory_limit(facts: KubernetesFacts, pods: _Pods) -> Finding:
    """Whether the container's limit leaves room beside the heap: metaspace, direct memory, threads, code."""
    limited = [pod for pod in pods if pod.limit_bytes is not None]
    if not limited:
        return passes("no memory limit is set")
    options = {} if isinstance(facts.memory, UnknownFact) else facts.memory
    unclear = ""
    for pod in limited:
        need = needed_bytes(pod.heap_bytes, {**options, **pod.properties})
        if need is None:
            reason = f": {facts.memory.reason}" if isinstance(facts.memory, UnknownFact) else ""
            unclear = f"neither -Xmx nor jobmanager.memory.* of {clean(pod.name)} is visible{reason}"
        elif pod.limit_bytes is not None and pod.limit_bytes < need.total:
            return risk(
                f"{clean(pod.name)} has a limit of {pod.limit_bytes // MiB} MiB, and {need.reason} {need.total // MiB} MiB",
                "raise the limit, or lower jobmanager.memory.process.size to it (and take -Xmx out): else the kernel kills the JobManager "
                "when its heap fills, without an error in its log",
            )
    if unclear:
        return unknown(unclear)
    return passes(
        f"a limit of {min(pod.limit_bytes or 0 for pod in limited) // MiB} MiB holds the JVM with all its parts"
    )


def flink_versions(facts: KubernetesFacts) -> Finding:
    """Whether all JobManagers and TaskManagers run one version of Flink."""
    pods = pods_of(facts)
    if isinstance(pods, UnknownFact):
        return unknown(pods.reason)
    images = sorted({pod.image for pod in pods if pod.image})
    if not images:
        return unknown("no pod of this cluster was found")
    if len(images) == 1:
        return passes(f"{counted(len(pods), 'pod')} of {clean(images[0])}")
    listed = ", ".join(map(clean, images[:_MOST_NAMED]))
    versions = {image: match[1] if (match := _VERSION.search(image.rpartition(":")[2])) else "" for image in images}
    if "" in versions.values():
        return unknown(f"the pods run different images, and which Flink is in them is not known: {listed}")
    if len({*versions.values()}) == 1:
        return passes(f"the pods run different images of Flink {next(iter(versions.values()))}: {listed}")
    return risk(
        f"the pods run different versions: {listed}",
        "finish or undo the upgrade: versions of Flink promise neither to read each other's HA data nor to speak with each other",
    )


def _names(pods: list[FlinkPod] | _Pods) -> str:
    return listed(sorted(pod.name for pod in pods), _MOST_NAMED)
