"""Segments: whole from the moment they are seen, without gap or overlap, whatever dies in between."""

import gzip
import itertools
import json
import time
from pathlib import Path

from sidecar.core.records import AnyRecord
from sidecar.core.state import State
from sidecar.journal import Journal, JournalReader
from sidecar.sinks.spool import Spool
from tests.shell.scenes import failover, first_sight, play, records_of


def records() -> list[AnyRecord]:
    _, effects = play([*first_sight(), *failover(10, term=2), *failover(20, term=3)])
    return [effect.record for effect in records_of(effects)]


def journal_with(folder: Path, some: list[AnyRecord]) -> None:
    journal = Journal(folder)
    state = journal.open()
    assert journal.commit(State(state.clusters), some)
    journal.close()


def spool(folder: Path, *, roll_records: int = 4, roll_interval: float = 60.0, observer: str = "jm-0") -> Spool:
    return Spool(
        folder / "spool", observer, JournalReader(folder), roll_interval=roll_interval, roll_records=roll_records
    )


def sealed_ids(folder: Path) -> list[str]:
    segments = sorted((folder / "spool").glob("*/*.jsonl.gz"))
    return [
        json.loads(line)["id"] for segment in segments for line in gzip.decompress(segment.read_bytes()).splitlines()
    ]


def run_and_stop(some: Spool) -> None:
    some.start()
    some.stop()


def test_every_record_is_in_exactly_one_segment(tmp_path: Path) -> None:
    """In order, and a second run of the same spool adds nothing."""
    some = records()
    journal_with(tmp_path, some)
    run_and_stop(spool(tmp_path))
    assert sealed_ids(tmp_path) == [record.id for record in some]
    run_and_stop(spool(tmp_path))
    assert sealed_ids(tmp_path) == [record.id for record in some]


def test_a_restart_goes_on_behind_the_last_segment(tmp_path: Path) -> None:
    """Also when the journal was never told how far the segments reach."""
    some = records()
    journal_with(tmp_path, some[:5])
    run_and_stop(spool(tmp_path))
    journal_with(tmp_path, some[5:])
    run_and_stop(spool(tmp_path))
    assert sealed_ids(tmp_path) == [record.id for record in some]
    ends = [
        tuple(int(part) for part in path.name.removesuffix(".jsonl.gz").split("-"))
        for path in (tmp_path / "spool" / "jm-0").iterdir()
    ]
    ordered = sorted(ends)
    assert all(after[0] == before[1] + 1 for before, after in itertools.pairwise(ordered))


def test_half_a_segment_is_never_seen(tmp_path: Path) -> None:
    """What a crash left unfinished is removed, and its records are sealed anew."""
    some = records()
    journal_with(tmp_path, some)
    unfinished = tmp_path / "spool" / "jm-0" / ".0000000000000001-0000000000000002.jsonl.gz.tmp"
    unfinished.parent.mkdir(parents=True)
    unfinished.write_bytes(b"half")
    run_and_stop(spool(tmp_path))
    assert not unfinished.exists()
    assert sealed_ids(tmp_path) == [record.id for record in some]


def test_a_lost_journal_does_not_hide_behind_old_segments(tmp_path: Path) -> None:
    """The records of the journal that replaces it are sealed too."""
    some = records()
    journal_with(tmp_path, some[:5])
    run_and_stop(spool(tmp_path))
    (tmp_path / "journal.db").unlink()
    journal_with(tmp_path, some[5:])
    run_and_stop(spool(tmp_path))
    assert sealed_ids(tmp_path) == [record.id for record in some]


def test_a_folder_that_cannot_be_written_delays_and_loses_nothing(tmp_path: Path) -> None:
    """Records stay in the journal until the folder is back."""
    some = records()
    journal_with(tmp_path, some)
    (tmp_path / "spool").touch()  # a file where the folder should be
    run_and_stop(spool(tmp_path))
    (tmp_path / "spool").unlink()
    run_and_stop(spool(tmp_path))
    assert sealed_ids(tmp_path) == [record.id for record in some]


def test_the_oldest_record_waits_no_longer_than_the_interval(tmp_path: Path) -> None:
    """A lonely record is sealed while the sidecar runs."""
    journal_with(tmp_path, records()[:1])
    lonely = spool(tmp_path, roll_interval=0.2)
    lonely.start()
    deadline = time.monotonic() + 10
    while not sealed_ids(tmp_path):
        assert time.monotonic() < deadline
        time.sleep(0.05)
    lonely.stop()


def test_an_observer_cannot_leave_the_spool(tmp_path: Path) -> None:
    """A name is one folder, whatever is in it."""
    journal_with(tmp_path, records())
    run_and_stop(spool(tmp_path, observer="../../etc/x y"))
    assert [path.name for path in (tmp_path / "spool").iterdir()] == ["_.._etc_x_y"]


def test_segments_are_reproducible(tmp_path: Path) -> None:
    """The same records make the same bytes: no time of making is in them."""
    journal_with(tmp_path, records())
    first = spool(tmp_path)
    run_and_stop(first)
    before = {path.name: path.read_bytes() for path in first.folder.iterdir()}
    for path in first.folder.iterdir():
        path.unlink()
    run_and_stop(spool(tmp_path))
    assert {path.name: path.read_bytes() for path in first.folder.iterdir()} == before
