"""Decodes what a Flink cluster is made of: pods, PodDisruptionBudgets, Deployments, FlinkDeployments, ConfigMaps, access reviews.

Any bytes give one of these types or a ValueError. Odd values in an object count as absent, and an object that cannot be decoded hides no
other. Of environment, arguments and Flink's configuration nothing is kept but the heap and the options of `flink_options`: the rest may
hold secrets.
"""

import re
from base64 import b64decode
from binascii import Error as NotBase64
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, Final, TypeVar

import msgspec
from msgspec import Raw, Struct, field

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
from sidecar.core.ha.finding import Unknown
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
from sidecar.drivers.kubernetes.plan_objects import mapping, mappings, number, text, wall_time
from sidecar.drivers.kubernetes.pod_objects import main_container, memory_limit
from sidecar.drivers.kubernetes.responses import LEADER_ANNOTATION
from sidecar.settings.cluster.flink_conf import LEGACY, STANDARD, plain_options
from sidecar.settings.file.durations import parse_flink_duration

_UNDECODABLE = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)
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

Object = Mapping[str, Any]
_T = TypeVar("_T")


class _Rest(Struct):
    rest: str = field(default="", name="continue")


class _Page(Struct):
    metadata: _Rest
    items: list[Raw] | None = None


_PAGE: Final = msgspec.json.Decoder(_Page)


def read_objects(body: bytes, read: Callable[[Object], _T | None]) -> tuple[list[_T], str]:
    """The objects of a page, as `read` decodes them, and where the next page begins. Raises ValueError."""
    try:
        page = _PAGE.decode(body)
    except _UNDECODABLE as error:
        raise ValueError(f"no list: {error}") from error
    return [value for raw in page.items or () if (value := _value(raw, read)) is not None], page.metadata.rest


def read_object(body: bytes) -> Object:
    """The decoded object. Raises ValueError."""
    try:
        return mapping(msgspec.json.decode(body))
    except _UNDECODABLE as error:
        raise ValueError(f"no object: {error}") from error


def flink_pod(pod: Object) -> FlinkPod | None:
    """A pod; None: it has no name."""
    metadata, spec, status = (mapping(pod.get(key)) for key in ("metadata", "spec", "status"))
    labels = texts(metadata.get("labels"))
    container = main_container(spec.get("containers"))
    deleting = metadata.get("deletionTimestamp") is not None
    lines = [*_option_lines(container)]
    if not (name := text(metadata.get("name"))):
        return None
    return FlinkPod(
        name,
        labels.get("component", ""),
        labels,
        address=text(status.get("podIP")),
        node=text(spec.get("nodeName")),
        running=not deleting and _runs(status, text(container.get("name"))),
        deleting=deleting,
        image=text(container.get("image")),
        restart_policy=text(spec.get("restartPolicy")),
        owner=_controller(metadata.get("ownerReferences")),
        service_account=text(spec.get("serviceAccountName")),
        liveness=_liveness(container.get("livenessProbe")),
        has_startup_probe=bool(container.get("startupProbe")),
        apart=_apart(spec),
        limit_bytes=memory_limit(container),
        heap_bytes=next((size for line in reversed(lines) if (size := _heap(line))), None),
        properties=_properties(container, lines),
        volumes=tuple(_lasting_volumes(spec, container)),
        conf_map=_conf_map(spec, container),
    )


def disruption_budget(budget: Object, *, empty_selects_all: bool) -> DisruptionBudget | None:
    """A PodDisruptionBudget; None: it has no name."""
    metadata, spec = mapping(budget.get("metadata")), mapping(budget.get("spec"))
    selector = mapping(spec.get("selector"))
    requirements = (
        Requirement(
            text(expression.get("key")),
            text(expression.get("operator")),
            frozenset(map(text, _list(expression.get("values")))),
        )
        for expression in mappings(selector.get("matchExpressions"))
    )
    name = text(metadata.get("name"))
    return (
        DisruptionBudget(
            name,
            texts(selector.get("matchLabels")),
            tuple(requirements),
            _bound(spec.get("minAvailable")),
            _bound(spec.get("maxUnavailable")),
            selects_all=empty_selects_all and "selector" in spec,
        )
        if name
        else None
    )


def workload(kind: str) -> Callable[[Object], Workload | None]:
    """Reads Deployments or StatefulSets; None: not of JobManagers."""

    def read(manifest: Object) -> Workload | None:
        metadata, spec = mapping(manifest.get("metadata")), mapping(manifest.get("spec"))
        labels = texts(mapping(mapping(spec.get("template")).get("metadata")).get("labels"))
        replicas = number(spec.get("replicas"))
        if labels.get("component") != "jobmanager":
            return None
        return Workload(kind, text(metadata.get("name")), labels, 1 if replicas is None else replicas)

    return read


def deployed_job_managers(deployment: Object) -> tuple[str, int | None] | None:
    """The name of a FlinkDeployment, and its number of JobManagers; None: not in it."""
    name = text(mapping(deployment.get("metadata")).get("name"))
    job_manager = mapping(mapping(deployment.get("spec")).get("jobManager"))
    return (name, number(job_manager.get("replicas"))) if name else None


def ha_config_map(config_map: Object) -> HaConfigMap | None:
    """A ConfigMap with Flink's labels; None: it has no name."""
    metadata = mapping(config_map.get("metadata"))
    name, app = text(metadata.get("name")), texts(metadata.get("labels")).get("app", "")
    annotation = mapping(metadata.get("annotations")).get(LEADER_ANNOTATION)
    lease = decode_lease(annotation) if isinstance(annotation, str) else None
    data = texts(config_map.get("data"))
    cluster_id = app or name.removesuffix("-cluster-config-map")
    leaders = [
        (component_id, decode_leader(value))
        for component_id, value in values(cluster_id, name, relevant(data)).values()
    ]
    published = [(component_id, leader) for component_id, leader in leaders if isinstance(leader, LeaderInformation)]
    binary = (_base64_size(value) for value in texts(config_map.get("binaryData")).values())
    return (
        HaConfigMap(
            name,
            cluster_id,
            sum(len(value.encode(errors="replace")) for value in data.values()) + sum(binary),
            wall_time(metadata.get("creationTimestamp")),
            lease if isinstance(lease, LeaderElectionRecord) else None,
            frozenset({component_id.component for component_id, _ in published} - {Component.JOB}),
            frozenset(host_of(leader.address) for _, leader in published),
            next((leader.address for id_, leader in published if id_.component is Component.REST_SERVER), ""),
            job_ids(data),
        )
        if name
        else None
    )


def configured_options(config_map: Object) -> dict[str, str]:
    """The options of a ConfigMap with Flink's configuration: `config.yaml`, or `flink-conf.yaml` where that is missing. Raises
    SettingsError.
    """
    data = texts(config_map.get("data"))
    name = next((name for name in (STANDARD, LEGACY) if name in data), None)
    return flink_options(plain_options(Path(name), data[name])) if name else {}


def flink_options(options: Mapping[str, str]) -> dict[str, str]:
    """The options that the checks need, within bounds."""
    return {
        key: value[:_LONGEST_VALUE] for key, value in options.items() if key.startswith((ELECTION, MEMORY, *STORAGE))
    }


def election_times(options: Mapping[str, str]) -> ElectionTimes | Unknown:
    """The times of leader election; those that are not set are Flink's defaults."""
    try:
        times = [
            parse_flink_duration(options[key]) if (key := f"{ELECTION}{name}") in options else DEFAULT_LEASE
            for name in ("lease-duration", "renew-deadline")
        ]
    except ValueError as error:
        return Unknown(f"{ELECTION}lease-duration or renew-deadline {error}")
    return ElectionTimes(*times)


def is_allowed(body: bytes) -> bool:
    """The answer to an access review. Raises ValueError."""
    allowed = mapping(read_object(body).get("status")).get("allowed")
    if allowed is not True and allowed is not False:
        raise ValueError("no access review: it has no answer")
    return allowed


def texts(values: object) -> dict[str, str]:
    return {key: value for key, value in mapping(values).items() if isinstance(value, str)}


def _value(raw: Raw, read: Callable[[Object], _T | None]) -> _T | None:
    try:
        return read(mapping(msgspec.json.decode(raw)))
    except _UNDECODABLE:
        return None


def _runs(status: Object, container: str) -> bool:
    for container_status in mappings(status.get("containerStatuses")):
        if container_status.get("name") == container:
            return bool(mapping(container_status.get("state")).get("running"))
    return status.get("phase") == "Running"


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


def _apart(spec: Object) -> str:
    """Whether the pods of this kind are kept on different nodes, by the rule's name."""
    affinity = mapping(mapping(spec.get("affinity")).get("podAntiAffinity"))
    if _keeps_apart(mappings(affinity.get("requiredDuringSchedulingIgnoredDuringExecution"))):
        return "required pod anti-affinity"
    constraints = [*mappings(spec.get("topologySpreadConstraints"))]
    if _keeps_apart(rule for rule in constraints if rule.get("whenUnsatisfiable") == "DoNotSchedule"):
        return "a required topology spread"
    preferred = mappings(affinity.get("preferredDuringSchedulingIgnoredDuringExecution"))
    if _keeps_apart(mapping(preference.get("podAffinityTerm")) for preference in preferred):
        return "preferred pod anti-affinity"
    return "a preferred topology spread" if _keeps_apart(constraints) else ""


def _keeps_apart(terms: Iterator[Object] | list[Object]) -> bool:
    return any(text(term.get("topologyKey")) in _APART for term in terms)


def _option_lines(container: Object) -> Iterator[str]:
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


def _properties(container: Object, lines: list[str]) -> dict[str, str]:
    """Dynamic properties win over FLINK_PROPERTIES, which the image appends to the configuration."""
    variables = (variable for variable in mappings(container.get("env")) if variable.get("name") == _FLINK_PROPERTIES)
    documents = (variable.get("value") for variable in variables)
    appended = {key: value for yaml in documents if isinstance(yaml, str) for key, value in _LINE.findall(yaml)}
    dynamic = {key: value for line in lines for key, value in _DYNAMIC.findall(line)}
    return flink_options(appended | dynamic)


def _conf_map(spec: Object, container: Object) -> str:
    mounts = mappings(container.get("volumeMounts"))
    name = next(
        (mount.get("name") for mount in mounts if text(mount.get("mountPath")).rstrip("/").endswith("/conf")), None
    )
    volumes = (volume for volume in mappings(spec.get("volumes")) if name and volume.get("name") == name)
    return next((text(mapping(volume.get("configMap")).get("name")) for volume in volumes), "")


def _lasting_volumes(spec: Object, container: Object) -> Iterator[str]:
    """The mount paths of volumes that outlive the pod."""
    lasting = {
        volume.get("name")
        for volume in mappings(spec.get("volumes"))
        if _FLEETING.isdisjoint(volume) and len(volume) > 1
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
