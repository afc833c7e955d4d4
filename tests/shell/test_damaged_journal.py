"""A damaged journal is set aside, and what can be read of it goes on in a new one."""

import logging
import random
import shutil
import sqlite3
from contextlib import closing, suppress
from pathlib import Path

import pytest

from sidecar.core.records import AnyRecord
from sidecar.core.state import State
from sidecar.journal import FILE, Journal, JournalError, JournalReader
from tests.kit.observed_failovers import failover, first_sight, play, records_of
from tests.kit.spools import opened, run_and_stop, spool
from tests.shell.test_journal import kept, lines
from tests.shell.test_spool import sealed_ids

PAGE = 4096


def history() -> tuple[State, list[AnyRecord]]:
    """Some forty failovers, the last one with a message that waits."""
    moves = [each for term in range(2, 42) for each in failover(term * 10, term)]
    state, effects = play([*first_sight(), *moves])
    return state, [effect.record for effect in records_of(effects)]


def written(folder: Path, state: State, records: list[AnyRecord]) -> None:
    journal = opened(folder)
    assert journal.commit(state, records)
    journal.close()


def damage(path: Path, page: int) -> None:
    """Overwrite one page with zeros: what a disk does that loses a sector."""
    with path.open("r+b") as file:
        file.seek(page * PAGE)
        file.write(bytes(PAGE))


def leaf_of(path: Path, needle: bytes) -> int:
    """The page that holds this text."""
    content = path.read_bytes()
    return content.index(needle) // PAGE


def in_line(record: AnyRecord) -> bytes:
    """What stands in its line, and not in the index of ids."""
    return f'"id":"{record.id}"'.encode()


def emptied_log(path: Path) -> None:
    """Everything is in the file itself, and a damage of it is seen."""
    with closing(sqlite3.connect(path)) as other:
        other.execute("PRAGMA wal_checkpoint(TRUNCATE)")


def set_aside(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.glob("*unreadable*"))


def test_one_damaged_page_costs_what_is_in_it(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """The other records and the whole state are in the new journal, with the numbers that they had."""
    state, records = history()
    written(tmp_path, state, records)
    with closing(JournalReader(tmp_path)) as reader:
        before = dict(reader.records(0, 100_000))
    damage(tmp_path / FILE, leaf_of(tmp_path / FILE, in_line(records[len(records) // 2])))
    journal = Journal(tmp_path)
    assert journal.open() == kept(state)
    assert journal.problem is None
    journal.close()
    with closing(JournalReader(tmp_path)) as reader:
        after = dict(reader.records(0, 100_000))
    assert len(before) - 10 <= len(after) < len(before)
    assert after.items() <= before.items()
    assert len(set_aside(tmp_path)) == 1
    assert f"{len(before) - len(after)} records that were in no segment are missing" in caplog.text
    assert journal.lost == len(before) - len(after)


def test_whatever_page_is_damaged_it_goes_on(tmp_path: Path) -> None:
    """A commit works after the restart, whichever page it was; nothing is read that was not written."""
    state, records = history()
    written(tmp_path / "whole", state, records)
    whole = {line["id"] for line in lines(tmp_path / "whole")}
    pages = (tmp_path / "whole" / FILE).stat().st_size // PAGE
    for page in {0, 1, 2, 3, 4, pages - 1, *random.Random(7).sample(range(pages), 8)}:
        folder = tmp_path / str(page)
        shutil.copytree(tmp_path / "whole", folder)
        damage(folder / FILE, page)
        journal = opened(folder)
        assert journal.problem is None
        assert journal.commit(state, records[:1])
        journal.close()
        assert {line["id"] for line in lines(folder)} <= whole
        again = Journal(folder)
        assert again.open() == kept(state)
        again.close()


def test_damage_while_running_costs_no_state(tmp_path: Path) -> None:
    """A commit that finds it writes a new journal at once, with all of the state: that is in memory."""
    state, records = history()
    written(tmp_path, State(), records)
    journal = opened(tmp_path)
    assert journal.commit(state, [])
    emptied_log(tmp_path / FILE)
    for page in range(1, 4):  # where the tables begin: the next commit needs them
        damage(tmp_path / FILE, page)
    later, effects = play(failover(900, 77), state)
    more = [effect.record for effect in records_of(effects)]
    assert journal.commit(later, more)
    assert journal.problem is None
    journal.close()
    assert {record.id for record in more} <= {line["id"] for line in lines(tmp_path)}
    again = Journal(tmp_path)
    assert again.open() == kept(later)
    again.close()


def test_what_a_reader_finds_damaged_is_replaced_too(tmp_path: Path) -> None:
    """Sealing meets the damage, which no commit does: the owner is notified, and what is left is sealed from the new journal."""
    state, records = history()
    written(tmp_path, state, records)
    journal = opened(tmp_path)
    damage(tmp_path / FILE, leaf_of(tmp_path / FILE, in_line(records[len(records) // 2])))
    reader = JournalReader(tmp_path, journal.check_soon)
    with pytest.raises(JournalError):
        reader.records(0, 100_000)
    assert journal.commit(state, [])
    left = [record.id for record in records]
    remaining_ids = [line["id"] for line in lines(tmp_path)]
    assert set(remaining_ids) < set(left)
    assert len(reader.records(0, 100_000)) == len(remaining_ids)  # the same reader reads the new file
    reader.close()
    journal.close()
    run_and_stop(spool(tmp_path))
    assert sealed_ids(tmp_path) == remaining_ids


def test_a_reader_that_is_open_reads_the_new_file(tmp_path: Path) -> None:
    """Spool and pages keep a connection: it must not stay with what was set aside."""
    state, records = history()
    written(tmp_path, state, records[:3])
    reader = JournalReader(tmp_path)
    assert len(reader.records(0, 10)) == 3
    (tmp_path / FILE).rename(tmp_path / "elsewhere")
    written(tmp_path, state, records[3:5])
    assert len(reader.records(0, 10)) == 2
    reader.close()


def test_what_was_set_aside_is_kept_with_its_log_and_never_overwritten(tmp_path: Path) -> None:
    """Two damaged journals of one process, within a second: both are there afterwards, under names of their own."""
    for content in (b"first", b"second"):
        (tmp_path / FILE).write_bytes(content * 1000)
        (tmp_path / f"{FILE}-wal").write_bytes(b"log of the " + content)
        journal = opened(tmp_path)
        assert journal.problem is None
        journal.close()
    kept_files = {name: (tmp_path / name).read_bytes()[:16] for name in set_aside(tmp_path)}
    assert sorted(kept_files.values()) == sorted(
        [b"first" * 3 + b"f", b"second" * 2 + b"seco", b"log of the first", b"log of the secon"]
    )


def test_a_disk_that_damages_everything_does_not_fill_up_with_journals(tmp_path: Path) -> None:
    """While a journal was replaced a moment ago, records wait in memory instead."""
    state, records = history()
    journal = opened(tmp_path)
    for _ in range(3):
        with suppress(sqlite3.DatabaseError):
            emptied_log(tmp_path / FILE)
        (tmp_path / FILE).write_bytes(b"nothing that a journal begins with" * 1000)
        journal.check_soon()
        journal.commit(state, records[:1])
    assert len([name for name in set_aside(tmp_path) if not name.endswith("-wal")]) == 1
    assert journal.problem is not None
    assert journal.unsaved
    journal.close()


def test_the_advice_fits_the_problem(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Space is what a full disk needs, and nothing else does."""
    caplog.set_level(logging.ERROR)
    state, records = history()
    journal = opened(tmp_path)
    assert journal._connection is not None  # white box: a full disk is a page limit that SQLite refuses to pass
    journal._connection.execute("PRAGMA max_page_count = 8")
    assert not journal.commit(state, records)
    assert caplog.text.count("free some space") == 1
    journal.close()
    folder = tmp_path / "file"
    folder.touch()
    caplog.clear()
    Journal(folder).open()
    assert "free some space" not in caplog.text
    assert "make the folder writable" in caplog.text
