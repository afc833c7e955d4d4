"""Events on a real API server: what a Role must allow, what people are shown, and what is left alone."""

from collections.abc import Callable
from functools import partial
from uuid import uuid4

import pytest
from msgspec.structs import replace

from sidecar.core.failover.failover_events import MOST_BYTES, EventReason, EventSubject, KubernetesEvent
from sidecar.core.moment import Timestamp
from sidecar.drivers.kubernetes import Access
from sidecar.drivers.kubernetes.events import MOST_EPISODES, KubernetesEvents, event_name
from sidecar.ports import KubernetesError, KubernetesRefusedError
from tests.kit.kubernetes_server import Json, Kubernetes, Namespace
from tests.kit.waiting import wait_for

CONFIG_MAP = "orders-cluster-config-map"


@pytest.fixture
def flink(kubernetes: Kubernetes) -> Namespace:
    """A namespace of this test's own."""
    return kubernetes.namespace(f"test-{uuid4()}")


def store(kubernetes: Kubernetes, flink: Namespace, user: str = "admin") -> KubernetesEvents:
    return KubernetesEvents(Access(kubernetes.kubeconfig(user)), flink.name)


def about(resource: Json, kind: str = "ConfigMap", episode: int = 1) -> KubernetesEvent:
    """That a leader was lost."""
    subject = EventSubject(kind, resource["metadata"]["name"], resource["metadata"]["uid"])
    at = Timestamp(f"2026-11-20T08:00:{episode:02}.123456Z")
    return KubernetesEvent("orders", subject, EventReason.LEADER_LOST, f"lost, {episode}", at, f"episode-{episode}")


def shown(flink: Namespace, kind: str, of: Json) -> list[tuple[object, ...]]:
    """The columns of `kubectl describe`."""
    columns = ("type", "reason", "count", "message", "firstTimestamp", "lastTimestamp")
    return [(*(event[column] for column in columns), event["source"]["component"]) for event in flink.events(kind, of)]


def test_people_are_shown_one_line_for_each_reason(kubernetes: Kubernetes, flink: Namespace) -> None:
    """Of the ConfigMap and of a pod: the latest message, how often, and since when."""
    config_map, pod = flink.create(CONFIG_MAP), flink.run_pod("orders-jobmanager-0", "10.1.2.3")
    events = store(kubernetes, flink)
    for episode in (1, 2, 3):
        events.write(about(config_map, episode=episode))
    events.write(replace(about(config_map, episode=3), reason=EventReason.FAILED_OVER, message="over"))
    events.write(about(pod, "Pod"))
    first, third = "2026-11-20T08:00:01Z", "2026-11-20T08:00:03Z"
    assert shown(flink, "ConfigMap", config_map) == [
        ("Warning", "FlinkLeaderLost", 3, "lost, 3", first, third, "flink-ha-sidecar"),
        ("Normal", "FlinkFailedOver", 1, "over", third, third, "flink-ha-sidecar"),
    ]
    assert shown(flink, "Pod", pod) == [("Warning", "FlinkLeaderLost", 1, "lost, 1", first, first, "flink-ha-sidecar")]


def test_two_observers_write_one_event(kubernetes: Kubernetes, flink: Namespace) -> None:
    """Whoever comes second finds its failover counted; so does one that repeats itself after a restart."""
    config_map = flink.create(CONFIG_MAP)
    one, other = store(kubernetes, flink), store(kubernetes, flink)
    for episode in range(1, MOST_EPISODES + 4):
        one.write(about(config_map, episode=episode))
        other.write(replace(about(config_map, episode=episode), message="in other words"))
    [event] = flink.events("ConfigMap", config_map)
    assert (event["count"], event["message"]) == (MOST_EPISODES + 3, f"lost, {MOST_EPISODES + 3}")
    counted = event["metadata"]["annotations"]["flink-ha-sidecar/episodes"].split(",")
    assert counted == [f"episode-{number}" for number in range(4, MOST_EPISODES + 4)]


def test_an_event_that_has_expired_begins_anew(kubernetes: Kubernetes, flink: Namespace) -> None:
    """Kubernetes deletes Events after an hour."""
    config_map = flink.create(CONFIG_MAP)
    events = store(kubernetes, flink)
    events.write(about(config_map))
    kubernetes.server.ask("DELETE", f"/api/v1/namespaces/{flink.name}/events/{event_name(about(config_map))}")
    events.write(about(config_map, episode=2))
    assert [event["count"] for event in flink.events("ConfigMap", config_map)] == [1]


def test_the_longest_names_and_messages_are_accepted(kubernetes: Kubernetes, flink: Namespace) -> None:
    """A name of 253 characters, and 1,024 bytes."""
    config_map = flink.create(f"{'a' * 63}." * 3 + "b" * 61)
    event = replace(about(config_map), message="ß" * (MOST_BYTES // 2))
    store(kubernetes, flink).write(event)
    assert flink.events("ConfigMap", config_map)[0]["message"] == event.message


def test_nothing_of_flinks_is_written(kubernetes: Kubernetes, flink: Namespace) -> None:
    """The ConfigMap and the pod stay as they are."""
    config_map, pod = flink.create(CONFIG_MAP, {"leader": "1,a"}, "{}"), flink.run_pod("jm-0", "10.1.2.3")
    events = store(kubernetes, flink)
    for resource, kind in ((config_map, "ConfigMap"), (pod, "Pod")):
        for episode in (1, 2):
            events.write(about(resource, kind, episode))
    assert flink.get(CONFIG_MAP) == config_map
    found = kubernetes.server.ask("GET", f"/api/v1/namespaces/{flink.name}/pods/jm-0")
    assert found["metadata"]["resourceVersion"] == pod["metadata"]["resourceVersion"]


def test_what_a_role_must_allow(kubernetes: Kubernetes, flink: Namespace) -> None:
    """Each verb that is missing is named, and the line that the Role needs."""
    config_map = flink.create(CONFIG_MAP)
    events = store(kubernetes, flink, "somebody")
    role = '; the Role needs {apiGroups: [""], resources: [events], verbs: [create, get, patch]}'
    for number, verb in enumerate(("create", "get", "patch"), 1):
        line = refused(partial(events.write, about(config_map, episode=number)))
        assert f"a Role in namespace {flink.name} that allows the verb {verb} on the resource events (" in line
        assert line.endswith(role)
        flink.allow("somebody", verb, resource="events")
        granted(lambda: events.write(about(config_map)))
    granted(lambda: events.write(about(config_map, episode=3)))
    assert [event["count"] for event in flink.events("ConfigMap", config_map)] == [2]


def test_an_api_server_out_of_reach_is_no_refusal(kubernetes: Kubernetes) -> None:
    """It is tried again; so is a namespace that does not exist."""
    nowhere = Access(kubernetes.kubeconfig(server="https://127.0.0.1:1"))
    with pytest.raises(KubernetesError, match="Connection refused") as raised:
        KubernetesEvents(nowhere, "flink").write(about({"metadata": {"name": "a", "uid": "b"}}))
    assert not isinstance(raised.value, KubernetesRefusedError)


def refused(act: Callable[[], object]) -> str:
    with pytest.raises(KubernetesRefusedError) as raised:
        act()
    return str(raised.value)


def granted(act: Callable[[], object]) -> None:
    """The API server's own view of a new Role is a moment late."""

    def permitted() -> bool:
        try:
            act()
        except KubernetesRefusedError:
            return False
        return True

    wait_for("the Role", permitted, 10)
