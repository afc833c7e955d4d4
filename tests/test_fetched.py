"""`make test` sees what it fetches, and nothing else; what it begins ends with it."""

import fcntl
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from tests import ROOT

_RUN_SECONDS = 120.0
Eventually = Callable[[Callable[[], bool]], bool]
_TAKES = """
import os
import pathlib

CACHE = pathlib.Path(os.environ["FLINK_HA_SIDECAR_CACHE"])

def test_of_the_gate():
    assert (CACHE / "helm-1" / "helm").read_text() == "helm"

def test_of_the_long_tier():
    assert (CACHE / "s3" / "jar").is_file()

def test_that_fetches():
    (CACHE / "haproxy").mkdir()

def test_that_takes_an_api_server(apiserver):
    pass
"""


def test_a_test_of_the_gate_that_takes_a_piece_of_the_long_tier_fails(tmp_path: Path) -> None:
    """Whether it looks into the cache, where `make test-long` has put it, or fetches it. Nor does it build an API server."""
    for piece in ("helm-1/helm", "s3/jar"):
        (tmp_path / "cache" / piece).parent.mkdir(parents=True)
        (tmp_path / "cache" / piece).write_text("helm")
    tests = tmp_path / "tests" / "core" / "test_takes.py"
    tests.parent.mkdir(parents=True)
    tests.write_text(_TAKES)
    options = ("--tier", "gate", "--fetched", "-rA", "-p", "tests.conftest", "-c", str(ROOT / "pyproject.toml"))
    done = subprocess.run(
        [sys.executable, "-m", "pytest", *options, "--rootdir", str(tmp_path), str(tests)],
        cwd=ROOT,
        env={name: value for name, value in os.environ.items() if not name.startswith(("PYTEST_", "KUBEBUILDER_"))}
        | {"FLINK_HA_SIDECAR_CACHE": str(tmp_path / "cache")},
        capture_output=True,
        text=True,
        timeout=_RUN_SECONDS,
        check=False,
    )
    # Where CI is set, pytest also writes what went wrong behind each name.
    outcomes = (line.partition("/test_takes.py::")[::2] for line in done.stdout.splitlines() if "::" in line)
    assert sorted(f"{outcome.partition(' ')[0]} {name.partition(' ')[0]}" for outcome, name in outcomes) == [
        "ERROR test_that_fetches",
        "ERROR test_that_takes_an_api_server",
        "FAILED test_of_the_long_tier",
        "PASSED test_of_the_gate",
        "PASSED test_that_fetches",
    ], done.stdout


_APT = """#!/bin/sh
case "$*" in
  *indextargets*) echo http://127.0.0.1:1/debian ;;
  *) sleep 600 & echo "$$ $!" > "$PIDS"; wait ;;
esac
"""
_PYTHON = """#!/bin/sh
sleep 600 & echo "$$ $!" > "$PIDS.$$"; wait
"""


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGKILL], ids=lambda number: number.name)
def test_a_build_of_the_api_server_ends_with_the_fetch(
    tmp_path: Path, eventually: Eventually, alive: Callable[[int], bool], number: signal.Signals
) -> None:
    """With all that the script has started; nothing of it stays in the cache, and the next build need not wait for it."""
    pids, cache = tmp_path / "pids", tmp_path / "cache"
    fetch = [sys.executable, "-m", "tests.kit.fetch", "gate", "--slow"]
    with started(fetch, tmp_path, "apt-get", _APT) as fetching:
        assert eventually(lambda: pids.exists() and len(pids.read_text().split()) == 2)
        processes = [*map(int, pids.read_text().split())]
        assert [*map(alive, processes)] == [True, True]
        fetching.send_signal(number)
        assert eventually(lambda: not any(map(alive, processes)) and [*cache.glob(".*")] == [])
        assert eventually(lambda: is_free(cache / "apiserver.lock"))


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT], ids=lambda number: number.name)
def test_what_make_test_starts_ends_with_it(
    tmp_path: Path, eventually: Eventually, alive: Callable[[int], bool], number: signal.Signals
) -> None:
    """Both fetches, and the tests."""
    command = ["bash", str(ROOT / "scripts" / "test.sh"), "gate", "python-of-the-test", "1"]
    with started(command, tmp_path, "python-of-the-test", _PYTHON) as testing:
        assert eventually(lambda: len([*tmp_path.glob("pids.*")]) == 2)
        processes = [int(file.suffix[1:]) for file in tmp_path.glob("pids.*")]
        testing.send_signal(number)
        assert eventually(lambda: not any(map(alive, processes)))
        assert testing.wait(_RUN_SECONDS) == 128 + number


def is_free(lock: Path) -> bool:
    """Whether no process holds it."""
    with lock.open() as file, suppress(BlockingIOError):
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        return True
    return False


@contextmanager
def started(command: Sequence[str], folder: Path, program: str, script: str) -> Iterator[subprocess.Popen[bytes]]:
    """`command`, with an empty cache and a program of this name first in PATH, which writes its own id and its child's into `pids`."""
    (folder / "bin").mkdir()
    (folder / "bin" / program).write_text(script)
    (folder / "bin" / program).chmod(0o755)
    own = {"PATH": f"{folder / 'bin'}:{os.environ['PATH']}", "PIDS": str(folder / "pids")}
    environment = {name: value for name, value in os.environ.items() if name != "KUBEBUILDER_ASSETS"}
    with subprocess.Popen(
        # A shell's job in the background ignores SIGINT, and so would its children.
        ["/usr/bin/env", "--default-signal=INT", *command],
        cwd=ROOT,
        env=environment | own | {"FLINK_HA_SIDECAR_CACHE": str(folder / "cache")},
        start_new_session=True,
    ) as process:
        try:
            yield process
        finally:
            for file in folder.glob("pids*"):
                for each in file.read_text().split():
                    with suppress(ProcessLookupError):
                        os.kill(int(each), signal.SIGKILL)
            process.kill()
