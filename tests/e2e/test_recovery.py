"""Failovers of a real Flink after which not everything comes back: what the sidecar says is so, or it says that it does not know."""

from pathlib import Path

import pytest

from tests.kit.recovery_scene import LABS, SCENARIOS, RecoveryScene

KILLED = "kill -9"
PLAN_REMOVED = "the job's plan is not stored any more"
PROVEN = {
    KILLED: "recovered",
    "the two oldest checkpoints alone are stored": "degraded",
    "no checkpoint is stored any more": "lost",
    PLAN_REMOVED: "lost",
}
"""Scenarios in which the truth is always said. In those that `tests.bench.recoveries` plays besides, it may be unproven."""

pytestmark = pytest.mark.e2e


@pytest.mark.parametrize(
    ("store", "version", "scenarios"),
    [("zookeeper", "1.20.5", [*PROVEN]), ("kubernetes", "2.3.0", [KILLED, PLAN_REMOVED])],
)
def test_nothing_is_said_that_is_not_so(store: str, version: str, scenarios: list[str], tmp_path: Path) -> None:
    """Of scenarios that are proven, once, with one sidecar that sees all of them; a plain kill -9 is recovered within a minute."""
    with (
        LABS[store](tmp_path, version) as (lab, stored),
        RecoveryScene(lab, stored, tmp_path, between_checkpoints=True) as scene,
    ):
        for scenario in scenarios:
            run = scene.play(SCENARIOS[scenario])
            assert run.wrong == [], (scenario, run)
            assert run.said.verdict == PROVEN[scenario], (scenario, run)
            assert scenario != KILLED or run.after < 60
