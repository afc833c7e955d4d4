"""Pods are asked for in the background: once for an address, again while there is no answer, and not where that is refused."""

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from queue import Queue

import pytest

from sidecar.core.observations import PodNamed
from sidecar.core.pods import Pod
from sidecar.drivers import pod_names
from sidecar.drivers.pod_names import PodNames
from sidecar.ports import KubernetesError, KubernetesRefusedError
from sidecar.runtime.clock import Clock
from tests.kit.waiting import wait_for

CLUSTER, LAST = "orders", "the last one"
JM = Pod("orders-jobmanager-0", "uid-0")


class Memory:
    """A namespace: what each next question is answered with, the last one for ever."""

    def __init__(self, *answers: Pod | KubernetesError | None) -> None:
        self._answers = list(answers)
        self.asked: list[str] = []
        self.held = threading.Event()
        self.held.set()

    def find(self, address: str, _wall: int) -> Pod | None:
        self.asked.append(address)
        self.held.wait(30)
        answer = self._answers.pop(0) if len(self._answers) > 1 else self._answers[0]
        if isinstance(answer, KubernetesError):
            raise answer
        return answer


@contextmanager
def running(directory: Memory) -> Iterator[tuple[PodNames, "Queue[PodNamed]"]]:
    """`LAST` is a cluster whose answer comes after all that was asked for before."""
    names, observed = PodNames({CLUSTER: directory, LAST: Memory(JM)}, Clock()), Queue[PodNamed]()
    names.start(observed.put)
    try:
        yield names, observed
    finally:
        names.stop()


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Pauses short enough for a test."""
    monkeypatch.setattr(pod_names, "_PAUSES", (0.01, 0.01, 0.01, 0.0))


def test_an_address_is_asked_for_once() -> None:
    """Three components report the same JobManager."""
    directory = Memory(JM)
    with running(directory) as (names, observed):
        for host in ("10.1.2.3", "10.1.2.3", "10.1.2.3", "10.1.2.4"):
            names.find(CLUSTER, host)
        first, second = observed.get(timeout=10), observed.get(timeout=10)
    assert [(each.cluster_id, each.host, each.pod) for each in (first, second)] == [
        (CLUSTER, "10.1.2.3", JM),
        (CLUSTER, "10.1.2.4", JM),
    ]
    assert directory.asked == ["10.1.2.3", "10.1.2.4"]


def test_a_pod_that_is_not_reported_yet_is_asked_for_again() -> None:
    """The kubelet may be slower than the JobManager."""
    directory = Memory(None, None, JM)
    with running(directory) as (names, observed):
        names.find(CLUSTER, "10.1.2.3")
        assert observed.get(timeout=10).pod == JM
    assert len(directory.asked) == 3
    assert observed.empty()


def test_that_there_is_no_such_pod_is_an_answer() -> None:
    """An earlier name of that address is forgotten."""
    directory = Memory(None)
    with running(directory) as (names, observed):
        names.find(CLUSTER, "10.1.2.3")
        assert observed.get(timeout=10).pod is None
    assert len(directory.asked) == 4


def test_a_refusal_is_logged_once_and_nobody_is_asked_again(caplog: pytest.LogCaptureFixture) -> None:
    """The line has what the Role needs."""
    directory = Memory(KubernetesRefusedError("no permission: the Role needs …"))
    with running(directory) as (names, observed):
        names.find(CLUSTER, "10.1.2.3")
        names.find(CLUSTER, "10.1.2.4")
        names.find("one that is not watched", "10.1.2.4")
        names.find(LAST, "10.1.2.5")
        assert observed.get(timeout=10).cluster_id == LAST
    assert directory.asked == ["10.1.2.3"]
    assert caplog.messages == ["cluster orders: messages do not name the leader's pod: no permission: the Role needs …"]


def test_an_outage_is_tried_a_few_times(caplog: pytest.LogCaptureFixture) -> None:
    """And logged once; the address is then shown without a name."""
    directory = Memory(KubernetesError("no answer in time"), JM)
    with running(directory) as (names, observed):
        names.find(CLUSTER, "10.1.2.3")
        assert observed.get(timeout=10).pod == JM
    assert len(directory.asked) == 2
    assert caplog.messages == ["cluster orders: messages do not name the leader's pod: no answer in time"]


def test_what_waited_too_long_is_not_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its leader may have been replaced meanwhile."""
    monkeypatch.setattr(pod_names, "ASKED_SECONDS", 0.2)
    directory = Memory(JM)
    directory.held.clear()
    with running(directory) as (names, observed):
        names.find(CLUSTER, "10.1.2.3")
        names.find(CLUSTER, "10.1.2.4")
        waited_since = time.monotonic()
        wait_for("the time to pass", lambda: time.monotonic() > waited_since + 0.2)
        directory.held.set()
        assert observed.get(timeout=10).host == "10.1.2.3"
        names.find(LAST, "10.1.2.5")
        assert observed.get(timeout=10).cluster_id == LAST
    assert directory.asked == ["10.1.2.3"]


def test_it_ends_before_it_began() -> None:
    """And twice."""
    names = PodNames({}, Clock())
    names.find(CLUSTER, "10.1.2.3")
    names.stop()
    names.start(lambda _: None)
    names.stop()
