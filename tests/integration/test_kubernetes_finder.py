"""The finder sees the clusters that come and go on a real API server, each like one that is configured."""

import logging
from collections.abc import Callable, Iterator
from functools import partial
from itertools import count
from pathlib import Path
from uuid import uuid4

import pytest
from msgspec import json

from sidecar.core.bounds import CLUSTERS
from sidecar.core.observations import (
    ClusterFound,
    ClusterObservation,
    ClusterRemoved,
    ConfigMapObserved,
    ConnectionState,
    SnapshotCompleted,
    ViewObserved,
)
from sidecar.drivers.kubernetes import Access, KubernetesFinder, api, clusters_by_labels
from sidecar.settings import FinderSettings
from tests.kit.configmap_recorder import said
from tests.kit.driver_recorder import CONNECTED, SUSPENDED, now
from tests.kit.finder_recorder import Recorder
from tests.kit.kubernetes_server import Json, Kubernetes, Namespace
from tests.kit.serving import serving
from tests.kit.waiting import wait_for

Find = Callable[..., Recorder]
DISPATCHER = "org.apache.flink.k8s.leader.dispatcher"
JOB = "ff595cc2c737b4d30a69e740b7002d50"
_versions = count(1)


def lease(holder: str = "jvm", seconds: float = 15.0) -> str:
    """Renewed at every call."""
    return json.encode({"holderIdentity": holder, "leaseDuration": seconds, "renewTime": f"{next(_versions)}"}).decode()


class Clusters:
    """Flinks in one namespace. `labels` are on each of their ConfigMaps, so that a test on a shared server selects its own."""

    def __init__(self, namespace: Namespace, labels: dict[str, str]) -> None:
        self.namespace = namespace
        self._labels = labels

    def labels(self, cluster: str) -> dict[str, str]:
        return {"app": cluster, "type": "flink-native-kubernetes", **self._labels}

    def create(self, cluster: str, *, seconds: float = 15.0) -> Json:
        held = lease(seconds=seconds)
        name = f"{cluster}-cluster-config-map"
        return self.namespace.create(name, {DISPATCHER: "1,a"}, held, self.labels(cluster))

    def renew(self, cluster: str, *, seconds: float = 15.0) -> Json:
        held = lease(seconds=seconds)
        name = f"{cluster}-cluster-config-map"
        return self.namespace.replace(name, {DISPATCHER: "1,a"}, held, self.labels(cluster))

    def delete(self, cluster: str) -> None:
        self.namespace.delete(f"{cluster}-cluster-config-map")


@pytest.fixture
def mark() -> dict[str, str]:
    """A label of this test's ConfigMaps."""
    return {"test": str(uuid4())}


@pytest.fixture
def flinks(kubernetes: Kubernetes, mark: dict[str, str]) -> Clusters:
    return Clusters(kubernetes.namespace(f"test-{uuid4()}"), mark)


@pytest.fixture
def find(kubernetes: Kubernetes, mark: dict[str, str], flinks: Clusters) -> Iterator[Find]:
    """Starts finders, and stops them when the test is over."""
    started: list[Recorder] = []

    def start(
        *namespaces: str,
        everywhere: bool = False,
        user: str = "admin",
        most: int = CLUSTERS.most_items,
        on: Kubernetes = kubernetes,
    ) -> Recorder:
        where = None if everywhere else namespaces or (flinks.namespace.name,)
        selector = f"type=flink-native-kubernetes,test={mark['test']}"
        recorder = Recorder(
            KubernetesFinder(Access(on.kubeconfig(user)), FinderSettings(selector, where, "home"), now, most)
        )
        started.append(recorder)
        recorder.finder.start(recorder)
        return recorder

    yield start
    for recorder in started:
        recorder.finder.stop()


def kinds(observations: list[ClusterObservation]) -> list[type]:
    return [type(observation) for observation in observations]


def test_clusters_come_and_go(find: Find, flinks: Clusters) -> None:
    """Each is whole before anything else is reported of it; one that comes later too; one that goes is removed, and can come back."""
    flinks.create("orders")
    recorder = find()
    recorder.wait_listed({"orders"})
    whole = [ClusterFound, ViewObserved, ConfigMapObserved, SnapshotCompleted]
    assert kinds(recorder.of("orders")) == whole
    flinks.create("billing")
    recorder.wait(lambda: SnapshotCompleted in kinds(recorder.of("billing")))
    assert kinds(recorder.of("billing")) == whole
    flinks.delete("orders")
    recorder.wait(lambda: kinds(recorder.of("orders"))[len(whole) :] == [ClusterRemoved, ConfigMapObserved])
    flinks.create("orders")
    recorder.wait(lambda: kinds(recorder.of("orders"))[len(whole) + 2 :] == whole)
    assert kinds(recorder.of("billing")) == whole


def test_a_name_in_two_namespaces_is_two_clusters(
    find: Find, flinks: Clusters, kubernetes: Kubernetes, mark: dict[str, str]
) -> None:
    """With several namespaces, listed or all, the namespace is part of the id and of the name of the ConfigMap."""
    other = Clusters(kubernetes.namespace(f"test-{uuid4()}"), mark)
    here, there = flinks.namespace.name, other.namespace.name
    flinks.create("orders")
    other.create("orders")
    for recorder in (find(here, there), find(everywhere=True)):
        recorder.wait_listed({f"{here}/orders", f"{there}/orders"})
        (last,) = (
            config_map for config_map in recorder.of(f"{there}/orders") if isinstance(config_map, ConfigMapObserved)
        )
        assert last.name == f"{there}/orders-cluster-config-map"
    alone = find(there)
    alone.wait_listed({"orders"})


def test_what_has_flinks_labels_and_is_no_cluster(
    find: Find, flinks: Clusters, caplog: pytest.LogCaptureFixture
) -> None:
    """Checkpoints, the autoscaler's, one without a lease, one with a broken lease, one of Flink 1.14: none is a cluster, and what looks
    like one is one line.
    """
    labels, create = flinks.labels, flinks.namespace.create
    create(f"orders-{JOB}-config-map", {"counter": "1"}, labels=labels("orders"))
    create("autoscaler-orders", {"a": "1"}, labels=labels("orders"))
    create("a-cluster-config-map", {DISPATCHER: "1,a"}, labels=labels("a"))
    create("b-cluster-config-map", {DISPATCHER: "1,b"}, "{broken", labels("b"))
    create("c-cluster-config-map", {DISPATCHER: "1,c"}, lease(), labels("not-c"))
    create("old-dispatcher-leader", {"address": "a", "sessionId": "1"}, lease(), labels("old"))
    with caplog.at_level(logging.WARNING):
        recorder = find()
        recorder.wait_listed(set())
        create("d-cluster-config-map", {DISPATCHER: "<" * 900_000}, "[" * 20_000, labels("d"))
        flinks.create("orders")
        recorder.wait(lambda: SnapshotCompleted in kinds(recorder.of("orders")))
        flinks.namespace.replace("a-cluster-config-map", {DISPATCHER: "2,a"}, labels=labels("a"))
        flinks.renew("orders")
        recorder.wait(lambda: kinds(recorder.of("orders")).count(ConfigMapObserved) >= 2)
    assert {observation.cluster_id for observation in recorder.all if isinstance(observation, ClusterFound)} == {
        "orders"
    }
    assert sorted(line.partition(":")[0] for line in said(caplog, "ignored ConfigMap")) == [
        f"ignored ConfigMap {name}"
        for name in ("a-cluster-config-map", "b-cluster-config-map", "d-cluster-config-map", "old-dispatcher-leader")
    ]


def test_the_number_of_clusters_is_bounded(find: Find, flinks: Clusters, caplog: pytest.LogCaptureFixture) -> None:
    """One line when it is hit, the number of those left out, and a place that becomes free is taken."""
    for name in ("a", "b", "c", "d"):
        flinks.create(name)
    recorder = find(most=2)
    recorder.wait(lambda: [each.left_out for each in recorder.listed()][-1:] == [2])
    (watched,) = {each.cluster_ids for each in recorder.listed() if each.cluster_ids}
    assert watched is not None
    assert len(watched) == 2
    assert len(said(caplog, "too many clusters: ")) == 1
    flinks.delete(min(watched))
    waiting = min({"a", "b", "c", "d"} - watched)
    recorder.wait(lambda: ClusterRemoved in kinds(recorder.of(min(watched))))
    flinks.renew(waiting)
    recorder.wait(lambda: SnapshotCompleted in kinds(recorder.of(waiting)))
    recorder.wait(lambda: recorder.listed()[-1].left_out == 1)


def test_nothing_found_is_said_once(find: Find, flinks: Clusters, caplog: pytest.LogCaptureFixture) -> None:
    """And the first cluster is found as soon as it exists."""
    recorder = find()
    recorder.wait_listed(set())
    flinks.create("orders")
    recorder.wait(lambda: SnapshotCompleted in kinds(recorder.of("orders")))
    (line,) = said(caplog, "no Flink cluster was found")
    assert flinks.namespace.name in line


@pytest.mark.parametrize("everywhere", [False, True])
def test_a_missing_permission_is_named_exactly(
    find: Find, flinks: Clusters, kubernetes: Kubernetes, caplog: pytest.LogCaptureFixture, everywhere: bool
) -> None:
    """First the verb list, then watch; a Role where one namespace is watched, a ClusterRole where all are."""
    user = "finder" if everywhere else "nobody"
    role = "a ClusterRole" if everywhere else f"a Role in namespace {flinks.namespace.name}"
    name = f"{flinks.namespace.name}/orders" if everywhere else "orders"
    flinks.create("orders")
    recorder = find(everywhere=everywhere, user=user)
    for verb in ("list", "watch"):
        missing = f"no permission (403): grant {role} that allows the verb {verb} on the resource configmaps"
        recorder.wait(partial(said, caplog, missing))
        if everywhere:
            kubernetes.allow_everywhere(user, verb)
        else:
            flinks.namespace.allow(user, verb)
    recorder.wait(lambda: SnapshotCompleted in kinds(recorder.of(name)))


@pytest.mark.parametrize("clusters", [2, clusters_by_labels.FEW + 2])
def test_a_lease_that_is_not_renewed_is_confirmed(find: Find, flinks: Clusters, clusters: int) -> None:
    """Its ConfigMap is reported again, unchanged, when its lease has run out: the core concludes nothing else from silence. And the view of
    every cluster is confirmed meanwhile.
    """
    names = [f"flink-{number}" for number in range(clusters)]
    for name in names:
        flinks.create(name, seconds=1.0)
    recorder = find()
    recorder.wait_listed({*names})
    silent, *others = names

    def again() -> bool:
        for name in others:
            flinks.renew(name, seconds=1.0)
        config_maps = [observation for observation in recorder.of(silent) if isinstance(observation, ConfigMapObserved)]
        confirmed = {each.cluster_id for each in recorder.confirmed}
        return (
            len(config_maps) >= 2
            and len({config_map.resource_version for config_map in config_maps}) == 1
            and confirmed >= {*names}
        )

    wait_for("the lease that has run out", again)


def test_a_long_list_is_read_in_pages(find: Find, flinks: Clusters, monkeypatch: pytest.MonkeyPatch) -> None:
    """All of its clusters are found."""
    monkeypatch.setattr(api, "_FEW_IN_PAGE", 3)
    names = {f"flink-{number}" for number in range(8)}
    for name in names:
        flinks.create(name)
    find().wait_listed(names)


def test_large_config_maps_of_others_blind_nobody(
    find: Find, flinks: Clusters, kubernetes: Kubernetes, caplog: pytest.LogCaptureFixture
) -> None:
    """Whoever may write ConfigMaps anywhere can put Flink's label on 70 MB: clusters are found and confirmed, the large ones named."""
    other = kubernetes.namespace(f"test-{uuid4()}")
    for number in range(13):  # the API server escapes each character, to six
        other.create(f"large-{number:02}", {"x": "<" * 900_000}, labels=flinks.labels("large"))
    recorder = find(everywhere=True)
    recorder.wait_listed(set())
    flinks.create("orders")
    orders = f"{flinks.namespace.name}/orders"
    recorder.wait(lambda: SnapshotCompleted in kinds(recorder.of(orders)))
    recorder.wait(lambda: len([each for each in recorder.confirmed if each.cluster_id == orders]) >= 2)
    assert recorder.views(orders) == [CONNECTED]
    assert not said(caplog, "retrying")
    (line,) = said(caplog, "13 ConfigMaps in")
    assert f"({', '.join(f'{other.name}/large-{number:02}' for number in range(5))}, …)" in line
    flinks.renew("orders")
    recorder.wait(lambda: kinds(recorder.of(orders)).count(ConfigMapObserved) >= 2)


def test_what_an_outage_hides_is_reported_in_order(
    find: Find, tmp_path_factory: pytest.TempPathFactory, mark: dict[str, str], apiserver: Path
) -> None:
    """The API server goes and comes back: every cluster is SUSPENDED, then whole again; a change, a new one and a removal are reported."""
    with serving(Kubernetes(tmp_path_factory.mktemp("outage"), apiserver)) as server:
        flinks = Clusters(server.namespace("flink"), mark)
        for name in ("stays", "changes", "goes"):
            flinks.create(name)
        recorder = find("flink", on=server)
        recorder.wait_listed({"stays", "changes", "goes"})
        server.server.kill()
        recorder.wait(lambda: [each.cluster_ids for each in recorder.listed()][-1:] == [None])
        assert [recorder.views(name) for name in ("stays", "goes")] == [[CONNECTED, SUSPENDED]] * 2
        server.server.start()
        flinks.renew("changes")
        flinks.delete("goes")
        flinks.create("comes")
        recorder.wait(lambda: SnapshotCompleted in kinds(recorder.of("comes")))
        recorder.wait(lambda: kinds(recorder.of("changes")).count(SnapshotCompleted) == 2)
        assert recorder.views("stays") == [CONNECTED, SUSPENDED, ConnectionState.CONNECTED]
        recorder.wait(lambda: ClusterRemoved in kinds(recorder.of("goes")))
        versions = [
            config_map.resource_version
            for config_map in recorder.of("changes")
            if isinstance(config_map, ConfigMapObserved)
        ]
        assert len({*versions}) == 2
