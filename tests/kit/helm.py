"""Helm 4 itself: a package of PyPI carries its Go library for x86-64. Each call is a child process: a Go runtime brings threads along.

The package is no dependency of the project: it has 75 MB, 255 MB unpacked.
"""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any, Final

from ruamel.yaml import YAML

from tests.kit.kubectl import Manifest
from tests.kit.wheel import unpacked

_VERSION: Final = "0.2.2"
_ANSWER_SECONDS: Final = 120.0
# Reads one call as JSON, prints its answer as JSON; an error of Helm's is the last line of the traceback.
_CHILD: Final = """
import json, sys
from helm_python import Chart, Config, chart
what, path, values, options = json.load(sys.stdin)
if what == "render":
    answer = Chart.load(path).render(values=values, **options)
elif what == "lint":
    answer = chart.lint(path, values, **options)
elif what == "package":
    answer = chart.package(path, **options)
elif what == "validate":
    answer = Chart.load(path).validate_schema(values)
else:
    answer = Config(namespace=options["namespace"], kubeconfig_path=options.pop("kubeconfig")).install(path, values=values, **options)
print(json.dumps(answer))
"""
Values = dict[str, Any]


class HelmError(Exception):
    """Helm refused: its message."""


def find_helm() -> Path:
    """The folder with the package, to import it from."""
    return unpacked("helm", _VERSION)


def render(chart: Path, values: Values, name: str, namespace: str) -> list[Manifest]:
    """All manifests of `helm template`, without NOTES.txt. Raises HelmError."""
    answer = _ask("render", chart, values, name=name, namespace=namespace)
    texts = (text for path, text in sorted(answer.items()) if path.endswith(".yaml"))
    return [manifest for text in texts for manifest in YAML(typ="safe").load_all(text) if manifest]


def notes(chart: Path, values: Values, name: str, namespace: str) -> str:
    """What `helm install` prints at its end."""
    answer = _ask("render", chart, values, name=name, namespace=namespace)
    return str(answer[f"{chart.name}/templates/NOTES.txt"])


def validate(chart: Path, values: Values) -> None:
    """Hold the values, over the chart's own, against values.schema.json. Raises HelmError."""
    _ask("validate", chart, values)


def lint(chart: Path, values: Values) -> list[str]:
    """The warnings and errors of `helm lint --strict`."""
    answer = _ask("lint", chart, values, strict=True)
    errors = [message["error"] for message in answer["messages"] if message["severity"] > 1]
    return [*errors, *answer["errors"]]


def package(chart: Path, folder: Path) -> Path:
    """`helm package`: the archive, in that folder. Raises HelmError."""
    return Path(str(_ask("package", chart, {}, destination=str(folder))))


def install(chart: Path, values: Values, name: str, namespace: str, kubeconfig: Path) -> Manifest:
    """`helm install`: the release. Raises HelmError."""
    return dict(_ask("install", chart, values, name=name, namespace=namespace, kubeconfig=str(kubeconfig)))


def _ask(what: str, chart: Path, values: Values, **options: object) -> Any:
    done = subprocess.run(
        [sys.executable, "-c", _CHILD],
        input=json.dumps([what, str(chart), values, options]),
        capture_output=True,
        text=True,
        timeout=_ANSWER_SECONDS,
        check=False,
        env={"PYTHONPATH": str(find_helm()), "HOME": "/nonexistent"},
    )
    if done.returncode != 0:
        raise HelmError(done.stderr.partition("helm_python.errors.")[2] or done.stderr)
    return json.loads(done.stdout)
