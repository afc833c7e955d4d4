"""Each cause follows from its facts, and from nothing less: where they do not decide, the verdict is unknown."""

from typing import Any, Final

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sidecar.core.failover.causes import AT_ONCE, RELATED, Cause, Confidence, Facts, verdict
from sidecar.core.failover.ends import OperatorReason, Restart
from sidecar.core.failover.plans import Intent, Plan
from sidecar.core.leadership.unobserved import Loss
from sidecar.core.moment import SECOND, Moment
from sidecar.core.pods import is_own_host
from sidecar.core.policy.policy import Store
from tests.core.cluster import test_recorded_configmaps, test_recorded_failovers

OPENED: Final = 100 * SECOND
OTHER: Final = {"succeeded": True, "same_process": False, "same_place": False, "counted_on": False}
"""Another JobManager took over."""
SAME: Final = {"succeeded": True, "same_process": True}
IN_PLACE: Final = {"succeeded": True, "same_place": True}


def loss(lasted: int, until: int | None) -> Loss:
    """Sight was lost for `lasted`, `until` so long before the episode."""
    ended = OPENED - until if until is not None else None
    began = (ended if ended is not None else OPENED) - lasted
    return Loss(Moment(began, began), None if ended is None else Moment(ended, ended))


def exited(code: int | None, ago: int) -> dict[str, Any]:
    """The leader's process ended so many seconds before its loss was observed."""
    return {"exit_code": code, "exited_at": OPENED - ago * SECOND}


def facts(**parts: Any) -> Facts:
    always: dict[str, Any] = {"store": Store.ZOOKEEPER, "opened": OPENED}
    return Facts(**always | parts)


LAPSED: Final = 16_500_000
IN_KUBERNETES: Final = {"store": Store.KUBERNETES}
BLINK: Final = {"loss": loss(2 * SECOND, SECOND)}
AWAY: Final = {"loss": loss(25 * SECOND, SECOND)}
LATER: Final = {"loss": loss(55 * SECOND, 36 * SECOND)}
FEWER: Final = {"contended": 2, "contend": 1}
UNHEALTHY: Final = {"restart": Restart(OperatorReason.RESTART_UNHEALTHY_JOB, -4 * SECOND, "Restarting unhealthy job")}
MISSING: Final = {"restart": Restart(OperatorReason.MISSING, 2 * SECOND, "Missing JobManager deployment")}
UPGRADED: Final = IN_KUBERNETES | {"intent": Intent(Plan.UPGRADE, 3 * SECOND)}
ROWS: Final[list[tuple[dict[str, Any], Cause, Confidence]]] = [
    (OTHER, Cause.JOBMANAGER_LOST, Confidence.MEDIUM),
    (OTHER | {"quiet_end": True}, Cause.JOBMANAGER_LOST, Confidence.MEDIUM),
    ({}, Cause.JOBMANAGER_LOST, Confidence.MEDIUM),
    (OTHER | IN_KUBERNETES | {"not_renewed_for": LAPSED}, Cause.JOBMANAGER_LOST, Confidence.MEDIUM),
    (OTHER | {"loss": loss(2 * SECOND, AT_ONCE + 1)}, Cause.JOBMANAGER_LOST, Confidence.MEDIUM),
    (
        OTHER | {"loss": loss(2 * SECOND, AT_ONCE + 1), "contended": 2, "contend": 1},
        Cause.JOBMANAGER_LOST,
        Confidence.MEDIUM,
    ),
    ({"orderly": True, "removed": True}, Cause.CLUSTER_REMOVED, Confidence.HIGH),
    (IN_KUBERNETES | {"removed": True, "not_renewed_for": LAPSED}, Cause.CLUSTER_REMOVED, Confidence.HIGH),
    (OTHER | {"orderly": True}, Cause.GRACEFUL_HANDOVER, Confidence.HIGH),
    ({"orderly": True}, Cause.GRACEFUL_HANDOVER, Confidence.HIGH),
    (OTHER | {"orderly": True, "left": 3, "withdrawn": 3}, Cause.GRACEFUL_HANDOVER, Confidence.HIGH),
    (OTHER | {"orderly": True, "left": 3, "withdrawn": 1}, Cause.GRACEFUL_HANDOVER, Confidence.MEDIUM),
    (OTHER | {"orderly": True, "left": 3, "withdrawn": 2}, Cause.GRACEFUL_HANDOVER, Confidence.MEDIUM),
    (SAME | {"orderly": True, "left": 3, "withdrawn": 3}, Cause.SAME_PROCESS_REELECTION, Confidence.HIGH),
    (
        SAME | IN_KUBERNETES | {"orderly": True, "left": 3, "withdrawn": 1, "not_renewed_for": LAPSED},
        Cause.LEASE_RENEWAL_FAILED,
        Confidence.HIGH,
    ),
    (IN_PLACE | {"counted_on": False}, Cause.RESTARTED_IN_PLACE, Confidence.MEDIUM),
    (IN_PLACE | IN_KUBERNETES | {"same_process": False}, Cause.RESTARTED_IN_PLACE, Confidence.HIGH),
    (
        IN_PLACE | IN_KUBERNETES | {"same_process": False, "is_own_place": False},
        Cause.RESTARTED_IN_PLACE,
        Confidence.MEDIUM,
    ),
    (SAME, Cause.SAME_PROCESS_REELECTION, Confidence.HIGH),
    (IN_PLACE | {"counted_on": True}, Cause.SAME_PROCESS_REELECTION, Confidence.MEDIUM),
    (SAME | {"unseen": True}, Cause.SAME_PROCESS_REELECTION, Confidence.MEDIUM),
    (SAME | BLINK, Cause.STORE_OUTAGE, Confidence.HIGH),
    (IN_PLACE | BLINK | {"counted_on": True, "unseen": True}, Cause.STORE_OUTAGE, Confidence.MEDIUM),
    (OTHER | BLINK, Cause.STORE_OUTAGE, Confidence.MEDIUM),
    (OTHER | BLINK | {"contended": 2, "contend": 2}, Cause.STORE_OUTAGE, Confidence.MEDIUM),
    (OTHER | {"loss": loss(SECOND, RELATED), "contended": 2, "contend": 2}, Cause.STORE_OUTAGE, Confidence.MEDIUM),
    ({"succeeded": True, "returned": True} | BLINK, Cause.STORE_OUTAGE, Confidence.HIGH),
    (OTHER | BLINK | {"store_reelected": True}, Cause.STORE_REELECTION, Confidence.HIGH),
    (SAME | IN_KUBERNETES | {"not_renewed_for": LAPSED}, Cause.LEASE_RENEWAL_FAILED, Confidence.HIGH),
    (SAME | IN_KUBERNETES | {"not_renewed_for": LAPSED, "returned": True}, Cause.LEASE_RENEWAL_FAILED, Confidence.HIGH),
    (SAME | IN_KUBERNETES | {"released": True}, Cause.LEASE_RENEWAL_FAILED, Confidence.HIGH),
    (OTHER | IN_KUBERNETES | {"released": True}, Cause.JOBMANAGER_LOST, Confidence.HIGH),
    (OTHER | {"split": True}, Cause.SPLIT_LEADERSHIP, Confidence.HIGH),
    (SAME | {"returned": True}, Cause.REWRITTEN_BY_FLINK, Confidence.HIGH),
    (OTHER | {"foreign": True}, Cause.TAMPERED, Confidence.HIGH),
    (IN_KUBERNETES | {"deleted": True}, Cause.TAMPERED, Confidence.MEDIUM),
    (OTHER | {"upgraded": ("1.17 or older", "1.18 or newer")}, Cause.ROLLING_UPGRADE, Confidence.HIGH),
    (OTHER | UPGRADED | {"orderly": True}, Cause.PLANNED_UPGRADE, Confidence.HIGH),
    (OTHER | UPGRADED, Cause.PLANNED_UPGRADE, Confidence.MEDIUM),
    (UPGRADED | {"deleted": True}, Cause.PLANNED_UPGRADE, Confidence.HIGH),
    (OTHER | UPGRADED | {"split": True, "orderly": True}, Cause.SPLIT_LEADERSHIP, Confidence.HIGH),
    (OTHER | {"intent": Intent(Plan.ROLLBACK, SECOND), "orderly": True}, Cause.ROLLBACK, Confidence.HIGH),
    (OTHER | {"intent": Intent(Plan.DRAIN, -SECOND, "node n"), "orderly": True}, Cause.NODE_DRAIN, Confidence.HIGH),
    (
        OTHER | {"intent": Intent(Plan.DRAIN, -SECOND, "node n", evicted=False), "orderly": True},
        *(Cause.NODE_DRAIN, Confidence.MEDIUM),
    ),
    (OTHER | {"intent": Intent(Plan.SUSPENSION, -SECOND), "orderly": True}, Cause.GRACEFUL_HANDOVER, Confidence.HIGH),
    (OTHER | {"intent": Intent(Plan.DELETION, -SECOND)}, Cause.JOBMANAGER_LOST, Confidence.MEDIUM),
    (OTHER | UNHEALTHY | {"orderly": True}, Cause.OPERATOR_RESTART, Confidence.HIGH),
    (IN_KUBERNETES | UNHEALTHY | {"deleted": True}, Cause.OPERATOR_RESTART, Confidence.HIGH),
    (OTHER | MISSING | {"orderly": True}, Cause.OPERATOR_RESTART, Confidence.MEDIUM),
    (OTHER | UNHEALTHY, Cause.JOBMANAGER_LOST, Confidence.MEDIUM),
    (SAME | UNHEALTHY | {"orderly": True}, Cause.SAME_PROCESS_REELECTION, Confidence.HIGH),
    (OTHER | {"unseen": True}, Cause.UNKNOWN, Confidence.NONE),
    (OTHER | BLINK | {"contended": 2, "contend": 1}, Cause.UNKNOWN, Confidence.NONE),
    (BLINK, Cause.UNKNOWN, Confidence.NONE),
    ({"succeeded": True}, Cause.UNKNOWN, Confidence.NONE),
    # an outage that was long enough for Flink to see it, too
    (OTHER | AWAY | FEWER, Cause.STORE_OUTAGE, Confidence.MEDIUM),
    (OTHER | LATER | FEWER, Cause.STORE_OUTAGE, Confidence.MEDIUM),
    (OTHER | LATER, Cause.STORE_OUTAGE, Confidence.MEDIUM),
    (OTHER | LATER | {"orderly": True}, Cause.GRACEFUL_HANDOVER, Confidence.HIGH),
    (OTHER | LATER | IN_KUBERNETES, Cause.JOBMANAGER_LOST, Confidence.MEDIUM),
    # the end of its process
    (OTHER | LATER | exited(239, 50), Cause.STORE_OUTAGE, Confidence.HIGH),
    (AWAY | exited(239, 20), Cause.STORE_OUTAGE, Confidence.HIGH),
    (OTHER | AWAY | exited(1, 20), Cause.STORE_OUTAGE, Confidence.MEDIUM),
    (IN_PLACE | AWAY | {"counted_on": False} | exited(None, 20), Cause.STORE_OUTAGE, Confidence.MEDIUM),
    (OTHER | AWAY | exited(137, 20), Cause.JOBMANAGER_LOST, Confidence.MEDIUM),
    (OTHER | LATER | exited(239, 10), Cause.JOBMANAGER_LOST, Confidence.MEDIUM),
    (OTHER | {"lives": True}, Cause.JOBMANAGER_LOST, Confidence.HIGH),
    (OTHER | {"lives": True, "is_stopped": True}, Cause.JOBMANAGER_LOST, Confidence.HIGH),
]


@pytest.mark.parametrize(
    ("parts", "cause", "confidence"), [pytest.param(*row, marks=pytest.mark.covers(f"cause:{row[1]}")) for row in ROWS]
)
def test_a_cause_follows_from_its_facts(parts: dict[str, Any], cause: Cause, confidence: Confidence) -> None:
    """One row for each way to each cause."""
    judgement = verdict(facts(**parts))
    assert (judgement.cause, judgement.confidence) == (cause, confidence)
    assert judgement.facts


def test_what_the_operator_said_is_a_fact_of_any_cause() -> None:
    """With its own words, and when that was."""
    said = "The operator's Event RestartUnhealthyJob, 4.0 s before the leader was lost: Restarting unhealthy job."
    for parts in (OTHER | UNHEALTHY, OTHER | UNHEALTHY | {"orderly": True}):
        assert verdict(facts(**parts)).facts.count(said) == 1


def test_no_cause_says_who_ended_the_process() -> None:
    """The store does not show it: an address that is left behind is no SIGTERM."""
    assert not any("It got SIGTERM" in sentence for parts, _, _ in ROWS for sentence in verdict(facts(**parts)).facts)


def test_every_cause_has_a_row() -> None:
    """But for the one that is none of Flink's: only we could not see."""
    assert {cause for _, cause, _ in ROWS} == {*Cause} - {Cause.OBSERVER_BLIND}


@pytest.mark.parametrize("parts", [parts for parts, _, confidence in ROWS if confidence is Confidence.MEDIUM])
def test_what_is_not_certain_says_what_else_it_may_have_been(parts: dict[str, Any]) -> None:
    """A verdict of `medium` names in its facts what else leaves them, or that nobody could look."""
    said = " ".join(verdict(facts(**parts)).facts)
    assert any(
        caution in said
        for caution in ("the same facts", "the same traces", "the facts are the same", "could not read", "unless")
    )


@given(
    st.builds(
        Facts,
        opened=st.just(OPENED),
        loss=st.none() | st.builds(loss, st.integers(0, 90), st.none() | st.integers(0, RELATED)),
    )
)
def test_there_is_always_a_verdict_with_its_facts(case: Facts) -> None:
    """Whatever was seen together: sentences, and no confidence in what is unknown."""
    judgement = verdict(case)
    assert all(sentence.endswith(".") and sentence[0].isupper() for sentence in judgement.facts)
    assert judgement.facts
    assert (judgement.cause is Cause.UNKNOWN) == (judgement.confidence is Confidence.NONE)


# -- recordings of real faults -----------------------------------------------------------------------------------------

LOST, HANDED_OVER, IN_ITS_PLACE, OUTAGE = (
    (cause.value, confidence.value)
    for cause, confidence in (
        (Cause.JOBMANAGER_LOST, Confidence.MEDIUM),
        (Cause.GRACEFUL_HANDOVER, Confidence.HIGH),
        (Cause.RESTARTED_IN_PLACE, Confidence.MEDIUM),
        (Cause.STORE_OUTAGE, Confidence.HIGH),
    )
)
PERHAPS_OUTAGE: Final = (Cause.STORE_OUTAGE.value, Confidence.MEDIUM.value)
IN_ZOOKEEPER: Final = {
    "i kill-9 leader, standby present": {"1.14.6": LOST, "2.3.0": LOST},
    "iii SIGTERM leader, standby present": {"1.14.6": LOST, "2.3.0": HANDED_OVER},
    "iv ZK kill-9, back after 2s (< session timeout)": {"1.14.6": PERHAPS_OUTAGE, "2.3.0": OUTAGE},
    "vi SIGSTOP leader 15s then SIGCONT, standby present": {"1.14.6": LOST, "2.3.0": LOST},
    "ii kill-9 only JM, restart after 12s": {"1.14.6": IN_ITS_PLACE, "2.3.0": IN_ITS_PLACE},
    "iib kill-9 only JM, restart at once (before session expiry)": {"1.14.6": IN_ITS_PLACE, "2.3.0": IN_ITS_PLACE},
    "term SIGTERM the only JM, restart after 6s": {"1.14.6": IN_ITS_PLACE, "2.3.0": HANDED_OVER},
    "v1 ZK down 15s (> session timeout), only ONE JM": {"1.14.6": PERHAPS_OUTAGE, "2.3.0": PERHAPS_OUTAGE},
}
"""What was done to a cluster, and why each version's leader moved then. The last fault's episode is not over when the recordings end."""


@pytest.mark.parametrize("version", ["1.14.6", "2.3.0"])
def test_recorded_faults_in_zookeeper_have_their_causes(version: str) -> None:
    """Each fault is one episode, of all that it moved, with the right cause; and there are no others."""
    causes_by_phase = [
        (phase, (episode.cause, episode.confidence))
        for phase, episode in test_recorded_failovers.watched(version).episodes
    ]
    assert causes_by_phase == [(phase, causes[version]) for phase, causes in IN_ZOOKEEPER.items()]


@pytest.mark.parametrize(
    ("version", "causes"),
    [
        (
            "1.14.6",
            [("kill -9", *LOST), ("SIGTERM", *LOST), ("SIGSTOP", *LOST), ("API server away for 15 s", *PERHAPS_OUTAGE)],
        ),
        (
            "1.20.5",
            [
                ("kill -9", *LOST),
                ("SIGTERM", *HANDED_OVER),
                ("SIGSTOP", *LOST),
                ("API server away for 15 s", *PERHAPS_OUTAGE),
                ("API server away for 28 s", *OUTAGE),
            ],
        ),
        ("2.3.0", [("kill -9", *LOST)]),
    ],
)
def test_recorded_faults_in_kubernetes_have_their_causes(version: str, causes: list[tuple[str, str, str]]) -> None:
    """The same, with leases. What ends with nobody leading is not over."""
    episodes = test_recorded_configmaps.watched(version).episodes
    assert [(phase, episode.cause, episode.confidence) for phase, episode in episodes] == causes


@pytest.mark.parametrize(
    ("host", "in_zookeeper", "in_kubernetes"),
    [
        ("10.1.2.3", True, True),
        ("[2001:db8::1]", True, True),
        ("jm-0.example.com", True, False),
        ("flink-jobmanager", True, False),
        ("flink-jobmanager.flink.svc.cluster.local", False, False),
        ("localhost", False, False),
        ("127.0.0.1", False, False),
        ("[::1]", False, False),
        ("[::ffff:127.0.0.1]", False, False),
        ("localhost.localdomain", False, False),
        ("[::]", False, False),
    ],
)
def test_a_service_and_localhost_are_nobodys_own_host(host: str, in_zookeeper: bool, in_kubernetes: bool) -> None:
    """Two JobManagers behind them have the same address."""
    address = f"pekko.tcp://flink@{host}:6123/user/rpc/dispatcher_0"
    assert is_own_host(address, in_kubernetes=False) is in_zookeeper
    assert is_own_host(address, in_kubernetes=True) is in_kubernetes
