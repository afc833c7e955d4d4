"""Fixtures that start real servers, for every test that wants one."""

import logging
import os
import sys
from collections.abc import Callable, Generator, Iterator
from pathlib import Path

import pytest

from tests.kit.kubernetes_server import assets
from tests.kit.receivers import webhook
from tests.kit.waiting import PATIENCE_SECONDS, until
from tests.lab.distribution import flink_home
from tests.lab.flink import Lab
from tests.lab.java import find_java
from tests.lab.receivers import HttpReceiver
from tests.lab.zookeeper import ZooKeeper

pytest_plugins = ["tests.kit.groups", "tests.kit.costs", "tests.kit.fetched"]

NO_SKIPS = "FLINK_HA_SIDECAR_NO_SKIPS" in os.environ
"""Set in CI: a test that cannot run there is a failure."""

FLINK_2 = "2.3.0"
FLINK_1 = "1.20.5"


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport() -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Where nothing may be skipped, a skipped test has failed."""
    report = yield
    if NO_SKIPS and report.skipped:
        report.outcome = "failed"
        report.longrepr = f"skipped, where nothing may be: {report.longrepr}"
    return report


def _tell(line: str) -> None:
    print(f"lab: {line}", file=sys.stderr)  # noqa: T201 — pytest shows it beside a failure


@pytest.fixture(autouse=True)
def _level_of_the_log() -> Iterator[None]:
    """A command that was run in this process has made the log more talkative: not for the tests that follow."""
    log = logging.getLogger("sidecar")
    before = log.level
    yield
    log.setLevel(before)


@pytest.fixture(scope="session")
def java() -> Path:
    """The Java of this machine."""
    return find_java()


@pytest.fixture(scope="session")
def flink_2_home() -> Path:
    """The distribution of Flink 2.3.0."""
    return flink_home(FLINK_2, _tell)


@pytest.fixture(scope="session")
def apiserver() -> Path:
    """The folder with a Kubernetes API server and its etcd. A test that has it from here runs when it is built: tests/kit/groups.py."""
    return assets()


@pytest.fixture
def zookeeper(tmp_path: Path, flink_2_home: Path, java: Path) -> Iterator[ZooKeeper]:
    """A ZooKeeper server of its own for one test, without Flink."""
    server = ZooKeeper(tmp_path / "zookeeper", flink_2_home, java)
    server.start()
    yield server
    server.kill()


@pytest.fixture
def people() -> Iterator[HttpReceiver]:
    """Who gets the messages: a webhook that accepts everything."""
    with webhook() as receiver:
        yield receiver


@pytest.fixture(scope="module")
def lab(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    """A running cluster with two JobManagers and a TaskManager, shared by the tests of a module.

    Flink 2.3.0, or what `@pytest.mark.parametrize("lab", ["1.20.5", …], indirect=True)` says.
    """
    version: str = getattr(request, "param", FLINK_2)
    with Lab(tmp_path_factory.mktemp("lab") / f"Flink {version}", version, progress=_tell) as cluster:
        cluster.start()
        yield cluster


@pytest.fixture
def eventually() -> Callable[[Callable[[], bool]], bool]:
    """Whether a condition becomes true: see `tests.kit.waiting`."""

    def wait(condition: Callable[[], bool]) -> bool:
        return until(condition, PATIENCE_SECONDS)

    return wait


@pytest.fixture
def alive() -> Callable[[int], bool]:
    """Whether a process still runs; one that has ended and was not reaped by its parent does not."""

    def look(pid: int) -> bool:
        try:
            status = Path(f"/proc/{pid}/stat").read_text()
        except (FileNotFoundError, ProcessLookupError):
            return False
        return status.rpartition(")")[2].split()[0] not in {"Z", "X"}

    return look
