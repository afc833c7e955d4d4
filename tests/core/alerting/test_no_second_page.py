"""A failover of whose missing leader people were notified is no second page: that there is another leader is information."""

import pytest
from msgspec.structs import replace

from sidecar.core.alerting.alerts import Reason
from sidecar.core.observations import PolicyLoaded
from sidecar.core.policy.policy import Rule, Severity
from sidecar.core.policy.triggers import Trigger
from tests.kit.core_sidecar import POLICY, Sidecar, fail_over, watching

RULES = (
    Rule("Changed", Trigger.LEADER_CHANGED),
    Rule("Vacant", Trigger.VACANT, Severity.CRITICAL, hold_for=30_000_000),
)
PAGING = replace(POLICY, rules=RULES)


def severities(sidecar: Sidecar) -> list[str]:
    """Of the messages; RESOLVED of those that are only about an end."""
    return [
        "RESOLVED" if delivery.reason is Reason.RESOLVED else delivery.severity.upper() for delivery in sidecar.sent
    ]


def test_after_a_vacancy_that_was_notified_the_failover_is_no_second_warning() -> None:
    """The all-clear says that the leader is back, and who leads now."""
    flink, sidecar = watching(policy=PAGING)
    fail_over(flink, sidecar, after=60).waits(120)
    assert severities(sidecar) == ["CRITICAL", "RESOLVED"]


@pytest.mark.parametrize(
    ("rules", "after"),
    [
        (RULES, 10),  # nobody was notified of the vacancy
        ((RULES[0], replace(RULES[1], severity=Severity.WARNING)), 60),  # it was no page
    ],
)
def test_else_it_is_a_warning(rules: tuple[Rule, ...], after: float) -> None:
    flink, sidecar = watching(policy=replace(PAGING, rules=rules))
    fail_over(flink, sidecar, after=after).waits(120)
    assert "WARNING" in severities(sidecar)
    assert "INFO" not in severities(sidecar)


def test_it_stays_so_under_another_policy_and_after_a_handover() -> None:
    """Nobody is notified once more, by another severity."""
    flink, sidecar = watching(policy=PAGING)
    fail_over(flink, sidecar, after=60)
    sidecar.policy = replace(PAGING, external_labels={"env": "test"})
    sidecar.observe(PolicyLoaded(sidecar.moment, sidecar.policy))
    sidecar.is_replaced().connects().waits(120)
    assert severities(sidecar) == ["CRITICAL", "RESOLVED"]
