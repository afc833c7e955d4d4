"""Why a leader's pod or container ended, with the rights for it, with some of them, and with none: right, or unknown."""

import os
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final

import pytest

from tests.kit.job_programs import program_jar
from tests.kit.pods.api import Json
from tests.kit.pods.cluster import POD_SECONDS, FlinkPods, Form, Pod
from tests.kit.pods.hog import out_of_memory
from tests.kit.pods.images import NEXT_FLINK
from tests.kit.pods.manifests import POD_IP
from tests.kit.pods.node import sandbox
from tests.kit.pods.outcome import await_renewals, await_settled
from tests.kit.waiting import until, wait_for
from tests.pods.conftest import Report

OTHERS_SECONDS: Final = 15.0
"""For the records of the other sidecars."""
LEAST_SECONDS: Final = 60.0
"""For a record where there need not be one."""
LATE_SECONDS: Final = 50.0
"""An end so long after the leadership was lost, as with a full heap on a slow machine, may be of no failover."""
PODS: Final = {"apiGroups": [""], "resources": ["pods"], "verbs": ["list", "watch"]}
EVENTS: Final = PODS | {"resources": ["events"]}
LOGS: Final = {"apiGroups": [""], "resources": ["pods/log"], "verbs": ["get"]}
NODES: Final = {"apiGroups": [""], "resources": ["nodes"], "verbs": ["get"]}
CONTAINER: Final[Json] = {
    # A probe that fails when the file is there, and a limit that is soon exceeded.
    "livenessProbe": {
        "exec": {"command": ["sh", "-c", "! test -e /tmp/unhealthy"]},
        "initialDelaySeconds": 5,
        "periodSeconds": 2,
        "timeoutSeconds": 30,  # a machine that does much else is not to fail it
        "failureThreshold": 1,
    },
    "resources": {"requests": {"cpu": "100m"}, "limits": {"memory": "900Mi", "ephemeral-storage": "40Mi"}},
}
FALLBACK: Final[Json] = {"terminationMessagePolicy": "FallbackToLogsOnError"}
AT_ONCE: Final[Json] = {"env": [POD_IP, {"name": "JAVA_TOOL_OPTIONS", "value": "-XX:+ExitOnOutOfMemoryError"}]}
FLINKS_USER: Final[Json] = {"runAsUser": 9999, "runAsGroup": 9999, "capabilities": {"drop": ["ALL"]}}
FORMS: Final[dict[str, dict[str, Any]]] = {
    # The log's end is the kubelet's, by pods/log alone; then that of the pod's status; then there is none, and the kernel in its place.
    "all": {"rights": [PODS, EVENTS, LOGS], "cluster_rights": [NODES]},
    "pods": {"rights": [PODS], "jobmanager": FALLBACK},
    "none": {"pod": {"shareProcessNamespace": True}, "container": {"securityContext": FLINKS_USER}},
}
"""By the rights of the sidecar's account."""


def form(rights: str, **jobmanager: Any) -> Form:
    """Two JobManagers whose container has these changes."""
    given = FORMS[rights] | {"jobmanager": CONTAINER | FORMS[rights].get("jobmanager", {}) | jobmanager}
    config: Json = {"kubernetes": {"deaths": True}}
    return Form(2, config=config | ({} if given.get("rights") else {"evidence": {"capture": ["processes"]}}), **given)


@pytest.fixture(scope="module", params=FORMS)
def cluster(request: pytest.FixtureRequest) -> Iterator[FlinkPods]:
    with FlinkPods(f"deaths-{request.param}", form(request.param)) as flink:
        yield flink


@pytest.fixture(scope="module", params=FORMS)
def exiting(request: pytest.FixtureRequest) -> Iterator[FlinkPods]:
    """Its JobManagers end as soon as their heap is full."""
    with FlinkPods(f"exiting-{request.param}", form(request.param, **AT_ONCE)) as flink:
        yield flink


def deaths(cluster: FlinkPods) -> list[Json]:
    return [record for record in cluster.records() if record["type"] == "death"]


def verdicts(cluster: FlinkPods, fault: Callable[[Pod], object]) -> list[Json]:
    """What the sidecars record of the leader's end."""
    await_settled(cluster)
    await_renewals(cluster)
    earlier = {death["episode_id"] for death in deaths(cluster)}
    before, leader = cluster.truth.now, cluster.leader()
    process = cluster.death(leader)
    fault(leader)
    after = wait_for("another leader", lambda: cluster.truth.replaced_since(before), POD_SECONDS)

    def new() -> list[Json]:
        return [death for death in deaths(cluster) if death["episode_id"] not in earlier]

    until(new, POD_SECONDS if cluster.form.rights else LEAST_SECONDS, every=1)
    ended_late = process.at is None or process.at > after.at + LATE_SECONDS
    assert new() or ended_late or not cluster.form.rights
    time.sleep(OTHERS_SECONDS)  # whether another one says otherwise takes waiting
    return new()


def touch(cluster: FlinkPods, leader: Pod) -> None:
    Path(f"/proc/{cluster.process(leader)}/root/tmp/unhealthy").touch()


def fill(cluster: FlinkPods, leader: Pod) -> None:
    Path(f"/proc/{cluster.process(leader)}/root/tmp/large").write_bytes(b"1" * (60 << 20))


def signalled(number: signal.Signals) -> Callable[[FlinkPods, Pod], object]:
    return lambda cluster, leader: os.kill(cluster.process(leader), number)


def run(program: str) -> Callable[[FlinkPods, Pod], object]:
    return lambda cluster, leader: cluster.run_program(leader, program_jar(program, sandbox()))


FILL_THE_HEAP: Final = run("HeapFiller")
# The exit code alone, without a log, does not say of what.
HEAP: Final = ("heap_exhausted", {"exited"})
Fault = tuple[Callable[[FlinkPods, Pod], object], str, set[str]]
FAULTS: Final[dict[str, Fault]] = {
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
    "exit code 1": (run("Exit"), "exited", set()),
    "full heap, ended by Flink": (FILL_THE_HEAP, *HEAP),
    "deleted": (lambda c, leader: c.delete(leader), "deleted", set()),
    "deleted by force": (lambda c, leader: c.delete(leader, grace_seconds=0), "deleted", set()),
    "evicted through the API": (lambda c, leader: c.evict(leader), "deleted", {"drained"}),
    "ephemeral storage": (fill, "evicted", set()),
    "another template": (lambda c, _: c.rollout(), "replaced", {"deleted"}),
    "another image": (lambda c, _: c.roll_out_image(NEXT_FLINK), "replaced", {"deleted"}),
}
"""What is done, the reason, and other ones that are right as well. The probe first: the kubelet soon drops Events of these pods."""


def check(cluster: FlinkPods, report: Report, name: str, fault: Fault) -> list[Json]:
    """Each sidecar that records a verdict is right. With all rights, one of them knows."""
    act, reason, as_well = fault
    rows = verdicts(cluster, lambda leader: act(cluster, leader))
    for failed in (pod for pod in cluster.pods() if not pod.is_ready()):
        cluster.delete(failed)  # a pod that was evicted stays
    said = [f"{death['reason']} ({death['confidence']})" for death in rows]
    report(f"death, rights: {cluster.namespace.split('-')[1]}, {name}", f"{', '.join(sorted(said))} | | | | |")
    reasons = {death["reason"] for death in rows}
    assert reasons <= {reason, "unknown", *as_well}, rows
    if rows and cluster.form.cluster_rights:
        assert reasons & {reason, *as_well}, rows
    return rows


@pytest.mark.parametrize("fault", FAULTS)
def test_the_verdict_is_right_or_unknown(cluster: FlinkPods, report: Report, fault: str) -> None:
    """Whatever ended it."""
    check(cluster, report, fault, FAULTS[fault])


def test_the_kubelets_previous_log_names_the_full_heap(exiting: FlinkPods, report: Report) -> None:
    """With a right to it; the pod's status has the end of the log as well, if it is to."""
    found = check(exiting, report, "full heap, ended at once", (FILL_THE_HEAP, *HEAP))
    if exiting.form.rights:
        assert any("OutOfMemoryError" in (death["fault"] or "") for death in found), found


@pytest.mark.whole_node
def test_a_drained_node_is_distinguished_from_a_deleted_pod(cluster: FlinkPods, report: Report) -> None:
    """By the node, which is cordoned: Kubernetes 1.20 says nothing else."""

    def drain(cluster: FlinkPods, leader: Pod) -> None:
        cluster.cordon(cordoned=True)
        assert cluster.evict(leader)

    try:
        check(cluster, report, "drained", (drain, "drained", set() if cluster.form.cluster_rights else {"deleted"}))
    finally:
        cluster.cordon(cordoned=False)
