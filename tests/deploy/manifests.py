"""Manifests as an operator's own tools render them: `kubectl kustomize` and Helm."""

import json
import re
import shutil
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Final

from ruamel.yaml import YAML

from tests import ROOT
from tests.kit.kubectl import Manifest, kubectl, kustomize

DEPLOY: Final = ROOT / "deploy"
RECEIVERS: Final = "SLACK_URL=slack://T0000000/B0000000/not-a-real-token\n"
CHART: Final = DEPLOY / "chart" / "flink-ha-sidecar"
_BEFORE_1_21: Final = {"PodDisruptionBudget": "policy/v1beta1", "CronJob": "batch/v1beta1"}
POD_SPECS: Final = {
    "Pod": ("spec",),
    "Deployment": ("spec", "template", "spec"),
    "StatefulSet": ("spec", "template", "spec"),
    "CronJob": ("spec", "jobTemplate", "spec", "template", "spec"),
    "FlinkDeployment": ("spec", "jobManager", "podTemplate", "spec"),
}
"""Where the pod stands in a manifest of a kind."""


def documents(path: Path) -> list[Manifest]:
    return list(YAML(typ="safe").load_all(path.read_text()))


def document(path: Path) -> Manifest:
    (only,) = documents(path)
    return only


def copied(folder: Path) -> Path:
    """A copy of deploy/ in which every example has receivers."""
    copy = Path(shutil.copytree(DEPLOY, folder / "deploy"))
    for example in (copy / "examples").iterdir():
        (example / "receivers.env").write_text(RECEIVERS)
    return copy


def example(folder: Path, name: str, *components: str) -> list[Manifest]:
    """What an example, copied below `folder`, builds with more components of deploy/."""
    copy = copied(folder)
    kustomization = copy / "examples" / name / "kustomization.yaml"
    document = YAML(typ="safe").load(kustomization.read_text())
    more = (f"../../{component}" for component in components)
    document["components"] += [component for component in more if component not in document["components"]]
    kustomization.write_text(json.dumps(document))
    return kustomize(kustomization.parent)


def of_kind(manifests: Iterable[Manifest], kind: str) -> Manifest:
    """The only one, but for those of `plans`, which each example has."""
    found = (manifest for manifest in manifests if manifest["kind"] == kind)
    (only,) = (manifest for manifest in found if not manifest["metadata"]["name"].endswith("-plans"))
    return only


def pod_of(manifest: Manifest) -> Manifest:
    """The specification of its pods."""
    part: Any = manifest
    for key in POD_SPECS[manifest["kind"]]:
        part = part[key]
    return dict(part)


def for_1_20(manifests: Iterable[Manifest]) -> str:
    """The same for the API server of the tests, which has two kinds in their versions before 1.21."""
    changed = [
        manifest | {"apiVersion": _BEFORE_1_21.get(manifest["kind"], manifest["apiVersion"])} for manifest in manifests
    ]
    return json.dumps({"apiVersion": "v1", "kind": "List", "items": changed})


def apply(kubeconfig: Path, manifests: Iterable[Manifest], *options: str) -> str:
    """`kubectl apply`, which refuses fields that the API server does not know."""
    return kubectl("--kubeconfig", str(kubeconfig), "apply", *options, "-f", "-", stdin=for_1_20(manifests))


def without_hashes(manifests: Iterable[Manifest]) -> list[Manifest]:
    """With the names of generated ConfigMaps and Secrets as they stand in the kustomization."""
    text = json.dumps([*manifests])
    generated = {manifest["metadata"]["name"] for manifest in manifests if manifest["kind"] in {"ConfigMap", "Secret"}}
    for name in generated:
        text = text.replace(f'"{name}"', json.dumps(re.sub(r"-[0-9a-z]{10}$", "", name)))
    return list(json.loads(text))
