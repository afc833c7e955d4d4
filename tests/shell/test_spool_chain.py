"""Which segments are believed, and how a journal goes on that knows less than they do: no record is in none."""

import gzip
import json
import shutil
import sqlite3
import tracemalloc
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

from sidecar.journal import FILE, Journal, JournalReader
from sidecar.sinks.spool.segment_store import Folder
from sidecar.sinks.spool.spool_writer import Chain, read_chain
from tests.kit.spools import journal_with, records, run_and_stop, spool
from tests.shell.test_spool import sealed_ids

OWN = "observer-1"
"""The observer of the records."""


def seal(folder: Path) -> None:
    run_and_stop(spool(folder, observer=OWN))


def segments(folder: Path) -> list[Path]:
    return sorted((folder / "spool" / OWN).glob("*.jsonl.gz"))


def numbers(folder: Path) -> dict[str, int]:
    with closing(JournalReader(folder)) as reader:
        return reader.numbers(0)


def the_next(folder: Path, last: str = "") -> Path:
    """The name that the next segment has, up to `last`, or a single record."""
    with closing(JournalReader(folder)) as reader:
        number = reader.newest() + 1
    return folder / "spool" / OWN / f"{number:016d}-{last or f'{number:016d}'}.jsonl.gz"


def packed(lines: list[dict[str, object]]) -> bytes:
    return gzip.compress(b"".join(json.dumps(line).encode() + b"\n" for line in lines))


@pytest.mark.parametrize("in_snapshot", [0, 3, 5])
def test_a_journal_restored_from_a_snapshot_continues_after_the_segments(
    tmp_path: Path, in_snapshot: int, caplog: pytest.LogCaptureFixture
) -> None:
    """What it records afterwards is sealed, whether or not the snapshot knew of segments; what was sealed before is not sealed again."""
    some = records()
    journal_with(tmp_path, some[:in_snapshot])
    seal(tmp_path)
    snapshot = (tmp_path / FILE).read_bytes()
    journal_with(tmp_path, some[in_snapshot:9])
    seal(tmp_path)
    (tmp_path / FILE).write_bytes(snapshot)
    journal_with(tmp_path, some[9:])
    seal(tmp_path)
    assert sorted(sealed_ids(tmp_path)) == sorted(record.id for record in some)
    assert len(set(numbers(tmp_path).values())) == len(some) - 9 + in_snapshot
    assert "the journal went back in time" in caplog.text
    caplog.clear()
    seal(tmp_path)
    assert sorted(sealed_ids(tmp_path)) == sorted(record.id for record in some)
    assert not caplog.text


def test_a_journal_that_records_meanwhile_keeps_up(tmp_path: Path) -> None:
    """The owner writes on while the spool finds out: what it adds before and after is sealed, once."""
    some = records()
    journal_with(tmp_path, some[:2])
    snapshot = (tmp_path / FILE).read_bytes()
    journal_with(tmp_path, some[2:8])
    seal(tmp_path)
    (tmp_path / FILE).write_bytes(snapshot)
    journal = Journal(tmp_path)
    state = journal.open()
    assert journal.commit(state, some[8:9])
    seal(tmp_path)
    assert journal.commit(state, some[9:])
    journal.close()
    seal(tmp_path)
    assert sorted(sealed_ids(tmp_path)) == sorted(record.id for record in some)


def test_records_that_an_earlier_version_never_sealed_are_sealed(tmp_path: Path) -> None:
    """It believed the segments, and gave their numbers to other records."""
    some = records()
    journal_with(tmp_path, some[:6])
    seal(tmp_path)
    with closing(JournalReader(tmp_path)) as reader:
        end = reader.newest()
    with closing(sqlite3.connect(tmp_path / FILE)) as journal, journal:
        journal.execute("DELETE FROM record")
        journal.execute("UPDATE sqlite_sequence SET seq = ? WHERE name = 'record'", (end - 6,))
        journal.execute("UPDATE state SET value = ? WHERE kind = 'sealed'", (str(end),))
    journal_with(tmp_path, some[6:10])
    seal(tmp_path)
    assert sealed_ids(tmp_path) == [record.id for record in some[:10]]


def forged_end(folder: Path) -> None:
    the_next(folder, "9999999999999999").write_bytes(packed([{"id": "x", "observer": OWN}]))


def another_observers(folder: Path) -> None:
    the_next(folder).write_bytes(packed([{"id": "x", "observer": "somebody"}]))


def a_copy_of_ours(folder: Path) -> None:
    shutil.copy(segments(folder)[0], the_next(folder, the_next(folder).name[:15] + "9"))


def no_gzip(folder: Path) -> None:
    the_next(folder).write_bytes(b"not a segment")


def nothing(folder: Path) -> None:
    the_next(folder).write_bytes(b"")


def a_link(folder: Path) -> None:
    the_next(folder).symlink_to(segments(folder)[0])


def a_folder(folder: Path) -> None:
    the_next(folder).mkdir()


def a_bomb(folder: Path) -> None:
    the_next(folder).write_bytes(gzip.compress(bytes(64 << 20)))


@pytest.mark.parametrize(
    "plant", [forged_end, another_observers, a_copy_of_ours, no_gzip, nothing, a_link, a_folder, a_bomb]
)
def test_a_file_that_is_no_segment_of_ours_hides_no_record(tmp_path: Path, plant: Callable[[Path], None]) -> None:
    """Others can write to the folder: whatever has the name of the next segment, each record is sealed, and kept until then."""
    some = records()
    journal_with(tmp_path, some[:4])
    seal(tmp_path)
    plant(tmp_path)
    journal_with(tmp_path, some[4:])
    seal(tmp_path)
    ours = {record.id for record in some}
    ids = []
    for segment in segments(tmp_path):
        try:
            ids += [json.loads(line)["id"] for line in gzip.decompress(segment.read_bytes()).splitlines()]
        except (OSError, ValueError, EOFError):
            continue
    assert ours <= set(ids)
    assert set(numbers(tmp_path)) == ours
    assert max(numbers(tmp_path).values()) < 9_000_000_000_000_000


@pytest.mark.parametrize("length", [10, 3 << 20], ids=["many records", "long ids"])
def test_what_unpacks_to_much_takes_little_memory(tmp_path: Path, length: int) -> None:
    """A small file of records of this observer, with a name that has room for them: at the start it takes no memory that grows with it."""
    place = Folder(tmp_path)
    line = json.dumps({"id": "x" * length, "observer": OWN}).encode() + b"\n"
    with gzip.open(tmp_path / f"{1:016d}-{10_000_000:016d}.jsonl.gz", "wb", compresslevel=1) as file:
        for _ in range((60 << 20) // (length + 100)):
            file.write(line)
    tracemalloc.start()
    try:
        assert read_chain(place, OWN, 0, {"wanted": 1}, latest=10_000_000).held == frozenset()
        assert tracemalloc.get_traced_memory()[1] < 24 << 20
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        (bytes(2000), "it is larger than 1000 bytes"),
        (packed([{"id": "x" * 1000, "observer": OWN}] * 20), "unpacked it is larger than 10000 bytes"),
    ],
)
def test_a_segment_that_is_too_large_is_named_and_ignored(
    tmp_path: Path, content: bytes, problem: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Packed, and unpacked."""
    monkeypatch.setattr("sidecar.sinks.spool.spool_writer._MOST_BYTES", 1000)
    monkeypatch.setattr("sidecar.sinks.spool.spool_writer._MOST_UNPACKED", 10_000)
    (tmp_path / f"{1:016d}-{9999:016d}.jsonl.gz").write_bytes(content)
    assert read_chain(Folder(tmp_path), OWN, 0, {}, latest=9999) == Chain(0, 0, frozenset())
    assert problem in caplog.text


def test_a_segment_that_was_damaged_is_written_again(tmp_path: Path) -> None:
    """As long as the journal has its records."""
    some = records()
    journal_with(tmp_path, some)
    seal(tmp_path)
    segments(tmp_path)[-1].write_bytes(b"damaged")
    seal(tmp_path)
    assert sealed_ids(tmp_path) == [record.id for record in some]


@pytest.mark.parametrize("what", ["link", "folder", "link to nothing"])
def test_an_unfinished_segment_never_overwrites_another_file(tmp_path: Path, what: str) -> None:
    """Others can write to the folder: no file of theirs is overwritten, and sealing continues."""
    some = records()
    journal_with(tmp_path, some)
    other = tmp_path / "other"
    with closing(JournalReader(tmp_path)) as reader:
        last = reader.records(0, len(some))[3][0]
    unfinished = tmp_path / "spool" / OWN / f".{last - 3:016d}-{last:016d}.jsonl.gz.tmp"
    unfinished.parent.mkdir(parents=True)
    if what == "folder":
        unfinished.mkdir()
    else:
        unfinished.symlink_to(other)
    if what == "link":
        other.write_text("precious")
    seal(tmp_path)
    assert sealed_ids(tmp_path) == [record.id for record in some]
    assert [path.read_text() for path in tmp_path.glob("other")] == (["precious"] if what == "link" else [])


@pytest.mark.parametrize("what", ["link", "folder", "file"])
def test_a_foreign_file_with_a_segments_name_is_renamed(tmp_path: Path, what: str) -> None:
    """It is not overwritten, and sealing goes on."""
    place = Folder(tmp_path / "spool")
    place.path.mkdir()
    target = place.path / "0000000000000001-0000000000000002.jsonl.gz"
    if what == "folder":
        target.mkdir()
    elif what == "link":
        target.symlink_to(tmp_path / "other")
    else:
        target.write_bytes(b"somebody's")
    place.put(target.name, b"ours")
    place.put(target.name, b"ours")
    assert target.read_bytes() == b"ours"
    assert not target.is_symlink()
    assert len(list(place.path.glob(f"{target.name}.not-ours-*"))) == 1
    assert len(list(place.path.iterdir())) == 2
    assert not (tmp_path / "other").exists()


def test_a_link_that_is_put_there_later_is_not_followed(tmp_path: Path) -> None:
    """Also one that was not there when the spool began."""
    place = Folder(tmp_path / "spool")
    place.path.mkdir()
    name = "0000000000000001-0000000000000002.jsonl.gz"
    (tmp_path / "other").write_text("precious")
    (place.path / f".{name}.tmp").symlink_to(tmp_path / "other")
    place.put(name, b"ours")
    assert (tmp_path / "other").read_text() == "precious"
