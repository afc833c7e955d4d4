"""The facts about how one Flink cluster is deployed in Kubernetes: pods, disruption budgets, ConfigMaps, rights.

Facts alone, each read at one moment. What could not be read is an `Unknown` with the reason: it is never an empty answer.
"""

from collections.abc import Iterable, Mapping
from enum import StrEnum
from typing import Final

from msgspec import Struct
from msgspec.structs import replace

from sidecar.core.flink.configmaps import DEFAULT_LEASE, LeaderElectionRecord
from sidecar.core.flink.leadership import Component
from sidecar.core.ha.finding import UnknownFact
from sidecar.core.ha.flink_checks import OPTIONS, FlinkFacts

JOB_MANAGER: Final = "jobmanager"
TASK_MANAGER: Final = "taskmanager"
NATIVE: Final = "flink-native-kubernetes"
"""The label `type` of what Flink itself deploys."""
COMPONENTS: Final = frozenset({Component.DISPATCHER, Component.RESOURCE_MANAGER, Component.REST_SERVER})


NOT_READ: Final = UnknownFact("it was not read")


class ProbeKind(StrEnum):
    """How the kubelet asks."""

    HTTP = "httpGet"
    TCP = "tcpSocket"
    EXEC = "exec"
    GRPC = "grpc"


class LivenessProbe(Struct, frozen=True):
    """The liveness probe of a main container. Seconds, with Kubernetes' defaults."""

    kind: ProbeKind
    port: str
    """The number or name of the port. Empty: the probe has none."""
    initial_delay: int = 0
    period: int = 10
    failures: int = 3

    @property
    def tolerated(self) -> int:
        """Seconds for which it may fail before the kubelet restarts the container, at least."""
        return (self.failures - 1) * self.period


class FlinkPod(Struct, frozen=True):
    """A JobManager's or TaskManager's pod, and its main container."""

    name: str
    component: str
    """The label: `jobmanager` or `taskmanager`."""
    labels: Mapping[str, str]
    address: str = ""
    node: str = ""
    running: bool = False
    """Whether its main container runs and it is not being deleted."""
    deleting: bool = False
    image: str = ""
    restart_policy: str = ""
    owner: str = ""
    """The kind of its controller: `ReplicaSet`, `StatefulSet`, `Job`; empty: none."""
    service_account: str = ""
    liveness: LivenessProbe | None = None
    has_startup_probe: bool = False
    apart: str = ""
    """The rule that keeps pods of this kind on different nodes. Empty: there is none."""
    limit_bytes: int | None = None
    """The memory limit. None: none is set."""
    heap_bytes: int | None = None
    """The last `-Xmx` in command, arguments and environment. None: there is none."""
    properties: Mapping[str, str] = {}
    """Flink's options of memory, leader election and storage in its arguments and in FLINK_PROPERTIES."""
    volumes: tuple[str, ...] = ()
    """The mount paths of its main container's volumes that outlive the pod."""
    conf_map: str = ""
    """The ConfigMap that is mounted as Flink's configuration; empty: not visible."""

    @property
    def app(self) -> str:
        """The cluster id in pods of Flink's native integration and of the operator; whatever people chose in others."""
        return self.labels.get("app", "")

    @property
    def is_named(self) -> bool:
        """Whether `app` is certainly the cluster id."""
        return self.labels.get("type", "").startswith("flink-")


class Requirement(Struct, frozen=True):
    """One entry of a selector's `matchExpressions`."""

    key: str
    operator: str
    values: frozenset[str]


class DisruptionBudget(Struct, frozen=True):
    """A PodDisruptionBudget. Of the two bounds one is set; percentages keep their sign."""

    name: str
    match_labels: Mapping[str, str]
    requirements: tuple[Requirement, ...] = ()
    min_available: int | str | None = None
    max_unavailable: int | str | None = None
    selects_all: bool = True
    """Whether an empty selector selects every pod, as since policy/v1. In policy/v1beta1 it selects none."""


class Workload(Struct, frozen=True):
    """A maker of the JobManagers' pods."""

    kind: str
    name: str
    labels: Mapping[str, str]
    """The labels of its pods."""
    replicas: int


class HaConfigMap(Struct, frozen=True):
    """A ConfigMap of Flink's high availability. Times are wall microseconds. None: not in it."""

    name: str
    app: str
    """Its label `app`: the cluster id."""
    size: int
    """Bytes of its values, which is what Kubernetes bounds."""
    created_at: int | None = None
    lease: LeaderElectionRecord | None = None
    components: frozenset[Component] = frozenset()
    """The components with a published leader, without jobs."""
    hosts: frozenset[str] = frozenset()
    """The hosts of the leaders that are published in it."""
    rest_address: str = ""
    """The address of the leading REST server. Empty: there is no leader, or it is published elsewhere."""
    jobs: frozenset[str] = frozenset()
    """The jobs that Flink would recover from it."""


class Right(Struct, frozen=True):
    """Whether an account may do something."""

    verb: str
    resource: str
    """The resource, with its subresource: `pods/log`."""
    group: str
    name: str
    """The object, where it is about one."""
    purpose: str
    allowed: bool

    @property
    def rule(self) -> str:
        """The line that a Role needs."""
        names = f", resourceNames: [{self.name}]" if self.name else ""
        group = self.group or '""'
        return f"{{apiGroups: [{group}], resources: [{self.resource}]{names}, verbs: [{self.verb}]}}"


class FlinkRights(Struct, frozen=True):
    """The rights of the JobManagers' service account."""

    account: str
    rights: tuple[Right, ...]


class ElectionTimes(Struct, frozen=True):
    """Flink's `high-availability.kubernetes.leader-election`, with its defaults (microseconds)."""

    lease_duration: int = DEFAULT_LEASE
    renew_deadline: int = DEFAULT_LEASE


class KubernetesFacts(Struct, frozen=True, kw_only=True):
    """Everything about one cluster. Of tuples, nothing is left out: beyond the bounds of the reader they are Unknown."""

    cluster_id: str
    namespace: str
    read_at: int
    """Wall microseconds."""
    pods: tuple[FlinkPod, ...] | UnknownFact
    """All JobManagers and TaskManagers of the namespace: `pods_of` has those of this cluster."""
    budgets: tuple[DisruptionBudget, ...] | UnknownFact
    workloads: tuple[Workload, ...] | UnknownFact
    """Deployments and StatefulSets of JobManagers."""
    flink_deployments: Mapping[str, int | None] | UnknownFact
    """The operator's, by name: how many JobManagers each has (`spec.jobManager.replicas`). Empty without the operator."""
    leaders: HaConfigMap | UnknownFact | None
    """The ConfigMap with this cluster's leaders (Flink 1.15 and newer). None: there is none."""
    leaders_later: HaConfigMap | None = None
    """The leaders' ConfigMap some seconds after the first read. None: read only where a component was without a leader at first."""
    config_maps: tuple[HaConfigMap, ...] | UnknownFact
    """The ConfigMaps of all clusters of the namespace."""
    memory: Mapping[str, str] | UnknownFact = NOT_READ
    """Flink's options of memory, leader election and storage as its ConfigMap has them."""
    election: ElectionTimes | UnknownFact = NOT_READ
    own_rights: tuple[Right, ...] | UnknownFact
    flink_rights: FlinkRights | UnknownFact = NOT_READ


def pods_of(facts: KubernetesFacts) -> tuple[FlinkPod, ...] | UnknownFact:
    """The cluster's JobManagers and TaskManagers that are not being deleted.

    Pods of Flink's native integration and of the operator are labelled with the cluster id. Those that people describe themselves are
    recognized by the label `app` of the leader's pod, or because there are no others.
    """
    pods = facts.pods
    if isinstance(pods, UnknownFact):
        return pods
    pods = tuple(pod for pod in pods if not pod.deleting)
    if own := tuple(pod for pod in pods if pod.is_named and pod.app == facts.cluster_id):
        return own
    others = tuple(pod for pod in pods if not pod.is_named)
    apps = _apps(facts, others)
    if len(apps) > 1:
        return UnknownFact(
            f"namespace {facts.namespace} has JobManagers of {len(apps)} applications, and which are this cluster's is not known: "
            f"label them app: {facts.cluster_id}"
        )
    return tuple(pod for pod in others if pod.app in apps)


def _apps(facts: KubernetesFacts, pods: Iterable[FlinkPod]) -> set[str]:
    """The labels `app` that pods of this cluster may have: one, if it is known which."""
    apps = {pod.app for pod in pods if pod.component == JOB_MANAGER}
    if facts.cluster_id in apps:
        return {facts.cluster_id}
    hosts = facts.leaders.hosts if isinstance(facts.leaders, HaConfigMap) else frozenset()
    led = {pod.app for pod in pods if pod.address and pod.address in hosts}
    return led if len(led) == 1 else apps


def job_managers_of(facts: KubernetesFacts) -> tuple[FlinkPod, ...] | UnknownFact:
    """The JobManagers among `pods_of`."""
    pods = pods_of(facts)
    return pods if isinstance(pods, UnknownFact) else tuple(pod for pod in pods if pod.component == JOB_MANAGER)


def with_pods(flink: FlinkFacts, facts: KubernetesFacts) -> FlinkFacts:
    """`flink` with the options that pods and their ConfigMap add, where no folder was read."""
    pods = job_managers_of(facts)
    job_managers = () if isinstance(pods, UnknownFact) else pods
    options = flink.options
    if isinstance(options, UnknownFact) and not isinstance(facts.memory, UnknownFact):
        given = {**facts.memory, **next((pod.properties for pod in job_managers if pod.properties), {})}
        options = {name: next((given[key] for key in keys if key in given), "") for name, keys in OPTIONS.items()}
        options = {name: value for name, value in options.items() if value}
    return replace(
        flink,
        options=options,
        volumes=next((pod.volumes for pod in job_managers if pod.volumes), ()),
        on_demand=any(pod.labels.get("type") == NATIVE for pod in job_managers),
    )


def is_incomplete(leaders: HaConfigMap) -> bool:
    """Whether a component has no leader although somebody holds the lease."""
    return bool(leaders.lease and leaders.lease.holder_identity) and not leaders.components >= COMPONENTS


def selects(budget: DisruptionBudget, labels: Mapping[str, str]) -> bool:
    """Whether a PodDisruptionBudget is about a pod with these labels."""
    if not budget.match_labels and not budget.requirements:
        return budget.selects_all
    labelled = all(labels.get(key) == value for key, value in budget.match_labels.items())
    return labelled and all(_is_met(requirement, labels) for requirement in budget.requirements)


def _is_met(requirement: Requirement, labels: Mapping[str, str]) -> bool:
    value = labels.get(requirement.key)
    match requirement.operator:
        case "In":
            return value in requirement.values
        case "NotIn":
            return value not in requirement.values
        case "Exists":
            return value is not None
        case "DoesNotExist":
            return value is None
        case _:
            return False
