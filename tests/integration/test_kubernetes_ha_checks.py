"""How a cluster is deployed, read from a real API server: each fault made there is a RISK, and without the right to read it an UNKNOWN."""

import json
import time
from collections.abc import Callable, Sequence
from typing import Any, Final
from urllib.error import HTTPError
from uuid import uuid4

import pytest

from sidecar.core.flink.configmaps import cluster_config_map
from sidecar.core.ha.finding import CheckVerdict, Finding, UnknownFact
from sidecar.core.ha.kubernetes_facts import KubernetesFacts
from sidecar.core.ha.results import KUBERNETES_CHECKS
from sidecar.core.moment import SECOND, timestamp
from sidecar.drivers.kubernetes import Access, deployment_probe
from sidecar.drivers.kubernetes.deployment_probe import DeploymentProbe
from sidecar.settings import KubernetesSettings
from tests.kit.config_maps import LEADER
from tests.kit.driver_recorder import now
from tests.kit.flink_deployments import install
from tests.kit.kubernetes_server import Json, Kubernetes
from tests.kit.repeating import repeating

CLUSTER: Final = "orders"
JOB: Final = "a" * 32
LABELS: Final = {"app": CLUSTER, "type": "flink-native-kubernetes"}
APPS: Final = "/apis/apps/v1/namespaces/{}/deployments"
BUDGETS: Final = "/apis/policy/v1beta1/namespaces/{}/poddisruptionbudgets"
FLINK_VERBS: Final = ("get", "list", "watch", "create", "update", "patch", "delete")
CONFIG: Final = """\
high-availability.kubernetes.leader-election:
  renew-deadline: 10 s
jobmanager.memory.process.size: 1600m
s3.secret-key: not-to-be-shown
"""
DEFAULTS: Final = "jobmanager.memory.process.size: 1600m\n"
KIND: Final = {"apiVersion": "flink.apache.org/v1beta1", "kind": "FlinkDeployment"}
READS: Final = (
    *(
        ("pods", ""),
        ("configmaps", ""),
        ("poddisruptionbudgets", "policy"),
        ("deployments", "apps"),
        ("statefulsets", "apps"),
    ),
    ("flinkdeployments", "flink.apache.org"),
)


class Flink:
    """A cluster as its owner would apply it, in a namespace of its own: two JobManagers, a budget, all rights. There is no kubelet."""

    def __init__(self, kubernetes: Kubernetes) -> None:
        self.kubernetes = kubernetes
        self.namespace = kubernetes.namespace(f"test-{uuid4()}")
        self.name = self.namespace.name

    def apply(self, path: str, body: Json) -> Json:
        return self.kubernetes.server.ask("POST", path.format(self.name), body)

    def remove(self, path: str, name: str) -> None:
        self.kubernetes.server.ask("DELETE", f"{path.format(self.name)}/{name}", {"gracePeriodSeconds": 0})

    def pod(
        self, name: str, node: str, *, component: str = "jobmanager", container: Json | None = None, **spec: Any
    ) -> None:
        main = {
            "name": "flink-main-container",
            "image": "flink:2.3.0",
            "resources": {"limits": {"memory": "1600Mi"}},
            "livenessProbe": {"tcpSocket": {"port": 6123}, "initialDelaySeconds": 30, "periodSeconds": 60},
            "env": [{"name": "PASSWORD", "value": "not-to-be-shown"}],
            "volumeMounts": [{"name": "flink-config-volume", "mountPath": "/opt/flink/conf"}],
            **(container or {}),
        }
        volume = {"name": "flink-config-volume", "configMap": {"name": "flink-config-orders"}}
        body = {
            "metadata": {"name": name, "labels": LABELS | {"component": component}},
            "spec": {
                "containers": [main],
                "nodeName": node,
                "serviceAccountName": "flink",
                "volumes": [volume],
                **spec,
            },
        }
        path = f"/api/v1/namespaces/{self.name}/pods"
        pod = self.apply(path, body)
        running = {
            "name": "flink-main-container",
            "state": {"running": {}},
            "ready": True,
            "restartCount": 0,
            "image": "",
            "imageID": "",
        }
        pod["status"] |= {"phase": "Running", "containerStatuses": [running]}
        self.kubernetes.server.ask("PUT", f"{path}/{name}/status", pod)

    def deploy_named(self, app: str, replicas: int) -> None:
        labels = LABELS | {"app": app, "component": "jobmanager"}
        template = {"metadata": {"labels": labels}, "spec": {"containers": [{"name": "c", "image": "flink"}]}}
        spec = {"replicas": replicas, "selector": {"matchLabels": labels}, "template": template}
        self.apply(APPS, {"metadata": {"name": app}, "spec": spec})

    def deploy(self) -> None:
        self.deploy_named(CLUSTER, 2)
        selector = {"matchLabels": LABELS | {"component": "jobmanager"}}
        self.apply(BUDGETS, {"metadata": {"name": CLUSTER}, "spec": {"minAvailable": 1, "selector": selector}})
        for n in range(2):
            self.pod(f"jm-{n}", f"node-{n}")
        self.pod("tm-0", "node-0", component="taskmanager")
        self.namespace.create("flink-config-orders", {"config.yaml": CONFIG})
        self.lead()
        self.namespace.create(f"{CLUSTER}-{JOB}-config-map", {"counter": "7"}, labels=LABELS)
        self.allow_flink(*FLINK_VERBS)

    def lead(
        self,
        app: str = CLUSTER,
        *,
        components: Sequence[str] = ("dispatcher", "resourcemanager", "restserver"),
        **lease: Any,
    ) -> None:
        """A cluster's leaders. `lease`: fields of its annotation."""
        stamp = timestamp(now().wall)
        held = {"holderIdentity": "a", "leaseDuration": "PT15S", "acquireTime": stamp, "renewTime": stamp} | lease
        address = "00000000-0000-0000-0000-000000000001,pekko.tcp://flink@10.0.0.1:6123/user/rpc/x"
        data: dict[str, str | None] = {f"executionPlan-{JOB}": "x"}
        data |= {f"{LEADER}{component}": address for component in components}
        labels = {"app": app, "type": "flink-native-kubernetes"}
        write = self.namespace.create
        try:
            write(cluster_config_map(app), data, json.dumps(held), labels)
        except HTTPError:
            self.namespace.replace(cluster_config_map(app), data, json.dumps(held), labels)

    def allow_flink(self, *verbs: str) -> None:
        self._bind("flink", [{"apiGroups": [""], "resources": ["configmaps"], "verbs": verbs}], "flink")

    def account(self, *rules: Json) -> Access:
        """A sidecar's service account with these rights."""
        name = f"sidecar-{uuid4()}"
        self.apply("/api/v1/namespaces/{}/serviceaccounts", {"metadata": {"name": name}})
        self._bind(name, list(rules), name)
        return Access(self.kubernetes.service_account(self.name, name))

    def _bind(self, role: str, rules: list[Json], account: str) -> None:
        rbac = "/apis/rbac.authorization.k8s.io/v1/namespaces/{}"
        self.apply(f"{rbac}/roles", {"metadata": {"name": role}, "rules": rules})
        self.apply(
            f"{rbac}/rolebindings",
            {
                "metadata": {"name": role},
                "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": role},
                "subjects": [{"kind": "ServiceAccount", "name": account, "namespace": self.name}],
            },
        )

    def every_read(self) -> list[Json]:
        """The rules of deploy/kubernetes/ha-check, and of the sidecar itself."""
        reads = [{"apiGroups": [group], "resources": [resource], "verbs": ["list"]} for resource, group in READS]
        reviews = {
            "apiGroups": ["authorization.k8s.io"],
            "resources": ["localsubjectaccessreviews"],
            "verbs": ["create"],
        }
        return [*reads, {"apiGroups": [""], "resources": ["configmaps"], "verbs": ["get", "patch", "watch"]}, reviews]


@pytest.fixture
def flink(kubernetes: Kubernetes) -> Flink:
    made = Flink(kubernetes)
    made.deploy()
    return made


def read(flink: Flink, access: Access, later: int = 0) -> KubernetesFacts:
    """`later`: by how many microseconds the sidecar's clock is ahead."""
    cluster = KubernetesSettings(CLUSTER, flink.name)
    return DeploymentProbe(access, cluster, lambda: now().wall + later).read()


def findings(facts: KubernetesFacts) -> dict[str, Finding]:
    return {name: check(facts) for name, check in KUBERNETES_CHECKS.items()}


def permitted(flink: Flink, access: Access) -> KubernetesFacts:
    """The facts, once the API server's own view of new Roles is not late any more."""
    deadline = time.monotonic() + 10
    while True:
        facts = read(flink, access)
        late = [
            value
            for value in (facts.pods, facts.flink_deployments, facts.flink_rights)
            if isinstance(value, UnknownFact)
        ]
        if (
            not late
            and not isinstance(facts.own_rights, UnknownFact)
            and all(right.allowed for right in facts.own_rights)
        ):
            return facts
        assert time.monotonic() < deadline, late


def test_a_good_deployment_passes_every_check(flink: Flink) -> None:
    """With the rights of the optional Role; and no secret of environment or configuration is among the facts."""
    facts = permitted(flink, flink.account(*flink.every_read()))
    results = findings(facts)
    assert {name: result.text for name, result in results.items() if result.verdict is not CheckVerdict.PASS} == {}
    assert "not-to-be-shown" not in repr(facts)
    assert results["disruption_budget"].text == "PodDisruptionBudget orders lets 1 of 2 JobManagers be evicted at once"
    assert results["lease_margin"].text == "lease-duration 15 s, renew-deadline 10 s"


def test_without_rights_nothing_passes(flink: Flink) -> None:
    """The sidecar's own rights alone are known: that question is everybody's. Each other answer names the missing verb."""
    results = findings(read(flink, flink.account()))
    assert results.pop("sidecar_rights").verdict is CheckVerdict.RISK
    assert {name for name, result in results.items() if result.verdict is not CheckVerdict.UNKNOWN} == set()
    for name, rule in (
        ("standby", '{apiGroups: [""], resources: [pods], verbs: [list]}'),
        (
            "erased_leaders",
            '{apiGroups: [""], resources: [configmaps], resourceNames: [orders-cluster-config-map], verbs: [list]}',
        ),
        (
            "lease_margin",
            '{apiGroups: [""], resources: [configmaps], resourceNames: [flink-config-orders], verbs: [get]}',
        ),
        ("leftover_jobs", '{apiGroups: [""], resources: [configmaps], verbs: [list]}'),
    ):
        assert f"not permitted: the Role needs {rule}" in results[name].text


@pytest.mark.parametrize(
    ("resource", "unknown"),
    [
        (
            "pods",
            {
                "disruption_budget",
                "node_spread",
                "liveness_probe",
                "restart_policy",
                "memory_limit",
                "flink_versions",
                "flink_rights",
                "standby",
            },
        ),
        ("poddisruptionbudgets", {"disruption_budget"}),
        ("deployments", set()),
        ("localsubjectaccessreviews", {"flink_rights"}),
        ("flinkdeployments", set()),
    ],
)
def test_one_missing_right_hides_its_own_facts_alone(flink: Flink, resource: str, unknown: set[str]) -> None:
    """Nothing passes that rests on them, and all else still does."""
    rules = [rule for rule in flink.every_read() if rule["resources"] != [resource]]
    access = flink.account(*rules)
    deadline = time.monotonic() + 10
    while {
        name for name, each in findings(read(flink, access)).items() if each.verdict is not CheckVerdict.PASS
    } != unknown:
        assert time.monotonic() < deadline


def one_job_manager(flink: Flink) -> None:
    flink.remove("/api/v1/namespaces/{}/pods", "jm-1")


def no_budget(flink: Flink) -> None:
    flink.remove(BUDGETS, CLUSTER)


def replaced_pod(**changes: Any) -> Callable[[Flink], None]:
    def change(flink: Flink) -> None:
        one_job_manager(flink)
        flink.pod("jm-1", **({"node": "node-1"} | changes))

    return change


def defaults(flink: Flink) -> None:
    flink.namespace.replace("flink-config-orders", {"config.yaml": DEFAULTS})


def large(flink: Flink) -> None:
    flink.namespace.replace(f"{CLUSTER}-{JOB}-config-map", {"counter": "x" * 900_000}, labels=LABELS)


def fewer_verbs(flink: Flink) -> None:
    flink.remove("/apis/rbac.authorization.k8s.io/v1/namespaces/{}/roles", "flink")
    flink.remove("/apis/rbac.authorization.k8s.io/v1/namespaces/{}/rolebindings", "flink")
    flink.allow_flink("get", "list", "watch", "create", "update", "delete")


HTTP: Final = {"httpGet": {"path": "/", "port": 8081}, "initialDelaySeconds": 60, "periodSeconds": 5}


@pytest.mark.parametrize(
    ("check", "fault", "words"),
    [
        ("standby", one_job_manager, "running JobManagers: 1 of 2 (jm-0)"),
        ("disruption_budget", no_budget, "no PodDisruptionBudget selects jm-0, jm-1"),
        ("node_spread", replaced_pod(node="node-0"), "jm-0, jm-1 are on one node, node-0"),
        (
            "liveness_probe",
            replaced_pod(container={"livenessProbe": HTTP}),
            "the httpGet probe on port 8081 of jm-1 restarts a JobManager after 10 s",
        ),
        ("restart_policy", replaced_pod(restartPolicy="OnFailure"), "restartPolicy: OnFailure"),
        ("memory_limit", replaced_pod(container={"args": ["java -Xmx1600m -cp x Main"]}), "-Xmx is 1600 MiB"),
        (
            "memory_limit",
            replaced_pod(container={"resources": {"limits": {"memory": "1Gi"}}}),
            "process.size is 1600 MiB",
        ),
        (
            "flink_versions",
            replaced_pod(container={"image": "flink:1.20.5"}),
            "different versions: flink:1.20.5, flink:2.3.0",
        ),
        ("lease_margin", defaults, "lease-duration 15 s, renew-deadline 15 s: no margin"),
        ("config_map_size", large, "orders-aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa-config-map 879 KiB"),
        ("flink_rights", fewer_verbs, "service account flink may not patch configmaps"),
    ],
)
def test_a_fault_is_a_risk(flink: Flink, check: str, fault: Callable[[Flink], None], words: str) -> None:
    """That check alone finds it."""
    access = flink.account(*flink.every_read())
    permitted(flink, access)
    fault(flink)
    deadline = time.monotonic() + 10
    while (results := findings(read(flink, access)))[check].verdict is CheckVerdict.PASS:
        assert time.monotonic() < deadline
    assert words in results[check].text
    assert {name: result.text for name, result in results.items() if result.verdict is not CheckVerdict.PASS} == {
        check: results[check].text
    }
    assert results[check].verdict is CheckVerdict.RISK


def test_a_component_that_was_erased_for_good(flink: Flink) -> None:
    """FLINK-40114: the holder renews its lease, and the dispatcher's key is missing. One that does not renew is a failover, not a fault."""
    access = flink.account(*flink.every_read())
    permitted(flink, access)
    others, led_since = ("resourcemanager", "restserver"), timestamp(now().wall - 3600 * SECOND)
    flink.lead(components=others, acquireTime=led_since)
    assert findings(read(flink, access))["erased_leaders"].verdict is CheckVerdict.UNKNOWN
    with repeating(lambda _: flink.lead(components=others, acquireTime=led_since), 0.5):
        results = findings(read(flink, access))
    erased = results.pop("erased_leaders")
    assert (erased.verdict, "without a published leader: dispatcher; " in erased.text) == (CheckVerdict.RISK, True)
    assert {each.verdict for each in results.values()} == {CheckVerdict.PASS}


def test_what_dead_clusters_and_jobs_left_behind(flink: Flink) -> None:
    """A day later it is a leftover, with the command that would remove it; one that is renewed or kept at zero replicas is none."""
    access = flink.account(*flink.every_read())
    permitted(flink, access)
    long_ago, in_two_days = "2026-01-01T00:00:00Z", 2 * 24 * 3600 * SECOND
    for app in ("dead", "kept"):
        flink.lead(app, renewTime=long_ago, acquireTime=long_ago)
    flink.lead("alive", renewTime=timestamp(now().wall + in_two_days))
    flink.deploy_named("kept", replicas=0)
    left = f"{CLUSTER}-{'b' * 32}-config-map"
    flink.namespace.create(left, {"counter": "3"}, labels=LABELS)
    assert {finding.verdict for finding in findings(read(flink, access)).values()} == {CheckVerdict.PASS}
    results = findings(read(flink, access, in_two_days))
    clusters, jobs = results["leftover_clusters"], results["leftover_jobs"]
    assert {name for name, each in results.items() if each.verdict is CheckVerdict.RISK} == {
        "leftover_clusters",
        "leftover_jobs",
    }
    assert "HA ConfigMaps of 1 cluster without a leader: dead (2 d" in clusters.text
    assert f"kubectl -n {flink.name} delete configmap -l app=dead,type=flink-native-kubernetes" in clusters.advice
    assert jobs.advice.endswith(f"kubectl -n {flink.name} delete configmap {left}")


def test_the_operators_deployment_says_how_many_job_managers_it_wants(flink: Flink) -> None:
    """It has the last word: the operator makes Deployment and pods of it."""
    install(flink.kubernetes.server)
    deployment = {"metadata": {"name": CLUSTER}, "spec": {"jobManager": {"replicas": 1}}}
    flink.apply("/apis/flink.apache.org/v1beta1/namespaces/{}/flinkdeployments", deployment | KIND)
    flink.remove("/api/v1/namespaces/{}/pods", "jm-0")
    one_job_manager(flink)
    standby = findings(read(flink, Access(flink.kubernetes.kubeconfig())))["standby"]
    assert (standby.verdict, standby.text) == (CheckVerdict.RISK, "FlinkDeployment orders has replicas: 1")


def test_an_api_server_out_of_reach_passes_nothing(flink: Flink) -> None:
    """All is unknown, also what needs no right."""
    nowhere = Access(flink.kubernetes.kubeconfig(server="https://127.0.0.1:1"))
    results = findings(read(flink, nowhere))
    assert {each.verdict for each in results.values()} == {CheckVerdict.UNKNOWN}
    assert "Connection refused" in results["node_spread"].text


def test_more_objects_than_are_read_pass_nothing(flink: Flink, monkeypatch: pytest.MonkeyPatch) -> None:
    """Half of the pods would be a wrong answer."""
    monkeypatch.setattr(deployment_probe, "_MOST_OBJECTS", 2)
    results = findings(read(flink, Access(flink.kubernetes.kubeconfig())))
    assert results["node_spread"].verdict is CheckVerdict.UNKNOWN
    assert (
        "there are more than 2 Pods with the labels component in (jobmanager,taskmanager)"
        in results["node_spread"].text
    )


def test_what_is_late_passes_nothing(flink: Flink, monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither after the time for all of it, nor after `stop`."""
    access = Access(flink.kubernetes.kubeconfig())
    monkeypatch.setattr(deployment_probe, "_SECONDS", 0.0)
    assert {finding.verdict for finding in findings(read(flink, access)).values()} == {CheckVerdict.UNKNOWN}
    monkeypatch.undo()
    probe = DeploymentProbe(access, KubernetesSettings(CLUSTER, flink.name), lambda: 0)
    probe.stop()
    assert {finding.verdict for finding in findings(probe.read()).values()} == {CheckVerdict.UNKNOWN}
