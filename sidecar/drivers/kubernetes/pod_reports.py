"""JobManagers' pods and their Events as observations: of their clusters, and of no other pod of the same name."""

import logging
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from http import HTTPStatus
from queue import Full, Queue
from typing import Final, NamedTuple

from msgspec.structs import replace

from sidecar.core.failover.ends import OperatorReason
from sidecar.core.first_fault import log_end
from sidecar.core.moment import SECOND, Moment
from sidecar.core.observations import ANY, EventObserved, LogEndRead, PodDisrupted, PodObserved
from sidecar.core.process_end import ContainerEnd, SeenEvent
from sidecar.drivers.kubernetes.access import ApiError
from sidecar.drivers.kubernetes.api import Api, Selector
from sidecar.drivers.kubernetes.makers import POD, Makers
from sidecar.drivers.kubernetes.objects import read_cordoned
from sidecar.drivers.kubernetes.pod_objects import JobManagerPod
from sidecar.ports import PlanObserver
from sidecar.runtime.threads import ServiceThread

LOGS_ROLE: Final = '{apiGroups: [""], resources: [pods/log], verbs: [get]}'
_WAITING: Final = 16
"""Containers that may wait. The log of one that ends beyond that is not read."""
_LINES, _BYTES = 400, 128 << 10
_PAUSES: Final = (0.3, 0.7, 1.0, 2.0, 3.0, 3.0)
"""Seconds before each try. Until the kubelet has started the next container, there is no previous one."""
_REFUSED_SECONDS: Final = 600.0

_log = logging.getLogger("sidecar.plans")


class EndedContainer(NamedTuple):
    """A main container that ended, of a pod that may be any of these clusters'."""

    pod: str
    """The pod's name, with its namespace if names have one."""
    uid: str
    container: str
    clusters: frozenset[str]


class PreviousLogs:
    """A thread that reads logs one after the other."""

    def __init__(self, api: Api, clock: Callable[[], Moment], report: PlanObserver) -> None:
        self._api = api
        self._clock = clock
        self._report = report
        self._waiting: Queue[EndedContainer | None] = Queue(_WAITING)
        self._refused_until = 0.0
        self._stopping = threading.Event()
        self.thread = ServiceThread(self._run, "kubernetes-logs")

    def read(self, ended: EndedContainer | None) -> None:
        """Read the end of its log soon; never blocks. None: only wake the thread."""
        with suppress(Full):
            self._waiting.put_nowait(ended)

    def cut(self) -> None:
        """Ask the thread to end. May be called repeatedly."""
        self._stopping.set()
        self.read(None)
        self._api.cut()

    def _run(self) -> None:
        while not self._stopping.is_set():
            ended = self._waiting.get()
            if ended and time.monotonic() >= self._refused_until:
                self._try(ended)
                self._api.reopen()  # containers end seldom: no connection is kept

    def _try(self, ended: EndedContainer) -> None:
        problem: ApiError | None = None
        for pause in _PAUSES:
            if self._stopping.wait(pause):
                return
            try:
                tail = self._api.read_log(ended.pod, ended.container, previous=True, lines=_LINES, most=_BYTES)
            except ApiError as error:
                problem = error
                if error.status == HTTPStatus.FORBIDDEN:
                    self._refused_until = time.monotonic() + _REFUSED_SECONDS
                    _log.warning("%s: %s; the Role needs %s", _WITHOUT, error, LOGS_ROLE)
                    return
                if error.status == HTTPStatus.NOT_FOUND:
                    return  # the pod is gone, and its logs with it
                continue
            at, log = self._clock(), log_end(ended.pod, tail)
            for cluster_id in ended.clusters:
                self._report(LogEndRead(at, cluster_id, log, ended.uid))
            return
        # A pod that is deleted or evicted gets no other container: that is no problem.
        _log.info("%s: %s", _WITHOUT, problem)


_WITHOUT: Final = "the last lines of a JobManager's log are not known"


NODES_ROLE: Final = '{apiGroups: [""], resources: [nodes], verbs: [get]}'
_MOST_PODS: Final = 10_000
"""Pods that are about to go, remembered by uid."""
_OF_LATE: Final = 60 * SECOND
"""The greatest age of a container's end whose log is read: the log of an older one is about an earlier failover."""


class Scope(NamedTuple):
    """The namespaces in which objects are read, and the clusters that they are about."""

    namespace: str | None
    """None: all."""
    clusters: frozenset[str] | None
    """None: all."""
    plans: bool
    """True if what makes JobManagers, and evictions of their pods, are observed."""
    deaths: bool = False
    """True if it is observed how JobManagers end."""
    qualified: bool = False

    def clusters_of(self, namespace: str, pod: JobManagerPod) -> frozenset[str]:
        """The clusters whose leader the pod may be; its address decides. Pods that people describe themselves have other labels."""
        name = f"{namespace}/{pod.app}" if self.qualified else pod.app
        if pod.is_named:
            return frozenset({name} if self.clusters is None or name in self.clusters else ())
        return frozenset({name}) if self.clusters and name in self.clusters else self.clusters_in(namespace)

    def clusters_in(self, namespace: str) -> frozenset[str]:
        """All that there may be in a namespace."""
        return frozenset({f"{namespace}/{ANY}" if self.qualified else ANY}) if self.clusters is None else self.clusters

    @property
    def every(self) -> frozenset[str]:
        """All of the scope."""
        return self.clusters_in(self.namespace) if self.namespace else self.clusters or frozenset({ANY})


class PodReports:
    """Pods whose status has changed, evictions, and deletions from a cordoned node. One thread calls it; others ask `known`."""

    def __init__(
        self,
        nodes: Api,
        scope: Scope,
        clock: Callable[[], Moment],
        report: PlanObserver,
        logs: PreviousLogs | None,
        makers: Makers | None = None,
    ) -> None:
        """`logs`, `makers`: None: they are not read."""
        self._makers = makers
        self._nodes = nodes
        self._scope = scope
        self._clock = clock
        self._report = report
        self._logs = logs
        self._pods: dict[str, JobManagerPod] = {}
        """The last reported pods by name."""
        self.clusters_by_uid: Mapping[str, frozenset[str]] = {}
        """Replaced, never changed: another thread reads it."""
        self._settled: set[str] = set()
        self._refused_until = 0.0

    def listed(self, items: Mapping[str, JobManagerPod], *, complete: bool) -> None:
        for name, pod in [*self._pods.items()] if complete else []:
            if name not in items or items[name].status.uid != pod.status.uid:
                self.changed(name, pod, deleted=True)
        for name, pod in items.items():
            self.changed(name, pod)
        if self._makers:
            (self._makers.read if complete else self._makers.unread)(POD)

    def changed(self, name: str, value: JobManagerPod, *, deleted: bool = False) -> None:
        if self._makers:
            self._makers.pod(name, value, deleted=deleted)
        previous = self._pods.get(name)
        if previous and not deleted:  # whether its node is cordoned is not in its status
            value = replace(value, status=replace(value.status, cordoned=previous.status.cordoned))
        if deleted:
            self._pods.pop(name, None)
        if deleted or value != previous:
            self._observed(name, value, gone=deleted)
        if not deleted:
            self._pods[name] = value
            self._is_about_to_go(name, value)

    def lost(self) -> None:
        """Keep the reported pods: they stay true while the pods cannot be read."""
        if self._makers:
            self._makers.unread(POD)

    def _observed(self, name: str, pod: JobManagerPod, *, gone: bool) -> None:
        namespace = name.rpartition("/")[0]
        clusters = self._scope.clusters_of(namespace, pod) if self._scope.deaths else frozenset()
        if not clusters:
            return
        at = self._clock()
        for cluster_id in clusters:
            self._report(PodObserved(at, cluster_id, pod.status, gone))
        if gone:
            return  # its last Events may come afterwards, and are still its own
        if pod.status.uid not in self.clusters_by_uid:
            self.clusters_by_uid = dict([*self.clusters_by_uid.items(), (pod.status.uid, clusters)][-_MOST_PODS:])
        previous = self._pods.get(name)
        end = pod.status.last_end
        if self._logs and end and (previous is None or previous.status.last_end != end) and _is_of_late(end, at):
            self._logs.read(EndedContainer(name, pod.status.uid, pod.container, clusters))

    def _is_about_to_go(self, name: str, pod: JobManagerPod) -> None:
        status = pod.status
        if status.uid in self._settled or not (pod.is_evicted or status.delete_at is not None):
            return
        if len(self._settled) >= _MOST_PODS:
            self._settled.clear()
        drained = pod.is_evicted or self._is_cordoned(status.node)
        if drained is None:
            return  # asked again when the pod changes
        self._settled.add(status.uid)  # a pod is deleted once
        at, (namespace, _, plain) = self._clock(), name.rpartition("/")
        for cluster_id in self._scope.clusters_of(namespace, pod) if drained and self._scope.plans else ():
            node = status.node or None
            self._report(PodDisrupted(at, cluster_id, status.uid, plain, status.address, node, pod.is_evicted))
        if not pod.is_evicted:
            judged = replace(pod, status=replace(status, cordoned=drained))
            self._pods[name] = judged
            self._observed(name, judged, gone=False)

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


class EventReports:
    """Events about the clusters' JobManagers, by the uid of their pods, and about their FlinkDeployments, by name."""

    def __init__(self, scope: Scope, pods: PodReports, clock: Callable[[], Moment], report: PlanObserver) -> None:
        self._scope = scope
        self._pods = pods
        self._clock = clock
        self._report = report

    def listed(self, items: Mapping[str, SeenEvent], *, complete: bool) -> None:  # noqa: ARG002  what is left out is not known
        for name, event in sorted(items.items(), key=lambda item: item[1].at):
            self.changed(name, event)

    def changed(self, name: str, value: SeenEvent, *, deleted: bool = False) -> None:
        if deleted:  # they expire
            return
        at = self._clock()
        for cluster_id in self._clusters_of(name.rpartition("/")[0], value):
            self._report(EventObserved(at, cluster_id, value))

    def lost(self) -> None:
        """Keep the reported Events: they stay true while the Events cannot be read."""

    def _clusters_of(self, namespace: str, event: SeenEvent) -> frozenset[str]:
        if event.about == "Pod":
            return self._pods.clusters_by_uid.get(event.uid, frozenset())
        name = f"{namespace}/{event.name}" if self._scope.qualified else event.name
        wanted = self._scope.clusters is None or name in self._scope.clusters
        return frozenset({name}) if wanted and event.reason in {*OperatorReason} else frozenset()


def _is_of_late(end: ContainerEnd, now: Moment) -> bool:
    return end.finished_at is None or now.wall - end.finished_at <= _OF_LATE
