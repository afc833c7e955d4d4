"""`silence`: what is wrong is one line with what to do, before anything is written. With a store: tests/integration/test_silences.py."""

import json
from pathlib import Path
from typing import Final

import pytest
from click.testing import CliRunner

from sidecar.cli.exit_status import exit_status
from sidecar.cli.main import cli

CONFIG: Final = """\
clusters:
  - zookeeper: {quorum: "127.0.0.1:1", cluster_id: orders}
  - zookeeper: {quorum: "127.0.0.1:1", cluster_id: billing}
external_labels: {env: prod}
silences: {longest: 1d}
"""
_ADD: Final = ("add", "--matcher", 'cluster_id="orders"', "--duration", "2h", "--comment", "upgrade")


@pytest.fixture
def config(tmp_path: Path) -> Path:
    file = tmp_path / "sidecar.yaml"
    file.write_text(CONFIG)
    return file


def fails(config: Path, capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str]:
    """The exit status, and the one line on stderr."""
    try:
        cli(["silence", *arguments, "--config", str(config)], standalone_mode=False)
    except Exception as error:  # noqa: BLE001  what the command line makes of any error
        status = exit_status(error, debug=False)
    printed = capsys.readouterr()
    assert printed.out == ""
    (line,) = printed.err.splitlines()
    return status, line.removeprefix("flink-ha-sidecar: ")


@pytest.mark.parametrize(
    ("changed", "line"),
    [
        (
            ["--matcher", 'cluser_id="orders"'],
            '--matcher: no alert has a label "cluser_id": did you mean "cluster_id"?',
        ),
        (["--matcher", "orders"], "is not a matcher"),
        (["--matcher", 'alert="FlinkNoLeadr"'], 'no rule has alert="FlinkNoLeadr": did you mean "FlinkNoLeader"?'),
        (["--matcher", 'alert=~"Flnk.+"'], 'no rule has alert=~"Flnk.+": expected one of Flink'),
        (["--matcher", 'severity="critcal"'], 'no rule has severity="critcal": did you mean "critical"?'),
        (["--matcher", 'component="dispacher"'], 'no rule has component="dispacher": did you mean "dispatcher"?'),
        (
            ["--matcher", 'alert="FlinkNoLeader",severity="info"'],
            'no rule has alert="FlinkNoLeader" and severity="info": `rules show` prints the rules',
        ),
        (["--matcher", '"alert"="FlinkNoLeader"'], "the name of a label is written without quotes"),
        (["--matcher", 'alert=~"("'], "is not a regular expression"),
        (
            ["--matcher", r'alert=~"(?!x)"'],
            '--matcher: the pattern of "alert" is not understood: invalid perl operator: (?!',
        ),
        (["--matcher", 'alert=~".*"'], 'alert=~".*" matches every alert without such a label: add one like'),
        (["--matcher", 'severity!="info"'], "or give --all"),
        (["--matcher", 'cluster_id="order"'], 'no cluster of this configuration matches: did you mean "orders"?'),
        (["--matcher", 'cluster_id="orders",env="test"'], "no cluster of this configuration matches"),
        (["--duration", "2 hours"], '--duration: "2 hours" is not a duration'),
        (["--duration", "2d"], '--duration: "2d" is too long: give at most 1d'),
        (["--duration", "0"], "is too short"),
        (["--comment", " "], "--comment must be 1 to 500 printable characters"),
        (["--comment", "x" * 501], "--comment must be"),
        (["--comment", "a\x1b[2J"], "--comment must be"),
        (["--author", "x" * 101], "--author must be 1 to 100"),
    ],
    ids=lambda value: " ".join(value)[:40] if isinstance(value, list) else "",
)
def test_a_silence_that_cannot_be_is_one_line(
    changed: list[str], line: str, config: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """It names what is wrong, and the status is 2."""
    given = dict(zip(_ADD[1::2], _ADD[2::2], strict=True)) | dict(zip(changed[::2], changed[1::2], strict=True))
    status, printed = fails(config, capsys, "add", *(text for pair in given.items() for text in pair))
    assert status == 2
    assert line in printed


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        (("add", "--duration", "2h", "--comment", "x"), "give --matcher, or --all to silence all alerts"),
        (("add", "--matcher", 'alert="x"', "--comment", "x"), "Missing option '--duration'"),
        (("add", "--matcher", 'alert="x"', "--duration", "1h"), "Missing option '--comment'"),
    ],
    ids=["no matcher", "no end", "no comment"],
)
def test_what_is_required(
    arguments: tuple[str, ...], line: str, config: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A silence without an end is none."""
    status, printed = fails(config, capsys, *arguments)
    assert status == 2
    assert line in printed


@pytest.mark.parametrize("arguments", [_ADD, ("list",), ("expire", "3f2a")], ids=["add", "list", "expire"])
def test_a_sidecar_of_its_own_has_no_silences(
    arguments: tuple[str, ...], config: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """`ledger: {mode: local}` shares nothing: the line says what to do instead."""
    config.write_text(CONFIG + "ledger: {mode: local}\n")
    status, printed = fails(config, capsys, *arguments)
    kept = "silences are kept in the store that all sidecars of a cluster share, and ledger.mode is local"
    assert (status, printed) == (2, f"{kept}: set it to auto or store, or use mute_time_intervals")


def test_a_store_that_cannot_be_reached_is_one_line(config: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Which cluster, and why; the status is 1: it may be tried again. 3 of a list: what there is cannot be told."""
    status, printed = fails(config, capsys, *_ADD)
    assert status == 1
    assert printed.startswith("silence ")
    assert (
        " could not be written for cluster orders: cannot read the silences /flink-ha-sidecar/flink/orders/silences"
        in printed
    )
    status, printed = fails(config, capsys, "list")
    assert status == 3
    assert printed.startswith("the silences could not be read for cluster billing and 1 more: cannot read the silences")


def test_help_names_what_each_option_takes() -> None:
    """In the words of the documents."""
    shown = CliRunner().invoke(cli, ["silence", "add", "--help"]).output
    assert all(option in shown for option in ("--matcher", "--all", "--duration", "--comment", "--author"))
    assert json.dumps("default") in shown
