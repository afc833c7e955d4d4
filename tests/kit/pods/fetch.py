"""`python -m tests.kit.pods.fetch`: all that the tests on real pods run on, into the user's cache: programs, Flink, images."""

import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Final

from tests.kit.kubernetes_server import assets
from tests.kit.pods.images import build
from tests.kit.pods.node import programs
from tests.lab.lab_error import LabError

_BUILD_SECONDS: Final = 1800.0
_PIECES: Final[Mapping[str, Callable[[], object]]] = {
    "the images of the pods": build,
    "the programs of a Kubernetes node": lambda: (
        assets(_BUILD_SECONDS),
        programs(),
    ),  # two builds at once are no faster
}


def _fetch(name: str) -> bool:
    """Whether it is there now."""
    began = time.monotonic()
    try:
        _PIECES[name]()
    except (LabError, subprocess.SubprocessError, AssertionError) as error:
        print(f"pods: {name} could not be had: {error}", file=sys.stderr, flush=True)  # noqa: T201
        return False
    print(f"pods: {name} are there ({time.monotonic() - began:.0f} s)", file=sys.stderr, flush=True)  # noqa: T201
    return True


def main() -> int:
    """The exit status: 0 when everything is there."""
    with ThreadPoolExecutor(len(_PIECES)) as pool:
        return 0 if all([*pool.map(_fetch, _PIECES)]) else 1


if __name__ == "__main__":
    sys.exit(main())
