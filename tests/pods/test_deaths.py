"""Why a leader's pod or container ended, with the rights for it, with some of them, and with none: right, or unknown."""

import os
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

import pytest

from tests.kit.pods.api import Json
from tests.kit.pods.cluster import POD_SECONDS, FlinkPods, Form, Pod
from tests.kit.pods.hog import out_of_memory
from tests.kit.pods.outcome import await_renewals, await_settled
from tests.kit.waiting import wait_for
from tests.pods.conftest import Report

OTHERS_SECONDS: Final = 15.0
"""For the records of the other sidecars."""
PODS: Final = {"apiGroups": [""], "resources": ["pods"], "verbs": ["list", "watch"]}
EVENTS: Final = PODS | {"resources": ["events"]}
LOGS: Final = {"apiGroups": [""], "resources": ["pods/log"], "verbs": ["get"]}
RIGHTS: Final = {"all": [PODS, EVENTS, LOGS], "pods": [PODS], "none": list[Json]()}
CONTAINER: Final[Json] = {
    # A probe that fails when the file is there, and a limit that is soon exceeded.
    "livenessProbe": {
        "exec": {"command": ["sh", "-c", "! test -e /tmp/unhealthy"]},
        "initialDelaySeconds": 5,
        "periodSeconds": 2,
        "failureThreshold": 1,
    },
    "resources": {"requests": {"cpu": "100m"}, "limits": {"memory": "900Mi", "ephemeral-storage": "40Mi"}},
    "terminationMessagePolicy": "FallbackToLogsOnError",
}


@pytest.fixture(scope="module", params=RIGHTS)
def cluster(request: pytest.FixtureRequest) -> Iterator[FlinkPods]:
    rights = RIGHTS[request.param]
    form = Form(2, config={"kubernetes": {"deaths": True}}, jobmanager=CONTAINER, rights=rights)
    with FlinkPods(f"deaths-{request.param}", form) as flink:
        yield flink


def deaths(cluster: FlinkPods) -> list[Json]:
    return [record for record in cluster.records() if record["type"] == "death"]


def verdicts(cluster: FlinkPods, fault: Callable[[Pod], object]) -> list[Json]:
    """What the sidecars record of the leader's end."""
    await_settled(cluster)
    await_renewals(cluster)
    known = {death["episode_id"] for death in deaths(cluster)}
    before, leader = cluster.truth.now, cluster.leader()
    fault(leader)
    wait_for("another leader", lambda: cluster.truth.replaced_since(before), POD_SECONDS)

    def new() -> list[Json]:
        return [death for death in deaths(cluster) if death["episode_id"] not in known]

    if cluster.form.rights:
        wait_for("a death", new, POD_SECONDS)
    time.sleep(OTHERS_SECONDS)  # whether another one says otherwise takes waiting
    return new()


def touch(cluster: FlinkPods, leader: Pod) -> None:
    Path(f"/proc/{cluster.process(leader)}/root/tmp/unhealthy").touch()


def fill(cluster: FlinkPods, leader: Pod) -> None:
    Path(f"/proc/{cluster.process(leader)}/root/tmp/large").write_bytes(b"1" * (60 << 20))


def signalled(number: signal.Signals) -> Callable[[FlinkPods, Pod], object]:
    return lambda cluster, leader: os.kill(cluster.process(leader), number)


FAULTS: Final[dict[str, tuple[Callable[[FlinkPods, Pod], object], str, set[str]]]] = {
    "liveness probe": (touch, "liveness_probe", set()),
    "out of memory": (
        lambda c, leader: out_of_memory(leader.cgroup("jobmanager"), c.process(leader)),
        "oom_killed",
        set(),
    ),
    "kill -9": (signalled(signal.SIGKILL), "killed", set()),
    "SIGTERM": (
        signalled(signal.SIGTERM),
        "killed",
        {"unknown"},
    ),  # the kubelet drops Events of a pod that has had many
    "deleted": (lambda c, leader: c.delete(leader), "deleted", set()),
    "deleted by force": (lambda c, leader: c.delete(leader, grace_seconds=0), "deleted", set()),
    "evicted through the API": (lambda c, leader: c.evict(leader), "deleted", {"drained"}),
    "ephemeral storage": (fill, "evicted", set()),
    "another template": (lambda c, _: c.rollout(), "replaced", {"deleted"}),
}
"""What is done, the reason, and other ones that are right as well. The probe first: the kubelet soon drops Events of these pods."""


@pytest.mark.parametrize("fault", FAULTS)
def test_the_verdict_is_right_or_unknown(cluster: FlinkPods, report: Report, fault: str) -> None:
    """Of each sidecar that records one. With all rights, one of them knows."""
    act, reason, as_well = FAULTS[fault]
    found = verdicts(cluster, lambda leader: act(cluster, leader))
    for failed in (each for each in cluster.pods() if not each.is_ready()):
        cluster.delete(failed)  # a pod that was evicted stays
    said = [f"{death['reason']} ({death['confidence']})" for death in found]
    report(f"death, rights: {cluster.namespace.split('-')[1]}, {fault}", f"{', '.join(sorted(said))} | | | | |")
    assert {death["reason"] for death in found} <= {reason, "unknown", *as_well}, found
    if cluster.form.rights == RIGHTS["all"]:
        assert reason in {death["reason"] for death in found} | as_well, found
