"""Replaying the records that a scenario made notifies the same alerts as the scenario did."""

import re
from collections.abc import Callable, Iterator
from datetime import datetime
from itertools import count
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from msgspec import json

from sidecar.core.cluster.failover.episodes import SETTLED
from sidecar.core.flink.leadership import ComponentId
from sidecar.core.moment import SECOND, timestamp
from sidecar.core.policy.policy import Store
from sidecar.core.records import AnyRecord
from sidecar.settings.model import Alerting
from sidecar.settings.rules_only import read_rules
from sidecar.simulation.replay import replay_of
from sidecar.simulation.simulator import TICK
from tests import ROOT
from tests.kit.cluster import ALL_FOUR, CLUSTER, DISPATCHER, A, B, JobManager, job_manager
from tests.kit.core_sidecar import Sidecar
from tests.kit.fake_flink import Flink
from tests.kit.groups import examples

Notification = tuple[str, str, tuple[str, ...], str, int]
"""Receiver, reason, alerts, title, and when: microseconds since the epoch."""
C = job_manager("jm-c")
RULES = """
rule_files: [default.yaml]
route:
  receiver: ops
  repeat_interval: 30m
  routes:
    - {matchers: [severity="critical"], receiver: oncall, group_by: [cluster_id, alert], continue: true}
    - {matchers: [severity="info"], receiver: quiet, mute_time_intervals: [mornings]}
time_intervals:
  - {name: mornings, time_intervals: [{times: [{start_time: "08:00", end_time: "08:30"}]}]}
receivers:
  - {name: ops, urls: [json://ops]}
  - {name: oncall, urls: [json://oncall]}
  - {name: quiet, urls: [json://quiet], send_resolved: false}
"""


@pytest.fixture(scope="module")
def rules(tmp_path_factory: pytest.TempPathFactory) -> Alerting:
    """The shipped rules, with a route that has something to decide."""
    folder = tmp_path_factory.mktemp("rules")
    (folder / "default.yaml").write_text((ROOT / "rules" / "default.yaml").read_text())
    (folder / "rules.yaml").write_text(RULES)
    return read_rules(folder / "rules.yaml")


def replayed(records: list[AnyRecord], rules: Alerting, folder: Path, until: int) -> list[Notification]:
    file = folder / "records.jsonl"
    file.write_bytes(b"".join(json.encode(record) + b"\n" for record in records))
    replay = replay_of([file], rules)
    notifications = [
        (notice.receiver, notice.reason, tuple(notice.alerts), notice.title, _micros(notice.at))
        for notice in replay.notifications()
        if notice.at <= timestamp(until)
    ]
    assert replay.unreadable == 0
    return notifications


def comparable(notification: Notification) -> tuple[str, str, tuple[str, ...], str]:
    """Without the time, and without how many failovers there were by then: one side may be half a second ahead."""
    return (*notification[:3], re.sub(r"\d+ failovers", "N failovers", notification[3]))


def _micros(at: str) -> int:
    return round(datetime.fromisoformat(at).timestamp() * SECOND)


def _dues(sidecar: Sidecar) -> Iterator[int]:
    alerts = sidecar.state.alerts
    yield from (group.flush_at for group in alerts.groups.values() if group.flush_at is not None)
    yield from (pending.due for pending in alerts.pending.values())
    yield from (delivery.queued_at.steady for delivery in sidecar.sent)
    for cluster in sidecar.state.clusters.values():
        known = [episode for episode in (cluster.episode, cluster.last_episode) if episode]
        yield from (episode.moved_at.steady + SETTLED for episode in known)
    yield from (failover.at + 3600 * SECOND for known in alerts.failovers.values() for failover in known.known)


def _at_tick(due: int) -> int:
    return -(-due // TICK) * TICK


def _pass(sidecar: Sidecar, seconds: float) -> Sidecar:
    """Time passes from one thing that is due to the next, in ticks of 2 s at most, should something be due that is not in `_dues`.

    A sidecar and a replay tick every half a second, here in the same moments: of two things that are due within one, neither is first.
    """
    until = sidecar.now + round(seconds * SECOND)
    tick = _at_tick(sidecar.now + 1)
    while tick <= until:
        sidecar.waits((tick - sidecar.now) / SECOND, tick=4)
        ticks = map(_at_tick, (sidecar.now + 2 * SECOND, *_dues(sidecar)))
        tick = min(due for due in ticks if due > sidecar.now)
    sidecar.now = until
    return sidecar


Action = Callable[[Flink, Sidecar], object]
leaders = st.sampled_from([A, B, C])
components = st.sampled_from([ALL_FOUR, ALL_FOUR[:3], (DISPATCHER,), ALL_FOUR[3:]])


def elected(leader: JobManager, who: tuple[ComponentId, ...], numbers: "count[int]") -> Action:
    def act(flink: Flink, sidecar: Sidecar) -> None:
        flink.elect(job_manager(leader.host, next(numbers)), *who)
        sidecar.sees_changes()

    return act


def vacated(who: tuple[ComponentId, ...]) -> Action:
    def act(flink: Flink, sidecar: Sidecar) -> None:
        flink.vacate(*who)
        sidecar.sees_changes()

    return act


def ended(flink: Flink, sidecar: Sidecar) -> None:
    """The job ends, as Flink ends jobs: its leader goes first."""
    flink.vacate(ALL_FOUR[3])
    flink.forget()
    sidecar.sees_changes()


def out_of_sight(seconds: float, unseen: list[Action]) -> Action:
    def act(flink: Flink, sidecar: Sidecar) -> None:
        _pass(sidecar.is_cut_off(), seconds)
        for change in unseen:
            change(flink, _Blind(flink))
        sidecar.connects()

    return act


def away(seconds: float, unseen: list[Action]) -> Action:
    def act(flink: Flink, sidecar: Sidecar) -> None:
        sidecar.stops()
        for change in unseen:
            change(flink, _Blind(flink))
        sidecar.is_killed(down_for=seconds).connects()

    return act


class _Blind(Sidecar):
    """Somebody who sees nothing of a change."""

    def __init__(self, flink: Flink) -> None:
        self.flink = flink

    def sees_changes(self) -> Sidecar:
        return self


numbers = count(1)
changes: st.SearchStrategy[Action] = st.one_of(
    st.builds(elected, leaders, components, st.just(numbers)), st.builds(vacated, components), st.just(ended)
)
ACTIONS: st.SearchStrategy[Action] = st.one_of(
    changes,
    changes,
    st.builds(out_of_sight, st.sampled_from([1.2, 10.2, 200.2]), st.lists(changes, max_size=1)),
    st.builds(away, st.sampled_from([30.2, 400.2]), st.lists(changes, max_size=1)),
)
PAUSES = st.sampled_from([0.6, 3.1, 12.3, 41.4, 75.7, 700.2])


@settings(
    max_examples=examples(150),
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(scenario=st.lists(st.tuples(ACTIONS, PAUSES), min_size=1, max_size=8))
def test_the_same_alerts(scenario: list[tuple[Action, float]], rules: Alerting, tmp_path: Path) -> None:
    """Failovers, vacancies, jobs that end, a store out of sight, a sidecar that ends and comes back: the same messages."""
    flink = Flink().submit().elect(A)
    sidecar = _pass(Sidecar(flink, rules.policy_for("sidecar-0", {CLUSTER: Store.ZOOKEEPER})).connects(), 60.1)
    for action, pause in scenario:
        action(flink, sidecar)
        _pass(sidecar, pause)
        while any(abs(due - sidecar.now) < 2 * SECOND for due in _dues(sidecar)):
            _pass(sidecar, 1)  # nothing happens while a message is due: one side may be half a second ahead
    sidecar.stops()
    live = [(d.receiver, d.reason.value, tuple(d.alert.split(", ")), d.title, d.queued_at.wall) for d in sidecar.sent]
    replay = replayed(sidecar.records, rules, tmp_path, sidecar.now + SECOND)
    assert sorted(map(comparable, replay)) == sorted(map(comparable, live))
    late = [
        (mine, theirs)
        for mine, theirs in zip(sorted(replay), sorted(live), strict=True)
        if abs(mine[-1] - theirs[-1]) > 3 * SECOND
    ]
    assert late == []
