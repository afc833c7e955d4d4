"""Decodes JobManagers' pods and Events, and finds the pod of an address.

Odd values count as absent: nothing but a ValueError is raised, and that for no JSON alone.
"""

import math
import re
from collections.abc import Iterator, Mapping
from decimal import Decimal
from http import HTTPStatus
from typing import Any, Final

from msgspec import Struct

from sidecar.core.flink.deployments import Maker
from sidecar.core.pods import Pod
from sidecar.core.process_end import ContainerEnd, PodStatus, SeenEvent
from sidecar.drivers.kubernetes.access import Access, ApiError
from sidecar.drivers.kubernetes.api import Api, Selector
from sidecar.drivers.kubernetes.objects import Full, mapping, mappings, number, text, wall_time
from sidecar.ports import KubernetesError, KubernetesRefusedError

MAIN_CONTAINER: Final = "flink-main-container"
"""The main container in pods of Flink's native integration and of the operator."""
OWN_CONTAINER: Final = "flink-ha-sidecar"
EVICTED: Final = "EvictionByEvictionAPI"
"""Why a pod is a DisruptionTarget: somebody drains its node. The other reasons are failures, or another pod's priority."""
_LONGEST_MESSAGE: Final = 4096
"""The longest termination message: the kubelet cuts it there."""
_HOPELESS: Final = frozenset(
    {"ErrImagePull", "ImagePullBackOff", "InvalidImageName", "CrashLoopBackOff", "CreateContainerConfigError"}
)
"""Why a container waits: not until it has started, but until somebody does something."""
_REVISIONS: Final = ("pod-template-hash", "controller-revision-hash")
_QUANTITY: Final = re.compile(
    r"\+?(?P<number>\d{1,40}(?:\.\d{0,40})?|\.\d{1,40})(?:(?P<unit>[KMGTPE]i|[numkMGTPE]?)|[eE](?P<exponent>[+-]?\d{1,2}))",
    re.ASCII,
)
_UNITS: Final = {
    **{f"{prefix}i": Decimal(1 << 10 * power) for power, prefix in enumerate("KMGTPE", 1)},
    **{prefix: Decimal(1000) ** power for power, prefix in enumerate(("n", "u", "m", "", *"kMGTPE"), -3)},
}
_MOST_BYTES: Final = 2**63 - 1
"""The largest quantity, as in Kubernetes, which reads larger ones as this."""


class JobManagerPod(Struct, frozen=True):
    """A pod, and whose it is."""

    app: str
    """Its label `app`: in pods of Flink's native integration and of the operator the cluster id."""
    is_named: bool
    """True if `app` is certainly the cluster id."""
    container: str
    """The name of the main container."""
    status: PodStatus
    maker: tuple[Maker, str] | None = None
    """The Deployment, StatefulSet or Job that makes it, without its namespace."""
    stuck: str = ""
    """Why it cannot come; empty: nothing says so."""

    @property
    def is_evicted(self) -> bool:
        return self.status.disruption == EVICTED


def job_manager_pod(manifest: Full) -> JobManagerPod:
    labels = mapping(manifest.metadata.labels)
    main = main_container(manifest.spec.containers)
    container = text(main.get("name"))
    status = next(_named(manifest.status.container_statuses, container), {})
    state, last = mapping(status.get("state")), mapping(status.get("lastState"))
    deleted = manifest.metadata.deletion_timestamp
    revisions = (text(labels.get(label)) for label in _REVISIONS)
    pod = PodStatus(
        text(manifest.metadata.uid),
        text(manifest.metadata.name),
        text(manifest.status.pod_ip),
        node=text(manifest.spec.node_name),
        # One that cannot be read is a deletion all the same, long ago.
        delete_at=None if deleted is None else wall_time(deleted) or 0,
        grace_seconds=number(manifest.metadata.deletion_grace_period_seconds),
        phase=text(manifest.status.phase),
        reason=text(manifest.status.reason),
        message=text(manifest.status.message),
        disruption=_disruption(manifest.status.conditions),
        created_at=wall_time(manifest.metadata.creation_timestamp),
        last_end=_end(state.get("terminated")) or _end(last.get("terminated")),
        limit_bytes=memory_limit(status) or memory_limit(main),
        image=text(status.get("image")),
        revision=next(filter(None, revisions), ""),
    )
    return JobManagerPod(
        text(labels.get("app")),
        text(labels.get("type")).startswith("flink-"),
        container,
        pod,
        _maker(manifest, pod.revision),
        _stuck(manifest, state),
    )


def _maker(manifest: Full, revision: str) -> tuple[Maker, str] | None:
    """The maker of the pod, by its owner. A Deployment is known by the name of its ReplicaSet."""
    for owner in mappings(manifest.metadata.owner_references):
        kind, name = text(owner.get("kind")), text(owner.get("name"))
        if kind == "ReplicaSet" and revision and name.endswith(f"-{revision}"):
            return Maker.DEPLOYMENT, name.removesuffix(f"-{revision}")
        if kind in {Maker.STATEFUL_SET, Maker.JOB} and name:
            return Maker(kind), name
    return None


def _stuck(manifest: Full, state: Mapping[str, Any]) -> str:
    waits = text(mapping(state.get("waiting")).get("reason"))
    if waits in _HOPELESS:
        return waits
    for condition in mappings(manifest.status.conditions):
        if (condition.get("type"), condition.get("status")) == ("PodScheduled", "False"):
            return text(condition.get("reason")) if condition.get("reason") == "Unschedulable" else ""
    return ""


def seen_event(manifest: Full) -> SeenEvent:
    about = mapping(manifest.involved_object)
    series = mapping(manifest.series)
    times = (series.get("lastObservedTime"), manifest.last_timestamp, manifest.event_time, manifest.first_timestamp)
    return SeenEvent(
        text(about.get("kind")),
        text(about.get("name")),
        text(about.get("uid")),
        text(manifest.reason),
        _message(manifest.message),
        next((at for time in times if (at := wall_time(time)) is not None), 0),
    )


def main_container(containers: object) -> Mapping[str, Any]:
    """The main container: that of Flink's native integration, else the first one that is not the sidecar. Empty: there is none."""
    others = [container for container in mappings(containers) if container.get("name") != OWN_CONTAINER]
    return next(_named(others, MAIN_CONTAINER), others[0] if others else {})


def _end(value: object) -> ContainerEnd | None:
    terminated = mapping(value)
    code = number(terminated.get("exitCode"))
    if code is None:
        return None
    return ContainerEnd(
        code,
        text(terminated.get("reason")),
        _message(terminated.get("message")),
        wall_time(terminated.get("finishedAt")),
    )


def memory_limit(container: Mapping[str, Any]) -> int | None:
    """The memory limit of a container, in bytes. None: no limit, which a limit of 0 is too, or not a quantity."""
    limit = mapping(mapping(container.get("resources")).get("limits")).get("memory")
    return _quantity(str(limit)) or None if isinstance(limit, str | int) else None


def _quantity(text: str) -> int | None:
    """Mirrors `resource.Quantity` of Kubernetes' Go library, rounded up as its `Value()`. None: not one, or negative."""
    # The client library has a `parse_quantity`, in a package that costs 20 MiB: see `kubeconfig`.
    match = _QUANTITY.fullmatch(text)
    if match is None:
        return None
    unit = Decimal(10) ** int(match["exponent"]) if match["exponent"] else _UNITS[match["unit"]]
    return min(math.ceil(Decimal(match["number"]) * unit), _MOST_BYTES)


def _disruption(conditions: object) -> str | None:
    for condition in mappings(conditions):
        if (condition.get("type"), condition.get("status")) == ("DisruptionTarget", "True"):
            return text(condition.get("reason")) or None
    return None


def _named(values: object, name: str) -> Iterator[Mapping[str, Any]]:
    return (value for value in mappings(values) if name and value.get("name") == name)


def _message(value: object) -> str:
    return value[:_LONGEST_MESSAGE] if isinstance(value, str) else ""


ROLE: Final = '{apiGroups: [""], resources: [pods], verbs: [list]}'


class KubernetesPods:
    """A `sidecar.ports.PodDirectory`. It asks for metadata alone, not for what pods are made of."""

    def __init__(self, access: Access, namespace: str) -> None:
        self._api = Api(access, namespace)

    def find(self, address: str, wall: int) -> Pod | None:
        # A pod that has ended keeps its address; pods with `hostNetwork` share that of their node.
        selector = Selector(kind="Pod", fields=f"status.podIP={address},status.phase=Running")
        try:
            pods = [*self._api.read_pages(selector, names_only=True).config_maps.values()]
        except ApiError as error:
            if error.status == HTTPStatus.FORBIDDEN:
                raise KubernetesRefusedError(f"{error}; the Role needs {ROLE}") from error
            raise KubernetesError(str(error)) from error
        finally:
            self._api.reopen()  # leaders change seldom: no connection is kept
        return Pod(pods[0].name, pods[0].uid, wall) if len(pods) == 1 else None
