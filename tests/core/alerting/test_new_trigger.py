"""One more trigger is a row of words, and a function that says when it holds: nothing else has to know it."""

from collections.abc import Mapping
from enum import StrEnum
from typing import cast

import pytest
from msgspec.structs import replace

from sidecar.core.alerting.alerts import Alert, new_alert
from sidecar.core.alerting.conditions import CONDITIONS, ClusterNow, Condition
from sidecar.core.alerting.reactions import BY_HAPPENED
from sidecar.core.flink.leadership import ComponentId
from sidecar.core.policy.policy import Rule, Severity
from sidecar.core.policy.triggers import TRIGGERS, Phrases, Trigger, TriggerRow
from sidecar.core.views.alert_view import alerts
from sidecar.core.views.snapshot import Snapshot
from tests.kit.core_sidecar import POLICY, watching


class Invented(StrEnum):
    TEA_IS_COLD = "tea_is_cold"


COLD = cast("Trigger", Invented.TEA_IS_COLD)


def cold(rule: Rule, seen: ClusterNow) -> Mapping[ComponentId | None, Alert]:
    if seen.cluster.episode:
        return {}
    return {None: new_alert(seen.policy, rule, seen.name, None, seen.now, count=4)}


def test_an_invented_trigger_fires_is_worded_and_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    """In messages, on the page, and when it is over."""
    words = Phrases("the tea is cold", "the tea is warm", "{count} cups are cold since {began}", "warm since {ended}")
    monkeypatch.setitem(TRIGGERS, COLD, TriggerRow(words, "Drink it."))
    monkeypatch.setitem(CONDITIONS, COLD, Condition(cold))
    flink, sidecar = watching(policy=replace(POLICY, rules=(Rule("ColdTea", COLD, Severity.CRITICAL),)))
    sidecar.waits(20)
    [message] = sidecar.sent
    assert "the tea is cold" in message.title + message.body
    assert "4 cups are cold since 2026-11-20 08:0" in message.body
    [view] = alerts(Snapshot(sidecar.moment, sidecar.state, policy=sidecar.policy))
    assert (view.trigger, view.state, view.notified) == ("tea_is_cold", "firing", True)
    sidecar.sees(flink.vacate()).waits(90)
    assert "warm since" in "".join(message.body for message in sidecar.sent[1:])


def test_each_trigger_has_its_row_and_fires_somewhere() -> None:
    """A row of words; and a condition, or an event that it reacts to."""
    assert TRIGGERS.keys() == set(Trigger)
    reacts = frozenset[Trigger]().union(*BY_HAPPENED.values())
    fires = {trigger for trigger, condition in CONDITIONS.items() if condition.holds}
    assert reacts | fires | {Trigger.HA_RISK} == set(Trigger)
    assert not reacts & fires
