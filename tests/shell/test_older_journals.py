"""A journal that an earlier version wrote is taken over: state, outbox and records."""

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from sidecar.core.cluster.transitions import Transition
from sidecar.core.flink.leadership import Component, Held, Vacant
from sidecar.core.journal_migrations import FORMAT
from sidecar.core.state import State
from sidecar.journal import FILE, Journal
from tests import ROOT

JOURNALS = ROOT / "tests" / "fixtures" / "journals"


def written(folder: Path, number: int, *changes: str) -> Path:
    """A journal as it was written in that format."""
    with closing(sqlite3.connect(folder / FILE)) as journal:
        journal.executescript((JOURNALS / f"format-{number}.sql").read_text())
        for change in changes:
            journal.execute(change)
        journal.commit()
    return folder


def opened(folder: Path) -> State:
    journal = Journal(folder)
    state = journal.open()
    journal.close()
    return state


@pytest.mark.parametrize("number", range(1, FORMAT))
def test_every_older_journal_is_taken_over(number: int, tmp_path: Path) -> None:
    """Nothing is set aside, and no row is left out; it is migrated once."""
    state = opened(written(tmp_path, number))
    assert state.outbox
    assert all(cluster.components for cluster in state.clusters.values())
    assert opened(tmp_path) == state
    assert [path.name for path in tmp_path.glob("*unreadable*")] == []
    with closing(sqlite3.connect(tmp_path / FILE)) as journal:
        assert journal.execute("PRAGMA user_version").fetchone() == (FORMAT,)


def test_words_of_format_1_become_values(tmp_path: Path) -> None:
    """A job that has just left is a transition; for how long a lease was not renewed is a number."""
    state = opened(written(tmp_path, 1))
    episode = state.clusters["demo"].episode
    assert episode
    assert episode.facts.not_renewed_for == 17_500_000
    (departed,) = state.clusters["departing"].departed.values()
    assert isinstance(departed, Transition)
    assert (departed.component.component, departed.after) == (Component.JOB, Vacant())
    assert isinstance(departed.before, Held)


def test_a_row_that_its_format_does_not_allow_is_left_out_alone(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Damage to one row costs that row, and the log says so."""
    broken = "UPDATE state SET value = CAST('[]' AS BLOB) WHERE kind = 'episode'"
    state = opened(written(tmp_path, 1, broken))
    assert state.outbox
    assert state.clusters["demo"].episode is None
    assert [record.getMessage().partition(":")[0] for record in caplog.records] == [
        "a row of kind episode cannot be decoded and is left out"
    ]
