"""Decodes what a Flink cluster is made of: pods, PodDisruptionBudgets, Deployments, FlinkDeployments, ConfigMaps, access reviews.

Any bytes give one of these types or a ValueError. Odd values in an object count as absent, and an object that cannot be decoded hides no
other. Of environment, arguments and Flink's configuration nothing is kept but the heap and the options of `flink_options`: the rest may
hold secrets.
"""

import re
from base64 import b64decode
from binascii import Error as NotBase64
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, Final

from msgspec import UNSET

from sidecar.core.flink.configmaps import (
    DEFAULT_LEASE,
    LeaderElectionRecord,
    decode_leader,
    decode_lease,
    job_ids,
    relevant,
    values,
)
from sidecar.core.flink.leadership import Component, LeaderInformation
from sidecar.core.ha.finding import UnknownFact
from sidecar.core.ha.flink_checks import OPTIONS
from sidecar.core.ha.kubernetes_facts import (
    DisruptionBudget,
    ElectionTimes,
    FlinkPod,
    HaConfigMap,
    LivenessProbe,
    ProbeKind,
    Requirement,
    Workload,
)
from sidecar.core.pods import host_of
from sidecar.drivers.kubernetes.objects import (
    LEADER_ANNOTATION,
    Full,
    ObjectStatus,
    Spec,
    mapping,
    mappings,
    number,
    read_object,
    text,
    texts,
    wall_time,
)
from sidecar.drivers.kubernetes.pod_objects import main_container, memory_limit
from sidecar.settings.cluster.flink_conf import LEGACY, STANDARD, plain_options
from sidecar.settings.file.durations import parse_flink_duration

_MOST_BYTES: Final = 1 << 50
_HEAP: Final = re.compile(r"-Xmx(\d{1,15})([kKmMgGtT]?)(?![\w.])")
_DYNAMIC: Final = re.compile(r"-D\s*([\w.-]{1,127})=([^\s'\"]{1,256})")
_LINE: Final = re.compile(r"^[ \t]*([\w.-]{1,127}):[ \t]+([^\s#]{1,256})", re.MULTILINE)
_SHIFTS: Final = {"": 0, "k": 10, "m": 20, "g": 30, "t": 40}
ELECTION: Final = "high-availability.kubernetes.leader-election."
MEMORY: Final = "jobmanager.memory."
STORAGE: Final = (*OPTIONS["storage_dir"], *OPTIONS["checkpoint_dir"])
_LONGEST_VALUE: Final = 256
_FLEETING: Final = frozenset({"emptyDir", "hostPath", "configMap", "secret", "projected", "downwardAPI"})
"""Kinds of volumes that end with the pod, are the node's, or hold no data."""
_APART: Final = frozenset({"kubernetes.io/hostname", "topology.kubernetes.io/zone"})
"""Pods in two zones are on two nodes."""
_FLINK_PROPERTIES: Final = "FLINK_PROPERTIES"

_Object = Mapping[str, Any]


def flink_pod(pod: Full) -> FlinkPod:
    metadata, spec, status = pod.metadata, pod.spec, pod.status
    labels = texts(metadata.labels)
    container = main_container(spec.containers)
    deleting = metadata.deletion_timestamp is not None
    lines = [*_option_lines(container)]
    return FlinkPod(
        text(metadata.name),
        labels.get("component", ""),
        labels,
        address=text(status.pod_ip),
        node=text(spec.node_name),
        running=not deleting and _runs(status, text(container.get("name"))),
        deleting=deleting,
        image=text(container.get("image")),
        restart_policy=text(spec.restart_policy),
        owner=_controller(metadata.owner_references),
        service_account=text(spec.service_account_name),
        liveness=_liveness(container.get("livenessProbe")),
        has_startup_probe=bool(container.get("startupProbe")),
        apart=_apart(spec),
        limit_bytes=memory_limit(container),
        heap_bytes=next((size for line in reversed(lines) if (size := _heap(line))), None),
        properties=_properties(container, lines),
        volumes=tuple(_lasting_volumes(spec, container)),
        conf_map=_conf_map(spec, container),
    )


def disruption_budget(budget: Full, *, empty_selects_all: bool) -> DisruptionBudget:
    spec = budget.spec
    selector = mapping(spec.selector)
    requirements = (
        Requirement(
            text(expression.get("key")),
            text(expression.get("operator")),
            frozenset(map(text, _list(expression.get("values")))),
        )
        for expression in mappings(selector.get("matchExpressions"))
    )
    return DisruptionBudget(
        text(budget.metadata.name),
        texts(selector.get("matchLabels")),
        tuple(requirements),
        _bound(spec.min_available),
        _bound(spec.max_unavailable),
        selects_all=empty_selects_all and spec.selector is not UNSET,
    )


def workload(kind: str) -> Callable[[Full], Workload | None]:
    """Reads Deployments or StatefulSets; None: not of JobManagers."""

    def read(manifest: Full) -> Workload | None:
        labels = texts(mapping(mapping(manifest.spec.template).get("metadata")).get("labels"))
        replicas = number(manifest.spec.replicas)
        if labels.get("component") != "jobmanager":
            return None
        return Workload(kind, text(manifest.metadata.name), labels, 1 if replicas is None else replicas)

    return read


def deployed_job_managers(deployment: Full) -> tuple[str, int | None]:
    """The name of a FlinkDeployment, and its number of JobManagers; None: not in it."""
    return text(deployment.metadata.name), number(mapping(deployment.spec.job_manager).get("replicas"))


def ha_config_map(config_map: Full) -> HaConfigMap:
    """A ConfigMap with Flink's labels, as the checks see it."""
    metadata = config_map.metadata
    name, app = text(metadata.name), texts(metadata.labels).get("app", "")
    annotation = mapping(metadata.annotations).get(LEADER_ANNOTATION)
    lease = decode_lease(annotation) if isinstance(annotation, str) else None
    data = texts(config_map.data)
    cluster_id = app or name.removesuffix("-cluster-config-map")
    leaders = [
        (component_id, decode_leader(value))
        for component_id, value in values(cluster_id, name, relevant(data)).values()
    ]
    published = [(component_id, leader) for component_id, leader in leaders if isinstance(leader, LeaderInformation)]
    binary = (_base64_size(value) for value in texts(config_map.binary_data).values())
    return HaConfigMap(
        name,
        cluster_id,
        sum(len(value.encode(errors="replace")) for value in data.values()) + sum(binary),
        wall_time(metadata.creation_timestamp),
        lease if isinstance(lease, LeaderElectionRecord) else None,
        frozenset({component_id.component for component_id, _ in published} - {Component.JOB}),
        frozenset(host_of(leader.address) for _, leader in published),
        next((leader.address for id_, leader in published if id_.component is Component.REST_SERVER), ""),
        job_ids(data),
    )


def configured_options(config_map: Full) -> dict[str, str]:
    """The options of a ConfigMap with Flink's configuration: `config.yaml`, or `flink-conf.yaml` where that is missing. Raises
    SettingsError.
    """
    data = texts(config_map.data)
    name = next((name for name in (STANDARD, LEGACY) if name in data), None)
    return flink_options(plain_options(Path(name), data[name])) if name else {}


def flink_options(options: Mapping[str, str]) -> dict[str, str]:
    """The options that the checks need, within bounds."""
    return {
        key: value[:_LONGEST_VALUE] for key, value in options.items() if key.startswith((ELECTION, MEMORY, *STORAGE))
    }


def election_times(options: Mapping[str, str]) -> ElectionTimes | UnknownFact:
    """The times of leader election; those that are not set are Flink's defaults."""
    try:
        times = [
            parse_flink_duration(options[key]) if (key := f"{ELECTION}{name}") in options else DEFAULT_LEASE
            for name in ("lease-duration", "renew-deadline")
        ]
    except ValueError as error:
        return UnknownFact(f"{ELECTION}lease-duration or renew-deadline {error}")
    return ElectionTimes(*times)


def is_allowed(body: bytes) -> bool:
    """The answer to an access review. Raises ValueError."""
    allowed = read_object(body).status.allowed
    if allowed is not True and allowed is not False:
        raise ValueError("no access review: it has no answer")
    return allowed is True


def _runs(status: ObjectStatus, container: str) -> bool:
    for container_status in mappings(status.container_statuses):
        if container_status.get("name") == container:
            return bool(mapping(container_status.get("state")).get("running"))
    return bool(status.phase == "Running")


def _controller(references: object) -> str:
    owners = (reference for reference in mappings(references) if reference.get("controller") is True)
    return next((text(owner.get("kind")) for owner in owners), "")


def _liveness(value: object) -> LivenessProbe | None:
    probe = mapping(value)
    kind = next((kind for kind in ProbeKind if isinstance(probe.get(kind), dict)), None)
    if kind is None:
        return None
    port = probe[kind].get("port")
    return LivenessProbe(
        kind,
        str(port)[:64] if isinstance(port, int | str) else "",
        number(probe.get("initialDelaySeconds")) or 0,
        number(probe.get("periodSeconds")) or 10,
        number(probe.get("failureThreshold")) or 3,
    )


def _apart(spec: Spec) -> str:
    """The rule that keeps the pods of this kind on different nodes, by its name."""
    affinity = mapping(mapping(spec.affinity).get("podAntiAffinity"))
    if _keeps_apart(mappings(affinity.get("requiredDuringSchedulingIgnoredDuringExecution"))):
        return "required pod anti-affinity"
    constraints = [*mappings(spec.topology_spread_constraints)]
    if _keeps_apart(rule for rule in constraints if rule.get("whenUnsatisfiable") == "DoNotSchedule"):
        return "a required topology spread"
    preferred = mappings(affinity.get("preferredDuringSchedulingIgnoredDuringExecution"))
    if _keeps_apart(mapping(preference.get("podAffinityTerm")) for preference in preferred):
        return "preferred pod anti-affinity"
    return "a preferred topology spread" if _keeps_apart(constraints) else ""


def _keeps_apart(terms: Iterable[_Object]) -> bool:
    return any(text(term.get("topologyKey")) in _APART for term in terms)


def _option_lines(container: _Object) -> Iterator[str]:
    """Command, arguments and environment, in the order in which Java would read them."""
    for variable in mappings(container.get("env")):
        if isinstance(value := variable.get("value"), str):
            yield value
    for key in ("command", "args"):
        words = [word for word in _list(container.get(key)) if isinstance(word, str)]
        yield " ".join(words)


def _heap(line: str) -> int | None:
    sizes = [int(amount) << _SHIFTS[unit.lower()] for amount, unit in _HEAP.findall(line)]
    return sizes[-1] if sizes and sizes[-1] <= _MOST_BYTES else None


def _properties(container: _Object, lines: list[str]) -> dict[str, str]:
    """Dynamic properties win over FLINK_PROPERTIES, which the image appends to the configuration."""
    variables = (variable for variable in mappings(container.get("env")) if variable.get("name") == _FLINK_PROPERTIES)
    documents = (variable.get("value") for variable in variables)
    appended = {key: value for yaml in documents if isinstance(yaml, str) for key, value in _LINE.findall(yaml)}
    dynamic = {key: value for line in lines for key, value in _DYNAMIC.findall(line)}
    return flink_options(appended | dynamic)


def _conf_map(spec: Spec, container: _Object) -> str:
    mounts = mappings(container.get("volumeMounts"))
    name = next(
        (mount.get("name") for mount in mounts if text(mount.get("mountPath")).rstrip("/").endswith("/conf")), None
    )
    volumes = (volume for volume in mappings(spec.volumes) if name and volume.get("name") == name)
    return next((text(mapping(volume.get("configMap")).get("name")) for volume in volumes), "")


def _lasting_volumes(spec: Spec, container: _Object) -> Iterator[str]:
    """The mount paths of volumes that outlive the pod."""
    lasting = {
        volume.get("name") for volume in mappings(spec.volumes) if _FLEETING.isdisjoint(volume) and len(volume) > 1
    }
    for mount in mappings(container.get("volumeMounts")):
        if mount.get("name") in lasting and (path := text(mount.get("mountPath"))):
            yield path


def _bound(value: object) -> int | str | None:
    return text(value) or None if isinstance(value, str) else number(value)


def _list(value: object) -> list[Any]:
    return value if isinstance(value, list) else []


def _base64_size(value: str) -> int:
    try:
        return len(b64decode(value))
    except (NotBase64, ValueError):
        return len(value)
