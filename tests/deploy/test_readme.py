"""deploy/README.md: its commands, run as they stand, and the paths that it names."""

import json
import re
import shlex
import subprocess
from itertools import pairwise
from pathlib import Path

import pytest
from ruamel.yaml import YAML

from tests import ROOT
from tests.deploy.manifests import CHART, DEPLOY, RECEIVERS, apply, copied
from tests.deploy.test_chart import rendered
from tests.deploy.test_kubernetes_manifests import NAMESPACE
from tests.kit.helm import Values
from tests.kit.kubectl import kubectl, kustomize
from tests.kit.kubernetes_server import Kubernetes

README = (DEPLOY / "README.md").read_text(encoding="utf-8")
BLOCKS = "\n".join(re.findall(r"^    (.*)$", README, re.MULTILINE)).replace("\\\n", " ")


def commands(begin: str) -> list[str]:
    lines = re.findall(rf"^{begin}.*$", BLOCKS, re.MULTILINE)
    assert lines, begin
    return list(lines)


def values_of(command: list[str]) -> Values:
    """What `--set` means to Helm: dots are levels, and `true` and numbers are no strings."""
    values: Values = {}
    for path, _, text in (setting.partition("=") for before, setting in pairwise(command) if before == "--set"):
        *above, last = path.split(".")
        place = values
        for key in above:
            place = place.setdefault(key, {})
        place[last] = {"true": True}.get(text, int(text) if text.isdecimal() else text)
    return values


def test_its_helm_commands_install_something() -> None:
    """The chart is where they say, and its schema takes every value that they set."""
    for command in map(shlex.split, commands("helm upgrade")):
        chart, values = ROOT / command[command.index("flink-ha-sidecar") + 1], values_of(command)
        assert chart == CHART
        if "--reuse-values" in command:
            values |= {"clusterId": "my-flink"}
        assert "Deployment" in {found["kind"] for found in rendered(values)}


@pytest.mark.covers(
    "deployment:examples/kubernetes",
    "deployment:examples/zookeeper",
    "deployment:examples/all-clusters",
    "deployment:examples/zookeeper-clusters",
    "deployment:examples/flink-operator",
)
def test_its_kubectl_commands_are_taken_by_an_api_server(kubernetes: Kubernetes, tmp_path: Path) -> None:
    """`apply -k` of every example, without the operator's own kind, and each Secret and ConfigMap. The namespace is Flink's."""
    examples = [command.split()[-1] for command in commands("kubectl apply -k deploy/examples")]
    assert sorted(examples) == sorted(f"deploy/examples/{folder.name}" for folder in (DEPLOY / "examples").iterdir())
    copied(tmp_path)
    (tmp_path / "receivers.env").write_text(RECEIVERS)
    kubeconfig = kubernetes.kubeconfig()
    for command in commands("kubectl create namespace"):
        kubectl("--kubeconfig", str(kubeconfig), *shlex.split(command)[1:])
    for example in examples:
        manifests = [found for found in kustomize(tmp_path / example) if found["kind"] != "FlinkDeployment"]
        assert "created" in apply(kubeconfig, manifests, "--dry-run=server")
    for command in commands(f"kubectl -n {NAMESPACE} create (?:secret|configmap)"):
        words = [re.sub(r"^(--from-(?:env-)?file=)", rf"\g<1>{tmp_path}/", word) for word in shlex.split(command)[1:]]
        assert "created" in kubectl("--kubeconfig", str(kubeconfig), *words, "--dry-run=server")


def test_what_it_names_is_there() -> None:
    """Components, scripts and templates; and git ignores the receivers."""
    named = {path for line in commands("components:") for path in re.findall(r"\.\./\.\./([\w./-]+)", line)}
    named |= set(re.findall(r"`((?:kubernetes|flink-operator|pod-template|base)/[\w./-]+)`", README))
    assert len(named) >= 8
    assert [path for path in sorted(named) if not (DEPLOY / path).exists()] == []
    written = [command.split(" > ")[1] for command in commands("echo")]
    asked = ["git", "check-ignore", *written]
    ignored = subprocess.run(asked, cwd=ROOT, capture_output=True, text=True, check=False).stdout.split()
    assert ignored == written


def test_its_patch_says_where_the_audit_with_executors_is(tmp_path: Path) -> None:
    """In the kustomization that names the components."""
    kustomization = copied(tmp_path) / "examples" / "kubernetes" / "kustomization.yaml"
    (patches,) = re.findall(r"^patches:\n  - patch: \|\n(?: .*\n)+", BLOCKS, re.MULTILINE)
    (components,) = re.findall(r"^components: .*on-kubernetes\]", BLOCKS, re.MULTILINE)
    before = YAML(typ="safe").load(kustomization.read_text())
    kustomization.write_text(json.dumps(before | YAML(typ="safe").load(components) | YAML(typ="safe").load(patches)))
    built = {found["metadata"]["name"]: found for found in kustomize(kustomization.parent)}
    assert built["flink-ha-audit"]["data"]["SPOOL"] == "s3://my-bucket/spool"
    assert built["flink-ha-audit"]["data"].keys() == {"SPOOL", "AUDIT", "EXECUTOR_IMAGE", "EXECUTORS", "AWS_REGION"}
