"""A cluster that was found is removed: its leaderships are retired, nobody is paged, and a real outage is not taken for a removal."""

from msgspec.structs import replace

from sidecar.core.cluster.cluster_step import REMOVED_AFTER
from sidecar.core.moment import SECOND
from sidecar.core.observations import ClusterFound, ClusterRemoved, ClustersListed, ConfigMapObserved, ViewConfirmed
from sidecar.core.policy.policy import Heartbeat, Policy, Rule, Store
from sidecar.core.policy.triggers import Trigger
from tests.kit.cluster import CLUSTER, DISPATCHER, THE_JOB, A, B
from tests.kit.config_maps import ONE, ConfigMaps
from tests.kit.core_sidecar import KUBERNETES, OPS, LeaseSidecar
from tests.kit.fake_flink import Flink

FINDING = replace(KUBERNETES, stores={}, finds=Store.KUBERNETES)


class Finder(LeaseSidecar):
    """A sidecar that finds the cluster."""

    def __init__(self, flink: Flink, policy: Policy = FINDING) -> None:
        super().__init__(flink, policy)

    def finds(self) -> "Finder":
        self.observe(ClusterFound(self.moment, CLUSTER))
        self.connects()
        self.lists(CLUSTER)
        return self

    def lists(self, *names: str) -> None:
        self.observe(ClustersListed(self.moment, "namespace flink", frozenset(names)))

    def sees_removal(self, *, on_purpose: bool = False) -> None:
        """The driver reports both, and the core decides which of them counts."""
        self.flink.config_maps.changed.clear()
        self.observe(ClusterRemoved(self.moment, CLUSTER, on_purpose))
        self.observe(ConfigMapObserved(self.moment, CLUSTER, ONE))

    def watches_it(self) -> bool:
        return CLUSTER in self.state.clusters


def finder(policy: Policy = FINDING) -> tuple[Flink, Finder]:
    """A cluster with one job that was found a minute ago."""
    flink = Flink(ConfigMaps()).grant(A).submit().publish_all(A)
    sidecar = Finder(flink, policy)
    sidecar.finds()
    sidecar.watches(60)
    sidecar.records.clear()
    return flink, sidecar


def withdraw(flink: Flink, sidecar: Finder) -> None:
    sidecar.sees(flink.vacate())


def test_a_cluster_that_withdraws_and_is_deleted_is_retired() -> None:
    """As Flink ends an application, and as the operator deletes its resource: one episode that says so, and no message, ever."""
    flink, sidecar = finder()
    withdraw(flink, sidecar)
    sidecar.waits(10)
    flink.config_maps.delete()
    sidecar.sees_removal()
    assert not sidecar.watches_it()
    assert (sidecar.kinds(DISPATCHER), sidecar.kinds(THE_JOB)) == (["REVOKED", "RETIRED"], ["REVOKED", "RETIRED"])
    (episode,) = sidecar.episodes()
    assert (episode.cause, episode.confidence) == ("cluster_removed", "high")
    assert episode.components == ["dispatcher", "resource_manager", "rest_server"]
    sidecar.waits(120)
    assert sidecar.sent_reasons() == []
    assert sidecar.state.alerts.groups == {}


def test_a_config_map_deleted_beneath_its_leader_is_an_outage() -> None:
    """Somebody deletes the ConfigMap of a living cluster: its JobManager makes it anew, and that is one failover with its message."""
    flink, sidecar = finder()
    flink.config_maps.delete()
    sidecar.sees_removal()
    assert sidecar.watches_it()
    assert sidecar.transitions(DISPATCHER)[0].reason == "the ConfigMap is gone"
    sidecar.waits(8)
    flink.elect(B)
    sidecar.observe(ClusterFound(sidecar.moment, CLUSTER))
    sidecar.connects().watches(20)
    assert sidecar.kinds(DISPATCHER) == ["REVOKED", "GRANTED"]
    assert sidecar.sent_reasons() == [("FlinkLeaderChanged", "FIRST")]
    assert sidecar.state.clusters[CLUSTER].gone is None


def test_an_outage_that_nobody_ends_is_a_removal_at_last() -> None:
    """The page comes as always; after ten minutes without anything it is resolved, and the cluster forgotten."""
    flink, sidecar = finder()
    flink.config_maps.delete()
    sidecar.sees_removal()
    sidecar.waits(60, tick=1)
    assert sidecar.sent_reasons() == [("FlinkNoLeader", "FIRST")]
    sidecar.waits(REMOVED_AFTER // SECOND + 60, tick=1)
    assert sidecar.sent_reasons() == [("FlinkNoLeader", "FIRST"), ("FlinkNoLeader", "RESOLVED")]
    assert not sidecar.watches_it()
    assert sidecar.kinds(DISPATCHER) == ["REVOKED", "RETIRED"]


def test_a_cluster_whose_config_map_is_deleted_is_without_a_leader_and_not_out_of_sight() -> None:
    """Nothing of it is confirmed any more, and that is no reason to say that the store cannot be read."""
    flink, sidecar = finder(
        replace(FINDING, rules=(*FINDING.rules, Rule("Blind", Trigger.BLIND, hold_for=60 * SECOND)))
    )
    sidecar.observe(ViewConfirmed(sidecar.moment, CLUSTER, 5 * SECOND))
    flink.config_maps.delete()
    sidecar.sees_removal()
    sidecar.waits(150, tick=1)
    assert sidecar.sent_reasons() == [("FlinkNoLeader", "FIRST")]
    assert sidecar.state.clusters[CLUSTER].is_in_sight


def test_a_removal_that_is_known_to_be_on_purpose_counts_at_once() -> None:
    """Whatever leader is still published."""
    flink, sidecar = finder()
    flink.config_maps.delete()
    sidecar.sees_removal(on_purpose=True)
    assert not sidecar.watches_it()
    assert sidecar.kinds(DISPATCHER) == ["RETIRED"]
    assert sidecar.episodes() == []
    assert sidecar.waits(60).sent_reasons() == []


def test_a_page_is_resolved_when_its_cluster_is_removed() -> None:
    """A cluster without a leader for long is deleted at last."""
    flink, sidecar = finder()
    withdraw(flink, sidecar)
    sidecar.hears_nothing(45)
    assert sidecar.sent_reasons() == [("FlinkNoLeader", "FIRST")]
    flink.config_maps.delete()
    sidecar.sees_removal()
    sidecar.waits(90, tick=1)
    assert sidecar.sent_reasons() == [("FlinkNoLeader", "FIRST"), ("FlinkNoLeader", "RESOLVED")]


def test_clusters_that_vanished_between_two_processes_are_retired() -> None:
    """The list of the next process decides; until it has one, nothing is concluded."""
    _, sidecar = finder()
    sidecar.is_killed(down_for=600)
    sidecar.observe(ClustersListed(sidecar.moment, "namespace flink", None))
    assert sidecar.watches_it()
    sidecar.lists("another")
    assert not sidecar.watches_it()
    assert sidecar.kinds(DISPATCHER) == ["RETIRED"]
    assert sidecar.waits(60).sent_reasons() == []


def test_a_leader_that_changed_between_two_processes_is_notified() -> None:
    """A found cluster goes on where the previous process ended, as a configured one does."""
    flink, sidecar = finder()
    sidecar.is_killed(down_for=60)
    flink.elect(B)
    sidecar.finds()
    sidecar.watches(20)
    assert sidecar.sent_reasons()[0] == ("FlinkLeaderChanged", "FIRST")


def test_what_is_observed_too_late_does_not_bring_a_cluster_back() -> None:
    """And one that comes back begins anew: its first leader is nobody's successor."""
    flink, sidecar = finder()
    withdraw(flink, sidecar)
    flink.config_maps.delete()
    sidecar.sees_removal()
    sidecar.completes()
    assert not sidecar.watches_it()
    flink.elect(B)
    sidecar.finds()
    sidecar.watches(30)
    assert sidecar.kinds(DISPATCHER)[2:] == ["DISCOVERED"]
    assert sidecar.sent_reasons() == []


def test_a_heartbeat_says_how_many_clusters_are_watched_and_stops_with_the_view() -> None:
    """With a finder that cannot list its clusters nobody watches, even if there are none."""
    beat = Heartbeat(OPS, 60 * SECOND)
    flink, sidecar = finder(replace(FINDING, heartbeats=(beat,)))
    assert [delivery.title for delivery in sidecar.sent][-1:] == ["[HEARTBEAT] sidecar-0 watches 1 cluster"]
    withdraw(flink, sidecar)
    flink.config_maps.delete()
    sidecar.sees_removal()
    sent = len(sidecar.waits(70).sent)
    sidecar.observe(ClustersListed(sidecar.moment, "namespace flink", None))
    assert len(sidecar.waits(120).sent) == sent > 1
