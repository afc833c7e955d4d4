"""One scenario of the night for real: what `make night` plays for an hour."""

from pathlib import Path

import pytest

from tests.night.judge import judge
from tests.night.night import play
from tests.night.scenarios import SCENARIOS

NAME = "the leader is killed"


@pytest.mark.timeout(900)
def test_a_leader_that_is_killed_is_told_truly(tmp_path: Path) -> None:
    """On a real Flink: what arrives, and what is recorded, is what happened, or is not known. Every surface was compared."""
    progress: list[str] = []
    (played,) = play("zookeeper", "2.3.0", [(NAME, SCENARIOS[NAME])], tmp_path / "night", progress.append)
    verdict = judge(played, SCENARIOS[NAME])
    assert verdict.findings == (), "\n".join(progress)
    assert [one for one in verdict.judged if one.right is False] == []
    compared = ("status", "page", "metric", "command", "explained")
    assert [name for name in compared if not any(getattr(one, name) for one in played.surfaces)] == []
    assert ("cause", True) in {(one.what, one.right) for one in verdict.judged}
