"""Reports what is meant to happen to clusters: their FlinkDeployments, and the evictions of their JobManagers' pods."""

import logging
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from http import HTTPStatus
from typing import Final, NamedTuple

from sidecar.core.flink.deployments import FlinkDeployment
from sidecar.core.moment import Moment
from sidecar.core.observations import DeploymentObserved, DeploymentUnreadable, PlanObservation, PodDisrupted
from sidecar.drivers.kubernetes.access import Access
from sidecar.drivers.kubernetes.api import Api, Selector
from sidecar.drivers.kubernetes.api_error import ApiError
from sidecar.drivers.kubernetes.object_watch import ObjectWatch
from sidecar.drivers.kubernetes.plan_objects import JobManagerPod, flink_deployment, job_manager_pod, read_cordoned
from sidecar.ports import PlanObserver

DEPLOYMENTS_ROLE: Final = "{apiGroups: [flink.apache.org], resources: [flinkdeployments], verbs: [list, watch]}"
PODS_ROLE: Final = '{apiGroups: [""], resources: [pods], verbs: [list, watch]}'
NODES_ROLE: Final = '{apiGroups: [""], resources: [nodes], verbs: [get]}'
GROUP: Final = "flink.apache.org/v1beta1"
_REFUSED_SECONDS: Final = 600.0
_STOP_SECONDS: Final = 1.5
_CUT_AGAIN_SECONDS: Final = 0.1
_MOST_PODS: Final = 10_000
"""Pods that are about to go, remembered by uid."""

_log = logging.getLogger("sidecar.plans")


class DeploymentReports:
    """FlinkDeployments as observations of their clusters."""

    def __init__(self, clusters: frozenset[str] | None, clock: Callable[[], Moment], report: PlanObserver) -> None:
        """`clusters`: of these alone; None: of all."""
        self._clusters = clusters
        self._clock = clock
        self._report = report
        self._reported: set[str] = set()

    def listed(self, items: Mapping[str, FlinkDeployment], *, complete: bool) -> None:
        at = self._clock()
        for name in sorted({*(items if self._clusters is None else self._clusters), *self._reported}):
            if name in items or complete:
                self._observed(at, name, items.get(name))
            else:
                self._report(DeploymentUnreadable(at, name))  # it may be one of those that are left out

    def changed(self, name: str, value: FlinkDeployment | None) -> None:
        if self._clusters is None or name in self._clusters:
            self._observed(self._clock(), name, value)

    def lost(self) -> None:
        at = self._clock()
        for name in sorted(self._reported):
            self._report(DeploymentUnreadable(at, name))

    def _observed(self, at: Moment, name: str, value: FlinkDeployment | None) -> None:
        (self._reported.discard if value is None else self._reported.add)(name)
        self._report(DeploymentObserved(at, name, value))


class PodReports:
    """Evictions of JobManagers' pods, and deletions from a cordoned node, as observations of their clusters."""

    def __init__(self, nodes: Api, scope: "Scope", clock: Callable[[], Moment], report: PlanObserver) -> None:
        self._nodes = nodes
        self._clusters = scope.clusters
        self._qualified = scope.qualified
        self._clock = clock
        self._report = report
        self._settled: set[str] = set()
        self._refused_until = 0.0

    def listed(self, items: Mapping[str, JobManagerPod], *, complete: bool) -> None:  # noqa: ARG002  those that are gone are not reported
        for name, pod in items.items():
            self.changed(name, pod)

    def changed(self, name: str, value: JobManagerPod | None) -> None:
        if value is None or value.uid in self._settled or not (value.evicted or value.deleting):
            return
        if len(self._settled) >= _MOST_PODS:
            self._settled.clear()
        drained = value.evicted or self._is_cordoned(value.node)
        if drained is None:
            return  # asked again when the pod changes
        self._settled.add(value.uid)  # a pod is deleted once
        at, (namespace, _, plain) = self._clock(), name.rpartition("/")
        for cluster_id in self._clusters_of(namespace, value.app) if drained else ():
            self._report(PodDisrupted(at, cluster_id, value.uid, plain, value.address, value.node or None))

    def lost(self) -> None:
        """What was reported stays true."""

    def _clusters_of(self, namespace: str, app: str) -> frozenset[str]:
        """Those whose leader it may be, which its address decides. Pods that people describe themselves have other labels."""
        name = f"{namespace}/{app}" if self._qualified else app
        return frozenset({name}) if self._clusters is None or name in self._clusters else self._clusters

    def _is_cordoned(self, node: str) -> bool | None:
        """None: not known."""
        if not node or time.monotonic() < self._refused_until:
            return None
        try:
            return self._nodes.exchange("get", Selector(name=node, kind="Node"), None, read_cordoned)
        except ApiError as error:
            needs = ""
            if error.status == HTTPStatus.FORBIDDEN:
                self._refused_until = time.monotonic() + _REFUSED_SECONDS
                needs = f"; the ClusterRole needs {NODES_ROLE}"
            _log.warning("whether a pod is deleted because its node is drained is not known: %s%s", error, needs)
            return None
        finally:
            self._nodes.reopen()  # a pod is deleted seldom: no connection is kept


class Scope(NamedTuple):
    """Where objects are read, and the clusters that they are about."""

    namespace: str | None
    """None: all."""
    clusters: frozenset[str] | None
    """None: all."""
    deployments: bool
    """Whether FlinkDeployments are read. Likewise for `drains`."""
    drains: bool
    qualified: bool = False


class KubernetesPlans:
    """A `sidecar.ports.PlanSource`: a thread for each kind of objects in each scope."""

    def __init__(self, scopes: Iterable[tuple[Access, Scope]], clock: Callable[[], Moment]) -> None:
        self._clock = clock
        self._observer: PlanObserver | None = None
        self._stopping = threading.Event()
        self._watches = [watch for access, scope in scopes for watch in self._watches_of(access, scope)]

    def start(self, observer: PlanObserver) -> None:
        if self._observer is None and not self._stopping.is_set():
            self._observer = observer
            for watch in self._watches:
                watch.thread.start()

    def stop(self) -> None:
        self._stopping.set()
        running = [watch for watch in self._watches if watch.thread.ident is not None]
        deadline = time.monotonic() + _STOP_SECONDS
        while running and time.monotonic() < deadline:
            for watch in running:
                watch.cut()  # repeatedly: a watch may be about to open
            running[0].thread.join(_CUT_AGAIN_SECONDS)
            running = [watch for watch in running if watch.thread.is_alive()]

    def _report(self, observation: PlanObservation) -> None:
        if self._observer and not self._stopping.is_set():
            self._observer(observation)

    def _watches_of(
        self, access: Access, scope: Scope
    ) -> Iterator[ObjectWatch[FlinkDeployment] | ObjectWatch[JobManagerPod]]:
        if scope.deployments:
            only = next(iter(scope.clusters)) if scope.clusters is not None and len(scope.clusters) == 1 else ""
            yield ObjectWatch(
                Api(access, scope.namespace, qualified=scope.qualified),
                Selector(name=only, kind="FlinkDeployment", group=GROUP),
                flink_deployment,
                DeploymentReports(scope.clusters, self._clock, self._report),
                DEPLOYMENTS_ROLE,
                "whether failovers are planned is not known",
            )
        if scope.drains:
            yield ObjectWatch(
                Api(access, scope.namespace, qualified=scope.qualified),
                Selector(labels="component=jobmanager", kind="Pod"),
                job_manager_pod,
                PodReports(Api(access, None), scope, self._clock, self._report),
                PODS_ROLE,
                "whether a failover is the drain of a node is not known",
            )
