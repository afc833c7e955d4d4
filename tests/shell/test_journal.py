"""The journal keeps what it was given, through kills, full disks and read-only folders."""

import json
import os
import random
import signal
import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest
from msgspec.structs import replace

from sidecar.core.bounds import JOURNAL, MIB
from sidecar.core.observations import Ticked
from sidecar.core.records import AnyRecord
from sidecar.core.state import State
from sidecar.journal import FILE, Journal, JournalReader
from tests.kit.observed_failovers import at, failover, first_sight, play, records_of
from tests.kit.spools import opened


def scene() -> tuple[State, list[AnyRecord]]:
    """A failover with an alert under way to two destinations."""
    state, effects = play([*first_sight(), *failover(10, term=2), Ticked(at(18)), Ticked(at(19))])
    return state, [effect.record for effect in records_of(effects)]


def lines(folder: Path) -> list[dict[str, object]]:
    reader = JournalReader(folder)
    try:
        return [json.loads(line) for _, line in reader.records(0, 100_000)]
    finally:
        reader.close()


def kept(state: State) -> State:
    """What of `state` outlives the process."""
    return replace(state, alerts=replace(state.alerts, evaluated={}, beats={}), stated={}, status_due=None)


def reopened(folder: Path) -> State:
    journal = Journal(folder)
    try:
        return journal.open()
    finally:
        journal.close()


def test_what_was_committed_is_there_after_a_restart(tmp_path: Path) -> None:
    """State, records and outbox come back as they were."""
    state, records = scene()
    journal = opened(tmp_path)
    assert journal.commit(state, records)
    journal.close()
    assert state.outbox
    assert reopened(tmp_path) == kept(state)
    assert [line["id"] for line in lines(tmp_path)] == [record.id for record in records]


def test_what_changed_and_what_went_is_saved(tmp_path: Path) -> None:
    """A later commit updates rows and removes those that are gone."""
    journal = opened(tmp_path)
    first, _ = scene()
    assert journal.commit(first, [])
    second, _ = play(
        [Ticked(at(200)), *failover(300, term=3)], State(first.clusters, alerts=first.alerts, alive=first.alive)
    )
    assert journal.commit(second, [])
    journal.close()
    assert reopened(tmp_path) == kept(second)


def test_it_knows_how_many_records_are_in_no_segment(tmp_path: Path) -> None:
    """From the first record of a new journal, and over a restart."""
    state, records = scene()
    journal = opened(tmp_path)
    assert journal.unsealed == 0
    journal.commit(state, records)
    assert journal.unsealed == len(records)
    with closing(JournalReader(tmp_path)) as reader:
        third = reader.records(0, 3)[-1][0]
    journal.commit(state, [], sealed=third)
    assert journal.unsealed == len(records) - 3
    journal.close()
    again = opened(tmp_path)
    assert again.unsealed == len(records) - 3
    again.close()


def test_the_same_record_twice_is_one_record(tmp_path: Path) -> None:
    """The same id is the same happening."""
    state, records = scene()
    journal = opened(tmp_path)
    journal.commit(state, records)
    journal.commit(state, records)
    journal.close()
    assert len(lines(tmp_path)) == len(records)


def test_while_the_disk_refuses_everything_waits_and_nothing_is_lost(tmp_path: Path) -> None:
    """A commit that fails is made up for by the next one that works, with state and records of both."""
    journal = opened(tmp_path)
    assert journal._connection is not None  # white box: a full disk is a page limit that SQLite refuses to pass
    journal._connection.execute("PRAGMA max_page_count = 8")
    observations = [moved for term in range(2, 12) for moved in failover(term * 10, term)]
    state, effects = play([*first_sight(), *observations])
    records = [effect.record for effect in records_of(effects)]
    assert not journal.commit(state, records)
    assert journal.problem is not None
    assert "full" in journal.problem
    assert journal.unsaved == len(records)
    journal._connection.execute("PRAGMA max_page_count = 100000")
    assert journal.commit(state, [])
    assert not journal.problem
    assert not journal.unsaved
    journal.close()
    assert reopened(tmp_path) == kept(state)
    assert len(lines(tmp_path)) == len(records)


def test_a_journal_that_the_spool_does_not_empty_has_a_bound(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Beyond it records wait in memory, as on a full disk, and all are written once the spool has taken the older ones."""
    monkeypatch.setattr("sidecar.journal.file.JOURNAL", JOURNAL._replace(most_bytes=MIB))
    monkeypatch.setattr("sidecar.journal.journal_writer.KEPT_RECORDS", 100)
    state, records = scene()
    many = [replace(records[0], id=f"{number:036d}") for number in range(900)]
    journal = opened(tmp_path)
    begun = [journal.commit(state, many[first : first + 100]) for first in range(0, len(many), 100)]
    assert begun == sorted(begun, reverse=True)
    assert not begun[-1]
    assert "full" in str(journal.problem)
    assert (tmp_path / FILE).stat().st_size <= MIB
    with closing(JournalReader(tmp_path)) as reader:
        newest = reader.records(0, len(many))[-1][0]
    assert journal.commit(state, [], newest)
    assert (journal.problem, journal.unsaved, journal.lost) == (None, 0, 0)
    assert [line["id"] for line in lines(tmp_path)][-1] == many[-1].id
    journal.close()


def test_a_folder_that_cannot_be_written_is_a_problem_and_not_an_end(tmp_path: Path) -> None:
    """The state of before is still known, records wait, and the journal heals when the folder does."""
    folder = tmp_path / "state"
    state, records = scene()
    journal = opened(folder)
    journal.commit(state, [])
    journal.close()
    folder.rename(tmp_path / "away")
    folder.touch()  # a file where the folder should be: as unwritable for root as for anybody
    journal = Journal(folder)
    assert journal.open() == State()
    assert journal.problem is not None
    assert not journal.commit(state, records)
    folder.unlink()
    (tmp_path / "away").rename(folder)
    assert journal.commit(state, [])
    journal.close()
    assert reopened(folder) == kept(state)
    assert len(lines(folder)) == len(records)


def test_a_file_that_is_no_journal_is_set_aside(tmp_path: Path) -> None:
    """Garbage is kept under another name; a new journal begins."""
    (tmp_path / FILE).write_bytes(b"this is no database" * 100)
    state, records = scene()
    journal = Journal(tmp_path)
    assert journal.open() == State()
    assert journal.commit(state, records)
    journal.close()
    assert [path.read_bytes()[:19] for path in tmp_path.glob("*unreadable*")] == [b"this is no database"]
    assert reopened(tmp_path) == kept(state)


def test_a_journal_of_another_format_is_set_aside(tmp_path: Path) -> None:
    """A newer version's journal is not guessed at."""
    with sqlite3.connect(tmp_path / FILE) as newer:
        newer.execute("PRAGMA user_version = 99")
        newer.execute("CREATE TABLE something (else_entirely)")
    newer.close()
    assert reopened(tmp_path) == State()
    assert len(list(tmp_path.glob("*unreadable*"))) == 1


def test_numbers_are_not_used_again_by_the_journal_that_replaces_a_lost_one(tmp_path: Path) -> None:
    """Segments are named by them: a new journal's records come behind every earlier one's."""
    state, records = scene()

    def numbers(folder: Path) -> list[int]:
        journal = opened(folder)
        journal.commit(state, records)
        journal.close()
        reader = JournalReader(folder)
        found = [seq for seq, _ in reader.records(0, 1000)]
        reader.close()
        return found

    first = numbers(tmp_path / "a")
    second = numbers(tmp_path / "b")
    assert first[-1] < second[0]


_WRITER = """
import sys
from contextlib import closing
from pathlib import Path
from sidecar.journal import Journal
from sidecar.core.records import Coverage
from sidecar.core.moment import Moment, timestamp
from sidecar.core.state import State
journal = Journal(Path(sys.argv[1]))
state = journal.open()
number = state.alive.wall if state.alive else 0
while True:
    number += 1
    record = Coverage(id=str(number), cluster_id="c", external_labels={}, store="zookeeper", observer="o",
                      observed_at=timestamp(number), began_at=timestamp(0), ended_at=timestamp(number), state="seeing")
    assert journal.commit(State(alive=Moment(number, number)), [record])
    print(number, flush=True)
"""


def test_a_kill_at_any_moment_loses_nothing_that_was_committed(tmp_path: Path) -> None:
    """What the process said is committed is there after kill -9; state and records agree with each other."""
    for seed in range(5):
        process = subprocess.Popen([sys.executable, "-c", _WRITER, str(tmp_path)], stdout=subprocess.PIPE, text=True)
        assert process.stdout is not None
        with process.stdout:
            said = 0
            for _ in range(random.Random(seed).randrange(1, 400)):
                said = int(process.stdout.readline())
            os.kill(process.pid, signal.SIGKILL)
            rest = process.stdout.read().splitlines()
        process.wait()
        said = max([said, *(int(line) for line in rest if line)])
        state = reopened(tmp_path)
        assert state.alive is not None
        written = [int(str(line["id"])) for line in lines(tmp_path)]
        assert written == list(range(1, state.alive.wall + 1))
        assert said <= state.alive.wall <= said + 1


def test_a_row_that_is_not_understood_is_left_out(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """One bad row does not cost the others."""
    state, _ = scene()
    journal = opened(tmp_path)
    journal.commit(state, [])
    journal.close()
    with sqlite3.connect(tmp_path / FILE) as file:
        file.execute(
            "UPDATE state SET value = '{}' WHERE kind = 'delivery' AND key = (SELECT min(key) FROM state WHERE kind = 'delivery')"
        )
    file.close()
    after = reopened(tmp_path)
    assert len(after.outbox) == len(state.outbox) - 1
    assert after.clusters == state.clusters
    assert "delivery" in caplog.text
