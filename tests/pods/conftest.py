"""What the tests on real pods have in common. They are collected in the sandbox alone: `make test-pods`."""

import os
from collections.abc import Callable, Generator
from typing import Final

import pytest

from tests.kit.pods.cluster import FlinkPods
from tests.kit.pods.outcome import Outcome

collect_ignore_glob = [] if "SANDBOX" in os.environ else ["test_*"]
_ROW: Final = "pods"
_HEADER: Final = "| fault | messages | after the new leader | cause | true time without a leader → bounds | records kept | peak memory |"
_RUNS: Final = int(os.environ.get("PODS_RUNS", "1"))
"""How often each fault is done."""
Report = Callable[[str, Outcome | str], None]


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark them."""
    for item in items:
        if item.nodeid.startswith("tests/pods/"):
            item.add_marker(pytest.mark.pods)


@pytest.fixture(autouse=True, params=range(1, _RUNS + 1))
def run(request: pytest.FixtureRequest) -> int:
    """The number of the run, from 1."""
    return int(request.param)


@pytest.fixture
def report(record_property: Callable[[str, object], None], run: int) -> Report:
    """Puts an outcome, or a figure, into the table at the end of the run."""

    def note(fault: str, outcome: Outcome | str) -> None:
        scenario = fault if _RUNS == 1 else f"{fault}, run {run}"
        record_property(_ROW, outcome.row(scenario) if isinstance(outcome, Outcome) else f"| {scenario} | {outcome} |")

    return note


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Show what the store and the sidecars said, where a test failed: the sandbox keeps nothing."""
    report = yield
    cluster = getattr(item, "funcargs", {}).get("cluster")
    if report.failed and isinstance(cluster, FlinkPods):
        report.sections += cluster.describe()
    return report


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Print the table of docs/project/pods.md."""
    reports = terminalreporter.getreports("passed") + terminalreporter.getreports("failed")
    rows = sorted({str(row) for each in reports for key, row in each.user_properties if key == _ROW})
    if rows:
        terminalreporter.section("pods")
        for row in (_HEADER, "|---|---|---|---|---|---|---|", *rows):
            terminalreporter.write_line(row)
