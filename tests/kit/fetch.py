"""`make fetch`: what the tests run on and the repository does not hold, into the user's cache, once.

`python -m tests.kit.fetch [gate|long]`: what the tests of one command need, or all. Each piece is also fetched by the test that needs it
first; here they are fetched at the same time, and the log says what is waited for.
"""

import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from functools import partial
from typing import Final, NamedTuple

from sidecar.lab.distribution import flink_home
from sidecar.lab.lab_error import LabError
from tests import ROOT
from tests.kit.amtool import find_amtool
from tests.kit.axe import find_axe
from tests.kit.debian import PackageError, find_tool
from tests.kit.flink_classes import archive_classes
from tests.kit.groups import Tier
from tests.kit.haproxy import find_haproxy
from tests.kit.hdfs import find_hadoop
from tests.kit.helm import find_helm
from tests.kit.images import build_once
from tests.kit.kubectl import find_kubectl
from tests.kit.kubernetes_server import assets

_BUILD_SECONDS: Final = 1800.0
_SPARK_SECONDS: Final = 600.0
_REPORT_SECONDS: Final = 60.0
"""How often the log names what is not there yet."""


def _log(line: str) -> None:
    print(f"fetch: {line}", file=sys.stderr, flush=True)  # noqa: T201  a command says what it waits for


def _flink(*versions: str, archived: bool = True) -> None:
    """`archived`: with the archive of its classes, for a version that tests run with a ZooKeeper too."""
    for version in versions:
        flink_home(version, _log)
        if archived:
            archive_classes(version, _log)


def _spark() -> None:
    subprocess.run([sys.executable, "-m", "sidecar", "audit", "warm-up"], check=True, timeout=_SPARK_SECONDS)


def _s3_jars() -> None:
    subprocess.run(
        [str(ROOT / "scripts" / "s3-jars.sh")], check=True, stdout=subprocess.DEVNULL, timeout=_SPARK_SECONDS
    )


def _prometheus() -> None:
    for program in ("prometheus", "promtool"):
        find_tool(program, "prometheus")


class Piece(NamedTuple):
    """Something to fetch. `tier`: the first command whose tests need it."""

    tier: Tier
    fetch: Callable[[], object]
    hint: str = ""
    """How to save the time that it takes."""


PIECES: Final[Mapping[str, Piece]] = {
    "the Kubernetes API server": Piece(
        Tier.GATE,
        partial(assets, _BUILD_SECONDS),
        "built once from Debian's source, in 4 minutes or more; KUBEBUILDER_ASSETS may name a folder with kube-apiserver and etcd",
    ),
    "Flink 2.3.0 and the archive of its classes": Piece(Tier.GATE, partial(_flink, "2.3.0")),
    "Alertmanager's amtool": Piece(Tier.GATE, find_amtool),
    "Prometheus and its promtool": Piece(Tier.GATE, _prometheus),
    "kubectl with Kustomize": Piece(Tier.GATE, find_kubectl),
    "Helm": Piece(Tier.GATE, find_helm),
    "the archive of Spark's classes": Piece(Tier.GATE, _spark),
    "Flink 1.20.5 and the archive of its classes": Piece(Tier.LONG, partial(_flink, "1.20.5")),
    "Flink 1.14.6": Piece(Tier.LONG, partial(_flink, "1.14.6", archived=False)),
    "axe-core": Piece(Tier.LONG, find_axe),
    "HAProxy": Piece(Tier.LONG, find_haproxy),
    "the container images": Piece(Tier.LONG, build_once),
    "Spark's connector for S3": Piece(Tier.LONG, _s3_jars),
    "HDFS": Piece(Tier.LONG, find_hadoop),
}


def _fetch(name: str) -> bool:
    """Whether it is there now."""
    began = time.monotonic()
    try:
        PIECES[name].fetch()
    except (LabError, PackageError, subprocess.SubprocessError, AssertionError) as error:
        _log(f"{name} could not be had: {error}")
        return False
    _log(f"{name} is there ({time.monotonic() - began:.0f} s)")
    return True


def _wait(pieces: Mapping[Future[bool], str]) -> bool:
    """Whether all are there in the end. Meanwhile the log names those that are not."""
    began, missing = time.monotonic(), {*pieces}
    while missing := wait(missing, _REPORT_SECONDS).not_done:
        names = (
            f"{name} ({hint})" if (hint := PIECES[name].hint) else name for name in map(pieces.__getitem__, missing)
        )
        _log(f"after {time.monotonic() - began:.0f} s not there yet: {', '.join(names)}")
    return all(piece.result() for piece in pieces)


def main(arguments: Sequence[str]) -> int:
    """The exit status: 0 when everything is there."""
    tiers = [*map(Tier, arguments)] or [*Tier]
    wanted = [name for name, piece in PIECES.items() if piece.tier in tiers]
    with ThreadPoolExecutor(len(wanted)) as pool:
        return 0 if _wait({pool.submit(_fetch, name): name for name in wanted}) else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
