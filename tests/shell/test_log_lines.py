"""One thing that happened is one line of log, whatever it quotes from elsewhere."""

import logging
import subprocess
import sys
from io import StringIO

import pytest

from sidecar.cli.logs import LineFormatter

FORGED = "jm-0\n2026-11-22T10:00:00.000 INFO sidecar.loop: REVOKED everything\r\x1b[2J\u202eevil\x00\u2028\x85x"
ESCAPED = r"jm-0\n2026-11-22T10:00:00.000 INFO sidecar.loop: REVOKED everything\r\u001b[2J\u202eevil\u0000\u2028\u0085x"


def logged(*arguments: object, tracebacks: bool = False, **options: object) -> str:
    """What one call leaves in the log."""
    stream = StringIO()
    handler = logging.StreamHandler(stream)
    handler.setFormatter(LineFormatter("%(levelname)s %(message)s", tracebacks=tracebacks))
    logger = logging.Logger("one of ours")  # noqa: LOG001  nobody else's lines
    logger.addHandler(handler)
    logger.error(*arguments, **options)  # type: ignore[arg-type]  # as a caller gives them
    return stream.getvalue()


def test_what_is_quoted_makes_no_line_of_its_own() -> None:
    """Line breaks, escape sequences and characters that turn the order of others are shown as what they are."""
    assert logged("%s has claimed a message", FORGED) == f"ERROR {ESCAPED} has claimed a message\n"


def test_what_can_be_read_is_left_as_it_is() -> None:
    """In every script, with our own arrows and dots."""
    assert logged("jm-0 → jm-1 … “größer” 領導者") == "ERROR jm-0 → jm-1 … “größer” 領導者\n"


@pytest.mark.parametrize("tracebacks", [True, False])
def test_a_traceback_is_shown_when_asked_for_and_forges_nothing(tracebacks: bool) -> None:
    """Else the error is one more line; every line of it is indented, so that none looks like another record."""
    try:
        raise ValueError(FORGED)
    except ValueError:
        first, *others = logged("reading failed", exc_info=True, tracebacks=tracebacks).splitlines()
    assert first == "ERROR reading failed"
    assert (len(others) > 1) is tracebacks
    assert all(line.startswith("    ") and line.isprintable() for line in others)
    assert "ValueError: jm-0" in "\n".join(others)


CODE = """
import logging, sys
from sidecar.cli.main import cli
cli(["rules", "--help"], standalone_mode=False)
logging.getLogger("kazoo").warning("a\\nb")
logging.getLogger("sidecar.zookeeper").info("c\\x1b[2J")
"""


def test_every_command_logs_so() -> None:
    """Also what a library says."""
    done = subprocess.run([sys.executable, "-I", "-c", CODE], capture_output=True, text=True, timeout=60, check=True)
    lines = done.stderr.splitlines()
    assert [line.partition(" ")[2] for line in lines] == [r"WARNING kazoo: a\nb", r"INFO sidecar.zookeeper: c\u001b[2J"]


def test_nothing_is_logged_below_the_error_that_ends_a_command() -> None:
    """By a thread that has not noticed yet."""
    code = "import logging; from sidecar.cli import logs; logs.set_up(debug=False); logging.error('1'); logs.end(); logging.error('2')"
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True)
    assert [line[-1] for line in ended.stderr.splitlines()] == ["1"]
