"""Reads how a Flink cluster is deployed in Kubernetes: the facts of `ha check`."""

import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from http import HTTPStatus
from itertools import chain, islice
from typing import Final, NamedTuple, TypeVar

from msgspec.structs import replace

from sidecar.core.flink.configmaps import cluster_config_map
from sidecar.core.ha.finding import UnknownFact
from sidecar.core.ha.kubernetes_facts import (
    JOB_MANAGER,
    TASK_MANAGER,
    DisruptionBudget,
    FlinkPod,
    FlinkRights,
    HaConfigMap,
    KubernetesFacts,
    Right,
    Workload,
    is_incomplete,
    job_managers_of,
)
from sidecar.core.sanitize import clean
from sidecar.drivers.kubernetes.access import Access, ApiError
from sidecar.drivers.kubernetes.api import Api, Selector
from sidecar.drivers.kubernetes.deployed_objects import (
    configured_options,
    deployed_job_managers,
    disruption_budget,
    election_times,
    flink_pod,
    ha_config_map,
    is_allowed,
    workload,
)
from sidecar.drivers.kubernetes.kubernetes_ledger import ledger_name
from sidecar.drivers.kubernetes.objects import Full, read_object, read_objects
from sidecar.drivers.kubernetes.plan_watch import GROUP
from sidecar.settings import KubernetesSettings
from sidecar.settings.file.settings_error import SettingsError

REVIEWS: Final = "authorization.k8s.io/v1"
_FLINK_VERBS: Final = ("get", "list", "watch", "create", "update", "patch", "delete")
"""The verbs that Flink needs for ConfigMaps. `patch`: fabric8 renews the lease by it since Flink 1.18."""


class NeededPermission(NamedTuple):
    """A permission that an account needs."""

    purpose: str
    verbs: tuple[str, ...]
    resource: str
    group: str = ""
    name: str = ""


def needs_of(cluster: KubernetesSettings, *, ledger: bool) -> Iterator[NeededPermission]:
    """The permissions that the sidecar needs with its present settings. `ledger`: whether it keeps its documents in Kubernetes."""
    yield NeededPermission("the leaders", ("list", "watch"), "configmaps", name=cluster_config_map(cluster.cluster_id))
    if ledger:
        name = ledger_name(cluster.cluster_id)
        yield NeededPermission("ledger, handover and silences", ("get", "patch"), "configmaps", name=name)
    if cluster.pod_names:
        yield NeededPermission("pod_names", ("list",), "pods")
    if cluster.events:
        yield NeededPermission("events", ("create", "get", "patch"), "events")
    if cluster.plans:
        yield NeededPermission("plans", ("list", "watch"), "flinkdeployments", "flink.apache.org", cluster.cluster_id)
        yield NeededPermission("plans", ("list", "watch"), "deployments", "apps")
        yield NeededPermission("plans", ("list", "watch"), "statefulsets", "apps")
        yield NeededPermission("plans", ("list", "watch"), "jobs", "batch")
        yield NeededPermission("plans", ("get",), "namespaces", name=cluster.namespace)
    if cluster.plans or cluster.deaths:
        yield NeededPermission("deaths" if cluster.deaths else "plans", ("list", "watch"), "pods")
    if cluster.deaths:
        yield NeededPermission("deaths", ("list", "watch"), "events")
        yield NeededPermission("deaths", ("get",), "pods/log")


_SECONDS: Final = 60.0
"""The time for the whole probe. A fact that is not read by then is not known."""
_MOST_OBJECTS: Final = 5_000
"""The most objects of one kind in a namespace. Beyond that the kind is not known: half of it would be a wrong answer."""
_LATER_SECONDS: Final = 7.0
"""More than Flink's period of renewals, 5 s."""
_LONGEST_REASON: Final = 300
_LABEL: Final = "type=flink-native-kubernetes"
_TOO_LATE: Final = UnknownFact(f"the API server took longer than {_SECONDS:g} s for all that is read")
_NO_SUCH_KIND: Final = UnknownFact("the API server does not know this kind of objects")

_T = TypeVar("_T")


class DeploymentProbe:
    """Reads the facts of one cluster. Only reads, but for access reviews, which the API server does not keep.

    Each request has a time limit, and so has all of it. A request that is refused makes only its own facts unknown.
    """

    def __init__(
        self, access: Access, cluster: KubernetesSettings, wall: Callable[[], int], *, ledger: bool = True
    ) -> None:
        """`access` must not be shared: it is cut by `stop`. `wall`: microseconds. `ledger`: whether the sidecar's documents are in
        Kubernetes.
        """
        self._cluster = cluster
        self._wall = wall
        self._ledger = ledger
        self._api = Api(access, cluster.namespace)
        self._reviews = Api(access, None)
        self._stopping = threading.Event()
        self._deadline = 0.0

    def stop(self) -> None:
        """End soon. From any thread, repeatedly."""
        self._stopping.set()
        self._api.cut()

    def read(self) -> KubernetesFacts:
        """The facts of this moment. Never raises: what cannot be read is Unknown."""
        self._deadline = time.monotonic() + _SECONDS
        try:
            return self._facts()
        finally:
            self._api.reopen()  # an hour until the next time: no connection is kept
            self._reviews.reopen()

    def _facts(self) -> KubernetesFacts:
        leaders = self._leaders()
        labelled = Selector(labels=f"component in ({JOB_MANAGER},{TASK_MANAGER})", kind="Pod")
        facts = KubernetesFacts(
            cluster_id=self._cluster.cluster_id,
            namespace=self._cluster.namespace,
            read_at=self._wall(),
            pods=self._list(labelled, flink_pod),
            budgets=self._budgets(),
            workloads=self._workloads(),
            flink_deployments=self._flink_deployments(),
            leaders=leaders,
            config_maps=self._list(Selector(labels=_LABEL), ha_config_map),
            own_rights=self._own_rights(),
        )
        pods = job_managers_of(facts)
        job_managers = () if isinstance(pods, UnknownFact) else pods
        # What the arguments and environment of JobManagers set overrides the ConfigMap.
        properties = next((pod.properties for pod in job_managers if pod.properties), {})
        conf_maps = (pod.conf_map for pod in job_managers if pod.conf_map)
        options = self._options(next(conf_maps, f"flink-config-{facts.cluster_id}"))
        return replace(
            facts,
            memory=options,
            election=options if isinstance(options, UnknownFact) else election_times({**options, **properties}),
            flink_rights=pods if isinstance(pods, UnknownFact) else self._flink_rights(pods),
            leaders_later=self._leaders_later(leaders),
        )

    # -- kinds of objects ----------------------------------------------------------------------------------------------

    def _leaders(self) -> HaConfigMap | UnknownFact | None:
        """The cluster's leader ConfigMap, read by name, which every Role allows."""
        selector = Selector(name=cluster_config_map(self._cluster.cluster_id))
        config_maps = self._list(selector, ha_config_map)
        return config_maps if isinstance(config_maps, UnknownFact) else next(iter(config_maps), None)

    def _leaders_later(self, leaders: HaConfigMap | UnknownFact | None) -> HaConfigMap | None:
        """Once more, if a component is without a leader: whether the holder of the lease renews it all the same takes two reads."""
        if not isinstance(leaders, HaConfigMap) or not is_incomplete(leaders) or self._stopping.wait(_LATER_SECONDS):
            return None
        later = self._leaders()
        return None if isinstance(later, UnknownFact) else later

    def _budgets(self) -> tuple[DisruptionBudget, ...] | UnknownFact:
        """policy/v1 is as old as Kubernetes 1.21."""
        newer = partial(disruption_budget, empty_selects_all=True)
        older = partial(disruption_budget, empty_selects_all=False)
        for group, read in (("policy/v1", newer), ("policy/v1beta1", older)):
            budgets = self._list(Selector(kind="PodDisruptionBudget", group=group), read)
            if budgets is not _NO_SUCH_KIND:
                break
        return budgets

    def _workloads(self) -> tuple[Workload, ...] | UnknownFact:
        workloads: tuple[Workload, ...] = ()
        for kind in ("Deployment", "StatefulSet"):
            listed = self._list(Selector(kind=kind, group="apps/v1"), workload(kind))
            if isinstance(listed, UnknownFact):
                return listed
            workloads += listed
        return workloads

    def _flink_deployments(self) -> Mapping[str, int | None] | UnknownFact:
        """None where the operator is not installed."""
        deployments = self._list(Selector(kind="FlinkDeployment", group=GROUP), deployed_job_managers)
        if deployments is _NO_SUCH_KIND:
            return {}
        return deployments if isinstance(deployments, UnknownFact) else dict(deployments)

    def _options(self, name: str) -> Mapping[str, str] | UnknownFact:
        selector = Selector(name=name)

        def read() -> Mapping[str, str]:
            return configured_options(self._api.exchange("get", selector, None, read_object))

        return self._ask(read, "get", selector)

    def _own_rights(self) -> tuple[Right, ...] | UnknownFact:
        needs = needs_of(self._cluster, ledger=self._ledger)
        return self._rights(self._reviews, "SelfSubjectAccessReview", {}, needs)

    def _flink_rights(self, job_managers: tuple[FlinkPod, ...]) -> FlinkRights | UnknownFact:
        """The rights of Flink's service account among those that Flink needs."""
        if not job_managers:
            return UnknownFact("there is no JobManager's pod, which would name the service account")
        account, namespace = job_managers[0].service_account or "default", self._cluster.namespace
        user = {
            "user": f"system:serviceaccount:{namespace}:{account}",
            "groups": ["system:serviceaccounts", f"system:serviceaccounts:{namespace}", "system:authenticated"],
        }
        need = NeededPermission("Flink's high availability", _FLINK_VERBS, "configmaps")
        rights = self._rights(self._api, "LocalSubjectAccessReview", user, [need])
        return rights if isinstance(rights, UnknownFact) else FlinkRights(account, rights)

    def _rights(
        self, api: Api, kind: str, user: Mapping[str, object], needs: Iterable[NeededPermission]
    ) -> tuple[Right, ...] | UnknownFact:
        """The rights of a user among `needs`, one request each; empty: of our own account."""
        selector, namespace = Selector(kind=kind, group=REVIEWS), self._cluster.namespace

        def right(need: NeededPermission, verb: str) -> Right:
            resource, _, part = need.resource.partition("/")
            about = {"namespace": namespace, "verb": verb, "group": need.group, "resource": resource}
            review = {
                "apiVersion": REVIEWS,
                "kind": kind,
                "metadata": {"namespace": namespace} if user else {},
                "spec": {"resourceAttributes": about | {"subresource": part, "name": need.name}, **user},
            }
            allowed = api.exchange("create", selector, review, is_allowed)
            return Right(verb, need.resource, need.group, need.name, need.purpose, allowed)

        rights = (right(need, verb) for need in needs for verb in need.verbs)
        return self._ask(lambda: tuple(self._answers_in_time(rights)), "create", selector)

    # -- requests ------------------------------------------------------------------------------------------------------

    def _list(self, selector: Selector, read: Callable[[Full], _T | None]) -> tuple[_T, ...] | UnknownFact:
        """All objects that `selector` selects; `_NO_SUCH_KIND` where the API server does not know them."""
        pages = self._answers_in_time(self._api.pages(selector, partial(read_objects, read=read)))
        limited = islice(chain.from_iterable(pages), _MOST_OBJECTS + 1)
        objects = self._ask(lambda: tuple(limited), "list", selector)
        if not isinstance(objects, UnknownFact) and len(objects) > _MOST_OBJECTS:
            return UnknownFact(f"there are more than {_MOST_OBJECTS} {selector}")
        return objects

    def _answers_in_time(self, answers: Iterator[_T]) -> Iterator[_T]:
        """The answers, each to one request. Raises ApiError after the time for everything."""
        for answer in answers:
            yield answer
            if self._is_over():
                raise ApiError(_TOO_LATE.reason)

    def _ask(self, request: Callable[[], _T], verb: str, selector: Selector) -> _T | UnknownFact:
        """The answer, or why there is none."""
        if self._is_over():
            return _TOO_LATE
        try:
            return request()
        except ApiError as error:
            if error.status == HTTPStatus.NOT_FOUND:
                return _NO_SUCH_KIND if not selector.name else UnknownFact(f"there is no {selector}")
            if error.status == HTTPStatus.FORBIDDEN:
                return UnknownFact(f"not permitted: the Role needs {selector.rule(verb)}")
            return UnknownFact(clean(error, _LONGEST_REASON))
        except SettingsError as error:
            return UnknownFact(clean(error, _LONGEST_REASON))

    def _is_over(self) -> bool:
        return self._stopping.is_set() or time.monotonic() > self._deadline
