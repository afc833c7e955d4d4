"""`run` finds clusters by the labels of their ConfigMaps on a real API server: what happens to each is notified as of a configured one."""

import json
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from sidecar.core.cluster.record_lines import DUPLICATE_NOTE
from tests.kit.cluster import A, B
from tests.kit.config_maps import ApiServerWriter, ConfigMaps
from tests.kit.fake_flink import Flink
from tests.kit.kubernetes_server import Kubernetes
from tests.kit.serving import serving
from tests.kit.sidecar_process import Sidecar
from tests.kit.waiting import wait_for
from tests.lab.receivers import HttpReceiver

RULES = """\
rules:
  - {alert: FlinkLeaderChanged, on: leader_changed}
  - {alert: FlinkNoLeader, on: vacant, for: 2s}
"""


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory, apiserver: Path) -> Iterator[Kubernetes]:
    users = {"flink": "token-of-flink", "finder": "token-of-finder"}
    with serving(Kubernetes(tmp_path_factory.mktemp("kubernetes"), apiserver, **users)) as running:
        yield running


class Place:
    """A namespace in which Flinks run, whose leases last an hour: nobody renews them here."""

    def __init__(self, server: Kubernetes, name: str) -> None:
        self.name = name
        namespace = server.namespace(name)
        namespace.allow("flink", "create", "update", "delete")
        namespace.allow("finder", "list", "watch")
        self._writer = ApiServerWriter(server.server.url, server.authority.ca, server.server.users["flink"], name)

    def flink(self, cluster: str) -> Flink:
        """A cluster with a job, led by A."""
        maps = ConfigMaps(writer=self._writer, cluster_id=cluster, duration="PT1H")
        return Flink(maps).grant(A).submit().publish_all(A)


def fail_over(flink: Flink) -> None:
    flink.grant(B).publish_all(B)


def remove(flink: Flink, cluster: str) -> None:
    """As Flink does at the end of an application, and the operator when its resource is deleted."""
    flink.vacate()
    flink.config_maps.delete(f"{cluster}-cluster-config-map")


@pytest.fixture
def sidecar_of(server: Kubernetes, tmp_path: Path, people: HttpReceiver) -> Iterator[Callable[..., Sidecar]]:
    """Makes sidecars that find clusters, of which none is left running, also where the test fails."""
    made: list[Sidecar] = []
    server.namespace("default").allow("finder", "get", "create", "patch")  # the kubeconfig's: the ledger is there

    def make(places: list[Place], observer: str = "one", ledger: str = "local") -> Sidecar:
        names = json.dumps([place.name for place in places])
        where = f"kubernetes: {{namespaces: {names}, kubeconfig: {server.kubeconfig('finder')}}}"
        config = f"{where}\nledger: {{mode: {ledger}}}\n{RULES}"
        made.append(Sidecar(tmp_path / observer, config, [people.url], observer=observer, group_wait="1s"))
        return made[-1]

    yield make
    for sidecar in made:
        sidecar.end()


def held(running: Sidecar) -> set[str]:
    """The clusters with a leader."""
    leaders = json.loads(running.get("/api/v1/leaders")[1] or "[]")
    return {each["cluster_id"] for each in leaders if each["state"] == "held"}


def kinds(running: Sidecar, cluster_id: str) -> list[str]:
    """What happened to the dispatcher's leadership."""
    seen = (transition for transition in running.transitions() if transition["component"] == "dispatcher")
    return [each["kind"] for each in seen if each["cluster_id"] == cluster_id]


def titles(people: HttpReceiver) -> list[str]:
    """Titles, without those that say that they may be a duplicate: on a busy machine an answer comes too late."""
    return [message.title for message in people.received if DUPLICATE_NOTE not in message.body]


def test_found_clusters_are_watched_and_retired(
    server: Kubernetes, people: HttpReceiver, sidecar_of: Callable[..., Sidecar]
) -> None:
    """Two clusters of one name are kept apart; a failover is one message; a cluster that is removed, observed or while the sidecar is down,
    is retired and never paged for; what comes later is watched too.
    """
    here, there = Place(server, "team-a"), Place(server, "team-b")
    flinks = {(place.name, name): place.flink(name) for place in (here, there) for name in ("orders", "billing")}
    running = sidecar_of([here, there])
    running.start().wait_ready()
    everything = {f"{place}/{name}" for place, name in flinks}
    wait_for("all clusters", lambda: held(running) == everything)

    fail_over(flinks["team-b", "orders"])
    (message,) = wait_for("the message", lambda: titles(people))
    assert "] team-b/orders: " in message

    remove(flinks["team-a", "billing"], "billing")
    wait_for("its end", lambda: kinds(running, "team-a/billing") == ["DISCOVERED", "REVOKED", "RETIRED"])
    late = there.flink("late")
    everything = everything - {"team-a/billing"} | {"team-b/late"}
    wait_for("the new one", lambda: held(running) == everything)
    metrics = running.get("/metrics")[1]
    assert "flink_ha_clusters_watched 4.0" in metrics
    assert "billing" in metrics
    assert 'cluster_id="team-a/billing"' not in metrics

    assert running.stop() == 0
    remove(flinks["team-a", "orders"], "orders")
    running.start().wait_ready()
    wait_for("its end", lambda: kinds(running, "team-a/orders")[-1:] == ["RETIRED"])
    fail_over(late)
    wait_for("the second message", lambda: len(titles(people)) == 2)
    assert "] team-b/late: " in titles(people)[1], people.received
    assert running.stop() == 0
    episodes = [record for record in running.records() if record["type"] == "episode"]
    assert {episode["cluster_id"]: episode["cause"] for episode in episodes}["team-a/billing"] == "cluster_removed"
    assert len(titles(people)) == 2


def test_two_finders_are_one_voice(
    server: Kubernetes, people: HttpReceiver, sidecar_of: Callable[..., Sidecar]
) -> None:
    """Each failover is one message; when one of the two is killed, the other one goes on."""
    place = Place(server, "team-c")
    flink = place.flink("orders")
    pair = [sidecar_of([place], observer, "auto") for observer in ("one", "two")]
    for sidecar in pair:
        sidecar.start()
    for sidecar in pair:
        sidecar.wait_ready()
    wait_for("the cluster", lambda: all(held(sidecar) == {"orders"} for sidecar in pair))
    fail_over(flink)

    def outcomes(sidecar: Sidecar) -> set[str]:
        return {record["outcome"] for record in sidecar.records() if record["type"] == "notification"}

    wait_for(
        "both to have settled it", lambda: all(outcomes(sidecar) & {"delivered", "already_told"} for sidecar in pair)
    )
    assert len(titles(people)) <= 1
    sender = next(sidecar for sidecar in pair if "delivered" in outcomes(sidecar))
    other = next(sidecar for sidecar in pair if sidecar is not sender)
    sender.kill()
    before = len(people.received)
    flink.grant(A).publish_all(A)
    wait_for("the second message", lambda: len(people.received) > before)
    assert other.stop() == 0
    assert len(titles(people)) <= 2
