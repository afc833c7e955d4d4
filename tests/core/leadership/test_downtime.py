"""A vacancy is the time without a published leader. For how long none worked is given beside it, as bounds that hold."""

from collections.abc import Sequence
from datetime import datetime
from itertools import pairwise

import pytest
from msgspec.structs import replace

from sidecar.core.failover.episodes import HANDOVER_PATIENCE, SETTLED
from sidecar.core.flink.configmaps import LEASE_MARGIN, ConfigMapLayout
from sidecar.core.flink.leadership import CLUSTER_COMPONENTS
from sidecar.core.leadership.unobserved import TICK
from sidecar.core.moment import SECOND, bounds, timestamp
from sidecar.core.observations import ConnectionState, PlaceRemoved
from sidecar.core.policy.policy import Source
from sidecar.core.records import EpisodeRecord, TransitionRecord
from tests.core.cluster import test_recorded_configmaps, test_recorded_failovers
from tests.core.cluster.pictures import after, before, shows
from tests.kit import configmap_recordings, zookeeper_recordings
from tests.kit.cluster import CLUSTER, DISPATCHER, RESOURCE_MANAGER, THE_JOB, A, B, job_manager
from tests.kit.core_sidecar import KUBERNETES, POLICY, RENEWAL, Sidecar, fail_over, leased, watching

AWHILE = SETTLED / SECOND + 1
TIMEOUT = 20
WITH_TIMEOUT = replace(POLICY, session_timeouts={CLUSTER: TIMEOUT * SECOND})
EXPIRY = TIMEOUT + TICK / SECOND
C = job_manager("jm-c")


def granted(sidecar: Sidecar) -> TransitionRecord:
    """The latest leader of the dispatcher."""
    return [t for t in sidecar.transitions(DISPATCHER) if t.after_session_id][-1]


def down(of: TransitionRecord | EpisodeRecord) -> tuple[float | None, float | None]:
    return of.downtime_seconds_at_least, of.downtime_seconds_at_most


def test_a_session_that_expired_was_heard_of_a_timeout_before() -> None:
    """ZooKeeper, kill -9: no published leader for 2 s; the dead one may have been silent for the whole timeout and a tick before."""
    flink, sidecar = watching(policy=WITH_TIMEOUT)
    fail_over(flink, sidecar).waits(AWHILE)
    grant = granted(sidecar)
    assert grant.vacant_seconds is not None
    assert down(grant) == (grant.vacant_seconds, grant.vacant_seconds + EXPIRY)
    (episode,) = sidecar.episodes()
    assert episode.vacant_seconds is not None
    assert down(episode) == (episode.vacant_seconds, episode.vacant_seconds + EXPIRY)


def test_without_flinks_session_timeout_there_is_no_upper_bound() -> None:
    """Only Flink's configuration has it."""
    flink, sidecar = watching()
    fail_over(flink, sidecar).waits(AWHILE)
    assert down(granted(sidecar)) == (granted(sidecar).vacant_seconds, None)
    assert down(sidecar.episodes()[0]) == (sidecar.episodes()[0].vacant_seconds, None)


def test_a_leader_that_withdrew_was_alive_until_then() -> None:
    """It removed its address itself: both figures are one."""
    flink, sidecar = watching(policy=WITH_TIMEOUT)
    for component in CLUSTER_COMPONENTS:
        sidecar.sees(flink.vacate(component))
        sidecar.observe(PlaceRemoved(sidecar.moment, CLUSTER, flink.znodes.path(component)))
    fail_over(flink, sidecar).waits(AWHILE)
    vacant = granted(sidecar).vacant_seconds
    assert down(granted(sidecar)) == (vacant, vacant)
    leasing, kubernetes = leased()
    leasing.vacate(DISPATCHER)
    kubernetes.sees_changes().waits(1)
    leasing.grant(B).publish_all(B)
    kubernetes.sees_changes()
    vacant = granted(kubernetes).vacant_seconds
    assert down(granted(kubernetes)) == (vacant, vacant)


def test_a_leader_that_published_itself_was_alive_then() -> None:
    """B leads for 3 s and is lost: it cannot have been silent for longer than it led. In one episode the times add up."""
    flink, sidecar = watching(policy=WITH_TIMEOUT)
    fail_over(flink, sidecar).waits(3)
    first = granted(sidecar)
    fail_over(flink, sidecar, 1, C)
    second = granted(sidecar)
    assert second.vacant_seconds is not None
    assert second.downtime_seconds_at_most is not None
    assert second.vacant_seconds + 3 <= second.downtime_seconds_at_most < second.vacant_seconds + 3.1
    sidecar.waits(AWHILE)
    (episode,) = sidecar.episodes()
    assert (episode.downtime_seconds_at_least or 0) >= (first.vacant_seconds or 0) + second.vacant_seconds
    assert (episode.downtime_seconds_at_most or 0) >= (first.downtime_seconds_at_most or 0) + second.vacant_seconds


def test_an_outage_of_the_store_gives_sessions_their_time_again() -> None:
    """We lost the store 8 s before: the dead leader's session was last known to be valid then."""
    flink, sidecar = watching(policy=WITH_TIMEOUT)
    sidecar.is_cut_off().waits(2).connects().waits(6)
    fail_over(flink, sidecar)
    grant = granted(sidecar)
    assert grant.vacant_seconds is not None
    assert grant.downtime_seconds_at_most is not None
    assert grant.downtime_seconds_at_most >= grant.vacant_seconds + EXPIRY + 8


def test_what_nobody_saw_has_no_bounds() -> None:
    """Changed while the sidecar was down or blind: found when it is back. A vacancy that blindness interrupted has none either."""
    flink, sidecar = watching(policy=WITH_TIMEOUT)
    sidecar.is_killed(down_for=30)
    flink.elect(B)
    sidecar.connects().waits(AWHILE)
    assert granted(sidecar).kind == "DISCOVERED"
    assert down(granted(sidecar)) == (None, None)
    assert down(sidecar.episodes()[0]) == (None, None)
    sidecar.sees(flink.vacate()).is_cut_off(ConnectionState.LOST).waits(30).connects()
    sidecar.sees(flink.elect(C))
    assert granted(sidecar).kind == "GRANTED"
    assert down(granted(sidecar)) == (None, None)


def test_a_change_without_a_vacancy_has_bounds_too() -> None:
    """Flink was faster than the watch: no time without a published leader was seen, and yet the old one may have been dead."""
    flink, sidecar = watching(policy=WITH_TIMEOUT)
    sidecar.sees(flink.elect(B))
    assert granted(sidecar).kind == "CHANGED"
    assert granted(sidecar).vacant_seconds is None
    assert down(granted(sidecar)) == (0.0, EXPIRY)


def test_the_same_leader_may_have_worked_all_the_time() -> None:
    """Its address was gone, and it wrote it again: at least 0."""
    flink, sidecar = watching(policy=WITH_TIMEOUT)
    fail_over(flink, sidecar, 1, A)
    assert granted(sidecar).downtime_seconds_at_least == 0.0


@pytest.mark.parametrize("era", [ConfigMapLayout.K1, ConfigMapLayout.K3])
def test_a_lease_bounds_the_death_of_its_holder(era: ConfigMapLayout) -> None:
    """Kubernetes, OOM kill: 0.4 s without a published leader, and 13 s of a dead one that still was. It died between two renewals."""
    flink, sidecar = leased(era=era)
    sidecar.hears_nothing(15)  # the last renewal was at the beginning of this
    sidecar.sees(flink.grant(B)).waits(0.4).sees(flink.publish_all(B))
    grant = granted(sidecar)
    assert grant.vacant_seconds is not None
    assert grant.vacant_seconds < 0.5
    at_least, at_most = down(grant)
    assert at_least is not None
    assert at_most is not None
    assert 15.4 <= at_most < 15.6
    assert at_most - at_least == pytest.approx(RENEWAL + LEASE_MARGIN / SECOND, abs=0.1)


def test_a_lease_that_ran_out_has_the_same_bounds() -> None:
    """No standby: the vacancy begins when the lease runs out, the downtime at the last renewal."""
    flink, sidecar = leased()
    sidecar.hears_nothing(30).sees(flink.grant(B).publish_all(B))
    at_least, at_most = down(granted(sidecar))
    assert at_most is not None
    assert 30 <= at_most < 30.5
    assert at_least == pytest.approx(at_most - RENEWAL - LEASE_MARGIN / SECOND, abs=0.1)


def test_a_renewal_that_nobody_saw_has_no_time() -> None:
    """The sidecar has just started, or was cut off: the lease it finds may have been renewed at any time before."""
    flink, sidecar = leased()
    sidecar.is_killed().connects().waits(5).sees(flink.grant(B).publish_all(B))
    assert down(granted(sidecar)) == (None, None)
    sidecar.watches(10).is_cut_off().waits(2)
    flink.config_maps.renew()
    sidecar.connects().waits(1).sees(flink.grant(C).publish_all(C))
    at_least, at_most = down(granted(sidecar))
    assert at_least == 0.0
    assert at_most is not None
    assert at_most >= 3.0


def test_a_renewal_that_could_not_be_written_is_not_missed() -> None:
    """We could not reach the API server either: the leader may have gone on until its lease ran out."""
    flink, sidecar = leased()
    sidecar.waits(1).is_cut_off().waits(2).connects().hears_nothing(15)
    sidecar.sees(flink.grant(B)).waits(1).sees(flink.publish_all(B))
    assert down(granted(sidecar))[0] == granted(sidecar).vacant_seconds


def test_a_configmap_that_was_deleted_was_somebodys_until_the_last_renewal() -> None:
    """Its uid is another when it is there again: the earlier one's renewals still count."""
    flink, sidecar = leased()
    flink.config_maps.delete()
    sidecar.sees_changes().waits(3).sees(flink.grant(B).submit().publish_all(B))
    at_least, at_most = down(granted(sidecar))
    assert at_least == granted(sidecar).vacant_seconds
    assert at_most is not None
    assert 3.0 <= at_most < 3.5


def test_a_job_has_its_own_bounds() -> None:
    """Its leader is gone with the session, and comes later."""
    flink, sidecar = watching(policy=WITH_TIMEOUT)
    sidecar.sees(flink.vacate()).waits(1).sees(flink.elect(B, *CLUSTER_COMPONENTS)).waits(1)
    sidecar.sees(flink.elect(B, THE_JOB))
    grant = sidecar.transitions(THE_JOB)[-1]
    assert grant.vacant_seconds is not None
    assert down(grant) == (grant.vacant_seconds, grant.vacant_seconds + EXPIRY)


def test_ids_do_not_follow_from_what_an_observer_can_bound() -> None:
    """One that knows the session timeout and one that does not derive the same ids of transitions and episode."""
    ids = []
    for policy in (POLICY, WITH_TIMEOUT):
        flink, sidecar = watching(policy=policy)
        fail_over(flink, sidecar).waits(AWHILE)
        ids.append([record.id for record in (*sidecar.transitions(), *sidecar.episodes())])
    assert ids[0] == ids[1]


def test_a_split_adds_up_to_no_more_than_it_lasted() -> None:
    """Leaders that replace each other again and again: each cannot have been dead for longer than it led."""
    flink, sidecar = watching(policy=WITH_TIMEOUT)
    began = sidecar.now
    for leader, _ in pairwise([B, C] * 20):
        sidecar.sees(flink.elect(leader, RESOURCE_MANAGER)).waits(0.25)
    sidecar.waits(HANDOVER_PATIENCE // SECOND + 1)
    (episode,) = sidecar.episodes()
    lasted = (sidecar.now - began) / SECOND
    assert episode.downtime_seconds_at_most is not None
    assert episode.downtime_seconds_at_most <= EXPIRY + lasted


def test_bounds_are_rounded_outwards() -> None:
    """Messages never say less than what is true."""
    assert bounds(8_870_000, 15_310_000) == "8.8 to 16 s"
    assert bounds(2_004_000, 2_004_000) == "2.0 s"
    assert bounds(420_000, None) == "at least 0.4 s"
    assert bounds(13_900_000, 15_000_000) == "13 to 15 s"
    assert bounds(9_990_000, 9_995_000) == "9.9 to 10 s"


# -- people ------------------------------------------------------------------------------------------------------------


def test_a_message_gives_the_better_figure_alone() -> None:
    """That of the time without a working leader, where it is known."""
    flink, sidecar = leased(policy=KUBERNETES)
    sidecar.hears_nothing(15).sees(flink.grant(B)).waits(0.4).sees(flink.publish_all(B)).waits(60)
    sent = sidecar.sent[0]
    assert "no working leader for 8.9 to 16 s" in sent.body
    assert "no published leader" not in sent.body


def test_jobs_run_again_after_the_time_without_a_working_leader() -> None:
    """The status counts from when the leader stopped, not from when that was observed: it still was the published one for 15 s."""
    flink, sidecar = leased(policy=replace(KUBERNETES, evidence=frozenset({Source.FLINK_REST})))
    shows(sidecar, before(sidecar))
    sidecar.hears_nothing(15).sees(flink.grant(B)).waits(0.4).sees(flink.publish_all(B)).waits(2)
    shows(sidecar, after(sidecar, 41, 42))
    sidecar.waits(1)
    stated = sidecar.state.clusters[CLUSTER].stated
    assert stated is not None
    assert stated.sentence == "1 of 1 jobs run again, 10 to 18 s after jm-a was lost"


# -- recordings of real faults -----------------------------------------------------------------------------------------


KILLED = "i kill-9 leader, standby present"
FROZEN = "vi SIGSTOP leader 15s then SIGCONT, standby present"


@pytest.mark.parametrize("version", ["1.14.6", "2.3.0"])
@pytest.mark.parametrize("phase", [KILLED, FROZEN])
def test_the_truth_of_recorded_faults_in_zookeeper_lies_between_the_bounds(version: str, phase: str) -> None:
    """From the moment when the process was killed, or stopped, until the next leader: 5 s of session timeout."""
    began = next(entry["wall_ns"] for of, entry in zookeeper_recordings.listener_log(version) if of == phase) // 1000
    transitions = test_recorded_failovers.watched(version).phases[phase]
    _check_bounds([t for t in transitions if t.kind in {"GRANTED", "CHANGED"}], timestamp(began))


@pytest.mark.parametrize(
    ("version", "phase"),
    [("1.14.6", "kill -9"), ("1.14.6", "SIGSTOP"), ("1.20.5", "kill -9"), ("1.20.5", "SIGSTOP"), ("2.3.0", "kill -9")],
)
def test_the_truth_of_recorded_faults_in_kubernetes_lies_between_the_bounds(version: str, phase: str) -> None:
    """The same, with leases of 15 s and a renewal every 5 s."""
    began = next(clock for clock, name in configmap_recordings.PHASES[version] if name == phase)
    transitions = test_recorded_configmaps.watched(version).phases[phase]
    _check_bounds([t for t in transitions if t.kind in {"GRANTED", "CHANGED"}], f"2026-11-20T{began}Z")


def _check_bounds(arrivals: Sequence[TransitionRecord], began: str) -> None:
    assert {arrival.component for arrival in arrivals} >= {"dispatcher", "resource_manager", "rest_server"}
    for arrival in arrivals:
        true = (datetime.fromisoformat(arrival.observed_at) - datetime.fromisoformat(began)).total_seconds()
        assert arrival.downtime_seconds_at_least is not None
        assert arrival.downtime_seconds_at_most is not None
        assert arrival.downtime_seconds_at_least <= true <= arrival.downtime_seconds_at_most, arrival.component
