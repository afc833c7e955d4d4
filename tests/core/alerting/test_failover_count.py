"""How many failovers there were: the title's number, the rule that counts them, the records and the page have one count."""

from typing import Final

import pytest
from msgspec.structs import replace

from sidecar.core.flink.leadership import CLUSTER_COMPONENTS
from sidecar.core.moment import SECOND
from sidecar.core.policy.policy import Rule, Severity
from sidecar.core.policy.triggers import Trigger
from tests.kit.cluster import CLUSTER, B, job_manager
from tests.kit.core_sidecar import LEADER_CHANGED, POLICY, Sidecar, fail_over, watching
from tests.kit.fake_flink import Flink

C: Final = job_manager("jm-c")
COUNTED: Final = replace(
    POLICY,
    rules=(
        LEADER_CHANGED,
        Rule("FlinkLeaderFlapping", Trigger.EPISODES, Severity.CRITICAL, count=3, within=3600 * SECOND),
    ),
)


def one_by_one(flink: Flink, sidecar: Sidecar) -> None:
    """Each component passes from A to B while the others have a leader."""
    for component in CLUSTER_COMPONENTS:
        fail_over(flink, sidecar, 0.5, B, component).waits(1)


@pytest.mark.parametrize("delay", [0.0, 20.0])
def test_components_that_fail_over_one_after_the_other_are_one_failover(delay: float) -> None:
    """Never two at once, and however late the message: it is no repetition, and no rule counts three."""
    flink, sidecar = watching(policy=replace(COUNTED, route=replace(COUNTED.route, group_wait=round(delay * SECOND))))
    one_by_one(flink, sidecar)
    sidecar.waits(40)
    assert {delivery.alert for delivery in sidecar.sent} == {"FlinkLeaderChanged"}
    assert all("again" not in delivery.title for delivery in sidecar.sent)
    [record] = sidecar.episodes()
    [counted] = sidecar.state.alerts.failovers[CLUSTER].known
    assert (record.failovers, counted.times) == (1, 1)


def test_a_failover_within_a_failover_is_counted() -> None:
    """B takes over from A and C from B at once: two, in the title, in the record and for the rule."""
    flink, sidecar = watching(policy=COUNTED)
    for leader in (B, C):
        fail_over(flink, sidecar, 0.5, leader).waits(1)
    sidecar.waits(40)
    [record] = sidecar.episodes()
    [counted] = sidecar.state.alerts.failovers[CLUSTER].known
    assert (record.failovers, counted.times) == (2, 2)
    assert "again (2nd in 1 h)" in sidecar.sent[0].body.splitlines()[0]
