"""What each test costs: `pytest --costs FILE` writes its seconds and its seconds of CPU, the costliest first.

CPU is that of the process that runs the test and of all its descendants, so that servers count. A server that several tests share counts
where it works: its start belongs to the test that asks for it first.
"""

import os
from collections import defaultdict
from collections.abc import Generator, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Final

import pytest

_TICKS: Final = os.sysconf("SC_CLK_TCK")


def _processes() -> Iterator[tuple[int, int, float]]:
    """Each process: its pid, its parent's, and its seconds of CPU with those of the children that it has waited for."""
    for entry in os.scandir("/proc"):
        with suppress(OSError):
            if entry.name.isdigit():
                fields = Path(entry.path, "stat").read_text(errors="replace").rpartition(")")[2].split()
                yield int(entry.name), int(fields[1]), sum(map(int, fields[11:15])) / _TICKS


def cpu_seconds() -> float:
    """The CPU time of this process and of all its descendants, those included that have ended and were waited for."""
    seconds: dict[int, float] = {}
    children = defaultdict[int, list[int]](list)
    for pid, parent, used in _processes():
        seconds[pid] = used
        children[parent].append(pid)
    family = [os.getpid()]
    for pid in family:
        family += children[pid]
    return sum(seconds.get(pid, 0.0) for pid in family)


class Costs:
    """Measures where the tests run, and writes the file in the process that shares them out."""

    def __init__(self, file: Path) -> None:
        self._file = file
        self._last = cpu_seconds()
        self._seconds = defaultdict[str, float](float)
        self._cpu = defaultdict[str, float](float)

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(self) -> Generator[None, pytest.TestReport, pytest.TestReport]:
        """Adds what the test took, with its fixtures, to its last report, which travels to the process that shares out the tests."""
        report = yield
        if report.when == "teardown":
            now = cpu_seconds()
            report.__dict__["cpu_seconds"] = max(0.0, now - self._last)
            self._last = now
        return report

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Called for each phase of each test."""
        self._seconds[report.nodeid] += report.duration
        self._cpu[report.nodeid] += report.__dict__.get("cpu_seconds", 0.0)

    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        """Write the table: seconds of CPU, seconds, test."""
        if not hasattr(session.config, "workerinput"):
            costliest = sorted(self._cpu, key=lambda test: -self._cpu[test])
            rows = (f"{self._cpu[test]:.2f}\t{self._seconds[test]:.2f}\t{test}\n" for test in costliest)
            self._file.write_text("".join(rows))


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--costs", metavar="FILE", type=Path, help="write what each test takes: CPU seconds, seconds, test"
    )


def pytest_configure(config: pytest.Config) -> None:
    if file := config.getoption("--costs"):
        config.pluginmanager.register(Costs(file), "costs")
