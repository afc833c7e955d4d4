"""Files of evidence are written whole, and never where somebody else has put something in the way."""

from pathlib import Path

from sidecar.sinks.evidence.evidence_files import EvidenceFolder


def test_what_stands_at_the_name_of_an_unfinished_file_is_in_nobodys_way(tmp_path: Path) -> None:
    """A folder of that name does not cost the evidence."""
    folder = tmp_path / "episode"
    (folder / ".opened-process-1.txt.part").mkdir(parents=True)
    kept = EvidenceFolder(str(tmp_path), "episode/opened").save("process", 1, "jm-a", "a stack")
    assert kept["outcome"] == "captured"
    assert (folder / "opened-process-1.txt").read_text() == "a stack"
    assert (folder / "opened-process-1.txt").stat().st_mode & 0o777 == 0o600
    assert len(list(folder.iterdir())) == 2
