"""Many small segments are few files for Spark."""

import gzip
import os
from pathlib import Path

from sidecar.audit.ingest.inspection import Packing


def test_lines_of_many_segments_are_one_file_in_order(tmp_path: Path) -> None:
    """Also of one whose last line has no end."""
    packing = Packing(tmp_path / "packed")
    for number in range(1000):
        packing.add(f"file:/spool/{number}", b"{}\n" * 2 if number % 2 else f'{{"n":{number}}}'.encode())
    (file,) = packing.finish()
    lines = gzip.decompress(file.read_bytes()).splitlines()
    assert lines == [line for n in range(0, 1000, 2) for line in (f'{{"n":{n}}}'.encode(), b"{}", b"{}")]
    assert packing.packed == {f"file:/spool/{number}" for number in range(1000)}


def test_a_full_file_is_followed_by_another(tmp_path: Path) -> None:
    """Each is read by a task of its own."""
    packing, texts = Packing(tmp_path), [os.urandom(600_000).hex().encode() + b"\n" for _ in range(4)]
    for number, text in enumerate(texts):
        packing.add(str(number), text)
    files = packing.finish()
    assert len(files) == 2
    assert b"".join(gzip.decompress(file.read_bytes()) for file in files) == b"".join(texts)
    assert packing.finish() == files


def test_without_segments_there_is_no_file(tmp_path: Path) -> None:
    """And no folder."""
    assert Packing(tmp_path / "packed").finish() == []
    assert not (tmp_path / "packed").exists()
