"""`make fetch`: what the tests run on and the repository does not hold, into the user's cache, all at once and before the first test.

Each piece is also fetched by the test that needs it first; here nothing waits for anything else, and the log says what is waited for.
"""

import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Final

from sidecar.lab.distribution import flink_home
from sidecar.lab.lab_error import LabError
from tests.kit.amtool import AmtoolError, find_amtool, find_tool
from tests.kit.axe import find_axe
from tests.kit.flink_classes import archive_classes
from tests.kit.helm import find_helm
from tests.kit.images import build_once
from tests.kit.kubectl import find_kubectl
from tests.kit.kubernetes_server import assets

_IN_LABS: Final = ("2.3.0", "1.20.5")
"""The versions of Flink that tests run with a ZooKeeper too."""
FLINK_VERSIONS: Final = (*_IN_LABS, "1.14.6")
_BUILD_SECONDS: Final = 1800.0
_SPARK_SECONDS: Final = 600.0


def _log(line: str) -> None:
    print(f"fetch: {line}", file=sys.stderr, flush=True)  # noqa: T201  a command says what it waits for


def _flink() -> None:
    for version in FLINK_VERSIONS:
        flink_home(version, _log)
    for version in _IN_LABS:
        archive_classes(version, _log)


def _spark() -> None:
    subprocess.run([sys.executable, "-m", "sidecar", "audit", "warm-up"], check=True, timeout=_SPARK_SECONDS)


def _prometheus() -> None:
    for program in ("prometheus", "promtool"):
        find_tool(program, "prometheus")


PIECES: Final[Mapping[str, Callable[[], object]]] = {
    "Flink and the archives of its classes": _flink,
    "the Kubernetes API server": partial(assets, _BUILD_SECONDS),
    "Alertmanager's amtool": find_amtool,
    "Prometheus and its promtool": _prometheus,
    "kubectl with Kustomize": find_kubectl,
    "Helm": find_helm,
    "axe-core": find_axe,
    "the container images": build_once,
    "the archive of Spark's classes": _spark,
}


def _fetch(name: str) -> bool:
    """Whether it is there now."""
    began = time.monotonic()
    try:
        PIECES[name]()
    except (LabError, AmtoolError, subprocess.SubprocessError, AssertionError) as error:
        _log(f"{name} could not be had: {error}")
        return False
    _log(f"{name} is there ({time.monotonic() - began:.0f} s)")
    return True


def main() -> int:
    """The exit status: 0 when everything is there."""
    with ThreadPoolExecutor(len(PIECES)) as pool:
        return 0 if all([*pool.map(_fetch, PIECES)]) else 1


if __name__ == "__main__":
    sys.exit(main())
