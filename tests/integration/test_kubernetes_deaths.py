"""How JobManagers end is read from a real API server, of this cluster's pods alone; what is not allowed is one line."""

import logging
from collections.abc import Callable, Iterator
from uuid import uuid4

import pytest

from sidecar.core.observations import EndObservation, EventObserved, LogEndRead, PlanObservation, PodObserved
from sidecar.core.process_end import PodStatus, SeenEvent
from sidecar.drivers.kubernetes import Access, plan_watch, pod_reports
from sidecar.drivers.kubernetes.api import Api
from sidecar.drivers.kubernetes.plan_watch import KubernetesPlans
from sidecar.drivers.kubernetes.pod_reports import LOGS_ROLE, Scope
from tests.kit.driver_recorder import Observations, now
from tests.kit.kubernetes_server import Json, Kubernetes, Namespace
from tests.kit.waiting import wait_for

NATIVE = {"app": "orders", "component": "jobmanager", "type": "flink-native-kubernetes"}
PODS_ROLE = '{apiGroups: [""], resources: [pods], verbs: [list, watch]}'
EVENTS_ROLE = '{apiGroups: [""], resources: [events], verbs: [list, watch]}'
KILLING = "Container flink-main-container failed liveness probe, will be restarted"


class Recorder(Observations[PlanObservation | EndObservation]):
    """What was observed."""

    def pods(self, name: str) -> list[tuple[PodStatus, bool]]:
        found = [observation for observation in list(self.all) if isinstance(observation, PodObserved)]
        return [(each.pod, each.gone) for each in found if each.pod.name == name]

    def latest(self, name: str) -> PodStatus | None:
        return next((pod for pod, _ in reversed(self.pods(name))), None)

    def events(self) -> list[SeenEvent]:
        return [observation.event for observation in list(self.all) if isinstance(observation, EventObserved)]

    def logs(self) -> list[LogEndRead]:
        return [observation for observation in list(self.all) if isinstance(observation, LogEndRead)]


Read = Callable[..., Recorder]


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """A refusal is tried again soon."""
    monkeypatch.setattr(plan_watch, "_REFUSED_SECONDS", 1.0)
    monkeypatch.setattr(pod_reports, "_PAUSES", (0.01, 0.01))


@pytest.fixture
def namespace(kubernetes: Kubernetes) -> Namespace:
    return kubernetes.namespace(f"test-{uuid4()}")


@pytest.fixture
def read(kubernetes: Kubernetes, namespace: Namespace) -> Iterator[Read]:
    """Starts readers, and stops them when the test is over."""
    started: list[KubernetesPlans] = []

    def start(*clusters: str, user: str = "admin", drains: bool = False) -> Recorder:
        scope = Scope(namespace.name, frozenset(clusters) or None, plans=drains, deaths=True)
        plans, recorder = KubernetesPlans([(Access(kubernetes.kubeconfig(user), None), scope)], now), Recorder()
        started.append(plans)
        plans.start(recorder)
        return recorder

    yield start
    for plans in started:
        plans.stop()


def terminated(code: int, reason: str, message: str = "") -> Json:
    at = "2099-01-01T00:00:00Z"
    return {"terminated": {"exitCode": code, "reason": reason, "message": message, "startedAt": at, "finishedAt": at}}


def container(restarts: int = 0, limit: str = "", **state: Json) -> list[Json]:
    status: Json = {"name": "jobmanager", "image": "flink", "imageID": "", "ready": True, "restartCount": restarts}
    resources = {"resources": {"limits": {"memory": limit}}} if limit else {}
    return [
        {"name": "flink-ha-sidecar", **{k: v for k, v in status.items() if k != "name"}},
        status | resources | state,
    ]


def test_each_status_of_a_pod_is_observed_until_it_is_gone(read: Read, namespace: Namespace) -> None:
    """The main container's end and limit, not the sidecar's; the deletion; the last status of all."""
    namespace.run_pod("jm", "10.1.2.3", labels={**NATIVE, "pod-template-hash": "abc"}, node="a-node")
    recorder = read("orders")
    wait_for("the pod", lambda: recorder.latest("jm"))
    first = recorder.latest("jm")
    assert first
    assert (first.address, first.phase, first.revision, first.last_end) == ("10.1.2.3", "Running", "abc", None)
    assert first.created_at
    ended = container(1, "1600Mi", lastState=terminated(137, "OOMKilled"), state={"running": {}})
    namespace.show_pod("jm", containerStatuses=ended)
    wait_for("its end", lambda: (recorder.latest("jm") or first).last_end)
    known = recorder.latest("jm")
    assert known
    assert known.last_end
    assert (known.last_end.exit_code, known.last_end.reason) == (137, "OOMKilled")
    namespace.delete_pod("jm")
    wait_for("its deletion", lambda: (recorder.latest("jm") or first).delete_at)
    assert (recorder.latest("jm") or first).grace_seconds == 30
    namespace.show_pod("jm", phase="Failed", reason="Evicted", message="The node was low on resource: memory.")
    namespace.remove_pod("jm")
    wait_for("its end", lambda: [gone for _, gone in recorder.pods("jm")][-1])
    last = recorder.latest("jm")
    assert last
    assert (last.uid, last.reason, last.message) == (first.uid, "Evicted", "The node was low on resource: memory.")


@pytest.mark.parametrize("cordoned", [True, False])
def test_whether_the_node_of_a_pod_that_is_deleted_is_cordoned(
    kubernetes: Kubernetes, read: Read, namespace: Namespace, cordoned: bool
) -> None:
    """Asked when the deletion is observed; the pod has it to its end."""
    name = f"node-{uuid4()}"
    kubernetes.server.ask("POST", "/api/v1/nodes", {"metadata": {"name": name}, "spec": {"unschedulable": cordoned}})
    namespace.run_pod("jm", "10.1.2.3", labels=NATIVE, node=name)
    recorder = read("orders")
    wait_for("the pod", lambda: recorder.latest("jm"))
    namespace.delete_pod("jm")
    wait_for("the answer", lambda: [pod for pod, _ in recorder.pods("jm") if pod.cordoned is cordoned])
    namespace.show_pod("jm", containerStatuses=container(lastState=terminated(143, "Error")))
    wait_for("the next status", lambda: (pod := recorder.latest("jm")) and pod.last_end)
    assert [pod.cordoned for pod, _ in recorder.pods("jm")][-1] is cordoned


def test_a_pod_that_is_gone_when_all_is_listed_again_is_gone(
    kubernetes: Kubernetes, read: Read, namespace: Namespace
) -> None:
    """Nothing was observed of its end: as it was last."""
    namespace.run_pod("jm", "10.1.2.3", labels=NATIVE)
    recorder = read("orders")
    wait_for("the pod", lambda: recorder.latest("jm"))
    kubernetes.kill()
    kubernetes.start()
    namespace.remove_pod("jm")
    wait_for("its end", lambda: [gone for _, gone in recorder.pods("jm")][-1], seconds=60)


def test_pods_of_another_cluster_are_nobodys_business(read: Read, namespace: Namespace) -> None:
    """By the labels of Flink's native integration; a pod that people describe themselves may be any cluster's."""
    namespace.run_pod("other", "10.1.2.3", labels={**NATIVE, "app": "other"})
    namespace.run_pod("own", "10.1.2.4", labels={"app": "flink", "component": "jobmanager"})
    recorder = read("orders")
    wait_for("one", lambda: recorder.latest("own"))
    assert recorder.pods("other") == []


def test_events_count_by_the_uid_of_the_pod(read: Read, namespace: Namespace) -> None:
    """Not one of another pod of the same name, and not one of another object."""
    uid = namespace.run_pod("jm", "10.1.2.3", labels=NATIVE)["metadata"]["uid"]
    recorder = read("orders")
    wait_for("the pod", lambda: recorder.latest("jm"))
    namespace.report("Pod", "jm", "another-uid", "Killing", KILLING)
    namespace.report("ConfigMap", "jm", uid, "Killing", KILLING)
    namespace.report("FlinkDeployment", "billing", "x", "RestartUnhealthyJob", "of another cluster")
    namespace.report("FlinkDeployment", "orders", "x", "Submit", "nothing of ours")
    namespace.report("FlinkDeployment", "orders", "x", "RestartUnhealthyJob", "Restarting unhealthy job")
    namespace.report("Pod", "jm", uid, "Killing", KILLING)
    wait_for("both", lambda: len(recorder.events()) == 2)
    assert {(event.about, event.name, event.uid, event.reason, event.message) for event in recorder.events()} == {
        ("Pod", "jm", uid, "Killing", KILLING),
        ("FlinkDeployment", "orders", "x", "RestartUnhealthyJob", "Restarting unhealthy job"),
    }
    assert all(event.at > 0 for event in recorder.events())


@pytest.mark.parametrize(
    ("granted", "role", "without"),
    [
        ({"events": ("list", "watch"), "pods/log": ("get",)}, PODS_ROLE, "why a JobManager ended is not known"),
        ({"pods": ("list",), "events": ("list", "watch")}, PODS_ROLE, "why a JobManager ended is not known"),
        ({"pods": ("list", "watch")}, EVENTS_ROLE, "whether the kubelet ended a JobManager because of a probe"),
        ({"pods": ("list", "watch"), "events": ("list",)}, EVENTS_ROLE, "whether the operator restarted a cluster"),
    ],
)
def test_each_verb_that_is_missing_is_one_line(
    read: Read,
    namespace: Namespace,
    caplog: pytest.LogCaptureFixture,
    granted: dict[str, tuple[str, ...]],
    role: str,
    without: str,
) -> None:
    """And only that source is missing."""
    namespace.run_pod("jm", "10.1.2.3", labels=NATIVE)
    for resource, verbs in granted.items():
        namespace.allow("nobody", *verbs, resource=resource)
    with caplog.at_level(logging.WARNING, "sidecar.plans"):
        recorder = read("orders", user="nobody")
        wait_for("the line", lambda: [line for line in caplog.messages if line.startswith(without)])
        if "watch" in granted.get("pods", ()):
            wait_for("the pod", lambda: recorder.latest("jm"))
        lines = [line for line in caplog.messages if line.startswith(without)]
        assert len(lines) == 1
        assert lines[0].endswith(f"; the Role needs {role}; retrying")
        assert "grant a Role in namespace" in lines[0]


def test_logs_need_their_role(read: Read, namespace: Namespace, caplog: pytest.LogCaptureFixture) -> None:
    """A container that ended has a log; a refusal is reported once, and pods go on."""
    namespace.run_pod("jm", "10.1.2.3", labels=NATIVE)
    namespace.allow("nobody", "list", "watch", resource="pods")
    namespace.allow("nobody", "list", "watch", resource="events")
    with caplog.at_level(logging.WARNING, "sidecar.plans"):
        recorder = read("orders", user="nobody")
        wait_for("the pod", lambda: recorder.latest("jm"))
        namespace.show_pod(
            "jm", containerStatuses=container(1, lastState=terminated(1, "Error"), state={"running": {}})
        )
        wait_for("the line", lambda: LOGS_ROLE in caplog.text)
        [line] = caplog.messages
        assert line.startswith(
            "the last lines of a JobManager's log are not known: cannot get log of Pod jm in namespace"
        )
        assert "the verb get on the resource pods/log" in line
    assert recorder.logs() == []


def test_the_previous_log_is_read_until_the_kubelet_has_it(
    read: Read, namespace: Namespace, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of the main container, bounded, with the first error in it. (There is no kubelet here that would have one.)"""
    asked: list[tuple[str, str, bool]] = []

    def read_log(_: Api, pod: str, container: str, *, previous: bool, lines: int, most: int) -> str:
        asked.append((pod, container, previous))
        assert lines > 0
        assert most > 0
        return "Terminating due to java.lang.OutOfMemoryError: Java heap space\n"

    monkeypatch.setattr(Api, "read_log", read_log)
    uid = namespace.run_pod("jm", "10.1.2.3", labels=NATIVE)["metadata"]["uid"]
    recorder = read("orders")
    wait_for("the pod", lambda: recorder.latest("jm"))
    namespace.show_pod("jm", containerStatuses=container(1, lastState=terminated(3, "Error"), state={"running": {}}))
    wait_for("the log", recorder.logs)
    [log] = recorder.logs()
    assert (log.pod_uid, log.cluster_id, log.log.exception) == (uid, "orders", "java.lang.OutOfMemoryError")
    assert asked == [("jm", "jobmanager", True)]


HOSTILE: list[Json] = [
    {"containerStatuses": []},
    {
        "containerStatuses": container(
            2**31 - 1, "9" * 19 + "Pi", lastState=terminated(2**31 - 1, "x" * 1000, "y" * 5000)
        )
    },
    {"phase": "x" * 1000, "reason": "\x1b[2J", "message": "z" * 10_000},
]


def test_a_hostile_status_is_bounded(read: Read, namespace: Namespace) -> None:
    """Whoever may write statuses writes anything: each text has its most, and the next status is read."""
    namespace.run_pod("jm", "10.1.2.3", labels=NATIVE)
    recorder = read("orders")
    for status in HOSTILE:
        namespace.show_pod("jm", **status)
    namespace.show_pod("jm", phase="Succeeded")
    wait_for("the last one", lambda: (pod := recorder.latest("jm")) and pod.phase == "Succeeded")
    assert all(len(repr(pod)) < 10_000 for pod, _ in recorder.pods("jm"))
