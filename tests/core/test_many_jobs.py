"""What a step of thousands of jobs costs, counted."""

from collections import Counter
from typing import Any

import pytest
from msgspec.structs import replace

from sidecar.core import moment
from sidecar.core.alerting import reactions
from sidecar.core.alerting.alerts import Alerts
from sidecar.core.observations import ChildrenObserved, SnapshotCompleted
from sidecar.core.policy.policy import Rule
from sidecar.core.policy.triggers import Trigger
from sidecar.core.state import State
from sidecar.core.step import step, step_all
from tests.kit import observed_failovers as scenes

JOBS = 100


def test_a_job_that_moves_costs_nothing_of_rules_about_something_else(monkeypatch: pytest.MonkeyPatch) -> None:
    """Only rules that a transition may fire are asked for each of them."""
    policy = replace(scenes.POLICY, rules=tuple(Rule(trigger.value, trigger) for trigger in Trigger))
    names = tuple(f"{number:032x}" for number in range(JOBS))
    read = [*scenes.first_sight()[:-1], ChildrenObserved(scenes.at(0), scenes.CLUSTER, "/execution-plans", names)]
    before, _ = step_all(policy, State(), read)
    asked = Counter[str]()
    react_to = reactions._react_to  # asked once for each rule

    def counted(happened: Any, alerts: Alerts, rule: Rule, around: reactions.Circumstances) -> Alerts:
        asked[rule.alert] += 1
        return react_to(happened, alerts, rule, around)

    monkeypatch.setattr(reactions, "_react_to", counted)
    _, effects = step(policy, before, SnapshotCompleted(scenes.at(1), scenes.CLUSTER))
    assert len(scenes.records_of(effects)) == JOBS + 1
    fired_by_transitions = (Trigger.LEADER_CHANGED, Trigger.JOB_LEADER_CHANGED, Trigger.UNOBSERVED, Trigger.SPLIT)
    assert asked == dict.fromkeys(fired_by_transitions, JOBS)


def test_the_time_of_a_step_is_written_once() -> None:
    """All records of a step have its time: it is formatted once, however many there are."""
    moment.timestamp.cache_clear()
    assert [moment.timestamp(1_790_000_000_000_000) for _ in range(JOBS)] == ["2026-09-21T14:13:20.000000Z"] * JOBS
    assert moment.timestamp.cache_info().misses == 1
