"""`run` on a real API server: messages name pods, and failovers are Events. The leaders are written by the fake Flink."""

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from uuid import uuid4

import pytest

from tests.kit.cluster import CLUSTER, job_manager
from tests.kit.config_maps import ONE, ApiServerWriter, ConfigMaps
from tests.kit.fake_flink import Flink
from tests.kit.kubernetes_server import USERS, Json, Kubernetes, Namespace
from tests.kit.sidecar_process import Sidecar
from tests.kit.waiting import wait_for
from tests.lab.receivers import HttpReceiver

OLD, NEW = job_manager("10.1.2.3"), job_manager("10.1.2.4")
OLD_POD, NEW_POD = "orders-jobmanager-7d9f4b-abcde", "orders-jobmanager-7d9f4b-fghij"
Start = Callable[..., Sidecar]


@pytest.fixture
def namespace(kubernetes: Kubernetes) -> Namespace:
    """One in which the sidecar may read leaders and keep its own ConfigMap."""
    made = kubernetes.namespace(f"test-{uuid4()}")
    made.allow("reader", "get", "list", "watch", "create", "patch")
    return made


@pytest.fixture
def flink(kubernetes: Kubernetes, namespace: Namespace) -> Flink:
    """A cluster that is led."""
    server = kubernetes.server
    writer = ApiServerWriter(server.url, kubernetes.authority.ca, "admin-of-the-tests", namespace.name)
    return Flink(ConfigMaps(writer=writer, duration="PT600S")).grant(OLD).submit().publish_all(OLD)


@pytest.fixture
def start(kubernetes: Kubernetes, namespace: Namespace, people: HttpReceiver, tmp_path: Path) -> Iterator[Start]:
    """Starts a sidecar with an empty folder, and these settings of `kubernetes`."""
    running: list[Sidecar] = []

    def started(name: str, **settings: bool) -> Sidecar:
        place = {"cluster_id": CLUSTER, "namespace": namespace.name, "kubeconfig": str(kubernetes.kubeconfig("reader"))}
        sidecar = Sidecar(tmp_path / name, f"kubernetes: {json.dumps(place | settings)}", [people.url], observer=name)
        running.append(sidecar)
        sidecar.start().wait_ready()
        return sidecar

    assert USERS["reader"]
    yield started
    for sidecar in running:
        sidecar.stop()


def fail_over(flink: Flink) -> None:
    """The leader withdraws, and another one follows."""
    flink.vacate()
    flink.grant(NEW).publish_all(NEW)


def pods(sidecar: Sidecar) -> set[str | None]:
    """Of all leaders, as the API has them."""
    return {leader["pod"] for leader in json.loads(sidecar.get("/api/v1/leaders")[1])}


def message(people: HttpReceiver) -> str:
    """The one about the changed leaders."""
    messages = wait_for("the message", lambda: [each for each in people.received if "failed over" in each.body])
    assert len(messages) == 1
    return f"{messages[0].title}\n{messages[0].body}"


def reasons(namespace: Namespace, kind: str, of: Json) -> list[str]:
    return [event["reason"] for event in namespace.events(kind, of)]


def test_a_failover_is_reported_with_the_names_of_pods_and_shown_as_events(
    flink: Flink, namespace: Namespace, people: HttpReceiver, start: Start
) -> None:
    """In the message, on the page, in the API and in the records; at the ConfigMap, and at both pods."""
    for resource, verbs in (("pods", ["list"]), ("events", ["create", "get", "patch"])):
        namespace.allow("reader", *verbs, resource=resource)
    old, new = namespace.run_pod(OLD_POD, "10.1.2.3"), namespace.run_pod(NEW_POD, "10.1.2.4")
    sidecar = start("beside", pod_names=True, events=True)
    wait_for("the name", lambda: pods(sidecar) == {OLD_POD})
    fail_over(flink)
    assert "JobManager failed over" in message(people)
    assert f"JobManager: {OLD_POD}, 10.1.2.3:6123 → {NEW_POD}, 10.1.2.4:6123 at" in message(people)
    [episode] = wait_for("the episode", lambda: [record for record in sidecar.records() if record["type"] == "episode"])
    assert (episode["before_pod"], episode["after_pod"]) == (OLD_POD, NEW_POD)
    both = ["FlinkLeaderLost", "FlinkFailedOver"]
    wait_for("the Events", lambda: sorted(reasons(namespace, "ConfigMap", namespace.get(ONE))) == sorted(both))
    wait_for("that of the new pod", lambda: reasons(namespace, "Pod", new) == both[1:])
    assert reasons(namespace, "Pod", old) == both[:1]
    assert 'flink_ha_kubernetes_events_total{outcome="written"} 4.0' in sidecar.get("/metrics")[1]
    assert f"in pod <bdi>{NEW_POD}</bdi>" in sidecar.get("/")[1]


def test_sidecars_in_the_pods_know_their_names_without_any_permission(
    flink: Flink, people: HttpReceiver, start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    """From their manifest; that of the pod that is gone is in the handover."""
    monkeypatch.setenv("POD_NAME", OLD_POD)
    monkeypatch.setenv("POD_IP", "10.1.2.3")
    first = start("first")
    wait_for("the name", lambda: pods(first) == {OLD_POD})
    flink.vacate()
    assert first.stop() == 0
    flink.grant(NEW).publish_all(NEW)
    monkeypatch.setenv("POD_NAME", NEW_POD)
    monkeypatch.setenv("POD_IP", "10.1.2.4")
    second = start("second")
    assert f"JobManager: {OLD_POD}, 10.1.2.3:6123 → {NEW_POD}, 10.1.2.4:6123 at" in message(people)
    assert pods(second) == {NEW_POD}


def test_without_permission_messages_arrive_and_two_lines_say_what_is_missing(
    flink: Flink, namespace: Namespace, people: HttpReceiver, start: Start
) -> None:
    """As soon as with it; with addresses. The lines are not repeated."""
    sidecar = start("beside", pod_names=True, events=True)
    fail_over(flink)
    assert "JobManager: 10.1.2.3:6123 → 10.1.2.4:6123 at" in message(people)
    wait_for("the episode", lambda: [record for record in sidecar.records() if record["type"] == "episode"])
    dropped = 'flink_ha_kubernetes_events_total{outcome="dropped"} 2.0'
    wait_for("the second Event", lambda: dropped in sidecar.get("/metrics")[1])
    log = sidecar.log.read_text()
    for what, resource, verb in (
        ("messages do not name the leader's pod", "pods", "list"),
        ("Events", "events", "create"),
    ):
        [line] = [line for line in log.splitlines() if f"allows the verb {verb} on the resource {resource}" in line]
        assert what in line
        assert f"resources: [{resource}]" in line
    assert reasons(namespace, "ConfigMap", namespace.get(ONE)) == []
