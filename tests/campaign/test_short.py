"""A short campaign: what `make campaign` plays for hours, for some minutes."""

from pathlib import Path

import pytest

from tests.campaign.campaign import Plan, play
from tests.campaign.faults import KINDS

SEED = 17
FAULTS = 20
# Without those that take long by themselves; `make campaign` has all of them.
SHORT = tuple(
    kind
    for kind in KINDS
    if kind not in {"no-leader", "ledger-held", "trickle", "half-open", "receiver-hangs", "everything-at-once"}
)


@pytest.mark.timeout(1800)
def test_twenty_faults_on_real_stores_lose_and_invent_nothing(tmp_path: Path) -> None:
    """Nothing lost, invented, repeated without a label or falsely called vacant; everything recovers, and no traceback."""
    plan = Plan(seed=SEED, faults=FAULTS, kinds=SHORT)
    progress: list[str] = []
    verdicts = play(plan, tmp_path / "campaign", progress.append)
    findings = [f"{store}: {finding}" for store, verdict in verdicts.items() for finding in verdict.findings]
    assert findings == [], "\n".join([f"seed {SEED}, evidence in {tmp_path}", *progress])
    assert sum(verdict.rounds for verdict in verdicts.values()) == FAULTS


def test_the_same_seed_gives_the_same_faults() -> None:
    """In the same order, each kind once before any comes again; and another seed another order."""
    orders = {
        seed: [Plan(seed=seed, faults=90).order(store) for store in ("zookeeper", "kubernetes")] for seed in (1, 2)
    }
    assert orders[1] == [Plan(seed=1, faults=90).order(store) for store in ("zookeeper", "kubernetes")] != orders[2]
    for store, order in zip(("zookeeper", "kubernetes"), orders[1], strict=True):
        possible = {kind for kind in KINDS if store in KINDS[kind].stores}
        assert set(order[: len(possible)]) == possible
