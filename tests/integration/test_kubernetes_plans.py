"""FlinkDeployments and evictions are read from a real API server, where that is allowed; where not, one line says what is missing."""

import logging
from collections.abc import Callable, Iterator
from typing import Any
from uuid import uuid4

import pytest

from sidecar.core.flink.deployments import FlinkDeployment, Maker, Reconciliation, Seen
from sidecar.core.observations import (
    DeploymentObserved,
    DeploymentUnreadable,
    EndObservation,
    MakerObserved,
    MakersListed,
    PlanObservation,
    PodDisrupted,
    RightRefused,
)
from sidecar.drivers.kubernetes import Access, plan_watch
from sidecar.drivers.kubernetes.plan_watch import DEPLOYMENTS_ROLE, PODS_ROLE, KubernetesPlans
from sidecar.drivers.kubernetes.pod_reports import NODES_ROLE, Scope
from tests.kit.driver_recorder import Observations, now
from tests.kit.flink_deployments import GROUP, Deployment, install, uninstall
from tests.kit.kubernetes_server import ApiServer, Json, Kubernetes, Namespace
from tests.kit.waiting import wait_for

JM = {"component": "jobmanager"}


class Recorder(Observations[PlanObservation | EndObservation]):
    """What was observed."""

    def deployments(self, cluster_id: str) -> list[FlinkDeployment | None]:
        found = [observation for observation in list(self.all) if isinstance(observation, DeploymentObserved)]
        return [each.deployment for each in found if each.cluster_id == cluster_id]

    def latest(self, cluster_id: str) -> FlinkDeployment | None:
        return ([None, *self.deployments(cluster_id)])[-1]

    def disrupted(self) -> list[tuple[str, str, str | None, bool]]:
        return [
            (pod.cluster_id, pod.pod, pod.node, pod.evicted) for pod in list(self.all) if isinstance(pod, PodDisrupted)
        ]

    def made(self, kind: Maker) -> list[Seen]:
        """What was reported of makers of this kind."""
        found = [observation.seen for observation in list(self.all) if isinstance(observation, MakerObserved)]
        return [seen for seen in found if seen.kind is kind]

    def there(self) -> set[str]:
        """The clusters with a FlinkDeployment."""
        return {seen.cluster_id for seen in list(self.all) if isinstance(seen, DeploymentObserved) and seen.deployment}

    def refused(self) -> list[tuple[str, bool]]:
        return [(seen.right, seen.refused) for seen in list(self.all) if isinstance(seen, RightRefused)]

    def candidates(self) -> list[set[str]]:
        """The names of all that may make JobManagers, each time that was reported."""
        listed = [seen.there for seen in list(self.all) if isinstance(seen, MakersListed)]
        return [{candidate.name for there in each.values() for candidate in there} for each in listed]

    def lost(self) -> list[str]:
        return [deployment.cluster_id for deployment in list(self.all) if isinstance(deployment, DeploymentUnreadable)]


Read = Callable[..., Recorder]


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """A refusal is tried again soon."""
    monkeypatch.setattr(plan_watch, "_REFUSED_SECONDS", 1.0)


@pytest.fixture
def namespace(kubernetes: Kubernetes) -> Namespace:
    install(kubernetes.server)
    return kubernetes.namespace(f"test-{uuid4()}")


@pytest.fixture
def read(kubernetes: Kubernetes, namespace: Namespace) -> Iterator[Read]:
    """Starts readers, and stops them when the test is over."""
    started: list[KubernetesPlans] = []

    def start(*clusters: str, user: str = "admin", everywhere: bool = False) -> Recorder:
        names = frozenset(clusters) or None
        scope = Scope(None if everywhere else namespace.name, names, plans=True, qualified=everywhere)
        plans, recorder = KubernetesPlans([(Access(kubernetes.kubeconfig(user), None), scope)], now), Recorder()
        started.append(plans)
        plans.start(recorder)
        return recorder

    yield start
    for plans in started:
        plans.stop()


@pytest.fixture
def deploy(kubernetes: Kubernetes, namespace: Namespace) -> Callable[..., Deployment]:
    return lambda name, **more: Deployment(kubernetes.server, namespace.name, name, **more)


def test_each_state_that_the_operator_writes_is_observed(read: Read, deploy: Callable[..., Deployment]) -> None:
    """From a change of the spec to its deployment, and to the end."""
    orders = deploy("orders")
    recorder = read("orders")
    wait_for("the first", lambda: recorder.latest("orders"))
    generation = orders.change()
    orders.says("UPGRADING")
    orders.says("DEPLOYED")
    orders.change(state="suspended")
    orders.delete()
    orders.release()
    wait_for("its end", lambda: len(recorder.deployments("orders")) == 7)
    first, changed, upgrading, deployed, suspended, deleting, gone = recorder.deployments("orders")
    assert first
    assert (first.reconciliation, first.suspended, first.owner) == (Reconciliation.DEPLOYED, False, None)
    assert changed
    assert (changed.generation, changed.observed_generation) == (generation, generation - 1)
    assert upgrading
    assert (upgrading.reconciliation, upgrading.observed_generation) == (Reconciliation.UPGRADING, generation)
    assert deployed
    assert (deployed.reconciled_at or 0) >= (upgrading.reconciled_at or 0) > (first.reconciled_at or 0) > 0
    assert suspended
    assert (suspended.suspended, suspended.deleting) == (True, False)
    assert deleting
    assert deleting.deleting
    assert gone is None


def test_of_several_clusters_one_list_and_one_watch(read: Read, deploy: Callable[..., Deployment]) -> None:
    """Others in the namespace are nobody's business; one without a FlinkDeployment has none."""
    deploy("orders")
    deploy("others")
    recorder = read("orders", "billing")
    wait_for("both", lambda: len({observation.cluster_id for observation in list(recorder.all)}) == 2)
    assert recorder.latest("orders")
    assert recorder.deployments("billing") == [None]
    deploy("billing", owner="pair")
    wait_for("the new one", lambda: recorder.latest("billing"))
    found = recorder.latest("billing")
    assert found
    assert found.owner == "pair"
    assert recorder.deployments("others") == []


def test_all_of_all_namespaces(read: Read, deploy: Callable[..., Deployment], namespace: Namespace) -> None:
    """Ids of clusters that are found have their namespace."""
    deploy("orders")
    recorder = read(everywhere=True)
    wait_for("it", lambda: recorder.latest(f"{namespace.name}/orders"))


def test_more_than_one_page(read: Read, deploy: Callable[..., Deployment], monkeypatch: pytest.MonkeyPatch) -> None:
    """All are read; beyond the most, the rest is left out, and that is logged."""
    monkeypatch.setattr("sidecar.drivers.kubernetes.api._FEW_IN_PAGE", 2)
    for number in range(5):
        deploy(f"orders-{number}")
    recorder = read()
    wait_for("all", lambda: all(recorder.latest(f"orders-{number}") for number in range(5)))
    monkeypatch.setattr(plan_watch, "MOST_OBJECTS", 3)
    few = read()
    wait_for("three", lambda: len(few.there()) == 3)


def about_deployments(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [line for line in caplog.messages if "flinkdeployments" in line]


@pytest.mark.parametrize(("granted", "missing"), [((), "list"), (("list",), "watch"), (("watch",), "list")])
def test_without_permission_one_line_says_which_rule_is_missing(
    read: Read,
    deploy: Callable[..., Deployment],
    namespace: Namespace,
    caplog: pytest.LogCaptureFixture,
    granted: tuple[str, ...],
    missing: str,
) -> None:
    """For each verb; and when it is granted, it goes on."""
    deploy("orders")
    if granted:
        namespace.allow("nobody", *granted, resource="flinkdeployments", group=GROUP)
    with caplog.at_level(logging.WARNING, "sidecar.plans"):
        recorder = read("orders", user="nobody")
        wait_for("the line", lambda: about_deployments(caplog))
        allowed = (
            f"the verb {missing} on the resource flinkdeployments of the group {GROUP} with resourceNames [orders]"
        )
        [line] = about_deployments(caplog)
        assert line.startswith("whether failovers are planned is not known: cannot")
        assert f"grant a Role in namespace {namespace.name} that allows {allowed}" in line
        assert DEPLOYMENTS_ROLE in line
        namespace.allow("nobody", "list", "watch", names=["orders"], resource="flinkdeployments", group=GROUP)
        wait_for("the deployment", lambda: recorder.latest("orders"))
        assert len(about_deployments(caplog)) == 1
    assert recorder.lost() == []


def test_without_the_operators_crd_one_line_says_so(
    kubernetes: Kubernetes, namespace: Namespace, read: Read, caplog: pytest.LogCaptureFixture
) -> None:
    """It is installed later: then it goes on; and what was known is unknown when it is removed."""
    uninstall(kubernetes.server)
    with caplog.at_level(logging.WARNING, "sidecar.plans"):
        recorder = read("orders")
        wait_for("the line", lambda: caplog.messages)
        assert (
            "there is no such resource (404): the CRD flinkdeployments.flink.apache.org is not installed" in caplog.text
        )
        install(kubernetes.server)
        Deployment(kubernetes.server, namespace.name, "orders")
        wait_for("the deployment", lambda: recorder.latest("orders"), seconds=60)


HOSTILE: dict[str, Json] = {
    "nothing": {},
    "numbers": {"spec": {"job": {"state": 7}}, "status": {"observedGeneration": "x", "reconciliationStatus": [1]}},
    "texts": {
        "spec": {"job": "running"},
        "status": {"reconciliationStatus": {"state": {}, "reconciliationTimestamp": 1e300}},
    },
    "huge": {"status": {"observedGeneration": 2**62, "reconciliationStatus": {"state": "X" * 100_000}}},
    "no objects": {"spec": 7, "status": "UPGRADING"},
}


def test_objects_with_anything_in_them_hide_no_other(
    kubernetes: Kubernetes, read: Read, namespace: Namespace, caplog: pytest.LogCaptureFixture
) -> None:
    """A CRD without types: what cannot be decoded is left out and logged, odd values count as absent. Listed, and delivered by a watch."""
    uninstall(kubernetes.server)
    install(kubernetes.server, strict=False)
    path = f"/apis/{GROUP}/v1beta1/namespaces/{namespace.name}/flinkdeployments"
    head = {"apiVersion": f"{GROUP}/v1beta1", "kind": "FlinkDeployment"}

    def create(name: str, body: Json) -> None:
        kubernetes.server.ask("POST", path, {**head, "metadata": {"name": name}, **body})

    try:
        for number, body in enumerate(HOSTILE.values()):
            create(f"before-{number}", body)
        create("good", {"spec": {"job": {"state": "suspended"}}})
        with caplog.at_level(logging.WARNING, "sidecar.plans"):
            recorder = read()
            wait_for("the good one", lambda: recorder.latest("good"))
            known = read("good", "before-4", "missing")
            wait_for("all three", lambda: len(list(known.all)) == 3)
            assert known.lost() == ["before-4", "missing"]
            for number, body in enumerate(HOSTILE.values()):
                create(f"after-{number}", body)
            create("last", {"spec": {"job": {"state": "suspended"}}})
            wait_for("the last one", lambda: recorder.latest("last"))
        assert "1 FlinkDeployments are left out" in caplog.text
        assert "one of FlinkDeployments cannot be decoded" in caplog.text
        for name in (f"{when}-{number}" for when in ("before", "after") for number in range(4)):
            found = recorder.latest(name)
            assert found
            assert (found.is_wanted, found.reconciliation, found.observed_generation) == (True, None, None)
    finally:
        uninstall(kubernetes.server)
        install(kubernetes.server)


# -- Deployments, StatefulSets and Jobs ---------------------------------------------------------------------------------


class Made:
    """A maker of JobManagers called `jm`, without a controller."""

    def __init__(self, server: ApiServer, namespace: Namespace, kind: Maker, **spec: Any) -> None:
        group = "batch/v1" if kind is Maker.JOB else "apps/v1"
        self._server = server
        self._path = f"/apis/{group}/namespaces/{namespace.name}/{kind.lower()}s"
        labels: Json = {"app": "mine", **JM}
        pod: Json = {"containers": [{"name": "jobmanager", "image": "flink"}]}
        if kind is Maker.JOB:
            pod |= {"restartPolicy": "Never"}
        else:
            spec |= {"selector": {"matchLabels": labels}, "replicas": 1}
        template = {"metadata": {"labels": labels}, "spec": pod}
        head = {"apiVersion": group, "kind": kind.value, "metadata": {"name": "jm"}}
        server.ask("POST", self._path, {**head, "spec": {**spec, "template": template}})

    def specifies(self, **spec: Any) -> None:
        made = self._server.ask("GET", f"{self._path}/jm")
        self._server.ask("PUT", f"{self._path}/jm", {**made, "spec": {**made["spec"], **spec}})

    def restarts(self) -> None:
        """As `kubectl rollout restart` does it."""
        template = self._server.ask("GET", f"{self._path}/jm")["spec"]["template"]
        self.specifies(
            template={**template, "metadata": {**template["metadata"], "annotations": {"restartedAt": "now"}}}
        )

    def says(self, **status: Any) -> None:
        made = self._server.ask("GET", f"{self._path}/jm")
        self._server.ask("PUT", f"{self._path}/jm/status", {**made, "status": status})

    def delete(self) -> None:
        self._server.ask("DELETE", f"{self._path}/jm")


def status(generation: int, **more: Any) -> dict[str, Any]:
    return {"observedGeneration": generation, "replicas": 1, "updatedReplicas": 1, "readyReplicas": 1, **more}


def test_a_deployment_is_known_by_the_pod_that_it_makes(
    kubernetes: Kubernetes, read: Read, namespace: Namespace
) -> None:
    """By the name of the pod's ReplicaSet. Rolled out, stuck, scaled to 0 and deleted: each is observed."""
    made = Made(kubernetes.server, namespace, Maker.DEPLOYMENT)
    made.says(**status(1))
    owner = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "jm-5f6d", "uid": str(uuid4()), "controller": True}
    namespace.run_pod("jm-5f6d-x", "10.1.2.3", labels={"app": "mine", "pod-template-hash": "5f6d", **JM}, owner=owner)
    recorder = read("orders")

    def latest() -> FlinkDeployment | None:
        return ([None, *(seen.deployment for seen in recorder.made(Maker.DEPLOYMENT))])[-1]

    def stands(what: str, is_so: Callable[[FlinkDeployment], bool]) -> None:
        wait_for(what, lambda: (now_seen := latest()) is not None and is_so(now_seen))

    wait_for("its pod", lambda: any("10.1.2.3" in seen.hosts for seen in recorder.made(Maker.DEPLOYMENT)))
    [*_, seen] = recorder.made(Maker.DEPLOYMENT)
    assert (seen.name, seen.app, seen.alone) == ("jm", "mine", True)
    made.restarts()
    stands("the rollout", lambda it: it.reconciliation is Reconciliation.UPGRADING)
    made.says(**status(2))
    stands("its end", lambda it: it.reconciliation is Reconciliation.DEPLOYED and it.observed_generation == 2)
    late = {"type": "Progressing", "status": "False", "reason": "ProgressDeadlineExceeded"}
    made.says(**status(2, conditions=[late]))
    stands("what is wrong", lambda it: it.stuck == "ProgressDeadlineExceeded")
    made.specifies(replicas=0)
    stands("the scaling", lambda it: it.suspended)
    made.delete()
    wait_for("the end", lambda: latest() is None)


def test_a_stateful_set_and_a_job_are_read_too(kubernetes: Kubernetes, read: Read, namespace: Namespace) -> None:
    """The one by its revisions, the other by its completion."""
    made = Made(kubernetes.server, namespace, Maker.STATEFUL_SET, serviceName="jm")
    job = Made(kubernetes.server, namespace, Maker.JOB)
    recorder = read("orders")

    def found(kind: Maker) -> list[FlinkDeployment]:
        return [seen.deployment for seen in recorder.made(kind) if seen.deployment]

    wait_for("both", lambda: found(Maker.STATEFUL_SET) and found(Maker.JOB))
    made.says(**status(1, currentRevision="a", updateRevision="b"))
    wait_for("it", lambda: found(Maker.STATEFUL_SET)[-1].reconciliation is Reconciliation.UPGRADING)
    made.says(**status(1, currentRevision="b", updateRevision="b"))
    wait_for("its end", lambda: found(Maker.STATEFUL_SET)[-1].reconciliation is Reconciliation.DEPLOYED)
    assert not found(Maker.JOB)[-1].finished
    job.says(conditions=[{"type": "Complete", "status": "True"}])
    wait_for("the completion", lambda: found(Maker.JOB)[-1].finished)
    assert not found(Maker.JOB)[-1].is_wanted


def test_what_may_make_job_managers_is_known_when_everything_was_read(
    kubernetes: Kubernetes, read: Read, namespace: Namespace, deploy: Callable[..., Deployment]
) -> None:
    """None at first; also where the CRD is not installed; and each time that it changes."""
    uninstall(kubernetes.server)
    recorder = read("orders")
    wait_for("the lists", lambda: recorder.candidates() == [set()])
    made = Made(kubernetes.server, namespace, Maker.DEPLOYMENT)
    wait_for("it", lambda: recorder.candidates()[-1] == {"jm"})
    made.delete()
    wait_for("its end", lambda: recorder.candidates()[-1] == set())
    install(kubernetes.server)
    deploy("orders")
    wait_for("the FlinkDeployment", lambda: recorder.candidates()[-1] == {"orders"}, seconds=60)


@pytest.mark.parametrize("allowed", [True, False])
def test_a_namespace_that_is_deleted_is_named_where_its_role_may_get_it(
    kubernetes: Kubernetes, read: Read, namespace: Namespace, *, allowed: bool
) -> None:
    """A Role of the namespace is enough."""
    for resource, group in (("pods", ""), ("deployments", "apps")):
        namespace.allow("somebody", "list", "watch", resource=resource, group=group)
    if allowed:
        namespace.allow("somebody", "get", resource="namespaces")
    made = Made(kubernetes.server, namespace, Maker.DEPLOYMENT)
    recorder = read("orders", user="somebody")
    wait_for("it", lambda: recorder.made(Maker.DEPLOYMENT))
    kubernetes.server.ask("DELETE", f"/api/v1/namespaces/{namespace.name}")
    made.delete()
    wait_for("its end", lambda: recorder.made(Maker.DEPLOYMENT)[-1].deployment is None)
    assert recorder.made(Maker.DEPLOYMENT)[-1].namespace == (namespace.name if allowed else "")


def test_each_right_that_is_refused_is_reported_until_it_is_granted(read: Read, namespace: Namespace) -> None:
    """Those that nobody refuses are not."""
    namespace.allow("lister", "list", "watch", resource="pods")
    recorder = read("orders", user="lister")
    rights = {"deployments.apps", "statefulsets.apps", "jobs.batch", "flinkdeployments.flink.apache.org"}
    wait_for("all", lambda: {right for right, refused in recorder.refused() if refused} == rights)
    namespace.allow("lister", "list", "watch", resource="jobs", group="batch")
    wait_for("one", lambda: ("jobs.batch", False) in recorder.refused())
    assert {right for right, refused in recorder.refused() if not refused} == {"jobs.batch"}


# -- evictions ---------------------------------------------------------------------------------------------------------


def node(kubernetes: Kubernetes, *, cordoned: bool) -> str:
    name = f"node-{uuid4()}"
    kubernetes.server.ask("POST", "/api/v1/nodes", {"metadata": {"name": name}, "spec": {"unschedulable": cordoned}})
    return name


def test_an_eviction_is_observed_and_other_disruptions_are_not(
    kubernetes: Kubernetes, read: Read, namespace: Namespace
) -> None:
    """The condition by its reason; a pod that is deleted from a cordoned node; not one that is deleted from another node."""
    cordoned, open_node = node(kubernetes, cordoned=True), node(kubernetes, cordoned=False)
    for number, place in enumerate(["", "", cordoned, open_node, cordoned]):
        labels = {"app": "orders", **(JM if number < 4 else {"component": "taskmanager"})}
        namespace.run_pod(f"jm-{number}", f"10.1.2.{number}", labels=labels, node=place)
    recorder = read("orders")
    namespace.disrupt_pod("jm-0", "EvictionByEvictionAPI")
    namespace.disrupt_pod("jm-1", "TerminationByKubelet")
    for number in (4, 3, 2):
        namespace.delete_pod(f"jm-{number}")
    wait_for("both", lambda: len(recorder.disrupted()) == 2)
    assert sorted(recorder.disrupted()) == [("orders", "jm-0", None, True), ("orders", "jm-2", cordoned, False)]


def test_a_pod_that_people_describe_themselves_may_be_any_clusters(read: Read, namespace: Namespace) -> None:
    """Its labels do not have the id: its address says whose leader it was."""
    namespace.run_pod("jm", "10.1.2.3", labels={"app": "flink", **JM})
    namespace.disrupt_pod("jm", "EvictionByEvictionAPI")
    recorder = read("orders", "billing")
    wait_for("both", lambda: len(recorder.disrupted()) == 2)
    assert {disruption[0] for disruption in recorder.disrupted()} == {"orders", "billing"}


def test_pods_and_nodes_need_their_roles(
    kubernetes: Kubernetes, read: Read, namespace: Namespace, caplog: pytest.LogCaptureFixture
) -> None:
    """One line for each kind."""
    namespace.run_pod("jm", "10.1.2.3", labels={"app": "orders", **JM}, node=node(kubernetes, cordoned=True))
    with caplog.at_level(logging.WARNING, "sidecar.plans"):
        recorder = read("orders", user="somebody")
        wait_for("the lines", lambda: len(caplog.messages) == 5)
        assert PODS_ROLE in caplog.text
        for group, resource in (("apps", "deployments"), ("apps", "statefulsets"), ("batch", "jobs")):
            assert (
                f"the Role needs {{apiGroups: [{group}], resources: [{resource}], verbs: [list, watch]}}" in caplog.text
            )
        namespace.allow("somebody", "list", "watch", resource="pods")
        namespace.delete_pod("jm")
        wait_for("the other line", lambda: NODES_ROLE in caplog.text)
    assert recorder.disrupted() == []


def test_it_stops_at_once_and_twice(kubernetes: Kubernetes, namespace: Namespace) -> None:
    """While it watches, and before it was started."""
    scope = Scope(namespace.name, None, plans=True)
    plans = KubernetesPlans([(Access(kubernetes.kubeconfig(), None), scope)], now)
    plans.stop()
    plans = KubernetesPlans([(Access(kubernetes.kubeconfig(), None), scope)], now)
    plans.start(Recorder())
    plans.stop()
    plans.stop()
