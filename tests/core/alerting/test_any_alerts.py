"""Whatever happens, under whatever policy: everything is notified once, in time, and to the end; and nothing is left behind.

Deeper: `python -m tests.core.alerting.test_any_alerts [HISTORIES]`.
"""

import sys
from collections.abc import Sequence
from typing import Final
from uuid import UUID

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, rule, run_state_machine_as_test
from msgspec.structs import replace

from sidecar.core.agreement import Opinion
from sidecar.core.alerting.silence_document import StoredSilence
from sidecar.core.flink.leadership import Component, ComponentId
from sidecar.core.journal_rows import changes
from sidecar.core.moment import SECOND
from sidecar.core.observations import PeersAsked, PolicyLoaded
from sidecar.core.policy.policy import Destination, Policy, Rule, Severity
from sidecar.core.policy.routing import InhibitRule, Matcher, Operator, Route, TimeInterval, TimeRange, with_feeds
from sidecar.core.policy.triggers import Trigger
from tests.core.auditor import PAGER, Audited
from tests.core.feed_auditor import AM
from tests.kit.cluster import ALL_FOUR, CLUSTER, job_manager
from tests.kit.core_sidecar import POLICY
from tests.kit.fake_flink import Flink
from tests.kit.groups import examples

OTHER_JOB: Final = "ab" * 16
RULES: Final = (
    Rule("Changed", Trigger.LEADER_CHANGED),
    Rule("JobChanged", Trigger.JOB_LEADER_CHANGED, Severity.INFO),
    Rule("Vacant", Trigger.VACANT, Severity.CRITICAL, hold_for=30 * SECOND),
    Rule("VacantSoon", Trigger.VACANT, Severity.INFO),
    Rule("Flapping", Trigger.EPISODES, Severity.CRITICAL, count=2, within=600 * SECOND),
    Rule("Blind", Trigger.BLIND, hold_for=20 * SECOND),
    Rule("Unobserved", Trigger.UNOBSERVED),
    Rule("NoStandby", Trigger.NO_STANDBY, hold_for=5 * SECOND),
    Rule("Reelected", Trigger.SAME_PROCESS_REELECTION, Severity.INFO),
)
MUTES: Final = (
    TimeInterval("quarter past", tuple(TimeRange(times=((h * 60 + 5, h * 60 + 15),)) for h in range(24))),
    TimeInterval("even hours", tuple(TimeRange(times=((h * 60, h * 60 + 60),)) for h in range(0, 24, 2))),
)
HOSTS: Final = ("jm-a", "jm-b", "jm-c")


def equals(label: str, value: str) -> Matcher:
    return Matcher(label, Operator.EQUAL, value)


ANY: Final = Matcher("alert", Operator.NOT_EQUAL, "")
matchers = st.sampled_from(
    [
        *(equals("alert", alert_rule.alert) for alert_rule in RULES),
        *(equals("severity", severity) for severity in Severity),
        equals("component", "dispatcher"),
        Matcher("component", Operator.NOT_EQUAL, ""),
        Matcher("alert", Operator.MATCHES, "Vacant.*|Changed"),
        Matcher("job_id", Operator.MATCHES_NOT, ".+"),
    ]
)
receivers = st.sampled_from(["ops", "oncall", AM.receiver])


def routes(depth: int) -> st.SearchStrategy[Route]:
    below = st.lists(routes(depth - 1), max_size=3) if depth else st.just(list[Route]())
    return st.builds(
        lambda receiver, wanted, labels, times, continues, mute, active, children: Route(
            receiver,
            matchers=tuple(wanted),
            group_by=labels,
            group_wait=times[0] * SECOND,
            group_interval=times[1] * SECOND,
            repeat_interval=times[2] * SECOND,
            continues=continues,
            mute=mute,
            active=active,
            routes=tuple(children),
        ),
        receivers,
        st.lists(matchers, min_size=1, max_size=2),
        st.sampled_from([("cluster_id",), ("cluster_id", "alert"), ("component",), ("...",), ()]),
        st.sampled_from([(0, 5, 60), (5, 60, 600), (1, 30, 30), (10, 5, 3600)]),
        st.booleans(),
        st.sampled_from([(), (), (MUTES[0],)]),
        st.sampled_from([(), (), (MUTES[1],)]),
        below,
    )


def keyed(route: Route, key: str = "{}") -> Route:
    """With the keys that settings give: one of its own for each route."""
    children = tuple(keyed(child, f"{key}/{place}") for place, child in enumerate(route.routes))
    return replace(route, key=key, routes=children)


CRITICAL, INFO = equals("severity", Severity.CRITICAL), equals("severity", Severity.INFO)
inhibitions = st.builds(
    lambda pair, shared: InhibitRule((pair[0],), (pair[1],), shared),
    st.sampled_from(
        [
            (equals("alert", "VacantSoon"), equals("alert", "Changed")),
            (equals("alert", "Vacant"), equals("alert", "VacantSoon")),
            (equals("alert", "Changed"), equals("alert", "VacantSoon")),
            (equals("alert", "Blind"), Matcher("alert", Operator.MATCHES, "Vacant.*")),
            (CRITICAL, INFO),
            (INFO, Matcher("severity", Operator.MATCHES, ".*")),
        ]
    ),
    st.sampled_from([("cluster_id",), ("cluster_id", "component"), ("job_id",), ()]),
)
policies = st.builds(
    lambda rules, root, inhibited, pagers, env, silenced: replace(
        POLICY,
        rules=tuple(rules),
        route=with_feeds(keyed(replace(root, matchers=(), continues=False, mute=(), active=())), {AM.receiver}),
        inhibit_rules=tuple(inhibited),
        receivers={
            "ops": (Destination("ops", 0), Destination("ops", 1, send_resolved=False)),
            "oncall": (Destination("oncall", 0), *pagers),
            AM.receiver: (AM,),
        },
        external_labels={"env": env},
        session_timeouts={"default": 20 * SECOND},
        silence_documents=silenced,
        longest_silence=2 * 3600 * SECOND,
    ),
    st.lists(st.sampled_from(RULES), min_size=4, unique=True),
    routes(2),
    st.lists(inhibitions, max_size=3),
    st.sampled_from([(PAGER,), (PAGER,), ()]),
    st.sampled_from(["prod", "test"]),
    st.sampled_from([frozenset({CLUSTER}), frozenset({CLUSTER}), frozenset[str]()]),
)
components = st.lists(
    st.sampled_from([*ALL_FOUR, ComponentId(Component.JOB, OTHER_JOB)]), min_size=1, max_size=5, unique=True
)

pauses = st.sampled_from([0, 3, 40, 70, 400])
opinions = st.sampled_from(
    [Opinion("b", sees=True), Opinion("b", sees=True, vacant=tuple(Component)), Opinion("b", sees=False)]
)


class AnyAlerts(RuleBasedStateMachine):
    """A cluster, its sidecar, the operator who changes the policy; and the auditor of `Audited`, who objects."""

    @initialize(policy=policies)
    def begins(self, policy: Policy) -> None:
        self.flink = Flink().submit().submit(OTHER_JOB)
        self.term = 0
        self.leads("jm-a")
        self.contends(2)
        self.sidecar = Audited(self.flink, policy)
        self.silences: list[StoredSilence] = []
        self.sidecar.connects()
        self.connected = True

    def leads(self, host: str, *whom: ComponentId) -> None:
        """A new leader, with a session id that nobody has had."""
        self.term += 1
        self.leader = job_manager(host, self.term)
        self.flink.elect(self.leader, *(whom or (*ALL_FOUR, ComponentId(Component.JOB, OTHER_JOB))))

    def contends(self, number: int) -> None:
        for index in range(3):
            path = f"/leader/latch/_c_{index}-latch-{index:010d}"
            if index < number:
                self.flink.znodes.write(path, b"", index)
            else:
                self.flink.znodes.delete(path)

    def looks(self, then: float = 0) -> None:
        if self.connected:
            self.sidecar.sees_changes()
            self.sidecar.reads_lists(["/leader/latch"])
        self.sidecar.waits(then, tick=max(0.5, then / 30))

    @rule(host=st.sampled_from(HOSTS), whom=st.just(list[ComponentId]()) | components, at_once=st.booleans())
    def is_elected(self, host: str, whom: Sequence[ComponentId], at_once: bool) -> None:
        self.leads(host, *whom)
        if at_once:
            self.looks()

    @rule(host=st.sampled_from(HOSTS), apart=st.sampled_from([0, 1, 4]))
    def fails_over(self, host: str, apart: float) -> None:
        """One component after the other, as Flink does."""
        whom = [*ALL_FOUR, ComponentId(Component.JOB, OTHER_JOB)]
        self.flink.vacate(*whom)
        self.looks()
        self.sidecar.waits(1, tick=0.5)
        self.term += 1
        self.leader = job_manager(host, self.term)
        for component in whom:
            self.flink.elect(self.leader, component)
            self.looks()
            self.sidecar.waits(apart, tick=1)

    @rule(whom=components, then=pauses)
    def is_vacated(self, whom: Sequence[ComponentId], then: float) -> None:
        self.flink.vacate(*whom)
        self.looks(then)

    @rule(whom=components, then=pauses)
    def comes_back(self, whom: Sequence[ComponentId], then: float) -> None:
        self.flink.elect(self.leader, *whom)
        self.looks(then)

    @rule(submitted=st.booleans())
    def job_ends_or_begins(self, submitted: bool) -> None:
        if submitted:
            self.flink.submit(OTHER_JOB).elect(self.leader, ComponentId(Component.JOB, OTHER_JOB))
        else:
            self.flink.forget(OTHER_JOB).vacate(ComponentId(Component.JOB, OTHER_JOB))
        self.looks()

    @rule(number=st.integers(1, 3))
    def standbys_come_and_go(self, number: int) -> None:
        self.contends(number)
        self.looks()

    @rule(seconds=st.sampled_from([0.5, 7, 31, 70, 2000]))
    def time_passes(self, seconds: float) -> None:
        self.looks(seconds)

    @rule(cut_off=st.booleans(), then=pauses)
    def sight_comes_and_goes(self, cut_off: bool, then: float) -> None:
        if cut_off:
            self.sidecar.is_cut_off()
        else:
            self.sidecar.connects()
        self.connected = not cut_off
        self.looks(then)

    @rule(others=st.lists(opinions, max_size=2), then=pauses)
    def others_are_asked(self, others: Sequence[Opinion], then: float) -> None:
        """And say that they see a leader, that they see none, or that they are blind."""
        self.sidecar.observe(PeersAsked(self.sidecar.moment, CLUSTER, 2, tuple(others)))
        self.looks(then)

    @rule(down_for=st.sampled_from([0, 5, 3000]), connected=st.booleans())
    def is_killed(self, down_for: float, connected: bool) -> None:
        groups = self.sidecar.state.alerts.groups
        self.sidecar.is_killed(down_for)
        assert self.sidecar.state.alerts.groups == groups
        self.connected = connected
        if connected:
            self.sidecar.connects()

    @rule(down_for=st.sampled_from([0, 5, 3000]), connected=st.booleans())
    def is_replaced(self, down_for: float, connected: bool) -> None:
        """As a restart, though its disk is empty. Without a view of the store nothing is handed over; what was not delivered is composed
        anew.
        """
        if not self.sidecar.state.clusters[CLUSTER].is_in_sight:
            return
        self.delivers_all(but_closings=True)
        before = self.sidecar.state
        closing = {delivery.fingerprint for delivery in before.outbox.values()}
        self.sidecar.is_replaced(down_for)
        groups = self.sidecar.state.alerts.groups
        assert {key: group for key, group in groups.items() if key not in closing} == {
            key: group for key, group in before.alerts.groups.items() if key not in closing
        }
        self.connected = connected
        if connected:
            self.sidecar.connects()

    @rule(policy=policies)
    def policy_changes(self, policy: Policy) -> None:
        self.sidecar.loads(replace(policy, silence_documents=self.sidecar.policy.silence_documents))

    @rule()
    def same_policy_is_loaded(self) -> None:
        groups = self.sidecar.state.alerts.groups
        self.sidecar.observe(PolicyLoaded(self.sidecar.moment, self.sidecar.policy))
        assert self.sidecar.state.alerts.groups == groups

    @rule(by=st.sampled_from([-7200, -60, 60, 7200]))
    def wall_clock_jumps(self, by: float) -> None:
        self.sidecar.wall_ahead += round(by * SECOND)

    @rule(
        wanted=st.just([ANY]) | st.lists(matchers, min_size=1, max_size=2),
        lasts=st.sampled_from([5, 40, 700, 9000]),
        ahead=st.sampled_from([-600, 0, 3600]),
    )
    def is_silenced(self, wanted: Sequence[Matcher], lasts: float, ahead: float) -> None:
        """By somebody whose clock may differ by an hour."""
        starts = self.sidecar.moment.wall + round(ahead * SECOND)
        name = str(UUID(int=len(self.sidecar.steps)))
        silence = StoredSilence(name, tuple(wanted), starts, starts + round(lasts * SECOND), "ann", "upgrade")
        self.silences = [*self.silences[-20:], silence]
        self.sidecar.silenced_by(*self.silences)

    @rule(host=st.sampled_from(HOSTS), lasts=st.sampled_from([40, 700, 9000]), then=pauses)
    def fails_over_as_planned(self, host: str, lasts: float, then: float) -> None:
        """In a silence, which may end before the failover does."""
        self.is_silenced([ANY], lasts, 0)
        self.sidecar.waits(10.5, tick=0.5)
        self.fails_over(host, 4)
        self.looks(then)

    @rule(keep=st.booleans())
    def silences_are_expired(self, keep: bool) -> None:
        self.silences = self.silences[:-1] if keep else []
        self.sidecar.silenced_by(*self.silences)

    @rule(content=st.sampled_from([None, b"", b"{", b'{"format": 2}', b'{"silences": [{"id": 1}]}']))
    def silences_are_out_of_reach_or_garbled(self, content: bytes | None) -> None:
        self.sidecar.silences[CLUSTER] = content

    @rule(hangs=st.booleans())
    def silences_are_not_answered(self, hangs: bool) -> None:
        self.sidecar.store_hangs = hangs

    def delivers_all(self, *, but_closings: bool = False) -> None:
        """A destination takes one message a tick: a storm takes as many ticks as it has messages, and as those that come meanwhile."""
        for _ in range(1000):
            if all(but_closings and delivery.is_closing for delivery in self.sidecar.state.outbox.values()):
                return
            self.sidecar.waits(0.5, tick=0.5)
        raise AssertionError("the outbox does not become empty")

    def teardown(self) -> None:
        """In the end all is well, and long enough: nothing is left to notify, and nothing is written any more."""
        if not hasattr(self, "sidecar"):
            return
        self.flink.submit(OTHER_JOB)
        self.leads("jm-a")
        self.contends(2)
        self.sidecar.connects()
        self.sidecar.silenced_by(*self.silences)
        self.sidecar.store_hangs = False
        self.sidecar.waits(30, tick=1).waits(5 * 3600, tick=200).waits(2, tick=0.5)
        self.delivers_all()
        alerts = self.sidecar.state.alerts
        assert alerts.groups == {}
        assert alerts.pending == {}
        assert alerts.failovers == {}
        self.sidecar.audit.nothing_is_owed()
        assert self.sidecar.feed.alertmanager.firing(self.sidecar.now) == []
        before = self.sidecar.state
        self.sidecar.waits(1, tick=0.5)
        assert not [*changes(before, self.sidecar.state)] or before.alive is not self.sidecar.state.alive
        assert self.sidecar.again() == self.sidecar.audit.effects, "the same observations gave something else"


TestAnyAlerts = AnyAlerts.TestCase
TestAnyAlerts.settings = settings(max_examples=examples(100), stateful_step_count=25)


if __name__ == "__main__":
    run_state_machine_as_test(
        AnyAlerts,
        settings=settings(
            max_examples=int(sys.argv[1]) if sys.argv[1:] else 5000,
            stateful_step_count=60,
            deadline=None,
            suppress_health_check=list(HealthCheck),
            print_blob=True,
        ),
    )
