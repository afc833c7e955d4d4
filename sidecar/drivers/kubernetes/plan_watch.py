"""Reports what is meant to happen to clusters, and how their JobManagers end: FlinkDeployments, pods, Events and logs."""

import logging
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from http import HTTPStatus
from typing import Final, Protocol, TypeVar

from sidecar.core.flink.deployments import FlinkDeployment, Maker
from sidecar.core.moment import Moment
from sidecar.core.observations import (
    DeploymentObserved,
    DeploymentUnreadable,
    EndObservation,
    PlanObservation,
    RightRefused,
)
from sidecar.drivers.kubernetes.access import Access, ApiError
from sidecar.drivers.kubernetes.api import Api, Selector
from sidecar.drivers.kubernetes.list_watch import Cuttable, ListWatch, end
from sidecar.drivers.kubernetes.makers import GROUPS, MakerReports, Makers, Namespaces, maker_status
from sidecar.drivers.kubernetes.objects import Item, Read, WatchEvent, flink_deployment, read_change, read_page
from sidecar.drivers.kubernetes.pod_objects import job_manager_pod, seen_event
from sidecar.drivers.kubernetes.pod_reports import EventReports, PodReports, PreviousLogs, Scope
from sidecar.ports import PlanObserver

MOST_OBJECTS: Final = 5_000
"""Objects that are read; the rest is left out, and the log says so."""
_SILENCE_SECONDS: Final = 90.0
"""A watch without an event, and without the bookmark of each minute, is not trusted."""
_REFUSED_SECONDS: Final = 20.0
"""Pause after a refusal: somebody may grant the permission, or install the CRD."""

_log = logging.getLogger("sidecar.plans")
_T = TypeVar("_T")
_T_contra = TypeVar("_T_contra", contravariant=True)


class ObjectReports(Protocol[_T_contra]):
    """Receives the objects of a watch. Called by one thread."""

    def listed(self, items: Mapping[str, _T_contra], *, complete: bool) -> None:
        """The objects that there are now, by name. `complete`: there are no others."""

    def changed(self, name: str, value: _T_contra, *, deleted: bool = False) -> None:
        """Note one object. `deleted`: `value` is its last state."""

    def lost(self) -> None:
        """Note that the objects cannot be read any more."""


Refusals = Callable[[bool], None]
"""Told whether the API server refuses to list the objects, at each attempt."""


class ObjectWatch(ListWatch[tuple[Mapping[str, _T], int], Item[_T]]):
    """A list is the objects, and how many others are left out."""

    def __init__(
        self,
        api: Api,
        selector: Selector,
        read: Read[_T],
        reports: ObjectReports[_T],
        without: str,
        refusals: Refusals = lambda _refused: None,
    ) -> None:
        """`without`: what is not known without these objects, for the log."""
        role = Selector(kind=selector.kind, group=selector.group).rule("list", "watch")
        super().__init__(api, selector, without, "kubernetes-plans", _log, role)
        self._read_page = partial(read_page, read=read, qualified=api.qualified)
        self._read_change = partial(read_change, read=read, qualified=api.qualified)
        self._reports = reports
        self._connected = False
        self._refusals = refusals

    def _list(self) -> tuple[str, tuple[Mapping[str, _T], int]]:
        objects: dict[str, _T] = {}
        version, left_out = "", 0
        for page in self._api.pages(self._selector, self._read_page):
            version = version or page.resource_version
            room = MOST_OBJECTS - len(objects)
            objects |= {item.name: item.value for item in page.items[:room]}
            left_out += page.left_out + len(page.items[room:])
            if len(objects) >= MOST_OBJECTS:
                break
        return version, (objects, left_out)

    def _begin(self, listing: tuple[Mapping[str, _T], int]) -> None:
        objects, left_out = listing
        if not self._connected:
            _log.info("watching %s", self._selector)
            self._throttle.reset()
        self._connected = True
        self._refusals(False)
        if left_out:
            self._warn(
                f"{left_out} {self._selector} are left out: they cannot be decoded, or are more than {MOST_OBJECTS}"
            )
        self._reports.listed(objects, complete=not left_out)

    def _deadline(self) -> float:
        return time.monotonic() + _SILENCE_SECONDS

    def _decode(self, line: bytes) -> WatchEvent[Item[_T]]:
        return self._read_change(line)

    def _changed(self, event: WatchEvent[Item[_T]]) -> bool:
        if item := event.item:
            self._reports.changed(item.name, item.value, deleted=event.kind == "DELETED")
        else:
            self._warn(f"one of {self._selector} cannot be decoded")
        return True

    def _shortest_pause(self, error: ApiError) -> float:
        refused = error.status in {HTTPStatus.FORBIDDEN, HTTPStatus.NOT_FOUND}
        return _REFUSED_SECONDS if refused else super()._shortest_pause(error)

    def _disconnected(self, error: ApiError | None) -> None:
        status = error.status if error else None
        if status == HTTPStatus.FORBIDDEN:
            self._refusals(True)
        if self._connected:
            self._connected = False
            self._reports.lost()
        if status == HTTPStatus.NOT_FOUND:  # no such kind is installed: there are none
            self._refusals(False)
            self._reports.listed({}, complete=True)


GROUP: Final = "flink.apache.org/v1beta1"
_STOP_SECONDS: Final = 1.5


class DeploymentReports:
    """FlinkDeployments as observations of their clusters."""

    def __init__(
        self,
        clusters: frozenset[str] | None,
        clock: Callable[[], Moment],
        report: PlanObserver,
        makers: Makers,
        namespaces: Namespaces,
    ) -> None:
        """`clusters`: of these alone; None: of all. `makers`: told which there are."""
        self._makers = makers
        self._namespaces = namespaces
        self._clusters = clusters
        self._clock = clock
        self._report = report
        self._reported: set[str] = set()
        self._there: set[str] = set()

    def listed(self, items: Mapping[str, FlinkDeployment], *, complete: bool) -> None:
        at = self._clock()
        for name in sorted({*(items if self._clusters is None else self._clusters), *self._reported}):
            if name in items or complete:
                self._observed(at, name, items.get(name))
            else:
                self._report(DeploymentUnreadable(at, name))  # it may be one of those that are left out
        self._there = {*items}
        self._makers.deployments(self._there)
        (self._makers.read if complete else self._makers.unread)(Maker.FLINK_DEPLOYMENT)

    def changed(self, name: str, value: FlinkDeployment, *, deleted: bool = False) -> None:
        if self._clusters is None or name in self._clusters:
            self._observed(self._clock(), name, None if deleted else value)
        if (name in self._there) is deleted:
            (self._there.discard if deleted else self._there.add)(name)
            self._makers.deployments(self._there)

    def lost(self) -> None:
        self._makers.unread(Maker.FLINK_DEPLOYMENT)
        at = self._clock()
        for name in sorted(self._reported):
            self._report(DeploymentUnreadable(at, name))

    def _observed(self, at: Moment, name: str, value: FlinkDeployment | None) -> None:
        is_ending = name in self._reported and (value is None or value.deleting)
        ended_with = self._namespaces.ended_with(name) if is_ending else ""
        (self._reported.discard if value is None else self._reported.add)(name)
        self._report(DeploymentObserved(at, name, value, ended_with))


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
        end(self._watches, _STOP_SECONDS)

    def _report(self, observation: PlanObservation | EndObservation) -> None:
        if self._observer and not self._stopping.is_set():
            self._observer(observation)

    def _watches_of(self, access: Access, scope: Scope) -> Iterator[Cuttable]:
        def api() -> Api:
            return Api(access, scope.namespace, qualified=scope.qualified)

        only = next(iter(scope.clusters)) if scope.clusters is not None and len(scope.clusters) == 1 else ""

        def refusals(resource: str) -> Refusals:
            known: set[str] = set()

            def refused(refused: bool) -> None:
                if not refused and resource not in known:
                    return
                (known.add if refused else known.discard)(resource)  # clusters that are found later are told, too
                at = self._clock()
                for cluster_id in scope.every if scope.plans else ():
                    self._report(RightRefused(at, cluster_id, resource, refused))

            return refused

        namespaces = Namespaces(Api(access, None), scope.namespace)
        makers = Makers(scope.clusters_in, self._clock, self._report, scope.every, namespaces) if scope.plans else None
        if makers:
            yield ObjectWatch(
                api(),
                Selector(name=only, kind="FlinkDeployment", group=GROUP),
                flink_deployment,
                DeploymentReports(scope.clusters, self._clock, self._report, makers, namespaces),
                "whether failovers are planned is not known",
                refusals("flinkdeployments.flink.apache.org"),
            )
            for kind, group in GROUPS.items():
                selector, without = Selector(kind=kind, group=group), f"whether a {kind} is wanted is not known"
                refused = refusals(f"{selector.resource}.{group.partition('/')[0]}")
                yield ObjectWatch(api(), selector, maker_status(kind), MakerReports(kind, makers), without, refused)
        if not (scope.plans or scope.deaths):
            return
        logs = PreviousLogs(api(), self._clock, self._report) if scope.deaths else None
        pods = PodReports(Api(access, None), scope, self._clock, self._report, logs, makers)
        drain, why = "whether a failover is the drain of a node", "why a JobManager ended"
        unknown = f"{drain}, and {why}," if scope.plans and scope.deaths else why if scope.deaths else drain
        labelled = Selector(labels="component=jobmanager", kind="Pod")
        why = f"{unknown} is not known"
        yield ObjectWatch(api(), labelled, job_manager_pod, pods, why, refusals("pods"))
        if logs:
            yield logs
            events = EventReports(scope, pods, self._clock, self._report)
            of_pods = Selector(fields="involvedObject.kind=Pod", kind="Event")
            without = "whether the kubelet ended a JobManager because of a probe is not known"
            yield ObjectWatch(api(), of_pods, seen_event, events, without)
            name = f",involvedObject.name={only}" if only else ""
            of_operator = Selector(fields=f"involvedObject.kind=FlinkDeployment{name}", kind="Event")
            without = "whether the operator restarted a cluster is not known"
            yield ObjectWatch(api(), of_operator, seen_event, events, without)
