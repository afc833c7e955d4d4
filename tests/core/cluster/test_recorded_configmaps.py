"""Recorded watch streams of real Flink in Kubernetes, through `step`: what is reported of each fault, and of nothing else."""

from functools import cache

import pytest
from msgspec.structs import replace

from sidecar.core.flink.configmaps import LEASE_MARGIN
from sidecar.core.moment import SECOND
from sidecar.core.observations import ConfigMapObserved
from sidecar.core.policy.policy import Store
from sidecar.core.views.leader_view import FlinkView
from tests.core.cluster import test_recorded_failovers
from tests.core.cluster.test_recorded_failovers import QUICK
from tests.kit import configmap_recordings
from tests.kit.ticks import ticked

THREE = ("resource_manager", "dispatcher", "rest_server")
KUBERNETES = replace(QUICK, stores={configmap_recordings.CLUSTER: Store.KUBERNETES})
REMOVED = "the address was removed"
ANOTHER = "another holder, the old address still there"
LAPSED = "the lease was not renewed"
FAILOVER = ["A->null", "null->B"]
OUTAGE = ["A->?", "?->A"]


class Watched(test_recorded_failovers.Watched):
    """Such a recording, and the renewals of leases in it."""

    def __init__(self, version: str, *, looking: bool = True) -> None:
        super().__init__(KUBERNETES, configmap_recordings.CLUSTER, consistent=True)
        self.renewals = 0
        self.moved_by_renewals = 0
        self._last: dict[str, ConfigMapObserved] = {}
        for phase, observation in ticked(configmap_recordings.observations(version, looking=looking)):
            before = len(self.transitions)
            self.take(phase, observation)
            if isinstance(observation, ConfigMapObserved) and self._is_renewal(observation):
                self.renewals += 1
                self.moved_by_renewals += len(self.transitions) - before

    def _is_renewal(self, now: ConfigMapObserved) -> bool:
        """Whether the holder has written that it lives, and nobody anything else."""
        before, self._last[now.name] = self._last.get(now.name), now
        if before is None or (before.uid, before.data) != (now.uid, now.data) or before.leader == now.leader:
            return False
        return (before.leader or "").partition('"renewTime"')[0] == (now.leader or "").partition('"renewTime"')[0]


watched = cache(Watched)


def patterns(version: str, phase: str, component: str) -> list[str]:
    return watched(version).patterns(phase, component)


CALM = ["standby", "standby again", "SIGCONT"]
REPORTED = {
    "1.14.6": {
        "start": ["?->null", "null->B"],
        "kill -9": FAILOVER,
        "SIGTERM": FAILOVER,
        "SIGSTOP": FAILOVER,
        "API server away for 15 s": [*OUTAGE, *FAILOVER],
        # Both JobManagers died of the outage, and left their addresses for ever.
        "API server away for 28 s": [*OUTAGE, "A->null"],
    },
    "1.20.5": {
        "start": ["?->null", "null->B"],
        "kill -9": FAILOVER,
        "SIGTERM": FAILOVER,
        "SIGSTOP": FAILOVER,
        # The stream broke off for 3 s only.
        "API server away for 15 s": FAILOVER,
        # The old leader gave up when it could, and led again in a new session.
        "API server away for 28 s": [*OUTAGE, *FAILOVER],
        "SIGTERM to all": ["A->null"],
    },
    "2.3.0": {"start": ["?->null", "null->B"], "kill -9": FAILOVER, "kubectl delete": ["A->null"]},
}
"""What happened to each of the three cluster components, by what was done to the cluster."""


@pytest.mark.parametrize("version", REPORTED)
def test_each_fault_is_reported_as_what_it_was(version: str) -> None:
    """The whole recording, phase by phase: these transitions and no others."""
    for component in THREE:
        by_phase = {phase: patterns(version, phase, component) for _, phase in configmap_recordings.PHASES[version]}
        assert {phase: letters for phase, letters in by_phase.items() if letters} == REPORTED[version], component


@pytest.mark.parametrize(("version", "renewals"), [("1.14.6", 68), ("1.20.5", 29), ("2.3.0", 6)])
def test_no_renewal_is_a_transition(version: str, renewals: int) -> None:
    """Not one of all in the stream."""
    assert (watched(version).renewals, watched(version).moved_by_renewals) == (renewals, 0)


@pytest.mark.parametrize(
    ("version", "phase", "reasons"),
    [
        ("1.14.6", "kill -9", {ANOTHER, LAPSED}),  # three leases, each with a time of its own
        ("1.14.6", "SIGTERM", {LAPSED}),  # it neither clears nor releases anything
        ("1.14.6", "SIGSTOP", {ANOTHER, LAPSED}),
        ("1.14.6", "API server away for 15 s", {ANOTHER, REMOVED}),
        ("1.14.6", "API server away for 28 s", {LAPSED}),
        ("1.20.5", "kill -9", {LAPSED}),
        ("1.20.5", "SIGTERM", {REMOVED}),
        ("1.20.5", "SIGSTOP", {LAPSED}),
        ("1.20.5", "API server away for 15 s", {ANOTHER}),
        ("1.20.5", "API server away for 28 s", {"the lease was released"}),
        ("1.20.5", "SIGTERM to all", {REMOVED}),
        ("2.3.0", "kill -9", {LAPSED}),
        ("2.3.0", "kubectl delete", {"the ConfigMap is gone"}),
    ],
)
def test_each_vacancy_says_on_which_fact_it_rests(version: str, phase: str, reasons: set[str]) -> None:
    """One of few sentences, with the seconds where the lease ran out."""
    vacancy_reasons = [t.reason or "" for t in watched(version).phases[phase] if t.pattern == "A->null"]
    assert {LAPSED if reason.startswith(LAPSED) else reason for reason in vacancy_reasons} == reasons


@pytest.mark.parametrize("version", REPORTED)
def test_a_lease_that_ran_out_is_noticed_at_the_next_look(version: str) -> None:
    """After its 15 s and the margin, and before the next look but one."""
    least = 15 * SECOND + LEASE_MARGIN
    lapses = [t.reason for t in watched(version).transitions if t.reason and t.reason.startswith(LAPSED)]
    seconds = [float(reason.removeprefix(f"{LAPSED} for ").removesuffix(" s")) for reason in lapses]
    assert seconds
    assert all(least <= lapse * SECOND <= least + configmap_recordings.NEXT_LOOK for lapse in seconds)


@pytest.mark.parametrize("version", REPORTED)
def test_who_comes_after_a_failover_is_another_process_or_the_same(version: str) -> None:
    """By the holder of the lease, and not by the address: both JobManagers are on one host."""
    again = {
        ("1.14.6", "API server away for 15 s", "resource_manager"),
        *(("1.20.5", "API server away for 28 s", component) for component in THREE),
    }
    granted = [(phase, t) for phase, ts in watched(version).phases.items() for t in ts if t.pattern == "null->B"]
    for phase, transition in granted:
        first = transition.last_known_session_id is None
        same = None if first else (version, phase, transition.component) in again
        assert transition.same_process is same, (phase, transition.component)


@pytest.mark.parametrize(
    ("version", "elections"), [("1.14.6", [None]), ("1.20.5", [0, 1, 3, 4, 5, 6]), ("2.3.0", [0, 1])]
)
def test_elections_are_counted_where_the_lease_counts_them(version: str, elections: list[int | None]) -> None:
    """SIGTERM in 1.20.5 is two: the dying process takes the lease once more. Nothing was missed; 1.14's count is of renewals."""
    granted = [t for t in watched(version).transitions if t.pattern == "null->B" and t.component == "dispatcher"]
    assert list(dict.fromkeys(t.elections for t in granted)) == elections
    assert {t.unobserved for t in granted[1:]} == {None if version == "1.14.6" else 0}


def test_a_job_is_vacant_with_its_leader_and_retired_with_its_config_map() -> None:
    """2.3.0: its key outlives the leader; the ConfigMap that the dying leader makes anew does not know it any more."""
    by_phase = {phase: patterns("2.3.0", phase, "job") for _, phase in configmap_recordings.PHASES["2.3.0"]}
    assert by_phase == {"start": ["null->B"], "kill -9": FAILOVER, "kubectl delete": ["A->null", "null->gone"]}


@pytest.mark.parametrize(
    ("version", "titles"),
    [
        ("1.14.6", ["after 12 to 19 s", "after 16 to 24 s", "after 14 to 21 s", "after 0.2 to 20 s"]),
        ("1.20.5", ["after 12 to 20 s", "after 25 s", "after 15 to 23 s", "after 0.1 to 17 s", "after 0.0 to 32 s"]),
        ("2.3.0", ["after 12 to 19 s"]),
    ],
)
def test_every_failover_is_notified_once(version: str, titles: list[str]) -> None:
    """Each fault that moved the leaders, all components together, also where three leases moved one by one in five seconds."""
    changed = [sent.body.split("\n")[0] for sent in watched(version).sent]
    assert all(text.startswith("JobManager failed over") for text in changed)
    assert [f"after{text.rpartition(' after')[2]}".partition(",")[0] for text in changed] == titles


def test_without_a_look_of_ours_a_lease_ends_with_the_next_takeover() -> None:
    """What is derived from silence needs somebody who looked: the stream alone shows a failover when it is over."""
    stream = Watched("1.20.5", looking=False)
    assert LAPSED not in str([t.reason for t in stream.transitions])
    for phase in ("kill -9", "SIGTERM", "SIGSTOP"):
        assert [t.pattern for t in stream.of(phase, "dispatcher")] == FAILOVER


def test_flinks_own_listener_sees_no_vacancy_that_is_derived() -> None:
    """Null only where a key is gone: 1.20.5 removes it in a takeover, 1.14 overwrites it. Not a deleted ConfigMap, but one made anew."""
    for version, nulls, leaders in (("1.14.6", 1, 15), ("1.20.5", 15, 18), ("2.3.0", 7, 8)):
        view = FlinkView()
        calls = [
            call for _, observation in configmap_recordings.observations(version) for call in view.observe(observation)
        ]
        is_null = [call.leader_session_id is None for call in calls]
        assert (version, sum(is_null), len(is_null) - sum(is_null)) == (version, nulls, leaders)
