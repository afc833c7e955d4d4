"""`python -m tests.kit.forms` writes the other forms of the sidecar in Flink's pod from the one in deploy/base/sidecar.yaml.

Kustomize patches lists of a Deployment or StatefulSet by name, but not those of a FlinkDeployment, and cannot move a container to
initContainers: each of these forms holds the container whole. A test holds the files to this.
"""

import io
from collections.abc import Mapping
from typing import Any, Final

from ruamel.yaml import YAML

from tests import ROOT

DEPLOY: Final = ROOT / "deploy"
_SOURCE: Final = DEPLOY / "base" / "sidecar.yaml"
_MAIN: Final = {"name": "flink-main-container"}
_MADE: Final = (
    "# Made from deploy/base/sidecar.yaml, which says why each line is there, by `python -m tests.kit.forms`.\n"
)
_NATIVE: Final = "# The native sidecar form: Kubernetes 1.29 or newer.\n"
Node = dict[str, Any]


def forms() -> Mapping[str, str]:
    """The text of each file, by its path below deploy/."""
    pod = _pod()
    (classic,) = pod["containers"]
    native = _native(classic)
    volumes = pod["volumes"]
    with_sidecar: Node = {"containers": [_MAIN, classic], "volumes": volumes}
    with_native: Node = {"initContainers": [native], "containers": [_MAIN], "volumes": volumes}
    moved: Node = {"initContainers": [native], "containers": [{"$patch": "delete", "name": classic["name"]}]}
    return {
        "native/sidecar.yaml": _text(_NATIVE, _workload(moved)),
        "flink-operator/sidecar.yaml": _text("", _flink_deployment(with_sidecar)),
        "flink-operator/native/sidecar.yaml": _text(_NATIVE, _flink_deployment(with_native)),
        "pod-template/classic.yaml": _text("", _template(with_sidecar)),
        "pod-template/native.yaml": _text(_NATIVE, _template(with_native)),
    }


def _pod() -> Node:
    deployment = YAML(typ="safe").load(_SOURCE.read_text())
    return dict(deployment["spec"]["template"]["spec"])


def _native(container: Node) -> Node:
    """Started before the JobManager and stopped after it: it needs no pause before it stops."""
    sidecar: Node = {}
    for key, value in container.items():
        if key != "lifecycle":
            sidecar[key] = value
        if key == "image":
            sidecar["restartPolicy"] = "Always"
    return sidecar


def _workload(pod: Node) -> Node:
    template = {"spec": {"template": {"spec": pod}}}
    return {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "jobmanager"}} | template


def _flink_deployment(pod: Node) -> Node:
    spec = {"jobManager": {"podTemplate": {"spec": pod}}}
    return {
        "apiVersion": "flink.apache.org/v1beta1",
        "kind": "FlinkDeployment",
        "metadata": {"name": "any"},
        "spec": spec,
    }


def _template(pod: Node) -> Node:
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "jobmanager-pod-template"}, "spec": pod}


def _text(note: str, manifest: Node) -> str:
    yaml = YAML()
    yaml.indent(mapping=2, sequence=4, offset=2)
    yaml.representer.ignore_aliases = lambda _data: True
    written = io.StringIO()
    yaml.dump(manifest, written)
    return _MADE + note + written.getvalue()


if __name__ == "__main__":
    for path, text in forms().items():
        (DEPLOY / path).parent.mkdir(parents=True, exist_ok=True)
        (DEPLOY / path).write_text(text)
