"""Evidence files appear whole, whatever else is in their folder."""

from pathlib import Path

from sidecar.sinks.evidence.evidence_files import EvidenceFolder


def test_a_folder_with_the_name_of_an_unfinished_file_does_no_harm(tmp_path: Path) -> None:
    """A folder of that name does not cost the evidence."""
    folder = tmp_path / "episode"
    (folder / ".opened-process-1.txt.part").mkdir(parents=True)
    kept = EvidenceFolder(str(tmp_path), "episode/opened").save("process", 1, "jm-a", "a stack")
    assert kept["outcome"] == "captured"
    assert (folder / "opened-process-1.txt").read_text() == "a stack"
    assert (folder / "opened-process-1.txt").stat().st_mode & 0o777 == 0o600
    assert len(list(folder.iterdir())) == 2
