"""`drill`: what is wrong is one line with what to do, before anything is written. With a store: tests/integration/test_drills.py."""

from pathlib import Path
from typing import Final

import pytest

from sidecar.cli.exit_status import exit_status
from sidecar.cli.main import cli

CONFIG: Final = """\
clusters:
  - zookeeper: {quorum: "127.0.0.1:1", cluster_id: orders}
  - zookeeper: {quorum: "127.0.0.1:1", cluster_id: billing}
silences: {longest: 1d}
"""


@pytest.mark.parametrize(
    ("arguments", "status", "line"),
    [
        (["start"], 2, "--cluster: which one? This configuration has orders, billing"),
        (["start", "--cluster", "order"], 2, 'no cluster of this configuration is called so: did you mean "orders"?'),
        (["start", "--cluster", "orders", "--window", "5h"], 2, '--window: "5h" is too long: give at most 4h'),
        (["start", "--cluster", "orders", "--window", "10s"], 2, "is too short"),
        (["start", "--cluster", "orders", "--window", "soon"], 2, '"soon" is not a duration'),
        (["start", "--cluster", "orders", "--expect", "chaos"], 2, "'chaos' is not 'failover'"),
        (["start", "--cluster", "orders", "--comment", "a\x1b[2J"], 2, "--comment must be"),
        (["start", "--cluster", "orders", "--author", "x" * 101], 2, "--author must be 1 to 100"),
        (["start", "--cluster", "orders"], 1, "could not be written for cluster orders"),
        (["stop"], 1, "the silences could not be read for cluster"),
    ],
    ids=lambda value: " ".join(value)[:50] if isinstance(value, list) else "",
)
def test_a_drill_that_cannot_be_is_one_line(
    arguments: list[str], status: int, line: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Exit status 2 for wrong usage, 1 where the store cannot be reached."""
    config = tmp_path / "sidecar.yaml"
    config.write_text(CONFIG)
    try:
        cli(["drill", *arguments, "--config", str(config)], standalone_mode=False)
    except Exception as error:  # noqa: BLE001  what the command line makes of any error
        code = exit_status(error, debug=False)
    printed = capsys.readouterr()
    assert printed.out == ""
    (text,) = printed.err.splitlines()
    assert line in text
    assert code == status


def test_a_configuration_without_a_shared_store_has_no_drills(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """As with silences: nobody else would know of it."""
    config = tmp_path / "sidecar.yaml"
    config.write_text('zookeeper: {quorum: "127.0.0.1:1"}\nledger: {mode: local}\n')
    with pytest.raises(Exception, match=r"ledger\.mode is local") as raised:
        cli(["drill", "start", "--config", str(config)], standalone_mode=False)
    assert exit_status(raised.value, debug=False) == 2
    capsys.readouterr()
