"""The Kubernetes driver sees what stands in the ConfigMaps of a real API server, and needs to be allowed no more than to see it."""

import logging
import threading
import time
from collections.abc import Callable, Iterator
from itertools import count
from uuid import uuid4

import pytest

from sidecar.core.moment import SECOND
from sidecar.core.observations import ConfigMapObserved, NothingFound, SnapshotCompleted, ViewObserved
from sidecar.drivers.kubernetes import Access, KubernetesDriver
from tests.kit.configmap_recorder import Recorder, drivers, said, version_of
from tests.kit.driver_recorder import CONNECTED, SUSPENDED, now
from tests.kit.kubernetes_server import Kubernetes, Namespace
from tests.kit.waiting import LOADED_MACHINE_SECONDS, wait_for
from tests.lab.processes import free_port

Watch = Callable[..., Recorder]

CLUSTER = "demo"
NAME = "demo-cluster-config-map"
JOB = "ff595cc2c737b4d30a69e740b7002d50"
DISPATCHER = "org.apache.flink.k8s.leader.dispatcher"
LEADER = '{"holderIdentity":"b859a08e-47ce-4147-bd84-68121f90e857","leaseDuration":15.0}'
LABELS = {"app": CLUSTER, "type": "flink-native-kubernetes"}


@pytest.fixture
def flink(kubernetes: Kubernetes) -> Namespace:
    """A namespace of this test's own."""
    return kubernetes.namespace(f"test-{uuid4()}")


@pytest.fixture
def watch(kubernetes: Kubernetes, flink: Namespace) -> Iterator[Watch]:
    """Starts drivers, and stops them when the test is over."""
    with drivers() as start:
        admin = Access(kubernetes.kubeconfig())
        yield lambda access=admin, cluster_id=CLUSTER: start(KubernetesDriver(access, flink.name, cluster_id, now))


# -- one ConfigMap for all ---------------------------------------------------------------------------------------------


def test_a_cluster_is_seen_whole_and_then_as_it_changes(watch: Watch, flink: Namespace) -> None:
    """What stood there comes first, between CONNECTED and the end of the snapshot; then each change, once, in order, as it was."""
    job_graph, leader = f"jobGraph-{JOB}", "1,pekko.tcp://a:1/user/rpc/dispatcher_1"
    first = flink.create(NAME, {DISPATCHER: leader, job_graph: "rO0AB", "counter": "7"}, LEADER, LABELS)
    recorder = watch()
    recorder.wait_complete()
    view, config_map, end = recorder.all
    assert isinstance(view, ViewObserved)
    assert (view.connection, view.cluster_id) == (CONNECTED, CLUSTER)
    assert isinstance(config_map, ConfigMapObserved)
    assert (config_map.name, config_map.uid, config_map.resource_version) == version_of(first)
    assert (config_map.data, config_map.leader, config_map.cluster_id) == (
        {DISPATCHER: leader, job_graph: ""},
        LEADER,
        CLUSTER,
    )
    assert isinstance(end, SnapshotCompleted)

    before = now()
    written = [flink.replace(NAME, {DISPATCHER: f"{number},a"}, LEADER) for number in range(30)]
    recorder.wait_version(written[-1])
    assert recorder.versions() == [version_of(first), *map(version_of, written)]
    changes = recorder.config_maps()[1:]
    assert [change.data for change in changes] == [{DISPATCHER: f"{number},a"} for number in range(30)]
    assert before.steady <= changes[0].at.steady <= changes[-1].at.steady <= now().steady


def test_a_config_map_that_goes_and_comes_again_is_another_one(watch: Watch, flink: Namespace) -> None:
    """A deletion is reported as that there is none, and what comes after it has a new uid."""
    first = flink.create(NAME, {DISPATCHER: "1,a"}, LEADER)
    recorder = watch()
    recorder.wait_version(first)
    flink.delete(NAME)
    recorder.wait_gone(NAME)
    second = flink.create(NAME, {}, LEADER)
    recorder.wait_version(second)
    assert recorder.versions() == [version_of(first), (NAME, None, ""), version_of(second)]
    assert version_of(first)[1] != version_of(second)[1]


def test_clusters_in_one_namespace_do_not_mix(watch: Watch, flink: Namespace) -> None:
    """Each driver reports its own cluster only, also where the id of one begins like that of another."""
    mine, others = (
        flink.create(NAME, {DISPATCHER: "1,a"}),
        flink.create("demo-2-cluster-config-map", {DISPATCHER: "2,b"}),
    )
    flink.create(f"demo-{JOB}-config-map", {"counter": "1"}, labels=LABELS)
    one, two = watch(), watch(cluster_id="demo-2")
    one.wait_complete()
    two.wait_complete()
    assert [one.versions(), two.versions()] == [[version_of(mine)], [version_of(others)]]


def test_a_value_of_a_megabyte_is_heard_and_left_out(watch: Watch, flink: Namespace) -> None:
    """A job graph may be as large as a ConfigMap can be, and longer still in JSON: the leader beside it is reported all the same."""
    recorder = watch()
    recorder.wait_complete()
    flink.create(NAME, {DISPATCHER: "1,a", f"jobGraph-{JOB}": "<" * 1_000_000})  # each is six bytes in Go's JSON
    changed = flink.replace(NAME, {DISPATCHER: "2,b", f"jobGraph-{JOB}": ">" * 1_000_000})
    recorder.wait_version(changed)
    assert [config_map.data for config_map in recorder.config_maps()] == [
        {DISPATCHER: leader, f"jobGraph-{JOB}": ""} for leader in ("1,a", "2,b")
    ]
    assert recorder.view() == [CONNECTED]


def test_odd_contents_are_reported_as_they_are(watch: Watch, flink: Namespace) -> None:
    """What makes no sense is for the core to judge: no annotation, one that is no JSON, values that are none."""
    first = flink.create(NAME)
    recorder = watch()
    recorder.wait_complete()
    second = flink.replace(NAME, {DISPATCHER: "\u0000no, uuid,"}, "{broken")
    third = flink.replace(NAME, {DISPATCHER: None, "😀".encode().hex(): "1"}, "")
    recorder.wait_version(third)
    assert [(config_map.leader, config_map.data) for config_map in recorder.config_maps()][-2:] == [
        ("{broken", {DISPATCHER: "\u0000no, uuid,"}),
        ("", {DISPATCHER: ""}),
    ]
    assert version_of(first)[1] == version_of(second)[1]


# -- one ConfigMap for each component, until 1.14 ----------------------------------------------------------------------


def test_the_config_maps_of_old_flinks_are_found_by_their_labels(watch: Watch, flink: Namespace) -> None:
    """All leaders of Flink 1.14 are seen, those of jobs as they come; checkpoints, the autoscaler and other clusters are left alone."""
    components = [
        flink.create(f"demo-{component}-leader", {"address": "akka.tcp://a", "sessionId": "1"}, LEADER, LABELS)
        for component in ("dispatcher", "resourcemanager", "restserver")
    ]
    flink.create(f"demo-{JOB}-config-map", {"counter": "1"}, labels=LABELS)
    flink.create("autoscaler-demo", {"address": "1"}, labels=LABELS | {"component": "autoscaler"})
    flink.create("demo-2-dispatcher-leader", {"address": "b"}, LEADER, LABELS | {"app": "demo-2"})
    recorder = watch()
    recorder.wait_complete()
    assert recorder.versions() == [version_of(component) for component in components]

    name = f"demo-{JOB}-jobmanager-leader"
    flink.create(name, leader=LEADER)  # as Flink does: without labels at first
    labelled = flink.replace(name, {"address": "akka.tcp://a", "sessionId": "1"}, LEADER, LABELS)
    recorder.wait_version(labelled)
    flink.delete(name)
    recorder.wait_gone(name)
    changed = flink.replace("demo-restserver-leader", {"address": "akka.tcp://b"}, LEADER, LABELS)
    recorder.wait_version(changed)
    assert recorder.versions()[3:] == [version_of(labelled), (name, None, ""), version_of(changed)]


def test_an_upgrade_is_followed_to_the_new_place(watch: Watch, flink: Namespace) -> None:
    """When a cluster gets its one ConfigMap, the leaders in the old ones are gone."""
    old = flink.create("demo-dispatcher-leader", {"address": "a", "sessionId": "1"}, LEADER, LABELS)
    recorder = watch()
    recorder.wait_version(old)
    new = flink.create(NAME, {DISPATCHER: "2,b"}, LEADER, LABELS)
    recorder.wait_version(new)
    assert recorder.versions() == [version_of(old), ("demo-dispatcher-leader", None, ""), version_of(new)]
    assert recorder.view() == [CONNECTED]


# -- silence -----------------------------------------------------------------------------------------------------------


def test_what_does_not_change_is_confirmed(watch: Watch, flink: Namespace) -> None:
    """After 7 s in which a ConfigMap did not change, all are reported again, and then every 7 s; renewals of others do not hide it."""
    flink.create(NAME, {DISPATCHER: "1,a"}, LEADER)
    silent, lively = "old-dispatcher-leader", "old-resourcemanager-leader"
    for name in (silent, lively):
        flink.create(name, {"address": "a", "sessionId": "1"}, LEADER, LABELS | {"app": "old"})
    one, split = watch(), watch(cluster_id="old")
    one.wait_complete()
    split.wait_complete()
    renewal = count()

    def leases_reported_twice() -> bool:
        flink.replace(lively, {"address": "a", "sessionId": "1"}, str(next(renewal)), LABELS | {"app": "old"})
        time.sleep(0.3)
        return len(one.config_maps()) >= 3 and len(split.config_maps(silent)) >= 3

    wait_for("both to be reported again, twice", leases_reported_twice)
    for recorder, name in ((one, NAME), (split, silent)):
        first, second, third = (config_map.at.steady / SECOND for config_map in recorder.config_maps(name)[:3])
        assert second - first >= 6.9
        assert third - second >= 6.9
        assert third - first < 2 * (7 + LOADED_MACHINE_SECONDS)
        assert len(recorder.versions(name)) == 1
        assert recorder.view() == [CONNECTED]
        assert recorder.snapshots() == 1
    renewals = split.versions(lively)
    assert [int(version[2]) for version in renewals] == sorted(int(version[2]) for version in renewals)


# -- nobody there yet --------------------------------------------------------------------------------------------------


def test_a_cluster_that_is_not_there_is_waited_for(
    watch: Watch, flink: Namespace, caplog: pytest.LogCaptureFixture
) -> None:
    """That there is none is seen, and logged once, with the clusters that there are; when it comes, it is seen.

    Checkpoints alone, that outlive their cluster's leaders, are none.
    """
    flink.create(f"{CLUSTER}-{JOB}-config-map", labels=LABELS)
    for other in ("orders", "payments"):
        flink.create(f"{other}-cluster-config-map", labels=LABELS | {"app": other})
    recorder = watch()
    recorder.wait(lambda: len(recorder.all) == 3)
    assert [type(observation) for observation in recorder.all] == [ViewObserved, SnapshotCompleted, NothingFound]
    recorder.wait_version(flink.create(NAME, {DISPATCHER: "1,a"}))
    assert said(caplog, "no Flink cluster") == [
        f"no Flink cluster demo in namespace {flink.name} yet (others: orders, payments): waiting"
    ]


# -- the end -----------------------------------------------------------------------------------------------------------


def test_it_can_be_stopped_in_every_state(
    watch: Watch, kubernetes: Kubernetes, flink: Namespace, caplog: pytest.LogCaptureFixture
) -> None:
    """Before it was started, while nobody answers, while it pauses, and while it listens; twice; nothing is reported afterwards."""
    caplog.set_level(logging.CRITICAL)
    never = KubernetesDriver(Access(kubernetes.kubeconfig()), flink.name, CLUSTER, now)
    never.stop()
    never.start(Recorder(never))
    nowhere = watch(Access(kubernetes.kubeconfig(server=f"https://127.0.0.1:{free_port()}")))
    nowhere.wait_view(SUSPENDED)
    listening = watch()
    listening.wait_complete()
    for recorder in (nowhere, listening):
        recorder.driver.stop()  # leaves its thread to itself if that takes longer than 4.5 s: see the end
        recorder.driver.stop()
    before = len(listening.all)
    flink.create(NAME)
    time.sleep(0.3)  # in which nothing is to happen
    assert len(listening.all) == before
    assert [thread.name for thread in threading.enumerate() if thread.name == "kubernetes-driver"] == []
