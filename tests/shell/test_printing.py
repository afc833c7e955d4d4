"""What is printed never commands a terminal, whatever a record holds: escape sequences, line ends, marks that turn the direction."""

import json
from pathlib import Path
from typing import Any, get_args

import pytest
from msgspec.structs import fields, replace

from sidecar.cli.exit_status import exit_status
from sidecar.core.errors import OperatorError
from sidecar.core.moment import Timestamp
from sidecar.core.records import AnyRecord
from sidecar.core.sanitize import escaped
from tests.audit.spooling import annotation, contention, coverage, episode, evidence, notification, transition
from tests.kit.core_sidecar import watching
from tests.kit.sidecar_process import command
from tests.kit.spools import opened

HOSTILE = "\x1b[2J\x07\u009b31m\u202egnp.exe\u2066\u200b\rforged"
_OWN = {"id", "episode_id", "observed_at", "recorded_at"}


def hostile(record: Any) -> Any:
    """The record with such a text in each of its fields that may hold any."""
    texts = {
        field.name: HOSTILE
        for field in fields(record)
        if field.name not in _OWN
        and isinstance(getattr(record, field.name), str)
        and Timestamp not in {field.type, *get_args(field.type)}
    }
    return replace(record, **texts)


@pytest.fixture(scope="module")
def records() -> list[AnyRecord]:
    """One of each type, of one failover."""
    of_it = transition(1, episode_id=episode(1).id)
    plain = [of_it, notification(1), contention(1), coverage(1), annotation(1), evidence(1)]
    of_episode = hostile(replace(episode(1), facts=[HOSTILE], components=[HOSTILE]))
    return [*map(hostile, plain), replace(of_episode, vacant_seconds_by_component={HOSTILE: 1.0})]


@pytest.fixture(scope="module")
def state_dir(records: list[AnyRecord], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The state folder of a sidecar that recorded them."""
    folder = tmp_path_factory.mktemp("state")
    journal = opened(folder)
    assert journal.commit(watching()[1].state, records)
    journal.close()
    return folder


@pytest.mark.parametrize("arguments", [["timeline"], ["explain", episode(1).id]])
def test_a_terminal_shows_records_and_does_not_obey_them(
    state_dir: Path, records: list[AnyRecord], arguments: list[str]
) -> None:
    """As text each stays one line; as JSON too, and what is in it is the same."""
    as_text = command(*arguments, "--state-dir", str(state_dir)).stdout.removesuffix("\n").split("\n")
    assert [line for line in as_text if not line.isprintable()] == []
    assert "forged" in "".join(as_text)
    as_json = (
        command(*arguments, "--state-dir", str(state_dir), "--output", "json").stdout.removesuffix("\n").split("\n")
    )
    assert [line for line in as_json if not line.isprintable()] == []
    objects = [json.loads(line) for line in as_json]
    if arguments == ["timeline"]:
        assert len(as_text) == len(records)
        assert {record["cluster_id"] for record in objects} == {HOSTILE}
    else:
        assert [explained["episode"]["cluster_id"] for explained in objects] == [HOSTILE]


def test_what_went_wrong_is_one_printable_line(capsys: pytest.CaptureFixture[str]) -> None:
    """A message may quote the name of a file or a value that somebody else has chosen."""
    exit_status(OperatorError(f"cannot read {HOSTILE}\nforged"), debug=False)
    (line,) = capsys.readouterr().err.removesuffix("\n").split("\n")
    assert line.isprintable()


@pytest.mark.parametrize(
    "environment",
    [{"PYTHONIOENCODING": "latin-1"}, {"PYTHONIOENCODING": "ascii"}, {"LC_ALL": "C", "PYTHONUTF8": "0"}],
    ids=["latin-1", "ascii", "C"],
)
def test_a_terminal_that_is_not_utf_8_shows_what_it_can(state_dir: Path, environment: dict[str, str]) -> None:
    """With a question mark for the rest, in the help too."""
    environment = {"PYTHONCOERCECLOCALE": "0", **environment}
    shown = command("episodes", "--state-dir", str(state_dir), environment=environment)
    assert (shown.returncode, shown.stderr) == (0, "")
    assert "?" in shown.stdout
    explained = command("explain", "last", "--state-dir", str(state_dir), environment=environment)
    assert (explained.returncode, explained.stderr) == (0, "")
    assert command("who", "--help", environment=environment).returncode == 0


def test_json_is_the_same_on_a_terminal_that_is_not_utf_8(state_dir: Path) -> None:
    """In ASCII: a question mark would be another value."""

    def timeline(encoding: str) -> list[object]:
        arguments = ["timeline", "--state-dir", str(state_dir), "-o", "json"]
        printed = command(*arguments, environment={"PYTHONIOENCODING": encoding}).stdout
        return [json.loads(line) for line in printed.splitlines()]

    assert timeline("ascii") == timeline("utf-8") != []
    assert (
        escaped('{"a": "\N{GREATER-THAN OR EQUAL TO}\N{PILE OF POO}"}', ascii_only=True)
        == r'{"a": "\u2265\ud83d\udca9"}'
    )
