"""Whether the sidecar, and Flink, may do what they have to: asked of the API server, which knows all Roles."""

from collections.abc import Iterator, Mapping
from functools import partial
from typing import Final, NamedTuple

from sidecar.core.flink.configmaps import cluster_config_map
from sidecar.core.ha.kubernetes_facts import Right
from sidecar.drivers.kubernetes.api import Api, Selector
from sidecar.drivers.kubernetes.deployed_objects import is_allowed
from sidecar.drivers.kubernetes.ledger import ledger_name
from sidecar.settings import KubernetesSettings

REVIEWS: Final = "authorization.k8s.io/v1"
REVIEWS_ROLE: Final = "{apiGroups: [authorization.k8s.io], resources: [localsubjectaccessreviews], verbs: [create]}"
_FLINK_VERBS: Final = ("get", "list", "watch", "create", "update", "patch", "delete")
"""The verbs that Flink needs for ConfigMaps. `patch`: fabric8 renews the lease by it since Flink 1.18."""


class Need(NamedTuple):
    """A permission that an account needs."""

    purpose: str
    verbs: tuple[str, ...]
    resource: str
    group: str = ""
    name: str = ""


def needs_of(cluster: KubernetesSettings, *, ledger: bool) -> Iterator[Need]:
    """The permissions that the sidecar needs with its present settings. `ledger`: whether it keeps its documents in Kubernetes."""
    yield Need("the leaders", ("list", "watch"), "configmaps", name=cluster_config_map(cluster.cluster_id))
    if ledger:
        name = ledger_name(cluster.cluster_id)
        yield Need("ledger, handover and silences", ("get", "patch"), "configmaps", name=name)
    if cluster.pod_names:
        yield Need("pod_names", ("list",), "pods")
    if cluster.events:
        yield Need("events", ("create", "get", "patch"), "events")
    if cluster.plans:
        yield Need("plans", ("list", "watch"), "flinkdeployments", "flink.apache.org", cluster.cluster_id)
        yield Need("plans", ("list", "watch"), "deployments", "apps")
        yield Need("plans", ("list", "watch"), "statefulsets", "apps")
        yield Need("plans", ("list", "watch"), "jobs", "batch")
        yield Need("plans", ("get",), "namespaces", name=cluster.namespace)
    if cluster.plans or cluster.deaths:
        yield Need("deaths" if cluster.deaths else "plans", ("list", "watch"), "pods")
    if cluster.deaths:
        yield Need("deaths", ("list", "watch"), "events")
        yield Need("deaths", ("get",), "pods/log")


def own_rights(access_reviews: Api, namespace: str, needs: Iterator[Need]) -> Iterator[Right]:
    """The rights of the sidecar's account among `needs`, one request each. `access_reviews` has no namespace. Raises ApiError."""
    ask = partial(_is_allowed, access_reviews, "SelfSubjectAccessReview", namespace, {})
    return (_right(need, verb, allowed=ask(need, verb)) for need in needs for verb in need.verbs)


def flink_rights(api: Api, namespace: str, account: str) -> Iterator[Right]:
    """The rights of a service account of `namespace` among those that Flink needs, one request each. `api` is of that namespace. Raises
    ApiError."""
    need = Need("Flink's high availability", _FLINK_VERBS, "configmaps")
    user: dict[str, object] = {
        "user": f"system:serviceaccount:{namespace}:{account}",
        "groups": ["system:serviceaccounts", f"system:serviceaccounts:{namespace}", "system:authenticated"],
    }
    ask = partial(_is_allowed, api, "LocalSubjectAccessReview", namespace, user)
    return (_right(need, verb, allowed=ask(need, verb)) for verb in need.verbs)


def _is_allowed(api: Api, kind: str, namespace: str, user: Mapping[str, object], need: Need, verb: str) -> bool:
    resource, _, part = need.resource.partition("/")
    about = {"namespace": namespace, "verb": verb, "group": need.group, "resource": resource, "subresource": part}
    review = {
        "apiVersion": REVIEWS,
        "kind": kind,
        "metadata": {"namespace": namespace} if user else {},
        "spec": {"resourceAttributes": about | {"name": need.name}, **user},
    }
    return api.exchange("create", Selector(kind=kind, group=REVIEWS), review, is_allowed)


def _right(need: Need, verb: str, *, allowed: bool) -> Right:
    return Right(verb, need.resource, need.group, need.name, need.purpose, allowed)
