"""Which tests run one after the other on one worker, and what the log shows of it: `make test` starts several workers (pytest-xdist).

A plugin of pytest, loaded by tests/conftest.py. A group is what shares a costly server, else a file. Those that take longest begin first.
"""

import time
from collections import Counter, defaultdict
from collections.abc import Sequence
from typing import Any, Final

import pytest
from xdist.scheduler import LoadScopeScheduling

_GROUPS: Final = {
    "Spark, writing": tuple(
        f"audit/test_{name}"
        for name in (
            "ingest",
            "poison",
            "verify",
            "elsewhere",
            "schema",
            "compact",
            "retention",
            "segment_log",
            "visible_ids",
        )
    ),
    "Spark, object stores": tuple(f"audit/test_{name}" for name in ("object_store", "publication", "readers")),
    "Kubernetes": (
        "deploy/test_kubernetes",
        "integration/test_drivers",
        "integration/test_fake_flink",
        "integration/test_kubernetes",
        "integration/test_ledgers",
        "integration/test_no_such_cluster",
        "integration/test_silences",
        "integration/test_trickling_stores",
    ),
    "campaign": ("campaign/test_short",),
    "Spark, questions": tuple(
        f"audit/test_{name}"
        for name in (
            "answers",
            "comments",
            "cookbook",
            "queries_only",
            "report",
            "shell",
            "sql",
            "warm_up",
        )
    ),
    "Spark, closed dates and crashes": ("audit/test_materialized", "audit/test_crash"),
    "Flink's listeners": ("e2e/test_flink_listener",),
    "ZooKeeper": tuple(f"integration/test_zookeeper_{name}" for name in ("driver", "ledger", "watches")),
}
"""What shares a server, or takes minutes, by the beginnings of the ids of its tests; all else is a group by file. They begin in this order,
in which those that compute and those that wait take turns: a worker that begins a long group late is the one that all others wait for.
"""

_ROOMS: Final = ("audit", "e2e", "campaign", "integration", "deploy", "lab", "sinks", "shell")
"""The order of the files: first those whose tests take long."""

_FAST_ROOMS: Final = tuple(f"tests/{room}/" for room in ("core", "settings", "simulation", "shell", "sinks"))
_SERVERS: Final = {"java", "zookeeper", "lab", "spark"}
"""Fixtures that a test of the fast lane does without. Whoever runs a JVM asks for `java`."""


def group_of(nodeid: str) -> str:
    """The name of the group that a test belongs to."""
    name = nodeid.removeprefix("tests/")
    return next((group for group, begins in _GROUPS.items() if name.startswith(begins)), name.partition("::")[0])


def _turn(nodeid: str) -> tuple[int, int]:
    """When a test's group is begun."""
    group, room = group_of(nodeid), nodeid.split("/")[1]
    return (
        [*_GROUPS].index(group) if group in _GROUPS else len(_GROUPS),
        _ROOMS.index(room) if room in _ROOMS else len(_ROOMS),
    )


class GroupScheduling(LoadScopeScheduling):  # type: ignore[misc]  # untyped
    """Gives each worker whole groups, in the order in which the tests were collected."""

    def _split_scope(self, nodeid: str) -> str:
        return group_of(nodeid)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> GroupScheduling:
    """Called in the process that shares out the tests. (`--dist loadgroup` does not group under pytest 9.2: pytest-xdist's issue 1386.)"""
    config.option.loadscopereorder = False
    return GroupScheduling(config, log)


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Put the groups that take longest first, and mark what `make test-fast` runs."""
    for item in items:
        fixtures: Sequence[str] = getattr(item, "fixturenames", ())
        if item.nodeid.startswith(_FAST_ROOMS) and not _SERVERS & {*fixtures} and not item.get_closest_marker("timing"):
            item.add_marker(pytest.mark.fast)
    items.sort(key=lambda item: _turn(item.nodeid))


class Progress:
    """Prints a line when a group has run: the log of a run on several workers, in place of a dot for each test."""

    def __init__(self, terminal: pytest.TerminalReporter) -> None:
        self._terminal = terminal
        self._sizes = Counter[str]()
        self._done = Counter[str]()
        self._failed = Counter[str]()
        self._seconds = defaultdict[str, float](float)

    @pytest.hookimpl(optionalhook=True)
    def pytest_xdist_node_collection_finished(self, ids: Sequence[str]) -> None:
        """Called for each worker: they all collect the same."""
        self._sizes = Counter(map(group_of, ids))

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Called for each phase of each test."""
        group = group_of(report.nodeid)
        self._seconds[group] += report.duration
        self._failed[group] += report.failed
        if report.when != "teardown":
            return
        self._done[group] += 1
        if self._done[group] == self._sizes[group]:
            failed = f", {self._failed[group]} failed" if self._failed[group] else ""
            share = 100 * self._done.total() // self._sizes.total()
            line = f"{share:3}% {group}: {self._sizes[group]} tests{failed}, {self._seconds[group]:.0f} s"
            self._terminal.write_line(f"{time.strftime('%H:%M:%S')} {line}")

    @pytest.hookimpl(tryfirst=True)
    def pytest_report_teststatus(self, report: pytest.TestReport) -> tuple[str, str, str] | None:
        """No dot for a test that passed."""
        return ("passed", "", "") if report.passed and report.when == "call" else None


@pytest.hookimpl(trylast=True)
def pytest_configure(config: pytest.Config) -> None:
    """Called once in each process, when there is a terminal."""
    terminal = config.pluginmanager.get_plugin("terminalreporter")
    if terminal and config.getoption("numprocesses", None):
        config.pluginmanager.register(Progress(terminal), "progress-of-groups")
