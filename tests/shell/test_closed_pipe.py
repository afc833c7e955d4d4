"""A reader that has gone, as `| head -1` has, is no failure of ours."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.shell.remembering import remember, two_failovers

CLOSED_PIPE = 141


def run(*arguments: str, closed: bool = True, **environment: str) -> tuple[int, str]:
    """Exit status and stderr of the command; where it is `closed`, nobody reads its output."""
    reader, writer = os.pipe()
    if closed:
        os.close(reader)
    try:
        ended = subprocess.run(
            [sys.executable, "-m", "sidecar", *arguments],
            stdout=writer,
            stderr=subprocess.PIPE,
            text=True,
            timeout=120,
            env=os.environ | environment,
            check=False,
        )
    finally:
        os.close(writer)
        if not closed:
            os.close(reader)
    return ended.returncode, ended.stderr


@pytest.fixture
def state(tmp_path: Path) -> Path:
    """The state folder of a sidecar that has seen failovers."""
    remember(tmp_path, two_failovers())
    return tmp_path


@pytest.mark.parametrize(
    "arguments",
    [
        *(["--help"], ["--version"], ["timeline", "--help"], ["--debug", "timeline"]),
        *(["timeline"], ["timeline", "--output", "json"], ["explain", "{episode}"]),
        *(["config", "check", "--zookeeper", "127.0.0.1:1"], ["rules", "--help"]),
    ],
)
def test_a_closed_pipe_ends_a_command_without_a_word(arguments: list[str], state: Path) -> None:
    """The status is what a shell reports of any tool that SIGPIPE ends."""
    episode = two_failovers().episodes()[0].id
    given = [argument.format(episode=episode) for argument in arguments]
    if {"timeline", "explain"} & {*given} and "--help" not in given:
        given += ["--state-dir", str(state)]
    assert run(*given) == (CLOSED_PIPE, "")


def test_shell_completion_ends_well() -> None:
    """It is click that ends the process."""
    assert run(closed=False, _FLINK_HA_SIDECAR_COMPLETE="bash_source") == (0, "")
    assert run(_FLINK_HA_SIDECAR_COMPLETE="bash_source") == (CLOSED_PIPE, "")


def test_an_error_keeps_its_line_and_its_status() -> None:
    """Where it is stdout alone that nobody reads."""
    status, said = run("timeline", "--state-dir", "/no/such/folder")
    assert (status, said.count("\n")) == (1, 1)
