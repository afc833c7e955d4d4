"""The Helm chart: the same objects as the Kustomize component, for whoever has Helm. Rendered, linted and installed by Helm itself."""

import copy
import json
import re
from collections.abc import Iterator
from functools import reduce
from operator import itemgetter
from pathlib import Path
from typing import Any

import pytest
from ruamel.yaml import YAML

import sidecar
from sidecar.drivers.kubernetes.kubernetes_ledger import ledger_name
from sidecar.settings import KubernetesSettings, load
from sidecar.settings.cluster.kubernetes import FLAGS
from tests.deploy.manifests import CHART, apply, document, example, of_kind, pod_of, without_hashes
from tests.deploy.test_kubernetes_manifests import CLUSTER_ID, NAMESPACE
from tests.deploy.test_manifests import mounts
from tests.kit import helm
from tests.kit.helm import HelmError, Values
from tests.kit.kubectl import Manifest, kubectl
from tests.kit.kubernetes_server import Kubernetes
from tests.kit.receivers import apprise_urls

RELEASE = "flink-ha-sidecar"
REQUIRED: Values = {"clusterId": CLUSTER_ID}
CLAIMS: Values = {"state": {"claim": "sidecar-state"}, "spool": {"claim": "sidecar-spool"}}
EVERYTHING: Values = {
    **REQUIRED,
    "image": {"repository": "registry.example.com/sidecar", "digest": f"sha256:{'0123456789abcdef' * 4}"},
    "imagePullSecrets": [{"name": "registry"}],
    "externalLabels": {"env": "prod"},
    "receivers": [{"name": "oncall", "urls": ["file:/etc/flink-ha-sidecar-receivers/PAGER_URL"]}],
    "receiversSecret": {"values": {"PAGER_URL": "slack://T0000000/B0000000/not-a-real-token"}, "asFiles": True},
    "config": {"trust_window": "5s", "http": {"port": 9300}},
    **CLAIMS,
    "serviceAccount": {"annotations": {"example.com/role": "a"}},
    "podMonitor": {"enabled": True, "labels": {"release": "prometheus"}},
    "podNames": True,
    "events": True,
    "plans": True,
    "deaths": True,
    "haCheck": True,
    "labels": {"team": "streaming"},
    "annotations": {"example.com/owner": "streaming"},
    "podLabels": {"sidecar.istio.io/inject": "false"},
    "podAnnotations": {"example.com/note": "b"},
    "env": [{"name": "TZ", "value": "Europe/Berlin"}],
    "nodeSelector": {"kubernetes.io/os": "linux"},
    "tolerations": [{"operator": "Exists"}],
    "affinity": {"nodeAffinity": {}},
    "priorityClassName": "system-cluster-critical",
    "audit": {"enabled": True, "claim": "audit"},
}
"""Every value that adds something."""


def rendered(values: Values, release: str = RELEASE) -> list[Manifest]:
    return helm.render(CHART, values, release, NAMESPACE)


def in_a_pod(folder: Path) -> dict[str, object]:
    """What the pod's environment says of the cluster; its account is a kubeconfig here."""
    kubeconfig = folder / "kubeconfig"
    kubeconfig.write_text("{current-context: pod, contexts: [{name: pod, context: {}}]}")
    place = {"cluster_id": CLUSTER_ID, "namespace": NAMESPACE, "kubeconfig": str(kubeconfig)}
    return {"kubernetes": True, **place}


def comparable(manifests: list[Manifest]) -> dict[tuple[str, str], Any]:
    """By kind and name; the configuration as what it means; without what either tool adds by itself."""
    by_name = {}
    for manifest in manifests:
        manifest["metadata"].pop("namespace", None)
        if "data" in manifest:
            manifest["data"] = {key: YAML(typ="safe").load(text) for key, text in manifest["data"].items()}
        if manifest["kind"] == "Deployment":
            annotations = manifest["spec"]["template"]["metadata"].pop("annotations", {})
            assert annotations.keys() <= {"checksum/config"}
            pod_of(manifest)["volumes"].sort(key=itemgetter("name"))  # Kustomize puts a patched one first
        by_name[manifest["kind"], manifest["metadata"]["name"]] = manifest
    return by_name


@pytest.mark.covers("deployment:chart")
def test_it_is_what_kustomize_applies(tmp_path: Path) -> None:
    """With nothing but the cluster's id and the image's registry given, object for object and field for field."""
    kustomized = without_hashes(example(tmp_path, "kubernetes"))
    helmed = rendered({**REQUIRED, "image": {"repository": "registry.example.com/flink-ha-sidecar"}})
    assert comparable(helmed) == comparable([found for found in kustomized if found["kind"] != "Secret"])


def test_two_replicas_are_what_kustomize_applies(tmp_path: Path) -> None:
    kustomized = without_hashes(example(tmp_path, "kubernetes", "kubernetes/two-replicas"))
    helmed = rendered({**REQUIRED, "replicas": 2, "image": {"repository": "registry.example.com/flink-ha-sidecar"}})
    (theirs,), (ours,) = ([found for found in each if found["kind"] == "Deployment"] for each in (kustomized, helmed))
    assert comparable([ours]) == comparable([theirs])


def test_flink_before_1_15_is_what_kustomize_applies(tmp_path: Path) -> None:
    kustomized = example(tmp_path, "kubernetes", "kubernetes/flink-1.14")
    assert (
        of_kind(rendered({**REQUIRED, "flinkBefore115": True}), "Role")["rules"] == of_kind(kustomized, "Role")["rules"]
    )


FEATURES = [
    ("podNames", "pod-names"),
    ("events", "events"),
    ("plans", "plans"),
    ("deaths", "deaths"),
    ("haCheck", "ha-check"),
]


@pytest.mark.parametrize(("value", "component"), FEATURES)
def test_a_feature_with_a_role_of_its_own_is_what_kustomize_applies(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, value: str, component: str
) -> None:
    """The Role and its binding; the chart switches on, too, what has a switch: `ha check` reads what it may."""
    kustomized = comparable(example(tmp_path, "kubernetes", f"kubernetes/{component}"))
    helmed = comparable(rendered({**REQUIRED, value: True}))
    name = f"{RELEASE}-{component}"
    for kind in ("Role", "RoleBinding"):
        theirs, ours = kustomized[kind, name], helmed[kind, name]
        for subject in (*theirs.get("subjects", ()), *ours.get("subjects", ())):
            subject.pop("namespace", None)
        assert ours == theirs
    (config,) = (found["data"]["config.yaml"] for found in helmed.values() if "config.yaml" in found.get("data", {}))
    (tmp_path / "config.yaml").write_text(json.dumps(config))
    monkeypatch.setenv("SLACK_URL", "json://127.0.0.1/")
    settings = load(tmp_path / "config.yaml", in_a_pod(tmp_path))
    (cluster,) = settings.clusters
    assert isinstance(cluster, KubernetesSettings)
    expected = {"plans"} | (set() if component == "ha-check" else {component.replace("-", "_")})
    assert {flag for flag in FLAGS if getattr(cluster, flag)} == expected


@pytest.mark.covers("deployment:audit")
def test_the_audit_is_what_kustomize_applies(tmp_path: Path) -> None:
    """The CronJob and its network policy, with the claims of deploy/audit."""
    kustomized = comparable(without_hashes(example(tmp_path, "kubernetes", "audit")))
    claims = {"spool": {"claim": "flink-ha-sidecar-spool"}, "audit": {"enabled": True, "claim": "flink-ha-audit"}}
    image = {"image": {"repository": "registry.example.com/flink-ha-sidecar"}}
    helmed = comparable(rendered({**REQUIRED, **claims, **image}))
    assert helmed == {
        key: found for key, found in kustomized.items() if key[0] not in {"Secret", "PersistentVolumeClaim"}
    }


@pytest.mark.parametrize(
    ("reached_by", "rules"),
    [
        ([], []),
        (None, []),
        (
            [{"podSelector": {}}],
            [{"from": [{"podSelector": {}}], "ports": [{"protocol": "TCP", "port": "ha-sidecar"}]}],
        ),
    ],
    ids=["an empty list", "null", "one entry"],
)
def test_whoever_is_not_named_does_not_reach_the_port(reached_by: object, rules: list[object]) -> None:
    """An empty `from` in a NetworkPolicy is everyone; in the values it is nobody."""
    policy = of_kind(rendered({**REQUIRED, "networkPolicy": {"from": reached_by}}), "NetworkPolicy")
    assert policy["spec"]["policyTypes"] == ["Ingress"]
    assert policy["spec"]["ingress"] == rules


def test_several_replicas_reach_each_other() -> None:
    """They ask each other what they see; nobody else is let in by that."""
    values = {**REQUIRED, "replicas": 2, "networkPolicy": {"from": []}}
    policy, pod = (
        of_kind(rendered(values), "NetworkPolicy"),
        of_kind(rendered(values), "Deployment")["spec"]["template"],
    )
    [rule] = policy["spec"]["ingress"]
    [asking] = rule["from"]
    assert asking["podSelector"] == policy["spec"]["podSelector"]
    assert asking["podSelector"]["matchLabels"].items() <= pod["metadata"]["labels"].items()


def test_an_entry_that_names_nobody_is_refused() -> None:
    """The API server would refuse it too."""
    with pytest.raises(HelmError, match="minProperties"):
        rendered({**REQUIRED, "networkPolicy": {"from": [{}]}})


def test_helm_has_nothing_to_say_against_it() -> None:
    """`helm lint --strict`, with the least and the most."""
    assert [helm.lint(CHART, values) for values in (REQUIRED, EVERYTHING)] == [[], []]


def test_helm_installs_it(kubernetes: Kubernetes) -> None:
    """A real `helm install` on a real API server, under a name of its own, beside which a second cluster's fits into the namespace."""
    kubeconfig = kubernetes.kubeconfig()
    for cluster, values in {
        CLUSTER_ID: REQUIRED,
        "orders": EVERYTHING | {"clusterId": "orders", "podMonitor": {}},
    }.items():
        release = helm.install(CHART, values, f"ha-{cluster}", NAMESPACE, kubeconfig)
        assert release["name"] == f"ha-{cluster}"
    listed = kubectl(
        *("--kubeconfig", str(kubeconfig), "--namespace", NAMESPACE, "get", "-o", "name"),
        "deployment,cronjob,role,rolebinding,serviceaccount,networkpolicy,poddisruptionbudget,configmap",
    ).split()
    for cluster in (CLUSTER_ID, "orders"):
        assert f"deployment.apps/ha-{cluster}-flink-ha-sidecar" in listed
        assert f"configmap/{ledger_name(cluster)}" in listed
    assert "cronjob.batch/ha-orders-flink-ha-sidecar-audit" in listed


def test_the_most_is_taken_by_the_api_server(kubernetes: Kubernetes) -> None:
    """All fields of all values are known to it, but for the Prometheus operator's own kind."""
    manifests = [found for found in rendered(EVERYTHING) if found["kind"] != "PodMonitor"]
    assert (
        len(apply(kubernetes.kubeconfig(), manifests, "--namespace", NAMESPACE, "--dry-run=server").splitlines()) == 21
    )


def test_the_most_is_all_there() -> None:
    """Each value arrives where it belongs."""
    manifests = rendered(EVERYTHING)
    deployment = of_kind(manifests, "Deployment")
    pod = pod_of(deployment)
    (container,) = pod["containers"]
    assert container["image"] == f"registry.example.com/sidecar@sha256:{'0123456789abcdef' * 4}"
    assert container["ports"] == [{"name": "ha-sidecar", "containerPort": 9300}]
    assert pod["imagePullSecrets"] == [{"name": "registry"}]
    assert "envFrom" not in container
    assert mounts(container)["/etc/flink-ha-sidecar-receivers"]["readOnly"] is True
    claims = {
        volume["persistentVolumeClaim"]["claimName"] for volume in pod["volumes"] if "persistentVolumeClaim" in volume
    }
    assert claims == {"sidecar-state", "sidecar-spool"}
    assert pod["securityContext"]["fsGroup"] == 65532
    assert {"name": "TZ", "value": "Europe/Berlin"} in container["env"]
    assert pod["priorityClassName"] == "system-cluster-critical"
    labels = deployment["spec"]["template"]["metadata"]["labels"]
    assert {"team": "streaming", "sidecar.istio.io/inject": "false"}.items() <= labels.items()
    assert all(found["metadata"]["labels"]["team"] == "streaming" for found in manifests)
    assert all(found["metadata"]["annotations"]["example.com/owner"] == "streaming" for found in manifests)
    monitor = of_kind(manifests, "PodMonitor")
    assert monitor["metadata"]["labels"]["release"] == "prometheus"
    assert monitor["spec"]["selector"]["matchLabels"].items() <= labels.items()
    assert [end["port"] for end in monitor["spec"]["podMetricsEndpoints"]] == [container["ports"][0]["name"]]


def test_its_configuration_is_accepted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The strict loader takes what the values became, and `config` wins."""
    (found,) = (each for each in rendered(EVERYTHING) if "config.yaml" in each.get("data", {}))
    text = found["data"]["config.yaml"].replace("/etc/flink-ha-sidecar-receivers", str(tmp_path))
    (tmp_path / "config.yaml").write_text(text)
    (tmp_path / "PAGER_URL").write_text("slack://T0000000/B0000000/not-a-real-token")
    settings = load(tmp_path / "config.yaml", in_a_pod(tmp_path))
    assert (settings.trust_window, settings.http.host, settings.http.port) == (5, "0.0.0.0", 9300)  # noqa: S104  in the pod
    assert settings.external_labels == {"env": "prod"}
    assert apprise_urls(settings) == {"oncall#0": "slack://T0000000/B0000000/not-a-real-token"}


@pytest.mark.parametrize(
    ("values", "said"),
    [
        ({}, "/clusterId"),
        (REQUIRED | {"clusterID": "my-flink"}, "'clusterID' not allowed"),
        (REQUIRED | {"image": {"name": "x"}}, "'name' not allowed"),
        (REQUIRED | {"image": {"digest": "sha256:12"}}, "/image/digest"),
        (REQUIRED | {"clusterId": "my flink"}, "/clusterId"),
        (REQUIRED | {"replicas": "2"}, "got string, want integer"),
        (REQUIRED | {"replicas": 2, "state": {"claim": "a"}}, "state.claim is for one replica"),
        (REQUIRED | {"audit": {"enabled": True, "claim": "a"}}, "audit takes spool.claim and audit.claim"),
    ],
)
def test_bad_values_are_refused_with_their_name(values: Values, said: str) -> None:
    """Before anything is installed."""
    with pytest.raises(HelmError, match=re.escape(said)):
        rendered(values)


def test_no_value_that_is_null_becomes_a_text() -> None:
    """Each one, with everything switched on: it has its default, or is refused with its name."""
    refused = {}
    for path in paths(document(CHART / "values.yaml")):
        values = copy.deepcopy(EVERYTHING)
        *groups, last = path
        reduce(lambda group, key: group.setdefault(key, {}), groups, values)[last] = None
        try:
            assert "nil" not in json.dumps(rendered(values)), path
        except HelmError as error:
            refused[".".join(path)] = path[-1] in str(error)
    assert all(refused.values()), refused
    assert {"clusterId", "audit.driverMemory"} <= refused.keys()
    assert "image.repository" not in refused


def paths(values: Values, *groups: str) -> Iterator[tuple[str, ...]]:
    """The keys of all values, those in groups too."""
    for key, value in values.items():
        yield (*groups, key)
        if isinstance(value, dict):
            yield from paths(value, *groups, key)


def test_the_audits_pods_run_on_the_nodes_that_are_asked_for() -> None:
    """What keeps the sidecar away from other pods is not about them."""
    nodes: Values = {"preferredDuringSchedulingIgnoredDuringExecution": []}
    asked = {"nodeAffinity": nodes, "podAntiAffinity": nodes}
    pod = of_kind(rendered(EVERYTHING | {"affinity": asked}), "CronJob")["spec"]["jobTemplate"]["spec"]["template"]
    affinity = pod["spec"]["affinity"]
    assert affinity.keys() == {"nodeAffinity", "podAffinity"}
    assert affinity["nodeAffinity"] == nodes


def test_every_value_is_in_the_schema_and_has_a_comment() -> None:
    """The schema knows exactly the keys of values.yaml; each group of keys there begins with a comment."""
    schema = json.loads((CHART / "values.schema.json").read_text())
    for key in ("enabled", "exports", "global", "tags"):  # Helm's own, and a parent chart's
        schema["properties"].pop(key)

    def agree(values: Manifest, schema: Manifest, path: str) -> None:
        if "properties" in schema and values:
            assert values.keys() == schema["properties"].keys(), path
            assert schema["additionalProperties"] is False
            for key, value in values.items():
                agree(value, schema["properties"][key], f"{path}.{key}")

    agree(document(CHART / "values.yaml"), schema, "")
    groups = re.split(r"\n\n", (CHART / "values.yaml").read_text())
    assert [group for group in groups if "#" not in group] == []


def test_it_is_this_version() -> None:
    """A release that forgets the chart would install the one before."""
    chart = document(CHART / "Chart.yaml")
    assert (chart["version"], chart["appVersion"]) == (sidecar.__version__, sidecar.__version__)


def test_its_notes_name_what_is_missing() -> None:
    """The Secret that has to be brought, and what goes with the pod; nothing of it where there is nothing to do."""
    least, most = (helm.notes(CHART, values, RELEASE, NAMESPACE) for values in (REQUIRED, EVERYTHING))
    assert f"kubectl -n {NAMESPACE} create secret generic flink-ha-sidecar-receivers" in least
    assert "spool.claim" in least
    assert [word for word in ("create secret", "spool.claim") if word in most] == []


def pod_template(manifest: Manifest) -> Manifest:
    spec = manifest["spec"]
    template: Manifest = (spec["jobTemplate"]["spec"] if manifest["kind"] == "CronJob" else spec)["template"]
    return template


def test_uid_gid_and_fs_group_may_be_left_to_the_platform() -> None:
    """OpenShift's constraints assign them, and refuse a pod that names its own."""
    objects = rendered({**EVERYTHING, "platformAssignsIds": True})
    written = json.dumps(objects)
    assert "65532" not in written
    assert written.count('"runAsNonRoot": true') == 3


def test_labels_and_annotations_of_pods_are_those_of_every_pod() -> None:
    """A service mesh has to let the audit's pods alone, too."""
    objects = rendered(EVERYTHING)
    deployment, cron_job = (of_kind(objects, kind) for kind in ("Deployment", "CronJob"))
    for metadata in (pod_template(resource)["metadata"] for resource in (deployment, cron_job)):
        assert metadata["labels"].items() >= {**EVERYTHING["labels"], **EVERYTHING["podLabels"]}.items()
        assert metadata["annotations"].items() >= EVERYTHING["podAnnotations"].items()
    for resource in (*objects, {"kind": "Job", **cron_job["spec"]["jobTemplate"]}):
        assert resource["metadata"]["labels"].items() >= EVERYTHING["labels"].items(), resource["kind"]
        assert resource["metadata"]["annotations"].items() >= EVERYTHING["annotations"].items(), resource["kind"]


@pytest.mark.parametrize(
    "values",
    [
        {"config": None},
        {"config": {"http": None}},
        {"config": {"http": {"port": None}}},
        {"config": {"spool": {"url": None}, "receivers": None}},
        {"labels": None, "podLabels": None},
        {"annotations": None, "podAnnotations": None},
        {"serviceAccount": {"annotations": None}},
    ],
)
def test_a_key_without_a_value_keeps_its_default(values: Values) -> None:
    """As a line that is left over in a values file has it."""
    assert rendered({**REQUIRED, **values}) == rendered(REQUIRED)


def test_a_part_without_values_is_refused_with_its_name() -> None:
    """Helm takes the chart's own values of it away, too."""
    with pytest.raises(HelmError, match="missing property 'audit'"):
        rendered({**REQUIRED, "audit": None})


def test_what_the_chart_sets_itself_stands_once() -> None:
    """Labels by which a pod is found are never replaced; what is given for pods alone has precedence."""
    given = {"app": "other", "team": "all", "app.kubernetes.io/component": "other", "release": "all"}
    more = {"labels": given, "podLabels": {"app": "pod", "team": "pods"}, "podAnnotations": {"checksum/config": "none"}}
    objects = rendered({**EVERYTHING, **more})
    for kind, name in (("Deployment", "flink-ha-sidecar"), ("CronJob", "flink-ha-sidecar-audit")):
        labels = pod_template(of_kind(objects, kind))["metadata"]["labels"]
        assert (labels["app"], labels["team"]) == (name, "pods")
    assert pod_template(of_kind(objects, "Deployment"))["metadata"]["annotations"]["checksum/config"] != "none"
    assert of_kind(objects, "PodMonitor")["metadata"]["labels"]["release"] == "prometheus"
