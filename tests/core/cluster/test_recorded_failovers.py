"""Recorded failovers of real Flink clusters, through `step`: what is recorded, and what people are notified of."""

from functools import cache

import pytest
from msgspec.structs import replace

from sidecar.core.alerting.alerting_step import Send
from sidecar.core.alerting.outbox import Delivery
from sidecar.core.moment import SECOND
from sidecar.core.observations import DeliveryOutcome, DeliverySettled, Observation
from sidecar.core.policy.policy import Policy
from sidecar.core.policy.routing import Route
from sidecar.core.records import EpisodeRecord, TransitionRecord
from sidecar.core.state import Append, State
from tests.kit import zookeeper_recordings as recordings
from tests.kit.core_sidecar import POLICY
from tests.kit.core_witness import Witness
from tests.kit.ticks import ticked

COMPONENTS = ("resource_manager", "dispatcher", "rest_server", "job")
CRASHES = (
    "i kill-9 leader, standby present",
    "iii SIGTERM leader, standby present",
    "vi SIGSTOP leader 15s then SIGCONT, standby present",
    "ii kill-9 only JM, restart after 12s",
    "iib kill-9 only JM, restart at once (before session expiry)",
    "term SIGTERM the only JM, restart after 6s",
)
QUICK = replace(
    POLICY,
    route=Route("ops", group_wait=5 * SECOND, group_interval=6 * SECOND),
    session_timeouts={"default": 5 * SECOND},
)
"""The failovers of a recording follow each other faster than anybody wants to be notified of real ones."""


class Lenient(Witness):
    """A recording does not begin where the scenes of these tests do."""

    def _check_coverage(self, after: object, stretches: object) -> None:
        """Nothing to check."""


class Watched:
    """A recording as a sidecar saw it: transitions by phase, and what people were notified of."""

    def __init__(self, policy: Policy = QUICK, cluster_id: str = "default", *, consistent: bool = False) -> None:
        self.phases: dict[str, list[TransitionRecord]] = {}
        self.sent: list[Delivery] = []
        self.episodes: list[tuple[str, EpisodeRecord]] = []
        """Those that are over, each with the phase in which it began."""
        self._opened: dict[str, str] = {}
        self._state = State()
        self._policy = policy
        self._cluster_id = cluster_id
        self._witness = Lenient(consistent=consistent, cluster_id=cluster_id)

    @property
    def transitions(self) -> list[TransitionRecord]:
        return [transition for transitions in self.phases.values() for transition in transitions]

    def patterns(self, phase: str, component: str) -> list[str]:
        return [t.pattern for t in self.of(phase, component)]

    def of(self, phase: str, component: str) -> list[TransitionRecord]:
        return [t for t in self.phases.get(phase, ()) if t.component == component]

    def take(self, phase: str, observation: Observation) -> None:
        self._state, effects = self._witness.step(self._policy, self._state, observation)
        if opened := self._state.clusters[self._cluster_id].episode:
            self._opened.setdefault(opened.id, phase)
        for effect in effects:
            match effect:
                case Send(delivery):
                    self.sent.append(delivery)
                    self.take(phase, DeliverySettled(observation.at, delivery.id, DeliveryOutcome.DELIVERED))
                case Append(TransitionRecord() as transition):
                    self.phases.setdefault(phase, []).append(transition)
                case Append(EpisodeRecord() as episode):
                    self.episodes.append((self._opened[episode.id], episode))


@cache
def watched(version: str) -> Watched:
    """A recording of this version."""
    recording = Watched()
    for phase, observation in ticked(recordings.observations(version, "oracle_tol")):
        recording.take(phase, observation)
    return recording


@pytest.mark.parametrize("phase", CRASHES)
@pytest.mark.parametrize("version", ["1.14.6", "2.3.0"])
def test_a_crash_is_a_vacancy_and_a_new_leader_for_every_component(version: str, phase: str) -> None:
    """Killed, ended, stopped, alone or with a standby: A->null->B, four times."""
    for component in COMPONENTS:
        assert watched(version).patterns(phase, component) == ["A->null", "null->B"], component


@pytest.mark.parametrize("version", ["1.14.6", "2.3.0"])
def test_each_failover_is_notified_once(version: str) -> None:
    """Nine faults in five minutes: eight are notified before the recording ends, each once, of all of it; no vacancy lasted."""
    sent = watched(version).sent
    assert [(d.alert, d.reason.value) for d in sent[:8]] == [("FlinkLeaderChanged", "FIRST")] * 8
    assert {d.body.partition("failed over")[0] for d in sent[:8]} == {"JobManager "}
    assert {d.status for d in sent[:8]} == {"UNCHECKED"}
    assert all("\nJobManager: " in d.body for d in sent[:8])


def test_a_blink_of_the_store_is_a_replacement_in_place() -> None:
    """2.3.0, ZooKeeper away for 2 s: the same process leads again. A->B without a vacancy, nothing unseen; only the job is vacant."""
    transitions = watched("2.3.0").phases["iv ZK kill-9, back after 2s (< session timeout)"]
    assert {(t.component, t.pattern, t.unobserved, t.same_process) for t in transitions} == {
        ("resource_manager", "A->B", 0, True),
        ("dispatcher", "A->B", 0, True),
        ("rest_server", "A->B", 0, True),
        ("job", "A->null", None, None),
        ("job", "null->B", None, True),
    }


def test_an_outage_of_the_store_is_blindness_and_then_what_there_is() -> None:
    """2.3.0, ZooKeeper away for 15 s: A->? when the trust window ends, then the old leader is found once more, and only then replaced."""
    phase = "v1 ZK down 15s (> session timeout), only ONE JM"
    for component in COMPONENTS:
        assert watched("2.3.0").patterns(phase, component) == ["A->?", "?->A", "A->null", "null->B"]
    discoveries = [t for t in watched("2.3.0").phases[phase] if t.pattern == "?->A"]
    assert all(t.same_leader for t in discoveries)
