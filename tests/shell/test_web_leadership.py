"""`/leader`, `/standby` and the leader of one cluster, over real HTTP."""

from urllib.parse import quote

import pytest
from msgspec.structs import replace

from sidecar.core.moment import SECOND, Moment
from sidecar.core.views.snapshot import Snapshot
from tests.kit.cluster import CLUSTER
from tests.kit.core_sidecar import POLICY, Sidecar, watching
from tests.shell.reading import show
from tests.shell.site import Site

BESIDE_THE_LEADER = frozenset({"jm-a"})
ELSEWHERE = frozenset({"jm-b"})


def beside(site: Site, own: frozenset[str]) -> Sidecar:
    """A sidecar there, which sees that jm-a leads; the site shows what it knows."""
    _, sidecar = watching(policy=replace(POLICY, own_hosts=own))
    show(site, sidecar)
    return sidecar


def test_the_leader_and_the_standby(site: Site) -> None:
    """One of both paths is 200, and the body says why."""
    beside(site, BESIDE_THE_LEADER)
    assert site.get("/leader") == (200, "this JobManager leads rest_server\n")
    assert site.get("/standby") == (503, "this JobManager leads rest_server\n")
    beside(site, ELSEWHERE)
    assert site.get("/leader") == (503, "another JobManager leads rest_server\n")
    assert site.get("/standby") == (200, "another JobManager leads rest_server\n")


@pytest.mark.parametrize("own", [BESIDE_THE_LEADER, ELSEWHERE])
def test_while_blind_neither_is_200(site: Site, own: frozenset[str]) -> None:
    """Nor before the first complete view, nor while the owner is stuck."""
    assert [site.get(path)[0] for path in ("/leader", "/standby")] == [503, 503]
    sidecar = beside(site, own)
    site.now = Moment(sidecar.now + 6 * SECOND, sidecar.now + 6 * SECOND)
    assert site.get("/leader") == (503, "blind: the owner's thread has been stuck for 6 s\n")
    assert site.get("/standby")[0] == 503
    show(site, sidecar.is_cut_off())
    line = "blind: the connection to the store is SUSPENDED\n"
    assert [site.get(path) for path in ("/leader", "/standby")] == [(503, line)] * 2


def test_a_component_and_a_cluster_can_be_named(site: Site) -> None:
    """The cluster with Flink's slashes or without."""
    beside(site, BESIDE_THE_LEADER)
    assert site.get("/leader?component=dispatcher") == (200, "this JobManager leads dispatcher\n")
    assert site.get("/leader?cluster_id=/default&component=resource_manager")[0] == 200
    assert site.get("/leader?cluster_id=orders") == (503, "unknown: no such cluster is watched\n")
    assert site.get("/leader?component=job")[0] == 400
    assert site.get("/leader", "HEAD") == (200, "")
    assert site.get("/leader", "POST")[0] == 405


def test_a_load_balancer_is_always_answered(site: Site) -> None:
    """Whatever name it asks for, as the kubelet is; addresses are for those whose Host is known."""
    beside(site, BESIDE_THE_LEADER)
    foreign = {"Host": "balancer.example"}
    assert site.get("/leader", headers=foreign) == (200, "this JobManager leads rest_server\n")
    assert site.get("/standby", headers=foreign)[0] == 503
    assert site.get("/api/v1/clusters/default/leader", headers=foreign)[0] == 421


# -- who leads one cluster ---------------------------------------------------------------------------------------------


def test_the_leader_of_one_cluster_as_data(site: Site) -> None:
    """Of the REST server, or of another component."""
    sidecar = beside(site, ELSEWHERE)
    leader = site.data("/api/v1/clusters/default/leader")
    assert (leader["state"], leader["leader_address"], leader["rest_url"]) == (
        "held",
        "http://jm-a:8081",
        "http://jm-a:8081",
    )
    dispatcher = site.data("/api/v1/clusters/default/leader?component=dispatcher")
    assert (dispatcher["component"], dispatcher["rest_url"]) == ("dispatcher", "http://jm-a:8081")
    show(site, sidecar.is_cut_off())
    blind = site.data("/api/v1/clusters/default/leader")
    assert (blind["state"], blind["blind"], blind["leader_address"]) == ("unknown", True, None)


@pytest.mark.parametrize("cluster_id", ["team/orders", "größe", "a%2Fb"])
def test_any_cluster_id_can_be_in_the_path(site: Site, cluster_id: str) -> None:
    """Encoded; a slash may stand as it is."""
    sidecar = beside(site, ELSEWHERE)
    state = replace(sidecar.state, clusters={cluster_id: sidecar.state.clusters[CLUSTER]})
    policy = replace(sidecar.policy, stores={cluster_id: sidecar.policy.stores[CLUSTER]})
    site.snapshot = Snapshot(sidecar.moment, state, policy=policy)
    for safe in ("", "/"):
        assert site.data(f"/api/v1/clusters/{quote(cluster_id, safe=safe)}/leader")["cluster_id"] == cluster_id


def test_an_unknown_cluster_is_not_found(site: Site) -> None:
    """In one line."""
    beside(site, ELSEWHERE)
    assert site.get("/api/v1/clusters/orders/leader") == (404, "no cluster 'orders' is watched\n")
    assert site.get("/api/v1/clusters//leader")[0] == 404
