"""Tables fit a terminal, colours are for terminals, and what is printed as data is data."""

import json
import sys
from io import StringIO

import pytest
from ruamel.yaml import YAML

from sidecar.cli.printing import Cell, is_coloured, print_document, print_table, print_text

ROWS: list[list[str | Cell]] = [
    ["COMPONENT", "LEADER", "SINCE"],
    ["dispatcher", Cell("jobmanager-0.jobmanagers.flink.svc.cluster.local:6123", "red"), "2026-11-23 10:00:00Z"],
    ["rest_server", "short", "before 2026-11-23 10:00:00Z"],
]


class Terminal(StringIO):
    def isatty(self) -> bool:
        return True


def test_a_wide_cell_loses_its_middle(capsys: pytest.CaptureFixture[str]) -> None:
    """The other columns stay whole, and every line fits."""
    print_table(ROWS, width=60, flexible=[1], indent="  ")
    lines = capsys.readouterr().out.splitlines()
    assert max(map(len, lines)) == 60
    assert "…" in lines[1]
    assert lines[1].endswith("2026-11-23 10:00:00Z")


def test_without_a_width_nothing_is_shortened(capsys: pytest.CaptureFixture[str]) -> None:
    """As with `-o wide`."""
    print_table(ROWS, flexible=[1])
    assert "jobmanager-0.jobmanagers.flink.svc.cluster.local:6123" in capsys.readouterr().out


def test_a_cell_cannot_act_on_the_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    """Whatever is in the store."""
    print_table([["LEADER"], ["\x1b[2J\n\N{RIGHT-TO-LEFT OVERRIDE}x"]])
    print_text("a\x1b[2Jb")
    assert all(line.isprintable() for line in capsys.readouterr().out.splitlines())


@pytest.mark.parametrize(
    ("variables", "coloured"),
    [({}, True), ({"NO_COLOR": "1"}, False), ({"NO_COLOR": ""}, True), ({"TERM": "dumb"}, False)],
    ids=["a terminal", "NO_COLOR", "an empty NO_COLOR", "a dumb terminal"],
)
def test_colours_are_for_terminals(variables: dict[str, str], coloured: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Unless somebody does not want them; never in a file or a pipe."""
    for name, value in {"TERM": "xterm", **variables}.items():
        monkeypatch.setenv(name, value)
    if "NO_COLOR" not in variables:
        monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.setattr(sys, "stdout", Terminal())
    assert is_coloured() is coloured
    monkeypatch.setattr(sys, "stdout", StringIO())
    assert not is_coloured()


def test_a_colour_is_around_the_text_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """The columns stay where they are."""
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.delenv("NO_COLOR", raising=False)
    out = Terminal()
    monkeypatch.setattr(sys, "stdout", out)
    print_table([["A", "B"], [Cell("x", "red"), "y"]])
    assert out.getvalue() == "A  B\n\x1b[31mx\x1b[0m  y\n"


@pytest.mark.parametrize(
    "value",
    [
        {"a": [], "b": {}, "c": None, "d": [1, 2.5, True], "on": "off", "e": {"f": [{"g": "h"}, {"i": ["j", ["k"]]}]}},
        [{"text": 'x: "y" # z\n\x1b[2J', "plain": "word", "date": "2026-11-23", "number": "1", "null": "null"}],
        [],
        {},
        ["- a", "? b", "", " ", "~", "{x}", "é\N{RIGHT-TO-LEFT OVERRIDE}"],
    ],
)
def test_yaml_means_the_same_as_json(value: object, capsys: pytest.CaptureFixture[str]) -> None:
    """Read by another program; both printable, whatever is in them."""
    print_document(value, "yaml")
    text = capsys.readouterr().out
    assert YAML(typ="safe", pure=True).load(text) == value
    print_document(value, "json")
    line = capsys.readouterr().out
    assert json.loads(line) == value
    assert all(each.isprintable() for each in (*text.splitlines(), *line.splitlines()))
