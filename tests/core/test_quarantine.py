"""An error about one cluster, rule or alert never stops the others."""

from typing import Any

import pytest
from msgspec import json
from msgspec.structs import replace

from sidecar.core.alerting import phrases
from sidecar.core.alerting.alerting_step import Send
from sidecar.core.alerting.alerts import Group, Member
from sidecar.core.alerting.conditions import CONDITIONS, ClusterNow, Condition, Holding
from sidecar.core.flink.leadership import Component, ComponentId, Held
from sidecar.core.journal_rows import JournalRow, assemble, changes
from sidecar.core.leadership import transitions
from sidecar.core.leadership.transitions import Contest
from sidecar.core.moment import LATEST, timestamp
from sidecar.core.observations import Observation, Started, Ticked
from sidecar.core.policy.policy import Rule, Store
from sidecar.core.policy.triggers import Trigger
from sidecar.core.quarantine import Quarantined
from sidecar.core.state import Effect, State
from tests.kit.observed_failovers import CLUSTER, PATHS, POLICY, at, first_sight, gone, play

OTHER = "other"
BOTH = replace(POLICY, stores={CLUSTER: Store.ZOOKEEPER, OTHER: Store.ZOOKEEPER})
DISPATCHER = ComponentId(Component.DISPATCHER)
IMPOSSIBLE = Contest(since=at(0), returns=())
"""A split without the returns that made it one: the tick that asks whether it is over raises."""


def of_other(observations: list[Observation]) -> list[Observation]:
    return [
        replace(observation, cluster_id=OTHER) for observation in observations if not isinstance(observation, Started)
    ]


def two_clusters() -> State:
    return play([*first_sight(), *of_other(first_sight())], policy=BOTH)[0]


def poisoned(state: State, name: str = OTHER) -> State:
    """The state with a component that no step can be in."""
    cluster = state.clusters[name]
    components = {**cluster.components, DISPATCHER: replace(cluster.components[DISPATCHER], contest=IMPOSSIBLE)}
    cluster = replace(cluster, components=components, contested=frozenset({DISPATCHER}))
    return replace(state, clusters={**state.clusters, name: cluster})


def vanish(name: str) -> list[Observation]:
    """All leaders vanish; 45 s pass."""
    lost: list[Observation] = [*(gone(100, path) for path in PATHS)]
    return [*(lost if name == CLUSTER else of_other(lost)), *(Ticked(at(100 + second)) for second in range(1, 45))]


def notified(effects: list[Effect]) -> set[tuple[str, str]]:
    """The clusters and rules of what is sent."""
    return {(effect.delivery.cluster_id, effect.delivery.alert) for effect in effects if isinstance(effect, Send)}


def left_out(effects: list[Effect]) -> set[str]:
    return {effect.name for effect in effects if isinstance(effect, Quarantined)}


@pytest.mark.parametrize("name", [CLUSTER, OTHER])
def test_a_cluster_that_cannot_be_processed_stops_no_other_and_goes_on_itself(name: str) -> None:
    """What was remembered of it is left out, is named, and a leader that vanishes afterwards is notified: of it, and of the other one."""
    state, effects = play([Ticked(at(1))], poisoned(two_clusters()), BOTH)
    assert left_out(effects) == {f"what was remembered of cluster {OTHER}"}
    assert isinstance(state.clusters[OTHER].components[DISPATCHER].leadership, Held)
    _, effects = play(vanish(name), state, BOTH)
    assert notified(effects) == {(name, "FlinkNoLeader")}


def test_an_observation_that_the_memory_of_its_cluster_makes_impossible_is_processed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Without that memory: a leader that vanishes is not unknown, but vacant."""
    succeeded = transitions.contest_after

    def raises(contest: Contest, *rest: Any) -> Contest:
        if contest == IMPOSSIBLE:
            raise IndexError("a mistake of ours")
        return succeeded(contest, *rest)

    monkeypatch.setattr(transitions, "contest_after", raises)
    observations = of_other([gone(100, path) for path in PATHS])
    _, effects = play([*observations, *vanish(OTHER)[3:]], poisoned(two_clusters()), BOTH)
    assert left_out(effects) == {f"what was remembered of cluster {OTHER}"}
    assert notified(effects) == {(OTHER, "FlinkNoLeader")}


def test_a_rule_that_fails_for_one_cluster_works_for_the_other(monkeypatch: pytest.MonkeyPatch) -> None:
    """And the other rules work for both."""
    vacancies = CONDITIONS[Trigger.VACANT].holds
    assert vacancies

    def raises(rule: Rule, seen: ClusterNow) -> Holding:
        if seen.name == OTHER:
            raise ZeroDivisionError("a mistake of ours")
        return vacancies(rule, seen)

    monkeypatch.setitem(CONDITIONS, Trigger.VACANT, Condition(raises))
    _, effects = play([*of_other([gone(99, path) for path in PATHS]), *vanish(CLUSTER)], two_clusters(), BOTH)
    assert left_out(effects) == {f"rule FlinkNoLeader of cluster {OTHER}"}
    assert notified(effects) == {(CLUSTER, "FlinkNoLeader")}


def test_an_alert_without_a_message_is_left_out_and_the_rest_of_its_group_is_notified(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It is named; nothing else waits for it."""
    line = phrases.line

    def raises(rule: Any, alerts: Any, pods: Any) -> str:
        if any(alert.component == DISPATCHER for alert in alerts):
            raise OverflowError("a mistake of ours")
        return line(rule, alerts, pods)

    monkeypatch.setattr(phrases, "line", raises)
    _, effects = play(vanish(CLUSTER), two_clusters(), BOTH)
    assert left_out(effects) == {f"alert FlinkNoLeader of cluster {CLUSTER}"}
    assert notified(effects) == {(CLUSTER, "FlinkNoLeader")}


def test_a_poisoned_row_of_the_journal_does_not_stop_the_next_start() -> None:
    """Whatever the row is of: the sidecar starts, and a leader that vanishes is notified."""
    state = poisoned(two_clusters())
    rows = [*changes(State(), state)]
    late = JournalRow("group", b'"x"', b'{"route":"{}","labels":{},"members":{"a":{"alert":%s}}}' % _ALERT)
    restarted, problems = assemble([*rows, late])
    assert [problem.partition(": ")[0] for problem in problems] == [
        "a row of kind group cannot be decoded and is left out"
    ]
    begun: list[Observation] = [*first_sight(), *of_other(first_sight()), Ticked(at(1))]
    after, effects = play(begun, restarted, BOTH)
    assert left_out(effects) == {f"what was remembered of cluster {OTHER}"}
    _, effects = play(vanish(OTHER), after, BOTH)
    assert notified(effects) == {(OTHER, "FlinkNoLeader")}


_ALERT = (
    b'{"id":"a","rule":"FlinkNoLeader","cluster_id":"default","labels":{},'
    b'"began":{"steady":1,"wall":1000000000000000000}}'
)


def test_a_group_that_cannot_be_continued_is_left_out_at_the_start(monkeypatch: pytest.MonkeyPatch) -> None:
    """The others are continued, and what still holds fires anew."""
    state, _ = play(vanish(CLUSTER), two_clusters(), BOTH)
    [(fingerprint, group)] = state.alerts.groups.items()
    alert = replace(next(iter(group.members.values())).alert, labels=None)
    bad = Group(group.route, group.labels, {"a": Member(alert)})
    state = replace(state, alerts=replace(state.alerts, groups={"bad": bad, fingerprint: group}))
    after, effects = play([Started(at(150))], state, BOTH)
    assert left_out(effects) == {"group bad"}
    assert after.alerts.groups.keys() == {fingerprint}


@pytest.mark.parametrize("wall", [-1, LATEST + 1, 10**18, 10**400])
def test_a_time_beyond_the_calendar_is_written_as_the_nearest_one(wall: int) -> None:
    """No record, message or page fails because of it."""
    assert timestamp(wall) in {"1970-01-01T00:00:00.000000Z", "9999-12-31T23:59:59.999000Z"}
    assert json.decode(json.encode(timestamp(wall)), type=str) == timestamp(wall)
