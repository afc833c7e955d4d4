"""A verdict is `high` only where nothing else that is known leaves its facts. Where something else does, it is named."""

from uuid import uuid4

import pytest
from msgspec.structs import replace

from sidecar.core.failover.deaths import cause_of
from sidecar.core.failover.episodes import SETTLED
from sidecar.core.flink.leadership import CLUSTER_COMPONENTS, ComponentId
from sidecar.core.moment import SECOND
from sidecar.core.observations import PlaceRemoved
from tests.kit.cluster import CLUSTER, DISPATCHER, RESOURCE_MANAGER, REST_SERVER, THE_JOB, A, B, job_manager
from tests.kit.core_sidecar import LeaseSidecar, Sidecar, fail_over, leased, the_episode, watching
from tests.kit.fake_flink import Flink

AWHILE = SETTLED / SECOND + 1
HALT = 5
"""Seconds after SIGTERM, finished or not, Flink halts."""


def withdraws(flink: Flink, sidecar: Sidecar, *components: ComponentId) -> None:
    """The leader removes these addresses of its own, each with the znode above it."""
    for component in components:
        sidecar.sees(flink.vacate(component))
        sidecar.observe(PlaceRemoved(sidecar.moment, CLUSTER, flink.znodes.path(component)))


def take_over(flink: Flink, sidecar: LeaseSidecar) -> None:
    """The lease has run out: B takes it, clears what A left, and leads."""
    sidecar.sees(flink.grant(B)).sees(flink.vacate(*CLUSTER_COMPONENTS))
    sidecar.sees(flink.publish_all(B)).waits(AWHILE)


def test_a_session_that_ended_with_its_addresses_may_have_been_a_sigterm() -> None:
    """A JobManager on a slow CPU halts 5 s after SIGTERM with none of its addresses removed: in ZooKeeper that looks like kill -9."""
    flink, sidecar = watching()
    fail_over(flink, sidecar).waits(AWHILE)
    episode = the_episode(sidecar)
    assert (episode.cause, episode.confidence) == ("jobmanager_lost", "medium")
    assert "SIGTERM" in episode.facts[-1]


@pytest.mark.parametrize("standby", [True, False])
def test_a_lease_that_ran_out_may_have_been_a_sigterm(*, standby: bool) -> None:
    """The same in Kubernetes, whether another holder takes the lease or it runs out first."""
    flink, sidecar = leased()
    sidecar.hears_nothing(15 if standby else 30)
    take_over(flink, sidecar)
    episode = the_episode(sidecar)
    assert (episode.cause, episode.confidence) == ("jobmanager_lost", "medium")
    assert "SIGTERM" in episode.facts[-1]


def test_while_nobody_leads_the_message_says_how_sure_the_cause_is() -> None:
    """What else leaves these facts is for the morning: `explain` and the page have it, a message at night has not."""
    flink, sidecar = watching()
    sidecar.sees(flink.vacate()).waits(60)
    (sent,) = sidecar.sent
    assert "jobmanager_lost (medium confidence)" in dict(sent.facts)["cause"]
    assert "SIGTERM" not in sent.body
    (cluster,) = sidecar.state.clusters.values()
    assert cluster.episode
    assert "SIGTERM" in cause_of(cluster, cluster.episode).facts[-1]


def test_an_end_that_was_cut_short_is_a_handover_that_did_not_finish() -> None:
    """ZooKeeper, 50 millicores: the REST server's address was removed, the others went with the session. Nobody can rule out a kill."""
    flink, sidecar = watching()
    withdraws(flink, sidecar, REST_SERVER)
    sidecar.waits(HALT).sees(flink.vacate(RESOURCE_MANAGER, DISPATCHER, THE_JOB)).waits(1)
    sidecar.sees(flink.elect(B)).waits(AWHILE)
    episode = the_episode(sidecar)
    assert (episode.cause, episode.confidence) == ("graceful_handover", "medium")
    assert episode.facts[0].startswith("The leader removed 1 of its 3 addresses")


def test_an_end_in_kubernetes_that_was_cut_short_did_not_finish_either() -> None:
    """The REST server's key is removed by the holder; the others stay until the next leader clears them."""
    flink, sidecar = leased()
    sidecar.sees(flink.vacate(REST_SERVER)).hears_nothing(15)
    take_over(flink, sidecar)
    episode = the_episode(sidecar)
    assert (episode.cause, episode.confidence) == ("graceful_handover", "medium")
    assert episode.facts[0].startswith("The leader removed 1 of its 3 addresses")


def test_an_end_that_was_finished_is_certain() -> None:
    """All three addresses were removed by the leader, in either store: only a JobManager that ends in order does that."""
    flink, zookeeper = watching()
    withdraws(flink, zookeeper, *CLUSTER_COMPONENTS)
    fail_over(flink, zookeeper).waits(AWHILE)
    leasing, kubernetes = leased()
    for component in CLUSTER_COMPONENTS:
        leasing.vacate(component)
        kubernetes.sees_changes()
    kubernetes.sees(leasing.config_maps.release())
    leasing.grant(A)
    kubernetes.sees_changes().hears_nothing(15)
    take_over(leasing, kubernetes)
    for sidecar in (zookeeper, kubernetes):
        episode = the_episode(sidecar)
        assert (episode.cause, episode.confidence) == ("graceful_handover", "high")


def test_a_process_that_leads_again_has_handed_nothing_over() -> None:
    """A leader that lives removes its addresses when it loses its leadership (Flink 1.14 to 1.16), and is elected again."""
    flink, sidecar = leased()
    for component in CLUSTER_COMPONENTS:
        sidecar.sees(flink.vacate(component))
    sidecar.waits(1).sees(flink.publish_all(job_manager("jm-a", term=1))).waits(AWHILE)
    assert (the_episode(sidecar).cause, the_episode(sidecar).confidence) == ("same_process_reelection", "high")


def test_a_place_that_is_removed_twice_is_one_address() -> None:
    """The driver may report the same removal again after a look of its own."""
    flink, sidecar = watching()
    withdraws(flink, sidecar, REST_SERVER)
    for _ in range(2):
        sidecar.observe(PlaceRemoved(sidecar.moment, CLUSTER, flink.znodes.path(REST_SERVER)))
    fail_over(flink, sidecar).waits(AWHILE)
    assert the_episode(sidecar).facts[0].startswith("The leader removed 1 of its 3 addresses")


def test_addresses_that_the_next_holder_cleared_were_not_withdrawn() -> None:
    """The takeover and the removal arrive as one event: whoever holds the lease by then removed them, and that is another process."""
    flink, sidecar = leased()
    sidecar.hears_nothing(15).sees(flink.grant(B).vacate(*CLUSTER_COMPONENTS))
    reasons = {t.reason for t in sidecar.transitions(*CLUSTER_COMPONENTS)}
    assert reasons == {"another holder, the old address removed"}
    sidecar.sees(flink.publish_all(B)).waits(AWHILE)
    assert (the_episode(sidecar).cause, the_episode(sidecar).confidence) == ("jobmanager_lost", "medium")


def test_who_took_over_and_was_elected_again_does_not_bring_back_the_one_that_was_lost() -> None:
    """B leads for a second, the store goes, and B is elected anew: all of that is one failover, in which A was lost."""
    flink, sidecar = watching()
    for elected in (B, replace(B, session_id=uuid4(), zookeeper_session=99)):
        fail_over(flink, sidecar, 1, elected).waits(1)
    sidecar.waits(AWHILE)
    episode = the_episode(sidecar)
    assert (episode.cause, episode.failovers) == ("jobmanager_lost", 2)
