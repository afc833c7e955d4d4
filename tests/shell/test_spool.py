"""Segments: whole from the moment they are seen, without gap or overlap, whatever dies in between."""

import gzip
import itertools
import json
from pathlib import Path

from tests.kit.spools import journal_with, records, run_and_stop, spool
from tests.kit.waiting import wait_for


def sealed_ids(folder: Path) -> list[str]:
    segments = sorted((folder / "spool").glob("*/*.jsonl.gz"))
    return [
        json.loads(line)["id"] for segment in segments for line in gzip.decompress(segment.read_bytes()).splitlines()
    ]


def test_every_record_is_in_exactly_one_segment(tmp_path: Path) -> None:
    """In order, and a second run of the same spool adds nothing."""
    some = records()
    journal_with(tmp_path, some)
    run_and_stop(spool(tmp_path))
    assert sealed_ids(tmp_path) == [record.id for record in some]
    run_and_stop(spool(tmp_path))
    assert sealed_ids(tmp_path) == [record.id for record in some]


def test_a_restart_continues_after_the_last_segment(tmp_path: Path) -> None:
    """Also if the journal does not know how far the segments reach."""
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
    """Records stay in the journal until the folder is back. Meanwhile the spool is known not to be written."""
    some = records()
    journal_with(tmp_path, some)
    (tmp_path / "spool").touch()  # a file where the folder should be
    failing, working = spool(tmp_path), spool(tmp_path)
    run_and_stop(failing)
    (tmp_path / "spool").unlink()
    run_and_stop(working)
    assert (failing.is_up, working.is_up) == (False, True)
    assert sealed_ids(tmp_path) == [record.id for record in some]


def test_the_oldest_record_waits_no_longer_than_the_interval(tmp_path: Path) -> None:
    """A lonely record is sealed while the sidecar runs."""
    journal_with(tmp_path, records()[:1])
    lonely = spool(tmp_path, roll_interval=0.2)
    lonely.start()
    wait_for("a segment", lambda: sealed_ids(tmp_path))
    lonely.stop()


def test_an_observer_cannot_leave_the_spool(tmp_path: Path) -> None:
    """A name is one folder, whatever characters it has."""
    journal_with(tmp_path, records())
    run_and_stop(spool(tmp_path, observer="../../etc/x y"))
    assert [path.name for path in (tmp_path / "spool").iterdir()] == ["_.._etc_x_y"]


def test_segments_are_reproducible(tmp_path: Path) -> None:
    """The same records make the same bytes: no time of making is in them."""
    journal_with(tmp_path, records())
    run_and_stop(spool(tmp_path))
    folder = tmp_path / "spool" / "jm-0"
    before = {path.name: path.read_bytes() for path in folder.iterdir()}
    for path in folder.iterdir():
        path.unlink()
    run_and_stop(spool(tmp_path))
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == before
