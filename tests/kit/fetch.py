"""`make fetch`: what the tests run on and the repository does not hold, into the user's cache, once.

`python -m tests.kit.fetch [gate|long] [--slow|--no-slow]`: what the tests of one command need, or all. Each piece is also fetched by the
test that needs it first; here they are fetched at the same time, and the log says what is waited for. Ended, it ends what it has begun.
"""

import os
import signal
import subprocess
import sys
import time
from argparse import ArgumentParser, BooleanOptionalAction
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Final, NamedTuple

from tests import ROOT
from tests.kit.amtool import find_amtool
from tests.kit.axe import find_axe
from tests.kit.debian import PackageError, find_tool
from tests.kit.flink_classes import archive_classes
from tests.kit.groups import Tier
from tests.kit.haproxy import find_haproxy
from tests.kit.helm import find_helm
from tests.kit.images import build_once
from tests.kit.kubectl import find_kubectl
from tests.kit.kubernetes_server import API_SERVER, assets
from tests.lab.distribution import flink_home
from tests.lab.lab_error import LabError

_BUILD_SECONDS: Final = 1800.0
_SPARK_SECONDS: Final = 1200.0
_REPORT_SECONDS: Final = 60.0
"""How often the log names what is not there yet."""
_END_SECONDS: Final = 0.2


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
    """Something to fetch. `tier`: the first command whose tests need it. `entry`: its name in the cache, a pattern."""

    tier: Tier
    entry: str
    fetch: Callable[[], object]
    slow: str = ""
    """Why it takes all processors for minutes, and how to save them: the tests that need it are run last."""


PIECES: Final[Mapping[str, Piece]] = {
    "the Kubernetes API server": Piece(
        Tier.GATE,
        API_SERVER,
        partial(assets, _BUILD_SECONDS),
        "built once from Debian's source, in 4 minutes or more; KUBEBUILDER_ASSETS may name a folder with kube-apiserver and etcd",
    ),
    "Flink 2.3.0 and the archive of its classes": Piece(Tier.GATE, "flink-2.3.0", partial(_flink, "2.3.0")),
    "Alertmanager's amtool": Piece(Tier.GATE, "alertmanager", find_amtool),
    "Prometheus and its promtool": Piece(Tier.GATE, "prometheus", _prometheus),
    "kubectl with Kustomize": Piece(Tier.GATE, "kubectl-*", find_kubectl),
    "Helm": Piece(Tier.GATE, "helm-*", find_helm),
    "the archive of Spark's classes": Piece(Tier.GATE, "spark-classes-*", _spark),
    "Flink 1.20.5 and the archive of its classes": Piece(Tier.LONG, "flink-1.20.5", partial(_flink, "1.20.5")),
    "Flink 1.14.6": Piece(Tier.GATE, "flink-1.14.6", partial(_flink, "1.14.6", archived=False)),
    "axe-core": Piece(Tier.LONG, "axe-*", find_axe),
    "HAProxy": Piece(Tier.LONG, "haproxy", find_haproxy),
    "the container images": Piece(Tier.LONG, "images", build_once),
    "Spark's connector for S3": Piece(Tier.LONG, "s3", _s3_jars),
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
            f"{name} ({hint})" if (hint := PIECES[name].slow) else name for name in map(pieces.__getitem__, missing)
        )
        _log(f"after {time.monotonic() - began:.0f} s not there yet: {', '.join(names)}")
    return all(piece.result() for piece in pieces)


def main(arguments: Sequence[str]) -> int:
    """The exit status: 0 when everything is there."""
    parser = ArgumentParser(prog="python -m tests.kit.fetch")
    parser.add_argument("tier", nargs="?", type=Tier, default=Tier.LONG, choices=[*Tier])
    parser.add_argument(
        "--slow", action=BooleanOptionalAction, help="what takes all processors for minutes, or all else"
    )
    asked = parser.parse_args(arguments)
    tiers = {Tier.GATE, asked.tier}
    wanted = [name for name, piece in PIECES.items() if piece.tier in tiers and asked.slow in {None, bool(piece.slow)}]
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    with ThreadPoolExecutor(len(wanted)) as pool:
        pieces = {pool.submit(_fetch, name): name for name in wanted}
        try:
            return 0 if _wait(pieces) else 1
        except KeyboardInterrupt:
            while wait(pieces, _END_SECONDS).not_done:  # one that fails may try another way: that is ended too
                _end_children()
            return 128 + signal.SIGTERM


def _end_children() -> None:
    """SIGTERM for what this process has started."""
    for children in Path("/proc/self/task").glob("*/children"):
        for child in children.read_text().split():
            with suppress(ProcessLookupError):
                os.kill(int(child), signal.SIGTERM)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
